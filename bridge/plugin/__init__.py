"""`kubectl slurm`: the pods of slurm-bridge for the user of a namespace, read from Kubernetes with the user's own rights."""
