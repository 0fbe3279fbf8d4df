"""A pod that replaces another in a running gang asks for no more than the place of that pod has (W5, V5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    AllocateNow,
    BindPod,
    CancelJob,
    DeletePod,
    FailByDeadline,
    Outcome,
    ReadJob,
    SetPodCondition,
    SubmitJob,
)
from scheduler.events import PodDeleted, PodSeen, Scope, Side
from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.model.slurm import Grant, GrantedNode, Job
from tests.builders import START, Story, node, pod
from tests.unit.scheduler.test_gangs import (
    asks,
    granted,
    het,
    launched,
    launcher_and_workers,
    member,
    ring,
    two_parts,
    where,
)

NOW = START + 10
LATER = NOW + 100


def gang_of_two(story: Story, held: Grant, **shape: Any) -> list[Pod]:
    """Both run as job 17; the second one fails later."""
    pods = [member(number, 2, **shape) for number in range(2)]
    story.sees(*pods)
    story.ended(asks(story), at=NOW, job_id=17, grant=held)
    for bind in story.acts(BindPod, NOW):
        story.ended(bind, at=NOW)
    shown = [story.bound(each, 17, bound_at=NOW) for each in pods]
    story.sees(*shown)
    story.polls({17: "RUNNING"}, at=LATER)
    return shown


def before_a_restart(first: Story, shown: list[Pod], held: Grant) -> Story:
    first.loses(replace(shown[1], phase=PodPhase.FAILED), LATER)
    return first


def after_a_restart(first: Story, shown: list[Pod], held: Grant) -> Story:
    """What the next process of the bridge sees: the pod that is left, and the job that it reads."""
    name = first.world.placeholders[17].name
    story = Story()
    story.sees(shown[0])
    story.polls({17: "RUNNING"}, at=LATER)
    job = Job(17, name, "alice", frozenset({"RUNNING"}), partition="main", nodes="x1", starts=NOW, tasks=2)
    story.reads(job, at=LATER, granted=held)
    return story


LIVES = pytest.mark.parametrize("life", [before_a_restart, after_a_restart])
ONE_GPU = Grant(17, (GrantedNode("x1", 2, 200, {"gpu": 2}),))


def comes(story: Story, **shape: Any) -> tuple[list[str], list[str]]:
    """A replacement of that shape: the nodes that it is bound to, and its statuses."""
    story.sees(member(1, 2, uid="uid-new", created=LATER + 1, **shape))
    binds: list[str] = []
    said: list[str] = []
    for at in range(int(LATER) + 2, int(LATER) + 80, 2):
        for action in story.decides(at):
            assert not isinstance(action, CancelJob | DeletePod | FailByDeadline | AllocateNow | SubmitJob), (
                action.reason
            )
            binds += [action.node] if isinstance(action, BindPod) else []
            said += [action.message] if isinstance(action, SetPodCondition) else []
            story.ended(action, at=at)
        story.polls({17: "RUNNING"}, at=at + 1)
    return binds, said


@LIVES
@pytest.mark.parametrize(
    ("shape", "more"),
    [
        ({"gpu": 7}, "7 gpu"),
        ({"gpu": 2}, "2 gpu"),
        ({"gpu": 1, "cpu": 2000}, "2 CPUs"),
        ({"gpu": 1, "memory": 101}, "101 MiB of memory"),
        ({"gpu": 1, "says": {"gres": "gpu:h100:1"}}, "1 gpu:h100"),
        ({"gpu": 1, "says": {"constraints": "a100"}}, "nodes with a100"),
        ({"gpu": 1, "says": {"exclusive": "true"}}, "nodes for itself"),
    ],
)
def test_a_larger_one_waits_and_says_why(life: Any, shape: Mapping[str, Any], more: str) -> None:
    first = Story()
    story = life(first, gang_of_two(first, ONE_GPU, gpu=1), ONE_GPU)
    assert comes(story, **shape) == (
        [],
        [
            f"The pod waits for a place in job 17. Pod w-1 asks for {more}, more than its place in job 17 has. "
            "To submit all of them again, delete the other pods of hpc/ring, too."
        ],
    )


@LIVES
@pytest.mark.parametrize("shape", [{"gpu": 1}, {}, {"gpu": 1, "memory": 50}], ids=["the same", "no GPU", "less memory"])
def test_a_replacement_that_asks_for_no_more_takes_the_place(life: Any, shape: Mapping[str, Any]) -> None:
    first = Story()
    story = life(first, gang_of_two(first, ONE_GPU, gpu=1), ONE_GPU)
    assert comes(story, **shape) == (["x1"], [])


@LIVES
def test_a_replacement_that_takes_any_gpu_takes_the_place_of_a_pod_that_wanted_a_type(life: Any) -> None:
    typed = {"says": {"gres": "gpu:h100:1"}}
    held = Grant(17, (GrantedNode("x1", 2, 200, {"gpu": 2, "gpu:h100": 2}),))
    first = Story()
    story = life(first, gang_of_two(first, held, **typed), held)
    assert comes(story, says={"gres": "gpu:1"}) == (["x1"], [])


def test_a_larger_replacement_before_the_first_bind_makes_the_gang_ask_again() -> None:
    story = Story()
    pods = [member(number, 2) for number in range(2)]
    story.polls(at=LATER)
    story.sees(*pods)
    asked = asks(story, LATER)
    story.loses(pods[1], LATER)
    story.sees(member(1, 2, uid="uid-new", created=LATER, cpu=8000))
    story.ended(asked, at=LATER + 1, job_id=17, grant=granted(17, ("x1", 2)))
    [cancel] = story.acts(CancelJob, LATER + 1)
    assert cancel.reason == "released: pod w-1 asks for 8 CPUs, more than its place in job 17 has"
    story.ended(cancel, at=LATER + 1)
    again = asks(story, LATER + 20)
    assert [each.cpus_per_task for each in (again.spec, *again.spec.parts)] == [1, 8]


def test_a_larger_worker_waits_for_its_component() -> None:
    """A launcher and two workers: one heterogeneous job."""
    story = Story()
    binds = launched(story)
    for bind in binds:
        story.ended(bind, at=NOW + 1)
    on = where(binds)
    shown = [story.bound(each, 17, on[each.name]) for each in launcher_and_workers()]
    story.sees(*shown)
    story.loses(replace(shown[0], phase=PodPhase.FAILED), NOW + 2)
    story.sees(member(0, 3, uid="uid-new", created=NOW + 3, cpu=3000))
    for at in range(20, 120):
        story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW + at)
        for action in story.decides(NOW + at):
            assert not isinstance(action, BindPod | CancelJob | DeletePod | FailByDeadline), action.reason
            story.ended(action, at=NOW + at)
    told = story.world.workloads[story.world.key_of_pod["uid-new"]].last_status["uid-new"]["PodScheduled"]
    assert told.condition == names.GRANT_WAITS
    assert "Pod w-0 asks for 3 CPUs, more than its place in job 17 has." in told.message


def test_a_launcher_that_is_recreated_after_a_restart_takes_its_place() -> None:
    first = Story()
    binds = launched(first)
    for bind in binds:
        first.ended(bind, at=NOW + 1)
    on = where(binds)
    shown = [first.bound(each, 17, on[each.name], bound_at=NOW + 1) for each in launcher_and_workers()]
    story = Story()
    story.sees(*shown[1:])
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=LATER)
    leader = het(first, 17, "RUNNING")
    leader = replace(leader, parts=tuple(replace(part, tasks=2) for part in leader.parts))
    story.reads(leader, at=LATER, granted=two_parts(17))
    story.sees(member(0, 3, uid="uid-new", created=LATER + 1))
    assert [(each.name, each.node) for each in story.acts(BindPod, LATER + 2)] == [("w-0", "x1")]


@pytest.mark.parametrize("when", ["while its nodes are asked for", "once they are granted"])
def test_a_pod_that_is_resized_after_it_was_asked_for_is_compared_as_well(when: str) -> None:
    story = Story()
    story.polls(at=LATER)
    small, large = pod("train"), pod("train", cpu=4000)
    story.sees(small)
    asked = asks(story, LATER)
    if when == "while its nodes are asked for":
        story.sees(large)
    story.ended(asked, at=LATER, job_id=17, grant=granted(17, ("x1", 1)))
    story.sees(large)
    [cancel] = story.acts(CancelJob, LATER)
    assert cancel.reason == "released: pod train asks for 4 CPUs, more than its place in job 17 has"
    story.ended(cancel, at=LATER)
    assert asks(story, LATER + 20).spec.cpus_per_task == 4


def launched_gang(story: Story) -> list[Pod]:
    """A launcher on x1 and two workers on x2 run as the components 17 and 18 of one job; the launcher ends."""
    pods = launcher_and_workers()
    for bind in launched(story):
        story.ended(bind, at=NOW + 1)
    launcher, *workers = [
        story.bound(each, 17, on, bound_at=NOW + 1) for each, on in zip(pods, ("x1", "x2", "x2"), strict=True)
    ]
    story.sees(launcher, *workers)
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=LATER)
    story.loses(replace(launcher, phase=PodPhase.FAILED), LATER)
    return workers


def same_process(story: Story, workers: list[Pod]) -> Story:
    return story


def next_process(story: Story, workers: list[Pod]) -> Story:
    job = het(story, 17, "RUNNING")
    after = Story()
    after.sees(*workers)
    after.polls({17: "RUNNING", 18: "RUNNING"}, at=LATER)
    after.reads(job, at=LATER, granted=two_parts(17))
    return after


@pytest.mark.parametrize("process", [same_process, next_process])
def test_a_replacement_takes_the_place_of_its_shape_though_it_ranks_after_pods_of_another(process: Any) -> None:
    """Components were numbered by the present ranks: it was bound to the place of a worker."""
    story = Story()
    story = process(story, launched_gang(story))
    story.sees(replace(member(9, 3, cpu=1000), created=LATER + 1))
    assert where(story.acts(BindPod, LATER + 40)) == {"w-9": "x1"}


def launcher_and_worker(story: Story, *, cpus_of_launcher: int = 1) -> list[Pod]:
    """A launcher runs on x1 and its one worker on x2.  cpus_of_launcher: as Slurm granted them"""
    pods = [member(0, 2, cpu=1000), member(1, 2, cpu=4000)]
    story.sees(*pods)
    story.ended(asks(story), at=NOW, job_id=17)
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW + 1)
    held = Grant(17, (GrantedNode("x1", cpus_of_launcher, 100),), (Grant(18, (GrantedNode("x2", 4, 100),)),))
    story.reads(het(story, 17, "RUNNING"), at=NOW + 1, granted=held)
    for bind in story.acts(BindPod, NOW + 1):
        story.ended(bind, at=NOW + 1)
    bound = [story.bound(each, 17, on) for each, on in zip(pods, ("x1", "x2"), strict=True)]
    story.sees(*bound)
    return bound


def test_a_launcher_is_not_bound_to_the_place_of_the_one_worker() -> None:
    story = Story()
    launcher, _ = launcher_and_worker(story)
    story.loses(replace(launcher, phase=PodPhase.FAILED), LATER)
    story.sees(replace(member(9, 2, cpu=1000), created=LATER + 1))
    assert where(story.acts(BindPod, LATER + 2)) == {"w-9": "x1"}


def test_a_component_of_one_task_has_one_place_though_slurm_rounds_its_cpus_up() -> None:
    """Memory of a single task is granted once: a second pod on it would use what Slurm gives to others (V5)."""
    story = Story()
    _, worker = launcher_and_worker(story, cpus_of_launcher=2)
    story.loses(replace(worker, phase=PodPhase.FAILED), LATER)
    story.sees(replace(member(9, 2, cpu=1000), created=LATER + 1))
    acts = story.decides(LATER + 2)
    assert not [each for each in acts if isinstance(each, BindPod)]
    assert [each.message for each in acts if isinstance(each, SetPodCondition)] == [
        "The pod waits for a place in job 17. It has fewer places than hpc/ring has pods. To submit all of them again, "
        "delete the other pods of hpc/ring, too."
    ]


@pytest.mark.parametrize(("places_on_x2", "on"), [(0, {}), (1, {"w-1": "x2"})])
def test_a_replacement_waits_for_the_place_of_a_pod_that_terminates_only_if_no_other_place_is_free(
    places_on_x2: int, on: dict[str, str]
) -> None:
    story = Story()
    held = granted(17, ("x1", 2), *[("x2", places_on_x2)] * bool(places_on_x2))
    shown = gang_of_two(story, held)
    story.sees(replace(shown[1], deleting_at=LATER + 30))
    story.sees(member(1, 2, uid="uid-new", created=LATER + 1))
    acts = story.decides(LATER + 2)
    assert where([each for each in acts if isinstance(each, BindPod)]) == on
    assert [each.message for each in acts if isinstance(each, SetPodCondition)] == [
        "The bind for Slurm job 17 waits: hpc/w-1 still terminates."
    ] * (not on)


def test_a_replacement_looks_again_after_a_while_if_another_pod_stays_beyond_its_grace() -> None:
    """Each pass woke the next one at once, until that pod was gone."""
    story = Story(nodes=[node("x1", cpu=2000, memory=200)])
    shown = gang_of_two(story, granted(17, ("x1", 2)))
    story.loses(shown[1], LATER)
    stays = pod("agent", scheduler_name="other", node="x1", deleting_at=LATER + 30, grace_s=30)
    story.sees(PodSeen(Scope.OTHERS, stays, LATER), member(1, 2, uid="uid-new", created=LATER + 1))
    for at in (LATER + 2, LATER + 89, LATER + 90, LATER + 500):
        story.polls({17: "RUNNING"}, at=at)
        plan = story.plan(at)
        assert plan.actions or all(wakes > at for wakes in plan.wake.values()), "it waits"
        assert not [each for each in plan.actions if isinstance(each, BindPod | CancelJob)]
        for action in plan.actions:
            story.ended(action, at=at)
    story.sees(PodDeleted(Scope.OTHERS, stays, LATER + 501))
    assert [each.uid for each in story.acts(BindPod, LATER + 505)] == ["uid-new"]


def test_two_replacements_that_change_their_order_take_the_places_of_their_shapes() -> None:
    """A launcher runs, and the two other pods, each a component of its own, are created again with other ranks."""
    story = Story(nodes=[node(name) for name in ("x1", "x2", "x3")])
    pods = [member(0, 3, cpu=1000), member(1, 3, cpu=2000), member(2, 3, cpu=4000)]
    story.sees(*pods)
    story.ended(asks(story), at=NOW, job_id=17)
    states = {17: "RUNNING", 18: "RUNNING", 19: "RUNNING"}
    job = het(story, 17, "RUNNING")
    parts = (*job.parts, replace(job.parts[0], id=19, het_offset=2))
    workers = tuple(Grant(17 + n, (GrantedNode(f"x{1 + n}", 2 * n, 100),)) for n in (1, 2))
    story.polls(states, at=NOW + 1)
    story.reads(replace(job, parts=parts), at=NOW + 1, granted=Grant(17, (GrantedNode("x1", 1, 100),), workers))
    for bind in story.acts(BindPod, NOW + 1):
        story.ended(bind, at=NOW + 1)
    shown = [story.bound(each, 17, on, bound_at=NOW + 1) for each, on in zip(pods, ("x1", "x2", "x3"), strict=True)]
    story.sees(*shown)
    story.polls(states, at=LATER)
    for gone in shown[1:]:
        story.loses(replace(gone, phase=PodPhase.FAILED), LATER)
    story.sees(member(1, 3, uid="uid-large", created=LATER + 1, cpu=4000))
    story.sees(member(2, 3, uid="uid-small", created=LATER + 1, cpu=2000))
    assert where(story.acts(BindPod, LATER + 2)) == {"w-1": "x3", "w-2": "x2"}


FOUR = granted(17, ("x1", 3), ("x2", 1))


def gang_of_four(life: str, *gone: int) -> Story:
    """Job 17 runs w-0, w-1 and w-2 on x1, and w-3 on x2; then some of them are deleted.  life: which process goes on"""
    first = Story()
    first.sees(*(pods := ring()))
    first.ended(asks(first), at=NOW, job_id=17, grant=FOUR)
    shown = []
    for bind, each in zip(first.acts(BindPod, NOW), pods, strict=True):
        first.ended(bind, at=NOW)
        shown.append(
            replace(each, node=bind.node, annotations=each.annotations | bind.annotations, phase=PodPhase.RUNNING)
        )
    left = [each for number, each in enumerate(shown) if number not in gone]
    if life == "the same process":
        first.sees(*shown)
        first.polls({17: "RUNNING"}, at=LATER)
        for number in gone:
            first.loses(replace(shown[number], phase=PodPhase.FAILED), LATER)
        return first
    story = Story()
    story.sees(*left)
    story.polls({17: "RUNNING"}, at=LATER)
    name = first.world.placeholders[17].name
    job = Job(17, name, "alice", frozenset({"RUNNING"}), partition="main", nodes="x[1-2]", starts=NOW, tasks=4)
    story.reads(job, at=LATER, granted=FOUR)
    return story


def ranks_of(story: Story, at: float) -> dict[str, tuple[str, str, str]]:
    """Name to rank, local rank and size, of the pods that are bound then."""
    binds = story.acts(BindPod, at)
    for bind in binds:
        story.ended(bind, at=at)
    keys = (names.RANK, names.LOCAL_RANK, names.SIZE)
    return {
        bind.name: (bind.annotations[keys[0]], bind.annotations[keys[1]], bind.annotations[keys[2]]) for bind in binds
    }


PROCESSES = pytest.mark.parametrize("life", ["the same process", "the next process"])


@PROCESSES
def test_a_replacement_with_another_name_gets_the_ranks_that_are_free(life: str) -> None:
    story = gang_of_four(life, 1)
    story.sees(member(9, created=LATER + 1))
    assert ranks_of(story, LATER + 2) == {"w-9": ("1", "1", "4")}


@PROCESSES
def test_a_replacement_with_the_name_of_a_former_pod_gets_its_rank_while_another_pod_is_missing(life: str) -> None:
    story = gang_of_four(life, 1, 3)
    story.sees(member(3, uid="uid-new3", created=LATER + 1))
    assert ranks_of(story, LATER + 2) == {"w-3": ("3", "1", "4")}
    story.sees(member(1, uid="uid-new1", created=LATER + 3))
    assert ranks_of(story, LATER + 4) == {"w-1": ("1", "0", "4")}


def test_ranks_that_another_client_wrote_over_count_as_the_bind_wrote_them() -> None:
    story = gang_of_four("the same process", 1)
    kept = next(
        each for each in story.world.workloads[story.world.key_of_pod["uid-w-0"]].unfinished if each.name == "w-0"
    )
    story.sees(replace(kept, annotations=kept.annotations | {names.RANK: "1", names.LOCAL_RANK: "9" * 5_000}))
    story.sees(member(9, created=LATER + 1))
    assert ranks_of(story, LATER + 2) == {"w-9": ("1", "1", "4")}


# --- is it a replacement, or is the gang bound for the first time? ----------------------------------------------------

WAITS = (
    "The pod waits for a place in job 17. Pod w-1 asks for 8 CPUs, more than its place in job 17 has. "
    "To submit all of them again, delete the other pods of hpc/ring, too."
)


def one_bound(story: Story, created: float, *former: Pod) -> list[CancelJob]:
    """A gang of two is granted job 17; one is bound, and the other is deleted and comes again larger.  The jobs that end.

    former   pods of an earlier run of the gang
    """
    pods = ring(2)
    story.sees(*former, *pods)
    story.ended(asks(story, LATER), at=LATER, job_id=17, grant=granted(17, ("x1", 2)))
    first, second = story.acts(BindPod, LATER)
    story.ended(first, at=LATER)
    story.sees(story.bound(pods[0], 17, bound_at=LATER))
    story.loses(pods[1], LATER)
    story.ended(second, Outcome.REFUSED, at=LATER, number=404)
    story.sees(member(1, 2, uid="uid-new", created=created, cpu=8000))
    cancels = []
    for second_later in range(1, 100):
        at = LATER + second_later
        story.polls({17: "RUNNING"}, at=at)
        for action in story.decides(at):
            cancels += [action] if isinstance(action, CancelJob) else []
            story.ended(action, at=at) if not isinstance(action, CancelJob) else None
    return cancels


def test_a_larger_pod_that_comes_while_the_gang_is_bound_for_the_first_time_is_no_replacement() -> None:
    """The gang never ran, so nothing is lost if it is submitted again as a whole."""
    assert one_bound(Story(), LATER + 1)


def test_pods_of_an_earlier_run_of_the_gang_do_not_make_its_present_pods_replacements() -> None:
    story = Story()
    former = [
        story.bound(member(number, 2, uid=f"uid-former-{number}"), 6, phase=PodPhase.FAILED, bound_at=NOW - 100)
        for number in range(2)
    ]
    assert one_bound(story, LATER + 1, *former)


def test_after_a_restart_a_pod_is_a_replacement_if_all_places_of_the_job_were_taken_whatever_the_times_say() -> None:
    """Kubernetes shows whole seconds: the pod came in the second in which the other pods were bound."""
    first = Story()
    shown = gang_of_two(first, ONE_GPU, gpu=1)
    story = after_a_restart(first, shown, ONE_GPU)
    story.sees(replace(shown[1], phase=PodPhase.FAILED))
    story.sees(member(1, 2, uid="uid-new", created=NOW, cpu=8000))
    said = [action.message for at in range(2, 60) for action in told(story, LATER + at)]
    assert said == [WAITS]


def told(story: Story, at: float) -> list[SetPodCondition]:
    """The statuses of that pass, which ends nothing."""
    acts = story.decides(at)
    for action in acts:
        story.ended(action, at=at)
    assert not [each for each in acts if isinstance(each, CancelJob | DeletePod | FailByDeadline)]
    return [each for each in acts if isinstance(each, SetPodCondition)]


def test_a_pod_that_comes_to_a_gang_whose_lost_job_was_replaced_a_moment_ago_is_a_replacement() -> None:
    """No pod shows the new job yet."""
    story = Story()
    held = granted(17, ("x1", 2))
    shown = gang_of_two(story, held)
    story.world.clocks[Side.SLURM].is_known = True
    for at in (LATER + 3, LATER + 5):
        story.polls({}, at=at)
        for read in story.acts(ReadJob, at):
            story.reads(None, job_id=read.job_id, at=at)
            story.ended(read, at=at)
    workload = story.world.workloads[story.world.key_of_pod[shown[0].uid]]
    assert workload.in_flight is not None
    story.loses(replace(shown[1], phase=PodPhase.FAILED), LATER + 6)
    story.sees(member(1, 2, uid="uid-new", created=LATER + 6, cpu=8000))
    story.ended(workload.in_flight.action, at=LATER + 6, job_id=30, grant=replace(held, job_id=30))
    said = []
    for at in range(7, 60):
        story.polls({30: "RUNNING"}, at=LATER + at)
        said += [each.message for each in told(story, LATER + at) if each.uid == "uid-new"]
    assert said == [WAITS.replace("17", "30")]
