"""Board-state loss: an early layer must know the board on which the next token is decided.

Next to the next-token loss, a linear head on the residual stream after one layer is asked, at every
position, which digits stand where, which digits each empty cell can still take, and which cells
have fewest candidates (`solver.search_planes`). The tokens of a trace say this only through their
consequences, one choice at a time: where the loss of a small model stays longest is the choice of
the cell, a minimum over all cells. The head exists during training alone, an exported model has
none of it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, linear
from transformers import PreTrainedModel

from solver.boards import Board
from solver.search_planes import num_planes

HEAD_NAME = "board_state_head"
"""Name under which the head hangs on the model during training."""


class BoardStateHead(nn.Module):
    """Reads the planes of `solver.search_planes` from a residual stream."""

    def __init__(self, board: Board, *, hidden_size: int, layer: int) -> None:
        """Make a head for the stream after `layer`, counted from 1."""
        super().__init__()
        self.layer = layer
        self.num_digits, self.num_cells = board.side, board.num_cells
        size = num_planes(board) * board.num_cells
        self.weight = nn.Parameter(torch.zeros(size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, hidden: Tensor, planes: Tensor, is_token: Tensor) -> Tensor:
        """Binary cross-entropy in fp32, summed over the positions that are not padding.

        Args:
            hidden: Residual stream (B, T, d).
            planes: Sets of cells, int64 (B, T, 2D + 1, W).
            is_token: Bool (B, T).

        Returns:
            The sum of, for each position, the three means over the flags of the digits placed, of
            the candidates, and of the cells with fewest candidates, in nats.
        """
        hidden, planes = hidden[is_token].float(), planes[is_token]
        scale = torch.rsqrt(hidden.square().mean(dim=-1, keepdim=True) + 1e-6)
        logits = linear(hidden * scale, self.weight, self.bias)
        bits = torch.arange(64, device=planes.device)
        flags = (planes[..., None] >> bits & 1).flatten(2)[..., : self.num_cells].flatten(1)
        losses = binary_cross_entropy_with_logits(logits, flags.to(logits.dtype), reduction="none")
        num_flags = self.num_digits * self.num_cells
        placed, candidates, fewest = losses.split([num_flags, num_flags, self.num_cells], dim=-1)
        total: Tensor = (placed.mean(-1) + candidates.mean(-1) + fewest.mean(-1)).sum()
        return total


def attach_head(model: PreTrainedModel, board: Board, *, layer: int, seed: int) -> None:
    """Hang a head on a model; the model's own output stays what it was.

    Raises:
        ValueError: The model has no such layer.
    """
    num_layers = model.config.num_hidden_layers
    if not 1 <= layer <= num_layers:
        raise ValueError(
            f"board_state_layer: got {layer} with {num_layers} layers, "
            f"allowed are 1 to {num_layers}"
        )
    head = BoardStateHead(board, hidden_size=model.config.hidden_size, layer=layer)
    generator = torch.Generator().manual_seed(seed)
    nn.init.normal_(head.weight, std=model.config.initializer_range, generator=generator)
    model.add_module(HEAD_NAME, head)


def attached_head(model: nn.Module) -> BoardStateHead | None:
    """The head of a model; DDP is looked into."""
    inner = getattr(model, "module", model)
    head = getattr(inner, HEAD_NAME, None)
    assert head is None or isinstance(head, BoardStateHead)
    return head


def without_head(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights that belong to the model itself."""
    return {name: w for name, w in weights.items() if not name.startswith(HEAD_NAME + ".")}
