"""`python -m scripts.cli`: the `sudocot` command."""

from scripts.cli.main import run

run()
