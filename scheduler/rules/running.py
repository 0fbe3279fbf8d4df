"""BOUND: status and actions while pods run, before their job ends (S4b, S5, S6, S9, S12).

Slurm announces a job's end in two cases: its time limit, and a preemption with grace.  Reaching the time limit does not count
as a disruption: the pod gets a deadline shortly before the end, and fails as by any deadline.  Pods of a service are evicted
instead, one replica at a time.  A preemption is a disruption, and the time that is left is the pods' grace.

The job is read right before each of these actions, because an admin may have extended it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scheduler import actions as act
from scheduler import names
from scheduler.events import Side
from scheduler.model import kubelet
from scheduler.model.kubernetes import Owner, Pod, PodPhase, owner_key
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import UNLIMITED, Job
from scheduler.model.text import span
from scheduler.rules.deadlines import Lead, lead_of, notice_s
from scheduler.rules.decision import NOTHING, Decision, EvictAlone, JobStatus, combine, plan_action, wake
from scheduler.rules.end_pod import end_pod, ends_refused, is_service, why_not_ended
from scheduler.rules.identity import is_trusted, read_job
from scheduler.rules.owners import read_unknown
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import NOT_EVICTED, clock, exact_clock
from scheduler.state.backoff import Attempt
from scheduler.state.placeholder import Placeholder
from scheduler.state.pod_records import ITS_JOB
from scheduler.state.workload import Workload
from scheduler.translate import values
from scheduler.translate.job_options import user_input
from scheduler.translate.job_spec import deadline_min

SHOWN_OTHERWISE = (names.SUSPENDED, names.ENDS_SOON, names.CRASHING, names.RUNS)
NOT_ENDED = (
    " Kubelet is still starting it: the pod's events show what it waits for, for example an image or a missing Secret. "
    "The pod is not ended for that, however long it takes."
)
RUNS_IN_PART = " Other containers of the pod run, so the pod is not ended for that."
WITHOUT_A_WORD = "the kubelet of its node has not reported on the pod"


def watch(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """The job of the pods lives: show its state on the pods, and prepare its end."""
    bound_pods = (pod for pod in workload.unfinished if workload.node_of(pod) and workload.is_bound_for(pod, job))
    pods = [pod for pod in bound_pods if pod.deleting_at is None]
    if Side.SLURM in this_pass.world.outages or not pods:
        return NOTHING
    not_started, is_ended = _never_started(workload, job, pods, this_pass)
    if is_ended:
        return not_started
    return not_started + _for_other_pods(_watch_started(workload, job, pods, this_pass), not_started)


def _for_other_pods(decision: Decision, shown: Decision) -> Decision:
    """The decision without the statuses of pods that show another one: two statuses of one pod would alternate for ever."""
    uids = {status.pod.uid for status in shown.statuses if isinstance(status, JobStatus)}
    steps = (step for step in decision.steps if not (isinstance(step, JobStatus) and step.pod.uid in uids))
    return replace(decision, steps=tuple(steps))


def _watch_started(workload: Workload, job: Placeholder, pods: Sequence[Pod], this_pass: Pass) -> Decision:
    if "SUSPENDED" in job.states:
        message = (
            f"Slurm job {job.id} is suspended. Its pods run on, and nothing is ended. "
            f"An admin resumes it (scontrol resume {job.id})."
        )
        shown = (_status(pod, names.SUSPENDED, message, essence=(message,), runs=False, warning=True) for pod in pods)
        return combine(shown)
    if "SIGNALING" in job.states and (preempted := _preempted(workload, job, pods, this_pass)) is not None:
        return preempted
    if job.job is not None:
        return _time_limit(workload, job, job.job, pods, this_pass)
    return _read_in_time(workload, job, pods, this_pass)


# --- a time limit (S4b) -------------------------------------------------------------------------------------------


def _time_limit(workload: Workload, job: Placeholder, read: Job, pods: Sequence[Pod], this_pass: Pass) -> Decision:
    ends = this_pass.from_slurm(read.ends) if read.ends is not None and read.time_limit_min != UNLIMITED else None
    if job.read_began < job.states_since:
        return _resumed(workload, job, ends, pods, this_pass)
    if ends is None:
        return _running_as_planned(workload, job, read, pods, this_pass)
    length_s = max(0.0, ends - this_pass.from_slurm(read.starts)) if read.starts else None
    leads = {pod.uid: lead_of(pod, this_pass.world.owners_of(pod)[0], length_s, this_pass.tuning) for pod in pods}
    opens = {pod.uid: ends - _notice_s(pod, leads[pod.uid], length_s, this_pass) for pod in pods}
    near = [pod for pod in pods if this_pass.now >= opens[pod.uid]]
    far = [pod for pod in pods if this_pass.now < opens[pod.uid]]
    decision = _read_owners(workload, pods, ends, this_pass)
    if far:
        decision += _running_as_planned(workload, job, read, far, this_pass) + wake(min(opens[pod.uid] for pod in far))
    if not near:
        return decision
    why = f"does job {job.id} end at {exact_clock(ends, this_pass.now)}?"
    if (first := _read_since(workload, job, max(opens[pod.uid] for pod in near), why, this_pass)) is not None:
        return decision + first
    end = str(read.ends)  # by Slurm's clock, so it is the same until the end moves
    warnings = combine(_warn(workload, job, end, ends, pod, leads[pod.uid], this_pass) for pod in near)
    prepared = (_prepare_end(workload, job, ends, pod, leads[pod.uid], this_pass) for pod in near)
    return decision + warnings + combine(prepared)


def _resumed(
    workload: Workload, job: Placeholder, ends: float | None, pods: Sequence[Pod], this_pass: Pass
) -> Decision:
    """The states of the job changed after its read.  A resumed job ends later, so read it now, and other jobs in turn."""
    if any(_shown(workload, pod) == names.SUSPENDED for pod in pods):
        return read_job(job, workload, this_pass, f"when does job {job.id} end, now that it runs again?")
    return _read_before(ends, workload, job, pods, this_pass) if ends is not None else NOTHING


def _prepare_end(workload: Workload, job: Placeholder, ends: float, pod: Pod, lead: Lead, this_pass: Pass) -> Decision:
    """The end of the job is near: move the pod or set its deadline."""
    prepare = _move if is_service(pod) else _set_deadline
    return prepare(workload, job, ends, pod, lead, this_pass)


def _read_owners(workload: Workload, pods: Sequence[Pod], ends: float, this_pass: Pass) -> Decision:
    """After a restart, read the owners before the earliest SIGTERM that their annotation `signal` may ask for."""
    signal = names.PREFIX + names.SIGNAL
    owned = [pod for pod in pods if signal not in pod.annotations and this_pass.world.owners_of(pod)[1] is not None]
    opens = ends - notice_s(this_pass.tuning.end_lead_max_s, this_pass.tuning)
    if not owned:
        return NOTHING
    return wake(opens) if this_pass.now < opens else read_unknown(workload, owned, this_pass)


def _notice_s(pod: Pod, lead: Lead, length_s: float | None, this_pass: Pass) -> float:
    """Seconds before the end at which a pod is warned and gets its deadline; for a service at most half the job's time."""
    notice = notice_s(lead.seconds, this_pass.tuning)
    if not is_service(pod):
        return notice
    return min(max(this_pass.tuning.service_notice_s, notice), (length_s or 0.0) / 2)


def _read_in_time(workload: Workload, job: Placeholder, pods: Sequence[Pod], this_pass: Pass) -> Decision:
    """Read the job before its submitted time limit ends: if thousands of jobs run, its regular read may come too late."""
    limit = job.spec.time_least_min or job.spec.time_limit_min if job.spec is not None else None
    if limit is None or limit == UNLIMITED or job.granted_at is None:
        return NOTHING
    return _read_before(job.granted_at + limit * 60, workload, job, pods, this_pass)


def read_hinted(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """Plan the read of a job of a previous process, of which only the id is known, before its pods may end."""
    pods = workload.unfinished
    limits = ((_bound_at(pod, this_pass), _asked_for(pod)) for pod in pods)
    ends = [bound_at + limit * 60 for bound_at, limit in limits if bound_at is not None and limit is not None]
    return _read_before(min(ends), workload, job, pods, this_pass) if ends else NOTHING


def _asked_for(pod: Pod) -> int | None:
    """The least minutes that the pod asks for; None: it asks for none, or for no limit."""
    asked = user_input(pod)
    if isinstance(asked, Refusal):  # a user edited its annotations after the submission
        return None
    limit_text = asked.get(names.TIME_MIN, asked.get(names.TIME_LIMIT))
    if limit_text is None:
        return None if pod.active_deadline_s is None else deadline_min(pod.active_deadline_s)
    try:
        limit = values.time_limit_min(limit_text)
    except values.Unreadable:
        return None
    return None if limit == UNLIMITED else limit


def _read_before(ends: float, workload: Workload, job: Placeholder, pods: Sequence[Pod], this_pass: Pass) -> Decision:
    owners_of = this_pass.world.owners_of
    leads = (lead_of(pod, owners_of(pod)[0], None, this_pass.tuning) for pod in pods)
    notice = max(notice_s(lead.seconds, this_pass.tuning) for lead in leads)
    if any(is_service(pod) for pod in pods):
        notice = max(notice, this_pass.tuning.service_notice_s)
    at = ends - notice
    return wake(at) if this_pass.now < at else read_job(job, workload, this_pass, f"when does job {job.id} end?")


def _warn(
    workload: Workload, job: Placeholder, end: str, ends: float, pod: Pod, lead: Lead, this_pass: Pass
) -> Decision:
    """Warn the pod, once for each end of the job, with the seconds that are left now.  end: as Slurm gives it"""
    left = max(0, int(ends - this_pass.now))
    message = (
        f"Slurm job {job.id} reaches its time limit at {exact_clock(ends, this_pass.now)}: {span(left)} are left. "
    )
    refused = ""
    if is_service(pod):
        refused = ends_refused(workload, pod, Attempt.MOVE)
        message += "The pod is evicted before."
        message += f" {NOT_EVICTED} {refused}" if refused else ""
    else:
        message += f"The pod gets SIGTERM {span(lead.seconds)} before, and then its grace of {span(pod.grace_s)}."
        message += f" This is later than requested: {lead.cut}." if lead.cut else ""
    return _status(pod, names.ENDS_SOON, message, essence=(str(job.id), end, refused), warning=True)


def _set_deadline(workload: Workload, job: Placeholder, ends: float, pod: Pod, lead: Lead, this_pass: Pass) -> Decision:
    """Set the pod's deadline.  Kubelet counts from its startTime; a deadline can only be lowered (Kubernetes facts 2).

    If the startTime is not known, because the node's clock differs, a deadline that ends the pod at once is set at that time.
    """
    if pod.started is None:
        return NOTHING
    if (wait := wait_to_act(workload, pod, Attempt.MOVE, this_pass)) is not None:
        return wait
    started, last_at = this_pass.world.started_at(pod), ends - lead.seconds
    if started is None and this_pass.now < last_at:
        return wake(last_at)
    seconds = max(1, int(last_at - started)) if started is not None else 1
    known = [deadline for deadline in (pod.active_deadline_s, pod.set_deadline_s) if deadline is not None]
    if known and min(known) <= seconds:
        return NOTHING
    why = f"Slurm job {job.id} reaches its time limit at {exact_clock(ends, this_pass.now)}"
    return plan_action(act.SetDeadline(workload.key, pod.uid, pod.namespace, pod.name, seconds, why))


def _move(workload: Workload, job: Placeholder, ends: float, pod: Pod, lead: Lead, this_pass: Pass) -> Decision:
    """Evict a replica of a service, if no other replica of its controller is being evicted or if only its grace is left."""
    if (wait := wait_to_act(workload, pod, Attempt.MOVE, this_pass)) is not None:
        return wait
    assert pod.owner is not None, "a service has a controller"
    last_at = ends - lead.seconds
    why = f"Slurm job {job.id} reaches its time limit at {exact_clock(ends, this_pass.now)}"
    evict = act.EvictPod(workload.key, pod.uid, pod.namespace, pod.name, why)
    if this_pass.now >= last_at:
        return plan_action(evict)
    controller, retry_at = owner_key(pod.namespace, pod.owner), min(last_at, this_pass.now + 1.0)
    return Decision((EvictAlone(evict, controller, retry_at),))


# --- a preemption with grace (S5) ---------------------------------------------------------------------------------


def _preempted(workload: Workload, job: Placeholder, pods: Sequence[Pod], this_pass: Pass) -> Decision | None:
    """End the pods at once, with the time that is left as their grace.  None: the job was signalled for another reason."""
    first = _read_since(workload, job, job.states_since, f"is job {job.id} preempted?", this_pass)
    if first is not None:
        return first
    assert job.job is not None, "it was read"
    if job.job.preempted is None or job.job.ends is None:
        return None
    ends = this_pass.from_slurm(job.job.ends)
    left = max(1, int(ends - this_pass.now))
    why = f"Slurm preempts job {job.id}: {span(left)} are left, until {exact_clock(ends, this_pass.now)}"
    return _end_all(workload, pods, why, this_pass, grace_s=left)


def _end_all(
    workload: Workload,
    pods: Sequence[Pod],
    why: str,
    this_pass: Pass,
    *,
    counts: bool = False,
    grace_s: int | None = None,
) -> Decision:
    """End these pods while their job lives; see end_pod."""
    found = []
    for pod in pods:
        wait = wait_to_act(workload, pod, Attempt.END_POD, this_pass)
        end = end_pod(workload, pod, why, this_pass, counts=counts, grace_s=grace_s)
        found.append(wait + why_not_ended(workload, pod, why, this_pass) if wait is not None else end)
    return combine(found)


# --- a pod that never starts (S12) --------------------------------------------------------------------------------


def _never_started(workload: Workload, job: Placeholder, pods: Sequence[Pod], this_pass: Pass) -> tuple[Decision, bool]:
    """Show on pods why they have not started, after a minute.  Also returns True if the workload is ended for that.

    It is ended if kubelet waits for a person, after the time that the admin allows (start_timeout_s).
    """
    tuning, found = this_pass.tuning, list[Decision]()
    for pod in pods:
        since = _waits_since(pod, this_pass) if pod.waits else _bound_at(pod, this_pass)
        if pod.phase is not PodPhase.PENDING or since is None or (pod.started is not None and not pod.waits):
            continue
        until = float("inf")
        if tuning.start_timeout_s and kubelet.needs_a_person(pod.waits) and not pod.runs_in_part:
            until = _stuck_since(pod, since, this_pass) + tuning.start_timeout_s
        if this_pass.now < min(since + tuning.start_said_s, until):
            found.append(wake(min(since + tuning.start_said_s, until)))
        elif this_pass.now < until:
            found.append(_not_started(pod, job, since, until, this_pass))
        else:
            why = f"{pod.full_name} did not start within {span(tuning.start_timeout_s)} ({pod.waits})"
            return combine([*found, _end_all(workload, pods, why, this_pass, counts=True)]), True
    return combine(found), False


def _not_started(pod: Pod, job: Placeholder, since: float, until: float, this_pass: Pass) -> Decision:
    """Show on the pod why it has not started.  until: when the pod is ended for that, epoch seconds"""
    then = NOT_ENDED if kubelet.is_in_progress(pod.waits) else RUNS_IN_PART if pod.runs_in_part else ""
    if until < float("inf"):
        then = f" It is ended at {clock(until, this_pass.now)} if it does not start."
    message = (
        f"Bound for Slurm job {job.id} since {clock(_bound_at(pod, this_pass) or since, this_pass.now)}, "
        f"and not started: {pod.waits or WITHOUT_A_WORD}.{then}"
    )
    essence = (str(job.id), pod.waits, str(pod.runs_in_part))
    return _status(pod, names.NOT_STARTING, message, essence=essence, warning=True) + wake(until)


def _bound_at(pod: Pod, this_pass: Pass) -> float | None:
    """When the pod was bound, by the bridge's clock; None: not known."""
    seen = this_pass.world.first_seen.get(pod.uid)
    return None if pod.bound_at is None or seen is None else this_pass.world.since(pod.bound_at, seen, seen.bound)


def _waits_since(pod: Pod, this_pass: Pass) -> float | None:
    """The earliest time at which its containers failed to start, by the bridge's clock; None: not known."""
    seen = this_pass.world.first_seen.get(pod.uid)
    return None if pod.waits_since is None or seen is None else this_pass.world.since(pod.waits_since, seen, seen.waits)


def _stuck_since(pod: Pod, since: float, this_pass: Pass) -> float:
    """When kubelet first reported a reason that needs a person.

    The time of an image pull before that does not count, and neither does the time for which an init container ran before it
    failed for the first time.
    """
    seen = this_pass.world.first_seen.get(pod.uid)
    return since if seen is None or seen.stuck is None else max(since, seen.stuck)


def _crashes(workload: Workload, job: Placeholder, pod: Pod, this_pass: Pass) -> Decision | None:
    """Show on the pod that a container crashes again and again; nothing is ended for that (S12).

    None: no container crashes, or none has crashed for a while.  Between two crashes kubelet reports no problem, so the
    status stays for some time.
    """
    if pod.crashes:
        message = (
            f"Kubelet restarts a container of this pod again and again: {pod.crashes}. Nothing is ended: "
            f"Slurm job {job.id} holds the nodes until the pod is deleted or its own controller gives up."
        )
        every_s = this_pass.tuning.crashes_said_s
        return _status(pod, names.CRASHING, message, essence=(message,), warning=True, again_s=every_s)
    if _shown(workload, pod) != names.CRASHING:
        return None
    last = workload.status_about(ITS_JOB, pod.uid)
    calm_at = (last.at if last is not None else this_pass.world.started) + 2 * this_pass.tuning.crashes_said_s
    return wake(calm_at) if this_pass.now < calm_at else None


# --- shared ----------------------------------------------------------------------------------------------


def _running_as_planned(
    workload: Workload, job: Placeholder, read: Job, pods: Sequence[Pod], this_pass: Pass
) -> Decision:
    """Show on the pods that their job runs, if they showed something else before or its time limit changed (S9)."""
    crashes = {pod.uid: _crashes(workload, job, pod, this_pass) for pod in pods}
    pods = [pod for pod in pods if crashes[pod.uid] is None]
    limit = _minutes(read.time_limit_min)
    until = f" until {exact_clock(this_pass.from_slurm(read.ends), this_pass.now)}" if read.ends is not None else ""
    message, flexible = f"Slurm job {job.id} runs{until}.", ""
    if job.limit_before is not None:
        before = _minutes(job.limit_before)
        message = f"The time limit of Slurm job {job.id} is {limit} now, and was {before}: it runs{until}."
    elif flexible := _may_be_short(job, pods, this_pass):
        message = f"Slurm gave job {job.id} a time limit of {limit} ({flexible}): it runs{until}."
    found = [crash for crash in crashes.values() if crash is not None]
    for pod in pods:
        shown = _shown(workload, pod)
        started = shown == names.NOT_STARTING and pod.phase is not PodPhase.PENDING
        if job.limit_before is not None or flexible or started or shown in SHOWN_OTHERWISE:
            found.append(_status(pod, names.RUNS, message, essence=(str(job.id), limit, until)))
    return combine(found)


def _may_be_short(job: Placeholder, pods: Sequence[Pod], this_pass: Pass) -> str:
    """The option time-min, in words, which lets Slurm cut the time limit; "": the job has none."""
    if job.spec is not None:
        return f"time-min {_minutes(job.spec.time_least_min)}" if job.spec.time_least_min is not None else ""
    key = names.PREFIX + names.TIME_MIN
    sources: list[Pod | Owner] = [*pods]
    for pod in pods:
        sources += this_pass.world.owners_of(pod)[0]
    time_min = next((source.annotations[key] for source in sources if key in source.annotations), "")
    return f"time-min {time_min}" if time_min else ""


def _shown(workload: Workload, pod: Pod) -> str:
    """The reason of the last status that this process or a previous one wrote on the pod."""
    last = workload.status_about(ITS_JOB, pod.uid)
    if last is not None and last.condition:
        return last.condition
    return pod.job_condition.reason if pod.job_condition is not None else ""


def _minutes(limit: int | None) -> str:
    if limit is None or limit == UNLIMITED:
        return "unlimited"
    return f"{limit:,} minute{'s' if limit != 1 else ''}"


def _read_since(workload: Workload, job: Placeholder, since: float, why: str, this_pass: Pass) -> Decision | None:
    """Read the job.  None: it was read after `since`."""
    if job.read_began >= since and is_trusted(job, this_pass):
        return None
    return read_job(job, workload, this_pass, why)


def wait_to_act(workload: Workload, pod: Pod, attempt: Attempt, this_pass: Pass) -> Decision | None:
    """Wait if an action on the pod is in flight, has failed, or may be in flight from a previous process.  None: act now."""
    in_flight = workload.pods_in_flight.get(pod.uid)
    until = max(this_pass.world.quiet_until(), workload.retry_from(attempt))
    if in_flight is not None:
        until = max(until, in_flight.until if in_flight.until is not None else float("inf"))
    return None if this_pass.now >= until else wake(until)


def _status(
    pod: Pod,
    reason: str,
    message: str,
    *,
    essence: tuple[str, ...],
    runs: bool = True,
    warning: bool = False,
    again_s: float = float("inf"),
) -> Decision:
    return Decision((JobStatus(pod, reason, message, essence, runs, warning, again_s),))
