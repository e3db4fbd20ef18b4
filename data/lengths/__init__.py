"""Tables of CoT lengths, one row per puzzle."""
