"""Kubelet gives a pod its GPUs, unless the admin's device driver uses the annotation `job-gpus` (G1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, BindPod, CancelJob, SetPodCondition
from scheduler.events import NodeSeen, SlurmNodesPolled
from scheduler.model.kubernetes import Pod
from scheduler.model.slurm import Grant, GrantedNode, Job, Partition
from scheduler.tuning import Config
from tests.builders import CONFIG, START, Story, job_of, node, pod, slurm_node

NOW = START + 10
DRIVEN = replace(CONFIG, device_driver=True)


def ring(size: int, gpus: int, **says: str) -> list[Pod]:
    labels = {names.PREFIX + names.GANG: "ring"}
    said = {"gang-size": str(size), **says}
    return [pod(f"w-{number}", gpu=gpus, labels=labels, says=said) for number in range(size)]


def granted(indices: Mapping[str, str], count: int) -> Grant:
    return Grant(17, (GrantedNode("x1", 8, 8000, dict.fromkeys(indices, count), indices),))


def told(binds: list[BindPod]) -> dict[str, str | None]:
    return {bind.name: bind.annotations.get(names.JOB_GPUS) for bind in binds}


def binds(story: Story, pods: list[Pod], grant: Grant) -> list[BindPod]:
    story.sees(*pods)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant)
    return story.acts(BindPod, NOW)


def test_without_a_driver_kubelet_chooses_and_no_pod_shows_anything() -> None:
    assert told(binds(Story(), ring(2, 2), granted({"gpu": "0-3"}, 4))) == {"w-0": "", "w-1": ""}


def test_with_a_driver_each_gets_its_own_by_rank() -> None:
    found = binds(Story(DRIVEN), ring(3, 2), granted({"gpu": "0-1,4-7"}, 6))
    assert told(found) == {"w-0": "0,1", "w-1": "4,5", "w-2": "6,7"}


def test_a_pod_alone_gets_all_of_the_grant() -> None:
    [bind] = binds(Story(DRIVEN), [pod(gpu=2)], granted({"gpu": "10,2"}, 2))
    assert bind.annotations[names.JOB_GPUS] == "2,10"


def test_who_asked_for_a_type_gets_that_type() -> None:
    grant = granted({"gpu": "0-3", "gpu:h100": "0-1", "gpu:a100": "2-3"}, 4)
    found = binds(Story(DRIVEN), ring(2, 0, gres="gpu:a100:1"), grant)
    assert told(found) == {"w-0": "2", "w-1": "3"}


def test_gpus_of_a_type_are_chosen_before_gpus_of_any_type() -> None:
    grant = granted({"gpu": "0-3", "gpu:a100": "0-1"}, 4)
    [bind] = binds(Story(DRIVEN), [pod(says={"gres": "gpu:2,gpu:a100:2"})], grant)
    assert bind.annotations[names.JOB_GPUS] == "0,1,2,3"


def test_devices_that_are_no_gpus_are_not_told() -> None:
    grant = granted({"gpu": "2", "fpga": "0"}, 1)
    [bind] = binds(Story(DRIVEN), [pod(says={"gres": "gpu:1,fpga:1"})], grant)
    assert bind.annotations[names.JOB_GPUS] == "2"


@pytest.mark.parametrize("indices", ["", "0-99999999", "0", "x"])
def test_impossible_device_indices_are_shown_on_no_pod(indices: str) -> None:
    [bind] = binds(Story(DRIVEN), [pod(gpu=2)], granted({"gpu": indices}, 2))
    assert bind.annotations[names.JOB_GPUS] == ""


def test_a_replacement_gets_the_devices_of_the_freed_place() -> None:
    story = Story(DRIVEN)
    pods = ring(3, 1)
    found = {bind.name: bind for bind in binds(story, pods, granted({"gpu": "0-2"}, 3))}
    shown = []
    for each in pods:
        story.ended(found[each.name], at=NOW)
        bound = story.bound(each, 17)
        shown.append(replace(bound, annotations={**bound.annotations, **found[each.name].annotations}))
    story.sees(*shown)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.loses(shown[1], NOW + 2)
    # By its name it comes before the other pods, which keep their annotations.
    story.sees(replace(pods[1], uid="uid-new", name="a-0", created=NOW + 2))
    assert told(story.acts(BindPod, NOW + 3)) == {"a-0": "1"}


def test_a_replacement_gets_free_devices_beside_a_pod_that_shows_none() -> None:
    """A previous process, without the device driver, bound the pod that shows none."""
    story = Story(DRIVEN)
    pods = ring(3, 1)
    found = {bind.name: bind for bind in binds(story, pods, granted({"gpu": "0-2"}, 3))}
    for bind in found.values():
        story.ended(bind, at=NOW)
    shown = [story.bound(each, 17) for each in pods]
    shown[0] = replace(shown[0], annotations={**shown[0].annotations, **found["w-0"].annotations})
    after = Story(DRIVEN)
    after.sees(shown[0], shown[2])
    after.polls({17: "RUNNING"}, at=NOW + 1)
    held = granted({"gpu": "0-2"}, 3)
    read = Job(17, story.world.placeholders[17].name, "alice", frozenset({"RUNNING"}), nodes="x1", starts=NOW, tasks=3)
    after.reads(replace(read, partition="main"), at=NOW + 1, granted=held)
    after.sees(replace(pods[1], uid="uid-new", created=NOW + 2))
    assert told(after.acts(BindPod, NOW + 40)) == {"w-1": "1"}


def test_nodes_with_a_slurmd_need_not_be_taken_whole_where_both_mean_the_same_devices() -> None:
    for config, exclusive in ((CONFIG, "exclusive"), (DRIVEN, "")):
        story = Story(config)
        nodes = tuple(slurm_node(name, external=False) for name in ("x1", "x2"))
        story.sees(SlurmNodesPolled(nodes, (Partition("main", default=True),), START + 1))
        story.sees(pod(gpu=1))
        [asked] = story.acts(AllocateNow, NOW)
        assert asked.spec.exclusive == exclusive


def mixed(story: Story) -> None:
    """Of the nodes in Slurm, x1 is external, and x2 has a slurmd."""
    nodes = (slurm_node("x1"), slurm_node("x2", external=False))
    story.sees(SlurmNodesPolled(nodes, (Partition("main", default=True),), NOW))


@pytest.mark.parametrize(
    ("config", "grant", "is_bound"),
    [
        pytest.param(CONFIG, Grant(17, (GrantedNode("x2", 1, 100, {"gpu": 1}),)), False, id="one device of eight"),
        pytest.param(CONFIG, Grant(17, (GrantedNode("x2", 64, 100, {"gpu": 8}),)), True, id="the whole node"),
        pytest.param(CONFIG, Grant(17, (GrantedNode("x1", 1, 100, {"gpu": 1}),)), True, id="an external node"),
        pytest.param(DRIVEN, Grant(17, (GrantedNode("x2", 1, 100, {"gpu": 1}),)), True, id="with a driver"),
    ],
)
def test_a_waiting_job_that_gets_devices_of_a_node_with_a_slurmd_although_it_asked_for_external_nodes_is_released(
    config: Config, grant: Grant, is_bound: bool
) -> None:
    """G2: its external nodes were cordoned while it waited, or an admin changed which nodes it excludes."""
    story, train = Story(config), pod(gpu=1)
    mixed(story)
    story.queues(train, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.reads(job_of(train, 17, nodes=grant.nodes[0].name), at=NOW + 1, granted=grant)
    decided = [each for each in story.decides(NOW + 2) if isinstance(each, BindPod | CancelJob)]
    if is_bound:
        assert [type(each) for each in decided] == [BindPod]
        return
    [cancel] = decided
    assert isinstance(cancel, CancelJob)
    assert cancel.pod_message == (
        "Slurm job 17 was released, and nodes are requested again: node x2 has a slurmd, and Slurm could give the devices of "
        "the pod to its own jobs, too."
    )


def test_a_job_that_was_submitted_for_whole_nodes_with_a_slurmd_is_bound_there() -> None:
    story, train = Story(nodes=[node("x2")]), pod(gpu=1)
    story.sees(SlurmNodesPolled((slurm_node("x2", external=False),), (Partition("main", default=True),), NOW))
    assert story.queues(train, 17, at=NOW).spec.exclusive == "exclusive"
    story.polls({17: "RUNNING"}, at=NOW + 1)
    grant = Grant(17, (GrantedNode("x2", 1, 100, {"gpu": 1}),))
    story.reads(job_of(train, 17, nodes="x2"), at=NOW + 1, granted=grant)
    assert len(story.acts(BindPod, NOW + 2)) == 1


def test_a_waiting_job_whose_external_nodes_are_cordoned_tells_its_user_nothing_about_exclusive_nodes() -> None:
    """A new job would take the node with a slurmd whole.  No annotation of the pod says so, and recreating it is no help."""
    story, train = Story(), pod(gpu=1)
    mixed(story)
    story.queues(train, 17, at=NOW)
    story.reads(job_of(train, 17, "PENDING", reason="Resources"), at=NOW + 1)
    story.sees(NodeSeen(node("x1", unschedulable=True)))
    said = [each.message for each in story.decides(NOW + 40) if isinstance(each, SetPodCondition)]
    assert said
    assert not [message for message in said if "exclusive" in message]
