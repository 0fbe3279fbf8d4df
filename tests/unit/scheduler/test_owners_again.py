"""A pod's controllers are read again while the pod waits; the pod shows which of them cannot be read (K2, Q4)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    Action,
    AllocateNow,
    BindPod,
    CancelJob,
    Outcome,
    ReadClaims,
    ReadOwner,
    SetPodCondition,
    SubmitJob,
    UpdateJob,
)
from scheduler.events import OwnerRead
from scheduler.model.kubernetes import Owner, OwnerRef, Pod
from scheduler.model.refusal import Refusal
from tests.builders import CLUSTER, START, Story, grant, job_of, pod

NOW = START + 10
JOB = OwnerRef("batch/v1", "Job", "train", "uid-job")
CRON = OwnerRef("batch/v1", "CronJob", "nightly", "uid-cron")
SETS = OwnerRef("jobset.x-k8s.io/v1alpha2", "JobSet", "train", "uid-set")


class Owners:
    """What the API server says of the owners, and what it was asked.

    failing  why it answers 500; "": it does not
    """

    def __init__(self, story: Story, **says: str) -> None:
        self.story = story
        self.says = says
        self.parent: OwnerRef | None = None
        self.failing = ""
        self.reads: list[float] = []
        self.acts: list[tuple[float, Action]] = []

    def live(self, since: float, until: float) -> None:
        """A pass a second; reads are answered, everything else is noted and succeeds."""
        at = since
        while at < until:
            for action in self.story.decides(at):
                if isinstance(action, ReadOwner):
                    self._answer(action, at)
                    continue
                self.acts.append((at, action))
                if isinstance(action, AllocateNow):
                    self.story.ended(action, at=at, job_id=17, grant=grant(17))
                elif isinstance(action, ReadClaims):
                    self.story.ended(action, Outcome.UNKNOWN, at=at, refusal=Refusal(names.REFUSED, "Kubernetes: 500."))
                else:
                    self.story.ended(action, at=at)
            jobs = self.story.world.placeholders.values()
            self.story.polls({job.id: " ".join(job.states) for job in jobs}, at=at + 0.5)
            at += 1

    def _answer(self, action: ReadOwner, at: float) -> None:
        self.reads.append(at)
        if self.failing:
            self.story.ended(action, Outcome.UNKNOWN, at=at, refusal=Refusal(names.REFUSED, self.failing))
            return
        says = {names.PREFIX + key.replace("_", "-"): value for key, value in self.says.items()}
        parent = self.parent if action.ref == JOB else None
        self.story.sees(OwnerRead(action.ref, Owner(action.ref, says if parent is None else {}, parent), at, "hpc"))
        self.story.ended(action, at=at)

    def of(self, kind: type[Action]) -> list[tuple[float, Action]]:
        return [(at, each) for at, each in self.acts if isinstance(each, kind)]

    def said(self) -> list[str]:
        return [each.message for _, each in self.acts if isinstance(each, SetPodCondition)]


# --- what its user corrects -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parent", [None, CRON], ids=["its Job", "the CronJob above"])
def test_an_owners_corrected_annotation_is_read_again_and_the_pod_is_asked_for(parent: OwnerRef | None) -> None:
    story = Story()
    owners = Owners(story, partition="mian")
    owners.parent = parent
    story.sees(pod("a", owner=JOB))
    owners.live(NOW, NOW + 300)
    assert owners.of(AllocateNow) == []
    assert 'partition "mian"' in owners.said()[0]
    owners.says = {"partition": "main"}
    owners.live(NOW + 300, NOW + 400)
    assert len(owners.of(BindPod)) == 1


def test_a_refused_job_is_submitted_again_as_soon_as_the_correction_is_read() -> None:
    """Not only after the five minutes after which everything that was refused is tried again."""
    story = Story()
    owners = Owners(story, account="teama")
    story.sees(pod("a", owner=JOB))
    at = NOW
    [read] = story.decides(at)
    assert isinstance(read, ReadOwner)
    owners._answer(read, at)
    [asked] = story.acts(AllocateNow, at)
    story.ended(asked, Outcome.REFUSED, at=at, number=2045)
    owners.says = {"account": "teama-dev"}
    owners.live(at + 1, at + 90)
    [(_, again)] = owners.of(AllocateNow)
    assert isinstance(again, AllocateNow)
    assert again.spec.account == "teama-dev"


def test_an_owner_that_is_read_again_unchanged_makes_no_refused_job_be_submitted_again() -> None:
    story = Story()
    owners = Owners(story, account="teama")
    story.sees(pod("a", owner=JOB))
    [read] = story.decides(NOW)
    assert isinstance(read, ReadOwner)
    owners._answer(read, NOW)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2045)
    owners.live(NOW + 1, NOW + 90)
    assert owners.reads == [NOW, NOW + 60]
    assert not owners.of(AllocateNow)


def test_of_a_long_chain_of_owners_the_nearest_eight_are_read_and_read_again() -> None:
    story = Story()
    refs = [OwnerRef("example.com/v1", "Level", f"level-{level}", f"uid-{level}") for level in range(10)]
    chain = dict(pairwise(refs))
    story.sees(pod("a", owner=refs[0], says={"partition": "mian"}))
    read: list[OwnerRef] = []
    for second in range(100):
        for action in story.decides(NOW + second):
            if isinstance(action, ReadOwner):
                read.append(action.ref)
                story.sees(OwnerRead(action.ref, Owner(action.ref, {}, chain[action.ref]), NOW + second, "hpc"))
            story.ended(action, at=NOW + second)
    assert read == refs[:8] * 2


def test_while_a_job_waits_in_slurms_queue_its_owners_edit_changes_it_in_place() -> None:
    story = Story()
    owners = Owners(story, comment="old")
    train = pod("a", owner=JOB)
    story.sees(train, OwnerRead(JOB, Owner(JOB, {names.PREFIX + "comment": "old"}), NOW, "hpc"))
    submitted = story.queues(train, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 0.5)
    owners.says = {"comment": "new"}
    for second in range(1, 200):  # its details are read in turn
        owners.live(NOW + second, NOW + second + 1)
        story.reads(job_of(train, 17, "PENDING", reason="Resources", comment="old"), at=NOW + second)
    [(_, update)] = owners.of(UpdateJob)
    assert isinstance(update, UpdateJob)
    assert (update.changes, update.spec.comment) == ({"comment"}, "new")
    assert submitted.spec.comment == "old"


def test_a_pod_that_comes_long_after_its_owner_was_read_is_asked_for_as_its_owner_says_now() -> None:
    story = Story()
    owners = Owners(story, comment="new")
    story.sees(OwnerRead(JOB, Owner(JOB, {names.PREFIX + "comment": "old"}), NOW, "hpc"))
    story.polls({}, at=NOW + 3600)
    story.sees(pod("a", owner=JOB, created=NOW + 3600))
    owners.live(NOW + 3600, NOW + 3610)
    [(_, asked)] = owners.of(AllocateNow)
    assert isinstance(asked, AllocateNow)
    assert asked.spec.comment == "new"
    assert len(owners.reads) == 1


@pytest.mark.parametrize(("later_s", "reads"), [(300, 0), (301, 1)])
def test_the_owner_of_a_gang_is_read_again_if_its_last_pod_came_long_after_the_read(later_s: float, reads: int) -> None:
    story = Story()
    of_gang: dict[str, Any] = {"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": "2"}}
    story.sees(pod("ring-0", owner=JOB, **of_gang), OwnerRead(JOB, Owner(JOB), NOW, "hpc"))
    story.polls({}, at=NOW + later_s)
    story.sees(pod("ring-1", owner=JOB, **of_gang))
    assert len(story.acts(ReadOwner, NOW + later_s)) == reads


def test_pods_that_come_soon_after_one_another_read_their_owner_once() -> None:
    story = Story()
    owners = Owners(story)
    for number in range(5):
        story.sees(pod(f"p{number}", owner=JOB))
        owners.live(NOW + 20 * number, NOW + 20 * number + 20)
    assert len(owners.reads) == 1


def test_however_many_pods_are_refused_their_owners_cost_a_few_reads_a_second() -> None:
    story = Story(checked=False)
    owners = Owners(story, partition="mian")
    for number in range(400):
        ref = OwnerRef("batch/v1", "Job", f"j{number}", f"uid-j{number}")
        story.sees(pod(f"p{number}", owner=ref))
    owners.live(NOW, NOW + 60)
    first = len(owners.reads)
    owners.live(NOW + 60, NOW + 160)
    assert first == 400
    assert 200 < len(owners.reads) - first <= 4 * 100 + 4


# --- what cannot be read ----------------------------------------------------------------------------------------------


def waits_for(story: Story, what: Pod) -> Owners:
    owners = Owners(story)
    owners.failing = "Kubernetes: read JobSet: conversion webhook failed (error 500)"
    story.sees(what)
    return owners


def test_an_owner_that_answers_500_is_reported_on_the_pod_and_read_again_until_it_can_be() -> None:
    story = Story()
    owners = waits_for(story, pod("a", owner=SETS))
    owners.live(NOW, NOW + 600)
    assert owners.said() == [
        "JobSet train of this pod cannot be read, and is tried again: Kubernetes: read JobSet: conversion webhook failed "
        "(error 500)."
    ]
    assert [each.warning for _, each in owners.of(SetPodCondition) if isinstance(each, SetPodCondition)] == [True]
    owners.failing = ""
    owners.live(NOW + 600, NOW + 700)
    assert len(owners.of(BindPod)) == 1


def test_a_gang_whose_size_only_such_an_owner_shows_says_so_too() -> None:
    story = Story()
    owners = waits_for(story, pod("a", owner=SETS, labels={"jobset.sigs.k8s.io/jobset-name": "train"}))
    owners.live(NOW, NOW + 60)
    assert owners.said()[0].startswith("JobSet train of this pod cannot be read")


def test_an_owner_that_could_not_be_read_once_is_not_worth_a_word() -> None:
    story = Story()
    owners = waits_for(story, pod("a", owner=SETS))
    owners.live(NOW, NOW + 1)
    owners.failing = ""
    owners.live(NOW + 1, NOW + 10)
    assert owners.said() == []
    assert len(owners.of(BindPod)) == 1


def test_volume_claims_that_cannot_be_read_are_reported_too() -> None:
    story = Story()
    owners = Owners(story)
    story.sees(pod("a", claims=("data",)))
    owners.live(NOW, NOW + 60)
    assert owners.said() == ["A volume claim of this pod cannot be read, and is tried again: Kubernetes: 500."]
    assert owners.of(SubmitJob) == owners.of(AllocateNow) == []


def test_after_a_restart_an_owner_that_cannot_be_read_is_not_asked_for_all_the_time() -> None:
    """The API server went away just after a restart of the bridge: each attempt fails at once."""
    story = Story()
    waiting = pod("train", owner=JOB)
    story.sees(waiting)
    story.polls({17: "PENDING"}, at=NOW)
    story.reads(job_of(waiting, 17, "PENDING"), at=NOW)
    reads = 0
    for tick in range(200):
        at = NOW + 1 + tick // 10
        for action in story.decides(at):
            reads += isinstance(action, ReadOwner)
            story.ended(action, Outcome.UNREACHED, at=at)
    assert 2 <= reads <= 5, "in twenty seconds"


def test_after_a_restart_the_owners_of_queued_pods_are_read_before_their_jobs_are_changed() -> None:
    """What an owner says of the partition decides which nodes a job may have."""
    story = Story()
    train = pod("a", owner=JOB)
    story.sees(train)
    story.polls({17: "PENDING"}, at=START + 1)
    story.reads(job_of(train, 17, "PENDING", reason="Resources", excluded_nodes="x2"), at=START + 1)
    acts = story.decides(START + 13)
    assert [each.ref for each in acts if isinstance(each, ReadOwner)] == [JOB]
    assert not [each for each in acts if isinstance(each, UpdateJob)]
    for action in acts:
        story.ended(action, Outcome.UNKNOWN if isinstance(action, ReadOwner) else Outcome.DONE, at=START + 13)
    assert not [each for each in story.decides(START + 14) if isinstance(each, ReadOwner | UpdateJob)]
    story.reads(job_of(train, 17, "PENDING", reason="Resources", excluded_nodes="x2"), at=START + 30)
    [read] = story.acts(ReadOwner, START + 30)
    story.sees(OwnerRead(JOB, Owner(JOB), START + 30, "hpc"))
    story.ended(read, at=START + 30)
    [update] = story.acts(UpdateJob, START + 31)
    assert update.changes == {"excluded_nodes"}


@pytest.mark.parametrize("unread", [0, 1])
def test_a_queued_gangs_job_is_not_changed_while_an_owner_of_one_of_its_pods_cannot_be_read(unread: int) -> None:
    story = Story()
    refs = [OwnerRef("batch/v1", "Job", f"j{number}", f"uid-j{number}") for number in range(2)]
    of_gang: dict[str, Any] = {"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": "2"}}
    gang = [pod(f"ring-{number}", owner=ref, created=START - 60, **of_gang) for number, ref in enumerate(refs)]
    story.sees(*gang, OwnerRead(refs[1 - unread], Owner(refs[1 - unread]), NOW, "hpc"))
    [key] = story.world.workloads
    job = replace(job_of(gang[0], 17, "PENDING"), name=names.job_name("hpc/ring", CLUSTER, key), tasks=2)
    job = replace(job, reason="Resources", excluded_nodes="x2")
    story.polls({17: "PENDING"}, at=NOW)
    story.reads(job, at=NOW)
    for second in range(20):
        acts = story.decides(NOW + second)
        assert not [each for each in acts if isinstance(each, UpdateJob)]
        for action in acts:
            story.ended(action, Outcome.UNREACHED if isinstance(action, ReadOwner) else Outcome.DONE, at=NOW + second)
    story.sees(OwnerRead(refs[unread], Owner(refs[unread]), NOW + 20, "hpc"))
    story.reads(job, at=NOW + 20)
    [update] = story.acts(UpdateJob, NOW + 21)
    assert update.changes == {"excluded_nodes"}


def test_owners_of_queued_pods_are_read_again_at_a_few_a_second_and_no_pod_waits_for_that() -> None:
    story = Story()
    waiting = []
    for number in range(20):
        ref = OwnerRef("batch/v1", "Job", f"j{number}", f"uid-j{number}")
        waiting.append(pod(f"p{number}", owner=ref))
        story.sees(waiting[-1], OwnerRead(ref, Owner(ref), NOW, "hpc"))
        story.queues(waiting[-1], 100 + number, at=NOW)
    late = NOW + 100
    story.polls(dict.fromkeys(range(100, 120), "PENDING"), at=late)
    for number, each in enumerate(waiting):
        story.reads(job_of(each, 100 + number, "PENDING", reason="Resources"), at=late)
    plan = story.plan(late)
    assert 0 < len([each for each in plan.actions if isinstance(each, ReadOwner)]) <= 4
    assert "owners" not in plan.parked


def test_a_stale_owner_that_could_not_be_read_is_read_again_after_a_wait() -> None:
    story = Story()
    story.sees(OwnerRead(JOB, Owner(JOB), NOW, "hpc"))
    story.polls({}, at=NOW + 3600)
    story.sees(pod("a", owner=JOB, created=NOW + 3600))
    [read] = story.acts(ReadOwner, NOW + 3600)
    story.ended(read, Outcome.UNREACHED, at=NOW + 3600)
    assert story.decides(NOW + 3600) == []
    assert story.acts(ReadOwner, NOW + 3610)


def test_an_annotation_that_was_removed_from_a_deployment_no_longer_counts() -> None:
    """Kubernetes leaves a copy of it on the ReplicaSet, from before."""
    story = Story()
    copies, deployment = OwnerRef("apps/v1", "ReplicaSet", "web-1", "rs"), OwnerRef("apps/v1", "Deployment", "web", "d")
    says = {names.PREFIX + names.PARTITION: "gpu"}
    story.sees(pod("web-1-x", owner=copies))
    story.sees(OwnerRead(copies, Owner(copies, says, deployment), NOW, "hpc"))
    story.sees(OwnerRead(deployment, Owner(deployment), NOW, "hpc"))
    [asked] = story.acts(AllocateNow, NOW)
    assert asked.spec.partition == ""


def test_the_job_of_a_waiting_gang_stays_as_it_is_after_its_owner_is_gone_or_may_not_be_read_any_more() -> None:
    """Rights are taken from the bridge for a while, or the owner is deleted without its pods."""
    gang = [pod(f"w-{number}", owner=JOB, labels={names.PREFIX + "gang": "job"}) for number in range(2)]
    story = Story()
    says = {names.PREFIX + names.PARTITION: "gpu"}
    story.sees(OwnerRead(JOB, Owner(JOB, says, members=2), NOW, "hpc"), *gang)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2013)
    [asked_again] = story.acts(SubmitJob, NOW)
    story.ended(asked_again, at=NOW, job_id=17)
    waiting = replace(job_of(gang[0], 17, "PENDING", reason="Priority"), name=asked.spec.name)
    for at in (NOW + 1 + second for second in range(120)):
        story.polls({17: "PENDING"}, at=at)
        story.reads(waiting, at=at)
        if at == NOW + 80:  # which counts the gang again
            story.sees(replace(gang[0], labels={**gang[0].labels, "team": "a"}))
        for action in story.decides(at):
            assert not isinstance(action, UpdateJob | CancelJob)
            if isinstance(action, ReadOwner):
                story.sees(OwnerRead(JOB, None, at, "hpc"))
            story.ended(action, at=at)


def test_an_owner_that_could_not_be_read_for_lack_of_rights_counts_for_pods_that_come_after_the_rights() -> None:
    story = Story()
    story.sees(pod("a", owner=JOB), OwnerRead(JOB, None, NOW, "hpc"))
    [asked] = story.acts(AllocateNow, NOW)
    assert asked.spec.partition == ""
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    late = NOW + 400
    story.polls({17: "RUNNING"}, at=late)
    story.sees(pod("b", owner=JOB, created=late))
    [read] = story.acts(ReadOwner, late)
    story.sees(OwnerRead(JOB, Owner(JOB, {names.PREFIX + names.PARTITION: "gpu"}), late, "hpc"))
    story.ended(read, at=late)
    [asked] = story.acts(AllocateNow, late)
    assert asked.spec.partition == "gpu"
