"""`GET /nodes`: sums by node of both clusters, without a word about pods of tenants, made in slices and shared."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bridge.node_survey import NodeSurvey, Survey, items
from scheduler.events import NodesListed, PodSeen, Scope, SlurmNodesPolled
from scheduler.model.kubernetes import Taint
from scheduler.model.slurm import SlurmNode
from scheduler.state.world import World
from scheduler.translate.job_spec import Translation
from tests.builders import CONFIG, MIB, START, Story, node, pod, slurm_node

NOW = START + 20


def shown(world: World) -> dict[str, dict[str, Any]]:
    """The items by the name of their node."""
    return {name: msgspec.to_builtins(describe()) for name, describe in filter(None, items(world))}


def polled(story: Story, *nodes: SlurmNode) -> None:
    story.sees(SlurmNodesPolled(nodes, None, NOW))


async def test_a_node_has_what_jobs_hold_and_what_pods_of_the_bridge_and_others_take() -> None:
    story = Story()
    story.runs(pod("train", cpu=4000, memory=2048, gpu=2), 17, at=NOW)
    foreign = pod("web", cpu=500, memory=1024, scheduler_name="default-scheduler", node="x1")
    story.sees(PodSeen(Scope.OTHERS, foreign))
    x1 = replace(slurm_node("x1"), held_cpus=8, held_memory_mib=4096, held_gres={"gpu": 3})
    polled(story, x1, slurm_node("x2"))
    there = shown(story.world)["x1"]
    assert there["pods"] == {"bridge": 1, "others": 1}
    assert there["cpus"] == {"total": 64, "held": 8, "bridge": 4.0, "others": 0.5, "free": 56}
    assert there["memory_mib"] == {"total": 512000, "held": 4096, "bridge": 2048.0, "others": 1024.0, "free": 507904}
    assert there["devices"] == {"gpu": {"total": 8, "held": 3, "bridge": 2.0, "others": 0.0, "free": 5}}
    survey = msgspec.json.decode(await NodeSurvey().body(story.world, NOW), type=Survey)
    assert msgspec.to_builtins(survey.nodes[0]) == there
    assert (survey.at, survey.polled) == (NOW, NOW)
    assert (survey.partitions["main"].default, survey.partitions["gpu"].max_time_min) == (True, 600)


def test_what_kubernetes_has_given_away_is_not_free_though_slurm_says_so() -> None:
    story = Story()
    story.sees(PodSeen(Scope.OTHERS, pod("web", cpu=60500, gpu=7, scheduler_name="default-scheduler", node="x1")))
    there = shown(story.world)["x1"]
    assert (there["cpus"]["free"], there["devices"]["gpu"]["free"]) == (3, 1)


def test_a_grant_since_the_poll_is_held() -> None:
    story = Story()
    story.runs(pod("train", cpu=4000, memory=2048, gpu=2), 17, at=NOW)
    there = shown(story.world)["x1"]
    assert (there["cpus"]["held"], there["memory_mib"]["held"], there["devices"]["gpu"]["held"]) == (4, 2048, 2)


def test_of_a_tenants_pods_only_sums_are_reported() -> None:
    story = Story()
    story.runs(pod("secret-name", namespace="hpc", labels={"secret-label": "1"}), 17, at=NOW)
    text = json.dumps(shown(story.world))
    assert not [word for word in ("secret", "hpc", "alice", "17") if word in text]


@pytest.mark.parametrize(
    ("kubernetes", "slurm", "closed"),
    [
        ({"ready": False}, {"IDLE"}, "not ready in Kubernetes"),
        ({"ready": False}, {"IDLE", "POWERED_DOWN"}, ""),
        ({}, {"IDLE", "POWERED_DOWN", "EXTERNAL"}, "powered down by Slurm for good"),
        ({"unschedulable": True}, {"IDLE"}, "cordoned in Kubernetes"),
        ({}, {"IDLE", "DRAIN"}, "DRAIN in Slurm"),
        ({}, {"DOWN", "NOT_RESPONDING"}, "DOWN+NOT_RESPONDING in Slurm"),
        ({}, {"MIXED", "PLANNED"}, ""),
    ],
)
def test_on_a_node_where_nothing_can_start_nothing_is_free(
    kubernetes: Mapping[str, Any], slurm: set[str], closed: str
) -> None:
    story = Story(nodes=[node("x1", **kubernetes)])
    polled(story, replace(slurm_node("x1"), states=frozenset(slurm)))
    there = shown(story.world)["x1"]
    assert there["closed"] == closed
    assert (there["cpus"]["free"] == 0) is bool(closed)
    assert there["cpus"]["total"] == 64


def test_a_node_of_one_cluster_alone_is_reported_and_closed() -> None:
    story = Story(nodes=[node("x1")])
    polled(story, slurm_node("only-slurm"))
    there = shown(story.world)
    assert (there["x1"]["closed"], there["x1"]["slurm"], there["x1"]["cpus"]["total"]) == ("not in Slurm", [], 64)
    assert there["x1"]["devices"]["gpu"]["total"] == 8, "as Kubernetes counts them"
    assert (there["only-slurm"]["closed"], there["only-slurm"]["kubernetes"]) == ("not in Kubernetes", None)


def test_a_node_has_its_state_as_kubectl_shows_it_and_the_taints_that_a_pod_must_tolerate() -> None:
    taints = (Taint("gpus", "yes", "NoSchedule"), Taint("soft", "", "PreferNoSchedule"))
    story = Story()
    story.sees(NodesListed((node("x1", unschedulable=True, taints=taints),)))
    there = shown(story.world)["x1"]
    assert (there["kubernetes"], there["taints"]) == ("Ready,SchedulingDisabled", ["gpus"])


@pytest.mark.parametrize(
    ("gres", "kinds"),
    [
        ({"gpu": 8, "gpu:h100": 8}, {"gpu:h100": 8}),
        ({"gpu": 8, "gpu:h100": 4, "gpu:a100": 4}, {"gpu": 8}),
        ({"gpu": 9, "gpu:1g.10gb": 7, "gpu:h100": 2}, {"gpu:1g.10gb": 7, "gpu:h100": 2}),
        ({"nic": 2}, {"nic": 2}),
        ({}, {}),
    ],
)
def test_devices_have_their_type_where_kubernetes_distinguishes_types(
    gres: dict[str, int], kinds: dict[str, int]
) -> None:
    translation = Translation(gres={"nvidia.com/gpu": "gpu", "nvidia.com/mig-1g.10gb": "gpu:1g.10gb"})
    story = Story(replace(CONFIG, translation=translation), [node("x1")])
    polled(story, replace(slurm_node("x1"), gres=gres))
    assert {kind: each["total"] for kind, each in shown(story.world)["x1"]["devices"].items()} == kinds


async def test_an_answer_is_shared_for_twenty_times_as_long_as_it_took() -> None:
    clock = iter(float(second) for second in range(1000))
    story, at = Story(), [0.0]
    survey = NodeSurvey(lambda: at[0])
    first = await survey.body(story.world, NOW)
    assert await survey.body(story.world, NOW + 1) != first, "it took no time"
    at[0] = 1000.0
    survey = NodeSurvey(lambda: next(clock) / 1000)  # each look at the clock takes a millisecond
    first = await survey.body(story.world, NOW)
    assert await survey.body(story.world, NOW + 1) == first
    for _ in range(200):
        later = await survey.body(story.world, NOW + 2)
    assert later != first


async def test_clients_that_ask_and_leave_do_not_have_the_answer_made_again_and_again() -> None:
    clock = iter(float(second) for second in range(1000))
    story = Story()
    survey = NodeSurvey(lambda: next(clock) / 1000)  # each look at the clock takes a millisecond, so there are slices
    leaves = asyncio.create_task(survey.body(story.world, NOW))
    await asyncio.sleep(0)
    leaves.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaves
    answer = msgspec.json.decode(await survey.body(story.world, NOW + 5), type=Survey)
    assert answer.at == NOW, "the work of the first request was not lost"


async def test_a_node_that_cannot_be_described_is_left_out_and_reported_and_the_others_are_answered() -> None:
    story = Story()
    polled(story, replace(slurm_node("x1"), gres={"gpu": 10**400}), slurm_node("x2"))
    failed: list[str] = []
    survey = NodeSurvey(failed=lambda name, _: failed.append(name))
    answer = msgspec.json.decode(await survey.body(story.world, NOW), type=Survey)
    assert ([each.name for each in answer.nodes], failed) == (["x2"], ["x1"])


def test_memory_is_in_mib_on_both_sides() -> None:
    story = Story(nodes=[node("x1", memory=1000)])
    assert story.world.nodes is not None
    assert story.world.nodes["x1"].allocatable["memory"] == 1000 * MIB
    assert shown(story.world)["x1"]["memory_mib"]["free"] == 1000, "Kubernetes has less than Slurm"
