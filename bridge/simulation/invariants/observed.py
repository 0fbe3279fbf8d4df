"""The facts that the checks share: both clusters as they were observed, and whose each job and pod is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bridge.simulation.invariants.patience import WHOLE_S
from bridge.simulation.invariants.pod_facts import full_name, gang_of, is_finished, keys_of, shown_job
from bridge.simulation.kube.objects import epoch
from bridge.simulation.observations import KubeObservations, Object, SeenJob, SlurmObservations
from bridge.simulation.tenant_history import TenantHistory
from scheduler import names

JOBS_REMEMBERED = 20_000
STORY_MOST = 1000


@dataclass(slots=True)
class Observed:
    """Both clusters as they were observed, what the bridge sent to them, and what others did.

    users        namespace to the Slurm user of the policy; if the policy changes, of the first policy
    tenants      the present and former users of each namespace by the policy; by default always `users`
    partitions   the partitions that the policy allows
    cluster      the id of this Kubernetes in job names
    exact        the observations show the present state of both clusters
    process      number of the bridge process
    born         when that process began, or first listed the bridge's pods
    lost_at      when slurmctld last lost jobs
    lost         id of each job that slurmctld lost, to when that was; Slurm may have reused the id
    calm_since   when the last fault ended; "inf" while there is one
    kube_ahead, slurm_ahead   by how many seconds the clock of that cluster is ahead of `clock`
    ends_pods    the bridge ends the pods that it bound, because of slurm-bridge uninstall --end-pods
    stands_s     the longest grace that counts, as `silent_node_s` of scheduler/tuning.py
    renamed      serial of a job to its name before its user gave it another name
    checked      number of checks, by invariant
    bind_sent    uid of a pod whose bind was sent to the time of the last one
    bound_by_others   uid of a pod that another client bound, to the time and the job id in its annotations
    requested    name and user of a job to the time of its first request by this process, or of its last request by another
    answered     ids that answers to submissions of this process showed; None: that is not observed
    """

    kube: KubeObservations
    slurm: SlurmObservations
    users: Mapping[str, str]
    clock: Callable[[], float]
    cluster: str
    scheduler_name: str = names.SCHEDULER_NAME
    partitions: frozenset[str] = frozenset({"main"})
    exact: bool = True
    process: int = 0
    born: float = float("-inf")
    lost_at: float = float("-inf")
    lost: dict[int, float] = field(default_factory=dict)
    calm_since: float = float("-inf")
    kube_ahead: float = 0.0
    slurm_ahead: float = 0.0
    ends_pods: bool = False
    stands_s: float = 300.0
    renamed: dict[object, str] = field(default_factory=dict)
    log: list[tuple[float, str]] = field(default_factory=list)
    checked: Counter[str] = field(default_factory=Counter)
    tenants: TenantHistory = field(init=False)
    bind_sent: dict[str, float] = field(default_factory=dict)
    bound_by_others: dict[str, tuple[float, int | None]] = field(default_factory=dict)
    requested: dict[tuple[str, str], float] = field(default_factory=dict)
    answered: set[int] | None = None
    _homes: dict[str, str] = field(default_factory=dict)  # workload key to namespace

    def __post_init__(self) -> None:
        self.tenants = TenantHistory.always(self.users)

    def note(self, what: str) -> None:
        """Add a line to the log that a failure shows."""
        self.log.append((self.clock(), what))
        if len(self.log) > 2 * STORY_MOST:
            del self.log[:STORY_MOST]

    def note_lost(self, job_ids: Iterable[int]) -> None:
        """Note that slurmctld has just lost these jobs."""
        self.lost_at = self.clock()
        self.lost |= dict.fromkeys(job_ids, self.lost_at)

    def since_lost_s(self, job_id: int) -> float:
        """Seconds since slurmctld lost a job of that id; "inf": it lost none."""
        return self.clock() - self.lost.get(job_id, float("-inf"))

    def note_bound_by_other(self, pod: Object, node: str, job_id: int | None) -> None:
        """Note that another client binds the pod.  job_id: the id of another job that it writes on the pod; None: none"""
        with_id = f", with the annotation of job {job_id}" if job_id is not None else ""
        self.note(f"another client binds {full_name(pod)} to {node}{with_id}")
        self.bound_by_others[pod["metadata"]["uid"]] = (self.clock(), job_id)

    def is_ours(self, job: SeenJob) -> bool:
        """True if the job is a placeholder of this bridge, by its name and its user."""
        named = names.parse_job_name(job.name)
        return named is not None and named[0] == self.cluster and self.tenants.was_given(job.user)

    def ours(self) -> list[SeenJob]:
        """The placeholders of this bridge that have not ended."""
        return [job for job in self.slurm.jobs() if not job.ended and self.is_ours(job)]

    def pods(self) -> list[Object]:
        """Every observed pod."""
        return list(self.kube.pods())

    def pod(self, namespace: str, name: str, uid: str) -> Object | None:
        """This incarnation of the pod; None: it is gone, and the API server refuses the write."""
        pod = self.kube.pod(namespace, name)
        return pod if pod is not None and pod["metadata"]["uid"] == uid else None

    def is_for(self, job: SeenJob, pod: Object) -> bool:
        """True if the job is the pod's own or its gang's: by its user, and by its name, or the name before it was renamed."""
        named = names.parse_job_name(self.renamed.get(job.serial, job.name))
        may_be = self.tenants.ever_gave(pod["metadata"]["namespace"], job.user)
        return may_be and named is not None and named[0] == self.cluster and named[1] in keys_of(pod)

    def own_jobs(self, pod: Object) -> Iterator[SeenJob]:
        """The living placeholders of this pod alone, also renamed ones.  Their user may not be that of the gang's job."""
        key = names.workload_key(pod["metadata"]["uid"])
        for job in self.slurm.jobs():
            named = names.parse_job_name(self.renamed.get(job.serial, job.name))
            if not job.ended and named == (self.cluster, key) and self.tenants.was_given(job.user):
                yield job

    def held_by(self, job: SeenJob) -> list[str]:
        """The nodes of the job, or of all components of a heterogeneous one."""
        return [node for part in self.parts(job) for node in part.nodes]

    def parts(self, job: SeenJob) -> list[SeenJob]:
        """All components of the heterogeneous job of which the job is a part; for another job, the job itself."""
        return [part for part in self.slurm.jobs() if part.het_id == job.het_id] if job.het_id else [job]

    def known_as(self, node: str) -> str:
        """The node's name in Slurm."""
        found = self.kube.node(node)
        return str((found["metadata"].get("labels") or {}).get(names.SLURM_NODE_LABEL, node)) if found else node

    def home(self, name: str, comment: str = "") -> str:
        """The namespace of the pod of that job.

        If the pod was never observed, this is the namespace in the first name of the job, or in the comment if the user named
        the job.  Later the user may give the job another name, although the pod is gone by then.
        """
        named = names.parse_job_name(name)
        assert named is not None
        if named[1] not in self._homes:
            if len(self._homes) > JOBS_REMEMBERED:
                self._homes.clear()
            for pod in self.kube.pods():
                self._homes.update(dict.fromkeys(keys_of(pod), pod["metadata"]["namespace"]))
        readable = name if "/" in name else comment.rpartition("; ")[2]
        return self._homes.setdefault(named[1], readable.partition("/")[0])

    def members(self, pod: Object) -> list[Object]:
        """The other pods of its gang that have not ended."""
        gang, uid = gang_of(pod), pod["metadata"]["uid"]
        if not gang:
            return []
        others = (other for other in self.kube.pods() if other["metadata"]["uid"] != uid and not is_finished(other))
        return [other for other in others if gang_of(other) == gang]

    def has_others_id(self, pod: Object) -> bool:
        """True if another client wrote the job id on the pod: the bridge sent no bind, or the bind of another client was
        first.

        The bridge may later write the id of the pod's own job, if that job holds the pod's place.  In a real cluster the pod
        may be older than these checks.
        """
        uid = pod["metadata"]["uid"]
        if uid in self.bound_by_others:
            _, written = self.bound_by_others[uid]
            job_id = shown_job(pod)
            return job_id is None or job_id == str(written)
        return self.exact and uid not in self.bind_sent

    def is_inherited(self, job: SeenJob) -> bool:
        """True if a former process requested the job.

        Either this process requested no job of this name and user; or the job started before this process began, or before
        its first such request, which Slurm refused or never received.
        """
        requested = self.requested.get((job.name, job.user), self.born)
        started = self.of_slurm(job.starts)
        return requested < self.born or (job.holds and (started < self.born or started + WHOLE_S <= requested))

    def of_kube(self, shown: str) -> float:
        """A time of Kubernetes, by the clock of the invariants."""
        return epoch(shown) - self.kube_ahead

    def of_slurm(self, shown: float) -> float:
        """A time of Slurm, by the clock of the invariants; 0: Slurm shows none."""
        return shown - self.slurm_ahead if shown else shown
