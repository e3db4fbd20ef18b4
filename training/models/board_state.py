"""Auxiliary probe loss: linear heads on the residual stream predict the board at every position.

After one layer, a head predicts the digits placed and the candidates of each empty cell; after the
next layer, another one predicts the cells with fewest candidates (`solver.mrv.board_state`). The
next-token loss supervises these only indirectly, one choice at a time, and in small models the
loss remains highest at the choice of the cell, a minimum over all cells. The heads exist during
training only and are not exported.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import PreTrainedModel

from solver.boards import Board

HEAD_NAME = "board_state_head"
"""Name of the head as a submodule of the model during training."""


class Stream:
    """Residual stream of the latest forward pass after a layer.

    An attribute, since torch.compile would guard on a dictionary entry and recompile after an
    evaluation.
    """

    value: Tensor
    """Residual stream (B, T, d)."""

    def store(self, _layer: nn.Module, _inputs: Any, output: Any) -> None:
        """Store the output of a layer; a forward hook."""
        self.value = output[0] if isinstance(output, tuple) else output


class BoardStateHead(nn.Module):
    """Probe of the planes of `solver.mrv.board_state` in the residual stream."""

    def __init__(self, board: Board, *, hidden_size: int, layer: int) -> None:
        """Create a head on the outputs of `layer`, counted from 1, and of the next layer."""
        super().__init__()
        self.layer = layer
        self.num_digits, self.num_cells = board.side, board.num_cells
        self.board = nn.Linear(hidden_size, 2 * board.side * board.num_cells)
        self.fewest = nn.Linear(hidden_size, board.num_cells)
        self.streams = {layer: Stream(), layer + 1: Stream()}
        """Residual streams by layer."""

    def forward(self, planes: Tensor, is_token: Tensor) -> Tensor:
        """Binary cross-entropy in fp32 on the latest forward pass, summed over non-padding tokens.

        Args:
            planes: Sets of cells, int64 (B, T, 2D + 1, W).
            is_token: Bool (B, T).

        Returns:
            Sum over positions of three means in nats: over the flags of the digits placed, of the
            candidates, and of the cells with fewest candidates.
        """
        board, fewest = (self.streams[self.layer + n].value for n in (0, 1))
        return self._loss((board, fewest), planes, is_token)

    def compile_loss(self, *, dynamic: bool) -> None:
        """Compile the loss, which otherwise costs as much as two layers."""
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
    """Scale to a root mean square of 1, like the normalization at the input of a layer."""
    return stream * torch.rsqrt(stream.square().mean(dim=-1, keepdim=True) + 1e-6)


def attach_head(model: PreTrainedModel, board: Board, *, layer: int, seed: int) -> None:
    """Attach a head to a model without changing the model's output.

    Raises:
        ValueError: The model does not have both `layer` and the next layer.
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
    for number, stream in head.streams.items():
        layers[number - 1].register_forward_hook(stream.store)


def attached_head(model: nn.Module) -> BoardStateHead | None:
    """Return the head of a model, wrapped in DDP or not; None without a head."""
    inner = getattr(model, "module", model)
    head = getattr(inner, HEAD_NAME, None)
    assert head is None or isinstance(head, BoardStateHead)
    return head


def without_head(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights without those of the head."""
    return {name: w for name, w in weights.items() if not name.startswith(HEAD_NAME + ".")}
