"""Ways to run a program: dense tensors, or look-ups that follow its attention."""
