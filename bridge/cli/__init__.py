"""The commands of `slurm-bridge` other than `run`, `dev` and `webhook`."""
