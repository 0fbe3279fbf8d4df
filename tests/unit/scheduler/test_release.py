"""A grant that cannot be used is released, the pod says so, and other nodes are asked for (S11, F6)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    AllocateNow,
    BindPod,
    CancelJob,
    Outcome,
    PollNodes,
    ReadJob,
    SetPodCondition,
    SubmitJob,
    UpdateJob,
)
from scheduler.decide import NODE_POLL_S
from scheduler.events import NodeDeleted, NodeSeen, PodDeleted, PodSeen, Scope, SlurmNodesPolled
from scheduler.explain import explain
from scheduler.model.kubernetes import Container, Pod, PodPhase
from scheduler.model.slurm import Grant, GrantedNode, Job, Partition
from scheduler.place.fit import EXTRA_WAIT_S
from scheduler.policy.rules import Choice, Policy, Rule, Tenant
from tests.builders import CONFIG, KUBE_SYSTEM, MIB, START, Story, grant, job_of, key_of, node, pod, slurm_node

NOW = START + 20
NODES = ("x1", "x2", "x3", "x4")
BIG = pod("big", cpu=40_000)
OTHER = pod("other", cpu=40_000, namespace="elsewhere", node="x1", scheduler_name="default-scheduler", grace_s=30)


def ring(size: int) -> list[Pod]:
    """A gang of pods of 30 CPUs; an empty node takes two of them."""
    said: dict[str, Any] = {"labels": {names.PREFIX + names.GANG: "ring"}, "says": {"gang-size": str(size)}}
    return [pod(f"ring-{rank}", cpu=30_000, **said) for rank in range(size)]


def granted(story: Story, what: Pod, given: Grant, at: float = NOW) -> None:
    story.sees(what)
    [asked] = story.acts(AllocateNow, at)
    story.ended(asked, at=at, job_id=given.job_id, grant=given)


def test_a_grant_that_lacks_a_gpu_is_released_and_reported() -> None:
    story = Story()
    granted(story, pod("train", gpu=2), grant(17, gpu=1))
    [cancel] = story.decides(NOW)
    assert isinstance(cancel, CancelJob)
    assert cancel.reason == "released: Slurm granted it without 2 gpu (1 on x1)"
    story.ended(cancel, at=NOW + 1)
    said, again = story.decides(NOW + 2)
    assert isinstance(said, SetPodCondition)
    assert isinstance(again, AllocateNow)
    assert (said.condition, said.event, said.warning) == ("SlurmGrantReleased", "SlurmGrantReleased", True)
    assert (
        said.message
        == "Slurm job 17 was released, and nodes are requested again: Slurm granted it without 2 gpu (1 on x1)."
    )
    assert again.spec.excluded_nodes == "x1"  # for a minute, or it would be granted and released over and over


def test_a_grant_shows_its_release_when_its_job_has_ended_and_not_before() -> None:
    story = Story()
    granted(story, pod("train", gpu=2), grant(17, gpu=1))
    [cancel] = story.acts(CancelJob, NOW)
    story.ended(cancel, Outcome.UNKNOWN, at=NOW + 10)
    assert story.acts(SetPodCondition, NOW + 10) == [], "nobody knows whether it happened"
    story.polls({17: "CANCELLED"}, at=NOW + 11)
    [said] = story.acts(SetPodCondition, NOW + 11)
    assert said.event == names.GRANT_RELEASED
    assert [each for each in story.acts(SetPodCondition, NOW + 60) if each.event == names.GRANT_RELEASED] == [], "once"


def test_nodes_are_requested_at_once_after_a_release_although_a_twin_of_the_released_job_ended_first() -> None:
    story = Story()
    train = pod("train", gpu=2)
    granted(story, train, grant(17, gpu=1))
    [cancel] = story.acts(CancelJob, NOW)
    story.polls({16: "PENDING", 17: "RUNNING"}, at=NOW + 1)
    story.reads(job_of(train, 16, "PENDING"), at=NOW + 1)
    story.polls({16: "CANCELLED", 17: "RUNNING"}, at=NOW + 2)
    story.ended(cancel, at=NOW + 2)
    acts = story.decides(NOW + 2)
    assert [each.spec.excluded_nodes for each in acts if isinstance(each, AllocateNow | SubmitJob)] == ["x1"]
    assert [each.event for each in acts if isinstance(each, SetPodCondition)] == [names.GRANT_RELEASED]


def test_a_grant_is_not_released_in_the_quiet_period() -> None:
    story = Story()
    granted(story, pod("train", gpu=2), grant(17, gpu=1), at=START + 1)
    plan = story.plan(START + 1)
    assert plan.actions == ()
    assert plan.wake_at == START + 12
    assert len(story.acts(CancelJob, START + 12)) == 1


def test_a_node_that_kubernetes_does_not_have_is_never_bound_to() -> None:
    story = Story()
    granted(story, pod("train"), grant(17, "unheard-of"))
    acts = story.decides(NOW)
    assert not any(isinstance(each, BindPod) for each in acts)
    [cancel] = [each for each in acts if isinstance(each, CancelJob)]
    assert cancel.reason == "released: Kubernetes has no node for Slurm's unheard-of"


def test_a_node_that_went_between_grant_and_bind_is_not_bound_to() -> None:
    for change in (NodeDeleted("x1"), NodeSeen(node("x1", ready=False)), NodeSeen(node("x1", unschedulable=True))):
        story = Story()
        granted(story, pod("train"), grant(17))
        story.sees(change)
        acts = story.decides(NOW)
        assert not any(isinstance(each, BindPod) for each in acts)
        assert len([each for each in acts if isinstance(each, CancelJob)]) == 1


def test_a_node_with_a_pod_of_another_scheduler_is_left_out_for_a_minute() -> None:
    story = Story()
    story.sees(PodSeen(Scope.OTHERS, OTHER))
    granted(story, BIG, grant(17, cpus=40))
    [cancel] = story.acts(CancelJob, NOW)
    assert cancel.reason == ("released: on node x1 other pods use the cpu that the pod needs")
    story.ended(cancel, at=NOW + 1)
    [again] = story.acts(AllocateNow, NOW + 2)
    assert again.spec.excluded_nodes == "x1"


def test_where_one_grant_could_not_be_used_for_lack_of_room_the_next_workload_does_not_ask() -> None:
    story = Story()
    story.sees(PodSeen(Scope.OTHERS, OTHER))
    granted(story, BIG, grant(17, cpus=40))
    story.acts(CancelJob, NOW)
    story.sees(replace(BIG, name="next", uid="uid-next"), pod("small"))
    excluded = {asked.spec.name.split("~")[0]: asked.spec.excluded_nodes for asked in story.acts(AllocateNow, NOW + 1)}
    assert excluded == {"hpc/next": "x1", "hpc/small": ""}, "a small one has room there"


def test_where_only_that_node_is_left_the_next_workload_asks_for_it_and_finds_out_itself() -> None:
    story = Story(nodes=[node("x1")])
    story.sees(PodSeen(Scope.OTHERS, OTHER))
    granted(story, BIG, grant(17, cpus=40))
    story.acts(CancelJob, NOW)
    story.sees(replace(BIG, name="next", uid="uid-next"))
    [asked] = story.acts(AllocateNow, NOW + 1)
    assert asked.spec.excluded_nodes == ""


def test_the_first_grants_that_are_released_are_asked_for_elsewhere_at_once() -> None:
    story = Story(nodes=[node(name) for name in NODES])
    story.sees(BIG)
    waited = []
    for number, name in enumerate(NODES):
        at = NOW + 20 * number
        [asked] = story.acts(AllocateNow, at)
        story.sees(PodSeen(Scope.OTHERS, replace(OTHER, name=name, uid=name, node=name)))
        story.ended(asked, at=at, job_id=17 + number, grant=grant(17 + number, name, cpus=40))
        [cancel] = story.acts(CancelJob, at)
        story.ended(cancel, at=at)
        waited.append(story.world.workloads[key_of(BIG)].backoff.until - at)
    assert waited == [0, 0, 0, 8], "and then it waits ever longer"


def queues_elsewhere(story: Story, what: Pod = BIG, *, other: Pod = OTHER) -> None:
    """The pod is granted x1, which the other fills, releases the grant, and waits as job 18 without x1."""
    story.sees(PodSeen(Scope.OTHERS, other))
    granted(story, what, grant(17, cpus=40))
    [cancel] = story.acts(CancelJob, NOW)
    story.ended(cancel, at=NOW)
    story.world.breakers["main"].open_until = NOW + 3600
    [queued] = story.acts(SubmitJob, NOW + 1)
    assert queued.spec.excluded_nodes == "x1"
    story.ended(queued, at=NOW + 1, job_id=18)
    story.polls({18: "PENDING"}, at=NOW + 2)
    story.decides(NOW + 2)


def updates(story: Story, first: float, last: float) -> list[tuple[float, str]]:
    """The node lists that the waiting job gets, and when, if the loop looks every 5 s."""
    found: list[tuple[float, str]] = []
    for at in range(int(first), int(last) + 1, 5):
        for update in story.acts(UpdateJob, at):
            story.ended(update, at=at)
            found.append((at, update.spec.excluded_nodes))
    return found


def test_a_job_that_waits_gets_the_node_back_within_a_minute_after_there_is_room() -> None:
    story = Story()
    queues_elsewhere(story)
    assert updates(story, NOW + 5, NOW + 1000) == [], "the other pod fills the node, and Slurm does not know"
    story.sees(PodDeleted(Scope.OTHERS, OTHER, NOW + 1001))
    [(at, without)] = updates(story, NOW + 1005, NOW + 2000)
    assert (at <= NOW + 1065, without) == (True, "")


def test_a_request_for_none_of_a_resource_does_not_matter_when_nodes_are_judged_again() -> None:
    story = Story()
    requests = {"cpu": 40_000, "memory": 100 * MIB, "nvidia.com/gpu": 0}
    queues_elsewhere(story, replace(BIG, containers=(Container("main", requests=requests),)))
    story.sees(PodDeleted(Scope.OTHERS, OTHER, NOW + 10))
    assert [without for _, without in updates(story, NOW + 11, NOW + 100)] == [""]


def test_a_node_with_room_for_just_this_pod_is_asked_for_again() -> None:
    story = Story()
    beside = pod("beside", cpu=24_000, namespace="elsewhere", node="x1", scheduler_name="default-scheduler")
    story.sees(PodSeen(Scope.OTHERS, beside))
    queues_elsewhere(story)
    story.sees(PodDeleted(Scope.OTHERS, OTHER, NOW + 10))
    assert [without for _, without in updates(story, NOW + 11, NOW + 100)] == [""]


def test_a_node_that_slurm_has_no_more_is_not_left_out_by_name() -> None:
    """Slurm refuses a job that names an unknown node (error 2018)."""
    story = Story()
    queues_elsewhere(story)
    story.sees(SlurmNodesPolled((slurm_node("x2"),), (Partition("main", default=True),), NOW + 8))
    assert [without for _, without in updates(story, NOW + 10, NOW + 30)] == [""]


def test_a_pod_without_requests_keeps_away_from_a_node_with_as_many_pods_as_it_may_have() -> None:
    story = Story(nodes=[node("x1", pods=1), node("x2")])
    story.runs(pod("ours"), 16, at=NOW)
    times = in_vain(story, [pod("small", containers=(Container("main"),))], grant(17), 600)
    assert times == [0]


def test_explain_counts_the_nodes_that_are_left_out() -> None:
    story = Story()
    queues_elsewhere(story)
    told = explain(story.world, key_of(BIG), NOW + 5).nodes
    assert told is not None
    assert told.usable == ("x2",)
    assert told.misses == (("on which a grant could not be used a while ago", 1),)


def test_what_is_left_out_is_forgotten_when_the_pod_is_bound() -> None:
    story = Story()
    queues_elsewhere(story)
    story.polls({18: "RUNNING"}, at=NOW + 6)
    story.reads(job_of(BIG, 18, "RUNNING"), at=NOW + 6, granted=grant(18, "x2", cpus=40))
    [bind] = story.acts(BindPod, NOW + 6)
    story.ended(bind, at=NOW + 6)
    story.sees(story.bound(BIG, 18, "x2"))
    assert story.world.workloads[key_of(BIG)].left_out is None


def is_granted_a_claimed_node_in_vain(story: Story) -> Pod:
    """BIG is granted x1 in vain, because a pod that another client bound, the result, is there."""
    claimed = replace(OTHER, namespace="hpc", scheduler_name=names.SCHEDULER_NAME)
    story.sees(claimed)
    granted(story, BIG, grant(17, cpus=40))
    [cancel] = story.acts(CancelJob, NOW)
    story.ended(cancel, at=NOW)
    return claimed


def test_a_pod_that_another_client_bound_keeps_its_node_from_useless_grants() -> None:
    story = Story()
    claimed = is_granted_a_claimed_node_in_vain(story)
    for at in (1, 61, 121):
        [asked] = story.acts(AllocateNow, NOW + at)
        assert asked.spec.excluded_nodes == "x1"
        story.ended(asked, Outcome.UNREACHED, at=NOW + at)
    story.sees(replace(claimed, deleting_at=NOW + 170))  # a grant there waits for it, and need not be released
    [asked] = story.acts(AllocateNow, NOW + 181)
    assert asked.spec.excluded_nodes == ""


def test_a_node_is_kept_from_useless_grants_by_a_pod_that_did_not_end_in_its_grace() -> None:
    story = Story()
    claimed = is_granted_a_claimed_node_in_vain(story)
    story.sees(replace(claimed, deleting_at=NOW + 60 - EXTRA_WAIT_S))
    [asked] = story.acts(AllocateNow, NOW + 60)
    assert asked.spec.excluded_nodes == "x1", "a bind would wait for it no longer"


def fills_x1(story: Story, cpu: int) -> None:
    """OTHER leaves, a pod with a job takes `cpu` millicores of x1, and allocations at once are allowed again."""
    story.sees(PodDeleted(Scope.OTHERS, OTHER, NOW + 20))
    story.world.breakers["main"].open_until = NOW
    story.checked, story.world.queued_in["main"] = False, 0
    story.runs(pod("ours", cpu=cpu), 19, at=NOW + 21)
    story.checked, story.world.queued_in["main"] = True, 1


def test_a_job_waits_in_slurms_queue_for_a_node_that_only_pods_with_jobs_fill() -> None:
    """Slurm keeps nodes for jobs that have waited long; an excluded node it would give to smaller jobs for ever."""
    story = Story()
    queues_elsewhere(story)
    fills_x1(story, 60_000)
    [(at, without)] = updates(story, NOW + 25, NOW + 1000)
    assert (at <= NOW + 65, without) == (True, "")


def test_a_job_waits_in_slurms_queue_for_a_node_that_a_pod_of_another_bridge_fills() -> None:
    story = Story()
    theirs = pod("theirs", cpu=60_000, node="x1", scheduler_name="second-bridge", says={"job-id": "30"})
    cluster = names.cluster_id(KUBE_SYSTEM.uid, "second-bridge")
    job = Job(30, f"hpc/theirs~{cluster}.{key_of(theirs)}", "alice", frozenset({"RUNNING"}))
    story.sees(PodSeen(Scope.OTHERS, theirs))
    story.polls({30: "RUNNING"}, at=NOW)
    for number in range(2):  # as a job that Slurm lists, and as the job that the pod names
        reads = story.acts(ReadJob, NOW + number)
        story.reads(job, at=NOW + number)
        for read in reads:
            story.ended(read, at=NOW + number)
        story.polls({30: "RUNNING"}, at=NOW + number)
    granted(story, BIG, grant(17, cpus=40), NOW + 2)
    [cancel] = story.acts(CancelJob, NOW + 2)
    story.ended(cancel, at=NOW + 2)
    [asked] = story.acts(AllocateNow, NOW + 62)
    assert asked.spec.excluded_nodes == ""


@pytest.mark.parametrize("is_stray", [True, False], ids=["another client bound it", "its job has ended"])
def test_a_job_does_not_wait_for_a_node_that_a_pod_of_the_bridge_fills_for_which_slurm_holds_nothing(
    is_stray: bool,
) -> None:
    story = Story()
    if is_stray:
        story.sees(*ring(2))
        [asked] = story.acts(AllocateNow, NOW - 5)
        story.ended(asked, at=NOW - 5, job_id=16, grant=Grant(16, (GrantedNode("x1", 60, 200),)))
        first, second = story.acts(BindPod, NOW - 5)
        ours, stray = (story.world.workloads[bind.key].pods[bind.uid] for bind in (first, second))
        story.ended(first, at=NOW - 5)
        story.sees(story.bound(ours, 16), replace(stray, node="x1", phase=PodPhase.RUNNING))
        story.ended(second, Outcome.REFUSED, at=NOW - 5, number=409)
    else:
        story.runs(pod("ours", cpu=60_000), 16, at=NOW - 5)
    granted(story, BIG, grant(17, cpus=40))
    [cancel] = story.acts(CancelJob, NOW)
    story.ended(cancel, at=NOW)
    story.polls({16: "RUNNING" if is_stray else "CANCELLED"}, at=NOW + 1)
    [asked] = story.acts(AllocateNow, NOW + 60)
    assert asked.spec.excluded_nodes == "x1"


def test_a_job_waits_in_slurms_queue_for_a_node_beside_a_pod_that_leaves_room_enough() -> None:
    """What Slurm counts is in the way, and beside the other pod the job fits."""
    story = Story()
    story.sees(
        PodSeen(Scope.OTHERS, replace(OTHER, uid="daemon", name="daemon", containers=pod(cpu=10_000).containers))
    )
    queues_elsewhere(story)
    fills_x1(story, 50_000)
    [(_, without)] = updates(story, NOW + 25, NOW + 1000)
    assert without == ""


def test_a_node_with_as_many_pods_as_it_may_have_is_not_asked_for_again_though_slurm_counts_them() -> None:
    story = Story(nodes=[node("x1", pods=1), node("x2")])
    story.runs(pod("ours"), 16, at=NOW)
    granted(story, BIG, grant(17, cpus=40))
    [cancel] = story.acts(CancelJob, NOW)
    assert cancel.reason == "released: on node x1 other pods use the place that the pod needs"
    story.ended(cancel, at=NOW)
    for at in (1, 61, 121):
        [asked] = story.acts(AllocateNow, NOW + at)
        assert asked.spec.excluded_nodes == "x1"
        story.ended(asked, Outcome.UNREACHED, at=NOW + at)


def in_vain(story: Story, what: list[Pod], given: Grant, seconds: int) -> list[int]:
    """When the nodes are asked for that Slurm grants in vain, if Slurm grants them each time."""
    story.sees(*what)
    found = []
    for at in range(0, seconds, 5):
        for asked in story.acts(AllocateNow, NOW + at):
            if asked.spec.excluded_nodes:
                story.ended(asked, Outcome.UNREACHED, at=NOW + at)
                continue
            found.append(at)
            job_id = 100 + at
            story.ended(asked, at=NOW + at, job_id=job_id, grant=replace(given, job_id=job_id))
            [cancel] = story.acts(CancelJob, NOW + at)
            story.ended(cancel, at=NOW + at)
    return found


def test_a_gang_seldom_asks_for_a_node_that_takes_fewer_of_its_pods_than_slurm_believes() -> None:
    story = Story(nodes=[node("x1"), node("x2"), node("x3")])
    story.sees(PodSeen(Scope.OTHERS, replace(OTHER, containers=pod(cpu=30_000).containers)))
    times = in_vain(story, ring(2), grant(17, cpus=60, memory=200), 3600)
    assert (times[0], len(times)) == (0, 6), times
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses[0] < pauses[1] < pauses[2], times


def test_slurm_believes_that_a_node_is_larger_than_it_is() -> None:
    """Jobs fill what the kubelet offers, and Slurm grants the rest, which is kept for daemons: ever more seldom."""
    story = Story()
    story.runs(pod("ours", cpu=60_000), 16, at=NOW - 5)
    times = in_vain(story, [BIG], grant(17, cpus=40), 3600)
    assert (times[0], len(times)) == (0, 6), times


def useless_twice(story: Story) -> Pod:
    """Two pods fill x1, which Slurm grants BIG in vain at NOW and 80 s later.  Returns the larger one of the two."""
    story.runs(pod("beside", cpu=24_000), 15, at=NOW - 5)
    shown = story.runs(pod("ours", cpu=36_000), 16, at=NOW - 4)
    assert in_vain(story, [BIG], grant(17, cpus=40), 100) == [0, 80]
    return shown


def test_a_node_whose_grants_were_useless_is_asked_for_again_once_it_has_room_for_just_this_pod() -> None:
    """While it is full, it is asked for ever more seldom."""
    story = Story()
    story.loses(replace(useless_twice(story), phase=PodPhase.SUCCEEDED), NOW + 100)
    [asked] = story.acts(AllocateNow, NOW + 140)
    assert asked.spec.excluded_nodes == ""


def test_a_node_whose_grants_were_useless_is_asked_for_again_when_it_comes_back_to_kubernetes() -> None:
    story = Story()
    useless_twice(story)
    story.sees(NodeDeleted("x1"))
    [asked] = story.acts(AllocateNow, NOW + 140)
    story.ended(asked, Outcome.REFUSED, at=NOW + 140, number=2013)
    [queued] = story.acts(SubmitJob, NOW + 140)
    assert queued.spec.excluded_nodes == "x1"
    story.ended(queued, at=NOW + 140, job_id=18)
    story.polls({18: "PENDING"}, at=NOW + 141)
    story.sees(NodeSeen(node("x1")))
    assert [without for _, without in updates(story, NOW + 145, NOW + 195)] == [""]


def test_a_gang_asks_again_for_a_node_that_is_empty_but_takes_only_some_of_its_pods() -> None:
    story = Story()
    story.sees(PodSeen(Scope.OTHERS, replace(OTHER, containers=pod(cpu=30_000).containers)))
    story.sees(*ring(4))
    [asked] = story.acts(AllocateNow, NOW)
    two = (GrantedNode("x1", 60, 200), GrantedNode("x2", 60, 200))
    story.ended(asked, at=NOW, job_id=17, grant=Grant(17, two))
    [cancel] = story.acts(CancelJob, NOW)
    story.ended(cancel, at=NOW)
    story.sees(PodDeleted(Scope.OTHERS, OTHER, NOW + 5))
    assert story.acts(AllocateNow, NOW + 30) == []
    [asked] = story.acts(AllocateNow, NOW + 61)
    assert asked.spec.excluded_nodes == ""


def test_a_gang_that_is_kept_away_from_nodes_shows_which() -> None:
    story = Story()
    story.sees(PodSeen(Scope.OTHERS, replace(OTHER, containers=pod(cpu=30_000).containers)))
    story.sees(*ring(3))
    [asked] = story.acts(AllocateNow, NOW)
    two = (GrantedNode("x1", 60, 200), GrantedNode("x2", 30, 100))
    story.ended(asked, at=NOW, job_id=17, grant=Grant(17, two))
    [cancel] = story.acts(CancelJob, NOW)
    story.ended(cancel, at=NOW)
    story.decides(NOW + 1)
    said = {each.message for each in story.acts(SetPodCondition, NOW + 10) if each.condition == names.NO_NODE}
    assert said == {
        "Nodes that could not be used when Slurm granted them are left out: x1. slurm-bridge looks at them again every "
        "60 s. Without them: Slurm partition main has no room for 3 such pods, even when it is empty: 1 node can run them, "
        "and would take 2."
    }


def test_a_job_that_is_queued_leaves_out_what_anothers_grant_showed_and_keeps_to_that() -> None:
    story = Story()
    story.sees(PodSeen(Scope.OTHERS, OTHER))
    granted(story, BIG, grant(17, cpus=40))
    story.acts(CancelJob, NOW)
    story.world.breakers["main"].open_until = NOW + 3600
    story.sees(replace(BIG, name="next", uid="uid-next"))
    [queued] = story.acts(SubmitJob, NOW + 1)
    assert queued.spec.excluded_nodes == "x1"
    story.ended(queued, at=NOW + 1, job_id=18)
    story.polls({18: "PENDING"}, at=NOW + 2)
    assert updates(story, NOW + 5, NOW + 300) == []


def test_a_bind_waits_for_pods_that_terminate_and_says_so() -> None:
    story = Story()
    going = replace(OTHER, deleting_at=NOW + 25)
    story.sees(PodSeen(Scope.OTHERS, going))
    granted(story, BIG, grant(17, cpus=40))
    plan = story.plan(NOW)
    read, said = sorted(plan.actions, key=lambda each: isinstance(each, SetPodCondition))
    assert isinstance(read, ReadJob)
    assert isinstance(said, SetPodCondition)
    assert said.condition == names.GRANT_WAITS
    assert said.message == ("Slurm job 17 was granted x1; the bind waits: on node x1 elsewhere/other still terminates.")
    assert plan.wake_at == NOW + 85
    story.sees(PodDeleted(Scope.OTHERS, going, NOW + 10))
    assert [bind.node for bind in story.acts(BindPod, NOW + 10)] == ["x1"]


def test_a_bind_does_not_wait_for_terminating_pods_for_ever() -> None:
    story = Story()
    story.sees(PodSeen(Scope.OTHERS, replace(OTHER, deleting_at=NOW + 25)))
    granted(story, BIG, grant(17, cpus=40))
    assert story.acts(CancelJob, NOW + 84.9) == []
    [cancel] = story.acts(CancelJob, NOW + 85)
    assert cancel.reason == "released: on node x1 elsewhere/other still terminates"


def test_a_pod_that_comes_to_stay_ends_the_waiting() -> None:
    story = Story()
    story.sees(PodSeen(Scope.OTHERS, replace(OTHER, deleting_at=NOW + 25)))
    granted(story, BIG, grant(17, cpus=40))
    assert story.acts(CancelJob, NOW) == []
    story.sees(PodSeen(Scope.OTHERS, replace(OTHER, uid="another", name="another")))
    assert len(story.acts(CancelJob, NOW + 1)) == 1


def test_a_preempted_pod_that_still_terminates_is_waited_for() -> None:
    """V3: Slurm frees a preempted job's resources at once."""
    story = Story()
    old = story.runs(pod("old", cpu=40_000), 16, at=NOW)
    story.sees(replace(old, deleting_at=NOW + 30))
    granted(story, BIG, grant(17, cpus=40))
    assert not any(isinstance(each, BindPod | CancelJob) for each in story.decides(NOW + 1))
    story.sees(PodDeleted(Scope.OURS, replace(old, deleting_at=NOW + 30), NOW + 20))
    assert [bind.name for bind in story.acts(BindPod, NOW + 20)] == ["big"]


IN_CAPITALS = Tenant("alice", accounts=Choice("TEAMA"), qos=Choice("HIGH"))


def test_a_pod_that_is_refused_now_gives_its_grant_back() -> None:
    """Adopted from a previous process, whose policy was another."""
    story = Story()
    edited = pod("train", says={"account": "teamx"})
    story.sees(edited)
    story.polls({17: "RUNNING"}, at=NOW)
    story.reads(job_of(edited, 17), at=NOW, granted=grant(17))
    [cancel] = story.acts(CancelJob, NOW)
    assert cancel.reason.startswith('released: The account "teamx" is not allowed')


@pytest.mark.parametrize("is_adopted", [False, True])
@pytest.mark.parametrize("shown", [{"account": "teama"}, {"qos": "high"}], ids=["account", "QOS"])
def test_a_grant_is_used_though_slurm_shows_in_lower_case_what_the_admin_wrote_in_upper_case(
    shown: dict[str, str], is_adopted: bool
) -> None:
    story = Story(replace(CONFIG, policy=Policy((Rule(("hpc",), IN_CAPITALS),))))
    train = pod("train")
    if is_adopted:
        story.sees(train)
        story.polls({17: "RUNNING"}, at=NOW)
    else:
        story.queues(train, 17, at=NOW)
        story.polls({17: "RUNNING"}, at=NOW + 1)
        story.decides(NOW + 1)
    read = replace(
        job_of(train, 17, submitted=START - 50 if is_adopted else NOW), **({"account": "TEAMA", "qos": "HIGH"} | shown)
    )
    story.reads(read, at=NOW + 1, granted=grant(17))
    assert [each.job_id for each in story.acts(BindPod, NOW + 1)] == [17]


@pytest.mark.parametrize(
    ("nodes", "on"), [(("x1", "x2"), "x2"), (("x1",), "x9")], ids=["known", "Kubernetes does not have that node"]
)
def test_a_pod_on_another_node_than_its_grant_ends_that_job(nodes: tuple[str, ...], on: str) -> None:
    """Somebody bound it by hand, or by another process's grant: V2 holds for what we give."""
    story = Story(nodes=[node(name) for name in nodes])
    shown = story.runs(pod("train"), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(replace(shown, node=on))
    [cancel] = story.acts(CancelJob, NOW + 2)
    assert cancel.reason == f"hpc/train is on node {on}, which job 17 does not hold"
    assert cancel.key == key_of(shown)


def test_where_slurm_does_not_count_memory_a_grant_without_it_is_used() -> None:
    """SelectTypeParameters=CR_Core, CR_CPU or CR_Socket: `resources/{id}` shows mem_alloc 0."""
    story = Story()
    granted(story, pod("train", gpu=2), grant(17, gpu=2, memory=0))
    [bind] = story.acts(BindPod, NOW)
    assert (bind.job_id, bind.node) == (17, "x1")


def test_a_grant_with_less_memory_than_asked_for_is_released_where_memory_is_counted() -> None:
    story = Story()
    granted(story, pod("train", memory=100), grant(17, memory=99))
    assert [cancel.reason for cancel in story.acts(CancelJob, NOW)] == [
        "released: Slurm granted it without 100 MiB of memory (99 on x1)"
    ]


def on_a_new_node() -> Story:
    """Slurm granted x9 before the bridge knows that Slurm has this node."""
    story = Story()
    story.sees(NodeSeen(node("x9")))
    granted(story, pod("train"), grant(17, "x9"))
    return story


def test_a_grant_on_a_node_that_is_new_in_slurm_is_used_after_a_poll_of_nodes() -> None:
    """Otherwise a job that waited for this node would lose its place in the queue."""
    story = on_a_new_node()
    assert [type(each) for each in story.decides(NOW)] == [PollNodes]
    assert story.decides(NOW + 0.6) == [], "the answer is awaited"
    story.sees(polled("x1", "x9", at=NOW + 0.7))
    [bind] = story.acts(BindPod, NOW + 0.7)
    assert bind.node == "x9"


def test_nodes_are_polled_each_second_until_the_new_node_is_known_whatever_other_pods_wait_for() -> None:
    story = on_a_new_node()
    for after_s in (0, NODE_POLL_S):
        story.sees(pod(f"other-{after_s}"))
        assert PollNodes in map(type, story.decides(NOW + after_s))


def test_while_slurms_nodes_cannot_be_read_a_pod_with_a_grant_on_a_new_node_says_so() -> None:
    """The bind waits for up to a minute, and a waiting pod says why (L1)."""
    story = on_a_new_node()
    story.decides(NOW)
    assert story.acts(SetPodCondition, NOW + 5) == []
    [said] = story.acts(SetPodCondition, NOW + CONFIG.tuning.unread_s)
    assert "reads the nodes of Slurm again, because the last list lacks x9" in said.message
    assert not said.warning


@pytest.mark.parametrize("later_s", [0.5, CONFIG.tuning.exclude_s], ids=["the poll lacks it", "no poll comes"])
def test_a_grant_on_a_node_that_slurm_does_not_list_is_released(later_s: float) -> None:
    story = on_a_new_node()
    story.decides(NOW)
    if later_s < 1:
        story.sees(replace(polled("x1", at=NOW + later_s), began=NOW))
    [cancel] = story.acts(CancelJob, NOW + later_s)
    assert cancel.reason == "released: node x9 is not known to Slurm"


def polled(*names: str, at: float) -> SlurmNodesPolled:
    return SlurmNodesPolled(tuple(map(slurm_node, names)), (Partition("main", default=True),), at, at - 0.1)
