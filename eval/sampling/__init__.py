"""Selection of the puzzles to evaluate."""
