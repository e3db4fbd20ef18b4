"""Self-contained HTML pages with inlined styles, scripts and data."""
