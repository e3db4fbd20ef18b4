"""Check, in a process of its own, that all nodes of a job meet: `scripts.launch.node` starts it.

Every node adds its rank to a sum that all of them get, over the network that training will use.
"""

from __future__ import annotations

import sys

import torch
from torch import distributed


def main() -> None:
    """Meet, or end with a last line on standard error that says why not."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    num_nodes, rank = distributed.get_world_size(), distributed.get_rank()
    seen = torch.zeros(num_nodes, dtype=torch.int64, device=device)
    seen[rank] = 1
    distributed.all_reduce(seen)
    distributed.destroy_process_group()
    if seen.tolist() != [1] * num_nodes:
        sys.exit(f"of each rank there should be one node, there are {seen.tolist()}")


if __name__ == "__main__":
    main()
