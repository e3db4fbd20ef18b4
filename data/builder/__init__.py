"""The data set builder: ingestion, sharding, publication."""
