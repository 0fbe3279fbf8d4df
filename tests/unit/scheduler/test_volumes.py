"""Volume claims that only one pod at a time may use (F4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.actions import AllocateNow, BindPod, CancelJob, ReadClaims, SetPodCondition, SubmitJob
from scheduler.events import ClaimsRead, PodDeleted, PodSeen, Scope
from scheduler.model.kubernetes import Claim, Pod, PodPhase
from tests.builders import CONFIG, START, Story, grant, job_of, pod
from tests.unit.scheduler.test_gangs import member

NOW = START + 60
TRAIN = pod("train", claims=("data",))
USER = pod("reader", claims=("data",), node="x2", scheduler_name="default-scheduler")
SAID = "only one pod at a time may use claim data of hpc/train (ReadWriteOncePod), and hpc/reader uses it"


def has_its_claim(story: Story, *pods: Pod) -> None:
    """The claim of these pods is read at NOW: one pod at a time may use it."""
    story.sees(*pods)
    for read in story.acts(ReadClaims, NOW):
        story.sees(ClaimsRead(read.uid, (Claim("data", True, one_pod=True),), NOW))
        story.ended(read, at=NOW)


def test_a_pod_waits_without_a_job_while_another_pod_uses_its_claim_that_only_one_pod_may_use() -> None:
    story = Story()
    story.polls(at=NOW)
    story.sees(PodSeen(Scope.OTHERS, USER))
    has_its_claim(story, TRAIN)
    [said] = story.decides(NOW)
    assert isinstance(said, SetPodCondition)
    assert said.message == f"The pod waits to be submitted: {SAID}."
    assert story.decides(NOW + 5) == []
    story.sees(PodSeen(Scope.OTHERS, replace(USER, phase=PodPhase.SUCCEEDED)))
    assert [type(each) for each in story.decides(NOW + 10)] == [AllocateNow]


def queues_with_its_claim() -> Story:
    """The pod's job waits in the queue, and no other pod uses its claim."""
    story = Story()
    story.polls(at=NOW)
    has_its_claim(story, TRAIN)
    story.queues(TRAIN, 17, at=NOW)
    return story


def is_granted(story: Story) -> None:
    story.polls({17: "RUNNING"}, at=NOW + 5)
    story.reads(job_of(TRAIN, 17), at=NOW + 5, granted=grant(17))


def test_a_grant_is_released_if_another_pod_uses_the_claim_that_only_one_pod_may_use() -> None:
    story = queues_with_its_claim()
    story.sees(PodSeen(Scope.OTHERS, USER))
    is_granted(story)
    [cancel] = story.acts(CancelJob, NOW + 5)
    assert cancel.reason == f"released: {SAID}"
    story.ended(cancel, at=NOW + 5)
    story.polls({17: "CANCELLED"}, at=NOW + 6)
    assert not [each for each in story.decides(NOW + 7) if isinstance(each, AllocateNow | SubmitJob)]


@pytest.mark.parametrize("is_gone", [True, False])
def test_the_bind_waits_for_a_terminating_pod_whose_claim_only_one_pod_may_use_but_not_without_end(
    is_gone: bool,
) -> None:
    story = queues_with_its_claim()
    leaving = replace(USER, deleting_at=NOW + 30)
    story.sees(PodSeen(Scope.OTHERS, leaving))
    is_granted(story)
    [said] = story.decides(NOW + 5)
    assert isinstance(said, SetPodCondition)
    assert said.message == f"The bind for Slurm job 17 waits: {SAID}."
    if is_gone:
        story.sees(PodDeleted(Scope.OTHERS, leaving, NOW + 20))
        assert [type(each) for each in story.decides(NOW + 20)] == [BindPod]
    else:
        late = NOW + 5 + CONFIG.tuning.claims_s
        story.polls({17: "RUNNING"}, at=late)
        assert [type(each) for each in story.decides(late)] == [CancelJob]


def test_of_two_pods_granted_in_one_pass_only_one_gets_the_claim_that_only_one_pod_may_use() -> None:
    story, other = queues_with_its_claim(), replace(pod("eval", claims=("data",)))
    has_its_claim(story, other)
    story.queues(other, 18, at=NOW)
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW + 5)
    story.reads(job_of(TRAIN, 17), at=NOW + 5, granted=grant(17))
    story.reads(job_of(other, 18), at=NOW + 5, granted=grant(18, "x2"))
    acts = story.decides(NOW + 5)
    assert sorted(type(each).__name__ for each in acts if not isinstance(each, SetPodCondition)) == [
        "BindPod",
        "CancelJob",
    ]


def test_pods_of_a_gang_that_share_a_claim_that_only_one_pod_may_use_say_that_they_cannot_start_together() -> None:
    story = Story()
    story.polls(at=NOW)
    has_its_claim(story, *(replace(member(rank, 2), claims=("data",)) for rank in range(2)))
    acts = story.decides(NOW)
    assert {type(each) for each in acts} == {SetPodCondition}
    [said] = {each.message for each in acts if isinstance(each, SetPodCondition)}
    assert said == (
        "w-1: only one pod at a time may use claim data of hpc/w-1 (ReadWriteOncePod), and hpc/w-0 uses it. "
        "Both are pods of one gang, which start together: give each a claim of its own."
    )
