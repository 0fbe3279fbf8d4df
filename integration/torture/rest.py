"""What is not as it should be once nothing breaks any more, and users and admins have stopped."""

from __future__ import annotations

from collections import Counter
from typing import Any

from integration.checker.evidence import workload_keys
from integration.clusters import PREFIX, Kube, Slurm, condition

OVER = ("Succeeded", "Failed")


def unsettled(kube: Kube, slurm: Slurm, namespace: str) -> list[str]:
    """In sentences: jobs without a pod, doubled jobs, and pods that are neither bound nor say why."""
    pods = [each for each in kube.pods(namespace) if each.status.phase not in OVER]
    jobs = slurm.live(f"{namespace}/")
    wanted = {key for each in pods for key in workload_keys(each.metadata.uid, namespace, each.metadata.labels or {})}
    found = [f"{job['name']} has no pod" for job in jobs if job["name"].rpartition(".")[2] not in wanted]
    running = Counter(job["name"] for job in jobs if "RUNNING" in job["job_state"])
    found += [f"{name} runs {count} times" for name, count in running.items() if count > 1]
    return found + [said for each in pods if (said := _unsettled_pod(each, {job["job_id"]: job for job in jobs}))]


def _unsettled_pod(each: Any, jobs: dict[int, dict[str, Any]]) -> str:
    name, said = each.metadata.name, condition(each, "PodScheduled")
    if each.metadata.deletion_timestamp:
        return f"{name} is being deleted"
    if not each.spec.node_name:
        return "" if said and said.message else f"{name} waits and does not say why"
    job = jobs.get(int(each.metadata.annotations[PREFIX + "job-id"]))
    if job is None or "RUNNING" not in job["job_state"]:
        return f"{name} is bound, and its job does not run"
    return ""
