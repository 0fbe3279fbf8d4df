"""Two simulated clusters, faults, invariants and a virtual clock.  `slurm-bridge run` imports nothing of this package."""
