"""slurmctld reuses ids after it lost its state: no pod ends, and no job is cancelled, for another job (S7, V1, V6)."""

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
    DeletePod,
    FailByDeadline,
    FindJobs,
    ObjectKind,
    Outcome,
    ReadJob,
    SubmitJob,
)
from scheduler.apply.reused_ids import (
    detach_others,
    is_continued,
    is_failed_reacquisition,
    is_foreign_by_now,
    is_renamed_unread,
    job_of_call,
    key_of_renamed,
    listed_again,
    note_lost_job,
    suspect_reuse,
    workloads_that_lost,
)
from scheduler.events import ActionEnded, JobsPolled, OutageBegan, OutageEnded, Side, UndecodedItems
from scheduler.model.anomaly import Anomaly
from scheduler.model.kubernetes import PodPhase
from scheduler.model.slurm import Job
from scheduler.state import quarantine
from scheduler.state.placeholder import Placeholder
from tests.builders import CONFIG, OF_A_BIND, START, Story, grant, job_of, key_of, pod

NOW = START + 20
TRAIN = pod("train")
OTHER = pod("other")


def reads(story: Story, at: float) -> list[int]:
    return [each.job_id for each in story.acts(ReadJob, at)]


# --- lists ----------------------------------------------------------------------------------------------------------------


def test_the_highest_id_of_all_that_is_given_out_again_makes_all_jobs_be_read_again() -> None:
    """The job was the last one before slurmctld lost its state."""
    story = Story()
    story.runs(TRAIN, 100, at=NOW)
    strangers = Job(500, "interactive", "carol", frozenset({"RUNNING"}))
    story.polls({100: "RUNNING", 500: "RUNNING"}, at=NOW + 1)
    story.reads(strangers, at=NOW + 1)
    assert 100 not in reads(story, NOW + 1)
    story.polls({100: "RUNNING"}, at=NOW + 2)
    story.polls({100: "RUNNING", 500: "RUNNING"}, at=NOW + 3)
    assert set(reads(story, NOW + 3)) == {100, 500}


@pytest.mark.parametrize(("listed_at", "is_again"), [(NOW + 3, True), (NOW + 5, True), (NOW + 5.5, False)])
def test_a_new_job_with_a_lower_id_than_was_listed_before_it_was_submitted_makes_all_jobs_be_read_again(
    listed_at: float, is_again: bool
) -> None:
    """slurmctld lost its state and uses ids again.  A list of the time of the call may show ids of later jobs."""
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.reads(job_of(TRAIN, 17), at=NOW + 1, granted=grant(17))
    story.polls({17: "RUNNING", 30: "RUNNING"}, at=listed_at)
    story.reads(Job(30, "interactive", "carol", frozenset({"RUNNING"})), at=listed_at)
    story.sees(OTHER)
    [asked] = story.acts(AllocateNow, NOW + 5.6)
    story.ended(asked, began=NOW + 5, at=NOW + 6, job_id=18, grant=grant(18))
    assert story.world.rejected[Anomaly.ID_AGAIN] == is_again
    assert (30 in reads(story, NOW + 7)) is is_again


@pytest.mark.parametrize(
    ("former_undecoded", "undecoded", "former_ended", "believed"),
    [((), (), (), True), ((99,), (), (), False), ((), (99,), (), False), ((), (), (5,), True)],
    ids=[
        "two whole lists",
        "an item of the former list could not be decoded",
        "an item could not be decoded",
        "a job that had ended before left the list",
    ],
)
def test_many_ends_at_once_are_believed_without_reads_if_slurmctld_kept_its_state(
    former_undecoded: tuple[int, ...], undecoded: tuple[int, ...], former_ended: tuple[int, ...], believed: bool
) -> None:
    story = Story()
    many = CONFIG.tuning.reads + 1
    for number in range(many):
        story.runs(pod(f"p{number}", cpu=10), 100 + number, at=NOW)
    running = dict.fromkeys(range(100, 100 + many + 1), frozenset({"RUNNING"}))  # the last job runs on
    former = running | dict.fromkeys(former_ended, frozenset({"COMPLETED"}))
    over = dict.fromkeys(range(100, 100 + many), frozenset({"CANCELLED"})) | {100 + many: frozenset({"RUNNING"})}
    story.sees(JobsPolled(NOW + 1, NOW + 1, former, undecoded=UndecodedItems(frozenset(former_undecoded))))
    story.sees(JobsPolled(NOW + 2, NOW + 2, over, undecoded=UndecodedItems(frozenset(undecoded))))
    assert bool(story.acts(FailByDeadline, NOW + 2)) is believed


def test_a_pod_is_not_told_of_another_job_if_the_end_of_its_job_was_only_listed_and_the_next_list_shows_the_job() -> (
    None
):
    """The first list was wrong: no read proved the end."""
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.polls({17: "CANCELLED"}, at=NOW + 2)
    for read in story.acts(ReadJob, NOW + 2):
        story.ended(read, Outcome.UNREACHED, at=NOW + 2)
    story.polls({17: "RUNNING"}, at=NOW + 3)
    for second in range(3, 20):
        for action in story.decides(NOW + second):
            assert isinstance(action, ReadJob)
            story.reads(job_of(TRAIN, 17), at=NOW + second)
            story.ended(action, at=NOW + second)


# --- answers ----------------------------------------------------------------------------------------------------------------


def test_a_job_that_was_read_before_the_answer_to_its_submission_came_is_the_pods() -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.reads(job_of(TRAIN, 17), at=NOW + 1, granted=grant(17))
    story.ended(asked, at=NOW + 2, began=NOW, job_id=17, grant=grant(17))
    planned = story.decides(NOW + 2)
    assert [(each.job_id, each.uid) for each in planned if isinstance(each, BindPod)] == [(17, TRAIN.uid)]
    assert not [each for each in planned if isinstance(each, AllocateNow | CancelJob)]


def test_the_answer_to_a_cancel_does_not_end_the_job_of_another_pod_that_was_read_under_the_id_since() -> None:
    story = Story()
    gone = story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.loses(replace(gone, phase=PodPhase.SUCCEEDED), NOW + 2)
    [cancel] = story.acts(CancelJob, NOW + 2)
    story.sees(OTHER)
    [asked] = [each for each in story.acts(AllocateNow, NOW + 3) if each.key == key_of(OTHER)]
    story.ended(asked, Outcome.UNKNOWN, at=NOW + 4)
    story.polls({17: "RUNNING"}, at=NOW + 5)
    story.reads(job_of(OTHER, 17), at=NOW + 5, granted=grant(17))
    story.sees(ActionEnded(cancel, Outcome.DONE, NOW + 2, NOW + 6))
    planned = story.decides(NOW + 7)
    assert [each.uid for each in planned if isinstance(each, BindPod)] == [OTHER.uid]


# --- reads ------------------------------------------------------------------------------------------------------------------


GANG: Any = {"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": "2"}, "created": START - 600}


@pytest.mark.parametrize(
    ("started", "shows_id", "is_lost"),
    [
        ((START - 500, None), (True, True), True),
        ((START - 500, START - 500), (False, False), True),
        ((None, None), (True, True), False),
        ((START - 500, START - 50), (True, True), False),
    ],
    ids=[
        "a pod has not started yet",
        "a client removed the ids",
        "no pod has started yet",
        "a pod started later than the job was submitted",
    ],
)
def test_a_gang_lost_its_job_if_a_job_of_another_name_came_after_all_pods_of_the_gang_that_have_started(
    started: tuple[float | None, float | None], shows_id: tuple[bool, bool], is_lost: bool
) -> None:
    story = Story()
    for number, (began, shows) in enumerate(zip(started, shows_id, strict=True)):
        member = story.bound(pod(f"w-{number}", **GANG), 17, started=began)
        story.sees(member)
        if not shows:
            story.sees(replace(member, annotations=pod(f"w-{number}", **GANG).annotations))
    other = Job(17, "native", "alice", frozenset({"RUNNING"}), nodes="x1", submitted=START - 100)
    story.polls({17: "RUNNING"}, at=NOW - 1)
    story.reads(other, at=NOW - 1)
    asked: list[AllocateNow] = []
    for second in range(10):
        story.polls({17: "RUNNING"}, at=NOW + second)
        for action in story.decides(NOW + second):
            assert not isinstance(action, CancelJob), "it is the user's own job"
            if isinstance(action, ReadJob):
                story.reads(other, at=NOW + second)
                story.ended(action, at=NOW + second)
            elif isinstance(action, AllocateNow):
                asked.append(action)
    assert [each.spec.required_nodes for each in asked] == ["x1"] * is_lost


# --- a workload whose id belongs to another job -------------------------------------------------------------------------


def test_a_pod_whose_id_went_to_another_pod_runs_on_in_a_second_job_of_its_name_that_holds_nodes() -> None:
    """No nodes are asked for again beside the second job."""
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW + 1)
    story.sees(OTHER)
    story.reads(job_of(TRAIN, 18), at=NOW + 1, granted=grant(18))
    story.reads(job_of(OTHER, 17), at=NOW + 2, granted=grant(17, "x2"))
    assert key_of(TRAIN) not in {each.key for each in story.acts(AllocateNow, NOW + 3)}
    story.polls({17: "RUNNING", 18: "CANCELLED"}, at=NOW + 4)
    story.reads(job_of(TRAIN, 18, "CANCELLED"), at=NOW + 4)
    ends = story.acts(FailByDeadline, NOW + 5)
    assert [(each.name, each.reason) for each in ends] == [("train", "Slurm job 18 ended: CANCELLED")]


def test_a_waiting_pod_whose_id_went_to_another_pod_asks_for_any_nodes() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.sees(OTHER)
    story.reads(job_of(OTHER, 17, "PENDING"), at=NOW + 5)
    found = [each for each in story.decides(NOW + 6) if isinstance(each, AllocateNow | SubmitJob)]
    [asked] = [each for each in found if each.key == key_of(TRAIN)]
    assert asked.spec.required_nodes == ""


def test_a_second_job_whose_id_went_to_another_pod_costs_the_running_pod_nothing() -> None:
    """After a restart: the pod names 17, which is not read yet; 18 has its name, and slurmctld gave 18 out again."""
    story = Story()
    old = replace(TRAIN, created=START - 60)
    shown = story.bound(old, 17, started=START - 50)
    story.polls({17: "RUNNING", 18: "PENDING"}, at=START + 1)
    story.sees(replace(shown, annotations={**shown.annotations, **OF_A_BIND}))
    story.reads(job_of(old, 18, "PENDING"), at=START + 2)
    story.sees(OTHER)
    story.reads(job_of(OTHER, 18, "PENDING"), at=START + 3)
    for second in range(4, 30):
        story.polls({17: "RUNNING", 18: "PENDING"}, at=START + second)
        for action in story.decides(START + second):
            assert not isinstance(action, FailByDeadline | CancelJob | AllocateNow), action
            if isinstance(action, ReadJob):
                job = job_of(old, 17) if action.job_id == 17 else job_of(OTHER, 18, "PENDING")
                story.reads(job, at=START + second)
            story.ended(action, at=START + second)


@pytest.mark.parametrize("is_terminating", [True, False])
def test_a_pod_whose_id_went_to_another_pod_runs_on_in_the_job_that_replaced_its_own(is_terminating: bool) -> None:
    """A process begins after two jobs got each other's ids, and the pods show the former ones (life 740823).

    The nodes of a terminating pod are not asked for again, so no refusal shows that its job lives.
    """
    train, other = (replace(each, created=START - 60, node="x1") for each in (TRAIN, OTHER))
    keys = {"train": {names.JOB_ID: "5"}, "other": {names.JOB_ID: "3"}}
    shown = [
        replace(each, phase=PodPhase.RUNNING, annotations={**OF_A_BIND, **keys[each.name]}, started=START - 50)
        for each in (train, other)
    ]
    if is_terminating:
        shown[0] = replace(shown[0], deleting_at=NOW + 3600, grace_s=3600)
    story = Story(pods=shown)
    jobs = {3: job_of(train, 3, submitted=START - 30), 5: job_of(other, 5, submitted=START - 30)}
    acts: list[Action] = []
    for second in range(30):
        story.polls(dict.fromkeys(jobs, "RUNNING"), at=NOW + second)
        if second == 0:
            story.reads(jobs[5], at=NOW, granted=grant(5))
        for action in story.decides(NOW + second):
            acts.append(action)
            found = ()
            if isinstance(action, ReadJob):
                story.reads(jobs[action.job_id], at=NOW + second, granted=grant(action.job_id))
            elif isinstance(action, FindJobs):
                found = tuple(job_id for job_id, job in jobs.items() if job.name == action.name)
            outcome = Outcome.REFUSED if isinstance(action, AllocateNow) else Outcome.DONE
            story.ended(action, outcome, at=NOW + second, found=found)
    assert not [each for each in acts if isinstance(each, DeletePod | FailByDeadline | CancelJob)]
    assert story.world.workloads[key_of(train)].hint == 3


# --- which observation counts for which job ---------------------------------------------------------------------------


def placeholder(job_id: int, key: str | None, *states: str, since: float = NOW, **fields: Any) -> Placeholder:
    return Placeholder(job_id, key, "alice", frozenset(states or ("RUNNING",)), since, **fields)


@pytest.mark.parametrize(
    ("foreign", "read_at", "known", "is_foreign"),
    [
        (True, NOW + 1, None, True),
        (True, NOW, None, False),
        (True, None, None, False),
        (False, NOW + 1, None, True),
        (False, None, placeholder(17, key_of(OTHER), since=NOW + 1), True),
        (False, None, placeholder(17, key_of(OTHER), since=NOW), False),
        (False, None, placeholder(17, key_of(OTHER), "COMPLETED", since=NOW + 1), False),
        (False, None, placeholder(17, key_of(TRAIN), since=NOW + 1), False),
        (False, None, placeholder(17, None, since=NOW + 1), False),
        (False, None, None, False),
    ],
    ids=[
        "read as foreign after the call",
        "read as foreign as the call was sent",
        "foreign, and not read",
        "read as foreign after the call, and to be read again",
        "another pod's since the call",
        "another pod's before",
        "another pod's that ended",
        "the pod's own",
        "a job that pods show",
        "not known",
    ],
)
def test_an_answer_does_not_count_if_another_job_was_seen_under_its_id_after_the_call(
    foreign: bool, read_at: float | None, known: Placeholder | None, is_foreign: bool
) -> None:
    story = Story()
    story.sees(TRAIN)
    world = story.world
    if foreign:
        world.foreign.add(17)
    if read_at is not None:
        world.foreign_read[17] = read_at
    if known is not None:
        world.placeholders[17] = known
    assert is_foreign_by_now(world, world.workloads[key_of(TRAIN)], 17, NOW) is is_foreign


@pytest.mark.parametrize(
    ("known", "counts"),
    [
        (None, False),
        (placeholder(17, key_of(OTHER)), False),
        (placeholder(17, key_of(TRAIN), asked_at=NOW + 1), False),
        (placeholder(17, key_of(TRAIN), asked_at=NOW), True),
        (placeholder(17, key_of(TRAIN)), True),
    ],
    ids=["it is gone", "of another pod", "submitted after the call", "submitted before", "of another process"],
)
def test_an_answer_to_another_call_counts_for_the_job_for_which_the_call_was_sent(
    known: Placeholder | None, counts: bool
) -> None:
    world = Story().world
    if known is not None:
        world.placeholders[17] = known
    found = job_of_call(world, CancelJob(key_of(TRAIN), 17, "train", "alice", "why"), NOW)
    assert found is (known if counts else None)


def test_the_id_of_a_job_that_is_gone_is_of_another_job_if_a_later_list_shows_it_alive() -> None:
    world = Story().world
    world.forgotten_at = {1: NOW - 1, 2: NOW, 3: NOW - 1, 4: NOW - 1, 5: NOW - 1}
    world.placeholders[3] = placeholder(3, key_of(TRAIN))
    running = frozenset({"RUNNING"})
    states = {1: running, 2: running, 3: running, 4: frozenset({"COMPLETED"})}
    assert listed_again(world, JobsPolled(NOW, NOW, states)) == [1]
    assert world.forgotten_at == {2: NOW}, "the list may have been requested before that job was gone"


@pytest.mark.parametrize(
    ("denied", "end_proven", "was", "states", "then"),
    [
        (False, True, "COMPLETED", "RUNNING", (True, False, True)),
        (False, True, "COMPLETED", "CANCELLED", (False, True, False)),
        (False, False, "COMPLETED", "RUNNING", (False, False, False)),
        (True, False, "RUNNING", "RUNNING", (True, False, True)),
        (True, False, "RUNNING", "CANCELLED", (True, False, False)),
    ],
)
def test_a_job_whose_end_was_proven_and_that_is_listed_alive_is_read_and_so_is_a_denied_job(
    denied: bool, end_proven: bool, was: str, states: str, then: tuple[bool, bool, bool]
) -> None:
    """Then: it is denied, its end is proven, it is read."""
    world = Story().world
    job = world.placeholders[17] = placeholder(17, key_of(TRAIN), was, denied=denied, end_proven=end_proven)
    suspect_reuse(world, job, frozenset({states}), NOW)
    assert (job.denied, job.end_proven, 17 in world.first_listed_at) == then


NATIVE = Job(17, "native", "alice", frozenset({"RUNNING"}), nodes="x1", submitted=NOW)


@pytest.mark.parametrize(
    ("fields", "read", "runs", "may_be"),
    [
        ({}, NATIVE, "bound", True),
        ({}, NATIVE, "bind in flight", True),
        ({}, NATIVE, "waits", False),
        ({"key": None}, NATIVE, "bound", False),
        ({"job": NATIVE}, NATIVE, "bound", False),
        ({}, replace(NATIVE, user="bob"), "bound", False),
        ({}, replace(NATIVE, submitted=None), "bound", False),
        ({}, replace(NATIVE, submitted=NOW + 1), "bound", False),
    ],
    ids=[
        "its pod runs",
        "its pod may run soon",
        "its pod waits",
        "only pods show it",
        "it was read before",
        "of another user",
        "without a time",
        "a later job",
    ],
)
def test_the_first_read_of_a_job_that_shows_another_name_may_be_of_the_same_job_if_pods_run_for_it(
    fields: dict[str, Any], read: Job, runs: str, may_be: bool
) -> None:
    story = Story()
    story.sees(TRAIN)
    workload = story.world.workloads[key_of(TRAIN)]
    workload.jobs.add(17)
    if runs == "bound":
        workload.put_on(TRAIN.uid, "x1")
    elif runs == "bind in flight":
        workload.first_bound_at = NOW
    job = replace(placeholder(17, key_of(TRAIN), hinted_by={key_of(TRAIN)}), **fields)
    assert is_renamed_unread(story.world, job, read) is may_be


def test_a_job_without_a_time_of_submission_proves_no_renamed_job() -> None:
    known = placeholder(17, key_of(TRAIN), job=replace(NATIVE, submitted=None))
    assert key_of_renamed(known, replace(NATIVE, submitted=None)) is None
    assert key_of_renamed(placeholder(17, key_of(TRAIN), job=NATIVE), NATIVE) == key_of(TRAIN)


@pytest.mark.parametrize(
    ("read", "requeued", "runs", "has_failed"),
    [
        (("CANCELLED", ""), False, True, True),
        (("RUNNING", ""), False, True, False),
        (("CANCELLED", "x1"), False, True, False),
        (("CANCELLED", ""), True, True, False),
        (("CANCELLED", ""), False, False, False),
    ],
    ids=["it never had nodes", "it lives", "it had nodes", "its nodes were taken by a requeue", "no pod runs"],
)
def test_a_job_that_ended_without_nodes_is_no_job_for_which_pods_run(
    read: tuple[str, str], requeued: bool, runs: bool, has_failed: bool
) -> None:
    story = Story()
    story.sees(TRAIN)
    workload = story.world.workloads[key_of(TRAIN)]
    workload.jobs.add(17)
    if runs:
        workload.put_on(TRAIN.uid, "x1")
    job = placeholder(17, key_of(TRAIN), requeued=requeued)
    shown = job_of(TRAIN, 17, read[0], nodes=read[1])
    assert is_failed_reacquisition(story.world, job, shown) is has_failed


# --- what is left to the workload -------------------------------------------------------------------------------------


LOST, PROVEN, GONE = "lost", "lost, and proven to be its job", "it names no job"


@pytest.mark.parametrize(
    ("what", "left"),
    [
        ({"was_its": True}, PROVEN),
        ({"bound": "this"}, PROVEN),
        ({"bound": "before"}, LOST),
        ({"bound": "never"}, GONE),
        ({"bound": "others"}, GONE),
        ({"bound": "others", "was_its": True}, PROVEN),
        ({"bound": "before", "waits": True}, "17"),
        ({"bound": "before", "hint": 16}, "16"),
        ({"bound": "before", "other": "its own"}, "18"),
        ({"bound": "before", "other": "shown"}, "18"),
        ({"bound": "before", "other": "shown and lost"}, LOST),
        ({"bound": "before", "other": "of another workload"}, LOST),
    ],
    ids=str,
)
def test_a_workload_whose_id_went_to_another_job_has_another_job_or_has_lost_its_job_or_has_named_a_foreign_one(
    what: dict[str, Any], left: str
) -> None:
    old = replace(TRAIN, created=START - 60)
    story = Story(pods=(old,) if what.get("bound") != "never" else ())
    story.sees(TRAIN if what.get("bound") == "never" else old)
    world, workload = story.world, story.world.workloads[key_of(TRAIN)]
    workload.hint = what.get("hint", 17)
    if not what.get("waits"):
        workload.put_on(TRAIN.uid, "x1")
    workload.bound_by_this_process = what.get("bound") == "this"
    if what.get("bound") == "others":
        workload.strays[TRAIN.uid] = NOW
    if other := what.get("other"):
        key = {"its own": workload.key, "of another workload": key_of(OTHER)}.get(other)
        missing: dict[str, Any] = {"denied": True, "absent_first": NOW - 60, "absent_last": NOW}
        world.placeholders[18] = placeholder(18, key, **(missing if "lost" in other else {}))
        workload.jobs.add(18)
    job = placeholder(17, workload.key if what.get("was_its") else key_of(OTHER))
    note_lost_job(world, workload, job, NOW)
    found = workload.lost_job
    lost = None if found is None else PROVEN if found.key == workload.key else LOST
    assert (lost or (GONE if workload.hint is None else str(workload.hint))) == left
    assert (found is None) or (found.id, found.denied, found.is_lost(2.0), workload.hint) == (17, True, True, 17)


def test_an_id_that_went_to_another_job_stays_with_a_workload_whose_facts_were_dropped() -> None:
    story = Story(guarded=True)
    story.sees(TRAIN, OTHER)
    job = story.world.placeholders[17] = placeholder(17, key_of(pod("third")))
    for each in (TRAIN, OTHER):
        story.world.workloads[key_of(each)].jobs.add(17)
        job.hinted_by.add(key_of(each))
    entry = quarantine.put(story.world, ObjectKind.WORKLOAD, key_of(TRAIN), ValueError())
    entry.dropped = True
    detach_others(story.world, "", job, NOW)
    assert job.hinted_by == {key_of(TRAIN)}


@pytest.mark.parametrize("follows", [True, False])
def test_a_workload_that_follows_a_job_has_not_lost_it_whenever_that_job_was_submitted(follows: bool) -> None:
    story = Story(pods=(shown := replace(TRAIN, node="x1", created=START - 600, started=START - 500),))
    key = key_of(shown)
    story.world.workloads[key].jobs.add(17)
    hinted = placeholder(17, None, hinted_by={key}, followed_by=frozenset({key} if follows else ()))
    story.world.placeholders[17] = hinted
    found = workloads_that_lost(story.world, hinted, replace(NATIVE, submitted=START - 100))
    assert [each.key for each in found] == ([] if follows else [key])


@pytest.mark.parametrize(("before_s", "is_its"), [(3.0, True), (3.1, False)])
def test_a_job_that_was_submitted_before_the_pod_existed_is_not_its_job(before_s: float, is_its: bool) -> None:
    """The times of both clusters are known to within three seconds."""
    story = Story(pods=(shown := replace(TRAIN, node="x1", created=START - 600),))
    for clock in story.world.clocks.values():
        clock.is_known = True
    key = key_of(shown)
    hinted = story.world.placeholders[17] = placeholder(17, None, hinted_by={key})
    story.world.workloads[key].jobs.add(17)
    found = workloads_that_lost(story.world, hinted, replace(NATIVE, submitted=START - 600 - before_s))
    assert [each.key for each in found] == ([] if is_its else [key])


@pytest.mark.parametrize(("apart_s", "continued"), [(10.0, True), (10.1, False)])
def test_two_lists_show_that_slurmctld_kept_its_state_only_if_they_are_at_most_ten_seconds_apart(
    apart_s: float, continued: bool
) -> None:
    lives = {1: frozenset({"RUNNING"})}
    former, later = JobsPolled(NOW, NOW, lives), JobsPolled(NOW + apart_s, NOW + apart_s, lives)
    assert is_continued(Story().world, former, later, ()) is continued


STRANGERS = Job(17, "interactive", "carol", frozenset({"PENDING"}))


def test_a_submission_without_an_answer_that_got_the_id_of_a_foreign_job_in_an_outage_is_found() -> None:
    """slurmctld lost the foreign job 17 and gave its id to the submission.  Each list shows the id."""
    story = Story()
    story.polls({17: "PENDING"}, at=NOW)
    story.reads(STRANGERS, at=NOW + 1)
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW + 2)
    story.sees(OutageBegan(Side.SLURM, NOW + 3, "slurmctld does not answer."))
    story.ended(asked, Outcome.UNKNOWN, began=NOW + 2, at=NOW + 4)
    story.polls({17: "PENDING"}, at=NOW + 5)
    story.sees(OutageEnded(Side.SLURM, NOW + 5))
    [read] = story.acts(ReadJob, NOW + 5)
    assert read.job_id == 17
    story.reads(job_of(TRAIN, 17, "PENDING"), at=NOW + 6)
    story.ended(read, at=NOW + 6)
    assert story.world.phase_of[key_of(TRAIN)].value == "queued"


def test_a_submission_whose_answer_is_lost_after_an_outage_may_have_the_id_of_a_foreign_job_too() -> None:
    story = Story()
    story.polls({17: "PENDING", 18: "RUNNING"}, at=NOW)
    story.reads(STRANGERS, at=NOW + 1)
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW + 2)
    story.sees(OutageBegan(Side.SLURM, NOW + 3, "slurmctld does not answer."))
    story.polls({17: "PENDING"}, at=NOW + 4)
    story.sees(OutageEnded(Side.SLURM, NOW + 4))
    assert story.world.unread == [], "no job is searched"
    story.ended(asked, Outcome.UNKNOWN, began=NOW + 2, at=NOW + 5)
    story.polls({17: "PENDING"}, at=NOW + 6)
    assert story.world.unread == [17]
    story.reads(replace(STRANGERS, name="other"), at=NOW + 7)
    story.polls({17: "PENDING"}, at=NOW + 8)
    assert story.world.unread == [], "it was read since the outage"


@pytest.mark.parametrize("is_denied", [True, False], ids=["a read found no job of the id before", "no read failed"])
def test_a_job_that_got_the_id_of_a_lost_job_that_was_never_read_belongs_to_the_pod_whose_name_it_has(
    is_denied: bool,
) -> None:
    """Unless no read found that the lost job is gone: then its user may have renamed it."""
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.sees(OTHER)
    [asked] = story.acts(AllocateNow, NOW + 1)
    story.ended(asked, Outcome.UNKNOWN, at=NOW + 1)
    story.polls({}, at=NOW + 2)
    if is_denied:
        story.reads(None, at=NOW + 2.2, job_id=17)
    story.reads(job_of(OTHER, 17, submitted=NOW), at=NOW + 2.4, granted=grant(17))
    assert (17 in story.world.workloads[key_of(OTHER)].jobs) is is_denied
