"""Tests of the kernel cache, shared by different processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from solver.jit import IS_JIT

# Helpers too long for LLVM to inline, which would leave no symbol to mix up.
STEPS = "\n    ".join(f"total = total * {2 * k + 3} ^ total >> {k % 7}" for k in range(100))
SCRIPT = f"""
import sys
import numpy as np
from solver.jit import inline_kernel, kernel

@inline_kernel
def helper_on_record(record, total):
    {STEPS}
    return total * 16 + len(record.cells)

@inline_kernel
def helper_on_field(cells, total):
    {STEPS}
    return total * 16 + len(cells)

@kernel
def both(record, total):
    on_record = helper_on_record(record, total) + helper_on_record(record, total + 1)
    on_field = helper_on_field(record.cells, total) + helper_on_field(record.cells, total + 1)
    return on_record, on_field

for size in map(int, sys.argv[1:]):
    record = np.zeros(1, dtype=[("cells", np.uint8, (size,))]).view(np.recarray)[0]
    print(*both(record, 5))
"""


@pytest.mark.skipif(not IS_JIT, reason="without the JIT there is no cache")
def test_code_cached_by_two_processes_serves_a_third(tmp_path: Path) -> None:
    """Boards differ in the shapes of their records alone; this once ran 9x9 code on 6x6 boards."""
    script = tmp_path / "kernels.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "SUDOCOT_CACHE_DIR": str(tmp_path / "cache")}

    def run(*sizes: str) -> list[str]:
        result = subprocess.run(
            [sys.executable, str(script), *sizes],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return result.stdout.split()

    four, six = run("4"), run("6")
    assert four != six
    assert len(list(tmp_path.glob("cache/**/*.nbc"))) == 2, "both were cached"
    assert run("4", "6") == four + six
    assert run("6", "4") == six + four


@pytest.mark.skipif(not IS_JIT, reason="without the JIT there is no cache")
@pytest.mark.parametrize(("mode", "is_used"), [(0o700, True), (0o777, False)])
def test_shared_temporary_folder_must_be_private(tmp_path: Path, mode: int, is_used: bool) -> None:
    """Cached code is loaded as it is, so a folder that others can write to is passed over."""
    blocker = tmp_path / "file"
    blocker.write_text("")
    shared = tmp_path / "tmp" / f"sudocot-{os.getuid()}"
    shared.mkdir(parents=True)
    shared.chmod(mode)
    environment = {**os.environ, "XDG_CACHE_HOME": str(blocker), "TMPDIR": str(shared.parent)}
    environment.pop("SUDOCOT_CACHE_DIR", None)
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "from solver.jit import kernel_cache_dir; print(kernel_cache_dir())",
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (str(shared) in result.stdout) is is_used
