"""Applies events about a cluster as a whole: outages, slurmdbd, tokens, the clock, and what an admin confirms.

When an outage of a side ends, failed attempts are repeated at once.  In a long outage of Slurm, ids may have been reused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduler import events as ev
from scheduler.apply import reused_ids
from scheduler.events import Side
from scheduler.state.anomalies import confirm_missing
from scheduler.state.phase import Phase
from scheduler.state.world import World


def _outage_began(world: World, event: ev.OutageBegan) -> None:
    world.outages.setdefault(event.side, event)
    if event.side is Side.SLURM:
        for waiting in (Phase.UNSUBMITTED, Phase.QUEUED, Phase.GRANTED):
            world.dirty.update(world.by_phase[waiting])


def _outage_ended(world: World, event: ev.OutageEnded) -> None:
    ended = world.outages.pop(event.side, None)
    if ended is None:
        return
    _repeat_failed_attempts(world)
    if event.side is not Side.SLURM:
        return
    if world.first_polled is not None:  # meanwhile no job could be read
        reused_ids.begin_scan(world, event.at)
    if event.at - ended.since >= world.config.tuning.outage_s:
        reused_ids.reread_all(world, event.at)
    else:  # a short outage: a job is read again only before the bridge acts on it
        world.trust_since = world.last_poll_began
        reused_ids.read_foreign_for_searches(world)


def _calls_answered(world: World, event: ev.CallsAnswered) -> None:
    _repeat_failed_attempts(world)


def _repeat_failed_attempts(world: World) -> None:
    for key, workload in world.workloads.items():
        workload.reset_backoffs()
        world.dirty[key] = None


def _accounting_outage_began(world: World, event: ev.AccountingOutageBegan) -> None:
    if world.accounting_outage is None:
        world.accounting_outage = event
        world.dirty.update(world.searching_workloads)  # their searches do not wait for slurmdbd


def _accounting_outage_ended(world: World, event: ev.AccountingOutageEnded) -> None:
    world.accounting_outage = None


def _token_missing(world: World, event: ev.TokenMissing) -> None:
    world.users_without_token.add(event.user)


def _token_usable(world: World, event: ev.TokenUsable) -> None:
    """Repeat attempts at once that failed because the token was missing."""
    world.users_without_token.discard(event.user)
    for key in world.limited.pop(event.user, {}):
        world.workloads[key].retry_at = float("-inf")
        world.dirty[key] = None
    for job in world.placeholders.values():
        workload = world.workloads.get(job.key or "")
        if job.user == event.user and workload is not None:
            workload.reset_backoffs()
            world.dirty[workload.key] = None


def _absence_confirmed(world: World, event: ev.AbsenceConfirmed) -> None:
    confirm_missing(world)
    world.dirty.update(world.by_phase[Phase.ORPHANED])


def _predecessor_drained(world: World, event: ev.PredecessorDrained) -> None:
    world.predecessor_drained = True
    # Workloads that wait for the end of the quiet period are visited.
    world.dirty.update(dict.fromkeys(world.workloads))


def _clock_observed(world: World, event: ev.ClockObserved) -> None:
    world.clocks[event.side].observe(event.theirs, event.began, event.ended)


APPLIERS: Mapping[type, Callable[[World, Any], None]] = {
    ev.OutageBegan: _outage_began,
    ev.OutageEnded: _outage_ended,
    ev.CallsAnswered: _calls_answered,
    ev.AccountingOutageBegan: _accounting_outage_began,
    ev.AccountingOutageEnded: _accounting_outage_ended,
    ev.TokenMissing: _token_missing,
    ev.TokenUsable: _token_usable,
    ev.AbsenceConfirmed: _absence_confirmed,
    ev.PredecessorDrained: _predecessor_drained,
    ev.ClockObserved: _clock_observed,
}
