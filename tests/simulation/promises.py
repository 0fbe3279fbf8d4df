"""The invariants of ARCHITECTURE 7, checked on the truth of both clusters whenever anything takes effect.

The bridge's own facts are not asked: what counts is what happened in the clusters.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from bridge.dev.kube_cluster import KubeCluster
from bridge.dev.slurm_cluster import SlurmCluster
from bridge.dev.slurm_jobs import SimJob
from scheduler import names
from scheduler.quantity import amount

# A bind may be on its way while its job ends: what it was decided for was true so long ago at most.
ON_ITS_WAY_S = 30.0
# A workload whose job Slurm started is bound within this (L3).
SOON_S = 60.0


class Violation(AssertionError):
    """A promise was broken."""


class Promises:
    """Watches every request of the bridge that takes effect, and the state that it leaves.

    users       the users that the policy gives, by namespace
    """

    def __init__(
        self, kube: KubeCluster, slurm: SlurmCluster, users: Mapping[str, str], clock: Callable[[], float]
    ) -> None:
        self._kube, self._slurm, self._users, self._clock = kube, slurm, users, clock
        system = kube.store.get("namespaces", "", "kube-system")
        assert system is not None
        self.cluster = names.cluster_id(system["metadata"]["uid"])
        self.log: list[tuple[float, str]] = []
        self.violations: list[Violation] = []
        self.life = 0  # which life of the bridge this is
        self.lost_at = float("-inf")  # when slurmctld lost jobs last
        self._ours: dict[int, bool] = {}  # job serial to whether it is the bridge's
        self._served: dict[int, str] = {}  # job serial to the pod that it was given to

    def note(self, what: str) -> None:
        self.log.append((self._clock(), what))

    def broken(self, promise: str, what: str) -> None:
        violation = Violation(f"{promise}: {what}")
        self.violations.append(violation)
        raise violation

    # --- whose is it ---------------------------------------------------------------------------------------------

    def is_ours(self, job: SimJob) -> bool:
        known = self._ours.get(job.serial)
        if known is None:
            whose = names.whose(job.name)
            known = whose is not None and whose[0] == self.cluster and job.user in self._users.values()
            self._ours[job.serial] = known
        return known

    def ours(self) -> list[SimJob]:
        return [job for job in self._slurm.jobs.values() if not job.ended and self.is_ours(job)]

    def pods(self) -> list[dict[str, Any]]:
        return list(self._kube.store.all("pods"))

    # --- requests of the bridge ----------------------------------------------------------------------------------

    def sent_to_slurm(self, method: str, target: str, headers: Mapping[str, str]) -> None:
        match = re.search(r"/job/(\d+)", target)
        if method == "GET" or match is None or "/slurmdb/" in target:
            return
        job = self._slurm.jobs.get(int(match[1]))
        user = headers.get("X-SLURM-USER-NAME", "")
        self.note(f"{method} job {match[1]} as {user}")
        if job is not None and not self.is_ours(job) and job.user == user:
            self.broken("V6", f"{method} of foreign job {job.id} ({job.name} of {job.user})")

    def sent_to_kube(self, method: str, path: str, body: bytes | None) -> None:
        """What was decided is judged when it is sent: it may take effect when it is no longer right."""
        found = self._hit(method, path, body)
        if found is None:
            return
        pod, sent = found
        if path.endswith("/binding"):
            self._bind(pod, sent["target"]["name"], sent["metadata"]["annotations"])
        elif method == "DELETE" or "activeDeadlineSeconds" in sent.get("spec", {}):
            self._harm(pod, method)

    def reaches_kube(self, method: str, path: str, body: bytes | None, sent_in: int) -> None:
        """A bind takes up room whenever it arrives; one of a life that is over, nobody alive can have reckoned with."""
        found = self._hit(method, path, body) if path.endswith("/binding") and sent_in == self.life else None
        if found is not None and not _settled(found[0]):
            self._fits(found[0], found[1]["target"]["name"], found[0]["metadata"]["name"])

    def _hit(self, method: str, path: str, body: bytes | None) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The pod that a write names, and what was written."""
        match = re.fullmatch(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(/binding)?", path)
        if match is None or method == "GET":
            return None
        pod = self._kube.store.get("pods", match[1], match[2])
        sent = json.loads(body) if body else {}
        return (pod, sent) if pod is not None and self._hits(pod, sent) else None

    @staticmethod
    def _hits(pod: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
        """Whether the request names this incarnation; else the server refuses it."""
        uid = sent.get("metadata", {}).get("uid") or sent.get("preconditions", {}).get("uid")
        if uid is None:
            raise Violation("a write on a pod without its uid")
        return bool(uid == pod["metadata"]["uid"])

    def _bind(self, pod: Mapping[str, Any], node: str, annotations: Mapping[str, str]) -> None:
        meta = pod["metadata"]
        if _settled(pod):
            return  # refused by the server
        who = f"{meta['namespace']}/{meta['name']}"
        job = self._slurm.jobs.get(int(annotations[names.JOB_ID]))
        self.note(f"bind {who} to {node} for job {annotations[names.JOB_ID]}")
        if self._clock() - self.lost_at < ON_ITS_WAY_S:
            return  # slurmctld lost jobs a moment ago, and nobody could know
        if job is None:
            self.broken("V2", f"{who} is bound for job {annotations[names.JOB_ID]}, which is not there")
        assert job is not None
        if names.whose(job.name) != (self.cluster, names.workload_key(meta["uid"])):
            self.broken("V2", f"{who} is bound for the job of another: {job.name}")
        if job.ended and self._clock() - job.ends > ON_ITS_WAY_S:
            self.broken("V2", f"{who} is bound for job {job.id}, {job.state} {self._clock() - job.ends:.0f} s ago")
        if job.holding is not None and node != job.holding.node:
            self.broken("V2", f"{who} is bound to {node}, job {job.id} holds {job.holding.node}")
        self._fits(pod, node, who)
        first = self._served.setdefault(job.serial, meta["uid"])
        if first != meta["uid"]:
            self.broken("V5", f"job {job.id} served pod {first} before {who}")

    def _fits(self, pod: Mapping[str, Any], node: str, who: str) -> None:
        found = self._kube.store.get("nodes", "", node)
        if found is None:
            self.broken("V2", f"{who} is bound to {node}, which is no node")
        assert found is not None
        taken = Counter(_requests(pod))
        for other in self.pods():
            standing = other["spec"].get("nodeName") == node
            if standing and other["status"].get("phase") not in ("Succeeded", "Failed"):
                taken += Counter(_requests(other))
        for resource, used in taken.items():
            has = amount(resource, found["status"]["allocatable"].get(resource, "0"), round_up=False)
            if used > has:
                self.broken("V3", f"{who} is bound to {node}: {used} {resource} of {has}")

    def _harm(self, pod: Mapping[str, Any], method: str) -> None:
        meta = pod["metadata"]
        who = f"{meta['namespace']}/{meta['name']}"
        self.note(f"{method} pod {who}")
        claimed = (meta.get("annotations") or {}).get(names.JOB_ID)
        if claimed is None or not pod["spec"].get("nodeName"):
            self.broken("V7", f"{who} was never bound by the bridge, and is ended by it")
        assert claimed is not None
        job = self._slurm.jobs.get(int(claimed))
        if job is None or names.whose(job.name) != (self.cluster, names.workload_key(meta["uid"])):
            return  # Slurm lost it
        if not job.ended:
            self.broken("V7", f"{who} is ended while its job {job.id} is {job.state}")

    # --- what is left behind -------------------------------------------------------------------------------------

    def after_kube(self, method: str, path: str, status: int) -> None:
        if method != "GET":
            self.after()

    def after(self) -> None:
        running = Counter(job.name for job in self.ours() if job.holds)
        for name, count in running.items():
            if count > 1:
                self.broken("V1", f"{count} running placeholders of {name}")
        for job in self.ours():
            namespace = job.name.partition("/")[0]
            if job.user != self._users.get(namespace) or job.partition != "main":
                self.broken("V8", f"job {job.id} ({job.name}) of {job.user} in {job.partition}")

    def at_rest(self) -> list[str]:
        """L1 and L2, when faults ended long ago: what is not as it should be."""
        wrong = []
        keys = {}
        for pod in self.pods():
            meta = pod["metadata"]
            if pod["spec"].get("schedulerName") != names.SCHEDULER_NAME:
                continue
            if pod["status"].get("phase") in ("Succeeded", "Failed"):
                continue
            keys[names.workload_key(meta["uid"])] = meta["name"]
            said = [each for each in pod["status"].get("conditions", []) if each["type"] == "PodScheduled"]
            if not pod["spec"].get("nodeName") and not any(each.get("message") for each in said):
                wrong.append(f"L1: {meta['name']} waits and does not say why")
        for job in self.ours():
            whose = names.whose(job.name)
            assert whose is not None
            if whose[1] not in keys:
                wrong.append(f"L2: job {job.id} ({job.name}) is {job.state} and has no pod")
            pod_name = keys.get(whose[1], "")
            claimed = self._claim(whose[1])
            if job.holds and not self._covers(job, whose[1]) and self._clock() - job.starts > SOON_S:
                wrong.append(f"L3: job {job.id} is {job.state}, and {pod_name} is not bound for it ({claimed})")
        return wrong

    def _covers(self, job: SimJob, key: str) -> bool:
        """Its pod is bound for it, or stands on the node that it holds: the id on the pod may be of a job that was lost."""
        if self._claim(key) == job.id:
            return True
        standing = (pod for pod in self.pods() if names.workload_key(pod["metadata"]["uid"]) == key)
        return job.holding is not None and any(pod["spec"].get("nodeName") == job.holding.node for pod in standing)

    def _claim(self, key: str) -> int | None:
        for pod in self.pods():
            if names.workload_key(pod["metadata"]["uid"]) == key:
                said = (pod["metadata"].get("annotations") or {}).get(names.JOB_ID)
                return int(said) if said and pod["spec"].get("nodeName") else None
        return None


def _settled(pod: Mapping[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"))


def _requests(pod: Mapping[str, Any]) -> dict[str, int]:
    total: dict[str, int] = {"pods": 1}
    for container in pod["spec"]["containers"]:
        for resource, quantity in (container.get("resources", {}).get("requests") or {}).items():
            total[resource] = total.get(resource, 0) + amount(resource, quantity, round_up=True)
    return total
