"""Support for long-running commands: files, signals, progress, threads, provenance."""
