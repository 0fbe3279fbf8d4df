"""Job ids that pods show: such an id keeps the bridge from ending a pod, and proves nothing (hinted_jobs.py, V6, V7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import Action, AllocateNow, CancelJob, DeletePod, FailByDeadline, Outcome, ReadJob
from scheduler.events import PodsListed, Scope
from scheduler.model.kubernetes import Condition, Pod
from scheduler.model.slurm import Job
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
