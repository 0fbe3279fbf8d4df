"""A pod of each kind whose ends differ (docs/ends.md): alone, of a batch Job, and a service that restarts for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kubernetes.watch import Watch

from integration.clusters import PREFIX, Kube, Slurm, condition, eventually, pod, replica_set

KINDS = ("alone", "batch", "service")
DISRUPTION = {"type": "DisruptionTarget", "status": "True"}
# A batch Job does not count what was no fault of its pods.
POLICY = {"backoffLimit": 1, "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [DISRUPTION]}]}}


class Three:
    """One pod of each kind, in a namespace of their own.

    first   the pods as they were when all ran, by kind
    jobs    theirs at that time, by kind
    """

    def __init__(self, kube: Kube, slurm: Slurm, ns: str, **options: Any) -> None:
        self.kube, self.slurm, self.ns = kube, slurm, ns
        self.first: dict[str, Any] = {}
        self.jobs: dict[str, int] = {}
        self._last: dict[str, Any] = {}
        template = pod("", **options)
        del template["metadata"]["name"]
        kube.run(ns, "alone", **options)
        kube.batch.create_namespaced_job(ns, {"metadata": {"name": "batch"}, "spec": POLICY | {"template": template}})
        kube.apps.create_namespaced_replica_set(ns, replica_set("service", 1, **options))

    def run(self) -> None:
        """Wait until they run."""
        for each in eventually("they run", lambda: len(found := self.running()) == len(KINDS) and found):
            self.first[_kind(each)] = each
            self.jobs[_kind(each)] = _job(each)

    def running(self) -> list[Any]:
        return [each for each in self.kube.bound(self.ns) if each.status.phase == "Running"]

    def named(self) -> list[int]:
        """The jobs that the annotations of the bound ones name."""
        return sorted(map(_job, self.kube.bound(self.ns)))

    def states(self) -> set[str]:
        """The states of the jobs that the pods had first."""
        return {state for job in self.jobs.values() for state in self.slurm.job(job)["job_state"]}

    # --- who runs on ---

    def unharmed(self) -> bool:
        """The same pods on the same nodes, none of them on its way out."""
        staying = [each for each in self.running() if each.metadata.deletion_timestamp is None]
        return _places(staying) == _places(self.first.values())

    def say(self) -> list[str]:
        """The conditions of the running pods, in the words of the document."""
        said = {_kind(each): condition(each, PREFIX + "job-running") for each in self.running()}
        return [f"runs on, says `{said[kind].reason}`" if said.get(kind) else "" for kind in KINDS]

    def messages(self) -> set[str]:
        return {condition(each, PREFIX + "job-running").message for each in self.running()}

    # --- who ends ---

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Every pod is remembered as it was last, also what is gone."""
        over, listed = threading.Event(), self.kube.core.list_namespaced_pod
        version = listed(self.ns).metadata.resource_version

        def follow() -> None:
            watch = Watch()
            while not over.is_set():
                since = watch.resource_version or version
                for event in watch.stream(listed, self.ns, resource_version=since, timeout_seconds=1):
                    self._last[event["object"].metadata.uid] = event["object"]

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def over(self) -> bool:
        """True if the first ones have ended."""
        there = {each.metadata.uid: each for each in self.kube.pods(self.ns)}
        now = [there.get(each.metadata.uid) for each in self.first.values()]
        return all(each is None or each.status.phase in ("Succeeded", "Failed") for each in now)

    def has_followers(self) -> bool:
        """True if others are there in place of those that have a controller, waiting or running."""
        old = {each.metadata.uid for each in self.first.values()}
        new = [each for each in self.kube.pods(self.ns) if each.metadata.uid not in old]
        return {_kind(each) for each in new} == {"batch", "service"}

    def replaced(self) -> bool:
        """True if others run in place of those that have a controller."""
        old = _places(self.first.values())
        return {_kind(each) for each in self.running() if each.metadata.uid not in old} == {"batch", "service"}

    def became(self) -> list[str]:
        """The end of the first pod of each kind, in the words of the document."""
        return [self._became(kind) for kind in KINDS]

    def _became(self, kind: str) -> str:
        uid = self.first[kind].metadata.uid
        there = {each.metadata.uid: each for each in self.kube.pods(self.ns)}
        last = there.get(uid, self._last[uid])
        words = [f"`{last.status.phase}`, `{last.status.reason}`" if uid in there else "deleted"]
        if (disrupted := condition(last, "DisruptionTarget")) is not None and disrupted.status == "True":
            words.append("disrupted")
        if any(_kind(each) == kind and each.metadata.uid != uid for each in there.values()):
            words.append("replaced")
        return ", ".join(words)


def _kind(each: Any) -> str:
    found: str = each.metadata.name.split("-")[0]
    return found


def _job(each: Any) -> int:
    return int(each.metadata.annotations[PREFIX + "job-id"])


def _places(pods: Any) -> Mapping[str, str]:
    return {each.metadata.uid: each.spec.node_name for each in pods}
