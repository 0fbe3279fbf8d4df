"""A pod as its user sees it: the scheduler's `Pod`, with the times that Kubernetes shows.

A user of a namespace may read pods and their events, so nothing else is read.  Slurm is not asked.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from bridge.kube.codec import Codec, codec
from bridge.kube.objects import epoch
from bridge.kube.pods import to_pod
from bridge.kube.wire import Int, PodMeta, PodSpec, PodStatus, Time, Wire, WirePod
from scheduler import names
from scheduler.model.kubernetes import Pod
from scheduler.rules.pod_state import pod_state
from scheduler.rules.status import brief
from scheduler.translate.grouping import Group, group_of


@dataclass(frozen=True, slots=True)
class Run:
    """The last run of one container.

    initial       True for an init container
    began, ended  epoch seconds; None: not yet, or not known
    exit_code     None: the run has not ended
    reason        kubelet's reason for the end; "": none
    """

    container: str
    initial: bool
    began: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """One pod.

    turned   type of a condition that is True to when it became True, epoch seconds
    runs     of the init containers, then of the other containers
    """

    pod: Pod
    turned: dict[str, float]
    runs: tuple[Run, ...] = ()

    @property
    def ended(self) -> float | None:
        """When the pod ended, epoch seconds; None: the pod has not ended, or no container shows a time."""
        if not self.pod.finished:
            return None
        return max((run.ended for run in self.runs if run.ended is not None), default=None)

    @property
    def never_ran(self) -> bool:
        """True if the pod was deleted before it had a node.  Its condition shows a job that was cancelled."""
        return self.pod.deleting_at is not None and not self.pod.node

    @property
    def job(self) -> int | None:
        """The id of the pod's Slurm job: from the annotation of the bind, else from the condition; None: neither has it."""
        shown = self.pod.annotations.get(names.JOB_ID, "")
        if shown.isdecimal() and len(shown) <= len(str(2**32)):
            return int(shown)
        if self.pod.scheduled is None or self.never_ran:
            return None
        return names.shown_job(self.pod.scheduled.message)

    @property
    def gang(self) -> str:
        """The name of the pod's gang; "": the pod is a workload by itself."""
        group = group_of(self.pod)
        return group.name if isinstance(group, Group) else ""


# --- as the API server has it ---------------------------------------------------------------------------------------


class _Condition(Wire):
    type: str
    status: str
    last_transition_time: Time | None = None


class _Ended(Wire):
    started_at: Time | None = None
    finished_at: Time | None = None
    exit_code: Int = 0
    reason: str | None = None


class _Running(Wire):
    started_at: Time | None = None


class _State(Wire):
    running: _Running | None = None
    terminated: _Ended | None = None


class _Container(Wire):
    name: str
    state: _State | None = None


class _Status(Wire):
    conditions: list[_Condition] | None = None
    container_statuses: list[_Container] | None = None
    init_container_statuses: list[_Container] | None = None


class _Pod(Wire):
    """A pod whose status is decoded twice: for the scheduler's `Pod`, and for the times."""

    metadata: PodMeta
    spec: PodSpec
    status: msgspec.Raw = msgspec.Raw(b"{}")


_STATUS = msgspec.json.Decoder(_Status)
_POD_STATUS = msgspec.json.Decoder(PodStatus)


def _seen(wire: _Pod) -> Seen:
    status = _STATUS.decode(wire.status)
    turned = {
        condition.type: at
        for condition in status.conditions or ()
        if condition.status == "True" and (at := epoch(condition.last_transition_time)) is not None
    }
    runs = [_run(container, initial=True) for container in status.init_container_statuses or ()]
    runs += [_run(container, initial=False) for container in status.container_statuses or ()]
    pod = to_pod(WirePod(wire.metadata, wire.spec, _POD_STATUS.decode(wire.status)))
    return Seen(pod, turned, tuple(runs))


def _run(wire: _Container, *, initial: bool) -> Run:
    state = wire.state or _State()
    if state.running is not None:
        return Run(wire.name, initial, epoch(state.running.started_at))
    if (over := state.terminated) is not None:
        return Run(
            wire.name, initial, epoch(over.started_at), epoch(over.finished_at), over.exit_code, over.reason or ""
        )
    return Run(wire.name, initial)


PODS: Codec[Seen] = codec("pod", _Pod, _seen)


# --- its state in a word and in a sentence --------------------------------------------------------------------------

UNSEEN = "slurm-bridge has written nothing about the pod yet."
IF_UNSEEN = (
    f"If that lasts: is the bridge running, and does the namespace have the label {names.MANAGED_LABEL}=true? Its admin "
    "knows."
)
NEVER_RAN = "It is being deleted, and was never on a node. It is gone when its finalizers are removed."
GATED = "The pod has scheduling gates. The bridge asks Slurm for nothing before they are removed."


def state_of(seen: Seen) -> str:
    """The state of a pod in one word."""
    pod = seen.pod
    return pod_state(pod, pod.node, pod.scheduled.reason if pod.scheduled is not None else "")


def briefly(seen: Seen) -> str:
    """The reason that `why` returns, short enough for a line of a list."""
    return brief(why(seen))


def why(seen: Seen) -> str:
    """Why the pod is in its state, in the words of the bridge and of kubelet; "": neither says anything."""
    pod = seen.pod
    if pod.finished:
        code = f" with exit code {pod.exit_code}" if pod.exit_code is not None else ""
        reason = f" ({pod.end_reason})" if pod.end_reason else ""
        return f"It ended{code}{reason}."
    if seen.never_ran:
        return NEVER_RAN
    if not pod.node:
        if pod.gated:
            return GATED
        return pod.scheduled.message if pod.scheduled is not None and pod.scheduled.message else UNSEEN
    said = pod.job_condition.message if pod.job_condition is not None else ""
    return " ".join(filter(None, (said, pod.crashes or pod.waits)))
