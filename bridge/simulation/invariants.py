"""Checks the invariants of ARCHITECTURE 7 by the state that both clusters show, without the facts of the bridge.

A request of the bridge is checked when it is sent (V2, V3, V5, V6, V7), because it may take effect later, when it is no
longer right.  The state of the clusters is checked after each effect (V1, V8), and a while after the last fault (V4, L1, L2,
L3, L4).

If both clusters are simulated, every check sees the true state and counts at once.  If one is real, a check sees the two
clusters as they were at two earlier moments: a violation counts if a second observation shows it, too.

The gang label shows which pods are a gang, and gang-size for the pods of a batch Job.  Groups of other controllers are not
checked here.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bridge.simulation.kube.objects import epoch, host_ports
from bridge.simulation.observations import KubeObservations, Object, SeenJob, SlurmObservations
from bridge.simulation.tenant_history import TenantHistory
from scheduler import names
from scheduler.model.hostlist import fold
from scheduler.model.quantity import amount
from scheduler.place.host_ports import ports_conflict
from scheduler.translate import values

# A bind may be in flight while its job ends: the facts of its decision are at most this old.
ON_ITS_WAY_S = 30.0
# The bridge observes a bind by another scheduler within this time.  Until then it could not consider the bind (V3).
UNHEARD_S = ON_ITS_WAY_S
# A workload whose job Slurm started is bound within this time (L3).
SOON_S = 60.0
# A waiting pod shows its reason within this time (L1).  If its job waits, it does so after 10 s (Q2); many pods do it in
# turn.
SAYS_S = 30.0
# If this many grants of a workload are released unused, it waits without end (L3).  These grants since the last fault count:
# the first one, and each later one whose nodes had all been granted in vain before.  A grant does not count if another pod of
# the bridge was bound to its nodes meanwhile: of two grants for one place, one is released.
GRANTS_IN_VAIN = 3
VAIN_REMEMBERED = 50  # unused grants that are remembered of one workload
# Within this time after its grant, all pods of a gang are bound, or none is (V4).
GANG_S = 30.0
# A pod whose job has ended is deleted with a short grace within this time after the longest grace that counts (L4).
DELETED_S = 45.0
# A process that was killed may have requested a job as a former user of the pods, and that job may start later.  The next
# process does not know that user.  It finds and ends the job within this time after its own start, or after the policy begins
# to give some namespace that user (V1).
FORMER_JOB_S = 30.0
# The bridge notices within this time, some polls, that Slurm reused an id.
GIVEN_AGAIN_S = 5.0
# Slurm's times are in whole seconds, by a clock that may differ from the bridge's.
CLOCKS_S = 2.0
WHOLE_S = 1.0  # a time that Slurm shows may be so much later
MAKES_JOBS = ("/job/submit", "/job/allocate")
# Seconds before the time limit at which services are moved, and other pods ended (S4b); the values of scheduler/tuning.py.
MOVES_BEFORE_S = 600.0
ENDS_BEFORE_S = 10.0  # the grace of a pod is over this long before the time limit
ENDS_MOST_BEFORE_S = 3600.0
MAX_REMEMBERED = 200
JOBS_REMEMBERED = 20_000
STORY_MOST = 1000

INVARIANTS: Mapping[str, str] = {
    "V1": "a workload has at most one running job",
    "V2": "a pod is bound only to nodes of its job",
    "V3": "a pod is bound only where it fits",
    "V4": "a gang is bound wholly or not at all",
    "V5": "no granted resource is given to two pods",
    "V6": "no foreign job is changed",
    "V7": "no pod is ended while its job lives",
    "V8": "each job has the user, account and partition that the policy allows",
    "L1": "every waiting pod shows why it waits",
    "L2": "no job is left without its pod",
    "L3": "the pods of each started job are bound",
    "L4": "no pod stays on its node long after its job",
}


class Violation(AssertionError):
    """A violation of an invariant.  at: when it was found, by the clock of the invariants"""

    def __init__(self, invariant: str, what: str, at: float) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant
        self.what = what
        self.at = at


@dataclass(frozen=True, slots=True)
class Finding:
    """A violated invariant in one observation.  about: the job or pod, the same text in every observation"""

    invariant: str
    about: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


@dataclass(slots=True)
class _Suspect:
    """A request that seems to violate an invariant.  It is judged again at observations that began after the request."""

    invariant: str
    judge: Callable[[], str]
    since: float
    contradicted: bool = False


def _raise(violation: Violation) -> None:
    raise violation


@dataclass(slots=True)
class Invariants:
    """Checks every request of the bridge, and the state of both clusters afterwards.

    users        namespace to the Slurm user of the policy; if the policy changes, of the first policy
    given        the present and former users of each namespace by the policy; by default always `users`
    partitions   the partitions that the policy allows
    cluster      the id of this Kubernetes in job names
    exact        the observations show the present state of both clusters
    on_broken    called with each violation; by default it is raised
    process      number of the bridge process
    born         when that process began
    lost_at      when slurmctld last lost jobs
    calm_since   when the last fault ended; "inf" while there is one
    kube_ahead, slurm_ahead   by how many seconds the clock of that cluster is ahead of `clock`
    ends_pods    the bridge ends the pods that it bound, because of slurm-bridge uninstall --end-pods
    stands_s     the longest grace that counts, as `silent_node_s` of scheduler/tuning.py
    renamed      serial of a job to its name before its user gave it another name
    checked      number of checks, by invariant
    """

    kube: KubeObservations
    slurm: SlurmObservations
    users: Mapping[str, str]
    clock: Callable[[], float]
    cluster: str
    scheduler_name: str = names.SCHEDULER_NAME
    partitions: frozenset[str] = frozenset({"main"})
    exact: bool = True
    on_broken: Callable[[Violation], None] = _raise
    process: int = 0
    born: float = float("-inf")
    lost_at: float = float("-inf")
    calm_since: float = float("-inf")
    kube_ahead: float = 0.0
    slurm_ahead: float = 0.0
    ends_pods: bool = False
    stands_s: float = 300.0
    renamed: dict[object, str] = field(default_factory=dict)
    log: list[tuple[float, str]] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    checked: Counter[str] = field(default_factory=Counter)
    tenants: TenantHistory = field(init=False)
    _sent: set[str] = field(default_factory=set)  # uids of pods whose bind was sent
    # Uid of a pod that another scheduler bound, to the time and the job id in its annotations.
    _others: dict[str, tuple[float, int | None]] = field(default_factory=dict)
    _served: dict[object, str] = field(default_factory=dict)  # job serial to the pod that it was given to
    _suspects: list[_Suspect] = field(default_factory=list)
    _open_findings: dict[tuple[str, str], float] = field(
        default_factory=dict
    )  # finding to the time of its first observation
    _reported: set[tuple[str, str]] = field(default_factory=set)
    # Serial of a job that holds nodes without a bound pod, to the job and the jobs of pods that were bound there before.
    _idle: dict[object, tuple[SeenJob, set[str]]] = field(default_factory=dict)
    # Name and user of a job to the time of its first request by this process, or of its last request by another one.
    _requested: dict[tuple[str, str], float] = field(default_factory=dict)
    _used: set[object] = field(default_factory=set)  # serials of jobs that hold nodes and for which a pod was bound
    # Workload key to the end times and nodes of its unused grants.
    _in_vain: dict[str, deque[tuple[float, frozenset[str]]]] = field(default_factory=dict)
    _homes: dict[str, str] = field(default_factory=dict)  # workload key to namespace

    def __post_init__(self) -> None:
        self.tenants = TenantHistory.always(self.users)

    def note(self, what: str) -> None:
        """Add a line to the log that a failure shows."""
        self.log.append((self.clock(), what))
        if len(self.log) > 2 * STORY_MOST:
            del self.log[:STORY_MOST]

    def note_bound_by_other(self, pod: Object, node: str, job_id: int | None) -> None:
        """Note that another client binds the pod.  job_id: the id of another job that it writes on the pod; None: none"""
        claim = f", with the annotation of job {job_id}" if job_id is not None else ""
        self.note(f"another client binds {_name(pod)} to {node}{claim}")
        self._others[pod["metadata"]["uid"]] = (self.clock(), job_id)

    def _note_violation(self, invariant: str, what: str) -> None:
        violation = Violation(invariant, what, self.clock())
        if len(self.violations) < MAX_REMEMBERED:
            self.violations.append(violation)
        self.on_broken(violation)

    def _judge(self, invariant: str, judge: Callable[[], str]) -> bool:
        """Check a request by *judge*, which returns the violation, or "".  Returns True if none is known now."""
        self.checked[invariant] += 1
        if not self.exact:
            self._suspects.append(_Suspect(invariant, judge, self.clock()))
            return True
        what = judge()
        if what:
            self._note_violation(invariant, what)
        return not what

    # --- ownership of jobs ----------------------------------------------------------------------------------------------

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

    # --- requests of the bridge -----------------------------------------------------------------------------------

    def sent_to_slurm(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        """Check a request to Slurm: no write on a foreign job as its user (V6), no job of a user outside the policy (V8)."""
        user = headers.get("X-SLURM-USER-NAME", "")
        if method == "POST" and target.endswith(MAKES_JOBS):
            self._makes(json.loads(body), user)
            return
        if method == "DELETE" and target.endswith("/jobs/"):
            meant = json.loads(body)
            for job_id in meant["jobs"]:
                self._touches(method, int(job_id), user, meant["job_name"])
            return
        match = re.search(r"/job/(\d+)", target)
        if method == "GET" or match is None or "/slurmdb/" in target:
            return
        if self.clock() - self.lost_at >= GIVEN_AGAIN_S:  # before that, Slurm may have reused the id for another job
            self._touches(method, int(match[1]), user, None)
            if (account := json.loads(body or b"{}").get("account")) is not None:
                self._moves(int(match[1]), user, account)

    def _makes(self, asked: Object, user: str) -> None:
        """Check new jobs of that user (V8)."""
        sent = self.clock()
        for job in asked.get("jobs") or [asked["job"]]:
            self.note(f"makes {job['name']} as {user}, account {job.get('account', '')!r}")
            if self._requested.get((job["name"], user), float("-inf")) < self.born:
                self._requested.pop((job["name"], user), None)  # so that the newest entries are the last
                self._requested[job["name"], user] = sent
            if len(self._requested) > MAX_REMEMBERED:
                del self._requested[next(iter(self._requested))]
            self._judge("V8", partial(self._not_given, job["name"], user, job.get("account", ""), sent))

    def _moves(self, job_id: int, user: str, account: str) -> None:
        """Check the change of a waiting job to another account (V8)."""
        sent = self.clock()

        def not_given() -> str:
            job = self.slurm.job(job_id)
            return self._not_given(job.name, user, account, sent) if job is not None and self.is_ours(job) else ""

        self._judge("V8", not_given)

    def _not_given(self, name: str, user: str, account: str, sent: float) -> str:
        """A sentence if the policy did not allow this user and account in the job's namespace when it was sent."""
        named = names.parse_job_name(name)
        if named is None or named[0] != self.cluster or self.tenants.gives(self._home(name), user, account, sent):
            return ""
        return f"{name} is asked for as {user}, account {account or 'by default'}, which the policy does not allow"

    def _touches(self, method: str, job_id: int, user: str, name: str | None) -> None:
        """Check a write on a job (V6).  name: of the job that the request means; None: any job with that id"""
        self.note(f"{method} job {job_id} as {user}")

        def foreign() -> str:
            job = self.slurm.job(job_id)
            ours = job is not None and (self.is_ours(job) or job.serial in self.renamed)
            if job is None or ours or job.user != user or name not in (None, job.name):
                return ""
            return f"{method} of foreign job {job_id} ({job.name} of {job.user})"

        foreign()  # an observer that does not know the job reads it from now on
        self._judge("V6", foreign)

    def sent_to_kube(self, method: str, path: str, body: bytes | None) -> None:
        """Check a request to Kubernetes when it is sent."""
        match = re.fullmatch(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(/binding|/eviction)?", path)
        if match is None or method == "GET":
            return
        namespace, name, sent = match[1], match[2], json.loads(body) if body else {}
        options = sent.get("deleteOptions", sent)
        uid = sent.get("metadata", {}).get("uid") or options.get("preconditions", {}).get("uid")
        if uid is None:
            self._note_violation("V7", f"a write on pod {namespace}/{name} without its uid")
            return
        if match[3] == "/binding":
            self._bind(namespace, name, uid, sent["target"]["name"], int(sent["metadata"]["annotations"][names.JOB_ID]))
            return
        pod = self._pod(namespace, name, uid)
        deadline = sent.get("spec", {}).get("activeDeadlineSeconds")
        if pod is None:
            return
        if match[3] == "/eviction":
            self._harm(pod, "eviction of", not_before_s=max(MOVES_BEFORE_S, 60.0 + _may_end_before_s(pod)))
        elif deadline is not None:
            started, now = pod["status"].get("startTime"), self.clock()
            over = now if started is None else max(now, self._of_kube(started) + deadline)
            self._harm(pod, f"deadline of {deadline} s for", not_before_s=_may_end_before_s(pod), at=over)
        elif method == "DELETE":
            self._harm(pod, method)

    def _pod(self, namespace: str, name: str, uid: str) -> Object | None:
        """This incarnation of the pod; None: it is gone, and the API server refuses the write."""
        pod = self.kube.pod(namespace, name)
        return pod if pod is not None and pod["metadata"]["uid"] == uid else None

    def _bind(self, namespace: str, name: str, uid: str, node: str, job_id: int) -> None:
        full_name, sent = f"{namespace}/{name}", self.clock()
        pod = self._pod(namespace, name, uid)
        if self.exact and (pod is None or is_settled(pod)):
            return  # the API server refuses this bind
        self.note(f"bind {full_name} to {node} for job {job_id}")
        self._sent.add(uid)
        if sent - self.lost_at < ON_ITS_WAY_S:
            return  # slurmctld has just lost jobs, which the bridge could not know
        self.slurm.job(job_id)  # an observer that does not know the job reads it from now on

        def if_bound(judge: Callable[[Object, SeenJob | None], str]) -> Callable[[], str]:
            """If judged at once, the pod is about to be bound.  If judged later, the pod must be bound by this bind."""

            def judged() -> str:
                now = self._pod(namespace, name, uid)
                if now is None or not (self.exact or _bound_by(now, node, job_id)):
                    return ""
                return judge(now, self.slurm.job(job_id))

            return judged

        granted = self._judge("V2", if_bound(lambda pod, job: self._not_granted(pod, node, job, job_id, sent)))
        if granted and self._judge("V3", if_bound(lambda pod, _: self._too_much(pod, node))):
            self._judge("V5", if_bound(lambda pod, job: self._given_twice(pod, node, job)))

    def is_for(self, job: SeenJob, pod: Object) -> bool:
        """True if the job is the pod's own or its gang's: by its user, and by its name, or the name before it was renamed."""
        named = names.parse_job_name(self.renamed.get(job.serial, job.name))
        may_be = self.tenants.ever_gave(pod["metadata"]["namespace"], job.user)
        return may_be and named is not None and named[0] == self.cluster and named[1] in _keys(pod)

    def _held_by(self, job: SeenJob) -> list[str]:
        """The nodes of the job, or of all components of a heterogeneous one."""
        return [node for part in self._parts(job) for node in part.nodes]

    def _parts(self, job: SeenJob) -> list[SeenJob]:
        """All components of the heterogeneous job of which the job is a part; for another job, the job itself."""
        return [part for part in self.slurm.jobs() if part.het_id == job.het_id] if job.het_id else [job]

    def _not_granted(self, pod: Object, node: str, job: SeenJob | None, job_id: int, sent: float) -> str:
        pod_name = _name(pod)
        if job is None:
            return f"{pod_name} is bound for job {job_id}, which does not exist"
        if not self.is_for(job, pod):
            return f"{pod_name} is bound for the job of another workload: {job.name}"
        if job.ended and (ago := sent - self._of_slurm(job.ends)) > ON_ITS_WAY_S:
            return f"{pod_name} is bound for job {job.id}, {job.state} {ago:.0f} s ago"
        found = self.kube.node(node)
        if found is None:
            return f"{pod_name} is bound to {node}, which does not exist"
        known_as = (found["metadata"].get("labels") or {}).get(names.SLURM_NODE_LABEL, node)
        held = self._held_by(job)
        if held and known_as not in held:
            return f"{pod_name} is bound to {node}, job {job.id} holds {fold(held)}"
        return ""

    def _too_much(self, pod: Object, node: str) -> str:
        found = self.kube.node(node)
        if found is None:
            return ""  # V2 reports that
        wants, uid, ports = Counter(_requests(pod)), pod["metadata"]["uid"], host_ports(pod)
        taken = Counter(wants)
        for other in self.kube.pods():
            is_there = other["spec"].get("nodeName") == node and other["metadata"]["uid"] != uid
            bound_at, _ = self._others.get(other["metadata"]["uid"], (float("-inf"), None))
            if is_there and not _finished(other) and self.clock() - bound_at > UNHEARD_S:
                taken += Counter(_requests(other))
                if ports_conflict(ports, host_ports(other)):
                    return f"{_name(pod)} is bound to {node}, where {_name(other)} has its host port"
        # Another client may have bound more than there is of a resource that this pod does not request.
        for resource in +wants:
            used, has = (
                taken[resource],
                amount(resource, found["status"]["allocatable"].get(resource, "0"), round_up=False),
            )
            if used > has:
                return f"{_name(pod)} is bound to {node}: {used} {resource} of {has}"
        return ""

    def _given_twice(self, pod: Object, node: str, job: SeenJob | None) -> str:
        """V5: the grant of a single pod serves only that pod; the grant of a gang serves as many pods as it has places."""
        if job is None:
            return ""  # V2 reports that
        pod_name, uid = _name(pod), pod["metadata"]["uid"]
        if job.tasks == 1 and not job.het_id and not _gang(pod):
            first = self._served.setdefault(job.serial, uid)
            return f"job {job.id} served pod {first} before {pod_name}" if first != uid else ""
        together = [
            other
            for other in self.kube.pods()
            if other["metadata"]["uid"] != uid
            and other["spec"].get("nodeName") == node
            and not _finished(other)
            and _said(other) in (str(job.id), str(job.het_id))
            and self.is_for(job, other)  # otherwise the pod shows an id that Slurm reused
        ]
        places = sum(part.places.get(self._known_as(node), 0) for part in self._parts(job))
        if places and len(together) + 1 > places:
            return f"{pod_name} is the pod number {len(together) + 1} on {node}, where job {job.id} has {places} places"
        return ""

    def _known_as(self, node: str) -> str:
        """The node's name in Slurm."""
        found = self.kube.node(node)
        return str((found["metadata"].get("labels") or {}).get(names.SLURM_NODE_LABEL, node)) if found else node

    def _harm(self, pod: Object, method: str, *, not_before_s: float | None = None, at: float | None = None) -> None:
        """Check a request that ends the pod, now or `at` that time (V7).

        not_before_s   the pod may be ended so many seconds before the time limit of its job (S4b); None: not before its end
        """
        meta, sent = pod["metadata"], self.clock()
        pod_name = _name(pod)
        self.note(f"{method} pod {pod_name}")
        claimed = (meta.get("annotations") or {}).get(names.JOB_ID)
        if claimed is None or not pod["spec"].get("nodeName") or (self._claims(pod) and not self._may_be_lost(pod)):
            if self.exact:  # otherwise the pod may have been bound after its observation
                self._judge("V7", lambda: f"{pod_name} was never bound by the bridge, and the bridge ends it")
            return
        if self.ends_pods:
            return
        ends = sent if at is None else at
        self._judge("V7", lambda: self._job_lived(pod, self._job_of(pod, int(claimed), sent), sent, ends, not_before_s))

    def _job_of(self, pod: Object, claimed: int, sent: float) -> SeenJob | None:
        """The job that the pod names; if Slurm lost that job, the job that replaced it some time ago (S7).

        Slurm may have reused the id of the lost job for other pods of the gang, which run elsewhere.  The pod does not name
        its replacement yet.  So a replacement whose user the policy does not allow any more is not known to be the pod's job
        (V7).
        """
        job = self.slurm.job(claimed)
        node = self._known_as(pod["spec"]["nodeName"])
        if job is not None and _stood_alone(pod, job):
            job = None  # the pod's own job was lost, and a job of its gang got the id
        if job is not None and self.is_for(job, pod) and (job.ended or node in self._held_by(job)):
            return job
        own = (other for other in self.ours() if self.is_for(other, pod))
        own = (other for other in own if not _stood_alone(pod, other))
        given = (other for other in own if self.tenants.gives_now(self._home(other.name), other.user))
        holding = (other for other in given if other.holds and node in other.nodes)
        return next((other for other in holding if self._of_slurm(other.starts) < sent - ON_ITS_WAY_S), None)

    def _job_lived(self, pod: Object, job: SeenJob | None, sent: float, ends: float, not_before_s: float | None) -> str:
        pod_name = _name(pod)
        if job is None or not self.is_for(job, pod):
            return ""  # Slurm lost it
        if any(not other["spec"].get("nodeName") for other in self._members(pod)):
            return ""  # its gang could not be bound as a whole, so all its pods end (W9)
        if job.ended and (self.exact or self._of_slurm(job.ends) <= sent + CLOCKS_S):
            return ""
        if any("waiting" in container.get("state", {}) for container in pod["status"].get("containerStatuses") or ()):
            return ""  # the pod never started (S12)
        if job.preempted:
            return ""  # the time that is left is the pod's grace (S5)
        if not_before_s is not None and job.ends and ends >= self._of_slurm(job.ends) - not_before_s - CLOCKS_S:
            return ""
        return f"{pod_name} is ended while its job {job.id} is {job.state}"

    # --- the state of the clusters --------------------------------------------------------------------------------------

    def after(self) -> None:
        """Check V1 and V8 by the true state, after something took effect."""
        for finding in self._state():
            self._note_violation(finding.invariant, finding.what)

    def _state(self) -> Iterator[Finding]:
        ours = self.ours()
        self.checked["V1"] += len(ours)
        self.checked["V8"] += len(ours)
        running: dict[str, dict[int, SeenJob]] = {}  # job name to its running jobs; a heterogeneous job counts once
        for job in ours:
            if job.holds:
                running.setdefault(job.name, {})[job.het_id or job.id] = job
        for name, jobs in running.items():
            if len(jobs) > 1 and (count := len(jobs) - self._of_former_users(jobs.values())) > 1:
                yield Finding("V1", name, f"{count} running placeholders of {name}")
        self._note_grants(ours)
        for job in ours:
            home = self._home(job.name)
            if (
                home not in self.users
                or not self.tenants.ever_gave(home, job.user)
                or job.partition not in self.partitions
            ):
                what = f"job {job.id} ({job.name}) of {job.user} in {job.partition}"
                yield Finding("V8", str(job.id), what)

    def _of_former_users(self, jobs: Collection[SeenJob]) -> int:
        """How many users of these jobs of one name count as former users: a former process requested their jobs (V1).

        This process soon ends a job of a user whom the policy gives.  A job of any other user is foreign to it.
        """
        former = {
            job.user
            for job in jobs
            if self._is_inherited(job) and not self.tenants.gave_for(FORMER_JOB_S, job.user, self.born, self.clock())
        }
        return min(len(former), len({job.user for job in jobs}) - 1)

    def _is_inherited(self, job: SeenJob) -> bool:
        """True if a former process requested the job.

        Either this process requested no job of this name and user; or the job started before this process began, or before
        its first such request, which Slurm refused or never received.
        """
        requested = self._requested.get((job.name, job.user), self.born)
        started = self._of_slurm(job.starts)
        return requested < self.born or (job.holds and (started < self.born or started + WHOLE_S <= requested))

    def _note_grants(self, ours: list[SeenJob]) -> None:
        """Note the grants that ended without a bound pod (L3)."""
        holding = {job.serial: job for job in ours if job.holds and job.het_id in (0, job.id)}
        for serial in self._idle.keys() - holding.keys():
            job, before = self._idle.pop(serial)
            now, named = self.slurm.job(job.id), names.parse_job_name(job.name)
            if named is None or now is None or now.serial != serial or not now.ended:
                continue
            if not self.tenants.gives_now(self._home(job.name), job.user):  # the policy took the grant away
                continue
            if self._served_on(job.nodes) <= before:
                ended = self.clock(), frozenset(job.nodes)
                self._in_vain.setdefault(named[1], deque(maxlen=VAIN_REMEMBERED)).append(ended)
        self._used &= holding.keys()
        fresh = {serial: job for serial, job in holding.items() if serial not in self._used}
        if fresh:
            shown = {_said(pod) for pod in self.kube.pods() if not self._claims(pod)}
            for serial, job in fresh.items():
                if str(job.id) in shown:
                    self._used.add(serial)
                    self._idle.pop(serial, None)
                elif serial not in self._idle:
                    self._idle[serial] = job, self._served_on(job.nodes)
        while len(self._in_vain) > MAX_REMEMBERED:
            del self._in_vain[next(iter(self._in_vain))]

    def _served_on(self, nodes: Collection[str]) -> set[str]:
        """Ids of the jobs for which the bridge bound pods to these nodes."""
        there = (pod for pod in self.kube.pods() if pod["spec"].get("nodeName") in nodes and not self._claims(pod))
        return {job_id for pod in there if (job_id := _said(pod)) is not None}

    def _home(self, name: str) -> str:
        """The namespace of the pod of the job with that name; if the pod was never observed, the namespace in the name."""
        named = names.parse_job_name(name)
        assert named is not None
        if named[1] not in self._homes:
            if len(self._homes) > JOBS_REMEMBERED:
                self._homes.clear()
            for pod in self.kube.pods():
                self._homes.update(dict.fromkeys(_keys(pod), pod["metadata"]["namespace"]))
        return self._homes.get(named[1], name.partition("/")[0])

    def at_rest(self) -> Iterator[Finding]:
        """The violations of V4, L1, L2, L3 and L4, when faults ended long ago."""
        mine: dict[str, list[Object]] = {}
        ours = self.ours()
        for pod in self.kube.pods():
            if pod["spec"].get("schedulerName") != self.scheduler_name or _finished(pod):
                continue
            for key in _keys(pod):
                mine.setdefault(key, []).append(pod)
            self.checked["L1"] += 1
            shown = [one for one in pod["status"].get("conditions", []) if one["type"] == "PodScheduled"]
            if not pod["spec"].get("nodeName") and not any(condition.get("message") for condition in shown):
                yield Finding("L1", pod["metadata"]["uid"], f"{pod['metadata']['name']} waits and shows no reason")
            if pod["spec"].get("nodeName") and any(condition["status"] == "False" for condition in shown):
                yield Finding(
                    "L1", pod["metadata"]["uid"], f"{pod['metadata']['name']} is on a node and shows that it waits"
                )
            self.checked["L4"] += 1
            if overstays := self._overstays(pod, ours):
                yield Finding("L4", pod["metadata"]["uid"], overstays)
        self.checked["L2"] += len(ours)
        self.checked["L3"] += len(ours)
        for job in ours:
            named = names.parse_job_name(job.name)
            assert named is not None
            pods = mine.get(named[1], [])
            if self._shown(job.id, besides=pods) or (not pods and self._leader_was_renamed(job)):
                continue
            if not pods:
                yield Finding("L2", str(job.id), f"job {job.id} ({job.name}) is {job.state} and has no pod")
            if job.holds and not self._covers(job, pods) and self.clock() - self._of_slurm(job.starts) > SOON_S:
                waiting = ", ".join(pod["metadata"]["name"] for pod in pods)
                yield Finding("L3", str(job.id), f"job {job.id} is {job.state}, and {waiting} is not bound for it")
            yield from self._half_bound(job, pods)
        yield from self._granted_in_vain(mine)

    def _overstays(self, pod: Object, ours: list[SeenJob]) -> str:
        """A sentence if the pod stays on its node, without a job there, longer than any grace after its job (L4)."""
        job_id, node = _said(pod), pod["spec"].get("nodeName")
        if job_id is None or not job_id.isdecimal() or not node or self._claims(pod) or not self._speaks(node):
            return ""
        job, name = self.slurm.job(int(job_id)), self._known_as(node)
        if job is None or not job.ended or not self.is_for(job, pod):
            return ""
        if any(other.holds and name in other.nodes and self.is_for(other, pod) for other in ours):
            return ""
        over_s = self.clock() - max(self._of_slurm(job.ends), self.calm_since, self.born)
        if over_s <= self.stands_s + DELETED_S:
            return ""
        return f"{_name(pod)} is still on {node} {over_s:.0f} s after its job {job.id} was {job.state}"

    def _speaks(self, node: str) -> bool:
        """True if the kubelet reports the node as ready: otherwise no pod there can be ended."""
        there = self.kube.node(node)
        conditions = there["status"].get("conditions") or [] if there is not None else []
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    def _granted_in_vain(self, mine: Mapping[str, list[Object]]) -> Iterator[Finding]:
        """Waiting workloads whose grants are released again and again (L3).  mine: unfinished pods by workload key"""
        for key, grants in self._in_vain.items():
            waiting = [pod["metadata"]["name"] for pod in mine.get(key, ()) if not pod["spec"].get("nodeName")]
            ends = _repeated(grant for grant in grants if grant[0] >= self.calm_since)
            if waiting and len(ends) >= GRANTS_IN_VAIN:
                within = f"{ends[-1] - ends[0]:.0f} s"
                what = f"{len(ends)} grants of {', '.join(waiting)} were released within {within}, and it waits"
                yield Finding("L3", key, what)

    def _shown(self, job_id: int, besides: list[Object]) -> bool:
        """True if another pod on a node shows this id, which slurmctld reused after it lost its state.

        If the bridge was started after that, a hint of a RUNNING job is enough for it (ARCHITECTURE 4).  It learns the owner
        of the job when it reads the job in turn (S9).
        """
        uids = {pod["metadata"]["uid"] for pod in besides}
        others = (pod for pod in self.kube.pods() if pod["metadata"]["uid"] not in uids and not _finished(pod))
        return any(_said(pod) == str(job_id) and not self._claims(pod) for pod in others)

    def _leader_was_renamed(self, job: SeenJob) -> bool:
        """True if the leader of this component was renamed: a new process does not know it (docs/decisions/0003)."""
        leader = self.slurm.job(job.het_id) if job.het_id else None
        return leader is not None and leader.serial in self.renamed

    def _may_be_lost(self, pod: Object) -> bool:
        """True if the bridge may think that Slurm lost the job of this pod, whose job id another client wrote (S7, S4).

        The bridge cannot distinguish the two cases if the namespace is managed and an earlier process may have bound the pod.
        If faults occur at a start, the first list comes late.
        """
        meta = pod["metadata"]
        since, _ = self._others.get(meta["uid"], (self._of_kube(meta["creationTimestamp"]), None))
        return meta["namespace"] in self.users and since < self.born + ON_ITS_WAY_S

    def _claims(self, pod: Object) -> bool:
        """True if another client wrote the job id on the pod: the bridge sent no bind, or the bind of another client was
        first.

        The bridge may later write the id of the pod's own job, if that job holds the pod's place.  In a real cluster the pod
        may be older than these checks.
        """
        uid = pod["metadata"]["uid"]
        if uid in self._others:
            _, written = self._others[uid]
            job_id = _said(pod)
            return job_id is None or job_id == str(written)
        return self.exact and uid not in self._sent

    def _covers(self, job: SeenJob, pods: list[Object]) -> bool:
        """True if a pod is bound for the job, or runs on one of its nodes: the pod may show the id of a lost job.

        The components of a heterogeneous job end together, so a pod on the node of one of them covers all.
        """
        ids = {str(job.id), str(job.het_id)}
        nodes = {node for part in self._parts(job) for node in part.nodes}
        on_nodes = ((pod, pod["spec"].get("nodeName")) for pod in pods)
        return any(node and (_said(pod) in ids or node in nodes) for pod, node in on_nodes)

    def _half_bound(self, job: SeenJob, pods: list[Object]) -> Iterator[Finding]:
        """A finding if some members run on the nodes of the job, and others have been waiting for too long (V4).

        A pod that was created after the grant takes a free place of the gang; if it waits for that place, it shows that.  If
        all places are taken, or other pods wait for all free places, a new pod gets a job of its own.  The pod keeps this
        job if a place becomes free after a restart: the new process does not know what the job of the gang asked for (W5).
        It also keeps a job of another user than that of the gang's job: the policy changed between the two submissions.  The
        place of a pod that succeeded is not free: the gang needs no other pod in its stead (W5).  In a heterogeneous job the
        free place may be too small for a pod that has its own job; the sizes of the places are not compared here.
        """
        parts = self._parts(job)
        tasks = sum(part.tasks for part in parts)
        if not job.holds or tasks == 1 or job.het_id not in (0, job.id):
            return
        self.checked["V4"] += 1
        staying = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        bound = [pod for pod in staying if pod["spec"].get("nodeName")]
        unbound = [pod for pod in staying if not pod["spec"].get("nodeName")]
        starts = (shown for pod in bound if (shown := pod["status"].get("startTime")))
        granted = min([self._of_slurm(job.starts), *map(self._of_kube, starts)])  # the job may be a replacement (S7)
        without = [pod for pod in unbound if not self._waits_for_place(pod, granted)]
        taken = len(staying) - len(without) + self._succeeded_in(job)
        keeps = self._is_inherited(job) or len(parts) > 1
        waiting = [pod for pod in without if not any(keeps or own.user != job.user for own in self._own_jobs(pod))]
        made = (self._of_kube(pod["metadata"]["creationTimestamp"]) for pod in waiting)
        since = max([self._of_slurm(job.starts), *made])
        if bound and waiting and taken < tasks and self.clock() - since > GANG_S:
            what = f"{len(bound)} pods are bound for job {job.id} of {tasks} tasks; pods that wait: {len(waiting)}"
            yield Finding("V4", str(job.id), what)

    def _waits_for_place(self, pod: Object, granted: float) -> bool:
        """True if the pod shows that it waits for a place, and was created after the grant of the gang, at *granted*."""
        reasons = {condition.get("reason") for condition in pod["status"].get("conditions", [])}
        made = self._of_kube(pod["metadata"]["creationTimestamp"])
        return made > granted and names.GRANT_WAITS in reasons

    def _succeeded_in(self, job: SeenJob) -> int:
        """The number of pods that succeeded on a place of the job."""
        succeeded = (pod for pod in self.kube.pods() if pod["status"].get("phase") == "Succeeded")
        return sum(_said(pod) == str(job.id) and not self._claims(pod) for pod in succeeded)

    def _own_jobs(self, pod: Object) -> Iterator[SeenJob]:
        """The living placeholders of this pod alone.  Their user may be another one than the user of the gang's job."""
        key = names.workload_key(pod["metadata"]["uid"])
        for job in self.ours():
            named = names.parse_job_name(job.name)
            if named is not None and named[1] == key:
                yield job

    def _of_kube(self, shown: str) -> float:
        """A time of Kubernetes, by the clock of the invariants."""
        return epoch(shown) - self.kube_ahead

    def _of_slurm(self, shown: float) -> float:
        """A time of Slurm, by the clock of the invariants; 0: Slurm shows none."""
        return shown - self.slurm_ahead if shown else shown

    def _members(self, pod: Object) -> list[Object]:
        """The other pods of its gang that have not ended."""
        gang, uid = _gang(pod), pod["metadata"]["uid"]
        if not gang:
            return []
        others = (other for other in self.kube.pods() if other["metadata"]["uid"] != uid and not _finished(other))
        return [other for other in others if _gang(other) == gang]

    # --- checks at each observation ------------------------------------------------------------------

    def check(self, began: float, calm_since: float) -> None:
        """Check the invariants after an observation: a violation counts if a second observation shows it, or if it lasts too
        long.

        began        when the observation began

        calm_since   when the last fault ended; "inf" while there is one
        """
        self.calm_since = calm_since
        self._suspects = [suspect for suspect in self._suspects if self._is_open(suspect, began)]
        now, findings = self.clock(), []
        if not self.exact:
            findings += [(finding, 0.0) for finding in self._state()]
        if now >= calm_since:
            findings += [(found, SAYS_S if found.invariant == "L1" else SOON_S) for found in self.at_rest()]
        before, self._open_findings = self._open_findings, {}
        for finding, patience_s in findings:
            key = (finding.invariant, finding.about)
            self._open_findings[key] = since = max(before.get(key, now), calm_since if patience_s else 0.0)
            if key in before and now - since >= patience_s and key not in self._reported:
                self._reported.add(key)
                self._note_violation(finding.invariant, finding.what)

    def _is_open(self, suspect: _Suspect, began: float) -> bool:
        """Judge the suspect by an observation that began then.  Returns True if it has to be judged again."""
        if began <= suspect.since:
            return True
        what = suspect.judge()
        if what and suspect.contradicted:
            self._note_violation(suspect.invariant, what)
        again, suspect.contradicted = bool(what) and not suspect.contradicted, True
        return again


def _name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _gang(pod: Mapping[str, Any]) -> str:
    """The key of the gang that the pod shows; "": none."""
    meta = pod["metadata"]
    if label := (meta.get("labels") or {}).get(names.PREFIX + names.GANG):
        return names.workload_key(f"gang\0{meta['namespace']}\0{label}")
    jobs = [owner for owner in meta.get("ownerReferences") or [] if owner["kind"] == "Job"]
    if jobs and names.PREFIX + names.GANG_SIZE in (meta.get("annotations") or {}):
        return names.workload_key(f"job\0{meta['namespace']}\0{jobs[0]['name']}\0{jobs[0]['uid']}")
    return ""


def _keys(pod: Mapping[str, Any]) -> frozenset[str]:
    """The keys of the workloads of which the pod may be a part: the pod itself, and its gang."""
    return frozenset({names.workload_key(pod["metadata"]["uid"]), _gang(pod)} - {""})


def _stood_alone(pod: Mapping[str, Any], job: SeenJob) -> bool:
    """True if the pod was bound for its own job, because its gang was complete, and this job is the gang's."""
    meta, named = pod["metadata"], names.parse_job_name(job.name)
    own = named is not None and named[1] == names.workload_key(meta["uid"])
    return not own and (meta.get("annotations") or {}).get(names.SIZE) == "1" and (job.tasks > 1 or bool(job.het_id))


def _may_end_before_s(pod: Object) -> float:
    """The longest time before the end of the job at which the pod may get SIGTERM: for its grace, or by its annotation."""
    grace_s = pod["spec"].get("terminationGracePeriodSeconds")
    try:
        asked_s = values.signal_s((pod["metadata"].get("annotations") or {}).get(names.PREFIX + names.SIGNAL, "0"))
    except values.Unreadable:
        asked_s = 0
    return min(ENDS_MOST_BEFORE_S, max(asked_s, ENDS_BEFORE_S + (30 if grace_s is None else grace_s)))


def _finished(pod: Mapping[str, Any]) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _bound_by(pod: Mapping[str, Any], node: str, job_id: int) -> bool:
    return bool(pod["spec"].get("nodeName") == node and _said(pod) == str(job_id))


def _said(pod: Mapping[str, Any]) -> str | None:
    """The id of the job for which the pod was bound, by its annotation."""
    shown: str | None = (pod["metadata"].get("annotations") or {}).get(names.JOB_ID)
    return shown


def is_settled(pod: Mapping[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"))


def _requests(pod: Mapping[str, Any]) -> dict[str, int]:
    total: dict[str, int] = {"pods": 1}
    for container in pod["spec"]["containers"]:
        for resource, quantity in (container.get("resources", {}).get("requests") or {}).items():
            total[resource] = total.get(resource, 0) + amount(resource, quantity, round_up=True)
    return total


def _repeated(grants: Iterable[tuple[float, frozenset[str]]]) -> list[float]:
    """The end times of the first unused grant, and of each later one if earlier ones had all of its nodes."""
    ends: list[float] = []
    known: set[str] = set()
    for at, nodes in grants:
        if not ends or nodes <= known:
            ends.append(at)
        known |= nodes
    return ends
