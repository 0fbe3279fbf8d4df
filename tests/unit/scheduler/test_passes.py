"""What one pass visits, in which order, how much of it, and when the next pass comes (ARCHITECTURE 3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, ObjectKind, Outcome, Plan, PollNodes, SubmitJob, UpdateJob
from scheduler.apply.events import new_world
from scheduler.decide import AGAIN_S, decide
from scheduler.events import (
    JobsPolled,
    NamespacesListed,
    NodesListed,
    ObjectUndecoded,
    OutageBegan,
    Planned,
    PodSeen,
    PodsListed,
    Scope,
    Side,
    SlurmNodesPolled,
)
from scheduler.model.kubernetes import Namespace, PodTerm, Requirement, Undecoded
from scheduler.model.slurm import Partition
from scheduler.state.phase import Phase
from tests.builders import CONFIG, KUBE_SYSTEM, START, Story, grant, job_of, key_of, node, pod, slurm_node, without
from tests.defects import breaks_rule, quarantined
from tests.unit.scheduler.test_large_gangs import labelled

NOW = START + 20
AGAINST_TRAINS = (PodTerm((Requirement("app", "In", ("train",)),), frozenset({"hpc"})),)


def passes(story: Story, at: float, most: int = 100) -> list[Plan]:
    """The plans at that time, until the next pass is due later."""
    plans: list[Plan] = []
    while len(plans) < most and (not plans or plans[-1].wake_at in (at, at + AGAIN_S)):
        plans.append(plan := decide(story.world, at))
        story.world.apply(Planned(plan, at))
    return plans


def test_a_bridge_with_nothing_to_do_makes_no_pass_before_something_happens() -> None:
    assert Story(nodes=()).plan(START + 1).wake_at is None


@pytest.mark.parametrize(("after_s", "decides"), [(0.0, True), (0.001, False)])
def test_nothing_is_decided_once_kubernetes_has_not_answered_for_longer_than_thirty_seconds(
    after_s: float, decides: bool
) -> None:
    story = Story()
    story.sees(OutageBegan(Side.KUBERNETES, NOW, "It does not answer."), pod("train"))
    assert bool(story.acts(AllocateNow, NOW + CONFIG.tuning.stale_s + after_s)) is decides


def test_a_poll_of_the_nodes_that_failed_is_repeated_after_its_pause() -> None:
    story, train = Story(), pod("train")
    story.queues(train, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.sees(pod("train", says={"nice": "5"}))
    [update] = story.acts(UpdateJob, NOW + 2)
    story.ended(update, Outcome.REFUSED, at=NOW + 2, number=2018)
    [poll] = story.acts(PollNodes, NOW + 2)
    story.ended(poll, Outcome.UNREACHED, at=NOW + 3)
    again = NOW + 3 + 5 * CONFIG.tuning.backoff_s
    assert story.acts(PollNodes, again - 0.001) == []
    assert len(story.acts(PollNodes, again)) == 1


# --- turns ----------------------------------------------------------------------------------------------------------


def submissions(plans: list[Plan]) -> list[str]:
    return [
        each.spec.name.partition("~")[0]
        for plan in plans
        for each in plan.actions
        if isinstance(each, AllocateNow | SubmitJob)
    ]


def test_a_pod_that_waits_for_its_turn_and_changes_does_not_overtake_the_pods_before_it() -> None:
    """The pass had no time for the change, so the next pass visits the pod in any case, but not first."""
    story = Story(without(CONFIG, submits=1, pass_effort=1), checked=False)
    story.sees(pod("a"))
    [asked] = story.acts(AllocateNow, NOW)
    for name in ("b", "c"):
        story.sees(pod(name))
        passes(story, NOW)
    story.sees(pod("elsewhere", namespace="other"), pod("c", says={"comment": "changed"}))
    assert story.plan(NOW).deferred == (key_of(pod("c")),)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    assert submissions(passes(story, NOW))[:1] == ["hpc/b"]


def test_pods_that_got_room_in_a_limit_are_visited_soon_though_a_pass_has_no_time_for_all_of_them() -> None:
    story = Story(without(CONFIG, submits=2, pass_effort=1), checked=False)
    begin = {"says": {"begin": "now+1hour"}}
    story.sees(*(pod(f"first{number}", namespace="other", **begin) for number in range(2)))
    asked = [each for plan in passes(story, NOW) for each in plan.actions if isinstance(each, SubmitJob)]
    story.sees(*(pod(f"next{number}", **begin) for number in range(4)))
    passes(story, NOW)
    for number, each in enumerate(asked):
        story.ended(each, at=NOW, job_id=17 + number)
    plans = passes(story, NOW)
    only_parked = [plan for plan in plans if plan.wake_at == NOW + AGAIN_S]
    assert only_parked, "the last pod that got room is left for the next pass"
    assert all(plan.turns and not plan.deferred for plan in only_parked)
    assert submissions(plans) == ["hpc/next0", "hpc/next1"]
    assert plans[-1].turns == {}, "nothing is left, so no namespace has had more turns than another"


def others() -> Iterator[PodSeen]:
    """Pods of others with 3,000 different anti-affinity terms, each of which has to be compared with each pod that waits."""
    terms = [PodTerm((Requirement("app", "NotIn", ("train", str(n))),), frozenset({"hpc"})) for n in range(3000)]
    for number in range(100):
        own = tuple(terms[number * 30 : number * 30 + 30])
        yield PodSeen(Scope.OTHERS, pod(f"other{number}", namespace="grey", node="x1", anti_affinity=own))


def test_a_namespace_whose_only_pod_takes_several_passes_has_had_its_turn() -> None:
    story = Story(without(CONFIG, pass_effort=1), checked=False)
    story.sees(*others())
    story.sees(train := pod("train", labels={"app": "train"}))
    plans = passes(story, NOW)
    assert [plan.turns for plan in plans if plan.deferred == (key_of(train),)][-1]["hpc"] > 0


# --- settling of large gangs ----------------------------------------------------------------------------------------


def two_large_gangs() -> Story:
    """Settling one of them takes half of the effort of a pass."""
    story = Story(without(CONFIG, pass_effort=400), checked=False)
    for gang in ("a", "b"):
        for number in range(100):
            member = labelled(number, 100, 90)
            label = {**member.labels, names.PREFIX + "gang": gang}
            story.sees(replace(member, uid=f"{gang}{number}", name=f"{gang}{number}", labels=label))
    assert len(story.world.unsettled) == 2
    return story


def test_a_pass_settles_no_more_large_gangs_than_half_of_its_effort_allows() -> None:
    story = two_large_gangs()
    assert len(decide(story.world, NOW).settled) == 1


def test_a_pass_settles_no_large_gang_before_the_pause_after_the_last_one_is_over() -> None:
    story = two_large_gangs()
    plans = passes(story, NOW)
    assert sum(len(plan.settled) for plan in plans) == 1
    assert plans[-1].wake_at == story.world.settles_at > NOW
    assert len(decide(story.world, story.world.settles_at).settled) == 1


# --- affinity -------------------------------------------------------------------------------------------------------


def test_pods_that_wait_are_kept_from_a_node_as_soon_as_a_pod_that_avoids_them_is_granted_it() -> None:
    story, train = Story(), pod("train", labels={"app": "train"})
    story.queues(train, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.queues(shy := pod("shy", anti_affinity=AGAINST_TRAINS), 18, at=NOW + 1)
    story.polls({17: "PENDING", 18: "RUNNING SUSPENDED"}, at=NOW + 2)
    story.decides(NOW + 2)
    story.reads(job_of(shy, 18, "RUNNING", "SUSPENDED"), at=NOW + 3, granted=grant(18))
    updates = [each for each in story.acts(UpdateJob, NOW + 3) if each.job_id == 17]
    assert [each.spec.excluded_nodes for each in updates] == ["x1"]


# --- quarantine -----------------------------------------------------------------------------------------------------


def test_a_pod_in_quarantine_stays_there_while_its_visit_takes_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rule has not run again, so its error is not a new one."""
    breaks_rule(monkeypatch, Phase.UNSUBMITTED, "bad")
    story, bad = Story(without(CONFIG, pass_effort=1), guarded=True, checked=False), pod("bad", labels={"app": "train"})
    story.sees(bad)
    passes(story, NOW)
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key_of(bad))}
    story.sees(*others())
    plans = passes(story, NOW + CONFIG.tuning.quarantine_s)
    assert [plan for plan in plans if key_of(bad) in plan.deferred]
    assert not [plan for plan in plans if plan.lifted]
    assert len(story.world.alarms) == 1


def test_a_pod_that_cannot_be_decoded_any_more_leaves_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rule runs for it before it can be decoded again, so there is no error to be tried again."""
    breaks_rule(monkeypatch, Phase.UNSUBMITTED, "bad")
    story, bad = Story(guarded=True), pod("bad")
    story.sees(bad)
    story.decides(NOW)
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key_of(bad))}
    story.sees(ObjectUndecoded(Undecoded("pod", bad.namespace, bad.name, bad.uid, "nonsense"), Scope.OURS))
    story.decides(NOW + CONFIG.tuning.quarantine_s)
    assert quarantined(story) == set()


def test_nothing_is_planned_before_both_clusters_were_listed() -> None:
    """A list of Slurm's jobs that is still to come may show the job of the pod."""
    world = new_world(CONFIG, START)
    managed = Namespace("hpc", "1", {names.MANAGED_LABEL: "true"})
    world.apply(NamespacesListed((KUBE_SYSTEM, managed)))
    world.apply(NodesListed((node("x1"),)))
    for scope, pods in ((Scope.OURS, (pod("train"),)), (Scope.OTHERS, ())):
        world.apply(PodsListed(scope, pods, START))
    world.apply(SlurmNodesPolled((slurm_node("x1"),), (Partition("main", default=True),), START))
    assert decide(world, NOW).actions == ()
    world.apply(JobsPolled(START, START, {}))
    assert [type(each) for each in decide(world, NOW).actions] == [AllocateNow]
