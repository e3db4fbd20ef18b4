"""Commands `sudocot compile ...`."""
