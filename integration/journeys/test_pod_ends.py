"""The pod ends first: each row of that table in docs/ends.md, on real kubelets and containers.

sacct is asked for what became of them, since that is what a Slurm administrator types.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from integration.clusters import ENDED, BridgeProcess, Kube, Slurm, eventually, slurm_says
from integration.ends_table import table

Space = Callable[[str], str]
GENTLE = "trap 'exit 143' TERM; sleep 600 & wait"
STUBBORN = "trap '' TERM; while :; do sleep 1; done"
SLOW = "trap 'sleep 10; exit 143' TERM; sleep 600 & wait"
FULL = "sleep 3; dd if=/dev/zero of=/scratch/full bs=1M count=16; sleep 600"
# So that nobody waits ten minutes to see it; from when on the others have ended, since a busy machine starts them slowly.
IMPATIENT = {"start_timeout_s": 8}


@pytest.fixture(scope="module", autouse=True)
def started(bridge: BridgeProcess, roomy: list[str]) -> Iterator[None]:
    """The bridge is started again, because it reads Slurm's nodes at its start and then seldom."""
    with bridge.with_settings():
        yield


def main_container(**fields: Any) -> dict[str, Any]:
    limits = {"cpu": "100m", "memory": "32Mi"}
    fields = {"name": "main", "image": "localhost/busybox:rig", "imagePullPolicy": "Never"} | fields
    return fields | {"resources": {"requests": limits, "limits": limits}}


ABSENT = {"containers": [main_container(image="localhost/no-such-image:1", imagePullPolicy="IfNotPresent")]}
SMALL = {
    "containers": [
        main_container(command=["sh", "-c", FULL], volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}])
    ],
    "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}],
}
POD_TABLE = table("The pod ends first")
NODES_ROW = "its node stops answering"  # reported with the nodes
# The pod, and what is done to it once it runs: "" nothing.
PODS: dict[str, tuple[str, dict[str, Any], str]] = {
    "well": ("its containers end with 0", {"command": "exit 0"}, ""),
    "badly": ("a container ends with 3", {"command": "exit 3", "says": {"comment": "my own words"}}, ""),
    "hungry": ("a container needs more memory than it may", {"command": "exec tail /dev/zero", "memory": "16Mi"}, ""),
    "full": ("kubelet evicts it", {"spec": SMALL}, ""),
    "late": (
        "its own `activeDeadlineSeconds` passes",
        {"command": GENTLE, "spec": {"activeDeadlineSeconds": 15}},
        "",
    ),
    "slow": ("it is deleted while it runs", {"command": SLOW, "spec": {"terminationGracePeriodSeconds": 60}}, "delete"),
    "evicted": ("it is deleted while it runs", {"command": GENTLE}, "evict"),
    "forced": ("it is deleted by force while it runs", {"command": GENTLE}, "force"),
    "waiting": ("it is deleted while it waits", {"says": {"begin": "now+1hour"}}, "delete"),
    "imageless": ("it never starts (an image that is not there)", {"spec": ABSENT}, ""),
}
# For how long their jobs hold their places after they were deleted, seconds.
HOLDS = {"slow": (10, "it ends slowly"), "forced": (2 + 10, "its containers may still run for its grace, and some")}


def test_every_row_of_the_table_is_reported() -> None:
    assert [*dict.fromkeys(row for row, _, _ in PODS.values()), NODES_ROW] == list(POD_TABLE)


def test_each_end_of_a_pod_is_the_end_of_its_job_and_sacct_shows_how(
    kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess, needs_kubelets: None, own_rig: None
) -> None:
    ns = space("alice")
    for name, (_, options, _) in PODS.items():
        kube.run(ns, name, **{"on": "kubelet", "cpu": "100m", **options})
    jobs = {name: eventually(f"{name} has a job", lambda n=name: _job_of(slurm, ns, n)) for name in PODS}  # type: ignore[misc]
    deleted = {}
    for name, (_, _, done) in PODS.items():
        if done:
            deleted[name] = _do(kube, ns, name, done)
        if name in HOLDS:
            assert "RUNNING" in slurm.job(jobs[name])["job_state"], HOLDS[name][1]

    def ended() -> set[str]:
        return {name for name, job in jobs.items() if ENDED & set(slurm.job(job)["job_state"])}

    eventually("all jobs have ended but of what never starts", lambda: jobs.keys() - ended() == {"imageless"})
    for name, (for_s, why) in HOLDS.items():
        assert slurm.job(jobs[name])["end_time"]["number"] >= deleted[name] + for_s - 1, why
    recorded = {jobs[name] for name, (row, _, _) in PODS.items() if POD_TABLE[row][3]}
    # A bridge that was restarted does not know of pods that are gone.
    _eventually_recorded(jobs, recorded - {jobs["imageless"]})
    with bridge.with_settings(tuning=IMPATIENT):
        eventually("and its job too", lambda: jobs.keys() == ended())
        _eventually_recorded(jobs, recorded)
    for name, (row, _, _) in PODS.items():
        assert _became(kube, ns, name) == POD_TABLE[row][0].split(" after ")[0], name
    wanted = {jobs[name]: _recorded(ns, name, POD_TABLE[row]) for name, (row, _, _) in PODS.items()}
    said, full = _sacct(jobs), jobs["full"]
    state, code, comment = wanted[full]
    assert code == "137:0"
    if said[full][1] == "0:0":  # a busy kubelet evicts the pod before it has noticed that its container runs
        wanted[full] = state, "0:0", comment
    assert said == wanted


def test_a_container_that_ignores_term_holds_its_gpu_until_it_is_gone(
    kube: Kube, slurm: Slurm, space: Space, roomy: list[str], needs_kubelets: None
) -> None:
    ns = space("alice")
    options = {"cpu": "100m", "gpu": 1, "on": ""}
    spec = {"nodeSelector": {"kubernetes.io/hostname": roomy[0]}}
    kube.run(ns, "stubborn", command=STUBBORN, spec=spec | {"terminationGracePeriodSeconds": 6}, **options)
    eventually("stubborn runs", lambda: kube.pod(ns, "stubborn").status.phase == "Running")
    job = _job_of(slurm, ns, "stubborn")
    kube.run(ns, "next", command="sleep 600", spec=spec, **options)
    eventually("next waits in Slurm", lambda: _job_of(slurm, ns, "next"))
    assert slurm.holds(job)[roomy[0]]["gpu"] == {0}
    kube.core.delete_namespaced_pod("stubborn", ns)
    began = time.monotonic()
    while _runs(kube, ns, "stubborn"):
        holds = "RUNNING" in slurm.job(job)["job_state"] and kube.pod(ns, "next").spec.node_name is None
        assert holds or not _runs(kube, ns, "stubborn")
    assert time.monotonic() - began > 5, "it took its grace"
    eventually("next runs on that GPU", lambda: kube.pod(ns, "next").status.phase == "Running")
    assert slurm.holds(_job_of(slurm, ns, "next"))[roomy[0]]["gpu"] == {0}


def _job_of(slurm: Slurm, ns: str, name: str) -> int:
    """The id of the newest job of that pod; the job may have ended."""
    return max((job["job_id"] for job in slurm.jobs() if job["name"].startswith(f"{ns}/{name}~")), default=0)


def _names(kube: Kube, ns: str) -> set[str]:
    return {pod.metadata.name for pod in kube.pods(ns)}


def _runs(kube: Kube, ns: str, name: str) -> bool:
    """True if its container does, by the word of its kubelet."""
    return any(each.metadata.name == name and each.status.phase == "Running" for each in kube.pods(ns))


def _do(kube: Kube, ns: str, name: str, what: str) -> float:
    """When it was done, epoch seconds."""
    if name != "waiting":
        eventually(f"{name} runs", lambda: kube.pod(ns, name).status.phase == "Running")
    at = time.time()
    if what == "evict":
        kube.core.create_namespaced_pod_eviction(name, ns, {"metadata": {"name": name}})
    else:
        kube.core.delete_namespaced_pod(name, ns, grace_period_seconds=0 if what == "force" else None)
    return at


def _became(kube: Kube, ns: str, name: str) -> str:
    if name not in _names(kube, ns):
        return "gone"
    status = kube.pod(ns, name).status
    if status.phase == "Succeeded":
        return "`Succeeded`"
    return f"`{status.phase}`, `{status.reason or status.container_statuses[0].state.terminated.reason}`"


def _recorded(ns: str, name: str, row: list[str]) -> tuple[str, str, str]:
    """State, derived exit code and comment, as the document has them."""
    _, state, code, comment = row
    said = f"{ns}/{name}: {comment.strip('`')}" if comment else ""
    own = PODS[name][1].get("says", {}).get("comment", "")
    return state.split(",")[0].strip("`"), f"{code}:0", "; ".join(filter(None, (own, said)))


def _eventually_recorded(jobs: dict[str, int], these: set[int]) -> None:
    eventually("accounting has it all", lambda: these <= {job for job, said in _sacct(jobs).items() if said[2]})


def _sacct(jobs: dict[str, int]) -> dict[int, tuple[str, str, str]]:
    asked = ("-nPX", "-o", "JobID,State,DerivedExitCode,Comment", "-j", ",".join(map(str, jobs.values())))
    found = {}
    for line in slurm_says("sacct", *asked).splitlines():
        job, state, code, comment = line.split("|", 3)
        # Neither who cancelled it is asked here, nor the words of what pulls images.
        comment = re.sub(r"(container main: )(ErrImagePull|ImagePullBackOff).*", r"\1ImagePullBackOff", comment)
        found[int(job)] = (state.split()[0], code, comment)
    return found
