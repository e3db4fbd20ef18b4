"""`python -m scripts.cli`: the `sudocot` command."""

from scripts.cli.main import run

if __name__ == "__main__":
    run()
