"""Checks of the Kubernetes end."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.cli.doctor.findings import Check, Result, count, error, ok, some, unknown, wait, warning
from bridge.cli.doctor.look_kubernetes import REFERRED
from bridge.cli.doctor.views import Observations, managed_namespaces
from bridge.preflight import rights
from bridge.slurm.token import age
from scheduler import names
from scheduler.place.feasible import slurm_name

SKEW_S = 3.0  # clocks further apart than that make times on pods wrong
SHORT_LIFE_S = 3600.0


def _server(seen: Observations) -> Iterator[Result]:
    server, greeting = seen.server.get(), seen.greeting.get()
    yield ok(f"{greeting.version} at {server} answers in {wait(seen.greeting.took_s)}")


def _identity(seen: Observations) -> Iterator[Result]:
    user = seen.whoami.get()
    if seen.kube_token_expires is None:
        yield ok(f"Kubernetes knows this client as {user}")
        return
    left_s = max(0.0, seen.kube_token_expires - seen.now)  # the API server accepts it: its clock counts
    if user.startswith("system:serviceaccount:") or left_s > SHORT_LIFE_S:
        yield ok(f"Kubernetes knows this client as {user}; the token ends in {age(left_s)}")
    else:
        yield warning(
            f"The API server knows this client as {user}; the kubeconfig's token ends in {age(left_s)}.",
            "Check that a program renews it in the kubeconfig; the bridge reads changes.",
        )


def _rights(seen: Observations) -> Iterator[Result]:
    held = seen.rights.get()
    lacking = [right for right, has in held.items() if not has]
    needed = [right for right in lacking if right in rights.CLUSTER]
    do = "Give it the ClusterRole slurm-bridge of manifests/base/rbac.yaml."
    if needed:
        yield error(f"May not {rights.spelled(needed)} in all namespaces: the bridge would refuse to start.", do)
    if referred := [right for right in lacking if right in REFERRED]:
        yield warning(
            f"May not {rights.spelled(referred)}: annotations of owners, or the reach of volumes, are not followed.", do
        )
    if of_nodes := [right for right in lacking if right in rights.NODE]:
        yield warning(
            f"May not {rights.spelled(of_nodes)}: nodes labelled {names.EXTERNAL_NODE_LABEL}=true are registered in Slurm, "
            "but get no condition and no taint.",
            do,
        )
    lacking_in = seen.rights_in.get()
    for namespace, missing in lacking_in.items():
        remedy = rights.remedy(namespace, seen.usable.scheduler_name, missing)
        problem = f"May not {rights.spelled(missing)} in namespace {namespace}"
        if set(rights.ESSENTIAL).isdisjoint(missing):
            yield warning(f"{problem}: its pods run, and lack a part of the bridge's work.", remedy)
        else:
            yield error(f"{problem}: its pods would wait.", remedy)
    if not lacking and not lacking_in:
        yield ok(f"all {len(held) + len(rights.NAMESPACE):,} that the bridge uses")


def _namespaces(seen: Observations) -> Iterator[Result]:
    managed = managed_namespaces(seen)
    if managed:
        yield ok(f"{count(len(managed), 'namespace')} managed: {some(managed)}")
    else:
        yield warning(
            "No namespace is managed: every pod of this scheduler is refused.",
            f"kubectl label namespace NAME {names.MANAGED_LABEL}=true",
        )
    existing = {namespace.name for namespace in seen.namespaces.get()}
    if missing := set(seen.chosen("managed_namespaces").managed_namespaces) - existing:
        yield warning(
            f"managed_namespaces names namespaces that do not exist: {some(missing)}.", "Correct the settings."
        )


def not_one_ready(seen: Observations) -> bool:
    """True if pods can use no node of Kubernetes, as far as Kubernetes shows.  Slurm powers a node up that a job needs."""
    nodes = [view.node for view in seen.slurm_nodes.value or ()]
    asleep = {node.name for node in nodes if node.changes_power and not node.is_off_for_good}
    return not any((node.ready or slurm_name(node) in asleep) and not node.unschedulable for node in seen.nodes.get())


def _nodes(seen: Observations) -> Iterator[Result]:
    nodes = seen.nodes.get()
    away = [node.name for node in nodes if not node.ready]
    cordoned = [node.name for node in nodes if node.unschedulable]
    usable = [node for node in nodes if node.ready and not node.unschedulable]
    summary = f"{count(len(usable), 'node')} of {len(nodes):,} ready"
    summary += f"; not ready: {some(away)}" if away else ""
    summary += f"; cordoned: {some(cordoned)}" if cordoned else ""
    if not_one_ready(seen):
        yield error(f"{summary}.", "kubectl get nodes; kubectl describe node NAME")
    else:
        yield ok(summary)


def _readable(seen: Observations) -> Iterator[Result]:
    """The bridge does nothing to an object that it cannot decode."""
    lists = (seen.namespaces.get(), seen.nodes.get(), seen.ours.get(), seen.other_pods.get().pods)
    if seen.undecoded:
        unreadable = [
            f"{thing.kind} {'/'.join(filter(None, (thing.namespace, thing.name)))} ({thing.why})"
            for thing in seen.undecoded
        ]
        yield warning(
            f"{count(len(unreadable), 'object')} cannot be read, and are left alone: {some(unreadable)}.",
            "kubectl get … -o yaml shows what is unusual there; correct or recreate it.",
        )
    else:
        yield ok(f"all {sum(map(len, lists)):,} namespaces, nodes and pods that are listed can be read")


def _clock(seen: Observations) -> Iterator[Result]:
    theirs = seen.greeting.get().clock
    if theirs is None:
        yield unknown("not checked: the API server's answers have no time")
        return
    yield skew("the API server", theirs - seen.greeting.at)


def skew(whose: str, seconds: float) -> Result:
    """Both clocks have whole seconds, so a difference of up to one second is normal."""
    if abs(seconds) <= SKEW_S:
        return ok("that of this host, within a few seconds")
    which = "ahead of" if seconds > 0 else "behind"
    return warning(
        f"The clock of {whose} is {age(abs(seconds))} {which} this host's: shown waits and expected starts are wrong.",
        "Run an NTP client (chrony, systemd-timesyncd) on both hosts.",
    )


CHECKS = (
    Check("API server", _server),
    Check("identity", _identity),
    Check("rights", _rights),
    Check("namespaces", _namespaces),
    Check("nodes", _nodes),
    Check("readable", _readable),
    Check("clock", _clock),
)
