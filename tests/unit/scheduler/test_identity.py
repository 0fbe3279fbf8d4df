"""Ours is a job by its name and its user; anything else is foreign and never changed (ARCHITECTURE 4, S10, V6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import (
    Action,
    AllocateNow,
    BindPod,
    CancelJob,
    DeletePod,
    FailByDeadline,
    NudgeScheduler,
    Outcome,
    ReadJob,
    RestoreKeys,
    SetPodCondition,
    UpdateJob,
)
from scheduler.events import ActionEnded, PolicyChanged
from scheduler.model.kubernetes import PodPhase
from scheduler.model.slurm import Job
from scheduler.policy.rules import Policy, Rule, Tenant
from scheduler.state.phase import Phase
from tests.builders import ALICE, CLUSTER, CONFIG, OF_A_BIND, START, Story, grant, job_of, key_of, pod
from tests.unit.scheduler.test_gangs import granted, member, ring
from tests.unit.scheduler.test_gangs import runs as gang_runs

NOW = START + 20
TRAIN = pod("train")
NAME = job_of(TRAIN, 17).name
CHANGES = (CancelJob, UpdateJob, NudgeScheduler)


def sees_older_pod(story: Story) -> None:
    """A previous process bound the pod for job 17, and wrote all annotations of a bind."""
    older = story.bound(replace(TRAIN, created=START - 60), 17, started=START - 50)
    story.sees(replace(older, annotations={**older.annotations, **OF_A_BIND}))


def changes(actions: list[Action]) -> list[Action]:
    return [each for each in actions if isinstance(each, CHANGES)]


FOREIGN = [
    Job(17, "interactive", "carol", frozenset({"RUNNING"})),
    Job(17, "interactive", "alice", frozenset({"RUNNING"}), comment=NAME),
    Job(17, "", "alice", frozenset({"PENDING"})),
    Job(17, NAME, "mallory", frozenset({"RUNNING"})),  # an imitation by a user outside the policy
    Job(17, NAME, "bob", frozenset({"RUNNING"})),  # by another user of the policy, for a pod that lives
    Job(17, f"x~k00000000.{key_of(TRAIN)}", "alice", frozenset({"RUNNING"})),  # another cluster's
    Job(17, f"x~{CLUSTER}.{key_of(TRAIN)}~", "alice", frozenset({"RUNNING"})),
    Job(17, f"~{CLUSTER}.", "alice", frozenset({"RUNNING"})),
]


@pytest.mark.parametrize("job", FOREIGN, ids=range(len(FOREIGN)))
def test_a_foreign_job_is_read_once_and_never_changed(job: Job) -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=20, grant=grant(20))
    states = " ".join(job.states)
    story.polls({17: states, 20: "RUNNING"}, at=NOW + 1)
    acts = story.decides(NOW + 1)
    assert [each.job_id for each in acts if isinstance(each, ReadJob)] == [17]
    story.reads(job, at=NOW + 1, granted=grant(17))
    for read in acts:
        story.ended(read, at=NOW + 1)
    for second in range(2, 10):
        story.polls({17: states, 20: "RUNNING"}, at=NOW + second)
        acts = story.decides(NOW + second)
        assert changes(acts) == []
        assert not any(isinstance(each, ReadJob | BindPod) for each in acts)
    story.loses(story.bound(TRAIN, 20), NOW + 20)
    assert [each.job_id for each in changes(story.decides(NOW + 90)) if isinstance(each, CancelJob)] == [20]


def test_another_users_job_of_a_workload_that_is_gone_is_ended_as_that_user() -> None:
    """One without a workload: any user that the policy gives."""
    story = Story()
    story.polls({17: "RUNNING"}, at=NOW)
    story.decides(NOW)
    story.reads(replace(job_of(TRAIN, 17), user="bob"), at=NOW)
    [cancel] = story.acts(CancelJob, NOW)
    assert (cancel.job_id, cancel.user) == (17, "bob")


def test_another_users_job_is_not_given_to_a_pod_that_comes_after_it_was_read() -> None:
    """Before the pod came, any user of the policy was possible; the pod shows which user its job must have."""
    story = Story()
    at = START + 2  # nothing is cancelled so soon after a start
    others = replace(job_of(TRAIN, 17), user="bob")
    story.polls({17: "RUNNING"}, at=at)
    [read] = story.acts(ReadJob, at)
    story.reads(others, at=at, granted=grant(17, "x2"))
    story.ended(read, at=at)
    shown = story.runs(TRAIN, 18, at=at + 1)
    for second in range(2, 60):
        story.polls({17: "RUNNING", 18: "RUNNING"}, at=at + second)
        assert not [each for each in story.decides(at + second) if not isinstance(each, ReadJob | SetPodCondition)]
    story.loses(replace(shown, phase=PodPhase.SUCCEEDED), at + 60)
    assert [each.job_id for each in story.acts(CancelJob, at + 61)] == [18]


def test_a_job_of_the_user_that_the_policy_gave_before_ends_when_its_pod_is_gone() -> None:
    """Its pod is left alone; a later visit of the job, without a pod, would end it, too."""
    story = Story(replace(CONFIG, policy=Policy((Rule(("hpc",), Tenant("bob")), Rule(("other",), ALICE)))))
    shown = story.bound(replace(TRAIN, created=START - 100), 17, started=START - 99)
    story.sees(shown)
    ended = []
    for second in range(120):
        story.polls({17: "CANCELLED" if ended else "RUNNING"}, at=NOW + second)
        if second == 60:
            assert ended == []
            story.loses(replace(shown, phase=PodPhase.SUCCEEDED), NOW + second)
        for action in story.decides(NOW + second):
            if isinstance(action, ReadJob):
                story.reads(job_of(TRAIN, 17), at=NOW + second, granted=grant(17))
            elif isinstance(action, CancelJob | FailByDeadline):
                ended.append(action)
            story.ended(action, at=NOW + second)
    assert [(type(each), getattr(each, "user", "")) for each in ended] == [(CancelJob, "alice")]


@pytest.mark.parametrize("claim", [{}, {"job-id": "16"}], ids=["names none", "names another"])
def test_a_pod_of_a_namespace_without_a_slurm_user_is_not_ended_with_a_job_that_a_user_named_after_it(
    claim: dict[str, str],
) -> None:
    """Keys of gangs follow from names: any user of the policy can name a job after one.  It ends when the pod is gone."""
    story = Story()
    ghost = pod("ghost", namespace="grey", node="x1", phase=PodPhase.RUNNING, created=START - 100, says=claim)
    forged = job_of(ghost, 17)
    story.sees(ghost)
    ended: list[Action] = []
    for second in range(120):
        states = "CANCELLED" if ended or 20 <= second < 40 else "RUNNING"
        story.polls({16: "RUNNING", 17 if second < 40 else 18: states}, at=NOW + second)
        if second == 60:
            assert ended == []
            story.loses(replace(ghost, phase=PodPhase.SUCCEEDED), NOW + second)
        for action in story.decides(NOW + second):
            if isinstance(action, ReadJob):
                job = replace(forged, id=action.job_id, states=frozenset({states}))
                others = Job(16, "interactive", "carol", frozenset({"RUNNING"}))
                story.reads(job if action.job_id != 16 else others, at=NOW + second, granted=grant(action.job_id))
            elif isinstance(action, CancelJob | FailByDeadline):
                ended.append(action)
            story.ended(action, at=NOW + second)
    assert [(type(each), getattr(each, "job_id", 0)) for each in ended] == [(CancelJob, 18)]


def test_a_pod_of_a_namespace_that_lost_its_slurm_user_ends_with_the_job_that_it_names() -> None:
    """The bind wrote the id on the pod, and the job is named after the pod: each names the other."""
    story = Story(replace(CONFIG, policy=Policy((Rule(("other",), ALICE),))))
    story.sees(story.bound(replace(TRAIN, created=START - 100, annotations=OF_A_BIND), 17))
    story.polls({17: "CANCELLED"}, at=NOW)
    [read] = story.acts(ReadJob, NOW)
    story.reads(job_of(TRAIN, 17, "CANCELLED"), at=NOW)
    story.ended(read, at=NOW)
    [end] = story.acts(FailByDeadline, NOW + 1)
    assert end.reason == "Slurm job 17 ended: CANCELLED"


def test_a_job_that_its_user_renames_stays_the_pods_and_is_ended_by_its_new_name() -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    job = job_of(TRAIN, 17, submitted=START)
    story.reads(job, at=NOW + 2)
    story.reads(replace(job, name="pretty"), at=NOW + 3)
    story.polls({17: "RUNNING"}, at=NOW + 4)
    assert changes(story.decides(NOW + 20)) == []
    story.loses(shown, NOW + 20)
    [cancel] = story.acts(CancelJob, NOW + 60)
    assert (cancel.job_id, cancel.name) == (17, "pretty")


@pytest.mark.parametrize("was_read", [True, False])
def test_a_job_that_its_user_renames_to_the_name_of_another_pods_job_is_not_given_to_both_pods(was_read: bool) -> None:
    story = Story()
    story.sees(replace(story.runs(TRAIN, 17, at=NOW), started=NOW + 1))
    job = job_of(TRAIN, 17, submitted=NOW)
    if was_read:
        story.reads(job, at=NOW + 1, granted=grant(17))
    story.queues(other := pod("other"), 18, at=NOW + 2)
    jobs = {17: replace(job, name=job_of(other, 17).name), 18: job_of(other, 18, "PENDING", submitted=NOW + 2)}
    for second in range(3, 130):
        at = NOW + second
        story.polls({each.id: " ".join(each.states) for each in jobs.values()}, at=at)
        for action in story.decides(at):
            assert not isinstance(action, BindPod | CancelJob | AllocateNow | FailByDeadline)
            if isinstance(action, ReadJob):
                story.reads(jobs[action.job_id], at=at, granted=grant(17) if action.job_id == 17 else None)
            story.ended(action, at=at)


def test_a_job_that_was_renamed_before_it_was_ever_read_leaves_its_pod_in_peace() -> None:
    """Where thousands run its first turn to be read comes after hours."""
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.sees(replace(shown, started=NOW + 1))
    renamed = replace(job_of(TRAIN, 17, submitted=NOW), name="pretty")
    for second in range(1, 120):
        story.polls({17: "RUNNING"}, at=NOW + second)
        for action in story.decides(NOW + second):
            assert isinstance(action, ReadJob)
            story.reads(renamed, at=NOW + second)
            story.ended(action, at=NOW + second)


@pytest.mark.parametrize(
    ("user", "submitted"),
    [("bob", NOW), ("alice", None), ("alice", NOW + 100)],
    ids=["of another user", "nobody knows when it was submitted", "submitted later"],
)
def test_a_job_of_another_name_that_cannot_be_the_renamed_one_does_not_keep_the_pod_without_a_job(
    user: str, submitted: float | None
) -> None:
    """Slurm lost the job before it was ever read, and gave its id to another job: the same nodes are asked for again."""
    story = Story()
    story.sees(replace(story.runs(TRAIN, 17, at=NOW), started=NOW + 1))
    other = replace(job_of(TRAIN, 17, submitted=submitted), name="pretty", user=user)
    asked = [each for each in reads_all(story, {17: other}, NOW + 5, seconds=30) if isinstance(each, AllocateNow)]
    assert {each.spec.required_nodes for each in asked} == {"x1"}


@pytest.mark.parametrize("states", ["CANCELLED", "TIMEOUT", "NODE_FAIL"])
def test_a_pod_does_not_outlive_its_job_because_that_was_renamed_before_it_was_read(states: str) -> None:
    """Otherwise a tenant renames a job, cancels it, and the pod runs on for nothing."""
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.sees(replace(shown, annotations={**shown.annotations, **OF_A_BIND}, started=NOW + 1))
    done = reads_all(story, {17: replace(job_of(TRAIN, 17, states, submitted=NOW), name="pretty")}, NOW + 5)
    assert [each.reason for each in done if isinstance(each, FailByDeadline)][:1] == [f"Slurm job 17 ended: {states}"]


@pytest.mark.parametrize(
    ("user", "nodes", "shown", "ends"),
    [
        ("alice", "x1", OF_A_BIND, True),
        ("carol", "x1", OF_A_BIND, False),
        ("alice", "x2", OF_A_BIND, False),
        ("alice", "x[", OF_A_BIND, False),
        ("alice", "x1", {names.JOB_NODES: "x1"}, False),
    ],
    ids=[
        "its job",
        "of another user",
        "on another node",
        "on nodes that cannot be read",
        "bound by others",
    ],
)
def test_after_a_restart_the_end_of_a_renamed_job_of_its_user_on_its_node_ends_the_pod(
    user: str, nodes: str, shown: Mapping[str, str], ends: bool
) -> None:
    story = Story()
    older = story.bound(replace(TRAIN, created=START - 60), 17, started=START - 50)
    story.sees(replace(older, annotations={**older.annotations, **shown}))
    renamed = Job(17, "pretty", user, frozenset({"RUNNING"}), nodes=nodes, submitted=START - 55)
    assert reads_all(story, {17: renamed}, NOW) == []
    over = replace(renamed, states=frozenset({"TIMEOUT"}))
    done = reads_all(story, {17: over}, NOW + 100)
    assert [each.reason for each in done if isinstance(each, FailByDeadline)][:1] == (
        ["Slurm job 17 ended: TIMEOUT"] if ends else []
    )


@pytest.mark.parametrize(("worker_on", "ends"), [("x2", True), ("x3", False)])
def test_after_a_restart_the_pods_of_all_components_end_with_their_renamed_job(worker_on: str, ends: bool) -> None:
    """The user renamed each component.  The leader shows its own node alone."""
    story = Story()
    bind = {**OF_A_BIND, names.SIZE: "2", names.JOB_NODES: "x[1-2]"}
    for number, on in enumerate(("x1", worker_on)):
        older = story.bound(replace(member(number, 2), created=START - 60), 17, on, started=START - 50)
        story.sees(replace(older, annotations={**older.annotations, **bind}))
    part = Job(18, "mine-18", "alice", frozenset({"RUNNING"}), nodes="x2", het_id=17, het_offset=1)
    renamed = Job(
        17,
        "mine-17",
        "alice",
        frozenset({"RUNNING"}),
        nodes="x1",
        submitted=START - 55,
        het_id=17,
        het_offset=0,
        parts=(part,),
    )
    assert reads_all(story, {17: renamed}, NOW) == []
    over = replace(renamed, states=frozenset({"NODE_FAIL"}), parts=(replace(part, states=frozenset({"NODE_FAIL"})),))
    done = reads_all(story, {17: over}, NOW + 100)
    assert len({each.name for each in done if isinstance(each, FailByDeadline)}) == (2 if ends else 0)


def test_the_pod_of_a_renamed_job_ends_with_it_although_no_rule_gave_its_user_when_the_job_ended() -> None:
    story = Story(replace(CONFIG, policy=Policy((Rule(("hpc",), Tenant("bob")),))))
    sees_older_pod(story)
    ended = Job(17, "pretty", "alice", frozenset({"NODE_FAIL"}), nodes="x1", submitted=START - 55)
    assert not [each for each in reads_all(story, {17: ended}, NOW) if isinstance(each, FailByDeadline)]
    story.sees(PolicyChanged(Policy((Rule(("hpc",), ALICE),)), NOW + 100))
    done = reads_all(story, {17: ended}, NOW + 101)
    assert [each.reason for each in done if isinstance(each, FailByDeadline)][:1] == ["Slurm job 17 ended: NODE_FAIL"]


def test_the_pod_of_a_renamed_job_ends_with_it_although_the_job_ended_before_it_was_read_by_the_new_policy() -> None:
    story = Story(replace(CONFIG, policy=Policy((Rule(("hpc",), Tenant("bob")),))))
    sees_older_pod(story)
    runs = Job(17, "pretty", "alice", frozenset({"RUNNING"}), nodes="x1", submitted=START - 55)
    assert not [each for each in reads_all(story, {17: runs}, NOW) if isinstance(each, FailByDeadline)]
    story.sees(PolicyChanged(Policy((Rule(("hpc",), ALICE),)), NOW + 100))
    story.polls({17: "NODE_FAIL"}, at=NOW + 101)
    done = reads_all(story, {17: replace(runs, states=frozenset({"NODE_FAIL"}))}, NOW + 102)
    assert [each.reason for each in done if isinstance(each, FailByDeadline)][:1] == ["Slurm job 17 ended: NODE_FAIL"]


def test_the_pod_of_a_renamed_job_that_slurm_lost_ends_although_an_attempt_to_replace_the_job_got_its_id() -> None:
    story = Story()
    sees_older_pod(story)
    renamed = Job(17, "pretty", "alice", frozenset({"RUNNING"}), nodes="x1", submitted=START - 55)
    assert reads_all(story, {17: renamed}, NOW) == []
    failed = job_of(TRAIN, 17, "FAILED", submitted=NOW + 110, nodes="")
    done: list[Action] = []
    for at in (NOW + 100 + second for second in range(300)):
        asked = any(isinstance(each, AllocateNow) for each in done)
        story.polls({17: "FAILED"} if asked else {}, at=at)
        for action in story.decides(at):
            done.append(action)
            if isinstance(action, ReadJob):
                story.reads(failed if asked else None, job_id=17, at=at)
            if isinstance(action, AllocateNow):
                story.ended(action, Outcome.REFUSED, at=at, number=2068, later=True)
            else:
                story.ended(action, at=at)
    assert len([each for each in done if isinstance(each, AllocateNow)]) > 1
    assert [each for each in done if isinstance(each, FailByDeadline)]


def test_a_job_that_is_renamed_while_its_bind_has_no_answer_leaves_its_pod_in_peace() -> None:
    story = Story()
    bind = story.binds(TRAIN, 17, at=NOW)
    story.ended(bind, Outcome.UNKNOWN, at=NOW + 1)
    jobs = {17: replace(job_of(TRAIN, 17, submitted=NOW), name="pretty")}
    story.polls({17: "RUNNING"}, at=NOW + 2)
    story.reads(jobs[17], at=NOW + 2)
    story.sees(replace(story.bound(TRAIN, 17, started=NOW + 1), annotations=dict(bind.annotations)))
    assert not [each for each in reads_all(story, jobs, NOW + 3) if isinstance(each, AllocateNow | FailByDeadline)]
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND


def test_only_the_pods_of_its_user_and_nodes_end_with_a_renamed_job() -> None:
    """Another client bound a pod, which invents the id: it is left in peace."""
    story = Story()
    sees_older_pod(story)
    story.sees(story.bound(pod("liar", created=START - 60), 17, started=START - 50))
    renamed = Job(17, "pretty", "alice", frozenset({"RUNNING"}), nodes="x1", submitted=START - 55)
    assert reads_all(story, {17: renamed}, NOW) == []
    done = reads_all(story, {17: replace(renamed, states=frozenset({"TIMEOUT"}))}, NOW + 100)
    assert {each.name for each in done if isinstance(each, FailByDeadline)} == {"train"}


def test_a_pod_waits_for_no_renamed_job_of_another_pod_whose_id_another_client_wrote() -> None:
    """A pod of the gang was bound by another client, which wrote the id, and is gone; the renamed job lives on."""
    story = Story()
    sees_older_pod(story)
    first, second = ring(size=2)
    liar = story.bound(replace(first, uid="liar", name="liar", created=START - 60), 17, started=START - 50)
    story.sees(liar)
    renamed = Job(17, "pretty", "alice", frozenset({"RUNNING"}), nodes="x1", submitted=START - 55)
    assert reads_all(story, {17: renamed}, NOW) == []
    story.loses(liar, NOW + 100)
    story.sees(first, second)
    assert [each for each in reads_all(story, {17: renamed}, NOW + 101) if isinstance(each, AllocateNow)]


def test_a_job_that_may_be_that_of_the_pods_under_another_name_is_never_ended() -> None:
    """slurmctld may have lost its state at once, and given the id to a job that its user made himself."""
    story = Story()
    shown = replace(story.runs(TRAIN, 17, at=NOW), started=NOW + 1)
    story.sees(shown)
    reads_all(story, {17: replace(job_of(TRAIN, 17, submitted=NOW), name="native")}, NOW + 5, seconds=60)
    story.loses(shown, NOW + 70)
    assert not [each for each in reads_all(story, {}, NOW + 71, seconds=60) if isinstance(each, CancelJob)]


def test_pods_of_a_renamed_job_are_not_ended_because_their_earlier_job_has_ended() -> None:
    """The gang was cancelled once, its pods were replaced, and then its user renamed their job before it was read."""
    story = Story()
    shown = gang_runs(story, ring(2), ("x1", 2), at=NOW)
    story.polls({17: "CANCELLED"}, at=NOW + 2)
    for each in shown:
        story.loses(each, NOW + 3)
    [workload] = story.world.workloads.values()
    former = Job(17, f"hpc/ring~{CLUSTER}.{workload.key}", "alice", frozenset({"CANCELLED"}), nodes="x1", submitted=NOW)
    story.reads(former, at=NOW + 3)
    again = [replace(each, uid=f"again-{each.name}", created=NOW + 4) for each in ring(2)]
    story.sees(*again)
    at = NOW + 10
    [asked] = story.acts(AllocateNow, at)
    story.ended(asked, at=at, job_id=18, grant=granted(18, ("x1", 2)))
    for bind in story.acts(BindPod, at):
        story.ended(bind, at=at)
    story.sees(*(story.bound(each, 18, started=at + 1) for each in again))
    renamed = Job(18, "pretty", "alice", frozenset({"RUNNING"}), submitted=at, nodes="x1")
    for second in range(1, 200):
        story.polls({17: "CANCELLED", 18: "RUNNING"}, at=at + second)
        for action in story.decides(at + second):
            assert not isinstance(action, DeletePod | FailByDeadline | AllocateNow)
            if isinstance(action, ReadJob):
                story.reads(renamed if action.job_id == 18 else former, at=at + second)
            story.ended(action, at=at + second)
    story.loses(story.bound(again[1], 18), at + 200)
    newcomer = member(1, 2, uid="newcomer", created=at + 201)
    story.sees(newcomer)
    [said] = [each for each in story.acts(SetPodCondition, at + 210) if each.uid == "newcomer"]
    assert "their job 18 may have been renamed by its user" in said.message


def test_a_surplus_pod_with_a_renamed_job_does_not_end_with_the_job_of_the_gang() -> None:
    """It runs for a job of its own, which its user renames; then all pods of the gang end, and the job of the gang."""
    story = Story()
    shown = gang_runs(story, ring(2), ("x1", 2), at=NOW)
    one_more = member(2, 2)
    story.runs(one_more, 18, at=NOW + 2)
    for each in shown:
        story.sees(replace(each, phase=PodPhase.SUCCEEDED))
    [cancel] = story.acts(CancelJob, NOW + 20)
    assert cancel.job_id == 17
    story.ended(cancel, at=NOW + 20)
    story.polls({17: "CANCELLED", 18: "RUNNING"}, at=NOW + 21)
    renamed = replace(job_of(one_more, 18, submitted=NOW + 2), name="pretty")
    story.reads(renamed, at=NOW + 22)
    for each in shown:
        story.loses(replace(each, phase=PodPhase.SUCCEEDED), NOW + 23)
    assert not [each for each in story.decides(NOW + 60) if isinstance(each, FailByDeadline | DeletePod | CancelJob)]


def of_an_earlier_life(story: Story, named: int) -> None:
    """The pod runs on x1, names that job, and has been running since before this process began."""
    story.sees(story.bound(replace(TRAIN, created=START - 60), named, started=START - 50))


def reads_all(story: Story, jobs: dict[int, Job], since: float, *, seconds: int = 90) -> list[Action]:
    """A poll a second; what is read is answered by `jobs`, on their nodes.  Returns what else is done, which succeeds."""
    done: list[Action] = []
    for at in (since + second for second in range(seconds)):
        story.polls({job.id: " ".join(job.states) for job in jobs.values()}, at=at)
        for action in story.decides(at):
            if isinstance(action, ReadJob):
                job = jobs[action.job_id]
                story.reads(job, at=at, granted=grant(job.id, job.nodes) if "RUNNING" in job.states else None)
            else:
                done.append(action)
            story.ended(action, at=at)
    return done


@pytest.mark.parametrize("states", ["FAILED", "CANCELLED"])
def test_after_a_restart_a_renamed_job_counts_and_not_the_end_of_another_one_of_the_same_pod(states: str) -> None:
    """Job 5 has the pod's name: an attempt that got no nodes, of which Slurm keeps a record, or a grant of before."""
    story = Story()
    renamed = Job(6, "pretty", "alice", frozenset({"RUNNING"}), submitted=START - 55, nodes="x1")
    former = job_of(TRAIN, 5, states, submitted=START - 58, nodes="" if states == "FAILED" else "x1")
    story.polls({5: states, 6: "RUNNING"}, at=START + 1)
    of_an_earlier_life(story, 6)
    story.reads(renamed, at=START + 2)
    story.reads(former, at=START + 3)
    assert reads_all(story, {5: former, 6: renamed}, NOW) == []


@pytest.mark.parametrize("order", [(6, 99), (99, 6)])
def test_a_pod_that_names_a_strangers_job_follows_the_job_of_its_own_name_that_holds_its_node(
    order: tuple[int, int],
) -> None:
    """Somebody wrote another id on the pod while no bridge ran."""
    story = Story()
    own = job_of(TRAIN, 6, submitted=START - 55)
    jobs = {6: own, 99: Job(99, "interactive", "carol", frozenset({"RUNNING"}), submitted=START - 55, nodes="x2")}
    story.polls({6: "RUNNING", 99: "RUNNING"}, at=START + 1)
    of_an_earlier_life(story, 99)
    for number, job_id in enumerate(order):
        story.reads(jobs[job_id], at=START + 2 + number, granted=grant(job_id, jobs[job_id].nodes))
    [said] = reads_all(story, jobs, NOW)
    assert isinstance(said, SetPodCondition)
    assert (said.annotations or {})[names.JOB_ID] == "6"
    jobs[6] = replace(own, states=frozenset({"CANCELLED"}))
    ends = reads_all(story, jobs, NOW + 100, seconds=5)
    assert [type(each) for each in ends] == [FailByDeadline]


@pytest.mark.parametrize(
    ("user", "states", "nodes"),
    [("alice", "RUNNING", "x2"), ("alice", "RUNNING", "x1"), ("alice", "COMPLETED", "x1"), ("carol", "RUNNING", "x2")],
    ids=["of its user", "on its node", "ended", "of another user"],
)
@pytest.mark.parametrize("phase", [PodPhase.PENDING, PodPhase.RUNNING])
def test_a_pod_that_names_a_job_older_than_itself_does_not_stay_without_a_job(
    user: str, states: str, nodes: str, phase: PodPhase
) -> None:
    """While no bridge led, its user ended its job, and wrote the id of an older job on the pod: its job is lost (S7)."""
    story = Story()
    knows_the_clocks(story)
    shown = story.bound(replace(TRAIN, created=START - 60), 9, phase=phase)
    story.sees(replace(shown, annotations={**shown.annotations, **OF_A_BIND}))
    older = Job(9, "notebook", user, frozenset({states}), nodes=nodes, submitted=START - 100)
    [asked] = [each for each in answers_reads(story, {9: older}, START + 1) if isinstance(each, AllocateNow)]
    assert asked.spec.required_nodes == "x1"
    story.ended(asked, Outcome.REFUSED, at=START + 61, number=2016)
    assert [type(each) for each in answers_reads(story, {9: older}, START + 62)] == [FailByDeadline]


def test_a_gang_whose_pods_were_all_replaced_keeps_its_renamed_job_that_is_older_than_the_pods() -> None:
    """A replacement takes the free place of the job, so the age of the job proves nothing."""
    story = Story()
    knows_the_clocks(story)
    for each in ring(2):
        shown = story.bound(replace(each, created=START - 60), 17, started=START - 50)
        story.sees(replace(shown, annotations={**shown.annotations, **OF_A_BIND, names.SIZE: "2"}))
    older = Job(17, "pretty", "alice", frozenset({"RUNNING"}), nodes="x1", submitted=START - 500)
    story.polls({17: "RUNNING"}, at=START + 1)
    story.reads(older, at=START + 1)
    assert answers_reads(story, {17: older}, START + 2) == []


def knows_the_clocks(story: Story) -> None:
    for clock in story.world.clocks.values():
        clock.is_known = True


def answers_reads(story: Story, jobs: dict[int, Job], since: float) -> list[Action]:
    """What is done within 60 s besides reads and reports, and not answered; polls and reads show these jobs."""
    done = list[Action]()
    for at in (since + second for second in range(60)):
        story.polls({job.id: " ".join(job.states) for job in jobs.values()}, at=at)
        for action in story.decides(at):
            if isinstance(action, ReadJob):
                job = jobs[action.job_id]
                story.reads(job, at=at, granted=grant(job.id, job.nodes) if "RUNNING" in job.states else None)
                story.ended(action, at=at)
            elif not isinstance(action, SetPodCondition):
                done.append(action)
    return done


def test_a_pod_that_names_an_older_job_keeps_its_own_job_that_lives() -> None:
    story = Story()
    knows_the_clocks(story)
    own = job_of(TRAIN, 17, submitted=START - 55)
    older = Job(9, "notebook", "alice", frozenset({"RUNNING"}), nodes="x2", submitted=START - 100)
    story.polls({9: "RUNNING", 17: "RUNNING"}, at=START + 1)
    of_an_earlier_life(story, 9)
    story.reads(older, at=START + 2, granted=grant(9, "x2"))
    done = reads_all(story, {9: older, 17: own}, START + 3)
    assert not [each for each in done if isinstance(each, AllocateNow | FailByDeadline | CancelJob)]
    assert [
        each.annotations[names.JOB_ID] for each in done if isinstance(each, SetPodCondition) and each.annotations
    ] == ["17"]


@pytest.mark.parametrize("states", ["PENDING", "RUNNING"])
def test_a_twin_of_a_renamed_job_is_ended_and_not_the_pod(states: str) -> None:
    """The answer to its submission was lost; nothing holds it back any more once the other has another name."""
    story = Story()
    renamed = Job(6, "pretty", "alice", frozenset({"RUNNING"}), submitted=START - 55, nodes="x1")
    twin = job_of(TRAIN, 7, states, submitted=START - 54, nodes="" if states == "PENDING" else "x2")
    story.polls({6: "RUNNING", 7: states}, at=START + 1)
    of_an_earlier_life(story, 6)
    story.reads(renamed, at=START + 2)
    [cancel] = reads_all(story, {6: renamed, 7: twin}, START + 3, seconds=10)
    assert isinstance(cancel, CancelJob)
    assert cancel.job_id == 7
    ended = replace(twin, states=frozenset({"CANCELLED"}))
    assert reads_all(story, {6: renamed, 7: ended}, NOW + 20) == []


def test_a_job_that_was_renamed_since_it_was_read_is_ended_by_its_new_name() -> None:
    """Slurm has no job of that id and the old name, so after the cancel the job with that id is read."""
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    job = job_of(TRAIN, 17, submitted=START)
    story.reads(job, at=NOW + 2)
    story.loses(replace(shown, phase=PodPhase.SUCCEEDED), NOW + 3)
    [cancel] = story.acts(CancelJob, NOW + 4)
    story.reads(replace(job, name="pretty"), at=NOW + 4.5)
    story.sees(ActionEnded(cancel, Outcome.DONE, NOW + 4, NOW + 5))
    [again] = story.acts(CancelJob, NOW + 5)
    assert (again.job_id, again.name) == (17, "pretty")


@pytest.mark.parametrize("phase", [PodPhase.RUNNING, PodPhase.SUCCEEDED])
def test_a_pod_that_claims_a_foreign_job_changes_nothing_for_that_job(phase: PodPhase) -> None:
    story = Story()
    claims = replace(TRAIN, node="x1", phase=phase, annotations={names.JOB_ID: "17"})
    story.polls({17: "RUNNING"}, at=NOW)
    story.sees(claims)
    for second in range(5):
        for read in story.decides(NOW + second):
            assert isinstance(read, ReadJob)
            story.reads(Job(17, "interactive", "alice", frozenset({"RUNNING"})), at=NOW + second)
            story.ended(read, at=NOW + second)
    story.loses(claims, NOW + 10)
    assert changes(story.decides(NOW + 100)) == []


def test_a_hint_at_a_component_of_another_job_leads_nowhere_and_is_read_once() -> None:
    """slurmctld lost its state, and gave the id that the pod shows to a part of a gang's job."""
    story = Story()
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW)
    old = replace(TRAIN, created=START - 100, node="x1", phase=PodPhase.SUCCEEDED, annotations={names.JOB_ID: "18"})
    story.sees(old)
    [read] = [each for each in story.acts(ReadJob, NOW + 20) if each.job_id == 18]
    leader = job_of(pod("launcher"), 17)
    story.reads(replace(leader, id=18, het_id=17, het_offset=1), at=NOW + 20)
    story.ended(read, at=NOW + 20)
    assert not [each for each in story.acts(ReadJob, NOW + 20) if each.job_id == 18]
    assert 18 not in story.world.placeholders


def test_a_job_whose_id_is_a_component_of_another_job_now_is_read_and_counts_as_lost() -> None:
    """slurmctld lost its state; the leader is read first and names the component."""
    story = Story()
    story.queues(TRAIN, 18, at=NOW)
    story.queues(pod("launcher"), 17, at=NOW)
    part = replace(job_of(pod("launcher"), 18), het_id=17, het_offset=1)
    story.polls({17: "PENDING", 18: "PENDING"}, at=NOW + 1)
    story.reads(replace(job_of(pod("launcher"), 17), het_id=17, parts=(part,)), at=NOW + 2)
    story.world.validate()
    [read] = [each for each in story.acts(ReadJob, NOW + 3) if each.job_id == 18]
    story.reads(part, at=NOW + 3)
    story.ended(read, at=NOW + 3)
    assert story.world.placeholders[18].denied
    story.world.validate()


def test_a_pod_that_claims_another_pods_job_changes_nothing_for_that_pod() -> None:
    story = Story()
    owner = story.runs(pod("owner"), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    thief = replace(TRAIN, node="x1", phase=PodPhase.RUNNING, annotations={names.JOB_ID: "17"})
    story.sees(thief)
    assert story.decides(NOW + 2) == []
    story.sees(replace(thief, phase=PodPhase.SUCCEEDED))
    assert story.decides(NOW + 3) == []
    story.loses(thief, NOW + 4)
    assert not [each for each in story.decides(NOW + 60) if not isinstance(each, ReadJob)]
    assert story.world.placeholders[17].key == key_of(owner)


def test_a_pod_whose_claim_was_edited_keeps_its_own_job() -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    edited = replace(shown, annotations={**shown.annotations, names.JOB_ID: "99999"})
    story.sees(edited)
    for second in range(2, 20):
        story.polls({17: "RUNNING"}, at=NOW + second)
        for action in story.decides(NOW + second):
            assert isinstance(action, ReadJob | RestoreKeys), action
            if isinstance(action, ReadJob):
                story.reads(None, job_id=99999, at=NOW + second)
            story.ended(action, at=NOW + second)
    story.loses(edited, NOW + 30)
    assert [each.job_id for each in story.acts(CancelJob, NOW + 90)] == [17]


@pytest.mark.parametrize("claim", ["", "x", "-1", "1" * 30, "١٧", "17 ", "0x11"])
def test_a_claim_that_is_no_id_is_none(claim: str) -> None:
    story = Story()
    story.sees(replace(TRAIN, node="x1", annotations={names.JOB_ID: claim}))
    assert story.world.placeholders == {}
    assert story.decides(NOW) == []


def test_what_a_pending_pod_claims_counts_for_nothing_and_is_refused_until_it_is_taken_away() -> None:
    """Only the bind writes that key: on a pod without a node it is the user's own invention."""
    story = Story()
    story.sees(replace(TRAIN, annotations={names.JOB_ID: "17"}))
    assert story.world.placeholders == {}
    [report] = story.decides(NOW)
    assert isinstance(report, SetPodCondition)
    assert (report.condition, report.message) == (
        names.REFUSED,
        "Annotation slurm-bridge/job-id is written only by slurm-bridge, when it binds the pod. Remove it from the pod.",
    )
    story.sees(TRAIN)
    assert len(story.acts(AllocateNow, NOW)) == 1


def test_a_stale_answer_does_not_take_a_job_from_its_workload() -> None:
    """The id was given out twice: an answer from before the second submission speaks of the first job."""
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.reads(job_of(pod("former"), 17, "PENDING"), at=NOW - 1)
    assert story.world.placeholders[17].key == key_of(TRAIN)
    assert set(story.world.workloads) == {key_of(TRAIN)}
    assert story.decides(NOW + 0.1) == []


def test_an_id_given_out_to_another_of_our_workloads_changes_hands() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    other = pod("other")
    story.sees(other)
    story.reads(job_of(other, 17, "PENDING"), at=NOW + 5)
    assert story.world.placeholders[17].key == key_of(other)
    assert story.world.workloads[key_of(TRAIN)].jobs == set()


def test_a_submission_that_was_given_a_known_id_takes_it_over() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.queues(pod("other"), 17, at=NOW + 1)
    assert story.world.placeholders[17].key == key_of(pod("other"))
    assert story.world.workloads[key_of(TRAIN)].jobs == set()


def test_a_slow_read_of_an_id_says_nothing_of_the_job_that_got_the_id_since() -> None:
    """slurmctld lost a job and gave its id out again, while a read of the lost one was on its way."""
    story = Story()
    lost = pod("lost")
    story.queues(lost, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 0.5)
    story.polls({}, at=NOW + 1)
    [read] = story.acts(ReadJob, NOW + 1)
    assert read.job_id == 17

    story.polls({17: "PENDING"}, at=NOW + 1.5)  # another job has the id now
    story.reads(None, job_id=17, at=NOW + 1.1)
    story.ended(read, at=NOW + 4)
    assert [each.job_id for each in story.acts(ReadJob, NOW + 4)] == [17], "it is read for what it is now"


def test_an_id_that_comes_to_life_again_between_two_polls_is_another_job_and_is_read() -> None:
    """slurmctld came back without its state, and was so quick that no poll lacked the id."""
    story = Story()
    story.polls({17: "NODE_FAIL"}, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    [read] = story.acts(ReadJob, NOW + 1)
    story.reads(job_of(TRAIN, 17), at=NOW + 1, granted=grant(17))
    story.ended(read, at=NOW + 1)
    [cancel] = story.acts(CancelJob, NOW + 2)
    assert (cancel.job_id, cancel.reason) == (17, "its workload does not exist")


def test_an_edited_claim_does_not_hide_the_end_of_the_job_that_the_pod_was_bound_for() -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING", 99: "RUNNING"}, at=NOW + 1)
    story.sees(replace(shown, annotations={**shown.annotations, names.JOB_ID: "99"}))
    story.polls({17: "CANCELLED", 99: "RUNNING"}, at=NOW + 2)
    jobs = {17: job_of(TRAIN, 17, "CANCELLED"), 99: Job(99, "interactive", "carol", frozenset({"RUNNING"}))}
    ended: list[Action] = []
    for second in range(2, 20):
        for action in story.decides(NOW + second):
            if isinstance(action, ReadJob):
                story.reads(jobs[action.job_id], at=NOW + second)
                story.ended(action, at=NOW + second)
            elif isinstance(action, FailByDeadline):
                ended.append(action)
    assert [each.reason for each in ended] == ["Slurm job 17 ended: CANCELLED"]
