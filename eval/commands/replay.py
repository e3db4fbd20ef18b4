"""`sudocot eval replay`: first deviation of a model from the solver, or of two evaluations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le
from rich.console import Console
from tyro.conf import Positional

from data.model_format.precision import PrecisionName, get_precision
from data.runtime.intervals import wilson_interval
from data.runtime.options import check_defaults
from data.runtime.ranges import check_ranges
from data.runtime.tables import draw_board, print_table
from eval.engines.contract import Request, paper_caps
from eval.inspect.board_state import BoardState, board_state
from eval.results.folder import EvaluationFolder
from solver.boards import Board, Grid
from solver.puzzles import format_grid, parse_puzzle, puzzle_id
from solver.vocabulary import Tokens, Vocabulary

if TYPE_CHECKING:
    from eval.inspect.differences import Comparison, Difference
    from eval.inspect.replay import Deviation, Replay
    from eval.network.model_folder import ModelFolder
    from eval.network.types import TokenNetwork

_CONTEXT_TOKENS = 12
DIFFERENT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Show the first deviation of a model from the solver's trace, its logit margin and the board.

    With two evaluations with stored tokens: show the first different token of each puzzle and the
    disagreement rate, with --model also the margins. The exit code is 1 if there is a deviation or
    difference.

    Examples:
        sudocot eval replay --model runs/scot/final --puzzle '53..7....6..195...'
        sudocot eval replay evals/10k --model runs/scot/final --puzzle 0f3a5b7c9d1e2f40
        sudocot eval replay evals/segment evals/verify --model runs/scot/final
    """

    evaluations: Positional[tuple[Path, ...]] = ()
    """Evaluation folders: none, one that contains the puzzle, or two to compare."""
    model: Path | None = None
    """Model folder or name."""
    puzzle: str | None = None
    """A puzzle, or the key of one in the evaluation."""
    precision: PrecisionName = "fp32"
    """Number formats: bf16 or fp32."""
    device: str = "cpu"
    """Device: cpu, cuda or cuda:N; auto uses a GPU if available."""
    limit: Annotated[int, Ge(0), Le(10**9)] = 10
    """Maximum number of differences to show."""

    def __post_init__(self) -> None:
        check_ranges(self)
        is_pair = len(self.evaluations) == 2
        if len(self.evaluations) > 2:
            raise ValueError(f"evaluations: got {len(self.evaluations)}, allowed are 0 to 2")
        if is_pair == (self.puzzle is not None):
            raise ValueError("puzzle: required with one evaluation or none, not allowed with two")
        if self.model is None and not is_pair:
            raise ValueError("model: needed, unless two evaluations are compared")
        if self.model is None:
            check_defaults(self, ("precision", "device"), where="without --model")


def main(config: Config) -> int:
    """Replay a puzzle or compare two evaluations."""
    console = Console(markup=False, highlight=False, soft_wrap=True)
    if len(config.evaluations) == 2:
        return _compare(config, console)
    from eval.inspect.replay import replay
    from eval.network.model_folder import ModelFolder

    assert config.model is not None
    folder = ModelFolder.open(config.model)
    request = _request(config, folder)
    segment_tokens = folder.facts.segment_tokens if request.mode == "scot" else None
    result = replay(_network(config, folder), request, segment_tokens=segment_tokens)
    console.print(f"puzzle {request.key}: {format_grid(request.board, request.givens)}")
    _show_replay(console, request, result)
    return 0 if result.deviation is None else DIFFERENT


def _network(config: Config, folder: ModelFolder) -> TokenNetwork:
    from eval.engines.factory import make_network
    from eval.network.device import open_device

    return make_network(
        folder, precision=get_precision(config.precision), device=open_device(config.device)
    )


def _request(config: Config, folder: ModelFolder) -> Request:
    text, mode, board = config.puzzle or "", folder.facts.mode, folder.board
    if config.evaluations:
        found = {p.key: p.givens for p in EvaluationFolder.open(config.evaluations[0]).sample}
        text = found.get(text, text)
    _, givens = parse_puzzle(text, board=board)
    key = f"{puzzle_id(board, givens[None])[0]:016x}"
    return Request(key=key, board=board, givens=givens, mode=mode, caps=paper_caps(mode))


def _show_replay(console: Console, request: Request, result: Replay) -> None:
    tokens = f"{result.num_followed:,} tokens"
    if result.deviation is None:
        end = "up to the model's context length" if result.is_cut else "to the end"
        segments = f"{result.num_segments:,} segment{'s' * (result.num_segments > 1)}"
        console.print(f"the model follows the solver's trace {end}: {tokens} in {segments}")
    else:
        console.print(f"the model deviates from the solver's trace after {tokens}")
        _show_deviation(console, request, result.deviation)
    if result.least_margin is not None:
        console.print(f"smallest margin of these tokens: {result.least_margin:.4g}")


def _show_deviation(console: Console, request: Request, deviation: Deviation) -> None:
    board, words = request.board, Vocabulary(request.board).tokens
    preference = deviation.preference
    console.print(
        f"segment {deviation.segment + 1:,}, token {deviation.position + 1:,}, "
        f"after ... {_tail(board, deviation.before)}"
    )
    console.print(f"the solver writes  {words[deviation.solver_token]}")
    console.print(
        f"the model writes   {words[preference.token]}, by a margin of {preference.margin:.4g} "
        f"over {words[preference.runner_up]}, and {deviation.gap:.4g} over the solver's"
    )
    _show_board(console, board, request.givens, board_state(board, deviation.before))


def _show_board(console: Console, board: Board, givens: Grid, state: BoardState) -> None:
    console.print(draw_board(board, state.grid, givens=givens, active_cell=state.cell))
    if state.cell is not None:
        console.print(
            f"line of {board.format_cell(state.cell)}: wrote {_digits(state.written)}; "
            f"the board leaves {_digits(state.allowed)}"
        )


def _compare(config: Config, console: Console) -> int:
    from eval.inspect.differences import compare

    first, second = map(EvaluationFolder.open, config.evaluations)
    comparison = compare(first, second)
    network = None
    if config.model is not None:
        from eval.network.model_folder import ModelFolder

        folder = ModelFolder.open(config.model)
        if folder.board.name != first.config.board:
            raise ValueError(
                f"model: got one for {folder.board.name} boards, allowed is {first.config.board}"
            )
        network = _network(config, folder)
    for setting in comparison.settings:
        console.print(f"differs in {setting}", markup=False)
    _show_comparison(console, comparison)
    shown = comparison.differences[: config.limit]
    if shown:
        rows = _difference_rows(first.board, shown, network=network)
        columns = ("puzzle", "segment", "token", "first", "second", "margin")
        title = "first difference of each puzzle, with the model's margin"
        print_table(console, title, columns, rows)
    return DIFFERENT if comparison.differences or comparison.num_unmatched else 0


def _show_comparison(console: Console, comparison: Comparison) -> None:
    num, total = len(comparison.differences), comparison.num_puzzles
    if comparison.num_unmatched:
        console.print(f"{comparison.num_unmatched:,} puzzles without a result in both are skipped")
    low, high = wilson_interval(num, trials=total)
    console.print(
        f"{num:,} of {total:,} puzzles differ: {num / total:.2%} (95%: {low:.2%} to {high:.2%}), "
        f"one in {comparison.num_tokens / max(num, 1):,.0f} tokens"
        if num
        else f"all {total:,} puzzles have the same {comparison.num_tokens:,} tokens"
    )


def _difference_rows(
    board: Board, differences: Sequence[Difference], *, network: TokenNetwork | None
) -> Iterator[tuple[str, ...]]:
    from eval.inspect.differences import preference_at

    words = Vocabulary(board).tokens
    for difference in differences:
        margin = "-"
        if network is not None:
            preference = preference_at(network, difference)
            margin = f"{preference.margin:.4g}"
        written = ("(ended)" if token is None else words[token] for token in difference.tokens)
        numbers = (f"{difference.segment + 1:,}", f"{difference.position + 1:,}")
        yield (difference.key, *numbers, *written, margin)


def _tail(board: Board, ids: Tokens) -> str:
    words = Vocabulary(board).tokens
    return " ".join(words[token] for token in ids[-_CONTEXT_TOKENS:].tolist())


def _digits(digits: Sequence[int]) -> str:
    return " ".join(map(str, digits)) or "nothing"
