"""Inspecting a model's output: replay, differences, line checks."""
