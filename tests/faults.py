"""A `sudocot` command in which one file-system event fails.

    python -m tests.faults KIND NUMBER COMMAND ...

Events are opening a file of the working folder for writing, and the renaming, removing, making,
truncating, linking and syncing of its files. Before event NUMBER, counted from 0:

count   nothing happens; the number of events is printed to the standard error at the end
kill    the process ends, as by SIGKILL
crash   the machine ends: files that were written and not synced are empty
io      the call raises an I/O error
full    the call raises that the disk is full
memory  the call raises MemoryError
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Faults:
    """Counts the events of a process, and makes one of them fail."""

    def __init__(self, kind: str, number: int) -> None:
        self.kind = kind
        self.number = number
        self.count = 0
        self._root = os.getcwd()  # noqa: PTH109
        self._unsynced: set[str] = set()
        self._fsync = os.fsync
        self._is_active = True

    def install(self) -> None:
        """Watch the process from now on."""
        sys.addaudithook(self._on_event)
        os.fsync = self._on_fsync  # type: ignore[assignment]

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._is_active or event not in (*_EVENTS, "open"):
            return
        path = args[0]
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
        if not name.startswith(self._root + os.sep):
            return
        if event == "open":
            mode, flags = args[1], args[2]
            is_write = bool(set(mode) & set("wax+")) if mode else bool(flags & _WRITING)
            if not is_write:
                return
            self._unsynced.add(name)
        self._step()

    def _on_fsync(self, descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        self._step()
        self._fsync(number)
        self._unsynced.discard(os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH115

    def _step(self) -> None:
        is_it = self.count == self.number and self.kind != "count"
        self.count += 1
        if not is_it:
            return
        self._is_active = self.kind not in ("kill", "crash")
        if self.kind == "crash":
            for name in self._unsynced:
                if os.path.exists(name):  # noqa: PTH110
                    os.truncate(name, 0)
        if not self._is_active:
            os._exit(137)
        if self.kind == "memory":
            raise MemoryError
        code = errno.EIO if self.kind == "io" else errno.ENOSPC
        raise OSError(code, os.strerror(code))


def main(argv: list[str]) -> int:
    """Run the command; 137 where it was killed."""
    from scripts.cli.main import main as run

    faults = Faults(argv[0], int(argv[1]))
    faults.install()
    try:
        return run(argv[2:])
    finally:
        if faults.kind == "count":
            sys.stderr.write(f"\nevents {faults.count}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
