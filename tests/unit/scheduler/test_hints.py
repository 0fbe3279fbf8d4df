"""Job ids that pods show: such an id keeps the bridge from ending a pod, and proves nothing (hinted_jobs.py, V6, V7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import Action, AllocateNow, CancelJob, DeletePod, FailByDeadline, ObjectKind, Outcome, ReadJob
from scheduler.apply.hinted_jobs import drop_hint, follow_if_renamed, is_depended_on, read_renamed_again, take_hint
from scheduler.events import PodsListed, Scope
from scheduler.model.kubernetes import Condition, Pod, PodPhase
from scheduler.model.slurm import Job
from scheduler.state import quarantine
from scheduler.state.placeholder import Placeholder
from scheduler.state.pod_records import Edited
from scheduler.state.workload import Workload
from tests.builders import CLUSTER, CONFIG, OF_A_BIND, START, Story, grant, job_of, key_of, pod, without

NOW = START + 20
OLD: Any = {"created": START - 60}  # of an earlier process
TRAIN = pod("train", **OLD)
STRANGERS = Job(17, "interactive", "carol", frozenset({"RUNNING"}))
RENAMED = Job(17, "pretty", "alice", frozenset({"RUNNING"}), nodes="x1", submitted=START - 55)
ENDS = FailByDeadline | DeletePod


def bound_before(story: Story, what: Pod, job_id: int, **written: str) -> Pod:
    """The pod runs on x1 since before this process began, with all that a bind wrote."""
    shown = story.bound(what, job_id, started=START - 50)
    return replace(shown, annotations={**shown.annotations, **OF_A_BIND, names.JOB_ID: str(job_id), **written})


def reads(story: Story, at: float) -> list[int]:
    return [each.job_id for each in story.acts(ReadJob, at)]


def lives(story: Story, jobs: Mapping[int, Job], since: float, *, seconds: int = 40) -> list[Action]:
    """A poll a second; reads show these jobs, and nodes that are asked for again belong to other jobs.  What else is done."""
    done = list[Action]()
    for at in (since + second for second in range(seconds)):
        story.polls({job.id: " ".join(job.states) for job in jobs.values()}, at=at)
        for action in story.decides(at):
            if isinstance(action, ReadJob):
                job = jobs.get(action.job_id)
                runs = job is not None and "RUNNING" in job.states
                granted = grant(job.id, job.nodes or "x2") if job is not None and runs else None
                story.reads(job, job_id=action.job_id, at=at, granted=granted)
                story.ended(action, at=at)
                continue
            done.append(action)
            if isinstance(action, AllocateNow):
                story.ended(action, Outcome.REFUSED, at=at, number=2016)
            else:
                story.ended(action, at=at)
    return done


# --- which ids are read ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_own_job", [False, True])
def test_a_pod_that_shows_the_id_of_a_job_that_was_read_as_foreign_costs_no_read(has_own_job: bool) -> None:
    story = Story()
    story.polls({17: "RUNNING"}, at=NOW)
    story.reads(STRANGERS, at=NOW)
    young = pod("young")
    if has_own_job:
        shown = story.runs(young, 20, at=NOW)
        story.sees(replace(shown, annotations={**shown.annotations, names.JOB_ID: "17"}))
    else:
        story.sees(replace(young, node="x1", annotations={names.JOB_ID: "17"}))
    story.polls({17: "RUNNING", 20: "RUNNING"}, at=NOW + 1)
    assert 17 not in reads(story, NOW + 1)
    assert 17 not in story.world.placeholders


def test_after_a_restart_the_jobs_of_pods_with_the_trace_of_their_bind_are_not_read_at_once() -> None:
    """10,000 pods would cost 10,000 reads.  A pod with the trace of another workload was relabelled, so its job is read."""
    story = Story()
    pods = {number: pod(f"p{number}", **OLD) for number in range(1, 21)}
    traces = {job_id: {names.TRACEPARENT: names.traceparent(CLUSTER, key_of(each))} for job_id, each in pods.items()}
    traces[20] = {names.TRACEPARENT: names.traceparent(CLUSTER, key_of(TRAIN))}
    shown = tuple(bound_before(story, each, job_id, **traces[job_id]) for job_id, each in pods.items())
    story.sees(PodsListed(Scope.OURS, shown, START))
    story.polls(dict.fromkeys(pods, "RUNNING"), at=START + 0.1)
    assert reads(story, START + 0.1) == [20]


def test_the_job_that_a_waiting_pod_shows_is_read_before_the_pod_gets_a_second_one_however_many_jobs_are_unknown() -> (
    None
):
    """The watch showed the pod before the first list of jobs came."""
    story = Story(without(CONFIG, reads=1))
    story.world.polled = None
    story.sees(replace(TRAIN, scheduled=Condition(False, names.PENDING, "… Job 17, as of …")))
    story.polls(dict.fromkeys(range(1, 1000), "RUNNING") | {17: "PENDING"}, at=START + 0.1)
    assert reads(story, START + 0.1) == [17]
    story.reads(job_of(TRAIN, 17, "PENDING"), at=START + 0.2)
    assert not story.acts(AllocateNow, START + 10)


def test_running_pods_that_are_seen_one_by_one_and_show_a_missing_job_each_get_their_nodes_again() -> None:
    """Both are older than this process, so either may have been bound for the job."""
    story = Story()
    first, second = (bound_before(story, pod(name, **OLD), 17) for name in ("first", "second"))
    story.sees(first)
    done = lives(story, {}, NOW, seconds=1)
    story.sees(second)
    done += lives(story, {}, NOW + 1, seconds=20)
    assert {each.key for each in done if isinstance(each, AllocateNow)} == {key_of(first), key_of(second)}


def test_a_running_pod_follows_the_job_of_its_bind_although_its_condition_shows_an_earlier_job() -> None:
    """The process before was killed between the bind and the condition."""
    story = Story()
    shown = bound_before(story, TRAIN, 17)
    story.sees(replace(shown, scheduled=Condition(False, names.PENDING, "… Job 16, as of …")))
    jobs = {job_id: job_of(TRAIN, job_id, "CANCELLED", submitted=START - 55) for job_id in (16, 17)}
    ends = [each for each in lives(story, jobs, NOW, seconds=5) if isinstance(each, ENDS)]
    assert {each.reason for each in ends} == {"Slurm job 17 ended: CANCELLED"}


def ring_that_names_two_jobs(story: Story, **second: Any) -> None:
    """A pod of a gang runs and names job 16.  Before that, the second pod named job 17."""
    ring: Any = {"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": "2"}, **OLD}
    one, other = pod("w-0", **ring), pod("w-1", **ring)
    story.polls({16: "RUNNING", 17: "PENDING"}, at=START + 0.1)
    story.sees(replace(other, scheduled=Condition(False, names.PENDING, "… Job 17, as of …")))
    story.sees(bound_before(story, one, 16, **{names.SIZE: "2"}))
    if second:
        story.sees(replace(other, **second))


def test_the_job_that_a_waiting_pod_named_is_read_beside_the_job_of_the_running_pods() -> None:
    story = Story()
    ring_that_names_two_jobs(story)
    assert 17 in reads(story, NOW)


def test_a_job_that_has_ended_is_not_read_because_a_waiting_pod_named_it() -> None:
    story = Story()
    ring_that_names_two_jobs(story)
    story.polls({16: "RUNNING", 17: "CANCELLED"}, at=START + 1)
    assert 17 not in reads(story, NOW)


def test_a_job_that_a_pod_named_is_not_read_once_all_pods_of_its_gang_run() -> None:
    story = Story()
    ring_that_names_two_jobs(story, node="x1", phase="Running", annotations={names.JOB_ID: "16"})
    assert 17 not in reads(story, NOW)


# --- renamed jobs -----------------------------------------------------------------------------------------------------------


def test_the_end_of_a_renamed_job_ends_the_running_pods_of_a_gang_of_which_another_pod_waits() -> None:
    story = Story()
    ring: Any = {"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": "2"}, **OLD}
    runs, waits = pod("w-0", **ring), pod("w-1", **ring)
    story.sees(bound_before(story, runs, 17, **{names.SIZE: "2"}), waits)
    assert not [each for each in lives(story, {17: RENAMED}, NOW) if isinstance(each, ENDS)]
    ended = replace(RENAMED, states=frozenset({"TIMEOUT"}))
    ends = [each for each in lives(story, {17: ended}, NOW + 100) if isinstance(each, ENDS)]
    assert {each.name for each in ends} == {"w-0"}
    assert ends[0].reason == "Slurm job 17 ended: TIMEOUT"


def test_a_pod_that_names_a_renamed_job_does_not_follow_a_job_of_its_own_name_on_another_node() -> None:
    """That job is a second one: it is ended, and the pod runs on."""
    story = Story()
    twin = job_of(TRAIN, 18, submitted=START - 54, nodes="x2")
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=START + 1)
    story.sees(bound_before(story, TRAIN, 17))
    story.reads(twin, at=START + 2, granted=grant(18, "x2"))
    story.reads(RENAMED, at=START + 3)
    done = lives(story, {17: RENAMED, 18: twin}, NOW, seconds=5)
    assert {each.job_id for each in done if isinstance(each, CancelJob)} == {18}
    over = replace(twin, states=frozenset({"CANCELLED"}))
    assert not [each for each in lives(story, {17: RENAMED, 18: over}, NOW + 10) if isinstance(each, ENDS)]


# --- one hint, one read: the cases ------------------------------------------------------------------------------------


KEY = key_of(TRAIN)
SHOWS = replace(TRAIN, node="x1", started=START - 50, annotations={**OF_A_BIND, names.JOB_ID: "17"})


def record(job_id: int = 17, key: str | None = None, *states: str, **fields: Any) -> Placeholder:
    return Placeholder(job_id, key, "alice", frozenset(states or ("RUNNING",)), known_since=START, **fields)


def running(**fields: Any) -> tuple[Story, Workload]:
    """A pod of the first list that another process bound; it names no job yet."""
    story = Story(pods=(replace(SHOWS, annotations={}),))
    workload = story.world.workloads[KEY]
    for name, value in fields.items():
        setattr(workload, name, value)
    return story, workload


@pytest.mark.parametrize(
    ("job", "others", "trace", "is_read"),
    [
        (record(), True, None, True),
        (record(), False, None, False),
        (record(), False, KEY, False),
        (record(), False, key_of(pod("another")), True),
        (record(17, KEY), True, None, False),
        (record(17, None, "COMPLETED"), True, None, False),
        (record(17, KEY, "COMPLETED"), True, None, False),
    ],
    ids=["two pods name it", "one pod", "bound for it", "bound for another", "proven", "over", "proven and over"],
)
def test_a_hinted_job_is_read_if_two_workloads_name_it_or_the_pod_was_bound_for_another_unless_enough_is_known(
    job: Placeholder, others: bool, trace: str | None, is_read: bool
) -> None:
    story, workload = running()
    story.world.placeholders[17] = replace(job, hinted_by={"other"} if others else set())
    traced = {names.TRACEPARENT: names.traceparent(CLUSTER, trace)} if trace else {}
    take_hint(story.world, workload, replace(SHOWS, annotations={**SHOWS.annotations, **traced}))
    assert (17 in story.world.first_listed_at) is is_read
    assert (workload.hint, workload.jobs) == (17, {17})


@pytest.mark.parametrize(("jobs", "is_taken"), [(set[int](), True), ({20}, False)])
def test_a_job_that_was_read_as_foreign_is_a_hint_only_if_the_own_job_of_the_pods_was_dropped(
    jobs: set[int], is_taken: bool
) -> None:
    """Quarantine drops the facts about a workload's job; then what its pods show is all that is left."""
    story, workload = running(bound_by_this_process=True, jobs=jobs)
    story.world.placeholders |= {job_id: record(job_id, KEY) for job_id in jobs}
    story.world.foreign.add(17)
    take_hint(story.world, workload, SHOWS)
    assert (17 in workload.jobs) is is_taken


@pytest.mark.parametrize(
    ("is_known", "finished", "is_taken"), [(True, True, True), (False, True, False), (False, False, True)]
)
def test_a_job_that_no_list_shows_is_a_hint_if_it_is_known_or_if_the_pod_runs(
    is_known: bool, finished: bool, is_taken: bool
) -> None:
    story, workload = running()
    if is_known:
        story.world.placeholders[17] = record(17, KEY)
    take_hint(story.world, workload, replace(SHOWS, phase=PodPhase.SUCCEEDED if finished else PodPhase.RUNNING))
    assert (17 in workload.jobs) is is_taken


@pytest.mark.parametrize(
    ("fields", "jobs", "hint"),
    [
        ({}, set[int](), 16),
        ({}, {20}, None),
        ({"node": "x1"}, set[int](), None),
        ({"node": "x1", "annotations": {names.JOB_ID: "17"}}, {20}, 17),
    ],
    ids=["a waiting pod", "a waiting pod with a job", "a bound pod that names no job", "a bound pod"],
)
def test_the_condition_of_a_pod_names_its_job_only_while_it_waits_and_has_no_job(
    fields: dict[str, Any], jobs: set[int], hint: int | None
) -> None:
    waits = replace(TRAIN, scheduled=Condition(False, names.PENDING, "… Job 16, as of …"))
    story, workload = running(jobs=jobs)
    story.world.polled = None
    story.world.placeholders |= {job_id: record(job_id, KEY) for job_id in jobs}
    take_hint(story.world, workload, replace(waits, **fields))
    assert workload.hint == hint
    if hint is not None:
        assert story.world.placeholders[hint].states == {"RUNNING" if fields else "PENDING"}


@pytest.mark.parametrize(
    ("right", "bound_before", "is_taken"),
    [
        ({names.JOB_ID: "16"}, True, False),
        ({names.JOB_ID: "16"}, False, True),
        ({names.RANK: "0"}, True, True),
        (None, True, True),
    ],
    ids=["the id was edited", "another process bound it", "the rank was edited", "nothing was edited"],
)
def test_an_id_that_another_client_wrote_over_the_id_of_the_bridges_bind_is_no_hint(
    right: dict[str, str | None] | None, bound_before: bool, is_taken: bool
) -> None:
    story, workload = running()
    workload.bound_by_bridge_before = {TRAIN.uid: None} if bound_before else {}
    workload.edited = {} if right is None else {TRAIN.uid: Edited(right)}
    take_hint(story.world, workload, SHOWS)
    assert (17 in workload.jobs) is is_taken


@pytest.mark.parametrize(
    ("what", "hint", "is_followed"),
    [
        ({}, 17, True),
        ({"strays": {TRAIN.uid: NOW}}, 17, False),
        ({"annotations": {names.JOB_ID: "17"}}, 17, False),
        ({"own": "RUNNING"}, 18, False),
        ({"own": "PENDING"}, 17, True),
        ({"own": "RUNNING", "on": "x2"}, 17, True),
        ({"own": "RUNNING", "hint": 16}, 16, True),
        ({"read": {"user": "bob", "submitted": NOW}}, 17, False),
    ],
    ids=[
        "it may be theirs",
        "another client bound the pod",
        "only its id is shown",
        "the own job holds their node",
        "the own job waits",
        "the own job is elsewhere",
        "the pods name another job",
        "another user's",
    ],
)
def test_pods_follow_a_job_of_another_name_unless_the_job_of_their_own_name_holds_their_node(
    what: dict[str, Any], hint: int, is_followed: bool
) -> None:
    story, workload = running(strays=what.get("strays", {}), hint=what.get("hint", 17), jobs={17})
    workload.put(replace(SHOWS, **({"annotations": what["annotations"]} if "annotations" in what else {})))
    job = story.world.placeholders[17] = record(17, None, hinted_by={KEY})
    if "own" in what:
        story.world.placeholders[18] = record(18, KEY, what["own"], grant=grant(18, what.get("on", "x1")))
        workload.jobs.add(18)
    assert follow_if_renamed(story.world, job, replace(RENAMED, **what.get("read", {}))) is is_followed
    assert (workload.hint, job.followed_by) == (hint, {KEY} if is_followed else set())
    assert not is_followed or KEY in job.hinted_by


@pytest.mark.parametrize(
    ("fields", "is_kept"),
    [
        ({"hint": 17, "renamed": 17}, True),
        ({"hint": 17, "renamed": None}, False),
        ({"hint": 16, "renamed": 17}, False),
        ({"hint": 17, "renamed": 17, "waits": True}, False),
    ],
    ids=["they run for it", "it was not read", "they name another job", "they wait"],
)
def test_a_job_that_is_not_the_pods_is_kept_only_if_they_run_and_name_it_and_may_have_renamed_it(
    fields: dict[str, Any], is_kept: bool
) -> None:
    waits = fields.pop("waits", False)
    story, workload = running(**fields, jobs={17})
    if waits:
        workload.put(TRAIN)
    job = story.world.placeholders[17] = record(17, None, hinted_by={KEY})
    drop_hint(story.world, job)
    assert (17 in workload.jobs, KEY in job.hinted_by, workload.hint == 17) == (False, is_kept, is_kept)


@pytest.mark.parametrize("is_dropped", [True, False])
def test_a_job_of_a_workload_whose_facts_were_dropped_may_have_pods_that_run(is_dropped: bool) -> None:
    story = Story(guarded=True)
    story.sees(TRAIN)
    job = record(17, KEY)
    if is_dropped:
        quarantine.put(story.world, ObjectKind.WORKLOAD, KEY, ValueError()).dropped = True
    assert is_depended_on(story.world, job) is is_dropped


@pytest.mark.parametrize(
    ("fields", "is_read"),
    [
        ({"hint": 17, "renamed": 17}, True),
        ({"hint": 17, "renamed": 17, "jobs": {17}}, False),
        ({"hint": 17, "renamed": None}, False),
        ({"hint": None, "renamed": None}, False),
    ],
)
def test_after_a_change_of_the_policy_a_renamed_job_that_no_workload_followed_is_read_again(
    fields: dict[str, Any], is_read: bool
) -> None:
    story, workload = running(**fields)
    if workload.jobs:
        story.world.placeholders[17] = record(17, None, hinted_by={KEY})
    read_renamed_again(story.world)
    assert (17 in story.world.first_listed_at) is is_read
    assert (17 in workload.jobs) is (is_read or bool(fields.get("jobs")))


@pytest.mark.parametrize("is_old", [True, False])
def test_a_listed_job_is_still_read_if_only_a_pod_that_came_since_the_start_names_it(is_old: bool) -> None:
    story = Story(pods=(pod("another"),))
    story.polls({17: "RUNNING"}, at=NOW)
    assert 17 in story.world.first_listed_at
    story.sees(SHOWS if is_old else replace(SHOWS, created=NOW))
    assert (17 in story.world.first_listed_at) is not is_old


def test_a_waiting_twin_does_not_take_the_place_of_a_renamed_job_that_slurm_lost() -> None:
    """The pods would count as pods of a job that was requeued.  The cancel of the twin does not reach Slurm."""
    story = Story()
    story.polls({17: "RUNNING", 18: "PENDING"}, at=START + 1)
    story.sees(bound_before(story, TRAIN, 17))
    story.reads(RENAMED, at=START + 2)
    story.reads(job_of(TRAIN, 18, "PENDING", submitted=START - 40), at=START + 3)
    why = set[str]()
    for at in (NOW + second for second in range(20)):
        story.polls({18: "PENDING"}, at=at)
        for action in story.decides(at):
            if isinstance(action, ReadJob):
                story.reads(None, job_id=action.job_id, at=at)
                story.ended(action, at=at)
            else:
                assert isinstance(action, CancelJob), action
                why.add(action.reason)
                story.ended(action, Outcome.UNREACHED, at=at)
    assert why == {"job 18 is a twin: their job 17 may have been renamed by its user"}


def test_a_pod_that_is_said_to_be_scheduled_names_no_job() -> None:
    story = Story()
    shown = Condition(True, names.PENDING, "Waiting in Slurm partition main (Priority). Job 17, as of 00:17 UTC.")
    story.polls({17: "PENDING"}, at=NOW)
    story.sees(pod("train", scheduled=shown, created=START - 100))
    assert story.world.placeholders == {}


def test_an_ended_job_that_only_a_deleted_pod_showed_is_forgotten_with_the_pod() -> None:
    story = Story()
    what = pod("claims", node="x1", phase=PodPhase.RUNNING, says={"job-id": "9000"}, created=START - 60)
    story.sees(what)
    story.polls({9000: "RUNNING"}, at=NOW)
    story.decides(NOW)
    story.polls({9000: "COMPLETED"}, at=NOW + 1)
    story.loses(what, NOW + 1)
    for at in range(1, 100):
        for each in story.decides(NOW + at):
            story.ended(each, Outcome.UNREACHED, at=NOW + at)
    assert story.world.workloads == {}
    assert story.world.placeholders == {}


def test_a_pod_that_names_the_job_of_another_pod_ends_with_its_own_job() -> None:
    story = Story()
    a, b = pod("a", created=START - 100), pod("b", created=START - 100)
    own, other = job_of(a, 17, submitted=START - 99), job_of(b, 18, submitted=START - 99)
    shown_a, shown_b = (story.bound(each, 18, started=START - 90) for each in (a, b))
    story.sees(shown_b)
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=START + 2)
    story.reads(own, at=START + 2, granted=grant(17))
    story.reads(other, at=START + 2, granted=grant(18))
    story.sees(shown_a)
    story.polls({17: "COMPLETED", 18: "RUNNING"}, at=NOW + 20)
    [read] = [each for each in story.acts(ReadJob, NOW + 20) if each.job_id == 17]
    story.reads(replace(own, states=frozenset({"COMPLETED"})), at=NOW + 20)
    story.ended(read, at=NOW + 20)
    assert [(each.name, each.reason) for each in story.acts(FailByDeadline, NOW + 21)] == [
        ("a", "Slurm job 17 ended: COMPLETED")
    ]
