"""Objects that the API server lists and that cannot be decoded: they keep their last known state, and are left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import Action, AllocateNow, BindPod, CancelJob, DeletePod, FailByDeadline, ReadJob
from scheduler.events import NamespacesListed, NodesListed, ObjectUndecoded, PodsListed, Scope
from scheduler.model.kubernetes import Namespace, Pod, PodPhase, Undecoded
from tests.builders import KUBE_SYSTEM, START, Story, job_of, node, pod

NOW = START + 20
QUIET_END = START + 12
NAMELESS = Undecoded("pod", "", "", "", "nonsense")


def undecoded(what: Pod) -> Undecoded:
    return Undecoded("pod", what.namespace, what.name, what.uid, "nonsense")


def harm(acts: list[Action]) -> list[Action]:
    return [act for act in acts if isinstance(act, CancelJob | DeletePod | FailByDeadline)]


def test_a_pod_that_a_list_cannot_decode_is_not_gone_and_others_that_it_lacks_are() -> None:
    for told in (undecoded, lambda _pod: NAMELESS):
        story = Story()
        kept, gone = story.runs(pod("kept"), 17, at=NOW), story.runs(pod("gone"), 18, at=NOW)
        story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW + 1)
        nameless = told(kept) == NAMELESS  # then any pod that is missing may be that one
        story.sees(PodsListed(Scope.OURS, (), NOW + 2, (told(kept),)))
        cancelled = [act.job_id for at in range(2, 60) for act in story.acts(CancelJob, NOW + at)]
        assert (17 in cancelled, 18 in cancelled) == (False, not nameless)
        assert kept.uid in story.world.node_info["x1"].pods
        assert (gone.uid in story.world.node_info["x1"].pods) is nameless

        story.sees(PodsListed(Scope.OURS, (), NOW + 61))
        assert 17 in [act.job_id for at in range(61, 120) for act in story.acts(CancelJob, NOW + at)]


def test_nothing_is_done_to_a_pod_while_it_cannot_be_decoded_and_everything_afterwards() -> None:
    story = Story()
    waiting = pod("waiting")
    story.sees(waiting, ObjectUndecoded(undecoded(waiting), Scope.OURS))
    story.runs(pod("other"), 17, at=NOW)
    assert all(story.acts(AllocateNow, NOW + at) == [] for at in range(60))
    story.sees(waiting)
    assert [act.spec.name for act in story.acts(AllocateNow, NOW + 60)] == [job_of(waiting, 1).name]


def test_a_bound_pod_that_cannot_be_decoded_keeps_its_job_and_its_node() -> None:
    story = Story()
    train = story.runs(pod("train"), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(ObjectUndecoded(undecoded(train), Scope.OURS))
    story.polls({17: "COMPLETED"}, at=NOW + 2)
    assert all(story.decides(NOW + at) == [] for at in range(2, 60))
    story.sees(train)
    for read in story.acts(ReadJob, NOW + 60):
        story.reads(job_of(train, 17, "COMPLETED"), at=NOW + 60)
        story.ended(read, at=NOW + 60)
    assert harm(story.decides(NOW + 61)) != []


def restarted(unread: Undecoded | None, owner: str = "alice") -> tuple[Story, list[CancelJob]]:
    """A life that begins with a job of ours and no pod that would be its own."""
    story = Story()
    story.sees(PodsListed(Scope.OURS, (), START, (unread,) if unread is not None else ()))
    job = job_of(pod("lost"), 17, user=owner)
    story.polls({17: "RUNNING"}, at=START + 1)
    for read in story.acts(ReadJob, START + 1):
        story.reads(job, at=START + 1)
        story.ended(read, at=START + 1)
    return story, [act for at in range(1, 60) for act in story.acts(CancelJob, QUIET_END + at)]


def test_after_a_restart_the_job_of_a_pod_that_cannot_be_decoded_is_not_mistaken_for_a_job_without_pods() -> None:
    assert [act.job_id for act in restarted(None)[1]] == [17]
    assert restarted(NAMELESS)[1] == []
    story, cancelled = restarted(undecoded(pod("lost")))
    assert cancelled == []
    story.sees(PodsListed(Scope.OURS, (), NOW + 100))
    assert [act.job_id for act in story.acts(CancelJob, NOW + 100)] == [17]


def test_a_pod_that_cannot_be_decoded_keeps_no_job_of_another_users_alive() -> None:
    assert [act.job_id for act in restarted(undecoded(pod("odd", namespace="other")))[1]] == [17]
    assert restarted(undecoded(pod("odd")))[1] == []  # it may be of the gang whose job that is


def test_a_known_pod_that_cannot_be_decoded_keeps_no_job_without_pods_alive() -> None:
    story = Story()
    known = pod("known")
    story.sees(PodsListed(Scope.OURS, (known,), START), ObjectUndecoded(undecoded(known), Scope.OURS))
    story.polls({17: "RUNNING"}, at=START + 1)
    for read in story.acts(ReadJob, START + 1):
        story.reads(job_of(pod("lost"), 17), at=START + 1)
        story.ended(read, at=START + 1)
    assert [act.job_id for at in range(1, 9) for act in story.acts(CancelJob, QUIET_END + at)] == [17]


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_pod_that_cannot_be_decoded_keeps_no_job_alive_of_pods_that_are_known(is_gone: bool) -> None:
    """The pods of the job have ended, or they were deleted and their grace is over."""
    story = Story()
    train = story.runs(pod("train"), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(ObjectUndecoded(undecoded(pod("odd")), Scope.OURS))
    if is_gone:
        story.loses(train, NOW + 2)
    else:
        story.sees(replace(train, phase=PodPhase.SUCCEEDED))
    assert [act.job_id for act in story.acts(CancelJob, NOW + 60)] == [17]


def test_nodes_and_namespaces_that_a_list_cannot_decode_stay_as_they_were_known() -> None:
    story = Story(nodes=(node("x1", uid="n-1"), node("x2", uid="n-2")))
    story.sees(NodesListed((), START, (Undecoded("node", "", "x1", "n-1", "nonsense"),)))
    assert set(story.world.nodes or {}) == {"x1"}
    managed = Namespace("hpc", "1", {names.MANAGED_LABEL: "true"})
    story.sees(NamespacesListed((managed,), (Undecoded("namespace", "", "", "", "nonsense"),)))
    assert story.world.namespaces is not None
    assert story.world.namespaces["kube-system"] == KUBE_SYSTEM
    assert set(story.world.namespaces) == {"hpc", "other", "kube-system"}


def test_a_pod_can_still_be_bound_while_another_pod_cannot_be_decoded() -> None:
    story = Story()
    story.sees(ObjectUndecoded(undecoded(pod("odd")), Scope.OURS))
    assert story.runs(pod("train"), 17, at=NOW).node == "x1"
    assert story.acts(BindPod, NOW + 1) == []


def test_an_object_without_a_name_stays_undecoded_while_other_objects_are_decoded() -> None:
    story = Story()
    story.sees(PodsListed(Scope.OURS, (), START, (Undecoded("pod", "", "", "", "nonsense"),)))
    story.sees(pod("other"))
    story.polls({17: "RUNNING"}, at=START + 1)
    [read] = story.acts(ReadJob, START + 1)
    story.reads(job_of(pod("lost"), 17), at=START + 1)
    story.ended(read, at=START + 1)
    assert [act for at in range(1, 60) for act in story.acts(CancelJob, START + 12 + at)] == []
