"""Kubernetes nodes that are registered in Slurm, and how both sides are kept equal."""
