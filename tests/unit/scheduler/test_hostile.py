"""Tenants choose how much there is to compare, and a pass stays short: the work is counted, not timed (X7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, BindPod, Outcome, SetPodCondition, SubmitJob
from scheduler.decide import decide
from scheduler.events import Planned, PodDeleted, PodSeen, PodsListed, Scope
from scheduler.model.cache import BoundedCache, BoundedDict
from scheduler.model.hostlist import expand
from scheduler.model.kubernetes import Container, HostPort, NodeTerm, Pod, PodTerm, Requirement, Toleration
from scheduler.model.slurm import Grant, GrantedNode, JobSpec
from scheduler.place.affinity import MAX_COUNTED_PLACES, PER_TERM, OwnPods
from scheduler.place.affinity_terms import FEW
from scheduler.place.fit import NodeInfo, needs
from scheduler.place.host_ports import HostPorts, ports_conflict
from scheduler.state.phase import Phase
from scheduler.state.turns import Turns
from tests.builders import CONFIG, START, Story, grant, job_of, node, pod, without

NOW = START + 20
NODES = [f"n{number:02}" for number in range(20)]
EVERYBODY = frozenset({"hpc", "other"})
STANDING, WAITING, TERMS = 200, 50, 50
SIZE, MEMBER_TERMS = 60, 20

Shape = Callable[[str], PodTerm]


def said(*requirements: tuple[str, str, tuple[str, ...]]) -> PodTerm:
    return PodTerm(tuple(Requirement(*each) for each in requirements), EVERYBODY)


SHAPES: dict[str, Shape] = {
    "one value": lambda which: said(("app", "In", (which,))),
    "many values": lambda which: said(("app", "In", tuple(f"{which}-{number}" for number in range(20)))),
    "a label of its own": lambda which: said((which, "Exists", ())),
    "nothing required": lambda which: said(("app", "NotIn", ("train", "web", which))),
    "a common label": lambda which: said(("app", "Exists", ()), ("app", "NotIn", ("train", "web", which))),
}


def terms(shape: Shape, who: str) -> tuple[PodTerm, ...]:
    return tuple(shape(f"{who}-{number}") for number in range(TERMS))


def grey(number: int, shape: Shape) -> Pod:
    """A pod of another scheduler, in a namespace that is not managed."""
    on = NODES[number % len(NODES)]
    return Pod(
        f"g{number}", "grey", f"g{number}", node=on, labels={"app": "grey"}, anti_affinity=terms(shape, f"g{number}")
    )


def web(name: str) -> Pod:
    return pod(name, namespace="other", labels={"app": "web", "name": name})


def asked(story: Story, at: float) -> set[str]:
    """Decide, and answer that there is no room; the keys of the workloads that were submitted."""
    found = [each for each in story.decides(at) if isinstance(each, AllocateNow | SubmitJob)]
    for each in found:
        story.ended(each, Outcome.REFUSED, at=at, number=2013 if isinstance(each, AllocateNow) else 2050, later=True)
    return {each.key for each in found}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_thousand_terms_of_others_neither_lengthen_a_pass_nor_hold_up_another_namespace(shape: Shape) -> None:
    story = Story(CONFIG, [node(name) for name in NODES], checked=False)
    story.sees(PodsListed(Scope.OTHERS, tuple(grey(number, shape) for number in range(STANDING)), START))
    for number in range(WAITING):
        story.sees(pod(f"train{number}", labels={"app": "train"}, anti_affinity=terms(shape, f"t{number}")[:10]))
    affinity_index, victim, passes, most = story.world.affinity_index, web("first"), 0, 0
    story.sees(victim)
    for passes in range(1, 40):
        before = affinity_index.effort
        waits = names.workload_key(victim.uid) not in asked(story, NOW + passes / 100)
        most = max(most, affinity_index.effort - before)
        if not waits:
            break
    assert passes < 10, "another namespace has its turn"
    assert most < 20_000, "of ten thousand terms, five hundred more that wait, and hundreds of pods"
    story.sees(PodSeen(Scope.OTHERS, grey(STANDING, shape)), second := web("second"))
    before = affinity_index.effort
    assert names.workload_key(second.uid) in {*asked(story, NOW + 1), *asked(story, NOW + 1.01)}
    assert affinity_index.effort - before < 40_000, "what was compared is remembered"


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_pod_that_is_refused_for_its_terms_is_compared_with_no_pod(shape: Shape) -> None:
    story = Story(CONFIG, [node(name) for name in NODES])
    story.sees(PodsListed(Scope.OTHERS, tuple(grey(number, shape) for number in range(STANDING)), START))
    for number in range(WAITING):
        story.sees(pod(f"train{number}", labels={"app": "train"}, anti_affinity=terms(shape, f"t{number}")))
    before = story.world.affinity_index.effort
    plan = story.plan(NOW)
    assert plan.deferred == (), "one pass is enough for all"
    assert len(plan.visited) == WAITING
    assert all(isinstance(each, SetPodCondition) and "takes at most 20" in each.message for each in plan.actions)
    assert story.world.affinity_index.effort - before <= FEW, "for all of them together, which have equal labels"


def test_an_anti_affinity_that_comes_or_leaves_concerns_only_the_pods_that_it_selects() -> None:
    story = Story()
    trains = [pod(f"train{number}", labels={"app": "train"}, cpu=64000) for number in range(3)]
    other = pod("bake", labels={"app": "bake"})
    for number, each in enumerate([*trains, other]):
        story.queues(each, 17 + number, at=NOW)
    story.polls(dict.fromkeys(range(17, 21), "PENDING"), at=NOW + 1)
    story.decides(NOW + 1)
    shy = Pod("shy", "grey", "shy", node="x1", anti_affinity=(said(("app", "In", ("train",))),))
    story.sees(PodSeen(Scope.OTHERS, shy))
    keys = {names.workload_key(each.uid) for each in trains}
    assert set(decide(story.world, NOW + 1.1).visited) == keys
    story.plan(NOW + 1.1)
    story.sees(
        PodSeen(Scope.OTHERS, shy),
        PodSeen(Scope.OTHERS, Pod("shy2", "grey", "shy2", node="x1", anti_affinity=shy.anti_affinity)),
    )
    assert decide(story.world, NOW + 1.2).visited == (), "the node was closed to them already"


def test_a_pass_leaves_to_the_next_what_it_has_no_time_for_and_each_namespace_has_its_turn() -> None:
    story = Story(without(CONFIG, pass_effort=1))
    story.sees(*[pod(f"train{number}") for number in range(5)], late := web("late"))
    plans = []
    for _ in range(12):
        plans.append(plan := decide(story.world, NOW))
        story.world.apply(Planned(plan, NOW))
    assert all(len(plan.visited) <= 1 for plan in plans)
    looks = [key for plan in plans for key in plan.visited]
    assert set(looks) == set(story.world.workloads), "none is left out"
    assert looks.index(names.workload_key(late.uid)) == 1
    assert all(plan.wake_at == NOW for plan in plans if plan.deferred), "the next pass follows at once"
    assert plans[-1].deferred == ()


def test_a_namespace_whose_looks_are_dear_has_fewer_of_them() -> None:
    turns = Turns([("red", f"r{number}") for number in range(9)] + [("blue", f"b{number}") for number in range(9)], {})
    order = []
    for _ in range(9):
        order.append(key := turns.peek())
        turns.charge(750 if key.startswith("r") else 1)
    assert order == ["r0", "b0", "b1", "b2", "b3", "r1", "b4", "b5", "b6"]
    later = Turns([("green", "g"), ("red", "r"), ("blue", "b")], turns.taken)
    assert (later.peek(), turns.left()) == ("g", [f"r{number}" for number in range(2, 9)] + ["b7", "b8"])


def test_ports_are_looked_up_not_compared_with_all_that_are_held() -> None:
    story = Story(CONFIG, [node(name) for name in NODES])
    for number, on in enumerate(NODES):
        held = tuple(HostPort(2000 + port) for port in range(1000))
        story.sees(PodSeen(Scope.OTHERS, Pod(f"g{number}", "grey", f"g{number}", node=on, host_ports=held)))
    story.sees(*[pod(f"web{number}", host_ports=(HostPort(80), HostPort(2000 + number))) for number in range(20)])
    story.decides(NOW)
    assert story.world.host_ports.effort <= 20 * len(NODES)


def test_one_port_on_ten_thousand_addresses_is_looked_up_by_address() -> None:
    """Every address of 127.0.0.0/8 can be a hostIP: one question took 12 s, with twenty such pods there."""
    held = tuple(HostPort(80, "TCP", f"127.0.{number // 250}.{number % 250}") for number in range(10_000))
    ports = HostPorts()
    for number, on in enumerate(NODES):
        ports.add(Pod(f"g{number}", "grey", f"g{number}", node=on, host_ports=held), on)
    wanted = tuple(HostPort(80, "TCP", f"10.0.0.{number}") for number in range(128))
    web = pod("web", host_ports=wanted)
    assert ports.taken(web) == frozenset()
    assert not ports_conflict(wanted, held)
    assert ports.taken(pod("all", host_ports=(HostPort(80),))) == frozenset(NODES)
    assert ports.effort <= len(NODES) * (len(wanted) + 1)


def test_thousands_of_init_containers_with_a_resource_each_are_summed_up_once() -> None:
    """A pod of another scheduler is never refused: it counts on its node.  Quadratic time would never end."""
    inits = tuple(Container(f"c{number}", requests={f"x.io/r{number}": 1}) for number in range(100_000))
    assert len(needs(Pod("grey", "grey", "grey", init_containers=inits))) == len(inits) + 1


def test_a_pod_whose_node_affinity_is_long_takes_more_of_a_pass_and_not_a_second_of_it() -> None:
    """As many terms and expressions as a pod may have, each of them compared with each of 500 nodes."""
    names_of = [f"n{number}" for number in range(500)]
    story = Story(CONFIG, [node(name, labels={"rank": "1", "zone": "a"}) for name in names_of])
    never = Requirement("rack", "Exists")
    asks = tuple(
        NodeTerm((Requirement("rank", "Gt", (f"-{number}",)), Requirement("zone", "NotIn", ("b", "c")), never))
        for number in range(1, 65)
    )
    some = [(Toleration(f"k{number}", "Exists"),) for number in range(30)]  # no two ask the same
    story.sees(*[pod(f"train{number}", tolerations=each, node_affinity=asks) for number, each in enumerate(some)])
    story.sees(late := web("late"))
    first, second = story.plan(NOW), story.plan(NOW)
    assert len(first.visited) == 1, "one of them is enough for a pass"
    assert names.workload_key(late.uid) in second.visited, "another namespace has its turn"


def unlike(gang: str) -> list[Pod]:
    """The members of a gang, each with labels and anti-affinity of its own."""
    said_of = [said(("l", "NotIn", (f"b{number}", f"{gang}{number}"))) for number in range(SIZE * MEMBER_TERMS)]
    return [
        pod(
            f"{gang}{number}",
            labels={names.PREFIX + names.GANG: gang, "l": f"{gang}{number}"},
            says={"gang-size": str(SIZE)},
            anti_affinity=tuple(said_of[number * MEMBER_TERMS : (number + 1) * MEMBER_TERMS]),
        )
        for number in range(SIZE)
    ]


def test_a_gang_that_asks_beside_another_whose_bind_waits_is_compared_with_it_over_several_passes() -> None:
    """One look at 500 pods beside 500 others took 3.8 s."""
    nodes = [node(f"n{number}") for number in range(2 * SIZE)]
    story = Story(CONFIG, nodes, checked=False)
    story.sees(*unlike("a"))
    [first] = [each for each in story.decides(NOW) if isinstance(each, AllocateNow)]
    leaving = pod("leaving", namespace="grey", node="n0", cpu=64000, deleting_at=NOW + 300, grace_s=300)
    story.sees(PodSeen(Scope.OTHERS, leaving))
    granted = tuple(GrantedNode(f"n{number}", 1, 1024) for number in range(SIZE))
    story.ended(first, at=NOW, job_id=17, grant=Grant(17, granted))
    assert not [each for each in story.decides(NOW) if isinstance(each, BindPod)], "the bind waits"
    story.sees(*unlike("b"), late := web("late"))
    affinity_index = story.world.affinity_index
    efforts: list[int] = []
    found: dict[str, tuple[int, JobSpec]] = {}
    for number in range(40):
        before = affinity_index.effort
        for each in story.decides(NOW + 1 + number / 100):
            if isinstance(each, AllocateNow | SubmitJob):
                found.setdefault(each.key, (number, each.spec))
                story.ended(each, Outcome.REFUSED, at=NOW + 1, number=2013, later=True)
        efforts.append(affinity_index.effort - before)
    passes, second = next((number, spec) for number, spec in found.values() if spec.tasks == SIZE)
    assert set(expand(second.excluded_nodes)) == {each.name for each in granted}
    assert sum(efforts[:passes]) > 100_000, (
        "sixty pods are compared with the terms of sixty others, and these with theirs"
    )
    assert max(efforts[:passes]) < 20_000, "a pass does a part"
    look = SIZE * (MEMBER_TERMS + 2) * PER_TERM
    assert max(efforts) < 20_000 + look, "what was compared is remembered"
    assert found[names.workload_key(late.uid)][0] <= 2, "another namespace has its turn"


def test_nothing_is_remembered_of_a_gang_whose_bind_waits_when_it_is_gone() -> None:
    shy = (said(("app", "In", ("train",))),)
    story = Story()
    first, second = (pod(name, labels={"app": "train"}, anti_affinity=shy) for name in ("first", "second"))
    for each, job_id in ((first, 17), (second, 18)):
        story.queues(each, job_id, at=NOW)
    story.polls({17: "RUNNING SUSPENDED", 18: "PENDING"}, at=NOW + 1)
    story.reads(job_of(first, 17, "RUNNING", "SUSPENDED"), at=NOW + 1, granted=grant(17))
    story.decides(NOW + 2)
    world, affinity_index = story.world, story.world.affinity_index
    assert affinity_index._granted_pods.keys() == {names.workload_key(first.uid)}
    assert affinity_index._by_workload.anti_affinity
    story.sees(PodDeleted(Scope.OURS, first, NOW + 3))
    assert world.phase_of.get(names.workload_key(first.uid)) is not Phase.GRANTED
    assert (affinity_index._granted_pods, affinity_index._granted_source, affinity_index._prepared) == ({}, None, {})
    assert not affinity_index._by_workload.anti_affinity
    assert not affinity_index._by_workload._counts
    assert not affinity_index._by_workload._changes


def test_what_is_remembered_of_many_terms_is_bounded_by_the_nodes_they_select() -> None:
    """Each term of a waiting pod may select a pod on each node: 800 such pods and 5,000 nodes took gigabytes."""
    story = Story(CONFIG, [node(f"n{number}") for number in range(400)])
    for number in range(400):
        story.sees(PodSeen(Scope.OTHERS, Pod(f"d{number}", "hpc", f"d{number}", node=f"n{number}")))
    index = story.world.affinity_index
    for number in range(200):
        unlike = tuple(said(("app", "NotIn", (f"{number}-{term}",))) for term in range(20))
        assert len(index.closed(pod(f"train{number}", anti_affinity=unlike), story.world.nodes or {}, OwnPods())) == 400
    assert len(index._on_nodes._counts) * 400 <= MAX_COUNTED_PLACES
    assert index._on_nodes._counts_held <= MAX_COUNTED_PLACES


def test_answers_that_name_every_node_are_forgotten_before_they_fill_the_memory() -> None:
    remembered: BoundedCache[int, frozenset[int]] = BoundedCache(most=100, most_names=1000)
    for question in range(1000):
        remembered.put(question, frozenset(range(question, question + 300)), 300)
        assert len(remembered) <= 3, "three such answers are a thousand names"
    remembered.clear()
    same = frozenset(range(300))
    assert all(remembered.put(question, frozenset(same), 300) == same for question in range(100))
    assert len(remembered) == 100, "equal answers are held once"
    remembered.put(101, same, 300)
    assert len(remembered) == 1, "and no more than so many questions"


def test_an_answer_that_is_too_large_is_not_kept_and_the_cache_is_emptied_before_it_grows_too_large() -> None:
    known: BoundedDict[str, str] = BoundedDict(640)
    assert known.keep("large", "x", 11) == "x"
    assert not known
    for number in range(64):
        known.keep(str(number), "x", 10)
    assert len(known) == 64
    known.keep("64", "x", 10)
    assert list(known) == ["64"]


def test_a_pod_of_thousands_of_amounts_takes_more_of_a_pass() -> None:
    """As many containers and kinds of resources as a pod may have: 150 such pods took a pass of 2.7 s."""
    kinds = {f"x.io/r{number}": 1 for number in range(60)}
    many = tuple(Container(f"c{number}", requests=kinds, limits={**kinds, "x.io/r0": 2}) for number in range(128))
    story = Story()
    story.sees(*[pod(f"train{number}", containers=many) for number in range(20)], late := web("late"))
    first, second = story.plan(NOW), story.plan(NOW)
    assert len(first.visited) == 1, "one of them is enough for a pass"
    assert names.workload_key(late.uid) in second.visited, "another namespace has its turn"


def test_a_pods_ports_are_looked_up_on_its_node_not_compared_with_all_that_are_held_there() -> None:
    """A gang of 1,000 pods with 128 ports each took three seconds whenever it was looked at."""
    there = NodeInfo()
    for each in range(50):
        there.put(pod(f"a{each}", host_ports=tuple(HostPort(1 + port, "TCP", f"10.0.0.{each}") for port in range(128))))
    wanted = (HostPort(7, "TCP", "10.0.0.3"), HostPort(8, "UDP"))
    assert [each.name for each in there.holding_ports(wanted)] == ["a3"]
    assert len(list(there.holding_ports((HostPort(7),)))) == 50
    there.remove("uid-a3")
    assert list(there.holding_ports(wanted)) == []
    for each in range(50):
        there.remove(f"uid-a{each}")
    assert list(there.holding_ports((HostPort(7),))) == []
