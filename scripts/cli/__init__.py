"""The `sudocot` command line."""
