"""Publication of results in model cards and on W&B."""
