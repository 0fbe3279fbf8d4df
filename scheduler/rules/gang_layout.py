"""The layout of a gang's job: how many nodes each component takes, and how many pods each node gets (W7, F5).

Affinity and anti-affinity of pods of one component become options of that component.  Components never share a node (Slurm
facts 11).  So anti-affinity between components needs no option, and affinity between components is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from scheduler import names
from scheduler.model.amounts import Amounts
from scheduler.model.hostlist import expand, folded
from scheduler.model.kubernetes import Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import JobSpec, SlurmNode
from scheduler.place.capacity import Alike, alike, fewest_nodes, lacking, laid_out, merged, rooms_on
from scheduler.place.node_counts import Counted, shared
from scheduler.place.separate_nodes import SeparateNodes
from scheduler.place.sharing import (
    PodsPerNode,
    has_affinity_between,
    has_mutual_anti_affinity,
    keeps_all_apart,
    keeps_all_together,
    most_pods_on,
    need_one_node,
    step_of,
    steps,
)
from scheduler.rules.scheduling_pass import Pass
from scheduler.state.world import World
from scheduler.translate.gang import components
from scheduler.translate.job_spec import MIB

NODES_LISTED = 8  # nodes that are listed in the time in which one node is judged
_AFFINITY_BETWEEN_COMPONENTS = (
    "The required pod affinity of this gang wants its pods on one node, but they ask for different resources or nodes, and "
    "Slurm gives each kind nodes of its own. Let all pods ask for the same, or make the affinity a preference."
)

_ALL_ON_ONE = "The required pod affinity wants these pods on one node."
_SOME_ON_ONE = (
    "The required pod affinity wants some of these pods on one node. Slurm has no option for a part of the pods "
    "with the same request, so all of these are requested on one node. Let pods that may be on other nodes request other "
    "resources."
)


@dataclass(frozen=True, slots=True)
class _Site:
    """A component of a job, and the nodes where it may run.

    spec     the component, with the options that the anti-affinity among its pods requires (F5)
    kinds    the nodes that the component may use
    most     the most pods of the component that a node of each kind holds as Kubernetes counts, by name of its `node`
    memory   True if Slurm counts memory
    on_one_node   True if the affinity wants some of its pods on one node: then all of its pods are requested on one node
    """

    spec: JobSpec
    pods: Sequence[Pod]
    kinds: Sequence[Alike]
    most: Mapping[str, PodsPerNode]
    memory: bool
    on_one_node: bool

    def counted(self) -> Counted:
        """The component, with the numbers of nodes that it may take."""
        if self.on_one_node:
            return Counted(self.spec, 1, 1)
        fewest = fewest_nodes(self.spec, self.kinds, self.most, memory=self.memory)
        rooms = rooms_on(self.spec, (kind.node for kind in self.kinds), memory=self.memory)
        is_limited = self.spec.tasks_per_node is not None or any(
            self.most[kind.node.name].pods < min(room, self.spec.tasks)
            for kind, room in zip(self.kinds, rooms, strict=True)
        )
        return Counted(self.spec, fewest, self.most_nodes, self._usable, is_limited)

    @property
    def _usable(self) -> int:
        """The number of nodes that the component may use."""
        return sum(len(kind.names) for kind in self.kinds)

    @property
    def most_nodes(self) -> int:
        """The number of nodes that the component takes at most."""
        return 1 if self.on_one_node else self.spec.tasks

    def laid_out(self, spec: JobSpec, readable: str) -> JobSpec | Refusal:
        """*spec* with the number of pods for each node, or why that is impossible.

        spec       this component, with its share of the gang's nodes
        readable   the gang, for people
        """
        if self.on_one_node:
            spec = replace(spec, min_nodes=1, max_nodes=1)
        if spec.tasks_per_node is not None and (refusal := self._too_few(spec, readable)) is not None:
            return refusal
        if not self.on_one_node:
            return laid_out(spec, self.kinds, self.most, memory=self.memory)
        why = lacking(spec, self.kinds, spec.partition)
        found = Refusal(names.NO_NODE, why) if why else laid_out(spec, self.kinds, self.most, memory=self.memory)
        if isinstance(found, JobSpec):
            return found
        on_one = _ALL_ON_ONE if keeps_all_together(self.pods) else _SOME_ON_ONE
        return replace(found, message=f"{on_one} {found.message}")

    def _too_few(self, spec: JobSpec, readable: str) -> Refusal | None:
        """Why there can never be enough nodes for pods that anti-affinity keeps apart; None: there are enough."""
        usable, at_most = self._usable, spec.max_nodes
        if usable < spec.tasks:
            lacking = f"only {usable:,} {'node' if usable == 1 else 'nodes'} can run them"
        elif at_most is None or at_most >= spec.tasks:
            return None
        elif self.on_one_node:
            lacking = "the pod affinity wants several of them on one"
        else:
            lacking = f"annotation {names.PREFIX}{names.MAX_NODES} or the policy (max_nodes) allows {at_most:,}"
        if keeps_all_apart(self.pods):
            subject = f"each of {spec.tasks:,} pods of {readable}"
            problem = f"The pod anti-affinity requires a node of its own for {subject}, and {lacking}."
        else:
            problem = (
                f"The pod anti-affinity keeps some of {spec.tasks:,} pods of {readable} apart that ask for the same. Slurm "
                f"has no option for some pairs alone, so each of them gets a node of its own, and {lacking}. Let pods that "
                "may share a node ask for other resources than the pods from which they keep apart."
            )
        return Refusal(names.NO_NODE, problem)


def lay_out(readable: str, spec: JobSpec, asked: Sequence[tuple[Pod, JobSpec]], this_pass: Pass) -> JobSpec | Refusal:
    """The job of a gang, with the number of nodes and of pods for each node, if Slurm needs these numbers.

    readable   the gang, for people
    spec       all components, as `together` gives them
    asked      each pod, and what it would ask for alone
    """
    parts = components(asked)
    if has_affinity_between([pods for _, pods in parts]):
        return Refusal(names.REFUSED, _AFFINITY_BETWEEN_COMPONENTS)
    members = zip((spec, *spec.parts), parts, strict=True)
    kinds = _Kinds(steps(pods for _, pods in parts if len(pods) > 1), this_pass)
    sites = [_site(component, pods, kinds, this_pass) for component, (_, pods) in members]
    at_most = sum(site.most_nodes for site in sites)
    if spec.min_nodes is not None and spec.min_nodes > at_most:
        return Refusal(names.REFUSED, _fewer_than_asked(spec.min_nodes, at_most))
    if len(sites) == 1:
        return sites[0].laid_out(sites[0].spec, readable)
    counted = shared(spec.min_nodes, spec.max_nodes, [site.counted() for site in sites])
    if isinstance(counted, Refusal):
        return counted
    laid: list[JobSpec] = []
    for component, site in zip(counted, sites, strict=True):
        found = site.laid_out(component, readable)
        if isinstance(found, Refusal):
            return found
        laid.append(found)
    laid = _without_nodes_of_others(laid, this_pass)
    return replace(laid[0], parts=tuple(laid[1:]))


def _without_nodes_of_others(components: Sequence[JobSpec], this_pass: Pass) -> list[JobSpec]:
    """The components; each excludes the nodes that the others need (separate_nodes.py)."""
    separate = SeparateNodes(with_usable_nodes(components, this_pass), memory=this_pass.world.counts_memory)
    kept = separate.kept_for_others()
    this_pass.effort += separate.effort
    return [
        replace(spec, excluded_nodes=folded([*expand(spec.excluded_nodes), *others])) if others else spec
        for spec, others in zip(components, kept, strict=True)
    ]


def _fewer_than_asked(least: int, at_most: int) -> str:
    return (
        f"Annotation {names.PREFIX}{names.MIN_NODES}: {least:,} nodes, but because of the required pod affinity of this "
        f"gang its pods are requested on {at_most:,}. Lower the number, or make the affinity a preference."
    )


class _Kinds:
    """The nodes that the components of one gang may use.  Nodes of one kind hold equally many pods of each component.

    by   the steps (see `steps`) of all components: most components may use the same nodes, so these are grouped once
    """

    def __init__(self, by: Mapping[str, Sequence[int]], this_pass: Pass) -> None:
        self._by, self._pass = by, this_pass
        self._known: dict[tuple[str, str], list[Alike]] = {}

    def of(self, spec: JobSpec) -> list[Alike]:
        """The kinds of nodes that this component may use."""
        asked = spec.partition, spec.excluded_nodes
        if (known := self._known.get(asked)) is None:
            finer = _usable_kinds(spec, self._pass)
            self._pass.effort += len(finer)
            known = self._known[asked] = merged(finer, self._step_of)
        return known

    def _step_of(self, node: SlurmNode) -> tuple[int, ...]:
        return step_of(_offered(node, self._pass.world), self._by)


def _site(spec: JobSpec, pods: Sequence[Pod], known: _Kinds, this_pass: Pass) -> _Site:
    spec, world = replace(spec, parts=()), this_pass.world
    if spec.tasks == 1:
        return _Site(spec, pods, (), {}, world.counts_memory, on_one_node=False)
    if has_mutual_anti_affinity(pods):
        spec = replace(spec, tasks_per_node=1)
    kinds = known.of(spec)
    this_pass.effort += len(kinds)
    offered = {kind.node.name: _offered(kind.node, world) for kind in kinds}
    # Pods that run may stay where they are, whatever their nodes offer now (S7).
    if all(pod.uid in world.node_of for pod in pods):
        together = max(Counter(world.node_of[pod.uid] for pod in pods).values())
        most = most_pods_on(offered, pods, unlimited=world.counted_by_slurm)
        most = {name: replace(limit, pods=max(limit.pods, together)) for name, limit in most.items()}
    else:
        most = most_pods_on(offered, pods)
    return _Site(spec, pods, kinds, most, world.counts_memory, on_one_node=need_one_node(pods))


def _usable_kinds(spec: JobSpec, this_pass: Pass) -> list[Alike]:
    """The nodes that the component may use, grouped by hardware and by what Kubernetes lets pods use of it.

    They are kept until nodes change: a gang that waits is looked at again after each read of its job.
    """
    world = this_pass.world
    asked = spec.partition, spec.excluded_nodes, world.counts_memory
    if (known := world.usable_kinds.get(asked)) is not None:
        return known
    usable = usable_nodes(spec, world)
    this_pass.effort += len(usable)
    kinds = alike(usable, lambda node: frozenset(_offered(node, world).items()))
    return world.usable_kinds.keep(asked, kinds, len(usable) + len(spec.excluded_nodes))


def _offered(node: SlurmNode, world: World) -> Amounts:
    """What pods may use of the node; nothing if Kubernetes has no such node: the job of pods that run excludes none (S7).

    CPUs and memory that Slurm does not have are left out: no job gets them, and they would make nodes different that differ
    by some KiB.
    """
    known = (world.nodes or {}).get(world.by_slurm_name.get(node.name, ""))
    offered = known.allocatable if known is not None else {}
    in_slurm = {"cpu": node.cpus * 1000, **({"memory": node.memory_mib * MIB} if world.counts_memory else {})}
    return {resource: min(amount, in_slurm.get(resource, amount)) for resource, amount in offered.items()}


def with_usable_nodes(components: Iterable[JobSpec], this_pass: Pass) -> list[tuple[JobSpec, list[SlurmNode]]]:
    """Each component with the Slurm nodes that it may use.  Most components of a job may use the same ones."""
    world, parts = this_pass.world, []
    found: dict[tuple[str, str], list[SlurmNode]] = {}
    for spec in components:
        asked = spec.partition, spec.excluded_nodes
        if (nodes := found.get(asked)) is None:
            nodes = found[asked] = usable_nodes(spec, world)
            this_pass.effort += len(world.slurm_nodes or {}) // NODES_LISTED
        parts.append((spec, nodes))
    return parts


def usable_nodes(spec: JobSpec, world: World) -> list[SlurmNode]:
    """The Slurm nodes that a job of this specification may use: those of its partition, without the excluded ones."""
    partition, excluded = spec.partition or world.default_partition, frozenset(expand(spec.excluded_nodes))
    nodes = (world.slurm_nodes or {}).values()
    return [node for node in nodes if partition in ("", *node.partitions) and node.name not in excluded]
