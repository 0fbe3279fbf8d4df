"""Both clusters' logs of one run, joined: which job was which workload's, and when nothing was broken on purpose."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from integration.checker.accounting import Record, hosts
from integration.checker.audit import Audit, Harm, Pod
from integration.checker.journal import Interval, Journal, without
from integration.checker.rest_log import RestLog
from integration.checker.running_bridges import BRIDGE
from integration.checker.slurm_log import JobHistory, SlurmLog

OURS = re.compile(r"~(k[0-9a-f]{8})\.([0-9a-f]{16})\Z")
SAME_MOMENT_S = 0.02  # two log lines of one moment
CLOCKS_S = 1.1  # slurmdbd's times are whole seconds, rounded down
# A bind, or the end of a pod, is decided by facts that are at most so old when the request is seen: while something is
# broken on purpose, and otherwise.  Slurm is polled once a second, and a request may wait for others (X1).
ON_ITS_WAY_S, CALM_WAY_S = 30.0, 5.0
IN_FORCE_S = 120.0  # settings may have effects for so long after they were changed
DOWN_S = 5.0  # slurmctld is considered away for so long before the start that the log shows


@dataclass(slots=True, eq=False)
class Job:
    """One job: its history by slurmctld's log, and its records.

    key        of its workload, from its name; "": it is no placeholder of this cluster
    scheduler  schedulerName of the bridge whose mark its name has; "" likewise
    serves     pods of its bridge that were bound for it, and whose own job it may be
    named_by   pods on which a bridge wrote its id, with the bind or later
    """

    history: JobHistory
    records: list[Record]
    key: str = ""
    scheduler: str = ""
    serves: list[Pod] = field(default_factory=list)
    named_by: list[Pod] = field(default_factory=list)

    @property
    def last(self) -> Record:
        return self.records[-1]

    @property
    def name(self) -> str:
        return self.last.name

    @property
    def shown(self) -> str:
        return f"job {self.history.id} ({self.name} of {self.last.user})"

    def may_serve(self, pod: Pod) -> bool:
        """False if another bridge schedules the pod."""
        return pod.scheduler in ("", self.scheduler)

    def had(self, begin: float, end: float) -> list[frozenset[str]]:
        """The nodes of each time that it held nodes, as far as that time lies between the two."""
        recorded = frozenset[str]().union(*(record.nodes for record in self.records))
        return [
            frozenset(hosts(nodes)) or recorded
            for since, until, nodes in self.history.held()
            if since <= end and until >= begin
        ]

    def given(self, begin: float, end: float) -> Mapping[str, float]:
        """The most of each resource that it was given at any time between the two; {}: slurmdbd does not say it.

        A job that was requeued, or that gave up nodes, has a record for each time.
        """
        ends = [record.submitted for record in self.records[1:]] + [float("inf")]
        first = self.records[0]
        then = [
            record.tres
            for record, until in zip(self.records, ends, strict=True)
            if (record is first or record.submitted <= end) and until + CLOCKS_S >= begin
        ]
        if not all(then):
            return {}
        return {kind: max(tres.get(kind, 0.0) for tres in then) for kind in set().union(*then)}


Versions = list[tuple[float, Mapping[str, Any]]]  # settings, and since when


class Users(frozenset[Any]):
    """The users that policies name; everybody, if none was recorded or one is a template."""

    def __contains__(self, user: object) -> bool:
        return not self or any("{" in str(each) for each in self) or super().__contains__(user)


@dataclass(slots=True)
class Evidence:
    """What is known of one run.

    unnamed   jobs of slurmctld's log that slurmdbd does not know: nothing can be said of them
    calm      when a bridge ran and nothing was broken, stopped or frozen, by its schedulerName
    here      UIDs of the pods at the end; None: unknown
    ran       when each bridge ran and reached the API server, by its schedulerName
    policies  those of the journal and of installed bridges, by schedulerName, and since when, the oldest first
    tunings   their settings `tuning`, likewise
    tenants   Slurm users that the policies of each bridge name, by its schedulerName
    """

    audit: Audit
    slurm: SlurmLog
    records: list[Record]
    journal: Journal = field(default_factory=Journal)
    here: frozenset[str] | None = None
    rest: RestLog = field(default_factory=RestLog)
    jobs: list[Job] = field(default_factory=list)
    unnamed: int = 0
    calm: dict[str, list[Interval]] = field(default_factory=dict)
    ran: dict[str, list[Interval]] = field(default_factory=dict)
    policies: dict[str, Versions] = field(default_factory=dict)
    tunings: dict[str, Versions] = field(default_factory=dict)
    tenants: dict[str, Users] = field(default_factory=dict)
    # None: slurmdbd does not know it
    _by_id: dict[int, list[tuple[JobHistory, Job | None]]] = field(default_factory=dict)
    _by_leader: dict[int, list[Job]] = field(default_factory=dict)
    _by_name: dict[str, list[Job]] = field(default_factory=dict)
    _own: dict[str, Pod] = field(default_factory=dict)  # by workload key
    _gangs: dict[str, list[Pod]] = field(default_factory=dict)
    _harms: dict[str, list[Harm]] = field(default_factory=dict)  # by the UID of the pod

    def __post_init__(self) -> None:
        self._take_policies()
        self._take_jobs()
        self._own = {_sha(pod.uid, 16): pod for pod in self.audit.pods.values()}
        for pod in self.audit.pods.values():
            self._take_pod(pod)
        for harm in self.audit.harms:
            self._harms.setdefault(harm.pod.uid, []).append(harm)
        away = [(start - DOWN_S, served) for start, served in self.slurm.starts]
        # A replica that takes over knows nothing of what its predecessor was about to do: the limits begin anew.
        taken_over = [(at, at) for at in self.audit.bridges.takeovers]
        self.ran = {
            scheduler: _merged(watches) for scheduler, watches in self.audit.bridges.ran(self.audit.end).items()
        }
        holes = away + taken_over + self.journal.faults
        self.calm = {scheduler: without(ran, holes) for scheduler, ran in self.ran.items()}

    def _take_policies(self) -> None:
        self.policies = _together(self.journal.policies, self.audit.bridges.policies)
        self.tunings = _together(self.journal.tunings, self.audit.bridges.tunings)
        for scheduler, policies in self.policies.items():
            self.tenants[scheduler] = Users(rule.get("user") for _, policy in policies for rule in rules_of(policy))

    def _take_jobs(self) -> None:
        schedulers = {BRIDGE, *(pod.scheduler for pod in self.audit.pods.values())} - {""}
        bridges = {_mark(self.audit.system, name): name for name in schedulers}
        records = self._records()
        for history in self.slurm.histories:
            job = None
            if its := records.get(history):
                whose = OURS.search(its[-1].name)
                ours = (whose[2], bridges[whose[1]]) if whose and whose[1] in bridges else ("", "")
                job = Job(history, its, *ours)
                self.jobs.append(job)
                self._by_leader.setdefault(history.leader, []).append(job)
                self._by_name.setdefault(job.name, []).append(job)
            else:
                self.unnamed += 1
            self._by_id.setdefault(history.id, []).append((history, job))

    def _take_pod(self, pod: Pod) -> None:
        for key in gang_keys(pod.namespace, pod.labels):
            self._gangs.setdefault(key, []).append(pod)
        if pod.bind and pod.bind.client == BRIDGE and (job := self.job(pod.bind.job, pod.bind.at)):
            for part in self.parts(job) if self.may_be_its_own(pod, job) else ():
                part.serves.append(pod)
        named = (job for since, number in pod.jobs if (job := self.job(number, since)))
        for part in dict.fromkeys(part for job in named for part in self.parts(job)):
            part.named_by.append(pod)

    def _records(self) -> dict[JobHistory, list[Record]]:
        """The records of each job.  A record belongs to the last job of its id that had begun when it was submitted."""
        histories: dict[int, list[JobHistory]] = {}
        for history in self.slurm.histories:
            histories.setdefault(history.id, []).append(history)
        found: dict[JobHistory, list[Record]] = {}
        for record in sorted(self.records, key=lambda record: record.submitted):
            begun = [
                history for history in histories.get(record.id, ()) if history.begun <= record.submitted + CLOCKS_S
            ]
            if begun:
                found.setdefault(begun[-1], []).append(record)
        return found

    def ours(self) -> Iterator[Job]:
        """The placeholders, by their name."""
        return (job for job in self.jobs if job.key)

    def is_own(self, job: Job) -> bool:
        """True if it is a placeholder, and of a user of its bridge's policies."""
        return bool(job.key) and job.last.user in self.tenants.get(job.scheduler, Users())

    def is_cancelled(self, job: Job) -> bool:
        """True if the bridge cancelled it: as its user, because journeys act as the administrator."""
        history, last = job.history, job.last
        if history.over == float("inf") or last.state != "CANCELLED":
            return False
        ended_by = last.ended_by if last.ended_by is not None else history.killed_by
        if ended_by is None:
            return self.rest.a_bridge_cancelled({history.id, history.leader}, history.over)
        return ended_by == last.uid

    def facts_since(self, scheduler: str, at: float) -> float:
        """The earliest time of the facts on which a request of that bridge at that time may rest."""
        oldest = at - ON_ITS_WAY_S
        calm = [(max(begin, oldest), min(end, at)) for begin, end in self.calm.get(scheduler, ())]
        return max([oldest, *(end - CALM_WAY_S for begin, end in calm if end - begin > CALM_WAY_S)])

    def harms_of(self, pod: Pod) -> list[Harm]:
        """The requests that ended the pod, or were to end it."""
        return self._harms.get(pod.uid, [])

    def job(self, number: int | None, at: float) -> Job | None:
        """The job that had this id then, or last before; None also if slurmdbd does not know that job."""
        had = [job for history, job in self._by_id.get(number or 0, ()) if history.begun <= at]
        return had[-1] if had else None

    def parts(self, job: Job) -> list[Job]:
        """All components of the heterogeneous job that it is part of; of another job itself."""
        same = [each for each in self._by_leader[job.history.leader] if each.name == job.name]
        submitted = job.records[0].submitted  # a component that gave up nodes has a later record
        return [each for each in same if abs(each.records[0].submitted - submitted) <= CLOCKS_S] or [job]

    def certain(self, pod: Pod) -> bool:
        """False if its end may be missing in the log: it is not there now, and no request ended it."""
        return self.here is None or pod.uid in self.here or pod.over < float("inf")

    def node_of(self, pod: Pod) -> str:
        """The name in Slurm of the node that the pod was bound to; "": it was not."""
        return self.audit.nodes.get(pod.bind.node, pod.bind.node) if pod.bind is not None else ""

    def held(self, job: Job, begin: float, end: float) -> list[frozenset[str]]:
        """The nodes of the job, as Job.had; of a heterogeneous one those of all its components."""
        return [nodes for part in self.parts(job) for nodes in part.had(begin, end)]

    def pod_of(self, job: Job) -> Pod | None:
        """The pod whose own job it is by its key; None: a gang's, or of a pod that the log lacks."""
        return self._own.get(job.key)

    def may_be_its_own(self, pod: Pod, job: Job) -> bool:
        """False if another bridge schedules the pod, or the job is that of another pod.

        The pod of a bridge that works with another Slurm may name the id of any job of this one.
        """
        return job.may_serve(pod) and self.pod_of(job) in (None, pod)

    def members(self, job: Job) -> list[Pod]:
        """The pods of its workload: the one pod, or those of a gang that a label or a bind shows."""
        if own := self._own.get(job.key):
            return [own]
        return list(dict.fromkeys([*job.serves, *self._gangs.get(job.key, ())]))

    def last_of_gang(self, pod: Pod, until: float) -> float:
        """When the last pod of its gang was created, as far as before *until*; without a gang: when it was created."""
        gangs = (self._gangs.get(key, ()) for key in gang_keys(pod.namespace, pod.labels))
        came = [
            each.created for each in chain.from_iterable(gangs) if each.created is not None and each.created <= until
        ]
        assert pod.created is not None, "the log shows when it was created"
        return max([pod.created, *came])

    def named(self, name: str) -> list[Job]:
        """The jobs of that name."""
        return self._by_name[name]


def _mark(system: str, scheduler: str) -> str:
    """The mark in the names of a bridge's jobs: each schedulerName has its own.  system: UID of the namespace kube-system"""
    return "k" + _sha(system if scheduler in ("", BRIDGE) else f"{system}/{scheduler}", 8)


def gang_keys(namespace: str, labels: Mapping[str, str]) -> tuple[str, ...]:
    """The key of the gang that the label names; () without one."""
    label = labels.get("slurm-bridge/gang", "")
    return (_sha(f"gang\0{namespace}\0{label}", 16),) if label else ()


def workload_keys(uid: str, namespace: str, labels: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of the workloads that a pod may be part of: itself, and its gang."""
    return (_sha(uid, 16), *gang_keys(namespace, labels))


def in_force(versions: Versions, begin: float, end: float) -> list[Mapping[str, Any]]:
    """The settings that may have had an effect at any time between the two."""
    ends = [at for at, _ in versions[1:]] + [float("inf")]
    return [each for (at, each), until in zip(versions, ends, strict=False) if at <= end and until >= begin]


def rules_of(policy: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Its rules in order, and the default at the end."""
    return [*policy.get("rules", ()), *([policy["default"]] if policy.get("default") else [])]


def clock(at: float) -> str:
    """A time in UTC, as both logs show it."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3] if at < float("inf") else "ever"


def _together(*sources: Mapping[str, Versions]) -> dict[str, Versions]:
    """The settings of all sources by schedulerName, the oldest first."""
    found: dict[str, Versions] = {}
    for scheduler, versions in (each for source in sources for each in source.items()):
        found[scheduler] = sorted([*found.get(scheduler, ()), *versions], key=lambda each: each[0])
    return found


def _sha(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def _merged(watches: list[Interval]) -> list[Interval]:
    """Intervals without overlaps; watches follow each other without a gap that matters."""
    found: list[Interval] = []
    for begin, end in sorted(watches):
        if found and begin <= found[-1][1] + CLOCKS_S:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found
