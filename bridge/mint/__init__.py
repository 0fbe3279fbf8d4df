"""`slurm-bridge mint`: short-lived tokens of Slurm users, made from Slurm's key in a process of its own."""
