"""Applies reads of the objects that pods refer to: their controllers, and their volume claims.

Controllers are read for their annotations and for the size of a gang.  At most MAX_OWNERS_REMEMBERED controllers of usual
size are kept.  A controller that was dropped is read again when a pod needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduler import events as ev
from scheduler.apply.settling import settle_and_refresh
from scheduler.model.kubernetes import Owner, OwnerKey, owner_key
from scheduler.state import quarantine
from scheduler.state.phase import Phase
from scheduler.state.world import World

MAX_OWNERS_REMEMBERED = 10_000  # controllers whose annotations are kept
USUAL_OWNER = 4096  # characters; a controller with more characters counts as several controllers


def _owner_read(world: World, event: ev.OwnerRead) -> None:
    owner = owner_key(event.namespace, event.ref)
    size_before, before = world.owner_sizes.get(owner, 0), world.owners.get(owner)
    # An owner that is gone, or that the bridge may not read any more, keeps what it showed: its pods did not change.
    shown = event.owner or before
    changed = owner in world.owners and world.owners.pop(owner) != shown
    world.owners[owner], world.owner_read_at[owner] = shown, event.at
    world.owner_sizes[owner] = _size_of(shown)
    world.owners_weight += world.owner_sizes[owner] - size_before
    while world.owners_weight > MAX_OWNERS_REMEMBERED:
        oldest = next(iter(world.owners))
        world.owners_weight -= world.owner_sizes.get(oldest, 0)
        for index in (world.owners, world.owner_read_at, world.owner_asked_at, world.owner_sizes):
            index.pop(oldest, None)
    if changed:
        _owner_changed(world, owner)
    for key in world.waits_for_owner.pop(owner, ()):
        try:
            settle_and_refresh(world, world.workloads[key])
        except Exception as error:  # noqa: BLE001 - contained to the workload, or raised
            quarantine.quarantine_workload(world, key, error)


def _size_of(owner: Owner | None) -> int:
    """How much memory the controller takes, in controllers of usual size."""
    if owner is None:
        return 1
    jobs = sum(len(job) for stage in owner.stages for job in stage.jobs)
    return 1 + (sum(map(len, owner.annotations.values())) + jobs) // USUAL_OWNER


def _owner_changed(world: World, owner: OwnerKey) -> None:
    """Note that the input of the owner's workloads changed: a workload that was refused may be accepted now (Q4)."""
    for phase in (Phase.UNSUBMITTED, Phase.QUEUED):
        for key in world.by_phase[phase]:
            workload = world.workloads[key]
            first = workload.members[:1]
            if any(
                owner_key(pod.namespace, reference.ref) == owner
                for pod in first
                for reference in world.owners_of(pod)[0]
            ):
                world.input_changed(workload)
                world.dirty[key] = None


def _claims_read(world: World, event: ev.ClaimsRead) -> None:
    key = world.key_of_pod.get(event.uid)
    if key is None:
        return  # the pod is gone
    world.claims[event.uid] = event.claims
    world.claims_read_at[event.uid] = event.at
    world.dirty[key] = None
    if any(claim.problem for claim in event.claims):
        world.back_off(world.workloads[key], event.at)  # the workload is visited again after the backoff


APPLIERS: Mapping[type, Callable[[World, Any], None]] = {ev.OwnerRead: _owner_read, ev.ClaimsRead: _claims_read}
