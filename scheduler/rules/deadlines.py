"""When a pod gets SIGTERM before Slurm ends its job at the time limit (S4b).

The pod needs its terminationGracePeriodSeconds for a checkpoint, so SIGTERM comes so early that the grace is over
`end_lead_s` before Slurm's end; earlier if the annotation `signal` asks for it, as sbatch's --signal does.  A tenant can
write a grace of centuries, or one that is longer than the job.  So SIGTERM comes at most `end_lead_max_s` before the end, and
not in the first half of the job's time.

A deadline that kubelet was given can be lowered, never raised.  So it is given shortly before SIGTERM is due, and if an
admin extends the job until then, SIGTERM comes later, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler import names
from scheduler.model.kubernetes import Owner, Pod
from scheduler.translate import values
from scheduler.tuning import Tuning

BEFORE_SIGTERM_S = 60.0  # a restart with its quiet period, and a read of the job, take less


@dataclass(frozen=True, slots=True)
class Lead:
    """The time before Slurm's end at which a pod gets SIGTERM.

    seconds  from SIGTERM to Slurm's end
    cut      why that is less than the pod's grace or its annotation asks for, in words; "": it is not less
    """

    seconds: float
    cut: str = ""


def lead_of(pod: Pod, owners: Sequence[Owner], length_s: float | None, tuning: Tuning) -> Lead:
    """When the pod gets SIGTERM.  length_s: from the job's start to its end; None: not known"""
    asked = max(pod.grace_s, signal_s(pod, owners))
    wanted = max(pod.grace_s + tuning.end_lead_s, asked)
    most, why = tuning.end_lead_max_s, "more than the admin allows (tuning: end_lead_max_s)"
    if length_s is not None and length_s / 2 < most:
        most, why = length_s / 2, "more than half of the job's time"
    seconds = max(tuning.end_lead_s, min(wanted, most))
    return Lead(seconds, f"the pod asks for {asked} s, which is {why}" if seconds < asked else "")


def signal_s(pod: Pod, owners: Sequence[Owner]) -> int:
    """Seconds of the annotation `signal` of the pod, otherwise of its nearest owner that has one; 0: no valid one.

    Only the bridge uses the annotation, not the job, so it may be edited while the pod runs.
    """
    sources: tuple[Pod | Owner, ...] = (pod, *owners)
    for source in sources:
        if (signal := source.annotations.get(names.PREFIX + names.SIGNAL)) is not None:
            try:
                return values.signal_s(signal)
            except values.Unreadable:  # it could be read when the job was made
                return 0
    return 0


def notice_s(lead_s: float, tuning: Tuning) -> float:
    """Seconds before the end at which the pod is warned and kubelet gets the deadline, always well before SIGTERM."""
    return max(tuning.end_notice_s, lead_s + min(BEFORE_SIGTERM_S, max(0.0, tuning.end_notice_s - tuning.end_lead_s)))
