"""Applies what concerns a cluster as a whole: its loss and return, slurmdbd, tokens, its clock, and what an admin confirms.

When a side is back, what failed meanwhile is tried at once.  After a long outage of Slurm, ids may have been reused.
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


def _side_lost(world: World, event: ev.SideLost) -> None:
    world.lost.setdefault(event.side, event)
    if event.side is Side.SLURM:
        for waiting in (Phase.UNSUBMITTED, Phase.QUEUED, Phase.GRANTED):
            world.dirty.update(world.by_phase[waiting])


def _side_back(world: World, event: ev.SideBack) -> None:
    lost = world.lost.pop(event.side, None)
    if lost is None:
        return
    for key, workload in world.workloads.items():
        workload.reset_backoffs()
        world.dirty[key] = None
    if event.side is not Side.SLURM:
        return
    if event.at - lost.since >= world.config.tuning.outage_s:
        reused_ids.reread_all(world, event.at)
    else:  # a short outage: a job is read again only before the bridge acts on it
        world.trust_since = world.last_poll_began


def _accounting_lost(world: World, event: ev.AccountingLost) -> None:
    if world.accounting_lost is None:
        world.accounting_lost = event
        world.dirty.update(world.searching_workloads)  # they do not wait for slurmdbd


def _accounting_back(world: World, event: ev.AccountingBack) -> None:
    world.accounting_lost = None


def _token_lost(world: World, event: ev.TokenLost) -> None:
    world.users_without_token.add(event.user)


def _token_back(world: World, event: ev.TokenBack) -> None:
    """Try at once what failed because the token was missing."""
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
    ev.SideLost: _side_lost,
    ev.SideBack: _side_back,
    ev.AccountingLost: _accounting_lost,
    ev.AccountingBack: _accounting_back,
    ev.TokenLost: _token_lost,
    ev.TokenBack: _token_back,
    ev.AbsenceConfirmed: _absence_confirmed,
    ev.PredecessorDrained: _predecessor_drained,
    ev.ClockObserved: _clock_observed,
}
