"""L3: grants that are released again and again, while the workload waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bridge.simulation.invariants.observed import Observed
from bridge.simulation.invariants.pod_facts import shown_job
from bridge.simulation.invariants.violation import Finding
from bridge.simulation.observations import Object, SeenJob
from scheduler import names

# If this many grants of a workload are released unused, it waits without end (L3).  These grants since the last fault count:
# the first one, and each later one whose nodes had all been granted in vain before.  A grant does not count if another pod of
# the bridge was bound to its nodes meanwhile: of two grants for one place, one is released.
GRANTS_IN_VAIN = 3
VAIN_REMEMBERED = 50  # unused grants that are remembered of one workload
WORKLOADS_REMEMBERED = 200


@dataclass(slots=True)
class UnusedGrants:
    """The grants that ended without a bound pod."""

    seen: Observed
    # Serial of a job that holds nodes without a bound pod, to the job and the jobs of pods that were bound there before.
    _idle: dict[object, tuple[SeenJob, set[str]]] = field(default_factory=dict)
    _used: set[object] = field(default_factory=set)  # serials of jobs that hold nodes and for which a pod was bound
    # Workload key to the end times and nodes of its unused grants.
    _in_vain: dict[str, deque[tuple[float, frozenset[str]]]] = field(default_factory=dict)

    def note(self, ours: list[SeenJob]) -> None:
        """Note the grants that ended without a bound pod (L3)."""
        holding = {job.serial: job for job in ours if job.holds and job.het_id in (0, job.id)}
        for serial in self._idle.keys() - holding.keys():
            job, before = self._idle.pop(serial)
            now, named = self.seen.slurm.job(job.id), names.parse_job_name(job.name)
            if named is None or now is None or now.serial != serial or not now.ended:
                continue
            if not self.seen.tenants.gives_now(self.seen.home(job.name), job.user):  # the policy took the grant away
                continue
            if self._served_on(job.nodes) <= before:
                ended = self.seen.clock(), frozenset(job.nodes)
                self._in_vain.setdefault(named[1], deque(maxlen=VAIN_REMEMBERED)).append(ended)
        self._used &= holding.keys()
        fresh = {serial: job for serial, job in holding.items() if serial not in self._used}
        if fresh:
            shown = {shown_job(pod) for pod in self.seen.kube.pods() if not self.seen.has_others_id(pod)}
            for serial, job in fresh.items():
                if str(job.id) in shown:
                    self._used.add(serial)
                    self._idle.pop(serial, None)
                elif serial not in self._idle:
                    self._idle[serial] = job, self._served_on(job.nodes)
        while len(self._in_vain) > WORKLOADS_REMEMBERED:
            del self._in_vain[next(iter(self._in_vain))]

    def findings(self, mine: Mapping[str, list[Object]]) -> Iterator[Finding]:
        """Waiting workloads whose grants are released again and again (L3).  mine: unfinished pods by workload key"""
        for key, grants in self._in_vain.items():
            waiting = [pod["metadata"]["name"] for pod in mine.get(key, ()) if not pod["spec"].get("nodeName")]
            ends = _repeated(grant for grant in grants if grant[0] >= self.seen.calm_since)
            if waiting and len(ends) >= GRANTS_IN_VAIN:
                within = f"{ends[-1] - ends[0]:.0f} s"
                what = f"{len(ends)} grants of {', '.join(waiting)} were released within {within}, and it waits"
                yield Finding("L3", key, what)

    def _served_on(self, nodes: Collection[str]) -> set[str]:
        """Ids of the jobs for which the bridge bound pods to these nodes."""
        there = (
            pod
            for pod in self.seen.kube.pods()
            if pod["spec"].get("nodeName") in nodes and not self.seen.has_others_id(pod)
        )
        return {job_id for pod in there if (job_id := shown_job(pod)) is not None}


def _repeated(grants: Iterable[tuple[float, frozenset[str]]]) -> list[float]:
    """The end times of the first unused grant, and of each later one if earlier ones had all of its nodes."""
    ends: list[float] = []
    known: set[str] = set()
    for at, nodes in grants:
        if not ends or nodes <= known:
            ends.append(at)
        known |= nodes
    return ends
