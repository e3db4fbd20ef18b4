"""Named models: the trained models of the repository, and the compiled solvers."""
