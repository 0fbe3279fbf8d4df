"""Nodes at once, or a place in the queue (ARCHITECTURE 5): nodes at once only if these are likely to be granted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.actions import Action, AllocateNow, Outcome, SubmitJob
from scheduler.model.kubernetes import Pod
from tests.builders import START, Story, grant, job_of, pod

NOW = START + 20


def requests(actions: list[Action]) -> list[str]:
    short = {AllocateNow: "now", SubmitJob: "queue"}
    return [short[type(each)] for each in actions if type(each) in short]


def pods(count: int, **fields: object) -> list[Pod]:
    return [pod(f"p{number}", created=START + number, **fields) for number in range(count)]


def first_try(story: Story) -> AllocateNow:
    """Of a first burst one tries for nodes, and the others wait some milliseconds to see what becomes of it."""
    story.sees(*pods(4))
    [asked] = [each for each in story.decides(NOW) if isinstance(each, AllocateNow | SubmitJob)]
    assert isinstance(asked, AllocateNow)
    return asked


def test_of_a_first_burst_one_tries_and_where_there_is_room_the_others_follow() -> None:
    story = Story()
    story.ended(first_try(story), at=NOW, job_id=17, grant=grant(17))
    assert requests(story.decides(NOW)) == ["now"] * 3


def test_of_a_first_burst_one_tries_and_where_there_is_no_room_all_queue() -> None:
    """A try beside a job of ours that is on its way into the queue would be refused because of that job (2013)."""
    story = Story()
    story.ended(first_try(story), Outcome.REFUSED, at=NOW, number=2013)
    assert requests(story.decides(NOW)) == ["queue"] * 4


def test_each_partition_has_its_own_first_try() -> None:
    story = Story()
    story.sees(pod("a"), pod("b", says={"partition": "gpu"}), pod("c", says={"partition": "main"}))
    assert requests(story.decides(NOW)) == ["now", "now"]


def test_while_one_tries_first_the_next_one_waits_for_what_becomes_of_it() -> None:
    story = Story()
    story.sees(pod("a"))
    [first] = story.acts(AllocateNow, NOW)
    story.sees(pod("b"))
    assert requests(story.decides(NOW)) == []
    assert requests(story.decides(NOW + 0.4)) == []
    story.ended(first, at=NOW, job_id=17, grant=grant(17))
    assert requests(story.decides(NOW)) == ["now"]


def test_no_pod_waits_long_for_a_first_try_that_hangs() -> None:
    story = Story()
    story.sees(pod("a"))
    assert requests(story.decides(NOW)) == ["now"]
    story.sees(pod("b"))
    assert requests(story.decides(NOW)) == []
    assert story.plan(NOW + 0.1).wake_at == pytest.approx(NOW + 0.5)
    assert requests(story.decides(NOW + 0.5)) == ["queue"]


def test_once_there_was_room_a_whole_burst_tries() -> None:
    story = Story()
    story.runs(pod("warm"), 16, at=NOW)
    story.sees(*pods(4))
    assert requests(story.decides(NOW)) == ["now"] * 4


def test_who_found_no_room_queues_at_once() -> None:
    story = Story()
    story.sees(pod("a"))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2016)
    assert requests(story.decides(NOW)) == ["queue"]


def test_where_slurm_defers_every_attempt_the_pod_queues_and_is_not_refused() -> None:
    """SchedulerParameters=defer answers every immediate allocation with 2125."""
    story = Story()
    story.sees(pod("a"))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2125, later=True)
    assert requests(story.decides(NOW)) == ["queue"]


def test_a_pod_queues_in_a_partition_that_is_down() -> None:
    """An immediate allocation is refused there (2101); a submitted job waits, and keeps its age until the partition is up."""
    story = Story()
    story.sees(pod("a"))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2101)
    assert requests(story.decides(NOW)) == ["queue"]


def refuse(story: Story, name: str, number: int, at: float) -> None:
    story.sees(pod(name))
    [asked] = story.acts(AllocateNow, at)
    story.ended(asked, Outcome.REFUSED, at=at, number=number)
    [queued] = story.acts(SubmitJob, at)
    story.ended(queued, Outcome.REFUSED, at=at, number=2072)  # nobody waits in the queue: only the breaker counts
    story.loses(pod(name), at)


def queues(story: Story, name: str, at: float) -> None:
    story.sees(pod(name))
    [queued] = [each for each in story.decides(at) if isinstance(each, AllocateNow | SubmitJob)]
    assert isinstance(queued, SubmitJob)
    story.ended(queued, Outcome.REFUSED, at=at, number=2072)
    story.loses(pod(name), at)


@pytest.mark.parametrize("number", [2013, 2016, 2125])
def test_the_second_lack_of_room_opens_the_breaker_for_a_minute(number: int) -> None:
    story = Story()
    refuse(story, "a", number, NOW)
    refuse(story, "b", number, NOW + 1)
    queues(story, "c", NOW + 2)
    story.sees(pod("d", says={"partition": "gpu"}))
    assert requests(story.decides(NOW + 3)) == ["now"]  # another partition has another breaker
    queues(story, "e", NOW + 60.5)
    story.sees(pod("f"))
    assert requests(story.decides(NOW + 61)) == ["now"]


def test_room_in_between_closes_it() -> None:
    story = Story()
    refuse(story, "a", 2016, NOW)
    story.runs(pod("b"), 18, at=NOW + 1)
    refuse(story, "c", 2016, NOW + 2)
    story.sees(pod("d"))
    assert requests(story.decides(NOW + 3)) == ["now"]


def test_another_refusal_says_nothing_about_room() -> None:
    story = Story()
    for name in "ab":
        story.sees(pod(name))
        [asked] = story.acts(AllocateNow, NOW)
        story.ended(asked, Outcome.REFUSED, at=NOW, number=2045)
    story.sees(pod("c"))
    assert requests(story.decides(NOW)) == ["now"]


def test_no_pod_overtakes_the_queue_of_its_user() -> None:
    """It would be refused (2013), and leave a FAILED record in accounting."""
    story = Story()
    story.runs(pod("warm"), 16, at=NOW)
    story.sees(pod("a"))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2016)
    [queued] = story.acts(SubmitJob, NOW)
    story.ended(queued, at=NOW, job_id=17)
    assert story.world.queued_in["main"] == 1

    story.sees(pod("b"), pod("c", says={"partition": "gpu"}))
    assert requests(story.decides(NOW + 1)) == ["queue", "now"]


def test_when_the_queue_is_empty_again_nodes_are_tried_for_again() -> None:
    story = Story()
    story.queues(pod("a"), 17, at=NOW)
    story.polls({17: "CANCELLED"}, at=NOW + 1)
    story.loses(pod("a"), NOW + 1)
    assert story.world.queued_in["main"] == 0
    story.sees(pod("b"))
    assert requests(story.decides(NOW + 2)) == ["now"]


@pytest.mark.parametrize("says", [{"dependency": "afterany:8"}, {"begin": "now+1hour"}], ids=["dependency", "begin"])
def test_what_may_not_start_now_queues(says: dict[str, str]) -> None:
    """Slurm refuses an immediate allocation of such a job as if it had a twin (2038)."""
    story = Story()
    story.sees(pod("later", says=says))
    assert requests(story.decides(NOW)) == ["queue"]


def test_a_begin_time_that_is_past_keeps_no_pod_from_trying() -> None:
    story = Story()
    story.sees(pod("late", says={"begin": "now"}))
    assert requests(story.decides(NOW)) == ["now"]


@pytest.mark.parametrize(
    "reason", ["BeginTime", "Dependency", "DependencyNeverSatisfied", "JobHeldUser", "JobHeldAdmin", "Reservation"]
)
def test_a_job_that_wants_no_nodes_yet_is_in_no_pods_way(reason: str) -> None:
    """Slurm grants immediate allocations beside it; a pod that begins tomorrow must not slow all others down today."""
    story = Story()
    later = pod("later", says={"begin": "now+1hour"})
    story.queues(later, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    queues(story, "a", NOW + 1)  # not read yet: it may want nodes
    story.reads(replace(job_of(later, 17, "PENDING"), reason=reason), at=NOW + 2)
    story.sees(pod("b", says={"partition": "main"}))
    assert requests(story.decides(NOW + 2)) == ["now"]


def test_every_job_is_a_singleton_of_its_name() -> None:
    """At most one of a name runs, even if a lost answer made two (ARCHITECTURE 4)."""
    story = Story()
    story.runs(pod("warm"), 16, at=NOW)
    story.sees(*pods(3))
    asked = [each for each in story.decides(NOW) if isinstance(each, AllocateNow | SubmitJob)]
    assert {each.spec.dependency for each in asked} == {"singleton"}
    assert len({each.spec.name for each in asked}) == 3


def test_a_node_that_slurm_does_not_know_is_asked_about_before_the_next_try() -> None:
    """Slurm facts 8: one unknown name in excluded_nodes refuses the call (2018)."""
    story = Story()
    story.sees(pod("a"))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2018)
    assert [type(each).__name__ for each in story.decides(NOW)] == ["PollNodes"]
    assert requests(story.decides(NOW + 1)) == ["now"]


def test_the_grant_of_an_immediate_allocation_waits_for_no_poll() -> None:
    story = Story()
    story.sees(pod("a"))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    assert [type(each).__name__ for each in story.decides(NOW)] == ["BindPod"]
