"""Dividing nodes among the components of a heterogeneous job costs little, whatever one tenant's gang asks for (X7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import SubmitJob
from scheduler.model.hostlist import expand
from scheduler.model.slurm import JobSpec, SlurmNode
from scheduler.place import capacity, separate_nodes
from scheduler.place.separate_nodes import MOST_STEPS, SeparateNodes
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.submission import spec_for, too_large
from tests.builders import CONFIG, START, Story, node, pod

NOW = START + 20
ONE = JobSpec("ring", "alice", 1, 100)


def slurm_nodes(count: int, cpus: int = 64) -> list[SlurmNode]:
    return [SlurmNode(f"x{number}", frozenset({"IDLE"}), ("main",), (), cpus, 512000) for number in range(count)]


def nodes_counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes whose room is computed from now on, by name: the list grows."""
    counted: list[str] = []
    room_on = capacity.room_on

    def count(spec: JobSpec, on: SlurmNode) -> int:
        counted.append(on.name)
        return room_on(spec, on)

    monkeypatch.setattr(capacity, "room_on", count)
    return counted


def test_nodes_of_equal_hardware_are_counted_once_for_each_component(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = nodes_counted(monkeypatch)
    there = [*slurm_nodes(500), *(replace(each, name=f"y{each.name}") for each in slurm_nodes(500, cpus=32))]
    parts = [(replace(ONE, memory_mib=100 + number), there) for number in range(100)]
    assert not SeparateNodes(parts, memory=True).too_few("main")
    assert len(counted) == 2 * len(parts)


def test_a_gang_is_laid_out_on_kinds_of_nodes_however_many_nodes_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """128 shapes of two pods on 2,000 nodes took a second of each pass."""
    counted = nodes_counted(monkeypatch)
    found = []
    for count in (10, 200):
        counted.clear()
        story = Story(nodes=[node(f"x{number}") for number in range(count)])
        for number in range(20):
            says = {"gang-size": "20", "memory": f"{1000 + number // 2}M"}
            story.sees(pod(f"w{number}", labels={names.PREFIX + "gang": "ring"}, says=says))
        [workload] = story.world.workloads.values()
        this_pass = Pass(story.world, NOW)
        spec = spec_for(workload, this_pass)
        assert isinstance(spec, JobSpec)
        assert too_large(workload, spec, this_pass) is None
        found.append(len(counted))
    assert found[0] == found[1] > 0


def test_a_pass_is_charged_for_the_division_of_nodes() -> None:
    story = Story(nodes=[node(f"x{number}") for number in range(100)])
    for number in range(50):
        says = {"gang-size": "50", "memory": f"{1000 + number}M"}
        story.sees(pod(f"w{number}", labels={names.PREFIX + "gang": "ring"}, says=says))
    [workload] = story.world.workloads.values()
    this_pass = Pass(story.world, NOW)
    spec = spec_for(workload, this_pass)
    assert isinstance(spec, JobSpec)
    assert len(spec.parts) == 49
    before = this_pass.effort
    assert too_large(workload, spec, this_pass) is None
    assert this_pass.effort - before >= 50 * 100 // separate_nodes.PAIRS_PER_NODE + 50, "pairs, and steps of the search"


def test_components_times_nodes_beyond_the_limit_are_left_to_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [(ONE, slurm_nodes(2))] * 3
    assert "at least 3 nodes in all" in SeparateNodes(parts, memory=False).too_few("main")
    scarce = [(ONE, slurm_nodes(2)), (ONE, slurm_nodes(1))]
    assert SeparateNodes(scarce, memory=False).kept_for_others() == [{"x0"}, set()]
    monkeypatch.setattr(separate_nodes, "MOST_PAIRS", 2)
    beyond = SeparateNodes(parts, memory=False)
    assert beyond.too_few("main") == "", "nothing is claimed"
    assert SeparateNodes(scarce, memory=False).kept_for_others() == [set(), set()]
    assert beyond.effort == 0


def sized(**cpus: int) -> dict[str, SlurmNode]:
    return {name: replace(slurm_nodes(1, cpus=count)[0], name=name) for name, count in cpus.items()}


def component(
    there: dict[str, SlurmNode], usable: str, tasks: int = 1, **fields: Any
) -> tuple[JobSpec, list[SlurmNode]]:
    return replace(ONE, tasks=tasks, **fields), [there[name] for name in usable.split()]


@pytest.mark.parametrize(
    ("cpus", "first", "second", "kept"),
    [
        # The first needs both of its nodes, and the second has another one.
        ((1, 1, 0, 1), {"usable": "x0 x1", "tasks": 2}, {"usable": "x0 x3"}, ["", "x0"]),
        # The second could take the larger of the two nodes that both may use.
        ((2, 1, 1, 0), {"usable": "x0 x1", "tasks": 2}, {"usable": "x0 x1 x2"}, ["x1", "x0"]),
        # The first needs two nodes, and x2 holds none of its pods.
        ((2, 2, 0, 1), {"usable": "x0 x1 x2", "tasks": 2, "min_nodes": 2}, {"usable": "x0 x3"}, ["", "x0"]),
        # x2 holds all pods of the first, so nothing is scarce.
        ((2, 1, 2, 1), {"usable": "x0 x1 x2", "tasks": 2, "max_nodes": 1}, {"usable": "x0 x3"}, ["", ""]),
        # The second needs the larger node, though the first is tried there first.
        ((2, 1, 0, 0), {"usable": "x0 x1"}, {"usable": "x0 x1", "tasks": 2, "max_nodes": 1}, ["x0", "x1"]),
        # The first needs both large nodes, and one of each class is not enough.
        ((2, 1, 1, 0), {"usable": "x0 x1", "tasks": 3}, {"usable": "x0 x1 x2"}, ["", "x0 x1"]),
    ],
)
def test_each_component_leaves_the_nodes_without_which_the_other_cannot_start(
    cpus: tuple[int, ...], first: dict[str, Any], second: dict[str, Any], kept: list[str]
) -> None:
    there = sized(**{f"x{number}": count for number, count in enumerate(cpus)})
    parts = [component(there, **first), component(there, **second)]
    assert SeparateNodes(parts, memory=False).kept_for_others() == [set(names.split()) for names in kept]


LIMITS = "with the numbers of nodes that min-nodes and max-nodes leave to each kind"
EVENLY = "needs equally many pods on each of its nodes"


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ({"tasks": 3}, set()),
        ({"tasks": 3, "min_nodes": 2}, {LIMITS}),
        ({"tasks": 3, "max_nodes": 2}, {LIMITS}),
        ({"tasks": 4, "tasks_per_node": 2}, {EVENLY}),
    ],
)
def test_a_gang_whose_kinds_need_the_same_node_is_told_what_limits_them(first: dict[str, Any], said: set[str]) -> None:
    there = sized(x0=2, x1=2 if "tasks_per_node" in first else 1, x2=1)
    parts = [component(there, "x0 x1 x2", **first), component(there, "x0")]
    why = SeparateNodes(parts, memory=False).too_few("main")
    assert "The 3 nodes of Slurm partition main that can run some of them cannot be shared out" in why
    assert {each for each in (LIMITS, EVENLY) if each in why} == said


def test_a_kind_that_needs_more_nodes_than_it_may_use_is_named_alone() -> None:
    there = sized(x0=1, x1=1, x2=1)
    parts = [component(there, "x0 x1", tasks=3, min_nodes=3), component(there, "x0 x1 x2")]
    assert (
        SeparateNodes(parts, memory=False)
        .too_few("main")
        .startswith(
            "One kind of pods of this gang needs at least 3 nodes. Only 2 nodes of Slurm partition main can run them."
        )
    )


def test_a_kind_that_no_node_holds_is_left_to_slurm_which_refuses_it_at_once() -> None:
    there = sized(x0=1, x1=1)
    assert (
        SeparateNodes([component(there, "x0 x1"), component(there, "x0 x1", cpus_per_task=2)], memory=False).too_few("")
        == ""
    )


def test_a_division_that_has_millions_of_ways_to_fail_is_refused_and_not_given_up() -> None:
    """Two kinds need two of the three large nodes each, and twenty pods of other kinds may run anywhere."""
    there = sized(**{f"x{number}": 2 if number < 3 else 1 for number in range(24)})
    every = " ".join(there)
    parts = [*(component(there, every) for _ in range(20)), *(component(there, every, tasks=4) for _ in range(2))]
    assert "cannot be shared out" in SeparateNodes(parts, memory=False).too_few("")


def test_pods_for_which_all_nodes_together_have_no_room_are_refused_without_a_search() -> None:
    there = sized(**{f"x{number}": 1 + number // 3 for number in range(60)})
    every = " ".join(there)
    parts = [component(there, every), component(there, every, tasks=1000)]
    assert "cannot be shared out" in SeparateNodes(parts, memory=False).too_few("")


def test_a_search_through_thousands_of_classes_of_nodes_ends_at_its_limit() -> None:
    """No two nodes can be used by the same components."""
    bits, there = 12, slurm_nodes(4000)
    parts = [(ONE, [each for number, each in enumerate(there) if number >> bit & 1]) for bit in range(bits)]
    wide = SeparateNodes([(replace(ONE, tasks=3900, cpus_per_task=64), there), *parts], memory=False)
    pairs = wide.effort
    assert wide.too_few("main") == ""
    assert wide.effort - pairs <= MOST_STEPS + len(there) // separate_nodes.CLASSES_PER_STEP


def test_a_gang_that_can_use_a_thousand_classes_of_nodes_leaves_those_that_its_small_pods_need() -> None:
    """Each of the small pods needs a node with another label, and the large ones take nearly all nodes."""
    labels = range(11)
    there = [
        replace(node(f"x{number}"), labels={f"b{bit}": "1" for bit in labels if number >> bit & 1})
        for number in range(1100)
    ]
    story = Story(CONFIG, there, checked=False)
    gang, says = {names.PREFIX + "gang": "ring"}, {"gang-size": "1091"}
    for number in range(1080):
        story.sees(pod(f"large{number}", cpu=64000, labels=gang, says=says))
    for bit in labels:
        story.sees(pod(f"small{bit}", labels=gang, says=says, node_selector={f"b{bit}": "1"}))
    [submit] = story.acts(SubmitJob, NOW)
    [large] = [each for each in (submit.spec, *submit.spec.parts) if each.tasks == 1080]
    kept = {int(name[1:]) for name in expand(large.excluded_nodes)}
    assert len(kept) == len(labels)
    assert all(any(number >> bit & 1 for number in kept) for bit in labels)
