"""Parts of a build or an evaluation that several jobs process, in folders next to the output."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from data.runtime.files import resolve_output

MAX_PARTS = 65536
"""Maximum number of parts of a build or an evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Part `index` of `count` of a build or an evaluation."""

    index: int
    """Index of this part, counted from 0."""
    count: int
    """Number of parts."""

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count <= MAX_PARTS:
            raise ValueError(
                f"shard: got {self.index}/{self.count}, allowed are 0/n to n-1/n, n to {MAX_PARTS}"
            )

    @classmethod
    def parse(cls, text: str) -> Part:
        """Parse `i/n`.

        Raises:
            ValueError: The text is not `i/n` with 0 <= i < n.
        """
        try:
            index, count = map(int, text.split("/"))
        except ValueError:
            raise ValueError(f"shard: got {text!r}, allowed is i/n, such as 0/8") from None
        return cls(index=index, count=count)


def part_folder(out: Path, part: Part) -> Path:
    """Return the folder of a part of `out`: `NAME.parts/i-of-n` next to it."""
    return parts_folder(out) / f"{part.index}-of-{part.count}"


def parts_folder(out: Path) -> Path:
    """Return the folder of all parts of `out`: `NAME.parts` next to it, or to a link's target."""
    out = resolve_output(out)
    return out.with_name(f"{out.name}.parts")


def find_parts(out: Path, *, marker: str) -> list[Path]:
    """Return the folders of all parts of `out`, in order.

    Args:
        out: Output that the parts belong to.
        marker: Name of a file that a finished part contains.

    Raises:
        FileNotFoundError: No parts, or some are missing; the message lists them.
        ValueError: The parts belong to builds with different numbers of parts.
    """
    parent = parts_folder(out)
    counts = {path.name.partition("-of-")[2] for path in parent.glob("[0-9]*-of-*")}
    if not counts:
        raise FileNotFoundError(f"{parent}: no parts of {out}")
    if len(counts) > 1:
        raise ValueError(f"{parent}: parts with different counts: {', '.join(sorted(counts))}")
    count = _read_count(counts.pop(), parent=parent)
    folders = [part_folder(out, Part(index=index, count=count)) for index in range(count)]
    missing = [folder.name for folder in folders if not (folder / marker).exists()]
    if missing:
        raise FileNotFoundError(f"{parent}: missing {', '.join(missing)}")
    return folders


def _read_count(text: str, *, parent: Path) -> int:
    """Parse the number of parts in the name of a part."""
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    if not is_number or not 1 <= int(text) <= MAX_PARTS:
        raise ValueError(f"{parent}: a part of {text[:20]}; allowed are 1 to {MAX_PARTS} parts")
    return int(text)
