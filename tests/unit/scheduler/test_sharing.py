"""A gang is not packed beyond what Kubernetes counts and Slurm does not: ports, pods, storage, other resources (W7, F6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, BindPod, CancelJob, SetPodCondition, SubmitJob, UpdateJob
from scheduler.events import JobRead, SlurmNodesPolled
from scheduler.explain import explain
from scheduler.model.kubernetes import Container, HostPort, Node, Pod, PodPhase, PodTerm, Requirement
from scheduler.model.slurm import Grant, GrantedNode, JobSpec, Partition
from scheduler.place.host_ports import common_port
from scheduler.place.sharing import has_mutual_anti_affinity
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.submission import spec_for
from scheduler.translate.job_spec import Translation
from tests.builders import CONFIG, MIB, START, Story, amounts, job_of, node, pod, slurm_node

NOW = START + 20
GIB = 1024**3
RDMA, DISK = "rdma/hca", "ephemeral-storage"
IGNORING = replace(CONFIG, translation=Translation(gres={"nvidia.com/gpu": "gpu"}, ignored=(RDMA,)))


def ring(count: int, **fields: Any) -> list[Pod]:
    gang = {"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": str(count)}}
    return [pod(f"w{number}", **gang, **fields) for number in range(count)]


def wanting(**more: int) -> dict[str, Any]:
    wants = {key.replace("_", "-") if key != "rdma" else RDMA: value for key, value in more.items()}
    return {"containers": (Container("main", requests={**amounts(cpu=1000, memory=100), **wants}),)}


def having(name: str, **more: int) -> Node:
    has = {key.replace("_", "-") if key != "rdma" else RDMA: value for key, value in more.items()}
    return replace(node(name), allocatable={**node(name).allocatable, **has})


def asked(story: Story, pods: Iterable[Pod], at: float = NOW) -> JobSpec:
    story.sees(*pods)
    [one] = [each.spec for each in story.decides(at) if isinstance(each, AllocateNow | SubmitJob)]
    return one


def refused(story: Story, pods: Iterable[Pod], condition: str = names.NO_NODE) -> str:
    story.sees(*pods)
    acts = story.decides(NOW)
    assert all(isinstance(each, SetPodCondition) for each in acts), "nothing is asked of Slurm"
    [said] = {each.message for each in acts if isinstance(each, SetPodCondition)}
    assert {each.condition for each in acts if isinstance(each, SetPodCondition)} == {condition}
    return said


def test_members_with_the_same_host_port_are_asked_for_one_to_a_node_and_bound_so() -> None:
    story = Story()
    story.sees(*ring(2, host_ports=(HostPort(29500),)))
    [allocate] = story.acts(AllocateNow, NOW)
    assert (allocate.spec.tasks, allocate.spec.tasks_per_node) == (2, 1)
    nodes = tuple(GrantedNode(name, 1, 100) for name in ("x1", "x2"))
    story.ended(allocate, at=NOW, job_id=17, grant=Grant(17, nodes))
    acts = story.decides(NOW)
    assert {each.name: each.node for each in acts if isinstance(each, BindPod)} == {"w0": "x1", "w1": "x2"}
    assert not any(isinstance(each, CancelJob) for each in acts)


def test_members_with_ports_of_their_own_share_a_node() -> None:
    pods = [replace(each, host_ports=(HostPort(29500 + number),)) for number, each in enumerate(ring(2))]
    assert asked(Story(), pods).tasks_per_node is None


@pytest.mark.parametrize(
    ("one", "other", "conflict"),
    [
        (HostPort(80), HostPort(80), True),
        (HostPort(80), HostPort(81), False),
        (HostPort(80), HostPort(80, "UDP"), False),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.2"), False),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.1"), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "0.0.0.0"), True),
    ],
)
def test_two_pods_have_a_port_in_common_if_both_cannot_listen(one: HostPort, other: HostPort, conflict: bool) -> None:
    pods = [pod("one", host_ports=(one,)), pod("other", host_ports=(HostPort(7), other))]
    assert common_port(pods) == common_port(pods[::-1]) == (80 if conflict else 0)


def test_pods_that_each_need_the_one_adapter_of_a_node_get_a_node_each() -> None:
    story = Story(IGNORING, [having("x1", rdma=1), having("x2", rdma=1)])
    assert asked(story, ring(2, **wanting(rdma=1))).tasks_per_node == 1


@pytest.mark.parametrize(("adapters", "a_node"), [(8, None), (4, 4), (3, 2), (2, 2)])
def test_a_node_gets_as_many_pods_as_it_has_adapters_for(adapters: int, a_node: int | None) -> None:
    """Four members: all on one node, or two on each of two."""
    story = Story(IGNORING, [having("x1", rdma=adapters), having("x2", rdma=adapters)])
    spec = asked(story, ring(4, **wanting(rdma=1)))
    assert spec.tasks_per_node == (None if adapters >= 4 else a_node)


@pytest.mark.parametrize(
    "offers",
    [{"cpu": 3500}, {"memory": 399}, {"gpu": 3}],
    ids=["CPUs that kubelet reserves", "memory that kubelet reserves", "a device that is out of order"],
)
def test_a_gang_is_not_packed_beyond_what_kubernetes_lets_pods_use_of_a_node(offers: dict[str, int]) -> None:
    """Slurm has room for four such pods on each node: their job was granted, released and granted again, for ever."""
    story = Story(nodes=[node(name, **{"cpu": 4000, "memory": 400, "gpu": 4, **offers}) for name in ("x1", "x2")])
    in_slurm = [replace(slurm_node(name), cpus=4, memory_mib=400, gres={"gpu": 4}) for name in ("x1", "x2")]
    story.sees(SlurmNodesPolled(tuple(in_slurm), (Partition("main", default=True),), START))
    story.sees(*ring(4, gpu=1))
    [allocate] = story.acts(AllocateNow, NOW)
    assert (allocate.spec.tasks, allocate.spec.tasks_per_node) == (4, 2)
    nodes = tuple(GrantedNode(name, 2, 200, {"gpu": 2}) for name in ("x1", "x2"))
    story.ended(allocate, at=NOW, job_id=17, grant=Grant(17, nodes))
    assert len(story.acts(BindPod, NOW)) == 4


def test_pods_that_request_different_amounts_are_counted_with_the_largest_of_them() -> None:
    """Slurm has room for four such pods; whichever of them meet on a node, they fit."""
    pods = [replace(each, **wanting()) for each in ring(4)]
    small = (Container("main", requests=amounts(cpu=600, memory=100)),)
    uneven = [replace(each, containers=small) if number else each for number, each in enumerate(pods)]
    in_slurm = (replace(slurm_node("x1"), cpus=4),)
    for gang, is_one_job in ((uneven, True), (pods, False)):
        story = Story(nodes=[node("x1", cpu=3500)])
        story.sees(SlurmNodesPolled(in_slurm, (Partition("main", default=True),), START), *gang)
        assert bool(story.acts(AllocateNow, NOW)) is is_one_job


def test_nodes_that_differ_by_some_kib_are_compared_with_each_shape_of_a_gang_as_one_node() -> None:
    """Machines of one kind differ by some KiB of memory.  Otherwise, a gang of many shapes took seconds of each pass."""
    gang = [replace(each, **wanting(memory=(10 + number // 2) * MIB)) for number, each in enumerate(ring(16))]
    effort = []
    for kib in (0, 1):
        nodes = [having(f"x{number}", memory=500 * GIB - number * kib * 1024) for number in range(64)]
        story = Story(nodes=nodes)
        story.sees(*gang)
        this_pass = Pass(story.world, NOW)
        [workload] = story.world.workloads.values()
        assert isinstance(spec_for(workload, this_pass), JobSpec)
        effort.append(this_pass.effort)
    assert effort[1] - effort[0] < 64, "each node is looked at once more, and not once for each of the eight shapes"


def test_storage_and_the_number_of_pods_limit_the_pods_on_a_node() -> None:
    story = Story(nodes=[having("x1", ephemeral_storage=100 * GIB), having("x2", ephemeral_storage=100 * GIB)])
    assert asked(story, ring(4, **wanting(ephemeral_storage=40 * GIB))).tasks_per_node == 2
    story = Story(nodes=[node("x1", pods=3), node("x2", pods=3)])
    assert asked(story, ring(6)).tasks_per_node == 3


def test_nodes_that_hold_fewer_pods_are_excluded_if_the_others_suffice() -> None:
    story = Story(IGNORING, [having("x1", rdma=4), having("x2", rdma=1), having("x3", rdma=4)])
    spec = asked(story, ring(8, **wanting(rdma=1)))
    assert (spec.tasks_per_node, spec.excluded_nodes) == (4, "x2")


def test_a_gang_that_empty_nodes_cannot_hold_shows_what_they_lack() -> None:
    assert refused(Story(), ring(3, host_ports=(HostPort(29500),))) == (
        "There is no room for 3 such pods, even when all nodes are empty: 2 nodes can run them, and would take 2. "
        "One node has host port 29500 for one such pod."
    )
    story = Story(IGNORING, [having("x1", rdma=5), having("x2", rdma=5)])
    assert refused(story, ring(5, **wanting(rdma=2))) == (
        "There is no room for 5 such pods, even when all nodes are empty: 2 nodes can run them, and would take 4. "
        "One node has rdma/hca for 2 such pods."
    )


def test_each_shape_of_a_gang_is_spread_by_what_it_needs_itself() -> None:
    launcher, *workers = ring(3, host_ports=(HostPort(29500),))
    launcher = replace(launcher, host_ports=(), **wanting())
    workers = [replace(each, **wanting(cpu=4000)) for each in workers]
    spec = asked(Story(nodes=[node("x1"), node("x2"), node("x3")]), [launcher, *workers])
    assert [(each.tasks, each.tasks_per_node) for each in (spec, *spec.parts)] == [(1, None), (2, 1)]


@pytest.mark.parametrize(
    ("granted_mib", "a_node"),
    [(None, None), (100, None), (0, 2)],
    ids=["no grant yet", "a grant with memory", "a grant without memory"],
)
def test_memory_limits_where_a_grant_has_shown_that_slurm_does_not_count_it(
    granted_mib: int | None, a_node: int | None
) -> None:
    story = Story(nodes=[node("x1", memory=1000), node("x2", memory=1000)])
    in_slurm = [replace(slurm_node(name), memory_mib=1000) for name in ("x1", "x2")]
    story.sees(SlurmNodesPolled(tuple(in_slurm), (Partition("main", default=True),), START))
    if granted_mib is not None:
        first = pod("first")
        story.queues(first, 17, at=NOW)
        read = job_of(first, 17, "RUNNING")
        story.sees(JobRead(17, NOW + 1, NOW + 1, read, Grant(17, (GrantedNode("x1", 1, granted_mib),))))
    assert asked(story, ring(4, memory=400), NOW + 2).tasks_per_node == a_node


def not_counting_memory(*names: str, kube_mib: int, slurm_mib: int) -> Story:
    """A read grant has shown that Slurm does not count memory."""
    story = Story(nodes=[node(name, memory=kube_mib) for name in names])
    in_slurm = [replace(slurm_node(name), cpus=8, memory_mib=slurm_mib) for name in names]
    story.sees(SlurmNodesPolled(tuple(in_slurm), (Partition("main", default=True),), START))
    first = pod("first")
    story.queues(first, 17, at=NOW)
    story.sees(JobRead(17, NOW + 1, NOW + 1, job_of(first, 17, "RUNNING"), Grant(17, (GrantedNode("x1", 1, 0),))))
    return story


def test_where_slurm_does_not_count_memory_only_the_memory_in_kubernetes_limits() -> None:
    """slurm.conf often lacks RealMemory there."""
    story = not_counting_memory("x1", "x2", kube_mib=1000, slurm_mib=1)
    assert asked(story, ring(4, memory=400), NOW + 2).tasks_per_node == 2


def test_where_slurm_does_not_count_memory_it_charges_no_memory_by_the_cpu() -> None:
    story = not_counting_memory("x1", kube_mib=8192, slurm_mib=8192)
    assert asked(story, ring(2, cpu=3000, memory=4096), NOW + 2).tasks_per_node is None


def test_each_gang_is_laid_out_for_the_nodes_of_its_partition_though_the_default_changes() -> None:
    story = Story(IGNORING, [having(f"x{number}", rdma=1 + number // 2) for number in range(4)])
    in_slurm = tuple(slurm_node(f"x{number}", partitions=("main" if number < 2 else "gpu",)) for number in range(4))

    job_ids = count(17)

    def laid_out(partition: str, at: float) -> int | None:
        says = {"gang-size": "2", **({"partition": partition} if partition else {})}
        labels = {names.PREFIX + "gang": f"at-{at}"}
        story.sees(*(pod(f"at-{at}-{number}", labels=labels, says=says, **wanting(rdma=1)) for number in range(2)))
        [asks] = [each for each in story.decides(at) if isinstance(each, AllocateNow | SubmitJob)]
        story.ended(asks, at=at, job_id=next(job_ids))
        return asks.spec.tasks_per_node

    for at, default in ((NOW, "main"), (NOW + 10, "gpu")):
        partitions = tuple(Partition(name, default=name == default) for name in ("main", "gpu"))
        story.sees(SlurmNodesPolled(in_slurm, partitions, at))
        found = [laid_out(partition, at + after_s) for after_s, partition in enumerate(("", "main", "gpu"))]
        assert found == [1 if default == "main" else None, 1, None]


def of_role(role: str) -> tuple[PodTerm, ...]:
    return (PodTerm((Requirement("role", "In", (role,)),), frozenset({"hpc"})),)


def led(**leader: Any) -> list[Pod]:
    first, *others = ring(3)
    first = replace(first, labels={**first.labels, "role": "leader"}, **leader)
    return [first, *(replace(each, labels={**each.labels, "role": "worker"}) for each in others)]


def test_anti_affinity_between_unlike_pods_of_a_gang_gives_one_pod_a_node() -> None:
    """The leader keeps away from workers, and no pod from its like: all three were bound to one node."""
    story = Story(nodes=[node("x1"), node("x2"), node("x3")])
    assert asked(story, led(anti_affinity=of_role("worker"))).tasks_per_node == 1
    assert asked(Story(), led(anti_affinity=of_role("other"))).tasks_per_node is None


def test_members_of_different_shapes_need_not_be_able_to_share_a_node() -> None:
    """Slurm gives each component of a job nodes of its own (Slurm facts 11): a common host port is no reason to refuse."""
    launcher, worker = ring(2, host_ports=(HostPort(29500),))
    launcher = replace(launcher, **wanting(cpu=4000))
    story = Story()
    story.sees(launcher, worker)
    [submit] = story.acts(SubmitJob, NOW)
    assert [(each.tasks, each.cpus_per_task) for each in (submit.spec, *submit.spec.parts)] == [(1, 4), (1, 1)]
    one_node = Story(nodes=[node("x1")])
    assert "Slurm gives each kind nodes of its own: at least 2 nodes in all" in refused(one_node, [launcher, worker])


def test_anti_affinity_between_shapes_needs_a_node_for_each_shape_alone() -> None:
    """The launcher keeps away from two workers, which may share a node: three nodes were asked for (Slurm facts 11)."""
    spec = asked(Story(), led(anti_affinity=of_role("worker"), **wanting(cpu=4000)))
    assert [(each.tasks, each.tasks_per_node) for each in (spec, *spec.parts)] == [(1, None), (2, None)]


def test_anti_affinity_within_one_shape_spreads_that_shape_alone() -> None:
    launcher, *workers = led(**wanting(cpu=4000))
    apart = [replace(each, anti_affinity=of_role("worker")) for each in workers]
    three = [node("x1"), node("x2"), node("x3")]
    spec = asked(Story(nodes=three), [launcher, *apart])
    assert [(each.tasks, each.tasks_per_node) for each in (spec, *spec.parts)] == [(1, None), (2, 1)]
    said = refused(Story(), [launcher, *apart])
    assert "at least 3 nodes in all. If some pods of a kind have anti-affinity" in said
    assert "Only 2 nodes of Slurm partition main can run them." in said


def test_a_kind_with_one_pod_a_node_is_charged_what_it_asks_for_and_leaves_the_node_of_another_kind() -> None:
    """By the CPU, Slurm would charge 4,098 MiB for each worker and 8,193 MiB for the leader: more than the nodes have."""
    has = {"x1": 4096, "x2": 8192, "x3": 4096}
    story = Story(nodes=[node(name, cpu=8000, memory=mib) for name, mib in has.items()])
    in_slurm = tuple(replace(slurm_node(name), cpus=8, memory_mib=mib) for name, mib in has.items())
    story.sees(SlurmNodesPolled(in_slurm, (Partition("main", default=True),), START))
    leader, *workers = (
        replace(each, containers=(Container("main", requests=amounts(cpu=3000, memory=mib)),))
        for each, mib in zip(led(), (8192, 4096, 4096), strict=True)
    )
    spec = asked(story, [leader, *(replace(each, anti_affinity=of_role("worker")) for each in workers)])
    assert [(each.tasks, each.excluded_nodes) for each in (spec, *spec.parts)] == [(1, "x[1,3]"), (2, "x2")]


def test_affinity_within_one_shape_keeps_that_shape_alone_on_one_node() -> None:
    """The pods had to agree on it: such a gang was refused."""
    launcher, *workers = led(**wanting(cpu=4000))
    close = [replace(each, affinity=of_role("worker")) for each in workers]
    spec = asked(Story(), [launcher, *close])
    assert [(each.min_nodes, each.max_nodes) for each in (spec, *spec.parts)] == [(None, None), (1, 1)]


def test_affinity_that_selects_its_pod_alone_does_not_keep_the_gang_on_one_node() -> None:
    """No other pod of the gang has the role of the leader; two nodes were refused as too small."""
    big = wanting(cpu=60000)
    pods = [replace(each, **big) for each in led(affinity=of_role("leader"))]
    spec = asked(Story(nodes=[node("x1"), node("x2"), node("x3")]), pods)
    assert (spec.tasks, spec.min_nodes, spec.max_nodes) == (3, None, None)


def test_affinity_that_only_pods_of_others_meet_decides_where_the_gang_goes() -> None:
    """No other pod of the gang has the role of the leader, and a leader of another gang is on x1."""
    earlier = pod("earlier", labels={"role": "leader"}, node="x1", phase=PodPhase.RUNNING)
    spec = asked(Story(pods=[earlier]), led(affinity=of_role("leader")))
    assert [(each.tasks, each.excluded_nodes) for each in (spec, *spec.parts)] == [(1, "x2"), (2, "x1")]


def test_affinity_that_pods_of_one_shape_meet_among_themselves_is_no_affinity_to_other_shapes() -> None:
    launcher, *workers = led(**wanting(cpu=4000))
    launcher = replace(launcher, labels=workers[0].labels)
    spec = asked(Story(), [launcher, *(replace(each, affinity=of_role("worker")) for each in workers)])
    assert [(each.tasks, each.max_nodes) for each in (spec, *spec.parts)] == [(1, None), (2, 1)]


def test_a_pod_that_keeps_apart_from_its_like_finds_them_whatever_else_distinguishes_them() -> None:
    one, other = ring(2)
    apart = PodTerm((Requirement("tier", "In", ("none",)),), frozenset({"hpc"}))
    one = replace(one, labels={**one.labels, "role": "worker", "tier": "a"})
    other = replace(
        one, uid="uid-w1", name="w1", labels={**one.labels, "tier": "b"}, anti_affinity=(*of_role("worker"), apart)
    )
    assert asked(Story(), [one, other]).tasks_per_node == 1


def test_affinity_to_another_member_puts_both_on_one_node_and_both_are_bound() -> None:
    """The leader wants a worker beside it, and no worker is on a node before the gang: it waited for ever with 0/2 nodes."""
    story = Story()
    story.sees(*led(affinity=of_role("worker")))
    [allocate] = story.acts(AllocateNow, NOW)
    spec = allocate.spec
    assert (spec.tasks, spec.min_nodes, spec.max_nodes, spec.excluded_nodes) == (3, 1, 1, "")
    story.ended(allocate, at=NOW, job_id=17, grant=Grant(17, (GrantedNode("x2", 3, 300),)))
    assert {each.name: each.node for each in story.acts(BindPod, NOW)} == dict.fromkeys(("w0", "w1", "w2"), "x2")


def test_a_grant_that_parts_a_pod_from_the_member_that_its_affinity_wants_is_released() -> None:
    story = Story()
    story.sees(*led(affinity=of_role("worker")))
    [allocate] = story.acts(AllocateNow, NOW)
    parted = Grant(17, (GrantedNode("x1", 1, 100), GrantedNode("x2", 2, 200)))
    story.ended(allocate, at=NOW, job_id=17, grant=parted)
    [release] = [each for each in story.decides(NOW) if isinstance(each, CancelJob | BindPod)]
    assert "node x1 is not satisfying pod (anti-)affinity" in release.reason


def test_pods_of_another_gang_do_not_decide_where_affinity_within_a_gang_is_met() -> None:
    """The workers of an earlier run are on x1, which is full: the leader alone would be asked for there."""
    earlier = pod("earlier", labels={"role": "worker"}, node="x1", phase=PodPhase.RUNNING)
    story = Story(pods=[earlier])
    spec = asked(story, led(affinity=of_role("worker")))
    assert (spec.tasks, spec.max_nodes, spec.excluded_nodes, spec.parts) == (3, 1, "", ())


def test_affinity_to_members_that_ask_for_other_resources_is_refused_and_tells_what_to_do() -> None:
    story = Story()
    assert refused(story, led(affinity=of_role("worker"), **wanting(cpu=4000)), names.REFUSED) == (
        "The required pod affinity of this gang wants its pods on one node, but they ask for different resources or nodes, "
        "and Slurm gives each kind nodes of its own. Let all pods ask for the same, or make the affinity a preference."
    )


def test_affinity_to_some_members_that_one_node_does_not_hold_tells_what_to_do() -> None:
    """The leader and one worker fit on a node, but Slurm has no option for some of the pods that ask for the same."""
    big = wanting(cpu=30000)
    pods = [replace(each, **big) for each in led(affinity=of_role("worker"))]
    assert refused(Story(), pods) == (
        "The required pod affinity wants some of these pods on one node. Slurm has no option for a part of the pods with "
        "the same request, so all of these are requested on one node. Let pods that may be on other nodes request other "
        "resources. Slurm's partition has no room for 3 such pods on 1 of its nodes, even when it is empty: 2 nodes can run "
        "them, and would take 2."
    )
    leader, one, other = pods
    three = Story(nodes=[node("x1"), node("x2"), node("x3")])
    spec = asked(three, [leader, one, replace(other, **wanting(cpu=30001))])
    assert [(each.tasks, each.max_nodes) for each in (spec, *spec.parts)] == [(2, 1), (1, None)]


def test_explain_shows_the_nodes_of_a_gang_whose_affinity_is_met_by_its_members() -> None:
    story = Story()
    leader, *_ = pods = led(affinity=of_role("worker"))
    story.sees(*pods)
    found = explain(story.world, story.world.key_of_pod[leader.uid], NOW)
    assert found.nodes is not None
    assert found.nodes.usable == ("x1", "x2")


def alike() -> list[Pod]:
    return [replace(each, labels={**each.labels, "role": "worker"}) for each in ring(3)]


def test_affinity_to_one_node_that_holds_too_few_pods_is_named() -> None:
    big = wanting(cpu=60000)
    pods = [replace(each, affinity=of_role("worker"), **big) for each in alike()]
    assert refused(Story(), pods) == (
        "The required pod affinity wants these pods on one node. Slurm's partition has no room for 3 such pods on 1 of its "
        "nodes, even when it is empty: 2 nodes can run them, and would take 1."
    )


def test_affinity_within_one_shape_to_a_node_that_holds_too_few_pods_is_named_although_the_gang_may_have_few_nodes() -> (
    None
):
    """A larger number of nodes would not help."""
    two_nodes = {names.PREFIX + names.MAX_NODES: "2"}
    launcher, *workers = [replace(each, annotations=each.annotations | two_nodes) for each in led()]
    close = [replace(each, affinity=of_role("worker"), **wanting(cpu=40000)) for each in workers]
    assert refused(Story(nodes=[node(name) for name in ("x1", "x2", "x3")]), [launcher, *close]).startswith(
        "The required pod affinity wants these pods on one node. Slurm's partition has no room for 2 such pods on 1 of"
    )


def test_min_nodes_that_affinity_makes_impossible_is_refused() -> None:
    """The annotation was ignored: all pods were asked for on one node."""
    pods = [
        replace(each, affinity=of_role("worker"), annotations=each.annotations | {names.PREFIX + "min-nodes": "2"})
        for each in alike()
    ]
    assert refused(Story(), pods, names.REFUSED) == (
        "Annotation slurm-bridge/min-nodes: 2 nodes, but because of the required pod affinity of this gang its pods are "
        "requested on 1. Lower the number, or make the affinity a preference."
    )


def test_kinds_of_a_gang_that_need_more_nodes_than_there_are_because_of_their_size_are_refused() -> None:
    """Two workers fill a node each, and the launcher needs a third: the gang waited in Slurm for ever (F3)."""
    launcher, *workers = led()
    workers = [replace(each, **wanting(cpu=60000)) for each in workers]
    assert "at least 3 nodes in all. Only 2 nodes" in refused(Story(), [launcher, *workers])
    assert asked(Story(nodes=[node("x1"), node("x2"), node("x3")]), [launcher, *workers]).parts


def test_kinds_of_a_gang_that_both_need_the_one_large_node_are_refused() -> None:
    """There are nodes enough for each kind, and for all pods; the gang waited in Slurm for ever (F3)."""
    launcher, *workers = led(**wanting(cpu=60000))
    workers = [replace(each, **wanting(cpu=30000)) for each in workers]
    small = (node("x2", cpu=30000), node("x3", cpu=1000))
    story = Story(nodes=[node("x1"), *small])
    in_slurm = {"x1": 64, "x2": 30, "x3": 1}
    polled = tuple(replace(slurm_node(name), cpus=cpus) for name, cpus in in_slurm.items())
    story.sees(SlurmNodesPolled(polled, (Partition("main", default=True),), NOW))
    assert refused(story, [launcher, *workers]) == (
        "2 kinds of pods of this gang ask for different resources or nodes, and Slurm gives each kind nodes of its own. "
        "The 2 nodes of Slurm partition main that can run some of them cannot be shared out like that, even when they are "
        "empty. Let the pods ask for the same, or ask the admin for more nodes."
    )


def test_a_kind_that_could_take_the_only_node_of_another_kind_leaves_it() -> None:
    """Slurm gave the launcher, which comes first, the large node, did not look ahead, and never started the gang."""
    launcher, *workers = led(**wanting(cpu=1000))
    workers = [replace(each, **wanting(cpu=30000)) for each in workers]
    story = Story(nodes=[node("x1"), node("x2", cpu=4000)])
    in_slurm = tuple(replace(slurm_node(name), cpus=cpus) for name, cpus in {"x1": 64, "x2": 4}.items())
    story.sees(SlurmNodesPolled(in_slurm, (Partition("main", default=True),), NOW))
    spec = asked(story, [launcher, *workers])
    assert [(each.tasks, each.excluded_nodes) for each in (spec, *spec.parts)] == [(1, "x1"), (2, "x2")]


def test_kinds_exclude_no_nodes_of_each_other_where_there_are_enough() -> None:
    launcher, *workers = led(**wanting(cpu=1000))
    workers = [replace(each, **wanting(cpu=30000)) for each in workers]
    spec = asked(Story(nodes=[node(f"x{number}") for number in range(4)]), [launcher, *workers])
    assert [each.excluded_nodes for each in (spec, *spec.parts)] == ["", ""]


def test_min_nodes_is_shared_by_where_the_kinds_of_a_gang_may_run() -> None:
    """Two nodes were asked for the launchers, which have one: the gang was refused, or never started."""
    pods = [
        replace(each, annotations=each.annotations | {names.PREFIX + "min-nodes": "3"}, **wanting(cpu=cpus))
        for each, cpus in zip(ring(4), (2000, 2000, 1000, 1000), strict=True)
    ]
    only = {"node_selector": {"disk": "fast"}}
    pods = [replace(each, **only) for each in pods[:2]] + pods[2:]
    story = Story(nodes=[node("x1", labels={"disk": "fast"}), node("x2"), node("x3")])
    spec = asked(story, pods)
    assert [(each.tasks, each.min_nodes) for each in (spec, *spec.parts)] == [(2, 1), (2, 2)]


def test_more_nodes_than_can_run_the_pods_are_refused() -> None:
    pods = [replace(each, annotations=each.annotations | {names.PREFIX + "min-nodes": "3"}) for each in ring(3)]
    assert refused(Story(), pods) == (
        "The pods ask for at least 3 nodes (min-nodes), and only 2 nodes of Slurm partition main can run "
        "them. Lower the number."
    )


def test_nodes_that_hold_a_gang_only_unevenly_are_refused_with_the_reason() -> None:
    story = Story(IGNORING, [having("x1", rdma=1), having("x2", rdma=2)])
    assert refused(story, ring(3, **wanting(rdma=1))) == (
        "There is no room for 3 such pods, even when all nodes are empty: 2 nodes can run them, and would take 3, but only "
        "if Slurm gave each node another number of them, for which it has no option. One node has rdma/hca for one such pod."
    )


@pytest.mark.parametrize(
    ("pods", "most", "limit", "takes"), [(3, 1, "on at most 1 node", 4), (5, 2, "on at most 2 nodes", 4)]
)
def test_a_gang_that_the_nodes_hold_but_not_so_few_of_them_is_refused_with_the_limit(
    pods: int, most: int, limit: str, takes: int
) -> None:
    """x3 holds no pod: in Slurm it has no CPU."""
    story = Story(IGNORING, [having(name, rdma=2) for name in ("x1", "x2", "x3")])
    in_slurm = tuple(replace(slurm_node(name), cpus=cpus) for name, cpus in (("x1", 64), ("x2", 64), ("x3", 0)))
    story.sees(SlurmNodesPolled(in_slurm, (Partition("main", default=True),), NOW))
    says = {names.PREFIX + "max-nodes": str(most)}
    gang = [replace(each, annotations=each.annotations | says) for each in ring(pods, **wanting(rdma=1))]
    assert refused(story, gang) == (
        f"There is no room for {pods} such pods {limit}, even when all nodes are empty: 2 nodes can run them, and would take "
        f"{takes}. One node has rdma/hca for 2 such pods."
    )


def test_more_nodes_than_can_run_the_pods_are_refused_though_one_node_holds_all_of_them() -> None:
    says = {names.PREFIX + "min-nodes": "2"}
    gang = [replace(each, annotations=each.annotations | says) for each in ring(2, **wanting(cpu=32000))]
    assert refused(Story(nodes=[node("x1")]), gang) == (
        "The pods ask for at least 2 nodes (min-nodes), and only 1 node of Slurm partition main can run them. Lower the "
        "number."
    )


def test_some_pods_of_one_shape_that_keep_apart_get_a_node_each_and_are_told_what_to_change() -> None:
    """Two nodes would do, but Slurm has no option for some pairs alone."""
    pods = led(anti_affinity=of_role("worker"))
    assert asked(Story(nodes=[node("x1"), node("x2"), node("x3")]), pods).tasks_per_node == 1
    assert refused(Story(), pods) == (
        "The pod anti-affinity keeps some of 3 pods of hpc/ring apart that ask for the same. Slurm has no option for some "
        "pairs alone, so each of them gets a node of its own, and only 2 nodes can run them. Let pods that may share a node "
        "ask for other resources than the pods from which they keep apart."
    )


def test_a_pod_that_keeps_apart_from_its_like_alone_shares_its_node_with_others() -> None:
    """No other pod of the gang has the role of the leader: its anti-affinity selects itself alone."""
    assert asked(Story(), led(anti_affinity=of_role("leader"))).tasks_per_node is None


def of_kinds(*kinds: tuple[int, int], most: int) -> list[Pod]:
    """A gang of so many pods of so many CPUs each, with the annotation max-nodes."""
    cpus = [cpus for pods, cpus in kinds for _ in range(pods)]
    return [
        replace(
            each, **wanting(cpu=1000 * number), annotations=each.annotations | {names.PREFIX + "max-nodes": str(most)}
        )
        for each, number in zip(ring(len(cpus)), cpus, strict=True)
    ]


@pytest.mark.parametrize(
    ("most", "kinds", "shares"),
    [
        (2, ((2, 1), (2, 4)), [1, 1]),
        (3, ((2, 1), (2, 4)), [2, 1]),
        (3, ((4, 1), (2, 60)), [1, 2]),  # a node has 64 CPUs
        (4, ((4, 1), (2, 60)), [2, 2]),
        (9, ((4, 1), (2, 60)), [4, 2]),
    ],
)
def test_max_nodes_of_a_gang_counts_for_all_its_kinds_together(
    most: int, kinds: tuple[tuple[int, int], ...], shares: list[int]
) -> None:
    spec = asked(Story(nodes=[node(f"x{number}") for number in range(9)]), of_kinds(*kinds, most=most))
    assert [(each.tasks, each.max_nodes) for each in (spec, *spec.parts)] == [
        (pods, share) for (pods, _), share in zip(kinds, shares, strict=True)
    ]


def test_max_nodes_below_what_the_kinds_of_a_gang_need_is_refused_in_words() -> None:
    story = Story(nodes=[node(f"x{number}") for number in range(4)])
    assert "at least 3 nodes in all. Annotation slurm-bridge/max-nodes or the policy (max_nodes) allows 2." in refused(
        story, of_kinds((1, 1), (2, 60), most=2), names.REFUSED
    )


def test_a_node_that_changes_how_kinds_share_max_nodes_is_no_change_of_the_waiting_job() -> None:
    """The pods showed that Slurm cannot change max-nodes, though nobody had changed it."""
    story = Story(nodes=[node(f"x{number}") for number in range(3)])
    story.sees(*of_kinds((4, 1), (2, 60), most=3))
    [submit] = story.acts(SubmitJob, NOW)
    story.ended(submit, at=NOW, job_id=17)
    story.polls({17: "PENDING"}, at=NOW + 1)
    read = replace(job_of(pod("w0"), 17, "PENDING", reason="Resources"), name=submit.spec.name)
    story.reads(read, at=NOW + 2)
    grown = tuple(replace(slurm_node(f"x{number}"), cpus=128) for number in range(3))
    story.sees(SlurmNodesPolled(grown, (Partition("main", default=True),), NOW + 3))
    acts = story.decides(NOW + 4)
    said = {each.message for each in acts if isinstance(each, SetPodCondition)}
    assert said
    assert not any("cannot change" in each for each in said)
    assert not any(isinstance(each, UpdateJob) for each in acts)


def test_affinity_between_shapes_is_refused_because_they_never_share_a_node() -> None:
    """Both were bound, on two nodes: each counted as the first pod that the affinity selects (F5)."""
    together = (PodTerm((Requirement(names.PREFIX + "gang", "In", ("ring",)),), frozenset({"hpc"})),)
    launcher, worker = ring(2, affinity=together)
    launcher = replace(launcher, **wanting(cpu=4000))
    assert refused(Story(), [launcher, worker], names.REFUSED).startswith(
        "The required pod affinity of this gang wants its pods on one"
    )
    leader, *workers = led(affinity=of_role("leader"), **wanting(cpu=4000))
    each_with_its_like = [leader, *(replace(each, affinity=of_role("worker")) for each in workers)]
    assert [each.max_nodes for each in asked(Story(), each_with_its_like).parts] == [1]


def test_the_comparison_of_thousands_of_anti_affinity_terms_is_bounded() -> None:
    """Each of 5,000 pods has labels and 20 terms of its own: five hundred million comparisons."""
    many = []
    for number, each in enumerate(ring(5000)):
        terms = tuple(
            PodTerm((Requirement("who", "NotIn", (f"{number}-{n}",)),), frozenset({"hpc"})) for n in range(20)
        )
        many.append(replace(each, labels={**each.labels, "who": str(number)}, anti_affinity=terms))
    assert has_mutual_anti_affinity(many)
