"""A bind or an end whose answer was lost is announced when the pod itself proves that it happened, and once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import (
    AllocateNow,
    BindPod,
    DeletePod,
    EvictPod,
    FailByDeadline,
    Outcome,
    ReadJob,
    SetPodCondition,
)
from scheduler.model.kubernetes import Condition, Pod, PodPhase
from scheduler.model.refusal import Refusal
from scheduler.state.confirmation import event_of, has_event, observe, observe_deletion
from scheduler.state.in_flight import InFlight
from scheduler.state.workload import Workload
from tests.builders import OWNER, START, Story, grant, job_of, pod

NOW = START + 20
WAITED = Condition(False, names.PENDING, "It waited.")  # as a previous process left it


def ends(story: Story, what: Pod) -> DeletePod | FailByDeadline:
    """The pod runs, its job is cancelled, and the end of the pod is planned."""
    story.world.owners["hpc", OWNER.uid] = None
    shown = story.runs(what, 17, at=NOW)
    story.polls({17: "CANCELLED"}, at=NOW + 1)
    [read] = story.acts(ReadJob, NOW + 1)
    story.reads(job_of(shown, 17, "CANCELLED"), at=NOW + 1)
    story.ended(read, at=NOW + 1)
    [end] = [each for each in story.decides(NOW + 1) if isinstance(each, DeletePod | FailByDeadline)]
    return end


def granted(story: Story, what: Pod) -> BindPod:
    """Slurm grants node x1 at once, and the bind is planned."""
    story.sees(what)
    [asked] = story.decides(NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    [bind] = story.acts(BindPod, NOW)
    return bind


def said(story: Story, at: float, event: str) -> list[str]:
    return [each.message for each in story.acts(SetPodCondition, at) if each.event == event]


def test_an_eviction_whose_answer_was_lost_is_announced_when_the_pod_is_seen_to_be_deleted() -> None:
    story = Story()
    end = ends(story, pod("train", owner=OWNER))
    story.ended(end, Outcome.UNKNOWN, at=NOW + 11)
    assert said(story, NOW + 11, names.ENDED) == []
    shown = story.bound(pod("train", owner=OWNER), 17)
    story.sees(replace(shown, deleting_at=NOW + 35))
    assert said(story, NOW + 12, names.ENDED) == ["Slurm job 17 ended: CANCELLED"]
    story.sees(replace(shown, deleting_at=NOW + 35, phase=PodPhase.FAILED))
    assert said(story, NOW + 13, names.ENDED) == [], "once"


def test_an_eviction_is_announced_though_the_pod_is_gone_before_the_answer_is_lost() -> None:
    story = Story()
    what = pod("train", owner=OWNER)
    end = ends(story, what)
    story.loses(replace(story.bound(what, 17), deleting_at=NOW + 35, phase=PodPhase.FAILED), NOW + 2)
    assert story.acts(SetPodCondition, NOW + 2) == [], "the answer may still come, and announces it"
    story.ended(end, Outcome.UNKNOWN, at=NOW + 11)
    [report] = story.acts(SetPodCondition, NOW + 11)
    assert (report.event, report.message) == (names.ENDED, "Slurm job 17 ended: CANCELLED")
    story.ended(report, at=NOW + 11)
    story.decides(NOW + 12)
    assert story.world.workloads == {}, "nothing is kept of it"


def test_an_end_by_deadline_whose_answer_was_lost_is_announced_when_kubelet_got_it() -> None:
    story = Story()
    end = ends(story, pod("train"))
    assert isinstance(end, FailByDeadline)
    story.ended(end, Outcome.UNKNOWN, at=NOW + 11)
    shown = story.bound(pod("train"), 17)
    story.sees(replace(shown, labels={"edited": "meanwhile"}))
    assert said(story, NOW + 11, names.ENDED) == []
    story.sees(replace(shown, set_deadline_s=1))
    assert said(story, NOW + 12, names.ENDED) == ["Slurm job 17 ended: CANCELLED"]


def test_an_end_that_is_repeated_and_confirmed_is_announced_by_its_answer_alone() -> None:
    story = Story()
    what = pod("train", owner=OWNER)
    end = ends(story, what)
    story.ended(end, Outcome.UNKNOWN, at=NOW + 11)
    [again] = story.acts(DeletePod, NOW + 30)
    story.sees(replace(story.bound(what, 17), deleting_at=NOW + 60))
    assert said(story, NOW + 30, names.ENDED) == [], "an answer is on its way"
    story.ended(again, at=NOW + 31)
    assert said(story, NOW + 31, names.ENDED) == []


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.UNREACHED])
def test_an_end_that_did_not_happen_is_not_announced_though_another_client_deletes_the_pod(outcome: Outcome) -> None:
    story = Story()
    what = pod("train", owner=OWNER)
    story.ended(ends(story, what), outcome, at=NOW + 2)
    story.sees(replace(story.bound(what, 17), deleting_at=NOW + 60))
    assert said(story, NOW + 30, names.ENDED) == []


@pytest.mark.parametrize(("on", "announced"), [("x1", ["Bound to x1 by Slurm job 17."]), ("x2", [])])
def test_a_bind_whose_answer_was_lost_is_announced_when_the_pod_is_seen_there(on: str, announced: list[str]) -> None:
    story = Story()
    what = pod("train", scheduled=WAITED)
    bind = granted(story, what)
    story.ended(bind, Outcome.UNKNOWN, at=NOW + 10)
    assert said(story, NOW + 10, names.SCHEDULED) == []
    story.sees(story.bound(what, 17, on))
    assert said(story, NOW + 11, names.SCHEDULED) == announced


def test_the_bind_of_a_pod_that_never_showed_a_wait_has_no_event() -> None:
    """O1."""
    story = Story()
    what = pod("train")
    bind = granted(story, what)
    assert not has_event(bind)
    story.ended(bind, Outcome.UNKNOWN, at=NOW + 10)
    story.sees(story.bound(what, 17))
    assert said(story, NOW + 11, names.SCHEDULED) == []


def test_the_bind_of_a_pod_on_which_this_process_showed_a_wait_has_an_event() -> None:
    """O1."""
    story = Story()
    what = pod("train")
    story.sees(what)
    [asked] = story.decides(NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, refusal=Refusal(names.REFUSED, "Slurm refused it: no such account."))
    assert said(story, NOW + 1, names.REFUSED) != []
    [asked] = story.acts(AllocateNow, NOW + 400)
    story.ended(asked, at=NOW + 400, job_id=17, grant=grant(17))
    [bind] = story.acts(BindPod, NOW + 400)
    assert event_of(bind) == (names.SCHEDULED, "Bound to x1 by Slurm job 17.", False)


def test_an_eviction_through_the_api_is_announced_as_such() -> None:
    assert event_of(EvictPod("key", "uid", "hpc", "a", "the time limit is near")) == (
        names.ENDED,
        "the time limit is near",
        False,
    )


# --- what a pod proves ----------------------------------------------------------------------------------------------

STANDS = pod("train", node="x1", annotations={names.JOB_ID: "17"})
BIND = BindPod("key", STANDS.uid, "hpc", "train", "x1", 17, {}, "granted", message="Bound to x1 by Slurm job 17.")
DELETE = DeletePod("key", STANDS.uid, "hpc", "train", "job 17 ended")


def unanswered(action: BindPod | DeletePod) -> Workload:
    return Workload("key", unanswered={STANDS.uid: action})


@pytest.mark.parametrize(
    ("last", "proven"),
    [
        (STANDS, True),
        (replace(STANDS, node="x2"), False),
        (replace(STANDS, annotations={names.JOB_ID: "18"}), False),
        (replace(STANDS, node=""), False),
    ],
)
def test_a_bind_of_a_pod_that_is_gone_is_proven_by_its_last_node_and_job(last: Pod, proven: bool) -> None:
    workload = unanswered(BIND)
    observe_deletion(workload, last)
    assert workload.confirmed_writes == ({STANDS.uid: BIND} if proven else {})
    assert workload.unanswered == {}


def test_the_end_of_a_pod_that_is_gone_is_proven() -> None:
    workload = unanswered(DELETE)
    observe_deletion(workload, STANDS)
    assert workload.confirmed_writes == {STANDS.uid: DELETE}


def test_a_pod_that_is_gone_proves_nothing_that_was_not_sent() -> None:
    workload = Workload("key")
    observe_deletion(workload, STANDS)
    assert (workload.confirmed_writes, workload.unanswered) == ({}, {})


def test_an_end_in_flight_is_announced_by_its_answer_and_an_end_that_was_answered_was_announced() -> None:
    workload = Workload("key")
    observe_deletion(workload, STANDS, InFlight(DELETE, NOW))
    assert workload.unanswered == {STANDS.uid: DELETE}
    workload = Workload("key")
    observe_deletion(workload, STANDS, InFlight(DELETE, NOW, until=NOW + 30))
    assert (workload.confirmed_writes, workload.unanswered) == ({}, {})


def test_a_bind_in_flight_is_no_end() -> None:
    workload = Workload("key")
    observe_deletion(workload, STANDS, InFlight(BIND, NOW))
    assert (workload.confirmed_writes, workload.unanswered) == ({}, {})


def test_the_deadline_of_a_pod_does_not_prove_that_it_was_deleted() -> None:
    workload = unanswered(DELETE)
    observe(workload, replace(STANDS, set_deadline_s=1))
    assert workload.confirmed_writes == {}
    observe(workload, replace(STANDS, deleting_at=NOW))
    assert workload.confirmed_writes == {STANDS.uid: DELETE}
