"""Rendezvous check of a multi-node job, run by `scripts.launch.node` in a separate process.

All nodes take part in an all-reduce over the network that the training will use.
"""

from __future__ import annotations

import sys

import torch
from torch import distributed


def main() -> None:
    """Run the all-reduce; on failure, exit with a message as the last line on standard error."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    num_nodes, rank = distributed.get_world_size(), distributed.get_rank()
    seen = torch.zeros(num_nodes, dtype=torch.int64, device=device)
    seen[rank] = 1
    distributed.all_reduce(seen)
    distributed.destroy_process_group()
    if seen.tolist() != [1] * num_nodes:
        sys.exit(f"ranks: got {seen.tolist()} nodes per rank, allowed is one")


if __name__ == "__main__":
    main()
