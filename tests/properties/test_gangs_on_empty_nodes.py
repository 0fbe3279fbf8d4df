"""Gangs of several shapes on small empty clusters, compared with a search through all placements (F3, F5, W7).

Slurm can start the job of each gang that is submitted when all nodes are empty, and on whatever nodes it grants, Kubernetes
can run the pods.  A gang that is refused has no placement at all, or the pods read for what Slurm has no option.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler import names
from scheduler.actions import AllocateNow, SetPodCondition, SubmitJob
from scheduler.events import SlurmNodesPolled
from scheduler.model.hostlist import expand
from scheduler.model.kubernetes import Container, HostPort, Pod, PodTerm, Requirement
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import JobSpec, Partition, SlurmNode
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.submission import asked_by
from scheduler.translate.gang import components
from scheduler.translate.job_spec import Translation
from tests.builders import CONFIG, START, Story, amounts, node, pod
from tests.properties.test_affinity import selects

NOW = START + 20
RDMA = "rdma/hca"  # Kubernetes counts it, and Slurm does not
IGNORING = replace(CONFIG, translation=Translation(gres={"nvidia.com/gpu": "gpu"}, ignored=(RDMA,)))
MOST_GRANTS = 300  # of one job that are looked at
# What Slurm has no option for: the gang has placements, but no job stands for them.
NO_OPTION = (
    "Slurm has no option for some",
    "Slurm has no option for a part",
    "but only if Slurm gave each node another number of them, for which it has no option",
    "If some pods of a kind have anti-affinity, or need resources that Slurm does not count, all pods of that kind count",
    "Slurm has no option for different numbers",
    "with the numbers of nodes that min-nodes and max-nodes leave to each kind",
    "because of the required pod affinity of this gang its pods are requested on",
)


@dataclass(frozen=True)
class There:
    """An empty node."""

    name: str
    cpus: int
    adapters: int


@dataclass(frozen=True)
class Gang:
    """A gang, and the nodes that it may have.  least, most: annotations min-nodes and max-nodes"""

    nodes: Sequence[There]
    pods: Sequence[Pod]
    least: int | None
    most: int | None

    def __repr__(self) -> str:
        return "\n".join((f"\nleast={self.least}, most={self.most}", *map(str, self.nodes), *map(_brief, self.pods)))


def _brief(one: Pod) -> str:
    apart, close = (
        "".join(each.expressions[0].values[0] for each in terms) or "none"
        for terms in (one.anti_affinity, one.affinity)
    )
    wants = f"{_wants(one, 'cpu') // 1000} CPUs, {_wants(one, RDMA)} adapters, {len(one.host_ports)} ports"
    return f"{one.name}: role {one.labels['role']}, {wants}, apart from {apart}, close to {close}"


@st.composite
def gangs(draw: st.DrawFn) -> Gang:
    there = [
        There(f"x{number}", draw(st.integers(1, 4)), draw(st.sampled_from((0, 1, 2, 4))))
        for number in range(draw(st.integers(2, 4)))
    ]
    size = draw(st.integers(2, 5))
    shapes = draw(st.lists(st.tuples(st.integers(1, 3), st.sampled_from((0, 0, 1))), min_size=1, max_size=3))
    most = draw(st.sampled_from((None, None, 1, 2, 3, 4)))
    least = draw(st.none() | st.integers(1, most or 3))
    rare = st.sampled_from(((), (), (), (of_role("a"),), (of_role("b"),)))
    apart, close = ({role: draw(rare) for role in "ab"} for _ in range(2))
    limits = {"min-nodes": least, "max-nodes": most}
    says = {"gang-size": str(size)} | {key: str(value) for key, value in limits.items() if value is not None}
    listens = draw(st.booleans()) and draw(st.booleans())
    pods = []
    for number in range(size):
        cpus, adapters = draw(st.sampled_from(shapes))
        role = draw(st.sampled_from("ab"))
        wants = {**amounts(cpu=1000 * cpus, memory=100), **({RDMA: adapters} if adapters else {})}
        one = pod(
            f"w{number}",
            labels={names.PREFIX + "gang": "ring", "role": role},
            says=says,
            containers=(Container("main", requests=wants),),
            anti_affinity=apart[role],
            affinity=close[role],
            host_ports=(HostPort(80),) if listens and draw(st.booleans()) else (),
        )
        pods.append(one)
    return Gang(there, pods, least, most)


def of_role(role: str) -> PodTerm:
    return PodTerm((Requirement("role", "In", (role,)),), frozenset({"hpc"}))


def seen(gang: Gang) -> Story:
    """The bridge has seen these nodes and pods."""
    there = [node(each.name, cpu=1000 * each.cpus) for each in gang.nodes]
    has = zip(there, gang.nodes, strict=True)
    story = Story(
        IGNORING,
        [replace(each, allocatable={**each.allocatable, RDMA: known.adapters}) for each, known in has],
        checked=False,
    )
    external = frozenset({"IDLE", "EXTERNAL", "DYNAMIC_NORM"})
    in_slurm = (SlurmNode(each.name, external, ("main",), (), each.cpus, 512000) for each in gang.nodes)
    story.sees(SlurmNodesPolled(tuple(in_slurm), (Partition("main", default=True),), START + 1), *gang.pods)
    return story


# --- Kubernetes -----------------------------------------------------------------------------------------------------------


def runs(gang: Gang, place: Mapping[str, str]) -> bool:
    """True if Kubernetes can run the whole gang like this.  place: UID to node"""
    for there in gang.nodes:
        here = [each for each in gang.pods if place[each.uid] == there.name]
        if sum(_wants(each, "cpu") for each in here) > 1000 * there.cpus:
            return False
        if sum(_wants(each, RDMA) for each in here) > there.adapters or sum(bool(each.host_ports) for each in here) > 1:
            return False
        if not all(_content(each, here, gang.pods) for each in here):
            return False
    return True


def _wants(one: Pod, resource: str) -> int:
    return one.containers[0].requests.get(resource, 0)


def _content(one: Pod, here: Sequence[Pod], everywhere: Sequence[Pod]) -> bool:
    """True if the affinity of the pod is met.  Pods that a term of their own selects are all on one node."""
    if any(selects(term, other) for other in here if other is not one for term in one.anti_affinity):
        return False
    for term in one.affinity:
        others = [other for other in everywhere if other is not one and selects(term, other)]
        alike = [other for other in others if term in other.affinity] if selects(term, one) else []
        is_alone = selects(term, one) and not others
        if not is_alone and not any(other in here for other in others):
            return False
        if not all(other in here for other in alike):
            return False
    return True


def placements(gang: Gang, kinds: Mapping[str, int]) -> Iterator[Mapping[str, str]]:
    """Each way to run the gang in which pods of several kinds share no node.  kinds: UID to component of the job"""
    for chosen in product([each.name for each in gang.nodes], repeat=len(gang.pods)):
        place = {each.uid: name for each, name in zip(gang.pods, chosen, strict=True)}
        owners = {name: kinds[uid] for uid, name in place.items()}
        within = (gang.least or 1) <= len(owners) <= (gang.most or len(owners))
        if within and all(owners[name] == kinds[uid] for uid, name in place.items()) and runs(gang, place):
            yield place


# --- Slurm ----------------------------------------------------------------------------------------------------------------


Given = Mapping[str, int]  # the number of tasks on each node that a component gets


def choices(spec: JobSpec, nodes: Sequence[There]) -> Iterator[Given]:
    """Each way in which Slurm can give this component some of the nodes."""
    excluded = expand(spec.excluded_nodes)
    usable = [each for each in nodes if each.name not in excluded]
    for counts in product(*(range(min(each.cpus // spec.cpus_per_task, spec.tasks) + 1) for each in usable)):
        got = {each.name: count for each, count in zip(usable, counts, strict=True) if count}
        if _may_be(spec, got):
            yield got


def grants(specs: Sequence[JobSpec], nodes: Sequence[There]) -> Iterator[list[Given]]:
    """Each way in which Slurm can give these components the nodes, one component after the other."""
    if not specs:
        yield []
        return
    found = False
    for got in choices(specs[0], nodes):
        found = True
        rest = [each for each in nodes if each.name not in got]
        yield from ([got, *others] for others in grants(specs[1:], rest))
    assert found, f"Slurm has no nodes left for {specs[0]}"


def _may_be(spec: JobSpec, got: Given) -> bool:
    least = min(spec.min_nodes or 1, spec.tasks)
    if spec.tasks_per_node is None:
        fits = sum(got.values()) == spec.tasks and len(got) >= least
    else:  # Slurm requires the room for that many tasks on each node
        needed = max(-(-spec.tasks // spec.tasks_per_node), least)
        fits = len(got) == needed and all(count == spec.tasks_per_node for count in got.values())
    return fits and len(got) <= (spec.max_nodes or len(got))


def placed(gang: Gang, kinds: Sequence[Sequence[Pod]], grant: Sequence[Given]) -> dict[str, str]:
    """UID to node: the pods of each component fill its nodes in order."""
    place: dict[str, str] = {}
    for pods, counts in zip(kinds, grant, strict=True):
        slots = [each.name for each in gang.nodes for _ in range(counts.get(each.name, 0))]
        place |= {each.uid: name for each, name in zip(pods, slots, strict=False)}
    return place


# --- the property ---------------------------------------------------------------------------------------------------------


@given(gangs())
@settings(max_examples=150)
def test_a_gang_that_is_submitted_can_start_and_one_that_is_refused_cannot(gang: Gang) -> None:
    story = seen(gang)
    acts = story.decides(NOW)
    jobs = [each.spec for each in acts if isinstance(each, AllocateNow | SubmitJob)]
    [workload] = story.world.workloads.values()
    asked = asked_by(workload, Pass(story.world, NOW + 1))
    parts = [pods for _, pods in components(asked)] if not isinstance(asked, Refusal) else [gang.pods]
    if jobs:
        _assert_starts(gang, replace(jobs[0], parts=()), *jobs[0].parts, kinds=parts)
        return
    [said] = {each.message for each in acts if isinstance(each, SetPodCondition)}
    if not any(reason in said for reason in NO_OPTION):
        kinds = {each.uid: index for index, pods in enumerate(parts) for each in pods}
        assert not next(placements(gang, kinds), None), f"{said}{gang!r}"


def test_a_refusal_says_that_a_kind_needs_equally_many_pods_on_each_of_its_nodes() -> None:
    """Two pods on the first node, one on the second and the large pod on the third would do, but Slurm cannot be told so."""
    there = [There("x0", 2, 2), There("x1", 1, 1), There("x2", 3, 2)]
    wants = [amounts(cpu=1000, memory=100) | {RDMA: 1}] * 3 + [amounts(cpu=2000, memory=100)]
    ring: Any = {"labels": {names.PREFIX + "gang": "ring", "role": "a"}, "says": {"gang-size": "4"}}
    pods = [
        pod(f"w{number}", containers=(Container("main", requests=each),), **ring) for number, each in enumerate(wants)
    ]
    gang = Gang(there, pods, None, None)
    assert runs(gang, {"uid-w0": "x0", "uid-w1": "x0", "uid-w2": "x1", "uid-w3": "x2"})
    [said] = {each.message for each in seen(gang).acts(SetPodCondition, NOW)}
    assert (
        "cannot be shared out like that, even when they are empty. A kind with anti-affinity, or with resources" in said
    )
    assert "equally many pods on each of its nodes: Slurm has no option for different numbers." in said


def _assert_starts(gang: Gang, *specs: JobSpec, kinds: Sequence[Sequence[Pod]]) -> None:
    possible = list(islice(grants(specs, gang.nodes), MOST_GRANTS))
    for each in possible:
        count = sum(map(len, each))
        assert (gang.least or 1) <= count <= (gang.most or count)
        assert runs(gang, placed(gang, kinds, each)), "the grant cannot be used, and would be released for ever"
