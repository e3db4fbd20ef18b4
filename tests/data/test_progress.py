"""The progress bar on a terminal, seen through a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

SCRIPT = """
import logging, time
from data.runtime.progress import progress
logging.basicConfig(level=logging.INFO, format="log: %(message)s")
with progress("work", total=3, unit="puzzles") as advance:
    for number in range(3):
        advance(1)
        time.sleep(0.15)
        logging.getLogger("data").warning("line %d", number)
logging.getLogger("data").warning("after")
"""


def test_log_lines_stand_on_lines_of_their_own_above_the_bar() -> None:
    leader, follower = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stderr=follower, env=environment) as run:
        os.close(follower)
        shown = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
    os.close(leader)
    assert run.returncode == 0, shown
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    lines = [line.split("\r")[-1].strip() for line in text.replace("\r\n", "\n").split("\n")]
    for expected in ("log: line 0", "log: line 1", "log: line 2", "log: after"):
        assert expected in lines, lines
    assert any("3/3" in line for line in lines)
