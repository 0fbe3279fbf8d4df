"""Decisions as values, and what the driver makes of them: limits, token buckets, statuses that are news, wake-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from scheduler import actions as act
from scheduler import names
from scheduler.decide import RULES
from scheduler.events import Planned
from scheduler.model.kubernetes import Pod
from scheduler.model.left_out import ALL_KINDS
from scheduler.model.slurm import JobSpec
from scheduler.policy.rules import Policy, Rule, Tenant
from scheduler.rules.decision import (
    NOTHING,
    Act,
    BindTogether,
    Decision,
    combine,
    in_turn,
    note,
    plan_action,
    wait_for,
    wake,
)
from scheduler.rules.driver import enter
from scheduler.rules.guard import visit_shared
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import status, statuses
from scheduler.state.phase import Phase
from scheduler.state.workload import Workload
from tests.builders import CONFIG, START, Story, job_of, key_of, pod, without

NOW = START + 20
TRAIN = pod("train")


def visit(story: Story, what: Pod = TRAIN, at: float = NOW) -> tuple[Workload, Pass]:
    return story.world.workloads[key_of(what)], Pass(story.world, at)


def waiting(**tuning: int) -> Story:
    story = Story(without(CONFIG, **tuning))
    story.sees(TRAIN)
    return story


def read(job_id: int) -> act.ReadJob:
    return act.ReadJob(job_id, "why?")


# --- values -----------------------------------------------------------------------------------------------------------


def test_decisions_add_up_in_order_and_wake_at_the_earliest_time() -> None:
    both = plan_action(read(1)) + wake(9.0, "first") + plan_action(read(2)) + wake(7.0, "second") + wait_for("submits")
    assert [*both.actions] == [read(1), read(2)]
    assert (both.wake_at, both.limited_by) == (7.0, ("submits",))
    assert [*both.reasons_to_wait] == ["first"]


def test_nothing_adds_nothing() -> None:
    one = plan_action(read(1))
    assert combine((NOTHING, one, NOTHING)) is one
    assert combine(()) is NOTHING


def test_all_actions_and_statuses_of_a_decision_are_found_however_deep() -> None:
    said = status(TRAIN, names.PENDING, "It waits.")
    deep = plan_action(read(1)).followed_by(
        if_planned=in_turn((plan_action(read(2)), said)), if_not=plan_action(read(3))
    )
    assert [*deep.actions] == [read(1), read(2), read(3)]
    assert [each.message for each in deep.statuses] == ["It waits."]


# --- rules ------------------------------------------------------------------------------------------------------------


def in_gathering() -> Story:
    story = Story()
    story.sees(replace(TRAIN, labels={names.PREFIX + "gang": "ring"}, annotations={names.PREFIX + "gang-size": "2"}))
    return story


def in_queue() -> Story:
    story = Story()
    story.queues(TRAIN, 17, at=NOW - 5)
    story.reads(job_of(TRAIN, 17, "PENDING", reason="Priority"), at=NOW - 4)
    return story


def with_a_grant() -> Story:
    story = Story()
    story.queues(TRAIN, 17, at=NOW - 5)
    story.polls({17: "RUNNING"}, at=NOW - 4)
    return story


def running() -> Story:
    story = Story()
    story.runs(TRAIN, 17, at=NOW - 5)
    story.polls({17: "RUNNING SUSPENDED"}, at=NOW - 4)
    return story


def orphaned() -> Story:
    story = running()
    story.polls({17: "CANCELLED"}, at=NOW - 3)
    story.reads(job_of(TRAIN, 17, "CANCELLED"), at=NOW - 2)
    return story


def done() -> Story:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW - 5)
    story.loses(shown, NOW - 1)
    return story


@pytest.mark.parametrize(
    ("phase", "story"),
    [
        (Phase.GATHERING, in_gathering),
        (Phase.UNSUBMITTED, waiting),
        (Phase.QUEUED, in_queue),
        (Phase.GRANTED, with_a_grant),
        (Phase.BOUND, running),
        (Phase.ORPHANED, orphaned),
        (Phase.DONE, done),
    ],
)
def test_a_rule_plans_nothing_itself(phase: Phase, story: Callable[[], Story]) -> None:
    known = story()
    [workload] = known.world.workloads.values()
    assert known.world.phase_of[workload.key] is phase
    this_pass = Pass(known.world, NOW)
    empty = this_pass.plan()
    decision = RULES[phase](workload, this_pass)
    assert decision != NOTHING
    assert this_pass.plan() == empty
    assert not any(this_pass.used.values())
    assert not this_pass.reading
    enter(decision, workload, this_pass)
    assert this_pass.plan() != empty


# --- the driver -------------------------------------------------------------------------------------------------------


def test_a_full_limit_class_makes_the_workload_wait_for_its_turn() -> None:
    workload, this_pass = visit(waiting(reads=1))
    assert enter(plan_action(read(1)) + plan_action(read(2)), workload, this_pass)
    assert this_pass.actions == [read(1)]
    assert (this_pass.parked, this_pass.wake) == ({"reads": [workload.key]}, {})


def test_an_empty_token_bucket_makes_the_workload_wait_for_its_turn() -> None:
    workload, this_pass = visit(waiting())
    while this_pass.take_token("missing"):
        pass
    assert not enter(plan_action(read(1), "missing"), workload, this_pass)
    assert this_pass.parked == {"missing": [workload.key]}


def test_an_optional_action_waits_for_nothing() -> None:
    workload, this_pass = visit(waiting())
    while this_pass.take_token("missing"):
        pass
    enter(plan_action(read(1), "missing", is_optional=True), workload, this_pass)
    assert (this_pass.actions, this_pass.parked) == ([], {})


def test_decisions_in_turn_end_at_the_first_empty_token_bucket() -> None:
    workload, this_pass = visit(waiting())
    while this_pass.take_token("missing"):
        pass
    enter(
        in_turn(
            (plan_action(read(1)) + wake(90.0), plan_action(read(2), "missing") + wake(80.0), plan_action(read(3)))
        ),
        workload,
        this_pass,
    )
    assert this_pass.actions == [read(1)]
    assert this_pass.wake == {workload.key: 90.0}


SAID = status(TRAIN, names.PENDING, "It waits.")


@pytest.mark.parametrize(
    ("first", "goes_on"),
    [
        (SAID, True),
        (plan_action(read(1)), True),
        (in_turn((plan_action(read(2)),)), True),
        (plan_action(read(2), "missing") + plan_action(read(3)), False),
        (in_turn((plan_action(read(2), "missing"),)), False),
    ],
    ids=["a status", "a read in flight", "others in turn", "two of which one has no token", "others without a token"],
)
def test_a_decision_in_turn_is_followed_by_the_next_unless_an_action_has_no_token(
    first: Decision, goes_on: bool
) -> None:
    workload, this_pass = visit(waiting())
    while this_pass.take_token("missing"):
        pass
    enter(plan_action(read(1)), workload, this_pass)
    enter(in_turn((first, plan_action(read(9)))), workload, this_pass)
    assert (read(9) in this_pass.actions) is goes_on


def test_a_begin_time_that_has_come_is_noted_although_that_of_another_job_has_not() -> None:
    workload, this_pass = visit(waiting())
    enter(note(begin_is_due=True) + note(), workload, this_pass)
    assert this_pass.begin_is_due


def test_what_is_being_read_is_not_read_twice() -> None:
    workload, this_pass = visit(waiting())
    assert enter(plan_action(read(1)), workload, this_pass)
    assert not enter(plan_action(read(1), "missing"), workload, this_pass)
    assert this_pass.actions == [read(1)]
    assert not this_pass.tokens_taken, "and costs no token"


def test_what_follows_depends_on_whether_an_action_came_into_the_plan() -> None:
    workload, this_pass = visit(waiting())
    first = plan_action(read(1)).followed_by(if_planned=plan_action(read(2)), if_not=plan_action(read(3)))
    enter(first, workload, this_pass)
    enter(first, workload, this_pass)
    assert this_pass.actions == [read(1), read(2), read(3)]


def test_a_status_that_the_pod_shows_already_is_no_action() -> None:
    story = waiting()
    workload, this_pass = visit(story)
    said = status(TRAIN, names.PENDING, "It waits.")
    assert enter(said, workload, this_pass)
    story.world.apply(Planned(this_pass.plan(), NOW))
    workload, this_pass = visit(story, at=NOW + 60)
    assert not enter(said, workload, this_pass)
    assert this_pass.wake, "it is renewed later"


def test_statuses_beyond_the_limit_are_written_later() -> None:
    story = waiting(pod_conditions=1)
    other = pod("other")
    workload, this_pass = visit(story)
    enter(statuses((TRAIN, other), names.PENDING, "It waits."), workload, this_pass)
    assert len(this_pass.actions) == 1
    assert this_pass.parked == {"pod_conditions": [workload.key]}


def test_the_workload_is_forgotten_and_its_node_left_out_by_the_driver() -> None:
    workload, this_pass = visit(waiting())
    enter(note(exclude="x1", is_forgotten=True, written_off="u"), workload, this_pass)
    plan = this_pass.plan()
    assert plan.excluded == {workload.key: "x1"}
    assert plan.forgotten == (workload.key,)
    assert plan.written_off == ((workload.key, "u"),)


def test_binds_that_go_together_are_actions_and_each_part_in_turn_has_its_reason_to_wait() -> None:
    bind = act.BindPod(key_of(TRAIN), TRAIN.uid, "hpc", "train", "x1", 17, {}, "why")
    assert [*Decision((BindTogether((bind,)),)).actions] == [bind]
    assert [*in_turn((plan_action(read(1)), wake(9.0, "first"))).reasons_to_wait] == ["first"]


def test_an_optional_read_is_left_out_if_other_reads_take_all_the_room() -> None:
    story = waiting(reads=1)
    workload, this_pass = visit(story)
    enter(plan_action(read(1)) + plan_action(read(2), is_optional=True), workload, this_pass)
    plan = this_pass.plan()
    assert (plan.actions, plan.parked) == ((read(1),), {})


def test_what_follows_an_optional_read_for_which_there_is_no_room_has_its_turn() -> None:
    workload, this_pass = visit(waiting(reads=1))
    enter(plan_action(read(1)), workload, this_pass)
    enter(in_turn((plan_action(read(2), is_optional=True), wake(90.0))), workload, this_pass)
    assert (this_pass.parked, this_pass.wake) == ({}, {workload.key: 90.0})


def test_a_workload_that_has_a_job_takes_no_second_place_among_the_jobs_of_its_rule() -> None:
    """It asks for the nodes of its lost job again."""
    story = Story(replace(CONFIG, policy=Policy((Rule(("hpc",), Tenant("alice", max_jobs=2)),))))
    story.runs(TRAIN, 17, at=NOW - 5)
    workload, this_pass = visit(story)
    quota = story.world.quotas.quota(workload)
    assert quota is not None
    enter(note(is_charged=True), workload, this_pass)
    assert this_pass.free(quota) == 1


@pytest.mark.parametrize(("no_room_for", "computed"), [("reads", [1, 2]), ("missing", [1])])
def test_periodic_work_ends_at_the_first_step_for_which_a_limit_has_no_room(
    no_room_for: str, computed: list[int]
) -> None:
    _, this_pass = visit(waiting(reads=1))
    while no_room_for == "missing" and this_pass.take_token("missing"):
        pass
    taken, found = this_pass.tokens_taken["missing"], list[int]()

    def reads(_: Pass) -> Iterator[Act]:
        for job_id in (1, 2, 3):
            found.append(job_id)
            yield Act(read(job_id), "missing")

    visit_shared("reads", [reads], this_pass)
    assert found == computed
    assert this_pass.actions == [read(job_id) for job_id in computed[:-1]]
    assert this_pass.tokens_taken["missing"] - taken == len(this_pass.actions), "no token is lost"


def test_a_plan_about_objects_that_are_gone_changes_nothing() -> None:
    """An error of the bridge's own may remove them while the plan is applied (X8)."""
    story = waiting()
    spec = JobSpec("job", "alice", 1, 1)
    plan = act.Plan(
        parked={"submits": ("gone",)},
        forgotten=("gone",),
        excluded={"gone": "x1"},
        left_out={"gone": {"x1": ALL_KINDS}},
        written_off=(("gone", "uid-gone"), (key_of(TRAIN), "uid-gone")),
        adopted=((99, spec),),
        settled=("gone",),
        retried=((act.ObjectKind.NODE, "gone"),),
    )
    story.sees(Planned(plan, NOW))
    world = story.world
    world.validate()
    assert (set(world.workloads), world.placeholders, world.crowded, world.quarantine) == ({key_of(TRAIN)}, {}, {}, {})
    assert (world.parked_in, world.workloads[key_of(TRAIN)].written_off) == ({}, frozenset())
