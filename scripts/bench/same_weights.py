"""Compare the weights of two model folders: `python -m scripts.bench.same_weights A B`.

The exit code is 1 if they differ by more than the tolerance. On a GPU some reductions are not
deterministic, so two trainings with the same seed can differ slightly.
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
    """Model folders."""
    tolerance: float = 0.1
    """Maximum relative distance of a tensor, in the Frobenius norm."""
    out: Path | None = None
    """JSON file to write."""


def main(config: Config) -> int:
    """Compare and print."""
    ours, theirs = (load_file(folder / "model.safetensors") for folder in config.folders)
    if ours.keys() != theirs.keys():
        raise ValueError(f"folders: {config.folders[1]} has other tensor names")
    distances = {
        name: float((ours[name] - theirs[name]).norm() / ours[name].norm().clamp(min=1e-9))
        for name in ours
    }
    name = max(distances, key=lambda name: distances[name])
    row = {
        "tensors": len(ours),
        "equal": sum(distance == 0 for distance in distances.values()),
        "largest distance": distances[name],
        "of": name,
    }
    Report(title="weights of two trainings", rows=[row], facts={}).publish(config.out)
    # NaN is not within any tolerance.
    return int(not all(distance <= config.tolerance for distance in distances.values()))


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Config, description=__doc__)))
