"""Checks between the two clusters: nodes known to both, and differences in what each knows of them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping

from bridge.cli.doctor.findings import Check, Result, count, error, ok, some, warning
from bridge.cli.doctor.kubernetes_checks import not_one_ready
from bridge.cli.doctor.views import NotSeen, Observations, managed_namespaces
from bridge.slurm.admin_reads import Configuration, NodeDetails, PartitionDetails
from scheduler import names
from scheduler.model.hostlist import HostlistError, expand
from scheduler.model.kubernetes import Namespace, Node
from scheduler.model.refusal import Refusal
from scheduler.model.text import decimal
from scheduler.place.feasible import slurm_name
from scheduler.place.fit import OFF_FOR_GOOD, untolerated
from scheduler.policy.rules import ANY, Policy
from scheduler.policy.templates import is_template

MIB = 1024 * 1024
REGISTER = (
    f"Where the names differ: kubectl label node NAME {names.SLURM_NODE_LABEL}=SLURMNAME. To have the bridge register a node "
    f"that Slurm does not have: kubectl label node NAME {names.EXTERNAL_NODE_LABEL}=true (docs/nodes.md)."
)


def common(seen: Observations) -> Mapping[str, tuple[Node, NodeDetails]]:
    """Nodes that both know, by Kubernetes' name, at least one.  Raises NotSeen; the row *nodes* reports it."""
    known = {view.node.name: view for view in seen.slurm_nodes.get()}
    ours = {node.name: node for node in seen.nodes.get()}
    both = {name: (node, known[slurm_name(node)]) for name, node in ours.items() if slurm_name(node) in known}
    if not both:
        raise NotSeen(
            f"No node is known to both clusters: Kubernetes has {some(ours) or 'none'}, Slurm has {some(known) or 'none'}.",
            because="no node is known to both clusters",
            do=REGISTER,
        )
    return both


def _nodes(seen: Observations) -> Iterator[Result]:
    both = common(seen)
    ours = {node.name for node in seen.nodes.get()} - both.keys()
    theirs = {view.node.name for view in seen.slurm_nodes.get()} - {known.node.name for _, known in both.values()}
    external = sum(known.node.external for _, known in both.values())
    summary = f"{count(len(both), 'node')} known to both, {external} of them external"
    summary += f"; only in Kubernetes: {some(ours)}" if ours else ""
    summary += f"; only in Slurm: {some(theirs)}" if theirs else ""
    yield ok(summary)
    out = [f"{node.name} ({why})" for node, known in both.values() if (why := _why_out(node, known))]
    if not_one_ready(seen):
        return  # the row *nodes* of Kubernetes reports it
    if len(out) == len(both):
        yield error(f"No node is in service in both clusters: {some(out)}.", "kubectl get nodes; sinfo -R")
    elif out:
        yield warning(f"{count(len(out), 'node')} of these out of service: {some(out)}.", "kubectl get nodes; sinfo -R")


def _why_out(node: Node, known: NodeDetails) -> str:
    """Why pods cannot use the node now; "": they can."""
    if known.node.is_off_for_good:
        return OFF_FOR_GOOD
    if not node.ready and not known.node.changes_power:  # Slurm powers it up for a job
        return "not ready in Kubernetes"
    if node.unschedulable:
        return "cordoned"
    states = "+".join(sorted(known.node.closed))
    return f"{states} in Slurm" + (f": {known.node.reason}" if known.node.reason else "") if states else ""


def _names(seen: Observations) -> Iterator[Result]:
    """A node of Slurm that several Kubernetes nodes claim is not used: one of them may be an impostor."""
    claims: dict[str, list[str]] = {}
    for node in seen.nodes.get():
        claims.setdefault(slurm_name(node), []).append(node.name)
    contested = {name: nodes for name, nodes in claims.items() if len(nodes) > 1}
    for name, nodes in sorted(contested.items()):
        yield error(
            f"The Kubernetes nodes {some(nodes)} claim to be the same node of Slurm, {name}: none of them is used.",
            f"kubectl get nodes -L {names.SLURM_NODE_LABEL}; correct that label of all but one of them.",
        )
    if not contested:
        yield ok("each node has a name of its own in Slurm")


def _sizes(seen: Observations) -> Iterator[Result]:
    """Slurm grants what Slurm counts; a grant that Kubernetes has no room for is released (F6)."""
    gres, both = seen.chosen("gres").gres, common(seen)
    larger = [f"{name} ({why})" for name, (node, known) in both.items() if (why := _larger(node, known, gres))]
    if larger:
        yield warning(
            f"Slurm allocates more of {count(len(larger), 'node')} than pods may use: {some(larger, 2)}. "
            "Grants of the rest are released.",
            "Make Slurm's node no larger than kubectl's allocatable (CPUs, RealMemory, Gres).",
        )
    else:
        yield ok("Slurm's nodes are no larger than what Kubernetes lets pods use")


def _larger(node: Node, known: NodeDetails, gres: Mapping[str, str]) -> str:
    allocatable = node.allocatable
    cpus = allocatable.get("cpu", 0) / 1000
    if known.node.cpus > cpus:
        return f"{known.node.cpus:,} CPUs, allocatable {decimal(cpus, 6)}"
    memory_mib = allocatable.get("memory", 0) // MIB
    if known.node.memory_mib > memory_mib:
        return f"{known.node.memory_mib:,} MiB, allocatable {memory_mib:,}"
    offered: dict[str, int] = {}
    for resource, name in gres.items():
        plain = name.partition(":")[0]
        offered[plain] = offered.get(plain, 0) + allocatable.get(resource, 0)
    for name, has in offered.items():
        if known.node.gres.get(name, 0) > has:
            return f"{known.node.gres[name]} {name}, allocatable {has}"
    return ""


def _external(seen: Observations) -> Iterator[Result]:
    """Known problems of external nodes (Slurm facts 2, 7)."""
    external = [view for view in seen.slurm_nodes.get() if view.node.external]
    if not external:
        yield ok("none: every node of Slurm runs slurmd, and pods that ask for devices get such a node whole")
        return
    results = list(_static(external))
    if silent := [view.node.name for view in external if "NOT_RESPONDING" in view.node.states]:
        results.append(
            error(
                f"External nodes that Slurm lists as not responding: {some(silent)}. They get no job, and do not recover.",
                "Of slurm.conf: scontrol reconfigure. Others: delete each when idle, and create it again (the bridge does so "
                "with its own). Signals, suspend and preemption with GraceTime cause it.",
            )
        )
    if lost := [view.node.name for view in external if view.lost]:
        results.append(
            error(
                f"Devices count as used on nodes without a used CPU, so without a job: {some(lost)}. No job can use them.",
                "scontrol reconfigure gives them back.",
            )
        )
    yield from results or [ok(f"{len(external):,}, made by new/node: devices are counted correctly, with indices")]


def _static(external: list[NodeDetails]) -> Iterator[Result]:
    if static := [view.node.name for view in external if view.static and view.node.gres]:
        yield warning(
            f"External nodes with devices are defined in slurm.conf: {some(static)}. Any user's job with --gpus or "
            "--gpus-per-task loses those GPUs for good there, and no job learns which GPUs it has.",
            "Take them out of slurm.conf, and let the bridge register them: kubectl label node NAME "
            f"{names.EXTERNAL_NODE_LABEL}=true (docs/nodes.md).",
        )


def _power_saving(seen: Observations) -> Iterator[Result]:
    """External nodes that Slurm powers down never come back (Slurm facts 12)."""
    conf, partitions = seen.configuration.get(), seen.partition_details.get()
    external = [view for view in seen.slurm_nodes.get() if view.node.external]
    times = {view.node.name: _suspend_time_s(view, conf, partitions) for view in seen.slurm_nodes.get()}
    soonest = min((time for time in times.values() if time != math.inf), default=None)
    if not conf.saves_power or soonest is None:
        yield ok("Slurm powers no idle node down (SuspendTime)")
        return
    kept = set(_nodes_of(conf.suspend_exc_nodes))
    dynamic = "DYNAMIC_NORM" in conf.suspend_exc_states
    at_risk = [
        view.node.name
        for view in external
        if times[view.node.name] != math.inf and view.node.name not in kept and (view.static or not dynamic)
    ]
    if at_risk:
        soonest = min(times[name] for name in at_risk)
        yield error(
            f"Slurm powers down external nodes that are idle for {soonest:,} s (SuspendTime): {some(at_risk)}. "
            "No slurmd there reports that they are up again, so the next job on each of them fails after ResumeTimeout.",
            "SuspendExcStates=DYNAMIC_NORM in slurm.conf for nodes that the bridge registers, SuspendExcNodes for others.",
        )
    else:
        yield ok(f"Slurm powers down nodes that are idle for {soonest:,} s, but no external node")


def _suspend_time_s(view: NodeDetails, conf: Configuration, partitions: Mapping[str, PartitionDetails]) -> float:
    """After how many seconds Slurm powers the idle node down: the longest time of its partitions, otherwise the cluster's."""
    own = (partitions[name].suspend_time_s for name in view.node.partitions if name in partitions)
    return max((time for time in own if time is not None), default=conf.suspend_time_s)


def _nodes_of(written: Iterable[str]) -> Iterator[str]:
    """The names in SuspendExcNodes; "n[1-9]:4" names no node, because it keeps any four of these."""
    for part in written:
        if ":" not in part:
            with contextlib.suppress(HostlistError):
                yield from expand(part)


def _addresses(seen: Observations) -> Iterator[Result]:
    external = [view for view in seen.slurm_nodes.get() if view.node.external]
    bare = [view.node.name for view in external if view.address == view.node.name]
    unresolved = seen.unresolved.get()
    do = "Give each a NodeAddr (an IP address); a node made by new/node has to be deleted and made again."
    if unresolved:
        yield warning(
            f"External nodes without NodeAddr, whose names do not resolve here: {some(unresolved)}. Where slurmctld cannot "
            "resolve them either, each allocation there stops all of Slurm for 10 s.",
            do,
        )
    elif bare:
        yield ok(f"without NodeAddr, but their names resolve here: {some(bare)}", do)
    elif external:
        yield ok("every external node has a NodeAddr")


def _partitions(seen: Observations) -> Iterator[Result]:
    """Check if the pods of each rule can run on any node."""
    known = {partition.name: partition for partition in seen.partitions.get()}
    policy = seen.chosen("policy").policy
    filled = {name for _, details in common(seen).values() for name in details.node.partitions}
    default = next((partition.name for partition in known.values() if partition.default), "")
    named = {
        name for tenant in policy.tenants for name in (tenant.partition.default or default, *tenant.partition.allowed)
    }
    used = sorted((named - {"", ANY}) & known.keys())
    if empty := [name for name in used if name not in filled]:
        yield error(
            f"No node of partition {some(empty)} is known to Kubernetes: no pod can run there.",
            "Put shared nodes into it, or take it out of the policy.",
        )
    if down := [name for name in used if not known[name].up]:
        yield warning(
            f"Partition {some(down)} is not up: new pods wait there (DOWN), or are refused (DRAIN, INACTIVE).",
            "scontrol update partition=NAME state=up",
        )
    if used and not empty and not down:
        yield ok(f"{some(used, 5)}: up, with nodes that both know")


def _oversubscription(seen: Observations) -> Iterator[Result]:
    """Slurm may give a CPU to several jobs.  Kubernetes gives it to one pod: the grants of the others are released."""
    filled = {name for _, view in common(seen).values() for name in view.node.partitions}
    shared = [
        name
        for name, details in seen.partition_details.get().items()
        if name in filled and details.oversubscribe.startswith("FORCE") and details.oversubscribe != "FORCE:1"
    ]
    if shared:
        yield warning(
            f"Slurm gives each CPU of partition {some(sorted(shared))} to several jobs (OverSubscribe=FORCE): if another pod "
            "uses the CPUs, the bridge releases the grant, and asks again.",
            "OverSubscribe=NO or FORCE:1",
        )
    else:
        yield ok("no partition with nodes that both know gives a CPU to several jobs (OverSubscribe)")


def _others(seen: Observations) -> Iterator[Result]:
    """Pods of other schedulers take room that Slurm believes free."""
    nodes = {name: node for name, (node, _) in common(seen).items()}
    strangers = [pod for pod in seen.other_pods.get().strangers if pod.node in nodes]
    if strangers:
        where, pods = some({pod.node for pod in strangers}), some(pod.full_name for pod in strangers)
        yield warning(
            f"{count(len(strangers), 'pod')} of other schedulers on {where} ({pods}): Slurm does not count their "
            "resources, and grants of these resources are released.",
            f"Keep new ones away: kubectl taint node NAME {names.MANAGED_TAINT}=true:NoSchedule (pods of the bridge ignore "
            "it). Those that run stay until they are deleted.",
        )
    else:
        open_to_all = [name for name, node in nodes.items() if not _kept(node)]
        yield ok(
            "no pods of other schedulers on shared nodes" + (" now; nothing keeps them away" if open_to_all else ""),
            f"kubectl taint node NAME {names.MANAGED_TAINT}=true:NoSchedule" if open_to_all else "",
        )


def _kept(node: Node) -> bool:
    """Something keeps ordinary pods away, the bridge's own taint first of all."""
    return any(taint.key == names.MANAGED_TAINT for taint in node.taints) or untolerated(node.taints, ()) is not None


def _mapping(seen: Observations) -> Iterator[Result]:
    """The Slurm users of the managed namespaces."""
    policy, managed = seen.chosen("policy").policy.policy(), managed_namespaces(seen)
    if not policy.rules and policy.default is None:
        raise NotSeen("the policy maps no namespace to a Slurm user", failed=False)  # the row *file* reports it
    spaces = [namespace for namespace in seen.namespaces.get() if namespace.name in managed]
    unmapped = [
        namespace.name
        for namespace in spaces
        if not any(rule.selects(namespace.name, namespace.labels) for rule in policy.rules)
    ]
    if unmapped and policy.default is None:
        yield warning(
            f"These managed namespaces have no Slurm user, and their pods are refused: {some(unmapped)}.",
            "Add a rule for them under policy.rules, or a policy.default.",
        )
    idle = [
        rule for rule in policy.rules if not any(rule.selects(namespace.name, namespace.labels) for namespace in spaces)
    ]
    if idle:
        yield ok(f"rules that no managed namespace matches now: {some(rule.about for rule in idle)}")
    users, unfilled = _users(policy, spaces)
    for why in unfilled:
        yield warning(why, "Until then pods there are refused.")
    if managed and not unfilled and not (unmapped and policy.default is None):
        yield ok(f"every managed namespace has its Slurm user: {some(users)}")


def _users(policy: Policy, spaces: list[Namespace]) -> tuple[set[str], list[str]]:
    """The Slurm users of these namespaces, and why some have none.  Templates are filled for service account `default`."""
    users = {policy.default.user} if policy.default and not is_template(policy.default.user) else set()
    unfilled = []
    for namespace in spaces:
        rules = [rule for rule in policy.rules if rule.selects(namespace.name, namespace.labels)]
        users |= {rule.tenant.user for rule in rules if not is_template(rule.tenant.user)}
        found = policy.tenant(namespace.name, "default", namespace.labels)
        if not isinstance(found, Refusal):
            users.add(found.user)
        elif rules and policy.has_templates:
            unfilled.append(found.message)
    return users, unfilled


CHECKS = (
    Check("nodes", _nodes),
    Check("node names", _names),
    Check("sizes", _sizes),
    Check("external nodes", _external),
    Check("power saving", _power_saving),
    Check("addresses", _addresses),
    Check("partitions", _partitions),
    Check("oversubscription", _oversubscription),
    Check("others' pods", _others),
    Check("tenants", _mapping),
)
