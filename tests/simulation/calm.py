"""Two simulated clusters with the real bridge between them, and no random faults: for stories about one event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from bridge.simulation.kube import objects
from bridge.simulation.kube.objects import Object
from bridge.simulation.slurm.jobs import SimJob
from bridge.simulation.virtual_time import run
from scheduler import names
from tests.batch_job import batch_job
from tests.simulation.life import Life, invariants

SPACE = "alice-a"


class Calm(Life):
    """Two clusters and a bridge, and nothing that goes wrong by itself.  `last`: each pod as it was seen last."""

    last: dict[str, Object]

    async def act(self, story: Callable[[Calm], Awaitable[None]], *, accounting: bool = True) -> None:
        self.last = {}
        self.faults.on = False
        self.slurm.accounting = self.slurm.accounting_up = accounting
        self.clock = asyncio.get_running_loop().time
        self.inner = self.new_inner()
        self.invariants = invariants(self.kube, self.slurm, self.clock)
        living = [self.inner.live(), self._slurm_lives(), self._bridges(), self._looks()]
        tasks = [asyncio.ensure_future(each) for each in living]
        try:
            await asyncio.sleep(20)  # the quiet period is over
            await story(self)
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                assert ended is None or isinstance(ended, asyncio.CancelledError), ended

    async def _looks(self) -> None:
        while True:
            self.last |= {pod["metadata"]["uid"]: pod for pod in self.kube.store.all("pods")}
            await asyncio.sleep(0.05)

    # --- what tests do

    def creates(self, kind: str, says: dict[str, str] | None = None, **spec: Any) -> None:
        """alone: a pod; batch, service: a controller of one."""
        policy = "Always" if kind == "service" else "Never"
        made = objects.pod(SPACE, kind, requests={"cpu": "1"}, annotations=says or {}, restart_policy=policy, **spec)
        labels = {"app": kind}
        template = {"metadata": {"labels": labels, "annotations": says or {}}, "spec": made["spec"]}
        if kind == "alone":
            self.kube.create(self.kube_clock(), "pods", made)
        elif kind == "batch":
            self.kube.create(self.kube_clock(), "jobs", batch_job(SPACE, kind, template))
        else:
            self.kube.create(self.kube_clock(), "replicasets", objects.replica_set(SPACE, kind, 1, template))
        self.inner.wake()

    def creates_gang(
        self,
        gang: str,
        shapes: list[dict[str, str]],
        says: dict[str, str] | None = None,
        *,
        size: int = 0,
        first: int = 0,
    ) -> None:
        """Members `gang-0` …, a shape each.  size: of the gang, if not all members come now"""
        says = {names.PREFIX + names.GANG_SIZE: str(size or len(shapes)), **(says or {})}
        for number, wants in enumerate(shapes, start=first):
            name, labels = f"{gang}-{number}", {names.PREFIX + names.GANG: gang}
            made = objects.pod(SPACE, name, requests=wants, labels=labels, annotations=says, grace_s=5)
            self.kube.create(self.kube_clock(), "pods", made)
        self.inner.wake()

    def deletes(self, name: str, grace: int | None = None) -> None:
        """grace: seconds; None: the pod's own"""
        self.kube.remove(self.kube_clock(), "pods", self._stored("pods", SPACE, name), grace)
        self.inner.wake()

    def annotates(self, name: str, says: dict[str, str]) -> None:
        pod = self._stored("pods", SPACE, name)
        meta = pod["metadata"]
        self.kube.store.put(
            "pods", {**pod, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), **says}}}
        )
        self.inner.wake()

    def cordons(self, name: str, cordoned: bool) -> None:
        node = self._stored("nodes", "", name)
        self.kube.store.put("nodes", {**node, "spec": {**node["spec"], "unschedulable": cordoned}})
        self.inner.wake()

    def labels_node(self, name: str, labels: dict[str, str | None]) -> None:
        """Set labels of a node; None removes one."""
        node = self._stored("nodes", "", name)
        both = {**(node["metadata"].get("labels") or {}), **labels}
        kept = {key: value for key, value in both.items() if value is not None}
        self.kube.store.put("nodes", {**node, "metadata": {**node["metadata"], "labels": kept}})
        self.inner.wake()

    def _stored(self, resource: str, namespace: str, name: str) -> Object:
        found = self.kube.store.get(resource, namespace, name)
        assert found is not None, f"{resource} {namespace}/{name} is gone"
        return found

    # --- what tests see

    async def until(self, met: Callable[[], object], within: float = 60.0) -> None:
        async with asyncio.timeout(within):
            while not met():  # noqa: ASYNC110 -- on a virtual clock
                await asyncio.sleep(0.1)

    def pods_of(self, kind: str) -> list[Object]:
        """In the order in which they were made, also those that are gone."""
        of_it = [pod for pod in self.last.values() if pod["metadata"]["name"].startswith(kind)]
        return sorted(of_it, key=lambda pod: str(pod["metadata"]["uid"]))

    async def first(self, kind: str, phase: str = "Running", within: float = 60.0) -> Object:
        await self.until(lambda: any(pod["status"].get("phase") == phase for pod in self.pods_of(kind)), within)
        return self.pods_of(kind)[0]

    def job_of(self, pod: Object) -> SimJob:
        key = names.workload_key(pod["metadata"]["uid"])
        return next(job for job in self.slurm.jobs.values() if job.name.endswith(f".{key}"))

    def told(self, pod: Object) -> dict[str, Object]:
        return {each["type"]: each for each in pod["status"].get("conditions") or []}

    def runs(self, name: str) -> bool:
        """True if the pod of that name runs and is not being deleted."""
        found = self.kube.store.get("pods", SPACE, name)
        return found is not None and self.runs_now(found)

    def runs_now(self, pod: Object) -> bool:
        """True if the pod runs and is not being deleted; it may be an older copy of the object."""
        now = self.kube.store.get("pods", SPACE, pod["metadata"]["name"])
        if now is None or now["metadata"]["uid"] != pod["metadata"]["uid"]:
            return False
        return now["status"]["phase"] == "Running" and not now["metadata"].get("deletionTimestamp")

    def there(self, pod: Object) -> bool:
        return self.kube.store.get("pods", SPACE, pod["metadata"]["name"]) is not None

    def ends(self, kind: str) -> str:
        """The end of the first pod of that kind, in the words of the document."""
        pod, *others = self.pods_of(kind)
        return ", ".join([self.end_of(pod), *(["replaced"] if others else [])])

    def end_of(self, pod: Object) -> str:
        """`deleted`, or its phase with the reason of a failure; and if it was disrupted."""
        words = ["deleted"] if not self.there(pod) else [f"`{pod['status']['phase']}`"]
        if self.there(pod) and pod["status"]["phase"] == "Failed":
            words.append(f"`{_reason(pod)}`")
        if self.told(pod).get("DisruptionTarget", {}).get("status") == "True":
            words.append("disrupted")
        return ", ".join(words)

    def loses(self, job: SimJob) -> None:
        """slurmctld does not know the job any more."""
        self.slurm.end(job.id, "CANCELLED", self.slurm_clock())
        del self.slurm.jobs[job.id]
        self.slurm._ended.pop(job.id, None)


def _reason(pod: Object) -> str:
    status = pod["status"]
    return str(status.get("reason") or status["containerStatuses"][0]["state"]["terminated"]["reason"])


def lived(story: Callable[[Calm], Awaitable[None]], *, accounting: bool = True) -> None:
    run(Calm(1).act(story, accounting=accounting))
