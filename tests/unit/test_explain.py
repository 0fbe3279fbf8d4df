"""`slurm-bridge explain` between two simulated clusters: with a running bridge, without one, of a manifest (O4)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from bridge import settings
from bridge.__main__ import EXIT_CONFIG, main
from bridge.cli import explain as cli_explain
from bridge.cli.explain import EXIT_REFUSED, of_manifest, of_pod
from bridge.cli.explain_text import Answer, as_json, as_text
from bridge.errors import ConfigError
from bridge.guard import Guard
from bridge.health import Health
from bridge.kube.admin_reads import PodEvent
from bridge.simulation.kube import objects
from bridge.simulation.slurm import rest
from bridge.slurm.token import LiteralToken
from bridge.telemetry import Telemetry
from scheduler import events as ev
from scheduler import names
from scheduler.explain import Explanation
from tests.builders import START, Story, pod
from tests.unit.doctor.clusters import POLICY, Both, kubeconfig
from tests.web_server import serving

Options = Mapping[str, str | None]
WIDE = 400  # columns: no sentence is wrapped
SMALL = {"cpu": "1", "memory": "1Gi"}
GANG: Any = {"labels": {"slurm-bridge/gang": "ring"}, "annotations": {"slurm-bridge/gang-size": "4"}}


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Both:
    monkeypatch.delenv("SLURM_JWT", raising=False)
    return Both(tmp_path)


async def told_of_pod(both: Both, name: str, **options: str | None) -> str:
    async with both.served() as found:
        asked = {**found, "namespace": "hpc", "pod": name, "bridge": "http://127.0.0.1:1", **options}
        return as_text(await of_pod(settings.load(asked, {}), asked), WIDE, time.time())


async def told_of_manifest(both: Both, folder: Path, *things: Any) -> tuple[str, Any]:
    file = folder / "m.yaml"
    file.write_text("\n---\n".join(json.dumps(thing) for thing in things))
    async with both.served() as found:
        asked = {**found, "file": str(file)}
        told = await of_manifest(settings.load(asked, {}), asked)
    return as_text(told, WIDE, time.time()), json.loads(as_json(told))


def manifest(name: str = "train", **options: Any) -> Any:
    made = objects.pod("hpc", name, **{"requests": SMALL, **options})
    return {"apiVersion": "v1", "kind": "Pod", **made}


# --- of a pod -------------------------------------------------------------------------------------------------------


async def test_without_a_bridge_both_clusters_are_asked_and_what_is_lacking_is_reported(both: Both) -> None:
    both.kube.create(time.time(), "pods", objects.pod("hpc", "train", requests=SMALL))
    text = await told_of_pod(both, "train")
    assert text.startswith(
        "Pod hpc/train: Waiting\n  Nothing prevents the submission: the next pass requests the job.\n"
    )
    assert "--cpus-per-task=1 --mem=1024M" in text
    assert "Nodes that can run it: 2 of 2" in text
    assert "No bridge answers at http://127.0.0.1:1 (--bridge). Both clusters were asked instead; they lack" in text


async def test_the_job_is_found_by_its_name_where_the_pod_shows_none(both: Both) -> None:
    made = both.kube.create(time.time(), "pods", objects.pod("hpc", "train", requests=SMALL))
    job_id = await submitted(both, made)
    text = await told_of_pod(both, "train")
    assert text.startswith("Pod hpc/train: Pending\n  Waiting in Slurm partition main ")
    assert f"\nSlurm job {job_id}\n  state       PENDING" in text
    assert f"Slurm job {job_id} submitted" in text


async def submitted(both: Both, made: Mapping[str, Any]) -> int:
    """A placeholder as a previous process of the bridge made it."""
    key = names.workload_key(made["metadata"]["uid"])
    cluster = names.cluster_id(both.kube.store.get("namespaces", "", "kube-system")["metadata"]["uid"])
    job = {"name": names.job_name("hpc/train", cluster, key), "cpus_per_task": 1, "account": "teama"}
    headers = {"X-SLURM-USER-TOKEN": both.token, "X-SLURM-USER-NAME": "alice", "Content-Type": "application/json"}
    body = json.dumps({"job": {**job, "memory_per_node": {"set": True, "number": 1024}}}).encode()
    status, _, answer = rest.answer(both.slurm, time.time(), "POST", "/slurm/v0.0.45/job/submit", headers, body)
    assert status == 200
    job_id: int = json.loads(answer)["job_id"]
    both.slurm.account(time.time())
    return job_id


async def test_events_of_the_pod_are_in_its_history(both: Both) -> None:
    now = time.time()
    made = both.kube.create(now, "pods", objects.pod("hpc", "train", requests=SMALL))
    event = {
        "metadata": {"name": "train.1", "namespace": "hpc"},
        "involvedObject": {"kind": "Pod", "namespace": "hpc", "name": "train", "uid": made["metadata"]["uid"]},
        "reason": "SlurmJobPending",
        "message": "Waiting.",
        "count": 3,
        "lastTimestamp": "2026-01-02T03:04:05Z",
    }
    both.kube.create(now, "events", event)
    assert "  01-02 03:04:05  SlurmJobPending: Waiting. (3 times)" in await told_of_pod(both, "train")


async def test_without_a_bridge_a_gang_that_gathers_says_how_many_are_here(both: Both) -> None:
    both.kube.create(time.time(), "pods", objects.pod("hpc", "w-0", requests=SMALL, **GANG))
    text = await told_of_pod(both, "w-0")
    assert text.startswith("Pod hpc/w-0: Gathering\n  1 of 4 pods of gang ring are here in namespace hpc. ")
    assert "gates" not in text
    assert "if the 3 missing pods are like w-0" in text
    assert "--ntasks=4" in text


async def test_without_a_bridge_the_owner_that_shows_how_many_pods_a_gang_has_is_read(both: Both) -> None:
    now = time.time()
    spec = {"parallelism": 3, "completions": 3, "template": {"spec": manifest()["spec"]}}
    meta = {"name": "ring", "namespace": "hpc", "annotations": {"slurm-bridge/time-limit": "90"}}
    job = both.kube.create(now, "jobs", {"metadata": meta, "spec": spec})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "ring", "uid": job["metadata"]["uid"], "controller": True}
    for name in ("ring-a", "ring-b"):
        made = objects.pod("hpc", name, requests=SMALL, labels={"slurm-bridge/gang": "job"})
        made["metadata"]["ownerReferences"] = [owner]
        both.kube.create(now, "pods", made)
    text = await told_of_pod(both, "ring-a")
    assert "\n  2 of 3 pods of batch Job ring are here in namespace hpc. Their job is submitted when " in text
    assert "--ntasks=3" in text
    assert "--time=01:30:00" in text, "what the owner says counts for every pod of it"


async def test_a_pod_that_is_not_there_or_for_another_scheduler_is_one_sentence(both: Both) -> None:
    both.kube.create(time.time(), "pods", objects.pod("hpc", "web", scheduler="default-scheduler"))
    with pytest.raises(ConfigError, match=r"there is no pod hpc/nope; name its namespace with -n\."):
        await told_of_pod(both, "nope")
    with pytest.raises(ConfigError, match="pod hpc/web is for the scheduler default-scheduler, not for slurm-bridge"):
        await told_of_pod(both, "web")


@pytest.mark.parametrize("name", ["train", "pod/train", "hpc/train"])
async def test_a_pod_is_named_as_kubectl_or_as_our_own_sentences_name_it(both: Both, name: str) -> None:
    both.kube.create(time.time(), "pods", objects.pod("hpc", "train", requests=SMALL))
    namespace = None if name.startswith("hpc/") else "hpc"
    assert (await told_of_pod(both, name, namespace=namespace)).startswith("Pod hpc/train: Waiting")


def test_a_slurm_that_is_not_there_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JWT", "a.b.c")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig("http://127.0.0.1:1")))
    (tmp_path / "m.json").write_text(json.dumps(manifest()))
    (tmp_path / "s.yaml").write_text(json.dumps({"policy": POLICY}))
    ends = ["--config", str(tmp_path / "s.yaml"), "--slurm-url", "http://127.0.0.1:1"]
    assert main(["explain", "-f", str(tmp_path / "m.json"), *ends]) == EXIT_CONFIG
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(
        "nothing listens at 127.0.0.1:1; is slurmrestd running there? Run slurm-bridge doctor to find the cause."
    )
    assert "a.b.c" not in line


async def test_without_a_policy_a_manifest_is_not_explained_and_of_a_pod_it_is_said(both: Both, tmp_path: Path) -> None:
    """`explain` took a policy that it had not read for a policy that gives no pod a Slurm user."""
    both.settings["policy"] = {}
    with pytest.raises(ConfigError, match=r"cannot be explained without the policy.* with --config FILE"):
        await told_of_manifest(both, tmp_path, manifest())
    both.kube.create(time.time(), "pods", objects.pod("hpc", "train", requests=SMALL))
    assert "No policy was read, so the Slurm user of the pods" in await told_of_pod(both, "train")


async def test_the_namespace_is_that_of_the_context_as_for_kubectl(both: Both, tmp_path: Path) -> None:
    both.kube.create(time.time(), "pods", objects.pod("hpc", "train", requests=SMALL))
    thing = manifest()
    del thing["metadata"]["namespace"]
    (tmp_path / "m.json").write_text(json.dumps(thing))
    async with both.served() as found:
        access = yaml.safe_load((both.folder / "kubeconfig").read_text())
        access["contexts"][0]["context"]["namespace"] = "hpc"
        (tmp_path / "in-hpc").write_text(yaml.safe_dump(access))
        asked = {**found, "kubeconfig": str(tmp_path / "in-hpc"), "bridge": "http://127.0.0.1:1"}
        chosen = settings.load(asked, {})
        [of_the_pod] = await of_pod(chosen, {**asked, "pod": "train"})
        [planned] = await of_manifest(chosen, {**asked, "file": str(tmp_path / "m.json")})
    assert of_the_pod.title == "Pod hpc/train"
    assert planned.title.startswith("Pod hpc/train, as in ")


# --- with a running bridge ------------------------------------------------------------------------------------------


class Turning:
    def __init__(self, story: Story) -> None:
        self.world = story.world
        self.passed = time.time()
        self.guard = Guard()


@asynccontextmanager
async def bridge_that_knows(story: Story) -> AsyncIterator[str]:
    loop: Any = Turning(story)
    runner = await Health(loop, [LiteralToken("a.b.c")], Telemetry(), time.time).serve("127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_running_bridge_is_asked_first_and_shows_its_story(both: Both) -> None:
    story, train = Story(), pod("train")
    story.runs(train, 17, at=1020.0)
    async with bridge_that_knows(story) as url:
        text = await told_of_pod(both, "train", bridge=url)
    assert text.startswith("Pod hpc/train: Running\n  It is on node x1 for Slurm job 17, Running in Kubernetes.")
    assert "Slurm job 17 was granted x1" in text
    assert "The pod does not exist any more." in text  # the simulated cluster has none


async def test_a_running_bridge_is_enough_where_no_cluster_can_be_asked(both: Both, tmp_path: Path) -> None:
    story, train = Story(), pod("train")
    story.runs(train, 17, at=1020.0)
    async with bridge_that_knows(story) as url:
        text = await told_of_pod(both, "train", bridge=url, kubeconfig=str(tmp_path / "none"))
    assert "It is on node x1" in text
    assert "Events of the pod are not shown: kubeconfig" in text


async def test_a_frozen_slurm_is_waited_for_once_and_named_once(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """slurmrestd takes the connection and does not answer, as while slurmctld or its database is frozen."""
    monkeypatch.setattr(cli_explain, "SLURM_DEADLINE_S", 0.2)
    story, train = Story(), pod("train")
    story.runs(train, 17, at=1020.0)
    thawed = asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        await thawed.wait()
        return web.Response(status=500)

    async with serving(answer) as frozen, bridge_that_knows(story) as url:
        both.settings = {**both.settings, "slurm_url": frozen}
        text = await told_of_pod(both, "train", bridge=url)
        thawed.set()
    assert "It is on node x1" in text
    [note] = [line.strip() for line in text.splitlines() if "not shown" in line]
    assert note == "Details of the job, and its costs, are not shown: Slurm did not answer within 1 s."


async def test_while_slurmdbd_is_away_the_bridge_says_so_and_slurmdbd_is_not_asked_for_costs(both: Both) -> None:
    """Each such request to a frozen slurmdbd holds a thread of slurmrestd for more than a minute."""
    story, train = Story(), pod("train")
    story.runs(train, 17, at=1020.0)
    story.sees(ev.AccountingOutageBegan(1030.0, "Slurm: partitions: slurmdbd does not answer."))
    async with bridge_that_knows(story) as url:
        text = await told_of_pod(both, "train", bridge=url)
    assert "The costs of the job are not shown: Slurm: partitions: slurmdbd does not answer." in text
    assert "What it costs" not in text


async def test_without_a_bridge_a_slurmdbd_that_is_away_hides_nothing_but_the_costs(both: Both, tmp_path: Path) -> None:
    both.slurm.accounting_up = False
    both.kube.create(time.time(), "pods", objects.pod("hpc", "train", requests=SMALL))
    for text in (await told_of_pod(both, "train"), (await told_of_manifest(both, tmp_path, manifest("planned")))[0]):
        assert "--cpus-per-task=1 --mem=1024M" in text
        assert "Nodes that can run it: 2 of 2" in text
        [why] = [line for line in text.splitlines() if "The costs of the job are not shown: " in line]
        assert why.endswith("(error 7000).")
    assert "Slurm may have a job for the pod" in await told_of_pod(both, "train")


async def test_a_bridge_that_does_not_know_the_pod_is_no_answer(both: Both) -> None:
    both.kube.create(time.time(), "pods", objects.pod("hpc", "train", requests=SMALL))
    async with bridge_that_knows(Story()) as url:
        text = await told_of_pod(both, "train", bridge=url)
    assert text.startswith("Pod hpc/train: Waiting")
    assert "does not know this pod. Both clusters were asked instead" in text


@asynccontextmanager
async def address_that_answers(said: str, status: int, *, own: bool = True) -> AsyncIterator[str]:
    """The URL of a bridge (own), or of another program, that answers with that text and status."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=said, status=status)

    async with serving(answer, "/explain", own=own) as url:
        yield url


async def told_beside(both: Both, said: str, status: int, *, own: bool = True) -> str:
    """The output of explain for a pod if the bridge (own), or another program, answers with that text and status."""
    both.kube.create(time.time(), "pods", objects.pod("hpc", "train", requests=SMALL))
    async with address_that_answers(said, status, own=own) as url:
        return await told_of_pod(both, "train", bridge=url)


STANDBY = "This replica of slurm-bridge is standby, replica r1 leads: ask r1.\n"


async def test_a_standby_says_which_replica_to_ask(both: Both) -> None:
    text = await told_beside(both, STANDBY, 503)
    assert "is standby, replica r1 leads: ask r1. Both clusters were asked instead" in text
    assert "does not know this pod" not in text


async def test_the_answer_of_the_bridge_is_shown_also_if_no_cluster_can_be_asked(both: Both) -> None:
    """With --bridge and without a settings file there is no Slurm to ask."""
    both.kube.create(time.time(), "pods", objects.pod("hpc", "train", requests=SMALL))
    both.settings = {**both.settings, "slurm_url": ""}
    async with address_that_answers(STANDBY, 503) as url:
        with pytest.raises(ConfigError, match=r"replica r1 leads: ask r1\. .*: no Slurm is configured") as raised:
            await told_of_pod(both, "train", bridge=url)
    assert str(raised.value).startswith(f"The bridge at {url} does not answer this command: This replica")


@pytest.mark.parametrize(
    ("said", "status", "reason"), [("an internal error", 500, "an internal"), ("", 502, "HTTP 502")]
)
async def test_a_bridge_that_fails_is_not_said_to_know_no_pod(both: Both, said: str, status: int, reason: str) -> None:
    text = await told_beside(both, said, status)
    assert f"does not answer this command: {reason}" in text
    assert "does not know this pod" not in text


@pytest.mark.parametrize("status", [200, 404, 502])
async def test_another_program_at_that_address_is_no_answer(both: Both, status: int) -> None:
    """Nor is it said to be a bridge that does not know the pod."""
    text = await told_beside(both, "<html>", status, own=False)
    assert f"is not a slurm-bridge of this version: it answers with HTTP {status}. Both clusters were" in text
    assert "does not know this pod" not in text


async def test_an_answer_that_this_version_cannot_show_is_no_answer(both: Both) -> None:
    job = {"name": "n", "user": "alice", "cpus_per_task": 1, "memory_mib": 1, "exclusive": "as a newer bridge knows it"}
    known = {"namespace": "hpc", "name": "train", "key": "k", "phase": "queued", "sentence": "waits", "spec": job}
    text = await told_beside(both, json.dumps(known), 200)
    assert "is not of this version of slurm-bridge. Both clusters were asked instead" in text


# --- of a manifest --------------------------------------------------------------------------------------------------


async def test_a_manifest_that_fits_shows_the_request_and_that_slurm_would_take_it(both: Both, tmp_path: Path) -> None:
    text, [entry] = await told_of_manifest(both, tmp_path, manifest(annotations={"slurm-bridge/time-limit": "90"}))
    assert "Slurm would accept it: " in text
    assert "Nothing was submitted." in text
    assert entry["request"]["job"]["time_limit"] == {"set": True, "number": 90}
    assert entry["request"]["job"]["account"] == "teama"
    assert entry["trial"]["number"] == 2018
    assert both.slurm.jobs == {}


async def test_a_manifest_shows_what_its_job_would_cost(both: Both, tmp_path: Path) -> None:
    text, [entry] = await told_of_manifest(both, tmp_path, manifest(requests={"cpu": "3", "memory": "1Gi"}))
    [_, costs] = text.split("\nWhat it costs\n")
    assert costs.startswith(
        "  billing     3 an hour in partition main (no TRESBillingWeights: its CPUs count)\n"
        "  fair share  factor 1.00 of user alice in account teama (0 to 1: more comes first); 50% of the shares"
    )
    assert entry["costs"]["billing"] == 3
    assert entry["costs"]["terms"]["absent"] == []


async def test_the_limits_of_a_waiting_pod_are_shown_with_what_is_used(both: Both) -> None:
    made = both.kube.create(time.time(), "pods", objects.pod("hpc", "train", requests=SMALL))
    await submitted(both, made)
    both.slurm.users["alice"] = replace(both.slurm.users["alice"], group_tres={"gpu": 2})
    text = await told_of_pod(both, "train")
    assert "\n  limits      GrpTRES=gres/gpu=2 of user alice in account teama, 0 used\n" in text


@pytest.mark.parametrize(
    ("pods", "code"),
    [
        ([manifest()], 0),
        ([manifest(), manifest("choosy", annotations={"slurm-bridge/constraints": "nope"})], EXIT_REFUSED),
        ([manifest("big", requests={"cpu": "9", "memory": "1Gi"}), manifest()], EXIT_REFUSED),
        ([manifest("w-0", **GANG)], 0),  # it would wait for three more pods
        ([{"kind": 5}], EXIT_CONFIG),
    ],
    ids=["accepted", "refused by Slurm", "refused by the bridge", "gathers", "not readable"],
)
async def test_the_exit_code_tells_whether_a_job_of_the_file_would_be_refused(
    both: Both, tmp_path: Path, pods: list[Any], code: int
) -> None:
    file = tmp_path / "m.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    async with both.served() as found:
        options = [f"--{name.replace('_', '-')}={value}" for name, value in found.items()]
        assert await asyncio.to_thread(main, ["explain", "-f", str(file), *options]) == code


async def test_a_manifest_that_slurm_would_refuse_says_so_in_slurms_words(both: Both, tmp_path: Path) -> None:
    text, _ = await told_of_manifest(both, tmp_path, manifest(annotations={"slurm-bridge/constraints": "nope"}))
    why = "no node of Slurm has such a feature (annotation constraints)"
    assert f"Slurm would refuse it: Invalid feature specification: {why} (error 2029)." in text


async def test_a_manifest_that_fits_nowhere_counts_why(both: Both, tmp_path: Path) -> None:
    text, [entry] = await told_of_manifest(both, tmp_path, manifest(requests={"cpu": "9", "memory": "1Gi"}))
    assert "Its job would not be submitted. 0/2 nodes can run this pod in Slurm partition main: 2 with" in text
    assert "The job that would be needed, as user alice\n  needs       9 CPUs, 1,024 MiB on one node" in text
    assert entry["explanation"]["refusal"]["reason"] == names.NO_NODE
    assert entry["trial"] is None


async def test_what_a_gang_needs_is_reported_by_shape_and_number(both: Both, tmp_path: Path) -> None:
    gang = {"labels": {"slurm-bridge/gang": "solve"}, "annotations": {"slurm-bridge/gang-size": "3"}}
    pods = [manifest("launcher", **gang)]
    pods += [manifest(f"worker-{number}", **gang, requests={"cpu": "2", "memory": "2Gi"}) for number in (0, 1)]
    text, [entry] = await told_of_manifest(both, tmp_path, *pods)
    assert text.startswith("One gang: Pod hpc/launcher, Pod hpc/worker-0, Pod hpc/worker-1, as in ")
    assert "Slurm would accept it: " in text
    assert "needs       1 CPU, 1,024 MiB on one node\n  and         2 CPUs, 2,048 MiB for each of 2 pods\n" in text
    assert entry["costs"]["billing"] == 5, "of all three"
    assert text.count("--job-name=hpc/solve~") == 2, "its two components"


async def test_a_gang_of_many_pods_names_the_first_and_says_each_sentence_once(both: Both, tmp_path: Path) -> None:
    gang = {"labels": {"slurm-bridge/gang": "solve"}, "annotations": {"slurm-bridge/gang-size": "6"}}
    pods = [manifest(f"w-{number}", **gang) for number in range(5)]
    text, _ = await told_of_manifest(both, tmp_path, *pods, manifest("w-5", **gang, scheduler="default-scheduler"))
    assert text.startswith("One gang: Pod hpc/w-0, Pod hpc/w-1, Pod hpc/w-2, Pod hpc/w-3 and 2 more, as in ")
    assert text.count("The schedulerName of Pod hpc/w-5 is default-scheduler.") == 1


async def test_one_pod_of_a_gang_says_that_the_others_are_missing_and_what_the_job_would_be(
    both: Both, tmp_path: Path
) -> None:
    text, [entry] = await told_of_manifest(both, tmp_path, manifest("w-0", **GANG))
    assert "It would wait. 1 of 4 pods of gang ring are here in namespace hpc. Their job is submitted when all " in text
    assert "Slurm would accept the job below: " in text
    assert "The job as it would be sent, as user alice, if the 3 missing pods are like w-0\n" in text
    assert "1 CPU, 1,024 MiB for each of 4 pods" in text
    assert entry["request"]["job"]["tasks"] == 4
    assert entry["trial"]["number"] == 2018, "what was tried is the job of all four"


def batch_job(**spec: Any) -> Any:
    pods = {"metadata": {"annotations": {"slurm-bridge/gang-size": "4"}}, "spec": manifest()["spec"]}
    meta = {"name": "train", "namespace": "hpc"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {**spec, "template": pods}}


async def test_the_pods_of_a_batch_job_that_are_one_gang_are_one_job(both: Both, tmp_path: Path) -> None:
    text, [entry] = await told_of_manifest(both, tmp_path, batch_job(parallelism=4, completions=4))
    assert text.startswith("pods of Job hpc/train, as in ")
    assert "  Slurm would accept it: " in text
    assert "The job as it would be sent, as user alice\n  needs       1 CPU, 1,024 MiB for each of 4 pods\n" in text
    assert (entry["request"]["job"]["tasks"], entry["explanation"]["missing"]) == (4, 0)


async def test_a_batch_job_that_never_has_all_of_its_gang_at_a_time_says_how_many_are_missing(
    both: Both, tmp_path: Path
) -> None:
    text, _ = await told_of_manifest(both, tmp_path, batch_job(parallelism=2, completions=4))
    assert "2 of 4 pods of batch Job train are here in namespace hpc. " in text
    assert "for each of 4 pods" in text


async def test_what_makes_more_pods_than_the_gang_has_says_what_becomes_of_the_others(
    both: Both, tmp_path: Path
) -> None:
    text, [entry] = await told_of_manifest(both, tmp_path, batch_job(parallelism=6))
    assert entry["request"]["job"]["tasks"] == 4
    assert "It makes 6 pods, of which 4 are one gang; each of the others has a job of its own." in text


async def test_what_others_controllers_make_is_no_lack_of_pods_and_says_what_to_do(both: Both, tmp_path: Path) -> None:
    spark = {"apiVersion": "example.org/v1", "kind": "SparkApplication", "metadata": {"name": "pi"}}
    with pytest.raises(
        ConfigError, match=r"SparkApplication pi cannot be explained from a file: .* slurm-bridge explain POD"
    ):
        await told_of_manifest(both, tmp_path, spark)
    text, _ = await told_of_manifest(both, tmp_path, manifest(), spark)
    assert "Left out: SparkApplication pi cannot be explained from a file" in " ".join(text.split())


async def test_annotations_of_a_workload_object_count_for_its_pods(both: Both, tmp_path: Path) -> None:
    template = {"metadata": {}, "spec": manifest()["spec"]}
    meta = {"name": "web", "namespace": "hpc", "annotations": {"slurm-bridge/comment": "from above"}}
    thing = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": {"template": template}}
    text, [entry] = await told_of_manifest(both, tmp_path, thing)
    assert text.startswith("pods of Deployment hpc/web, as in ")
    assert entry["request"]["job"]["comment"] == "from above"


async def test_another_scheduler_in_the_manifest_is_reported(both: Both, tmp_path: Path) -> None:
    text, _ = await told_of_manifest(both, tmp_path, manifest(scheduler="default-scheduler"))
    assert (
        "The schedulerName of Pod hpc/train is default-scheduler. The bridge schedules pods only with slurm-bridge."
        in (" ".join(text.split()))
    )


async def test_a_file_without_pods_is_one_sentence(both: Both, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"contains no object that makes pods \(only Service web\)\."):
        await told_of_manifest(both, tmp_path, {"kind": "Service", "metadata": {"name": "web"}})


def test_the_two_ways_to_ask_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["explain", "train", "-f", "m.yaml"])
    assert "not allowed with argument" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["explain"])
    assert "one of the arguments POD -f is required" in capsys.readouterr().err


def test_what_a_tenant_or_a_server_wrote_controls_no_terminal() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J evil"
    event = PodEvent(at=START, reason=evil, message=evil, source=evil, warning=True)
    text = as_text([Answer("Pod hpc/a", Explanation("hpc", "a", "k", "queued", evil), (event,))], 100, START)
    assert "evil" in text
    assert "\x1b" not in text
    assert "\x07" not in text
