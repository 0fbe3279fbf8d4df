"""What a read of a job changes: how soon the job is read again, and what its pods show (ARCHITECTURE 4, S9, Q2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    AllocateNow,
    BindPod,
    CancelJob,
    FailByDeadline,
    Outcome,
    ReadJob,
    SetJobCondition,
    SubmitJob,
)
from scheduler.events import JobRead, PolicyChanged
from scheduler.model.kubernetes import Condition
from scheduler.model.slurm import SINGLETON, Job
from scheduler.policy.rules import Policy, Rule, Tenant
from scheduler.state.in_flight import JobSearch
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload
from tests.builders import ALICE, START, Story, grant, job_of, key_of, pod
from tests.unit.scheduler.test_gangs import ring

NOW = START + 20
TRAIN = pod("train")
OLD = pod("train", created=START - 60)  # of an earlier process
RING: Any = {"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": "2"}, "created": START - 60}


def reads(story: Story, at: float) -> list[int]:
    return [each.job_id for each in story.acts(ReadJob, at)]


def answered(story: Story, job: Job, at: float, **answer: Any) -> None:
    """Slurm answers the reads that are due with this job."""
    for read in story.acts(ReadJob, at):
        assert read.job_id == job.id
        story.ended(read, at=at)
    story.reads(job, at=at, **answer)


# --- a job that waits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "after_s", "soon"),
    [("None", 1, True), ("", 1, True), ("None", 5, True), ("Priority", 1, False), ("None", 6, False)],
)
def test_a_new_job_that_slurm_has_not_considered_yet_is_read_again_after_a_second(
    reason: str, after_s: float, soon: bool
) -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 0.5)
    for read in story.acts(ReadJob, NOW + after_s):
        story.ended(read, at=NOW + after_s)
    story.reads(job_of(TRAIN, 17, "PENDING", reason=reason), at=NOW + after_s)
    assert (17 in reads(story, NOW + after_s + 1)) is soon


def test_a_job_that_was_granted_nodes_is_not_read_for_the_reason_why_it_waits() -> None:
    """Slurm shows no reason for a job that runs, as for a job that it has not considered."""
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 0.5)
    answered(story, job_of(TRAIN, 17, reason="None"), NOW + 0.5, granted=grant(17))
    assert story.acts(BindPod, NOW + 0.5)
    assert not reads(story, NOW + 2)


def test_a_job_that_waits_for_a_job_of_its_name_that_runs_is_no_sign_of_an_unknown_job() -> None:
    """Singleton holds the second job back because of the first one, which is known."""
    story = Story()
    story.polls({3: "RUNNING"}, at=NOW)
    story.reads(Job(3, "not ours", "bob", frozenset({"RUNNING"})), at=NOW)
    story.runs(TRAIN, 17, at=NOW)
    states = {3: "RUNNING", 17: "RUNNING", 18: "PENDING"}
    story.polls(states, at=NOW + 1)
    twin = job_of(TRAIN, 18, "PENDING", reason="Dependency", dependency="singleton(unfulfilled)")
    story.reads(twin, at=NOW + 2)
    assert not reads(story, NOW + 3)


@pytest.mark.parametrize(
    ("states", "before_min", "is_said"), [("PENDING", 60, False), ("RUNNING", 30, False), ("RUNNING", 60, True)]
)
def test_a_new_time_limit_is_said_only_if_it_was_changed_while_the_job_ran(
    states: str, before_min: int, is_said: bool
) -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    times = {"submitted": NOW, "starts": NOW + 1, "ends": NOW + 1800}
    granted = grant(17) if states == "RUNNING" else None
    story.polls({17: states}, at=NOW + 1)
    story.reads(job_of(TRAIN, 17, states, time_limit_min=before_min, submitted=NOW), at=NOW + 1, granted=granted)
    story.polls({17: "RUNNING"}, at=NOW + 2)
    story.reads(job_of(TRAIN, 17, time_limit_min=30, **times), at=NOW + 2, granted=grant(17))
    [bind] = story.acts(BindPod, NOW + 2)
    story.ended(bind, at=NOW + 2)
    story.sees(replace(story.bound(TRAIN, 17), started=NOW + 2))
    said = [each.message for second in range(3, 10) for each in story.acts(SetJobCondition, NOW + second)]
    assert ["is 30 minutes now, and was 60 minutes" in each for each in said] == [True] * is_said


def test_a_job_that_an_earlier_process_submitted_stays_the_pods_after_it_was_read_under_another_policy() -> None:
    """The pod keeps its place in the queue.  The id, the time and the user prove that it is the job that was read before."""
    story = Story()
    waits = job_of(OLD, 17, "PENDING", submitted=START - 50, reason="Priority")
    story.polls({17: "PENDING"}, at=START + 1)
    story.sees(OLD)
    story.reads(waits, at=START + 1)
    to_bob = Policy((Rule(("hpc",), Tenant("bob")), Rule(("other",), ALICE)))
    story.sees(PolicyChanged(to_bob, START + 20))
    for second in range(21, 60):
        story.polls({17: "PENDING"}, at=START + second)
        for action in story.decides(START + second):
            assert not isinstance(action, CancelJob | AllocateNow), action
            if isinstance(action, ReadJob):
                story.reads(waits, at=START + second)
            story.ended(action, at=START + second)
    assert story.world.placeholders[17].key == key_of(OLD)


# --- jobs of pods of an earlier process -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("states", "leaves"), [("PENDING", True), ("CANCELLED", False)])
def test_a_pod_leaves_its_running_gang_for_a_job_of_its_own_only_if_this_job_has_not_ended(
    states: str, leaves: bool
) -> None:
    story = Story()
    waits, runs = pod("w-2", **RING), story.bound(pod("w-0", **RING), 3)
    story.polls({3: "RUNNING", 9: "PENDING"}, at=START + 0.1)
    story.sees(runs, waits)
    story.reads(job_of(waits, 9, states), at=START + 0.2)
    assert (story.world.key_of_pod[waits.uid] == key_of(waits)) is leaves


def test_a_job_that_a_waiting_pod_shows_and_slurm_does_not_find_is_no_missing_job() -> None:
    """A list shows the job, and slurmctld removes it before it is read: nothing is held back for it."""
    story = Story()
    shows = replace(OLD, scheduled=Condition(False, names.PENDING, "… Job 17, as of …"))
    story.polls({17: "PENDING"}, at=START + 0.1)
    story.sees(shows)
    [read] = story.acts(ReadJob, START + 0.1)
    story.polls({}, at=START + 0.2)
    story.reads(None, job_id=17, at=START + 0.2)
    story.ended(read, at=START + 0.2)
    assert [type(each) for each in story.decides(START + 0.2)] == [AllocateNow]
    assert story.world.absent == set()


def test_a_listed_job_that_a_waiting_pod_shows_and_a_read_does_not_find_is_no_missing_job() -> None:
    story = Story()
    story.polls({17: "PENDING"}, at=START + 0.1)
    story.sees(replace(OLD, scheduled=Condition(False, names.PENDING, "… Job 17, as of …")))
    story.reads(None, job_id=17, at=START + 0.2)
    assert 17 not in story.world.placeholders
    assert story.world.absent == set()


# --- the job that pods run for --------------------------------------------------------------------------------------------


def test_pods_that_lost_their_job_do_not_end_with_another_job_of_their_name_that_has_ended() -> None:
    """The nodes are asked for again first.  An admin, or the bridge, cancelled that other job."""
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    ended = job_of(TRAIN, 18, "CANCELLED", submitted=NOW + 6, nodes="")
    done = []
    for second in range(5, 20):
        at = NOW + second
        story.polls({18: "RUNNING"} if second == 9 else {18: "CANCELLED"} if second > 9 else {}, at=at)
        for action in story.decides(at):
            if isinstance(action, ReadJob):
                story.reads(ended if action.job_id == 18 else None, job_id=action.job_id, at=at)
                story.ended(action, at=at)
            elif isinstance(action, AllocateNow | FailByDeadline):
                done.append(type(action))
    assert done == [AllocateNow]
    assert story.world.workloads[key_of(TRAIN)].hint == 17


def test_pods_whose_id_went_to_another_job_run_on_in_a_job_of_their_name_that_holds_their_node() -> None:
    """The answer to the attempt to get the node again was lost; a read finds the job that the attempt made."""
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.queues(pod("other"), 17, at=NOW + 2)
    [asked] = story.acts(AllocateNow, NOW + 2)
    story.ended(asked, Outcome.UNKNOWN, at=NOW + 3)
    story.polls({17: "PENDING", 30: "RUNNING"}, at=NOW + 4)
    for read in story.acts(ReadJob, NOW + 4):
        job = job_of(pod("other"), 17, "PENDING") if read.job_id == 17 else job_of(TRAIN, 30)
        story.reads(job, at=NOW + 4, granted=grant(30) if read.job_id == 30 else None)
        story.ended(read, at=NOW + 4)
    story.decides(NOW + 5)
    story.polls({17: "PENDING", 30: "CANCELLED"}, at=NOW + 6)
    story.reads(job_of(TRAIN, 30, "CANCELLED"), at=NOW + 6)
    [end] = story.acts(FailByDeadline, NOW + 6)
    assert end.reason == "Slurm job 30 ended: CANCELLED"


def test_a_component_that_is_left_over_after_its_leader_left_the_list_is_ended() -> None:
    """The list after a restart shows the component alone."""
    story = Story()
    story.polls({18: "RUNNING"}, at=NOW)
    [read] = story.acts(ReadJob, NOW)
    story.reads(replace(job_of(pod("gone"), 18), het_id=17, het_offset=1), at=NOW)
    story.ended(read, at=NOW)
    assert [each.job_id for each in story.acts(CancelJob, NOW + 1)] == [18]


def test_the_end_of_an_earlier_attempt_is_not_the_answer_to_a_submission_that_was_lost() -> None:
    """The submission may still take effect, so it is not repeated yet (V1)."""
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.UNKNOWN, at=NOW + 1)
    story.polls({16: "PENDING"}, at=NOW + 2)
    answered(story, job_of(TRAIN, 16, "CANCELLED"), NOW + 2)
    for second in range(3, 12):
        story.polls({16: "CANCELLED"}, at=NOW + second)
        assert not [each for each in story.decides(NOW + second) if isinstance(each, AllocateNow | SubmitJob)]


@pytest.mark.parametrize(("memory", "tasks_per_node"), [(100, None), (0, 2)], ids=["counts memory", "does not"])
def test_where_a_grant_shows_that_slurm_does_not_count_memory_the_next_gang_says_how_many_pods_fit_on_a_node(
    memory: int, tasks_per_node: int | None
) -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17)
    story.reads(job_of(TRAIN, 17), at=NOW + 1, granted=grant(17, memory=memory))
    for bind in story.acts(BindPod, NOW + 1):
        story.ended(bind, at=NOW + 1)
    story.sees(*ring(4, memory=200_000))  # of 512,000 MiB
    [gang] = [each for each in story.decides(NOW + 2) if isinstance(each, AllocateNow | SubmitJob)]
    assert gang.spec.tasks_per_node == tasks_per_node


# --- what one read changes --------------------------------------------------------------------------------------------


KEY = key_of(TRAIN)


def record(job_id: int, key: str | None = KEY, *states: str, **fields: Any) -> Placeholder:
    given: dict[str, Any] = {"known_since": START} | fields
    return Placeholder(job_id, key, "alice", frozenset(states or ("RUNNING",)), **given)


def having(*jobs: Placeholder, is_bound: bool = False, **fields: Any) -> tuple[Story, Workload]:
    """The pod has or shows these jobs."""
    story = Story(checked=False)
    story.sees(TRAIN)
    workload = story.world.workloads[KEY]
    if is_bound:
        workload.put_on(TRAIN.uid, "x1")
    for each in jobs:
        story.world.placeholders[each.id] = each
        workload.jobs.add(each.id)
    for name, value in fields.items():
        setattr(workload, name, value)
    return story, workload


LOST: dict[str, Any] = {"denied": True, "absent_first": NOW - 60, "absent_last": NOW}


@pytest.mark.parametrize(
    ("renamed", "hint", "lost", "states", "on", "then"),
    [
        (17, 17, 17, "RUNNING", "x1", 18),
        (17, 17, 17, "RUNNING", "x2", 17),
        (17, 17, 17, "PENDING", "x1", 17),
        (None, 17, 17, "RUNNING", "x2", 18),
        (None, 17, 17, "COMPLETED", "x2", 17),
        (None, 17, None, "RUNNING", "x2", 17),
        (None, None, None, "RUNNING", "x1", None),
        (17, 16, 16, "RUNNING", "x2", 18),
        (None, 16, 15, "RUNNING", "x2", 16),
    ],
    ids=[
        "the job of their name holds the node of pods that name another",
        "it is on another node",
        "it waits",
        "it replaced the lost job",
        "it has ended",
        "the job that they name lives",
        "they name no job",
        "they name another job than the renamed one",
        "the pods name another job than the lost one",
    ],
)
def test_for_which_job_pods_run_after_a_job_of_their_name_was_read(
    renamed: int | None, hint: int | None, lost: int | None, states: str, on: str, then: int | None
) -> None:
    jobs = [record(each, **LOST) if each == lost else record(each) for each in {hint, 17} if each is not None]
    story, workload = having(*jobs, is_bound=True, renamed=renamed, hint=hint)
    if lost == 15:
        workload.lost_job = record(15, **LOST)
    nodes = "" if states == "PENDING" else on
    story.reads(job_of(TRAIN, 18, states, nodes=nodes, submitted=NOW), at=NOW + 1, granted=grant(18, on))
    assert workload.hint == then


@pytest.mark.parametrize(
    ("states", "nodes", "is_kept"),
    [
        ("RUNNING", "x1", True),
        ("RUNNING", "x2", False),
        ("COMPLETED", "x2", True),
        ("RUNNING", "", True),
        ("RUNNING", "x[", True),
    ],
)
def test_a_grant_is_forgotten_when_its_job_runs_on_other_nodes(states: str, nodes: str, is_kept: bool) -> None:
    """It was requeued and started again between two lists."""
    known = record(17, grant=grant(17))
    story, _ = having(known)
    story.reads(job_of(TRAIN, 17, states, nodes=nodes), at=NOW)
    assert (known.grant is not None) is is_kept


@pytest.mark.parametrize(
    ("states", "limit", "before"), [("RUNNING", 60, None), ("RUNNING", 30, 60), ("PENDING", 30, None)]
)
def test_a_time_limit_was_changed_if_the_job_held_nodes_with_another(
    states: str, limit: int, before: int | None
) -> None:
    known = record(17, job=job_of(TRAIN, 17, states, time_limit_min=60))
    story, _ = having(known)
    story.reads(job_of(TRAIN, 17, time_limit_min=limit), at=NOW)
    assert known.limit_before == before


@pytest.mark.parametrize(
    ("states", "reason", "starts", "kept"),
    [
        ("PENDING", "Priority", NOW + 600, 2),
        ("PENDING", "Priority", None, 1),
        ("PENDING", "JobHeldUser", NOW + 600, 0),
        ("RUNNING", "None", NOW - 1, 0),
        ("RUNNING", "None", None, 0),
        ("CANCELLED", "None", NOW + 600, 0),
    ],
)
def test_expected_starts_are_kept_while_the_job_waits_for_nodes(
    states: str, reason: str, starts: float | None, kept: int
) -> None:
    known = record(17, KEY, "PENDING")
    story, _ = having(known)
    story.reads(job_of(TRAIN, 17, "PENDING", reason="Priority", starts=NOW + 3000), at=NOW)
    assert len(known.estimates) == 1
    story.reads(job_of(TRAIN, 17, states, reason=reason, starts=starts), at=NOW + 100)
    assert len(known.estimates) == kept


def test_only_a_few_expected_starts_of_one_job_are_kept() -> None:
    known = record(17, KEY, "PENDING")
    story, _ = having(known)
    for number in range(8):
        at = NOW + 100 * number
        story.reads(job_of(TRAIN, 17, "PENDING", reason="Priority", starts=NOW + 9000 - 1000 * number), at=at)
    assert len(known.estimates) == 4


@pytest.mark.parametrize("states", ["RUNNING", "CANCELLED"])
def test_only_a_job_that_lives_ends_the_search_for_a_job(states: str) -> None:
    search = JobSearch(NOW, NOW, "train", "alice")
    story, workload = having(job_search=search, reacquired=(16, "no"))
    story.reads(job_of(TRAIN, 17, states), at=NOW + 1)
    assert (workload.job_search, workload.reacquired) == ((None, None) if states == "RUNNING" else (search, (16, "no")))


@pytest.mark.parametrize(("began", "counts"), [(START, False), (START + 0.1, True)])
def test_a_read_that_was_sent_before_the_job_was_known_is_of_a_former_job(began: float, counts: bool) -> None:
    known = record(17)
    story, _ = having(known)
    story.sees(JobRead(17, began, NOW, job_of(TRAIN, 17)))
    assert (known.job is not None) is counts


@pytest.mark.parametrize("states", ["RUNNING", "CANCELLED"])
def test_the_record_of_a_component_whose_id_another_job_had_is_read_again_once(states: str) -> None:
    story, _ = having(record(17), record(18, "other"), record(19, "other", denied=True))
    parts = tuple(replace(job_of(TRAIN, part), het_id=17, het_offset=part - 17) for part in (18, 19))
    story.reads(replace(job_of(TRAIN, 17, states), parts=parts), at=NOW)
    assert 18 in story.world.first_listed_at
    assert 19 not in story.world.first_listed_at


@pytest.mark.parametrize("is_other_bridges", [True, False])
def test_whose_job_another_schedulers_pod_names_is_noted_of_that_pod_alone(is_other_bridges: bool) -> None:
    story, workload = having()
    story.world.hinted_by_others = {17: {KEY: None}}
    story.sees(JobRead(16, NOW, NOW, Job(16, "interactive", "carol", frozenset({"RUNNING"}))))
    assert workload.job_of_other_bridge is None
    name = job_of(TRAIN, 17).name if is_other_bridges else "interactive"
    story.sees(JobRead(17, NOW, NOW, Job(17, name, "carol", frozenset({"RUNNING"}))))
    assert workload.job_of_other_bridge is is_other_bridges
    assert story.world.hinted_by_others == {}


def test_a_job_without_a_known_pod_is_as_old_as_its_submission() -> None:
    story = Story()
    story.reads(job_of(TRAIN, 17, submitted=START - 500), at=NOW)
    assert story.world.workloads[KEY].created == START - 500


@pytest.mark.parametrize(("after_s", "is_searched"), [(-0.1, False), (0.0, True)])
def test_an_unknown_twin_is_searched_again_after_a_time(after_s: float, is_searched: bool) -> None:
    story, workload = having()
    waits = job_of(TRAIN, 17, "PENDING", dependency=SINGLETON)
    at = NOW + story.world.config.tuning.refused_retry_s + after_s
    workload.twin_searched_at = NOW
    story.reads(waits, at=at)
    assert workload.twin_searched_at == (at if is_searched else NOW)


# --- the record of a job whose id had another job ------------------------------------------------------------------------


def test_what_was_submitted_under_an_id_does_not_count_for_another_job_of_the_same_user() -> None:
    """slurmctld lost its state, and gave the id of a job that was never read to the job of another pod."""
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    other = pod("other")
    story.sees(other)
    story.reads(job_of(other, 17, "PENDING"), at=NOW + 5)
    known = story.world.placeholders[17]
    assert (known.key, known.spec, known.asked_at) == (key_of(other), None, None)


def test_a_job_that_its_user_renamed_and_named_back_is_the_job_that_this_process_submitted() -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    [bind] = story.acts(BindPod, NOW)
    story.ended(bind, at=NOW)
    story.sees(replace(TRAIN, node="x1", annotations={**TRAIN.annotations, **bind.annotations}))
    story.polls({17: "RUNNING"}, at=NOW + 1)
    shown = job_of(TRAIN, 17, submitted=NOW)
    story.reads(replace(shown, name="renamed"), at=NOW + 2, granted=grant(17))
    assert not story.world.placeholders[17].proven
    story.reads(shown, at=NOW + 3, granted=grant(17))
    known = story.world.placeholders[17]
    assert (known.key, known.spec) == (key_of(TRAIN), asked.spec)


def test_what_slurm_chose_for_jobs_is_kept_once_for_all_jobs_of_an_account_and_qos() -> None:
    """A bridge has thousands of jobs, and each keeps it for as long as its pods run."""
    story, pods = Story(), [pod(f"p{number}") for number in range(3)]
    for number, what in enumerate(pods):
        story.queues(what, 17 + number, at=NOW)
        account = "".join(["team", "a" if number < 2 else "b"])  # each answer of Slurm has texts of its own
        story.reads(replace(job_of(what, 17 + number, "PENDING"), account=account, qos="normal"), at=NOW + 1)
    first, second, other = (story.world.placeholders[job_id].chosen_by_slurm for job_id in (17, 18, 19))
    assert first is second
    assert (first[names.ACCOUNT], other[names.ACCOUNT]) == ("teama", "teamb")
