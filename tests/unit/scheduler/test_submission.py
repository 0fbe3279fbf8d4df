"""Which pods are submitted at once, and which wait in Slurm's queue or for another pod (ARCHITECTURE 5, F5, F6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, CancelJob, NudgeScheduler, Outcome, SetPodCondition, SubmitJob, UpdateJob
from scheduler.events import PodSeen, Scope, SlurmNodesPolled
from scheduler.model.kubernetes import Pod
from scheduler.model.slurm import Partition
from scheduler.rules import driver
from tests.builders import CONFIG, START, Story, grant, key_of, node, pod, slurm_node, without
from tests.defects import breaks
from tests.unit.scheduler.test_affinity import app, of_app

NOW = START + 20
LATER = {"begin": "now+1hour"}


def submitted(story: Story, at: float) -> dict[str, type]:
    """Which pods are submitted, and how."""
    asked = [each for each in story.decides(at) if isinstance(each, AllocateNow | SubmitJob)]
    return {each.spec.name.partition("~")[0].removeprefix("hpc/"): type(each) for each in asked}


def has_room() -> Story:
    """An allocation at once has succeeded, so the pods after it are not asked for one by one."""
    story = Story()
    story.runs(pod("warm"), 16, at=NOW)
    return story


def to(partition: str) -> dict[str, str]:
    """The annotation of a pod for that partition; "": the pod names none, so Slurm's default partition counts."""
    return {"partition": partition} if partition else {}


def shy(name: str, **fields: Any) -> Pod:
    return app(name, anti_affinity=of_app("a"), **fields)


# --- one after the other ----------------------------------------------------------------------------------------------


def test_only_a_pod_that_could_start_now_waits_for_the_result_of_the_first_allocation() -> None:
    story = Story()
    story.sees(pod("first"))
    assert submitted(story, NOW) == {"first": AllocateNow}
    story.sees(pod("now"), pod("later", says=LATER))
    assert submitted(story, NOW + 0.1) == {"later": SubmitJob}


@pytest.mark.parametrize("make", [pod, shy])
def test_a_first_allocation_that_takes_long_is_waited_for_half_a_second(make: Any) -> None:
    story = Story()
    story.sees(make("first"))
    assert submitted(story, NOW) == {"first": AllocateNow}
    story.sees(make("second"))
    assert submitted(story, NOW + 0.4) == {}
    assert submitted(story, NOW + 0.5) == {"second": SubmitJob}


def test_after_a_refusal_pods_are_asked_for_one_by_one_again() -> None:
    story = has_room()
    story.queues(pod("refused"), 17, at=NOW)
    story.polls({16: "RUNNING", 17: "RUNNING"}, at=NOW + 1)
    story.sees(pod("a"), pod("b"))
    assert submitted(story, NOW + 1) == {"a": AllocateNow}


def test_pods_with_anti_affinity_are_submitted_one_by_one_and_other_pods_beside_them() -> None:
    story = has_room()
    story.sees(shy("a"), pod("b"), shy("c"))
    assert submitted(story, NOW) == {"a": AllocateNow, "b": AllocateNow}
    story.sees(pod("d"), shy("e", says=LATER))
    assert submitted(story, NOW + 0.1) == {"d": AllocateNow, "e": SubmitJob}


# --- the queue of a partition -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "how"),
    [
        ("gpu", "gpu", SubmitJob),
        ("", "main", SubmitJob),
        ("main", "", SubmitJob),
        ("gpu", "", AllocateNow),
        ("", "gpu", AllocateNow),
    ],
)
def test_a_pod_is_queued_behind_a_job_of_the_same_pass_that_waits_in_its_partition(
    first: str, second: str, how: type
) -> None:
    story = Story()
    story.sees(pod("a", says=to(first) | LATER), pod("b", says=to(second)))
    assert submitted(story, NOW) == {"a": SubmitJob, "b": how}


@pytest.mark.parametrize("partition", ["gpu", "main", ""])
@pytest.mark.parametrize("begins", [{}, LATER], ids=["at once", "in the queue"])
def test_a_submission_that_an_error_removed_from_the_plan_delays_no_other_pod(
    begins: dict[str, str], partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch, driver, "_charge", lambda workload, _: workload.readable == "hpc/a")
    story = Story(guarded=True, checked=False)
    story.sees(pod("a", says=to(partition) | begins), pod("b", says=to(partition)))
    assert submitted(story, NOW) == {"b": AllocateNow}


@pytest.mark.parametrize(("begin", "how"), [("00:17:00", AllocateNow), ("00:17:01", SubmitJob)])
def test_a_pod_may_start_at_once_from_its_begin_time_on(begin: str, how: type) -> None:
    story = Story()
    story.sees(pod("a", says={"begin": f"1970-01-01T{begin}Z"}))
    assert submitted(story, NOW) == {"a": how}


def test_a_pod_is_submitted_to_the_partition_that_it_names_if_slurm_shows_no_partitions() -> None:
    """Slurm may hide partitions from the bridge."""
    story = Story()
    story.sees(SlurmNodesPolled((slurm_node("x1"), slurm_node("x2")), (), NOW), pod("a", says=to("gpu")))
    assert submitted(story, NOW) == {"a": AllocateNow}


# --- nodes where another grant failed a moment ago --------------------------------------------------------------------

BIG = pod("big", cpu=40_000)
OTHER = pod("other", cpu=40_000, namespace="elsewhere", node="x1", scheduler_name="default-scheduler", grace_s=30)


def crowded(*nodes: str) -> Story:
    """At NOW a grant of x1 could not be used, because a pod that Slurm does not count fills the node."""
    story = Story(nodes=[node(name) for name in nodes])
    story.sees(PodSeen(Scope.OTHERS, OTHER), BIG)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17, "x1", cpus=40))
    assert len(story.acts(CancelJob, NOW)) == 1
    return story


def excluded(story: Story, what: Pod, at: float) -> str:
    """The nodes that the submission of this pod excludes."""
    acts = story.decides(at)
    [spec] = [each.spec for each in acts if isinstance(each, AllocateNow | SubmitJob) and each.key == key_of(what)]
    return spec.excluded_nodes


@pytest.mark.parametrize(("seconds", "leaves_out"), [(59, "x1"), (60, "")])
def test_a_full_node_is_excluded_for_a_minute(seconds: float, leaves_out: str) -> None:
    story = crowded("x1", "x2")
    new = replace(BIG, name="new", uid="uid-new")
    story.sees(new)
    assert excluded(story, new, NOW + seconds) == leaves_out


def test_a_job_that_waits_keeps_the_full_node_excluded() -> None:
    story = crowded("x1", "x2")
    new = replace(BIG, name="new", uid="uid-new", annotations={names.PREFIX + "begin": "now+1hour"})
    story.sees(new)
    [submit] = [each for each in story.acts(SubmitJob, NOW + 1) if each.key == key_of(new)]
    assert submit.spec.excluded_nodes == "x1"
    story.ended(submit, at=NOW + 1, job_id=18)
    assert story.acts(UpdateJob, NOW + 2) == []


def test_a_job_that_waits_leaves_no_node_out_if_none_is_full() -> None:
    story = Story()
    story.sees(pod("a", says=LATER))
    plan = story.plan(NOW)
    assert [type(each) for each in plan.actions] == [SubmitJob]
    assert plan.left_out == {}


def test_a_node_that_is_not_in_slurm_any_more_is_not_excluded_by_name() -> None:
    """Slurm refuses a job that names an unknown node (error 2018)."""
    story = crowded("x1", "x2")
    story.sees(SlurmNodesPolled((slurm_node("x2"),), (Partition("main", default=True),), NOW + 1))
    new = replace(BIG, name="new", uid="uid-new")
    story.sees(new)
    assert excluded(story, new, NOW + 1) == ""


@pytest.mark.parametrize(("size", "nodes", "leaves_out"), [(2, 2, ""), (2, 3, "x1")])
def test_a_gang_excludes_the_full_node_only_if_the_other_nodes_suffice(size: int, nodes: int, leaves_out: str) -> None:
    story = crowded(*(f"x{number}" for number in range(1, nodes + 1)))
    of_gang: dict[str, Any] = {"labels": {names.PREFIX + names.GANG: "ring"}, "says": {"gang-size": str(size)}}
    story.sees(*(pod(f"ring-{rank}", cpu=40_000, **of_gang) for rank in range(size)))
    [spec] = [each.spec for each in story.decides(NOW + 1) if isinstance(each, AllocateNow) and each.spec.tasks == size]
    assert spec.excluded_nodes == leaves_out


# --- what empty nodes hold (F3) ---------------------------------------------------------------------------------------


def told(story: Story) -> set[str]:
    return {each.message for each in story.decides(NOW) if isinstance(each, SetPodCondition)}


def test_a_gang_that_is_too_large_is_told_which_partition_is_too_small_for_it() -> None:
    story = Story()
    of_gang: dict[str, Any] = {"labels": {names.PREFIX + names.GANG: "ring"}}
    says = {"gang-size": "3", "partition": "gpu"}
    story.sees(*(pod(f"ring-{rank}", cpu=60_000, says=says, **of_gang) for rank in range(3)))
    [said] = told(story)
    assert said.startswith("Slurm partition gpu has no room for 3 such pods")


def test_a_pod_is_told_that_no_node_of_the_partition_that_it_names_can_run_it() -> None:
    story = Story(nodes=[node("x1", labels={"disk": "fast"}), node("x2")])
    nodes = (slurm_node("x1", partitions=("main",)), slurm_node("x2", partitions=("main", "gpu")))
    story.sees(SlurmNodesPolled(nodes, (Partition("main", default=True), Partition("gpu")), NOW))
    story.sees(pod("a", says=to("gpu"), node_selector={"disk": "fast"}))
    [said] = told(story)
    assert said.startswith("0/2 nodes can run this pod in Slurm partition gpu: ")


def test_whether_the_memory_of_empty_nodes_suffices_for_several_kinds_of_pods_is_left_to_slurm() -> None:
    """Slurm counts memory only if its admin has configured that."""
    story = Story()
    of_gang: dict[str, Any] = {"labels": {names.PREFIX + names.GANG: "ring"}, "says": {"gang-size": "3"}}
    memory = (300_000, 300_000, 100)
    story.sees(*(pod(f"ring-{rank}", memory=amount, **of_gang) for rank, amount in enumerate(memory)))
    [submit] = story.acts(SubmitJob, NOW)
    assert [each.tasks for each in (submit.spec, *submit.spec.parts)] == [2, 1]


# --- the queue --------------------------------------------------------------------------------------------------------


def test_slurm_is_not_asked_to_look_at_its_queue_while_nothing_has_changed_there() -> None:
    story = Story()
    submit = story.queues(pod("a"), 17, at=NOW)
    assert submit.components == ()
    for second in range(1, 10):
        story.polls({17: "PENDING"}, at=NOW + second)
        assert story.acts(NudgeScheduler, NOW + second) == []


def test_a_refusal_is_shown_while_no_more_submissions_may_be_in_flight() -> None:
    story = Story(without(CONFIG, submits=1))
    story.runs(pod("warm"), 16, at=NOW)
    story.sees(pod("a"))
    [asked] = story.acts(AllocateNow, NOW)
    story.sees(pod("b"))
    assert submitted(story, NOW) == {}
    story.ended(asked, Outcome.REFUSED, at=NOW + 1, number=2045)
    acts = story.decides(NOW + 1)
    assert [each.spec.name.partition("~")[0] for each in acts if isinstance(each, AllocateNow)] == ["hpc/b"]
    assert [(each.name, each.condition) for each in acts if isinstance(each, SetPodCondition)] == [("a", names.REFUSED)]


def test_a_service_gets_the_longest_time_of_the_default_partition_if_its_pod_names_none() -> None:
    story = Story()
    partitions = (Partition("main", default=True, max_time_min=120), Partition("gpu", max_time_min=600))
    story.sees(SlurmNodesPolled((slurm_node("x1"), slurm_node("x2")), partitions, NOW))
    story.sees(*(pod(f"in-{name}", says=to(name), restart_policy="Always") for name in ("", "gpu")))
    asked = [each.spec for each in story.decides(NOW) if isinstance(each, AllocateNow)]
    assert {(spec.partition, spec.time_limit_min) for spec in asked} == {("", 120), ("gpu", 600)}


def test_the_first_allocation_in_one_partition_lets_no_pod_of_another_partition_wait() -> None:
    story = Story()
    story.sees(pod("first", says=to("gpu")))
    assert submitted(story, NOW) == {"first": AllocateNow}
    story.sees(pod("here"), pod("there", says=to("gpu")))
    assert submitted(story, NOW + 0.01) == {"here": AllocateNow}, "the answer for the partition gpu has not come yet"
