"""Check, before anything is submitted, what would otherwise fail in a job, hours later."""

from __future__ import annotations

import contextlib
import io

from scripts.cli.main import parse
from scripts.launch.recipe import Recipe, Stage

_BOX_SIDE, _BOX_LINE = "\u2502", "\u2500\u2500"
_ADVICE = ("Argument helptext", "For full helptext", "Perhaps you meant")


def check_stages(recipe: Recipe) -> None:
    """Check the options of every stage, as its program will, and its setup file.

    Files that a stage reads may be made by one before it, so they need not be there.

    Raises:
        ValueError: If a stage would fail; the message names it.
    """
    for stage in recipe.stages:
        setup = stage.resources.setup
        if setup is not None and not setup.is_file():
            raise ValueError(f"{stage.name}: setup: no file {str(setup)!r}")
        _check_options(stage)


def _check_options(stage: Stage) -> None:
    command = stage.command
    shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # decides how tyro draws its box
    try:
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            parse(command, stage.words[len(command) :])
    except SystemExit as stop:
        if stop.code:
            message = f"{stage.name}: {' '.join(command)}: {_without_advice(shown)}"
            raise ValueError(message) from None
    except FileNotFoundError as error:
        if not stage.needs:  # else a stage before it may make its --config
            raise ValueError(f"{stage.name}: --config: no file {error.filename!r}") from None
    except (ValueError, OSError) as error:
        raise ValueError(f"{stage.name}: {' '.join(command)}: {error}") from error


def _without_advice(shown: io.TextIOWrapper) -> str:
    """What is wrong, from the box that tyro draws: blocks with lines between them."""
    shown.seek(0)
    blocks = [""]
    for row in shown.read().splitlines()[1:-1]:
        text = row.strip(f"{_BOX_SIDE} ")
        if text.startswith(_BOX_LINE):
            blocks.append("")
        else:
            blocks[-1] += f" {text}"
    told = [" ".join(block.split()) for block in blocks]
    return "; ".join(text for text in told if not text.startswith(_ADVICE))
