"""The status of a pod: its sentences (Q2, O1).

A sentence says what happened, where, and what to do.  status_writes.py decides when it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from scheduler import names
from scheduler.events import OutageBegan
from scheduler.model.kubernetes import Pod
from scheduler.model.reasons import is_blocked, meaning_of
from scheduler.model.slurm import Job
from scheduler.model.text import dated, moment
from scheduler.rules.decision import NOTHING, Decision, PodStatus, PodStatuses, combine, wake
from scheduler.rules.limits import with_value
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.set_in_slurm import set_in_slurm
from scheduler.state.estimates import Interval
from scheduler.state.placeholder import Placeholder
from scheduler.state.pod_records import ITS_PLACE
from scheduler.state.visits import NO_CONTENDER
from scheduler.state.workload import Workload
from scheduler.state.world import World

DAY_S = 86_400
REASON_FOLLOWS = "Slurm's reason follows when the job is read."
NOT_EVICTED = "But slurm-bridge cannot evict it yet."
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


def outage(pods: Iterable[Pod], lost: OutageBegan, meanwhile: str, this_pass: Pass) -> Decision:
    """Show on the pods that Slurm does not answer, but only after a while: a short outage costs no writes (X1)."""
    shown_at = lost.since + this_pass.tuning.outage_s
    message = (
        f"Slurm has not been usable since {clock(lost.since, this_pass.now)}. "
        f"{meanwhile} The admin sees why in /readyz."
    )
    if this_pass.now < shown_at:
        return wake(shown_at, message)
    essence = ("lost", str(lost.since))
    return combine(status(pod, names.UNAVAILABLE, message, essence=essence, warning=True) for pod in pods)


def waits(workload: Workload, job: Job, this_pass: Pass) -> str:
    """Slurm's reason in words, the partition, the expected start, the place, the time of this status, and what to do (Q2)."""
    return _waits(workload, job, _to_do(workload, job, this_pass), this_pass)


def _waits(workload: Workload, job: Job, to_do: str, this_pass: Pass) -> str:
    """As `waits`.  to_do: what to do (`_to_do`)"""
    reason = job.reason or "None"
    known = meaning_of(reason)
    why = f"{reason}: {with_value(known, job, this_pass.world)}" if known is not None else reason
    start, now = _start(job, this_pass), this_pass.now
    place = this_pass.world.waiting_order.place(workload.key)
    queue = (
        f"; number {place.number:,} of slurm-bridge's {place.of:,} waiting jobs there" if place and place.of > 1 else ""
    )
    return f"Waiting in Slurm partition {job.partition} ({why}){start}{queue}. Job {job.id}, as of {clock(now, now)}.{to_do}"


def _to_do(workload: Workload, job: Job, this_pass: Pass) -> str:
    """What to do so that the job starts; begins with a space.  "": nothing but wait."""
    known = meaning_of(job.reason or "None")
    return (
        _others_set(workload, job, this_pass)
        or _none_in_service(job, this_pass.world)
        or (f" You can {_plain(known.user, job)}." if known is not None and known.user else "")
    )


def _none_in_service(job: Job, world: World) -> str:
    """Where no node can start a job, Slurm shows "Resources" like anywhere else.  But to request less would not help."""
    if job.reason != "Resources":
        return ""
    partitions = frozenset(job.partition.split(","))
    nodes = [node for node in (world.slurm_nodes or {}).values() if not partitions.isdisjoint(node.partitions)]
    if not nodes or not all(node.closed for node in nodes):
        return ""
    return f" No node of partition {job.partition} is in service: an admin of Slurm sees why with sinfo -R."


def _others_set(workload: Workload, job: Job, this_pass: Pass) -> str:
    """What the job waits for although its pods did not ask for it, and what to do; begins with a space.  "": nothing."""
    known = this_pass.world.job_of.get(workload.key)
    asked = (known.spec or known.adopted_as) if known is not None else None
    if (
        known is None
        or asked is None
        or known.read_began <= known.changed_at
        or not (found := set_in_slurm(asked, job))
    ):
        return ""
    return (
        f" Set in Slurm, not by the pod: {found}. You can ask the admin of Slurm to change job {job.id} "
        "(scontrol update), or delete the pod and create it again."
    )


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


def lasting(message: str) -> str:
    """The message without its changing parts: times, the basis of an interval, the queue place, the value of a limit."""
    for changing in (_FOLLOWS_FROM, _INTERVAL, _PLACE, _TIME):
        message = changing.sub("", message)
    return _LIMIT.sub(r"(\1)", message)


def nearest_start(message: str, starts: float | None, now: float) -> float | None:
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


def times(message: str) -> list[str]:
    """The times that the message names, as `clock` and `exact_clock` write them."""
    return _TIME.findall(message)


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
    """When Slurm expects the job to start, by the bridge's clock; None: not known, passed, or void, as the job is blocked."""
    starts = this_pass.from_slurm(job.starts) if job.starts is not None and not is_blocked(job.reason) else None
    return starts if starts is not None and starts > this_pass.now else None


def waiting(workload: Workload, pod: Pod, job: Job, this_pass: Pass, note: str = "") -> Decision:
    """Show why the pod waits in Slurm's queue.  note: a sentence that is added"""
    to_do = _to_do(workload, job, this_pass)
    message = _waits(workload, job, to_do, this_pass) + (f" {note}" if note else "")
    essence = (str(job.id), job.reason or "None", job.partition, job.planned_nodes, note + to_do)
    starts = _expected_start(job, this_pass)
    reason = this_pass.world.config.pending_reason or names.PENDING
    event = names.PENDING if names_job(workload, pod, job.id) else names.SUBMITTED
    return status(pod, reason, message, essence=essence, starts=starts, event=event)


def waiting_unread(workload: Workload, pod: Pod, job: Placeholder, this_pass: Pass, note: str = "") -> Decision:
    """Show that the pod waits in Slurm's queue, before its job was read: jobs are read in turn (Q2).

    If the pod's status names the job already, the status stays: a previous process had read the job.
    """
    is_named = names_job(workload, pod, job.id)
    if is_named and not note and workload.status_about(ITS_PLACE, pod.uid) is None:
        return NOTHING
    partition = (job.spec.partition if job.spec is not None else "") or this_pass.world.default_partition
    message = f"Waiting in Slurm partition {partition} as job {job.id}. {note or REASON_FOLLOWS}"
    reason, event = (
        this_pass.world.config.pending_reason or names.PENDING,
        names.PENDING if is_named else names.SUBMITTED,
    )
    return status(pod, reason, message, essence=(str(job.id), note), event=event)


def shows_note(workload: Workload, pod: Pod, note: str) -> bool:
    """True if the status of the pod, whose job waits, has that sentence already; a previous process may have written it."""
    last, shown = workload.status_about(ITS_PLACE, pod.uid), workload.shown_condition(pod)
    if last is not None:
        return any(part.startswith(note) for part in last.essence)
    return shown is not None and note in shown.message


def names_job(workload: Workload, pod: Pod, job_id: int) -> bool:
    """True if the pod's status names the job that waits; a previous process may have written it."""
    last, shown = workload.status_about(ITS_PLACE, pod.uid), workload.shown_condition(pod)
    if last is not None:
        return last.essence[:1] == (str(job_id),)
    return shown is not None and any(
        words in shown.message for words in (f". Job {job_id}, as of ", f" as job {job_id}. ")
    )
