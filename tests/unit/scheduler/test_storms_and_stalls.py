"""Findings of a strict review: no request is repeated without end, no pod waits for ever or runs where it must not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, BindPod, CancelJob, Outcome, PollNodes, ReadJob, SetPodCondition, SubmitJob
from scheduler.events import NodeSeen, OutageBegan, OutageEnded, PodDeleted, Scope, Side, SlurmNodesPolled
from scheduler.events import PodSeen as Seen
from scheduler.model.kubernetes import Taint
from scheduler.model.slurm import Partition
from scheduler.policy.rules import Choice, Policy, Rule
from tests.builders import ALICE, CONFIG, START, Story, grant, job_of, node, pod, slurm_node, without

NOW = START + 20
TRAIN = pod("train", created=START - 60)  # older than this process


def adopts(story: Story, **fields: str) -> None:
    """A running job of a previous process, found by its id."""
    story.sees(TRAIN)
    story.polls({17: "RUNNING"}, at=NOW)
    story.reads(replace(job_of(TRAIN, 17, "RUNNING"), **fields), at=NOW, granted=grant(17))


def test_a_job_of_a_previous_process_is_bound_where_the_policy_still_allows_it() -> None:
    story = Story()
    adopts(story, account="teama")
    assert [each.job_id for each in story.acts(BindPod, NOW)] == [17]


def test_a_job_in_a_partition_that_the_policy_does_not_give_is_released() -> None:
    """V8: made under another policy, or by its user himself."""
    story = Story()
    adopts(story, partition="secret")
    [cancel] = story.acts(CancelJob, NOW)
    assert 'partition "secret" is not allowed' in cancel.reason


def queued_and_changed(story: Story, **fields: str) -> None:
    """The bridge submitted the job.  While the job waited, its user changed it."""
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 2)
    story.decides(NOW + 2)
    story.reads(replace(job_of(TRAIN, 17, "RUNNING"), **fields), at=NOW + 2, granted=grant(17))


@pytest.mark.parametrize("fields", [{"partition": "secret"}, {"qos": "urgent"}, {"account": "rich"}])
def test_a_waiting_job_that_its_user_moved_out_of_the_policy_is_released(fields: dict[str, str]) -> None:
    tenant = replace(ALICE, accounts=Choice("teama"), qos=Choice("normal"))
    story = Story(replace(CONFIG, policy=Policy((Rule(("hpc",), tenant),))))
    queued_and_changed(story, **({"account": "teama", "qos": "normal"} | fields))
    [cancel] = story.acts(CancelJob, NOW + 2)
    [changed] = fields.values()
    assert f'"{changed}" is not allowed' in cancel.reason


def test_a_waiting_job_is_bound_though_the_default_partition_of_slurm_changed() -> None:
    story = Story(replace(CONFIG, policy=Policy((Rule(("hpc",), replace(ALICE, partitions=Choice())),))))
    story.queues(TRAIN, 17, at=NOW)
    story.sees(SlurmNodesPolled((slurm_node("x1"),), (Partition("main"), Partition("gpu", default=True)), NOW + 1))
    story.polls({17: "RUNNING"}, at=NOW + 2)
    story.decides(NOW + 2)
    story.reads(replace(job_of(TRAIN, 17, "RUNNING"), partition="main"), at=NOW + 2, granted=grant(17))
    assert [each.job_id for each in story.acts(BindPod, NOW + 2)] == [17]


def test_a_waiting_job_that_an_admin_moved_within_the_policy_is_bound() -> None:
    story = Story()
    queued_and_changed(story, partition="gpu")
    assert [each.job_id for each in story.acts(BindPod, NOW + 2)] == [17]


def test_a_node_that_was_tainted_meanwhile_is_not_bound_to() -> None:
    story = Story()
    waiting = pod("train")
    story.sees(waiting)
    [asked] = story.acts(AllocateNow, NOW)
    story.sees(NodeSeen(node("x1", taints=(Taint("maintenance", "now", "NoExecute"),))))
    story.ended(asked, at=NOW + 1, job_id=17, grant=grant(17))
    acts = story.decides(NOW + 1)
    assert not any(isinstance(each, BindPod) for each in acts)
    [cancel] = [each for each in acts if isinstance(each, CancelJob)]
    assert "untolerated taint {maintenance: now}" in cancel.reason


def test_nothing_is_decided_on_a_kubernetes_not_heard_of_for_half_a_minute() -> None:
    """X2: what is known of room and pods is too old to act on."""
    story = Story()
    story.sees(pod("train"))
    [asked] = story.acts(AllocateNow, NOW)
    story.sees(OutageBegan(Side.KUBERNETES, NOW, "away."))
    story.ended(asked, at=NOW + 100, job_id=17, grant=grant(17))
    assert story.decides(NOW + 100) == []
    story.sees(OutageEnded(Side.KUBERNETES, NOW + 101))
    assert [type(each) for each in story.decides(NOW + 101)] == [BindPod]


def test_an_unknown_node_is_asked_about_once_and_after_a_failure_with_a_pause() -> None:
    story = Story()
    story.sees(pod("train"))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2018)
    [poll] = story.acts(PollNodes, NOW)
    assert story.acts(PollNodes, NOW + 0.001) == []
    story.ended(poll, Outcome.UNKNOWN, at=NOW + 1)
    assert story.acts(PollNodes, NOW + 2) == []
    assert len(story.acts(PollNodes, NOW + 7)) == 1
    story.sees(SlurmNodesPolled((slurm_node("x1"),), (Partition("main", default=True),), NOW + 8))
    assert story.acts(PollNodes, NOW + 9) == []


def test_a_job_that_cannot_be_read_keeps_neither_others_nor_pods_waiting() -> None:
    story = Story()
    story.polls({5: "RUNNING", 9: "RUNNING"}, at=NOW)
    reads = {5: 0, 9: 0}
    for second in range(120):
        for read in story.acts(ReadJob, NOW + second):
            reads[read.job_id] += 1
            if read.job_id == 5:
                story.reads(replace(job_of(TRAIN, 5), name="native"), at=NOW + second)
            story.ended(read, Outcome.DONE if read.job_id == 5 else Outcome.UNKNOWN, at=NOW + second)
    assert reads[5] == 1
    assert reads[9] == 6
    assert story.world.unread == []


def cannot_be_read(*job_ids: int, **tuning: float) -> Story:
    """Jobs whose reads failed so often that they are read seldom; all of them are due at NOW."""
    story = Story(without(CONFIG, **tuning))
    story.polls(dict.fromkeys(job_ids, "RUNNING"), at=START)
    for job_id in job_ids:
        story.world.postpone_read(job_id, NOW)
    return story


def test_jobs_whose_reads_failed_are_read_seldom_and_each_read_is_sent_once() -> None:
    story = cannot_be_read(5, 9)
    assert story.acts(ReadJob, NOW - 1) == []
    reads = story.acts(ReadJob, NOW)
    assert [each.job_id for each in reads] == [5, 9]
    assert story.acts(ReadJob, NOW + 1) == [], "they are in flight"
    for read in reads:
        story.ended(read, Outcome.UNKNOWN, at=NOW + 2)
    assert story.acts(ReadJob, NOW + 3) == []


def test_jobs_whose_reads_failed_take_turns_with_other_reads() -> None:
    story = cannot_be_read(5, 9, reads=1)
    [first] = story.acts(ReadJob, NOW)
    story.ended(first, Outcome.UNKNOWN, at=NOW + 1)
    assert [each.job_id for each in story.acts(ReadJob, NOW + 1)] == [9]


def test_of_many_jobs_whose_reads_failed_one_is_read_a_second() -> None:
    story = cannot_be_read(5, 7, 9, unknown_rate=1)
    assert [each.job_id for each in story.acts(ReadJob, NOW)] == [5]
    plan = story.plan(NOW + 0.1)
    assert (list(plan.actions), plan.wake_at) == ([], pytest.approx(NOW + 1, abs=0.01))
    assert [each.job_id for each in story.acts(ReadJob, NOW + 1.01)] == [7]


def test_a_released_grant_is_told_although_the_bind_to_other_nodes_overtook_the_condition() -> None:
    """The bind changed the pod, so Kubernetes refuses the condition; with the condition its event was lost."""
    story = Story()
    story.sees(pod("train"))
    [asked] = story.acts(AllocateNow, NOW)
    story.sees(Seen(Scope.OTHERS, replace(pod("other", cpu=64000), node="x1", scheduler_name="default-scheduler")))
    story.ended(asked, at=NOW + 1, job_id=17, grant=grant(17))
    [cancel] = story.acts(CancelJob, NOW + 1)
    story.ended(cancel, at=NOW + 1)
    acts = story.decides(NOW + 1)
    [said] = [each for each in acts if isinstance(each, SetPodCondition)]
    [again] = [each for each in acts if isinstance(each, AllocateNow)]
    story.ended(again, at=NOW + 1.1, job_id=18, grant=grant(18, "x2"))
    [bind] = story.acts(BindPod, NOW + 1.1)
    story.ended(bind, at=NOW + 1.2)
    story.ended(said, Outcome.REFUSED, at=NOW + 1.3, number=409)
    [told] = story.acts(SetPodCondition, NOW + 10)
    assert (told.condition, told.event, told.message) == ("", names.GRANT_RELEASED, said.message)
    story.ended(told, at=NOW + 10)
    assert story.acts(SetPodCondition, NOW + 20) == []


def test_if_the_only_node_could_not_be_used_that_is_reported_and_tried_again_when_there_is_room() -> None:
    story = Story(nodes=(node("x1"),))
    blocker = replace(pod("other", cpu=64000), node="x1", scheduler_name="default-scheduler")
    story.sees(pod("train"))
    [asked] = story.acts(AllocateNow, NOW)
    story.sees(Seen(Scope.OTHERS, blocker))
    story.ended(asked, at=NOW + 1, job_id=17, grant=grant(17))
    [cancel] = story.acts(CancelJob, NOW + 1)
    story.ended(cancel, at=NOW + 1)
    [release_messages] = story.acts(SetPodCondition, NOW + 1)
    assert release_messages.condition == names.GRANT_RELEASED
    acts = story.decides(NOW + 10)
    assert not any(isinstance(each, AllocateNow | SubmitJob) for each in acts)
    [said] = [each for each in acts if isinstance(each, SetPodCondition)]
    assert said.condition == names.NO_NODE
    assert "could not be used when Slurm granted them: x1" in said.message
    assert story.acts(AllocateNow, NOW + 62) == [], "the other pod still stands there"
    story.sees(PodDeleted(Scope.OTHERS, blocker, NOW + 90))
    assert story.acts(AllocateNow, NOW + 122) != []
