"""The `verify` engine: speculative decoding with drafts of the solver."""
