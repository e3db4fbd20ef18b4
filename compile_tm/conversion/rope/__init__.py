"""Binary positions from rotary encodings (the paper's Appendix "Rotary Positional Encodings")."""
