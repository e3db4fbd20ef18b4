"""Fixed slots for continuous batching, with token ids on the host or on the device."""
