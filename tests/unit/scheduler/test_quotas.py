"""How many jobs a rule of the policy may have, and whose turn it is to be submitted (I7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, BindPod, CancelJob, Outcome, ReadJob, RecordEnd, SetPodCondition, SubmitJob
from scheduler.explain import explain
from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.model.slurm import Job
from scheduler.policy.rules import Policy, Rule, Tenant
from scheduler.state.in_flight import InFlight
from scheduler.state.token_buckets import FairQueue
from tests.builders import CONFIG, START, Story, grant, job_of, key_of, pod, without

NOW = START + 20


def limited(**limits: float) -> Story:
    """Two namespaces; the first one's rule has these limits."""
    rules = (Rule(("hpc",), Tenant("alice", **limits)), Rule(("other",), Tenant("bob")))
    return Story(replace(CONFIG, policy=Policy(rules)))


def submits(story: Story, at: float) -> list[AllocateNow | SubmitJob]:
    return [each for each in story.decides(at) if isinstance(each, AllocateNow | SubmitJob)]


def name_of(asked: AllocateNow | SubmitJob) -> str:
    return asked.spec.name.partition("~")[0]


def queue_up(story: Story, at: float, first_id: int, until: float) -> dict[str, float]:
    """All that is asked for is queued, half a second a call.  When each was asked for, by name."""
    asked_at: dict[str, float] = {}
    states: dict[int, str] = {}
    while at < until:
        for asked in submits(story, at):
            if isinstance(asked, AllocateNow):
                story.ended(asked, Outcome.REFUSED, at=at, number=2013)
                continue
            asked_at.setdefault(name_of(asked), at)
            states[first_id] = "PENDING"
            story.ended(asked, at=at, job_id=first_id)
            first_id += 1
        story.polls(states, at=at)
        at += 0.5
    return asked_at


# --- max_jobs ---------------------------------------------------------------------------------------------------------


def test_a_rule_has_no_more_jobs_than_it_may_and_the_next_pod_says_why_it_waits() -> None:
    story = limited(max_jobs=2)
    story.sees(*(pod(f"p{number}", says={"begin": "now+1hour"}) for number in range(4)))
    first = submits(story, NOW)
    assert [name_of(each) for each in first] == ["hpc/p0", "hpc/p1"]
    for number, asked in enumerate(first):
        story.ended(asked, at=NOW, job_id=1 + number)
    story.polls({1: "PENDING", 2: "PENDING"}, at=NOW + 1)
    assert submits(story, NOW + 60) == []
    for what in ("p2", "p3"):
        assert explain(story.world, key_of(pod(what)), NOW + 60).sentence == (
            "The policy allows 2 jobs at a time here (max_jobs), waiting and running, and that many exist. "
            "The pod is submitted when one of them has ended."
        )
    story.polls({1: "CANCELLED", 2: "PENDING"}, at=NOW + 61)
    assert {name_of(each) for each in submits(story, NOW + 70)} <= {"hpc/p0", "hpc/p2"}, "one, and no more"


def test_a_full_limit_is_shown_on_the_pods_and_costs_no_further_visits() -> None:
    story = limited(max_jobs=1)
    story.runs(pod("p0"), 1, at=NOW)
    story.polls({1: "RUNNING"}, at=NOW + 1)
    story.sees(*(pod(f"p{number}") for number in range(1, 200)))
    told: dict[str, str] = {}
    for step in range(100):
        plan = story.plan(NOW + 2 + step * 0.01)
        for action in plan.actions:
            assert isinstance(action, SetPodCondition)
            told[action.name] = action.message
            story.ended(action, at=NOW + 2 + step * 0.01)
    assert len(told) == 199
    assert set(told.values()) == {
        "The policy allows 1 job at a time here (max_jobs), waiting and running, and that many exist. "
        "The pod is submitted when one of them has ended."
    }
    story.polls({1: "RUNNING"}, at=NOW + 60)
    assert story.plan(NOW + 60).visited == ()


def test_waiting_for_a_limit_of_the_policy_is_no_warning() -> None:
    story = limited(max_jobs=1)
    story.runs(pod("p0"), 1, at=NOW)
    story.sees(pod("p1"))
    [said] = story.acts(SetPodCondition, NOW + 1)
    assert (said.condition, said.warning) == (names.LIMITED, False)


def test_the_next_pass_is_when_the_rule_allows_another_submission() -> None:
    story = limited(max_submit_rate=0.5)
    story.sees(pod("p0"), pod("p1"))
    plan = story.plan(NOW)
    assert len([each for each in plan.actions if isinstance(each, AllocateNow)]) == 1
    assert plan.wake_at == pytest.approx(NOW + 2, abs=0.01)


def test_running_jobs_count_until_they_have_ended() -> None:
    story = limited(max_jobs=1)
    shown = story.runs(pod("p0"), 1, at=NOW)
    story.polls({1: "RUNNING"}, at=NOW + 1)
    story.sees(pod("p1"))
    assert submits(story, NOW + 2) == []
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED))
    [cancel] = story.acts(CancelJob, NOW + 3)
    assert submits(story, NOW + 3.5) == [], "its job still lives"
    story.ended(cancel, at=NOW + 4)
    [asked] = submits(story, NOW + 4)
    assert name_of(asked) == "hpc/p1"


def test_a_job_counts_as_soon_as_it_is_requested() -> None:
    story = limited(max_jobs=1)
    story.sees(*(pod(f"p{number}", says={"begin": "now+1hour"}) for number in range(2)))
    assert [name_of(each) for each in submits(story, NOW)] == ["hpc/p0"]
    assert submits(story, NOW + 0.1) == [], "Slurm has not answered yet"


def test_a_job_that_has_ended_does_not_count_while_its_end_is_recorded() -> None:
    rules = (Rule(("hpc",), Tenant("alice", max_jobs=1)),)
    story = Story(replace(CONFIG, policy=Policy(rules), accounting=True))
    shown = story.runs(pod("p0"), 1, at=NOW)
    story.polls({1: "RUNNING"}, at=NOW + 1)
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED))
    [cancel] = story.acts(CancelJob, NOW + 3)
    story.ended(cancel, at=NOW + 3)
    assert [each.job_id for each in story.acts(RecordEnd, NOW + 3)] == [1]
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED, labels={"a": "b"}), pod("p1"))
    assert [name_of(each) for each in submits(story, NOW + 4)] == ["hpc/p1"]


def test_after_a_restart_the_jobs_of_pods_that_run_count_though_they_are_not_read() -> None:
    story = limited(max_jobs=1)
    story.sees(story.bound(pod("p0", created=START - 60), 1))
    story.polls({1: "RUNNING"}, at=NOW)
    story.sees(pod("p1"))
    assert submits(story, NOW + 1) == []


def test_a_pod_whose_submission_was_not_answered_does_not_block_itself() -> None:
    story = limited(max_jobs=1)
    story.sees(pod("p0"), pod("p1"))
    [asked] = submits(story, NOW)
    story.ended(asked, Outcome.UNKNOWN, at=NOW + 2)
    for second in range(3, 30):
        story.polls({}, at=NOW + second)
        for again in submits(story, NOW + second):
            assert name_of(again) == name_of(asked)
            return
    raise AssertionError("it was never asked for again")


def test_the_limit_of_one_rule_is_none_of_another_rules_business() -> None:
    story = limited(max_jobs=1)
    story.runs(pod("p0"), 1, at=NOW)
    story.polls({1: "RUNNING"}, at=NOW + 1)
    story.sees(pod("p1"), *(pod(f"o{number}", namespace="other", says={"begin": "now+1hour"}) for number in range(3)))
    assert [name_of(each) for each in submits(story, NOW + 2)] == ["other/o0", "other/o1", "other/o2"]


def test_the_nodes_of_a_lost_job_are_asked_for_again_whatever_the_limit() -> None:
    story = limited(max_jobs=1)
    story.runs(pod("p0"), 1, at=NOW)
    story.polls({1: "RUNNING"}, at=NOW + 1)
    found = []
    for second in range(2, 12):
        story.polls({}, at=NOW + second)
        for action in story.decides(NOW + second):
            if isinstance(action, ReadJob):
                story.reads(None, job_id=1, at=NOW + second)
                story.ended(action, at=NOW + second)
            elif isinstance(action, AllocateNow):
                found.append(action.spec.required_nodes)
    assert found == ["x1"]


def lost_state(story: Story, job_id: int, at: float) -> float:
    """Slurm lists no job any more and denies the read of that one.  When the loss is believed."""
    for later in (0.0, 2.5):
        story.polls({}, at=at + later)
        for read in story.acts(ReadJob, at + later):
            story.reads(None, job_id=job_id, at=at + later)
            story.ended(read, at=at + later)
    return at + 2.5


def requested_again(story: Story) -> tuple[float, InFlight]:
    """Slurm loses the job of p0, which runs, while p1 waits.  Returns the time, and the request for the nodes of p0."""
    story.polls({1: "RUNNING"}, at=NOW + 1)
    story.sees(pod("p1", says={"begin": "now+1hour"}))
    story.decides(NOW + 1)
    at = lost_state(story, 1, NOW + 2)
    asked = story.world.workloads[key_of(pod("p0"))].in_flight
    assert asked is not None
    return at, asked


def test_a_job_that_slurm_lost_keeps_its_place_while_its_pods_run_and_its_nodes_are_asked_for_again() -> None:
    """Otherwise the pod that waits takes the place before S7 has its answer, and the rule has a job more than it may."""
    story = limited(max_jobs=1)
    story.runs(pod("p0"), 1, at=NOW)
    at, asked = requested_again(story)
    assert isinstance(asked.action, AllocateNow)
    assert asked.action.spec.required_nodes == "x1"
    assert submits(story, at + 1) == []
    story.ended(asked.action, at=at + 1, job_id=50, grant=grant(50))
    story.polls({50: "RUNNING"}, at=at + 2)
    assert submits(story, at + 3) == []
    assert set(story.world.quotas.jobs.values()) == {1}


def test_a_job_that_slurm_lost_for_good_gives_its_place_to_the_next_pod_when_its_pods_have_ended() -> None:
    story = limited(max_jobs=1)
    shown = story.runs(pod("p0"), 1, at=NOW)
    at, asked = requested_again(story)
    story.ended(asked.action, Outcome.REFUSED, at=at + 1, number=2016)
    assert submits(story, at + 2) == [], "its pod still runs"
    story.sees(replace(shown, phase=PodPhase.FAILED))
    assert [name_of(each) for each in submits(story, at + 3)] == ["hpc/p1"]


def test_jobs_that_waited_when_slurm_lost_its_state_are_submitted_again_and_no_more_than_the_rule_allows() -> None:
    story = limited(max_jobs=2)
    story.sees(*(pod(f"p{number}", says={"begin": "now+1hour"}) for number in range(4)))
    for number, asked in enumerate(submits(story, NOW), 1):
        story.ended(asked, at=NOW, job_id=number)
    story.polls({1: "PENDING", 2: "PENDING"}, at=NOW + 1)
    states: dict[int, str] = {}
    for second in range(2, 40):
        story.polls(states, at=NOW + second)
        for action in story.decides(NOW + second):
            if isinstance(action, ReadJob) and action.job_id < 100:
                story.reads(None, job_id=action.job_id, at=NOW + second)
            if isinstance(action, SubmitJob):
                states[100 + len(states)] = "PENDING"
                story.ended(action, at=NOW + second, job_id=99 + len(states))
            else:
                story.ended(action, at=NOW + second)
    assert len(states) == 2, "both places are used again, and no third"
    assert set(story.world.quotas.jobs.values()) == {2}


# --- max_submit_rate --------------------------------------------------------------------------------------------------


def test_a_rule_submits_no_faster_than_it_may_and_says_so() -> None:
    story = limited(max_submit_rate=2.0)
    story.sees(*(pod(f"p{number}", says={"begin": "now+1hour"}) for number in range(20)))
    asked_at = queue_up(story, NOW, 1, NOW + 12)
    assert len(asked_at) == 20
    times = sorted(asked_at.values())
    for earlier, later in zip(times, times[3:], strict=False):
        assert later - earlier >= 1.0 - 1e-6, "two at once, and two a second"
    assert times[-1] - times[0] <= 10.0


def test_a_pod_that_waits_for_its_rules_rate_says_so() -> None:
    story = limited(max_submit_rate=0.1)
    story.sees(*(pod(f"p{number}", says={"begin": "now+1hour"}) for number in range(2)))
    acts = story.decides(NOW)
    [report] = [each for each in acts if isinstance(each, SetPodCondition)]
    assert (report.condition, report.message) == (
        names.LIMITED,
        "The policy allows 0.1 submissions a second here (max_submit_rate), and other pods are before this one. "
        "The pod is submitted in its turn.",
    )
    plan = story.plan(NOW + 0.1)
    assert plan.wake_at is not None
    assert plan.wake_at == pytest.approx(NOW + 10, abs=0.1)


def test_a_rate_for_which_no_pod_waits_stops_no_pass_in_which_pods_wait_for_another_rules_jobs() -> None:
    rules = (
        Rule(("hpc",), Tenant("alice", max_submit_rate=5.0)),
        Rule(("other",), Tenant("bob", max_jobs=1)),
    )
    story = Story(replace(CONFIG, policy=Policy(rules)))
    story.sees(pod("quick", says={"begin": "now+1hour"}))
    [quick] = submits(story, NOW)
    assert name_of(quick) == "hpc/quick"
    story.ended(quick, at=NOW, job_id=1)
    story.sees(*(pod(f"p{number}", namespace="other", says={"begin": "now+1hour"}) for number in range(2)))
    [first] = submits(story, NOW + 0.1)
    assert name_of(first) == "other/p0"
    story.ended(first, at=NOW + 0.2, job_id=2)
    assert submits(story, NOW + 0.3) == []


def test_a_pod_that_is_edited_while_it_waits_for_its_rules_rate_neither_loses_nor_jumps_its_place() -> None:
    story = limited(max_submit_rate=1.0)
    pods = [pod(f"p{number}", says={"begin": "now+1hour"}) for number in range(5)]
    story.sees(*pods)
    order = [name_of(each) for each in submits(story, NOW)]
    for step in range(1, 45):
        if step % 3 == 0:  # an edit between two tokens, and one with each token
            edited = replace(pods[1], annotations={**pods[1].annotations, "slurm-bridge/comment": f"edit {step}"})
            story.sees(edited if "hpc/p1" not in order else replace(pods[4], annotations=edited.annotations))
        for asked in submits(story, NOW + step * 0.1):
            order.append(name_of(asked))
            story.ended(asked, at=NOW + step * 0.1, job_id=step)
    assert order == [f"hpc/p{number}" for number in range(5)]


def test_an_edited_pod_does_not_send_its_namespace_behind_the_others() -> None:
    rule = Rule(("hpc", "other"), Tenant("alice", max_submit_rate=1.0))
    story = Story(replace(CONFIG, policy=Policy((rule,))))
    mine = [pod(f"p{number}", says={"begin": "now+1hour"}) for number in range(3)]
    story.sees(mine[0])
    order = [name_of(each) for each in submits(story, NOW)]
    story.sees(*mine[1:])
    story.decides(NOW + 0.1)
    story.sees(pod("late", namespace="other", says={"begin": "now+1hour"}))
    story.decides(NOW + 0.2)
    story.sees(replace(mine[2], annotations={**mine[2].annotations, "slurm-bridge/comment": "edited"}))
    for step in range(3, 35):
        order += [name_of(each) for each in submits(story, NOW + step * 0.1)]
    assert order == ["hpc/p0", "hpc/p1", "other/late", "hpc/p2"]


# --- turns ------------------------------------------------------------------------------------------------------------


def flood(count: int) -> list[Pod]:
    return [pod(f"f{number}", says={"begin": "now+1hour"}) for number in range(count)]


def test_another_namespaces_first_pod_comes_after_its_turn_and_not_after_a_thousand() -> None:
    story = Story(without(CONFIG, submits=4))
    story.sees(*flood(1000))
    under_way = submits(story, NOW)
    assert len(under_way) == 4
    story.sees(pod("victim", namespace="other", says={"begin": "now+1hour"}))
    before = 0
    for number in range(20):
        at = NOW + 0.01 * (number + 1)
        story.ended(under_way.pop(0), at=at, job_id=1 + number)
        under_way += submits(story, at)
        before += 1
        if any(name_of(each) == "other/victim" for each in under_way):
            break
    assert before <= 3


def test_pods_that_wait_for_their_statuses_delay_no_bind_or_status_of_another_pod() -> None:
    """A thousand pods are refused; the writes that say so have a limit class of their own, and are taken in turn."""
    story = Story(without(CONFIG, pod_conditions=4), checked=False)
    story.sees(*(pod(f"f{number}", says={"nice": "x"}) for number in range(1000)))
    under_way = [each for each in story.decides(NOW) if isinstance(each, SetPodCondition)]
    assert len(under_way) == 4
    story.sees(pod("victim", namespace="other"), pod("wrong", namespace="other", says={"nice": "x"}))
    [asked] = submits(story, NOW + 0.01)
    story.ended(asked, at=NOW + 0.02, job_id=1, grant=grant(1))
    assert [each.name for each in story.acts(BindPod, NOW + 0.03)] == ["victim"]
    said = []
    for number in range(4):
        at = NOW + 0.04 + 0.01 * number
        story.ended(under_way.pop(0), at=at)
        said += [each.name for each in story.decides(at) if isinstance(each, SetPodCondition)]
    assert "wrong" in said


def test_a_queue_is_fair_to_namespaces_and_first_come_first_served_in_each() -> None:
    queue = FairQueue()
    for number in range(5):
        queue.put(f"a{number}", "a")
    for key, namespace in (("b0", "b"), ("c0", "c"), ("b1", "b")):
        queue.put(key, namespace)
    assert queue.first(4) == ["a0", "b0", "c0", "a1"]
    assert queue.first(0) == queue.first(-3) == []
    assert queue.first(100) == ["a0", "b0", "c0", "a1", "b1", "a2", "a3", "a4"]
    queue.pop("a0")
    assert queue.first(2) == ["b0", "c0"], "its namespace had its turn"
    queue.put("b0", "b")
    queue.pop("nobody")
    assert (len(queue), sorted(queue)) == (7, ["a1", "a2", "a3", "a4", "b0", "b1", "c0"])
    for key in list(queue):
        queue.pop(key)
    assert not queue


def test_with_more_namespaces_than_free_places_each_has_its_turn() -> None:
    queue = FairQueue()
    for number in range(10):
        for each in ("x", "y"):
            queue.put(f"{number}{each}", f"namespace-{number}")
    served = []
    for _ in range(5):
        for key in queue.first(2):
            served.append(key)
            queue.pop(key)
    assert sorted(served) == [f"{number}x" for number in range(10)]


def test_jobs_that_a_previous_process_left_without_pods_count_for_no_pod() -> None:
    story = limited(max_jobs=1)
    story.polls({5: "PENDING"}, at=NOW)
    story.reads(job_of(pod("gone"), 5, "PENDING"), at=NOW)
    story.sees(pod("p0"))
    assert [name_of(each) for each in submits(story, NOW)] == ["hpc/p0"]


def test_after_a_start_the_jobs_of_the_process_before_are_counted_first() -> None:
    """A waiting pod does not show its job, so for the time of the scan a new pod was one too many."""
    story = limited(max_jobs=1)
    old, new = pod("old", created=START - 60), pod("new", created=START + 0.5)
    story.polls({5: "PENDING"}, at=START + 0.1)
    story.sees(old, new)
    [read] = story.acts(ReadJob, START + 0.6)
    assert submits(story, START + 0.6) == []
    story.reads(job_of(old, 5, "PENDING"), at=START + 0.7)
    story.ended(read, at=START + 0.7)
    assert submits(story, START + 0.7) == []
    assert "(max_jobs)" in explain(story.world, key_of(new), START + 0.7).sentence


def test_after_a_start_a_pod_with_a_limit_waits_no_longer_than_until_all_jobs_are_read() -> None:
    story = limited(max_jobs=1)
    story.polls({5: "PENDING"}, at=START + 0.1)
    story.sees(pod("new", created=START + 0.5))
    [read] = story.acts(ReadJob, START + 0.6)
    story.reads(Job(5, "by-hand", "carol", frozenset({"PENDING"})), at=START + 0.7)
    story.ended(read, at=START + 0.7)
    assert [name_of(each) for each in submits(story, START + 0.7)] == ["hpc/new"]
