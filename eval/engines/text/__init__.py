"""Engines for language models, using the text protocol of `eval.text_protocol`."""
