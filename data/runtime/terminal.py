"""Escaping of control characters in text for a terminal."""

from __future__ import annotations

import logging
import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    r"""Escape control characters except tab and newline, such as `\x1b`."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


class PrintableFormatter(logging.Formatter):
    """Log formatter that escapes control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        return printable(super().format(record))
