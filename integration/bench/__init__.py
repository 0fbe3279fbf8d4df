"""`make bench`: how fast the bridge is and what it costs, beside the floor, on real Slurm and real Kubernetes.

It follows three principles.

*The floor is measured in the same run.*  The machine is shared, so a figure in milliseconds depends on the machine as much as
on the bridge.  Therefore a program that takes the fewest possible steps between the same two clusters (floor.py) takes turns
with the bridge, with the same pods, the same creators and the same stopwatch.  The result is the ratio of the two.  Only one
of them runs at a time, because the bridge also reads the floor's pods on its nodes, and would slow the floor down.

*The load is open.*  Pods come at times fixed beforehand.  A load that waits for answers slows down together with the program
that it measures, and hides the longest delays.

*Costs are counted from outside*: CPU and memory in /proc, API requests in the API server's audit log, Slurm calls and bytes
in a relay between bridge and slurmrestd.  The relay takes time.  So if time is measured, the bridge's own counters are used
instead, and another run compares these counters with the relay.

    __main__.py    rigs up and down, one scenario after the other
    inside.py      one scenario, within a rig's network
    catalogue.py   every scenario, by name
    scenarios/     a file for each family
    ground.py      the two clusters of a measurement: prepared, emptied, one measured program at a time
    simulated.py   both clusters simulated, for the bridge alone
    subjects.py    the two that are measured: floor and bridge
    floor.py       the floor
    load.py        pods at fixed times, and a stopwatch
    following.py   waits for conditions on pods
    clients.py     clients of both clusters, at the least cost
    processes.py, audit.py, relay.py   what is counted: processor time and memory, API requests, Slurm calls and bytes
    profile.py     where the bridge spends its time
    figures.py     a figure: measured, asked, compared
    costs.py       figures of processor time and memory
    limits.py      what the machine allows
    report.py      docs/performance.md
    timed/, unmetered/   make a bridge count the time of its telemetry, or have none
"""
