"""A JobSet whose Jobs are made one after the other: each set that starts together is a gang of its own (W2, W6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    Action,
    AllocateNow,
    BindPod,
    CancelJob,
    Outcome,
    ReadJob,
    ReadOwner,
    SetPodCondition,
    SubmitJob,
)
from scheduler.apply import settling
from scheduler.decide import decide
from scheduler.events import OwnerRead
from scheduler.model.kubernetes import Owner, OwnerRef, Pod, PodPhase, Stage
from scheduler.model.slurm import Job
from scheduler.state.phase import Phase
from scheduler.translate.grouping import GANG_SIZE, JOBSET, JOBSET_PART, JOBSET_RANK, JOBSET_UID
from tests.builders import CLUSTER, START, Story, pod
from tests.unit.scheduler.test_gangs import granted

NOW = START + 10
SET = OwnerRef("jobset.x-k8s.io/v1alpha2", "JobSet", "train", "uid-set")
# As a TrainJob makes it: two initializers, and three nodes that are made when both are complete.
STAGES = (
    Stage("dataset-initializer", ("dataset-initializer", "model-initializer"), 2),
    Stage("node", ("node",), 3),
)
TRAIN = Owner(SET, members=5, stages=STAGES)
RANKS = {"dataset-initializer": 0, "model-initializer": 1, "node": 2}


def batch(part: str) -> OwnerRef:
    return OwnerRef("batch/v1", "Job", f"train-{part}-0", f"uid-{part}")


def made(part: str, number: int = 0, **fields: Any) -> Pod:
    labels = {JOBSET: "train", JOBSET_PART: part, JOBSET_RANK: str(RANKS[part])}
    return pod(f"train-{part}-{number}", labels=labels, owner=batch(part), **fields)


FIRST = [made("dataset-initializer"), made("model-initializer")]
NODES = [made("node", number) for number in range(3)]


def read(story: Story, owner: Owner = TRAIN, at: float = NOW) -> None:
    """Whatever is to be read of the owners is; nothing else is done."""
    while any(isinstance(each, ReadOwner) for each in decide(story.world, at).actions):
        for action in story.acts(ReadOwner, at):
            known = owner if action.ref == SET else Owner(action.ref, owner=SET)
            story.sees(OwnerRead(action.ref, known, at, "hpc"))
            story.ended(action, at=at)


def requests(story: Story, at: float) -> list[AllocateNow | SubmitJob]:
    return [each for each in story.decides(at) if isinstance(each, AllocateNow | SubmitJob)]


def grant_to(story: Story, asked: Action, job_id: int, at: float) -> list[BindPod]:
    """It is granted nodes, and its pods are bound."""
    assert isinstance(asked, AllocateNow | SubmitJob)
    story.ended(asked, at=at, job_id=job_id, grant=granted(job_id, ("x1", asked.spec.tasks)))
    binds = story.acts(BindPod, at)
    for bind in binds:
        story.ended(bind, at=at)
    return binds


def shown(what: Pod, bind: BindPod) -> Pod:
    return replace(what, node=bind.node, annotations={**what.annotations, **bind.annotations}, phase=PodPhase.RUNNING)


def test_the_initializers_of_a_train_job_run_before_its_nodes_exist_and_the_nodes_are_a_gang_of_their_own() -> None:
    story = Story()
    story.sees(*FIRST)
    read(story)
    [asked] = requests(story, NOW)
    assert (asked.spec.tasks, asked.spec.name.partition("~")[0]) == (2, "hpc/train-dataset-initializer")
    binds = grant_to(story, asked, 17, NOW)
    assert {bind.annotations[names.STAGE] for bind in binds} == {"dataset-initializer"}
    assert {bind.annotations[names.SIZE] for bind in binds} == {"2"}
    story.sees(*(replace(shown(*each), phase=PodPhase.SUCCEEDED) for each in zip(FIRST, binds, strict=True)))
    story.polls({17: "RUNNING"}, at=NOW + 1)

    story.sees(*NODES[:2])
    read(story)
    assert requests(story, NOW + 2) == []
    story.sees(NODES[2])
    read(story)
    [asked] = requests(story, NOW + 3)
    assert (asked.spec.tasks, asked.spec.name.partition("~")[0]) == (3, "hpc/train-node")
    assert [bind.annotations[names.RANK] for bind in grant_to(story, asked, 18, NOW + 3)] == ["0", "1", "2"]


@pytest.mark.parametrize("at_once", [64, 1], ids=["small", "large"])
def test_pods_that_came_before_their_job_set_was_read_go_to_the_gangs_of_their_stages(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(settling, "SETTLED_AT_ONCE", at_once)
    story = Story()
    story.sees(*FIRST, *NODES)
    for _ in RANKS:  # each pass settles a large gang, and then the Job of its next pod is read
        read(story)
        settling.settle_all(story.world)
    workloads = {key: story.world.workloads[key] for key in story.world.key_of_pod.values()}.values()
    stages = {each.group.stage: {one.name for one in each.pods.values()} for each in workloads if each.group}
    assert stages == {
        "dataset-initializer": {each.name for each in FIRST},
        "node": {each.name for each in NODES},
    }


def test_pods_of_a_job_set_that_gets_stages_later_do_not_say_that_their_labels_were_edited() -> None:
    story = Story()
    story.sees(*FIRST)
    read(story, Owner(SET, members=5))
    story.sees(OwnerRead(SET, TRAIN, NOW + 1, "hpc"), replace(FIRST[0], annotations={"example.com/note": "new"}))
    told = {each.message for each in story.acts(SetPodCondition, NOW + 10)}
    assert told
    assert not [message for message in told if "were edited" in message]


def test_members_of_one_stage_wait_for_each_other_and_say_so() -> None:
    story = Story()
    story.sees(FIRST[0])
    read(story)
    assert requests(story, NOW) == []
    [workload] = [each for each in story.world.workloads.values() if each.pods]
    assert workload.last_status[FIRST[0].uid]["PodScheduled"].message == (
        "1 of 2 pods of JobSet train-dataset-initializer are here in namespace hpc. Their job is submitted when all of "
        "them are here."
    )


def test_a_job_set_all_of_whose_jobs_start_together_stays_one_gang() -> None:
    story = Story()
    story.sees(*FIRST, *NODES[:2])
    read(story, Owner(SET, members=5))
    assert requests(story, NOW) == []
    story.sees(NODES[2])
    read(story, Owner(SET, members=5))
    [asked] = requests(story, NOW)
    assert (asked.spec.tasks, asked.spec.name.partition("~")[0]) == (5, "hpc/train")


@pytest.mark.parametrize("sizes", [("5", "5"), ("2", "3")], ids=["of all", "of each stage"])
def test_a_number_on_the_pods_does_not_make_them_wait_for_a_later_stage(sizes: tuple[str, str]) -> None:
    story = Story()
    first, later = ({names.PREFIX + "gang-size": size} for size in sizes)
    story.sees(*(replace(each, annotations=first) for each in FIRST))
    read(story)
    [asked] = requests(story, NOW)
    assert asked.spec.tasks == 2
    grant_to(story, asked, 17, NOW)
    story.sees(*(replace(each, annotations=later) for each in NODES))
    read(story)
    assert [each.spec.tasks for each in requests(story, NOW + 1)] == [3]


def test_pods_of_a_later_job_of_a_known_job_set_are_in_the_gang_of_their_stage_before_their_job_is_read() -> None:
    story = Story()
    story.sees(*FIRST)
    read(story)
    story.sees(*(replace(each, labels={**each.labels, JOBSET_UID: SET.uid}) for each in NODES))
    [stage] = {story.world.key_of_pod[each.uid] for each in NODES}
    assert story.world.workloads[stage].readable == "hpc/train-node"


def test_a_gang_by_its_own_label_is_not_split_into_the_stages_of_the_job_set_of_its_pods() -> None:
    story = Story()
    own = {names.PREFIX + "gang": "mine"}
    pods = [replace(each, labels={**each.labels, **own}, annotations={GANG_SIZE: "5"}) for each in (*FIRST, *NODES)]
    for owner in (Owner(SET, members=5, stages=STAGES), *(Owner(batch(part), owner=SET) for part in RANKS)):
        story.sees(OwnerRead(owner.ref, owner, NOW, "hpc"))
    story.sees(*pods)
    [asked] = requests(story, NOW)
    assert (asked.spec.tasks, asked.spec.name.partition("~")[0]) == (5, "hpc/mine")


@pytest.mark.parametrize("seen", ["before the stages were read", "after the stages were read", "after a restart"])
def test_pods_that_were_bound_as_one_gang_stay_one_gang_although_their_job_set_has_stages(seen: str) -> None:
    story, pods = Story(), [*FIRST, *NODES]
    story.sees(*pods)
    read(story, Owner(SET, members=5))
    [asked] = requests(story, NOW)
    shows = [shown(each, bind) for each, bind in zip(pods, grant_to(story, asked, 17, NOW), strict=True)]
    if seen == "after a restart":
        story = Story()
        for owner in (TRAIN, *(Owner(batch(part), owner=SET) for part in RANKS)):
            story.sees(OwnerRead(owner.ref, owner, NOW, "hpc"))
    story.sees(*(shows if seen == "before the stages were read" else ()))
    story.sees(OwnerRead(SET, TRAIN, NOW + 1, "hpc"))
    story.sees(replace(shows[0], phase=PodPhase.SUCCEEDED), *shows[1:])
    assert len({story.world.key_of_pod[each.uid] for each in pods}) == 1


# --- the next process --------------------------------------------------------------------------------------------------


def stage_name(story: Story, stage: str) -> tuple[str, str]:
    """The key of that stage's workload, and the name of its job."""
    key = names.workload_key("\0".join(("jobset", "hpc", "train", "", stage)))
    return key, f"hpc/train-{stage}~{CLUSTER}.{key}"


def test_after_a_restart_the_job_of_a_running_stage_is_its_own() -> None:
    first = Story()
    first.sees(*FIRST)
    read(first)
    [asked] = requests(first, NOW)
    binds = grant_to(first, asked, 17, NOW)
    story = Story()
    story.sees(*(shown(*each) for each in zip(FIRST, binds, strict=True)))
    key, name = stage_name(story, "dataset-initializer")
    assert asked.spec.name == name
    story.polls({17: "RUNNING"}, at=START + 1)
    job = Job(17, name, "alice", frozenset({"RUNNING"}), partition="main", nodes="x1", tasks=2)
    story.reads(job, at=START + 1, granted=granted(17, ("x1", 2)))
    assert story.world.phase_of[key] is Phase.BOUND
    assert story.acts(CancelJob, START + 60) == []


def test_a_stage_that_waits_in_slurms_queue_keeps_its_job_over_a_restart() -> None:
    """Until the JobSet is read, the owner of that job is not known; the read takes long."""
    story = Story()
    story.sees(*NODES)
    key, name = stage_name(story, "node")
    story.polls({18: "PENDING"}, at=START + 1)
    story.reads(Job(18, name, "alice", frozenset({"PENDING"}), partition="main", tasks=3), at=START + 1)
    for second in range(1, 60):
        for action in story.decides(START + second):
            assert not isinstance(action, CancelJob)
            story.ended(action, Outcome.UNKNOWN, at=START + second)
    read(story, at=START + 120)
    assert story.world.phase_of[key] is Phase.QUEUED
    assert story.acts(CancelJob, START + 121) == []


def test_a_stages_job_without_pods_ends_when_the_job_set_can_never_be_read() -> None:
    story = Story()
    story.sees(*NODES)
    _, name = stage_name(story, "other")
    story.polls({18: "PENDING"}, at=START + 1)
    story.reads(Job(18, name, "alice", frozenset({"PENDING"}), partition="main", tasks=3), at=START + 1)
    at = START + 1
    while not (cancels := story.acts(CancelJob, at)):
        at += 1
        assert at < START + 400
    assert at >= START + 300
    assert cancels[0].job_id == 18
    assert ReadJob not in map(type, cancels)
