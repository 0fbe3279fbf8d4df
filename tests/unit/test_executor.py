"""Every action ends in one answer to "did it happen?", and every failure of a far side has its outcome."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pytest

from bridge.errors import (
    Conflict,
    ContractError,
    Exhausted,
    Invalid,
    NotFound,
    NoUserToken,
    RemoteError,
    Unanswered,
    Unauthorized,
    Unreachable,
)
from bridge.executor import MAX_EVENTS_WAITING, Executor
from bridge.guard import Guard
from scheduler import actions as act
from scheduler import names
from scheduler.actions import Action, Outcome
from scheduler.events import ActionEnded, ClaimsRead, Event, JobRead, OwnerRead
from scheduler.model.kubernetes import Claim, Owner, Pod, Undecoded
from scheduler.model.slurm import Grant, Job, JobSpec, NodeSpec
from tests.builders import OWNER, grant, job_of, pod, slurm_node
from tests.patience import PATIENCE_S

SPEC = JobSpec("hpc/train~k00000000.0000000000000000", "alice", 1, 100)
HET = replace(SPEC, cpus_per_task=8, parts=(SPEC,))
POD = ("key", "uid", "hpc", "train")
BIND = act.BindPod(*POD, "x1", 17, {}, "why", message="Bound to x1.")
EVICT = act.DeletePod(*POD, "Slurm job 17 ended: CANCELLED")
NODE = NodeSpec("x1", "198.51.100.7", 63, 510_976)
SHOW = act.SetNodeCondition("x1", "uid", False, "SlurmNodeDrained", "Slurm node x1 is drained: slurm-bridge: why.")
REPORT = act.SetPodCondition(*POD, "SlurmJobPending", "Waiting.", event="SlurmJobPending")


class FarEnd:
    """Both servers: records the calls, and answers, or fails, as the test sets."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.called: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        async def call(*given: Any, **named: Any) -> Any:
            self.called.append((name, *given, *named.values()))
            answer = self.answers.get(name)
            if isinstance(answer, BaseException):
                raise answer
            if isinstance(answer, asyncio.Event):
                await answer.wait()
            return answer

        return call


def executor(told: list[Event] | None = None, **answers: Any) -> tuple[Executor, FarEnd]:
    far = FarEnd(**answers)
    clock = itertools.count(100)
    emit = (told if told is not None else []).append
    made: Any = Executor(far, far, emit, lambda: float(next(clock)), far.poll_nodes)
    return made, far


async def perform(action: Action, told: list[Event] | None = None, **answers: Any) -> tuple[ActionEnded, FarEnd]:
    made, far = executor(told, **answers)
    return await made.perform(action), far


async def test_an_allocation_comes_back_with_its_grant() -> None:
    ended, far = await perform(act.AllocateNow("key", SPEC, "why"), allocate_now=17, grant=grant(17))
    assert (ended.outcome, ended.job_id, ended.grant) == (Outcome.DONE, 17, grant(17))
    assert (ended.began, ended.at) == (100.0, 101.0)
    assert far.called == [("allocate_now", SPEC), ("grant", 17, "alice")]


async def test_a_grant_that_cannot_be_read_does_not_undo_the_allocation() -> None:
    lost = Unanswered("grant", "Slurm", "no answer")
    ended, _ = await perform(act.AllocateNow("key", SPEC, "why"), allocate_now=17, grant=lost)
    assert (ended.outcome, ended.job_id, ended.grant) == (Outcome.DONE, 17, None)


@pytest.mark.parametrize(("mark", "called"), [("k12345678", ["job"]), ("", ["job", "grant"])])
async def test_the_grant_of_another_bridges_job_is_not_read(mark: str, called: list[str]) -> None:
    told: list[Event] = []
    far: Any = FarEnd(job=job_of(pod("train"), 17), grant=grant(17))
    made = Executor(far, far, told.append, lambda: 100.0, far.poll_nodes, cluster=lambda: mark)
    await made.perform(act.ReadJob(17, "is it ours?"))
    assert [call for call, *_ in far.called] == called
    [read] = told
    assert isinstance(read, JobRead)
    assert (read.grant is not None) == ("grant" in called)


class Components(FarEnd):
    """A Slurm whose job 17 has a further component, 18."""

    async def grant(self, job_id: int, user: str) -> Grant:
        self.called.append(("grant", job_id, user))
        return grant(job_id)


async def test_a_heterogeneous_job_is_read_with_what_all_of_its_components_hold() -> None:
    told: list[Event] = []
    leader = job_of(pod("train"), 17, het_id=17, het_offset=0)
    leader = replace(leader, parts=(replace(leader, id=18, het_offset=1),))
    far: Any = Components(job=leader)
    await Executor(far, far, told.append, lambda: 100.0, far.poll_nodes).perform(act.ReadJob(17, "why"))
    [read] = told
    assert isinstance(read, JobRead)
    assert read.job == leader
    assert read.grant == replace(grant(17), parts=(grant(18),))
    assert far.called == [("job", 17), ("grant", 17, "alice"), ("grant", 18, "alice")]


@pytest.mark.parametrize(
    ("action", "call"),
    [
        (act.SubmitJob("key", SPEC, "why"), ("submit", SPEC)),
        (act.FindJobs("key", "name", "why"), ("find", "name")),
        (
            act.UpdateJob("key", 17, "alice", SPEC, frozenset({"nice"}), "why"),
            ("update", 17, "alice", SPEC, frozenset({"nice"})),
        ),
        (
            act.UpdateJob("key", 17, "alice", HET, frozenset({"nice"}), "why", component=1, component_id=18),
            ("update", 18, "alice", SPEC, frozenset({"nice"})),
        ),
        (act.NudgeScheduler("key", 17, "alice", "why"), ("nudge", 17, "alice")),
        (act.CancelJob("key", 17, "name", "alice", "why"), ("cancel", 17, "name", "alice")),
        (act.RecordEnd("key", 17, "alice", 3, "comment", "why"), ("record_end", 17, "alice", 3, "comment")),
        (BIND, ("bind", BIND)),
        (EVICT, ("delete_pod", EVICT)),
        (act.PollNodes("why"), ("poll_nodes",)),
        (act.RegisterNode(NODE, "why"), ("register_node", NODE)),
        (act.Reconfigure("why"), ("reconfigure",)),
        (SHOW, ("set_node_condition", SHOW)),
        (act.TaintNode("x1", "uid", "why"), ("taint_node", "x1", "uid")),
        (act.UnmarkNode("x1", "uid", "why"), ("unmark_node", "x1", "uid")),
        (REPORT, ("set_condition", REPORT)),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_each_action_is_one_call(action: Action, call: tuple[object, ...]) -> None:
    answers = {"submit": 17, "find": (17, 18), "cancel": True}
    ended, far = await perform(action, **answers)
    assert ended.outcome is Outcome.DONE
    assert far.called == [call]
    assert ended.job_id == (17 if isinstance(action, act.SubmitJob) else None)
    assert ended.found == ((17, 18) if isinstance(action, act.FindJobs) else ())


async def test_what_was_not_there_to_be_cancelled_is_read() -> None:
    told: list[Event] = []
    cancel = act.CancelJob("key", 17, "name", "alice", "why")
    ended, far = await perform(
        cancel, told, cancel=False, job=replace(job_of(pod(), 17), name="pretty"), grant=grant(17)
    )
    assert ended.outcome is Outcome.DONE
    assert [call[0] for call in far.called] == ["cancel", "job", "grant"]
    [read] = told
    assert isinstance(read, JobRead)
    assert read.began > ended.began, "it is newer than what was known when it was cancelled"


async def test_what_a_job_holds_that_its_user_renamed_is_read_for_its_workload() -> None:
    told: list[Event] = []
    job = replace(job_of(pod(), 17), name="pretty")
    await perform(act.ReadJob(17, "is it ours?"), told, job=job, grant=grant(17))
    await perform(act.ReadJob(17, "which nodes did Slurm grant?", "key"), told, job=job, grant=grant(17))
    assert [each.grant for each in told if isinstance(each, JobRead)] == [None, grant(17)]


@pytest.mark.parametrize(
    ("action", "call"),
    [
        (
            act.ChangeNode("x1", act.NodeChange.DRAIN, "slurm-bridge: why", slurm_node()),
            ("change_node", "x1", act.NodeChange.DRAIN, "slurm-bridge: why"),
        ),
        (act.RemoveNode("x1", "why", slurm_node()), ("remove_node", "x1")),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_node_is_looked_at_before_it_is_changed_and_left_as_an_admin_wants_it(
    action: Action, call: tuple[object, ...]
) -> None:
    ended, far = await perform(action, node=slurm_node())
    assert ended.outcome is Outcome.DONE
    assert far.called == [("node", "x1"), call]
    drained = replace(slurm_node(), states=frozenset({"IDLE", "DRAIN", "EXTERNAL"}), reason="fan broken")
    _, far = await perform(action, node=drained)
    assert far.called == [("node", "x1")]


def test_every_action_has_its_performer() -> None:
    assert set(Executor._PERFORMERS) == set(act.Action.__args__)


FAILURES: list[tuple[RemoteError, Outcome, bool]] = [
    (Invalid("submit", "Slurm", "bad account", 2045), Outcome.REFUSED, False),
    (NotFound("submit", "Slurm", "no such job", 2017), Outcome.REFUSED, False),
    (Conflict("bind", "Kubernetes", "changed", 409), Outcome.REFUSED, True),
    (Exhausted("submit", "Slurm", "too many jobs", 2057), Outcome.REFUSED, True),
    (Unauthorized("submit", "Slurm", "token", 1007), Outcome.REFUSED, True),
    (Unreachable("submit", "Slurm", "refused"), Outcome.UNREACHED, True),
    (Unanswered("submit", "Slurm", "no answer", 5004), Outcome.UNKNOWN, True),
    (ContractError("submit", "Slurm", "no JSON", 404), Outcome.UNKNOWN, True),
]


@pytest.mark.parametrize(("error", "outcome", "later"), FAILURES, ids=lambda value: type(value).__name__)
async def test_a_failure_is_an_outcome_with_words(error: RemoteError, outcome: Outcome, later: bool) -> None:
    ended, _ = await perform(act.SubmitJob("key", SPEC, "why"), submit=error)
    assert ended.outcome is outcome
    assert ended.refusal is not None
    assert (ended.refusal.number, ended.refusal.later) == (error.number, later)
    if not isinstance(error, Unauthorized):
        assert error.message in ended.refusal.message
    assert ended.refusal.message.endswith(".")
    assert ended.job_id is None


async def test_what_is_the_admins_to_mend_is_not_shown_to_the_user_in_detail() -> None:
    no = Unauthorized("submit", "Slurm", "token file /etc/slurm/token: expired 3 h ago", 1007)
    ended, _ = await perform(act.SubmitJob("key", SPEC, "why"), submit=no)
    assert ended.refusal is not None
    assert ended.refusal.message == (
        "Slurm does not let slurm-bridge do this (error 1007); its admin sees why in /readyz and the log."
    )


async def test_the_admin_sees_in_readyz_and_once_in_the_log_why_slurm_rejects_the_token(
    caplog: pytest.LogCaptureFixture,
) -> None:
    far = FarEnd(submit=Unauthorized("submit", "Slurm", "token file /etc/token: of a user who may do this?", 1007))
    now = [0.0]
    made: Any = Executor(far, far, print, lambda: now[0], far.poll_nodes)
    why = "Slurm: token file /etc/token: of a user who may do this (error 1007)."
    assert made.rejection() == ""
    for _ in range(2):
        await made.perform(act.SubmitJob("key", SPEC, "why"))
    assert [each.getMessage() for each in caplog.records] == [why]
    assert made.rejection() == why
    now[0] = 1000.0
    assert made.rejection() == ""


async def test_what_is_wrong_with_the_token_of_a_user_is_reported_on_that_users_pods() -> None:
    no = NoUserToken("submit", "Slurm", "slurm-bridge cannot act as Slurm user alice: no file. Put one there.", 401)
    ended, _ = await perform(act.SubmitJob("key", SPEC, "why"), submit=no)
    assert ended.refusal is not None
    assert (ended.outcome, ended.refusal.message, ended.refusal.later) == (Outcome.REFUSED, no.message, True)


async def test_a_job_whose_user_has_no_token_is_read_without_what_it_holds() -> None:
    told: list[Event] = []
    no = NoUserToken("grant", "Slurm", "slurm-bridge cannot act as Slurm user alice: no file.", 401)
    ended, _ = await perform(act.ReadJob(17, "why", "key"), told, job=job_of(pod("train"), 17), grant=no)
    [read] = told
    assert isinstance(read, JobRead)
    assert (read.job is not None, read.grant) == (True, None)
    assert (ended.outcome, ended.refusal is not None and ended.refusal.message) == (Outcome.REFUSED, no.message)


async def test_our_own_mistake_is_not_caught() -> None:
    with pytest.raises(ZeroDivisionError):
        await perform(act.SubmitJob("key", SPEC, "why"), submit=ZeroDivisionError())


async def test_if_errors_are_contained_the_outcome_of_the_failed_action_is_unknown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    far: Any = FarEnd(submit=ZeroDivisionError())
    guard = Guard(on=True)
    made = Executor(far, far, [].append, lambda: 100.0, far.poll_nodes, guard)
    for _ in range(2):
        ended = await made.perform(act.SubmitJob("key", SPEC, "why"))
        assert ended.outcome is Outcome.UNKNOWN
        assert ended.refusal is not None
        assert "ZeroDivision" not in ended.refusal.message
    assert guard.contained == {"action": 2}
    assert [bool(each.exc_info) for each in caplog.records] == [True, False]  # the traceback once


# --- reads come as events of their own, before the end ------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "answer", "granted"),
    [
        (job_of(pod(), 17), grant(17), grant(17)),
        (job_of(pod(), 17, "PENDING"), grant(17), None),
        (Job(17, "interactive", "carol", frozenset({"RUNNING"})), grant(17), None),
        (None, grant(17), None),
        (job_of(pod(), 17), NotFound("grant", "Slurm", "ended", 2017), None),
        (job_of(pod(), 17), Invalid("grant", "Slurm", "ended", 2021), None),
    ],
)
async def test_the_grant_is_read_of_jobs_that_hold_nodes_and_may_be_of_the_bridge(
    job: Job | None, answer: object, granted: Grant | None
) -> None:
    told: list[Event] = []
    ended, _ = await perform(act.ReadJob(17, "why"), told, job=job, grant=answer)
    assert ended.outcome is Outcome.DONE
    assert told == [JobRead(17, 100.0, 101.0, job, granted)]


async def test_a_read_that_failed_shows_nothing() -> None:
    told: list[Event] = []
    lost = Unanswered("grant", "Slurm", "no answer")
    ended, _ = await perform(act.ReadJob(17, "why"), told, job=job_of(pod(), 17), grant=lost)
    assert (ended.outcome, told) == (Outcome.UNKNOWN, [])


async def test_owners_and_claims_are_reported() -> None:
    told: list[Event] = []
    await perform(act.ReadOwner("hpc", OWNER, "why"), told, read_owner=Owner(OWNER))
    await perform(act.ReadClaims("key", "uid", "hpc", ("data",), "why"), told, read_claims=(Claim("data", True),))
    assert told == [OwnerRead(OWNER, Owner(OWNER), 101.0, "hpc"), ClaimsRead("uid", (Claim("data", True),), 101.0)]


async def test_a_claim_that_was_deleted_before_its_node_is_selected_is_reported_as_gone() -> None:
    """The request would be sent again and again, and the pod would say that its bind waits for a volume."""
    told: list[Event] = []
    claims = (Claim("data", False, problem="claim data does not exist"),)
    select = act.SelectVolumeNode("key", "uid", "hpc", ("data",), ("data",), "x1", "why")
    ended, _ = await perform(
        select, told, select_node=NotFound("select node", "Kubernetes", "gone"), read_claims=claims
    )
    assert ended.outcome == Outcome.DONE
    assert told == [ClaimsRead("uid", claims, 101.0)]


@pytest.mark.parametrize(
    ("now", "node"),
    [(pod(uid="uid", node="x1"), "x1"), (pod(uid="uid"), ""), (pod(uid="another", node="x1"), ""), (None, "")],
    ids=["stands there", "waits", "another incarnation", "gone"],
)
async def test_a_pod_that_is_read_shows_the_node_of_this_incarnation(now: Pod | None, node: str) -> None:
    ended, _ = await perform(act.ReadPod(*POD, "why"), read_pod=now)
    assert (ended.outcome, ended.node) == (Outcome.DONE, node)


# --- Kubernetes events: news, never in the way --------------------------------------------------------------------


async def posted(made: Executor) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await made.post_events()


async def test_a_completed_action_is_reported_as_an_event() -> None:
    made, far = executor()
    for action in (BIND, EVICT, act.FailByDeadline(*POD, "why it ended"), REPORT):
        await made.perform(action)
    far.called.clear()
    await posted(made)
    assert far.called == [
        ("post_event", "hpc", "train", "uid", "Scheduled", "Bound to x1.", 101.0, False),
        ("post_event", "hpc", "train", "uid", "SlurmJobEnded", "Slurm job 17 ended: CANCELLED", 104.0, True),
        ("post_event", "hpc", "train", "uid", "SlurmJobEnded", "why it ended", 107.0, True),
        ("post_event", "hpc", "train", "uid", "SlurmJobPending", "Waiting.", 110.0, False),
    ]


async def test_events_wait_for_pods_on_their_way_to_a_node() -> None:
    arrived = asyncio.Event()
    made, far = executor(bind=arrived)
    async with asyncio.TaskGroup() as group:
        await made.perform(REPORT)
        binding = group.create_task(made.perform(BIND))
        await asyncio.sleep(0)  # it is sent
        poster = group.create_task(made.post_events())
        for _ in range(5):
            await asyncio.sleep(0)
        assert [call[0] for call in far.called] == ["set_condition", "bind"]
        arrived.set()
        await binding
        for _ in range(5):
            await asyncio.sleep(0)
        assert [call[0] for call in far.called] == ["set_condition", "bind", "post_event", "post_event"]
        poster.cancel()


@pytest.mark.parametrize(
    "error",
    [
        Conflict("write", "Kubernetes", "changed", 409),
        Unreachable("write", "Kubernetes", "refused"),
        Unanswered("write", "Kubernetes", "no answer"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize(
    ("action", "call"),
    [
        (BIND, "bind"),
        (EVICT, "delete_pod"),
        (act.FailByDeadline(*POD, "why"), "fail_by_deadline"),
        (act.EvictPod(*POD, "why"), "evict"),
        (act.SetJobCondition(*POD, "SlurmJobEndsSoon", "120 s are left."), "set_job_condition"),
        (REPORT, "set_condition"),
        (replace(REPORT, condition="", annotations={names.JOB_ID: "18"}), "write_annotations"),
        (SHOW, "set_node_condition"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
async def test_what_failed_or_may_have_failed_is_not_announced(action: Action, call: str, error: RemoteError) -> None:
    made, far = executor(**{call: error})
    await made.perform(action)
    await posted(made)
    assert [each[0] for each in far.called] == [call]


async def test_a_report_may_be_an_event_alone_or_a_condition_alone() -> None:
    made, far = executor()
    await made.perform(act.SetPodCondition(*POD, "", "news", event="SlurmJobEnded"))
    assert far.called == []
    await made.perform(act.SetPodCondition(*POD, "SlurmJobPending", "quiet"))
    await posted(made)
    assert [call[0] for call in far.called] == ["set_condition", "post_event"]


async def test_events_that_cannot_be_posted_are_counted_and_dropped() -> None:
    """O1."""
    dropped: list[None] = []
    far: Any = FarEnd(post_event=Unreachable("event", "Kubernetes", "refused"))
    made = Executor(far, far, print, lambda: 100.0, far.poll_nodes, on_dropped=lambda: dropped.append(None))
    for _ in range(MAX_EVENTS_WAITING + 5):
        await made.perform(REPORT)
    assert len(dropped) == 5
    await posted(made)
    assert len(dropped) == MAX_EVENTS_WAITING + 5


# --- what cannot be decoded -------------------------------------------------------------------------------------------


async def test_an_object_that_cannot_be_decoded_is_reported_once_for_each_reason() -> None:
    made, far = executor()
    pod_, node_ = Undecoded("pod", "hpc", "odd", "u-1", "nonsense"), Undecoded("node", "", "x1", "n-1", "nonsense")
    for what in (pod_, pod_, node_, replace(pod_, why="worse"), Undecoded("namespace", "", "hpc", "1", "nonsense")):
        made.post_undecoded(what)
    made.post_undecoded(Undecoded("pod", "", "", "", "nonsense"))  # nobody knows which
    posting = asyncio.create_task(made.post_events())
    async with asyncio.timeout(PATIENCE_S):
        while len(far.called) < 3:  # noqa: ASYNC110 -- the far end has no event to wait for
            await asyncio.sleep(0)
    posting.cancel()
    assert [each[1:5] for each in far.called] == [
        ("hpc", "odd", "u-1", "SlurmBridgeCannotRead"),
        ("", "x1", "n-1", "SlurmBridgeCannotRead"),
        ("hpc", "odd", "u-1", "SlurmBridgeCannotRead"),
    ]
    assert far.called[0][5] == (
        "slurm-bridge cannot read this pod: nonsense. Until it can, it does nothing to the pod, and its last known state "
        "counts. Correct or recreate the pod."
    )


@pytest.mark.parametrize("leads", [[False, False], [True, False]], ids=["before it began", "meanwhile"])
async def test_an_action_under_a_lost_lease_ends_as_unknown(leads: list[bool]) -> None:
    far = FarEnd()
    answers = iter(leads)
    made: Any = Executor(far, far, lambda _: None, lambda: 1.0, far.poll_nodes, None, lambda: next(answers))
    ended = await made.perform(BIND)
    assert ended.outcome is Outcome.UNKNOWN
    assert "does not lead any more" in ended.refusal.message
    assert bool(far.called) is leads[0]
