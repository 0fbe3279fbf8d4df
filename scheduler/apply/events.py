"""Applies one event to the World, with the table of the functions that apply each kind of event (ARCHITECTURE 3).

An exception in one of these functions is a defect.  A guarded World contains it (scheduler/state/quarantine.py); otherwise it
is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduler import events as ev
from scheduler.apply import (
    job_polls,
    job_reads,
    job_results,
    kubernetes_nodes,
    namespaces,
    outages,
    plans,
    pod_references,
    pods,
    policy,
    results,
    slurm_nodes,
    undecoded,
)
from scheduler.state import quarantine
from scheduler.state.world import World
from scheduler.tuning import Config

APPLIERS: Mapping[type, Callable[[World, Any], None]] = {
    **pods.APPLIERS,
    **kubernetes_nodes.APPLIERS,
    **namespaces.APPLIERS,
    **pod_references.APPLIERS,
    **undecoded.APPLIERS,
    **job_polls.APPLIERS,
    **job_reads.APPLIERS,
    **slurm_nodes.APPLIERS,
    **outages.APPLIERS,
    **plans.APPLIERS,
    **results.APPLIERS,
    **job_results.APPLIERS,
    **policy.APPLIERS,
}

# The attribute with the time of an event; "": the event gives no time.  Other events have the time in `at`, if they have one.
_TIME_OF = {ev.JobsPolled: "ended", ev.JobRead: "ended", ev.ClockObserved: "ended", ev.OutageBegan: ""}


def new_world(config: Config, started: float, *, guarded: bool = False) -> World:
    """An empty World.

    started   when the process started, epoch seconds
    guarded   True: the World contains the bridge's own errors (X8)
    """
    return World(config, started, apply_event, guarded=guarded)


def apply_event(world: World, event: ev.Event) -> None:
    """Apply the event to the facts, and note the newest time of any event."""
    at = getattr(event, _TIME_OF.get(type(event), "at"), None)
    if at is not None:
        world.newest_event_at = max(world.newest_event_at, at)
    try:
        APPLIERS[type(event)](world, event)
        if world.quarantine:
            quarantine.note_applied(world, event)
    except Exception as error:
        if not world.guarded:
            raise
        quarantine.contain(world, event, error)
