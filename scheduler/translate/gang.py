"""One job for the pods of a gang: what they have to agree on, and its components (W7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from scheduler import names
from scheduler.model.kubernetes import Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import JobSpec

# Fields in which the members of a gang may differ: the job then has several components (W7).
SHAPE = frozenset({"cpus_per_task", "memory_mib", "gres", "constraints", "excluded_nodes", "exclusive"})
# What users call a field whose name differs from its annotation.
_CALLED = {
    "name": "job-name",
    "time_limit_min": "time-limit (in minutes)",
    "time_least_min": "time-min (in minutes)",
}
# Fields that depend on the creation of a pod: the value of the last pod counts.
LATEST = frozenset({"begin"})


def together(asked: Sequence[tuple[Pod, JobSpec]]) -> JobSpec | Refusal:
    """One job specification for all pods of a gang, from that of each pod; or a Refusal if pods disagree (W7).

    Each component has the number of nodes of the whole gang (place/node_counts.py).
    """
    first_pod, first = asked[0]
    if len(asked) == 1:
        return first
    # Thousands of pods may share one.
    others = {id(spec): (pod, spec) for pod, spec in reversed(asked)}
    for field in fields(JobSpec):
        if field.name in SHAPE | LATEST:
            continue
        for pod, spec in reversed(others.values()):
            one, other = getattr(first, field.name), getattr(spec, field.name)
            if one != other:
                return Refusal(
                    names.REFUSED,
                    f"The pods of one gang must agree on {_CALLED.get(field.name, field.name.replace('_', '-'))}: "
                    f"{first_pod.name} has {_value(one)}, {pod.name} has {_value(other)}.",
                )
    head, *parts = [replace(spec, tasks=len(pods)) for spec, pods in components(asked)]
    return replace(head, parts=tuple(parts))


def components(asked: Sequence[tuple[Pod, JobSpec]]) -> list[tuple[JobSpec, list[Pod]]]:
    """The shapes and their pods, in the order in which they first come: each is a component of the job (W7)."""
    begin = max((spec.begin for _, spec in asked if spec.begin is not None), default=None)
    found: dict[JobSpec, list[Pod]] = {}
    same: dict[int, list[Pod]] = {}
    for pod, spec in asked:
        pods = same.get(id(spec))
        if pods is None:
            pods = same[id(spec)] = found.setdefault(spec if spec.begin == begin else replace(spec, begin=begin), [])
        pods.append(pod)
    return list(found.items())


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(":".join(map(str, item)) if isinstance(item, tuple) else str(item) for item in value) or "none"
    return str(value) if value not in ("", None) else "none"
