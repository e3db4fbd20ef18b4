"""Models, batches, optimizers and the training loop."""
