"""What is checked, awaited and written when pods are bound to a grant (S1, S11, W5, W9, F6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    AllocateNow,
    BindPod,
    CancelJob,
    Outcome,
    ReadClaims,
    ReadJob,
    ReadOwner,
    SetPodCondition,
    SubmitJob,
    UpdateJob,
)
from scheduler.events import (
    ClaimsRead,
    ClockObserved,
    NamespaceSeen,
    NodeSeen,
    OutageBegan,
    OwnerRead,
    PodSeen,
    PodsListed,
    PolicyChanged,
    Scope,
    Side,
    SlurmNodesPolled,
)
from scheduler.model.kubernetes import Claim, Namespace, NodeTerm, Owner, Pod, PodPhase, Requirement
from scheduler.model.slurm import Grant, GrantedNode, Job, JobSpec, Partition
from scheduler.policy.rules import Choice, Policy, Rule, Tenant
from scheduler.rules.binding import SHOWN_AFTER_FAILURES
from scheduler.rules.granted import CLAIMS_LATELY_S
from scheduler.tuning import Config
from tests.builders import ALICE, CLUSTER, CONFIG, OWNER, START, Story, grant, job_of, node, pod, slurm_node, without
from tests.unit.scheduler.test_gangs import asks, granted, launched, launcher_and_workers, member, where
from tests.unit.scheduler.test_gangs import runs as gang_runs

NOW = START + 60
TRAIN = pod("train")
OLD = pod("train", created=START - 60)


def adopts(story: Story, what: Pod, *, states: str = "RUNNING", on: str = "x1") -> None:
    """The pod waits for job 17 of a previous process, which has started."""
    story.sees(what)
    story.polls({17: states}, at=NOW)
    story.reads(job_of(what, 17, *states.split(), submitted=START - 50), at=NOW, granted=grant(17, on))


def kinds(*cpus: int) -> list[Pod]:
    """A gang whose pods ask for so many CPUs."""
    return [member(rank, len(cpus), cpu=1000 * cpu) for rank, cpu in enumerate(cpus)]


def in_parts(spec: JobSpec, *nodes: str) -> tuple[Job, Grant]:
    """Job 17, which runs, and its grant: each component holds one of these nodes."""
    first, *others = [
        Grant(17 + index, (GrantedNode(name, part.tasks * part.cpus_per_task, part.tasks * part.memory_mib),))
        for index, (name, part) in enumerate(zip(nodes, (spec, *spec.parts), strict=True))
    ]
    running = frozenset({"RUNNING"})
    leader, *parts = [
        Job(17 + offset, spec.name, "alice", running, partition="main", nodes=name, het_id=17, het_offset=offset)
        for offset, name in enumerate(nodes)
    ]
    tasks = spec.tasks + sum(part.tasks for part in spec.parts)
    return replace(leader, parts=tuple(parts), tasks=tasks), replace(first, parts=tuple(others))


def runs_in_parts(story: Story, pods: list[Pod], *nodes: str) -> list[Pod]:
    """The gang runs as one heterogeneous job with a component for each of these nodes.  Each has pods of one kind."""
    story.polls(at=NOW)
    story.sees(*pods)
    asked = asks(story, NOW)
    assert isinstance(asked, SubmitJob)
    story.ended(asked, at=NOW, job_id=17)
    story.polls(dict.fromkeys(range(17, 17 + len(nodes)), "RUNNING"), at=NOW + 1)
    story.decides(NOW + 1)
    read, granted_now = in_parts(asked.spec, *nodes)
    story.reads(read, at=NOW + 1, granted=granted_now)
    binds = {bind.uid: bind for bind in story.acts(BindPod, NOW + 1)}
    for bind in binds.values():
        story.ended(bind, at=NOW + 1)
    shown = [bound_by(binds[each.uid], each) for each in pods]
    story.sees(*shown)
    return shown


def bound_by(bind: BindPod, what: Pod) -> Pod:
    return replace(what, node=bind.node, phase=PodPhase.RUNNING, annotations={**what.annotations, **bind.annotations})


def replaced(story: Story, gone: Pod, **fields: Any) -> Pod:
    """The pod fails, and its controller makes another one."""
    story.loses(replace(gone, phase=PodPhase.FAILED), NOW + 10)
    size = {names.PREFIX + names.GANG_SIZE: gone.annotations[names.PREFIX + names.GANG_SIZE]}
    waits: dict[str, Any] = {"node": "", "phase": PodPhase.PENDING, "created": NOW + 11, "annotations": size}
    new = replace(gone, uid=f"{gone.uid}-new", **waits, **fields)
    story.sees(new)
    return new


# --- what is checked ------------------------------------------------------------------------------------------------


def test_a_pod_is_not_bound_to_a_granted_node_that_its_volume_cannot_reach() -> None:
    """A previous process submitted the job; the volume was made somewhere else meanwhile."""
    story = Story()
    what = replace(OLD, claims=("data",))
    adopts(story, what)
    [read] = story.acts(ReadClaims, NOW)
    on_x2 = (NodeTerm(fields=(Requirement("metadata.name", "In", ("x2",)),)),)
    story.sees(ClaimsRead(what.uid, (Claim("data", True, on_x2),), NOW))
    story.ended(read, at=NOW)
    [cancel] = story.acts(CancelJob, NOW)
    assert cancel.reason == "released: node x1 is out of reach of the pod's volumes"


def test_a_grant_is_not_kept_for_a_bind_that_was_sent_for_an_earlier_job() -> None:
    story = Story()
    bind = story.binds(TRAIN, 5, at=NOW)
    story.ended(bind, Outcome.UNKNOWN, at=NOW + 1)
    story.polls({5: "PREEMPTED", 6: "RUNNING"}, at=NOW + 2)
    story.reads(job_of(TRAIN, 5, "PREEMPTED"), at=NOW + 2)
    story.reads(job_of(TRAIN, 6), at=NOW + 2, granted=grant(6))
    story.sees(NodeSeen(node("x1", unschedulable=True)))
    assert [each.job_id for each in story.acts(CancelJob, NOW + 3)] == [6]


def test_a_grant_is_released_if_pods_changed_so_that_they_do_not_fit_into_its_components() -> None:
    pods = launcher_and_workers()
    edited = replace(pods[2], annotations={**pods[2].annotations, names.PREFIX + names.CONSTRAINTS: "fast"})
    story = Story()
    assert launched(story, pods, PodSeen(Scope.OURS, edited)) == []
    [cancel] = story.acts(CancelJob, START + 19)
    assert cancel.reason == "released: it has fewer places than hpc/ring has pods"


def test_the_job_of_a_previous_process_is_released_if_it_has_other_components_than_its_pods_need() -> None:
    before = Story(nodes=[node(name) for name in ("x1", "x2", "x3")])
    pods = [replace(each, created=START - 60) for each in kinds(1, 2, 3)]
    before.polls(at=NOW)
    before.sees(*pods)
    read, granted_before = in_parts(asks(before, NOW).spec, "x1", "x2", "x3")
    story = Story(nodes=[node(name) for name in ("x1", "x2", "x3")])
    story.sees(*(replace(each, containers=kinds(cpu)[0].containers) for each, cpu in zip(pods, (1, 2, 2), strict=True)))
    story.polls({17: "RUNNING", 18: "RUNNING", 19: "RUNNING"}, at=NOW)
    story.reads(replace(read, submitted=START - 50), at=NOW, granted=granted_before)
    [cancel] = story.acts(CancelJob, NOW)
    assert cancel.reason == "released: Slurm granted it without all of its 2 components"


# --- which place ----------------------------------------------------------------------------------------------------


def test_replacements_that_swap_their_ranks_take_the_places_of_pods_that_ask_for_the_same() -> None:
    story = Story(nodes=[node(name) for name in ("x1", "x2", "x3")])
    _, two, three = runs_in_parts(story, kinds(1, 2, 3), "x1", "x2", "x3")
    replaced(story, two, containers=three.containers)
    replaced(story, three, containers=two.containers)
    assert where(story.acts(BindPod, NOW + 12)) == {"w-1": "x3", "w-2": "x2"}


def test_a_pod_that_was_resized_in_place_to_what_other_pods_ask_for_does_not_hinder_their_replacement() -> None:
    story = Story()
    launcher, _, worker = runs_in_parts(story, kinds(1, 2, 2), "x1", "x2")
    story.sees(replace(launcher, containers=worker.containers))
    replaced(story, worker)
    assert where(story.acts(BindPod, NOW + 12)) == {"w-2": "x2"}


def test_a_replacement_is_bound_though_another_member_still_terminates() -> None:
    story = Story()
    _, second, third = gang_runs(story, [member(rank, 3) for rank in range(3)], ("x1", 3))
    story.sees(replace(third, deleting_at=NOW + 40))
    replaced(story, second)
    assert where(story.acts(BindPod, NOW + 12)) == {"w-1": "x1"}


def test_a_replacement_with_another_shape_that_cannot_be_read_shows_why_it_waits() -> None:
    story = Story()
    *_, worker = runs_in_parts(story, kinds(1, 2, 2), "x1", "x2")
    new = replaced(story, worker)
    story.sees(replace(new, annotations={**new.annotations, names.PREFIX + names.TIME_LIMIT: "soon"}))
    [said] = [each for each in story.acts(SetPodCondition, NOW + 12) if each.uid == new.uid]
    assert said.message.startswith('The pod waits for a place in job 17. Annotation slurm-bridge/time-limit: "soon"')


def test_a_replacement_that_comes_last_by_rank_takes_the_place_of_the_first() -> None:
    story = Story()
    first, _ = gang_runs(story, [member(0, 2), member(1, 2)], ("x1", 1), ("x2", 1))
    replaced(story, first, name="w-2")
    assert where(story.acts(BindPod, NOW + 12)) == {"w-2": "x1"}


# --- what is awaited ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("late_s", "released"), [(0, True), (-1, False)])
def test_a_new_process_waits_for_volumes_as_long_as_if_the_grant_came_at_its_start(late_s: int, released: bool) -> None:
    """A bound member names the job, which runs already, so this process does not see when the job got its nodes."""
    story = Story(without(CONFIG, gang_bind_deadline_s=1000.0))
    story.polls({17: "RUNNING"}, at=START)
    bound = story.bound(member(0, 2, created=START - 60), 17)
    waits = member(1, 2, created=START - 60, claims=("data",))
    story.sees(bound, waits)
    story.sees(ClaimsRead(waits.uid, (Claim("data", False, waits=True, selected="x1"),), START))
    name = f"hpc/ring~{CLUSTER}.{story.world.key_of_pod[waits.uid]}"
    read = Job(17, name, "alice", frozenset({"RUNNING"}), partition="main", nodes="x1", submitted=START - 50, tasks=2)
    story.reads(read, at=START, granted=granted(17, ("x1", 2)))
    at = START + CONFIG.tuning.claims_s + late_s
    story.polls({17: "RUNNING"}, at=at)
    cancels = story.acts(CancelJob, at)
    assert [each.reason for each in cancels] == ["released: the volumes of hpc/w-1 were not made on x1"] * released


def test_a_read_at_the_end_of_the_quiet_period_shows_that_the_job_of_a_previous_process_lives() -> None:
    story = Story()
    story.polls({17: "RUNNING"}, at=START + 1)
    story.sees(OLD)
    quiet_until = story.world.quiet_until()
    story.reads(job_of(OLD, 17), at=quiet_until, granted=grant(17))
    assert [bind.job_id for bind in story.acts(BindPod, quiet_until)] == [17]


# --- what is written ------------------------------------------------------------------------------------------------


def test_a_bind_says_when_the_job_of_a_previous_process_was_submitted() -> None:
    story = Story()
    adopts(story, OLD)
    [bind] = story.acts(BindPod, NOW)
    assert (bind.asked, bind.created) == (START - 50, START - 60)


def test_a_bind_says_when_this_process_submitted_the_job_whatever_slurm_says() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.decides(NOW + 1)
    story.reads(job_of(TRAIN, 17, submitted=NOW + 0.7), at=NOW + 1, granted=grant(17))
    [bind] = story.acts(BindPod, NOW + 1)
    assert bind.asked == NOW


@pytest.mark.parametrize("service_account", ["train", "other"])
def test_a_replacement_waits_if_the_policy_does_not_allow_its_service_account_the_account_of_the_job(
    service_account: str,
) -> None:
    """The user changed the account of the job, which runs."""
    may, may_not = (Tenant("alice", accounts=Choice("teama", ("teama", *more))) for more in (("research",), ()))
    rules = (Rule(("hpc",), may, service_accounts=("train",)), Rule(("hpc",), may_not))
    story = Story(replace(CONFIG, policy=Policy(rules)))
    shown = gang_runs(story, [member(rank, 2, service_account="train") for rank in range(2)], ("x1", 2), at=NOW)
    name = story.world.placeholders[17].name
    read = Job(17, name, "alice", frozenset({"RUNNING"}), account="research", partition="main", nodes="x1", tasks=2)
    story.reads(replace(read, submitted=NOW), at=NOW + 5, granted=granted(17, ("x1", 2)))
    replaced(story, shown[1], service_account=service_account)
    acts = story.decides(NOW + 12)
    assert bool([each for each in acts if isinstance(each, BindPod)]) is (service_account == "train")
    assert not [each for each in acts if isinstance(each, CancelJob)]


@pytest.mark.parametrize("some_run", [True, False])
def test_replacements_without_a_place_wait_while_others_run_and_otherwise_other_nodes_are_asked_for(
    some_run: bool,
) -> None:
    story = Story()
    first, second = gang_runs(story, [member(rank, 2) for rank in range(2)], ("x1", 2), at=NOW)
    replaced(story, first)
    story.sees(PodSeen(Scope.OTHERS, pod("other", cpu=64000, node="x1", scheduler_name="default-scheduler")))
    assert story.acts(BindPod, NOW + 12) == []
    if not some_run:
        replaced(story, second)
    story.polls({17: "RUNNING"}, at=NOW + 30)
    assert [each.job_id for each in story.acts(CancelJob, NOW + 30)] == [17] * (not some_run)


def test_the_owner_of_a_replacement_is_read_before_its_bind_and_a_failed_read_is_no_failed_bind() -> None:
    story = Story()
    _, second = gang_runs(story, [member(rank, 2) for rank in range(2)], ("x1", 2), at=NOW)
    replaced(story, second, owner=OWNER)
    at = NOW + 12
    for _ in range(SHOWN_AFTER_FAILURES):
        [read] = story.acts(ReadOwner, at)
        story.ended(read, Outcome.UNREACHED, at=at)
        [workload] = story.world.workloads.values()
        at = workload.backoff.until
    story.sees(OwnerRead(OWNER, Owner(OWNER), at - 0.5, "hpc"))  # it was read for another workload
    assert story.decides(at - 0.5) == []
    assert [type(each) for each in story.decides(at)] == [BindPod]


def granted_for_a_lost_claim(what: Pod) -> Story:
    """The pod's claim was lost after its job was submitted, and Slurm grants the nodes at NOW."""
    story = Story()
    story.sees(what)
    [read] = story.acts(ReadClaims, NOW)
    story.sees(ClaimsRead(what.uid, (Claim("data", True),), NOW))
    story.ended(read, at=NOW)
    asked = asks(story, NOW)
    story.sees(ClaimsRead(what.uid, (Claim("data", False, problem="Claim data is lost."),), NOW))
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    return story


def test_a_pod_whose_volume_claim_has_a_problem_since_its_job_was_submitted_shows_that_and_is_not_bound() -> None:
    story = granted_for_a_lost_claim(replace(TRAIN, claims=("data",)))
    acts = story.decides(NOW)
    assert [each.message for each in acts if isinstance(each, SetPodCondition)] == ["Claim data is lost."]
    assert not [each for each in acts if isinstance(each, BindPod)]


@pytest.mark.parametrize("lost", [True, False])
def test_nodes_are_not_held_without_end_for_a_pod_whose_volume_claim_cannot_be_used(lost: bool) -> None:
    what = replace(TRAIN, claims=("data",))
    story = granted_for_a_lost_claim(what)
    late = NOW + CONFIG.tuning.claims_s
    story.polls({17: "RUNNING"}, at=late - 1)
    [read] = story.acts(ReadClaims, late - 1)
    story.sees(
        ClaimsRead(what.uid, (Claim("data", not lost, problem="Claim data is lost." if lost else ""),), late - 1)
    )
    story.ended(read, at=late - 1)
    if lost:
        assert not story.acts(CancelJob, late - 1)
    acts = story.decides(late)
    assert [each.reason for each in acts if isinstance(each, CancelJob)] == (
        ["released: Claim data is lost."] if lost else []
    )
    assert len([each for each in acts if isinstance(each, BindPod)]) == (0 if lost else 1)


def granted_later(what: Pod, after_s: float = 7200) -> tuple[Story, float]:
    """The pod's claim was read before its job was submitted, and the job got its nodes so many seconds later."""
    story, later = Story(), NOW + after_s
    story.polls(at=NOW)
    story.sees(what)
    [read] = story.acts(ReadClaims, NOW)
    story.sees(ClaimsRead(what.uid, (Claim("data", True),), NOW))
    story.ended(read, at=NOW)
    story.queues(what, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=later)
    story.reads(job_of(what, 17), at=later, granted=grant(17))
    return story, later


@pytest.mark.parametrize(("more_s", "kind"), [(0, BindPod), (0.5, ReadClaims)])
def test_a_claim_that_was_read_shortly_before_the_grant_is_not_read_again(more_s: float, kind: type) -> None:
    story, later = granted_later(replace(TRAIN, claims=("data",)), CLAIMS_LATELY_S + more_s)
    assert [type(each) for each in story.decides(later)] == [kind]


@pytest.mark.parametrize("deleted", [True, False])
def test_a_claim_that_may_have_been_deleted_while_the_job_waited_is_read_again_before_the_bind(deleted: bool) -> None:
    what = replace(TRAIN, claims=("data",))
    story, later = granted_later(what)
    [read] = story.decides(later)
    assert isinstance(read, ReadClaims)
    problem = "Claim data does not exist." if deleted else ""
    story.sees(ClaimsRead(what.uid, (Claim("data", not deleted, problem=problem),), later))
    story.ended(read, at=later)
    [act] = story.decides(later)
    assert isinstance(act, BindPod) if not deleted else (isinstance(act, SetPodCondition) and act.message == problem)


def test_if_claims_cannot_be_read_any_more_the_pod_is_bound_as_its_claims_were_read_before() -> None:
    what = replace(TRAIN, claims=("data",))
    story, later = granted_later(what)
    bound_at, said = 0, list[str]()
    for after_s in range(200):
        story.polls({17: "RUNNING"}, at=later + after_s)
        for act in story.decides(later + after_s):
            if isinstance(act, ReadClaims):
                story.ended(act, Outcome.REFUSED, at=later + after_s)
            elif isinstance(act, BindPod):
                bound_at = bound_at or after_s
            elif isinstance(act, SetPodCondition):
                said.append(act.message)
    assert CONFIG.tuning.claims_s <= bound_at < CONFIG.tuning.claims_s + CONFIG.tuning.backoff_max_s
    assert [message.partition(", and")[0] for message in said] == ["A volume claim of this pod cannot be read"]


def test_a_replacement_unlike_all_pods_of_its_gang_shows_that_there_is_no_place_for_it() -> None:
    story = Story()
    launcher, *_ = runs_in_parts(story, kinds(1, 1, 2, 2), "x1", "x2")
    replaced(story, launcher, containers=pod(cpu=3000).containers)
    [said] = story.acts(SetPodCondition, NOW + 12)
    assert said.message.startswith("The pod waits for a place in job 17. It has fewer places than")


def test_a_bind_writes_the_size_that_the_gang_has_now() -> None:
    """A user takes two pods of the gang away and lowers its size just before Slurm grants the nodes."""
    story = Story()
    pods = [member(rank, 4) for rank in range(4)]
    story.sees(*pods)
    asked = asks(story, NOW)
    for leaves in pods[2:]:
        story.loses(leaves, NOW)
    story.sees(*(replace(stays, annotations={names.PREFIX + names.GANG_SIZE: "2"}) for stays in pods[:2]))
    story.ended(asked, at=NOW, job_id=17, grant=granted(17, ("x1", 4)))
    assert [bind.annotations[names.SIZE] for bind in story.acts(BindPod, NOW)] == ["2", "2"]


def test_a_change_of_the_owner_between_grant_and_bind_does_not_cost_the_grant() -> None:
    """The pod takes what was asked for when its job was submitted."""
    story, what = Story(), pod("train", owner=OWNER)
    story.world.owners["hpc", OWNER.uid] = Owner(OWNER)
    story.queues(what, 17, at=NOW)
    more = Owner(OWNER, annotations={names.PREFIX + names.CPUS_PER_TASK: "8"})
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.decides(NOW + 1)
    story.sees(OwnerRead(OWNER, more, NOW + 1, "hpc"))
    story.reads(job_of(what, 17, submitted=NOW), at=NOW + 1, granted=grant(17))
    assert [bind.node for bind in story.acts(BindPod, NOW + 1)] == ["x1"]


@pytest.mark.parametrize("own", [True, False])
def test_a_pod_keeps_the_trace_that_its_user_gave_it(own: bool) -> None:
    story = Story()
    story.sees(replace(TRAIN, annotations={names.TRACEPARENT: "00-1234"} if own else {}))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    [bind] = story.acts(BindPod, NOW)
    assert (names.TRACEPARENT in bind.annotations) is not own


# --- the job of a previous process --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "preempted", "binds"),
    [("RUNNING SIGNALING", NOW - 1, 0), ("RUNNING SIGNALING", None, 1), ("RUNNING", START - 40, 1)],
    ids=["preempted", "signalled by its user", "preempted before it was requeued"],
)
def test_no_pod_is_bound_to_nodes_that_slurm_is_about_to_take_away(
    states: str, preempted: float | None, binds: int
) -> None:
    story = Story()
    story.sees(OLD)
    story.polls({17: states}, at=NOW)
    read = job_of(OLD, 17, *states.split(), submitted=START - 50, preempted=preempted)
    story.reads(read, at=NOW, granted=grant(17))
    assert len(story.acts(BindPod, NOW)) == binds


ACCOUNTS = ("teama", "teama-dev")


@pytest.mark.parametrize(
    ("default", "account", "released"),
    [("teama", "teama-dev", False), ("teama", "research", True), ("", "research", False)],
    ids=["allowed", "not allowed", "the default of Slurm, which is not known"],
)
def test_the_job_of_a_previous_process_is_used_if_the_policy_allows_its_account(
    default: str, account: str, released: bool
) -> None:
    alice = Tenant("alice", accounts=Choice(default, ACCOUNTS if default else ()))
    story = Story(replace(CONFIG, policy=Policy((Rule(("hpc",), alice),))))
    story.sees(OLD)
    story.polls({17: "RUNNING"}, at=NOW)
    story.reads(job_of(OLD, 17, submitted=START - 50, account=account), at=NOW, granted=grant(17))
    acts = story.decides(NOW)
    assert [type(each) for each in acts if isinstance(each, BindPod | CancelJob)] == [
        CancelJob if released else BindPod
    ]


def half_bound(story: Story, second: Pod, *, on: str = "x1", created: float = START - 60) -> Job:
    """After a restart: the first member of a gang of two is bound for the job, which runs on x1, and the second one waits."""
    story.polls({17: "RUNNING"}, at=NOW)
    story.sees(story.bound(member(0, 2, created=created), 17, on), second)
    name = f"hpc/ring~{CLUSTER}.{story.world.key_of_pod[second.uid]}"
    return Job(17, name, "alice", frozenset({"RUNNING"}), partition="main", nodes="x1", submitted=START - 50, tasks=2)


def test_the_nodes_of_a_job_that_some_pods_name_are_read_before_another_pod_is_bound() -> None:
    story = Story()
    story.reads(half_bound(story, member(1, 2, created=START - 60)), at=NOW)
    assert [each.reason for each in story.acts(ReadJob, NOW + 3)] == ["which nodes did Slurm grant job 17?"]


def test_a_job_ends_if_one_of_its_pods_is_on_a_node_that_it_does_not_hold_while_another_pod_waits() -> None:
    story = Story()
    read = half_bound(story, member(1, 2, created=START - 60), on="x2")
    story.reads(read, at=NOW, granted=granted(17, ("x1", 2)))
    [cancel] = story.acts(CancelJob, NOW)
    assert cancel.reason == "hpc/w-0 is on node x2, which job 17 does not hold"


def test_a_replacement_that_asks_for_more_than_the_bound_pods_shows_why_it_waits_after_a_restart() -> None:
    story = Story()
    read = half_bound(story, member(1, 2, cpu=2000))
    story.reads(read, at=NOW, granted=granted(17, ("x1", 2)))
    [said] = story.acts(SetPodCondition, NOW)
    assert said.message.startswith(
        "The pod waits for a place in job 17. Pod w-1 asks for 2 CPUs, more than its place in"
    )


@pytest.mark.parametrize("is_former_leaving", [False, True], ids=["", "a pod of a former job still terminates"])
@pytest.mark.parametrize(("rank", "node_name"), [(0, "x1"), (2, "x2")])
def test_a_replacement_takes_a_place_of_its_component_after_a_restart(
    rank: int, node_name: str, is_former_leaving: bool
) -> None:
    before = Story()
    others = runs_in_parts(before, kinds(1, 2, 2), "x1", "x2")
    gone = others.pop(rank)
    spec = before.world.placeholders[17].spec
    assert spec is not None
    read, granted_before = in_parts(spec, "x1", "x2")
    story = Story(nodes=[node(f"x{number}") for number in (1, 2, 3)])
    story.polls({17: "RUNNING", 18: "RUNNING", 9: "CANCELLED"}, at=NOW)
    new = replace(kinds(1, 2, 2)[rank], uid="new", created=NOW)
    story.sees(*others, new)
    if is_former_leaving:
        story.sees(story.bound(member(9, 3), 9, "x3", deleting_at=NOW + 100, started=START - 100))
        story.reads(replace(job_of(OLD, 9, "CANCELLED", submitted=START - 110), name=spec.name), at=NOW)
    story.reads(replace(read, submitted=START - 50), at=NOW, granted=granted_before)
    assert where(story.acts(BindPod, NOW + 40)) == {gone.name: node_name}


def test_if_it_is_not_clear_which_component_a_replacement_belongs_to_the_pod_shows_what_lacks() -> None:
    """A worker was resized in place to what the launcher asks for, and the launcher is replaced while no bridge runs."""
    before = Story()
    launcher, resized, worker = runs_in_parts(before, kinds(1, 2, 2), "x1", "x2")
    spec = before.world.placeholders[17].spec
    assert spec is not None
    read, granted_before = in_parts(spec, "x1", "x2")
    story = Story()
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW)
    story.sees(replace(kinds(1, 2, 2)[0], uid="new", created=NOW))
    story.sees(replace(resized, containers=launcher.containers), worker)
    story.reads(replace(read, submitted=START - 50), at=NOW, granted=granted_before)
    [said] = story.acts(SetPodCondition, NOW + 40)
    assert said.message == (
        "The pod waits for a place in job 17. Slurm granted it without room for 2 pods (it holds 1)."
    )


# --- before the grant is used -------------------------------------------------------------------------------------------


def test_a_pod_that_was_granted_nodes_since_slurm_went_away_is_bound_and_others_wait() -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.sees(OutageBegan(Side.SLURM, NOW, "connection refused"))
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    assert len(story.acts(BindPod, NOW)) == 1


def test_no_pod_is_bound_from_a_list_of_another_replica() -> None:
    """Its watch may have been behind: another pod may have the room (V3)."""
    story = Story()
    story.sees(PodsListed(Scope.OURS, (OLD,), START, inherited=True))
    story.polls({17: "RUNNING"}, at=NOW)
    story.reads(job_of(OLD, 17, submitted=START - 50), at=NOW, granted=grant(17))
    assert story.acts(BindPod, NOW) == []
    story.sees(PodsListed(Scope.OURS, (OLD,), NOW))
    assert len(story.acts(BindPod, NOW)) == 1


def test_no_pod_is_bound_while_the_cancel_of_its_job_is_in_flight() -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.sees(NodeSeen(node("x1", unschedulable=True)))
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    assert len(story.acts(CancelJob, NOW)) == 1
    story.sees(NodeSeen(node("x1")))
    assert story.decides(NOW + 1) == []


def test_a_grant_of_which_a_component_ended_before_the_bind_is_not_used() -> None:
    story = Story()
    for bind in launched(story):
        story.ended(bind, Outcome.UNREACHED, at=START + 12)
    story.polls({17: "RUNNING", 18: "FAILED"}, at=NOW)
    [cancel] = story.acts(CancelJob, NOW)
    assert cancel.reason == "a component of job 17 ended"


def test_no_pod_is_bound_in_a_namespace_that_is_not_managed_any_more() -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.sees(NamespaceSeen(Namespace("hpc", "1")))
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    [cancel] = story.acts(CancelJob, NOW)
    assert cancel.reason.startswith("released: Namespace hpc is not managed by slurm-bridge")


def test_a_job_whose_pods_were_replaced_in_turn_while_it_ran_is_not_taken_for_the_job_of_earlier_pods() -> None:
    story = Story()
    story.sees(*(ClockObserved(side, START, START, START) for side in Side))
    read = half_bound(story, member(1, 2, created=START - 10), created=START - 20)
    story.reads(read, at=NOW, granted=granted(17, ("x1", 2)))
    acts = story.decides(NOW)
    assert [type(each) for each in acts if isinstance(each, BindPod | CancelJob)] == [BindPod]


@pytest.mark.parametrize(("shown", "is_used"), [("teama", True), ("teamb", False)])
def test_an_account_that_the_bridge_asked_for_stays_allowed_as_slurm_writes_it(shown: str, is_used: bool) -> None:
    """The policy changed while the job waited.  Slurm keeps names of accounts in lower case."""
    story, what = Story(), pod("train", says={"account": "TeamA"})
    story.queues(what, 17, at=NOW)
    tenant = replace(ALICE, accounts=Choice("", ("teama-dev",)))
    story.sees(PolicyChanged(Policy((Rule(("hpc",), tenant),)), NOW + 1))
    story.polls({17: "RUNNING"}, at=NOW + 2)
    story.reads(replace(job_of(what, 17), account=shown), at=NOW + 2, granted=grant(17))
    assert bool(story.acts(BindPod, NOW + 2)) is is_used


@pytest.mark.parametrize("is_edited", [False, True])
def test_a_partition_that_the_bridge_asked_for_stays_allowed(is_edited: bool) -> None:
    """The policy changed while the job waited (I8).

    is_edited   the pod asked for the partition when the job waited already
    """
    story, what = Story(), pod("train", says={"partition": "gpu"})
    story.queues(pod("train") if is_edited else what, 17, at=NOW)
    story.sees(what)
    for update in story.acts(UpdateJob, NOW + 0.5):
        story.ended(update, at=NOW + 0.5)
    tenant = replace(ALICE, partitions=Choice("", ("main",)))
    story.sees(PolicyChanged(Policy((Rule(("hpc",), tenant),)), NOW + 1))
    story.polls({17: "RUNNING"}, at=NOW + 2)
    story.reads(replace(job_of(what, 17), partition="gpu"), at=NOW + 2, granted=grant(17))
    assert story.acts(BindPod, NOW + 2)


def tenant_of(*, allowed: tuple[str, ...]) -> Config:
    """A policy without defaults, in which pods may choose one of these values for each option."""
    one_of = Choice("", allowed)
    return replace(CONFIG, policy=Policy((Rule(("hpc",), Tenant("alice", one_of, one_of, one_of)),)))


@pytest.mark.parametrize("option", ["account", "qos"])
@pytest.mark.parametrize(("allowed", "is_used"), [((), False), (("other",), True)])
def test_a_job_to_which_its_user_gave_what_the_policy_does_not_allow_is_not_used_if_its_pod_asks_for_nothing(
    option: str, allowed: tuple[str, ...], is_used: bool
) -> None:
    """The policy has no default, so the job had Slurm's (V8)."""
    story, what = Story(tenant_of(allowed=allowed)), pod("train")
    story.queues(what, 17, at=NOW)
    story.reads(replace(job_of(what, 17, "PENDING"), account="usual", qos="usual"), at=NOW + 1)
    story.polls({17: "RUNNING"}, at=NOW + 2)
    story.reads(
        replace(job_of(what, 17), **{"account": "usual", "qos": "usual", option: "other"}),
        at=NOW + 2,
        granted=grant(17),
    )
    acts = story.decides(NOW + 2)
    assert [type(each) for each in acts if isinstance(each, BindPod | CancelJob)] == [BindPod if is_used else CancelJob]


@pytest.mark.parametrize("option", ["account", "partition", "qos"])
def test_a_gang_whose_user_gave_one_component_of_its_job_what_the_policy_does_not_allow_is_not_bound(
    option: str,
) -> None:
    story, pods = Story(tenant_of(allowed=())), kinds(1, 2)
    story.sees(*pods)
    [submit] = story.acts(SubmitJob, NOW)
    story.ended(submit, at=NOW, job_id=17)
    read, granted_in_parts = in_parts(submit.spec, "x1", "x2")
    read = replace(read, account="usual", qos="usual")
    [part] = (replace(each, account="usual", qos="usual") for each in read.parts)
    waits = frozenset({"PENDING"})
    story.reads(replace(read, states=waits, parts=(replace(part, states=waits),)), at=NOW + 1)
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW + 2)
    story.reads(replace(read, parts=(replace(part, **{option: "other"}),)), at=NOW + 2, granted=granted_in_parts)
    [release] = story.acts(CancelJob, NOW + 2)
    assert f'The {option} "other" is not allowed for namespace hpc.' in release.reason


@pytest.mark.parametrize("has_new_default", [False, True])
@pytest.mark.parametrize("option", ["partition", "qos"])
def test_a_job_whose_pod_asks_for_nothing_any_more_is_used_with_the_default_of_slurm(
    option: str, has_new_default: bool
) -> None:
    """has_new_default: Slurm has another default partition since, and its job is in the former one."""
    story, what = Story(tenant_of(allowed=("gpu",))), pod("train", says={option: "gpu"})
    story.queues(what, 17, at=NOW)
    as_asked = replace(job_of(what, 17, "PENDING"), **{"qos": "usual", option: "gpu"})
    story.reads(as_asked, at=NOW + 1)
    story.sees(replace(what, annotations={}))
    [update] = story.acts(UpdateJob, NOW + 2)
    story.ended(update, at=NOW + 2)
    if has_new_default:
        partitions = (Partition("main"), Partition("gpu", default=True))
        story.sees(SlurmNodesPolled((slurm_node("x1"), slurm_node("x2")), partitions, NOW + 2))
    story.polls({17: "RUNNING"}, at=NOW + 3)
    story.reads(replace(job_of(what, 17), qos="usual"), at=NOW + 3, granted=grant(17))
    acts = story.decides(NOW + 3)
    assert [type(each) for each in acts if isinstance(each, BindPod | CancelJob)] == [BindPod]
