"""Two simulated clusters, and `slurm-bridge dev`, which puts the real bridge between them, or between real ones.

The clusters are pure state machines (`kube_*.py`, `slurm_*.py`) with transports in this process, an HTTP shell, and a loop on
virtual time; the contract suite compares them with the real servers, and the simulation runs on them.  The invariants
(`promises.py`) are checked by the simulation and by `dev` alike, on what can be seen (`sight.py`) of either kind of cluster.

    command.py                 options → a performance: `show.py` (the page) or `story.py` (headless)
    sides.py, wires.py         the two ends, simulated or real; the way to them, and faults on it
    session.py                 the bridge between them, its restarts, and the invariants
    load.py, faults.py         what is run, what goes wrong: tables
    workload_client.py         makes the pods and watches them
"""
