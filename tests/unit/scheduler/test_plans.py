"""What a plan changes before any of its actions is performed (apply/plans.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from scheduler import actions as act
from scheduler import names
from scheduler.apply import plans
from scheduler.events import AccountingOutageBegan, Planned, PodSeen, Scope
from scheduler.model.kubernetes import Pod, PodTerm, Requirement
from scheduler.model.left_out import ALL_KINDS
from scheduler.model.slurm import JobSpec
from scheduler.state import quarantine
from scheduler.state.in_flight import JobSearch
from scheduler.state.left_out import LeftOut
from scheduler.state.workload import Workload
from scheduler.state.world import World
from tests.builders import CLUSTER, CONFIG, OWNER, START, Story, job_of, key_of, pod, without
from tests.defects import Defect
from tests.unit.scheduler.test_gangs import ring

NOW = START + 20
TRAIN = pod("train")
KEY = key_of(TRAIN)
SPEC = JobSpec("train", "alice", 1, 100)
APART = PodTerm((Requirement("app", "In", ("a",)),), frozenset({"hpc"}))


def planned(story: Story, *actions: act.Action, at: float = NOW, **fields: Any) -> None:
    story.sees(Planned(act.Plan(actions, **fields), at))


def train_of(story: Story) -> Workload:
    return story.world.workloads[KEY]


def says(event: str, *, message: str = "why", annotations: dict[str, str] | None = None) -> act.SetPodCondition:
    return act.SetPodCondition(KEY, TRAIN.uid, "hpc", "train", "", message, event=event, annotations=annotations)


# --- what the bridge has to say once ----------------------------------------------------------------------------------


ONCE = {
    names.CHANGE_IGNORED: "late_changes",
    names.REJECTED: "anomalies",
    names.GRANT_RELEASED: "release_messages",
    names.SCHEDULED: "confirmed_writes",
    names.ENDED: "confirmed_writes",
}
KEEP_THE_STATUS = (names.REJECTED, names.SCHEDULED, names.ENDED)


@pytest.mark.parametrize("event", [*ONCE, names.BYPASS, names.PENDING])
def test_an_event_that_is_planned_is_not_planned_again_and_other_events_are_still_due(event: str) -> None:
    """An event about another matter is no status of the pod, so the status that the pod shows is compared as before."""
    story = Story()
    story.sees(TRAIN)
    due: dict[str, Any] = {index: {TRAIN.uid: "why"} for index in ONCE.values()}
    for index, entries in due.items():
        setattr(train_of(story), index, entries)
    planned(story, says(event))
    left = {index for index in due if getattr(train_of(story), index)}
    assert left == set(due) - {ONCE.get(event)}
    assert (TRAIN.uid in story.world.bypassing) is (event == names.BYPASS)
    assert (TRAIN.uid in train_of(story).last_status) is (event not in KEEP_THE_STATUS)


# --- timers and turns -------------------------------------------------------------------------------------------------


def test_a_timer_is_set_once_for_its_earliest_time_and_is_over_at_that_time() -> None:
    story = Story()
    story.sees(TRAIN)
    planned(story, wake={KEY: float("inf")})
    assert story.world.wakes == {}
    for at in (NOW + 9, NOW + 5, NOW + 5, NOW + 7):
        planned(story, wake={KEY: at})
    assert (story.world.wakes, story.world.timers) == ({KEY: NOW + 5}, [(NOW + 5, KEY), (NOW + 9, KEY)])
    planned(story, at=NOW + 5)
    assert (story.world.wakes, story.world.timers) == ({}, [(NOW + 9, KEY)])


def test_timers_of_pods_that_are_gone_do_not_gather() -> None:
    """A pod is to be warned before the end of its job, in a week, and ends after minutes."""
    story = Story(checked=False)
    story.sees(TRAIN)
    planned(story, wake={KEY: NOW + 604_800})
    for number in range(2 * plans.MAX_STALE_TIMERS):
        short = pod(f"short-{number}")
        story.sees(short)
        planned(story, wake={key_of(short): NOW + 604_800})
        story.loses(short, NOW)
        planned(story, forgotten=(key_of(short),))
    assert story.world.wakes == {KEY: NOW + 604_800}
    assert (NOW + 604_800, KEY) in story.world.timers
    assert len(story.world.timers) <= plans.MAX_STALE_TIMERS + 2
    story.world.validate()


@pytest.mark.parametrize("is_done", [True, False])
def test_a_change_of_anti_affinity_is_over_when_all_that_it_concerns_was_visited(is_done: bool) -> None:
    story = Story()
    story.sees(PodSeen(Scope.OTHERS, replace(pod("other"), node="x1", anti_affinity=(APART,))))
    story.world.anti_affinity_namespaces.add("hpc")
    planned(story, anti_affinity_done=is_done)
    assert story.world.affinity_index.has_changes is not is_done
    assert story.world.anti_affinity_namespaces == (set() if is_done else {"hpc"})


# --- submissions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [(), (APART,)])
def test_only_an_immediate_allocation_of_pods_with_an_anti_affinity_keeps_others_waiting(
    terms: tuple[PodTerm, ...],
) -> None:
    story = Story()
    story.sees(replace(TRAIN, anti_affinity=terms))
    planned(story, act.AllocateNow(KEY, SPEC, "why"))
    assert story.world.anti_affinity_in_flight == ({KEY} if terms else set())


@pytest.mark.parametrize("parts", [(), (("uid-w-0",), ("uid-w-1",))])
def test_the_components_of_a_submission_are_known_by_their_pods(parts: tuple[tuple[str, ...], ...]) -> None:
    story = Story()
    story.sees(*ring(2))
    [key] = story.world.workloads
    planned(story, act.SubmitJob(key, SPEC, "why", components=parts))
    in_flight = story.world.workloads[key].in_flight
    assert in_flight is not None
    assert in_flight.components == ({"uid-w-0": 0, "uid-w-1": 1} if parts else {})
    assert in_flight.asked_for == {"uid-w-0", "uid-w-1"}
    assert in_flight.lost_job is None


@pytest.mark.parametrize("nodes", ["x1", ""])
def test_only_a_submission_for_the_nodes_of_a_lost_job_is_about_that_job(nodes: str) -> None:
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    planned(story, act.AllocateNow(KEY, replace(SPEC, required_nodes=nodes), "why"))
    in_flight = train_of(story).in_flight
    assert in_flight is not None
    assert in_flight.lost_job == (17 if nodes else None)


# --- searches and reads -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [act.FindJobs(KEY, "train", "why"), act.CancelJob(KEY, 17, "train", "alice", "why")])
def test_only_a_search_in_accounting_is_a_search_in_accounting(action: act.Action) -> None:
    story = Story()
    story.sees(TRAIN)
    search = train_of(story).job_search = JobSearch(NOW, NOW, "train", "alice")
    planned(story, action)
    assert search.asked_database is isinstance(action, act.FindJobs)


def test_a_read_is_noted_as_of_another_schedulers_pod_only_if_it_is() -> None:
    story = Story()
    story.sees(TRAIN)
    planned(story, act.ReadJob(16, "why"), act.ReadJob(17, "why", KEY))
    assert story.world.hinted_by_others == {}
    train_of(story).of_other_scheduler = True
    planned(story, act.ReadJob(18, "why", KEY))
    assert story.world.hinted_by_others == {18: {KEY: None}}


@pytest.mark.parametrize("key", ["", KEY])
def test_only_a_read_of_an_owner_that_was_read_before_takes_a_token(key: str) -> None:
    story = Story()
    story.sees(TRAIN)
    bucket = story.world.token_buckets["owners"]
    before = bucket.available(NOW)
    planned(story, act.ReadOwner("hpc", OWNER, "why", key))
    assert before - bucket.available(NOW) == (1 if key else 0)


@pytest.mark.parametrize("was_searched", [False, True])
@pytest.mark.parametrize("is_old", [False, True])
def test_before_no_job_is_asked_for_a_job_of_the_previous_process_is_searched_once(
    is_old: bool, was_searched: bool
) -> None:
    """A search that is under way goes on as it began."""
    story = Story(pods=(TRAIN,) if is_old else ())
    story.sees(TRAIN)
    before = JobSearch(NOW - 9, NOW - 9, "train", "alice") if was_searched else None
    train_of(story).job_search = before
    planned(story, not_asked_for=((KEY, 17),))
    name = names.job_name("hpc/train", CLUSTER, KEY)
    begun = JobSearch(NOW, NOW, name, "alice", twin=True) if is_old else None
    assert train_of(story).job_search == (before or begun)


# --- binds ------------------------------------------------------------------------------------------------------------


def binds(pods: Sequence[Pod], key: str) -> list[act.BindPod]:
    return [act.BindPod(key, each.uid, "hpc", each.name, "x1", 17, {}, "why") for each in pods]


def test_a_gang_is_bound_since_its_first_bind_was_planned_however_its_binds_are_spread() -> None:
    story = Story()
    pods = ring(3)
    story.sees(*pods)
    [key] = story.world.workloads
    gang = story.world.workloads[key]
    first, second, third = binds(pods, key)
    planned(story, first, second, at=NOW)
    assert gang.first_bound_at == NOW
    planned(story, third, at=NOW + 1)
    assert gang.first_bound_at == NOW, "two binds are in flight"
    for bind in (first, second, third):
        story.ended(bind, act.Outcome.REFUSED, at=NOW + 2, number=500)
    planned(story, second, at=NOW + 3)
    assert gang.first_bound_at == NOW + 3, "no bind took effect"
    story.ended(second, at=NOW + 4)
    planned(story, first, at=NOW + 5)
    assert gang.first_bound_at == NOW + 3
    assert gang.bound_by_this_process


# --- nodes and options ------------------------------------------------------------------------------------------------


def test_nodes_that_are_left_out_for_another_reason_do_not_end_the_count_of_unusable_grants() -> None:
    story = Story()
    story.sees(TRAIN)
    exclude_s = story.world.config.tuning.exclude_s
    planned(story, excluded={KEY: "x1"})
    planned(story, left_out={KEY: {"x2": ALL_KINDS}}, at=NOW + 1)
    assert train_of(story).left_out == LeftOut({"x2": ALL_KINDS}, NOW + 1 + exclude_s, 1, NOW + exclude_s)


@pytest.mark.parametrize("is_own", [False, True])
def test_only_of_a_job_of_another_process_it_is_noted_what_its_pods_ask_for(is_own: bool) -> None:
    story = Story()
    if is_own:
        story.queues(TRAIN, 17, at=NOW)
    else:
        story.sees(TRAIN)
        story.polls({17: "PENDING"}, at=NOW)
        story.reads(job_of(TRAIN, 17, "PENDING"), at=NOW)
    planned(story, adopted=((17, SPEC),))
    assert story.world.placeholders[17].adopted_as == (None if is_own else SPEC)


@pytest.mark.parametrize("is_away", [False, True])
def test_ends_are_given_up_only_while_accounting_is_away(is_away: bool) -> None:
    """Without an outage, records wait for their turn, however many they are."""
    story = Story(without(CONFIG, records_waiting=1))
    for name in ("first", "second"):
        story.sees(pod(name))
        story.world.park(key_of(pod(name)), "records")
    if is_away:
        story.sees(AccountingOutageBegan(NOW, "gone"))
    planned(story)
    assert len(story.world.parked["records"]) == (1 if is_away else 2)


# --- errors -----------------------------------------------------------------------------------------------------------


def test_an_action_that_cannot_be_noted_is_dropped_with_those_of_its_workload_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(world: World, action: act.Action, at: float) -> None:
        raise Defect(action)

    monkeypatch.setitem(plans._ON_PLANNED, act.NudgeScheduler, fails)
    monkeypatch.setitem(plans._ON_PLANNED, act.Reconfigure, fails)
    story, other = Story(guarded=True), pod("other")
    story.sees(TRAIN, other)
    without_key, also = act.Reconfigure("why"), act.PollNodes("why")
    bad, same = act.NudgeScheduler(KEY, 17, "alice", "why"), act.ReadJob(17, "why", KEY)
    good = act.ReadJob(18, "why", key_of(other))
    planned(story, same, good, also, bad, without_key)
    assert set(map(id, story.world.in_flight.values())) == {id(good), id(also)}


def test_an_action_on_a_workload_whose_facts_were_dropped_is_not_performed() -> None:
    """A status is written all the same: the pod shows that it is in quarantine."""
    story = Story(guarded=True)
    story.sees(TRAIN)
    entry = quarantine.put(story.world, act.ObjectKind.WORKLOAD, KEY, ValueError())
    entry.dropped = True
    bind, status = act.BindPod(KEY, TRAIN.uid, "hpc", "train", "x1", 17, {}, "why"), says(names.PENDING)
    planned(story, bind, status)
    assert list(story.world.in_flight.values()) == [status]
