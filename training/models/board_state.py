"""Board-state loss: inner layers must know the board on which the next token is decided.

Next to the next-token loss, linear heads on the residual stream are asked at every position: after
one layer, which digits stand where and which each empty cell can still take; after the next, which
cells have fewest candidates (`solver.mrv.board_state`). The tokens of a trace say this only through
their consequences, one choice at a time: where the loss of a small model stays longest is the
choice of the cell, a minimum over all cells. The heads exist during training alone, an exported
model has none of them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import PreTrainedModel

from solver.boards import Board

HEAD_NAME = "board_state_head"
"""Name under which the head hangs on the model during training."""


class BoardStateHead(nn.Module):
    """Reads the planes of `solver.mrv.board_state` from the residual stream."""

    def __init__(self, board: Board, *, hidden_size: int, layer: int) -> None:
        """Make a head for the streams after `layer`, counted from 1, and after the next."""
        super().__init__()
        self.layer = layer
        self.num_digits, self.num_cells = board.side, board.num_cells
        self.board = nn.Linear(hidden_size, 2 * board.side * board.num_cells)
        self.fewest = nn.Linear(hidden_size, board.num_cells)
        self.streams: dict[int, Tensor] = {}
        """Residual streams (B, T, d) of the model's last pass, by the layer they come from."""

    def forward(self, planes: Tensor, is_token: Tensor) -> Tensor:
        """Binary cross-entropy in fp32 on the model's last pass, summed over all but padding.

        Args:
            planes: Sets of cells, int64 (B, T, 2D + 1, W).
            is_token: Bool (B, T).

        Returns:
            The sum of, for each position, the three means over the flags of the digits placed, of
            the candidates, and of the cells with fewest candidates, in nats.
        """
        streams = (self.streams[self.layer], self.streams[self.layer + 1])
        return self._loss(streams, planes, is_token)

    def compile_loss(self, *, dynamic: bool) -> None:
        """Compile the arithmetic, which costs as much as two layers otherwise."""
        self._loss = torch.compile(self._loss, fullgraph=True, dynamic=dynamic)  # type: ignore[method-assign]

    def _loss(self, streams: tuple[Tensor, Tensor], planes: Tensor, is_token: Tensor) -> Tensor:
        board, fewest = (
            head(_normalized(stream.float())).float()
            for head, stream in zip((self.board, self.fewest), streams, strict=True)
        )
        bits = torch.arange(min(64, self.num_cells), device=planes.device)
        flags = (planes[..., None] >> bits & 1).flatten(-2)[..., : self.num_cells].flatten(-2)
        num_flags = self.num_digits * self.num_cells
        losses = [
            binary_cross_entropy_with_logits(logits, target.float(), reduction="none").mean(-1)
            for logits, target in zip(
                (*board.split(num_flags, dim=-1), fewest),
                flags.split([num_flags, num_flags, self.num_cells], dim=-1),
                strict=True,
            )
        ]
        return ((losses[0] + losses[1] + losses[2]) * is_token).sum()


def _normalized(stream: Tensor) -> Tensor:
    """Scale to a root mean square of 1, as the model's own layers do before they read."""
    return stream * torch.rsqrt(stream.square().mean(dim=-1, keepdim=True) + 1e-6)


def attach_head(model: PreTrainedModel, board: Board, *, layer: int, seed: int) -> None:
    """Hang a head on a model; the model's own output stays what it was.

    Raises:
        ValueError: The model has no such layer and one after it.
    """
    num_layers = model.config.num_hidden_layers
    if not 1 <= layer < num_layers:
        raise ValueError(
            f"board_state_layer: got {layer} with {num_layers} layers, "
            f"allowed are 1 to {num_layers - 1}"
        )
    head = BoardStateHead(board, hidden_size=model.config.hidden_size, layer=layer)
    generator = torch.Generator().manual_seed(seed)
    for part in (head.board, head.fewest):
        nn.init.normal_(part.weight, std=model.config.initializer_range, generator=generator)
        nn.init.zeros_(part.bias)
    model.add_module(HEAD_NAME, head)
    layers = cast("nn.ModuleList", model.base_model.layers)
    for number in (layer, layer + 1):
        layers[number - 1].register_forward_hook(partial(_keep_stream, head.streams, number))


def _keep_stream(
    streams: dict[int, Tensor], layer: int, _module: nn.Module, _inputs: Any, output: Any
) -> None:
    streams[layer] = output[0] if isinstance(output, tuple) else output


def attached_head(model: nn.Module) -> BoardStateHead | None:
    """The head of a model; DDP is looked into."""
    inner = getattr(model, "module", model)
    head = getattr(inner, HEAD_NAME, None)
    assert head is None or isinstance(head, BoardStateHead)
    return head


def without_head(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights that belong to the model itself."""
    return {name: w for name, w in weights.items() if not name.startswith(HEAD_NAME + ".")}
