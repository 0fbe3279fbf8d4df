"""`slurm-bridge dev`: the real bridge between two clusters, each simulated (`bridge/simulation`) or real.

The simulation tests and `dev` check the same invariants (`bridge/simulation/invariants`), on observations of either kind
of cluster (`bridge/simulation/observations.py`).

    command.py                 from the options to a session with a page (`web.py`) or without one (`headless.py`)
    backends.py                the two clusters, simulated or real
    session.py                 the bridge between them, its restarts, and the invariants
    load.py, faults.py         tables of the workloads and of the faults
    workload_client.py         creates the pods and watches them
"""
