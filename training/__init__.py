"""Models, batches, optimisers and the training loop."""
