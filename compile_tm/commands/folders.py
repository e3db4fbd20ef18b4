"""Writing a compiled machine to a folder, and telling what was written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from compile_tm.constructions.compiled import Compiled


def write_folder(compiled: Compiled, folder: Path, *, words: Sequence[str]) -> None:
    """Export a machine and print its size on the disk.

    Raises:
        ValueError: a word of the self-test is not fit.
        OSError: the folder exists or cannot be written.
    """
    from compile_tm.hf.export import export_model

    model = export_model(compiled, folder, words=words)
    sizes = compiled.program.sizes
    size = sum(path.stat().st_size for path in folder.iterdir())
    console = Console(highlight=False, markup=False)
    console.print(f"folder    {folder}, {size / 1e6:.2f} MB", soft_wrap=True)
    console.print(f"model     L {sizes.L}, H {sizes.H}, d_ff {sizes.d_ff}, d {sizes.d}")
    console.print(
        f"weights   {model.num_parameters():,} of {sizes.num_parameters:,} are not zero",
        soft_wrap=True,
    )
