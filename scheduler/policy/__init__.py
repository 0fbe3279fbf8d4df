"""Who a namespace is in Slurm, and how much a job of that namespace may ask for."""
