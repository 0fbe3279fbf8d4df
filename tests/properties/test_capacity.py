"""The room of small clusters, compared with a search through all distributions of pods over nodes (F3, T10, S11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.hostlist import expand
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Grant, GrantedNode, JobSpec, SlurmNode
from scheduler.place import separate_nodes
from scheduler.place.assign import shortfall, tasks_on
from scheduler.place.capacity import Alike, alike, fewest_nodes, lacking, laid_out, rooms_on
from scheduler.place.separate_nodes import SeparateNodes
from scheduler.place.sharing import PodsPerNode

OF_SLURM_CONF = frozenset({"IDLE", "EXTERNAL"})  # devices that are asked for by task are lost there (Slurm facts 7)
DYNAMIC = frozenset({"IDLE", "EXTERNAL", "DYNAMIC_NORM"})


@st.composite
def nodes(draw: st.DrawFn, most: int = 4) -> list[SlurmNode]:
    return [
        SlurmNode(
            f"x{number}",
            draw(st.sampled_from((DYNAMIC, DYNAMIC, OF_SLURM_CONF))),
            ("main",),
            (),
            draw(st.integers(0, 6)),
            draw(st.integers(0, 6)) * 100,
            {"gpu": draw(st.integers(0, 4))},
        )
        for number in range(draw(st.integers(1, most)))
    ]


@st.composite
def gangs(draw: st.DrawFn) -> JobSpec:
    least = draw(st.none() | st.integers(1, 3))
    return JobSpec(
        "ring",
        "alice",
        draw(st.integers(1, 2)),
        100,
        gres=draw(st.sampled_from(((), (("gpu", 1),), (("gpu", 2),), (("gpu", 0),)))),
        exclusive=draw(st.sampled_from(("", "exclusive", "user"))),
        excluded_nodes=draw(st.sampled_from(("", "y1"))),
        tasks=draw(st.integers(1, 6)),
        tasks_per_node=draw(st.sampled_from((None, None, None, 1, 2))),
        min_nodes=least,
        max_nodes=draw(st.none() | st.integers(least or 1, 4)),
    )


def fits(spec: JobSpec, node: SlurmNode, pods: int) -> bool:
    """True if the empty node has CPUs and devices for so many pods."""
    return pods * spec.cpus_per_task <= node.cpus and all(
        pods * count <= node.gres.get(name, 0) for name, count in spec.gres
    )


def distributions(spec: JobSpec, there: Sequence[SlurmNode]) -> list[tuple[int, ...]]:
    """Each way to give all pods of the gang to nodes that have the room: the number of pods by node."""
    most = min(spec.tasks, spec.tasks_per_node or spec.tasks)
    rooms = [[pods for pods in range(most + 1) if fits(spec, node, pods)] for node in there]
    return [
        each
        for each in product(*rooms)
        if sum(each) == spec.tasks and sum(map(bool, each)) <= (spec.max_nodes or len(there))
    ]


@given(gangs(), nodes())
@settings(max_examples=300)
def test_a_gang_is_refused_for_lack_of_room_if_no_distribution_of_its_pods_has_room(
    spec: JobSpec, there: list[SlurmNode]
) -> None:
    why = lacking(spec, alike(there), "main")
    can_run = [node for node in there if fits(spec, node, 1)]
    few = len(can_run) < min(spec.min_nodes or 1, spec.tasks)
    assert bool(why) == bool(can_run and (few or not distributions(spec, there))), (
        "if no node can run a pod, `feasible` says why"
    )
    if why and not distributions(spec, there):
        assert f"no room for {spec.tasks} such pods" in why
        assert f": {len(can_run)} {'node' if len(can_run) == 1 else 'nodes'} can run them" in why


def even_layouts(spec: JobSpec, rooms: Sequence[int]) -> list[int]:
    """Each number of tasks per node with which as many nodes as are needed have room, within min_nodes."""
    found = []
    for places in range(1, -(-spec.tasks // (spec.min_nodes or 1)) + 1):
        count = max(-(-spec.tasks // places), spec.min_nodes or 1)
        if sum(room >= places for room in rooms) >= count and count <= (spec.max_nodes or count):
            found.append(places)
    return found


@given(gangs(), nodes(), st.data(), st.booleans())
@settings(max_examples=400)
def test_a_gang_gets_a_number_of_pods_by_node_where_slurm_would_count_it_wrongly(
    spec: JobSpec, there: list[SlurmNode], data: st.DataObject, memory: bool
) -> None:
    most = {node.name: PodsPerNode(data.draw(st.integers(0, 6)), "pods") for node in there}
    found = laid_out(spec, alike(there, lambda node: most[node.name]), most, memory=memory)
    loses = bool(spec.gres) and any(node.loses_devices for node in there)
    rooms = [
        max(pods for pods in range(7) if fits(spec, node, pods) and (not memory or pods * 100 <= node.memory_mib))
        for node in there
    ]
    fewer = any(most[node.name].pods < min(room, spec.tasks) for node, room in zip(there, rooms, strict=True))
    by_cpu = -(-spec.memory_mib // spec.cpus_per_task)
    whole = spec.exclusive == "exclusive" and any(by_cpu * node.cpus > node.memory_mib for node in there)
    if spec.tasks == 1 or spec.tasks_per_node is not None or not (loses or fewer or whole):
        assert found == spec
        return
    layouts = even_layouts(spec, [min(room, most[node.name].pods) for node, room in zip(there, rooms, strict=True)])
    if isinstance(found, Refusal):
        assert not layouts
        assert fewer or loses
    elif not layouts:
        assert found == spec
        assert not fewer
    else:
        places = found.tasks_per_node
        assert places is not None
        count = max(-(-spec.tasks // max(layouts)), spec.min_nodes or 1)
        assert places == (-(-spec.tasks // count) if loses or fewer else max(layouts))
        too_small = {
            node.name
            for node, room in zip(there, rooms, strict=True)
            if most[node.name].pods < min(room, spec.tasks) and most[node.name].pods < places
        }
        assert set(expand(found.excluded_nodes)) == too_small | set(expand(spec.excluded_nodes))


@given(gangs(), nodes(most=12), st.data(), st.booleans())
@settings(max_examples=400)
def test_nodes_that_are_alike_count_together_as_each_of_them_does_alone(
    spec: JobSpec, there: list[SlurmNode], data: st.DataObject, memory: bool
) -> None:
    most = {node.name: PodsPerNode(data.draw(st.integers(0, 3)), "pods") for node in there}
    together = alike(there, lambda node: most[node.name])
    alone = [Alike(node, (node.name,)) for node in there]
    assert sorted(name for kind in together for name in kind.names) == sorted(most)
    assert laid_out(spec, together, most, memory=memory) == laid_out(spec, alone, most, memory=memory)
    assert lacking(spec, together, "main") == lacking(spec, alone, "main")
    rooms = [
        min(room, most[node.name].pods) for node, room in zip(there, rooms_on(spec, there, memory=memory), strict=True)
    ]
    limited = sorted((min(room, spec.tasks_per_node or spec.tasks) for room in rooms), reverse=True)
    held = [count for count in range(1, len(there) + 1) if sum(limited[:count]) >= spec.tasks]
    assert fewest_nodes(spec, together, most, memory=memory) == min(held, default=1)


@st.composite
def components(draw: st.DrawFn) -> list[tuple[JobSpec, list[SlurmNode]]]:
    """Components of a job, each with the nodes that it may use: each of these holds a task at least."""
    there = [replace(each, cpus=each.cpus + 2, gres={"gpu": 2 + each.gres["gpu"]}) for each in draw(nodes())]
    return [
        (draw(gangs()), [there[number] for number in sorted(draw(st.sets(st.integers(0, len(there) - 1), min_size=1)))])
        for _ in range(draw(st.integers(1, 3)))
    ]


def holds(spec: JobSpec, there: Sequence[SlurmNode]) -> bool:
    """True if the job can run on exactly these nodes: each has a task at least, and all it must have if there is a number."""
    least = min(spec.min_nodes or 1, spec.tasks)
    if spec.tasks_per_node is not None:
        a_node = min(spec.tasks_per_node, spec.tasks)
        count = max(least, -(-spec.tasks // spec.tasks_per_node))
        enough = len(there) == count and all(fits(spec, node, a_node) for node in there)
    else:
        enough = sum(max(pods for pods in range(7) if fits(spec, node, pods)) for node in there) >= spec.tasks
    return enough and least <= len(there) <= min(spec.tasks, spec.max_nodes or spec.tasks)


@given(components())
@settings(max_examples=400)
def test_components_are_refused_if_no_division_of_the_nodes_gives_each_component_nodes_that_hold_it(
    parts: list[tuple[JobSpec, list[SlurmNode]]],
) -> None:
    every = {node.name: node for _, usable in parts for node in usable}
    divisions = (
        [
            [node for node, owner in zip(every.values(), owners, strict=True) if owner == index]
            for index in range(len(parts))
        ]
        for owners in product(range(-1, len(parts)), repeat=len(every))
    )
    is_possible = any(
        all(
            all(node in usable for node in own) and holds(spec, own)
            for (spec, usable), own in zip(parts, division, strict=True)
        )
        for division in divisions
    )
    why = SeparateNodes(parts, memory=False).too_few("main")
    can_run = all(
        any(holds(replace(spec, tasks=1, min_nodes=None), [node]) for node in usable) for spec, usable in parts
    )
    assert bool(why) == (can_run and not is_possible), "if no node holds a component, `feasible` or `lacking` says why"
    if why:
        assert " of Slurm partition main" in why
        assert " of Slurm partition" not in SeparateNodes(parts, memory=False).too_few("")


def test_a_search_that_takes_too_long_leaves_the_answer_to_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kinds need the large node."""
    small, large = (SlurmNode(name, DYNAMIC, ("main",), (), cpus, 999) for name, cpus in (("x1", 2), ("x2", 4)))
    two = JobSpec("ring", "alice", 2, 100, tasks=2)
    parts = [(two, [small, large]), (replace(two, cpus_per_task=4, tasks=1), [large])]
    assert "cannot be shared out" in SeparateNodes(parts, memory=False).too_few("")
    monkeypatch.setattr(separate_nodes, "MOST_STEPS", 1)
    assert not SeparateNodes(parts, memory=False).too_few("")


@st.composite
def granted(draw: st.DrawFn) -> GrantedNode:
    gres = {"gpu": draw(st.integers(0, 4))}
    return GrantedNode("x1", draw(st.integers(1, 6)), draw(st.sampled_from((0, 100, 200, 300, 350))), gres)


@given(gangs(), granted())
@settings(max_examples=300)
def test_a_granted_node_holds_as_many_pods_as_its_granted_resources_do(spec: JobSpec, node: GrantedNode) -> None:
    def holds(pods: int) -> bool:
        return (
            pods * spec.cpus_per_task <= node.cpus
            and (node.memory_mib == 0 or pods * spec.memory_mib <= node.memory_mib)
            and all(pods * count <= node.gres.get(name, 0) for name, count in spec.gres)
            and pods <= min(spec.tasks_per_node or pods, spec.tasks)
        )

    assert tasks_on(node, spec) == max(pods for pods in range(7) if holds(pods))


@given(gangs(), st.lists(granted(), max_size=3))
@settings(max_examples=300)
def test_a_grant_lacks_something_if_a_node_cannot_hold_a_pod_or_all_together_not_all_pods(
    spec: JobSpec, on: list[GrantedNode]
) -> None:
    short = any(
        node.cpus < spec.cpus_per_task
        or 0 < node.memory_mib < spec.memory_mib
        or any(node.gres.get(name, 0) < count for name, count in spec.gres)
        for node in on
    )
    whole = bool(on) and not short and sum(tasks_on(node, spec) for node in on) >= spec.tasks
    assert (shortfall(spec, Grant(7, tuple(on))) == "") == whole


def uneven(states: frozenset[str], count: int = 2) -> list[SlurmNode]:
    """Nodes of three CPUs and three GPUs, and a last one of one each."""
    sizes = [3] * (count - 1) + [1]
    return [
        SlurmNode(f"x{number}", states, ("main",), (), size, 200 * size, {"gpu": size})
        for number, size in enumerate(sizes)
    ]


def test_a_gang_on_whole_nodes_that_cannot_be_laid_out_evenly_is_left_to_slurm() -> None:
    spec = JobSpec("ring", "alice", 1, 300, exclusive="exclusive", tasks=4)
    there = uneven(DYNAMIC)
    assert laid_out(spec, alike(there), {node.name: PodsPerNode(9, "pods") for node in there}, memory=False) == spec


def test_a_gang_that_would_lose_devices_unless_it_is_laid_out_evenly_is_refused_by_up_to_three_names() -> None:
    for count, tasks, named in ((2, 4, "x0, x1 are"), (3, 7, "x0, x1, x2 are"), (4, 10, "x0, x1, x2 … are")):
        there = uneven(OF_SLURM_CONF, count)
        spec = JobSpec("ring", "alice", 1, 100, gres=(("gpu", 1),), tasks=tasks)
        found = laid_out(spec, alike(there), {node.name: PodsPerNode(99, "pods") for node in there}, memory=False)
        assert isinstance(found, Refusal)
        assert f"Slurm's external nodes {named} defined in slurm.conf" in found.message


def test_a_gang_with_more_devices_than_a_node_has_is_left_to_slurm_which_refuses_it_at_once() -> None:
    there = uneven(OF_SLURM_CONF)
    spec = JobSpec("ring", "alice", 1, 100, gres=(("gpu", 9),), tasks=2)
    assert laid_out(spec, alike(there), {node.name: PodsPerNode(99, "pods") for node in there}, memory=False) == spec


def test_a_gang_that_even_uneven_layouts_cannot_hold_says_so_by_its_room() -> None:
    """`lacking` says why."""
    there = uneven(OF_SLURM_CONF)
    spec = JobSpec("ring", "alice", 1, 100, gres=(("gpu", 1),), tasks=5)
    assert laid_out(spec, alike(there), {node.name: PodsPerNode(99, "pods") for node in there}, memory=False) == spec
    assert "would take 4" in lacking(spec, alike(there), "main")
