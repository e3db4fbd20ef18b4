"""Reading puzzles from files of any common format."""
