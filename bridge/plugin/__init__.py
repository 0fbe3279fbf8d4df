"""`kubectl slurm`: the pods of slurm-bridge for the user of a namespace, read from Kubernetes with the user's own rights.

The nodes, which such a user may not read, come from the running bridge.
"""
