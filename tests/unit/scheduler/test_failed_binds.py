"""Binds that fail: what counts against a grant, and what a running gang has to fear from it (S11, W5, W9)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import (
    Action,
    AllocateNow,
    BindPod,
    CancelJob,
    Outcome,
    ReadJob,
    ReadPod,
    SetPodCondition,
    SubmitJob,
)
from scheduler.events import ClaimsRead, OutageBegan, OutageEnded, PolicyChanged, Side
from scheduler.model.kubernetes import Claim, Pod, PodPhase
from scheduler.model.slurm import Job
from scheduler.policy.rules import Policy
from scheduler.state.phase import Phase
from scheduler.state.placeholder import MAX_BIND_FAILURES
from tests.builders import START, Story, grant, job_of, key_of, pod
from tests.unit.scheduler.test_gangs import granted, member, runs

NOW = START + 60
TRAIN = pod("train")


class Servers:
    """Answers every action at once.  binds: how the API server takes them now; jobs: what was made, and its state."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.binds: tuple[Outcome, int] = (Outcome.DONE, 0)
        self.jobs: dict[int, str] = {}
        self.seen: Counter[type] = Counter()
        self.release_messages: list[str] = []
        self.said: list[str] = []

    def pass_at(self, at: float) -> None:
        for action in self.story.decides(at):
            self.seen[type(action)] += 1
            self.answer(action, at)

    def answer(self, action: Action, at: float) -> None:
        story = self.story
        match action:
            case AllocateNow() | SubmitJob():
                job_id = 17 + len(self.jobs)
                self.jobs[job_id] = "RUNNING"
                story.ended(action, at=at, job_id=job_id, grant=grant(job_id))
            case ReadJob():
                read = job_of(TRAIN, action.job_id, self.jobs[action.job_id])
                story.reads(read, at=at, granted=grant(action.job_id))
                story.ended(action, at=at)
            case BindPod():
                outcome, number = self.binds
                answer = {"number": number} if outcome is Outcome.REFUSED else {}
                story.ended(action, outcome, at=at, **answer)
            case CancelJob():
                self.release_messages.append(action.reason)
                self.jobs[action.job_id] = "CANCELLED"
                story.ended(action, at=at)
            case SetPodCondition():
                self.said.append(action.message)
                story.ended(action, at=at)
            case _:
                story.ended(action, at=at)

    def live(self, since: float, until: float, step: float = 0.5) -> None:
        at = since
        while at < until:
            self.pass_at(at)
            self.story.polls(self.jobs, at=at + 0.1)
            at += step


FAILS = [(Outcome.UNREACHED, 0), (Outcome.UNKNOWN, 0), (Outcome.REFUSED, 429), (Outcome.REFUSED, 401)]


@pytest.mark.parametrize("how", FAILS, ids=["unreached", "unanswered", "too many requests", "credentials rejected"])
def test_an_api_server_that_is_away_for_long_costs_no_grant(how: tuple[Outcome, int]) -> None:
    story = Story()
    servers = Servers(story)
    story.sees(TRAIN)
    servers.binds = how
    servers.live(NOW, NOW + 100)
    assert servers.seen[BindPod] > MAX_BIND_FAILURES
    servers.binds = (Outcome.DONE, 0)
    servers.live(NOW + 100, NOW + 200)
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND
    assert (len(servers.jobs), servers.release_messages) == (1, [])


def test_after_an_outage_of_the_api_server_the_first_grant_is_bound_at_once() -> None:
    story = Story()
    servers = Servers(story)
    story.sees(TRAIN, OutageBegan(Side.KUBERNETES, NOW, "connection refused"))
    servers.binds = (Outcome.UNREACHED, 0)
    servers.live(NOW, NOW + 16)
    assert servers.seen[BindPod] >= MAX_BIND_FAILURES
    story.sees(OutageEnded(Side.KUBERNETES, NOW + 16))
    servers.binds = (Outcome.DONE, 0)
    servers.pass_at(NOW + 16)
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND
    assert len(servers.jobs) == 1


def refused_for_good(servers: Servers) -> float:
    """Kubernetes refuses each bind, until the grant is released; returns that time."""
    servers.story.sees(TRAIN)
    servers.binds = (Outcome.REFUSED, 403)
    at = NOW
    while not servers.release_messages:
        servers.live(at, at + 0.5)
        at += 0.5
    return at


def test_refusals_count_against_one_job_and_the_next_job_starts_at_zero() -> None:
    servers = Servers(story := Story())
    at = refused_for_good(servers)
    assert servers.seen[BindPod] == MAX_BIND_FAILURES
    servers.binds = (Outcome.DONE, 0)
    servers.live(at, at + 310)
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND
    assert servers.release_messages == ["released: the bind failed again and again: Slurm refused it (error 403)."]


def test_nodes_are_not_held_again_and_again_for_a_pod_that_kubernetes_does_not_let_be_bound() -> None:
    """An admission policy refused the bind.  The pod held nodes four minutes of five, for as long as it existed."""
    servers = Servers(Story())
    at = refused_for_good(servers)
    assert at - NOW < 30
    servers.live(at, at + 290)
    assert len(servers.jobs) == 1
    assert servers.said[-1] == (
        "Slurm job 17 was released, because the pod cannot be bound. Slurm refused it (error 403). slurm-bridge asks for "
        "nodes again in 300 s, or when the pod changes."
    )
    servers.live(at + 290, at + 340)
    assert (len(servers.jobs), len(servers.release_messages)) == (2, 2)


def test_a_changed_pod_whose_bind_was_refused_asks_for_nodes_at_once() -> None:
    servers = Servers(story := Story())
    at = refused_for_good(servers)
    servers.binds = (Outcome.DONE, 0)
    story.sees(replace(TRAIN, annotations={names.PREFIX + "comment": "approved"}))
    servers.live(at, at + 5)
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND


def test_a_pod_whose_binds_fail_says_so_and_why() -> None:
    story = Story()
    servers = Servers(story)
    story.sees(TRAIN)
    servers.binds = (Outcome.REFUSED, 403)
    servers.live(NOW, NOW + 6)
    assert servers.said == ["The bind for Slurm job 17 failed and is tried again: Slurm refused it (error 403)."]


@pytest.mark.parametrize(
    ("answers", "shown"),
    [
        ([(Outcome.REFUSED, 403)] * 2, []),
        (
            [(Outcome.REFUSED, 403)] * 3,
            ["The bind for Slurm job 17 failed and is tried again: Slurm refused it (error 403)."],
        ),
    ],
    ids=["twice", "three times"],
)
def test_the_pod_shows_a_warning_after_three_refused_binds(
    answers: list[tuple[Outcome, int]], shown: list[str]
) -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    at = NOW
    for outcome, number in answers:
        [bind] = story.acts(BindPod, at)
        story.ended(bind, outcome, at=at, number=number)
        plan = story.plan(at)
        at = plan.wake_at
        assert at > NOW
    said = [each for each in plan.actions if isinstance(each, SetPodCondition)]
    assert [(each.message, each.warning) for each in said] == [(message, True) for message in shown]


def test_a_gang_that_lost_a_member_keeps_its_job_until_it_is_known_whether_the_other_one_was_bound() -> None:
    """The answer to its bind was lost, and Kubernetes is away for longer than a lost member may be replaced."""
    story = Story()
    pods = [member(number, 2) for number in range(2)]
    story.sees(*pods)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=granted(17, ("x1", 2)))
    first, second = story.acts(BindPod, NOW)
    story.ended(first, at=NOW)
    story.ended(second, Outcome.UNKNOWN, at=NOW + 1)
    [of_first] = [each for each in pods if each.uid == first.uid]
    story.loses(story.bound(of_first, 17), NOW + 2)
    reads: list[ReadPod] = []
    for at in (NOW + 3 + second for second in range(120)):
        story.polls({17: "RUNNING"}, at=at)
        for action in story.decides(at):
            assert not isinstance(action, CancelJob)
            reads += [action] if isinstance(action, ReadPod) else []
            story.ended(action, Outcome.UNREACHED, at=at)
    again = story.acts(ReadPod, NOW + 400)
    assert reads
    assert again
    for read in again:
        story.ended(read, at=NOW + 400, node="")
    assert [each.job_id for each in story.acts(CancelJob, NOW + 400)] == [17]


def test_one_member_whose_bind_is_refused_for_good_costs_the_gang_its_grant() -> None:
    """The other members' binds are not sent again and again for it: one pod's refusals count."""
    story = Story()
    pods = [member(number, 3) for number in range(3)]
    story.sees(*pods)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=granted(17, ("x1", 3)))
    at = NOW
    cancels: list[CancelJob] = []
    while not cancels:
        acts = story.decides(at)
        for bind in [each for each in acts if isinstance(each, BindPod)]:
            how = (Outcome.REFUSED, {"number": 403}) if bind.name == "w-2" else (Outcome.UNREACHED, {})
            story.ended(bind, how[0], at=at, **how[1])
        cancels = [each for each in acts if isinstance(each, CancelJob)]
        at += 1
        assert at < NOW + 60
    assert cancels[0].reason == "released: the bind failed again and again: Slurm refused it (error 403)."


# --- replacements ---------------------------------------------------------------------------------------------------


def replaced(story: Story) -> Pod:
    """A gang of two runs as job 17, one of them fails, and another pod comes for its place."""
    shown = runs(story, [member(number, 2) for number in range(2)], ("x1", 2))
    story.polls({17: "RUNNING"}, at=NOW)
    story.loses(replace(shown[1], phase=PodPhase.FAILED), NOW)
    new = member(1, 2, uid="uid-new", created=NOW + 1)
    story.sees(new)
    return new


def ends_nothing(story: Story, since: float, until: float, outcome: Outcome = Outcome.REFUSED) -> Counter[type]:
    """Binds fail, and neither the gang's job nor a pod of it is ended."""
    seen: Counter[type] = Counter()
    at = since
    while at < until:
        for action in story.decides(at):
            seen[type(action)] += 1
            failed = isinstance(action, BindPod)
            story.ended(action, outcome if failed else Outcome.DONE, at=at)
        story.polls({17: "RUNNING"}, at=at + 0.5)
        at += 1
    assert not {each.__name__ for each in seen} & {"CancelJob", "DeletePod", "FailByDeadline"}
    return seen


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.UNREACHED, Outcome.UNKNOWN])
def test_a_replacement_whose_bind_fails_again_and_again_ends_nothing_of_the_gang_that_runs(outcome: Outcome) -> None:
    story = Story()
    new = replaced(story)
    seen = ends_nothing(story, NOW + 2, NOW + 1000, outcome)
    assert seen[BindPod] > 2 * MAX_BIND_FAILURES
    [bind] = story.acts(BindPod, NOW + 1100)
    story.ended(bind, at=NOW + 1100)
    assert story.world.workloads[bind.key].node_of(new) == "x1"


def test_a_replacement_whose_bind_was_refused_as_often_as_costs_a_grant_is_bound_again_and_costs_nothing() -> None:
    story = Story()
    replaced(story)
    [workload] = story.world.workloads.values()
    at = NOW + 2
    for _ in range(MAX_BIND_FAILURES + 1):
        story.polls({17: "RUNNING"}, at=at)
        [bind] = [each for each in story.decides(at) if isinstance(each, BindPod | CancelJob)]
        assert isinstance(bind, BindPod)
        story.ended(bind, Outcome.REFUSED, at=at, number=403)
        at = workload.backoff.until


def test_a_replacement_that_its_policy_does_not_allow_waits_and_ends_nothing() -> None:
    """The policy may give another user to another service account; here it gives none to the namespace any more."""
    story = Story()
    replaced(story)
    story.sees(PolicyChanged(Policy(), NOW + 2))
    seen = ends_nothing(story, NOW + 2, NOW + 100)
    assert seen[BindPod] == 0
    assert seen[SetPodCondition] == 1


def test_a_replacement_whose_volumes_are_never_made_waits_and_ends_nothing() -> None:
    story = Story()
    shown = runs(story, [member(number, 2) for number in range(2)], ("x1", 2))
    story.loses(replace(shown[1], phase=PodPhase.FAILED), NOW)
    new = member(1, 2, uid="uid-new", created=NOW + 1, claims=("data",))
    at = NOW + 200  # the grant is older than what volumes are waited for
    story.polls({17: "RUNNING"}, at=at)
    story.sees(new, ClaimsRead(new.uid, (Claim("data", True, waits=True),), at))
    assert ends_nothing(story, at, at + 300)[BindPod] == 0


def test_a_replacement_for_which_there_is_no_place_waits_and_ends_nothing() -> None:
    """After a restart the job that is read may hold less than its gang was bound for: an admin shrank it."""
    story = Story()
    first = Story()
    shown = runs(first, [member(number, 3) for number in range(3)], ("x1", 3))
    name = first.world.placeholders[17].name
    story.sees(*shown[:2], member(2, 3, uid="uid-new", created=NOW + 1))
    story.polls({17: "RUNNING"}, at=NOW + 1)
    read = Job(17, name, "alice", frozenset({"RUNNING"}), partition="main", nodes="x1", starts=START, tasks=3)
    story.reads(read, at=NOW + 1, granted=granted(17, ("x1", 2)))
    seen = ends_nothing(story, NOW + 2, NOW + 100)
    assert seen[BindPod] == 0
    assert seen[SetPodCondition] >= 1
    told = story.world.workloads[story.world.key_of_pod["uid-new"]].last_status["uid-new"]["PodScheduled"]
    assert (told.condition, told.message) == (
        names.GRANT_WAITS,
        "The pod waits for a place in job 17. Slurm granted it without room for 3 pods (it holds 2).",
    )
