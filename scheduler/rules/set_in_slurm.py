"""What a waiting job has in Slurm that its pods did not ask for, in words (Q2, S9).

An admin, the job's user, or a plugin of slurmctld may change a job while it waits.  Slurm's reason then names an option that
no annotation of the pod has.  If the job must have nodes that its pods cannot use, Slurm never starts it, and shows the
reason of a job that waits for its turn ("Priority").
"""

from __future__ import annotations

from functools import lru_cache

from scheduler.model.hostlist import HostlistError, expand
from scheduler.model.slurm import SINGLETON, Job, JobSpec
from scheduler.model.text import line
from scheduler.state.placeholder import NO_NODE_EVER

MOST_SHOWN = 200  # characters of a value: each pod of a gang shows it, and what to do comes behind it
# Slurm's reasons about an option: the field of JobSpec, its value if the pods ask for none, and the option in words.
_OPTIONS = {
    "BeginTime": ("begin", None, "a begin time"),
    "Dependency": ("dependency", SINGLETON, "a dependency"),
    "DependencyNeverSatisfied": ("dependency", SINGLETON, "a dependency"),
    "ReservationDeleted": ("reservation", "", "a reservation"),
    "ReservationInvalid": ("reservation", "", "a reservation"),
}


def set_in_slurm(asked: JobSpec, read: Job) -> str:
    """The options of the job that its pods did not ask for and for which it waits, as a noun phrase; "": there are none."""
    found = list(filter(None, (_of_reason(asked, read), _nodes(asked, read))))
    is_one = asked.tasks == 1 and not asked.parts
    if is_one and (read.least_nodes or 0) > 1 and not asked.required_nodes:
        found.append(f"{read.least_nodes:,} nodes")
    fits_nowhere = read.reason == NO_NODE_EVER
    if fits_nowhere and read.constraints and not asked.constraints:
        found.append(f"the constraint {line(read.constraints, MOST_SHOWN)}")
    if fits_nowhere and is_one and (read.memory_mib or 0) > asked.memory_mib:
        found.append(f"{read.memory_mib:,} MiB of memory")
    return " and ".join(found)


def _of_reason(asked: JobSpec, read: Job) -> str:
    field, none, words = _OPTIONS.get(read.reason, ("", None, ""))
    if not field or getattr(asked, field) != none:
        return ""
    if field == "dependency":  # singleton may hold the job back, as the bridge asked
        others = [text for text in read.dependency.split(",") if text and not text.startswith(SINGLETON)]
        return f"the dependency {line(','.join(others), MOST_SHOWN)}" if others else ""
    return words


def _nodes(asked: JobSpec, read: Job) -> str:
    """The nodes that the job must have, and those of them that it must not have."""
    if not read.required_nodes or asked.required_nodes:
        return ""
    cannot = ", which its pod cannot use" if _have_common_nodes(read.required_nodes, read.excluded_nodes) else ""
    return f"the required nodes {line(read.required_nodes, MOST_SHOWN)}{cannot}"


@lru_cache(64)  # each pod of a gang asks, and thousands of nodes may be excluded
def _have_common_nodes(one: str, other: str) -> bool:
    try:
        return not set(expand(one)).isdisjoint(expand(other))
    except HostlistError:
        return False
