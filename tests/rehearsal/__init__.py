"""Code for GPUs on fake tensors of the CUDA build of PyTorch; scripts/gpu_rehearsal.sh runs it."""
