"""Code for GPUs on an emulated device and, where there is one, on a real one."""
