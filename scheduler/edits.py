"""What of a waiting job can be changed in place, so that it keeps its age in the queue (BEHAVIOUR K).

Slurm changes nearly everything of its users' waiting jobs (each field was tried on Slurm 26.05; the contract suite repeats
it).  What it does not change is listed here, and only here: it is said on the pod, and the job waits on as it is.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from scheduler import names
from scheduler.model import JobSpec

# How many tasks on how many nodes, and for whom: said once, when the job is made.
_MADE_WITH: Final = frozenset({"user", "tasks", "tasks_per_node", "min_nodes", "max_nodes", "parts"})

# Field of a JobSpec to the annotation that chooses it, where that has another name; "": none does.
_KEYS: Final = {
    "name": names.JOB_NAME,
    "memory_mib": names.MEMORY,
    "time_limit_min": names.TIME_LIMIT,
    **dict.fromkeys(("user", "tasks", "tasks_per_node", "parts", "excluded_nodes"), ""),
}


def changes(asked: JobSpec, wanted: JobSpec) -> frozenset[str]:
    """The fields that differ, by name."""
    return frozenset(each.name for each in fields(asked) if getattr(asked, each.name) != getattr(wanted, each.name))


def unchangeable(wanted: JobSpec, changed: frozenset[str]) -> frozenset[str]:
    """Those of the changed fields that Slurm would refuse, or silently leave as they are.

    How a waiting job shares its nodes is an operator's to change (2002).  "Slurm's default" is no value that could be sent
    of a time limit (ignored) or an account (2045).
    """
    fixed = _MADE_WITH | {"exclusive"}
    if wanted.time_limit_min is None:
        fixed |= {"time_limit_min"}
    if not wanted.account:
        fixed |= {"account"}
    return changed & fixed


def keys(changed: frozenset[str]) -> list[str]:
    """The annotations that choose those fields, as a user writes them, sorted."""
    known = {_KEYS.get(field, field.replace("_", "-")) for field in changed} - {""}
    return sorted(names.PREFIX + key for key in known)
