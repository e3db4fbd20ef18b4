"""The paper's experiments and our studies as recipes of `scripts.launch`, costs, reports."""
