"""Metrics of both clusters as the World has them: what waits and why, jobs, pods, nodes, and CPUs held and requested.

They are computed for each scrape, from facts alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from bridge.labels import BoundedLabels
from bridge.pace import Pace
from scheduler import names
from scheduler.model.kubernetes import Node, Pod, PodPhase
from scheduler.model.slurm import ENDED, States
from scheduler.place.fit import needs
from scheduler.state.phase import Phase
from scheduler.state.placeholder import Placeholder
from scheduler.state.pod_records import ITS_PLACE
from scheduler.state.workload import Workload
from scheduler.state.world import World

Values = list[tuple[float, dict[str, str]]]  # of a metric, with their labels
Register = Callable[[str, str, Callable[[], Values]], None]

UNBOUND = (Phase.GATHERING, Phase.UNSUBMITTED, Phase.QUEUED, Phase.GRANTED)
UNKNOWN = "unknown"
NO_PARTITION = "none"
# The state of a node in Slurm is several flags: the label value of the first of these that it has.
NODE_STATES = {
    "DOWN": "down",
    "FAIL": "fail",
    "NOT_RESPONDING": "not_responding",
    "POWERED_DOWN": "powered_down",
    "DRAIN": "drain",
    "MAINTENANCE": "maint",
    "RESERVED": "reserved",
    "ALLOCATED": "allocated",
    "MIXED": "mixed",
    "IDLE": "idle",
}
JOB_STATES = {"PENDING": "pending", "RUNNING": "running", "SUSPENDED": "suspended"}
KUBERNETES_STATES = ("ready", "cordoned", "not_ready")
# Reasons of PodScheduled=False that the bridge writes; a process that started later finds them on the pods.  Another client
# may write any other reason there, which must not take the place of a label value.
WRITTEN = frozenset(
    {
        names.PENDING,
        names.REFUSED,
        names.NO_NODE,
        names.NOT_MANAGED,
        names.UNAVAILABLE,
        names.LIMITED,
        names.GRANT_WAITS,
        names.GRANT_RELEASED,
        names.GATHERING,
        names.LEAVING,
        names.LACKS_RIGHTS,
        names.UNREADABLE,
        names.QUARANTINED,
    }
)
POD_STATES = ("waiting", "starting", "running", "ended")


@dataclass(slots=True)
class Counts:
    """What is counted object by object.

    waiting              workloads that wait, by why_waiting
    jobs                 live jobs, by the label value of JOB_STATES
    pods                 pods, by one of POD_STATES
    held_cpus            CPUs that Slurm granted
    bound_millicores     CPUs that unfinished pods with a node request, in thousandths
    """

    waiting: Counter[tuple[str, str]] = field(default_factory=Counter)
    jobs: Counter[str] = field(default_factory=Counter)
    pods: Counter[str] = field(default_factory=Counter)
    held_cpus: int = 0
    bound_millicores: int = 0


class WorldGauges:
    """Registers the metrics.  `count` comes before each scrape.

    world            returns the World of the bridge that runs now
    gauge, counter   register a metric: its name, its help, and what returns its values
    """

    def __init__(
        self, world: Callable[[], World], clock: Callable[[], float], gauge: Register, counter: Register
    ) -> None:
        self._world = world
        self._clock = clock
        self._reasons = BoundedLabels()
        self._counts = Counts()
        gauge("slurm_bridge_waiting_workloads", "workloads that wait for their bind, by reason", self._waiting)
        gauge("slurm_bridge_jobs", "jobs of slurm-bridge that have not ended, by state", self._jobs)
        counter("slurm_bridge_jobs_ended", "jobs of slurm-bridge that ended, by state", self._jobs_ended)
        gauge("slurm_bridge_pods", "pods of slurm-bridge by state", self._pods)
        gauge("slurm_bridge_nodes", "nodes by side and state", self._nodes)
        gauge("slurm_bridge_held_cpus", "CPUs that Slurm granted to jobs of slurm-bridge", self._held_cpus)
        gauge("slurm_bridge_bound_cpus", "CPUs that unfinished pods with a node request", self._bound_cpus)
        oldest = "age of the oldest grant with a pod that is not bound"
        gauge("slurm_bridge_oldest_unbound_grant_seconds", oldest, self._oldest_unbound_grant)

    async def count(self) -> None:
        """Count workloads, pods and jobs, in slices between which the loop goes on: there may be 100,000 of them."""
        counts, pace = Counts(), Pace(0, time.perf_counter)
        for _ in _counting(self._world(), counts):
            if pace.over():
                await pace.rest()
        self._counts = counts

    def _waiting(self) -> Values:
        found: Counter[tuple[str, ...]] = Counter()
        for why, count in self._counts.waiting.items():
            found[self._reasons.of(*why)] += count
        return [(count, {"reason": reason, "partition": partition}) for (reason, partition), count in found.items()]

    def _jobs(self) -> Values:
        return [(self._counts.jobs[state], {"state": state}) for state in _named(JOB_STATES)]

    def _jobs_ended(self) -> Values:
        ended = self._world().ended_jobs
        return [(ended[state], {"state": state.lower()}) for state in sorted(ENDED)]

    def _pods(self) -> Values:
        return [(self._counts.pods[state], {"state": state}) for state in POD_STATES]

    def _nodes(self) -> Values:
        world = self._world()
        slurm = Counter(_first(node.states, NODE_STATES) for node in (world.slurm_nodes or {}).values())
        kubernetes = Counter(kubernetes_state(node) for node in (world.nodes or {}).values())
        return [
            *((slurm[state], {"side": "Slurm", "state": state}) for state in _named(NODE_STATES)),
            *((kubernetes[state], {"side": "Kubernetes", "state": state}) for state in KUBERNETES_STATES),
        ]

    def _held_cpus(self) -> Values:
        return [(self._counts.held_cpus, {})]

    def _bound_cpus(self) -> Values:
        return [(self._counts.bound_millicores / 1000, {})]

    def _oldest_unbound_grant(self) -> Values:
        world = self._world()
        jobs = (world.job_of[key] for key in world.by_phase[Phase.GRANTED] if key in world.job_of)
        since = [job.granted_at for job in jobs if job.granted_at is not None]
        return [(max(0.0, self._clock() - min(since)) if since else 0.0, {})]


def _counting(world: World, counts: Counts) -> Iterator[None]:
    """Add all objects of the World to the counts.  After each `yield` the World may have changed."""
    for phase in UNBOUND:
        for key in tuple(world.by_phase[phase]):
            if key in world.workloads:
                counts.waiting[why_waiting(world, world.workloads[key], phase)] += 1
            yield
    for workload in tuple(world.workloads.values()):
        _count_pods(workload, counts)
        yield
    for job in tuple(world.placeholders.values()):
        if job.proven and job.alive:
            _count_job(job, counts)
        yield


def _count_pods(workload: Workload, counts: Counts) -> None:
    if workload.of_other_scheduler:
        return
    if workload.pod_counts.unbound == len(workload.pods):  # none has a node, and none has ended
        counts.pods["waiting"] += len(workload.pods)
        return
    for pod in workload.pods.values():
        state = pod_state(workload, pod)
        counts.pods[state] += 1
        if state in ("starting", "running"):
            counts.bound_millicores += needs(pod).get("cpu", 0)


def _count_job(job: Placeholder, counts: Counts) -> None:
    counts.jobs[_first(job.states, JOB_STATES)] += 1
    if job.holds_nodes and job.grant is not None:
        counts.held_cpus += sum(node.cpus for node in job.grant.everywhere)


def why_waiting(world: World, workload: Workload, phase: Phase) -> tuple[str, str]:
    """Why the workload waits, and in which partition.

    The reason is Slurm's own if its job waits there ("Licenses"), as read last; otherwise that of the pods' condition
    ("GangGathering").  "unknown": it was not read, or no pod shows one.  The partition is "none" before a submission.
    """
    if phase is Phase.QUEUED:
        job = world.job_of.get(workload.key)
        if job is not None and job.job is not None:
            return job.job.reason or UNKNOWN, job.job.partition or NO_PARTITION
        return UNKNOWN, world.partition_of.get(workload.key) or workload.asked_in or NO_PARTITION
    partition = workload.asked_in or NO_PARTITION
    for uid in workload.last_status:
        status = workload.status_about(ITS_PLACE, uid)
        if status is not None and status.condition:
            return status.condition, partition
    for pod in workload.pods.values():
        if pod.scheduled is not None and pod.scheduled.reason in WRITTEN:
            return pod.scheduled.reason, partition
    return UNKNOWN, partition


def pod_state(workload: Workload, pod: Pod) -> str:
    """One of POD_STATES; starting: it has a node, and its containers do not run yet."""
    if pod.finished:
        return "ended"
    if pod.phase is PodPhase.RUNNING:
        return "running"
    return "starting" if workload.node_of(pod) else "waiting"


def kubernetes_state(node: Node) -> str:
    """One of KUBERNETES_STATES."""
    if not node.ready:
        return "not_ready"
    return "cordoned" if node.unschedulable else "ready"


def _first(states: States, labels: Mapping[str, str]) -> str:
    """The label value of the first of these states that is set; "other": none of them."""
    return next((label for state, label in labels.items() if state in states), "other")


def _named(labels: Mapping[str, str]) -> list[str]:
    return [*labels.values(), "other"]
