"""Self-contained HTML pages: styles, scripts and data inlined, nothing fetched, names escaped."""
