"""What of a waiting job can be changed in place, so that it keeps its age in the queue (K8).

Slurm changes nearly everything of its users' waiting jobs (each field was tried on Slurm 26.05; the contract suite repeats
it).  What it does not change is listed here, and only here: it is said on the pod, and the job waits on as it is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Final

from scheduler import names
from scheduler.model.hostlist import HostlistError, expand, fold
from scheduler.model.slurm import Job, JobSpec

# How many tasks on how many nodes, and for whom: said once, when the job is made.
_MADE_WITH: Final = frozenset({"user", "tasks", "tasks_per_node", "min_nodes", "max_nodes", "required_nodes"})

# What a rule of the policy gives together with its user.  Another user's rule does not count for the job.
GOVERNED: Final = frozenset({"account", "partition", "qos", "reservation"})

# Field of a JobSpec to the annotation that chooses it, where that has another name; "": none does.
_KEYS: Final = {
    "name": names.JOB_NAME,
    "memory_mib": names.MEMORY,
    "time_limit_min": names.TIME_LIMIT,
    "time_least_min": names.TIME_MIN,
    **dict.fromkeys(("user", "tasks", "tasks_per_node", "excluded_nodes", "required_nodes"), ""),
}


def changes(asked: JobSpec, wanted: JobSpec) -> list[frozenset[str]]:
    """The fields that differ, by name: of the job itself, then of each further component, which is changed by its own id.

    Both have as many components.
    """
    return [_differing(*each) for each in zip((asked, *asked.parts), (wanted, *wanted.parts), strict=True)]


def _differing(asked: JobSpec, wanted: JobSpec) -> frozenset[str]:
    named = (each.name for each in fields(asked) if each.name != "parts")
    return frozenset(name for name in named if getattr(asked, name) != getattr(wanted, name))


def taken(asked: JobSpec, wanted: JobSpec, component: int, changed: Collection[str]) -> JobSpec:
    """What was asked, now that these fields of one component are as wanted, and nothing else is."""
    if component == 0:
        return replace(asked, **{name: getattr(wanted, name) for name in changed})
    index = component - 1
    part = taken(asked.parts[index], wanted.parts[index], 0, changed)
    return replace(asked, parts=(*asked.parts[:index], part, *asked.parts[index + 1 :]))


def adopted(wanted: JobSpec, job: Job) -> JobSpec:
    """What a job of a previous life was asked for: what the user asked is taken as unchanged, the nodes are compared."""
    parts = wanted.parts
    if len(job.parts) == len(parts):
        parts = tuple(adopted(*each) for each in zip(parts, job.parts, strict=True))
    try:
        excluded = fold(expand(job.excluded_nodes))
    except HostlistError:  # its owner wrote there what we never would: it is replaced by what we would
        excluded = job.excluded_nodes
    return replace(wanted, user=job.user, excluded_nodes=excluded, parts=parts)


def unchangeable(wanted: JobSpec, changed: frozenset[str]) -> frozenset[str]:
    """Those of the changed fields that Slurm would refuse, or silently leave as they are.

    How a waiting job shares its nodes is an operator's to change (2002).  "Slurm's default" is no value that could be sent
    of a time limit (ignored) or an account (2045).  If the policy gives the pods another user by now, the job follows nothing
    of that user's rule; which nodes are excluded depends on the partition.
    """
    fixed = _MADE_WITH | {"exclusive"}
    if "user" in changed:
        fixed |= GOVERNED | ({"excluded_nodes"} if "partition" in changed else set())
    if wanted.time_limit_min is None:
        fixed |= {"time_limit_min"}
    if not wanted.account:
        fixed |= {"account"}
    return changed & fixed


def keys(changed: frozenset[str]) -> list[str]:
    """The annotations that choose those fields, as a user writes them, sorted."""
    known = {_KEYS.get(field, field.replace("_", "-")) for field in changed} - {""}
    return sorted(names.PREFIX + key for key in known)
