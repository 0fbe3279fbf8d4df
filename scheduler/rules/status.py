"""What is said on a waiting pod: sentences, and when one is worth another write (Q2, O1).

A sentence says what, where, and what to do.  It is written again when what it says has changed, not because time passed,
and never more than once in a few seconds a pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scheduler import names
from scheduler.actions import SetPodCondition
from scheduler.events import SideLost
from scheduler.model.kubernetes import Pod
from scheduler.model.slurm import Job
from scheduler.model.text import dated, line, moment
from scheduler.rules.reasons import meaning_of
from scheduler.rules.scheduling_pass import Pass
from scheduler.state.workload import LastStatus, Workload

START_SLACK_S = 60.0  # an expected start that moves by less is not news …
START_SLACK_SHARE = 0.1  # … nor by less than this share of the wait that is left


def clock(at: float, now: float) -> str:
    """A time of day, with the date where it is not today; UTC."""
    return dated(at, "%H:%M UTC" if _same_day(at, now) else "%Y-%m-%d %H:%M UTC")


def exact_clock(at: float, now: float) -> str:
    """The same to the second."""
    return dated(at, "%H:%M:%S UTC" if _same_day(at, now) else "%Y-%m-%d %H:%M:%S UTC")


def _same_day(at: float, now: float) -> bool:
    then, today = moment(at), moment(now)
    return then is not None and today is not None and then.date() == today.date()


def say(
    this_pass: Pass,
    workload: Workload,
    pod: Pod,
    condition: str,
    message: str,
    *,
    essence: tuple[str, ...] | None = None,
    starts: float | None = None,
    warning: bool = False,
    event: str = "",
    annotations: Mapping[str, str] | None = None,
) -> None:
    """Plan the condition and its event, if the pod does not say that already.  event: its reason where it differs."""
    message = line(message)
    essence = essence if essence is not None else (message,)
    if pod.uid in this_pass.told:  # two writes of one condition would race
        this_pass.wake_at(workload.key, this_pass.now + this_pass.tuning.condition_s)
        return
    told = workload.told.get(pod.uid)
    shown = workload.shown_condition(pod)
    if told is None and shown is not None and shown.reason == condition and shown.message == message:
        return
    if told is not None:
        renew_at = told.event_at + this_pass.tuning.renew_event_s
        if _same(told, condition, essence, starts, this_pass.now) and this_pass.now < renew_at:
            this_pass.wake_at(workload.key, renew_at)
            return
        if this_pass.now < told.at + this_pass.tuning.condition_s:
            this_pass.wake_at(workload.key, told.at + this_pass.tuning.condition_s)
            return
    report = SetPodCondition(
        workload.key,
        pod.uid,
        pod.namespace,
        pod.name,
        condition,
        message,
        event=event or condition,
        warning=warning,
        essence=essence,
        starts=starts,
        annotations=annotations,
    )
    this_pass.add(report, workload.key)


def say_all(
    workload: Workload,
    pods: Iterable[Pod],
    this_pass: Pass,
    reason: str,
    message: str,
    *,
    warning: bool = True,
    event: str = "",
) -> None:
    """The same on each of them, first on those that were told nothing yet; the rest of many when there is room again."""
    for pod in sorted(pods, key=lambda pod: pod.uid in workload.told):
        if this_pass.free("reports") <= 0:
            this_pass.park(workload.key, "reports")
            return
        say(this_pass, workload, pod, reason, message, warning=warning, event=event)


def _same(told: LastStatus, condition: str, essence: tuple[str, ...], starts: float | None, now: float) -> bool:
    if told.condition != condition or told.essence != essence:
        return False
    if told.starts is None or starts is None:
        return told.starts is starts
    return abs(starts - told.starts) <= max(START_SLACK_S, START_SLACK_SHARE * (told.starts - now))


def outage(this_pass: Pass, workload: Workload, pod: Pod, lost: SideLost, meanwhile: str) -> None:
    """Slurm does not answer: said once that lasts, so that a hiccup is not a write on every waiting pod (X1)."""
    said_at = lost.since + this_pass.tuning.outage_s
    if this_pass.now < said_at:
        this_pass.wake_at(workload.key, said_at)
        return
    message = (
        f"Slurm cannot be used since {clock(lost.since, this_pass.now)}. {meanwhile} The admin sees why in /readyz."
    )
    say(this_pass, workload, pod, names.UNAVAILABLE, message, essence=("lost", str(lost.since)), warning=True)


def waits(job: Job, this_pass: Pass) -> str:
    """Slurm's reason in words, the partition, the expected start, the planned nodes, and as of when (Q2)."""
    reason = job.reason or "None"
    known = meaning_of(reason)
    said = f"{reason}: {known.meaning}" if known is not None else reason
    start = ""
    now, starts = this_pass.now, _expected_start(job, this_pass)
    if starts is not None:
        start = f"; expected start {clock(starts, now)}"
        start += f" on {job.planned_nodes}" if job.planned_nodes else ""
    return f"Waiting in Slurm partition {job.partition} ({said}){start}. Job {job.id}, as of {clock(now, now)}."


def _expected_start(job: Job, this_pass: Pass) -> float | None:
    """When Slurm expects it to start, by the bridge's clock; None: it does not say, or that has passed."""
    starts = this_pass.from_slurm(job.starts) if job.starts is not None else None
    return starts if starts is not None and starts > this_pass.now else None


def waiting(this_pass: Pass, workload: Workload, pod: Pod, job: Job, note: str = "") -> None:
    """Say why it waits, and what else is to be said of it (`note`, a sentence)."""
    message = waits(job, this_pass) + (f" {note}" if note else "")
    essence = (str(job.id), job.reason or "None", job.partition, job.planned_nodes, note)
    starts = _expected_start(job, this_pass)
    reason_key = this_pass.world.config.pending_reason or names.PENDING
    told = workload.told.get(pod.uid)
    is_first = told is None or told.essence[:1] != essence[:1]
    event = names.SUBMITTED if is_first else names.PENDING
    say(this_pass, workload, pod, reason_key, message, essence=essence, starts=starts, event=event)
