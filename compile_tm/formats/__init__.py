"""Floating-point formats of any width and rounding to them."""
