"""Binds of a previous process that may still take effect: where their pods are counted, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, BindPod, CancelJob
from scheduler.model.kubernetes import HostPort, Pod, PodPhase, PodTerm, Requirement
from scheduler.model.slurm import GrantedNode, Job
from scheduler.place.fit import NodeInfo
from scheduler.state.earlier_binds import MOST_COMPARED, EarlierBinds
from scheduler.state.placeholder import Placeholder
from tests.builders import CLUSTER, START, Story, grant, job_of, key_of, node, pod

NOW = START + 1
WEB = (HostPort(80),)
FIRST = pod("first", created=START - 100, host_ports=WEB)
NEXT = pod("next", host_ports=WEB)


def found_by_a_new_process(*states: str, first: Pod = FIRST, nodes: str = "x1") -> Story:
    """The job of the first pod, as a process finds it that has just started."""
    story = Story(pods=(first,))
    story.polls({17: " ".join(states or ("RUNNING",))}, at=START + 0.1)
    read = job_of(first, 17, *states, nodes=nodes, submitted=START - 99)
    story.reads(read, at=START + 0.2, granted=grant(17, nodes) if "RUNNING" in (states or ("RUNNING",)) else None)
    return story


def on(story: Story, name: str, key: str = "another", binding: tuple[str, ...] = ()) -> list[str]:
    """The names of the pods that may land on the node."""
    there = EarlierBinds(story.world).on(name, key, binding)
    return [each.name for info in there for each in info.pods.values()]


def test_the_pod_of_an_earlier_grant_may_land_on_each_node_of_the_grant_and_on_no_other() -> None:
    story = found_by_a_new_process()
    assert on(story, "x1") == ["first"]
    assert on(story, "x2") == []


def test_the_pods_of_the_workload_itself_and_those_that_this_pass_binds_do_not_count() -> None:
    story = found_by_a_new_process()
    assert on(story, "x1", key_of(FIRST)) == []
    assert on(story, "x1", binding=(key_of(FIRST),)) == []
    assert on(story, "x1", binding=("a third",)) == ["first"]


def test_a_grant_that_this_process_asked_for_has_no_earlier_binds() -> None:
    story = Story()
    story.sees(FIRST)
    [asked] = story.decides(NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    assert on(story, "x1") == []


def test_a_pod_whose_node_is_known_lands_nowhere_else() -> None:
    story = found_by_a_new_process()
    story.sees(story.bound(FIRST, 17))
    assert on(story, "x1") == []


def test_a_pod_whose_node_is_known_lands_nowhere_else_after_its_job_ended() -> None:
    story = found_by_a_new_process("CANCELLED")
    story.sees(story.bound(FIRST, 17, "x2"))
    assert on(story, "x1") == []


@pytest.mark.parametrize("key", ["another", key_of(FIRST)])
def test_a_pod_whose_earlier_job_has_ended_may_still_land_on_its_nodes(key: str) -> None:
    story = found_by_a_new_process("CANCELLED")
    assert on(story, "x1", key) == (["first"] if key == "another" else [])
    assert on(story, "x2", key) == []


def test_nodes_of_an_ended_job_that_cannot_be_read_are_no_nodes() -> None:
    assert on(found_by_a_new_process("CANCELLED", nodes="x[1"), "x1") == []


def test_nodes_that_kubernetes_does_not_have_are_left_out() -> None:
    assert on(found_by_a_new_process("CANCELLED", nodes="x1,x9"), "x1") == ["first"]


def test_an_ended_job_whose_grant_was_read_before_keeps_its_nodes_in_mind() -> None:
    story = found_by_a_new_process()
    story.polls({17: "CANCELLED"}, at=START + 1)
    story.world.placeholders[17].job = None  # what was read of the job itself is not needed
    assert on(story, "x1") == ["first"]


def test_an_ended_job_that_no_known_pod_has_lands_nothing() -> None:
    story = found_by_a_new_process("CANCELLED")
    story.world.placeholders[18] = Placeholder(18, None, "", frozenset({"CANCELLED"}), known_since=0.0)
    assert on(story, "x1") == ["first"]


def test_an_ended_job_that_this_process_asked_for_has_no_earlier_binds() -> None:
    story = Story()
    story.sees(FIRST)
    [asked] = story.decides(NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    story.polls({17: "CANCELLED"}, at=NOW + 1)
    assert on(story, "x1") == []


def test_of_a_gang_only_the_members_without_a_node_may_land() -> None:
    """A member whose bind this process has sent is counted on the node of that bind."""
    labels, says = {names.PREFIX + names.GANG: "ring"}, {"gang-size": "3"}
    gang = [pod(f"w-{rank}", created=START - 100, labels=labels, says=says) for rank in range(3)]
    runs = replace(gang[0], node="x1", phase=PodPhase.RUNNING, annotations=gang[0].annotations | {names.JOB_ID: "17"})
    story = Story(pods=(runs, *gang[1:]))
    [workload] = [each for each in story.world.workloads.values() if each.pods]
    story.polls({17: "RUNNING"}, at=START + 0.1)
    name = names.job_name(workload.readable, CLUSTER, workload.key)
    read = Job(17, name, "alice", frozenset({"RUNNING"}), partition="main", nodes="x1", submitted=START - 99)
    story.reads(read, at=START + 0.2, granted=grant(17, cpus=3, memory=300))
    assert on(story, "x1") == ["w-1", "w-2"]
    story.world.assume(gang[1], "x1")
    assert on(story, "x1") == ["w-2"]
    story.world.set_states(story.world.placeholders[17], frozenset({"CANCELLED"}), START + 1)
    assert on(story, "x1") == ["w-2"]


def test_what_slurm_counts_is_left_out_while_the_job_lives_and_counts_once_it_has_ended() -> None:
    """No two grants share a CPU; an ended job may have left its CPUs to others."""
    big = replace(FIRST, host_ports=(), containers=pod(cpu=40_000).containers)
    other = replace(NEXT, host_ports=(), containers=pod(cpu=40_000).containers)
    for states, waits in (("RUNNING", False), ("CANCELLED", True)):
        story = found_by_a_new_process(states, first=big)
        found = EarlierBinds(story.world).obstacle(other, key_of(other), node("x1", cpu=64_000), [], ())
        assert (found is not None) is waits, states


@pytest.mark.parametrize("counted", [True, False])
def test_the_memory_of_a_pod_that_may_land_counts_if_slurm_does_not_count_memory(counted: bool) -> None:
    big, other = pod("first", created=START - 100, memory=400), pod("next", memory=400)
    story = found_by_a_new_process(first=big)
    read = job_of(big, 17, submitted=START - 99)
    story.reads(read, at=START + 0.3, granted=grant(17, memory=400 if counted else 0))
    found = EarlierBinds(story.world).obstacle(other, key_of(other), node("x1", memory=700), [], ())
    assert (found is None) is counted


@pytest.mark.parametrize(("terms", "waits"), [(MOST_COMPARED, False), (MOST_COMPARED + 1, True)])
def test_a_pod_with_more_terms_than_are_compared_waits_for_the_end_of_the_quiet_period(terms: int, waits: bool) -> None:
    """None of its terms selects the pod that may land."""
    apart = tuple(PodTerm((Requirement("app", "In", (str(number),)),), frozenset({"hpc"})) for number in range(terms))
    choosy = replace(NEXT, host_ports=(), anti_affinity=apart)
    found = EarlierBinds(found_by_a_new_process().world).obstacle(choosy, key_of(choosy), node("x1"), [], ())
    assert (found is not None) is waits


def test_a_pod_waits_for_the_end_of_the_quiet_period_where_it_has_no_room_beside_a_bind_that_may_land() -> None:
    story = found_by_a_new_process()
    earlier = EarlierBinds(story.world)
    found = earlier.obstacle(NEXT, key_of(NEXT), node("x1"), [], ())
    assert found is not None
    assert found.until == story.world.quiet_until()
    assert earlier.obstacle(NEXT, key_of(NEXT), node("x2"), [], ()) is None, "nothing lands there"
    assert earlier.obstacle(NEXT, key_of(NEXT), None, [], ()) is None, "what is no node is said elsewhere"
    beside = replace(NEXT, host_ports=(HostPort(81),))
    assert earlier.obstacle(beside, key_of(NEXT), node("x1"), [], ()) is None, "there is room for both"


def test_a_grant_beside_a_bind_that_may_land_is_used_at_the_end_of_the_quiet_period() -> None:
    story = found_by_a_new_process()
    story.sees(NEXT)
    [asked] = story.acts(AllocateNow, NOW + 3)
    story.ended(asked, at=NOW + 3, job_id=18, grant=grant(18))
    quiet = story.world.quiet_until()
    assert [type(each) for each in story.decides(quiet - 0.1) if isinstance(each, BindPod | CancelJob)] == []
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=quiet)
    assert [(each.name, each.node) for each in story.acts(BindPod, quiet)] == [("next", "x1")]


def test_where_nothing_may_land_a_full_node_is_not_said_to_wait_for_earlier_binds() -> None:
    """What is in the way there is said by the look at the room."""
    there = NodeInfo()
    there.put(replace(FIRST, name="there", uid="uid-there"))
    story = Story()
    assert EarlierBinds(story.world).obstacle(NEXT, key_of(NEXT), node("x1"), [there], ()) is None


def test_the_work_grows_with_the_grants_and_the_pods_that_may_land() -> None:
    story = found_by_a_new_process()
    earlier = EarlierBinds(story.world)
    earlier.on("x1", "another", ())
    first = earlier.effort
    assert first > 0
    earlier.on("x1", "another", ())
    assert earlier.effort == first, "it is counted once a pass"


def test_all_nodes_of_a_heterogeneous_grant_count() -> None:
    story = found_by_a_new_process()
    parts = replace(grant(17), parts=(replace(grant(18), nodes=(GrantedNode("x2", 1, 100),)),))
    story.reads(job_of(FIRST, 17, submitted=START - 99), at=START + 0.3, granted=parts)
    assert on(story, "x2") == ["first"]
