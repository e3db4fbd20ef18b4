"""ReLU by SwiGLU.

SwiGLU computes silu(gate) * up with silu(z) = z / (1 + exp(-z)). With gate = beta z and
up = 1 / beta, a hidden neuron has the value silu(beta z) / beta, and

    |silu(beta z) / beta - relu(z)| = |z| / (1 + exp(beta |z|)) <= 0.2785 / beta,

since y / (1 + exp(y)) <= 0.2785 for y >= 0. For beta = 128 this is at most 2^-8.8, attained near
|z| = 0.01. For integer z, the error is at most |z| exp(-128 |z|) < 2^-184, less than the least
positive number of fp32 and bf16, so the neuron is exactly ReLU(z). `beta` is a power of two, so
that scaling by beta and 1 / beta is exact. GPT-NeoX has ReLU itself.
"""

from __future__ import annotations

BETA = 128.0
"""beta."""
