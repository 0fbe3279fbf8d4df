"""Volume claims that change while their pod waits (F1), and claims that only one pod at a time may use (F4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.actions import (
    AllocateNow,
    BindPod,
    CancelJob,
    ReadClaims,
    ReadJob,
    SetPodCondition,
    SubmitJob,
    UpdateJob,
)
from scheduler.events import ClaimsRead, NodeDeleted, PodDeleted, PodSeen, Scope
from scheduler.model.kubernetes import Claim, NodeTerm, Pod, PodPhase, Requirement
from tests.builders import CONFIG, START, Story, grant, job_of, pod
from tests.unit.scheduler.test_gangs import member

NOW = START + 60
TRAIN = pod("train", claims=("data",))
USER = pod("reader", claims=("data",), node="x2", scheduler_name="default-scheduler")
FOR_ONE_POD = Claim("data", True, one_pod=True)
SAID = "only one pod at a time may use claim data of hpc/train (ReadWriteOncePod), and hpc/reader uses it"


def has_its_claim(story: Story, *pods: Pod, claim: Claim = FOR_ONE_POD) -> None:
    """The claim of these pods is read at NOW."""
    story.sees(*pods)
    for read in story.acts(ReadClaims, NOW):
        story.sees(ClaimsRead(read.uid, (claim,), NOW))
        story.ended(read, at=NOW)


def test_a_pod_waits_without_a_job_while_another_pod_uses_its_claim_that_only_one_pod_may_use() -> None:
    story = Story()
    story.polls(at=NOW)
    story.sees(PodSeen(Scope.OTHERS, USER))
    has_its_claim(story, TRAIN)
    [said] = story.decides(NOW)
    assert isinstance(said, SetPodCondition)
    assert said.message == f"The pod waits to be submitted: {SAID}."
    assert not said.warning
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


def test_a_job_that_its_user_renames_while_the_bind_waits_for_the_claim_of_another_pod_ends_with_its_pod() -> None:
    """The answer to an immediate allocation is no read, and only a job that was read is known by another name (V7, L2)."""
    story = Story()
    story.polls(at=NOW)
    has_its_claim(story, TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.sees(PodSeen(Scope.OTHERS, replace(USER, deleting_at=NOW + 30)))
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    [read] = story.acts(ReadJob, NOW)
    job = job_of(TRAIN, 17, submitted=NOW)
    story.reads(job, at=NOW + 0.1, granted=grant(17))
    story.ended(read, at=NOW + 0.1)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.reads(replace(job, name="pretty"), at=NOW + 2, granted=grant(17))
    story.loses(TRAIN, NOW + 3)
    story.polls({17: "RUNNING"}, at=NOW + 15)
    [cancel] = story.acts(CancelJob, NOW + 15)
    assert (cancel.job_id, cancel.name) == (17, "pretty")


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


@pytest.mark.parametrize(
    ("namespace", "claim", "user"),
    [("other", "data", "bob"), ("hpc", "eval", "alice")],
    ids=["in another namespace", "of another name"],
)
def test_two_pods_granted_in_one_pass_are_both_bound_if_their_claims_are_two(
    namespace: str, claim: str, user: str
) -> None:
    story, other = queues_with_its_claim(), pod("eval", namespace=namespace, claims=(claim,))
    has_its_claim(story, other, claim=Claim(claim, True, one_pod=True))
    story.queues(other, 18, at=NOW)
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW + 5)
    story.reads(job_of(TRAIN, 17), at=NOW + 5, granted=grant(17))
    story.reads(job_of(other, 18, user=user), at=NOW + 5, granted=grant(18, "x2"))
    assert {each.job_id for each in story.acts(BindPod, NOW + 5)} == {17, 18}


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


def on(name: str) -> Claim:
    """The claim, with a volume that only this node reaches."""
    return Claim("data", True, (NodeTerm(fields=(Requirement("metadata.name", "In", (name,)),)),))


def test_a_pod_whose_volume_no_node_reaches_is_submitted_after_its_claim_was_made_anew_elsewhere() -> None:
    """Kubernetes lets a user delete a claim while its pod waits, because a pod without a node does not protect it."""
    story = Story()
    story.polls(at=NOW)
    has_its_claim(story, TRAIN, claim=on("gone"))
    [said] = story.acts(SetPodCondition, NOW)
    assert "out of reach of the pod's volumes" in said.message
    story.ended(said, at=NOW)
    assert story.decides(NOW + 30) == []
    [read] = story.acts(ReadClaims, NOW + 60)
    story.sees(ClaimsRead(TRAIN.uid, (on("x2"),), NOW + 61))
    story.ended(read, at=NOW + 61)
    [asked] = story.acts(AllocateNow, NOW + 61)
    assert asked.spec.excluded_nodes == "x1"


def test_a_waiting_job_follows_a_claim_that_was_made_anew_after_the_node_of_its_volume_was_gone() -> None:
    story = Story()
    story.polls(at=NOW)
    has_its_claim(story, TRAIN, claim=on("x2"))
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 50)
    story.reads(job_of(TRAIN, 17, "PENDING", reason="Resources"), at=NOW + 50)
    story.sees(NodeDeleted("x2"))
    story.decides(NOW + 50)
    [read] = story.acts(ReadClaims, NOW + 60)
    story.sees(ClaimsRead(TRAIN.uid, (on("x1"),), NOW + 61))
    story.ended(read, at=NOW + 61)
    [update] = story.acts(UpdateJob, NOW + 61)
    assert (update.changes, update.spec.excluded_nodes) == ({"excluded_nodes"}, "x2")


def test_after_a_restart_a_waiting_pod_shows_that_its_claim_was_deleted_which_keeps_its_job_as_it_is() -> None:
    story, old = Story(), replace(TRAIN, created=START - 60)
    story.sees(old)
    story.polls({17: "PENDING"}, at=NOW)
    story.reads(job_of(old, 17, "PENDING", reason="Resources", submitted=START - 50), at=NOW)
    [read] = story.acts(ReadClaims, NOW)
    story.sees(ClaimsRead(old.uid, (Claim("data", False, problem="claim data does not exist"),), NOW))
    story.ended(read, at=NOW)
    story.decides(NOW)
    [said] = story.acts(SetPodCondition, NOW + 5)
    assert said.message.startswith("Waiting in Slurm partition main (Resources")
    assert said.message.endswith(" Claim data does not exist.")


def test_a_pod_whose_claim_cannot_be_used_says_so_in_a_sentence() -> None:
    story = Story()
    story.sees(TRAIN)
    [read] = story.acts(ReadClaims, NOW)
    problem = "claim data names the storage class fast, which does not exist"
    story.sees(ClaimsRead(TRAIN.uid, (Claim("data", False, problem=problem),), NOW))
    story.ended(read, at=NOW)
    [said] = story.acts(SetPodCondition, NOW)
    assert said.message == "Claim data names the storage class fast, which does not exist."
