"""All input and output: two ends, Kubernetes and Slurm, and one loop between them (see ARCHITECTURE.md)."""
