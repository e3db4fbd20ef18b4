"""Commands that join several packages."""
