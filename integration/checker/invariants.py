"""The invariants of docs/behaviour.md, as questions to the logs of a run.  A finding names job, pod, times and lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from typing import Any

from integration.checker.audit import BRIDGE, Harm
from integration.checker.evidence import ON_ITS_WAY_S, Evidence, Job, clock, rules_of
from integration.checker.fits import fits
from integration.checker.gangs import whole_gangs
from integration.checker.liveness import LIVENESS
from integration.checker.slurm_log import HOLDS
from integration.checker.verdict import Broken, Verdict

SAME_MOMENT_S = 0.02  # two log lines of one moment
EARLIEST_SHARE = 0.5  # of its time limit: before that no pod is ended for the limit (S4b)
PREEMPTED_S = 60.0  # more than the longest GraceTime of a partition of the rig
POLICY_LAG_S = 120.0  # a job may be made so long after the policy changed: it was asked for before
# Slurm's name of a resource to that of Kubernetes, and Slurm's unit in that of Kubernetes.
TRES = {
    "cpu": ("cpu", 1),
    "mem": ("memory", 2**20),
    "gres/gpu": ("nvidia.com/gpu", 1),
}
LITERAL = frozenset(
    {"namespaces", "user", "account", "partition", "qos", "max_time", "max_nodes", "max_gres", "max_jobs", "max_submit_rate"}
)  # fmt: skip


def judge(evidence: Evidence, *, rest_s: float | None = None) -> Verdict:
    """All invariants.

    rest_s  L1 to L4 hold after so many calm seconds; None: after those that their rules give
    """
    verdict = Verdict()
    for rule in (_one_job, _on_its_grant, fits, whole_gangs, _not_twice, _foreign_jobs, _evidence, _policy):
        verdict.broken += rule(evidence, verdict.judged)
    for live in LIVENESS:
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
        if job.last.user in evidence.tenants:
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
        if not job.may_serve(pod):
            yield Broken(
                "V2", pod.who, bind.at, f"{what}, which is that of another bridge, {job.scheduler} ({job.name})"
            )
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
    """V5: the pods that are bound for a job at one time request no more than it was given.

    If no record of the run has memory, Slurm does not count memory (SelectTypeParameters=CR_Core).
    """
    seen: set[int] = set()
    counted = [kind for kind in TRES if kind != "mem" or any(kind in record.tres for record in evidence.records)]
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
                each for each in job.serves if each.bind and each.bind.at <= at < each.over and evidence.certain(each)
            ]
            taken: Counter[str] = Counter()
            for each in there:
                taken.update(each.requests)  # type: ignore[arg-type]
            for kind in counted:
                resource, unit = TRES[kind]
                amount = taken[resource] / unit
                if given and amount > given[kind] + 0.5:
                    yield Broken(
                        "V5", pod.who, at,
                        f"pod {pod.who} was bound at {clock(at)} ({pod.bind.line}) as one of {len(there)} pods for "
                        f"{job.shown}, which together request {amount:g} {kind}; it has {given[kind]:g} "
                        f"({job.life.changes[0].line}; slurmdbd: {dict(job.last.tres)} on {sorted(job.last.nodes)})",
                    )  # fmt: skip
                    break


def _foreign_jobs(evidence: Evidence, judged: Counter[str]) -> Iterator[Broken]:
    """V6: no job that is no placeholder was cancelled or changed by a tenant; journeys do that as the administrator.

    If slurmctld has just lost a placeholder, a nudge of it may reach the foreign job that has its id now; it changes nothing.
    After a start of slurmctld its database no longer says who cancelled a job that had ended before.
    """
    for job in evidence.jobs:
        if job.key and job.last.user in evidence.tenants:
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
            and not (changed.key and changed.last.user in evidence.tenants)
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
    for job in evidence.ours():
        policies = evidence.policies.get(job.scheduler, [])
        pod = evidence.pod_of(job) or next(iter(job.serves), None)
        namespace = pod.namespace if pod else job.name.partition("/")[0]
        first = job.life.begun
        ends = [at for at, _ in policies[1:]] + [float("inf")]
        then = [
            policy
            for (at, policy), end in zip(policies, ends, strict=False)
            if at <= first + 2 and end >= first - POLICY_LAG_S
        ]
        verdicts = {_allows(policy, namespace, job) for policy in then}
        if not then or (None in verdicts and True not in verdicts):
            continue
        judged["V8"] += 1
        if True not in verdicts:
            of = job.last
            yield Broken(
                "V8", job.name, first,
                f"{job.shown} was made at {clock(first)} ({job.life.changes[0].line}) for namespace {namespace} with account "
                f"{of.account}, partition {of.partition}, QOS {of.qos}, which the policy does not give",
            )  # fmt: skip


def _allows(policy: Mapping[str, Any], namespace: str, job: Job) -> bool | None:
    """None: the rule that decides may be one with selectors or templates, which are not interpreted here."""
    for rule in rules_of(policy):
        if "namespaces" in rule and not any(fnmatch(namespace, name) for name in rule["namespaces"]):
            continue
        if set(rule) - LITERAL or "{" in str([each for each in rule.values() if isinstance(each, str)]):
            return None
        fields = all(_within(rule.get(what), getattr(job.last, what)) for what in ("account", "partition", "qos"))
        return rule.get("user") == job.last.user and fields
    return False


def _within(given: Any, value: str) -> bool:
    """None, or no default: Slurm's own default counts, which is not known here."""
    if given is None:
        return True
    if isinstance(given, str):
        return value == given
    return "default" not in given or value in (given["default"], *given.get("allowed", ()))
