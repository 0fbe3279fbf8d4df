"""Deployments, batch Jobs and other controllers work as usual: each pod's job follows its pod (S13, S4b)."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, eventually, pod, slurm_says

Space = Callable[[str], str]
GENTLE = "trap 'exit 143' TERM; sleep 600 & wait"
SMALL = {"on": "kubelet", "cpu": "50m", "memory": "16Mi", "command": GENTLE}
SELECTOR = {"matchLabels": {"app": "web"}}
SOON = {"running_fresh_s": 2, "end_notice_s": 80, "end_lead_s": 5}


@pytest.fixture(scope="module", autouse=True)
def soon(bridge: BridgeProcess, roomy: list[str]) -> Iterator[None]:
    """A service leaves when a third of its two minutes is over; what is to be read of running jobs is read soon."""
    with bridge.with_settings(tuning=SOON):
        yield


def template(restart: str = "Always", **options: Any) -> dict[str, Any]:
    found = pod("", labels={"app": "web"}, **{**SMALL, **options})
    del found["metadata"]["name"]
    found["spec"]["restartPolicy"] = restart
    return found


def kubectl(kube: Kube, *arguments: str) -> str:
    command = ["kubectl", "--kubeconfig", kube.kubeconfig, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def in_step(kube: Kube, slurm: Slurm, ns: str, pods: int) -> bool:
    """So many pods run, each in a job of its own that holds its node, and there is no other job."""
    running = [each for each in kube.bound(ns) if each.status.phase == "Running"]
    if len(running) != pods or len(kube.bound(ns)) != pods:
        return False
    there = {(int(each.metadata.annotations[PREFIX + "job-id"]), each.spec.node_name) for each in running}
    return there == {(job["job_id"], job["nodes"]) for job in slurm.live(f"{ns}/")}


def test_what_is_rolled_scaled_retried_and_drained_is_followed(
    kube: Kube, slurm: Slurm, space: Space, roomy: list[str], needs_kubelets: None
) -> None:
    rolled, scaled, retried, drained = (space("alice") for _ in range(4))
    kube.apps.create_namespaced_deployment(rolled, _deployment(2))
    spec = {"serviceName": "web", "replicas": 1, "selector": SELECTOR, "template": template()}
    kube.apps.create_namespaced_stateful_set(scaled, {"metadata": {"name": "web"}, "spec": spec})
    spec = {"backoffLimit": 1, "template": template("Never", command="sleep 1; exit 3")}
    kube.batch.create_namespaced_job(retried, {"metadata": {"name": "web"}, "spec": spec})
    kube.apps.create_namespaced_deployment(drained, _deployment(2, on="", spec=_on(roomy[0])))
    eventually("rolled is in step", lambda: in_step(kube, slurm, rolled, 2))
    eventually("drained is in step", lambda: in_step(kube, slurm, drained, 2))
    old = {each.metadata.uid for each in kube.bound(rolled)}

    # An edit of the template; more replicas; and a node is emptied.
    new = {"spec": {"template": {"metadata": {"annotations": {PREFIX + "comment": "version 2"}}}}}
    kube.apps.patch_namespaced_deployment("web", rolled, new)
    kube.apps.patch_namespaced_stateful_set_scale("web", scaled, {"spec": {"replicas": 3}})
    eventually("rolled is new", lambda: in_step(kube, slurm, rolled, 2) and not old & _uids(kube, rolled))
    assert {job["comment"] for job in slurm.live(f"{rolled}/")} == {"version 2"}
    eventually("scaled up", lambda: in_step(kube, slurm, scaled, 3))
    kube.apps.patch_namespaced_stateful_set_scale("web", scaled, {"spec": {"replicas": 1}})
    eventually("scaled down", lambda: in_step(kube, slurm, scaled, 1))
    tries = eventually("its tries are over", lambda: _tries_when_over(kube, retried))
    assert tries == 2
    before = _uids(kube, drained)
    kubectl(kube, "drain", roomy[0], "--ignore-daemonsets", "--force", "--pod-selector=app=web")
    try:
        eventually("nothing of it is left there", lambda: not before & _uids(kube, drained))
        eventually("its jobs have ended", lambda: not _live_on(slurm, drained, roomy[0]))
    finally:
        kubectl(kube, "uncordon", roomy[0])
    eventually("they run there again", lambda: in_step(kube, slurm, drained, 2))

    jobs = [job["job_id"] for job in slurm.jobs() if job["name"].startswith(f"{retried}/") and job["nodes"]]
    said = eventually("sacct tells of both tries", lambda: len(s := _recorded(jobs)) == 2 and s)
    assert {code for code, _ in said} == {"3:0"}


def test_a_service_leaves_its_job_one_replica_at_a_time_before_the_job_ends(
    kube: Kube, slurm: Slurm, space: Space, needs_kubelets: None
) -> None:
    ns = space("alice")
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": SELECTOR}}
    kube.policy.create_namespaced_pod_disruption_budget(ns, budget)
    kube.apps.create_namespaced_deployment(ns, _deployment(2, says={"time-limit": "2"}))
    eventually("both run", lambda: in_step(kube, slurm, ns, 2))
    first = {each.metadata.uid: int(each.metadata.annotations[PREFIX + "job-id"]) for each in kube.bound(ns)}
    names = {each.metadata.name for each in kube.bound(ns)}

    def moved() -> bool:
        ready = kube.apps.read_namespaced_deployment_status("web", ns).status.ready_replicas
        assert ready, "one of them serves, always"
        return not first.keys() & _uids(kube, ns)

    eventually("both have moved", moved)
    for job in first.values():
        eventually("it ended before its time", lambda j=job: "CANCELLED" in slurm.job(j)["job_state"])  # type: ignore[misc]
    for name in names:
        eventually("events say so", lambda n=name: {"SlurmJobEndsSoon", "SlurmJobEnded"} <= kube.events(ns, n))  # type: ignore[misc]


def test_a_crash_loop_is_reported_and_its_job_stays(
    kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess, needs_kubelets: None
) -> None:
    ns = space("alice")
    kube.run(ns, "loops", **SMALL | {"command": "exit 1", "spec": {"restartPolicy": "Always"}})
    eventually("it says so", lambda: "PodCrashLooping" in kube.events(ns, "loops"))
    [job] = slurm.live(f"{ns}/loops~")
    assert job["job_state"] == ["RUNNING"]
    assert [each.metadata.name for each in kube.bound(ns)] == ["loops"]
    counted = re.compile(r'^slurm_bridge_pod_conditions_written\w*{.*reason="PodCrashLooping".*} 1\.0$', re.MULTILINE)
    eventually("it is counted", lambda: counted.search(bridge.ask("metrics")[1]))


def test_each_side_shows_what_the_other_knows(kube: Kube, slurm: Slurm, space: Space, own_rig: None) -> None:
    ns = space("alice")
    kube.run(ns, "runs", says={"job-name": "bert"})
    eventually("it runs", lambda: kube.bound(ns))
    kube.run(ns, "waits", says={"begin": "now+1hour"})
    eventually("it says why", lambda: "BeginTime" in kube.said(ns, "waits"))
    [named] = [job for job in slurm.live("bert~") if job["comment"] == f"{ns}/runs"]
    [waiting] = slurm.live(f"{ns}/waits~")
    shown = slurm_says("squeue", "-ho", "%i %j %T %N").splitlines()
    [runs] = [line.split() for line in shown if line.startswith(f"{named['job_id']} ")]
    assert runs[2:] == ["RUNNING", kube.pod(ns, "runs").spec.node_name]
    assert any(line.startswith(f"{waiting['job_id']} {ns}/waits~") for line in shown)
    for name, words in {
        "runs": (f"job-id: {named['job_id']}", f"job-nodes: {named['nodes']}"),
        "waits": ("SlurmJobSubmitted", "BeginTime", f"Job {waiting['job_id']}"),
    }.items():
        eventually(f"kubectl shows {words} of {name}", lambda n=name, w=words: _described(kube, ns, n, w))  # type: ignore[misc]


def _described(kube: Kube, ns: str, name: str, words: tuple[str, ...]) -> bool:
    described = kubectl(kube, "describe", "pod", "-n", ns, name)
    return all(word in described for word in words)


def _deployment(replicas: int, **options: Any) -> dict[str, Any]:
    spec = {"replicas": replicas, "selector": SELECTOR, "template": template(**options)}
    return {"metadata": {"name": "web"}, "spec": spec}


def _on(node: str) -> dict[str, Any]:
    """Where it is cordoned its pods wait."""
    return {"nodeSelector": {"kubernetes.io/hostname": node}, "tolerations": []}


def _uids(kube: Kube, ns: str) -> set[str]:
    return {each.metadata.uid for each in kube.pods(ns)}


def _live_on(slurm: Slurm, ns: str, node: str) -> list[int]:
    return [job["job_id"] for job in slurm.live(f"{ns}/") if job["nodes"] == node]


def _tries_when_over(kube: Kube, namespace: str) -> int:
    """The failed pods of the batch Job once it has the condition Failed (FailureTarget comes earlier); 0 until then."""
    status = _status(kube, namespace)
    over = any(each.type == "Failed" and each.status == "True" for each in status.conditions or ())
    return int(status.failed) if over else 0


def _status(kube: Kube, ns: str) -> Any:
    return kube.batch.read_namespaced_job_status("web", ns).status


def _recorded(jobs: list[int]) -> list[tuple[str, str]]:
    """Derived exit code and comment of those that have one."""
    if not os.environ.get("RIG_NAME"):
        return []
    said = slurm_says("sacct", "-nPX", "-o", "DerivedExitCode,Comment", "-j", ",".join(map(str, jobs)))
    rows = [line.split("|", 1) for line in said.splitlines()]
    return [(code, comment) for code, comment in rows if comment]
