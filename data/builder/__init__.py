"""Data set builder: ingestion, sharding, publication."""
