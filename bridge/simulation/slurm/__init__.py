"""The simulated Slurm."""
