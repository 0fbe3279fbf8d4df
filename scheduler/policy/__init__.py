"""The policy: the Slurm user of a namespace, and the limits of its jobs."""
