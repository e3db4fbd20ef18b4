"""Commands of `sudocot eval`."""
