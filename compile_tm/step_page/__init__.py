"""HTML page that steps through the tokens of a compiled machine."""
