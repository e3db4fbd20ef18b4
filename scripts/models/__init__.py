"""Models by name: the trained ones that this project ships, and the compiled solvers."""
