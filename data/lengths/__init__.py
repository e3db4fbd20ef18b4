"""CoT length tables of puzzle lists."""
