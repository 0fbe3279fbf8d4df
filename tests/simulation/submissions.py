"""Submits jobs to the simulated Slurm as a Slurm user does: under any name, so also under the name of a placeholder."""

from __future__ import annotations

import json

from bridge.simulation.slurm import rest
from bridge.simulation.slurm.cluster import SlurmCluster


def submit(slurm: SlurmCluster, now: float, user: str, name: str) -> int:
    """Submit a job of that user and name, by slurmrestd.  Returns its id; 0: Slurm refused it.

    It is external and has 1 CPU and 100 MiB, so that it takes little room and ends only if somebody ends it.
    now   by the clock of Slurm
    """
    headers = {"X-SLURM-USER-TOKEN": slurm.token("slurm"), "X-SLURM-USER-NAME": user}
    job = {"name": name, "flags": ["EXTERNAL_JOB"], "cpus_per_task": 1, "memory_per_node": {"set": True, "number": 100}}
    body = json.dumps({"job": job}).encode()
    _, _, answer = rest.answer(slurm, now, "POST", "/slurm/v0.0.45/job/submit", headers, body)
    return int(json.loads(answer).get("job_id", 0))
