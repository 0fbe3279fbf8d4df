"""A job is requeued and starts on other nodes between two polls: its pods hold nothing any more (S7, V2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import BindPod, CancelJob, FailByDeadline, ReadJob
from scheduler.model.slurm import Grant, Job
from tests.builders import START, Story, grant, pod
from tests.unit.scheduler.test_gangs import granted, member, ring
from tests.unit.scheduler.test_gangs import runs as gang_runs

NOW = START + 20
LATER = NOW + 100


def slurm_has_it_on(story: Story, nodes: str, held: Grant, since: float) -> list[float]:
    """When a cancel is planned.  Slurm answers each read: with the nodes always, with the grant where it is asked for."""
    known = story.world.placeholders[17]
    assert known.spec is not None
    job = Job(17, known.spec.name, "alice", frozenset({"RUNNING"}), partition="main", nodes=nodes)
    cancels: list[float] = []
    for at in map(float, range(int(since), int(since) + 120)):
        story.polls({17: "RUNNING"}, at=at)
        for action in story.decides(at + 0.5):
            assert not isinstance(action, FailByDeadline | BindPod), action.reason
            if isinstance(action, CancelJob):
                cancels.append(at)
            if isinstance(action, ReadJob):
                story.reads(job, at=at + 0.5, granted=held if action.grant else None)
            story.ended(action, at=at + 0.5)
        if cancels:
            break
    return cancels


def test_a_job_that_holds_other_nodes_than_that_of_its_pod_is_ended() -> None:
    story = Story()
    story.runs(pod(), 17, at=NOW)
    assert slurm_has_it_on(story, "x2", grant(17, "x2"), LATER)
    story.polls({17: "CANCELLED"}, at=LATER + 200)
    assert len(story.acts(FailByDeadline, LATER + 201)) == 1


def test_a_job_that_still_holds_its_nodes_is_not() -> None:
    story = Story()
    story.runs(pod(), 17, at=NOW)
    assert slurm_has_it_on(story, "x1", grant(17), LATER) == []


def test_a_hostlist_in_another_order_is_no_other_nodes() -> None:
    story = Story()
    gang_runs(story, ring(), ("x2", 2), ("x1", 2), at=NOW)
    assert slurm_has_it_on(story, "x[1-2]", granted(17, ("x2", 2), ("x1", 2)), LATER) == []


def test_nodes_that_cannot_be_read_prove_nothing() -> None:
    story = Story()
    story.runs(pod(), 17, at=NOW)
    assert slurm_has_it_on(story, "x[", grant(17), LATER) == []


@pytest.mark.parametrize("nodes", ["x1", "", "x["], ids=["its nodes", "no nodes", "nodes that cannot be read"])
def test_a_replacement_is_bound_at_once_after_a_read_that_shows_no_other_nodes(nodes: str) -> None:
    """The grant is known still, and has a free place."""
    story = Story()
    _, second = gang_runs(story, ring(2), ("x1", 2), at=NOW)
    known = story.world.placeholders[17].spec
    assert known is not None
    story.reads(Job(17, known.name, "alice", frozenset({"RUNNING"}), partition="main", nodes=nodes), at=LATER)
    story.loses(second, LATER)
    story.polls({17: "RUNNING"}, at=LATER + 1)
    story.sees(member(1, 2, uid="uid-new", created=LATER))
    assert [each.uid for each in story.acts(BindPod, LATER + 1)] == ["uid-new"]


def test_a_job_that_moved_is_noticed_while_another_pod_waits_in_vain_for_its_place_in_the_gang() -> None:
    story = Story()
    first, second = gang_runs(story, ring(2), ("x1", 2), at=NOW)
    story.loses(second, LATER)
    preset = {names.JOB_ID: "14"}  # which it may not say, so that it is not bound
    newcomer = member(1, 2, uid="uid-new", created=LATER)
    story.sees(replace(newcomer, annotations={**newcomer.annotations, **preset}))
    assert slurm_has_it_on(story, "x2", granted(17, ("x2", 2)), LATER + 1)
    story.polls({17: "CANCELLED"}, at=LATER + 200)
    assert [each.uid for each in story.acts(FailByDeadline, LATER + 201)] == [first.uid]
