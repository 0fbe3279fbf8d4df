"""The check of the World's indexes fails for each index that differs from the facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, CancelJob, Outcome, SubmitJob
from scheduler.decide import decide
from scheduler.events import JobRead, JobsPolled, NodeSeen, PodSeen, PolicyChanged, Scope
from scheduler.model.kubernetes import HostPort, Pod, PodTerm, Requirement
from scheduler.place.affinity import GrantedPods
from scheduler.policy.rules import Tenant
from scheduler.state.derived import INDEXES, InvalidIndex, rebuilt
from scheduler.state.in_flight import InFlight
from scheduler.state.phase import Phase
from scheduler.state.world import World
from tests.builders import CONFIG, START, Story, job_of, key_of, node, pod, without

APART = (PodTerm((Requirement("app", "In", ("a",)),), frozenset({"hpc"})),)
RUNNING = pod("runs", labels={"app": "a"}, anti_affinity=APART, host_ports=(HostPort(8080),))
WAITING = pod("waits", labels={"app": "a"}, anti_affinity=APART, host_ports=(HostPort(8080),))
QUEUED = pod("queued")


@pytest.fixture
def world() -> World:
    """A pod that runs, a pod in Slurm's queue, and a pod that waits to be submitted."""
    story = Story(without(CONFIG, validate_every=1))
    story.runs(RUNNING, 17, at=START + 20)
    story.queues(QUEUED, 18, at=START + 21)
    story.sees(WAITING)
    return story.world


def _forgets_a_phase(world: World) -> None:
    world.phase_of[key_of(QUEUED)] = Phase.UNSUBMITTED


def _leaves_a_workload_in_its_former_phase(world: World) -> None:
    world.by_phase[Phase.UNSUBMITTED][key_of(QUEUED)] = None


def _moves_a_pod(world: World) -> None:
    world.key_of_pod[QUEUED.uid] = key_of(WAITING)


def _frees_a_node(world: World) -> None:
    world.node_info["x1"].remove(RUNNING.uid)


def _counts_room_that_is_taken(world: World) -> None:
    world.node_info["x1"].taken["cpu"] -= 1000


def _frees_a_host_port(world: World) -> None:
    world.host_ports.remove(RUNNING, "x1")


def _forgets_an_anti_affinity(world: World) -> None:
    world.affinity_index.remove(RUNNING, "x1")


def _counts_one_job_too_many(world: World) -> None:
    world.queued_in["main"] += 1


def _lets_a_job_leave_the_queue(world: World) -> None:
    world.waiting_order.drop(key_of(QUEUED))


def _counts_a_member_twice(world: World) -> None:
    world.workloads[key_of(QUEUED)].pod_counts.members += 1


def _misses_a_job(world: World) -> None:
    world.expected.discard(18)


def _counts_an_action_that_ended(world: World) -> None:
    world.under_way["submits"] += 1


def _detaches_a_workload_from_its_job(world: World) -> None:
    world.placeholders[18].key = None


def _loses_a_reader(world: World) -> None:
    world.detail_new.clear()
    world.detail_round.clear()


def _does_not_wake_at_a_freed_port(world: World) -> None:
    world.wants_ports.discard(key_of(WAITING))


def _wakes_never(world: World) -> None:
    world.wakes[key_of(WAITING)] = START + 99


def _visits_a_workload_that_is_gone(world: World) -> None:
    world.dirty["nobody"] = None


def _wakes_a_workload_that_is_gone(world: World) -> None:
    world.wakes["nobody"] = START + 99


def _awaits_an_owner_for_no_workload(world: World) -> None:
    world.waits_for_owner["hpc", "uid-job"] = {"nobody": None}


def _holds_back_a_workload_that_was_not_refused(world: World) -> None:
    world.limited["alice"] = {key_of(WAITING): None}


def _files_a_workload_under_another_key(world: World) -> None:
    world.workloads[key_of(WAITING)].key = "another"


def _files_a_job_under_another_id(world: World) -> None:
    world.placeholders[19] = world.placeholders[18]


def _assumes_a_bind_to_another_node(world: World) -> None:
    world.assumed[RUNNING.uid] = "x2"


def _awaits_the_answer_to_no_bind(world: World) -> None:
    world.unanswered_binds[RUNNING.uid] = START


def _gives_a_job_to_a_second_workload(world: World) -> None:
    world.workloads[key_of(RUNNING)].jobs.add(18)


def _calls_its_own_job_foreign(world: World) -> None:
    world.foreign.add(18)


def _misses_a_job_that_is_there(world: World) -> None:
    world.absent.add(18)


def _expects_a_job_that_nobody_has(world: World) -> None:
    world.expected.add(99)


def _postpones_the_read_of_a_job_that_was_never_listed(world: World) -> None:
    world.reads_postponed[99] = START


def _forgets_who_wants_a_port(world: World) -> None:
    world.wants_ports.clear()
    world.waits_for_ports.clear()


def _forgets_who_has_affinities(world: World) -> None:
    world.affinity_workloads.discard(key_of(RUNNING))


def _does_not_note_an_affinity(world: World) -> None:
    world.workloads[key_of(QUEUED)].pods[QUEUED.uid] = replace(QUEUED, affinity=APART)


def _has_a_job_without_a_record(world: World) -> None:
    world.workloads[key_of(QUEUED)].jobs.add(99)


def _forgets_the_terms_of_a_waiting_pod(world: World) -> None:
    world.waiting_terms.drop(key_of(WAITING))


def _counts_a_queued_workload_among_the_granted(world: World) -> None:
    world.granted_pods[key_of(QUEUED)] = 1


def _reads_a_job_in_both_rounds(world: World) -> None:
    world.detail_new[key_of(QUEUED)] = world.detail_round[key_of(QUEUED)] = START


def _reads_the_job_of_a_workload_that_is_gone(world: World) -> None:
    world.running_round["gone"] = START


def _counts_a_job_of_no_workload(world: World) -> None:
    world.quotas.jobs["jobs of nobody"] += 1


def _awaits_the_end_of_an_action_that_was_not_sent(world: World) -> None:
    action = CancelJob(key_of(QUEUED), 18, "queued", "alice", "it ends")
    world.workloads[key_of(QUEUED)].in_flight = InFlight(action, START)


def _awaits_a_read_that_was_not_sent(world: World) -> None:
    world.reading.add(18)


def _awaits_owners_that_were_not_asked_for(world: World) -> None:
    world.reading_refs.add("nobody")


def _awaits_limits_that_were_not_asked_for(world: World) -> None:
    world.reading_limits.add("alice")


def _takes_a_running_pod_off_its_node(world: World) -> None:
    """Its node and the index agree, and both differ from the pod."""
    there = world.node_info["x1"]
    world.host_ports.remove(RUNNING, "x1")
    world.affinity_index.remove(RUNNING, "x1")
    there.remove(RUNNING.uid)
    del world.node_of[RUNNING.uid]


def _disorders_the_timers(world: World) -> None:
    world.timers[:] = [(START + 9, "a"), (START + 5, "b")]


def _gives_a_workload_the_job_of_another(world: World) -> None:
    world.job_of[key_of(QUEUED)] = world.placeholders[17]


def _believes_what_another_policy_would_decide(world: World) -> None:
    known = world.placeholders[18].asked_as
    assert known is not None
    world.placeholders[18].asked_as = replace(known, tenant=replace(known.tenant, user="bob"))


def _gives_a_pod_a_component_that_it_was_not_submitted_in(world: World) -> None:
    world.placeholders[18].components = {WAITING.uid: 0}


def _counts_a_node_of_no_name(world: World) -> None:
    world.node_state.named["x9"] = {"x9"}


def _forgets_that_a_workload_waits_for_its_turn(world: World) -> None:
    world.park(key_of(WAITING), "submits")
    world.parked_in.clear()


def _never_serves_a_namespace_that_waits_for_its_turn(world: World) -> None:
    world.park(key_of(WAITING), "submits")
    world.parked["submits"]._queues.clear()


def _attaches_a_workload_to_a_job_that_it_does_not_know(world: World) -> None:
    world.placeholders[18].hinted_by.add(key_of(WAITING))


def _does_not_note_that_a_job_is_absent(world: World) -> None:
    world.placeholders[17].absent_first = START
    world.expected.discard(17)


def _expects_a_bind_that_no_grant_allows(world: World) -> None:
    world.granted_unbound_pods = [GrantedPods("nobody", {}, frozenset({"x1"}))]


def _calls_another_clusters_node_its_own(world: World) -> None:
    world.node_state.ours.add("x9")


def _does_not_note_a_node_that_it_registered(world: World) -> None:
    assert world.slurm_nodes is not None
    marked = replace(world.slurm_nodes["x1"], features=(names.node_mark(world.cluster),))
    world.slurm_nodes = {**world.slurm_nodes, "x1": marked}


@pytest.mark.parametrize(
    ("sabotage", "index"),
    [
        (_forgets_a_phase, "phase_of"),
        (_leaves_a_workload_in_its_former_phase, "by_phase"),
        (_moves_a_pod, "key_of_pod"),
        (_frees_a_node, "node_of"),
        (_counts_room_that_is_taken, "node_info['x1'].taken"),
        (_frees_a_host_port, "host_ports"),
        (_forgets_an_anti_affinity, "affinity_index"),
        (_counts_one_job_too_many, "queued_in"),
        (_lets_a_job_leave_the_queue, "waiting_order"),
        (_counts_a_member_twice, "pod_counts"),
        (_misses_a_job, "expected"),
        (_counts_an_action_that_ended, "under_way"),
        (_detaches_a_workload_from_its_job, "phase_of"),
        (_loses_a_reader, "detail_new"),
        (_does_not_wake_at_a_freed_port, "waits_for_ports"),
        (_wakes_never, "timers"),
        (_visits_a_workload_that_is_gone, "dirty"),
        (_wakes_a_workload_that_is_gone, "wakes"),
        (_awaits_an_owner_for_no_workload, "waits_for_owner"),
        (_holds_back_a_workload_that_was_not_refused, "limited['alice']"),
        (_files_a_workload_under_another_key, "workloads"),
        (_files_a_job_under_another_id, "placeholders"),
        (_assumes_a_bind_to_another_node, "assumed"),
        (_awaits_the_answer_to_no_bind, "unanswered_binds"),
        (_gives_a_job_to_a_second_workload, "hinted_by"),
        (_calls_its_own_job_foreign, "foreign"),
        (_misses_a_job_that_is_there, "absent"),
        (_expects_a_job_that_nobody_has, "expected"),
        (_postpones_the_read_of_a_job_that_was_never_listed, "first_listed_at"),
        (_forgets_who_wants_a_port, "wants_ports"),
        (_forgets_who_has_affinities, "affinity_workloads"),
        (_does_not_note_an_affinity, "affinity_workloads"),
        (_has_a_job_without_a_record, "placeholders"),
        (_forgets_the_terms_of_a_waiting_pod, "waiting_terms"),
        (_counts_a_queued_workload_among_the_granted, "granted_pods"),
        (_reads_a_job_in_both_rounds, "detail_round"),
        (_reads_the_job_of_a_workload_that_is_gone, "running_round"),
        (_counts_a_job_of_no_workload, "quotas.jobs"),
        (_awaits_the_end_of_an_action_that_was_not_sent, "in_flight"),
        (_awaits_a_read_that_was_not_sent, "reading"),
        (_awaits_owners_that_were_not_asked_for, "reading_refs"),
        (_awaits_limits_that_were_not_asked_for, "reading_limits"),
        (_takes_a_running_pod_off_its_node, "node_of"),
        (_disorders_the_timers, "timers"),
        (_gives_a_workload_the_job_of_another, "job_of"),
        (_believes_what_another_policy_would_decide, "asked_as"),
        (_gives_a_pod_a_component_that_it_was_not_submitted_in, "components"),
        (_counts_a_node_of_no_name, "node_state.named"),
        (_forgets_that_a_workload_waits_for_its_turn, "parked_in"),
        (_never_serves_a_namespace_that_waits_for_its_turn, "parked['submits']"),
        (_attaches_a_workload_to_a_job_that_it_does_not_know, "jobs"),
        (_does_not_note_that_a_job_is_absent, "absent"),
        (_expects_a_bind_that_no_grant_allows, "granted_unbound_pods"),
        (_calls_another_clusters_node_its_own, "node_state.ours"),
        (_does_not_note_a_node_that_it_registered, "node_state.ours"),
    ],
)
def test_an_index_that_differs_from_the_facts_is_found(
    world: World, sabotage: Callable[[World], None], index: str
) -> None:
    world.validate()
    sabotage(world)
    with pytest.raises(InvalidIndex) as found:
        world.validate()
    assert found.value.index == index
    assert index in str(found.value)
    assert found.value.found != found.value.expected, "the message shows both, so they differ"


def test_a_workload_that_slurm_refused_counts_in_its_partition_again_once_the_policy_changed() -> None:
    story = Story()
    story.sees(pod("train"))
    [now] = story.acts(AllocateNow, START + 1)
    story.ended(now, Outcome.REFUSED, at=START + 1, number=2013)
    [queued] = story.acts(SubmitJob, START + 1)
    story.ended(queued, Outcome.REFUSED, at=START + 1, number=2045)
    assert story.world.queued_in["main"] == 0
    story.sees(PolicyChanged(CONFIG.policy, START + 2))
    assert story.world.queued_in["main"] == 1
    story.world.validate()


def test_what_a_large_gang_waits_for_is_indexed_when_its_members_are_determined() -> None:
    """One pod of many is another one's replacement and has an affinity.  Meanwhile no pass visits the gang."""
    story = Story(without(CONFIG, validate_every=1))
    says = {"labels": {names.PREFIX + "gang": "g"}, "says": {"gang-size": "69"}}
    story.sees(*(pod(f"w-{number}", cpu=10, **says) for number in range(69)))
    story.sees(pod("w-69", cpu=10, affinity=APART, **says), pod("w-70", cpu=10, affinity=APART, **says))
    assert story.world.unsettled
    story.decides(START + 20)
    assert not story.world.unsettled
    story.world.validate()


@pytest.mark.parametrize("index", INDEXES)
def test_each_index_is_compared(world: World, index: str) -> None:
    before = getattr(world, index)
    wrong = {Phase.DONE: {"wrong": None}} if index == "by_phase" else {"wrong": 1}
    setattr(world, index, wrong if isinstance(before, dict) else None)
    with pytest.raises(InvalidIndex):
        world.validate()


def test_the_message_names_the_index_the_key_and_both_values(world: World) -> None:
    world.phase_of[key_of(QUEUED)] = Phase.BOUND
    with pytest.raises(InvalidIndex) as found:
        world.validate()
    wrong = found.value
    assert (wrong.index, wrong.key, wrong.found, wrong.expected) == (
        "phase_of",
        key_of(QUEUED),
        Phase.BOUND,
        Phase.QUEUED,
    )
    assert str(wrong).startswith(f"phase_of[{key_of(QUEUED)!r}] is <Phase.BOUND")


def test_the_id_of_a_job_that_ended_may_belong_to_a_job_that_was_read_as_foreign(world: World) -> None:
    """Slurm gave the id to another job.  The id of a job that lives may not."""
    world.apply(JobsPolled(START + 30, START + 30, {17: frozenset({"RUNNING"}), 18: frozenset({"CANCELLED"})}))
    world.apply(JobRead(18, START + 31, START + 31, job_of(QUEUED, 18, "CANCELLED"), None))
    world.foreign.add(18)
    world.validate()
    world.foreign.add(17)
    with pytest.raises(InvalidIndex) as found:
        world.validate()
    assert (found.value.index, found.value.key) == ("foreign", 17)


def test_a_job_that_is_absent_is_in_the_set_of_absent_jobs_and_no_other_job_is(world: World) -> None:
    world.absent.add(18)
    with pytest.raises(InvalidIndex) as found:
        world.validate()
    assert (found.value.key, found.value.found, found.value.expected) == (18, "absent", "nothing")


def test_a_pod_that_came_after_the_submission_is_not_compared_with_the_tenant_of_the_job(world: World) -> None:
    """The job was asked for the other pods.  Nor is a job compared that was asked for before the policy changed."""
    job, other = world.placeholders[18], Tenant("bob")
    known = job.asked_as
    assert known is not None
    job.asked_as = replace(known, tenant=other, changes=known.changes - 1)
    world.validate()
    job.asked_as, job.asked_for = replace(known, tenant=other), frozenset()
    world.validate()


def test_an_event_is_followed_by_a_check_only_if_the_tuning_says_so(world: World) -> None:
    world.queued_in["main"] += 1
    unchecked = Story(CONFIG)
    unchecked.world.queued_in["main"] += 1
    unchecked.sees(pod())
    with pytest.raises(InvalidIndex):
        world.apply(PodSeen(Scope.OURS, pod()))


def test_a_rebuilt_world_relies_on_no_index(world: World) -> None:
    plan = decide(world, START + 22, everything=True)
    for broken in (_forgets_a_phase, _moves_a_pod, _counts_one_job_too_many, _counts_a_member_twice):
        broken(world)
    assert {repr(each) for each in decide(rebuilt(world), START + 22, everything=True).actions} == {
        repr(each) for each in plan.actions
    }


def test_a_rebuilt_world_visits_pods_for_the_same_changes_of_anti_affinity(world: World) -> None:
    """Otherwise it visits them in another order, and of pods that exclude each other another one is submitted first."""
    assert world.affinity_index.has_changes is rebuilt(world).affinity_index.has_changes is False
    world.apply(PodSeen(Scope.OTHERS, replace(RUNNING, uid="uid-another", node="x2")))
    assert world.affinity_index.has_changes is rebuilt(world).affinity_index.has_changes is True


def test_a_decision_on_a_rebuilt_world_leaves_the_original_as_it_is(world: World) -> None:
    effort = world.affinity_index.effort
    decide(rebuilt(world), START + 22, everything=True)
    assert world.affinity_index.effort == effort
    world.validate()


# --- indexes that were not kept up to date --------------------------------------------------------------------------


def test_a_pod_that_leaves_its_gang_still_waits_for_its_host_port() -> None:
    """The pod is one too many for its gang: it is a workload by itself, and a freed port concerns it as before."""
    story = Story(without(CONFIG, validate_every=1))
    labels, says = {names.PREFIX + "gang": "g"}, {"gang-size": "1"}
    low, high = (
        pod(name, labels=labels, says=says, host_ports=(HostPort(8080),), created=START + at)
        for at, name in enumerate(("g-0", "g-1"))
    )
    story.sees(high, low)
    alone = story.world.workloads[story.world.key_of_pod[high.uid]]
    assert alone.group is None
    assert alone.key in story.world.wants_ports


def held_back_by_the_limit_of_alice() -> tuple[Story, Pod]:
    """Slurm refuses the job of a pod because alice has as many jobs as she may have."""
    story = Story(without(CONFIG, validate_every=1))
    waits = pod("waits")
    story.sees(waits)
    [now] = story.acts(AllocateNow, START + 20)
    story.ended(now, Outcome.REFUSED, at=START + 20, number=2013)
    [queued] = story.acts(SubmitJob, START + 20)
    story.ended(queued, Outcome.REFUSED, at=START + 21, number=2050, later=True)
    return story, waits


def test_an_edited_pod_is_not_held_back_by_its_users_limit_any_more() -> None:
    """The next job of that user that ends wakes a workload that is still held back."""
    story, waits = held_back_by_the_limit_of_alice()
    assert story.world.limited == {"alice": {key_of(waits): None}}
    story.sees(replace(waits, annotations={names.PREFIX + "nice": "5"}))
    assert story.world.limited == {}


def test_a_node_that_is_called_otherwise_in_slurm_is_named_again(world: World) -> None:
    world.apply(NodeSeen(node("x2", labels={names.SLURM_NODE_LABEL: "another"})))
    assert world.by_slurm_name == {"x1": "x1", "another": "x2"}


def test_a_count_of_zero_is_no_difference_and_does_not_hide_one(world: World) -> None:
    world.queued_in["gone"] = 0
    world.validate()
    world.queued_in["gpu"] += 1
    with pytest.raises(InvalidIndex) as found:
        world.validate()
    assert (found.value.index, found.value.key) == ("queued_in", "gpu")


def test_a_pod_that_is_gone_is_not_held_back_by_its_users_limit_any_more() -> None:
    story, waits = held_back_by_the_limit_of_alice()
    story.loses(waits, START + 22)
    story.decides(START + 23)
    assert (story.world.workloads, story.world.limited) == ({}, {})


def test_indexes_are_checked_after_every_so_many_events() -> None:
    story = Story(without(CONFIG, validate_every=1000))
    story.world.queued_in["main"] += 1
    story.sees(pod())
    story.world.applied = 999
    with pytest.raises(InvalidIndex):
        story.sees(pod("another"))


def test_a_pod_of_another_scheduler_without_a_node_is_no_concern(world: World) -> None:
    before = set(world.workloads)
    world.apply(PodSeen(Scope.OTHERS, pod("foreign", scheduler_name="default-scheduler")))
    assert (set(world.workloads), "uid-foreign" in world.node_of) == (before, False)
