"""Tests of the launcher, most of them against a real Slurm."""
