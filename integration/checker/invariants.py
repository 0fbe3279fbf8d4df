"""The invariants of docs/behaviour.md, as questions to the logs of a run.  A finding names job, pod, times and lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from math import ceil
from typing import Any

from integration.checker.audit import Pod
from integration.checker.bridges import own_jobs, own_pods
from integration.checker.ends import ended_jobs, ended_pods
from integration.checker.evidence import IN_FORCE_S, SAME_MOMENT_S, Evidence, Job, clock, in_force, rules_of
from integration.checker.fits import EXACT, fits
from integration.checker.gangs import whole_gangs
from integration.checker.liveness import LIVENESS
from integration.checker.running_bridges import BRIDGE
from integration.checker.verdict import Broken, Verdict

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
    for rule in RULES:
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
    """V1: of the jobs of one workload and user, at most one holds nodes at a time; components of one job count as one.

    A job that gets this name later, while it runs, was given it by its user.
    """
    same: dict[tuple[str, str, str], list[tuple[float, float, str, Job]]] = {}
    for job in evidence.ours():
        if evidence.is_own(job):
            for change, end in job.history.holds():
                if job.history.knows_name(change.at):
                    of = job.scheduler, job.key, job.last.user
                    same.setdefault(of, []).append((change.at, end, change.line, job))
    for runs in same.values():
        judged["V1"] += len(runs)
        runs.sort(key=lambda run: run[0])
        latest = runs[0]  # the run that ends last, of the runs that have begun
        for run in runs[1:]:
            (begin, end, line, other), (_, until, first, one) = run, latest
            if begin < until - SAME_MOMENT_S and one.history.leader != other.history.leader:
                yield Broken(
                    "V1", other.name, begin,
                    f"{other.shown} got its nodes at {clock(begin)} ({line}) while job {one.history.id} of the same workload "
                    f"had its own, from {clock(latest[0])} ({first}) to {clock(until)}",
                )  # fmt: skip
            latest = max(run, latest, key=lambda each: each[1])


def _on_its_grant(evidence: Evidence, judged: Counter[str]) -> Iterator[Broken]:
    """V2: at each bind by the bridge the job is the pod's (or its gang's), and has the node."""
    for pod in evidence.audit.pods.values():
        bind = pod.bind
        if bind is None or bind.client != BRIDGE:
            continue
        job = evidence.job(bind.job, bind.at)
        if job is None and any(history.id == bind.job for history in evidence.slurm.histories):
            continue  # slurmdbd does not know the job
        judged["V2"] += 1
        wrong = _not_its_own(evidence, pod, job) or _not_granted(evidence, pod, job)
        if wrong:
            what = f"pod {pod.who} was bound to {bind.node} at {clock(bind.at)} ({bind.line}) for job {bind.job}"
            yield Broken("V2", pod.who, bind.at, f"{what}, which {wrong}")


def _not_its_own(evidence: Evidence, pod: Pod, job: Job | None) -> str:
    """Why the job is not the pod's; "": it is, or the log does not show its name at that time."""
    if job is None:
        return "slurmctld's log does not have"
    if pod.bind is not None and not job.history.knows_name(evidence.facts_since(pod.scheduler, pod.bind.at)):
        return ""
    if not job.key:
        return f"is foreign: {job.shown}"
    if not job.may_serve(pod):
        return f"is that of another bridge, {job.scheduler} ({job.name})"
    owner = evidence.pod_of(job)
    return f"is that of pod {owner.who} ({job.name})" if owner is not None and owner is not pod else ""


def _not_granted(evidence: Evidence, pod: Pod, job: Job | None) -> str:
    """Why the job did not have the node of the pod at the bind; "": it had.

    What ended while the bind was on its way counts as not ended, unless the bridge itself has cancelled the job.
    """
    assert pod.bind is not None
    assert job is not None
    at, bound_to = pod.bind.at, evidence.node_of(pod)
    known = at if evidence.is_cancelled(job) else evidence.facts_since(job.scheduler, at)
    held = evidence.held(job, known, at + SAME_MOMENT_S)
    if not held:
        state = job.history.change_at(at)
        return f"was {state.state} since {clock(state.at)} ({state.line})"
    nodes = frozenset[str]().union(*held)
    return "" if bound_to in nodes else f"has {', '.join(sorted(nodes)) or 'no node'}"


def _not_twice(evidence: Evidence, judged: Counter[str]) -> Iterator[Broken]:
    """V5: the pods that are bound for a job at one time, to nodes that it has, request no more than it was given.

    Nor do the pods on one node request more CPUs than are left if each other node has one.  A pod takes whole CPUs, at least
    one (T3).  If no record of the run has memory, Slurm does not count memory (SelectTypeParameters=CR_Core).
    """
    seen: set[int] = set()
    counted = [kind for kind in TRES if kind != "mem" or any(kind in record.tres for record in evidence.records)]
    for job in evidence.ours():
        parts = evidence.parts(job)
        if id(parts[0]) in seen or not job.serves:
            continue
        seen.add(id(parts[0]))
        for pod in job.serves:
            assert pod.bind is not None
            known = evidence.facts_since(job.scheduler, pod.bind.at)
            given = _sum(part.given(known, pod.bind.at) for part in parts)
            judged["V5"] += bool(given)
            if given and (
                wrong := _too_much(evidence, job, pod, known, {kind: given.get(kind, 0.0) for kind in counted})
            ):
                yield Broken(
                    "V5", pod.who, pod.bind.at,
                    f"pod {pod.who} was bound at {clock(pod.bind.at)} ({pod.bind.line}) as one of {wrong} "
                    f"({job.history.changes[0].line}; slurmdbd: {dict(job.last.tres)} on {sorted(job.last.nodes)})",
                )  # fmt: skip


def _too_much(evidence: Evidence, job: Job, pod: Pod, known: float, given: Mapping[str, float]) -> str:
    """What the pods of the job request too much when this pod is bound, and how many they are; "": nothing.

    known   since when the bridge may have known what the job has
    """
    held = evidence.held(job, known, pod.bound_at)
    nodes = frozenset[str]().union(*held)
    there = [
        each
        for each in job.serves
        if each.bound_at <= pod.bound_at < each.over
        and evidence.certain(each)
        and (evidence.node_of(each) in nodes or not nodes)
    ]
    for kind, most in given.items():
        if (amount := _taken(there, kind)) > most + 0.5:
            return f"{len(there)} pods for {job.shown}, which together request {amount:g} {kind}; it has {most:g}"
    beside = [each for each in there if evidence.node_of(each) == evidence.node_of(pod)]
    left = given["cpu"] - (len(nodes) - 1 if len(held) == len(evidence.parts(job)) else 0)
    if (amount := _taken(beside, "cpu")) > left + 0.5:
        where = evidence.node_of(pod)
        return f"{len(beside)} pods on {where} for {job.shown}, which request {amount:g} cpu; it has at most {left:g} there"
    return ""


def _taken(pods: Iterable[Pod], kind: str) -> float:
    """What the pods take of a resource, in Slurm's unit."""
    resource, unit = TRES[kind]
    asked = (pod.requests.get(resource, 0.0) / unit for pod in pods)
    return sum(max(1, ceil(amount - EXACT)) if kind == "cpu" else amount for amount in asked)


def _sum(given: Iterable[Mapping[str, float]]) -> Mapping[str, float]:
    """The sum of what each component was given; {}: not known of one of them."""
    found: Counter[str] = Counter()
    for tres in given:
        if not tres:
            return {}
        found.update(tres)
    return found


def _foreign_jobs(evidence: Evidence, judged: Counter[str]) -> Iterator[Broken]:
    """V6: no job that is no placeholder was cancelled or changed by a tenant; journeys do that as the administrator.

    If slurmctld has just lost a placeholder, a nudge of it may reach the foreign job that has its id now; it changes nothing.
    After a start of slurmctld its database no longer says who cancelled a job that had ended before.
    A job that was renamed may have been a placeholder, and its user renames it.
    """
    for job in evidence.jobs:
        if evidence.is_own(job) or job.history.names:
            continue
        judged["V6"] += any(record.ended_by is not None or record.state != "CANCELLED" for record in job.records)
        for record in job.records:
            if record.ended_by == record.uid:
                end = job.history.changes[-1]
                yield Broken(
                    "V6", job.name, end.at,
                    f"{job.shown}, which is foreign, was cancelled as {record.user} at {clock(end.at)} ({end.line})",
                )  # fmt: skip
    for update in evidence.slurm.updates:
        changed = evidence.job(update.id, update.at)
        if changed is None or changed.history.names:
            continue
        if update.uid == changed.last.uid and not evidence.is_own(changed):
            yield Broken(
                "V6", changed.name, update.at,
                f"{changed.shown}, which is foreign, was changed as {changed.last.user} at {clock(update.at)} "
                f"({update.line})",
            )  # fmt: skip


def _policy(evidence: Evidence, judged: Counter[str]) -> Iterator[Broken]:
    """V8: user, account, partition and QOS are what a policy of that time allows the namespace.

    An admin may move a job as he likes.
    """
    moved = {
        job
        for update in evidence.slurm.updates
        if update.moves and (job := evidence.job(update.id, update.at)) is not None and update.uid != job.last.uid
    }
    for job in evidence.ours():
        policies = evidence.policies.get(job.scheduler, [])
        pod = evidence.pod_of(job) or next(iter(job.serves), None)
        namespace = pod.namespace if pod else job.name.partition("/")[0]
        first = job.history.begun
        then = in_force(policies, first - IN_FORCE_S, first + 2)
        verdicts = {_allows(policy, namespace, job) for policy in then}
        if not then or (None in verdicts and True not in verdicts) or not job.history.knows_name(first) or job in moved:
            continue
        judged["V8"] += 1
        if True not in verdicts:
            of = job.last
            yield Broken(
                "V8", job.name, first,
                f"{job.shown} was made at {clock(first)} ({job.history.changes[0].line}) for namespace {namespace} with "
                f"account {of.account}, partition {of.partition}, QOS {of.qos}, which the policy does not give",
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


RULES = (
    own_pods,
    _one_job,
    _on_its_grant,
    fits,
    whole_gangs,
    _not_twice,
    _foreign_jobs,
    own_jobs,
    ended_pods,
    ended_jobs,
    _policy,
)
