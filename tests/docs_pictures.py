"""The pictures in docs/images, made from what `scripts/quickstart.sh` leaves behind.

bash scripts/quickstart.sh
python -m tests.docs_pictures runs/quickstart-4x4
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.eval.browser import Browser

IMAGES = Path(__file__).parents[1] / "docs" / "images"
MOST_BYTES = 150_000
_COLORS = 256


def make_pictures(quickstart: Path) -> None:
    """Photograph the pages and draw the curves of a quickstart folder."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    runs = [str(quickstart / name) for name in ("cot-run", "scot-run")]
    plot = ["train", "plot", *runs, "--out", str(IMAGES / "curves.png"), "--title", "4x4"]
    subprocess.run([sys.executable, "-m", "sudocot_cli", *plot], check=True)
    _shrink(IMAGES / "curves.png")
    with tempfile.TemporaryDirectory() as work, Browser() as browser:
        # Pages of this version, not those of whenever the models were trained.
        report = Path(work) / "report"
        evaluations = [str(path) for path in sorted((quickstart / "evaluations").iterdir())]
        trace = Path(work) / "trace.html"
        solved = ["trace", "--evaluation", str(quickstart / "evaluations" / "4x4-scot-segment")]
        for words in (
            ["report", *evaluations, "--out", str(report)],
            [*solved, "--out", str(trace)],
        ):
            subprocess.run([sys.executable, "-m", "sudocot_cli", *words], check=True)
        browser.open(report / "report.html", width=1280, height=470)
        browser.screenshot(IMAGES / "leaderboard.png")
        browser.open(trace, width=1000, height=840)
        browser.press(*["ArrowRight"] * 12)
        browser.screenshot(IMAGES / "trace.png")
    for name in ("leaderboard.png", "trace.png"):
        _shrink(IMAGES / name)


def _shrink(path: Path) -> None:
    """Few colors are enough for text and lines, and a fraction of the bytes."""
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(_COLORS)
    small.save(path, optimize=True)
    assert path.stat().st_size <= MOST_BYTES, f"{path}: {path.stat().st_size} bytes"


if __name__ == "__main__":
    make_pictures(Path(sys.argv[1]))
