"""Whether two model folders hold the same weights: `python -m scripts.bench.same_weights A B`.

Exit code 1 if they differ by more than rounding. On a GPU the order of some additions is not fixed,
so that two trainings with the same seed may end a little apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro
from safetensors.torch import load_file
from tyro.conf import Positional

from scripts.bench.harness import Report


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Compare the weights of two model folders."""

    folders: Positional[tuple[Path, Path]]
    """The folders."""
    tolerance: float = 0.1
    """Greatest distance of a matrix over its norm."""
    out: Path | None = None
    """JSON file to write."""


def main(config: Config) -> int:
    """Compare and print."""
    ours, theirs = (load_file(folder / "model.safetensors") for folder in config.folders)
    if ours.keys() != theirs.keys():
        raise ValueError(f"folders: got other tensors in {config.folders[1]}")
    distances = {
        name: float((ours[name] - theirs[name]).norm() / ours[name].norm().clamp(min=1e-9))
        for name in ours
    }
    name = max(distances, key=lambda name: distances[name])
    row = {
        "tensors": len(ours),
        "equal": sum(distance == 0 for distance in distances.values()),
        "greatest distance": distances[name],
        "of": name,
    }
    Report(title="weights of two trainings", rows=[row], facts={}).publish(config.out)
    return int(distances[name] > config.tolerance)


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Config, description=__doc__)))
