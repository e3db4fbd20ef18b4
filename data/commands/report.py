"""Report of a finished build."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from data.builder.funnel import ReadCounts, TraceCounts
from data.runtime.resumable import read_identity
from data.runtime.tables import print_table
from data.store import Manifest


def print_manifest(console: Console, folder: Path, manifest: Manifest) -> None:
    """Print the funnel, the sizes and the length histogram of a data set."""
    funnel = manifest.funnel
    is_checked = read_identity(folder)["config"]["check_unique"]
    console.print(f"{folder}: {manifest.board} {manifest.mode}", style="italic", soft_wrap=True)
    for title, counts in (("rows", ReadCounts), ("puzzles", TraceCounts)):
        outcomes = {name: f"{funnel[name]:,}" for name in counts.__dataclass_fields__}
        if "ambiguous" in outcomes and not is_checked:
            outcomes["ambiguous"] = "not checked"
        rows = [(name.replace("_", " "), count) for name, count in outcomes.items()]
        print_table(console, title, ("outcome", "count"), rows)
    num_bytes = sum((folder / shard.name).stat().st_size for shard in manifest.shards)
    sizes = {
        "segments" if manifest.mode == "scot" else "sequences": f"{manifest.num_rows:,}",
        "tokens": f"{manifest.num_tokens:,}",
        "loss tokens": f"{manifest.num_loss_tokens:,}",
        "bytes on disk": f"{num_bytes:,}",
        "bytes per token": f"{num_bytes / manifest.num_tokens:.3f}" if manifest.num_tokens else "-",
    }
    print_table(console, "sizes", ("quantity", "value"), sizes.items())
    histogram = [(f"{low:,} to {high:,}", f"{n:,}") for low, high, n in funnel["cot_lengths"]]
    print_table(console, "CoT lengths", ("tokens", "puzzles"), histogram)
