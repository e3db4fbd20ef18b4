"""The commands of `sudocot train`."""
