"""Which fields of a waiting job can be changed in place, so that the job keeps its age in the queue (K8).

Slurm lets users change nearly every field of a waiting job (each was tried on Slurm 26.05; the contract suite repeats it).
The other fields are listed here: the pod says that they are not changed, and the job waits as it is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Final

from scheduler import names
from scheduler.model.hostlist import HostlistError, expand, fold
from scheduler.model.slurm import Job, JobSpec

# The number of tasks and nodes, and the user: fixed at submission.
_MADE_WITH: Final = frozenset({"user", "tasks", "tasks_per_node", "min_nodes", "max_nodes", "required_nodes"})

# Fields that a rule of the policy gives together with its user.  Another user's rule is not applied to the job.
GOVERNED: Final = frozenset({"account", "partition", "qos", "reservation"})

# Fields to which Slurm gives another value while the job waits, and not its default again (ignored; 2045).
_KEEP_A_VALUE: Final = frozenset({"time_limit_min", "account"})

# Field of JobSpec to its annotation, if that has another name; "": no annotation chooses the field.
_KEYS: Final = {
    "name": names.JOB_NAME,
    "memory_mib": names.MEMORY,
    "time_limit_min": names.TIME_LIMIT,
    "time_least_min": names.TIME_MIN,
    **dict.fromkeys(("user", "tasks", "tasks_per_node", "excluded_nodes", "required_nodes"), ""),
}


def changes(asked: JobSpec, wanted: JobSpec) -> list[frozenset[str]]:
    """Names of the fields that differ: of the job itself, then of each further component, which has its own id.

    Both specifications have equally many components.  How these share a number of nodes depends on nodes: no change.
    """
    found = [_differing(*pair) for pair in zip((asked, *asked.parts), (wanted, *wanted.parts), strict=True)]
    same = frozenset(field for field in ("min_nodes", "max_nodes") if _total(asked, field) == _total(wanted, field))
    return [differing - same for differing in found]


def _total(spec: JobSpec, field: str) -> int:
    return sum(getattr(component, field) or 0 for component in (spec, *spec.parts))


def _differing(asked: JobSpec, wanted: JobSpec) -> frozenset[str]:
    if asked == wanted:  # usual, and this runs at each visit of a job that waits
        return frozenset()
    named = (field.name for field in fields(asked) if field.name != "parts")
    return frozenset(name for name in named if getattr(asked, name) != getattr(wanted, name))


def with_changes(asked: JobSpec, wanted: JobSpec, component: int, changed: Collection[str]) -> JobSpec:
    """The specification `asked`, with these fields of one component as in `wanted`."""
    if component == 0:
        return replace(asked, **{name: getattr(wanted, name) for name in changed})
    index = component - 1
    part = with_changes(asked.parts[index], wanted.parts[index], 0, changed)
    return replace(asked, parts=(*asked.parts[:index], part, *asked.parts[index + 1 :]))


def value(spec: JobSpec, component: int, field: str) -> object:
    """The value of a field of one component."""
    return getattr((spec, *spec.parts)[component], field)


def adopted(wanted: JobSpec, job: Job) -> JobSpec:
    """The specification of a job that a previous process submitted: as wanted now, with the nodes of the job itself."""
    parts = wanted.parts
    if len(job.parts) == len(parts):
        parts = tuple(adopted(*pair) for pair in zip(parts, job.parts, strict=True))
    try:
        excluded = fold(expand(job.excluded_nodes))
    except HostlistError:  # the user changed it to a form that the bridge does not write: it is replaced
        excluded = job.excluded_nodes
    return replace(wanted, user=job.user, excluded_nodes=excluded, parts=parts)


def unchangeable(wanted: JobSpec, changed: frozenset[str]) -> frozenset[str]:
    """The changed fields that Slurm refuses to change, or silently leaves as they are.

    Only an operator may change how a waiting job shares its nodes (2002).  If the policy now gives the pods another user,
    nothing of that user's rule is applied to the job; the excluded nodes depend on the partition, so they are not changed
    either.
    """
    fixed = _MADE_WITH | {"exclusive"}
    if "user" in changed:
        fixed |= GOVERNED | ({"excluded_nodes"} if "partition" in changed else set())
    if wanted.time_limit_min is None:
        fixed |= {"time_limit_min"}
    if not wanted.account:
        fixed |= {"account"}
    return changed & fixed


def in_words(fixed: frozenset[str]) -> list[str]:
    """What Slurm cannot change, and what the user can do: sentences about fields that `unchangeable` returned."""
    said = []
    if options := ", ".join(keys(fixed - _KEEP_A_VALUE)):
        said.append(f"Slurm cannot change {options} of a waiting job; recreate the pod to apply it.")
    if options := ", ".join(keys(fixed & _KEEP_A_VALUE)):
        said.append(
            f"Slurm cannot set {options} of a waiting job back to its default; give it a value, or recreate the pod."
        )
    return said


def keys(changed: frozenset[str]) -> list[str]:
    """The annotations that choose these fields, as a user writes them, sorted."""
    known = {_KEYS.get(field, field.replace("_", "-")) for field in changed} - {""}
    return sorted(names.PREFIX + key for key in known)
