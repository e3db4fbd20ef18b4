"""Server that runs `sudocot` commands, and Python code, in forks of one process.

The process imports the libraries and loads the kernels once.

     with command_server() as folder:  # for the front of PATH
        subprocess.run(["bash", "-c", "sudocot solve ... | head"], env={"PATH": ...})
        subprocess.run(["bash", "-c", "python - <<< 'print(1)'"], env={"PATH": ...})

Most commands of the documents take a second or less, after five seconds of CPU time for imports.
Each command runs in a process of its own, with the arguments, folder, environment, files and exit
code of the program that asks for it; only imports and kernels are shared. Tests of the imports
themselves start plain processes (test_cli, test_light_install).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.cli.commands import COMMANDS
from solver.mrv.tracer import trace
from solver.puzzles import parse_puzzle
from tests.faults import FAULT, run_with_fault

LIBRARIES = (
    "accelerate",
    "datasets",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "pyarrow.csv",
    "pyarrow.parquet",
    "tokenizers",
    "torch",
    "transformers.models.auto.modeling_auto",
    "transformers.models.gpt_neox.modeling_gpt_neox",
    "transformers.models.llama.modeling_llama",
    "tyro",
)
_CLIENT = """\
#!{python} -SE
import json, os, socket, sys

program = os.path.basename(sys.argv[0])
if program == "python" and sys.argv[1:] != ["-"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = json.dumps([[program, *sys.argv[1:]], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(request)
    code = server.recv(1)
sys.exit(code[0] if code else 70)
"""


@contextlib.contextmanager
def command_server() -> Iterator[Path]:
    """Start a server, and yield a folder with the programs `sudocot` and `python`."""
    with tempfile.TemporaryDirectory() as name:
        address = f"{name}/socket"
        for program in (Path(name, "sudocot"), Path(name, "python")):
            program.write_text(_CLIENT.format(python=sys.executable, address=address))
            program.chmod(0o755)
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.command_server", address],
            cwd=Path(__file__).parents[1],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield Path(name)
        finally:
            server.terminate()
            server.communicate()


def _serve(address: str) -> None:
    for library in LIBRARIES:
        importlib.import_module(library)
    for entry in COMMANDS.values():
        importlib.import_module(entry.module)
    board, puzzle = parse_puzzle("1...|..3.|.4..|...2")
    trace(board, puzzle)
    gc.freeze()  # otherwise a fork shuts down in two seconds, because it visits all objects
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)  # noqa: T201 - read by `command_server`
        while True:
            connection, _ = listener.accept()
            if not os.fork():
                listener.close()
                _run(connection)
            connection.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _run(connection: socket.socket) -> None:
    """Run a command in a child process, and send its exit code."""
    head, files, *_ = socket.recv_fds(connection, 8, 3)
    request = b""
    while len(request) < int.from_bytes(head, "big"):
        request += connection.recv(1 << 20)
    argv, folder, env = json.loads(request)
    child = os.fork()
    if not child:
        connection.close()
        for target, file in enumerate(files):
            os.dup2(file, target)
            os.close(file)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(env)
        program, *argv = argv
        if program == "python":
            # Not in this module, whose names the code must not see.
            exec(compile(sys.stdin.read(), "<stdin>", "exec"), {"__name__": "__main__"})
            sys.exit()
        sys.argv = ["sudocot", *argv]
        if fault := os.environ.pop(FAULT, ""):
            run_with_fault(fault, argv)
        from sudocot_cli import run

        run()  # raises SystemExit, so that the interpreter shuts down as after any command
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    connection.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1])
