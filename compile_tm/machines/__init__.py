"""Automata and Turing machines: frozen specifications, interpreters, files, examples."""
