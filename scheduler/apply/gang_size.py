"""How many members a gang needs (W5)."""

from __future__ import annotations

from scheduler.model.kubernetes import Owner
from scheduler.state.workload import Workload
from scheduler.state.world import World
from scheduler.translate.grouping import MAX_SIZE, Group


def size_of(world: World, workload: Workload) -> int:
    """How many unfinished members the gang needs (W5); 0: not known, above MAX_SIZE, or its pods do not agree.

    Pods that succeeded are no longer needed.  But if as many succeeded as the group has pods, this run is over, and the
    next run needs all pods.
    """
    if not workload.pod_counts.sizes:  # no pod stays
        return workload.size or 1
    if len(workload.pod_counts.sizes) != 1:
        return 0
    [size] = workload.pod_counts.sizes
    if size is None:
        owner = world.size_source_of(workload)
        if owner is None or owner.members is None:
            return 0
        size = members_of(owner, workload.group)
        if size > MAX_SIZE:
            return 0
        if owner.ref.kind == "Job":  # `members` of a Job does not count pods that succeeded
            return max(1, size)
    elif workload.group is not None and workload.group.stage and (owner := world.size_source_of(workload)) is not None:
        size = min(size, members_of(owner, workload.group))  # the annotation may give the size of all stages together
    size = max(1, size)
    return size - workload.pod_counts.succeeded % size


def members_of(owner: Owner, group: Group | None) -> int:
    """How many pods the owner wants in the group; if the group is a stage, in the stage."""
    stage = next((candidate for candidate in owner.stages if group is not None and candidate.name == group.stage), None)
    return stage.members if stage is not None else owner.members or 0
