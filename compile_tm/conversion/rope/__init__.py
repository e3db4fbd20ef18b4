"""Binary positions by rotary encodings: the paper's Appendix "Rotary Positional Encodings"."""
