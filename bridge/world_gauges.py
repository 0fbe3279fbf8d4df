"""Metrics of both clusters as the World has them: what waits and why, jobs, pods, nodes, and CPUs held and requested.

They are computed at each scrape, from facts alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from bridge.labels import BoundedLabels
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


class WorldGauges:
    """Registers the metrics.

    world            returns the World of the bridge that runs now
    gauge, counter   register a metric: its name, its help, and what returns its values
    """

    def __init__(
        self, world: Callable[[], World], clock: Callable[[], float], gauge: Register, counter: Register
    ) -> None:
        self._world = world
        self._clock = clock
        self._reasons = BoundedLabels()
        gauge("slurm_bridge_waiting_workloads", "workloads that wait for their bind, by reason", self._waiting)
        gauge("slurm_bridge_jobs", "jobs of slurm-bridge that have not ended, by state", self._jobs)
        counter("slurm_bridge_jobs_ended", "jobs of slurm-bridge that ended, by state", self._jobs_ended)
        gauge("slurm_bridge_pods", "pods of slurm-bridge by state", self._pods)
        gauge("slurm_bridge_nodes", "nodes by side and state", self._nodes)
        gauge("slurm_bridge_held_cpus", "CPUs that Slurm granted to jobs of slurm-bridge", self._held_cpus)
        gauge("slurm_bridge_bound_cpus", "CPUs that unfinished pods with a node request", self._bound_cpus)
        oldest = "age of the oldest grant with a pod that is not bound"
        gauge("slurm_bridge_oldest_unbound_grant_seconds", oldest, self._oldest_unbound_grant)

    def _waiting(self) -> Values:
        world = self._world()
        exact: Counter[tuple[str, str]] = Counter()
        for phase in UNBOUND:
            exact.update(why_waiting(world, world.workloads[key], phase) for key in world.by_phase[phase])
        found: Counter[tuple[str, ...]] = Counter()
        for why, count in exact.items():
            found[self._reasons.of(*why)] += count
        return [(count, {"reason": reason, "partition": partition}) for (reason, partition), count in found.items()]

    def _jobs(self) -> Values:
        counts: Counter[str] = Counter(_first(job.states, JOB_STATES) for job in _live_jobs(self._world()))
        return [(counts[state], {"state": state}) for state in _named(JOB_STATES)]

    def _jobs_ended(self) -> Values:
        ended = self._world().ended_jobs
        return [(ended[state], {"state": state.lower()}) for state in sorted(ENDED)]

    def _pods(self) -> Values:
        counts: Counter[str] = Counter()
        for workload in self._world().workloads.values():
            if _all_wait(workload):
                counts["waiting"] += len(workload.pods)
            elif not workload.of_other_scheduler:
                counts.update(pod_state(workload, pod) for pod in workload.pods.values())
        return [(counts[state], {"state": state}) for state in POD_STATES]

    def _nodes(self) -> Values:
        world = self._world()
        slurm = Counter(_first(node.states, NODE_STATES) for node in (world.slurm_nodes or {}).values())
        kubernetes = Counter(kubernetes_state(node) for node in (world.nodes or {}).values())
        return [
            *((slurm[state], {"side": "Slurm", "state": state}) for state in _named(NODE_STATES)),
            *((kubernetes[state], {"side": "Kubernetes", "state": state}) for state in KUBERNETES_STATES),
        ]

    def _held_cpus(self) -> Values:
        grants = (job.grant for job in _live_jobs(self._world()) if job.holds_nodes)
        return [(sum(node.cpus for grant in grants if grant is not None for node in grant.everywhere), {})]

    def _bound_cpus(self) -> Values:
        bound = (
            pod
            for workload in self._world().workloads.values()
            if not workload.of_other_scheduler and not _all_wait(workload)
            for pod in workload.pods.values()
            if pod_state(workload, pod) in ("starting", "running")
        )
        return [(sum(needs(pod).get("cpu", 0) for pod in bound) / 1000, {})]

    def _oldest_unbound_grant(self) -> Values:
        world = self._world()
        jobs = (world.job_of[key] for key in world.by_phase[Phase.GRANTED] if key in world.job_of)
        since = [job.granted_at for job in jobs if job.granted_at is not None]
        return [(max(0.0, self._clock() - min(since)) if since else 0.0, {})]


def why_waiting(world: World, workload: Workload, phase: Phase) -> tuple[str, str]:
    """Why the workload waits, and in which partition.

    The reason is Slurm's own if its job waits there ("Licenses"), as read last; otherwise that of the pods' condition
    ("GangGathering").  "unknown": it was not read, or no pod shows one.  The partition is "none" before a submission.
    """
    if phase is Phase.QUEUED:
        job = world.job_of.get(workload.key)
        reason = job.job.reason if job is not None and job.job is not None else ""
        return reason or UNKNOWN, world.partition_of.get(workload.key) or workload.asked_in or NO_PARTITION
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


def _live_jobs(world: World) -> Iterator[Placeholder]:
    return (job for job in world.placeholders.values() if job.proven and job.alive)


def _all_wait(workload: Workload) -> bool:
    """True if none of its pods has a node, and none has ended: known without a look at each of thousands of pods."""
    return not workload.of_other_scheduler and workload.pod_counts.unbound == len(workload.pods)
