"""Pods that a tenant makes to stop the bridge for everybody: it goes on, for them too, and after a restart."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest

from integration.clusters import BridgeProcess, Kube, Slurm, eventually, pod

Space = Callable[[str], str]
MERGE = "application/merge-patch+json"
# The API server takes time by the square of the depth: 15 s for 9,000 levels, which tests/unit/kube decodes.
DEPTHS = (1_200, 4_000)
LARGE, LARGE_BYTES = 24, 1_000_000  # together more than any answer that the bridge reads in one piece


class Deep:
    """Pods whose managedFields are nested deep.  Their JSON is read as text: the client's decoder does not bear them."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self.names: list[str] = []

    def make(self, name: str, depth: int) -> None:
        gated = {"schedulingGates": [{"name": "example.com/not-yet"}]}
        body = json.dumps(pod(name, spec=gated)).encode()
        assert self._kube.raw("POST", self._pods, body, "application/json")[0] == 201
        self.names.append(name)
        nested = b'{"f:a":' * depth + b"{}" + b"}" * depth
        fields = (
            b'{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":' + nested + b"}"
        )
        patch = b'{"metadata":{"managedFields":[' + fields + b"]}}"
        assert self._kube.raw("PATCH", f"{self._pods}/{name}", patch, MERGE)[0] == 200
        assert nested in self.text(name), "the API server keeps what was written"
        status, said = self._kube.raw("PATCH", f"{self._pods}/{name}", b'{"spec":{"schedulingGates":null}}', MERGE)
        assert status == 200, said[:500]

    def text(self, name: str) -> bytes:
        return self._kube.raw("GET", f"{self._pods}/{name}")[1]

    def job_of(self, name: str) -> int:
        """The job that it is bound for; 0: none yet."""
        found = re.search(rb'"slurm-bridge/job-id": ?"([0-9]+)"', self.text(name))
        return int(found[1]) if found else 0

    def remove(self) -> None:
        """One by one: the answer to the deletion of all together holds them."""
        for name in self.names:
            self._kube.raw("DELETE", f"{self._pods}/{name}")
            eventually(f"{name} is gone", lambda n=name: self._kube.raw("GET", f"{self._pods}/{n}")[0] == 404)  # type: ignore[misc]


@pytest.fixture
def deep(kube: Kube, space: Space) -> Iterator[Deep]:
    made = Deep(kube, space("bob"))
    yield made
    made.remove()


def other_pods_run(kube: Kube, ns: str, bridge: BridgeProcess) -> None:
    """Asserts that other pods are bound, also after a restart of the bridge."""
    kube.run(ns, "before")
    eventually("another pod is bound", lambda: kube.bound(ns))

    assert bridge.stop() == 0
    bridge.start()
    kube.run(ns, "after")
    eventually("pods are bound after a restart", lambda: len(kube.bound(ns)) == 2)


def test_pods_with_deep_managed_fields_are_scheduled_and_stop_no_other_pod(
    kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess, deep: Deep
) -> None:
    ns = space("alice")
    for depth in DEPTHS:
        deep.make(f"deep-{depth}", depth)
    jobs = [eventually(f"{name} is bound", lambda n=name: deep.job_of(n)) for name in deep.names]  # type: ignore[misc]
    other_pods_run(kube, ns, bridge)
    kube.succeed(ns, "before")
    eventually("jobs are ended: the quiet time is over", lambda: not slurm.live(f"{ns}/before"))
    assert all("RUNNING" in slurm.job(job)["job_state"] for job in jobs), "those of the deep pods live on"


def test_pods_of_a_megabyte_each_are_listed_and_stop_no_other_pod(
    kube: Kube, space: Space, bridge: BridgeProcess
) -> None:
    large, ns = space("bob"), space("alice")
    thing = pod("large", spec={"schedulingGates": [{"name": "example.com/not-yet"}]})
    thing["spec"]["containers"][0]["env"] = [{"name": "BALLAST", "value": "x" * LARGE_BYTES}]
    for number in range(LARGE):
        thing["metadata"]["name"] = f"large-{number}"
        kube.core.create_namespaced_pod(large, thing)
    other_pods_run(kube, ns, bridge)
    kube.core.patch_namespaced_pod("large-0", large, {"spec": {"schedulingGates": None}})
    eventually("a large pod is bound as any other", lambda: kube.bound(large))
