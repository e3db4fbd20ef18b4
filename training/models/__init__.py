"""Model families and presets, attention, rotary embeddings, auxiliary losses."""
