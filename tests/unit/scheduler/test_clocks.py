"""The API server, slurmctld and the bridge have clocks of their own, which may differ by hours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.actions import (
    AllocateNow,
    BindPod,
    CancelJob,
    DeletePod,
    FailByDeadline,
    Outcome,
    ReadJob,
    SetDeadline,
    SetJobCondition,
    SetPodCondition,
)
from scheduler.events import ClockObserved, NodeSeen, OwnerRead, PodSeen, PodsListed, Scope, Side
from scheduler.model.clocks import NEAR_S, NONSENSE_S, ClusterClock, grace_ends
from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.model.slurm import Job
from tests.builders import OWNER, START, Story, grant, job_of, node, pod
from tests.unit.scheduler.test_gangs import granted, member, runs

NOW = START + 10
# By how much the API server's clock is ahead of the bridge's, in seconds.
AHEAD = (-7200.0, -3.0, 0.0, 3.0, 7200.0)


def live(story: Story, job_id: int, since: float, until: float) -> list[str]:
    """Everything that is planned succeeds, except binds, which are not answered; why jobs are ended meanwhile."""
    reasons, at = [], since
    while at < until:
        for action in story.decides(at):
            if isinstance(action, CancelJob):
                reasons.append(action.reason)
            story.ended(action, Outcome.UNREACHED if isinstance(action, BindPod) else Outcome.DONE, at=at)
        ended = story.world.placeholders[job_id].ended
        story.polls({job_id: "CANCELLED" if ended else "RUNNING"}, at=at + 0.5)
        at += 1
    return reasons


# --- which pod came later (V4, W5) ------------------------------------------------------------------------------------


def half_bound(ahead: float) -> tuple[Story, list[Pod]]:
    """A fresh gang of two is granted nodes, and one of the two binds does not reach the API server."""
    story = Story()
    pods = [member(number, 2, created=NOW + ahead) for number in range(2)]
    story.sees(*pods)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=granted(17, ("x1", 2)))
    first, second = story.acts(BindPod, NOW)
    story.ended(first, at=NOW)
    story.ended(second, Outcome.UNREACHED, at=NOW)
    shown = [story.bound(pods[0], 17, bound_at=NOW + ahead), pods[1]]
    story.sees(shown[0])
    story.polls({17: "RUNNING"}, at=NOW + 0.5)
    return story, shown


@pytest.mark.parametrize("ahead", AHEAD)
def test_a_gang_that_stays_half_bound_is_unwound_whatever_the_api_servers_clock_says(ahead: float) -> None:
    story, _ = half_bound(ahead)
    [reason] = live(story, 17, NOW + 1, NOW + 60)
    assert reason.startswith("released: only 1 of the 2 pods could be bound within 30 s")


@pytest.mark.parametrize("ahead", AHEAD)
def test_after_a_restart_too(ahead: float) -> None:
    _, (bound, waiting) = half_bound(ahead)
    story = Story()
    story.sees(bound, waiting)
    story.polls({17: "RUNNING"}, at=START)
    [workload] = story.world.workloads.values()
    read = replace(job_of(bound, 17, starts=NOW, tasks=2), name=f"hpc/ring~{story.world.cluster}.{workload.key}")
    story.reads(read, at=START, granted=granted(17, ("x1", 2)))
    [reason] = live(story, 17, START + 1, START + 60)
    assert reason.startswith("released: only 1 of the 2 pods could be bound within 30 s")


def test_a_member_that_was_recreated_before_the_gang_was_whole_does_not_keep_it_half_bound() -> None:
    story, (_, never_bound) = half_bound(0.0)
    story.loses(never_bound, NOW + 1)
    story.sees(replace(never_bound, uid="uid-again", created=NOW + 2))
    assert len(live(story, 17, NOW + 2, NOW + 60)) == 1


@pytest.mark.parametrize("ahead", AHEAD)
@pytest.mark.parametrize("after_s", [0.3, 5.0])
def test_a_replacement_never_ends_a_gang_that_ran_as_a_whole(ahead: float, after_s: float) -> None:
    """It comes within the second of the bind, and waits for the place of a member with a long grace."""
    story = Story()
    shown = runs(story, [member(number, 3, grace_s=600, created=NOW + ahead) for number in range(3)], ("x1", 3))
    at = NOW + after_s
    story.sees(replace(shown[2], deleting_at=at + ahead + 600, grace_s=600))
    story.sees(member(2, 3, uid="uid-new", created=float(int(at + ahead))))
    assert live(story, 17, NOW + 6, NOW + 300) == []


@pytest.mark.parametrize("ahead", AHEAD)
def test_a_replacement_never_ends_it_after_a_restart_either(ahead: float) -> None:
    """The pod whose place it takes is gone: only the API server's own times show that it came later."""
    shown = runs(Story(), [member(number, 3, created=START - 100 + ahead) for number in range(3)], ("x1", 3))
    story = Story()
    standing = [replace(each, bound_at=START - 99 + ahead) for each in shown[:2]]
    new = member(2, 3, uid="uid-new", created=START - 50 + ahead)
    other = replace(pod("other", cpu=63000), scheduler_name="default-scheduler", node="x1", uid="uid-other")
    story.sees(*standing, new, PodSeen(Scope.OTHERS, other))
    story.polls({17: "RUNNING"}, at=START)
    key = story.world.key_of_pod[new.uid]
    read = Job(17, f"hpc/ring~{story.world.cluster}.{key}", "alice", frozenset({"RUNNING"}), partition="main", tasks=3)
    story.reads(replace(read, starts=START - 100, nodes="x1"), at=START, granted=granted(17, ("x1", 3)))
    assert live(story, 17, START + 1, START + 120) == []


# --- a grant waits for pods that terminate (F6) -----------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [*AHEAD, 1e10])
def test_a_grant_waits_for_a_terminating_pod_as_long_as_its_grace_and_a_minute(ahead: float) -> None:
    story = Story()
    story.polls({}, at=NOW)
    other = replace(pod("other", cpu=60000), scheduler_name="default-scheduler", node="x1", uid="uid-other")
    story.sees(PodSeen(Scope.OTHERS, other), pod("big", cpu=32000))
    story.sees(PodSeen(Scope.OTHERS, replace(other, deleting_at=NOW + ahead + 30, grace_s=30), NOW))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=granted(17, ("x1", 32)))
    waits_s = next(second for second in range(1000) if story.acts(CancelJob, NOW + second))
    assert waits_s in range(86, 95)


def test_a_grace_that_is_shortened_shortens_the_wait() -> None:
    story = Story()
    story.polls({}, at=NOW)
    other = replace(pod("other", cpu=60000), scheduler_name="default-scheduler", node="x1", uid="uid-other")
    story.sees(PodSeen(Scope.OTHERS, replace(other, deleting_at=NOW + 3600, grace_s=3600), NOW), pod("big", cpu=32000))
    story.sees(PodSeen(Scope.OTHERS, replace(other, deleting_at=NOW + 10, grace_s=10), NOW))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=granted(17, ("x1", 32)))
    assert story.acts(CancelJob, NOW + 69) == []
    assert len(story.acts(CancelJob, NOW + 70)) == 1


# --- what a clock says of itself --------------------------------------------------------------------------------------


@given(
    ahead=st.floats(-40_000, 40_000),
    began=st.floats(1e9, 2e9),
    took=st.lists(st.floats(0.0, 10.0), min_size=1, max_size=5),
    asked=st.floats(0.0, 1.0),
)
def test_a_clock_that_says_what_time_it_is_is_known_to_the_second(
    ahead: float, began: float, took: list[float], asked: float
) -> None:
    """It shows whole seconds, of some moment between the request and the response."""
    clock = ClusterClock()
    at = began
    for each in took:
        clock.observe(float(int(at + asked * each + ahead)), at, at + each)
        at += each + 1.0
    assert abs(clock.ours(at + ahead) - at) <= 1.0 + min(took) + 1e-3
    assert clock.is_known


def test_a_clock_that_agrees_is_not_corrected_by_the_second_in_which_it_is_reported() -> None:
    clock = ClusterClock()
    for tenth in range(100):
        at = 1000.0 + tenth / 10
        clock.observe(float(int(at)), at, at)
    assert clock.ahead == 0.0


@pytest.mark.parametrize("theirs", [0.0, 1e12, -5.0, 253402300799.0])
def test_a_clock_that_says_nonsense_is_not_listened_to(theirs: float) -> None:
    clock = ClusterClock()
    clock.observe(theirs, 1.7e9, 1.7e9 + 1)
    assert (clock.is_known, clock.ahead) == (False, 0.0)


@pytest.mark.parametrize(("theirs", "known"), [(1.0 - NONSENSE_S, True), (-NONSENSE_S, False), (NONSENSE_S, False)])
def test_a_clock_counts_if_it_differs_by_less_than_two_days(theirs: float, known: bool) -> None:
    clock = ClusterClock()
    clock.observe(START + theirs, START, START)
    assert clock.is_known is known


@pytest.mark.parametrize(
    ("theirs", "happened"), [(START, START), (START + NEAR_S, START + NEAR_S), (START + NEAR_S + 0.1, START)]
)
def test_an_event_that_by_another_clock_comes_long_after_it_was_seen_happened_when_it_was_seen(
    theirs: float, happened: float
) -> None:
    assert ClusterClock().had_happened(theirs, START) == happened


@pytest.mark.parametrize(
    ("ends", "counted"),
    [
        (START - 0.1, START + 30),
        (START, START),
        (START + 30 + NEAR_S, START + 30 + NEAR_S),
        (START + 30 + NEAR_S + 0.1, START + 30),
    ],
    ids=["before it was seen", "at once", "a minute more than the grace", "later than that"],
)
def test_the_end_of_a_grace_by_the_api_servers_clock_counts_if_it_is_possible(ends: float, counted: float) -> None:
    assert grace_ends(ends, 30.0, START) == counted


# --- Slurm's clock: what it says of a job's end (S4b, S5) -------------------------------------------------------------

HOURS = (-7200.0, 0.0, 7200.0)
ALONE = pod("alone")


def reads(story: Story, what: Pod, at: float, ahead: float, *states: str, **fields: Any) -> None:
    """Job 17 as slurmctld shows it then, by its own clock."""
    told = {key: value + ahead for key, value in fields.items() if value is not None}
    story.reads(
        job_of(what, 17, *states, as_of=float(int(at + ahead)), time_limit_min=60, **told), at=at, granted=grant(17)
    )


def handed(story: Story, what: Pod, since: float, until: float, ahead: float, ends: float) -> tuple[float, SetDeadline]:
    """Its job is read whenever that is asked for; which deadline is handed to kubelet first, and when."""
    at = since
    while at < until:
        for action in story.decides(at):
            if isinstance(action, ReadJob):
                reads(story, what, at, ahead, starts=ends - 3600, ends=ends)
            if isinstance(action, SetDeadline):
                return at, action
            story.ended(action, at=at)
        story.polls({17: "RUNNING"}, at=at)
        at += 5
    raise AssertionError("none was handed")


@pytest.mark.parametrize("slurm", HOURS)
@pytest.mark.parametrize("kube", HOURS)
def test_a_time_limit_is_handed_to_kubelet_by_what_is_left_of_it(slurm: float, kube: float) -> None:
    """kubelet counts from when it took the pod over, Slurm from when its job started; both by clocks of their own."""
    story = Story()
    shown = story.runs(ALONE, 17, at=NOW)
    started = NOW + 2
    story.sees(PodSeen(Scope.OURS, replace(shown, bound_at=NOW + kube), NOW + 0.1))
    shown = replace(shown, bound_at=NOW + kube, started=started + kube)
    story.sees(PodSeen(Scope.OURS, shown, started))
    ends = NOW + 3600
    at, action = handed(story, ALONE, NOW + 10, ends, slurm, ends)
    assert ends - 121 <= at <= ends - 100
    assert abs(started + action.seconds - (ends - ALONE.grace_s - 10)) <= 3


@pytest.mark.parametrize("kube", HOURS)
def test_a_pod_whose_start_the_watch_shows_late_is_not_ended_early(kube: float) -> None:
    story = Story()
    started, ends = NOW + 2, NOW + 3600
    story.sees(ClockObserved(Side.KUBERNETES, NOW + kube, NOW, NOW))
    shown = story.runs(ALONE, 17, at=NOW)
    shown = replace(shown, bound_at=NOW + kube, started=started + kube)
    story.sees(PodSeen(Scope.OURS, shown, started + 40))
    _, action = handed(story, ALONE, NOW + 50, ends, 0.0, ends)
    assert abs(started + action.seconds - (ends - ALONE.grace_s - 10)) <= 3


@pytest.mark.parametrize("ahead", [-400.0, 400.0])
def test_the_clock_of_a_node_that_differs_does_not_count(ahead: float) -> None:
    story = Story()
    started, ends = NOW + 2, NOW + 3600
    story.sees(ClockObserved(Side.KUBERNETES, NOW, NOW, NOW))
    shown = story.runs(ALONE, 17, at=NOW)
    story.sees(PodSeen(Scope.OURS, replace(shown, bound_at=NOW, started=started + ahead), started))
    _, action = handed(story, ALONE, NOW + 50, ends, 0.0, ends)
    assert abs(started + action.seconds - (ends - ALONE.grace_s - 10)) <= 3


@pytest.mark.parametrize("slurm", HOURS)
def test_after_a_restart_the_api_servers_own_time_shows_when_the_pod_started(slurm: float) -> None:
    kube = 7200.0
    story = Story()
    started, ends = START - 3000, START + 600
    shown = replace(story.bound(ALONE, 17), bound_at=started + kube, started=started + kube, created=started + kube)
    story.sees(ClockObserved(Side.KUBERNETES, START + kube, START, START), PodsListed(Scope.OURS, (shown,), START))
    story.polls({17: "RUNNING"}, at=START)
    _, action = handed(story, ALONE, START + 1, ends, slurm, ends)
    assert abs(started + action.seconds - (ends - ALONE.grace_s - 10)) <= 3


def test_a_pod_whose_start_is_not_known_is_ended_at_the_end_of_its_time() -> None:
    """After a restart its kubelet's time is in the future, and the API server has not said what time it is."""
    story = Story()
    ends = START + 600
    shown = replace(story.bound(ALONE, 17), bound_at=START + 7200, started=START + 7200, created=START + 7200)
    story.sees(PodsListed(Scope.OURS, (shown,), START))
    story.polls({17: "RUNNING"}, at=START)
    at, action = handed(story, ALONE, START + 1, ends, 0.0, ends)
    assert (action.seconds, ends - 41 <= at <= ends - 39) == (1, True), "its grace, and ten seconds"


@pytest.mark.parametrize("slurm", HOURS)
def test_what_a_preemption_leaves_is_the_grace_of_the_pods(slurm: float) -> None:
    story = Story()
    owned = replace(ALONE, owner=OWNER)
    story.sees(OwnerRead(OWNER, None, NOW, "hpc"))
    story.runs(owned, 17, at=NOW)
    reads(story, owned, NOW + 1, slurm, starts=NOW, ends=NOW + 3600)
    story.polls({17: "RUNNING SIGNALING"}, at=NOW + 30)
    [read] = story.acts(ReadJob, NOW + 30)
    reads(story, owned, NOW + 30, slurm, "RUNNING", "SIGNALING", starts=NOW, ends=NOW + 55, preempted=NOW + 29)
    story.ended(read, at=NOW + 30)
    [evict] = story.acts(DeletePod, NOW + 30)
    assert evict.grace_s in range(23, 27)


@pytest.mark.parametrize("slurm", HOURS)
def test_an_expected_start_is_reported_by_the_bridges_clock(slurm: float) -> None:
    story = Story()
    story.queues(ALONE, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    reads(story, ALONE, NOW + 4, slurm, "PENDING", starts=NOW + 3600)
    [said] = story.acts(SetPodCondition, NOW + 5)
    assert "expected start 01:1" in said.message, "START is 00:16 UTC"


@pytest.mark.parametrize("slurm", HOURS)
def test_a_job_that_its_user_renamed_is_not_mistaken_for_a_later_job(slurm: float) -> None:
    """A restarted bridge knows job 17 by the pod that runs in it; slurmctld says when it was submitted (S7)."""
    story = Story()
    shown = replace(story.bound(ALONE, 17), created=START - 900, bound_at=START - 899, started=START - 898)
    story.sees(ClockObserved(Side.KUBERNETES, START, START, START), PodsListed(Scope.OURS, (shown,), START))
    story.polls({17: "RUNNING"}, at=START + 1)
    job = replace(job_of(ALONE, 17, submitted=START - 900 + slurm, as_of=START + 1 + slurm), name="its own name")
    story.reads(job, at=START + 1)
    [workload] = story.world.workloads.values()
    assert workload.lost_job is None
    later = replace(job, submitted=START - 300 + slurm)
    again = Story()
    again.sees(ClockObserved(Side.KUBERNETES, START, START, START), PodsListed(Scope.OURS, (shown,), START))
    again.polls({17: "RUNNING"}, at=START + 1)
    again.reads(later, at=START + 1)
    [workload] = again.world.workloads.values()
    assert workload.lost_job is not None, "its id was given out again while the pod ran"


# --- Kubernetes' clock: statuses and actions after a while (W6, S12, N1) ----------------------------------------------


@pytest.mark.parametrize("ahead", AHEAD)
def test_a_gang_that_gathers_says_so_after_three_seconds_and_after_its_timeout_what_may_hold_it_back(
    ahead: float,
) -> None:
    story = Story()
    story.polls({}, at=NOW)
    says = {"gang-timeout": "60"}
    story.sees(*(PodSeen(Scope.OURS, member(each, 3, created=NOW + ahead, says=says), NOW) for each in range(2)))
    said: dict[str, int] = {}
    for second in range(200):
        for report in story.acts(SetPodCondition, NOW + second):
            said.setdefault(report.message, second)
            story.ended(report, at=NOW + second)
    first, then = said.values()
    assert first in range(8)
    assert then in range(56, 66)


@pytest.mark.parametrize("ahead", AHEAD)
def test_a_pod_that_does_not_start_has_its_ten_minutes(ahead: float) -> None:
    story = Story()
    shown = story.runs(ALONE, 17, at=NOW)
    reads(story, ALONE, NOW + 0.5, 0.0, starts=NOW, ends=NOW + 36_000)
    waits = {"waits": "container main: ImagePullBackOff", "bound_at": NOW + ahead, "waits_since": NOW + ahead}
    story.sees(PodSeen(Scope.OURS, replace(shown, phase=PodPhase.PENDING, started=NOW + ahead, **waits), NOW + 1))
    done: dict[type, int] = {}
    for second in range(1, 1000):
        for action in story.decides(NOW + second):
            done.setdefault(type(action), second)
            story.ended(action, at=NOW + second)
        story.polls({17: "RUNNING"}, at=NOW + second)
    assert done[SetJobCondition] in range(56, 66)
    assert done[FailByDeadline] in range(596, 606)


@pytest.mark.parametrize("ahead", AHEAD)
def test_how_long_a_node_has_been_ready_counts_from_when_that_was_seen(ahead: float) -> None:
    story = Story()
    story.polls({}, at=NOW)
    story.sees(NodeSeen(node("x1", ready_since=NOW + ahead), NOW))
    assert abs(story.world.ready_since["x1"][1] - NOW) <= 3.0


@pytest.mark.parametrize(("in_first_list", "created"), [(True, START - 7200), (False, START)])
def test_before_the_clock_is_known_a_pod_is_as_old_as_it_shows_only_if_it_was_there_before_the_bridge(
    in_first_list: bool, created: float
) -> None:
    """A pod that comes later has just been created, by a clock that may be two hours behind."""
    what = pod(created=START - 7200)
    story = Story(pods=(what,) if in_first_list else ())
    story.sees(what)
    [asked] = story.acts(AllocateNow, NOW + 5)
    story.ended(asked, at=NOW + 5, job_id=17, grant=grant(17))
    assert [each.created for each in story.acts(BindPod, NOW + 10)] == [created]
