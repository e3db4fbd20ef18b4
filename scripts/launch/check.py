"""Validation of a recipe before submission."""

from __future__ import annotations

from scripts.cli.main import parse
from scripts.launch.recipe import Recipe, Stage


def check_stages(recipe: Recipe) -> None:
    """Check the options of every stage with the parser of its command, and its setup file.

    Input files need not exist, since an earlier stage may create them.

    Raises:
        ValueError: If a stage is invalid; the message names it.
    """
    for stage in recipe.stages:
        setup = stage.resources.setup
        if setup is not None and not setup.is_file():
            raise ValueError(f"{stage.name}: setup: no file {str(setup)!r}")
        _check_options(stage)


def _check_options(stage: Stage) -> None:
    command = stage.command
    try:
        parse(command, stage.words[len(command) :])
    except FileNotFoundError as error:
        if not stage.needs:  # otherwise an earlier stage may create its --config
            raise ValueError(f"{stage.name}: --config: no file {error.filename!r}") from None
    except (ValueError, OSError) as error:
        raise ValueError(f"{stage.name}: {' '.join(command)}: {error}") from error
