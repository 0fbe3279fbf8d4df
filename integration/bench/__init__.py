"""`make bench`: how fast the bridge is and what it costs, beside the floor, on real Slurm and real Kubernetes.

Three ideas carry it.

*The floor is measured in the same run.*  The machine is shared and has its moods; a figure in milliseconds says as much of
the machine as of the bridge.  So the fewest possible steps between the same two clusters (floor.py) take turns with the
bridge, with the same pods, the same creators and the same stopwatch, and what counts is the ratio.  Only one of the two
runs at a time: the bridge looks at all pods on its nodes, the floor's too, and would slow it down.

*The load is open.*  Pods come at times fixed beforehand.  A load that waits for answers slows down together with what it
measures, and hides the worst of it.

*What is counted is counted from outside*: CPU and memory in /proc, API requests in the API server's audit log, Slurm calls
and bytes in a relay between bridge and slurmrestd.  The relay costs time, so where time is measured the bridge's own
counters stand in for it, and a run of their own holds the two together.

    __main__.py    rigs up and down                      inside.py    one scenario, within a rig's network
    scenarios/     a file for each family                subjects.py  the two that are measured: floor and bridge
    simulated.py   both clusters in this process, for the bridge alone
    load.py        pods at fixed times, and a stopwatch  ends.py      the far sides as cheap as can be
    figures.py, report.py  measured, asked and printed   processes.py, audit.py, relay.py  what is counted
"""
