"""The invariants, proved from the logs of both clusters after a run.

It shares no code with the bridge, and imports neither `bridge` nor `scheduler` (an import contract): how jobs are named and
what a policy allows is written here a second time, from docs/behaviour.md and docs/policy.md.  It reads

* the API server's audit log: pods, nodes, settings of installed bridges, and every request on them, with its client;
* slurmctld's log: every change of a job's state, to the millisecond, and every start of slurmctld;
* slurmdbd, by sacct: what each job was: name, user, account, nodes, resources, and who cancelled it;
* slurmrestd's log: if a bridge cancelled a job of which slurmdbd does not say who did;
* the journal: what the run itself did on purpose (`journal`).

    __main__.py        checks a rig that is up, or the logs that were kept of one
    audit.py           the audit log, as the history of each pod
    running_bridges.py   of the audit log: when each bridge ran, its settings, and who held its lease
    rooms.py, quantities.py   of the audit log: what each node has room for; what a pod requests
    slurm_log.py       slurmctld's log, as the history of each job
    accounting.py      slurmdbd's records
    rest_log.py        slurmrestd's log
    journal.py         written by the run, read by the checker
    evidence.py        all of these, joined: which job was which workload's, and when nothing was broken on purpose
    invariants.py      all invariants; here V1, V2, V5, V6, V8
    fits.py            V3
    gangs.py           V4
    ends.py            V7
    bridges.py         several bridges: K1, V6
    liveness.py        L1 to L4
    verdict.py         what is found: violations, and how much was judged

A bridge, and its schedulerName, are known by its user agent.  In Slurm a bridge acts as its tenants, and the journeys
act as the administrator, so the user who ended or changed a job tells the two apart.

    python -m integration.checker RIG      after a run, while the rig is up; exit code 1: an invariant was violated
"""
