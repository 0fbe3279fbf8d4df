"""Performs actions, and turns each error of a call to Kubernetes or Slurm into the outcome of its action.

Every action ends in exactly one ActionEnded, whose outcome says whether the action took effect (errors.py).  Before that,
most reads emit an event with what was read.  Nothing is decided or repeated here: the scheduler decides when to retry.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from bridge.errors import (
    Conflict,
    Exhausted,
    Invalid,
    NotFound,
    NoUserToken,
    Refused,
    RemoteError,
    Unauthorized,
    Unreachable,
    said,
)
from bridge.guard import Guard
from bridge.kube.client import KubeClient
from bridge.slurm.client import SlurmClient
from bridge.slurm.limits import known_limits
from bridge.slurm.transport import SIDE as SLURM
from scheduler import actions as act
from scheduler import names
from scheduler.actions import Action, Outcome
from scheduler.events import ActionEnded, ClaimsRead, Event, JobRead, LimitsRead, OwnerRead
from scheduler.model.kubernetes import Undecoded
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Grant, Job, holds_nodes
from scheduler.model.text import line
from scheduler.state.confirmation import event_of, has_event
from scheduler.state.in_flight import Announced

log = logging.getLogger("slurm-bridge")

# Kubernetes events are not needed for correctness: each waits up to EVENT_PATIENCE_S while urgent actions (binds, deletions)
# are in flight, and is dropped if too many wait (O1).
MAX_EVENTS_WAITING = 10_000
EVENT_PATIENCE_S = 1.0
MAX_UNDECODED_POSTED = 4096
REJECTION_SHOWN_S = 120.0  # twice the longest pause between two attempts

OWN_ERROR = Refusal(
    names.REFUSED, "slurm-bridge had an internal error; the admin finds it in the log of slurm-bridge.", later=True
)
NO_LONGER_LEADS = Refusal(
    names.REFUSED, "this replica of slurm-bridge does not lead any more; the leader goes on.", later=True
)
QueuedEvent = tuple[float, str, str, str, str, str, bool]  # time, namespace, name, uid, reason, message, warning


class Executor:
    """Performs actions: `perform` performs one action and returns its outcome.

    emit         receives what was read
    poll_nodes   polls the nodes of Slurm now
    guard        reports the bridge's own errors
    leads        returns True if this replica may act; if not, before or after an action, the action's outcome is unknown
    on_dropped   called for each Kubernetes event that is not posted
    cluster      returns the mark in the names of the bridge's own jobs; "": not known yet
    """

    def __init__(
        self,
        kube: KubeClient,
        slurm: SlurmClient,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        poll_nodes: Callable[[], Awaitable[None]],
        guard: Guard | None = None,
        leads: Callable[[], bool] = lambda: True,
        on_dropped: Callable[[], None] = lambda: None,
        cluster: Callable[[], str] = lambda: "",
    ) -> None:
        self._guard = guard or Guard()
        self._cluster = cluster
        self._leads = leads
        self._kube = kube
        self._slurm = slurm
        self._emit = emit
        self._clock = clock
        self._poll_nodes = poll_nodes
        self._queued_events: asyncio.Queue[QueuedEvent] = asyncio.Queue(MAX_EVENTS_WAITING)
        self._on_dropped = on_dropped
        self._undecoded_posted: dict[str, str] = {}  # by UID: why
        self._urgent_in_flight = 0
        self._none_urgent = asyncio.Event()
        self._none_urgent.set()
        self._rejection, self._rejected_at = "", float("-inf")

    def rejection(self) -> str:
        """Why Slurm rejected the token of an action in the last minutes, a sentence for the admin; "": it did not."""
        return self._rejection if self._clock() - self._rejected_at < REJECTION_SHOWN_S else ""

    def _note_rejection(self, error: RemoteError) -> None:
        """Log why Slurm rejected the token, once as long as the reason stays the same.

        Messages on pods refer to the log and to /readyz.
        """
        why = f"Slurm: {error.message.rstrip(' .?!')} (error {error.number})."
        if why != self.rejection():
            log.warning("%s", why)
        self._rejection, self._rejected_at = why, self._clock()

    async def perform(self, action: Action) -> ActionEnded:
        """Perform the action and return its outcome.  An error of Kubernetes or Slurm is an outcome, and is not raised."""
        began = self._clock()
        ended = await self._performed(action, began) if self._leads() else None
        if ended is None or not self._leads():  # another replica may have acted on the same facts meanwhile
            return ActionEnded(action, Outcome.UNKNOWN, began, self._clock(), refusal=NO_LONGER_LEADS)
        return ended

    async def _performed(self, action: Action, began: float) -> ActionEnded:
        self._count_urgent(action.urgent)
        try:
            ended = await self._PERFORMERS[type(action)](self, action, began)
        except RemoteError as error:
            if _is_token_rejected(error):
                self._note_rejection(error)
            return ActionEnded(action, _outcome(error), began, self._clock(), refusal=_refusal(error))
        except Exception as error:  # noqa: BLE001 - contained to the action, or raised
            self._guard.caught(error, "action", f"{type(action).__name__}: {action.reason}")
            # It is not known how much of the action took effect.
            return ActionEnded(action, Outcome.UNKNOWN, began, self._clock(), refusal=OWN_ERROR)
        finally:
            self._count_urgent(-action.urgent)
        return ended or ActionEnded(action, Outcome.DONE, began, self._clock())

    def _count_urgent(self, more: int) -> None:
        """Count the urgent actions in flight.  While there are any, events wait."""
        self._urgent_in_flight += more
        if self._urgent_in_flight:
            self._none_urgent.clear()
        else:
            self._none_urgent.set()

    async def post_events(self) -> None:
        """Post the queued Kubernetes events, one after the other; each waits a while for urgent actions.  Never returns."""
        while True:
            at, namespace, name, uid, reason, message, warning = await self._queued_events.get()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVENT_PATIENCE_S):
                    await self._none_urgent.wait()
            try:
                await self._kube.post_event(namespace, name, uid, reason, message, at, warning=warning)
            except RemoteError:
                self._on_dropped()  # the call's own metric counts it, too; an event is not sent again
            except Exception as error:  # noqa: BLE001 - contained to the event, or raised
                self._guard.caught(error, "task", f"event {reason} of {namespace}/{name}")
                self._on_dropped()

    def _announce(self, action: Announced) -> None:
        """Queue the event of an action that the server confirmed, if the action has one.

        Not called if no answer came: then the scheduler announces the action once it has proof (confirmation.py).
        """
        if not has_event(action):
            return
        reason, message, warning = event_of(action)
        self._queue(action.namespace, action.name, action.uid, reason, message, warning)

    def _queue(self, namespace: str, name: str, uid: str, reason: str, message: str, warning: bool) -> None:
        """Queue an event to be posted; namespace "": it is about the node of that name."""
        try:
            self._queued_events.put_nowait((self._clock(), namespace, name, uid, reason, line(message), warning))
        except asyncio.QueueFull:
            self._on_dropped()

    def post_undecoded(self, what: Undecoded) -> None:
        """Queue an event on an object that cannot be decoded, once for each reason."""
        if not what.name or what.kind not in ("pod", "node") or self._undecoded_posted.get(what.uid) == what.why:
            return
        self._undecoded_posted[what.uid] = what.why
        while len(self._undecoded_posted) > MAX_UNDECODED_POSTED:
            del self._undecoded_posted[next(iter(self._undecoded_posted))]
        message = (
            f"slurm-bridge cannot read this {what.kind}: {what.why}. Until it can, it does nothing to the "
            f"{what.kind}, and its last known state counts. Correct or recreate the {what.kind}."
        )
        self._queue(what.namespace, what.name, what.uid, names.UNREADABLE, message, True)

    # --- Slurm ----------------------------------------------------------------------------------------------------

    async def _allocate_now(self, action: act.AllocateNow, began: float) -> ActionEnded:
        job_id = await self._slurm.allocate_now(action.spec)
        grant: Grant | None = None
        with contextlib.suppress(RemoteError):  # the job exists; the scheduler reads its grant again
            grant = await self._slurm.grant(job_id, action.spec.user)
        return ActionEnded(action, Outcome.DONE, began, self._clock(), job_id=job_id, grant=grant)

    async def _submit(self, action: act.SubmitJob, began: float) -> ActionEnded:
        job_id = await self._slurm.submit(action.spec)
        return ActionEnded(action, Outcome.DONE, began, self._clock(), job_id=job_id)

    async def _read_job(self, action: act.ReadJob, began: float) -> None:
        job = await self._slurm.job(action.job_id)
        grant: Grant | None = None
        no_token: NoUserToken | None = None
        if job is not None and action.grant and holds_nodes(job.states) and self._may_be_ours(job, action):
            try:
                grant = await self._grant_of(job)
            except (NotFound, Invalid):
                pass  # it is suspended (Slurm facts 2), or it ended between the calls: the next read shows that
            except NoUserToken as error:
                no_token = error
        self._emit(JobRead(action.job_id, began, self._clock(), job, grant))
        if no_token is not None:
            raise no_token

    def _may_be_ours(self, job: Job, action: act.ReadJob) -> bool:
        """True if the job has a name of this bridge, or is read for a workload, whose job may have been renamed by its user.

        The grant of another bridge's job says nothing to this one.
        """
        named = names.parse_job_name(job.name)
        return bool(action.key) or (named is not None and named[0] == (self._cluster() or named[0]))

    async def _grant_of(self, job: Job) -> Grant:
        """The grant of the job and of its further components.  Raises Invalid if one of them has no nodes."""
        grant = await self._slurm.grant(job.id, job.user)
        parts = [await self._slurm.grant(part.id, job.user) for part in job.parts]
        return replace(grant, parts=tuple(parts)) if parts else grant

    async def _find_jobs(self, action: act.FindJobs, began: float) -> ActionEnded:
        found = await self._slurm.find(action.name)
        return ActionEnded(action, Outcome.DONE, began, self._clock(), found=found)

    async def _read_limits(self, action: act.ReadLimits, began: float) -> None:
        self._emit(LimitsRead(action.of, await known_limits(self._slurm, action.of, began)))

    async def _update_job(self, action: act.UpdateJob, began: float) -> None:
        job_id = action.job_id if action.component_id is None else action.component_id
        component = (action.spec, *action.spec.parts)[action.component]
        await self._slurm.update(job_id, action.user, component, action.changes)

    async def _nudge(self, action: act.NudgeScheduler, began: float) -> None:
        await self._slurm.nudge(action.job_id, action.user)

    async def _cancel_job(self, action: act.CancelJob, began: float) -> None:
        if not await self._slurm.cancel(action.job_id, action.name, action.user):
            # No live job has this id and this name: it has ended, or was renamed (docs/decisions/0003).
            await self._read_job(act.ReadJob(action.job_id, action.reason, action.key), self._clock())

    async def _record_end(self, action: act.RecordEnd, began: float) -> None:
        await self._slurm.record_end(action.job_id, action.user, action.exit_code, action.comment)

    async def _poll_nodes_now(self, action: act.PollNodes, began: float) -> None:
        await self._poll_nodes()

    async def _register_node(self, action: act.RegisterNode, began: float) -> None:
        await self._slurm.register_node(action.spec)

    async def _change_node(self, action: act.ChangeNode, began: float) -> None:
        if act.is_as_found(action, await self._slurm.node(action.name)):  # otherwise the next poll shows what changed
            await self._slurm.change_node(action.name, action.change, action.reason)

    async def _remove_node(self, action: act.RemoveNode, began: float) -> None:
        if act.is_as_found(action, await self._slurm.node(action.name)):
            await self._slurm.remove_node(action.name)

    async def _reconfigure(self, action: act.Reconfigure, began: float) -> None:
        await self._slurm.reconfigure()

    # --- Kubernetes -----------------------------------------------------------------------------------------------

    async def _bind(self, action: act.BindPod, began: float) -> None:
        await self._kube.bind(action)
        self._announce(action)

    async def _delete_pod(self, action: act.DeletePod, began: float) -> None:
        await self._kube.delete_pod(action)
        self._announce(action)

    async def _fail_by_deadline(self, action: act.FailByDeadline, began: float) -> None:
        await self._kube.fail_by_deadline(action)
        self._announce(action)

    async def _set_deadline(self, action: act.SetDeadline, began: float) -> None:
        await self._kube.set_deadline(action)  # the pod's condition was set before

    async def _evict_pod(self, action: act.EvictPod, began: float) -> None:
        await self._kube.evict(action)
        self._announce(action)

    async def _set_job_condition(self, action: act.SetJobCondition, began: float) -> None:
        await self._kube.set_job_condition(action)
        self._queue(action.namespace, action.name, action.uid, action.condition, action.message, action.warning)

    async def _set_pod_condition(self, action: act.SetPodCondition, began: float) -> None:
        if action.condition:
            await self._kube.set_condition(action)
        if action.annotations is not None:
            await self._kube.write_annotations(action.namespace, action.name, action.uid, action.annotations)
        if action.event:
            self._queue(action.namespace, action.name, action.uid, action.event, action.message, action.warning)

    async def _restore_keys(self, action: act.RestoreKeys, began: float) -> None:
        await self._kube.write_annotations(action.namespace, action.name, action.uid, action.annotations)
        if action.say:
            self._queue(action.namespace, action.name, action.uid, names.PUT_BACK, action.reason, warning=True)

    async def _set_node_condition(self, action: act.SetNodeCondition, began: float) -> None:
        await self._kube.set_node_condition(action)
        self._queue("", action.node, action.uid, action.condition, action.message, action.warning)

    async def _taint_node(self, action: act.TaintNode, began: float) -> None:
        await self._kube.taint_node(action.node, action.uid)

    async def _unmark_node(self, action: act.UnmarkNode, began: float) -> None:
        await self._kube.unmark_node(action.node, action.uid)

    async def _read_owner(self, action: act.ReadOwner, began: float) -> None:
        owner = await self._kube.read_owner(action.ref, action.namespace)
        self._emit(OwnerRead(action.ref, owner, self._clock(), action.namespace))

    async def _read_pod(self, action: act.ReadPod, began: float) -> ActionEnded:
        pod = await self._kube.read_pod(action.namespace, action.name)
        node = pod.node if pod is not None and pod.uid == action.uid else ""
        return ActionEnded(action, Outcome.DONE, began, self._clock(), node=node)

    async def _select_volume_node(self, action: act.SelectVolumeNode, began: float) -> None:
        for claim in action.waiting:
            with contextlib.suppress(NotFound):  # the read below shows that the claim is gone
                await self._kube.select_node(action.namespace, claim, action.node)
        await self._read_claims(act.ReadClaims(action.key, action.uid, action.namespace, action.claims, ""), began)

    async def _read_claims(self, action: act.ReadClaims, began: float) -> None:
        claims = await self._kube.read_claims(action.namespace, action.claims)
        self._emit(ClaimsRead(action.uid, claims, self._clock()))

    _PERFORMERS: ClassVar[Mapping[type, Callable[[Executor, Any, float], Awaitable[ActionEnded | None]]]] = {
        act.AllocateNow: _allocate_now,
        act.SubmitJob: _submit,
        act.ReadJob: _read_job,
        act.FindJobs: _find_jobs,
        act.ReadLimits: _read_limits,
        act.UpdateJob: _update_job,
        act.NudgeScheduler: _nudge,
        act.CancelJob: _cancel_job,
        act.RecordEnd: _record_end,
        act.BindPod: _bind,
        act.DeletePod: _delete_pod,
        act.FailByDeadline: _fail_by_deadline,
        act.SetDeadline: _set_deadline,
        act.EvictPod: _evict_pod,
        act.SetJobCondition: _set_job_condition,
        act.SetPodCondition: _set_pod_condition,
        act.RestoreKeys: _restore_keys,
        act.ReadOwner: _read_owner,
        act.ReadClaims: _read_claims,
        act.SelectVolumeNode: _select_volume_node,
        act.ReadPod: _read_pod,
        act.PollNodes: _poll_nodes_now,
        act.RegisterNode: _register_node,
        act.ChangeNode: _change_node,
        act.RemoveNode: _remove_node,
        act.Reconfigure: _reconfigure,
        act.SetNodeCondition: _set_node_condition,
        act.TaintNode: _taint_node,
        act.UnmarkNode: _unmark_node,
    }


def _outcome(error: RemoteError) -> Outcome:
    """The outcome that the error proves.  Unanswered and ContractError prove nothing: the outcome is unknown."""
    if isinstance(error, Refused):
        return Outcome.REFUSED
    return Outcome.UNREACHED if isinstance(error, Unreachable) else Outcome.UNKNOWN


def _is_token_rejected(error: RemoteError) -> bool:
    """True if Slurm rejected the bridge's own token, which is the admin's concern, not the user's."""
    return isinstance(error, Unauthorized) and not isinstance(error, NoUserToken) and error.side == SLURM


def _refusal(error: RemoteError) -> Refusal:
    later = isinstance(error, Exhausted | Unauthorized | Conflict) or not isinstance(error, Refused)
    retry_after_s = error.retry_after_s if isinstance(error, Exhausted) else None
    if not isinstance(error, Refused):
        return Refusal(names.REFUSED, said(error), error.number, later=later)
    number = f" (error {error.number})" if error.number else ""
    message = f"{error.side} refused it: {error.message.rstrip(' .?!')}{number}."
    if isinstance(error, NoUserToken):
        message = error.message
    elif _is_token_rejected(error):
        message = f"Slurm does not let slurm-bridge do this{number}; its admin sees why in /readyz and the log."
    return Refusal(names.REFUSED, message, error.number, later=later, retry_after_s=retry_after_s)
