"""Metrics, curves and the W&B mirror."""
