"""The World as the page shows it.  The number of entries is limited; they are made one by one, so a look can pause.

Times are epoch seconds, not ages: the browser computes the ages, so an item that did not change is not sent again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Protocol

from bridge.node_survey import CPUS, JOBS, MEMORY, count_grant
from bridge.page.feed import Entry, Item, Sections, sections_of
from scheduler import names
from scheduler.events import Side
from scheduler.model.kubernetes import Node, Pod, PodPhase
from scheduler.model.slurm import GrantedNode, SlurmNode
from scheduler.model.text import decimal
from scheduler.place.feasible import slurm_name
from scheduler.place.fit import NodeInfo
from scheduler.rules.pod_state import pod_state
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import brief, waits
from scheduler.state.phase import Phase, chosen
from scheduler.state.placeholder import NOT_CONSIDERED, Placeholder
from scheduler.state.pod_records import ITS_PLACE
from scheduler.state.workload import Workload
from scheduler.state.world import World

ROWS_A_PHASE = 10_000
NODES_MOST = 5_000
SENTENCE_MOST = 400
# Phases in which the history of a gang is often about a single pod, so it does not describe the other pods.
BY_ITSELF = (Phase.GATHERING, Phase.UNSUBMITTED, Phase.GRANTED, Phase.BOUND)
# Order of the entries: phases that need attention first; in a phase, the workload that entered it last first.
ORDER = (Phase.ORPHANED, Phase.GRANTED, Phase.UNSUBMITTED, Phase.GATHERING, Phase.QUEUED, Phase.BOUND, Phase.DONE)


class Step(Protocol):
    """One step that was traced (bridge.telemetry.Span).  start, end: epoch seconds"""

    @property
    def name(self) -> str: ...
    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...


def entries(world: World, now: float) -> Iterator[Entry]:
    """All entries of the page, without the details of single workloads.  The World may change between two entries."""
    yield from _sides(world, now)
    total: Counter[str] = Counter()
    yield from _pods(world, total)
    for phase in Phase:
        yield "counts", phase.value, partial(total.__getitem__, phase.value)
    yield from _nodes(world)


def snapshot(world: World, now: float) -> Sections:
    """The sections with all items, made at once."""
    return {"pods": {}, "nodes": {}, **sections_of(entries(world, now))}


def _pods(world: World, total: Counter[str]) -> Iterator[Entry]:
    """Rows by pod UID, up to ROWS_A_PHASE of each phase.

    total   is filled: phase to the number of all pods of workloads in this phase
    """
    keys = [tuple(reversed(world.by_phase[phase])) for phase in ORDER]
    for of_phase in keys:
        left = ROWS_A_PHASE
        for key in of_phase:
            workload = world.workloads.get(key)
            if workload is None:  # forgotten since the look began
                continue
            total[world.phase_of[key].value] += len(workload.pods)
            for uid, pod in islice(tuple(workload.pods.items()), max(left, 0)):
                if world.workloads.get(key) is not workload:  # forgotten since the row before
                    break
                yield "pods", uid, partial(_row, world, workload, pod)
            left -= len(workload.pods)
            if left <= 0:
                yield None


def _row(world: World, workload: Workload, pod: Pod) -> Item:
    job = _job_of(world, workload)
    return {
        "key": workload.key,
        "namespace": pod.namespace,
        "name": pod.name,
        "created": pod.created,
        "phase": world.phase_of[workload.key].value,
        "word": _word(world, workload, pod),
        "job": job.id if job else None,
        "state": " ".join(sorted(job.states)) if job else "",
        "user": job.user if job else "",
        "node": workload.node_of(pod),
        "why": _why(world, workload, pod, job)[:SENTENCE_MOST],
        "reason": _reason(world, workload, pod, job),
    }


def _word(world: World, workload: Workload, pod: Pod) -> str:
    """The state of the pod in one word."""
    status, shown = workload.status_about(ITS_PLACE, pod.uid), workload.shown_condition(pod)
    reason = (status.condition if status is not None else "") or (shown.reason if shown is not None else "")
    return pod_state(pod, workload.node_of(pod), reason, world.phase_of[workload.key])


def _job_of(world: World, workload: Workload) -> Placeholder | None:
    """The live placeholder of the workload; if there is none, the job with the highest id; None: it has no job."""
    jobs = world.jobs_of(workload)
    return chosen(workload, jobs) or max(jobs, key=lambda job: job.id, default=None)


def _reason(world: World, workload: Workload, pod: Pod, job: Placeholder | None) -> str:
    """Why a pod waits, in one word: Slurm's reason for its job, otherwise the reason of its condition; "": none."""
    if pod.finished or workload.node_of(pod):
        return ""
    if job is not None and job.job is not None and not job.holds_nodes and job.job.reason not in NOT_CONSIDERED:
        return job.job.reason
    shown = workload.shown_condition(pod)
    return shown.reason if shown else ""


def _why(world: World, workload: Workload, pod: Pod, job: Placeholder | None) -> str:
    """A sentence about the pod: why it waits, what it holds on its node, a warning, or how it ended.

    If there is none, the last entry of the workload's history; for a pod of a gang its node, or how many pods have gathered.
    """
    if pod.finished:
        return (pod.end_reason or pod.phase.value) + (f", exit code {pod.exit_code}" if pod.exit_code else "")
    if not workload.node_of(pod):
        if message := _message(workload, pod):
            return brief(message)
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
    """The CPUs, memory and devices that a grant has on the node.  Slurm counts a typed device twice; it is shown once."""
    devices = [f"{count:,} {name}" for name, count in sorted(node.gres.items()) if ":" not in name]
    cpus = f"{node.cpus} CPU{'s' if node.cpus != 1 else ''}"
    memory = f"{decimal(node.memory_mib / 1024)} GiB" if node.memory_mib >= 1024 else f"{node.memory_mib} MiB"
    return ", ".join([cpus, memory, *devices])


# --- nodes --------------------------------------------------------------------------------------------------------


def _nodes(world: World) -> Iterator[Entry]:
    """Rows of nodes by name: what Kubernetes offers and pods use, and what Slurm has and the bridge's jobs hold."""
    held: dict[str, Counter[str]] = {}
    for job in tuple(world.placeholders.values()):
        count_grant(job, held)
        yield None
    ours, known = dict(world.nodes or {}), dict(world.slurm_nodes or {})
    for name, node in islice(sorted(ours.items()), NODES_MOST):
        there = slurm_name(node)
        yield "nodes", name, partial(_node, world, node, known.get(there), held.get(there, Counter()))
    both = {slurm_name(node) for node in ours.values()}
    alone = (name for name in sorted(known) if name not in both)
    for name in islice(alone, max(0, NODES_MOST - len(ours))):
        yield "nodes", name, partial(_only_in_slurm, known[name], held.get(name, Counter()))


def _only_in_slurm(node: SlurmNode, held: Mapping[str, int]) -> Item:
    return {"slurm": _slurm_node(node, held)}


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
        "cpus": [held.get(CPUS, 0), node.cpus],
        "gib": [held.get(MEMORY, 0) // 1024, node.memory_mib // 1024],
        "devices": [sum(held.get(name, 0) for name in node.gres if ":" not in name), _plain(node.gres)],
        "jobs": held.get(JOBS, 0),
    }


def _plain(gres: Mapping[str, int]) -> int:
    """The number of devices.  Slurm also counts a typed device without its type; only these counts are added."""
    return sum(count for name, count in gres.items() if ":" not in name)


# --- both sides ---------------------------------------------------------------------------------------------------


def _sides(world: World, now: float) -> Iterator[Entry]:
    """For each side since when it does not answer, and why; and the bridge: its last poll of jobs, and lists it waits for."""
    outages = {side.value: world.outages.get(side) for side in Side} | {"slurmdbd": world.accounting_outage}
    for name, outage in outages.items():
        waits = {"since": outage.since if outage else None, "why": outage.why[:SENTENCE_MOST] if outage else ""}
        yield "sides", name, partial(dict, waits)
    polled = world.polled.ended if world.polled else None
    bridge = {
        "started": world.started,
        "polled": round(polled, 1) if polled is not None else None,
        "missing": world.missing,
        "quiet": max(0.0, world.quiet_until()) if now < world.quiet_until() else None,
    }
    yield "sides", "bridge", partial(dict, bridge)


# --- one workload -------------------------------------------------------------------------------------------------

# The name of each traced step on the page.
STEPS = {"submitted": "created → asked Slurm", "granted": "waiting for Slurm", "bound": "granted → bound"}
STEPS |= {"started": "containers start", "ended": "job ended"}
RUNS = "runs"


def detail(world: World, key: str, steps: Iterable[Step], now: float) -> Item:
    """The history and the waterfall of one workload, and why it waits now; None: the workload is not known."""
    workload, steps = world.workloads.get(key), [step for step in steps if step.name in STEPS]
    if workload is None and not steps:
        return None
    story = [_told_once(list(same)) for _, same in groupby(world.story(key), key=itemgetter(1))]
    bars = list(waterfall(workload, _job(world, workload), steps, now))
    return {"story": story, "waterfall": bars, "waits": _waits_now(world, workload, now)}


def _waits_now(world: World, workload: Workload | None, now: float) -> str:
    """Why the pods of the workload wait; "": none waits, or there is no message.

    In Slurm's queue: the present reason, expected start and place; the pod itself shows them as of the last change (Q2).
    Otherwise the message of the first waiting pod, for example a refusal.
    """
    if workload is None:
        return ""
    job = world.waiting_job(workload)
    if job is not None and job.job is not None and job.job.reason not in NOT_CONSIDERED:
        return waits(workload, job.job, Pass(world, now))
    said = (_message(workload, pod) for pod in workload.members if not workload.node_of(pod))
    return next(filter(None, said), "")


def _message(workload: Workload, pod: Pod) -> str:
    """The message that the pod shows, or is about to show; "": none."""
    status = workload.status_about(ITS_PLACE, pod.uid)
    if status is not None and status.message:
        return status.message
    shown = workload.shown_condition(pod)
    return shown.message if shown is not None else ""


def _told_once(same: Sequence[tuple[float, str]]) -> Item:
    """One entry of the history in place of several equal entries in a row, with their number."""
    at, entry = same[0]
    return {"at": at, "what": f"{entry} ({len(same):,} times)" if len(same) > 1 else entry}


def _job(world: World, workload: Workload | None) -> Placeholder | None:
    return _job_of(world, workload) if workload else None


def waterfall(
    workload: Workload | None, job: Placeholder | None, steps: Iterable[Step], now: float
) -> Iterator[Mapping[str, Item]]:
    """The steps in the order of time: {"name", "start", "end"}; `end` None: the step has not ended.

    Ended steps are taken from the trace.  A step that has not ended is not traced yet, and follows from the facts.
    """
    traced = {step.name: step for step in sorted(steps, key=lambda step: step.start)}
    for name, step in traced.items():
        if name != "ended":
            yield {"name": STEPS[name], "start": step.start, "end": step.end}
    ended = traced.get("ended")
    bound = traced.get("bound")
    if bound is None:
        yield from _waits(workload, job, ended, now)
    elif workload is not None and workload.unfinished and ended is None:
        runs = "started" in traced or all(pod.phase is PodPhase.RUNNING for pod in workload.unfinished)
        yield {"name": RUNS if runs else STEPS["started"], "start": _last(traced), "end": None}
    elif ended is not None:
        yield {"name": RUNS, "start": _last(traced), "end": ended.start}
    if ended is not None:
        yield {"name": STEPS["ended"], "start": ended.start, "end": ended.end}


def _last(traced: Mapping[str, Step]) -> float:
    return max(step.end for name, step in traced.items() if name != "ended")


def _waits(
    workload: Workload | None, job: Placeholder | None, ended: Step | None, now: float
) -> Iterator[Mapping[str, Item]]:
    """The steps up to the bind, from the facts: the pod is not bound, or an earlier process traced the bind."""
    if workload is None:
        return
    until = ended.start if ended is not None else None
    asked = job.submitted if job else None
    created = min(workload.created, now)
    asked = max(created, asked) if asked is not None else None  # Slurm's clock may differ
    yield {"name": STEPS["submitted"], "start": created, "end": asked or until}
    if asked is not None and job is not None:
        yield {"name": STEPS["granted"], "start": asked, "end": job.granted_at or until}
        if job.granted_at is not None:
            yield {"name": STEPS["bound"], "start": job.granted_at, "end": until}
