"""Two replicas under the account of the manifests: one acts, the other takes over, and nothing is lost."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client

from integration import own_account
from integration.clusters import BridgeProcess, Kube, Slurm, condition, eventually, kubectl, replica_set
from integration.journeys.conftest import POLICY
from tests.patience import PATIENCE_S

Space = Callable[[str], str]
LEASE = ("slurm-bridge", "slurm-bridge")
DRAINED = "slurm-bridge/drained"
NAMES = ("replica-0", "replica-1")
CPUS, NODES, PODS = 64, 16, 1000
TIMES = 3
NUMBERS = itertools.count(1)


class Pair:
    """Two replicas, by name."""

    def __init__(self, made: dict[str, BridgeProcess]) -> None:
        self.made = made

    def role(self, name: str) -> str:
        """The role in /readyz: "leads", or "standby, NAME leads"; "" if the replica does not answer or is not ready."""
        status, text = self.made[name].ask("readyz")
        if status != 200:
            return ""
        return next((line for line in text.splitlines() if line.startswith("standby")), "leads")

    def leader(self) -> str:
        """The leading replica, once both replicas agree on it."""

        def agreed() -> str:
            for name, other in (NAMES, NAMES[::-1]):
                if self.role(name) == "leads" and self.role(other) == f"standby, {name} leads":
                    return name
            return ""

        return eventually("one leads and the other says so", agreed)

    def lacking(self) -> None:
        """Start what does not run."""
        for process in self.made.values():
            if not process.runs:
                process.start()


@pytest.fixture(scope="module")
def pair(no_bridge: None, kube: Kube, slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both run, each under the account of manifests/base/rbac.yaml."""
    folder = tmp_path_factory.mktemp("replicas")
    kubeconfig, ends = folder / "kubeconfig", kube.api.configuration
    own_account.write_kubeconfig(kubectl, ends.host, ends.ssl_ca_cert, kubeconfig)
    kubectl("apply", "-f", str(own_account.MANIFESTS / "base" / "lease-priority.yaml"))
    made = {}
    for name in NAMES:
        own = folder / name
        own.mkdir()
        settings: dict[str, Any] = {"slurm_url": slurm.url, "slurm_token_file": slurm.token_file, "policy": POLICY}
        settings["lease"] = {"identity": name}
        made[name] = BridgeProcess(settings, own, str(kubeconfig))
    pair = Pair(made)
    pair.lacking()
    yield pair
    codes = [process.stop() for process in made.values()]  # all of them, before one is found wrong
    kubectl("delete", "-f", str(own_account.MANIFESTS / "base" / "lease-priority.yaml"))
    with contextlib.suppress(client.ApiException):
        leases().delete_namespaced_lease(*LEASE)
    assert codes == [0] * len(codes)
    assert not [name for name, process in made.items() if "Traceback" in process.log.read_text()]


@pytest.fixture(scope="module")
def bridge(pair: Pair) -> BridgeProcess:
    """In the place of the one bridge of the other journeys."""
    return pair.made[NAMES[0]]


@pytest.fixture(autouse=True)
def both(pair: Pair) -> None:
    pair.lacking()
    pair.leader()


@pytest.fixture(scope="module")
def wide(slurm: Slurm, kube: Kube) -> Iterator[dict[str, str]]:
    """A node selector of nodes that take PODS pods, which are there for these journeys alone."""
    label, names = "slurm-bridge-journey/wide", [f"w{number}" for number in range(1, NODES + 1)]
    for number, name in enumerate(names, 1):
        kube.add_node(name, f"192.0.2.{100 + number}", CPUS, CPUS * 1024, {label: "yes"})
        slurm.add_node(name, f"192.0.2.{100 + number}", CPUS, CPUS * 1024)
    yield {label: "yes"}
    for name in names:
        kube.core.delete_node(name)
        eventually(f"Slurm lets {name} go", lambda n=name: slurm.remove_node(n))  # type: ignore[misc]


def leases() -> Any:
    return client.CoordinationV1Api(_API[0])


_API: list[Any] = []


@pytest.fixture(scope="module", autouse=True)
def _api(kube: Kube) -> None:
    _API.append(kube.api)


def _bound_after(kube: Kube, ns: str, since: float, where: dict[str, str]) -> float:
    """Seconds from then until a pod that is created now is bound."""
    name = f"next-{next(NUMBERS)}"
    kube.run(ns, name, spec={"nodeSelector": where} if where else None)
    while not kube.pod(ns, name).spec.node_name:
        assert time.monotonic() - since < PATIENCE_S, f"{name} is not bound"
        time.sleep(0.01)  # between two questions, not in place of one
    return time.monotonic() - since


def test_another_replica_takes_over_after_a_kill_and_after_a_stop(
    kube: Kube, slurm: Slurm, space: Space, pair: Pair, wide: dict[str, str]
) -> None:
    ns = space("alice")
    many = replica_set("many", PODS, cpu="1", memory="16Mi", spec={"nodeSelector": wide})
    kube.apps.create_namespaced_replica_set(ns, many)
    eventually("all run", lambda: _running(kube, ns) == PODS, within_s=2 * PATIENCE_S)
    took: dict[str, list[float]] = {"SIGKILL": [], "SIGTERM": []}
    for how, _ in itertools.product(took, range(TIMES)):
        name = pair.leader()
        leader, before = pair.made[name], len(slurm.live(f"{ns}/"))
        eventually("its quiet period is over, and nothing is in flight", lambda n=name: _is_calm(kube, n))  # type: ignore[misc]
        since = time.monotonic()
        if how == "SIGKILL":
            leader.kill()
        else:
            os.kill(leader.pid, signal.SIGTERM)
        took[how].append(_bound_after(kube, ns, since, wide))
        eventually("it has ended", lambda p=leader: not p.runs)  # type: ignore[misc]
        assert len(slurm.live(f"{ns}/")) == before + 1, "no job was lost or doubled"
        leader.start()
    for how, seconds in took.items():
        print(
            f"takeover after {how}, {PODS} running pods: {', '.join(f'{each:.2f}' for each in seconds)} s to the bind"
        )
    assert _running(kube, ns) == PODS, "nobody was ended"


def _running(kube: Kube, ns: str) -> int:
    return sum(each.metadata.labels.get("app") == "many" for each in kube.bound(ns) if each.metadata.labels)


def _is_calm(kube: Kube, name: str) -> bool:
    """Long enough after it began to lead."""
    lease = leases().read_namespaced_lease(*LEASE)
    led_s: float = (lease.spec.renew_time - lease.spec.acquire_time).total_seconds()
    holder: str | None = lease.spec.holder_identity
    return holder == name and led_s > 13


def test_a_clean_stop_is_recorded_in_the_lease_and_removed_by_the_next_holder(
    kube: Kube, space: Space, pair: Pair
) -> None:
    ns = space("alice")
    name = pair.leader()
    (other,) = set(NAMES) - {name}
    eventually("its quiet period is over", lambda: _is_calm(kube, name))
    pair.made[other].kill()
    assert pair.made[name].stop() == 0
    lease = leases().read_namespaced_lease(*LEASE)
    assert not lease.spec.holder_identity
    assert lease.metadata.annotations[DRAINED]
    pair.made[name].start()
    eventually("it leads", lambda: pair.role(name) == "leads")
    lease = leases().read_namespaced_lease(*LEASE)
    assert lease.spec.holder_identity == name
    assert DRAINED not in lease.metadata.annotations
    assert "the process that led before left nothing behind" in pair.made[name].log.read_text()
    kube.run(ns, "train")
    eventually("it is bound", lambda: kube.bound(ns))


def test_a_leader_that_is_paused_and_wakes_does_no_harm(kube: Kube, slurm: Slurm, space: Space, pair: Pair) -> None:
    ns = space("alice")
    kube.apps.create_namespaced_replica_set(ns, replica_set("service", 8))
    eventually("they run", lambda: len(kube.bound(ns)) == 8)
    name = pair.leader()
    (other,) = set(NAMES) - {name}
    for number in range(8):
        kube.run(ns, f"hurried-{number}")  # it is paused amid its work
    with pair.made[name].paused():
        eventually("the other leads", lambda: pair.role(other) == "leads")
        eventually("all are bound", lambda: len(kube.bound(ns)) == 16)
        gone = kube.bound(ns)[0].metadata.name
        kube.core.delete_namespaced_pod(gone, ns)
        kube.run(ns, "meanwhile")
        eventually("that one, too", lambda: kube.pod(ns, "meanwhile").spec.node_name)
    assert pair.leader() == other
    log = pair.made[name].log.read_text()
    assert "leads no more, and stands by" in log

    eventually("each pod has one job, and each job its pod", lambda: _one_job_each(kube, slurm, ns))
    kube.run(ns, "after")
    eventually("work goes on", lambda: kube.pod(ns, "after").spec.node_name)


def test_without_the_rights_to_the_lease_no_replica_acts_and_nothing_is_lost(
    kube: Kube, slurm: Slurm, space: Space, pair: Pair
) -> None:
    ns = space("alice")
    kube.run(ns, "before")
    eventually("it is bound", lambda: kube.bound(ns))
    held = kube.rbac.read_namespaced_role_binding("slurm-bridge-lease", "slurm-bridge")
    kube.rbac.delete_namespaced_role_binding("slurm-bridge-lease", "slurm-bridge")
    try:
        for process in pair.made.values():
            eventually("it says so", lambda p=process: _says(p, "Role slurm-bridge-lease of manifests/base/rbac.yaml"))  # type: ignore[misc]
        kube.run(ns, "waits")
        assert len(kube.bound(ns)) == len(slurm.live(f"{ns}/")) == 1
    finally:
        held.metadata = client.V1ObjectMeta(name="slurm-bridge-lease", namespace="slurm-bridge")
        kube.rbac.create_namespaced_role_binding("slurm-bridge", held)
    eventually("it is bound", lambda: kube.pod(ns, "waits").spec.node_name)
    assert len(kube.bound(ns)) == 2
    pair.leader()


def _says(process: BridgeProcess, words: str) -> bool:
    status, text = process.ask("readyz")
    return status == 503 and words in text


@pytest.mark.parametrize(
    "edit",
    [
        {"holderIdentity": "somebody", "leaseDurationSeconds": 2_000_000_000},
        {"holderIdentity": None, "acquireTime": None, "renewTime": None, "leaseDurationSeconds": None},
        None,
    ],
    ids=["another holder for ever", "nothing in it", "deleted"],
)
def test_a_lease_that_another_client_edits_is_written_again(
    kube: Kube, space: Space, pair: Pair, edit: dict[str, Any] | None
) -> None:
    ns = space("alice")
    if edit is None:
        leases().delete_namespaced_lease(*LEASE)
    else:
        leases().patch_namespaced_lease(*LEASE, {"spec": edit})
    eventually("one of them holds it", lambda: _holder() in NAMES)
    kube.run(ns, "train")
    eventually("it is bound", lambda: kube.bound(ns))
    pair.leader()


def _holder() -> str:
    try:
        return str(leases().read_namespaced_lease(*LEASE).spec.holder_identity)
    except client.ApiException:
        return ""


def test_two_bridges_without_a_lease_double_nothing(kube: Kube, slurm: Slurm, space: Space, pair: Pair) -> None:
    """A mistake of an admin: both act on everything."""
    with _unleased(pair):
        ns = space("alice")
        kube.apps.create_namespaced_replica_set(ns, replica_set("service", 16))
        eventually("they run", lambda: len(kube.bound(ns)) == 16)
        bound = {each.metadata.uid for each in kube.bound(ns)}
        eventually("each pod has one job, and each job its pod", lambda: _one_job_each(kube, slurm, ns))
        assert {each.metadata.uid for each in kube.bound(ns)} == bound, "nobody was ended"
        assert all(condition(each, "PodScheduled").status == "True" for each in kube.bound(ns))

        def reported() -> bool:
            kube.run(ns, f"next-{next(NUMBERS)}")
            return any("Another slurm-bridge schedules pods" in each.ask("readyz")[1] for each in pair.made.values())

        eventually("one of them says that there is another", reported)
        eventually("all are bound", lambda: len(kube.bound(ns)) == len(kube.pods(ns)))
        eventually("each pod has one job, and each job its pod", lambda: _one_job_each(kube, slurm, ns))


@contextlib.contextmanager
def _unleased(pair: Pair) -> Iterator[None]:
    """Both run without a lease, and afterwards as before."""
    with contextlib.ExitStack() as stack:
        for process in pair.made.values():
            stack.enter_context(process.with_settings(lease=None))
        yield


def _one_job_each(kube: Kube, slurm: Slurm, ns: str) -> bool:
    jobs = [job["name"].partition("~")[0] for job in slurm.live(f"{ns}/")]
    return sorted(jobs) == sorted(f"{ns}/{each.metadata.name}" for each in kube.bound(ns))
