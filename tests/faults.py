"""One file-system event of a `sudocot` command fails.

    subprocess.run([programs / "sudocot", "data", "build", ...], env={FAULT: "kill 9"})

The command server (`tests.command_server`) passes commands with this variable to `run_with_fault`.
Events are opening a file of the working folder for writing, and the renaming, removing, making,
truncating, linking and syncing of its files. Every line of an evaluation is synced. Before the
event of a number, counted from 0:

count   nothing happens
kill    the process ends, as by SIGKILL
crash   the machine ends: of every file, what was not synced is lost
io      the call raises an I/O error
full    no file can grow any more, by whatever library it is written
memory  the call raises MemoryError

Or, from the beginning on:

limit   the address space can grow by NUMBER MiB only

The number of events is the last line of the standard error.
"""

from __future__ import annotations

import atexit
import errno
import os
import resource
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FAULT = "SUDOCOT_TEST_FAULT"
KINDS = ("kill", "crash", "io", "full", "memory")
KILLED = 137
_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Faults:
    """Counts the events of a process, and makes one of them fail."""

    def __init__(self, kind: str, number: int) -> None:
        self.kind = kind
        self.number = number
        self.count = 0
        self._root = Path.cwd()
        self._synced = {_identity(path): path.stat().st_size for path in self._files()}
        self._fsync = os.fsync
        self._is_active = True

    def install(self) -> None:
        """Watch the process from now on."""
        from data.runtime import line_log

        line_log.SYNC_EVERY_S = 0.0
        sys.addaudithook(self._on_event)
        os.fsync = self._on_fsync  # type: ignore[assignment]

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._is_active or event not in (*_EVENTS, "open"):
            return
        if not isinstance(args[0], (str, bytes, os.PathLike)):
            return
        folder_of = {"os.mkdir": 2, "os.rename": 2, "os.remove": 1, "os.rmdir": 1, "os.link": 2}
        path = _absolute(args[0], args[folder_of[event]] if event in folder_of else -1)
        if self._root not in path.parents:
            return
        is_truncated = event == "open" and bool(args[2] & os.O_TRUNC)
        if event == "open" and not args[2] & _WRITING:
            return
        self._step(os.fsdecode(args[0]))
        if event == "os.rename":
            path = _absolute(args[1], args[3])  # a file that is replaced
        if (
            (is_truncated or event in ("os.remove", "os.rename"))
            and path.is_file()
            and path.stat().st_nlink == 1
        ):
            self._synced.pop(_identity(path), None)

    def _on_fsync(self, descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        self._step()
        self._fsync(number)
        status = os.fstat(number)
        self._synced[(status.st_dev, status.st_ino)] = status.st_size

    def _step(self, name: str | None = None) -> None:
        is_it = self.count == self.number and self.kind in KINDS
        self.count += 1
        if not is_it:
            return
        if self.kind == "full":
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
            return
        self._is_active = self.kind not in ("kill", "crash")
        if self.kind == "crash":
            for path in self._files():
                size = self._synced.get(_identity(path), 0)
                if size < path.stat().st_size:
                    os.truncate(path, size)
        if not self._is_active:
            os._exit(KILLED)
        if self.kind == "memory":
            raise MemoryError
        raise OSError(errno.EIO, os.strerror(errno.EIO), name)

    def _files(self) -> list[Path]:
        return [path for path in self._root.rglob("*") if path.is_file()]


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _absolute(path: str | bytes | os.PathLike[str], folder: int) -> Path:
    """Resolve a path that is relative to a descriptor, or to the working folder if it is -1."""
    parent = Path.cwd() if folder == -1 else Path(f"/proc/self/fd/{folder}").readlink()
    return parent / os.fsdecode(path)


def run_with_fault(fault: str, words: Sequence[str]) -> None:
    """Run a command and exit; `fault` is a kind and a number."""
    from scripts.cli.main import main

    atexit._clear()  # the functions of the libraries, which take longer than many commands
    kind, number = fault.split()
    faults = Faults(kind, int(number))
    faults.install()
    if kind == "limit":
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = size + (faults.number << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    code = 1
    try:
        code = main(words)
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.write(f"\n{faults.count}")
        sys.stderr.flush()
        os._exit(code)  # shutting down the interpreter takes longer than most commands
