"""Publishing results: the model card and W&B."""
