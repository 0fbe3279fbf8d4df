"""Which pods are one gang, by their labels and annotations alone (K3, W1–W5)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, ReadOwner
from scheduler.events import OwnerRead
from scheduler.model.kubernetes import Owner, OwnerRef, Pod
from scheduler.model.refusal import Refusal
from scheduler.translate.grouping import MAX_SIZE, POD_GROUP, Group, group_of, natural, rank_of
from tests.builders import OWNER, START, Story, pod

OWN = "slurm-bridge/"
JOB = OwnerRef("batch/v1", "Job", "train", "uid-job")
LWS = "leaderworkerset.sigs.k8s.io/"
JOBSET = "jobset.sigs.k8s.io/"
KUEUE = "kueue.x-k8s.io/"
KUEUE_INDEX = KUEUE + "pod-group-pod-index"


def group(**shows: Any) -> Group:
    found = group_of(pod(**shows))
    assert isinstance(found, Group)
    return found


def said(**shows: Any) -> str:
    found = group_of(pod(**shows))
    assert isinstance(found, Refusal)
    return found.message


def test_a_pod_without_a_group_is_a_workload_by_itself() -> None:
    assert group_of(pod()) is None
    assert group_of(pod(owner=JOB)) is None  # a batch Job's pods are one workload each (W3)


@pytest.mark.parametrize(
    ("shows", "kind", "name", "size"),
    [
        ({"labels": {OWN + "gang": "ring"}, "says": {"gang-size": "8"}}, "gang", "ring", 8),
        ({"labels": {OWN + "gang": "ring"}}, "gang", "ring", None),
        ({"owner": JOB, "says": {"gang-size": "4"}}, "batch Job", "train", 4),
        ({"owner": JOB, "labels": {OWN + "gang": "job"}}, "batch Job", "train", None),
        (
            {"labels": {LWS + "group-key": "5f3a", LWS + "name": "serve"}, "annotations": {LWS + "size": "3"}},
            "LeaderWorkerSet",
            "serve",
            3,
        ),
        ({"labels": {JOBSET + "jobset-name": "set"}}, "JobSet", "set", None),
        (
            {"labels": {KUEUE + "pod-group-name": "q"}, "annotations": {KUEUE + "pod-group-total-count": "5"}},
            "Kueue pod group",
            "q",
            5,
        ),
        ({"labels": {"scheduling.x-k8s.io/pod-group": "pg"}}, "PodGroup", "pg", None),
        ({"pod_group": "pg"}, "PodGroup", "pg", None),
        (
            {"labels": {JOBSET + "jobset-name": "set"}, "owner": JOB, "annotations": {OWN + "gang-size": "6"}},
            "JobSet",
            "set",
            6,
        ),
    ],
)
def test_a_group_is_what_its_pods_show(shows: dict[str, Any], kind: str, name: str, size: int | None) -> None:
    found = group(**shows)
    assert (found.kind, found.name, found.size) == (kind, name, size)


def test_the_same_name_elsewhere_is_another_gang() -> None:
    labels = {OWN + "gang": "ring"}
    assert group(labels=labels).identity != group(labels=labels, namespace="other").identity
    assert group(labels=labels).identity == group(name="another", labels=labels, owner=OWNER).identity


def test_a_batch_job_of_the_same_name_made_again_is_another_gang() -> None:
    again = OwnerRef("batch/v1", "Job", "train", "uid-again")
    labels = {OWN + "gang": "job"}
    assert group(owner=JOB, labels=labels).identity != group(owner=again, labels=labels).identity


@pytest.mark.parametrize("size", ["", "0", "-1", "eight", "1e3", "10001", "٣", "9" * 400])
def test_a_size_that_is_no_number_is_refused_in_words(size: str) -> None:
    message = said(labels={OWN + "gang": "ring"}, says={"gang-size": size})
    assert message.startswith("Annotation slurm-bridge/gang-size: ")
    assert message.endswith("is not a whole number from 1 to 10,000.")
    assert len(message) < 200
    assert group(labels={OWN + "gang": "ring"}, says={"gang-size": f"{MAX_SIZE}"}).size == MAX_SIZE


def test_a_size_without_a_gang_is_refused() -> None:
    assert "add the label slurm-bridge/gang" in said(says={"gang-size": "3"})


@pytest.mark.parametrize(
    "owner",
    [
        OWNER,
        OwnerRef("batch.volcano.sh/v1alpha1", "Job", "train", "uid-job"),
        OwnerRef("batch/v1", "CronJob", "c", "uid"),
    ],
    ids=["a ReplicaSet", "a Job of Volcano", "another kind of the batch API"],
)
def test_job_is_a_word_for_pods_of_batch_jobs_alone(owner: OwnerRef) -> None:
    assert "no Job controls this pod" in said(labels={OWN + "gang": "job"}, owner=owner)
    assert "add the label slurm-bridge/gang" in said(says={"gang-size": "3"}, owner=owner)


def test_a_timeout_is_seconds() -> None:
    assert group(labels={OWN + "gang": "a"}, says={"gang-timeout": "60"}).timeout_s == 60
    assert "gang-timeout" in said(labels={OWN + "gang": "a"}, says={"gang-timeout": "soon"})


def test_members_are_ordered_by_their_index_then_by_name_as_people_count() -> None:
    names = ["w-10", "w-9", "w-1"]
    assert sorted(names, key=natural) == ["w-1", "w-9", "w-10"]
    index = "batch.kubernetes.io/job-completion-index"
    pods = [pod("x", annotations={index: "10"}), pod("y", labels={index: "9"}), pod("z", labels={index: "2"})]
    assert [each.name for each in sorted(pods, key=rank_of)] == ["z", "y", "x"]
    leader, worker = pod("lws-0"), pod("lws-0-1", labels={LWS + "worker-index": "1"})
    assert sorted([worker, leader], key=rank_of) == [leader, worker]
    first, second = pod("q-b", labels={KUEUE_INDEX: "0"}), pod("q-a", labels={KUEUE_INDEX: "1"})
    assert sorted([second, first], key=rank_of) == [first, second]


@pytest.mark.parametrize("says", [{}, {"gang-size": "3"}], ids=["without a size", "with a size"])
def test_a_gang_without_a_name_is_refused(says: dict[str, str]) -> None:
    refused = group_of(pod(labels={names.PREFIX + names.GANG: ""}, says=says))
    assert isinstance(refused, Refusal)
    assert refused.message == "Label slurm-bridge/gang is empty: give the name of the gang."


# --- sizes that an object defines -----------------------------------------------------------------------------------


def of_pod_group(name: str) -> Pod:
    return pod(name, labels={POD_GROUP: "ring"})


def test_a_pod_group_defines_the_size_of_its_gang_once_it_is_read() -> None:
    story = Story()
    story.sees(of_pod_group("w-0"), of_pod_group("w-1"))
    [read] = story.acts(ReadOwner, START + 20)
    assert (read.ref.kind, read.ref.name) == ("PodGroup", "ring")
    [workload] = story.world.workloads.values()
    assert workload.gathered == "It is not known yet how many pods PodGroup ring has; 2 are here."
    story.sees(OwnerRead(read.ref, Owner(read.ref, members=2), START + 21, "hpc"))
    story.ended(read, at=START + 21)
    [asked] = story.acts(AllocateNow, START + 21)
    assert asked.spec.tasks == 2


def test_a_pod_group_that_wants_more_pods_than_a_gang_may_have_gives_no_size() -> None:
    story = Story()
    story.sees(of_pod_group("w-0"))
    [read] = story.acts(ReadOwner, START + 20)
    story.sees(OwnerRead(read.ref, Owner(read.ref, members=MAX_SIZE + 1), START + 21, "hpc"))
    story.ended(read, at=START + 21)
    [workload] = story.world.workloads.values()
    assert (workload.size, story.acts(AllocateNow, START + 21)) == (0, [])


def test_a_gang_whose_pods_are_gone_before_its_pod_group_is_read_leaves_nothing_behind() -> None:
    story = Story()
    story.sees(of_pod_group("w-0"))
    [read] = story.acts(ReadOwner, START + 20)
    story.loses(of_pod_group("w-0"), START + 20)
    story.decides(START + 21)
    assert story.world.workloads == {}
    story.sees(OwnerRead(read.ref, Owner(read.ref, members=1), START + 22, "hpc"))
    story.ended(read, at=START + 22)
    assert (story.world.workloads, story.world.waits_for_owner) == ({}, {})


def test_a_pod_by_itself_has_no_object_that_defines_a_size() -> None:
    story = Story()
    story.sees(pod())
    [workload] = story.world.workloads.values()
    assert story.world.size_source_of(workload) is None
