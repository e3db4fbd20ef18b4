"""`sudocot launch`: run commands as Slurm jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional

from scripts.launch.check import check_stages
from scripts.launch.jobs import Scripts
from scripts.launch.recipe import Recipe, Resources, Stage, read_recipe
from scripts.launch.submit import dry_run, require_slurm, submit


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Run a command, or the stages of a recipe, as Slurm jobs.

    The command follows `--`. With --shards, a build or an evaluation becomes a job array and a job
    that merges its parts. Jobs that reach their time limit save and are requeued. Running the same
    launch again submits the jobs that have not succeeded. `sudocot launch status FOLDER` shows all.

    Examples:
        sudocot launch --shards 8 --cpus 16 -- data build puzzles.csv --out data/cot
        sudocot launch --nodes 2 --gpus 8 -- train run --data data/cot --out runs/cot
        sudocot launch --recipe recipe.yaml --dry-run
    """

    command: Positional[tuple[str, ...]] = ()
    """Command to run, without `sudocot`."""
    recipe: Path | None = None
    """YAML file of stages with their resources."""
    resources: OmitArgPrefixes[Resources] = field(default_factory=Resources)
    """Resources of the command."""
    name: str | None = None
    """Name of the jobs (default: that of the command or recipe)."""
    folder: Path | None = None
    """Folder of scripts and logs (default: slurm/NAME)."""
    dry_run: bool = False
    """Print the scripts and sbatch commands without running them."""

    def __post_init__(self) -> None:
        if bool(self.command) == (self.recipe is not None):
            raise ValueError("command: give either a command after `--` or --recipe")
        if self.recipe is not None and self.resources != Resources():
            raise ValueError("recipe: resources are set in the recipe, not on the command line")


def main(config: Config) -> int:
    """Submit the jobs, or print them."""
    recipe = _recipe(config)
    if not config.dry_run:
        require_slurm()  # Before the checks of the stages, which import their commands.
    check_stages(recipe)
    scripts = Scripts(recipe, config.folder or Path("slurm", recipe.name))
    console = Console(markup=False, highlight=False, soft_wrap=True)
    if config.dry_run:
        console.print(dry_run(scripts))
        return 0
    submit(scripts, report=lambda name, answer: console.print(f"{name}: {answer}"))
    console.print(f"logs in {scripts.folder / 'logs'}, failures in {scripts.folder}/failures.log")
    return 0


def _recipe(config: Config) -> Recipe:
    if config.recipe is not None:
        recipe = read_recipe(config.recipe)
        return Recipe(name=config.name or recipe.name, stages=recipe.stages)
    stage = Stage(name=config.command[0], words=config.command, resources=config.resources)
    name = config.name or "-".join(stage.command)
    return Recipe(name=name, stages=(stage,))
