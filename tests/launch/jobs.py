"""Helpers for the tests of launches."""

from __future__ import annotations

from pathlib import Path

from scripts.launch.jobs import Scripts
from scripts.launch.recipe import read_recipe

RECIPE = """\
name: snapshot
resources: {time: 04:00:00, cpus: 16, sbatch: [--account=my group]}
stages:
  data:
    run: data build "my puzzles.csv" --out "data/it's $HOME"
    shards: 4
  train:
    run: [train, run, --data, "data/it's $HOME", --out, runs/a run]
    needs: data
    nodes: 2
    gpus: 4
    memory: 64G
    setup: modules.sh
  evaluation:
    run: eval run --model 'runs/a run/final' --data test --out evals/e
    needs: [train]
    shards: 2
    gpus: 1
  report:
    run: report evals/e --out report
    needs: evaluation
    online: true
"""


def scripts_of(recipe: str, folder: Path) -> Scripts:
    path = folder / "recipe.yaml"
    path.write_text(recipe)
    return Scripts(read_recipe(path), Path("launch of%it"))
