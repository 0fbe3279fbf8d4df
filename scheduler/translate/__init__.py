"""From pods and their annotations to the job that Slurm is asked for."""
