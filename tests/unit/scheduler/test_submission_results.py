"""What an answer to a submission leaves to the workload (apply/submission_results.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, Outcome, Plan, SubmitJob
from scheduler.apply.submission_results import lost_job_of
from scheduler.events import ActionEnded, Planned
from scheduler.model.kubernetes import Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import JobSpec
from scheduler.state.in_flight import JobSearch
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload
from tests.builders import CONFIG, START, Story, key_of, pod

NOW = START + 20
TRAIN = pod("train")
KEY = key_of(TRAIN)
SPEC = JobSpec("train", "alice", 1, 100)
FOR_NODES = replace(SPEC, required_nodes="x1")
UNANSWERED = {"reacquired": "it is not known whether Slurm granted them again", "searched": "job"}
MISSING: dict[str, Any] = {"denied": True, "absent_first": NOW - 60, "absent_last": NOW - 1}


def job(job_id: int, key: str | None = KEY, **fields: Any) -> Placeholder:
    return Placeholder(job_id, key, "alice", frozenset({"RUNNING"}), START, **fields)


def having(*jobs: Placeholder, pod: Pod = TRAIN, **fields: Any) -> tuple[Story, Workload]:
    """A workload that has or shows these jobs."""
    story = Story(checked=False)
    story.sees(pod)
    workload = story.world.workloads[KEY]
    for each in jobs:
        story.world.placeholders[each.id] = each
        workload.jobs.add(each.id)
        each.hinted_by.add(KEY)
    for name, value in fields.items():
        setattr(workload, name, value)
    return story, workload


def answered(
    story: Story, spec: JobSpec, outcome: Outcome, number: int | None = None, *, later: bool = False, **answer: Any
) -> None:
    asked = AllocateNow(KEY, spec, "why")
    story.sees(Planned(Plan((asked,)), NOW))
    refusal = None if number is None else Refusal(names.REFUSED, f"error {number}", number, later)
    story.sees(ActionEnded(asked, outcome, NOW, NOW + 1, refusal=refusal, **answer))


@pytest.mark.parametrize(
    ("spec", "outcome", "number", "later", "left"),
    [
        (FOR_NODES, Outcome.REFUSED, 401, False, {"refused": 401}),
        (FOR_NODES, Outcome.REFUSED, 1999, False, {"refused": 1999}),
        (FOR_NODES, Outcome.REFUSED, 2000, False, {"reacquired": "error 2000"}),
        (FOR_NODES, Outcome.REFUSED, 2016, False, {"reacquired": "error 2016"}),
        (FOR_NODES, Outcome.REFUSED, 2038, False, {"refused": 2038, "searched": "twin", "queues": True}),
        (FOR_NODES, Outcome.UNREACHED, 0, False, {}),
        (FOR_NODES, Outcome.UNKNOWN, 0, False, UNANSWERED),
        (SPEC, Outcome.REFUSED, 2013, False, {"queues": True}),
        (SPEC, Outcome.REFUSED, 2015, False, {"refused": 2015}),
        (SPEC, Outcome.REFUSED, 2038, False, {"searched": "twin", "queues": True}),
        (SPEC, Outcome.REFUSED, 2000, True, {"queues": True}),
        (SPEC, Outcome.REFUSED, 1999, True, {"refused": 1999}),
        (SPEC, Outcome.UNREACHED, 0, False, {}),
        (SPEC, Outcome.UNREACHED, None, False, {}),
        (SPEC, Outcome.UNKNOWN, 0, False, {"searched": "job"}),
    ],
)  # fmt: skip
def test_what_an_answer_without_a_job_leaves(
    spec: JobSpec, outcome: Outcome, number: int | None, later: bool, left: dict[str, Any]
) -> None:
    """For the nodes of a lost job: error numbers below 2000 are not of slurmctld, and say nothing about the nodes."""
    story, workload = having(job(17, **MISSING), hint=17)
    answered(story, spec, outcome, number, later=later)
    search = workload.job_search
    found = {
        "refused": workload.refused.number if workload.refused is not None else None,
        "reacquired": workload.reacquired[1] if workload.reacquired is not None else None,
        "searched": ("twin" if search.twin else "job") if search is not None else None,
        "queues": workload.immediate_refused or None,
    }
    assert {key: value for key, value in found.items() if value is not None} == left


def test_a_refusal_for_the_nodes_of_a_lost_job_may_hide_a_twin_if_a_job_that_pods_show_was_not_read() -> None:
    """Slurm checks limits first, and the twin counts for the limits."""
    story, workload = having(job(17, **MISSING), job(20, None), hint=17)
    answered(story, FOR_NODES, Outcome.REFUSED, 2016)
    assert workload.job_search == JobSearch(NOW, NOW + 1, "train", "alice", twin=True)
    assert 20 in story.world.first_listed_at


@pytest.mark.parametrize(
    ("created", "unread", "hinted", "searches"),
    [
        (START - 60, True, False, True),
        (START - 60, False, True, True),
        (START - 60, False, False, False),
        (START + 1, True, True, False),
    ],
    ids=["an unread job", "a job that only pods show", "all jobs are known", "a new pod has no job of before"],
)
def test_a_refusal_may_hide_a_twin_that_a_previous_process_submitted(
    created: float, unread: bool, hinted: bool, searches: bool
) -> None:
    story, workload = having(*[job(20, None)] * hinted, pod=replace(TRAIN, created=created))
    if unread:
        story.polls({30: "RUNNING"}, at=NOW - 1)
    answered(story, SPEC, Outcome.REFUSED, 2015)
    assert (workload.job_search is not None) is searches


def test_a_name_that_slurm_does_not_know_is_no_defect_when_the_pods_are_gone() -> None:
    story, workload = having()
    asked = SubmitJob(KEY, SPEC, "why")
    story.sees(Planned(Plan((asked,)), NOW))
    story.loses(TRAIN, NOW)
    refusal = Refusal(names.REFUSED, "Invalid account.", 2045)
    story.sees(ActionEnded(asked, Outcome.REFUSED, NOW, NOW + 1, refusal=refusal))
    assert workload.refused == refusal


def test_only_the_lost_jobs_of_the_workload_are_forgotten_when_it_gets_a_new_job() -> None:
    story, workload = having(job(15, None, **MISSING), job(16, **MISSING), job(17))
    answered(story, SPEC, Outcome.DONE, job_id=18)
    assert workload.jobs == {15, 17, 18}


@pytest.mark.parametrize(
    ("jobs", "hint", "found"),
    [
        ((job(16), job(17), job(18)), 17, 17),
        ((job(16), job(17), job(18)), 99, 18),
        ((job(16), job(18, "other")), 18, 16),
        ((job(16), job(18, None)), 18, 18),
        ((job(18, "other"),), 18, None),
        ((), None, None),
    ],
)
def test_the_job_that_a_submission_replaces_is_the_one_that_the_pods_name_or_the_last(
    jobs: tuple[Placeholder, ...], hint: int | None, found: int | None
) -> None:
    story, workload = having(*(replace(each, hinted_by=set()) for each in jobs), hint=hint)
    lost = lost_job_of(story.world, workload)
    assert (lost.id if lost is not None else None) == found


@pytest.mark.parametrize(("since_s", "may"), [(0.0, False), (0.1, True)])
def test_nodes_of_a_lost_job_that_are_out_of_service_may_come_back_for_a_time(since_s: float, may: bool) -> None:
    """The time counts from the loss of that job, and not of another job of the workload."""
    retake_s = CONFIG.tuning.retake_s
    lost = job(17, denied=True, absent_first=NOW + 1 - retake_s + since_s, absent_last=NOW)
    story, workload = having(job(16, absent_first=NOW, absent_last=NOW), lost, hint=17)
    answered(story, FOR_NODES, Outcome.REFUSED, 2068)
    assert (workload.reacquired is None) is may
