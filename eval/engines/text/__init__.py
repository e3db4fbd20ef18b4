"""Engines for models that read and write text, by the protocol of `eval.text_protocol`."""
