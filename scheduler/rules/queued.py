"""QUEUED: a job waits in Slurm; keep it as the user wants it, and show what Slurm says (Q2, F2, K8)."""

from __future__ import annotations

from scheduler import actions as act
from scheduler.events import Side
from scheduler.model.kubernetes import Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import JobSpec
from scheduler.model.text import span
from scheduler.rules.decision import NOTHING, Decision, combine, note, plan_action, wake
from scheduler.rules.gathering import regrouped
from scheduler.rules.identity import cancel, cancel_broken, cancel_of_earlier_pods, cancel_twins, is_trusted, read_job
from scheduler.rules.limits import read_limits
from scheduler.rules.owners import read_in_passing
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import clock, names_job, outage, shows_note, waiting, waiting_unread
from scheduler.rules.submission import (
    claim_problem,
    claim_sentence,
    is_managed,
    not_managed,
    read_claims_again,
    read_unknown_claims,
    spec_for,
    translated,
)
from scheduler.rules.uninstall import withdraw
from scheduler.state.backoff import Attempt
from scheduler.state.placeholder import NO_NODE_EVER, NOT_CONSIDERED, Placeholder, RefusedChange
from scheduler.state.workload import Workload
from scheduler.translate import job_update

_NAME = frozenset({"name", "comment"})  # the comment says whose job it is if the name does not: they change together
_CHANGES = "the pod or Slurm's configuration changes"
BEGIN_SLACK_S = 1.0  # slurmctld checks begin times once a second, by its own clock


def queued(workload: Workload, this_pass: Pass) -> Decision:
    """A placeholder waits in Slurm: keep it as the user wants it, and show what Slurm says (Q2, F2, K8)."""
    world = this_pass.world
    job = world.job_of[workload.key]
    if world.config.leaving:
        return withdraw(workload, job, this_pass)
    ends = cancel_twins(workload, job, this_pass) or cancel_broken(workload, job, this_pass)
    if ends is not None:
        return ends
    if (lost := world.outages.get(Side.SLURM)) is not None:
        return outage(workload.members, lost, f"The pod waits in its queue as job {job.id}.", this_pass)
    kept, remark = _keep_current(workload, job, this_pass)
    # While slurmctld's answer is awaited, a pod whose status names the job keeps this status.
    pods = [each for each in workload.members if remark is not None or not names_job(workload, each, job.id)]
    remark = " ".join(filter(None, (remark, regrouped(workload))))
    shown = [_why_queued(workload, pod, job, remark, this_pass) for pod in pods]
    return combine((kept, _watch_begin(job, this_pass), *shown))


def _why_queued(workload: Workload, pod: Pod, job: Placeholder, remark: str, this_pass: Pass) -> Decision:
    """The status of the pod: why its job waits.  There is none before Slurm considers the job: most jobs start soon (Q2)."""
    read = job.job
    if read is None:
        said_at = (job.asked_at or this_pass.world.started) + this_pass.tuning.unread_s
        is_late = remark or this_pass.now >= said_at
        return waiting_unread(workload, pod, job, this_pass, remark) if is_late else wake(said_at)
    if read.reason in NOT_CONSIDERED and (not remark or shows_note(workload, pod, remark)):
        said_at = _considered_by(workload, pod, job, this_pass)
        if this_pass.now < said_at:
            return wake(said_at)
    reads, until = read_limits(workload, job, this_pass)
    return reads + (wake(until) if until is not None else waiting(workload, pod, read, this_pass, remark))


def _considered_by(workload: Workload, pod: Pod, job: Placeholder, this_pass: Pass) -> float:
    """Until when the pod does not show that slurmctld has not considered its job yet, because it is about to (Q2).

    An update, and a nudge is one, takes the reason of a job away for some seconds.  Meanwhile the pod shows the old reason.
    """
    world, tuning = this_pass.world, this_pass.tuning
    new_until = (job.asked_at or world.started) + tuning.unconsidered_s
    if not names_job(workload, pod, job.id):
        return new_until
    return max(new_until, max(world.nudged_at, workload.updated_at) + 2 * tuning.unconsidered_s)


def _keep_current(workload: Workload, job: Placeholder, this_pass: Pass) -> tuple[Decision, str | None]:
    """The pod's annotations were edited, or nodes changed: change the job in place, so that it keeps its age (K8, F2).

    Also returns the sentence that the pods show about it; "": none; None: only slurmctld's awaited answer shows it.
    """
    if workload.in_flight is not None:
        return NOTHING, None
    if not is_trusted(job, this_pass):
        return read_job(job, workload, this_pass, f"is job {job.id} still the same?"), None
    # Before the pods are translated: the job of earlier pods must end even if the new pods are refused.
    if (ends := cancel_of_earlier_pods(workload, job, this_pass)) is not None:
        return ends, ""
    reads, all_read = read_in_passing(workload, workload.members, this_pass)
    if (claims := read_unknown_claims(workload, workload.members, this_pass)) is not None:
        return reads + claims, claim_sentence(claim_problem(workload.members, this_pass.world))
    if not all_read:
        return reads, ""
    if not is_managed(workload.first, this_pass.world):  # the policy gives them no job any more: V8
        return reads, not_managed(workload.first)
    spec = spec_for(workload, this_pass)
    if isinstance(spec, Refusal):
        # The refusal may pass, if nodes come back or annotations are corrected; the job keeps its age.
        return reads + read_claims_again(workload, workload.members, this_pass), spec.message
    if job.held_retry_at is not None and not _looks_again_after_update(job):
        replacing, sentence = _replace(workload, job, job.held_retry_at, this_pass)
        return reads + replacing, sentence
    asked = job.spec
    if asked is None:
        asked, adopts = _adopted(job, spec)
        reads += adopts
    if _tasks(asked) != _tasks(spec):
        why = f"{workload.readable} has {_tasks(spec)} pods by shape now, and had {_tasks(asked)}"
        return reads + cancel(job, workload, this_pass, why), ""
    update, remark = _update(workload, job, asked, spec, this_pass)
    return reads + update, remark


def _looks_again_after_update(job: Placeholder) -> bool:
    """True if any update of the job, even without a field, makes slurmctld look again at the job that it holds.

    This does not help a job whose reservation was deleted.  Of a heterogeneous job each component would need an update.
    """
    return job.job is not None and job.job.reason == NO_NODE_EVER and not job.job.parts


def _replace(workload: Workload, job: Placeholder, held_retry_at: float, this_pass: Pass) -> tuple[Decision, str]:
    """End the job, which Slurm holds for good, so that its pods get another.  Also returns the sentence about that."""
    if this_pass.now < held_retry_at:
        again = f"Slurm holds job {job.id} for good: slurm-bridge submits another one at"
        return wake(held_retry_at), f"{again} {clock(held_retry_at, this_pass.now)}, or when {_CHANGES}."
    return cancel(job, workload, this_pass, f"Slurm holds job {job.id} for good"), ""


def _look_again(
    workload: Workload, job: Placeholder, asked: JobSpec, held_retry_at: float, this_pass: Pass
) -> Decision:
    """Have slurmctld look again at the job that it holds; the job keeps its age."""
    if this_pass.now < held_retry_at:
        return wake(held_retry_at)
    return _change(workload, job, asked, 0, frozenset(), this_pass)


def _adopted(job: Placeholder, spec: JobSpec) -> tuple[JobSpec, Decision]:
    """The specification by which another process submitted the job, as its pods had it when this process saw them first (K8).

    Also returns the note about this.
    """
    assert job.job is not None, "an adopted job was read"
    if job.adopted_as is not None:
        return job_update.adopted(job.adopted_as, job.job), NOTHING
    return job_update.adopted(spec, job.job), note(adopted=(job.id, spec))


def _update(
    workload: Workload, job: Placeholder, asked: JobSpec, spec: JobSpec, this_pass: Pass
) -> tuple[Decision, str]:
    """Change the job from `asked` to `spec`, as far as Slurm can.  Also returns what it cannot change, in words."""
    changes = job_update.changes(asked, spec)
    fixed = [job_update.unchangeable(*pair) for pair in zip((spec, *spec.parts), changes, strict=True)]
    fixed_all = frozenset().union(*fixed)
    if "exclusive" in fixed_all and _is_whole_for_devices(workload, spec, this_pass):
        fixed_all -= {"exclusive"}  # its user can do nothing about it
    renames_later = _may_wait_for_twin(job) and any("name" in changed for changed in changes)
    postponed = _NAME if renames_later else frozenset[str]()
    possible = [changed - unchanging - postponed for changed, unchanging in zip(changes, fixed, strict=True)]
    refused = _refused(job, spec, possible)
    later = {field: change.retry_at for field, change in refused.items() if this_pass.now < change.retry_at}
    possible = [
        changed - {field for index, field in later if index == component} for component, changed in enumerate(possible)
    ]
    component = next((index for index, changed in enumerate(possible) if changed), None)
    update = wake(min(later.values())) if later else NOTHING
    if component is None and job.held_retry_at is not None:
        update += _look_again(workload, job, asked, job.held_retry_at, this_pass)
    if component is not None:
        fields = frozenset(sorted(possible[component])[:1]) if job.one_by_one else possible[component]
        wanted = job_update.with_changes(asked, spec, component, fields)
        update += _change(workload, job, wanted, component, fields, this_pass)
    notes = list(dict.fromkeys(_not_applied(field, change) for (_, field), change in refused.items()))
    if job.held_retry_at is not None:  # the same sentence each time, so that pods are not written for each look
        every = span(this_pass.tuning.refused_retry_s)
        notes.append(
            f"Slurm does not look at job {job.id} again by itself: slurm-bridge has it look every {every}, and when "
            f"{_CHANGES}."
        )
    notes += job_update.in_words(fixed_all - job_update.GOVERNED if "user" in fixed_all else fixed_all)
    if renames_later:
        notes.append("The job gets its new name when it no longer waits for another job.")
    if "user" in fixed_all:
        notes.append(
            f"The policy now gives the pod Slurm user {spec.user}, but job {job.id} still waits as user {job.user}; recreate "
            f"the pod to submit a job as {spec.user}."
        )
    return update, " ".join(notes)


def _is_whole_for_devices(workload: Workload, wanted: JobSpec, this_pass: Pass) -> bool:
    """True if the pods' job would take nodes whole now, although none of the pods asks for that (G2).

    The waiting job does not.  If its grant needs that, it is released (granted.py).
    """
    if not any(component.exclusive for component in (wanted, *wanted.parts)):
        return False
    pods = workload.members
    asked = (translated(workload, pod, len(pods), this_pass) for pod in pods)
    return not any(isinstance(spec, Refusal) or spec.exclusive for spec in asked)


def _may_wait_for_twin(job: Placeholder) -> bool:
    """True if the job may wait for a twin, which a former process submitted under the same name.

    Each job waits for the others of its name (singleton).  Under a new name it would run beside its twin (V1).
    """
    return job.job is None or job.job.reason in (*NOT_CONSIDERED, "Dependency")


def _refused(job: Placeholder, spec: JobSpec, changes: list[frozenset[str]]) -> dict[tuple[int, str], RefusedChange]:
    """The changes among these that Slurm refused, by index of the component and field."""
    return {
        (component, field): change
        for (component, field), change in job.refused_changes.items()
        if field in changes[component] and change.value == job_update.value(spec, component, field)
    }


def _not_applied(field: str, refused: RefusedChange) -> str:
    """Which change Slurm refused, and why, in words."""
    [what] = job_update.keys(frozenset({field})) or [field.replace("_", " ")]
    return f"The new value of {what} is not applied to the job: {refused.answer}"


def _change(
    workload: Workload, job: Placeholder, spec: JobSpec, component: int, changes: frozenset[str], this_pass: Pass
) -> Decision:
    """Update one component of the job; at most one call a second, so that the other components follow."""
    may_follow_at = workload.updated_at + this_pass.tuning.feasibility_every_s
    next_at = max(workload.retry_from(Attempt.UPDATE_JOB), may_follow_at)
    parts = job.job.parts if job.job is not None else ()
    if this_pass.now < next_at:
        return wake(next_at)
    if component and len(parts) != len(spec.parts):
        return read_job(job, workload, this_pass, f"which ids have the components of job {job.id}?")
    component_id = (job.id, *(part.id for part in parts))[component]
    what = f"gets new {', '.join(sorted(changes))}" if changes else "is held by Slurm, which looks at it again"
    why = f"job {component_id} {what}"
    return plan_action(act.UpdateJob(workload.key, job.id, job.user, spec, changes, why, component, component_id))


def _watch_begin(job: Placeholder, this_pass: Pass) -> Decision:
    """No event comes at a begin time.  Without a nudge slurmctld starts the job at its next pass, up to 30 s later."""
    theirs = _begins(job)
    begins = this_pass.from_slurm(theirs) if theirs is not None else None
    nudged_at = this_pass.world.nudged_at
    if begins is None or nudged_at >= begins + BEGIN_SLACK_S:
        return NOTHING
    due = begins + BEGIN_SLACK_S
    if this_pass.now < due:
        return wake(max(due, nudged_at + this_pass.tuning.nudge_every_s))
    # The nudge may not be possible now: the user of each waiting job may have no token, or a job has to be read first.
    next_at = nudged_at + this_pass.tuning.nudge_every_s
    return note(begin_is_due=True) + wake(next_at if this_pass.now < next_at else this_pass.now + BEGIN_SLACK_S)


def _begins(job: Placeholder) -> float | None:
    if job.spec is not None:
        return job.spec.begin
    return job.job.starts if job.job is not None and job.job.reason == "BeginTime" else None


def _tasks(spec: JobSpec) -> list[int]:
    return [component.tasks for component in (spec, *spec.parts)]
