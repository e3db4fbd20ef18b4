"""Metadata of model folders: training facts, precision policy, weight digests."""
