"""ReLU layers in models with SwiGLU.

SwiGLU computes silu(gate) * up with silu(z) = z / (1 + exp(-z)). With gate = beta z and
up = 1 / beta, a hidden neuron has the value silu(beta z) / beta, and

    |silu(beta z) / beta - relu(z)| = |z| / (1 + exp(beta |z|)) <= 0.2785 / beta,

as y / (1 + exp(y)) <= 0.2785 for y >= 0. For beta = 128 that is 2^-8.8 at most, near |z| = 0.01.
For whole z it is |z| exp(-128 |z|) < 2^-184, less than the least positive number of fp32 and bf16,
so that a neuron is exact: 0 for z <= 0, and z otherwise. `beta` is a power of two and `up` is
1 / beta times the constant, so that neither rounds. GPT-NeoX has ReLU itself.
"""

from __future__ import annotations

BETA = 128.0
"""beta."""
ERROR = 0.2785 / BETA
"""The greatest difference from ReLU, of any z."""
