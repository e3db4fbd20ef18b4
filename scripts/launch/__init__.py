"""Jobs of a Slurm cluster: recipes, the graph of jobs that they become, scripts, submission."""
