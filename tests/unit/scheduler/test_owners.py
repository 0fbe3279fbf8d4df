"""Owners belong to a namespace: a pod may name any UID as its owner's (K2, W2, S4b)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.actions import AllocateNow, Outcome, ReadOwner
from scheduler.apply import plans, pod_results
from scheduler.events import OwnerRead
from scheduler.model.kubernetes import Owner, OwnerRef, Pod
from tests.builders import CONFIG, OWNER, START, Story, pod, without

NOW = START + 20
BLUE = pod("own", namespace="hpc", owner=OWNER)
RED = pod("liar", namespace="other", owner=OWNER)
SAYS = Owner(OWNER, {"slurm-bridge/comment": "blue's own", "slurm-bridge/time-limit": "7"})


def asked(story: Story, what: Pod, at: float) -> AllocateNow:
    [found] = [each for each in story.acts(AllocateNow, at) if what.full_name in each.spec.name]
    return found


def test_what_an_owner_says_is_for_the_pods_of_its_own_namespace() -> None:
    story = Story()
    story.sees(BLUE)
    [read] = story.acts(ReadOwner, NOW)
    assert (read.namespace, read.ref) == ("hpc", OWNER)
    story.sees(OwnerRead(OWNER, SAYS, NOW, "hpc"), RED)
    acts = story.decides(NOW + 1)
    [read] = [each for each in acts if isinstance(each, ReadOwner)]
    assert (read.namespace, read.ref) == ("other", OWNER), "it is read where the pod is"
    [blue] = [each for each in acts if isinstance(each, AllocateNow)]
    assert (blue.spec.comment, blue.spec.time_limit_min) == ("blue's own", 7)
    story.ended(blue, at=NOW + 1, job_id=17)
    story.sees(OwnerRead(OWNER, None, NOW + 2, "other"))
    red = asked(story, RED, NOW + 2)
    assert (red.spec.comment, red.spec.time_limit_min) == ("", None)


def test_an_owner_that_a_pod_of_another_namespace_invented_takes_nothing_from_the_pods_of_the_real_owner() -> None:
    story = Story()
    story.sees(RED)
    [read] = story.acts(ReadOwner, NOW)
    story.sees(OwnerRead(OWNER, None, NOW, read.namespace))
    story.ended(asked(story, RED, NOW), at=NOW, job_id=17)
    story.sees(BLUE)
    [read] = story.acts(ReadOwner, NOW + 1)
    story.sees(OwnerRead(OWNER, SAYS, NOW + 1, read.namespace))
    assert asked(story, BLUE, NOW + 1).spec.time_limit_min == 7


def test_both_are_read_at_the_same_time() -> None:
    story = Story()
    story.sees(BLUE, RED)
    assert {each.namespace for each in story.acts(ReadOwner, NOW)} == {"hpc", "other"}


def test_owners_of_owners_are_read_in_the_same_namespace_too() -> None:
    story = Story()
    far = OwnerRef("apps/v1", "Deployment", "web", "uid-far")
    story.sees(BLUE, OwnerRead(OWNER, replace(SAYS, owner=far), NOW, "hpc"))
    story.sees(OwnerRead(far, Owner(far, {"slurm-bridge/qos": "high"}), NOW, "other"))
    [read] = story.acts(ReadOwner, NOW)
    assert (read.namespace, read.ref) == ("hpc", far)


def test_of_owners_that_cannot_be_read_a_limited_number_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """X7: tenants choose how many there are."""
    monkeypatch.setattr(pod_results, "MAX_FAILURES_REMEMBERED", 2)
    story = Story(without(CONFIG, reads=10))
    story.sees(*(pod(f"p{n}", owner=replace(OWNER, name=f"web{n}", uid=f"uid-{n}")) for n in range(5)))
    for read in story.acts(ReadOwner, NOW):
        story.ended(read, Outcome.UNKNOWN, at=NOW + 1)
    assert len(story.world.cannot_read) == 2


def test_an_owner_that_cannot_be_read_is_not_awaited_for_pods_that_are_gone() -> None:
    """Each such pod was visited in every later pass, although it was gone."""
    story = Story()
    story.sees(BLUE)
    [read] = story.acts(ReadOwner, NOW)
    story.loses(BLUE, NOW)
    story.decides(NOW + 1)
    story.ended(read, Outcome.UNKNOWN, at=NOW + 2)
    story.decides(NOW + 2)
    assert (story.world.workloads, story.world.dirty, story.world.waits_for_owner) == ({}, {}, {})


def test_of_owners_that_were_asked_for_a_limited_number_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MAX_OWNERS_ASKED", 1)
    story = Story()
    story.sees(BLUE, RED)
    asked_for = [read.namespace for read in story.acts(ReadOwner, NOW)]
    assert [namespace for namespace, _ in story.world.owner_asked_at] == asked_for[-1:]


@pytest.mark.parametrize(
    ("kind", "comment"),
    [("ReplicaSet", "of the Deployment"), ("CloneSet", "left over"), ("", "of the Deployment")],
    ids=["Kubernetes copied it", "another controller wrote it", "the Deployment owns the pod"],
)
def test_annotations_of_a_replica_set_do_not_count_if_its_deployment_has_others(kind: str, comment: str) -> None:
    """Kubernetes copies annotations of a Deployment to its ReplicaSets, and never takes them away there."""
    deployment = OwnerRef("apps/v1", "Deployment", "web", "uid-deployment")
    between = OwnerRef("apps/v1", kind, "web-1", "uid-between")
    says = {
        deployment: Owner(deployment, {"slurm-bridge/comment": "of the Deployment"}),
        between: Owner(between, {"slurm-bridge/comment": "left over"}, owner=deployment),
    }
    story = Story()
    what = pod("web", owner=between if kind else deployment)
    story.sees(what)
    for _ in range(2 if kind else 1):
        [read] = story.acts(ReadOwner, NOW)
        story.sees(OwnerRead(read.ref, says[read.ref], NOW, "hpc"))
        story.ended(read, at=NOW)
    assert asked(story, what, NOW).spec.comment == comment
