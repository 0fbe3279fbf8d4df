"""BOUND: what is said and done while pods run, before their job ends (S4b, S5, S6, S9, S12).

Slurm tells a job's end in advance in two cases: its time limit, and a preemption with grace.  A time limit is no
disruption: kubelet is told to end the pod a little before, which counts like any deadline; a service is moved through the
Eviction API instead, one replica at a time.  A preemption is a disruption, and the time that is left is the pods' grace.

Whatever is done follows from the job as it was read just before, since an admin may have given it more time.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler import actions as act
from scheduler import names
from scheduler.events import Side
from scheduler.model import kubelet
from scheduler.model.kubernetes import Owner, Pod, PodPhase, owner_key
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import UNLIMITED, Job
from scheduler.model.text import line
from scheduler.rules.deadlines import Lead, lead_of, notice_s
from scheduler.rules.identity import look_at, trusted
from scheduler.rules.owners import read_unknown
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import clock, exact_clock
from scheduler.rules.termination import end_pod, is_service
from scheduler.state.workload import Placeholder, Workload
from scheduler.translate import values
from scheduler.translate.job_options import user_input
from scheduler.translate.job_spec import deadline_min

SAID_OTHERWISE = (names.SUSPENDED, names.ENDS_SOON, names.CRASHING, names.RUNS)
NOT_ENDED = " Kubelet is still at work; nothing is ended for that, however long it takes."
WITHOUT_A_WORD = "its node's kubelet has said nothing of it"


def watch(workload: Workload, job: Placeholder, this_pass: Pass) -> None:
    """Their job lives: say what is worth saying of it, and prepare for its end."""
    standing = (pod for pod in workload.unfinished if workload.node_of(pod) and workload.stands_for(pod, job))
    pods = [pod for pod in standing if pod.deleting_at is None]
    if Side.SLURM in this_pass.world.lost or not pods or _never_started(workload, job, pods, this_pass):
        return
    if "SUSPENDED" in job.states:
        message = (
            f"Slurm job {job.id} is suspended. Its pods are not: they run on, and nothing is ended. "
            f"An admin resumes it (scontrol resume {job.id})."
        )
        _tell_all(workload, pods, this_pass, names.SUSPENDED, message, runs=False, warning=True)
    elif "SIGNALING" in job.states and _preempted(workload, job, pods, this_pass):
        return
    elif job.job is not None:
        _time_limit(workload, job, job.job, pods, this_pass)
    else:
        _read_in_time(workload, job, pods, this_pass)


# --- a time limit (S4b) -------------------------------------------------------------------------------------------


def _time_limit(workload: Workload, job: Placeholder, read: Job, pods: Sequence[Pod], this_pass: Pass) -> None:
    ends = this_pass.from_slurm(read.ends) if read.ends is not None and read.time_limit_min != UNLIMITED else None
    if job.read_began < job.states_since:  # it was resumed, which moves its end; in its turn it is read again
        if any(_said(workload, pod) == names.SUSPENDED for pod in pods):
            look_at(job, workload, this_pass, f"when does job {job.id} end, now that it runs again?")
        elif ends is not None:  # its turn may come after that
            _read_before(ends, workload, job, pods, this_pass)
        return
    if ends is None:
        _all_is_well(workload, job, read, pods, this_pass)
        return
    _read_owners(workload, pods, ends, this_pass)
    length_s = max(0.0, ends - this_pass.from_slurm(read.starts)) if read.starts else None
    leads = {pod.uid: lead_of(pod, this_pass.world.owners_of(pod)[0], length_s, this_pass.tuning) for pod in pods}
    opens = {pod.uid: ends - _notice_s(pod, leads[pod.uid], length_s, this_pass) for pod in pods}
    near = [pod for pod in pods if this_pass.now >= opens[pod.uid]]
    far = [pod for pod in pods if this_pass.now < opens[pod.uid]]
    if far:
        _all_is_well(workload, job, read, far, this_pass)
        this_pass.wake_at(workload.key, min(opens[pod.uid] for pod in far))
    why = f"does job {job.id} end at {exact_clock(ends, this_pass.now)}?"
    if near and _read_since(workload, job, max(opens[pod.uid] for pod in near), why, this_pass):
        for pod in near:
            _warn(workload, job, ends, pod, leads[pod.uid], this_pass)
            (_move if is_service(pod) else _hand_over)(workload, job, ends, pod, leads[pod.uid], this_pass)


def _read_owners(workload: Workload, pods: Sequence[Pod], ends: float, this_pass: Pass) -> None:
    """After a restart, plan the read of owners before the earliest SIGTERM that their annotation `signal` may ask for."""
    signal = names.PREFIX + names.SIGNAL
    asking = [pod for pod in pods if signal not in pod.annotations and this_pass.world.owners_of(pod)[1] is not None]
    opens = ends - notice_s(this_pass.tuning.end_lead_max_s, this_pass.tuning)
    if asking and this_pass.now < opens:
        this_pass.wake_at(workload.key, opens)
    elif asking:
        read_unknown(workload, asking, this_pass)


def _notice_s(pod: Pod, lead: Lead, length_s: float | None, this_pass: Pass) -> float:
    """So long before the end a pod is warned and handed over; a service is moved from then on, in half of the job's time."""
    notice = notice_s(lead.seconds, this_pass.tuning)
    if not is_service(pod):
        return notice
    return min(max(this_pass.tuning.service_notice_s, notice), (length_s or 0.0) / 2)


def _read_in_time(workload: Workload, job: Placeholder, pods: Sequence[Pod], this_pass: Pass) -> None:
    """Where thousands run, its turn to be read may come late; what was asked for tells when it must have been."""
    limit = job.spec.time_least_min or job.spec.time_limit_min if job.spec is not None else None
    if limit is not None and limit != UNLIMITED and job.granted_at is not None:
        _read_before(job.granted_at + limit * 60, workload, job, pods, this_pass)


def read_hinted(workload: Workload, job: Placeholder, this_pass: Pass) -> None:
    """Plan the read of a job of an earlier life, of which only the id is known, before the earliest end its pods may have."""
    pods = workload.unfinished
    limits = ((_bound_at(pod, this_pass), _asked_for(pod)) for pod in pods)
    ends = [bound_at + limit * 60 for bound_at, limit in limits if bound_at is not None and limit is not None]
    if ends:
        _read_before(min(ends), workload, job, pods, this_pass)


def _asked_for(pod: Pod) -> int | None:
    """The minutes that it says itself, at least; None: its namespace's or partition's default, or none."""
    wishes = user_input(pod)
    if isinstance(wishes, Refusal):  # edited since
        return None
    said = wishes.get(names.TIME_MIN, wishes.get(names.TIME_LIMIT))
    if said is None:
        return None if pod.active_deadline_s is None else deadline_min(pod.active_deadline_s)
    try:
        limit = values.time_limit_min(said)
    except values.Unreadable:
        return None
    return None if limit == UNLIMITED else limit


def _read_before(ends: float, workload: Workload, job: Placeholder, pods: Sequence[Pod], this_pass: Pass) -> None:
    owners_of = this_pass.world.owners_of
    leads = (lead_of(pod, owners_of(pod)[0], None, this_pass.tuning) for pod in pods)
    notice = max(notice_s(each.seconds, this_pass.tuning) for each in leads)
    if any(is_service(pod) for pod in pods):
        notice = max(notice, this_pass.tuning.service_notice_s)
    at = ends - notice
    if this_pass.now < at:
        this_pass.wake_at(workload.key, at)
    else:
        look_at(job, workload, this_pass, f"when does job {job.id} end?")


def _warn(workload: Workload, job: Placeholder, ends: float, pod: Pod, lead: Lead, this_pass: Pass) -> None:
    """Once for each end, with the seconds that are left now."""
    left = max(0, int(ends - this_pass.now))
    message = f"Slurm job {job.id} reaches its time limit at {exact_clock(ends, this_pass.now)}: {left} s are left. "
    if is_service(pod):
        message += "The pod is evicted before."
    else:
        message += f"The pod gets SIGTERM {lead.seconds:.0f} s before, and then its grace of {pod.grace_s} s."
        message += f" That is late: {lead.cut}." if lead.cut else ""
    told = str(int(job.job.ends)) if job.job is not None and job.job.ends is not None else ""
    _tell(workload, pod, this_pass, names.ENDS_SOON, message, essence=(str(job.id), told), warning=True)


def _hand_over(workload: Workload, job: Placeholder, ends: float, pod: Pod, lead: Lead, this_pass: Pass) -> None:
    """kubelet counts from when it took the pod over; a deadline can be lowered, never raised (Kubernetes facts 2).

    If nobody knows when that was, because its clock is another, it is told to end the pod at once when the time has come.
    """
    if pod.started is None or not may_act(workload, pod, this_pass):
        return
    started, last_at = this_pass.world.started_at(pod), ends - lead.seconds
    if started is None and this_pass.now < last_at:
        this_pass.wake_at(workload.key, last_at)
        return
    seconds = max(1, int(last_at - started)) if started is not None else 1
    known = [each for each in (pod.active_deadline_s, pod.handed_deadline_s) if each is not None]
    if known and min(known) <= seconds:
        return
    why = f"Slurm job {job.id} reaches its time limit at {exact_clock(ends, this_pass.now)}"
    this_pass.add(
        act.SetDeadline(workload.key, pod.uid, pod.namespace, pod.name, seconds, why),
        workload.key,
    )


def _move(workload: Workload, job: Placeholder, ends: float, pod: Pod, lead: Lead, this_pass: Pass) -> None:
    """A replica goes when no other of its controller is on its way, or when there is just its grace left."""
    if not may_act(workload, pod, this_pass):
        return
    assert pod.owner is not None, "a service has a controller"
    owner = owner_key(pod.namespace, pod.owner)
    last_at = ends - lead.seconds
    if this_pass.now < last_at and this_pass.moves(owner):
        this_pass.wake_at(workload.key, min(last_at, this_pass.now + 1.0))
        return
    why = f"Slurm job {job.id} reaches its time limit at {exact_clock(ends, this_pass.now)}"
    if this_pass.add(act.EvictPod(workload.key, pod.uid, pod.namespace, pod.name, why), workload.key):
        this_pass.moving.add(owner)


# --- a preemption with grace (S5) ---------------------------------------------------------------------------------


def _preempted(workload: Workload, job: Placeholder, pods: Sequence[Pod], this_pass: Pass) -> bool:
    """They are told at once, and what is left is their grace.

    False where it is another signal to the job, which is none of their business.
    """
    if not _read_since(workload, job, job.states_since, f"is job {job.id} preempted?", this_pass):
        return True
    assert job.job is not None, "it was read"
    if job.job.preempted is None or job.job.ends is None:
        return False
    ends = this_pass.from_slurm(job.job.ends)
    left = max(1, int(ends - this_pass.now))
    why = f"Slurm preempts job {job.id}: {left} s are left, until {exact_clock(ends, this_pass.now)}"
    for pod in pods:
        if may_act(workload, pod, this_pass):
            end_pod(workload, pod, why, this_pass, grace_s=left)
    return True


# --- a pod that never starts (S12) --------------------------------------------------------------------------------


def _never_started(workload: Workload, job: Placeholder, pods: Sequence[Pod], this_pass: Pass) -> bool:
    """Said after a minute.  What needs a person ends the workload after the time that the admin gives it: True then."""
    tuning = this_pass.tuning
    for pod in pods:
        since = _waits_since(pod, this_pass) if pod.waits else _bound_at(pod, this_pass)
        if pod.phase is not PodPhase.PENDING or since is None or (pod.started is not None and not pod.waits):
            continue
        until = float("inf")
        if tuning.start_timeout_s and kubelet.needs_a_person(pod.waits):
            until = _stuck_since(pod, since, this_pass) + tuning.start_timeout_s
        if this_pass.now < min(since + tuning.start_said_s, until):
            this_pass.wake_at(workload.key, min(since + tuning.start_said_s, until))
            continue
        if this_pass.now >= until:
            why = f"{pod.full_name} did not start within {tuning.start_timeout_s:.0f} s ({pod.waits})"
            for each in pods:
                if may_act(workload, each, this_pass):
                    end_pod(workload, each, why, this_pass, counts=True)
            return True
        then = NOT_ENDED if kubelet.goes_on(pod.waits) else ""
        if until < float("inf"):
            then = f" It is ended at {clock(until, this_pass.now)} if it does not start."
            this_pass.wake_at(workload.key, until)
        message = (
            f"Bound for Slurm job {job.id} since {clock(_bound_at(pod, this_pass) or since, this_pass.now)}, "
            f"and not started: {pod.waits or WITHOUT_A_WORD}.{then}"
        )
        essence = (str(job.id), pod.waits)
        _tell(workload, pod, this_pass, names.NOT_STARTING, message, essence=essence, warning=True)
    return False


def _bound_at(pod: Pod, this_pass: Pass) -> float | None:
    """When it was bound, by the bridge's clock; None: that is not told."""
    seen = this_pass.world.sightings.get(pod.uid)
    return None if pod.bound_at is None or seen is None else this_pass.world.since(pod.bound_at, seen, seen.bound)


def _waits_since(pod: Pod, this_pass: Pass) -> float | None:
    """Not before when its containers do not start, by the bridge's clock; None: that is not told."""
    seen = this_pass.world.sightings.get(pod.uid)
    return None if pod.waits_since is None or seen is None else this_pass.world.since(pod.waits_since, seen, seen.waits)


def _stuck_since(pod: Pod, since: float, this_pass: Pass) -> float:
    """Since when kubelet has reported a reason that needs a person; the time of a pull before that does not count."""
    seen = this_pass.world.sightings.get(pod.uid)
    return since if seen is None or seen.stuck is None else max(since, seen.stuck)


def _crashes(workload: Workload, job: Placeholder, pod: Pod, this_pass: Pass) -> bool:
    """A container that started and then ends again and again is its own affair: said, counted, and nothing else (S12).

    True while the last word on it is that.  Between two crashes it looks well; it is when none came for a good while.
    """
    if pod.crashes:
        message = (
            f"Kubelet starts a part of this pod again and again: {pod.crashes}. Nothing is ended: "
            f"Slurm job {job.id} holds its place until the pod is deleted or its own controller gives up."
        )
        every = this_pass.tuning.crashes_said_s
        _tell(workload, pod, this_pass, names.CRASHING, message, essence=(message,), warning=True, again_s=every)
        return True
    if _said(workload, pod) != names.CRASHING:
        return False
    told = workload.told.get(pod.uid)
    calm_at = (told.at if told is not None else this_pass.world.started) + 2 * this_pass.tuning.crashes_said_s
    if this_pass.now < calm_at:
        this_pass.wake_at(workload.key, calm_at)
    return this_pass.now < calm_at


# --- what they share ----------------------------------------------------------------------------------------------


def _all_is_well(workload: Workload, job: Placeholder, read: Job, pods: Sequence[Pod], this_pass: Pass) -> None:
    """Tell the pods that their job runs, if they were told something else before, or its time limit changed (S9)."""
    pods = [pod for pod in pods if not _crashes(workload, job, pod, this_pass)]
    limit = _minutes(read.time_limit_min)
    until = f" until {exact_clock(this_pass.from_slurm(read.ends), this_pass.now)}" if read.ends is not None else ""
    message, flexible = f"Slurm job {job.id} runs{until}.", ""
    if job.limit_before is not None:
        before = _minutes(job.limit_before)
        message = f"The time limit of Slurm job {job.id} is {limit} now, and was {before}: it runs{until}."
    elif flexible := _may_be_short(job, pods, this_pass):
        message = f"Slurm gave job {job.id} a time limit of {limit} ({flexible}): it runs{until}."
    for pod in pods:
        said = _said(workload, pod)
        started = said == names.NOT_STARTING and pod.phase is not PodPhase.PENDING
        if job.limit_before is not None or flexible or started or said in SAID_OTHERWISE:
            _tell(workload, pod, this_pass, names.RUNS, message, essence=(str(job.id), limit, until))


def _may_be_short(job: Placeholder, pods: Sequence[Pod], this_pass: Pass) -> str:
    """The annotation time-min, in words, by which Slurm may have cut the time limit; "": the job has none."""
    if job.spec is not None:
        return f"time-min {_minutes(job.spec.time_least_min)}" if job.spec.time_least_min is not None else ""
    key = names.PREFIX + names.TIME_MIN
    sources: list[Pod | Owner] = [*pods]
    for pod in pods:
        sources += this_pass.world.owners_of(pod)[0]
    said = next((source.annotations[key] for source in sources if key in source.annotations), "")
    return f"time-min {said}" if said else ""


def _said(workload: Workload, pod: Pod) -> str:
    """The reason of what it was told last, by this life or an earlier one."""
    told = workload.told.get(pod.uid)
    if told is not None and told.condition:
        return told.condition
    return pod.on_job.reason if pod.on_job is not None else ""


def _minutes(limit: int | None) -> str:
    if limit is None or limit == UNLIMITED:
        return "unlimited"
    return f"{limit} minute{'s' if limit != 1 else ''}"


def _read_since(workload: Workload, job: Placeholder, since: float, why: str, this_pass: Pass) -> bool:
    """True if the job was read after `since`; otherwise plans a read and returns False."""
    if job.job is not None and job.read_began >= since and trusted(job, this_pass):
        return True
    look_at(job, workload, this_pass, why)
    return False


def may_act(workload: Workload, pod: Pod, this_pass: Pass) -> bool:
    """True if no action on the pod is in flight, and no request of an earlier life can be; else plans the next look."""
    held = workload.pod_holds.get(pod.uid)
    until = max(this_pass.world.quiet_until(), workload.wait_until)
    if held is not None:
        until = max(until, held.until if held.until is not None else float("inf"))
    if this_pass.now < until < float("inf"):
        this_pass.wake_at(workload.key, until)
    return this_pass.now >= until


def _tell_all(
    workload: Workload,
    pods: Sequence[Pod],
    this_pass: Pass,
    reason: str,
    message: str,
    *,
    runs: bool = True,
    warning: bool = False,
) -> None:
    for pod in pods:
        _tell(workload, pod, this_pass, reason, message, essence=(message,), runs=runs, warning=warning)


def _tell(
    workload: Workload,
    pod: Pod,
    this_pass: Pass,
    reason: str,
    message: str,
    *,
    essence: tuple[str, ...],
    runs: bool = True,
    warning: bool = False,
    again_s: float = float("inf"),
) -> None:
    """Plan the condition and its event, if the pod was not told that already, by this life or an earlier one.

    again_s   after which time it is worth saying again, which counts it
    """
    message = line(message)
    told = workload.told.get(pod.uid)
    same = told is not None and told.condition == reason and told.essence == essence
    if same and told is not None and this_pass.now < told.at + again_s:
        return
    if told is None and pod.on_job is not None and pod.on_job.reason == reason:
        return
    if told is not None and this_pass.now < told.at + this_pass.tuning.condition_s:
        this_pass.wake_at(workload.key, told.at + this_pass.tuning.condition_s)
        return
    this_pass.add(
        act.SetJobCondition(workload.key, pod.uid, pod.namespace, pod.name, reason, message, runs, warning, essence),
        workload.key,
    )
