"""Pods for which Slurm granted nothing, and that show the id of some job: another client wrote it there.

The pods are in a namespace that is not managed, or their creator chose the node (spec.nodeName).  The pods request no
resources, so they can only do harm if the bridge believes the id.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from bridge.simulation.kube import objects
from scheduler import names

UNMANAGED = "wild"
NOBODYS_ID = 4_000_000


def stranger(
    rng: random.Random, name: str, nodes: Sequence[str], jobs: Sequence[int], spaces: Sequence[str]
) -> objects.Object:
    """One such pod.

    jobs     ids that it may claim, besides one that no job has
    spaces   managed namespaces where it may be
    """
    space = rng.choice([UNMANAGED, UNMANAGED, *spaces])
    node, runs = rng.choice(nodes), rng.choice(["2", "8", "25", ""])
    says = {names.JOB_ID: str(rng.choice([*jobs, NOBODYS_ID]))} | ({objects.RUN_S: runs} if runs else {})
    if rng.random() < 0.5:
        says[names.JOB_NODES] = node
    where: dict[str, Any] = {"nodeName": node} if rng.random() < 0.8 else {}
    scheduler = rng.choice([names.SCHEDULER_NAME, names.SCHEDULER_NAME, "default-scheduler"])
    return objects.pod(space, name, scheduler=scheduler, annotations=says, grace_s=5, **where)
