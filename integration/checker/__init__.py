"""The invariants, proved from the logs of both clusters after a run.

It shares no code with the bridge, and imports neither `bridge` nor `scheduler` (an import contract): how jobs are named and
what a policy allows is written here a second time, from docs/behaviour.md and docs/policy.md.  It reads

* the API server's audit log: pods, nodes, settings of installed bridges, and every request on them, with its client;
* slurmctld's log: every change of a job's state, to the millisecond, and every start of slurmctld;
* slurmdbd, by sacct: what each job was: name, user, account, nodes, resources, and who cancelled it;
* slurmrestd's log: if a bridge cancelled a job of which slurmdbd does not say who did;
* the journal: what the run itself did on purpose (`journal`).

A bridge, and its schedulerName, are known by its user agent.  In Slurm a bridge acts as its tenants, and the journeys
act as the administrator, so the user who ended or changed a job tells the two apart.

    python -m integration.checker RIG      after a run, while the rig is up; exit code 1: an invariant was violated
"""
