"""All input and output: two sides, Kubernetes and Slurm, and one loop between them (see ARCHITECTURE.md)."""
