"""What one gang costs grows with its pods, not with their square, in whatever order these come and go (W5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, ObjectKind, Outcome, Plan, SubmitJob
from scheduler.apply import membership, settling, surplus
from scheduler.decide import decide
from scheduler.events import OwnerRead, PodsListed, Scope, SlurmNodesPolled
from scheduler.explain import UNSETTLED, explain
from scheduler.model.kubernetes import Owner, OwnerRef, Pod, PodPhase, Stage
from scheduler.model.slurm import GrantedNode, JobSpec, SlurmNode
from scheduler.place.assign import Part, places
from scheduler.place.capacity import Alike, alike
from scheduler.rules import gang_layout, gathering
from scheduler.rules.gathering import gather
from scheduler.rules.scheduling_pass import Pass
from scheduler.state.phase import Phase
from scheduler.state.workload import Workload
from scheduler.translate.grouping import JOBSET, JOBSET_PART, JOBSET_UID, SET_INDEX, Natural, natural
from tests.builders import START, Story, job_of, pod, slurm_node

NOW = START + 30
FEW = 100  # more than are settled at once
JOB = OwnerRef("batch/v1", "Job", "set-w-0", "uid-job")
SET = OwnerRef("jobset.x-k8s.io/v1alpha2", "JobSet", "set", "uid-set")
# Each is called once for each pod that is looked at.
LOOKS = (
    (surplus, "rank_of"),
    (membership, "shown_by"),
    (settling, "shown_by"),
    (surplus, "_waits"),
    (settling, "stays"),
)

Make = Callable[[int], list[Pod]]
Tell = Callable[[Story, list[Pod]], None]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a pod was looked at to find the members."""
    found: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any) -> Any:
            found[name] += 1
            return function(*args)

        return counting

    monkeypatch.setattr(settling, "SETTLED_AT_ONCE", 8)
    for module, name in LOOKS:
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    return found


def labelled(number: int, count: int, size: int, **fields: Any) -> Pod:
    """Its index runs against its name."""
    return pod(
        f"w-{number:05}",
        labels={names.PREFIX + "gang": "ring", SET_INDEX: str(count - number)},
        says={"gang-size": str(size)},
        **fields,
    )


def of_size(size: Callable[[int], int]) -> Make:
    return lambda count: [labelled(number, count, size(count)) for number in range(count)]


def of_a_jobset(part: str) -> Make:
    labels = {JOBSET: "set", JOBSET_UID: SET.uid, JOBSET_PART: part}
    return lambda count: [pod(f"set-{part}-{number}", owner=JOB, labels=labels) for number in range(count)]


GANGS: dict[str, Make] = {
    "of one": of_size(lambda count: 1),
    "of two": of_size(lambda count: 2),
    "of half of them": of_size(lambda count: count // 2),
    "of all": of_size(lambda count: count),
    "of more": of_size(lambda count: count + 1),
    "a JobSet": of_a_jobset("w"),
    "a JobSet's part of no stage": of_a_jobset("other"),
}


def listed(story: Story, pods: list[Pod]) -> None:
    story.sees(PodsListed(Scope.OURS, tuple(pods), START))


def seen_one_by_one(story: Story, pods: list[Pod]) -> None:
    story.sees(*pods)


def seen_in_any_order(story: Story, pods: list[Pod]) -> None:
    story.sees(*Random(1).sample(pods, len(pods)))


def changed(story: Story, pods: list[Pod]) -> None:
    story.sees(*pods)
    for sizes in ("7", "8"):
        story.sees(*(replace(each, annotations={names.PREFIX + "gang-size": sizes}) for each in pods))


def deleted(story: Story, pods: list[Pod]) -> None:
    story.sees(*pods)
    for each in pods:
        story.loses(each, NOW)


def deleted_in_any_order(story: Story, pods: list[Pod]) -> None:
    story.sees(*pods)
    for each in Random(1).sample(pods, len(pods)):
        story.loses(each, NOW)


def replaced(story: Story, pods: list[Pod]) -> None:
    """Each of them goes, and another comes at once."""
    story.sees(*pods)
    for each in pods:
        story.loses(each, NOW)
        story.sees(replace(each, uid=f"{each.uid}-new", name=f"{each.name}-new"))


def ended(story: Story, pods: list[Pod]) -> None:
    story.sees(*pods)
    story.sees(*(replace(each, node="x1", phase=PodPhase.RUNNING) for each in pods))
    story.sees(*(replace(each, node="x1", phase=PodPhase.SUCCEEDED) for each in pods))


@pytest.mark.parametrize(
    "tell",
    [listed, seen_one_by_one, seen_in_any_order, changed, deleted, deleted_in_any_order, replaced, ended],
    ids=lambda tell: tell.__name__,
)
@pytest.mark.parametrize("make", GANGS.values(), ids=GANGS)
def test_twice_as_many_pods_of_one_gang_cost_about_twice_as_much(looks: Counter[str], make: Make, tell: Tell) -> None:
    costs = []
    for count in (100, 200):
        looks.clear()
        story = Story()
        stages = (Stage("first", ("w",), count),) if make is GANGS["a JobSet's part of no stage"] else ()
        story.sees(OwnerRead(JOB, Owner(JOB, owner=SET), START, "hpc"))
        story.sees(OwnerRead(SET, Owner(SET, members=count, stages=stages), START, "hpc"))
        tell(story, make(count))
        story.plan(NOW + 1)
        costs.append(looks.total())
    assert costs[1] <= 2.6 * costs[0], "twice as much, and somewhat more for where the last batch of news ends"
    assert costs[1] <= 60 * 200


def the_gang(story: Story) -> Workload:
    [gang] = [each for each in story.world.workloads.values() if each.group is not None]
    return gang


def passes(story: Story, at: float, most: int = 20) -> list[Plan]:
    """Until nothing is left to be done at that time."""
    plans = []
    for _ in range(most):
        plans.append(story.plan(at))
        if plans[-1].wake_at is None or plans[-1].wake_at > at:
            break
    return plans


def asked(plan: Plan, key: str) -> list[int]:
    submitted = [each for each in plan.actions if isinstance(each, AllocateNow | SubmitJob)]
    return [each.spec.tasks for each in submitted if each.key == key]


def test_no_pass_acts_for_a_large_gang_before_its_members_are_known() -> None:
    story = Story()
    pods = of_size(lambda count: count - 10)(FEW)
    story.sees(*pods)
    gang = the_gang(story)
    assert gang.key in story.world.unsettled
    first, second = story.plan(NOW), story.plan(NOW)
    assert first.settled == (gang.key,)
    assert first.wake_at == NOW, "the next pass follows at once"
    assert gang.key not in first.visited
    assert asked(first, gang.key) == []
    assert asked(second, gang.key) == [FEW - 10]
    assert {each.uid for each in gang.members} == {each.uid for each in pods[10:]}, "by their indices, not their names"


@pytest.mark.parametrize("change", [{"deleting_at": NOW + 30}, {"phase": PodPhase.FAILED, "node": "x1"}])
def test_a_large_gang_is_explained_while_its_members_are_not_known(change: dict[str, Any]) -> None:
    """No pod is left, and the phase is still that of the last members: the answer was an internal error."""
    story = Story()
    pods = of_size(lambda count: count - 10)(FEW)
    story.sees(*pods)
    settling.settle_all(story.world)
    story.sees(*(replace(each, **change) for each in pods))
    key = the_gang(story).key
    assert key in story.world.unsettled
    told = explain(story.world, key, NOW)
    assert (told.sentence, told.next) == (UNSETTLED, ())
    settling.settle_all(story.world)
    assert explain(story.world, key, NOW).phase == "done"


def test_large_gangs_are_settled_with_a_pause_between_them_whatever_is_heard() -> None:
    story = Story()
    pods = of_size(lambda count: 1)(FEW)
    story.sees(*pods)
    passes(story, NOW)
    assert not story.world.unsettled
    settled, at = 0, NOW
    story.world.settles_at = NOW
    for each in reversed(pods[-50:]):  # the lowest index is the member; the next one takes its place
        story.loses(each, at)
        plan = story.plan(at)
        settled += len(plan.settled)
        if story.world.unsettled:
            assert plan.wake_at is not None
            assert at < plan.wake_at <= story.world.settles_at, "it is not forgotten, and nobody spins"
        at += 0.0001
    assert 1 <= settled <= 3
    passes(story, story.world.settles_at)
    assert not story.world.unsettled
    assert [each.uid for each in the_gang(story).members] == [pods[-51].uid]


def test_settling_counts_as_work_of_the_pass_and_leaves_half_of_it_to_others() -> None:
    story = Story()
    story.sees(*of_size(lambda count: count - 10)(2000))
    others = [pod(f"train{number}", namespace="other") for number in range(200)]
    story.sees(*others)
    plan = decide(story.world, NOW)
    assert plan.settled == (the_gang(story).key,)
    assert 0 < len(plan.visited) < len(others)
    assert plan.deferred, "the rest is for the next pass"


def test_a_gang_that_lost_a_member_prefers_who_waited_longer_to_who_came_in_the_same_moment() -> None:
    story = Story()
    pods = of_size(lambda count: count - 10)(FEW)
    story.sees(*pods)
    settling.settle_all(story.world)
    story.loses(pods[-1], NOW)
    late = labelled(FEW, 10 * FEW, FEW - 10)  # of a higher index than all others
    story.sees(late)
    assert story.world.unsettled
    settling.settle_all(story.world)
    assert members_of(story) == sorted(each.uid for each in pods[9:-1])
    assert story.world.workloads[story.world.key_of_pod[late.uid]].group is None, "it is a workload by itself"


def test_an_error_while_a_gang_is_settled_concerns_that_gang_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(guarded=True)
    story.sees(*of_size(lambda count: count - 10)(FEW))
    key = the_gang(story).key
    monkeypatch.setattr(surplus, "rank_of", lambda _: 1 / 0)
    story.plan(NOW)
    assert list(story.world.quarantine) == [(ObjectKind.WORKLOAD, key)]
    assert not story.world.unsettled


def test_pods_that_another_client_bound_are_not_counted_again_at_each_of_their_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job that they name has ended, so each event asks if any of them runs for that job."""
    asked_of: list[str] = []
    is_bound_for = Workload.is_bound_for

    def counting(self: Workload, pod: Pod, *args: Any) -> bool:
        asked_of.append(pod.uid)
        return is_bound_for(self, pod, *args)

    monkeypatch.setattr(Workload, "is_bound_for", counting)
    story = Story()
    pods = [replace(each, node="x1", phase=PodPhase.RUNNING) for each in of_size(lambda count: count)(FEW)]
    pods = [replace(each, annotations=each.annotations | {names.JOB_ID: "17"}) for each in pods]
    story.sees(*pods[:-1])
    gang, job = the_gang(story), story.world.placeholders[17]
    job.states, job.end_proven = frozenset({"COMPLETED"}), True
    story.sees(*pods, *(replace(each, phase=PodPhase.SUCCEEDED) for each in pods))
    assert len(asked_of) <= 2 * len(pods)
    assert story.world.phase_of[gang.key] is Phase.DONE


def test_a_replacement_in_a_large_gang_is_placed_without_comparing_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[GrantedNode] = []

    def counting(self: GrantedNode, other: object) -> bool:
        compared.append(self)
        return self is other

    monkeypatch.setattr(GrantedNode, "__eq__", counting)
    nodes = [GrantedNode(f"n{number}", 10, 1000, {}) for number in range(20)]
    members = [pod(f"a{number:03}") for number in range(100, 200)] + [pod(f"z{number:03}") for number in range(100)]
    stands = {each.uid: nodes[number // 10].name for number, each in enumerate([*members[100:], *members[:100]])}
    del stands[members[-1].uid]
    found = places([Part(JobSpec("job", "alice", 1, 100, tasks=200), nodes, members)], stands)
    assert found is not None
    assert found[members[-1].uid].node.name == "n9", "where its forerunner stood"
    assert len(compared) <= len(members)


@pytest.mark.parametrize("name", ["w", "-".join(map(str, range(60)))], ids=["short", "long"])
def test_names_of_members_that_disagree_are_read_once_each_and_counted_as_work(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    read: list[str] = []

    def read_name(name: str) -> Natural:
        read.append(name)
        return natural(name)

    monkeypatch.setattr(gathering, "natural", read_name)
    story = Story()
    story.sees(*(replace(each, name=f"{name}-{each.name}") for each in of_size(lambda count: count)(FEW)))
    [*pods] = the_gang(story).pods.values()
    story.sees(replace(pods[0], annotations={names.PREFIX + "gang-size": "7"}))
    this_pass = Pass(story.world, NOW)
    gather(the_gang(story), this_pass)
    assert len(read) == FEW
    assert this_pass.effort >= FEW * (1 + len(name) // 8)


def members_of(story: Story) -> Sequence[str]:
    return sorted(each.uid for each in the_gang(story).members)


@pytest.mark.parametrize("tell", [listed, seen_one_by_one, seen_in_any_order], ids=lambda tell: tell.__name__)
def test_who_is_a_member_of_a_large_gang_is_the_same_however_its_pods_came(tell: Tell) -> None:
    story, pods = Story(), of_size(lambda count: count // 2)(4 * FEW)
    tell(story, pods)
    passes(story, NOW)
    assert members_of(story) == sorted(each.uid for each in pods[2 * FEW :])


def test_a_pod_that_comes_to_a_large_gang_in_which_places_became_free_gets_no_job_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The members are determined by the next plan.  Until then the new pod, which ranks after the former members, is one."""
    monkeypatch.setattr(settling, "SETTLED_AT_ONCE", 2)
    monkeypatch.setattr(settling, "PODS_PER_NEWS", 1)
    story = Story()
    first, second, third, fourth, surplus, new = (
        pod(f"w-{number}", labels={names.PREFIX + "gang": "ring"}, says={"gang-size": "4"})
        for number in (0, 1, 2, 3, 8, 9)
    )
    story.sees(first, second, third, surplus, fourth)
    story.decides(NOW)
    gang = story.world.workloads[story.world.key_of_pod[first.uid]]
    assert list(gang.surplus) == [surplus.uid]
    story.sees(*(replace(each, phase=PodPhase.FAILED) for each in (first, second)), new)
    assert gang.key in story.world.unsettled
    assert story.world.key_of_pod[new.uid] == gang.key


def test_the_nodes_of_a_waiting_gang_are_grouped_again_only_if_nodes_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its job is read every few seconds, and there may be thousands of nodes."""
    grouped: list[int] = []

    def counting(nodes: Iterable[SlurmNode], *and_by: Any) -> list[Alike]:
        grouped.append(len(of := list(nodes)))
        return alike(of, *and_by)

    monkeypatch.setattr(gang_layout, "alike", counting)
    story = Story(checked=False)
    story.sees(*(labelled(number, 2, 2) for number in range(2)))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2013)
    [queued] = story.acts(SubmitJob, NOW)
    story.ended(queued, at=NOW, job_id=17)
    job = replace(job_of(labelled(0, 2, 2), 17, "PENDING"), name=queued.spec.name)
    for second in range(1, 4):
        story.polls({17: "PENDING"}, at=NOW + second)
        story.reads(job, at=NOW + second)
        story.decides(NOW + second)
    assert grouped == [2]
    smaller = replace(slurm_node("x1"), memory_mib=1000), slurm_node("x2")
    story.sees(SlurmNodesPolled(smaller, None, NOW + 4))
    story.decides(NOW + 4)
    assert grouped == [2, 2]
