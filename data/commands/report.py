"""Report of a finished build."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from data.builder.funnel import ReadCounts, TraceCounts
from data.runtime.resumable import read_identity
from data.store import Manifest


def print_manifest(console: Console, folder: Path, manifest: Manifest) -> None:
    """Print the funnel, the sizes and the length histogram of a data set."""
    funnel = manifest.funnel
    is_checked = read_identity(folder)["config"]["check_unique"]
    # A title of the table would be wrapped at the width of the table.
    console.print(f"{folder}: {manifest.board} {manifest.mode}", style="italic", soft_wrap=True)
    table = Table()
    table.add_column("rows and puzzles")
    table.add_column("count", justify="right")
    for counts in (ReadCounts, TraceCounts):
        for name in counts.__dataclass_fields__:
            is_known = name != "ambiguous" or is_checked
            table.add_row(
                name.replace("_", " "), f"{funnel[name]:,}" if is_known else "not checked"
            )
        table.add_section()
    num_bytes = sum((folder / shard.name).stat().st_size for shard in manifest.shards)
    sizes = {
        "segments" if manifest.mode == "scot" else "sequences": f"{manifest.num_rows:,}",
        "tokens": f"{manifest.num_tokens:,}",
        "tokens outside prompts": f"{manifest.num_loss_tokens:,}",
        "bytes on disk": f"{num_bytes:,}",
        "bytes per token": f"{num_bytes / max(manifest.num_tokens, 1):.3f}",
    }
    for name, value in sizes.items():
        table.add_row(name, value)
    console.print(table)
    histogram = Table(title="CoT lengths", title_justify="left")
    histogram.add_column("tokens")
    histogram.add_column("puzzles", justify="right")
    for low, high, count in funnel["cot_lengths"]:
        histogram.add_row(f"{low:,} to {high:,}", f"{count:,}")
    console.print(histogram)
