"""What a pod's controllers say, and when that is read (K2: annotations "else of its owners, nearest first").

Owners are not watched: there are as many kinds of them as there are operators.  They are read once before the first decision
about a pod, and again while the pod waits, because its user may correct there what keeps it waiting.  An owner that cannot be
read keeps its pods waiting, and they say so.  After a restart the owners of pods that run are read before their job ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scheduler import actions as act
from scheduler import names
from scheduler.model.kubernetes import OwnerKey, OwnerRef, Pod, owner_key
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import say
from scheduler.state.phase import Phase
from scheduler.state.workload import Workload
from scheduler.state.world import MAX_OWNERS, World

LATELY_S = 300.0  # what was read so long before a pod came is read again before the first decision about the pod
AGAIN_S = 60.0  # and while pods wait, once in so long, where not more than MANY of them are refused
MANY = 1000
UNREAD_AGAIN_S = 5.0  # what a queued pod's owner says after a restart is asked for again, if that failed


def read_lately(workload: Workload, pods: Iterable[Pod], this_pass: Pass) -> bool:
    """True if the owners of these pods were read not long before the pods came; otherwise their read is planned."""
    world, lately = this_pass.world, True
    for pod, ref in _owners(pods, world):
        key = owner_key(pod.namespace, ref)
        read_at = world.owner_read_at.get(key, float("inf"))
        if world.owners.get(key) is None or read_at + LATELY_S >= world.sightings[pod.uid].first:
            continue
        lately = False
        if this_pass.now < workload.wait_until:
            this_pass.wake_at(workload.key, workload.wait_until)
        elif not this_pass.being_read(key):
            this_pass.add(_read(pod, ref, workload), workload.key)
        this_pass.wait_for_owner(workload.key, key)
        say_unread(workload, pod, f"{ref.kind} {ref.name}", key, this_pass)
    return lately


def read_again(workload: Workload, pods: Iterable[Pod], this_pass: Pass) -> None:
    """Read the owners of refused pods again, each once in a while: a correction there is to be seen."""
    every_s = AGAIN_S * max(1.0, len(this_pass.world.by_phase[Phase.UNSUBMITTED]) / MANY)
    for pod, ref in _owners(pods, this_pass.world):
        key = owner_key(pod.namespace, ref)
        due = _read_or_asked_at(key, this_pass.world) + every_s
        if this_pass.now < due:
            this_pass.wake_at(workload.key, due)
        elif this_pass.being_read(key):
            continue
        elif this_pass.take_token("owners"):
            this_pass.add(_read(pod, ref, workload), workload.key)
        else:
            this_pass.park(workload.key, "owners")
            return


def read_in_passing(workload: Workload, pods: Iterable[Pod], this_pass: Pass) -> bool:
    """Read the owners of queued pods again when one is looked at anyway; False if what one of them says is not known."""
    all_known = True
    for pod, ref in _owners(pods, this_pass.world):
        key = owner_key(pod.namespace, ref)
        known = key in this_pass.world.owners
        all_known = all_known and known
        due = _read_or_asked_at(key, this_pass.world) + (AGAIN_S if known else UNREAD_AGAIN_S)
        if this_pass.now < due:
            if not known:
                this_pass.wake_at(workload.key, due)
            continue
        if this_pass.being_read(key):
            continue
        if not known or (this_pass.free("reads") > 0 and this_pass.take_token("owners")):
            this_pass.add(_read(pod, ref, workload), workload.key)
    return all_known


def read_unknown(workload: Workload, pods: Iterable[Pod], this_pass: Pass) -> None:
    """Plan the read of owners of which nothing is known, as after a restart; one that fails is repeated after a while."""
    for pod, ref in _owners(pods, this_pass.world):
        key = owner_key(pod.namespace, ref)
        if key in this_pass.world.owners:
            continue
        due = _read_or_asked_at(key, this_pass.world) + UNREAD_AGAIN_S
        if this_pass.now < due or this_pass.being_read(key):
            this_pass.wake_at(workload.key, max(due, this_pass.now + UNREAD_AGAIN_S))
        elif this_pass.take_token("owners"):
            this_pass.add(_read(pod, ref, workload), workload.key)
            this_pass.wake_at(workload.key, this_pass.now + UNREAD_AGAIN_S)
        else:
            this_pass.park(workload.key, "owners")
            return


def say_unread(workload: Workload, pod: Pod, what: str, key: OwnerKey | str, this_pass: Pass) -> None:
    """Say on the pod that what it waits for cannot be read, once that has lasted.  key: the owner, or the pod with claims."""
    failing = this_pass.world.cannot_read.get(key)
    if failing is None:
        return
    since, why = failing
    said_at = since + this_pass.tuning.outage_s
    if this_pass.now < said_at:
        this_pass.wake_at(workload.key, said_at)
        return
    message = f"{what} of this pod cannot be read, and is tried again: {why}"
    say(this_pass, workload, pod, names.UNREADABLE, message, essence=("unread", what), warning=True)


def _owners(pods: Iterable[Pod], world: World) -> Iterator[tuple[Pod, OwnerRef]]:
    """Each owner of whom something is known, once, with the newest of these pods that has it."""
    found: dict[OwnerKey, tuple[Pod, OwnerRef]] = {}
    for pod in pods:
        ref, steps = pod.owner, 0
        while ref is not None and steps < MAX_OWNERS:
            key = owner_key(pod.namespace, ref)
            before = found.get(key)
            if before is None or world.sightings[before[0].uid].first < world.sightings[pod.uid].first:
                found[key] = (pod, ref)
            owner = world.owners.get(key)
            ref, steps = (owner.owner if owner is not None else None), steps + 1
    yield from found.values()


def _read_or_asked_at(key: OwnerKey, world: World) -> float:
    never = float("-inf")
    return max(world.owner_read_at.get(key, never), world.owner_asked_at.get(key, never))


def _read(pod: Pod, ref: OwnerRef, workload: Workload) -> act.ReadOwner:
    return act.ReadOwner(pod.namespace, ref, f"annotations of {ref.kind} {ref.name}", workload.key)
