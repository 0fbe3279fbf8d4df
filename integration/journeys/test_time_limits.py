"""Before Slurm ends a job at its time limit, its pods get SIGTERM in time for their grace, by real kubelets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from integration.clusters import BridgeProcess, Kube, Slurm, eventually

Space = Callable[[str], str]
LIMIT_MIN = 2
# It writes when SIGTERM came and when it had used its grace; the pod's status shows this text.
CHECKPOINT = (
    "trap 'a=$(date +%s); sleep {takes}; echo $a $(date +%s) > /dev/termination-log; exit 143' TERM; sleep 600 & wait"
)
# Grace, what it says, how long its checkpoint takes, how long before Slurm's end SIGTERM comes.
PODS = {
    "patient": (40, {}, 30, 50),
    "asking": (5, {"signal": "B:USR1@60"}, 1, 60),
    "usual": (2, {}, 1, 12),
}
SLACK_S = 6  # kubelet looks at deadlines when it looks at the pod; a busy machine is late


@pytest.fixture(scope="module", autouse=True)
def started(bridge: BridgeProcess, roomy: list[str]) -> Iterator[None]:
    """The bridge is started again, because it reads Slurm's nodes at its start and then seldom."""
    with bridge.with_settings():
        yield


def test_a_pod_has_used_its_grace_before_slurm_ends_its_job(
    kube: Kube, slurm: Slurm, space: Space, needs_kubelets: None
) -> None:
    ns = space("alice")
    for name, (grace_s, says, takes, _) in PODS.items():
        kube.run(
            ns,
            name,
            on="kubelet",
            cpu="100m",
            command=CHECKPOINT.format(takes=takes),
            says={"time-limit": str(LIMIT_MIN), **says},
            spec={"terminationGracePeriodSeconds": grace_s},
        )
    for name in PODS:
        eventually(f"{name} runs", lambda n=name: kube.pod(ns, n).status.phase == "Running")  # type: ignore[misc]
    starts = {job["name"].split("~")[0]: job["start_time"]["number"] for job in slurm.live(f"{ns}/")}
    for name, (_, _, takes, lead_s) in PODS.items():
        _ends(kube, ns, name)
        status = kube.pod(ns, name).status
        assert status.reason == "DeadlineExceeded", name
        signalled, done = map(int, status.container_statuses[0].state.terminated.message.split())
        ends = starts[f"{ns}/{name}"] + LIMIT_MIN * 60
        print(f"{name}: SIGTERM {ends - signalled} s before Slurm's end, done {ends - done} s before")
        assert abs((ends - signalled) - lead_s) <= SLACK_S, name
        assert done >= signalled + takes, name
        assert done < ends, name


def _ends(kube: Kube, ns: str, name: str) -> None:
    eventually(f"{name} has ended", lambda: kube.pod(ns, name).status.phase == "Failed", within_s=LIMIT_MIN * 60 + 60)
