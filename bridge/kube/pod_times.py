"""The times that the status of a pod shows, for its trace (O3)."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from bridge.kube.objects import MOST_WORD, epoch
from bridge.kube.wire import ContainerStatus, PodStatus
from scheduler.model.kubernetes import NO_TIMES, PodTimes

MOST_CONTAINERS = 8  # names and images of more containers are not kept


def times_of(status: PodStatus) -> PodTimes:
    """The times of a pod.  This runs for each change of each pod, so the loops are plain."""
    statuses = status.container_statuses or []
    if status.start_time is None and status.container_statuses is None:
        return _while_waiting(status)
    sandbox, initialized = None, None
    for condition in status.conditions or ():
        if condition.status != "True":
            continue
        if condition.type == "Initialized":
            initialized = epoch(condition.last_transition_time)
        elif condition.type == "PodReadyToStartContainers":
            sandbox = epoch(condition.last_transition_time)
    named = statuses[:MOST_CONTAINERS]
    return PodTimes(
        sandbox=sandbox,
        initialized=initialized,
        running=_began(statuses),
        ended=_ended(statuses),
        containers=tuple([sys.intern(container.name[:MOST_WORD]) for container in named]),
        images=tuple([sys.intern((container.image or "")[:MOST_WORD]) for container in named]),
    )


def _while_waiting(status: PodStatus) -> PodTimes:
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return PodTimes(reported=epoch(condition.last_transition_time))
    return NO_TIMES


def _began(statuses: Iterable[ContainerStatus]) -> float | None:
    """The first start of a container.  If a container was restarted, the start of its previous run counts, too."""
    first: float | None = None
    for container in statuses:
        for state in (container.state, container.last_state):
            if state is None:
                continue
            for run in (state.running, state.terminated):
                at = epoch(run.started_at) if run is not None else None
                if at is not None and (first is None or at < first):
                    first = at
    return first


def _ended(statuses: Iterable[ContainerStatus]) -> float | None:
    last: float | None = None
    for container in statuses:
        end = container.state.terminated if container.state is not None else None
        at = epoch(end.finished_at) if end is not None else None
        if at is not None and (last is None or at > last):
            last = at
    return last
