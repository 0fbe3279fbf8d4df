"""How one pod is ended, and what is left to kubelet (S4, S4b)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import DeletePod, EvictPod, FailByDeadline, Outcome, ReadJob, SetDeadline, SetPodCondition
from scheduler.model.kubernetes import Owner
from scheduler.rules.deadlines import lead_of, signal_s
from tests.builders import CONFIG, OWNER, Story, pod
from tests.unit.scheduler.test_running import ALONE, ENDS, NOW, TRAIN, looks_and_learns, runs, told, web


@pytest.mark.parametrize(
    ("state", "deadline_s", "ends"),
    [("TIMEOUT", 3590, False), ("TIMEOUT", 3605, False), ("TIMEOUT", 7200, True), ("CANCELLED", 3590, True)],
    ids=["kubelet ends it", "its deadline is now", "the time of the job was shortened", "its job was cancelled"],
)
def test_a_pod_is_left_to_kubelet_if_its_job_reached_its_time_limit_and_the_pod_its_deadline(
    state: str, deadline_s: int, ends: bool
) -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(replace(shown, set_deadline_s=deadline_s))
    story.polls({17: state}, at=ENDS + 5)
    acts = looks_and_learns(story, shown, state, at=ENDS + 5)
    assert [type(each) for each in acts] == [FailByDeadline] * ends


def test_a_pod_without_a_controller_gets_a_deadline_also_if_its_containers_are_restarted_always() -> None:
    story = Story(ALONE)
    shown = runs(story, pod(restart_policy="Always"))
    acts = looks_and_learns(story, shown, at=ENDS - 110)
    assert [type(each) for each in acts if isinstance(each, SetDeadline | EvictPod)] == [SetDeadline]


def test_a_pod_that_was_evicted_is_deleted_at_once_when_its_job_ends() -> None:
    """The eviction may not have had an effect yet: nothing else deletes the pod in time."""
    story = Story(ALONE)
    shown = runs(story, web("web-1"))
    at = ENDS - 599
    [read] = story.acts(ReadJob, at)
    told(story, shown, at=at)
    story.ended(read, at=at)
    [evict] = story.acts(EvictPod, at)
    story.ended(evict, at=at)
    story.polls({17: "CANCELLED"}, at=at + 1)
    assert [type(each) for each in looks_and_learns(story, shown, "CANCELLED", at=at + 1)] == [DeletePod]


@pytest.mark.parametrize(
    ("outcome", "number"), [(Outcome.REFUSED, 422), (Outcome.UNKNOWN, 500)], ids=["policy", "webhook"]
)
def test_a_pod_that_kubernetes_does_not_let_end_with_its_job_says_so_and_why(outcome: Outcome, number: int) -> None:
    """A policy may refuse each deletion, or a webhook not answer.  The pod ran on without a job, and said nothing."""
    story = Story(ALONE)
    shown = runs(story, web("web-1"))
    at = NOW + 100
    story.polls({17: "CANCELLED"}, at=at)
    ends = [each for each in looks_and_learns(story, shown, "CANCELLED", at=at) if isinstance(each, DeletePod)]
    said: list[SetPodCondition] = []
    failures, failures_before = 0, []
    for second in range(200):
        for each in ends:
            failures += 1
            story.ended(each, outcome, at=at + second, number=number)
        acts = story.decides(at + second)
        ends = [each for each in acts if isinstance(each, DeletePod)]
        said += [each for each in acts if isinstance(each, SetPodCondition)]
        failures_before += [failures] * (len(said) - len(failures_before))
    assert failures_before == [3], "the first failures may be over in a moment"
    assert [each.warning for each in said] == [True]
    assert [each.message for each in said] == [
        "The pod is to end: Slurm job 17 ended: CANCELLED. But slurm-bridge cannot end it. "
        f"Slurm refused it (error {number}). "
        "slurm-bridge tries again every 60 s, or more often."
    ]
    [end] = [each for second in range(60) for each in story.acts(DeletePod, at + 200 + second)]
    story.ended(end, at=at + 260)
    assert not story.world.workloads[end.key].end_refused


@pytest.mark.parametrize(
    ("outcome", "number"),
    [(Outcome.UNREACHED, None), (Outcome.UNKNOWN, 408), (Outcome.REFUSED, 429), (Outcome.REFUSED, 409)],
)
def test_a_pod_whose_end_fails_for_another_reason_says_nothing(outcome: Outcome, number: int | None) -> None:
    story = Story(ALONE)
    shown = runs(story, web("web-1"))
    at = NOW + 100
    story.polls({17: "CANCELLED"}, at=at)
    acts, tries = looks_and_learns(story, shown, "CANCELLED", at=at), 0
    for second in range(200):
        assert not [each for each in acts if isinstance(each, SetPodCondition)]
        for end in acts:
            if isinstance(end, DeletePod):
                tries += 1
                story.ended(end, outcome, at=at + second, number=number)
        acts = story.decides(at + second)
    assert tries > 3


HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("grace_s", "length_s", "lead_s", "cut"),
    [
        (100, None, 110, ""),
        (100_000, None, CONFIG.tuning.end_lead_max_s, "more than the admin allows (tuning: end_lead_max_s)"),
        (100_000, 100 * HOUR_S, CONFIG.tuning.end_lead_max_s, "more than the admin allows (tuning: end_lead_max_s)"),
        (
            100_000,
            2 * CONFIG.tuning.end_lead_max_s,
            CONFIG.tuning.end_lead_max_s,
            "more than the admin allows (tuning: end_lead_max_s)",
        ),
        (2000, HOUR_S, HOUR_S / 2, "more than half of the job's time"),
        (1800, HOUR_S, HOUR_S / 2, ""),
    ],
)
def test_the_grace_of_a_pod_counts_up_to_half_of_the_time_of_its_job_and_up_to_what_the_admin_allows(
    grace_s: int, length_s: float | None, lead_s: float, cut: str
) -> None:
    lead = lead_of(pod(grace_s=grace_s), (), length_s, CONFIG.tuning)
    assert (lead.seconds, lead.cut) == (lead_s, f"the pod asks for {grace_s} s, which is {cut}" if cut else "")


def test_a_signal_of_the_pod_that_cannot_be_read_is_not_replaced_by_that_of_its_owner() -> None:
    owner = Owner(OWNER, annotations={names.PREFIX + names.SIGNAL: "B:TERM@300"})
    assert signal_s(pod(says={"signal": "soon"}), (owner,)) == 0
    assert signal_s(pod(), (owner,)) == 300
