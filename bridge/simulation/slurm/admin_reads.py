"""Answers of the simulated slurmrestd for diagnostic reads: slurm.conf, slurmctld's clock, reservations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.simulation.slurm.cluster import SlurmCluster

CONFIGURATION_SINCE = "v0.0.45"


def configuration(cluster: SlurmCluster) -> Mapping[str, Any]:
    """As `GET conf/` shows it; values of `cluster.slurm_conf` replace those that follow from the cluster."""
    preempts = any(partition.preempted for partition in cluster.partitions.values())
    shown = {
        "ClusterName": "simulated",
        "EnforcePartLimits": ["ALL"],
        "GresTypes": sorted(cluster.gres_names),
        "JobSubmitPlugins": [],
        "MaxJobCount": cluster.max_job_count,
        "MaxNodeCount": len(cluster.nodes) + 1000,
        "MinJobAge": cluster.min_job_age_s,
        "PreemptMode": ["REQUEUE"] if preempts else ["OFF"],
        "PreemptType": "preempt/partition_prio" if preempts else "",
        "PrivateData": [],
        "SchedulerParameters": [],
        "SchedulerType": "sched/backfill",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": ["CR_CORE_MEMORY" if cluster.counts_memory else "CR_CORE"],
        "SlurmUser": "slurm",
        "SuspendExcNodes": [],
        "SuspendExcStates": [],
        "SuspendProgram": "",
        "SuspendTime": {"set": True, "infinite": True, "number": 0},
    }
    return {"slurm_conf": {**shown, **cluster.slurm_conf}}


def diag(now: float) -> Mapping[str, Any]:
    """The answer to `GET diag/`: only the clock."""
    return {"statistics": {"req_time": {"set": True, "infinite": False, "number": int(now)}}}


def reservations(cluster: SlurmCluster) -> Mapping[str, Any]:
    """`GET reservations/`."""
    return {"reservations": [{"name": name} for name in cluster.reservations]}
