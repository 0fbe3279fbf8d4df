"""Metrics of both clusters: what waits and why, jobs, pods, nodes and CPUs (O2)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bridge.telemetry import Telemetry
from bridge.world_gauges import WRITTEN, WorldGauges
from integration.reference import reasons
from scheduler import names
from scheduler.actions import AllocateNow, Outcome, SubmitJob
from scheduler.events import ActionEnded, PodDeleted, Scope
from scheduler.model.kubernetes import Condition, Node, PodPhase
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import SlurmNode
from scheduler.state.world import World
from tests.builders import START, Story, grant, job_of, pod

NOW = START + 20


def shown(world: World, at: float = NOW) -> dict[str, float]:
    """The values that are not 0, by metric and label values."""
    telemetry = Telemetry()
    asyncio.run(WorldGauges(lambda: world, lambda: at, telemetry.gauge, telemetry.counter).count())
    found: dict[str, float] = {}
    for line in telemetry.scrape()[0].decode().splitlines():
        if line.startswith("slurm_bridge_") and not line.endswith(" 0.0"):
            name, _, rest = line.partition("{")
            labels, _, value = rest.rpartition("} ")
            said = [pair.split("=")[1].strip('"') for pair in labels.split(",") if not pair.startswith("otel_")]
            found[" ".join([name.removeprefix("slurm_bridge_"), *said])] = float(value)
    return {name: value for name, value in found.items() if name.split()[0] in MADE}


MADE = (
    "waiting_workloads",
    "jobs",
    "jobs_ended_total",
    "pods",
    "nodes",
    "held_cpus",
    "bound_cpus",
    "oldest_unbound_grant_seconds",
)


def queued(story: Story, name: str, job_id: int, reason: str) -> None:
    """A pod whose job waits in Slurm for that reason."""
    what = pod(name, says={"partition": "gpu"})
    story.sees(what)
    [asked] = [each for each in story.decides(NOW) if isinstance(each, AllocateNow | SubmitJob)]
    if isinstance(asked, AllocateNow):
        story.sees(ActionEnded(asked, Outcome.REFUSED, NOW, NOW, refusal=Refusal(names.REFUSED, "no room", 2016)))
        [asked] = story.acts(SubmitJob, NOW)
    story.sees(ActionEnded(asked, Outcome.DONE, NOW, NOW, job_id=job_id))
    story.reads(replace(job_of(what, job_id, "PENDING", reason=reason), partition="gpu"), at=NOW + 1)


def test_workloads_wait_for_the_reason_that_slurm_gives_by_partition() -> None:
    story = Story()
    queued(story, "one", 17, "Licenses")
    queued(story, "two", 18, "Licenses")
    queued(story, "three", 19, "Priority")
    values = shown(story.world)
    assert values["waiting_workloads gpu Licenses"] == 2
    assert values["waiting_workloads gpu Priority"] == 1
    assert values["jobs pending"] == 3
    assert values["pods waiting"] == 3


@pytest.mark.parametrize("reason", ["Licenses", "JobHeldUser", "BeginTime"])
def test_a_job_that_a_previous_process_submitted_waits_in_its_partition_whatever_the_reason(reason: str) -> None:
    what = pod("one", created=START - 60)
    story = Story(pods=(what,))
    story.polls({17: "PENDING"}, at=NOW)
    read = job_of(what, 17, "PENDING", reason=reason, submitted=START - 50)
    story.reads(replace(read, partition="gpu"), at=NOW)
    assert shown(story.world)[f"waiting_workloads gpu {reason}"] == 1


def test_a_workload_that_asked_slurm_for_nothing_yet_waits_for_what_its_pods_show() -> None:
    story = Story()
    story.sees(pod("one", labels={"slurm-bridge/gang": "g"}, says={"gang-size": "2"}))
    story.decides(NOW)
    assert shown(story.world)["waiting_workloads none GangGathering"] == 1


def test_every_reason_of_a_waiting_pod_is_a_label_of_the_metric() -> None:
    assert {each.name for each in reasons.OF_PODS if reasons.POD_SCHEDULED in each.where} == WRITTEN


def test_after_a_restart_what_pods_show_is_the_reason_unless_another_client_wrote_it() -> None:
    story = Story()
    for name, reason in (("one", names.LIMITED), ("two", "MadeUp")):
        story.sees(replace(pod(name), scheduled=Condition(False, reason, "why")))
    values = shown(story.world)
    assert values["waiting_workloads none SlurmLimitReached"] == 1
    assert values["waiting_workloads none unknown"] == 1


def test_jobs_pods_and_cpus_of_what_runs() -> None:
    story = Story()
    what = pod("one", cpu=2000)
    story.runs(what, 17, at=NOW)
    values = shown(story.world)
    assert values["jobs running"] == 1
    assert values["pods running"] == 1
    assert values["bound_cpus"] == 2
    story.polls({17: "CANCELLED"}, at=NOW + 5)
    assert shown(story.world)["jobs_ended_total cancelled"] == 1
    story.polls({17: "CANCELLED"}, at=NOW + 6)
    assert shown(story.world)["jobs_ended_total cancelled"] == 1, "once"


def test_a_grant_whose_pod_is_not_bound_has_an_age_and_holds_its_cpus() -> None:
    story = Story()
    story.sees(pod("one"))
    [asked] = story.acts(AllocateNow, NOW)
    story.sees(ActionEnded(asked, Outcome.DONE, NOW, NOW, job_id=17, grant=grant(17)))
    values = shown(story.world, at=NOW + 42)
    assert values["oldest_unbound_grant_seconds"] == 42
    assert values["held_cpus"] == sum(node.cpus for node in grant(17).nodes)
    assert "bound_cpus" not in values


def test_each_node_counts_once_on_each_side() -> None:
    world = Story().world
    world.slurm_nodes = {
        name: SlurmNode(name, frozenset(states))
        for name, states in {"a": {"IDLE", "EXTERNAL"}, "b": {"IDLE", "DRAIN"}, "c": {"NEVER_HEARD_OF"}}.items()
    }
    ready = Node("a")
    world.nodes = {"a": ready, "b": replace(ready, name="b", unschedulable=True), "c": Node("c", ready=False)}
    values = {name: value for name, value in shown(world).items() if name.startswith("nodes")}
    assert values == {
        "nodes Slurm idle": 1,
        "nodes Slurm drain": 1,
        "nodes Slurm other": 1,
        "nodes Kubernetes ready": 1,
        "nodes Kubernetes cordoned": 1,
        "nodes Kubernetes not_ready": 1,
    }


def test_a_node_in_maintenance_is_not_counted_as_idle() -> None:
    """slurmrestd says MAINTENANCE, and sinfo says maint."""
    world = Story().world
    world.slurm_nodes = {"a": SlurmNode("a", frozenset({"IDLE", "MAINTENANCE", "RESERVED"}))}
    assert {name: value for name, value in shown(world).items() if name.startswith("nodes Slurm")} == {
        "nodes Slurm maint": 1
    }


def test_a_pod_that_ended_and_is_still_listed_holds_no_cpus() -> None:
    story = Story()
    what = pod("one")
    story.runs(what, 17, at=NOW)
    story.sees(story.bound(what, 17, phase=PodPhase.SUCCEEDED))
    values = shown(story.world)
    assert values["pods ended"] == 1
    assert "bound_cpus" not in values


async def test_the_loop_goes_on_while_thousands_of_objects_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that end meanwhile are no error."""
    monkeypatch.setattr("bridge.pace.SLICE_S", 0.0)  # each object is a slice
    story, telemetry = Story(), Telemetry()
    waiting = [pod(f"p{number}") for number in range(9)]
    story.sees(*waiting)
    counting = asyncio.create_task(
        WorldGauges(lambda: story.world, lambda: NOW, telemetry.gauge, telemetry.counter).count()
    )
    for what in waiting:
        await asyncio.sleep(0)
        assert not counting.done()
        story.sees(PodDeleted(Scope.OURS, what, NOW))
    await counting
