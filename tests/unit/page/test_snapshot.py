"""What the page shows of a world: rows, nodes, sides, a waterfall; bounded, and the same while nothing changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bridge.page import snapshot as page_snapshot
from bridge.page.snapshot import detail, entries, snapshot, waterfall
from bridge.telemetry import Span
from scheduler import names
from scheduler.actions import AllocateNow, BindPod, ReadJob
from scheduler.events import AccountingOutageBegan, OutageBegan, Side
from scheduler.model.kubernetes import Condition, Pod, PodPhase
from scheduler.model.slurm import Grant, GrantedNode
from scheduler.state.phase import Phase
from scheduler.state.world import World
from tests.builders import START, Story, grant, job_of, key_of, node, pod, slurm_node

NOW = START + 20
ROWS_A_PHASE = 100
TRAIN = pod("train", created=START + 19, gpu=2)


def section(name: str, world: World, now: float = NOW) -> Any:
    """One section of the snapshot of that world."""
    return snapshot(world, now)[name]


def row(story: Story, name: str = "train") -> Any:
    return section("pods", story.world)[f"uid-{name}"]


def test_a_new_pod_is_a_row_without_a_job() -> None:
    story = Story()
    story.sees(TRAIN)
    shown = row(story)
    assert (shown["namespace"], shown["name"], shown["created"]) == ("hpc", "train", START + 19)
    assert (shown["phase"], shown["job"], shown["node"]) == ("unsubmitted", None, "")


def test_a_waiting_pod_shows_the_message_of_the_bridge() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    waiting = job_of(TRAIN, 17, "PENDING", reason="Resources")
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.reads(waiting, at=NOW + 5)
    story.plan(NOW + 5)
    shown = row(story)
    assert (shown["phase"], shown["job"], shown["state"], shown["user"]) == ("queued", 17, "PENDING", "alice")
    assert shown["why"].startswith("Resources: ")


def test_the_detail_of_a_waiting_pod_says_why_it_waits_as_of_now() -> None:
    story, other = Story(), pod("other")
    for number, each in ((17, TRAIN), (18, other)):
        story.queues(each, number, at=NOW + number)
    story.polls({17: "PENDING", 18: "PENDING"}, at=NOW + 20)
    assert detail(story.world, key_of(TRAIN), (), NOW + 20)["waits"] == "", "nothing is known yet"
    for number, each in ((17, TRAIN), (18, other)):
        story.reads(replace(job_of(each, number, "PENDING"), reason="Priority", priority=number), at=NOW + 21)
    assert detail(story.world, key_of(TRAIN), (), NOW + 90)["waits"] == (
        "Waiting in Slurm partition main (Priority: others are before it in the queue); "
        "number 2 of slurm-bridge's 2 waiting jobs there. Job 17, as of 00:18 UTC."
    )


def test_the_detail_of_a_refused_pod_says_the_whole_refusal() -> None:
    """The table cuts the sentence, and a phone has no tooltip."""
    story = Story()
    refused = pod("refused", annotations={names.PREFIX + names.TIME_LIMIT: "soon"})
    story.sees(refused)
    story.plan(NOW)
    said = detail(story.world, key_of(refused), (), NOW)["waits"]
    assert "time-limit" in said
    assert said == story.world.workloads[key_of(refused)].last_status[refused.uid]["PodScheduled"].message


def test_a_bound_pod_shows_its_job_and_its_node() -> None:
    story = Story()
    story.runs(TRAIN, 17, on="x2", at=NOW)
    shown = row(story)
    assert (shown["phase"], shown["word"], shown["job"], shown["state"], shown["node"]) == (
        "bound", "Running", 17, "RUNNING", "x2",
    )  # fmt: skip
    assert shown["why"] == "holds 1 CPU, 100 MiB, 2 gpu"
    assert section("counts", story.world)["bound"] == 1


def test_a_member_of_a_gang_shows_what_its_gang_holds_on_its_node() -> None:
    story = Story()
    story.sees(*ring(3))
    [asked] = story.acts(AllocateNow, NOW)
    held = Grant(17, (GrantedNode("x1", 2, 200), GrantedNode("x2", 1, 100)))
    story.ended(asked, at=NOW, job_id=17, grant=held)
    for bind in story.acts(BindPod, NOW):
        story.ended(bind, at=NOW)
    shown = {row["name"]: row["why"] for row in section("pods", story.world).values()}
    assert shown["w-0"] == shown["w-1"] == "its gang holds 2 CPUs, 200 MiB"
    assert shown["w-2"] == "its gang holds 1 CPU, 100 MiB"


def ring(size: int) -> list[Pod]:
    labels = {names.PREFIX + names.GANG: "ring"}
    return [pod(f"w-{number}", labels=labels, says={"gang-size": "3"}) for number in range(size)]


def test_after_a_restart_a_member_of_a_gang_shows_its_node_itself() -> None:
    """Its job runs, and was not read by this process yet."""
    story = Story()
    story.polls({17: "RUNNING"}, at=START + 0.1)
    for member, where in zip(ring(3), ("x1", "x1", "x2"), strict=True):
        story.sees(story.bound(member, 17, where))
    shown = {row["name"]: row["why"] for row in section("pods", story.world).values()}
    assert shown == {"w-0": "is on node x1", "w-1": "is on node x1", "w-2": "is on node x2"}


def test_a_gang_that_gathers_says_how_many_are_here_and_only_a_gated_pod_is_gated() -> None:
    story = Story()
    first, second, third = ring(3)
    story.sees(first, second, replace(third, gated=True))
    shown = {row["name"]: row for row in section("pods", story.world).values()}
    assert {row["phase"] for row in shown.values()} == {"gathering"}
    assert [shown[name]["word"] for name in ("w-0", "w-1", "w-2")] == ["Gathering", "Gathering", "Gated"]
    assert shown["w-0"]["why"] == shown["w-1"]["why"] == "2 of 3 pods of gang ring are here in namespace hpc."


def test_a_gang_that_goes_while_its_rows_are_made_is_no_error() -> None:
    """A look pauses between two rows, and the alert about errors of slurm-bridge itself fired."""
    story = Story()
    members = ring(3)
    story.sees(*members)
    rows = (found for found in entries(story.world, NOW) if found is not None and found[0] == "pods")
    assert next(rows)[2]()["name"] == "w-0"
    for member in members:
        story.loses(member, NOW + 1)
    story.plan(NOW + 2)
    assert key_of(members[0]) not in story.world.workloads
    assert [make()["name"] for _, _, make in rows] == []


def test_every_pod_of_a_gang_is_counted() -> None:
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.sees(*ring(2))
    told = section("counts", story.world)
    assert (told["bound"], told["gathering"]) == (1, 2)
    assert sum(told.values()) == len(section("pods", story.world))


def test_a_pod_that_terminates_or_ended_says_so() -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.sees(replace(shown, deleting_at=NOW + 30))
    assert row(story)["word"] == "Ending"
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED))
    assert (row(story)["phase"], row(story)["word"], row(story)["why"]) == ("done", "Completed", "Succeeded")
    story.sees(replace(shown, phase=PodPhase.FAILED, exit_code=137, end_reason="OOMKilled"))
    assert row(story)["why"] == "OOMKilled, exit code 137"


def test_what_stays_the_same_is_the_same_later() -> None:
    """Ages are the browser's: an item that did not change is not sent again."""
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    before, after = snapshot(story.world, NOW), snapshot(story.world, NOW + 3600)
    assert before["pods"] == after["pods"]
    assert before["nodes"] == after["nodes"]


def test_of_too_many_pods_the_newest_of_each_phase_are_shown_and_all_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_snapshot, "ROWS_A_PHASE", ROWS_A_PHASE)
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    for number in range(3 * ROWS_A_PHASE):
        story.sees(pod(f"p{number}", created=START + number))
    shown = section("pods", story.world)
    assert len(shown) == ROWS_A_PHASE + 1
    assert "uid-train" in shown, "many of one phase do not hide another"
    assert f"uid-p{3 * ROWS_A_PHASE - 1}" in shown
    assert section("counts", story.world)[Phase.UNSUBMITTED.value] == 3 * ROWS_A_PHASE


def test_a_node_shows_what_pods_take_and_what_jobs_hold() -> None:
    story = Story()
    story.runs(pod("train", cpu=1500, memory=2048, gpu=2), 17, on="x1", at=NOW)
    shown = section("nodes", story.world)["x1"]
    assert shown["cpus"] == [1.5, 64.0]
    assert shown["devices"] == [2, 8]
    assert shown["pods"] == 1
    assert shown["slurm"]["cpus"] == [2, 64], "Slurm gives whole CPUs"
    assert shown["slurm"]["devices"] == [2, 8]
    assert shown["slurm"]["jobs"] == 1


def test_nodes_that_only_one_side_knows_are_shown_as_such() -> None:
    story = Story(nodes=(node("x1"), node("k9")))
    known = {"x1": slurm_node("x1"), "s7": slurm_node("s7")}
    story.world.slurm_nodes = known
    shown = section("nodes", story.world)
    assert shown["k9"]["slurm"] is None
    assert shown["s7"].keys() == {"slurm"}
    assert shown["x1"]["slurm"]["states"] == ["DYNAMIC_NORM", "EXTERNAL", "IDLE"]


def test_a_node_says_why_slurm_gives_it_no_jobs() -> None:
    said = "Slurm node x1 is drained: fan broken."
    story = Story(nodes=(node("x1", in_slurm=Condition(False, "SlurmNodeDrained", said)),))
    story.world.slurm_nodes = {"x1": replace(slurm_node("x1"), reason="fan broken")}
    shown = section("nodes", story.world)["x1"]
    assert (shown["says"], shown["slurm"]["reason"]) == (said, "fan broken")


def test_a_side_that_does_not_answer_says_since_when_and_why() -> None:
    story = Story()
    assert section("sides", story.world, NOW)["Slurm"] == {"since": None, "why": ""}
    story.sees(OutageBegan(Side.SLURM, NOW, "Slurm: states: connection refused."))
    assert section("sides", story.world, NOW + 5)["Slurm"] == {
        "since": NOW,
        "why": "Slurm: states: connection refused.",
    }
    assert section("sides", story.world, NOW)["Kubernetes"]["since"] is None
    story.sees(AccountingOutageBegan(NOW + 1, "slurmdbd does not answer."))
    assert section("sides", story.world, NOW)["slurmdbd"] == {"since": NOW + 1, "why": "slurmdbd does not answer."}


# --- one workload -------------------------------------------------------------------------------------------------


def steps(story: Story, traced: tuple[Span, ...] = (), at: float = NOW + 100) -> list[tuple[str, float, float | None]]:
    found = detail(story.world, key_of(TRAIN), traced, at)
    return [(step["name"], step["start"], step["end"]) for step in found["waterfall"]]


def test_a_pod_that_waits_has_a_waterfall_that_goes_on() -> None:
    story = Story()
    story.sees(TRAIN)
    assert steps(story) == [("created → asked Slurm", START + 19, None)]
    story.queues(TRAIN, 17, at=NOW)
    assert steps(story) == [("created → asked Slurm", START + 19, NOW), ("waiting for Slurm", NOW, None)]


def test_after_a_restart_a_queued_pod_waits_since_slurm_was_asked_for_its_job() -> None:
    """This process did not submit the job: Slurm shows when another process did (O3)."""
    story = Story()
    old = replace(TRAIN, created=START - 60)
    story.polls({17: "PENDING"}, at=START + 0.1)
    story.sees(replace(old, scheduled=Condition(False, names.PENDING, "Waiting. Job 17, as of 13:40 UTC.")))
    [read] = story.acts(ReadJob, START + 0.1)
    story.reads(job_of(old, 17, "PENDING", reason="Priority", submitted=START - 60), at=START + 0.2)
    story.ended(read, at=START + 0.2)
    assert steps(story) == [("created → asked Slurm", START - 60, START - 60), ("waiting for Slurm", START - 60, None)]


TRACED = (
    Span("submitted", NOW - 1, NOW),
    Span("granted", NOW, NOW + 5),
    Span("bound", NOW + 5, NOW + 6),
)


def test_a_bound_pod_runs_until_its_job_ends() -> None:
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    told = [
        ("created → asked Slurm", NOW - 1, NOW),
        ("waiting for Slurm", NOW, NOW + 5),
        ("granted → bound", NOW + 5, NOW + 6),
    ]
    assert steps(story, TRACED) == [*told, ("runs", NOW + 6, None)], "it runs, though no trace has its start yet"
    story.sees(replace(story.bound(TRAIN, 17), phase=PodPhase.PENDING))
    assert steps(story, TRACED) == [*told, ("containers start", NOW + 6, None)]
    started = Span("started", NOW + 6, NOW + 8)
    assert steps(story, (*TRACED, started)) == [*told, ("containers start", NOW + 6, NOW + 8), ("runs", NOW + 8, None)]
    end, root = Span("ended", NOW + 60, NOW + 61), Span("workload hpc/train", NOW - 1, NOW + 61)
    ended = steps(story, (*TRACED, started, end, root))
    assert ended[-2:] == [("runs", NOW + 8, NOW + 60), ("job ended", NOW + 60, NOW + 61)]


def test_what_the_world_has_forgotten_is_still_in_the_trace() -> None:
    end = Span("ended", NOW + 60, NOW + 61)
    found = detail(Story().world, key_of(TRAIN), (*TRACED, end), NOW + 100)
    assert found["story"] == []
    assert [step["name"] for step in found["waterfall"]][-1] == "job ended"


def test_of_what_was_never_known_there_is_no_detail() -> None:
    assert detail(Story().world, "nobody", (), NOW) is None


def test_the_story_is_shown_in_order() -> None:
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    told = detail(story.world, key_of(TRAIN), (), NOW)["story"]
    assert told[0] == {"at": START + 19, "what": "pod hpc/train created"}
    assert told[-1]["what"] == "is on node x1"


def test_a_grant_that_is_not_bound_yet_is_in_the_waterfall() -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW + 1, job_id=17, grant=grant(17, gpu=2))
    [_bind] = story.acts(BindPod, NOW + 1)
    workload = story.world.workloads[key_of(TRAIN)]
    names = [step["name"] for step in waterfall(workload, story.world.placeholders[17], (), NOW + 2)]
    assert names == ["created → asked Slurm", "waiting for Slurm", "granted → bound"]
