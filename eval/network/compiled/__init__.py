"""Inference of compiled transformers with sparse products."""
