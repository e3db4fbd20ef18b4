"""What a model folder states: facts, precision policy, weight digests."""
