"""The annotations of a pod's controllers, and when they are read (K2: annotations "else of its owners, nearest first").

Owners are not watched: there are as many kinds of them as there are operators.  They are read once before the first decision
about a pod, and again while the pod waits, because its user may correct there what keeps it waiting.  If an owner cannot be
read, its pods wait and show that.  After a restart the owners of pods that run are read before their job ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scheduler import actions as act
from scheduler import names
from scheduler.model.kubernetes import OwnerKey, OwnerRef, Pod, owner_key
from scheduler.rules.decision import NOTHING, Decision, combine, in_turn, note, plan_action, wake
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import status
from scheduler.state.facts import MAX_OWNERS
from scheduler.state.phase import Phase
from scheduler.state.workload import Workload
from scheduler.state.world import World

# An owner that was read so long before a pod came is read again before the first decision about the pod.
LATELY_S = 300.0
AGAIN_S = 60.0  # and while pods wait, once in so long, if at most MANY of them are refused
MANY = 1000
OWNERS_FIRST = "The pod's owners are read first, for their annotations."
UNREAD_AGAIN_S = 5.0  # after a restart, a failed read of a queued pod's owner is repeated after so long


def read_stale_owners(workload: Workload, pods: Iterable[Pod], this_pass: Pass) -> Decision | None:
    """Read the owners that were read long before their pods came.  None: all were read not long before that."""
    world, found = this_pass.world, list[Decision]()
    for pod, ref in _owners(pods, world):
        key = owner_key(pod.namespace, ref)
        read_at = world.owner_read_at.get(key, float("inf"))
        if read_at + LATELY_S >= world.first_seen[pod.uid].first:
            continue
        is_backing_off = this_pass.now < workload.backoff.until
        found.append(wake(workload.backoff.until) if is_backing_off else plan_action(_read(pod, ref, workload)))
        found.append(note(awaits=key) + unreadable(pod, f"{ref.kind} {ref.name}", key, this_pass))
    return combine(found) + Decision(why=OWNERS_FIRST) if found else None


def read_again(workload: Workload, pods: Iterable[Pod], this_pass: Pass) -> Decision:
    """Read the owners of refused pods again, each once in a while, to see a correction there."""
    every_s, found = again_every_s(this_pass), []
    for pod, ref in _owners(pods, this_pass.world):
        due = _read_or_asked_at(owner_key(pod.namespace, ref), this_pass.world) + every_s
        found.append(wake(due) if this_pass.now < due else plan_action(_read(pod, ref, workload), "owners"))
    return in_turn(found)


def again_every_s(this_pass: Pass, least_s: float = AGAIN_S) -> float:
    """After how many seconds a pod without a job is looked at again.

    least_s   this time if at most MANY pods have no job; if more have none, it is longer
    """
    return least_s * max(1.0, len(this_pass.world.by_phase[Phase.UNSUBMITTED]) / MANY)


def read_in_passing(workload: Workload, pods: Iterable[Pod], this_pass: Pass) -> tuple[Decision, bool]:
    """Read the owners of queued pods again at a visit that is made anyway; also True if all owners have been read."""
    found, are_read = list[Decision](), True
    for pod, ref in _owners(pods, this_pass.world):
        key = owner_key(pod.namespace, ref)
        known = key in this_pass.world.owners
        are_read = are_read and known
        due = _read_or_asked_at(key, this_pass.world) + (AGAIN_S if known else UNREAD_AGAIN_S)
        if this_pass.now >= due:
            read = _read(pod, ref, workload)
            found.append(plan_action(read, "owners", is_optional=True) if known else plan_action(read))
        elif not known:
            found.append(wake(due))
    return combine(found), are_read


def read_unknown(workload: Workload, pods: Iterable[Pod], this_pass: Pass) -> Decision:
    """Read the owners of which nothing is known, as after a restart; a read that fails is repeated after a while."""
    found = []
    for pod, ref in _owners(pods, this_pass.world):
        key = owner_key(pod.namespace, ref)
        if key in this_pass.world.owners:
            continue
        due = _read_or_asked_at(key, this_pass.world) + UNREAD_AGAIN_S
        read = plan_action(_read(pod, ref, workload), "owners") if this_pass.now >= due else NOTHING
        found.append(read + wake(max(due, this_pass.now + UNREAD_AGAIN_S)))
    return in_turn(found)


def unreadable(pod: Pod, subject: str, key: OwnerKey | str, this_pass: Pass) -> Decision:
    """The pod shows that what it waits for cannot be read, once that has lasted.  key: the owner, or the pod with claims."""
    failing = this_pass.world.cannot_read.get(key)
    if failing is None:
        return NOTHING
    since, why = failing
    said_at = since + this_pass.tuning.outage_s
    message = f"{subject} of this pod cannot be read, and is tried again: {why}"
    if this_pass.now < said_at:
        return wake(said_at, message)
    return status(pod, names.UNREADABLE, message, essence=("unread", subject), warning=True)


def _owners(pods: Iterable[Pod], world: World) -> Iterator[tuple[Pod, OwnerRef]]:
    """Each known owner once, with the newest of these pods that has it."""
    found: dict[OwnerKey, tuple[Pod, OwnerRef]] = {}
    for pod in pods:
        ref, steps = pod.owner, 0
        while ref is not None and steps < MAX_OWNERS:
            key = owner_key(pod.namespace, ref)
            before = found.get(key)
            if before is None or world.first_seen[before[0].uid].first < world.first_seen[pod.uid].first:
                found[key] = (pod, ref)
            owner = world.owners.get(key)
            ref, steps = (owner.owner if owner is not None else None), steps + 1
    yield from found.values()


def _read_or_asked_at(key: OwnerKey, world: World) -> float:
    never = float("-inf")
    return max(world.owner_read_at.get(key, never), world.owner_asked_at.get(key, never))


def _read(pod: Pod, ref: OwnerRef, workload: Workload) -> act.ReadOwner:
    return act.ReadOwner(pod.namespace, ref, f"annotations of {ref.kind} {ref.name}", workload.key)
