"""`kubectl slurm` against a simulated Kubernetes: what a user sees with the rights of a namespace, and without Slurm."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.__main__ import EXIT_CONFIG, EXIT_NOT_READ, EXIT_NOT_WRITTEN
from bridge.plugin import command, completion
from bridge.plugin.answers import screen_of, why
from bridge.plugin.cluster import Cluster, Found, Selection
from bridge.plugin.command import complete, main
from bridge.plugin.lists import QUEUE
from bridge.plugin.table import CLEAR, RESET, Screen, age, table
from bridge.plugin.watch import follow
from bridge.simulation.http import serve_kube, serve_slurm
from bridge.simulation.kube import objects
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.kube.in_process import InProcessKube
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.slurm.jobs import SimPartition
from bridge.slurm.client import SlurmClient
from bridge.slurm.token import LiteralToken
from scheduler import names
from scheduler.model.slurm import JobSpec
from tests.in_process_slurm import InProcessSlurm
from tests.patience import PATIENCE_S
from tests.unit.doctor.clusters import kubeconfig

CREATED = 1_790_000_000.0
WAITING = "Waiting in Slurm partition gpu (Priority: others are before it in the queue). Job 4711, as of 13:40 UTC."


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Tenant:
    """A namespace `hpc` and its user: the user has a kubeconfig, and no access to Slurm."""

    def __init__(self, folder: Path) -> None:
        self.kube = KubeCluster(1)
        self.folder = folder
        for name in ("hpc", "other"):
            self.kube.create(CREATED, "namespaces", objects.namespace(name))

    def waits(self, name: str, reason: str = names.PENDING, message: str = WAITING, **more: Any) -> Any:
        made = self.kube.create(CREATED, "pods", objects.pod(more.pop("namespace", "hpc"), name, **more))
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        return self.kube.write_status("pods", made, {"phase": "Pending", "conditions": [condition]})

    def ran(self, name: str, *, exit_code: int | None = None, **more: Any) -> Any:
        """Created at CREATED, bound after 60 s, its container began after 70 s and ended after 130 s."""
        written = {names.JOB_ID: "17", names.SIZE: "2", names.RANK: "1"}
        made = self.kube.create(CREATED, "pods", objects.pod("hpc", name, annotations=written, **more))
        made = self.kube.store.put("pods", {**made, "spec": {**made["spec"], "nodeName": "x1"}})
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(CREATED + 60)}
        began, ended = stamp(CREATED + 70), stamp(CREATED + 130)
        state: Any = {"running": {"startedAt": began}}
        if exit_code is not None:
            over = {"exitCode": exit_code, "startedAt": began, "finishedAt": ended}
            state = {"terminated": over | {"reason": "Error" if exit_code else "Completed"}}
        phase = "Running" if exit_code is None else "Failed" if exit_code else "Succeeded"
        containers = [{"name": "main", "state": state}]
        status = {"phase": phase, "conditions": [scheduled], "containerStatuses": containers}
        return self.kube.write_status("pods", made, status)

    def event(self, pod: Any, reason: str, message: str, at: float) -> None:
        about = {"kind": "Pod", "namespace": "hpc", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        times = {"firstTimestamp": stamp(at), "lastTimestamp": stamp(at), "count": 1}
        meta = {"namespace": "hpc", "name": f"e{reason.lower()}"}
        body = {"metadata": meta, "involvedObject": about, "reason": reason, "message": message, **times}
        self.kube.create(at, "events", body)

    async def asked(self, *arguments: str, by: Any = main) -> int:
        """The exit code of the command, whose kubeconfig has the namespace hpc."""
        async with serve_kube(InProcessKube(self.kube, time.time)) as url:
            config = kubeconfig(url)
            config["contexts"][0]["context"]["namespace"] = "hpc"
            (self.folder / "config").write_text(yaml.safe_dump(config))
            os.environ["KUBECONFIG"] = str(self.folder / "config")
            code: int = await asyncio.to_thread(by, list(arguments))
            return code


@pytest.fixture
def tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tenant:
    monkeypatch.setenv("KUBECONFIG", "")
    monkeypatch.delenv("SLURM_JWT", raising=False)
    return Tenant(tmp_path)


def squeezed(text: str) -> list[str]:
    return [re.sub(r" {2,}", " | ", line) for line in text.splitlines()]


async def test_a_waiting_pod_that_a_finalizer_holds_is_not_said_to_wait_as_its_cancelled_job(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    held = tenant.waits("train")
    meta = held["metadata"] | {"finalizers": ["example.com/keeps"], "deletionTimestamp": stamp(CREATED + 9)}
    tenant.kube.store.put("pods", held | {"metadata": meta})
    assert await tenant.asked("queue", "-o", "json") == 0
    [told] = json.loads(capsys.readouterr().out)
    assert (told["state"], told["job"], told["reason"]) == ("Ending", None, "")
    assert told["message"] == (
        "It is being deleted, and was never on a node. It is gone when its finalizers are removed."
    )


# --- queue and history ------------------------------------------------------------------------------------------------


async def test_the_queue_has_pods_that_wait_or_run_in_the_namespace_of_the_context(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    tenant.waits("train")
    tenant.ran("running")
    tenant.ran("over", exit_code=0)
    tenant.waits("elsewhere", namespace="other")
    tenant.kube.create(CREATED, "pods", objects.pod("hpc", "web", scheduler="default-scheduler"))
    assert await tenant.asked("queue") == 0
    head, *rows = squeezed(capsys.readouterr().out)
    assert head == "JOB | POD | STATE | TIME | NODE (REASON)"
    assert [row.split(" | ")[:3] for row in rows] == [["17", "running", "Running"], ["4711", "train", "Pending"]]
    assert rows[1].endswith(" | (Priority: others are before it in the queue)")


START = "; expected start between 14:05 and 14:10 UTC on g[1,3]"
LIMIT = "AssocGrpGRES: its account allows no more GRES now (GrpTRES=gres/gpu=4 of user bob in account teamb)"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (f"Waiting in Slurm partition gpu ({LIMIT}). Job 4711, as of 13:40 UTC.", LIMIT),
        (
            f"Waiting in Slurm partition gpu (Priority: others are first){START} (from past waits, 41 of 50 such intervals "
            "held; from time limits 14:30 UTC); number 3 of slurm-bridge's 12 waiting jobs there. Job 4711, as of 2026-01-02 "
            "13:40 UTC.",
            "Priority: others are first; expected start 14:05 to 14:10 UTC on g[1,3]",
        ),
        (
            "Waiting in Slurm partition gpu (Resources: first in line); number 1 of slurm-bridge's 2 waiting jobs there. Job "
            "4711, as of 13:40 UTC. Slurm cannot change account of a waiting job.",
            "Resources: first in line. Slurm cannot change account of a waiting job.",
        ),
        ("Another slurm-bridge says something else.", "Another slurm-bridge says something else."),
    ],
)
async def test_the_queue_has_the_reason_and_the_expected_start_of_a_job_that_waits(
    tenant: Tenant, capsys: pytest.CaptureFixture[str], message: str, shown: str
) -> None:
    tenant.waits("train", message=message)
    assert await tenant.asked("queue") == 0
    assert capsys.readouterr().out.endswith(f"({shown})\n")
    await tenant.asked("queue", "-o", "json")
    assert json.loads(capsys.readouterr().out)[0]["message"] == message


async def test_all_namespaces_and_labels_choose_pods_as_kubectl_does(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    tenant.waits("train", labels={"team": "a"})
    tenant.waits("elsewhere", namespace="other", labels={"team": "a"})
    tenant.waits("unlabelled")
    assert await tenant.asked("queue", "-A", "-l", "team=a") == 0
    head, *rows = squeezed(capsys.readouterr().out)
    assert head.startswith("NAMESPACE | JOB | POD")
    assert sorted(row.split(" | ")[0] for row in rows) == ["hpc", "other"]


async def test_wide_shows_the_gang_and_what_the_pod_asks_for(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    gang = {"labels": {"slurm-bridge/gang": "ring"}, "annotations": {"slurm-bridge/partition": "gpu"}}
    tenant.waits("w-0", requests={"cpu": "500m", "memory": "2Gi", "nvidia.com/gpu": "2"}, **gang)
    assert await tenant.asked("queue", "-o", "wide") == 0
    head, row = squeezed(capsys.readouterr().out)
    assert head == "JOB | POD | STATE | TIME | GANG | CPUS | MEMORY | DEVICES | PARTITION | QOS | NODE (REASON)"
    assert " | ring | 0.5 | 2Gi | 2 gpu | gpu | - | (Priority" in row


async def test_history_says_how_pods_ended_and_how_long_they_waited_and_ran(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    tenant.ran("bad", exit_code=3)
    tenant.waits("train")
    assert await tenant.asked("history") == 0
    head, row = squeezed(capsys.readouterr().out)
    assert head == "JOB | POD | STATE | EXIT | WAITED | RAN | ENDED (UTC) | NODE"
    ended = datetime.fromtimestamp(CREATED + 130, UTC).strftime("%Y-%m-%d %H:%M:%S")
    assert row == f"17 | bad | Failed | 3 | 1m | 1m10s | {ended} | x1"


async def test_json_has_times_as_numbers(tenant: Tenant, capsys: pytest.CaptureFixture[str]) -> None:
    tenant.ran("good", exit_code=0)
    assert await tenant.asked("history", "-o", "json") == 0
    [told] = json.loads(capsys.readouterr().out)
    assert (told["bound"], told["started"], told["ended"]) == (CREATED + 60, CREATED + 70, CREATED + 130)
    assert (told["state"], told["exit_code"], told["job"], told["rank"]) == ("Completed", 0, 17, 1)


async def test_json_has_all_that_wide_has_as_numbers(tenant: Tenant, capsys: pytest.CaptureFixture[str]) -> None:
    requests = {"cpu": "500m", "memory": "2Gi", "nvidia.com/gpu": "2"}
    tenant.waits("w-0", requests=requests, annotations={"slurm-bridge/partition": "gpu"})
    await tenant.asked("queue", "-o", "json")
    [told] = json.loads(capsys.readouterr().out)
    assert (told["cpus"], told["memory_mib"], told["devices"]) == (0.5, 2048, {"nvidia.com/gpu": 2})
    assert (told["partition"], told["qos"], told["rank"]) == ("gpu", None, None)


async def test_an_empty_queue_is_a_sentence_beside_the_output(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await tenant.asked("queue") == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("No pods of slurm-bridge wait or run in namespace hpc.")


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        (names.SUBMITTED, "Pending"),
        (names.REFUSED, "Refused"),
        (names.NO_NODE, "Refused"),
        (names.NOT_MANAGED, "Refused"),
        (names.GATHERING, "Gathering"),
        (names.GRANT_WAITS, "Granted"),
        (names.UNAVAILABLE, "Waiting"),
    ],
)
async def test_each_reason_of_the_bridge_is_a_state(
    tenant: Tenant, capsys: pytest.CaptureFixture[str], reason: str, state: str
) -> None:
    tenant.waits("train", reason=reason)
    await tenant.asked("queue", "-o", "json")
    assert json.loads(capsys.readouterr().out)[0]["state"] == state


# --- why and trace ----------------------------------------------------------------------------------------------------


async def test_why_says_what_the_bridge_says_and_the_events(tenant: Tenant, capsys: pytest.CaptureFixture[str]) -> None:
    pod = tenant.waits("train")
    tenant.event(pod, names.SUBMITTED, "Submitted as job 4711.", CREATED + 1)
    assert await tenant.asked("why", "pod/train") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("Pod: hpc/train State: Pending For: ")
    assert f"Job: 4711 {WAITING}" in text
    assert "To see them, name slurmrestd with --slurm-url" in text
    assert "SlurmJobSubmitted: Submitted as job 4711." in text


async def test_why_shows_what_the_job_costs_to_a_user_who_may_ask_slurm(
    tenant: Tenant, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = SlurmCluster.example()
    slurm.partitions["gpu"] = SimPartition("gpu", billing_weights="CPU=1.0,Mem=0.25G,GRES/gpu=10.0")
    own = LiteralToken(slurm.token("bob"))
    client = SlurmClient(InProcessSlurm(slurm, time.time), own)
    await client.discover()
    spec = JobSpec("hpc/train", "bob", 2, 2048, gres=(("gpu", 3),), partition="gpu", begin=int(time.time()) + 3600)
    job_id = await client.submit(spec)
    tenant.waits("train", message=WAITING.replace("4711", str(job_id)))
    async with serve_slurm(slurm, time.time) as url:
        monkeypatch.setenv("SLURM_JWT", own.token())
        assert await tenant.asked("why", "train", "--slurm-url", url) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "What it costs billing 32 an hour in partition gpu (TRESBillingWeights CPU=1.0,Mem=0.25G," in text
        assert "of user bob in account teamb" in text
        assert await tenant.asked("why", "train", "-o", "json", "--slurm-url", url) == 0
        assert json.loads(capsys.readouterr().out)["costs"]["billing"] == 32
        slurm.partitions["gpu"] = SimPartition("gpu", billing_weights="CPU=1\x1b]0;owned\x07")
        assert await tenant.asked("why", "train", "--slurm-url", url) == 0
        assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setenv("SLURM_JWT", "of-nobody")
    assert await tenant.asked("why", "train", "--slurm-url", "http://127.0.0.1:1") == 0
    shown = capsys.readouterr().out
    assert "The costs of the job are not shown: " in shown
    assert "of-nobody" not in shown


async def test_why_tells_a_user_without_a_token_how_to_make_one_and_not_how_an_admin_does(
    tenant: Tenant, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant.waits("train", message=WAITING)
    monkeypatch.delenv("SLURM_JWT", raising=False)
    for token in ("", "e30.eyJzdW4iOiJib2IiLCJleHAiOjF9.c2ln"):  # no token; an expired token
        monkeypatch.setenv("SLURM_JWT", token)
        assert await tenant.asked("why", "train", "--slurm-url", "http://127.0.0.1:1") == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "The costs of the job are not shown: " in shown
        assert "Type export $(scontrol token) on a Slurm machine" in shown
        assert "SlurmUser" not in shown


async def test_why_of_a_pod_that_no_bridge_has_seen_says_what_to_look_at(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    tenant.kube.create(CREATED, "pods", objects.pod("hpc", "train"))
    assert await tenant.asked("why", "train") == 0
    assert "slurm-bridge/managed=true" in capsys.readouterr().out


async def test_why_of_a_pod_of_another_scheduler_or_without_one_is_one_line(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    tenant.kube.create(CREATED, "pods", objects.pod("hpc", "web", scheduler="default-scheduler"))
    assert await tenant.asked("why", "web") == EXIT_CONFIG
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("kubectl slurm: pod hpc/web names the scheduler default-scheduler, not slurm-bridge")
    assert await tenant.asked("why", "nope") == EXIT_CONFIG
    assert capsys.readouterr().err == (
        "kubectl slurm: there is no pod nope in namespace hpc. Name its namespace with -n.\n"
    )


async def test_trace_is_a_waterfall_of_the_wait_the_start_and_the_run(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = tenant.ran("good", exit_code=0)
    tenant.event(pod, names.SUBMITTED, "Submitted.", CREATED + 5)
    assert await tenant.asked("trace", "good") == 0
    title, created, _, *parts = capsys.readouterr().out.splitlines()
    assert title == "Pod hpc/good: Completed, Slurm job 17, node x1"
    assert created.endswith(", 2m10s in all")
    told = [re.match(r"(.+?) +\+(\S+) +(\S+) ( *)(█+)$", part) for part in parts]
    assert [each.groups()[:3] for each in told if each] == [
        ("before its job", "0s", "5s"),
        ("waits in Slurm", "5s", "55s"),
        ("kubelet prepares", "1m", "10s"),
        ("container main, exit 0", "1m10s", "1m"),
    ]
    leads = [len(each[4]) for each in told if each]
    assert leads == sorted(leads), "each part begins where the one before ends"


async def test_a_trace_of_a_pod_that_waits_goes_on(tenant: Tenant, capsys: pytest.CaptureFixture[str]) -> None:
    tenant.waits("train")
    assert await tenant.asked("trace", "train", "-o", "json") == 0
    [span] = json.loads(capsys.readouterr().out)["spans"]
    assert span == {"name": "until the bind", "begin": CREATED, "end": None}


async def test_a_trace_of_a_pod_whose_container_shows_no_begin_does_not_say_that_kubelet_prepared_it(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = tenant.ran("lost", exit_code=137)
    del pod["status"]["containerStatuses"][0]["state"]["terminated"]["startedAt"]
    tenant.kube.write_status("pods", pod, pod["status"])
    assert await tenant.asked("trace", "lost", "-o", "json") == 0
    [_, span] = json.loads(capsys.readouterr().out)["spans"]
    assert span == {"name": "on its node", "begin": CREATED + 60, "end": CREATED + 130}


async def test_wide_adds_what_the_pod_asks_for_all_events_and_times(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = tenant.waits("train", requests={"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": "1"})
    for number in range(20):
        tenant.event(pod, f"Number{number}", "It goes on.", CREATED + number)
    assert await tenant.asked("why", "train") == 0
    assert "Number0:" not in capsys.readouterr().out
    assert await tenant.asked("why", "train", "-o", "wide") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "CPUs: 2 Memory: 2Gi Devices: 1 gpu" in text
    assert "Number0:" in text
    assert await tenant.asked("trace", "train", "-o", "wide") == 0
    began = datetime.fromtimestamp(CREATED, UTC).strftime("%H:%M:%S")
    assert f"until the bind  {began}       +0s" in capsys.readouterr().out


async def test_a_watch_of_one_pod_shows_it_again_when_it_or_its_events_change(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = tenant.waits("train")
    shown: asyncio.Queue[list[str]] = asyncio.Queue()
    monkeypatch.setattr("bridge.plugin.answers.show", shown.put_nowait)
    monkeypatch.setattr("bridge.plugin.watch.ASK_S", 0.01)
    async with (
        asyncio.timeout(20),
        serve_kube(InProcessKube(tenant.kube, time.time)) as url,
        asyncio.TaskGroup() as group,
    ):
        (tenant.folder / "config").write_text(yaml.safe_dump(kubeconfig(url)))
        typed = ["why", "hpc/train", "-w", "-o", "json", "--kubeconfig", str(tenant.folder / "config")]
        watching = group.create_task(why(command.parser().parse_args(typed)))
        assert [json.loads(line)["events"] for line in await shown.get()] == [[]]
        tenant.event(pod, names.SUBMITTED, "Submitted as job 4711.", CREATED + 1)
        [line] = await shown.get()
        assert [each["message"] for each in json.loads(line)["events"]] == ["Submitted as job 4711."]
        watching.cancel()


# --- watch ------------------------------------------------------------------------------------------------------------


async def test_a_watch_without_a_terminal_adds_a_line_for_each_pod_that_changes(tenant: Tenant) -> None:
    tenant.waits("a")
    shown: asyncio.Queue[list[str]] = asyncio.Queue()
    kube = InProcessKube(tenant.kube, time.time)
    chosen = Selection(names.SCHEDULER_NAME, "hpc")
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        watching = group.create_task(follow(Cluster(kube), chosen, QUEUE, "text", Screen(), shown.put_nowait))
        assert [line.split()[:2] for line in await shown.get()] == [["JOB", "POD"], ["4711", "a"]]
        tenant.waits("b")
        kube.wake()
        seen = ""
        while " b " not in seen or "Pending" not in seen:
            [seen] = await shown.get()
        pod = tenant.kube.store.get("pods", "hpc", "a")
        tenant.kube.write_status("pods", pod, {"phase": "Failed", "reason": "DeadlineExceeded"})
        kube.wake()
        [line] = await shown.get()
        assert line.split()[1:3] == ["a", "Failed"], "a pod that leaves the queue is shown once more"
        watching.cancel()


def test_what_is_redrawn_keeps_its_first_line_on_the_screen() -> None:
    screen = Screen(live=True, height=5)
    assert screen.redrawn(["head", "1", "2", "3"]) == [CLEAR + "head", "1", "2", "3"]
    assert screen.redrawn(["head", "1", "2", "3", "4"]) == [CLEAR + "head", "1", "2", "… 2 more lines"]


async def test_a_watch_on_a_terminal_draws_the_list_again(tenant: Tenant) -> None:
    tenant.waits("a")
    shown: asyncio.Queue[list[str]] = asyncio.Queue()
    screen = Screen(width=40, colours=True, live=True)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        kube = InProcessKube(tenant.kube, time.time)
        chosen = Selection(names.SCHEDULER_NAME, "hpc")
        watching = group.create_task(follow(Cluster(kube), chosen, QUEUE, "text", screen, shown.put_nowait))
        head, row = await shown.get()
        assert head.startswith(CLEAR)
        assert row.endswith("…")
        tenant.waits("b")
        kube.wake()
        while len(await shown.get()) < 3:
            pass
        watching.cancel()


class Broken(Cluster):
    """A cluster whose watches fail at once."""

    async def _changes(self, chosen: Selection, found: Found, version: str) -> AsyncIterator[Found]:
        from bridge.errors import Unanswered

        raise Unanswered("watch", "Kubernetes", "closed")
        yield found


async def test_a_watch_that_breaks_says_so_and_lists_again(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.plugin.cluster.RETRY_S", 0.01)
    said: list[str] = []
    cluster = Broken(InProcessKube(tenant.kube, time.time), said.append)
    lists = cluster.follow(Selection(names.SCHEDULER_NAME, "hpc"))
    assert await anext(lists) == {}
    tenant.waits("a")
    assert [seen.pod.name for seen in (await anext(lists)).values()] == ["a"]
    assert said == ["Kubernetes: watch: closed."]


# --- the terminal -----------------------------------------------------------------------------------------------------


@pytest.fixture
def terminal() -> Iterator[Any]:
    controller, follower = pty.openpty()
    with os.fdopen(follower, "w") as stream:
        yield stream
    os.close(controller)


@pytest.mark.parametrize(
    ("environ", "colours"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_colours_are_for_terminals_that_have_them(terminal: Any, environ: Mapping[str, str], colours: bool) -> None:
    assert screen_of(terminal, environ).colours is colours


def test_a_file_gets_neither_colours_nor_cut_lines(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as stream:
        assert screen_of(stream, {"TERM": "xterm"}) == Screen()


def test_a_coloured_cell_takes_no_more_room_and_a_tenants_text_controls_no_terminal() -> None:
    lines = table(("A", "STATE", "B"), [("x", "Running", "\x1b[2Jevil")], Screen(colours=True), coloured=1)
    plain = table(("A", "STATE", "B"), [("x", "Running", "\x1b[2Jevil")], Screen(), coloured=1)
    assert lines[1].replace("\x1b[32m", "").replace(RESET, "") == plain[1]
    assert "\x1b" not in plain[1]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (60, "1m"), (3725, "1h2m"), (90_000, "1d1h"), (None, "-"), (-3, "0s")],
)
def test_ages_are_written_as_kubectl_writes_them(seconds: float | None, text: str) -> None:
    assert age(seconds) == text


# --- completion, and commands of slurm-bridge itself ------------------------------------------------------------------


def test_commands_and_options_are_completed_without_the_libraries_for_clusters() -> None:
    """A shell waits for each completion: the libraries take ten times as long as everything else."""
    code = (
        "import sys; from bridge.plugin.command import complete; complete(['queue', '--']); "
        "print(*{'aiohttp', 'kubernetes', 'pydantic', 'requests', 'yaml'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--selector" in ended.stdout
    assert ended.stdout.endswith(":4\n\n"), "none of them is imported"


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["qu"], ["queue", ":4"]),
        (["why", ""], ["a", "b", ":4"]),
        (["why", "-n", "o"], ["other", ":4"]),
        (["queue", "--context", ""], ["it", ":4"]),
        (["queue", "-o", ""], ["json", "text", "wide", ":4"]),
        (["doctor", "-o", ""], ["json", "text", "wide", ":4"]),
        (["trace", "-o", ""], ["json", "text", "wide", ":4"]),
        (["free", "--http"], ["--http-token-file", ":4"]),
        (["nodes", "--http-token-file", ""], [":0"]),
        (["completion", ""], ["bash", "zsh", ":4"]),
        (["queue", "--all"], ["--all-namespaces", ":4"]),
        (["explain", "-f", ""], [":0"]),
        (["explain", "--slurm-u"], ["--slurm-url", ":4"]),
        (["pol"], ["policy", ":4"]),
        (["policy", ""], ["check", "show", ":4"]),
        (["policy", "show", "--service"], ["--service-account", ":4"]),
        (["policy", "show", "-o", "w"], ["wide", ":4"]),
        (["policy", "check", ""], [":0"]),
    ],
)
async def test_kubectl_is_given_candidates(
    tenant: Tenant, capsys: pytest.CaptureFixture[str], words: list[str], lines: list[str]
) -> None:
    tenant.waits("a")
    tenant.waits("b")
    assert await tenant.asked(*words, by=complete) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_completion_without_a_cluster_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert complete(["why", ""]) == 0
    assert capsys.readouterr() == (":4\n", "")


@pytest.mark.parametrize(("output", "code"), [(">/dev/full", EXIT_NOT_WRITTEN), (">&-", 0), ("| true", EXIT_NOT_READ)])
def test_a_completion_that_cannot_be_written_gives_no_traceback(output: str, code: int) -> None:
    program = "from bridge.plugin.command import complete; raise SystemExit(complete(['qu']))"
    command = f'set -o pipefail; {sys.executable} -c "$0" {output}'
    done = subprocess.run(["/bin/bash", "-c", command, program], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("shell", sorted(completion.SCRIPTS))
def test_the_scripts_are_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == completion.SCRIPTS[shell]


def test_a_context_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig("http://127.0.0.1:1")))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert main(["queue", "--context", "nope"]) == EXIT_CONFIG
    [line] = capsys.readouterr().err.splitlines()
    assert 'the context "nope" is not among its contexts.' in line


def test_explain_without_slurm_says_which_commands_need_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert main(["explain", "train"]) == EXIT_CONFIG
    assert capsys.readouterr().err.splitlines()[-1] == command.NEED_SLURM


@pytest.mark.parametrize(
    "given",
    [
        ["explain", "-f", "MANIFEST", "--config", "SETTINGS"],
        ["explain", "-f", "MANIFEST", "--config=SETTINGS"],
        ["policy", "check", "NOWHERE"],
    ],
)
def test_a_mistake_that_is_not_about_missing_settings_does_not_advise_to_name_them(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig("http://127.0.0.1:1")))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    (tmp_path / "MANIFEST").write_text("kind: [")
    (tmp_path / "SETTINGS").write_text("policy: {rules: [{namespaces: [a], user: a}]}")
    monkeypatch.chdir(tmp_path)
    assert main(given) == EXIT_CONFIG
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(("slurm-bridge: MANIFEST: ", "slurm-bridge: NOWHERE: cannot be read"))


async def test_a_user_without_the_right_to_read_pods_gets_that_message(
    tenant: Tenant, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forbidden(_self: object, _call: object) -> Any:
        from bridge.kube.transport import Reply

        status = {"kind": "Status", "status": "Failure", "message": "pods is forbidden", "code": 403}
        return Reply(403, {}, json.dumps(status).encode())

    monkeypatch.setattr(InProcessKube, "exchange", forbidden)
    assert await tenant.asked("queue", "-n", "theirs") == EXIT_CONFIG
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("kubectl slurm: you may not read pods in namespace theirs")


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("queue", 0, "(waits ? ?)"),
        ("queue >/dev/full", 1, "the answer cannot be written: No space left on device."),
        ("queue >&-", 0, ""),
        ("trace train", 0, "Pod hpc/train"),
    ],
)
async def test_an_output_that_cannot_take_all_of_an_answer_causes_no_traceback(
    tenant: Tenant, command: str, code: int, says: str
) -> None:
    tenant.waits("train", message="waits … ä")

    def typed(_: list[str]) -> int:
        program = f"{sys.executable} -m bridge.plugin.command {command}"
        environ = os.environ | {"PYTHONIOENCODING": "ascii"}
        done = subprocess.run(program, shell=True, capture_output=True, text=True, env=environ, check=False)
        shown.append(done.stdout + done.stderr)
        return done.returncode

    shown: list[str] = []
    assert await tenant.asked(by=typed) == code
    assert says in shown[0]
    assert "Traceback" not in shown[0]
