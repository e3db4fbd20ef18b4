"""Automata and Turing machines: frozen specs, and the interpreters that all else is tested by."""
