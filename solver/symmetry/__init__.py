"""Symmetries of boards and canonical forms under them."""
