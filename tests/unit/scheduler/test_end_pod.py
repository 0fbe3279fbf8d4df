"""How one pod is ended, and what is left to kubelet (S4, S4b)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import DeletePod, EvictPod, FailByDeadline, ReadJob, SetDeadline
from scheduler.model.kubernetes import Owner
from scheduler.rules.deadlines import lead_of, signal_s
from tests.builders import CONFIG, OWNER, Story, pod
from tests.unit.scheduler.test_running import ALONE, ENDS, TRAIN, looks_and_learns, runs, told, web


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
