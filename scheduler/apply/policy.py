"""Applies a new policy, or new labels of a namespace, which give pods their Slurm users and limits.

Jobs that wait or run keep their user (job_ownership.py).  If the policy changes options that Slurm can change in place, a
waiting job is updated.  A workload without a job is submitted by the new policy, even if Slurm or the former policy refused
it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from scheduler import events as ev
from scheduler.apply.hinted_jobs import read_renamed_again
from scheduler.policy.tenants import Identities
from scheduler.state.phase import Phase
from scheduler.state.quotas import Quotas
from scheduler.state.world import World

SUBMITTING = (Phase.GATHERING, Phase.UNSUBMITTED, Phase.ORPHANED)
CONCERNED = (Phase.GATHERING, Phase.UNSUBMITTED, Phase.QUEUED, Phase.GRANTED, Phase.ORPHANED)


def _policy_changed(world: World, event: ev.PolicyChanged) -> None:
    world.former_policies.append(world.config.policy)
    world.config = replace(world.config, policy=event.policy)
    world.identities = Identities(event.policy)
    for limit in [name for name in world.parked if Quotas.is_of_policy(name)]:
        for key in list(world.parked[limit]):
            world.unpark(key)  # from all limits: the workload is marked for a visit below
        del world.parked[limit]
    world.quotas = Quotas(event.policy, world.tenant_of)
    for workload in world.workloads.values():
        if world.quotas.counted:
            world.quotas.count(workload, world.jobs_of(workload))
    identity_changed(world)


def identity_changed(world: World, namespaces: Collection[str] | None = None) -> None:
    """Mark the workloads whose Slurm user may have changed, because the policy or labels of namespaces changed.

    namespaces   only workloads in these namespaces; None: all workloads
    """
    mark_concerned(world, namespaces)
    if world.ready:
        read_first(world, namespaces)
    elif namespaces is None or namespaces:
        world.changed_early = True


def mark_concerned(world: World, namespaces: Collection[str] | None) -> None:
    """Mark the workloads of these namespaces (None: of all), and read the jobs again whose user the policy did not give."""
    world.identity_changes += 1
    if namespaces is None:
        world.policy_at = world.newest_event_at
    else:
        world.labels_at.update(dict.fromkeys(namespaces, world.newest_event_at))
    for phase in CONCERNED:
        for key in world.by_phase[phase]:
            workload = world.workloads[key]
            if namespaces is None or workload.namespace in namespaces:
                world.input_changed(workload)
                world.dirty[key] = None
    for job_id in world.unmapped:  # the job may belong to these pods now, or to no pods, or be foreign
        world.foreign.discard(job_id)
        world.schedule_read(job_id, world.last_poll_began)
    world.unmapped.clear()
    read_renamed_again(world)


def read_first(world: World, namespaces: Collection[str] | None = None) -> None:
    """Schedule reads of jobs, because pods that are older than this process may have a job of another user (V1).

    Until these reads end, such pods get no new job: singleton holds back only jobs of the same user.  The job of the other
    user may be any job that was not read yet.  If slurmctld lost its state since, the job may have an id that other pods
    show, which no scan reads.

    namespaces   the namespaces in which identities may have changed; None: all namespaces
    """
    if namespaces is None:
        world.changed_early = False
    submitting = (world.workloads[key] for phase in SUBMITTING for key in world.by_phase[phase])
    if not any(
        world.is_inherited(workload)
        for workload in submitting
        if namespaces is None or workload.namespace in namespaces
    ):
        return
    for job in world.placeholders.values():
        if job.key is None and job.alive:
            world.schedule_read(job.id, world.last_poll_began)
    world.hidden.update(world.unread)
    tuning = world.config.tuning
    world.scan_until = max(
        world.scan_until, world.newest_event_at + tuning.scan_s + len(world.hidden) / tuning.scan_rate
    )


APPLIERS: Mapping[type, Callable[[World, Any], None]] = {ev.PolicyChanged: _policy_changed}
