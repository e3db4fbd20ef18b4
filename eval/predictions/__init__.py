"""Import of predictions and logs of other programs as evaluations."""
