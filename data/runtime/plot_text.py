"""Rendering of arbitrary user text in matplotlib plots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

_FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "IPAGothic")


def installed_fonts() -> list[str]:
    """Return the fonts for text: that of matplotlib, then installed Chinese and Japanese fonts."""
    from matplotlib import font_manager

    known = {entry.name for entry in font_manager.fontManager.ttflist}
    return [name for name in _FONTS if name in known]


def plain_text(text: str) -> str:
    r"""Escape text for matplotlib: `$` is literal, and characters without a glyph are escaped.

    A character that is missing in all installed fonts becomes an escape such as `\u6570`.
    """
    from matplotlib import font_manager

    fonts = [font_manager.get_font(font_manager.findfont(name)) for name in installed_fonts()]
    shown = "".join(
        char
        if any(font.get_char_index(ord(char)) for font in fonts)
        else char.encode("unicode_escape").decode()
        for char in text
    )
    return shown.replace("$", r"\$")


def add_legend(owner: Any, handles: Sequence[Any], labels: Iterable[str], **options: Any) -> None:
    """Add a legend to axes or a figure, also with labels that begin with `_`."""
    legend = owner.legend(handles, [" "] * len(handles), **options)
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(plain_text(label))
