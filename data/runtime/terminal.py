"""Text of files and command lines on a terminal, which acts on control characters."""

from __future__ import annotations

import logging
import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    r"""Replace control characters but tab and newline by their escapes, such as `\x1b`."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


class PrintableFormatter(logging.Formatter):
    """Formatter of log lines without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        return printable(super().format(record))
