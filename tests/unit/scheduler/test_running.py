"""While pods run: the statuses of their job, and the actions before its end (S4b, S5, S6, S9, S12)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    Action,
    AllocateNow,
    BindPod,
    CancelJob,
    DeletePod,
    EvictPod,
    FailByDeadline,
    Outcome,
    ReadJob,
    ReadOwner,
    SetDeadline,
    SetJobCondition,
    SetPodCondition,
)
from scheduler.events import (
    ClockObserved,
    NodeSeen,
    OutageBegan,
    OutageEnded,
    OwnerRead,
    PodSeen,
    PodsListed,
    Scope,
    Side,
    SlurmNodesPolled,
)
from scheduler.model import kubelet
from scheduler.model.kubernetes import Condition, Owner, OwnerRef, Pod, PodPhase, Taint
from scheduler.model.slurm import Partition
from scheduler.rules.deadlines import lead_of, signal_s
from scheduler.rules.running import _asked_for
from tests.builders import CONFIG, OWNER, START, Story, grant, job_of, key_of, node, pod, slurm_node, without
from tests.unit.scheduler.test_gangs import granted, member, ring
from tests.unit.scheduler.test_gangs import runs as gang_runs
from tests.unit.scheduler.test_reacquire import is_lost

NOW = START + 20
ENDS = NOW + 3600
ALONE = without(CONFIG, running_fresh_s=1e9)  # the round of reads is a story of its own
TRAIN = pod("train")
OWNED = pod("job-pod", owner=OWNER)
POWERS_UP = "RUNNING CONFIGURING POWER_UP_NODE"


def web(name: str) -> Pod:
    return pod(name, owner=OWNER, restart_policy="Always")


def runs(story: Story, what: Pod, job_id: int = 17, *, ends: float | None = ENDS, **job: Any) -> Pod:
    """It runs since NOW, and its job was read."""
    story.world.owners["hpc", OWNER.uid] = None
    shown = replace(story.runs(what, job_id, at=NOW), started=NOW, bound_at=NOW)
    story.sees(shown)
    told(story, shown, job_id, at=NOW + 1, ends=ends, **job)
    return shown


def told(story: Story, what: Pod, job_id: int = 17, *states: str, at: float, **job: Any) -> None:
    """The job is read then."""
    given: dict[str, Any] = {"starts": NOW, "ends": ENDS, "time_limit_min": 60} | job
    story.reads(job_of(what, job_id, *states, **given), at=at, granted=grant(job_id))


def said(acts: list[Action]) -> list[tuple[str, bool, str]]:
    return [(each.condition, each.runs, each.message) for each in acts if isinstance(each, SetJobCondition)]


def looks_and_learns(story: Story, what: Pod, *states: str, at: float, **job: Any) -> list[Action]:
    """It asks first whether what it knows still holds; then it acts."""
    acts = story.decides(at)
    assert [type(each) for each in acts] == [ReadJob], acts
    told(story, what, 17, *states, at=at, **job)
    story.ended(acts[0], at=at)
    return story.decides(at)


# --- a time limit (S4b) -------------------------------------------------------------------------------------------


def test_kubelet_is_asked_to_end_the_pod_so_that_its_grace_is_over_ten_seconds_before_slurms_end() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    assert story.decides(ENDS - 121) == []
    acts = looks_and_learns(story, shown, at=ENDS - 119)
    [hand] = [each for each in acts if isinstance(each, SetDeadline)]
    assert hand == SetDeadline(
        key_of(TRAIN), TRAIN.uid, "hpc", "train", 3560, "Slurm job 17 reaches its time limit at 01:17:00 UTC"
    )
    assert said(acts) == [
        (
            "SlurmJobEndsSoon",
            True,
            "Slurm job 17 reaches its time limit at 01:17:00 UTC: 119 s are left. "
            "The pod gets SIGTERM 40 s before, and then its grace of 30 s.",
        )
    ]
    story.ended(hand, at=ENDS - 118)
    story.sees(replace(shown, set_deadline_s=3560))
    assert story.decides(ENDS - 60) == []


@pytest.mark.parametrize(("end", "writes"), [("01:17:00", False), ("01:02:00", True)])
def test_after_a_restart_the_end_that_the_pod_shows_is_corrected_only_if_it_moved(end: str, writes: bool) -> None:
    """The limit may have been changed while no bridge ran.  The seconds that are left differ each time."""
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    before = f"Slurm job 17 reaches its time limit at {end} UTC: 110 s are left. The pod gets SIGTERM 40 s before."
    story.sees(replace(shown, job_condition=Condition(True, names.ENDS_SOON, before)))
    assert bool(said(looks_and_learns(story, shown, at=ENDS - 100))) is writes


def test_an_end_that_was_put_off_is_followed_until_it_is_near() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    later = {"ends": ENDS + 1800, "time_limit_min": 90}
    acts = looks_and_learns(story, shown, at=ENDS - 119, **later)
    assert not [each for each in acts if isinstance(each, SetDeadline)]
    assert said(acts) == [
        (
            "SlurmJobRuns",
            True,
            "The time limit of Slurm job 17 is 90 minutes now, and was 60 minutes: it runs until 01:47:00 UTC.",
        )
    ]
    acts = looks_and_learns(story, shown, at=ENDS + 1800 - 100, **later)
    assert [each.seconds for each in acts if isinstance(each, SetDeadline)] == [5360]


@pytest.mark.parametrize("field", ["active_deadline_s", "set_deadline_s"])
def test_a_nearer_deadline_of_the_pods_own_stays_and_one_written_before_is_not_written_again(field: str) -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(nearer := replace(shown, **{field: 3560}))
    assert not [each for each in looks_and_learns(story, nearer, at=ENDS - 100) if isinstance(each, SetDeadline)]


def test_a_job_whose_turn_to_be_read_has_not_come_is_read_before_the_end_that_was_asked_for() -> None:
    story = Story(ALONE)
    story.runs(asked := pod("asked", says={"time-limit": "60"}), 17, at=NOW)
    assert story.decides(ENDS - 121) == []
    assert story.decides(ENDS - 119) == [ReadJob(17, "when does job 17 end?", key_of(asked))]


def test_a_job_that_was_read_before_its_node_was_set_up_is_read_again_before_its_end() -> None:
    """Its states have changed since (PrologSlurmctld), and where thousands run its turn may not come in time."""
    story = Story(ALONE)
    story.polls({17: "RUNNING CONFIGURING"}, at=NOW)
    shown = runs(story, TRAIN)
    told(story, shown, 17, "RUNNING", "CONFIGURING", at=NOW + 2)
    story.polls({17: "RUNNING"}, at=NOW + 5)
    assert story.decides(NOW + 5) == []
    acts = looks_and_learns(story, shown, at=ENDS - 119)
    assert [type(each) for each in acts] == [SetJobCondition, SetDeadline]


def test_a_job_without_a_limit_has_no_end_to_prepare_for() -> None:
    story = Story(ALONE)
    runs(story, TRAIN, ends=NOW + 365 * 86400, time_limit_min=-1)
    assert story.decides(NOW + 365 * 86400 - 60) == []


def test_nothing_is_done_about_an_end_while_slurm_is_away() -> None:
    story = Story(ALONE)
    runs(story, TRAIN)
    story.sees(OutageBegan(Side.SLURM, ENDS - 130, "gone"))
    assert story.decides(ENDS - 100) == []


def test_a_timeout_that_came_all_the_same_counts_as_one() -> None:
    """No DisruptionTarget: the backoff limit of a batch Job counts it."""
    story = Story(ALONE)
    shown = runs(story, OWNED)
    story.polls({17: "TIMEOUT"}, at=NOW + 50)
    [end] = looks_and_learns(story, shown, "TIMEOUT", at=NOW + 50, reason="TimeLimit")
    why = "Slurm job 17 ended: TIMEOUT (TimeLimit)"
    assert end == FailByDeadline(key_of(OWNED), OWNED.uid, "hpc", "job-pod", why, counts=True)


@pytest.mark.parametrize(
    ("grace_s", "waits_s", "kind"),
    [(30, 60, FailByDeadline), (300, 330, FailByDeadline), (3600, 330, DeletePod)],
    ids=["its grace, and 30 s", "the longest grace that counts", "a longer grace, which only a deletion can shorten"],
)
def test_a_pod_that_kubelet_is_ending_when_the_timeout_comes_is_left_to_it_for_as_long_as_its_grace_counts(
    grace_s: int, waits_s: int, kind: type[Action]
) -> None:
    story = Story(ALONE)
    shown = runs(story, replace(TRAIN, grace_s=grace_s))
    story.sees(replace(shown, set_deadline_s=3590))
    story.polls({17: "TIMEOUT"}, at=ENDS + 5)
    assert looks_and_learns(story, shown, "TIMEOUT", at=ENDS + 5) == []
    assert story.decides(ENDS - 10 + waits_s - 1) == []
    assert [type(each) for each in story.decides(ENDS - 10 + waits_s)] == [kind]


def test_a_pod_is_warned_once_for_each_end_of_its_job() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    acts = looks_and_learns(story, shown, at=ENDS - 110)
    [warning] = [each for each in acts if isinstance(each, SetJobCondition)]
    assert warning.warning
    for action in acts:
        story.ended(action, at=ENDS - 110)
    story.sees(shown := replace(shown, set_deadline_s=3560))
    assert story.decides(ENDS - 100) == []
    told(story, shown, at=ENDS - 99, ends=ENDS + 20)
    assert [message.split(":")[0] for _, _, message in said(story.decides(ENDS - 99))] == [
        "Slurm job 17 reaches its time limit at 01"
    ]


def test_a_deadline_of_the_pod_that_is_later_than_the_end_of_its_job_is_lowered() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(later := replace(shown, active_deadline_s=3561))
    acts = looks_and_learns(story, later, at=ENDS - 110)
    assert [each.seconds for each in acts if isinstance(each, SetDeadline)] == [3560]


def test_a_job_that_asked_for_no_time_limit_is_not_read_early() -> None:
    story = Story(ALONE)
    story.runs(pod("endless", says={"time-limit": "UNLIMITED"}), 17, at=NOW)
    assert story.decides(NOW + 10) == []


def test_a_pod_with_its_own_signal_does_not_wait_for_its_owner() -> None:
    """The owner is not known after a restart, and would be read for its annotation `signal`."""
    story = Story(ALONE)
    owned = pod("worker", owner=OWNER, created=START - 100, says={"signal": "300"})
    story.sees(PodsListed(Scope.OURS, (story.bound(owned, 17, started=START - 100, bound_at=START - 100),), START))
    story.polls({17: "RUNNING"}, at=START)
    told(story, owned, at=NOW + 1)
    assert story.acts(ReadOwner, NOW + 2) == []


@pytest.mark.parametrize("states", ["SUSPENDED", "RUNNING SIGNALING", "RUNNING"])
def test_a_pod_that_is_being_deleted_is_not_bothered_about_its_job(states: str) -> None:
    story = Story(ALONE)
    story.sees(replace(story.runs(pod("asked", says={"time-limit": "60"}), 17, at=NOW), deleting_at=NOW + 9000))
    story.polls({17: states}, at=NOW + 2)
    assert story.decides(NOW + 2) == []
    assert story.decides(ENDS - 50) == []


def test_while_slurm_is_away_no_state_of_a_job_is_shown() -> None:
    story = Story(ALONE)
    runs(story, TRAIN)
    story.polls({17: "SUSPENDED"}, at=NOW + 2)
    story.sees(OutageBegan(Side.SLURM, NOW + 3, "gone"))
    assert story.decides(NOW + 3) == []


def test_a_pod_is_visited_for_its_owners_only_if_it_has_owners_that_are_not_read() -> None:
    story = Story(ALONE)
    runs(story, TRAIN, ends=NOW + 90_000, time_limit_min=1500)
    story.decides(NOW + 2)
    assert story.world.wakes == {key_of(TRAIN): NOW + 90_000 - 120}


def test_after_an_outage_a_job_is_read_again_before_its_end_is_prepared() -> None:
    """Slurm may have given the id to another job."""
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    told(story, shown, at=ENDS - 115)
    story.polls({17: "RUNNING"}, at=ENDS - 113)
    story.sees(OutageBegan(Side.SLURM, ENDS - 112, "gone"), OutageEnded(Side.SLURM, ENDS - 111))
    acts = looks_and_learns(story, shown, at=ENDS - 110)
    assert [type(each) for each in acts] == [SetJobCondition, SetDeadline]


def test_a_pod_that_another_client_bound_beside_its_gang_gets_no_deadline() -> None:
    """It does not run for the job of the gang."""
    story = Story(ALONE)
    ring = [member(number, 2) for number in range(2)]
    shown = gang_runs(story, ring, ("x1", 1), ("x2", 1), at=NOW)
    gone, stays = sorted(shown, key=lambda each: each.node == "x1")
    job = replace(job_of(TRAIN, 17, nodes="x[1-2]"), name=story.world.placeholders[17].name)
    story.loses(gone, NOW + 2)
    story.sees(replace(member(2, 2), node="x2", started=NOW, phase=PodPhase.RUNNING))
    story.sees(replace(stays, started=NOW, bound_at=NOW))
    story.reads(replace(job, starts=NOW, ends=ENDS, time_limit_min=60), at=ENDS - 115)
    assert [each.name for each in story.acts(SetDeadline, ENDS - 110)] == [stays.name]


# --- services move (S4b) ------------------------------------------------------------------------------------------


def test_a_service_moves_one_replica_at_a_time_before_its_end() -> None:
    story = Story(ALONE)
    first, second = runs(story, web("web-1"), 17), runs(story, web("web-2"), 18)
    at = ENDS - 599
    for read in story.acts(ReadJob, at):
        told(story, first if read.job_id == 17 else second, read.job_id, at=at)
        story.ended(read, at=at)
    [evict] = story.acts(EvictPod, at)
    goes, stays = (first, second) if evict.name == "web-1" else (second, first)
    assert evict.reason.endswith(" reaches its time limit at 01:17:00 UTC")
    story.ended(evict, at=at)
    assert story.acts(EvictPod, at + 1) == []
    story.sees(replace(goes, deleting_at=at + 31))
    assert story.acts(EvictPod, at + 2) == []
    story.loses(goes, at + 3)
    story.sees(web("web-3"))
    assert story.acts(EvictPod, at + 4) == [], "its replacement is on its way"
    story.sees(replace(web("web-3"), node="x1", phase=PodPhase.RUNNING))
    assert [each.name for each in story.acts(EvictPod, at + 5)] == [stays.name]


@pytest.mark.parametrize(
    ("sibling", "moves"),
    [
        ({}, False),
        ({"node": "x2"}, False),
        ({"node": "x2", "phase": PodPhase.RUNNING}, True),
        ({"node": "x2", "phase": PodPhase.RUNNING, "deleting_at": ENDS}, False),
        ({"node": "x2", "phase": PodPhase.SUCCEEDED}, True),
        ({"node": "x2", "phase": PodPhase.FAILED, "deleting_at": ENDS}, True),
        ({"phase": PodPhase.FAILED}, True),
    ],
    ids=["waits", "is bound", "runs", "leaves", "has ended", "has ended and leaves", "has ended on no node"],
)
def test_a_replica_moves_only_while_no_sibling_is_on_its_way(sibling: dict[str, Any], moves: bool) -> None:
    story = Story(ALONE, checked=False)  # a replica that may not move is looked at again after a time
    shown = runs(story, web("web-1"))
    story.sees(replace(web("web-2"), **sibling))
    at = ENDS - 599
    [read] = [each for each in story.acts(ReadJob, at) if each.job_id == 17]
    told(story, shown, at=at)
    story.ended(read, at=at)
    assert [each.name for each in story.acts(EvictPod, at)] == (["web-1"] if moves else [])


def test_a_replica_moves_whatever_its_siblings_do_when_its_grace_is_all_that_is_left() -> None:
    story = Story(ALONE)
    shown = runs(story, web("web-1"))
    story.sees(web("web-2"))  # waits for room
    at = ENDS - 60
    [read] = story.acts(ReadJob, at)
    told(story, shown, at=at)
    story.ended(read, at=at)
    assert story.acts(EvictPod, at) == []
    assert story.acts(EvictPod, ENDS - 40.5) == []
    assert [each.name for each in story.acts(EvictPod, ENDS - 39.5)] == ["web-1"]


def test_a_budget_that_refuses_an_eviction_is_asked_again() -> None:
    story = Story(ALONE)
    shown = runs(story, web("web-1"))
    acts = looks_and_learns(story, shown, at=ENDS - 599)
    [evict] = [each for each in acts if isinstance(each, EvictPod)]
    story.ended(evict, Outcome.REFUSED, at=ENDS - 598, number=429, later=True)
    assert story.acts(EvictPod, ENDS - 597.5) == []
    assert story.acts(EvictPod, ENDS - 597)


def refused_by_its_budget(story: Story, acts: list[Action], *, at: float) -> list[str]:
    """The budget refuses each eviction for 100 s; the messages about the job that the pod gets meanwhile."""
    said_then = list[str]()
    for second in range(100):
        for each in acts:
            if isinstance(each, EvictPod):
                story.ended(each, Outcome.REFUSED, at=at + second, number=429, later=True)
            else:
                story.ended(each, at=at + second)
                said_then += [each.message] if isinstance(each, SetJobCondition) else []
        acts = story.decides(at + second)
    return said_then


def test_a_replica_that_a_budget_does_not_let_go_says_so() -> None:
    story = Story(ALONE, checked=False)
    shown = runs(story, web("web-1"))
    acts = looks_and_learns(story, shown, at=ENDS - 599)
    first, refused = refused_by_its_budget(story, acts, at=ENDS - 598)
    assert first.endswith("The pod is evicted before.")
    assert refused.endswith("But slurm-bridge cannot evict it yet. Slurm refused it (error 429).")


@pytest.mark.parametrize("is_said", [False, True])
def test_the_next_process_says_that_a_budget_does_not_let_a_replica_go_which_was_warned_before(is_said: bool) -> None:
    """is_said: the former process said that already"""
    story = Story(ALONE, checked=False)
    shown = runs(story, web("web-1"))
    before = "Slurm job 17 reaches its time limit at 01:17:00 UTC: 599 s are left. The pod is evicted before."
    refusal = " But slurm-bridge cannot evict it yet. Slurm refused it (error 429)."
    story.sees(replace(shown, job_condition=Condition(True, names.ENDS_SOON, before + refusal * is_said)))
    acts = looks_and_learns(story, shown, at=ENDS - 590)
    said_now = refused_by_its_budget(story, acts, at=ENDS - 589)
    assert [each.endswith(refusal) for each in said_now] == [True] * (not is_said)


# --- a preemption with grace (S5) ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "kind"), [(TRAIN, FailByDeadline), (OWNED, DeletePod), (web("web"), DeletePod)])
def test_a_preemption_is_reported_at_once_and_what_is_left_is_the_grace(what: Pod, kind: type[Action]) -> None:
    story = Story(ALONE)
    shown = runs(story, what)
    story.polls({17: "RUNNING SIGNALING"}, at=NOW + 50)
    states = ("RUNNING", "SIGNALING")
    [end] = looks_and_learns(story, shown, *states, at=NOW + 51, preempted=NOW + 49, ends=NOW + 109)
    assert isinstance(end, kind)
    assert isinstance(end, DeletePod | FailByDeadline)
    assert end.reason == "Slurm preempts job 17: 58 s are left, until 00:18:49 UTC"
    assert getattr(end, "grace_s", 58) == 58
    assert not getattr(end, "counts", False)


def test_a_pod_that_outlives_the_longest_grace_that_counts_has_the_time_that_its_preemption_leaves() -> None:
    story = Story(ALONE)
    shown = runs(story, replace(TRAIN, grace_s=3600))
    story.polls({17: "RUNNING SIGNALING"}, at=NOW + 50)
    signals = {"preempted": NOW + 49, "ends": NOW + 1000}
    [end] = looks_and_learns(story, shown, "RUNNING", "SIGNALING", at=NOW + 51, **signals)
    story.ended(end, at=NOW + 51)
    assert [type(each) for each in story.decides(NOW + 51 + 330)] == [FailByDeadline], "kubelet is asked once more"


def test_a_preemption_near_the_end_of_its_time_is_reported_at_once_too() -> None:
    """That kubelet was handed that end is no reason to keep the pod's grace from it."""
    story = Story(ALONE)
    shown = runs(story, OWNED)
    acts = looks_and_learns(story, shown, at=ENDS - 100)
    [hand] = [each for each in acts if isinstance(each, SetDeadline)]
    story.ended(hand, at=ENDS - 100)
    assert story.acts(SetDeadline, ENDS - 99) == [], "it is waited for until the watch shows it"
    story.sees(replace(shown, set_deadline_s=3560))
    story.polls({17: "RUNNING SIGNALING"}, at=ENDS - 95)
    signals = {"preempted": ENDS - 96, "ends": ENDS - 75}
    [end] = looks_and_learns(story, shown, "RUNNING", "SIGNALING", at=ENDS - 95, **signals)
    assert isinstance(end, DeletePod)
    assert end.grace_s == 20


def test_another_signal_to_the_job_is_none_of_the_pods_business() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.polls({17: "RUNNING SIGNALING"}, at=NOW + 50)
    assert looks_and_learns(story, shown, "RUNNING", "SIGNALING", at=NOW + 51) == []


def test_another_signal_does_not_put_off_the_end_of_its_time() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.polls({17: "RUNNING SIGNALING"}, at=NOW + 50)
    assert looks_and_learns(story, shown, "RUNNING", "SIGNALING", at=NOW + 51) == []
    acts = looks_and_learns(story, shown, "RUNNING", "SIGNALING", at=ENDS - 110)
    assert [type(each) for each in acts] == [SetJobCondition, SetDeadline]


# --- suspended (S6) -----------------------------------------------------------------------------------------------


def test_a_suspended_job_kills_nothing_and_its_pods_say_so_until_it_runs_again() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.polls({17: "SUSPENDED"}, at=NOW + 2)
    acts = story.decides(NOW + 2)
    assert said(acts) == [
        (
            "SlurmJobSuspended",
            False,
            "Slurm job 17 is suspended. Its pods run on, and nothing is ended. "
            "An admin resumes it (scontrol resume 17).",
        )
    ]
    assert len(acts) == 1
    assert story.decides(ENDS - 60) == [], "its time stands still"
    story.polls({17: "RUNNING"}, at=ENDS - 50)
    [read] = story.acts(ReadJob, ENDS - 48)
    told(story, shown, at=ENDS - 48, ends=ENDS + 3000)
    story.ended(read, at=ENDS - 48)
    assert said(story.decides(ENDS - 48)) == [("SlurmJobRuns", True, "Slurm job 17 runs until 02:07:00 UTC.")]


def gang_told(story: Story, what: Pod, at: float) -> None:
    """The suspended job 17 of the gang is read then."""
    job = job_of(what, 17, "SUSPENDED", starts=NOW, ends=ENDS)
    name = story.world.placeholders[17].name
    story.reads(replace(job, name=name), at=at, granted=granted(17, ("x1", 1), ("x2", 1)))


def test_a_suspended_job_is_shown_on_the_pods_of_a_gang_that_run_and_not_on_one_that_waits_for_its_place() -> None:
    story = Story(ALONE)
    shown = gang_runs(story, [member(number, 2) for number in range(2)], ("x1", 1), ("x2", 1), at=NOW)
    story.loses(replace(shown[1], phase=PodPhase.FAILED), NOW + 2)
    story.polls({17: "SUSPENDED"}, at=NOW + 2)
    story.sees(member(2, 2))
    written = list[str]()
    for at in (NOW + second for second in range(3, 9)):
        for action in story.decides(at):
            if isinstance(action, ReadJob):
                gang_told(story, shown[0], at)
            story.ended(action, at=at)
            written += [action.name] if isinstance(action, SetJobCondition) else []
    assert written == ["w-0"]


def test_a_job_that_was_resumed_is_read_before_its_pod_shows_when_it_ends_now() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.polls({17: "SUSPENDED"}, at=NOW + 2)
    [suspended] = story.acts(SetJobCondition, NOW + 2)
    assert suspended.warning
    story.polls({17: "RUNNING"}, at=NOW + 300)
    later = {"ends": ENDS + 298}
    assert said(looks_and_learns(story, shown, at=NOW + 300, **later)) == [
        ("SlurmJobRuns", True, "Slurm job 17 runs until 01:21:58 UTC.")
    ]


def test_an_event_does_not_hide_that_a_pod_shows_a_suspended_job() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    edited = replace(shown, annotations={**shown.annotations, names.PREFIX + "time-limit": "90"})
    story.sees(edited)
    assert [each.event for each in story.acts(SetPodCondition, NOW + 2)] == [names.CHANGE_IGNORED]
    story.sees(replace(edited, job_condition=Condition(False, names.SUSPENDED, "…")))
    assert said(story.decides(NOW + 30)) == [("SlurmJobRuns", True, "Slurm job 17 runs until 01:17:00 UTC.")]


def test_a_job_that_is_suspended_before_its_pod_is_bound_waits_to_be_resumed() -> None:
    story = Story(ALONE)
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "SUSPENDED"}, at=NOW + 5)
    [said, read] = story.decides(NOW + 5)
    assert isinstance(read, ReadJob)
    assert isinstance(said, SetPodCondition)
    assert said.message == "The bind waits: an admin suspended Slurm job 17 (scontrol resume 17 ends that)."
    story.reads(job_of(TRAIN, 17, "SUSPENDED"), at=NOW + 5, granted=grant(17))
    story.ended(read, at=NOW + 5)
    story.polls({17: "RUNNING"}, at=NOW + 10)
    assert len(story.acts(BindPod, NOW + 10)) == 1


@pytest.mark.parametrize(("states", "doing"), [("RUNNING CONFIGURING", "prepares"), (POWERS_UP, "powers up")])
def test_a_pod_is_bound_when_slurm_has_prepared_the_node_of_its_job(states: str, doing: str) -> None:
    """Until then the job may fail."""
    story = Story(ALONE)
    story.queues(TRAIN, 17, at=NOW)
    prepares(story, states)
    assert story.decides(NOW + 5) == [], "a short wait is not shown"
    [said] = story.decides(NOW + 8)
    assert isinstance(said, SetPodCondition)
    assert said.message == f"The bind waits: Slurm {doing} x1 for job 17 (CONFIGURING)."
    assert not said.warning
    story.polls({17: "RUNNING"}, at=NOW + 10)
    assert len(story.acts(BindPod, NOW + 10)) == 1


def prepares(story: Story, states: str) -> None:
    """Slurm granted nodes to job 17, which are not prepared yet."""
    story.polls({17: states}, at=NOW + 5)
    [read] = story.acts(ReadJob, NOW + 5)
    story.reads(job_of(TRAIN, 17, *states.split()), at=NOW + 5, granted=grant(17))
    story.ended(read, at=NOW + 5)


def test_a_node_that_was_powered_down_is_looked_at_again_after_an_immediate_allocation() -> None:
    """The answer does not say that the job waits for its node to boot."""
    story = Story(ALONE)
    off = replace(slurm_node("x1"), states=frozenset({"IDLE", "POWERED_DOWN"}))
    story.sees(SlurmNodesPolled((off, slurm_node("x2")), (Partition("main", default=True),), NOW))
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    [read] = story.decides(NOW)
    assert read == ReadJob(17, "which nodes did Slurm grant job 17?", key_of(TRAIN))
    story.reads(job_of(TRAIN, 17, *POWERS_UP.split()), at=NOW + 1, granted=grant(17))
    story.ended(read, at=NOW + 1)
    assert story.decides(NOW + 1) == []
    story.polls({17: "RUNNING"}, at=NOW + 60)
    assert len(story.acts(BindPod, NOW + 60)) == 1


def test_a_pod_that_no_node_can_run_gets_a_node_as_soon_as_slurm_has_powered_it_down() -> None:
    """Its kubelet is silent, because the node is off; Slurm powers it up for the job."""
    story = Story(ALONE)
    story.sees(NodeSeen(node("x1", ready=False)), NodeSeen(node("x2", ready=False)), TRAIN)
    assert not story.acts(AllocateNow, NOW)
    off = replace(slurm_node("x1"), states=frozenset({"IDLE", "POWERED_DOWN"}))
    story.sees(SlurmNodesPolled((off, slurm_node("x2")), (Partition("main", default=True),), NOW + 30))
    [asked] = story.acts(AllocateNow, NOW + 30)
    assert asked.spec.excluded_nodes == "x2"


def test_a_node_that_slurm_powers_up_for_a_job_may_start_its_kubelet_later() -> None:
    story = Story(ALONE)
    story.queues(TRAIN, 17, at=NOW)
    story.sees(NodeSeen(node("x1", ready=False)))
    prepares(story, POWERS_UP)
    assert story.decides(NOW + 5) == []
    [said] = story.acts(SetPodCondition, NOW + 9)
    assert said.message == "The bind waits: Slurm powers up x1 for job 17 (CONFIGURING)."
    story.polls({17: "RUNNING"}, at=NOW + 300)
    [said] = story.acts(SetPodCondition, NOW + 300)
    assert said.message == "Slurm job 17 was granted x1; the bind waits: node x1 is not ready."
    story.sees(NodeSeen(node("x1", taints=(Taint("node.kubernetes.io/not-ready", "", "NoSchedule"),))))
    assert not story.acts(CancelJob, NOW + 310)
    story.sees(NodeSeen(node("x1")))
    assert len(story.acts(BindPod, NOW + 330)) == 1


def test_a_node_that_slurm_powered_up_without_its_kubelet_is_given_back_after_a_minute() -> None:
    story = Story(ALONE)
    story.queues(TRAIN, 17, at=NOW)
    story.sees(NodeSeen(node("x1", ready=False)))
    prepares(story, POWERS_UP)
    story.polls({17: "RUNNING"}, at=NOW + 300)
    assert not story.acts(CancelJob, NOW + 359)
    assert [each.reason for each in story.acts(CancelJob, NOW + 361)] == ["released: node x1 is not ready"]


def test_a_node_without_its_kubelet_is_given_back_at_once_if_slurm_did_not_power_it_up_for_the_job() -> None:
    story = Story(ALONE)
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.sees(NodeSeen(node("x1", ready=False)))
    prepares(story, "RUNNING")
    assert [each.reason for each in story.acts(CancelJob, NOW + 5)] == ["released: node x1 is not ready"]


def test_a_cordoned_node_is_given_back_while_slurm_powers_it_up() -> None:
    story = Story(ALONE)
    story.queues(TRAIN, 17, at=NOW)
    story.sees(NodeSeen(node("x1", unschedulable=True)))
    prepares(story, POWERS_UP)
    assert len(story.acts(CancelJob, NOW + 5)) == 1


@pytest.mark.parametrize(("before", "writes"), [(names.SUSPENDED, []), (names.RUNS, [names.SUSPENDED])])
def test_a_status_of_a_previous_process_is_not_written_again(before: str, writes: list[str]) -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(replace(shown, job_condition=Condition(False, before, "…")))
    story.polls({17: "SUSPENDED"}, at=NOW + 2)
    assert [reason for reason, _, _ in said(story.decides(NOW + 2))] == writes


def test_a_status_of_a_previous_process_is_not_written_again_because_its_time_has_no_date_today() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(
        replace(shown, job_condition=Condition(True, names.RUNS, "Slurm job 17 runs until 1970-01-01 01:17:00 UTC."))
    )
    assert story.decides(NOW + 2) == []


def test_a_job_that_is_suspended_once_more_before_the_watch_shows_that_it_ran_is_shown_suspended() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(replace(shown, job_condition=Condition(False, names.SUSPENDED, "…")))
    [resumed] = story.decides(NOW + 2)
    assert said([resumed]) == [("SlurmJobRuns", True, "Slurm job 17 runs until 01:17:00 UTC.")]
    story.ended(resumed, at=NOW + 2)
    story.polls({17: "SUSPENDED"}, at=NOW + 10)
    assert [reason for reason, _, _ in said(story.decides(NOW + 10))] == [names.SUSPENDED]


def test_a_pod_that_still_shows_the_suspension_is_told_again_that_its_job_runs_if_that_could_not_be_written() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(replace(shown, job_condition=Condition(False, names.SUSPENDED, "…")))
    [resumed] = story.decides(NOW + 2)
    assert said([resumed]) == [("SlurmJobRuns", True, "Slurm job 17 runs until 01:17:00 UTC.")]
    story.ended(resumed, Outcome.UNREACHED, at=NOW + 2)
    assert [each for second in range(3, 9) for each in story.decides(NOW + second)] == [resumed]


def test_a_condition_that_could_not_be_written_is_written_later() -> None:
    story = Story(ALONE)
    runs(story, TRAIN)
    story.polls({17: "SUSPENDED"}, at=NOW + 2)
    [say] = story.decides(NOW + 2)
    story.ended(say, Outcome.UNREACHED, at=NOW + 3)
    assert story.decides(NOW + 3) == []
    assert story.decides(NOW + 7) == [say]


# --- never started (S12) ------------------------------------------------------------------------------------------

STUCK = {"phase": PodPhase.PENDING, "waits": "container main: ImagePullBackOff", "waits_since": NOW}


def test_a_pod_that_does_not_start_says_so_after_a_minute_and_is_ended_after_ten() -> None:
    story = Story(ALONE)
    shown = runs(story, OWNED)
    story.sees(replace(shown, **STUCK))
    assert not story.acts(SetJobCondition, NOW + 59)
    assert said(story.decides(NOW + 60)) == [
        (
            "PodNotStarting",
            True,
            "Bound for Slurm job 17 since 00:17 UTC, and not started: container main: ImagePullBackOff. "
            "It is ended at 00:27 UTC if it does not start.",
        )
    ]
    assert not story.acts(FailByDeadline, NOW + 599)
    [end] = story.acts(FailByDeadline, NOW + 600)
    assert end.reason == "hpc/job-pod did not start within 600 s (container main: ImagePullBackOff)"
    assert end.counts, "its backoff limit is to end the trying"


def test_an_admin_who_has_less_patience_than_a_minute_is_obeyed() -> None:
    story = Story(without(ALONE, start_timeout_s=8.0))
    shown = runs(story, TRAIN)
    story.sees(replace(shown, **STUCK))
    assert not story.acts(FailByDeadline, NOW + 7)
    assert len(story.acts(FailByDeadline, NOW + 8)) == 1


def test_an_admin_can_let_pods_try_for_ever() -> None:
    story = Story(without(ALONE, start_timeout_s=0.0))
    shown = runs(story, TRAIN)
    story.sees(replace(shown, **STUCK))
    [(_, _, message)] = said(story.decides(NOW + 60))
    assert message.endswith("container main: ImagePullBackOff.")
    assert not story.acts(FailByDeadline, NOW + 3000)


def test_a_kubelet_that_says_nothing_is_no_reason_to_end_a_pod() -> None:
    """Its node may be cut off, and its containers may run."""
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(replace(shown, phase=PodPhase.PENDING, started=None))
    [(_, _, message)] = said(story.decides(NOW + 60))
    assert message.endswith("the kubelet of its node has not reported on the pod.")
    assert not story.acts(FailByDeadline, NOW + 3000)


def test_a_pod_that_starts_late_is_reported_to_run() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(replace(shown, **STUCK))
    story.acts(SetJobCondition, NOW + 60)
    story.sees(shown)
    assert said(story.decides(NOW + 70)) == [("SlurmJobRuns", True, "Slurm job 17 runs until 01:17:00 UTC.")]


@pytest.mark.parametrize("why", ["suspended", "may be short", "ends soon"])
def test_a_pod_that_has_not_started_shows_that_alone(why: str) -> None:
    """Two statuses of one pod alternated every two seconds, each with an event."""
    story = Story(ALONE)
    job = {"ends": NOW + 180, "time_limit_min": 3} if why == "ends soon" else {}
    shown = runs(story, FLEXIBLE if why == "may be short" else TRAIN, **job)
    story.sees(waiting(shown, "ContainerCreating"))
    if why == "suspended":
        story.polls({17: "SUSPENDED"}, at=NOW + 30)
    written = list[SetJobCondition]()
    for at in (NOW + second for second in range(60, 90)):
        for action in story.decides(at):
            story.ended(action, at=at)
            written += [action] if isinstance(action, SetJobCondition) else []
            if isinstance(action, ReadJob):
                told(story, shown, at=at, **job)
    assert [(each.condition, each.warning) for each in written] == [(names.NOT_STARTING, True)]


def test_a_pod_that_is_ended_because_it_does_not_start_shows_nothing_else() -> None:
    story = Story(without(ALONE, start_timeout_s=8.0))
    shown = runs(story, TRAIN)
    story.sees(replace(shown, **STUCK))
    story.polls({17: "SUSPENDED"}, at=NOW + 8)
    assert [type(each) for each in story.decides(NOW + 8)] == [FailByDeadline]


def test_a_pod_that_fails_later_shows_since_when_it_is_bound() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.polls({17: "RUNNING"}, at=NOW + 120)
    story.sees(replace(shown, **(STUCK | {"waits_since": NOW + 120})))
    assert story.decides(NOW + 179) == []
    [(_, _, message)] = said(story.decides(NOW + 180))
    assert message.startswith("Bound for Slurm job 17 since 00:17 UTC, and not started")


UNKNOWN: list[dict[str, Any]] = [STUCK | {"waits_since": None}, {"phase": PodPhase.PENDING, "bound_at": None}]


@pytest.mark.parametrize("unknown", [*UNKNOWN, *(each | {"job_condition": None} for each in UNKNOWN)])
def test_a_pod_of_which_it_is_not_known_since_when_it_waits_shows_nothing(unknown: dict[str, Any]) -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    shows = Condition(False, names.NOT_STARTING, "A previous process knew it.")
    story.sees(replace(shown, **({"started": None, "job_condition": shows} | unknown)))
    assert story.decides(NOW + 700) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"waits": "container side: ImagePullBackOff", "waits_since": NOW},  # container `side` ran before; others run
        {"phase": PodPhase.PENDING, "started": NOW},  # its init containers run
    ],
)
def test_a_pod_of_which_containers_run_has_started(fields: dict[str, Any]) -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(replace(shown, **fields))
    assert story.decides(NOW + 60) == []
    assert story.decides(NOW + 700) == []


def test_a_pod_of_which_a_part_runs_is_not_ended_while_that_part_runs() -> None:
    """Its main container worked for ten minutes, and was ended because the image of another container does not exist."""
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    part = replace(shown, **STUCK | {"runs_in_part": True})
    story.sees(part)
    [(_, _, message)] = said(story.decides(NOW + 60))
    assert message == (
        "Bound for Slurm job 17 since 00:17 UTC, and not started: container main: ImagePullBackOff. "
        "Other containers of the pod run, so the pod is not ended for that."
    )
    assert not story.acts(FailByDeadline, NOW + 3000)
    story.sees(replace(part, runs_in_part=False))  # that part has ended
    [end] = story.acts(FailByDeadline, NOW + 3001)
    assert "did not start within 600 s" in end.reason


# --- crash loops (S12) ------------------------------------------------------------------------------------------------

LOOPS = "container main, which ended with exit code 1 (Error)"


def test_a_crash_loop_is_reported_and_counted_and_nothing_is_ended() -> None:
    story = Story(ALONE)
    shown = runs(story, OWNED)
    story.sees(replace(shown, crashes=LOOPS))
    [say] = story.acts(SetJobCondition, NOW + 30)
    assert say.warning
    assert said([say]) == [
        (
            "PodCrashLooping",
            True,
            f"Kubelet restarts a container of this pod again and again: {LOOPS}. Nothing is ended: "
            "Slurm job 17 holds the nodes until the pod is deleted or its own controller gives up.",
        )
    ]
    for second in range(40, 600, 40):  # it runs a moment, and crashes again
        story.sees(shown)
        assert story.decides(NOW + second) == []
        story.sees(replace(shown, crashes=LOOPS))
        assert story.decides(NOW + second + 10) == []
    story.sees(shown, replace(shown, crashes=LOOPS))
    assert story.decides(NOW + 629) == []
    story.sees(shown, replace(shown, crashes=LOOPS))
    assert story.decides(NOW + 630) == [say], "the same event, which is counted"


def test_a_crash_loop_is_over_when_there_was_none_for_long() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(replace(shown, crashes=LOOPS))
    story.decides(NOW + 30)
    story.sees(shown)
    assert story.decides(NOW + 31) == []
    assert said(story.decides(NOW + 30 + 1200)) == [("SlurmJobRuns", True, "Slurm job 17 runs until 01:17:00 UTC.")]


# --- an admin changes its time (S9) -------------------------------------------------------------------------------


def test_the_jobs_of_running_pods_are_read_in_turn_so_that_a_new_limit_is_noticed_and_shown() -> None:
    story = Story()
    shown = runs(story, TRAIN)
    assert story.decides(NOW + 29) == []
    [read] = story.decides(NOW + 31)
    assert read == ReadJob(17, "when does job 17 end?", key_of(TRAIN), bucket="running", grant=False)
    told(story, shown, at=NOW + 31, ends=NOW + 1800, time_limit_min=30)
    story.ended(read, at=NOW + 31)
    message = "The time limit of Slurm job 17 is 30 minutes now, and was 60 minutes: it runs until 00:47:00 UTC."
    assert said(story.decides(NOW + 31)) == [("SlurmJobRuns", True, message)]
    assert story.decides(NOW + 90) == []
    assert [type(each) for each in story.decides(NOW + 91)] == [ReadJob]


def test_a_time_limit_that_an_admin_removes_is_shown_in_words() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    told(story, shown, at=NOW + 31, ends=None, time_limit_min=-1)
    message = "The time limit of Slurm job 17 is unlimited now, and was 60 minutes: it runs."
    assert said(story.decides(NOW + 31)) == [("SlurmJobRuns", True, message)]


def test_the_job_of_a_pod_is_read_in_turn_also_if_the_pod_names_another_one() -> None:
    """A requeue that no poll shows was not noticed: the id that another client wrote on the pod was to be read instead."""
    story = Story()
    runs(story, TRAIN)
    story.world.workloads[key_of(TRAIN)].hint = 16
    assert (17, "running") in {(read.job_id, read.bucket) for read in story.acts(ReadJob, NOW + 31)}


def test_reads_of_running_jobs_are_few_however_many_run() -> None:
    story = Story()
    for number in range(40):
        runs(story, pod(f"p{number}"), 17 + number)
    assert len(story.acts(ReadJob, NOW + 31)) == 4
    assert len(story.acts(ReadJob, NOW + 31.5)) == 2


def test_where_thousands_run_an_idle_bridge_reads_one_of_them_in_several_seconds() -> None:
    story = Story(checked=False)
    for number in range(1000):
        story.sees(story.bound(pod(f"p{number}"), 17 + number))
    story.polls({17 + number: "RUNNING" for number in range(1000)}, at=NOW)
    reads = 0
    for tenth in range(300):
        at = NOW + 31 + tenth / 10
        for read in story.acts(ReadJob, at):
            reads += read.bucket == "running"
            story.ended(read, at=at)
    assert 24 <= reads <= 28, "a fifth of 4 a second, for 5 times as many as are read at that rate"


# --- after a restart ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["time limit", "preemption", "never starts"])
def test_a_new_process_ends_no_pod_in_its_first_seconds(how: str) -> None:
    """Requests of the previous process may still take effect."""
    story = Story(ALONE)
    started: dict[str, Any] = {"created": START - 900, "started": START - 800, "bound_at": START - 800}
    states, job = ["RUNNING"], {"starts": START - 800, "ends": START + 60, "time_limit_min": 15}
    if how == "preemption":
        states, job = ["RUNNING", "SIGNALING"], {"preempted": START - 5, "ends": START + 60}
    if how == "never starts":
        job["ends"] = START + 9000
        started |= {"phase": PodPhase.PENDING, "waits": "container main: ImagePullBackOff", "waits_since": START - 700}
    shown = story.bound(TRAIN, 17, **started)
    story.sees(shown)
    story.polls({17: " ".join(states)}, at=START + 1)
    told(story, shown, 17, *states, at=START + 2, **job)
    assert not [each for each in story.decides(START + 11) if isinstance(each, SetDeadline | FailByDeadline)]
    acts = story.decides(START + 12)
    assert len([each for each in acts if isinstance(each, SetDeadline | FailByDeadline)]) == 1


# --- a slow start is no failed start (S12) ------------------------------------------------------------------------


def waiting(shown: Pod, reason: str, container: str = "main") -> Pod:
    return replace(shown, phase=PodPhase.PENDING, waits=f"container {container}: {reason}", waits_since=NOW)


@pytest.mark.parametrize("reason", sorted(kubelet.IN_PROGRESS))
def test_while_kubelet_pulls_or_makes_a_pod_nothing_is_ended_however_long_it_takes(reason: str) -> None:
    story = Story(ALONE)
    shown = runs(story, OWNED)
    story.sees(waiting(shown, reason))
    [(_, _, message)] = said(story.decides(NOW + 60))
    assert message.endswith(
        f"not started: container main: {reason}. Kubelet is still starting it: the pod's events show what it waits for, for "
        "example an image or a missing Secret. The pod is not ended for that, however long it takes."
    )
    for minute in range(2, 60):
        story.polls({17: "RUNNING"}, at=NOW + 60 * minute)
        acts = story.decides(NOW + 60 * minute)
        assert not [each for each in acts if isinstance(each, FailByDeadline | DeletePod)]


def test_an_unknown_reason_is_reported_and_ends_nothing() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(waiting(shown, "QuantumEntanglementPending, see its events"))
    [(_, _, message)] = said(story.decides(NOW + 60))
    assert message.endswith("not started: container main: QuantumEntanglementPending, see its events.")
    assert not story.acts(FailByDeadline, NOW + 3000)


@pytest.mark.parametrize("reason", sorted(kubelet.NEEDS_A_PERSON))
def test_what_needs_a_person_ends_the_pod_in_time(reason: str) -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(waiting(shown, f"{reason}, no such thing: x", "setup"))
    assert not story.acts(FailByDeadline, NOW + 599)
    assert len(story.acts(FailByDeadline, NOW + 601)) == 1, "of a crash, when it was seen counts"


def test_the_time_of_a_long_pull_does_not_count_when_it_fails_at_last() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(waiting(shown, "ContainerCreating"))
    story.decides(NOW + 660)
    story.sees(waiting(shown, "ErrImagePull, connection reset"))
    assert not story.acts(FailByDeadline, NOW + 661)
    story.sees(waiting(shown, "ImagePullBackOff, connection reset"))  # kubelet says one or the other
    assert not story.acts(FailByDeadline, NOW + 1259)
    [end] = story.acts(FailByDeadline, NOW + 1260)
    assert "did not start within 600 s (container main: ImagePullBackOff, connection reset)" in end.reason


def test_a_pull_that_goes_on_after_a_failure_is_given_its_time_again() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(waiting(shown, "ErrImagePull"))
    story.decides(NOW + 300)
    story.sees(waiting(shown, "ContainerCreating"))
    assert not story.acts(FailByDeadline, NOW + 700)
    story.sees(waiting(shown, "CreateContainerError"))
    assert not story.acts(FailByDeadline, NOW + 800)
    assert not story.acts(FailByDeadline, NOW + 1299)
    assert len(story.acts(FailByDeadline, NOW + 1300)) == 1


def init_runs(shown: Pod) -> Pod:
    return replace(shown, phase=PodPhase.PENDING)


CRASHED = "CrashLoopBackOff, back-off 10s restarting failed container=setup"


def test_an_init_container_that_fails_once_after_a_long_run_may_run_again() -> None:
    """It copies data for an hour, and its server breaks off.  All of the gang was ended at this first failure."""
    story = Story(ALONE)
    story.sees(ClockObserved(Side.KUBERNETES, NOW, NOW, NOW))
    shown = runs(story, TRAIN, ends=NOW + 36_000, time_limit_min=600)
    story.sees(init_runs(shown))
    assert not story.acts(FailByDeadline, NOW + 3000)
    story.sees(PodSeen(Scope.OURS, waiting(shown, CRASHED, "setup"), NOW + 3600))
    [(_, _, message)] = said(story.decides(NOW + 3600))
    assert message.endswith("It is ended at 01:27 UTC if it does not start.")
    story.sees(init_runs(shown))
    assert not story.acts(FailByDeadline, NOW + 4300)
    story.sees(shown)
    assert not story.acts(FailByDeadline, NOW + 9000)


def test_an_init_container_that_fails_again_and_again_has_ten_minutes_from_its_first_failure() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(init_runs(shown))
    for second in range(300, 900, 100):
        story.decides(NOW + second)
        story.sees(waiting(shown, CRASHED, "setup"))
        assert not story.acts(FailByDeadline, NOW + second + 1)
        story.sees(init_runs(shown))
    story.sees(waiting(shown, CRASHED, "setup"))
    assert not story.acts(FailByDeadline, NOW + 899)
    assert len(story.acts(FailByDeadline, NOW + 900)) == 1


def test_an_init_container_whose_image_was_pulled_at_the_second_try_has_ten_minutes_from_its_first_failure() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    for reason in ("PodInitializing", "ErrImagePull", "PodInitializing"):
        story.sees(waiting(shown, reason, "setup"))
    story.sees(init_runs(shown))
    story.decides(NOW + 700)
    story.sees(waiting(shown, CRASHED, "setup"))
    assert not story.acts(FailByDeadline, NOW + 1299)
    assert len(story.acts(FailByDeadline, NOW + 1300)) == 1


@pytest.mark.parametrize("is_seen", [True, False])
def test_the_next_init_container_has_its_own_ten_minutes_even_if_the_watch_shows_only_its_failure(
    is_seen: bool,
) -> None:
    """The first one failed for a while, and then succeeded."""
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.decides(NOW + 300)
    story.sees(waiting(shown, CRASHED, "setup"))
    story.decides(NOW + 800)
    if is_seen:
        story.sees(init_runs(shown))
    story.sees(replace(waiting(shown, CRASHED, "fetch"), waits_since=NOW + 790))
    assert not story.acts(FailByDeadline, NOW + 1399)
    assert len(story.acts(FailByDeadline, NOW + 1400)) == 1


def test_a_new_process_lets_an_init_container_that_failed_after_a_long_run_try_again() -> None:
    story = Story(ALONE)
    shown = story.bound(TRAIN, 17, created=START - 2000, bound_at=START - 1900, started=START - 1900)
    story.sees(replace(waiting(shown, CRASHED, "setup"), waits_since=START - 1900))
    story.polls({17: "RUNNING"}, at=START + 1)
    told(story, shown, 17, at=START + 2, starts=START - 1900, ends=START + 90_000, time_limit_min=3000)
    assert not story.acts(FailByDeadline, START + 599)
    assert len(story.acts(FailByDeadline, START + 600)) == 1


def test_a_new_process_does_not_count_the_pull_that_a_previous_process_showed() -> None:
    story = Story(ALONE)
    shown = story.bound(TRAIN, 17, created=START - 2000, bound_at=START - 1900, started=START - 1900)
    earlier = Condition(
        False, names.NOT_STARTING, "Bound for Slurm job 17, and not started: container main: ContainerCreating."
    )
    story.sees(replace(waiting(shown, "ErrImagePull"), waits_since=START - 1900, job_condition=earlier))
    story.polls({17: "RUNNING"}, at=START + 1)
    told(story, shown, 17, at=START + 2, starts=START - 1900, ends=START + 90_000, time_limit_min=3000)
    assert not story.acts(FailByDeadline, START + 13)
    assert not story.acts(FailByDeadline, START + 599)
    assert len(story.acts(FailByDeadline, START + 600)) == 1


# --- how long before Slurm's end SIGTERM comes (S4b) ----------------------------------------------------------------


def handed(story: Story, what: Pod, *, length_s: int = 3600, tries: range = range(-700, 0)) -> tuple[float, float]:
    """(how long before the end kubelet gets its deadline, how long before the end it sends SIGTERM)."""
    ends = NOW + length_s
    limit = {"ends": ends, "time_limit_min": length_s // 60}
    shown = runs(story, what, **limit)
    for second in tries:
        at = ends + second
        if at < NOW + 2:
            continue
        acts = story.decides(at)
        for read in [each for each in acts if isinstance(each, ReadJob)]:
            told(story, shown, 17, at=at, **limit)
            story.ended(read, at=at)
            acts = story.decides(at)
        if hand := next((each for each in acts if isinstance(each, SetDeadline)), None):
            return -second, ends - (NOW + hand.seconds)
    raise AssertionError("kubelet was never told")


@pytest.mark.parametrize(
    ("grace_s", "says", "sigterm_s"),
    [
        (0, {}, 10),
        (2, {}, 12),
        (30, {}, 40),
        (120, {}, 130),  # a checkpoint
        (30, {"signal": "300"}, 300),
        (30, {"signal": "TERM@300"}, 300),
        (30, {"signal": "R:B:SIGUSR1@300"}, 300),
        (30, {"signal": "USR1"}, 60),
        (120, {"signal": "60"}, 130),  # not later than its grace needs
    ],
)
def test_a_pod_gets_sigterm_so_early_that_it_can_use_its_grace_or_earlier_if_it_asks(
    grace_s: int, says: dict[str, str], sigterm_s: int
) -> None:
    at_s, signalled_s = handed(Story(ALONE), pod("train", grace_s=grace_s, says=says))
    assert signalled_s == sigterm_s
    assert at_s >= max(120, sigterm_s + 60), "told well before: a restart must not make it late"


def test_an_owners_signal_counts_where_the_pod_says_nothing() -> None:
    story = Story(ALONE)
    owned = pod("worker", owner=OWNER)
    owner = Owner(OWNER, annotations={names.PREFIX + "signal": "200"})
    assert lead_of(owned, (owner,), 3600.0, story.world.config.tuning).seconds == 200


def test_after_a_restart_an_owners_signal_is_read_before_it_may_be_due() -> None:
    story = Story(ALONE)
    starts, ends = START - 3600, START + 90_000
    limit = {"starts": starts, "ends": ends, "time_limit_min": (ends - starts) // 60}
    shown = replace(story.bound(pod("worker", owner=OWNER, created=starts), 17), started=starts, bound_at=starts)
    story.sees(PodsListed(Scope.OURS, (shown,), START))
    story.polls({17: "RUNNING"}, at=START)
    told(story, shown, at=START + 1, **limit)
    assert not story.acts(ReadOwner, NOW), "an hour before the end is soon enough"
    [read] = story.acts(ReadOwner, ends - 3600)
    assert (read.namespace, read.ref) == ("hpc", OWNER)
    story.sees(OwnerRead(OWNER, Owner(OWNER, annotations={names.PREFIX + "signal": "900"}), ends - 3599, "hpc"))
    story.ended(read, at=ends - 3599)
    assert not [each for each in story.decides(ends - 961) if isinstance(each, SetDeadline | ReadOwner)]
    [hand] = [each for each in looks_and_learns(story, shown, at=ends - 960, **limit) if isinstance(each, SetDeadline)]
    assert starts + hand.seconds == ends - 900


def test_an_owner_that_cannot_be_read_does_not_keep_a_pod_from_its_end() -> None:
    story = Story(ALONE)
    starts = START - 100
    limit = {"starts": starts, "ends": starts + 3600}
    shown = replace(story.bound(pod("worker", owner=OWNER, created=starts), 17), started=starts, bound_at=starts)
    story.sees(PodsListed(Scope.OURS, (shown,), START))
    story.polls({17: "RUNNING"}, at=START)
    told(story, shown, at=NOW + 1, **limit)
    for at in (NOW + 2, NOW + 7, starts + 3600 - 124):
        [read] = story.acts(ReadOwner, at)
        assert not story.acts(ReadOwner, at + 1), "not all the time"
        story.ended(read, Outcome.UNKNOWN, at=at + 1)
    acts = looks_and_learns(story, shown, at=starts + 3600 - 120, **limit)
    assert [each.seconds for each in acts if isinstance(each, SetDeadline)] == [3600 - 40]


@pytest.mark.parametrize(
    ("length_s", "sigterm_s", "why"), [(14400, 3600, "end_lead_max_s"), (600, 300, "half of the job's")]
)
def test_a_grace_of_centuries_takes_neither_half_of_the_job_nor_more_than_the_admin_allows(
    length_s: int, sigterm_s: int, why: str
) -> None:
    greedy = pod("train", grace_s=10**10)
    assert handed(Story(ALONE), greedy, length_s=length_s, tries=range(-3700, 0))[1] == sigterm_s
    cut = lead_of(greedy, (), float(length_s), ALONE.tuning).cut
    assert cut.startswith("the pod asks for 10000000000 s, which is more than ")
    assert why in cut


def test_a_grace_that_is_longer_than_the_job_is_reported_with_the_warning() -> None:
    story = Story(ALONE)
    runs(story, pod("train", grace_s=120), ends=NOW + 60, time_limit_min=1)
    [(_, _, message)] = said(story.decides(NOW + 3))
    assert message.endswith(
        "The pod gets SIGTERM 30 s before, and then its grace of 120 s. "
        "This is later than requested: the pod asks for 120 s, which is more than half of the job's time."
    )


def test_the_end_of_a_job_that_was_extended_is_followed_until_shortly_before_a_long_grace() -> None:
    story = Story(ALONE)
    shown = runs(story, patient := pod("train", grace_s=300))
    assert not [each for each in story.decides(ENDS - 371) if isinstance(each, SetDeadline | ReadJob)]
    later = {"ends": ENDS + 1800, "time_limit_min": 90}
    acts = looks_and_learns(story, shown, at=ENDS - 369, **later)
    assert not [each for each in acts if isinstance(each, SetDeadline)]
    acts = looks_and_learns(story, replace(shown, uid=patient.uid), at=ENDS + 1800 - 360, **later)
    assert [each.seconds for each in acts if isinstance(each, SetDeadline)] == [5400 - 310]


def test_a_job_that_is_yet_to_be_read_is_read_before_its_pods_need_their_grace() -> None:
    story = Story(ALONE)
    story.runs(asked := pod("asked", says={"time-limit": "60"}, grace_s=300), 17, at=NOW)
    assert story.decides(ENDS - 371) == []
    assert story.decides(ENDS - 369) == [ReadJob(17, "when does job 17 end?", key_of(asked))]


def test_the_job_of_a_service_that_is_yet_to_be_read_is_read_before_its_replicas_have_to_move() -> None:
    story = Story(ALONE)
    story.world.owners["hpc", OWNER.uid] = None
    replica = replace(web("web-1"), annotations={names.PREFIX + "time-limit": "60"})
    story.runs(replica, 17, at=NOW)
    moves_at = ENDS - ALONE.tuning.service_notice_s
    assert [each for each in story.decides(moves_at - 1) if isinstance(each, ReadJob)] == []
    assert story.acts(ReadJob, moves_at + 1) == [ReadJob(17, "when does job 17 end?", key_of(replica))]


def test_a_pod_that_kubelet_has_not_started_gets_no_deadline() -> None:
    """Kubelet counts the deadline from the start of the pod."""
    story = Story(without(ALONE, start_timeout_s=0))
    shown = story.runs(TRAIN, 17, at=NOW)
    story.sees(waits := replace(shown, phase=PodPhase.PENDING, bound_at=NOW))
    told(story, waits, at=NOW + 1)
    near = ENDS - 30
    told(story, waits, at=near)
    assert not story.acts(SetDeadline, near)
    story.sees(started := replace(waits, phase=PodPhase.RUNNING, started=near))
    told(story, started, at=near + 1)
    assert len(story.acts(SetDeadline, near + 1)) == 1


def test_a_pod_that_outlives_its_grace_after_slurms_end_is_deleted_with_a_second() -> None:
    """Kubelet counts the grace that the pod asked for; only a deletion can shorten that."""
    story = Story(ALONE)
    shown = runs(story, greedy := pod("train", grace_s=10**10))
    story.sees(shown := replace(shown, set_deadline_s=1800))
    story.polls({17: "TIMEOUT"}, at=ENDS + 1)
    [read] = story.acts(ReadJob, ENDS + 1)
    told(story, shown, 17, "TIMEOUT", at=ENDS + 1)
    story.ended(read, at=ENDS + 1)
    [evict] = story.acts(DeletePod, ENDS + 2)
    assert (evict.uid, evict.grace_s) == (greedy.uid, 1)


# --- a limit that may be cut (time-min) -----------------------------------------------------------------------------

FLEXIBLE = pod("train", says={"time-limit": "120", "time-min": "10"})


def test_the_limit_that_backfill_left_counts_and_is_shown() -> None:
    story = Story(ALONE)
    story.queues(FLEXIBLE, 17, at=NOW)
    ends = NOW + 29 * 60
    story.polls({17: "RUNNING"}, at=NOW + 1)
    [read] = story.acts(ReadJob, NOW + 1)
    told(story, FLEXIBLE, 17, at=NOW + 1, ends=ends, time_limit_min=29)
    story.ended(read, at=NOW + 1)
    [bind] = story.acts(BindPod, NOW + 1)
    story.ended(bind, at=NOW + 1)
    shown = replace(story.bound(FLEXIBLE, 17), started=NOW, bound_at=NOW)
    story.sees(shown)
    assert said(story.decides(NOW + 2)) == [
        (
            "SlurmJobRuns",
            True,
            "Slurm gave job 17 a time limit of 29 minutes (time-min 10 minutes): it runs until 00:46:00 UTC.",
        )
    ]
    acts = looks_and_learns(story, shown, at=ends - 100, ends=ends, time_limit_min=29)
    [hand] = [each for each in acts if isinstance(each, SetDeadline)]
    assert hand.seconds == 29 * 60 - 40


def test_after_a_restart_a_shortened_limit_is_shown_also_if_an_owner_has_the_annotation_time_min() -> None:
    story = Story(ALONE)
    story.sees(OwnerRead(OWNER, Owner(OWNER, annotations={names.PREFIX + "time-min": "10"}), START, "hpc"))
    shown = replace(story.bound(pod("worker", owner=OWNER), 17), started=START, bound_at=START)
    story.sees(PodsListed(Scope.OURS, (shown,), START))
    story.polls({17: "RUNNING"}, at=START)
    told(story, shown, at=NOW, ends=ENDS, time_limit_min=29)
    [(_, _, message)] = said(story.decides(NOW + 1))
    assert message.startswith("Slurm gave job 17 a time limit of 29 minutes (time-min 10): it runs until ")


def test_a_job_whose_limit_may_have_been_cut_is_read_before_the_shortest_end_that_it_may_have() -> None:
    story = Story(ALONE)
    story.runs(FLEXIBLE, 17, at=NOW)
    assert story.decides(NOW + 600 - 121) == []
    assert story.decides(NOW + 600 - 119) == [ReadJob(17, "when does job 17 end?", key_of(FLEXIBLE))]


def test_a_signal_that_is_edited_into_nonsense_while_the_pod_runs_asks_for_nothing() -> None:
    """It concerns the bridge alone, not the job; kubelet still gets its deadline before Slurm ends the job."""
    for said in ("SOON@5", ""):
        assert signal_s(pod(says={"signal": said}), ()) == 0
    assert signal_s(pod(says={"signal": "B:USR1@300"}), ()) == 300


@pytest.mark.parametrize(
    ("says", "deadline_s", "minutes"),
    [
        ({"time-limit": "2:00:00"}, None, 120),
        ({"time-limit": "2:00:00", "time-min": "1:00:00"}, None, 60),
        ({}, 90, 2),
        ({}, None, None),
        ({"time-limit": "UNLIMITED"}, None, None),
        ({"time-limit": "soon"}, None, None),
        ({"time-limits": "2:00:00"}, 90, None),
    ],
)
def test_the_shortest_end_that_a_pod_of_a_previous_process_may_have(
    says: dict[str, str], deadline_s: int | None, minutes: int | None
) -> None:
    """Its annotations may have been edited since; then nothing is known."""
    assert _asked_for(pod(says=says, active_deadline_s=deadline_s)) == minutes


def test_after_a_restart_only_those_owners_of_a_chain_are_read_that_are_not_known() -> None:
    story, above = Story(ALONE), OwnerRef("apps/v1", "Deployment", "web", "uid-deployment")
    starts, ends = START - 3600, START + 90_000
    limit = {"starts": starts, "ends": ends, "time_limit_min": (ends - starts) // 60}
    shown = replace(story.bound(pod("worker", owner=OWNER, created=starts), 17), started=starts, bound_at=starts)
    story.sees(PodsListed(Scope.OURS, (shown,), START), OwnerRead(OWNER, Owner(OWNER, {}, above), START, "hpc"))
    story.polls({17: "RUNNING"}, at=START)
    told(story, shown, at=START + 1, **limit)
    assert [read.ref for read in story.acts(ReadOwner, ends - 3600)] == [above]


def test_a_deadline_in_flight_does_not_cost_the_pod_of_a_lost_job_its_nodes() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    acts = looks_and_learns(story, shown, at=ENDS - 119)
    assert [each for each in acts if isinstance(each, SetDeadline)]
    acts = is_lost(story, ENDS - 100)
    assert [each.spec.required_nodes for each in acts if isinstance(each, AllocateNow)] == ["x1"]


def test_an_end_that_takes_effect_late_is_announced_though_a_deadline_was_set_since() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.polls({17: "RUNNING SIGNALING"}, at=NOW + 50)
    at = NOW + 51
    acts = looks_and_learns(story, shown, "RUNNING", "SIGNALING", at=at, preempted=at, ends=at + 30)
    [end] = [each for each in acts if isinstance(each, FailByDeadline)]
    story.ended(end, Outcome.UNKNOWN, at=at)
    story.polls({17: "RUNNING"}, at=at + 1)
    told(story, shown, at=at + 1)
    acts = looks_and_learns(story, shown, at=ENDS - 119)
    [deadline] = [each for each in acts if isinstance(each, SetDeadline)]
    story.ended(deadline, at=ENDS - 118)
    story.sees(replace(shown, set_deadline_s=1))
    events = [each.event for each in story.acts(SetPodCondition, ENDS - 117)]
    assert events == [names.ENDED]


def test_a_replica_stays_while_a_sibling_is_being_ended() -> None:
    story = Story(ALONE, checked=False)
    first, second = runs(story, web("web-1"), 17), runs(story, web("web-2"), 18)
    story.polls({17: "RUNNING", 18: "COMPLETED"}, at=ENDS - 700)
    for read in story.acts(ReadJob, ENDS - 700):
        told(story, second, 18, "COMPLETED", at=ENDS - 700)
        story.ended(read, at=ENDS - 700)
    assert [each.name for each in story.acts(DeletePod, ENDS - 700)] == ["web-2"]
    at = ENDS - 599
    for read in story.acts(ReadJob, at):
        told(story, first, at=at)
        story.ended(read, at=at)
    assert story.acts(EvictPod, at) == []


def test_a_job_whose_pod_waits_for_its_bind_is_not_read_for_its_end_and_delays_no_other_pod() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "SUSPENDED"}, at=NOW + 5)
    story.reads(job_of(TRAIN, 17, "SUSPENDED", ends=ENDS), at=NOW + 5, granted=grant(17))
    for second in range(5, 100):
        for action in story.decides(NOW + second):
            assert not isinstance(action, ReadJob)
            story.ended(action, at=NOW + second)
    story.sees(pod("next"))
    assert story.acts(AllocateNow, NOW + 100)


def test_the_job_of_a_gang_of_which_one_pod_waits_for_its_place_is_read_for_its_end() -> None:
    story = Story()
    goes, _ = gang_runs(story, ring(2), ("x1", 2), at=NOW)
    story.polls({17: "SUSPENDED"}, at=NOW + 2)
    story.sees(replace(goes, phase=PodPhase.FAILED), member(2, 2))
    [read] = story.acts(ReadJob, NOW + 3)
    gang_told(story, goes, NOW + 3)
    story.ended(read, at=NOW + 3)
    reads = [each for second in range(4, 60) for each in story.acts(ReadJob, NOW + second)]
    assert [(each.job_id, each.bucket) for each in reads] == [(17, "running")]


def test_the_job_of_a_gang_whose_pods_are_gone_is_not_read_for_its_end() -> None:
    story = Story()
    for gone in gang_runs(story, ring(2, grace_s=200), ("x1", 2), at=NOW):
        story.loses(gone, NOW + 2)
    assert not [each for second in range(3, 100) for each in story.acts(ReadJob, NOW + second)]


def test_a_pod_that_runs_is_visited_again_only_if_something_changes() -> None:
    story = Story(ALONE)
    runs(story, TRAIN, ends=None, time_limit_min=-1)
    assert story.plan(NOW + 20).wake == {}
    story.world.dirty[key_of(TRAIN)] = None
    assert story.plan(NOW + 20).wake == {}
