"""Whatever a tenant can make large is limited: a pod beyond a limit shows that, and costs no other pod anything (X7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, CancelJob, FailByDeadline, ReadClaims, SetPodCondition, SubmitJob
from scheduler.apply import pod_references
from scheduler.events import OwnerRead, PodSeen, Scope
from scheduler.model.cache import BoundedCache
from scheduler.model.kubernetes import (
    ALL_PORTS,
    Container,
    HostPort,
    NodeTerm,
    Owner,
    OwnerRef,
    Pod,
    PodTerm,
    Requirement,
    Toleration,
)
from scheduler.place import fit
from scheduler.place.affinity_terms import MAX_DEAD, MAX_SAID, TermIndex
from scheduler.place.fit import NodeInfo, needs
from scheduler.translate.pod_limits import MAX_SHAPES
from tests.builders import START, Story, job_of, node, pod

NOW = START + 20
HPC = frozenset({"hpc"})
TOO_MANY_SHAPES = (
    f"The pods of hpc/ring request more than {MAX_SHAPES} different combinations of nodes and resources. Let more pods "
    "request the same."
)


def values(count: int) -> tuple[str, ...]:
    return tuple(f"v{number}" for number in range(count))


def pod_terms(count: int, expressions: int = 1, each: int = 1) -> tuple[PodTerm, ...]:
    requirement = Requirement("app", "In", values(each))
    return tuple(PodTerm((requirement,) * expressions, HPC) for _ in range(count))


def node_terms(count: int, expressions: int = 1, each: int = 1) -> tuple[NodeTerm, ...]:
    return (NodeTerm((Requirement("zone", "NotIn", values(each)),) * expressions),) * count


BEYOND: dict[str, dict[str, Any]] = {
    "129 containers": {"containers": tuple(Container(f"c{number}") for number in range(129))},
    "65 kinds of resources": {"containers": (Container("main", {f"site/{number}": 1 for number in range(65)}),)},
    "1,280 requests and limits of resources": {
        "containers": tuple(Container(f"c{number}", dict.fromkeys(values(20), 1)) for number in range(64))
    },
    "129 tolerations": {"tolerations": (Toleration(operator="Exists"),) * 129},
    "65 labels in its node selector": {"node_selector": dict.fromkeys(values(65), "x")},
    "129 host ports": {"host_ports": tuple(HostPort(1000 + number) for number in range(129))},
    "65 volume claims": {"claims": values(65)},
    "65 terms of required node affinity": {"node_affinity": node_terms(65)},
    "257 expressions of required node affinity": {"node_affinity": node_terms(1, 257)},
    "1,025 values in its required node affinity": {"node_affinity": node_terms(1, 1, 1025)},
    "21 terms of required pod affinity and anti-affinity": {"anti_affinity": pod_terms(11), "affinity": pod_terms(10)},
    "65 expressions of required pod affinity and anti-affinity": {"anti_affinity": pod_terms(1, 65)},
    "513 values in its required pod affinity and anti-affinity": {"affinity": pod_terms(1, 1, 513)},
    "513 namespaces in its required pod affinity and anti-affinity": {
        "anti_affinity": (PodTerm((), frozenset(values(257))),) * 2,
    },
}


@pytest.mark.parametrize("said", BEYOND)
def test_a_pod_beyond_a_limit_shows_what_exceeds_which_limit(said: str) -> None:
    story, number = Story(), int(said.split()[0].replace(",", ""))
    story.sees(pod(**BEYOND[said]))
    if said.startswith("513 namespaces"):
        said, number = said.replace("513", "514"), 514
    acts = story.decides(NOW)
    [report] = acts
    assert isinstance(report, SetPodCondition), "nothing is asked of Slurm, nor read"
    assert report.condition == names.REFUSED
    limit = {514: 512, 1280: 1024}.get(number, number - 1)
    assert report.message == f"The pod has {said}, and slurm-bridge takes at most {limit:,}."


WITHIN: dict[str, dict[str, Any]] = {
    "containers": {"containers": tuple(Container(f"c{number}") for number in range(128))},
    "tolerations": {"tolerations": (Toleration(operator="Exists"),) * 128},
    "node affinity": {"node_affinity": node_terms(64, 4, 4)},
    "pod affinity": {"anti_affinity": pod_terms(20, 3, 8)},
    "host ports": {"host_ports": tuple(HostPort(1000 + number) for number in range(128))},
}


@pytest.mark.parametrize("within", WITHIN.values(), ids=WITHIN)
def test_a_pod_at_the_limit_is_submitted(within: dict[str, Any]) -> None:
    story = Story()
    story.sees(pod(**within))
    assert story.acts(AllocateNow, NOW)


def test_volumes_are_read_of_pods_that_may_have_that_many() -> None:
    story = Story()
    story.sees(pod(claims=values(64)))
    assert story.acts(ReadClaims, NOW)


def test_a_gang_whose_members_all_want_other_nodes_is_refused_before_each_node_was_judged_for_each() -> None:
    story, gang = Story(), {names.PREFIX + "gang": "ring"}
    for number in range(1000):
        story.sees(pod(f"w{number}", labels=gang, says={"gang-size": "1000"}, node_selector={"rack": str(number)}))
    said = {report.message for report in story.acts(SetPodCondition, NOW)}
    assert len(story.world.feasibility) <= MAX_SHAPES + 1
    assert all("0/2 nodes can run this pod" in message for message in said), "its first member has no node at all"
    story = Story()
    for number in range(1000):
        away = (NodeTerm((Requirement("rack", "NotIn", (str(number),)),)),)
        story.sees(pod(f"w{number}", labels=gang, says={"gang-size": "1000"}, node_affinity=away))
    said = {report.message for report in story.acts(SetPodCondition, NOW)}
    assert said == {TOO_MANY_SHAPES}
    assert len(story.world.feasibility) <= MAX_SHAPES + 1


def test_a_gang_whose_members_want_as_many_different_nodes_as_are_judged_is_submitted() -> None:
    story = Story()
    for number in range(MAX_SHAPES):
        away = (NodeTerm((Requirement("rack", "NotIn", (str(number),)),)),)
        says = {"gang-size": str(MAX_SHAPES)}
        story.sees(pod(f"w{number}", cpu=100, labels={names.PREFIX + "gang": "ring"}, says=says, node_affinity=away))
    assert story.acts(AllocateNow, NOW)


def gang_that_differs_in_memory(size: int) -> Story:
    """Kubernetes sees equal pods: only their annotation differs."""
    story = Story(nodes=[node(f"x{number}") for number in range(size)])
    for number in range(size):
        says = {"gang-size": str(size), "memory": f"{1000 + number}M"}
        story.sees(pod(f"w{number}", labels={names.PREFIX + "gang": "ring"}, says=says))
    return story


def test_a_gang_whose_annotations_make_too_many_components_is_refused() -> None:
    [submit] = gang_that_differs_in_memory(MAX_SHAPES).acts(SubmitJob, NOW)
    assert len((submit.spec, *submit.spec.parts)) == MAX_SHAPES
    story = gang_that_differs_in_memory(MAX_SHAPES + 1)
    assert {report.message for report in story.acts(SetPodCondition, NOW)} == {TOO_MANY_SHAPES}
    assert not story.world.placeholders


@pytest.mark.parametrize(("demands", "more"), [(3, ""), (4, " and 1 more"), (1000, " and 997 more")])
def test_many_unsupported_demands_are_not_all_recited(demands: int, more: str) -> None:
    story = Story()
    story.sees(pod(refused_fields=tuple(f"demand {number}" for number in range(demands))))
    [report] = story.acts(SetPodCondition, NOW)
    assert report.message == (
        f"Not supported yet: demand 0, demand 1, demand 2{more}. Remove them from the pod, or use another scheduler."
    )


def test_a_pod_of_which_only_a_part_was_kept_is_refused_in_the_words_that_were_kept() -> None:
    story = Story()
    story.sees(pod(limit_exceeded="The pod has 4,000 tolerations, and slurm-bridge takes at most 128."))
    [report] = story.decides(NOW)
    assert isinstance(report, SetPodCondition)
    assert (report.condition, report.message[:28]) == (names.REFUSED, "The pod has 4,000 toleration")


def test_where_a_pod_holds_more_ports_than_are_kept_no_other_pod_gets_one() -> None:
    grey = Pod("grey", "grey", "grey", node="x1", host_ports=(HostPort(80), ALL_PORTS))
    story = Story()
    story.sees(PodSeen(Scope.OTHERS, grey), web := pod("web", host_ports=(HostPort(8080),)))
    [asked] = story.acts(AllocateNow, NOW)
    assert asked.spec.excluded_nodes == "x1"
    there = NodeInfo()
    there.put(grey)
    assert list(there.holding_ports(web.host_ports)) == [grey]


def test_a_bound_pod_of_which_only_a_part_is_kept_ends_with_its_job() -> None:
    story = Story()
    there = story.runs(pod(), 17, at=NOW)
    # A user may add tolerations.
    story.sees(replace(there, tolerations=(), limit_exceeded="The pod has 4,000 tolerations."))
    story.polls({17: "RUNNING"}, at=NOW + 1)
    assert not [each for each in story.decides(NOW + 1) if isinstance(each, FailByDeadline | CancelJob)]
    story.polls({}, at=NOW + 2)
    story.reads(job_of(there, 17, "CANCELLED"), at=NOW + 2)
    assert story.acts(FailByDeadline, NOW + 2)


def test_what_is_remembered_of_pods_that_are_gone_is_bounded_by_its_size() -> None:
    """Each question holds what a pod says; a pod within the limits may say a thousand values."""
    known: BoundedCache[str, str] = BoundedCache(most=100, most_names=1000)
    for number in range(50):
        known.put(str(number), "nowhere", 0, 300)
        assert len(known) <= 3
    for number in range(50):
        known.put(str(number), "nowhere", 0)
    assert len(known) >= 50


def test_terms_of_pods_that_are_gone_count_by_their_size() -> None:
    index = TermIndex()
    for number in range(3 * MAX_DEAD // 128):
        said = (PodTerm((Requirement("app", "In", tuple(f"{number}-{each}" for each in range(1024))),), HPC),)
        index.add(said, "x1")
        index.remove(said, "x1")
        assert sum(map(len, index._named.values())) <= 1024 * (MAX_DEAD // 128 + 2)


def test_kinds_of_pods_are_remembered_by_the_labels_that_they_have() -> None:
    index = TermIndex()
    keys = [f"k{number}" for number in range(128)]
    index.add(tuple(PodTerm((Requirement(key, "Gt", ("1",)),), HPC) for key in keys), "x1")
    for number in range(2 * MAX_SAID // len(keys)):
        index.compare(pod("web", labels=dict.fromkeys(keys, str(number))), 1)
        assert sum(len(kind[1]) for kind in index._known) <= MAX_SAID
    assert len(index._known) > MAX_SAID // len(keys) - 2
    assert index._said == sum(len(kind[1]) for kind in index._known)


def test_what_pods_ask_for_is_remembered_by_how_much_it_is() -> None:
    for number in range(300):
        amounts = {f"site/{number}-{each}": 1 for each in range(1000)}
        assert len(needs(pod(containers=(Container("main", amounts),)))) == 1001
        assert sum(len(amounts) for _, amounts in fit._needs.values()) <= fit.MAX_AMOUNTS_REMEMBERED


def test_the_schedulers_of_pods_that_are_gone_are_forgotten() -> None:
    for number in range(500):
        names.cluster_id("uid", f"other-{number}")
    assert names.cluster_id.cache_info().currsize <= 64


def test_owners_that_say_much_are_fewer_to_be_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_references, "MAX_OWNERS_REMEMBERED", 100)
    story = Story()
    long = {names.PREFIX + key: "x" * 1000 for key in sorted(names.JOB_OPTIONS)[:20]}  # five of usual size
    for said, most in ((long, 20), ({}, 100)):
        for number in range(300):
            ref = OwnerRef("apps/v1", "ReplicaSet", f"web{number}", f"uid-{number}")
            story.sees(OwnerRead(ref, Owner(ref, annotations=said), NOW, "hpc"))
        assert len(story.world.owners) <= most
        assert story.world.owners_weight == sum(story.world.owner_sizes.values()) <= 100
        assert story.world.owners.keys() == story.world.owner_sizes.keys()
    assert len(story.world.owners) == 100
