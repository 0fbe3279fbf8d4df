"""A Slurm user whose token is of no use: its pods wait and say so, others go on, and a new token is used at once."""

from __future__ import annotations

from dataclasses import replace

from scheduler import names
from scheduler.actions import AllocateNow, CancelJob, NudgeScheduler, Outcome, SetPodCondition
from scheduler.events import TokenMissing, TokenUsable
from scheduler.model.refusal import Refusal
from scheduler.policy.rules import Policy, Rule, Tenant
from tests.builders import CONFIG, START, Story, pod

NOW = START + 20
WHY = "slurm-bridge cannot act as Slurm user alice: token file /t/alice: there is no such file."
NO_TOKEN = Refusal(names.REFUSED, WHY, 401, later=True)
ASKED = AllocateNow | CancelJob
TWO = replace(CONFIG, policy=Policy((Rule(("hpc",), Tenant("alice")), Rule(("other",), Tenant("bob")))))


def refused(story: Story, at: float) -> None:
    [asked] = story.acts(AllocateNow, at)
    story.ended(asked, Outcome.REFUSED, at=at, refusal=NO_TOKEN)


def test_the_pod_says_it_and_is_tried_again_with_a_backoff() -> None:
    story = Story(TWO)
    story.sees(pod("train"))
    refused(story, NOW)
    [report] = story.acts(SetPodCondition, NOW)
    assert (report.condition, report.message) == (names.REFUSED, WHY)
    assert story.acts(AllocateNow, NOW + 0.9) == []
    refused(story, NOW + 1)
    assert story.acts(AllocateNow, NOW + 2) == []
    assert len(story.acts(AllocateNow, NOW + 3)) == 1


def waits(story: Story) -> list[float]:
    """When each workload tries again what failed."""
    workloads = story.world.workloads.values()
    return [max([each.backoff.until, *(backoff.until for backoff in each.backoffs.values())]) for each in workloads]


def test_a_new_token_is_used_at_once_for_what_was_refused_and_what_was_not_ended() -> None:
    story = Story(TWO)
    story.queues(pod("old"), 17, at=NOW - 10)
    story.loses(pod("old"), at=NOW)
    [cancel] = story.acts(CancelJob, NOW)
    story.ended(cancel, Outcome.REFUSED, at=NOW, refusal=NO_TOKEN)
    story.sees(pod("train"))
    for _ in range(8):
        wait = max(waits(story))
        for asked in story.decides(wait):
            refusal = NO_TOKEN if isinstance(asked, ASKED) else None
            story.ended(asked, Outcome.REFUSED if refusal else Outcome.DONE, at=wait, refusal=refusal)
    now = min(waits(story)) - 5
    for event in (TokenMissing("alice", now), TokenUsable("bob", now)):
        story.sees(event)
        assert not [each for each in story.decides(now) if isinstance(each, ASKED)]
    story.sees(TokenUsable("alice", now + 1))
    kinds = {type(each) for each in story.decides(now + 1)}
    assert {AllocateNow, CancelJob} <= kinds


def test_another_user_s_pods_go_on() -> None:
    story = Story(TWO)
    story.sees(TokenMissing("alice", NOW), pod("train"), pod("theirs", namespace="other"))
    refused(story, NOW)
    [theirs] = story.acts(AllocateNow, NOW)
    assert theirs.spec.user == "bob"
    story.ended(theirs, at=NOW, job_id=18)
    assert story.world.placeholders[18].user == "bob"


def test_slurm_is_asked_to_look_at_its_queue_in_the_name_of_a_user_who_has_a_token() -> None:
    story = Story(TWO)
    story.polls({5: "RUNNING"}, at=NOW - 1)
    story.queues(pod("older", created=START), 16, at=NOW)
    story.queues(pod("newer", namespace="other", created=START + 5), 17, at=NOW)
    story.sees(TokenMissing("alice", NOW))
    story.polls({5: "RUNNING", 16: "PENDING", 17: "PENDING"}, at=NOW + 1)
    story.polls({5: "COMPLETED", 16: "PENDING", 17: "PENDING"}, at=NOW + 2)
    [nudge] = story.acts(NudgeScheduler, NOW + 2)
    assert (nudge.job_id, nudge.user) == (17, "bob")


def test_slurm_is_not_asked_to_look_at_its_queue_as_a_user_without_a_token() -> None:
    story = Story(TWO)
    story.queues(pod("train"), 17, at=NOW)
    story.polls({17: "PENDING", 5: "RUNNING"}, at=NOW + 1)
    story.sees(TokenMissing("alice", NOW + 1))
    story.polls({17: "PENDING"}, at=NOW + 2)
    assert story.acts(NudgeScheduler, NOW + 3) == []
    story.sees(TokenUsable("alice", NOW + 4))
    assert [each.job_id for each in story.acts(NudgeScheduler, NOW + 4)] == [17]


def test_a_begin_time_that_comes_while_no_user_has_a_token_is_looked_at_once_a_second() -> None:
    """Each pass woke the next one at once: one processor was busy for as long as the token was missing."""
    story = Story(TWO)
    later = pod("later", says={"begin": "now+1hour"})
    due = later.created + 3600 + 1
    story.queues(later, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.sees(TokenMissing("alice", NOW + 1))
    story.polls({17: "PENDING"}, at=due - 1)
    story.decides(due - 1)
    for seconds in range(3):
        plan = story.plan(due + seconds)
        assert not [each for each in plan.actions if isinstance(each, NudgeScheduler)]
        assert list(plan.wake.values()) == [due + seconds + 1]
    story.sees(TokenUsable("alice", due + 2.5))
    assert [each.job_id for each in story.acts(NudgeScheduler, due + 3)] == [17]
