"""The times that the status of a pod shows, for its trace (O3)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from bridge.kube.objects import MOST_WORD, epoch
from bridge.kube.wire import ContainerStatus, PodStatus
from scheduler.model.kubernetes import NO_TIMES, PodTimes

MOST_CONTAINERS = 8  # whose names and images are kept


def times_of(status: PodStatus) -> PodTimes:
    """See PodTimes."""
    if status.start_time is None and status.container_statuses is None:
        return _while_waiting(status)
    since = {each.type: epoch(each.last_transition_time) for each in status.conditions or () if each.status == "True"}
    statuses = status.container_statuses or []
    running = _began(statuses)
    return PodTimes(
        sandbox=since.get("PodReadyToStartContainers"),
        initialized=since.get("Initialized"),
        running=running,
        ended=_ended(statuses),
        containers=tuple(each.name[:MOST_WORD] for each in islice(statuses, MOST_CONTAINERS)),
        images=tuple((each.image or "")[:MOST_WORD] for each in islice(statuses, MOST_CONTAINERS)),
    )


def _while_waiting(status: PodStatus) -> PodTimes:
    for each in status.conditions or ():
        if each.type == "PodScheduled" and each.status == "False":
            return PodTimes(reported=epoch(each.last_transition_time))
    return NO_TIMES


def _began(statuses: Iterable[ContainerStatus]) -> float | None:
    """The first start of a container; if a container was restarted, the start of its run before counts, too."""
    states = (state for each in statuses for state in (each.state, each.last_state) if state is not None)
    runs = (run for state in states for run in (state.running, state.terminated) if run is not None)
    return min((at for run in runs if (at := epoch(run.started_at)) is not None), default=None)


def _ended(statuses: Iterable[ContainerStatus]) -> float | None:
    ends = (each.state.terminated for each in statuses if each.state is not None and each.state.terminated is not None)
    return max((at for end in ends if (at := epoch(end.finished_at)) is not None), default=None)
