"""Binary positions from rotary embeddings (the paper's Appendix "Rotary Positional Encodings")."""
