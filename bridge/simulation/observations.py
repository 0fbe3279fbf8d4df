"""Observations of the two clusters from outside the bridge, on which the invariants are checked.

A simulated cluster is observed as it is, at any moment.  A real cluster is polled, so an observation is a moment old, and the
two clusters are observed at different moments: a check needs two observations.  A real cluster may be large and has other
users.  So a poll reads only the pods of one namespace, their nodes, and the jobs that came since the first poll, a limited
number of each at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from bridge.errors import ContractError
from bridge.kube.responses import judged
from bridge.kube.transport import NO_PARAMS, Call
from bridge.kube.transport import Transport as KubeTransport
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.slurm.jobs import SimJob
from bridge.slurm.client import SlurmClient
from scheduler.model.hostlist import expand
from scheduler.model.slurm import Job, holds_nodes, is_ended

Object = dict[str, Any]
NODES_A_LOOK = 8
JOBS_A_LOOK = 25
DEADLINE_S = 10.0


class SeenJob(Protocol):
    """A job as Slurm shows it.  Times are epoch seconds.

    serial   identifies the job, and is never reused
    nodes    the nodes that it holds, in Slurm's order
    tasks    the number of tasks that it asked for
    places   node to the number of tasks that its resources there suffice for; {}: not known
    het_id   of a component of a heterogeneous job: the leader's id; 0: an ordinary job
    """

    @property
    def id(self) -> int: ...
    @property
    def serial(self) -> Hashable: ...
    @property
    def name(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def partition(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def nodes(self) -> tuple[str, ...]: ...
    @property
    def tasks(self) -> int: ...
    @property
    def places(self) -> Mapping[str, int]: ...
    @property
    def het_id(self) -> int: ...
    @property
    def starts(self) -> float: ...
    @property
    def ends(self) -> float: ...
    @property
    def preempted(self) -> float: ...
    @property
    def holds(self) -> bool: ...
    @property
    def ended(self) -> bool: ...


class KubeObservations(Protocol):
    """Pods and nodes as their API shows them, as JSON."""

    def pods(self) -> Iterable[Object]:
        """Every pod that can be seen."""
        ...

    def pod(self, namespace: str, name: str) -> Object | None:
        """One pod."""
        ...

    def node(self, name: str) -> Object | None:
        """One node."""
        ...


class SlurmObservations(Protocol):
    """Jobs as Slurm shows them."""

    def jobs(self) -> Iterable[SeenJob]:
        """All visible jobs, ended jobs included."""
        ...

    def job(self, job_id: int) -> SeenJob | None:
        """One job."""
        ...


# --- simulated: the present state ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KubeSimulatedObservations:
    """A simulated Kubernetes."""

    cluster: KubeCluster

    def pods(self) -> Iterable[Object]:
        """See KubeObservations."""
        return self.cluster.store.all("pods")

    def pod(self, namespace: str, name: str) -> Object | None:
        """See KubeObservations."""
        return self.cluster.store.get("pods", namespace, name)

    def node(self, name: str) -> Object | None:
        """See KubeObservations."""
        return self.cluster.store.get("nodes", "", name)


@dataclass(frozen=True, slots=True)
class SlurmSimulatedObservations:
    """A simulated Slurm."""

    cluster: SlurmCluster

    def jobs(self) -> Iterable[SimJob]:
        """See SlurmObservations."""
        return self.cluster.jobs.values()

    def job(self, job_id: int) -> SimJob | None:
        """See SlurmObservations."""
        return self.cluster.jobs.get(job_id)


# --- real: the state a moment ago ---------------------------------------------------------------------------------


class KubePolledObservations:
    """A real Kubernetes: the pods of one namespace, and the nodes on which they run."""

    def __init__(self, transport: KubeTransport, namespace: str) -> None:
        self._transport = transport
        self._namespace = namespace
        self._pods: dict[tuple[str, str], Object] = {}
        self._nodes: dict[str, Object] = {}

    async def look(self) -> None:
        """Observe again.  Raises RemoteError."""
        pods = (await self._get(f"/api/v1/namespaces/{quote(self._namespace)}/pods"))["items"]
        nodes_of_pods = sorted({pod["spec"]["nodeName"] for pod in pods if _is_on_node(pod)})
        nodes = {}
        for name in nodes_of_pods[:NODES_A_LOOK]:
            nodes[name] = await self._get(f"/api/v1/nodes/{quote(name)}")
            pods += (await self._get("/api/v1/pods", fieldSelector=f"spec.nodeName={name}"))["items"]
        self._pods = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in pods}
        self._nodes |= nodes

    async def _get(self, path: str, **params: str) -> Object:
        reply = await self._transport.exchange(Call("GET", path, params=params or NO_PARAMS, deadline_s=DEADLINE_S))
        judged("look", reply)
        try:
            read: Object = msgspec.json.decode(reply.body)
        except msgspec.DecodeError:
            raise ContractError("look", "Kubernetes", "the answer is no JSON", reply.status) from None
        return read

    def pods(self) -> Iterable[Object]:
        """See KubeObservations."""
        return self._pods.values()

    def pod(self, namespace: str, name: str) -> Object | None:
        """See KubeObservations."""
        return self._pods.get((namespace, name))

    def node(self, name: str) -> Object | None:
        """See KubeObservations."""
        return self._nodes.get(name)


def _is_on_node(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class ReadJob:
    """A SeenJob of a real Slurm."""

    job: Job

    @property
    def id(self) -> int:
        return self.job.id

    @property
    def serial(self) -> Hashable:
        return self.job.sluid or (self.job.id, self.job.submitted)

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def user(self) -> str:
        return self.job.user

    @property
    def partition(self) -> str:
        return self.job.partition

    @property
    def state(self) -> str:
        return " ".join(sorted(self.job.states))

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(expand(self.job.nodes)) if self.holds else ()

    @property
    def tasks(self) -> int:
        return self.job.tasks

    @property
    def places(self) -> Mapping[str, int]:
        """{}: the layout of tasks in a real Slurm is not read.  V3 checks the resources of the nodes."""
        return {}

    @property
    def het_id(self) -> int:
        return self.job.het_id or 0

    @property
    def starts(self) -> float:
        return self.job.starts or 0.0

    @property
    def ends(self) -> float:
        return self.job.ends or 0.0

    @property
    def preempted(self) -> float:
        """When its grace began; 0: it is not preempted."""
        return self.job.preempted or 0.0

    @property
    def holds(self) -> bool:
        return holds_nodes(self.job.states)

    @property
    def ended(self) -> bool:
        return is_ended(self.job.states)


class SlurmPolledObservations:
    """A real Slurm: the jobs that are newer than the first observation, and the jobs that were requested by id."""

    def __init__(self, client: SlurmClient) -> None:
        self._client = client
        self._jobs: dict[int, ReadJob] = {}
        self._before: int | None = None  # the newest job at the first observation
        self._asked: set[int] = set()

    async def look(self) -> None:
        """Observe again.  Raises RemoteError."""
        states = await self._client.states()
        if self._before is None:
            self._before = max(states, default=0)
        newer = {job_id for job_id in states if job_id > self._before} | (self._asked & states.keys())
        self._jobs = {job_id: job for job_id, job in self._jobs.items() if job_id in states}
        stale = sorted(i for i in newer if i not in self._jobs or self._jobs[i].job.states != states[i])
        for job_id in stale[:JOBS_A_LOOK]:
            if (job := await self._client.job(job_id)) is not None:
                self._jobs[job_id] = ReadJob(job)

    def jobs(self) -> Iterable[ReadJob]:
        """See SlurmObservations."""
        return self._jobs.values()

    def job(self, job_id: int) -> ReadJob | None:
        """See SlurmObservations.  The next observation reads a job that is not known yet."""
        self._asked.add(job_id)
        return self._jobs.get(job_id)
