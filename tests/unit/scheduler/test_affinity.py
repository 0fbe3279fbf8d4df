"""Required pod (anti-)affinity on hostname: which pods may share a node (F5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, BindPod, CancelJob, Outcome, SetPodCondition, SubmitJob, UpdateJob
from scheduler.events import PodDeleted, PodSeen, Scope
from scheduler.explain import explain
from scheduler.model.kubernetes import Pod, PodPhase, PodTerm, Requirement
from scheduler.model.slurm import Grant, GrantedNode, JobSpec
from scheduler.place import affinity
from scheduler.place.affinity import AffinityIndex, GrantedPods, OwnPods
from scheduler.place.affinity_terms import FEW, TermIndex, WaitingTerms
from scheduler.place.fit import NodeInfo
from scheduler.rules import scheduling_pass
from tests import builders
from tests.builders import CLUSTER, CONFIG, START, Story, grant, job_of, key_of, pod, without
from tests.unit.scheduler.test_gangs import granted, member

NOW = START + 20


def of_app(app: str, namespace: str = "hpc") -> tuple[PodTerm, ...]:
    return (PodTerm((Requirement("app", "In", (app,)),), frozenset({namespace})),)


def app(name: str, of: str = "a", **fields: Any) -> Pod:
    return pod(name, labels={"app": of, **fields.pop("labels", {})}, **fields)


def standing(name: str, on: str, **fields: Any) -> Pod:
    return app(name, node=on, phase=PodPhase.RUNNING, **fields)


def asked(story: Story, at: float = NOW) -> JobSpec:
    [one] = [each.spec for each in story.decides(at) if isinstance(each, AllocateNow | SubmitJob)]
    return one


def closed(new: Pod, there: dict[str, list[Pod]]) -> frozenset[str]:
    standing: dict[str, NodeInfo] = {}
    index = AffinityIndex(standing)
    for name, pods in there.items():
        for each in pods:
            standing.setdefault(name, NodeInfo()).put(each)
            index.add(each, name)
    return index.closed(new, there, OwnPods())


def test_anti_affinity_closes_nodes_both_ways_and_only_to_the_pods_that_it_selects() -> None:
    there = {"x1": [standing("one", "x1")], "x2": []}
    assert closed(app("new", anti_affinity=of_app("a")), there) == {"x1"}
    assert closed(app("new", anti_affinity=of_app("b")), there) == set()
    assert closed(app("new", anti_affinity=of_app("a", "other")), there) == set()
    shy = {"x1": [standing("one", "x1", anti_affinity=of_app("a"))], "x2": []}
    assert closed(app("new"), shy) == {"x1"}
    assert closed(app("new", of="b"), shy) == set()


def test_beside_leaves_the_nodes_where_they_are_and_the_first_may_choose() -> None:
    there: dict[str, list[Pod]] = {"x1": [standing("one", "x1")], "x2": []}
    assert closed(app("new", affinity=of_app("a")), there) == {"x2"}
    empty: dict[str, list[Pod]] = {"x1": [], "x2": []}
    assert closed(app("new", affinity=of_app("a")), empty) == set()
    assert closed(app("new", affinity=of_app("b")), empty) == {"x1", "x2"}


@pytest.mark.parametrize(
    ("operator", "values", "selected"),
    [
        ("In", ("3",), {"3"}),
        ("In", ("3", *"abcdefgh"), {"3"}),
        ("NotIn", ("3",), {"7", None}),
        ("Exists", (), {"3", "7"}),
        ("DoesNotExist", (), {None}),
        ("Gt", ("5",), {"7"}),
        ("Newer", ("3",), set()),
    ],
)
def test_an_anti_affinity_closes_its_node_to_pods_by_their_label(
    operator: str, values: tuple[str, ...], selected: set[str | None]
) -> None:
    """All of these are asked of one index, which remembers answers."""
    there = {"x1": NodeInfo()}
    terms = (PodTerm((Requirement("rank", operator, values),), frozenset({"hpc"})),)
    index = index_of(there, standing("shy", "x1", anti_affinity=terms))
    for rank in ("3", "7", None):
        new = pod("new", labels={} if rank is None else {"rank": rank})
        assert index.closed(new, there, OwnPods()) == ({"x1"} if rank in selected else set())


def test_each_pod_keeps_away_from_the_nodes_of_its_own_kind() -> None:
    there = {"x1": NodeInfo(), "x2": NodeInfo()}
    index = index_of(there, *(standing(f"shy-{on}", on, anti_affinity=of_app(on)) for on in there))
    assert [index.closed(app("new", on), there, OwnPods()) for on in there] == [{"x1"}, {"x2"}]


def test_own_pods_do_not_count_and_the_pods_beside_them_do() -> None:
    there = {"x1": NodeInfo(), "x2": NodeInfo()}
    own, like, unlike = standing("own", "x1"), standing("like", "x2"), standing("unlike", "x2", of="b")
    index, new = index_of(there, own, like, unlike), app("new", anti_affinity=of_app("a"))
    assert index.closed(new, there, OwnPods()) == {"x1", "x2"}
    assert index.closed(new, there, OwnPods("ring", ((own, "x1"),))) == {"x2"}
    assert index.closed(new, there, OwnPods("ring", ((unlike, "x2"),))) == {"x1", "x2"}


def test_the_job_excludes_nodes_where_its_pod_must_not_run() -> None:
    story = Story()
    story.sees(PodSeen(Scope.OTHERS, standing("one", "x1")), app("new", anti_affinity=of_app("a")))
    assert asked(story).excluded_nodes == "x1"


def test_nothing_is_asked_for_where_no_node_is_left_and_it_says_so() -> None:
    story = Story()
    story.sees(*[PodSeen(Scope.OTHERS, standing(f"on-{node}", node)) for node in ("x1", "x2")])
    story.sees(app("new", anti_affinity=of_app("a")))
    [said] = story.acts(SetPodCondition, NOW)
    assert said.message == ("0/2 nodes can run this pod in Slurm partition main: 2 not satisfying pod (anti-)affinity.")


def test_a_waiting_job_is_updated_when_its_neighbours_change() -> None:
    story = Story()
    new = app("new", anti_affinity=of_app("a"))
    story.queues(new, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.sees(PodSeen(Scope.OTHERS, standing("one", "x2")))
    [update] = story.acts(UpdateJob, NOW + 2)
    assert update.spec.excluded_nodes == "x2"


def test_a_waiting_job_excludes_a_node_when_the_grant_of_another_pod_there_is_read() -> None:
    """That the other's job runs says nothing yet of where; the read of it does."""
    story = Story()
    first, shy = app("first"), app("shy", anti_affinity=of_app("a"))
    for each, job_id in ((first, 17), (shy, 18)):
        story.queues(each, job_id, at=NOW)
    story.polls({17: "RUNNING", 18: "PENDING"}, at=NOW + 1)
    assert story.acts(UpdateJob, NOW + 1) == []
    story.reads(job_of(first, 17, "RUNNING"), at=NOW + 1, granted=grant(17, "x2"))
    [update] = story.acts(UpdateJob, NOW + 2)
    assert (update.job_id, update.spec.excluded_nodes) == (18, "x2")


def test_an_anti_affinity_of_a_granted_pod_closes_the_node_only_to_pods_that_it_selects() -> None:
    """The answer for the first of them was remembered for the second, whatever its labels were."""
    story = Story()
    shy, other, meant = app("shy", of="c", anti_affinity=of_app("a")), app("other", of="b"), app("meant")
    story.queues(shy, 17, at=NOW)
    story.polls({17: "RUNNING SUSPENDED"}, at=NOW + 1)
    story.reads(job_of(shy, 17, "RUNNING", "SUSPENDED"), at=NOW + 1, granted=grant(17))
    closed_to = story.world.closed_to
    assert closed_to(other, story.world.own_pods("other", [other]), with_granted=True) == set()
    assert closed_to(meant, story.world.own_pods("meant", [meant]), with_granted=True) == {"x1"}


@pytest.mark.parametrize(("new", "one"), [(of_app("a"), ()), ((), of_app("a"))], ids=["the pod is shy", "the other is"])
@pytest.mark.parametrize("namespace", ["hpc", "elsewhere"])
def test_a_grant_where_another_pod_came_first_is_released(
    new: tuple[PodTerm, ...], one: tuple[PodTerm, ...], namespace: str
) -> None:
    story = Story()
    story.sees(app("new", anti_affinity=new and of_app("a", namespace)))
    [allocate] = story.acts(AllocateNow, NOW)
    there = standing("one", "x1", namespace=namespace, scheduler_name="default-scheduler", anti_affinity=one)
    story.sees(PodSeen(Scope.OTHERS, there))
    story.ended(allocate, at=NOW, job_id=17, grant=grant(17))
    [cancel] = story.acts(CancelJob, NOW)
    assert "not satisfying pod (anti-)affinity" in cancel.reason


@pytest.mark.parametrize("shy", ["both", "the first", "the second"])
def test_two_that_are_granted_one_node_at_the_same_moment_do_not_both_go_there(shy: str) -> None:
    story = Story()
    first = app("first", anti_affinity=of_app("a") if shy != "the second" else ())
    second = app("second", anti_affinity=of_app("a") if shy != "the first" else ())
    for each, job_id in ((first, 17), (second, 18)):
        story.queues(each, job_id, at=NOW)
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW + 1)
    for each, job_id in ((first, 17), (second, 18)):
        story.reads(job_of(each, job_id, "RUNNING"), at=NOW + 1, granted=grant(job_id))
    acts = story.decides(NOW + 20)
    [bind] = [each for each in acts if isinstance(each, BindPod)]
    [cancel] = [each for each in acts if isinstance(each, CancelJob)]
    assert {bind.job_id, cancel.job_id} == {17, 18}


def test_a_gang_apart_from_its_own_has_one_member_a_node() -> None:
    story = Story()
    gang = {"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": "2"}, "anti_affinity": of_app("a")}
    story.sees(app("w-0", **gang), app("w-1", **gang))
    [allocate] = story.acts(AllocateNow, NOW)
    assert (allocate.spec.tasks, allocate.spec.tasks_per_node) == (2, 1)
    nodes = tuple(GrantedNode(name, 64, 512_000) for name in ("x1", "x2"))
    story.ended(allocate, at=NOW, job_id=17, grant=Grant(17, nodes))
    assert {bind.name: bind.node for bind in story.acts(BindPod, NOW)} == {"w-0": "x1", "w-1": "x2"}


def test_a_gang_beside_its_own_asks_for_one_node() -> None:
    story = Story()
    gang = {"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": "2"}, "affinity": of_app("a")}
    story.sees(app("w-0", **gang), app("w-1", **gang))
    spec = asked(story)
    assert (spec.tasks, spec.max_nodes) == (2, 1)


def test_a_member_meets_the_affinity_of_another_at_the_bind_although_a_pod_outside_the_gang_meets_it_on_another_node() -> (
    None
):
    story = Story()
    gang = {"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": "2"}, "affinity": of_app("a")}
    story.sees(app("w-0", **gang), app("w-1", **gang))
    [allocate] = story.acts(AllocateNow, NOW)
    story.sees(PodSeen(Scope.OTHERS, standing("outside", "x2")))
    story.ended(allocate, at=NOW, job_id=17, grant=granted(17, ("x1", 2)))
    assert {bind.name: bind.node for bind in story.acts(BindPod, NOW)} == {"w-0": "x1", "w-1": "x1"}


def test_a_pod_that_leaves_opens_its_node() -> None:
    story = Story()
    one, other = standing("one", "x1"), standing("other", "x2")
    story.sees(*[PodSeen(Scope.OTHERS, each) for each in (one, other)], app("new", anti_affinity=of_app("a")))
    assert story.acts(AllocateNow, NOW) == []
    story.sees(PodSeen(Scope.OTHERS, replace(one, phase=PodPhase.SUCCEEDED)))
    assert asked(story, NOW + 1).excluded_nodes == "x2"


SHY = [
    standing("shy-x1", "x1", of="b", anti_affinity=of_app("a")),
    standing("shy-x2", "x2", of="b", anti_affinity=(*of_app("a"), *of_app("z"))),
]


@pytest.mark.parametrize("of_another", [None, "app", "tier"])
def test_a_pod_that_leaves_opens_its_node_to_the_pods_that_it_kept_away(of_another: str | None) -> None:
    """No term of the waiting pod selects the pod that left.  A pod with another anti-affinity comes at the same time."""
    story = Story()
    story.sees(*(PodSeen(Scope.OTHERS, each) for each in SHY), app("new", labels={"tier": "web"}))
    assert story.acts(AllocateNow, NOW) == []
    story.sees(PodDeleted(Scope.OTHERS, SHY[0], NOW + 1))
    if of_another is not None:
        terms = (PodTerm((Requirement(of_another, "In", ("c",)),), frozenset({"hpc"})),)
        story.sees(PodSeen(Scope.OTHERS, standing("late", "x2", of="d", anti_affinity=terms)))
    assert asked(story, NOW + 1).excluded_nodes == "x2"


def test_a_pod_is_not_visited_for_a_node_that_another_pod_keeps_closed() -> None:
    story, new = Story(), app("new")
    twin = replace(SHY[0], uid="uid-twin", name="twin")
    story.sees(*(PodSeen(Scope.OTHERS, each) for each in (*SHY, twin)), new)
    assert key_of(new) in story.plan(NOW).visited
    story.sees(PodDeleted(Scope.OTHERS, twin, NOW + 1))
    assert key_of(new) not in story.plan(NOW + 1).visited


@pytest.mark.parametrize(("apart_from", "excluded"), [("a", ""), ("b", "x1")])
def test_a_node_is_open_to_a_pod_by_the_present_labels_of_the_pods_there(apart_from: str, excluded: str) -> None:
    story = Story()
    there = standing("there", "x1", scheduler_name="default-scheduler")
    story.sees(PodSeen(Scope.OTHERS, there))
    story.runs(app("first", "c", anti_affinity=(*of_app("a"), *of_app("b"))), 17, on="x2", at=NOW)
    story.sees(PodSeen(Scope.OTHERS, replace(there, labels={"app": "b"})))
    story.sees(app("new", "c", anti_affinity=of_app(apart_from)))
    assert asked(story, NOW + 1).excluded_nodes == excluded


def test_replicas_that_keep_apart_are_asked_for_one_after_the_other() -> None:
    """Slurm packs: at once all of them would be granted the same node, and all but one released."""
    story = Story()
    story.sees(app("before", of="b"))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=16, grant=grant(16))  # the partition is known to have room
    story.ended(*story.acts(BindPod, NOW), at=NOW)
    story.sees(*(app(f"web-{number}", anti_affinity=of_app("a")) for number in range(3)))
    [first] = story.acts(AllocateNow, NOW)
    assert first.spec.excluded_nodes == ""
    story.ended(first, at=NOW, job_id=17, grant=grant(17, "x1"))
    plan = story.decides(NOW)
    assert [each.node for each in plan if isinstance(each, BindPod)] == ["x1"]
    [second] = [each for each in plan if isinstance(each, AllocateNow)]
    assert second.spec.excluded_nodes == "x1"
    story.ended(second, at=NOW, job_id=18, grant=grant(18, "x2"))
    plan = story.decides(NOW)
    assert [each.node for each in plan if isinstance(each, BindPod)] == ["x2"]
    [said] = [each for each in plan if isinstance(each, SetPodCondition)]
    assert said.condition == names.NO_NODE
    assert not any(isinstance(each, CancelJob | AllocateNow) for each in plan)


def test_a_grant_that_ends_before_a_pod_was_bound_opens_its_node() -> None:
    """No other event marks the waiting pod: no pod came to that node, and no pod left it."""
    story = Story(checked=False)
    leaving = standing("old", "x2", of="b", cpu=64000, deleting_at=NOW + 60)
    story.sees(*[PodSeen(Scope.OTHERS, each) for each in (standing("one", "x1"), leaving)])
    first = app("first", anti_affinity=of_app("a"))
    story.sees(first)
    [allocate] = story.acts(AllocateNow, NOW)
    story.ended(allocate, at=NOW, job_id=17, grant=grant(17, "x2"))
    story.sees(app("second", anti_affinity=of_app("a")))
    assert story.acts(AllocateNow, NOW) == [], "x1 is taken, and x2 is about to be"
    story.polls({17: "CANCELLED"}, at=NOW + 0.5)
    [spec] = [each.spec for each in story.decides(NOW + 0.5) if isinstance(each, AllocateNow | SubmitJob)]
    assert (spec.name.partition("~")[0], spec.excluded_nodes) == ("hpc/second", "x1")


def test_a_pod_that_an_anti_affinity_selects_is_requested_when_the_grant_of_the_other_pod_ends() -> None:
    """The pod has no terms itself, and no pod comes to the node or leaves it."""
    story = Story(nodes=(builders.node("x1"),))
    shy, meant = app("shy", anti_affinity=of_app("b")), app("meant", "b")
    story.queues(shy, 17, at=NOW)
    story.polls({17: "RUNNING SUSPENDED"}, at=NOW + 1)
    story.reads(job_of(shy, 17, "RUNNING", "SUSPENDED"), at=NOW + 1, granted=grant(17))
    story.sees(meant)
    acts = story.decides(NOW + 2)
    assert [each.condition for each in acts if isinstance(each, SetPodCondition) and each.uid == meant.uid] == [
        names.NO_NODE
    ]
    story.loses(shy, NOW + 3)
    assert asked(story, NOW + 3).name.startswith("hpc/meant~")


def test_a_pod_whose_affinity_selects_itself_is_requested_beside_the_pod_of_its_kind_that_runs() -> None:
    story = Story()
    story.sees(PodSeen(Scope.OTHERS, standing("one", "x2")), app("new", affinity=of_app("a")))
    assert asked(story).excluded_nodes == "x1"


def test_members_that_are_still_to_come_meet_the_affinity_of_a_gang() -> None:
    """Otherwise the gang would be shown nodes beside pods of its kind alone."""
    story = Story()
    gang = {"says": {"gang-size": "2"}, "affinity": of_app("a")}
    first = app("w-0", labels={names.PREFIX + names.GANG: "ring"}, **gang)
    story.sees(PodSeen(Scope.OTHERS, standing("one", "x2")), first)
    nodes = explain(story.world, story.world.key_of_pod[first.uid], NOW).nodes
    assert nodes is not None
    assert nodes.usable == ("x1", "x2")


@pytest.mark.parametrize("on", ["x9", "x2"], ids=["a node that Kubernetes does not have", "a node"])
def test_only_a_node_of_kubernetes_is_closed_by_a_grant(on: str) -> None:
    story = Story()
    first, shy = app("first"), app("shy", anti_affinity=of_app("a"))
    story.queues(first, 17, at=NOW)
    story.polls({17: "RUNNING SUSPENDED"}, at=NOW + 1)
    story.reads(job_of(first, 17, "RUNNING", "SUSPENDED"), at=NOW + 1, granted=grant(17, on))
    story.sees(shy)
    assert asked(story).excluded_nodes == ("x2" if on == "x2" else "")


def test_a_member_that_is_bound_closes_its_own_node_and_not_the_other_nodes_of_the_grant() -> None:
    story = Story()
    gang = {"says": {"gang-size": "2"}}
    bound, waits = (app(f"w-{of}", of, labels={names.PREFIX + names.GANG: "ring"}, **gang) for of in ("a", "b"))
    story.sees(bound, waits)
    [ask] = story.acts(AllocateNow, NOW)
    given = Grant(17, (GrantedNode("x1", 1, 100), GrantedNode("x2", 1, 100)))
    story.ended(ask, at=NOW, job_id=17, grant=given)
    for bind in story.acts(BindPod, NOW):
        story.ended(bind, Outcome.DONE if bind.uid == bound.uid else Outcome.REFUSED, at=NOW, number=500)
    story.sees(app("shy", anti_affinity=of_app("a")))
    on = story.world.node_of[bound.uid]
    assert asked(story, NOW + 0.1).excluded_nodes == on


def test_a_waiting_gang_is_looked_at_again_for_the_terms_of_a_member_that_came_later() -> None:
    """The new pod ranks before another member, which becomes surplus."""
    story = Story()
    gang = {"says": {"gang-size": "2"}, "labels": {names.PREFIX + names.GANG: "ring"}}
    first, last = pod("w-0", anti_affinity=of_app("a"), **gang), pod("w-2", **gang)
    story.sees(first, last)
    [ask] = story.acts(AllocateNow, NOW)
    story.ended(ask, Outcome.REFUSED, at=NOW, number=2013)
    [submit] = story.acts(SubmitJob, NOW)
    story.ended(submit, at=NOW, job_id=17)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.sees(new := pod("w-1", anti_affinity=of_app("b"), **gang))
    story.decides(NOW + 2)
    key = story.world.key_of_pod[first.uid]
    assert (key == story.world.key_of_pod[new.uid], key in story.world.dirty) == (True, False)
    story.sees(PodSeen(Scope.OTHERS, standing("one", "x2", of="b")))
    assert key in story.world.dirty


def test_a_pod_with_affinity_to_a_pod_that_waits_for_room_is_not_granted_and_released_meanwhile() -> None:
    """A place for which a pod is only planned satisfies no affinity yet: the pod may wait for long, or never come."""
    story = Story()
    leaves = Pod(
        "old", "grey", "old", node="x1", deleting_at=NOW + 3600, grace_s=3600, containers=pod(memory=511_500).containers
    )
    story.sees(PodSeen(Scope.OTHERS, leaves), db := app("db", "db", memory=600))
    [ask] = story.acts(AllocateNow, NOW)
    story.ended(ask, at=NOW, job_id=17, grant=grant(17, "x1", memory=600))
    assert not story.acts(BindPod, NOW + 1)

    story.sees(app("web", "web", affinity=of_app("db")))
    acts = story.decides(NOW + 2)
    assert not [each for each in acts if isinstance(each, AllocateNow | SubmitJob)]
    assert [
        "2 not satisfying pod (anti-)affinity" in each.message for each in acts if isinstance(each, SetPodCondition)
    ] == [True]

    story.sees(PodDeleted(Scope.OTHERS, leaves, NOW + 3))
    [bind] = story.acts(BindPod, NOW + 3)
    assert bind.uid == db.uid
    assert asked(story, NOW + 3.1).excluded_nodes == "x2"


# --- the index --------------------------------------------------------------------------------------------------------


def test_counts_that_are_dropped_because_too_many_pods_changed_are_counted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(affinity, "MAX_CHANGES", 2)
    there = {"x1": NodeInfo(), "x2": NodeInfo()}
    index = AffinityIndex(there)

    def comes(name: str, on: str) -> None:
        there[on].put(standing(name, on))
        index.add(standing(name, on), on)

    new = app("new", anti_affinity=of_app("a"))
    comes("first", "x1")
    assert index.closed(new, there, OwnPods()) == {"x1"}
    for number in range(3):
        comes(f"more-{number}", "x2")
    assert index._on_nodes._counts == {}
    assert index.closed(new, there, OwnPods()) == {"x1", "x2"}


def test_a_pod_that_comes_between_two_queries_counts_for_both() -> None:
    there = {"x1": NodeInfo(), "x2": NodeInfo()}
    index = index_of(there, standing("first", "x1"))
    assert index.closed(app("one", anti_affinity=of_app("a")), there, OwnPods()) == {"x1"}
    late = standing("late", "x2")
    there["x2"].put(late)
    index.add(late, "x2")
    assert index.closed(app("two", anti_affinity=of_app("b")), there, OwnPods()) == set()
    assert index.closed(app("one", anti_affinity=of_app("a")), there, OwnPods()) == {"x1", "x2"}


def granted_pods(key: str, on: str, *pods: Pod) -> GrantedPods:
    return GrantedPods(key, {each.uid: each for each in pods}, frozenset({on}))


def test_a_granted_pod_that_is_bound_or_changes_its_labels_closes_its_granted_nodes_no_more() -> None:
    index = AffinityIndex({})
    new = app("new", anti_affinity=of_app("a"))

    def closed_to_new(*coming: GrantedPods) -> frozenset[str]:
        index.set_granted(coming)
        return index.closed(new, ("x1", "x2"), OwnPods(), with_granted=True)

    one, two = granted_pods("one", "x1", app("one")), granted_pods("two", "x2", app("two"))
    assert closed_to_new(one, two) == {"x1", "x2"}
    assert closed_to_new(one, granted_pods("two", "x2", app("two", "b"))) == {"x1"}
    assert closed_to_new(granted_pods("two", "x2", app("two", "b"))) == set()
    assert closed_to_new(one, two) == {"x1", "x2"}
    assert closed_to_new(two) == {"x2"}
    other = app("other", "b")
    assert closed_to_new(granted_pods("two", "x2", other)) == set()
    assert closed_to_new(granted_pods("two", "x2", other, app("two"))) == {"x2"}, "a pod came"
    assert closed_to_new(granted_pods("two", "x1", other, app("two"))) == {"x1"}, "other nodes were granted"
    assert closed_to_new(granted_pods("two", "x1", other)) == set(), "a pod left"


def test_two_workloads_with_a_grant_close_their_nodes_to_each_other() -> None:
    index, (one, two) = AffinityIndex({}), (app(name, anti_affinity=of_app("a")) for name in ("one", "two"))
    index.set_granted((granted_pods("one", "x1", one), granted_pods("two", "x2", two)))
    found = [
        index.closed(each, ("x1", "x2"), OwnPods(key), with_granted=True) for key, each in (("one", one), ("two", two))
    ]
    assert found == [{"x2"}, {"x1"}]


def test_the_second_of_the_pods_that_want_each_other_goes_where_the_first_has_a_grant() -> None:
    index, new = AffinityIndex({}), app("new", affinity=of_app("a"))
    index.set_granted((granted_pods("one", "x1", app("one")),))
    assert index.closed(new, ("x1", "x2"), OwnPods(), with_granted=True) == {"x2"}
    assert index.closed(new, ("x1", "x2"), OwnPods()) == set()


def test_a_workload_with_equal_pods_is_concerned_by_a_change_until_it_waits_no_longer() -> None:
    waiting, shy = WaitingTerms(), [app(f"w-{number}", anti_affinity=of_app("a")) for number in range(3)]
    waiting.add("ring", shy[:2])
    waiting.add("ring", shy[2:])
    assert list(waiting.concerned([app("new")])) == ["ring"]
    waiting.drop("ring")
    assert list(waiting.concerned([app("new")])) == []


def test_the_terms_of_a_pod_beyond_the_limits_are_not_compared() -> None:
    waiting = WaitingTerms()
    waiting.add("vast", [app("vast", anti_affinity=of_app("a"), limit_exceeded="The pod has 900 terms.")])
    assert list(waiting.concerned([app("new")])) == []


def test_a_list_of_terms_is_held_until_its_holder_has_left_as_often_as_it_came() -> None:
    index, terms = TermIndex(), of_app("a")
    assert index.remove(terms, "x1") is None
    held = index.add(terms, "x1")
    index.add(terms, "x1")
    index.remove(terms, "x1")
    assert index.holders() == {terms: {"x1": 1}}
    assert index.selecting(app("new")) == [held]
    index.remove(terms, "x1")
    assert (bool(index), index.holders()) == (False, {})


def test_a_query_that_was_interrupted_finds_terms_that_came_meanwhile() -> None:
    index, new = TermIndex(), app("new")
    for number in range(FEW + 1):
        index.add((PodTerm((Requirement("app", "NotIn", (f"{number}",)),), frozenset({"other"})),), "x1")
    assert index.selecting_if_few(new) is None
    late = index.add(of_app("a"), "x2")
    assert index.selecting(new) == [late]


# --- what a query costs: comparisons of terms with pods ---------------------------------------------------------------


APPS = [f"a{number}" for number in range(50)]


def index_of(there: dict[str, NodeInfo], *pods: Pod) -> AffinityIndex:
    index = AffinityIndex(there)
    for each in pods:
        there[each.node].put(each)
        index.add(each, each.node)
    return index


def cost(index: AffinityIndex, new: Pod, there: dict[str, NodeInfo], *, with_granted: bool = False) -> int:
    before = index.effort
    index.closed(new, there, OwnPods(), with_granted=with_granted)
    return index.effort - before


def test_pods_without_the_label_that_a_term_requires_cost_a_quarter() -> None:
    there = {"x1": NodeInfo()}
    index = index_of(there, *(standing(f"there-{number}", "x1") for number in range(40)))
    rare = (PodTerm((Requirement("rare", "Exists"),), frozenset({"hpc"})),)
    assert cost(index, app("new", anti_affinity=rare), there) == 2 * affinity.PER_TERM + 40 // 4


def test_a_workload_that_gets_a_grant_costs_no_new_comparison_of_the_others() -> None:
    index, there = AffinityIndex({}), {"x1": NodeInfo()}
    granted = [granted_pods(of, "x1", app(of, of)) for of in APPS]
    new = app("new", anti_affinity=of_app("a"))
    index.set_granted(granted)
    assert cost(index, new, there, with_granted=True) >= len(APPS)
    index.set_granted([*granted, granted_pods("late", "x1", app("late", "late"))])
    assert cost(index, new, there, with_granted=True) == 2 * affinity.PER_TERM + 1


def test_what_was_prepared_without_granted_pods_is_prepared_again_with_them() -> None:
    there = {"x1": NodeInfo()}
    index = index_of(there, *(standing(f"there-{number}", "x1") for number in range(40)))
    index.set_granted([granted_pods(of, "x1", app(of, of)) for of in APPS])
    pods = [app(f"w-{number}", anti_affinity=(term,)) for number, term in enumerate(without_labels("elsewhere")[:2])]
    assert not index.prepare("ring", pods, 40, with_granted=False)
    while not index.prepare("ring", pods, 40, with_granted=True):
        pass
    assert cost(index, pods[0], there, with_granted=True) == 2 * affinity.PER_TERM


def test_terms_that_were_counted_cost_no_more_than_what_changed_since() -> None:
    there = {"x1": NodeInfo(), "x2": NodeInfo()}
    index = index_of(there, *(standing(f"{of}-{on}", on, labels={"app": of}) for of in APPS for on in there))
    queries = [app(f"new-{of}", anti_affinity=of_app(of)) for of in APPS[:5]]
    first, *others = (cost(index, each, there) for each in queries)
    assert first >= 2 * len(APPS), "each pod is looked at"
    assert max(others) < first - len(APPS), "terms that name the same labels share the groups of pods"
    late = standing("late", "x1", labels={"app": "b"})
    there["x1"].put(late)
    index.add(late, "x1")
    assert {cost(index, each, there) for each in queries} == {2 * affinity.PER_TERM + 1}, (
        "the pod that came, and no other"
    )


SIZE = 40


def slow_story(monkeypatch: pytest.MonkeyPatch) -> Story:
    """A pass of it makes SIZE comparisons.  Its plans are not checked: a World without memory begins each comparison anew."""
    monkeypatch.setattr(scheduling_pass, "LEAST_COMPARED", SIZE)
    return Story(without(CONFIG, pass_effort=1), checked=False)


def passes_of(story: Story, what: Pod, at: float) -> int:
    """How many passes there are until the pod is visited; that pass counts, too."""
    for number in range(1, 500):
        plan = story.plan(at)
        if key_of(what) in plan.visited:
            return number
    raise AssertionError("it is never visited")


def without_labels(namespace: str) -> tuple[PodTerm, ...]:
    """As many terms as a pod may have."""
    return tuple(PodTerm((Requirement(of, "DoesNotExist"),), frozenset({namespace})) for of in APPS[:20])


def test_a_pod_with_many_comparisons_is_visited_after_several_passes_and_no_longer_once_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = slow_story(monkeypatch)
    others = [standing(f"there-{number}", "x1", cpu=100, namespace="elsewhere") for number in range(2 * SIZE)]
    story.sees(*(PodSeen(Scope.OTHERS, each) for each in others))
    new = app("new", affinity=without_labels("elsewhere"))
    story.sees(new)
    assert passes_of(story, new, NOW) > 3, "for the first time"
    [asked] = [each for each in story.world.in_flight.values() if isinstance(each, AllocateNow)]
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    story.acts(BindPod, NOW)
    shown = story.bound(new, 17)
    story.sees(shown)
    story.sees(*(PodSeen(Scope.OTHERS, replace(each, labels={"app": each.name})) for each in others))
    story.sees(replace(shown, labels={"app": "b"}))
    assert passes_of(story, new, NOW + 1) == 1


def test_pods_with_a_grant_that_are_not_bound_yet_are_compared_with_a_pod_that_comes_and_not_for_its_bind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = slow_story(monkeypatch)
    of_gang: dict[str, Any] = {"says": {"gang-size": str(SIZE)}, "labels": {names.PREFIX + names.GANG: "ring"}}
    ring = [app(f"ring-{number}", of=str(number), cpu=100, **of_gang) for number in range(SIZE)]
    story.sees(app("shy", affinity=of_app("a")), *ring)
    ring_key = story.world.key_of_pod[ring[0].uid]
    job = replace(job_of(ring[0], 17, "RUNNING", "SUSPENDED"), name=f"hpc/ring~{CLUSTER}.{ring_key}", tasks=SIZE)
    story.polls({17: "RUNNING SUSPENDED"}, at=NOW)
    story.reads(job, at=NOW, granted=Grant(17, (GrantedNode("x1", SIZE, 100 * SIZE),)))
    new = app("new", of="b", anti_affinity=without_labels("hpc"))
    story.sees(new)
    assert passes_of(story, new, NOW + 1) > 3


@pytest.mark.parametrize("of_others", [True, False], ids=["terms of other pods", "terms of the pod"])
def test_the_first_query_of_a_pod_is_prepared_in_parts_of_the_given_size(of_others: bool) -> None:
    there = {"x1": NodeInfo()}
    size, terms = 40, [PodTerm((Requirement(of, "DoesNotExist"),), frozenset({"hpc"})) for of in APPS]
    if of_others:
        index = index_of(
            there, *(standing(of, "x1", anti_affinity=(term,)) for of, term in zip(APPS, terms, strict=True))
        )
        new = app("new")
    else:
        index = index_of(there, *(standing(f"there-{number}", "x1") for number in range(size)))
        new = app("new", affinity=tuple(terms))
    costs, is_prepared = [], False
    while not is_prepared:
        before = index.effort
        is_prepared = index.prepare("new", [new], size, with_granted=False)
        costs.append(index.effort - before)
        assert len(costs) <= len(APPS) + 1
    assert len(costs) > 1
    assert max(costs) <= 2 * size
    assert cost(index, new, there) <= affinity.PER_TERM * (1 + len(new.affinity)), "the query compares nothing more"


def test_terms_that_came_since_the_last_query_are_compared_and_no_others() -> None:
    index, new = TermIndex(), app("new")
    for of in APPS:
        index.add((PodTerm((Requirement("app", "NotIn", (of,)),), frozenset({"hpc"})),), "x1")
    index.selecting(new)
    assert index.effort == len(APPS)
    index.add((PodTerm((Requirement("app", "NotIn", ("b",)),), frozenset({"hpc"})),), "x1")
    assert len(index.selecting(new)) == len(APPS) + 1
    assert index.effort == len(APPS) + 1


def test_a_pod_that_waits_for_its_bind_counts_with_its_present_labels() -> None:
    story = Story(nodes=[builders.node("x1")])
    other = app("other")
    story.queues(other, 17, at=NOW)
    story.polls({17: "SUSPENDED"}, at=NOW + 1)
    story.reads(job_of(other, 17, "SUSPENDED"), at=NOW + 1, granted=grant(17))
    story.sees(pod("apart", anti_affinity=of_app("a")))
    assert story.acts(AllocateNow, NOW + 2) == []
    story.sees(replace(other, labels={"app": "b"}))
    assert story.acts(AllocateNow, NOW + 2)


def test_a_bound_pod_of_a_gang_keeps_other_pods_from_its_own_node_alone() -> None:
    story = Story()
    pods = [member(number, 2, labels={"app": f"{number}"}) for number in range(2)]
    story.sees(*pods)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=granted(17, ("x1", 1), ("x2", 1)))
    binds = {bind.name: bind for bind in story.acts(BindPod, NOW)}
    story.sees(pod("apart", anti_affinity=of_app("0")))
    assert story.acts(AllocateNow, NOW) == []
    story.ended(binds["w-0"], at=NOW)
    [asked] = story.acts(AllocateNow, NOW)
    assert asked.spec.excluded_nodes == binds["w-0"].node
