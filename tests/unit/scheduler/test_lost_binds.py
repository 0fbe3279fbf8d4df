"""A bind whose answer was lost: it may have happened, or may yet.  Settle, look at the pod, then release its room (V5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, BindPod, CancelJob, Outcome, ReadJob, ReadPod, SetPodCondition, SubmitJob
from scheduler.events import NodeSeen, PodsListed, Scope
from scheduler.model.kubernetes import PodPhase
from scheduler.state import quarantine
from scheduler.state.phase import Phase
from tests.builders import START, Story, grant, job_of, key_of, node, pod
from tests.unit.scheduler.test_gangs import granted, member, runs, where

NOW = START + 60
SETTLED = NOW + 10 + 12
BIG = pod("big", cpu=4000)
ONE_NODE = (node("x1", cpu=4000),)


def lost(story: Story) -> BindPod:
    """The pod is granted the whole node; its bind is sent, and ten seconds later its outcome is unknown."""
    story.sees(BIG)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=5, grant=grant(5, cpus=4))
    [bind] = story.acts(BindPod, NOW)
    story.ended(bind, Outcome.UNKNOWN, at=NOW + 10, began=NOW)
    return bind


def preempted(story: Story, at: float) -> None:
    """Its job ends before the bind is sent again."""
    story.polls({5: "PREEMPTED"}, at=at)


def asks(story: Story, at: float) -> list[AllocateNow | SubmitJob]:
    """What is asked of Slurm; reads of the ended job are answered."""
    acts = story.decides(at)
    for read in [each for each in acts if isinstance(each, ReadJob)]:
        story.reads(job_of(BIG, 5, "PREEMPTED"), at=at)
        story.ended(read, at=at)
    return [each for each in acts if isinstance(each, AllocateNow | SubmitJob)]


def looks(story: Story, at: float) -> list[ReadPod]:
    return story.acts(ReadPod, at)


def test_a_lost_bind_frees_its_room_once_a_read_shows_the_pod_without_a_node() -> None:
    story = Story(nodes=ONE_NODE)
    lost(story)
    preempted(story, NOW + 10.5)
    assert looks(story, SETTLED - 1) == []
    [look] = looks(story, SETTLED)
    assert (look.uid, look.name) == (BIG.uid, "big")
    assert story.world.node_info["x1"].pods.keys() == {BIG.uid}
    story.ended(look, at=SETTLED)
    assert story.world.node_info == {}
    [asked] = asks(story, SETTLED + 1)
    assert asked.key == key_of(BIG)


def test_a_change_of_the_pod_that_shows_no_node_does_not_show_that_the_bind_never_happened() -> None:
    """The watch may show a label that was edited before the bind."""
    story = Story(nodes=ONE_NODE)
    lost(story)
    preempted(story, NOW + 10.5)
    story.sees(replace(BIG, labels={"edited": "before"}))
    assert asks(story, NOW + 20) == []
    assert story.world.node_info["x1"].pods.keys() == {BIG.uid}
    assert len(looks(story, SETTLED)) == 1


@pytest.mark.parametrize("shown", [{"node": "x1"}, {"phase": PodPhase.FAILED}], ids=["it is bound", "it ended unbound"])
def test_a_pod_of_which_the_watch_shows_what_became_of_its_bind_is_not_read(shown: dict[str, Any]) -> None:
    story = Story(nodes=ONE_NODE)
    bind = lost(story)
    story.sees(replace(BIG, annotations=dict(bind.annotations), **shown))
    assert looks(story, SETTLED) == []


def test_its_grant_is_kept_though_the_node_cannot_be_used_until_the_pod_was_looked_at() -> None:
    """A late bind would put the pod on a node that its job does not hold any more, and the pod would end with its job."""
    story = Story(nodes=ONE_NODE)
    lost(story)
    story.sees(NodeSeen(replace(ONE_NODE[0], unschedulable=True)))
    assert story.acts(CancelJob, NOW + 11) == []
    [look] = looks(story, SETTLED)
    assert story.acts(CancelJob, SETTLED) == []
    story.ended(look, at=SETTLED)
    [cancel] = story.acts(CancelJob, SETTLED + 1)
    assert (cancel.job_id, cancel.reason) == (5, "released: node x1 is cordoned")


def test_the_pod_says_that_its_grant_is_kept_while_it_is_not_known_if_it_was_bound() -> None:
    story = Story(nodes=ONE_NODE)
    lost(story)
    story.sees(NodeSeen(replace(ONE_NODE[0], unschedulable=True)))
    [said] = story.acts(SetPodCondition, NOW + 11)
    assert said.message == (
        "Slurm job 5 cannot be used: node x1 is cordoned. It is kept until it is known if the pod was bound for it."
    )


def test_the_room_of_a_bind_that_never_happened_serves_the_next_pod() -> None:
    story = Story(nodes=ONE_NODE)
    lost(story)
    preempted(story, NOW + 10.5)
    for at in range(int(SETTLED), int(SETTLED) + 5):
        for action in story.decides(at):
            number = {"number": 2013} if isinstance(action, AllocateNow) else {}
            story.ended(action, Outcome.REFUSED if number else Outcome.DONE, at=at, job_id=6, **number)
    other = pod("other", cpu=4000, created=NOW + 100)
    story.queues(other, 7, at=NOW + 101)
    story.polls({6: "PENDING", 7: "RUNNING"}, at=NOW + 102)
    [read] = [each for each in story.acts(ReadJob, NOW + 102) if each.job_id == 7]
    story.reads(job_of(other, 7), at=NOW + 102, granted=grant(7, cpus=4))
    story.ended(read, at=NOW + 102)
    assert [each.name for each in story.acts(BindPod, NOW + 103)] == ["other"]


def test_a_pod_whose_turn_has_come_is_looked_at_although_the_turn_of_another_has_not() -> None:
    story, pods = Story(), [pod("first"), pod("second")]
    for job_id, what in enumerate(pods, 5):
        story.sees(what)
        [asked] = story.acts(AllocateNow, NOW)
        story.ended(asked, at=NOW, job_id=job_id, grant=grant(job_id))
        [bind] = story.acts(BindPod, NOW)
        story.ended(bind, Outcome.UNKNOWN, at=NOW + 1)
    story.polls({5: "PREEMPTED", 6: "PREEMPTED"}, at=NOW + 2)
    first, second = looks(story, SETTLED)
    story.ended(second, Outcome.UNREACHED, at=SETTLED + 1)
    story.ended(first, Outcome.UNREACHED, at=SETTLED + 3)
    assert [look.name for look in looks(story, SETTLED + 7)] == ["second"]


def test_nothing_new_is_asked_for_before_the_pod_was_looked_at() -> None:
    story = Story()
    lost(story)
    preempted(story, NOW + 10.5)
    assert asks(story, NOW + 20) == []
    [look] = looks(story, SETTLED)
    assert asks(story, SETTLED + 0.5) == [], "the look is under way"
    story.ended(look, at=SETTLED + 1)
    assert len(asks(story, SETTLED + 1)) == 1


def test_a_pod_is_not_looked_at_while_it_is_bound_once_more() -> None:
    story = Story()
    lost(story)
    [again] = story.acts(BindPod, NOW + 12)
    assert looks(story, SETTLED) == []
    assert looks(story, SETTLED + 100) == []
    story.ended(again, Outcome.UNKNOWN, at=SETTLED + 100)
    assert looks(story, SETTLED + 100) == []
    assert len(looks(story, SETTLED + 112)) + len(story.acts(BindPod, SETTLED + 112)) == 1


def test_a_pod_whose_facts_the_quarantine_dropped_is_looked_at_when_they_are_back() -> None:
    story = Story(guarded=True, nodes=ONE_NODE)
    lost(story)
    quarantine.quarantine_workload(story.world, key_of(BIG), ValueError("a defect"))
    assert looks(story, SETTLED) == []
    back_at = NOW + 10 + story.world.config.tuning.quarantine_s
    looked = [look for at in (back_at, back_at + 1, back_at + 2) for look in looks(story, at)]
    assert {each.uid for each in looked} == {BIG.uid}


def test_a_bind_that_did_happen_is_known_from_the_look_on() -> None:
    story = Story(nodes=ONE_NODE)
    lost(story)
    preempted(story, NOW + 10.5)
    [look] = looks(story, SETTLED)
    story.ended(look, at=SETTLED, node="x1")
    assert story.world.node_info["x1"].pods.keys() == {BIG.uid}
    assert asks(story, SETTLED + 1) == [], "it stands there, for a job that is proven to have ended"
    assert story.world.phase_of[key_of(BIG)] is Phase.ORPHANED


def test_a_pod_on_another_node_takes_no_room_on_the_node_that_its_bind_named() -> None:
    story = Story()
    lost(story)
    preempted(story, NOW + 10.5)
    [look] = looks(story, SETTLED)
    story.ended(look, at=SETTLED, node="x2")
    assert "x1" not in story.world.node_info


def test_a_pod_that_cannot_be_looked_at_is_looked_at_again() -> None:
    story = Story(nodes=ONE_NODE)
    lost(story)
    preempted(story, NOW + 10.5)
    [look] = looks(story, SETTLED)
    story.ended(look, Outcome.UNREACHED, at=SETTLED)
    assert looks(story, SETTLED + 1) == []
    assert story.world.node_info["x1"].pods.keys() == {BIG.uid}
    [again] = looks(story, SETTLED + 5)
    story.ended(again, at=SETTLED + 5)
    assert story.world.node_info == {}


def test_a_list_that_may_be_old_does_not_free_its_room() -> None:
    story = Story(nodes=ONE_NODE)
    lost(story)
    preempted(story, NOW + 10.5)
    story.sees(PodsListed(Scope.OURS, (BIG,), SETTLED + 1))
    assert story.world.node_info["x1"].pods.keys() == {BIG.uid}


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.UNREACHED])
def test_the_next_attempt_may_fail_while_the_first_one_still_takes_effect(outcome: Outcome) -> None:
    story = Story(nodes=ONE_NODE)
    lost(story)
    story.polls({5: "RUNNING"}, at=NOW + 11)
    [again] = story.acts(BindPod, NOW + 11)
    story.ended(again, outcome, at=NOW + 11)
    assert story.world.node_info["x1"].pods.keys() == {BIG.uid}
    assert looks(story, NOW + 12) == []


def test_the_answer_to_the_next_attempt_settles_it() -> None:
    story = Story()
    lost(story)
    story.polls({5: "RUNNING"}, at=NOW + 11)
    [again] = story.acts(BindPod, NOW + 11)
    story.ended(again, at=NOW + 11)
    assert story.world.phase_of[key_of(BIG)] is Phase.BOUND
    assert looks(story, SETTLED) == []


def test_an_answer_to_a_look_before_another_bind_was_sent_frees_nothing() -> None:
    story = Story()
    lost(story)
    story.polls({5: "RUNNING"}, at=SETTLED)
    acts = story.decides(SETTLED)
    [again] = [each for each in acts if isinstance(each, BindPod)]
    [look] = [each for each in acts if isinstance(each, ReadPod)]
    story.ended(again, Outcome.UNKNOWN, at=SETTLED + 3, began=SETTLED)
    story.ended(look, at=SETTLED + 4, began=SETTLED)
    assert BIG.uid in story.world.assumed
    assert looks(story, SETTLED + 4) == []


def test_a_pod_that_goes_meanwhile_leaves_nothing_behind() -> None:
    story = Story(nodes=ONE_NODE)
    lost(story)
    story.loses(BIG, NOW + 11)
    assert (story.world.node_info, story.world.assumed, story.world.unanswered_binds) == ({}, {}, {})


def test_a_twin_that_was_granted_another_node_waits_until_the_first_bind_is_settled() -> None:
    """Its bind would leave the pod on the first one's node for the second one's job."""
    story = Story()
    lost(story)
    story.polls({5: "PREEMPTED", 6: "RUNNING"}, at=NOW + 10.5)
    story.reads(job_of(BIG, 5, "PREEMPTED"), at=NOW + 10.5)
    story.reads(job_of(BIG, 6, nodes="x2"), at=NOW + 10.5, granted=grant(6, "x2", cpus=4))
    assert story.acts(BindPod, NOW + 15) == []
    [look] = looks(story, SETTLED)
    story.ended(look, at=SETTLED)
    assert [each.node for each in story.acts(BindPod, SETTLED)] == ["x2"]


# --- a member of lower rank comes while binds are under way -----------------------------------------------------------


def test_a_place_that_is_being_bound_is_taken_whatever_the_rank_of_the_next_one() -> None:
    story = Story()
    pods = [member(number, 3) for number in (1, 2, 3)]
    story.sees(*pods)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=granted(17, ("x1", 3)))
    binds = story.acts(BindPod, NOW)
    lower = member(0, 3)
    story.sees(lower)
    assert story.acts(BindPod, NOW) == []
    gang = story.world.workloads[binds[0].key]
    assert set(gang.pods) == {each.uid for each in pods}
    for bind in binds:
        story.ended(bind, at=NOW + 1)
    story.sees(*[story.bound(each, 17) for each in pods])
    assert gang.pods_in_flight == {}
    assert story.world.phase_of[gang.key] is Phase.BOUND
    assert story.world.key_of_pod[lower.uid] != gang.key


def test_a_place_whose_bind_has_a_lost_answer_is_taken_whatever_the_rank_of_the_next_one() -> None:
    story = Story()
    pods = [member(number, 2) for number in (1, 2)]
    story.sees(*pods)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=granted(17, ("x1", 2)))
    for bind in story.acts(BindPod, NOW):
        story.ended(bind, Outcome.UNKNOWN, at=NOW + 1)
    lower = member(0, 2)
    story.sees(lower)
    assert {each.name for each in story.acts(BindPod, NOW + 2)} == {"w-1", "w-2"}
    assert story.world.key_of_pod[lower.uid] != story.world.key_of_pod[pods[0].uid]


def test_a_new_member_takes_no_place_to_which_a_bind_with_a_lost_answer_may_put_another_member() -> None:
    story = Story()
    pods = [member(number, 3) for number in (1, 2, 3)]
    story.sees(*pods)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=granted(17, ("x1", 2), ("x2", 1)))
    for bind in story.acts(BindPod, NOW):
        story.ended(bind, Outcome.UNKNOWN, at=NOW + 1)
    story.loses(pods[0], NOW + 2)
    story.sees(member(9, 3, created=NOW + 2))
    assert where(story.acts(BindPod, NOW + 3)) == {"w-2": "x1", "w-3": "x2", "w-9": "x1"}


def test_a_gang_is_asked_for_again_after_one_of_lower_rank_came_amid_its_binds() -> None:
    story = Story()
    pods = [member(number, 2) for number in (1, 2)]
    story.sees(*pods)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=granted(17, ("x1", 2)))
    binds = story.acts(BindPod, NOW)
    lower = member(0, 2)
    story.sees(lower)
    for bind in binds:
        story.ended(bind, at=NOW + 1)
    shown = [story.bound(each, 17) for each in pods]
    story.sees(*shown)
    story.polls({17: "RUNNING"}, at=NOW + 2)
    for each in (*shown, lower):
        story.loses(replace(each), NOW + 20)
    [cancel] = [each for each in story.decides(NOW + 70) if isinstance(each, CancelJob)]
    story.ended(cancel, at=NOW + 70)
    story.sees(*[member(number, 2, uid=f"again-{number}", created=NOW + 80) for number in (0, 1)])
    again = [each for each in story.decides(NOW + 200) if isinstance(each, AllocateNow | SubmitJob)]
    assert [each.spec.tasks for each in again] == [2]


def test_a_bind_in_flight_ends_although_the_watch_shows_meanwhile_that_the_pod_runs_in_its_gang() -> None:
    """A former process had bound the pod for the job of the gang, and the first list did not show it yet."""
    story = Story()
    [first, _] = runs(story, [member(number, 2) for number in (0, 1)], ("x1", 2), at=NOW)
    surplus = member(2, 2)
    story.sees(surplus)
    [asked] = story.acts(AllocateNow, NOW + 1)
    story.ended(asked, at=NOW + 1, job_id=18, grant=granted(18, ("x1", 1)))
    [bind] = story.acts(BindPod, NOW + 1)
    shown = story.bound(surplus, 17)
    of_the_gang = {names.TRACEPARENT: names.traceparent(story.world.cluster, story.world.key_of_pod[first.uid])}
    story.sees(replace(shown, annotations=shown.annotations | of_the_gang))
    assert story.world.key_of_pod[surplus.uid] != bind.key
    story.ended(bind, Outcome.REFUSED, at=NOW + 2, number=409)
    assert [each for each in story.world.workloads.values() if each.pods_in_flight] == []
    story.world.validate()


def test_a_pod_whose_lost_bind_took_effect_does_not_end_with_an_earlier_job_because_its_own_was_renamed() -> None:
    """The watch does not show the bind yet, and the job got its new name before it was ever read (V7)."""
    story = Story(nodes=ONE_NODE)
    story.sees(BIG)
    [asked] = story.acts(AllocateNow, NOW - 10)
    story.ended(asked, at=NOW - 10, job_id=4, grant=grant(4, cpus=4))
    [bind] = story.acts(BindPod, NOW - 10)
    story.ended(bind, Outcome.REFUSED, at=NOW - 10, number=403)
    story.polls({4: "CANCELLED"}, at=NOW - 9)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=5, grant=grant(5, cpus=4))
    [bind] = story.acts(BindPod, NOW)
    story.ended(bind, Outcome.UNKNOWN, at=NOW + 10, began=NOW)
    story.polls({4: "CANCELLED", 5: "RUNNING"}, at=NOW + 11)
    story.reads(replace(job_of(BIG, 5, submitted=NOW), name="pretty"), at=NOW + 11)
    [look] = looks(story, SETTLED)
    story.ended(look, at=SETTLED, node="x1")
    for second in range(30):
        story.polls({4: "CANCELLED", 5: "RUNNING"}, at=SETTLED + second)
        for action in story.decides(SETTLED + second):
            assert isinstance(action, ReadJob), action
            story.reads(job_of(BIG, 4, "CANCELLED", submitted=NOW - 10), at=SETTLED + second)
            story.ended(action, at=SETTLED + second)
