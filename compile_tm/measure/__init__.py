"""Measurements and checks of compiled models."""
