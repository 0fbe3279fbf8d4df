"""Checks of what Slurm must have before it takes the labelled nodes of Kubernetes (docs/nodes.md).

Each node shows how its registration went (`kubectl describe node`); these checks find problems before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.cli.doctor.findings import Check, Result, count, error, ok, some, warning
from bridge.cli.doctor.views import Observations
from scheduler import names
from scheduler.model.kubernetes import Node
from scheduler.nodes.observed import is_to_be_registered
from scheduler.nodes.registration import named_partitions, size
from scheduler.place.feasible import slurm_name


def _labelled(seen: Observations) -> list[Node]:
    return [node for node in seen.nodes.get() if is_to_be_registered(node)]


def _registration(seen: Observations) -> Iterator[Result]:
    """May the bridge make nodes, has Slurm room for them, and does it count their devices?"""
    wanted = _labelled(seen)
    if not wanted:
        yield ok(f"no node is labelled {names.EXTERNAL_NODE_LABEL}=true")
        return
    known = {view.node.name for view in seen.slurm_nodes.get()}
    conf, gres = seen.configuration.get(), seen.chosen("gres").gres
    token = seen.acting_token.value or seen.token.get()
    found = [*_by_whom(token.user, conf.slurm_user)]
    missing = [node.name for node in wanted if slurm_name(node) not in known]
    if missing and len(known) + len(missing) > conf.max_node_count:
        found.append(
            error(
                f"Slurm has {count(len(known), 'node')}, and room for {conf.max_node_count:,} (MaxNodeCount): "
                f"{some(missing)} cannot be registered.",
                "Raise MaxNodeCount in slurm.conf, and scontrol reconfigure.",
            )
        )
    devices = {name.partition(":")[0] for node in wanted for name in size(node, gres).gres}
    if uncounted := devices - set(conf.gres_types):
        found.append(
            error(
                f"Labelled nodes have {some(uncounted)}, which GresTypes does not name: Slurm counts none of them.",
                f"GresTypes={','.join(sorted({*conf.gres_types, *uncounted}))} in slurm.conf, and scontrol reconfigure.",
            )
        )
    yield from found or [
        ok(f"{count(len(wanted), 'labelled node')}, {len(wanted) - len(missing):,} of them known to Slurm")
    ]


def _by_whom(user: str, slurm_user: str) -> Iterator[Result]:
    if user not in (slurm_user, "root"):
        yield warning(
            f"Nodes are made by SlurmUser ({slurm_user}) and by Slurm's administrators; the token is of {user or 'nobody'}.",
            f"Use a token of {slurm_user} (slurm_acting_token_file where there is one).",
        )


def _partitions(seen: Observations) -> Iterator[Result]:
    """A node comes into the partitions of its annotation by a NodeSet of that feature."""
    wanted = {node.name: (node, named_partitions(node)) for node in _labelled(seen)}
    named = sorted({name for _, partitions in wanted.values() for name in partitions})
    if not named:
        yield ok("no labelled node names a partition, so labelled nodes are only in partitions with Nodes=ALL")
        return
    there, known = seen.partition_details.get(), {view.node.name: view.node for view in seen.slurm_nodes.get()}
    found: list[Result] = []
    if absent := [name for name in named if name not in there]:
        found.append(
            error(
                f"Annotations {names.PARTITIONS} name no partition of Slurm: {some(absent)}; such nodes are not registered.",
                f"Correct them; Slurm has {some(there, 5)}.",
            )
        )
    for name in named:
        known_there = [
            known[slurm_name(node)] for node, named in wanted.values() if name in named and slurm_name(node) in known
        ]
        outside = [partition.name for partition in known_there if name not in partition.partitions]
        if name in there and (not there[name].node_sets or outside):
            nodes = f" {some(outside)} {'is' if len(outside) == 1 else 'are'} outside of it." if outside else ""
            found.append(
                error(
                    f"No NodeSet of feature {name} brings labelled nodes into partition {name}.{nodes}",
                    f"slurm.conf: NodeSet={name}nodes Feature={name}, and {name}nodes among the Nodes of that partition.",
                )
            )
    yield from found or [ok(f"partitions that they name: {some(named)}")]


CHECKS = (
    Check("labelled nodes", _registration),
    Check("their partitions", _partitions),
)
