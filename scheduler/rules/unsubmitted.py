"""UNSUBMITTED: find the job that may exist, or submit one (ARCHITECTURE 5, rules T, F and I)."""

from __future__ import annotations

from scheduler import names
from scheduler.events import Side
from scheduler.model.kubernetes import Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import JobSpec
from scheduler.rules.binding import SHOWN_AFTER_FAILURES
from scheduler.rules.decision import NOTHING, Decision, wait_for, wake
from scheduler.rules.identity import find_unseen_job, former_may_live, scan_until
from scheduler.rules.missing_rights import without_rights
from scheduler.rules.orphaned import how_it_ended
from scheduler.rules.owners import again_every_s, read_again, read_stale_owners
from scheduler.rules.reacquire import pods_that_run_first
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import clock, exact_clock, outage, statuses
from scheduler.rules.submission import (
    asked_by,
    is_managed,
    not_managed,
    one_job,
    over_limit,
    read_claims_again,
    read_first,
    submit,
    too_large,
)
from scheduler.rules.uninstall import no_new_job
from scheduler.rules.volumes import users_of_volumes, why_in_use
from scheduler.state.job_ownership import living_job_of_former_user
from scheduler.state.workload import Workload

VOLUMES_AGAIN_S = 5.0  # a pod that waits for its volumes is looked at so often (again_every_s)


def unsubmitted(workload: Workload, this_pass: Pass) -> Decision:
    """No placeholder lives: find the placeholder that may exist, or submit one (ARCHITECTURE 5, rules T, F and I)."""
    if workload.in_flight is not None:
        since = clock(workload.in_flight.planned_at, this_pass.now)
        return Decision(why=f"Under way since {since}: {workload.in_flight.action.reason}.")
    if this_pass.world.may_be_bound_yet(workload):
        return Decision(why="A bind for a job that has ended may still take effect; the pods are read first.")
    pods = workload.members
    if (lost := this_pass.world.outages.get(Side.SLURM)) is not None:
        return outage(pods, lost, "The pod waits to be submitted.", this_pass)
    if (first := find_unseen_job(workload, this_pass)) is not None:
        return first
    if not is_managed(pods[0], this_pass.world):
        return statuses(pods, names.NOT_MANAGED, not_managed(pods[0]))
    first = no_new_job(workload, this_pass) or without_rights(workload, this_pass) or _waits(workload, pods, this_pass)
    if first is not None:
        return first
    if workload.refused is None and this_pass.free("submits") <= 0:  # a translation now would be thrown away
        return wait_for("submits", "The pod waits for its turn: no more submissions may be in flight at the same time.")
    return _translate_and_ask(workload, pods, this_pass)


def _translate_and_ask(workload: Workload, pods: list[Pod], this_pass: Pass) -> Decision:
    """Submit a job for these pods, or show why that is refused.  After a refusal by Slurm the next attempt waits."""
    asked = asked_by(workload, this_pass)
    spec = one_job(workload, asked, this_pass)
    refusal = spec if isinstance(spec, Refusal) else too_large(workload, spec, this_pass)
    shown = NOTHING
    if (why_not := refusal or workload.refused) is not None:
        shown = statuses(pods, why_not.reason, why_not.message) + read_again(workload, pods, this_pass)
        shown += read_claims_again(workload, pods, this_pass)
    if refusal is not None:
        return shown
    assert isinstance(spec, JobSpec)
    assert not isinstance(asked, Refusal)
    tried_at = workload.retry_at if workload.refused is not None else workload.backoff.until
    scanned_at = scan_until(workload, this_pass)
    if this_pass.now < max(tried_at, scanned_at):
        if why_not is None:
            shown += _shown_end(workload, pods, max(tried_at, scanned_at), this_pass)
        return shown + wake(max(tried_at, scanned_at), _why_later(workload, tried_at, scanned_at, this_pass.now))
    first = pods_that_run_first(workload, this_pass)
    return first if first is not None else shown + submit(workload, spec, asked, this_pass)


def _shown_end(workload: Workload, pods: list[Pod], next_at: float, this_pass: Pass) -> Decision:
    """Show that others ended the job in the queue, if that happened so often that the next job has to wait for seconds.

    next_at   when the next job is requested
    """
    ended = [job for job in this_pass.world.jobs_of(workload) if job.shows_end and not job.cancelled_for]
    if not ended or workload.backoff.failures < SHOWN_AFTER_FAILURES:
        return NOTHING
    last = max(ended, key=lambda job: job.id)
    again = (
        f"Earlier jobs of it ended, too: slurm-bridge asks for the next one at {exact_clock(next_at, this_pass.now)}."
    )
    return statuses(pods, names.PENDING, f"{how_it_ended(last)} before the pod had a node. {again}")


def _why_later(workload: Workload, tried_at: float, scanned_at: float, now: float) -> str:
    """Why Slurm is not asked now, a sentence."""
    if tried_at < scanned_at:
        return (
            f"The pod is older than this process of slurm-bridge, and a Slurm job of it may be among those that are still to "
            f"be read: no job is requested before {exact_clock(scanned_at, now)}."
        )
    if workload.refused is not None:
        return f"It is tried again at {clock(tried_at, now)}, or when pod or policy change."
    return f"An attempt failed, or the job ended; the next attempt is at {clock(tried_at, now)}."


def _waits(workload: Workload, pods: list[Pod], this_pass: Pass) -> Decision | None:
    """The decision if a job has to end, or something has to be read, before a submission; None: a job can be submitted."""
    if (first := _former_users_job_ends_first(workload, this_pass)) is not None:
        return first
    if (first := over_limit(workload, this_pass) or _count_first(workload, this_pass)) is not None:
        return first
    if (first := read_first(workload, pods, this_pass)) is not None:
        return first
    return read_stale_owners(workload, pods, this_pass) or _volumes_in_use(pods, this_pass)


def _volumes_in_use(pods: list[Pod], this_pass: Pass) -> Decision | None:
    """The wait while another pod uses a volume claim that only one pod at a time may use (F4).  None: none does."""
    with_claims = [pod for pod in pods if pod.claims]
    used = next(users_of_volumes(with_claims, this_pass), None) if with_claims else None
    if used is None:
        return None
    pod, _, user = used
    why = f"The pod waits to be submitted: {why_in_use(*used)}."
    if any(user is other for other in pods):
        both = "Both are pods of one gang, which start together: give each a claim of its own."
        why = f"{pod.name}: {why_in_use(*used)}. {both}"
    again_at = this_pass.now + again_every_s(this_pass, VOLUMES_AGAIN_S)
    return statuses(pods, names.PENDING, why, warning=False) + wake(again_at)


def _count_first(workload: Workload, this_pass: Pass) -> Decision | None:
    """The wait after a start while jobs that count in the workload's quota may be unread (I7).  None: they are counted."""
    quotas, until = this_pass.world.quotas, this_pass.world.scanning_until()
    if this_pass.now >= until or quotas.quota(workload) is None:
        return None
    return wake(until, "Jobs of a former process that count against the policy's limit (max_jobs) may still be unread.")


def _former_users_job_ends_first(workload: Workload, this_pass: Pass) -> Decision | None:
    """The decision while a job that was made for another user of the pods may live: otherwise two jobs could run (V1)."""
    first = former_may_live(workload, this_pass)
    if first is None or living_job_of_former_user(this_pass.world, workload) is None:
        return first
    return statuses(workload.members, names.PENDING, first.why) + first
