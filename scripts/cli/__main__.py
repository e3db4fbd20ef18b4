"""`python -m scripts.cli`: the `sudocot` command."""

from sudocot_cli import run

if __name__ == "__main__":
    run()
