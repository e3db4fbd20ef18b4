"""Compile machines into transformers with known weights."""
