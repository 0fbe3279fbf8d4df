"""The status of a pod: its sentences, and when a status is written (Q2, O1).

A sentence says what happened, where, and what to do.  It is written again if its content has changed, not because time
passed, and at most once in a few seconds for each pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from scheduler import names
from scheduler.actions import SetJobCondition, SetPodCondition
from scheduler.events import OutageBegan
from scheduler.model.kubernetes import Condition, Pod
from scheduler.model.slurm import Job
from scheduler.model.text import dated, line, moment
from scheduler.rules.decision import NOTHING, Decision, JobStatus, PodStatus, PodStatuses, combine, wake
from scheduler.rules.limits import with_value
from scheduler.rules.reasons import meaning_of
from scheduler.rules.scheduling_pass import Pass
from scheduler.state.estimates import Interval, moved
from scheduler.state.placeholder import Placeholder
from scheduler.state.pod_records import LastStatus
from scheduler.state.visits import NO_CONTENDER
from scheduler.state.workload import Workload

DAY_S = 86_400
REASON_FOLLOWS = "Slurm's reason follows when the job is read."
# Other clients may write conditions, too.  Repetitions are bounded or possessive, so that the time to match is linear.
_DATE = r"(?<!\d)\d{4,6}-\d\d-\d\d "
_TIME = re.compile(rf"(?:{_DATE})?\d\d:\d\d(?::\d\d)? UTC")  # as `clock` and `exact_clock` write it
_INTERVAL = re.compile(r"(?<=; expected start )between [^();]{1,60}? UTC")
_FOLLOWS_FROM = re.compile(
    r" \(from past waits(?:, \d{1,9} of \d{1,9} such intervals held)?; from time limits [^();]{1,30}? UTC\)"
)
_LIMIT = re.compile(r"\(((?:Grp|Max|Min)[A-Za-z]++)[^()]*+\)")
_PLACE = re.compile(r"; number [\d,]{1,12} of slurm-bridge's [\d,]{1,12} waiting jobs there")
_START = re.compile(rf"; (?:expected start|from time limits) ({_DATE})?(\d\d:\d\d) UTC")
# The texts that `waits` puts before Slurm's reason, and after the clauses that may follow the reason.
_WAITING = re.compile(r"Waiting in Slurm partition \S++ \(")
_TO_DO = re.compile(r"\AYou can [^.]{1,200}\.(?: |\Z)")
_AS_OF = re.compile(r"\. Job \d{1,10}, as of [^.]{1,40}? UTC\.(?: |\Z)")


def clock(at: float, now: float) -> str:
    """A time of day, with the date if it is not today; UTC."""
    return dated(at, "%H:%M UTC" if _is_same_day(at, now) else "%Y-%m-%d %H:%M UTC")


def exact_clock(at: float, now: float) -> str:
    """As `clock`, with seconds."""
    return dated(at, "%H:%M:%S UTC" if _is_same_day(at, now) else "%Y-%m-%d %H:%M:%S UTC")


def _is_same_day(at: float, now: float) -> bool:
    then, today = moment(at), moment(now)
    return then is not None and today is not None and then.date() == today.date()


def status(
    pod: Pod,
    reason: str,
    message: str,
    *,
    essence: tuple[str, ...] | None = None,
    starts: float | None = None,
    warning: bool = False,
    event: str = "",
    annotations: Mapping[str, str] | None = None,
) -> Decision:
    """The status of one pod; see PodStatus."""
    return Decision((PodStatus(pod, reason, message, essence, starts, warning, event, annotations),))


def statuses(pods: Iterable[Pod], reason: str, message: str, *, warning: bool = True, event: str = "") -> Decision:
    """The same status of several pods; see PodStatuses."""
    return Decision((PodStatuses(tuple(pods), reason, message, warning, event),))


def write_status(new: PodStatus, workload: Workload, this_pass: Pass) -> None:
    """Plan the write of the condition and its event, unless the pod shows that already.

    A pod on a node gets only the event: the condition PodScheduled=False would claim that it has no node (Q2).
    """
    if new.reason and workload.node_of(new.pod):
        new = replace(new, reason="", event=new.event or new.reason)
    pod, message = new.pod, line(new.message)
    essence = new.essence if new.essence is not None else (message,)
    if pod.uid in this_pass.conditions_planned:  # two writes of one condition would race
        this_pass.wake_at(workload.key, this_pass.now + this_pass.tuning.condition_s)
        return
    last = workload.last_status.get(pod.uid) or _last_of_previous_process(new, message, essence, workload, this_pass)
    if last is not None:
        renew_at = last.event_at + this_pass.tuning.renew_event_s
        if _is_same(last, new.reason, essence, new.starts, this_pass.now) and this_pass.now < renew_at:
            this_pass.wake_at(workload.key, renew_at)
            return
        not_before = last.at + (this_pass.tuning.detail_fresh_s if last.is_first else this_pass.tuning.condition_s)
        if this_pass.now < not_before:
            this_pass.wake_at(workload.key, not_before)
            return
    report = SetPodCondition(
        workload.key,
        pod.uid,
        pod.namespace,
        pod.name,
        new.reason,
        message,
        event=new.event or new.reason,
        warning=new.warning,
        essence=essence,
        starts=new.starts,
        annotations=new.annotations,
        version=pod.version if new.reason else "",
    )
    this_pass.add(report, workload.key)


def _last_of_previous_process(
    new: PodStatus, message: str, essence: tuple[str, ...], workload: Workload, this_pass: Pass
) -> LastStatus | None:
    """The equal status that a previous process set on the pod; None: the pod shows another status, or none.

    If the status has an essence, the changing parts of its message are not compared, apart from the expected start: otherwise
    each restart would write the condition of all waiting pods.  The event counts as posted when this process started.
    """
    shown = workload.shown_condition(new.pod)
    if shown is None or shown.reason != new.reason:
        return None
    is_same = shown.message == message
    if not is_same and (new.essence is None or _lasting(shown.message) != _lasting(message)):
        return None
    starts = new.starts if is_same else _nearest_start(shown.message, new.starts, this_pass.now)
    return LastStatus(new.reason, shown.message, essence, starts, event_at=this_pass.world.started)


def _lasting(message: str) -> str:
    """The message without its changing parts: times, the basis of an interval, the queue place, the value of a limit."""
    for changing in (_FOLLOWS_FROM, _INTERVAL, _PLACE, _TIME):
        message = changing.sub("", message)
    return _LIMIT.sub(r"(\1)", message)


def _nearest_start(message: str, starts: float | None, now: float) -> float | None:
    """Slurm's expected start in the message, epoch seconds.  Without a date: the time of day nearest to *starts*."""
    found, today = _START.findall(message), moment(now)
    if not found or starts is None or today is None:
        return None
    date, time_of_day = found[-1]  # the message has Slurm's own time after the interval
    try:
        shown = datetime.strptime(f"{date or f'{today:%Y-%m-%d} '}{time_of_day}+0000", "%Y-%m-%d %H:%M%z").timestamp()
    except ValueError:  # another client wrote it
        return None
    return shown if date else min((shown + days * DAY_S for days in (-1, 0, 1)), key=lambda at: abs(starts - at))


def write_statuses(new: PodStatuses, workload: Workload, this_pass: Pass) -> None:
    """Plan these writes, first on pods without a status.  If the limit class is full, the rest is written later."""
    for pod in sorted(new.pods, key=lambda pod: pod.uid in workload.last_status):
        if this_pass.free("pod_conditions") <= 0:
            this_pass.park(workload.key, "pod_conditions")
            return
        shown = PodStatus(pod, new.reason, new.message, warning=new.warning, event=new.event)
        write_status(shown, workload, this_pass)


def write_job_status(new: JobStatus, workload: Workload, this_pass: Pass) -> None:
    """Plan the write of the condition and its event, unless this process or a previous one wrote that already."""
    pod, message, now = new.pod, line(new.message), this_pass.now
    last = workload.last_status.get(pod.uid)
    if (
        last is not None
        and last.condition == new.reason
        and last.essence == new.essence
        and now < last.at + new.again_s
    ):
        return
    if last is None and pod.job_condition is not None and _is_still_true(pod.job_condition, new.reason, message):
        return
    if last is not None and now < last.at + this_pass.tuning.condition_s:
        this_pass.wake_at(workload.key, last.at + this_pass.tuning.condition_s)
        return
    this_pass.add(
        SetJobCondition(
            workload.key, pod.uid, pod.namespace, pod.name, new.reason, message, new.runs, new.warning, new.essence
        ),
        workload.key,
    )


def _is_still_true(shown: Condition, reason: str, message: str) -> bool:
    """True if a condition of a previous process needs no new message.  It needs one only if the end of the job moved."""
    if shown.reason != reason:
        return False
    return reason != names.ENDS_SOON or _TIME.findall(shown.message) == _TIME.findall(message)


def _is_same(last: LastStatus, reason: str, essence: tuple[str, ...], starts: float | None, now: float) -> bool:
    if last.condition != reason or last.essence != essence:
        return False
    if last.starts is None or starts is None:
        return last.starts is starts
    return not moved(last.starts, starts, now)


def outage(pods: Iterable[Pod], lost: OutageBegan, meanwhile: str, this_pass: Pass) -> Decision:
    """Show on the pods that Slurm does not answer, but only after a while: a short outage costs no writes (X1)."""
    shown_at = lost.since + this_pass.tuning.outage_s
    message = (
        f"Slurm cannot be used since {clock(lost.since, this_pass.now)}. {meanwhile} The admin sees why in /readyz."
    )
    if this_pass.now < shown_at:
        return wake(shown_at, message)
    essence = ("lost", str(lost.since))
    return combine(status(pod, names.UNAVAILABLE, message, essence=essence, warning=True) for pod in pods)


def waits(workload: Workload, job: Job, this_pass: Pass) -> str:
    """Slurm's reason in words, the partition, the expected start, the place, the time of this status, and what to do (Q2)."""
    reason = job.reason or "None"
    known = meaning_of(reason)
    why = f"{reason}: {with_value(known, job, this_pass.world)}" if known is not None else reason
    start, now = _start(job, this_pass), this_pass.now
    place = this_pass.world.waiting_order.place(workload.key)
    queue = (
        f"; number {place.number:,} of slurm-bridge's {place.of:,} waiting jobs there" if place and place.of > 1 else ""
    )
    to_do = f" You can {_plain(known.user, job)}." if known is not None and known.user else ""
    return f"Waiting in Slurm partition {job.partition} ({why}){start}{queue}. Job {job.id}, as of {clock(now, now)}.{to_do}"


def _plain(advice: str, job: Job) -> str:
    """The advice of docs/reasons.md without markup, and with the number of the job."""
    return advice.replace("`", "").replace("JOB", str(job.id))


def brief(message: str) -> str:
    """The message, shortened for a list.  A message of `waits` keeps Slurm's reason, the expected start and the note."""
    begins, ends = _WAITING.match(message), _AS_OF.search(message)
    if begins is None or ends is None:
        return message
    text, note = message[begins.end() : ends.start()], _TO_DO.sub("", message[ends.end() :])
    for removed in (_PLACE, _FOLLOWS_FROM):
        text = removed.sub("", text)
    reason, clause, start = text.partition("); expected start ")
    if start.startswith("between "):
        start = start.removeprefix("between ").replace(" and ", " to ", 1)
    shown = f"{reason}{clause[1:]}{start}" if clause else text.removesuffix(")")
    return ". ".join(filter(None, (shown, note)))


def _start(job: Job, this_pass: Pass) -> str:
    """The clause about the expected start; "": Slurm gives none.

    Slurm computes its time from the time limits of the jobs ahead.  If past waits give an interval, the clause has the
    interval, with Slurm's time in parentheses.
    """
    now, starts = this_pass.now, _expected_start(job, this_pass)
    if starts is None:
        return ""
    nodes = f" on {job.planned_nodes}" if job.planned_nodes else ""
    estimated = job.reason not in NO_CONTENDER
    found = this_pass.world.estimates.interval(job.partition, starts, now) if estimated else None
    if found is None:
        return f"; expected start {clock(starts, now)}{nodes}"
    rate = f", {found.held} of {found.judged} such intervals held" if found.judged else ""
    return (
        f"; expected start {_within(found, now)}{nodes} (from past waits{rate}; from time limits {clock(starts, now)})"
    )


def _within(found: Interval, now: float) -> str:
    """ "between 14:05 and 14:20 UTC"."""
    earliest, latest = clock(found.earliest, now), clock(found.latest, now)
    return latest if earliest == latest else f"between {earliest.removesuffix(' UTC')} and {latest}"


def _expected_start(job: Job, this_pass: Pass) -> float | None:
    """When Slurm expects the job to start, by the bridge's clock; None: not known, or that time has passed."""
    starts = this_pass.from_slurm(job.starts) if job.starts is not None else None
    return starts if starts is not None and starts > this_pass.now else None


def waiting(workload: Workload, pod: Pod, job: Job, this_pass: Pass, note: str = "") -> Decision:
    """Show why the pod waits in Slurm's queue.  note: a sentence that is added"""
    message = waits(workload, job, this_pass) + (f" {note}" if note else "")
    essence = (str(job.id), job.reason or "None", job.partition, job.planned_nodes, note)
    starts = _expected_start(job, this_pass)
    reason = this_pass.world.config.pending_reason or names.PENDING
    event = names.PENDING if _names_job(workload, pod, job.id) else names.SUBMITTED
    return status(pod, reason, message, essence=essence, starts=starts, event=event)


def waiting_unread(workload: Workload, pod: Pod, job: Placeholder, this_pass: Pass, note: str = "") -> Decision:
    """Show that the pod waits in Slurm's queue, before its job was read: jobs are read in turn (Q2).

    If the pod's status names the job already, the status stays: a previous process had read the job.
    """
    is_named = _names_job(workload, pod, job.id)
    if is_named and not note and pod.uid not in workload.last_status:
        return NOTHING
    partition = (job.spec.partition if job.spec is not None else "") or this_pass.world.default_partition
    message = f"Waiting in Slurm partition {partition} as job {job.id}. {note or REASON_FOLLOWS}"
    reason, event = (
        this_pass.world.config.pending_reason or names.PENDING,
        names.PENDING if is_named else names.SUBMITTED,
    )
    return status(pod, reason, message, essence=(str(job.id), note), event=event)


def _names_job(workload: Workload, pod: Pod, job_id: int) -> bool:
    """True if the pod's status names the job that waits; a previous process may have written it."""
    last, shown = workload.last_status.get(pod.uid), workload.shown_condition(pod)
    if last is not None:
        return last.essence[:1] == (str(job_id),)
    return shown is not None and any(
        words in shown.message for words in (f". Job {job_id}, as of ", f" as job {job_id}. ")
    )
