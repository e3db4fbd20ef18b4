"""Importing predictions and logs of others as evaluations."""
