"""Commands of `sudocot data`."""
