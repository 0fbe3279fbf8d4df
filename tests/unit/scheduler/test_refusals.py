"""The pod shows a refusal, with what to do; the request is repeated when it may be accepted (Q4, F3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, BindPod, CancelJob, Outcome, ReadJob, SetPodCondition, SubmitJob
from scheduler.events import NodeSeen, SlurmNodesPolled
from scheduler.model.kubernetes import Toleration
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Partition, SlurmNode
from scheduler.model.slurm_errors import ACCOUNT
from scheduler.state.phase import Phase
from tests.builders import START, Story, grant, key_of, node, pod, slurm_node
from tests.defects import breaks_rule

NOW = START + 20
TRAIN = pod("train")
PARTITIONS = (Partition("main", default=True), Partition("gpu", max_time_min=600))
NODES = (slurm_node("x1"), slurm_node("x2"))


def refused(story: Story, number: int = 2072, at: float = NOW, **fields: object) -> None:
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, at)
    story.ended(asked, Outcome.REFUSED, at=at, number=number, **fields)


def test_a_refusal_for_good_is_reported_with_slurms_own_words_and_number() -> None:
    story = Story()
    refused(story)
    [said] = story.decides(NOW)
    assert isinstance(said, SetPodCondition)
    assert (said.condition, said.event, said.warning) == ("SlurmJobRefused", "SlurmJobRefused", True)
    assert said.message == "Slurm refused it (error 2072)."


def test_a_job_beyond_a_limit_on_jobs_in_the_queue_says_where_the_limit_is() -> None:
    story = Story()
    story.sees(replace(TRAIN, annotations={names.PREFIX + "account": "teama"}))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2050, later=True)
    [queued] = story.acts(SubmitJob, NOW)
    story.ended(queued, Outcome.REFUSED, at=NOW, number=2050, later=True)
    [said] = story.acts(SetPodCondition, NOW + 0.5)
    assert said.message.startswith(
        'Slurm refused it (error 2050). Asked for: user "alice", account "teama", partition "main". '
    )
    assert "sacctmgr show association where user=alice account=teama shows MaxSubmitJobs and more" in said.message


def test_a_refused_job_is_submitted_again_every_five_minutes() -> None:
    story = Story()
    refused(story)
    plan = story.plan(NOW)
    assert plan.wake_at == NOW + 300
    assert story.acts(AllocateNow, NOW + 299.9) == []
    assert len(story.acts(AllocateNow, NOW + 300)) == 1


@pytest.mark.parametrize(
    "change",
    [{"active_deadline_s": 200}, {"tolerations": (Toleration("gpu", "Exists"),)}, {"node_selector": {"zone": "a"}}],
    ids=["a shorter deadline", "one more toleration", "another node selector"],
)
def test_a_refused_job_is_submitted_again_at_once_if_its_user_changes_the_spec_of_the_pod(
    change: dict[str, Any],
) -> None:
    """Only changed annotations and resources counted: after a shorter deadline the pod waited for five minutes more."""
    story = Story()
    story.sees(NodeSeen(node("x1", labels={"zone": "a"})))
    refused(story, 2051)
    story.decides(NOW)
    story.sees(replace(TRAIN, **change))
    assert len(story.acts(AllocateNow, NOW + 1)) == 1


def test_a_timer_that_is_due_does_not_hide_the_next_one() -> None:
    story = Story()
    refused(story)
    story.decides(NOW)
    story.sees(pod("later"))
    [asked] = story.acts(AllocateNow, NOW + 1)
    story.ended(asked, Outcome.REFUSED, at=NOW + 1, number=2045)
    story.decides(NOW + 1)
    plan = story.plan(NOW + 300)
    assert len(plan.actions) == 1
    assert plan.wake_at == NOW + 301


def test_a_refused_job_is_submitted_again_when_the_annotations_change() -> None:
    story = Story()
    refused(story)
    story.decides(NOW)
    story.sees(replace(TRAIN, labels={"unrelated": "news"}))
    assert story.decides(NOW + 2) == []
    story.sees(replace(TRAIN, annotations={names.PREFIX + "account": "teama"}))
    [asked] = story.acts(AllocateNow, NOW + 2)
    assert asked.spec.account == "teama"


def test_a_refused_job_is_submitted_again_when_the_pod_is_resized() -> None:
    story = Story()
    refused(story)
    story.decides(NOW)
    story.sees(replace(TRAIN, containers=pod(cpu=500).containers))
    assert len(story.acts(AllocateNow, NOW + 2)) == 1


def test_a_dependency_on_an_unknown_job_is_reported_and_not_mistaken_for_a_twin() -> None:
    """Slurm's number for both is 2038; a submission never meets a twin."""
    story = Story()
    story.sees(pod("train", says={"dependency": "afterok:8"}))
    [asked] = story.acts(SubmitJob, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2038)
    [said] = story.decides(NOW)
    assert isinstance(said, SetPodCondition)
    assert said.message == "Slurm refused it (error 2038)."
    assert story.decides(NOW + 299) == []
    assert len(story.acts(SubmitJob, NOW + 300)) == 1


@pytest.mark.parametrize(
    "changed",
    [
        (*PARTITIONS, Partition("new")),
        (replace(PARTITIONS[0], up=False), PARTITIONS[1]),
        (replace(PARTITIONS[0], accepts=("teamb",)), PARTITIONS[1]),
    ],
    ids=["a new one", "its state", "the accounts that it accepts"],
)
def test_a_refused_job_is_submitted_again_when_slurms_partitions_change(changed: tuple[Partition, ...]) -> None:
    story = Story()
    refused(story)
    story.decides(NOW)
    story.sees(SlurmNodesPolled(NODES, PARTITIONS, NOW + 2))
    assert story.decides(NOW + 2) == []
    story.sees(SlurmNodesPolled(NODES, changed, NOW + 3))
    assert len(story.acts(AllocateNow, NOW + 3)) == 1


@pytest.mark.parametrize(
    "changed",
    [
        (replace(NODES[0], features=("h100",)), NODES[1]),
        (replace(NODES[0], cpus=2 * NODES[0].cpus), NODES[1]),
        (*NODES, slurm_node("x3")),
    ],
    ids=["a feature", "the size of a node", "a new node"],
)
def test_a_refused_job_is_submitted_again_when_the_configuration_of_slurms_nodes_changes(
    changed: tuple[SlurmNode, ...],
) -> None:
    """For example: no node had the feature that the pod asks for, and an admin gives it to a node."""
    story = Story()
    refused(story, 2014)
    story.decides(NOW)
    story.sees(
        SlurmNodesPolled((replace(NODES[0], held_cpus=1, states=frozenset({"MIXED"})), NODES[1]), PARTITIONS, NOW + 2)
    )
    assert story.decides(NOW + 2) == []
    story.sees(SlurmNodesPolled(changed, PARTITIONS, NOW + 3))
    assert len(story.acts(AllocateNow, NOW + 3)) == 1


def test_refused_jobs_are_not_submitted_again_each_time_an_autoscaler_removes_a_node() -> None:
    story = Story()
    story.sees(SlurmNodesPolled((*NODES, slurm_node("x3")), PARTITIONS, NOW - 1))
    refused(story, 2014)
    story.decides(NOW)
    story.sees(SlurmNodesPolled(NODES, PARTITIONS, NOW + 3))
    assert story.acts(AllocateNow, NOW + 3) + story.acts(SubmitJob, NOW + 3) == []


def test_a_job_beyond_a_limit_waits_for_another_job_to_end_also_when_slurms_nodes_change() -> None:
    story = Story()
    refused(story, 2050, later=True)
    [queued] = story.acts(SubmitJob, NOW)
    story.ended(queued, Outcome.REFUSED, at=NOW, number=2050, later=True)
    for written in story.decides(NOW):
        story.ended(written, at=NOW)
    story.sees(SlurmNodesPolled((*NODES, slurm_node("x3")), PARTITIONS, NOW + 0.5))
    assert story.decides(NOW + 0.5) == []
    assert story.world.limited == {"alice": {key_of(TRAIN): None}}, (
        "it is submitted again as soon as a job of alice ends"
    )


def test_a_partition_that_slurm_does_not_have_is_reported_before_anything_is_sent() -> None:
    story = Story()
    story.sees(SlurmNodesPolled(NODES, (PARTITIONS[0],), NOW))
    story.sees(pod("train", says={"partition": "gpu"}))
    [said] = story.decides(NOW)
    assert isinstance(said, SetPodCondition)
    assert said.message == 'Slurm has no partition "gpu". It has: main.'
    story.sees(SlurmNodesPolled(NODES, PARTITIONS, NOW + 1))
    assert len(story.acts(AllocateNow, NOW + 1)) == 1


@pytest.mark.parametrize(
    "says", [{"nice": "-1"}, {"account": "teamx"}, {"gang-size": "4"}, {"partitoin": "gpu"}], ids=str
)
def test_what_is_refused_here_is_never_sent_and_harms_no_other_pod(says: dict[str, str]) -> None:
    story = Story()
    story.sees(pod("bad", says=says), pod("good"))
    acts = story.decides(NOW)
    assert [each.name for each in acts if isinstance(each, SetPodCondition)] == ["bad"]
    [asked] = [each for each in acts if isinstance(each, AllocateNow)]
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    story.sees(pod("bad"))
    assert len(story.acts(AllocateNow, NOW + 1)) == 1  # corrected, and on its way at once


# --- limits -------------------------------------------------------------------------------------------------------


def test_an_unknown_account_is_no_trouble_for_a_pod_that_was_deleted_meanwhile() -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.loses(TRAIN, NOW + 1)
    story.ended(asked, Outcome.REFUSED, at=NOW + 2, number=ACCOUNT)
    assert not [each for each in story.decides(NOW + 600) if isinstance(each, AllocateNow | SubmitJob)]


def test_a_limit_is_asked_again_with_growing_pauses() -> None:
    story = Story()
    refused(story, number=2057, later=True)
    [queued] = story.acts(SubmitJob, NOW)  # a place in the queue may get around a limit on what runs
    story.ended(queued, Outcome.REFUSED, at=NOW, number=2057, later=True)
    pauses, at = [], NOW
    for _ in range(8):
        plan = story.plan(at)
        assert not [each for each in plan.actions if isinstance(each, AllocateNow | SubmitJob)]
        wake_at = story.world.workloads[next(iter(story.world.workloads))].retry_at
        pauses.append(wake_at - at)
        at = wake_at
        [asked] = story.acts(SubmitJob, at)
        story.ended(asked, Outcome.REFUSED, at=at, number=2057, later=True)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_pod_that_is_granted_nodes_before_its_pause_is_over_is_bound_at_once() -> None:
    """Another job of its user ends, so it is asked for at once; its bind does not wait for the rest of the pause."""
    story, at = Story(), NOW
    story.queues(pod("first"), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 0.1)
    story.sees(TRAIN)
    for _ in range(7):  # long pauses by now
        for each in (each for each in story.decides(at) if isinstance(each, AllocateNow | SubmitJob)):
            story.ended(each, Outcome.REFUSED, at=at, number=1007, later=True)
        at += 61
    at -= 31  # in the middle of a pause
    story.polls({17: "COMPLETED"}, at=at)
    asked = next(each for each in story.decides(at) if isinstance(each, AllocateNow) and each.key == key_of(TRAIN))
    story.ended(asked, at=at + 0.1, job_id=18, grant=grant(18))
    assert [each.uid for each in story.acts(BindPod, at + 0.1)] == [TRAIN.uid]


@pytest.mark.parametrize("in_quarantine", [False, True])
def test_when_an_own_job_of_that_user_ends_the_oldest_that_a_limit_held_back_goes_first(
    monkeypatch: pytest.MonkeyPatch, in_quarantine: bool
) -> None:
    """A workload in quarantine is not submitted, so it does not take the turn of another one."""
    story = Story(guarded=True)
    story.queues(pod("first"), 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 0.1)
    held = [pod(name, created=START + age) for name, age in (("younger", 9), ("older", 5))]
    bobs = pod("bobs", namespace="other", created=START)
    story.sees(*held, bobs)
    at = NOW + 1
    for _ in range(7):  # long pauses by now
        submissions = [each for each in story.decides(at) if isinstance(each, AllocateNow | SubmitJob)]
        for each in submissions:
            story.ended(each, Outcome.REFUSED, at=at, number=2057, later=True)
        at += 61
    at -= 31  # in the middle of a pause
    story.polls({17: "PENDING"}, at=at)
    if in_quarantine:
        breaks_rule(monkeypatch, Phase.UNSUBMITTED, "older")
        story.sees(replace(held[1], labels={"a": "b"}))
    assert story.acts(SubmitJob, at) == []
    story.polls({17: "COMPLETED"}, at=at + 1)
    [asked] = [
        each
        for each in story.decides(at + 1)
        if isinstance(each, AllocateNow | SubmitJob) and each.spec.user == "alice" and "first" not in each.spec.name
    ]
    assert asked.spec.name.startswith("hpc/younger~" if in_quarantine else "hpc/older~")


# --- F3 -----------------------------------------------------------------------------------------------------------


def test_no_feasible_node_is_reported_and_nothing_is_submitted_until_there_is_one() -> None:
    story = Story(nodes=[node("x1", ready=False)])
    story.sees(TRAIN)
    [said] = story.decides(NOW)
    assert isinstance(said, SetPodCondition)
    assert said.condition == "SlurmNoFeasibleNode"
    assert said.message == "0/1 nodes can run this pod in Slurm partition main: 1 not ready."
    assert story.decides(NOW + 400) == []
    story.sees(NodeSeen(node("x1")))
    assert len(story.acts(AllocateNow, NOW + 401)) == 1


def test_what_is_reported_changes_with_the_reason() -> None:
    story = Story(nodes=[node("x1", ready=False)])
    story.sees(TRAIN)
    story.decides(NOW)
    story.sees(NodeSeen(node("x1", unschedulable=True)))
    plan = story.plan(NOW + 1)
    assert plan.actions == ()  # at most once in two seconds a pod
    assert plan.wake_at == NOW + 2
    [said] = story.acts(SetPodCondition, NOW + 2)
    assert said.message.endswith("1 cordoned.")


@pytest.mark.parametrize("told_s", [40.0, 10**9])
def test_a_proxy_that_says_when_to_come_back_is_not_asked_before(told_s: float) -> None:
    story = Story()
    refused(story, 429, later=True, retry_after_s=told_s)
    until = NOW + min(told_s, 300.0)
    for at in (NOW + 1, NOW + 20, until - 0.1):
        assert story.acts(AllocateNow, at) == []
    assert len(story.acts(AllocateNow, until)) == 1


def busy(retry_after_s: float) -> Refusal:
    """What an overloaded API server, or a proxy before either side, answers (429)."""
    return Refusal(names.REFUSED, "It is busy.", 429, later=True, retry_after_s=retry_after_s)


def test_a_bind_is_not_repeated_before_the_time_that_the_api_server_asks_for() -> None:
    story = Story()
    bind = story.binds(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW)
    story.ended(bind, Outcome.REFUSED, at=NOW, refusal=busy(20.0))
    tried = [second for second in range(1, 40) if story.acts(BindPod, NOW + second)]
    assert tried[0] == 20


def test_a_condition_that_is_not_written_keeps_nothing_waiting() -> None:
    story = Story()
    refused(story)
    [said] = story.decides(NOW)
    story.ended(said, Outcome.REFUSED, at=NOW, refusal=busy(1000.0))
    assert story.world.workloads[said.key].backoff.until < NOW + 60


def test_a_pod_whose_jobs_are_cancelled_again_and_again_says_that_it_waits_for_the_next_one() -> None:
    """The status of the pod must not show an ended job as a job that waits."""
    story, at, ended = Story(), NOW, dict[int, str]()
    for job_id in (17, 18, 19):
        story.queues(TRAIN, job_id, at=at)
        story.polls(ended | {job_id: "PENDING"}, at=at + 1)
        ended[job_id] = "CANCELLED"
        story.polls(ended, at=at + 2)
        said = [each.message for each in story.acts(SetPodCondition, at + 2)]
        at += 2 + 2 ** (job_id - 17)  # when the next job is requested
        if job_id < 19:
            assert said == [], "the next job comes soon"
    again = "Earlier jobs of it ended, too: slurm-bridge asks for the next one at 00:17:13 UTC."
    assert said == [f"Slurm job 19 ended: CANCELLED before the pod had a node. {again}"]
    assert len(story.acts(SubmitJob, at)) == 1


def test_a_pod_whose_job_vanished_does_not_say_that_it_ended_when_slurm_cannot_be_asked_again() -> None:
    story, tries, said = Story(), 0, list[str]()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    for at in (NOW + second for second in range(2, 40)):
        story.polls(at=at)
        for each in story.decides(at):
            if isinstance(each, ReadJob):
                story.reads(None, job_id=17, at=at)
            if isinstance(each, SetPodCondition):
                said.append(each.message)
            asks = isinstance(each, AllocateNow | SubmitJob)
            tries += asks
            story.ended(each, Outcome.UNREACHED if asks else Outcome.DONE, at=at)
    assert tries > 3
    assert not [message for message in said if "Slurm job 17 ended" in message]


def test_a_pod_whose_grants_the_bridge_released_does_not_say_that_its_jobs_were_cancelled() -> None:
    """Then the pod shows why they were released."""
    story, said, asks, job_id = Story(), list[str](), 0, 17
    story.sees(pod("train", gpu=1))
    for at in (NOW + second for second in range(240)):
        for each in story.decides(at):
            if isinstance(each, AllocateNow | SubmitJob):
                asks, job_id = asks + 1, job_id + 1
                story.ended(each, at=at, job_id=job_id, grant=grant(job_id))
                story.polls({job_id: "RUNNING"}, at=at)
            elif isinstance(each, CancelJob):
                story.ended(each, at=at)
                story.polls({each.job_id: "CANCELLED"}, at=at + 0.1)
            else:
                said += [each.message] if isinstance(each, SetPodCondition) else []
                story.ended(each, at=at)
    assert asks > 3
    assert said
    assert not [message for message in said if "before the pod had a node" in message]
