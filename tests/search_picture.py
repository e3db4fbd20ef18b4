"""The picture of a search in README.md, drawn from the trace of one puzzle, light and dark.

python -m tests.search_picture
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

from data.text import tokens_to_lines
from solver.boards import Board, Grid
from solver.mrv.tracer import trace
from solver.puzzles import parse_puzzle

FOLDER = Path(__file__).parents[1] / "docs" / "images"
PUZZLE = ".51.........6...4.....5....23...6..."
WIDTH, HEIGHT, CELL, LINE = 860, 470, 44, 16
LEFT, TOP = 28, 66
LINES_PER_COLUMN, COLUMNS = 23, (340, 610)
THEMES = {
    "light": {
        "back": "#ffffff", "text": "#1f2328", "soft": "#656d76", "line": "#8c959f",
        "given": "#1f2328", "solved": "#1a7f37", "branch": "#0969da", "dead": "#cf222e",
    },
    "dark": {
        "back": "#0d1117", "text": "#e6edf3", "soft": "#8d96a0", "line": "#6e7681",
        "given": "#e6edf3", "solved": "#3fb950", "branch": "#58a6ff", "dead": "#ff7b72",
    },
}  # fmt: skip


def draw(theme: str) -> str:
    """Draw the picture in the colors of a theme."""
    colors = THEMES[theme]
    board, givens = parse_puzzle(PUZZLE)
    result = trace(board, givens)
    assert result.solution is not None
    search = tokens_to_lines(board, result.tokens).splitlines()[1:-1]
    shown = search[: LINES_PER_COLUMN * len(COLUMNS)]
    font = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {font}>',
        "<title>The search of a 6x6 puzzle as a chain of thought</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{colors["back"]}"/>',
        _text(LEFT, 34, "puzzle and solution", colors["soft"], size=14),
        _text(COLUMNS[0], 34, "the chain of thought: cell, candidates", colors["soft"], size=14),
        *_board(board, givens, result.solution, colors),
    ]
    for number, line in enumerate(shown):
        column, row = divmod(number, LINES_PER_COLUMN)
        color = _color(line, colors)
        parts.append(_text(COLUMNS[column], TOP + LINE * row, line.replace(" ", "\u00a0"), color))
    legend = (
        ("branch: the solver chooses", "branch"),
        ("dead end: it goes back", "dead"),
        ("one candidate", "text"),
    )
    base = TOP + CELL * board.side + 26
    for number, (text, color) in enumerate(legend):
        parts.append(_text(LEFT, base + 20 * number, text, colors[color]))
    parts.append(
        _text(
            COLUMNS[0],
            HEIGHT - 14,
            f"{len(shown)} of {len(search)} lines; after them the model writes the solution",
            colors["soft"],
        )
    )
    return "\n".join([*parts, "</svg>", ""])


def _color(line: str, colors: dict[str, str]) -> str:
    if line.endswith("<none>"):
        return colors["dead"]
    return colors["branch"] if len(line.split()) > 2 else colors["text"]


def _board(board: Board, givens: Grid, solution: Grid, colors: dict[str, str]) -> list[str]:
    side, size = board.side, CELL * board.side
    parts = []
    for k in range(side + 1):
        row_width = 2 if k % board.box_rows == 0 else 0.6
        column_width = 2 if k % board.box_cols == 0 else 0.6
        y, x = TOP - 12 + CELL * k, LEFT + CELL * k
        stroke = f'stroke="{colors["line"]}"'
        parts.append(
            f'<path d="M{LEFT} {y}h{size}" {stroke} stroke-width="{row_width}"/>'
            f'<path d="M{x} {TOP - 12}v{size}" {stroke} stroke-width="{column_width}"/>'
        )
    for cell in range(board.num_cells):
        row, column = divmod(cell, side)
        is_given = givens[cell] > 0
        parts.append(
            f'<text x="{LEFT + CELL * column + CELL / 2:g}" y="{TOP + CELL * row + 18}" '
            f'text-anchor="middle" font-size="20" font-weight="{700 if is_given else 400}" '
            f'fill="{colors["given" if is_given else "solved"]}">{solution[cell]}</text>'
        )
    return parts


def _text(x: float, y: float, text: str, color: str, *, size: int = 13) -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}">{escape(text)}</text>'


if __name__ == "__main__":
    for name in THEMES:
        (FOLDER / f"search-{name}.svg").write_text(draw(name), encoding="utf-8")
