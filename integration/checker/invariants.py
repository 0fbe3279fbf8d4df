"""The invariants of docs/behaviour.md, as questions to the logs of a run.  A finding names job, pod, times and lines.

V3, V4 and L1 are not among them: these logs do not show what a node has room for at each time, nor what a waiting pod said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

from integration.checker.audit import BRIDGE, Harm, Pod
from integration.checker.evidence import Evidence, Job, clock
from integration.checker.journal import longest
from integration.checker.slurm_log import HOLDS

ON_ITS_WAY_S = 30.0  # a bind, or the end of a pod, was decided at most so long before it is seen
SAME_MOMENT_S = 0.02  # two log lines of one moment
SOON_S = 60.0  # L3
LEFT_S = 60.0  # L2: the quiet period, a backoff, and the pause between two looks
STAYS_S = 345.0  # L4
SILENT_NODE_S, GONE_GRACE_S = 300.0, 10.0  # S3
EARLIEST_SHARE = 0.5  # of its time limit: before that no pod is ended for the limit (S4b)
PREEMPTED_S = 60.0  # more than the longest GraceTime of a partition of the rig
POLICY_LAG_S = 120.0  # a job may be made so long after the policy changed: it was asked for before
LITERAL = frozenset(
    {"namespaces", "user", "account", "partition", "qos", "max_time", "max_nodes", "max_gres", "max_jobs", "max_submit_rate"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Broken:
    """A violation.  about: the pod (namespace/name) or the name of the job; at: when."""

    invariant: str
    about: str
    at: float
    sentence: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.sentence}"


@dataclass(slots=True)
class Verdict:
    """The result: violations that nobody announced, announced ones that did not occur, and how much was judged."""

    broken: list[Broken] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    judged: Counter[str] = field(default_factory=Counter)
    excused: int = 0


Judge = Callable[[Evidence, Counter[str]], Iterator[Broken]]


def judge(evidence: Evidence, *, rest_s: float | None = None) -> Verdict:
    """All invariants.

    rest_s  L2, L3 and L4 hold after so many calm seconds; None: after those that their rules give
    """
    verdict = Verdict()
    for rule in (_one_job, _on_its_grant, _not_twice, _foreign_jobs, _evidence, _policy):
        verdict.broken += rule(evidence, verdict.judged)
    for live in (_no_leftovers, _is_bound, _ended):
        verdict.broken += live(evidence, verdict.judged, rest_s)
    kept = []
    for each in verdict.broken:
        breach = next((b for b in evidence.journal.breaches if b.excuses(each.invariant, each.about, each.at)), None)
        if breach is None:
            kept.append(each)
        else:
            breach.used, verdict.excused = True, verdict.excused + 1
    verdict.broken = kept
    verdict.unused = [
        f"{each.invariant} of {each.about} was announced to be broken ({each.why}), and holds"
        for each in evidence.journal.breaches
        if not each.used
    ]
    return verdict


def _one_job(evidence: Evidence, judged: Counter[str]) -> Iterator[Broken]:
    """V1: of the jobs of one name and user, at most one holds nodes at a time; components of one job count as one."""
    same: dict[tuple[str, str], list[tuple[float, float, str, Job]]] = {}
    for job in evidence.ours():
        if job.last.user in _tenants(evidence):
            for change, end in job.life.holds():
                same.setdefault((job.name, job.last.user), []).append((change.at, end, change.line, job))
    for (name, _), runs in same.items():
        judged["V1"] += len(runs)
        runs.sort(key=lambda run: run[0])
        latest = runs[0]  # the run that ends last, of the runs that have begun
        for run in runs[1:]:
            (begin, end, line, other), (_, until, first, one) = run, latest
            if begin < until - SAME_MOMENT_S and one.life.leader != other.life.leader:
                yield Broken(
                    "V1", name, begin,
                    f"{other.shown} got its nodes at {clock(begin)} ({line}) while job {one.life.id} of the same name had "
                    f"its own, from {clock(latest[0])} ({first}) to {clock(until)}",
                )  # fmt: skip
            latest = max(run, latest, key=lambda each: each[1])


def _tenants(evidence: Evidence) -> _Users:
    return _Users({rule.get("user") for _, policy in evidence.journal.policies for rule in policy.get("rules", ())})


class _Users(frozenset[Any]):
    """The users that policies name; everybody, if none was recorded or one is a template."""

    def __contains__(self, user: object) -> bool:
        return not self or any("{" in str(each) for each in self) or super().__contains__(user)


def _on_its_grant(evidence: Evidence, judged: Counter[str]) -> Iterator[Broken]:
    """V2: at each bind by the bridge the job is the pod's (or its gang's), and has the node."""
    for pod in evidence.audit.pods.values():
        bind = pod.bind
        if bind is None or bind.client != BRIDGE:
            continue
        judged["V2"] += 1
        job = evidence.job(bind.job, bind.at)
        what = f"pod {pod.who} was bound to {bind.node} at {clock(bind.at)} ({bind.line}) for job {bind.job}"
        if job is None:
            known = any(life.id == bind.job for life in evidence.slurm.lives)
            if not known:
                yield Broken("V2", pod.who, bind.at, f"{what}, which slurmctld's log does not have")
            continue
        if not job.key:
            yield Broken("V2", pod.who, bind.at, f"{what}, which is foreign: {job.shown}")
            continue
        owner = evidence.pod_of(job)
        if owner is not None and owner is not pod:
            yield Broken("V2", pod.who, bind.at, f"{what}, which is that of pod {owner.who} ({job.name})")
            continue
        held = [
            nodes for part in evidence.parts(job) for nodes in part.had(bind.at - ON_ITS_WAY_S, bind.at + SAME_MOMENT_S)
        ]
        if not held:
            state = job.life.change_at(bind.at)
            yield Broken(
                "V2", pod.who, bind.at, f"{what}, which was {state.state} since {clock(state.at)} ({state.line})"
            )
        elif evidence.audit.nodes.get(bind.node, bind.node) not in (nodes := frozenset[str]().union(*held)):
            yield Broken("V2", pod.who, bind.at, f"{what}, which has {', '.join(sorted(nodes)) or 'no node'}")


def _not_twice(evidence: Evidence, judged: Counter[str]) -> Iterator[Broken]:
    """V5: the pods that are bound for a job at one time request no more than it was given."""
    seen: set[int] = set()
    for job in evidence.ours():
        parts = evidence.parts(job)
        if id(parts[0]) in seen or not job.serves:
            continue
        seen.add(id(parts[0]))
        given: Counter[str] = Counter()
        for part in parts:
            given.update(part.last.tres)
        for pod in job.serves:
            assert pod.bind is not None
            judged["V5"] += 1
            at = pod.bind.at
            there = [
                each for each in job.serves if each.bind and each.bind.at <= at < each.over and _certain(evidence, each)
            ]
            taken = Counter[str]()
            for each in there:
                taken.update(each.requests)
            for kind, amount in taken.items():
                if given and amount > given[kind] + 0.5:
                    yield Broken(
                        "V5", pod.who, at,
                        f"pod {pod.who} was bound at {clock(at)} ({pod.bind.line}) as one of {len(there)} pods for "
                        f"{job.shown}, which together request {amount:g} {kind}; it has {given[kind]:g} "
                        f"({job.life.changes[0].line})",
                    )  # fmt: skip
                    break


def _certain(evidence: Evidence, pod: Pod) -> bool:
    """False if its end may be missing in the log: it is not there now, and no request ended it."""
    return evidence.here is None or pod.uid in evidence.here or pod.over < float("inf")


def _foreign_jobs(evidence: Evidence, judged: Counter[str]) -> Iterator[Broken]:
    """V6: no job that is no placeholder was cancelled or changed by a tenant; journeys do that as the administrator.

    If slurmctld has just lost a placeholder, a nudge of it may reach the foreign job that has its id now; it changes nothing.
    After a start of slurmctld its database no longer says who cancelled a job that had ended before.
    """
    for job in evidence.jobs:
        if job.key and job.last.user in _tenants(evidence):
            continue
        judged["V6"] += 1
        for record in job.records:
            if record.ended_by == record.uid:
                end = job.life.changes[-1]
                yield Broken(
                    "V6", job.name, end.at,
                    f"{job.shown}, which is foreign, was cancelled as {record.user} at {clock(end.at)} ({end.line})",
                )  # fmt: skip
    for update in evidence.slurm.updates:
        changed = evidence.job(update.id, update.at)
        if (
            changed is not None
            and update.uid == changed.last.uid
            and not (changed.key and changed.last.user in _tenants(evidence))
        ):
            yield Broken(
                "V6", changed.name, update.at,
                f"{changed.shown}, which is foreign, was changed as {changed.last.user} at {clock(update.at)} "
                f"({update.line})",
            )  # fmt: skip


def _evidence(evidence: Evidence, judged: Counter[str]) -> Iterator[Broken]:
    """V7: no pod is ended by the bridge while its job has the nodes, apart from S4b, S5, S12 and W9."""
    for harm in evidence.audit.harms:
        pod = harm.pod
        if harm.client != BRIDGE or harm.at >= pod.over:
            continue
        judged["V7"] += 1
        what = f"pod {pod.who} was {harm.kind} by the bridge at {clock(harm.at)} ({harm.line})"
        named = pod.job_at(harm.at)
        if named is None:
            yield Broken("V7", pod.who, harm.at, f"{what}, though the bridge had never bound it")
            continue
        since, number = named
        job = evidence.job(number, since)  # slurmctld may have lost it, and given its id to another one since
        if job is None:
            continue
        change = job.life.change_at(harm.at)
        if change.state in HOLDS and not _may_end(evidence, harm, job):
            yield Broken(
                "V7",
                pod.who,
                harm.at,
                f"{what} while its {job.shown} was {change.state} since {clock(change.at)} ({change.line})",
            )


def _may_end(evidence: Evidence, harm: Harm, job: Job) -> bool:
    """S4b: its time limit is near.  S5: it is being preempted.  S12: it never started.  W9: its gang is not whole.

    Also if the bridge has seen its end, and slurmctld has just forgotten that end.
    """
    pod, change = harm.pod, job.life.change_at(harm.at)
    if any(0 <= harm.at - forgotten <= ON_ITS_WAY_S for forgotten in job.life.end_forgotten()):
        return True
    if pod.started is None:
        return True
    if any(other.bind is None and harm.at < other.over for other in evidence.members(job)):
        return True
    if any(0 <= harm.at - notice <= PREEMPTED_S for notice in job.life.notices):
        return True
    given = [limit for since, limit in job.life.limits if since <= harm.at]
    limit_s = given[-1] if given else job.last.limit_s
    ends = harm.at if harm.seconds is None else max(harm.at, (pod.started or harm.at) + harm.seconds)
    return limit_s is not None and ends >= change.at + limit_s * EARLIEST_SHARE - 2


def _policy(evidence: Evidence, judged: Counter[str]) -> Iterator[Broken]:
    """V8: user, account, partition and QOS are what a policy of that time allows the namespace."""
    policies = evidence.journal.policies
    for job in evidence.ours():
        pod = evidence.pod_of(job) or next(iter(job.serves), None)
        namespace = pod.namespace if pod else job.name.partition("/")[0]
        first = job.life.begun
        ends = [at for at, _ in policies[1:]] + [float("inf")]
        then = [
            policy
            for (at, policy), end in zip(policies, ends, strict=False)
            if at <= first + 2 and end >= first - POLICY_LAG_S
        ]
        if not then or any(set(rule) - LITERAL for policy in then for rule in policy.get("rules", ())):
            continue
        judged["V8"] += 1
        if not any(_allows(policy, namespace, job) for policy in then):
            of = job.last
            yield Broken(
                "V8", job.name, first,
                f"{job.shown} was made at {clock(first)} ({job.life.changes[0].line}) for namespace {namespace} with account "
                f"{of.account}, partition {of.partition}, QOS {of.qos}, which the policy does not give",
            )  # fmt: skip


def _allows(policy: Mapping[str, Any], namespace: str, job: Job) -> bool:
    rules: Iterable[Mapping[str, Any]] = policy.get("rules", ())
    rule = next((each for each in rules if any(fnmatch(namespace, name) for name in each.get("namespaces", ()))), None)
    rule = rule or policy.get("default")
    if rule is None or rule.get("user") != job.last.user:
        return False
    return all(_within(rule.get(what), getattr(job.last, what)) for what in ("account", "partition", "qos"))


def _within(given: Any, value: str) -> bool:
    """None, or no default: Slurm's own default counts, which is not known here."""
    if given is None:
        return True
    if isinstance(given, str):
        return value == given
    return "default" not in given or value in (given["default"], *given.get("allowed", ()))


def _no_leftovers(evidence: Evidence, judged: Counter[str], rest_s: float | None) -> Iterator[Broken]:
    """L2: no placeholder stays without an unfinished pod of its workload."""
    for job in evidence.ours():
        pods = evidence.members(job)
        if job.last.user not in _tenants(evidence) or not pods:
            continue  # the log does not show whose it is
        judged["L2"] += 1
        if not all(_certain(evidence, pod) or pod.over < float("inf") for pod in pods):
            continue
        since = max([job.life.begun, *(_leaves(pod) for pod in pods)])
        left_s = longest(since, job.life.over, evidence.calm)
        if left_s > (rest_s or LEFT_S):
            who = ", ".join(pod.who for pod in pods)
            change = job.life.changes[-1]
            yield Broken(
                "L2", job.name, since,
                f"{job.shown} stayed {left_s:.0f} calm seconds after {who} had gone at {clock(since)}; it was {change.state} "
                f"since {clock(change.at)} ({change.line})",
            )  # fmt: skip


def _leaves(pod: Pod) -> float:
    """When nothing of the pod runs any more, as far as the bridge can know (S3)."""
    return pod.over + (min(pod.grace_s, SILENT_NODE_S) + GONE_GRACE_S if pod.forced else 0)


def _is_bound(evidence: Evidence, judged: Counter[str], rest_s: float | None) -> Iterator[Broken]:
    """L3: a pod whose job has nodes is bound, and of a gang at least one (all of them: V4)."""
    for job in evidence.ours():
        pods = evidence.members(job)
        if not pods or job.last.user not in _tenants(evidence):
            continue
        for change, end in job.life.holds():
            judged["L3"] += 1
            until = min([end, *(pod.over for pod in pods), *(pod.bind.at for pod in pods if pod.bind)])
            waits_s = longest(max([change.at, *(pod.created or change.at for pod in pods)]), until, evidence.calm)
            if waits_s > (rest_s or SOON_S):
                who = ", ".join(pod.who for pod in pods)
                yield Broken(
                    "L3", pods[0].who, change.at,
                    f"pod {who} was not bound within {waits_s:.0f} calm seconds after its {job.shown} got nodes at "
                    f"{clock(change.at)} ({change.line})",
                )  # fmt: skip


def _ended(evidence: Evidence, judged: Counter[str], rest_s: float | None) -> Iterator[Broken]:
    """L4: no pod stays on its node long after its job."""
    for pod in evidence.audit.pods.values():
        if pod.bind is None or pod.bind.client != BRIDGE or not _certain(evidence, pod):
            continue
        jobs = [job for since, number in pod.jobs if (job := evidence.job(number, since))]
        if not jobs:
            continue
        judged["L4"] += 1
        # A job that takes the place of a lost one has its name, and need not be named on the pod at once (S7).
        jobs += evidence.named(jobs[-1].name)
        if any(job.life.unsure for job in jobs):
            continue
        over = max(job.life.over for job in jobs)
        stays_s = longest(over, pod.over, evidence.calm)
        if stays_s > (rest_s or STAYS_S):
            last = max(jobs, key=lambda job: job.life.over).life.changes[-1]
            yield Broken(
                "L4", pod.who, over,
                f"pod {pod.who} stayed on {pod.bind.node} for {stays_s:.0f} calm seconds after its {jobs[-1].shown} was "
                f"{last.state} at {clock(last.at)} ({last.line})",
            )  # fmt: skip
