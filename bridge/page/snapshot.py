"""The World as the page shows it: a pure function, whose result is limited for any number of pods.

Times are epoch seconds, not ages: an item that did not change is not sent again, and the browser computes the ages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol

from scheduler import names
from scheduler.events import Side
from scheduler.model.kubernetes import Node, Pod
from scheduler.model.slurm import GrantedNode, SlurmNode
from scheduler.place.assign import NodeInfo
from scheduler.place.feasible import slurm_name
from scheduler.state.phase import Phase, chosen
from scheduler.state.workload import Placeholder, Workload
from scheduler.state.world import World

Item = Any  # what JSON can say
Sections = Mapping[str, Mapping[str, Item]]

ROWS_A_PHASE = 100
NODES_MOST = 200
SENTENCE_MOST = 400
# Phases in which an action on one pod of a gang says nothing about its other pods.
BY_ITSELF = (Phase.GATHERING, Phase.UNSUBMITTED, Phase.GRANTED, Phase.BOUND)
# Order of the rows: phases that need attention first; within a phase the newest first.
ORDER = (Phase.ORPHANED, Phase.GRANTED, Phase.UNSUBMITTED, Phase.GATHERING, Phase.QUEUED, Phase.BOUND, Phase.DONE)


class Step(Protocol):
    """One step that was traced (bridge.telemetry.Span); epoch seconds."""

    @property
    def name(self) -> str: ...
    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...


def snapshot(world: World, now: float) -> Sections:
    """Everything but the details of single workloads."""
    return {"pods": pods(world), "counts": counts(world), "nodes": nodes(world), "sides": sides(world, now)}


def counts(world: World) -> Mapping[str, int]:
    """Pods by the phase of their workload; all of them, also those that `pods` leaves out."""
    return {phase.value: sum(len(world.workloads[key].pods) for key in world.by_phase[phase]) for phase in Phase}


def pods(world: World) -> Mapping[str, Item]:
    """Rows by pod UID: at most so many a phase, the newest."""
    shown = (key for phase in ORDER for key in islice(reversed(world.by_phase[phase]), ROWS_A_PHASE))
    workloads = (world.workloads[key] for key in shown)
    return {uid: _row(world, workload, pod) for workload in workloads for uid, pod in workload.pods.items()}


def _row(world: World, workload: Workload, pod: Pod) -> Item:
    job = _job_of(world, workload)
    return {
        "key": workload.key,
        "namespace": pod.namespace,
        "name": pod.name,
        "created": pod.created,
        "phase": world.phase_of[workload.key].value,
        "gated": pod.gated,
        "pod": "Terminating" if pod.deleting_at is not None else pod.phase.value,
        "job": job.id if job else None,
        "state": " ".join(sorted(job.states)) if job else "",
        "user": job.user if job else "",
        "node": workload.node_of(pod),
        "why": _why(world, workload, pod, job)[:SENTENCE_MOST],
    }


def _job_of(world: World, workload: Workload) -> Placeholder | None:
    """The placeholder that counts; of a workload that is over, the last."""
    mine = world.jobs_of(workload)
    return chosen(workload, mine) or max(mine, key=lambda job: job.id, default=None)


def _why(world: World, workload: Workload, pod: Pod, job: Placeholder | None) -> str:
    """The message of a pod that waits; the resources of one that runs, or a warning; how it ended; else the last action.

    A gang has one history, so each of its pods shows its own node.
    """
    if pod.finished:
        return (pod.end_reason or pod.phase.value) + (f", exit code {pod.exit_code}" if pod.exit_code else "")
    if not workload.node_of(pod):
        status = workload.last_status.get(pod.uid)
        if status is not None and status.message:
            return status.message
        if shown := workload.shown_condition(pod):
            return shown.message
    elif job is not None and job.grant is not None and job.holds_nodes:
        node = (world.nodes or {}).get(workload.node_of(pod))
        here = [held for held in job.grant.everywhere if node is not None and held.name == slurm_name(node)]
        if pod.job_condition is not None and pod.job_condition.reason != names.RUNS:
            return pod.job_condition.message
        who = "its gang holds" if workload.group else "holds"
        return "; ".join(f"{who} {_amounts(held)}" for held in here)
    if workload.group is not None and world.phase_of[workload.key] in BY_ITSELF:
        stands_on = workload.node_of(pod)
        return f"is on node {stands_on}" if stands_on else workload.gathered
    return workload.story[-1][1] if workload.story else ""


def _amounts(node: GrantedNode) -> str:
    """As squeue's columns would say it: a typed device counts under its name too, and is said once."""
    devices = [f"{count} {name}" for name, count in sorted(node.gres.items()) if ":" not in name]
    cpus = f"{node.cpus} CPU{'s' if node.cpus != 1 else ''}"
    memory = f"{node.memory_mib / 1024:.4g} GiB" if node.memory_mib >= 1024 else f"{node.memory_mib} MiB"
    return ", ".join([cpus, memory, *devices])


# --- nodes --------------------------------------------------------------------------------------------------------


def nodes(world: World) -> Mapping[str, Item]:
    """Rows by name: what Kubernetes offers and pods take, what Slurm knows and our jobs hold there."""
    held = _held(world)
    known = world.slurm_nodes or {}
    rows = {
        name: _node(world, node, known.get(slurm_name(node)), held.get(slurm_name(node), {}))
        for name, node in islice(sorted((world.nodes or {}).items()), NODES_MOST)
    }
    both = {slurm_name(node) for node in (world.nodes or {}).values()}
    alone = (name for name in sorted(known) if name not in both)
    return rows | {
        name: {"slurm": _slurm_node(known[name], held.get(name, {}))} for name in islice(alone, NODES_MOST - len(rows))
    }


def _node(world: World, node: Node, known: SlurmNode | None, held: Mapping[str, int]) -> Item:
    there = world.node_info.get(node.name, NodeInfo())
    taken = there.taken
    devices = [resource for resource in node.allocatable if resource in world.config.translation.gres]
    return {
        "ready": node.ready,
        "cordoned": node.unschedulable,
        "says": node.in_slurm.message if node.in_slurm is not None else None,
        "pods": len(there.pods),
        "cpus": [taken.get("cpu", 0) / 1000, node.allocatable.get("cpu", 0) / 1000],
        "gib": [round(taken.get("memory", 0) / 2**30), node.allocatable.get("memory", 0) >> 30],
        "devices": [
            sum(taken.get(resource, 0) for resource in devices),
            sum(node.allocatable[resource] for resource in devices),
        ],
        "slurm": _slurm_node(known, held) if known else None,
    }


def _slurm_node(node: SlurmNode, held: Mapping[str, int]) -> Item:
    return {
        "name": node.name,
        "states": sorted(node.states),
        "reason": node.reason,
        "cpus": [held.get("cpus", 0), node.cpus],
        "gib": [held.get("memory_mib", 0) // 1024, node.memory_mib // 1024],
        "devices": [held.get("devices", 0), sum(count for name, count in node.gres.items() if ":" not in name)],
        "jobs": held.get("jobs", 0),
    }


def _held(world: World) -> dict[str, dict[str, int]]:
    """The resources that the bridge's jobs hold, by Slurm's name of the node."""
    held: dict[str, dict[str, int]] = {}
    for job in world.placeholders.values():
        if job.grant is None or not job.holds_nodes:
            continue
        for part in job.grant.nodes:
            total = held.setdefault(part.name, {"cpus": 0, "memory_mib": 0, "devices": 0, "jobs": 0})
            total["jobs"] += 1
            total["cpus"] += part.cpus
            total["memory_mib"] += part.memory_mib
            total["devices"] += sum(count for name, count in part.gres.items() if ":" not in name)
    return held


# --- both sides ---------------------------------------------------------------------------------------------------


def sides(world: World, now: float) -> Mapping[str, Item]:
    """Which sides answer, and since when they do not; the time of the last poll of Slurm's jobs; what is still awaited."""
    lost = {side.value: world.lost.get(side) for side in Side} | {"slurmdbd": world.accounting_lost}
    waits = {
        name: {"since": each.since if each else None, "why": each.why[:SENTENCE_MOST] if each else ""}
        for name, each in lost.items()
    }
    polled = world.polled.ended if world.polled else None
    bridge = {
        "started": world.started,
        "polled": round(polled, 1) if polled is not None else None,
        "missing": world.missing,
        "quiet": max(0.0, world.quiet_until()) if now < world.quiet_until() else None,
    }
    return {**waits, "bridge": bridge}


# --- one workload -------------------------------------------------------------------------------------------------

# What a traced step is called on the page.
STEPS = {"submitted": "created → asked Slurm", "granted": "waiting for Slurm", "bound": "granted → bound"}
STEPS |= {"started": "containers start", "released": "job ended"}
RUNS = "runs"


def detail(world: World, key: str, steps: Iterable[Step], now: float) -> Item:
    """History and waterfall of one workload; None if it is not known."""
    workload, steps = world.workloads.get(key), [step for step in steps if step.name in STEPS]
    if workload is None and not steps:
        return None
    story = [{"at": at, "what": what} for at, what in world.story(key)]
    return {"story": story, "waterfall": list(waterfall(workload, _job(world, workload), steps, now))}


def _job(world: World, workload: Workload | None) -> Placeholder | None:
    return _job_of(world, workload) if workload else None


def waterfall(
    workload: Workload | None, job: Placeholder | None, steps: Iterable[Step], now: float
) -> Iterator[Mapping[str, Item]]:
    """Steps in the order of time: {"name", "start", "end"}; `end` None while it lasts.

    What was traced is taken from the trace; what is still under way is not traced yet and follows from the facts.
    """
    traced = {step.name: step for step in sorted(steps, key=lambda step: step.start)}
    for name, step in traced.items():
        if name != "released":
            yield {"name": STEPS[name], "start": step.start, "end": step.end}
    released = traced.get("released")
    bound = traced.get("bound")
    if bound is None:
        yield from _waits(workload, job, released, now)
    elif workload is not None and workload.unfinished and released is None:
        yield {"name": RUNS if "started" in traced else STEPS["started"], "start": _last(traced), "end": None}
    elif released is not None:
        yield {"name": RUNS, "start": _last(traced), "end": released.start}
    if released is not None:
        yield {"name": STEPS["released"], "start": released.start, "end": released.end}


def _last(traced: Mapping[str, Step]) -> float:
    return max(step.end for name, step in traced.items() if name != "released")


def _waits(
    workload: Workload | None, job: Placeholder | None, released: Step | None, now: float
) -> Iterator[Mapping[str, Item]]:
    """The steps before the bind, or of a bind that an earlier process traced."""
    if workload is None:
        return
    until = released.start if released is not None else None
    asked = job.submitted if job else None
    created = min(workload.created, now)
    asked = max(created, asked) if asked is not None else None  # Slurm's clock may be another
    yield {"name": STEPS["submitted"], "start": created, "end": asked or until}
    if asked is not None and job is not None:
        yield {"name": STEPS["granted"], "start": asked, "end": job.granted_at or until}
        if job.granted_at is not None:
            yield {"name": STEPS["bound"], "start": job.granted_at, "end": until}
