"""Slurm jobs: recipes, job graphs, batch scripts and submission."""
