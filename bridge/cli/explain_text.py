"""An explanation as text for a terminal, and as JSON for programs, with the request that Slurm would get."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from bridge.cli.costs_text import costs_lines
from bridge.cli.paragraphs import INDENT, pairs, wrapped
from bridge.cli.terminal import printable
from bridge.explanation_json import plain
from bridge.kube.admin_reads import PodEvent
from bridge.slurm import bodies
from bridge.slurm.admin_reads import Verdict
from bridge.slurm.costs import Costs
from scheduler.explain import Explanation, as_sbatch
from scheduler.model.reasons import is_blocked
from scheduler.model.slurm import SINGLETON, UNLIMITED, Job, JobSpec
from scheduler.model.text import dated
from scheduler.rules.status import clock
from scheduler.state.phase import Phase
from scheduler.state.visits import NO_CONTENDER

MOST_NODES = 8  # so many nodes are named
NARROWEST = 40  # columns; a narrower terminal breaks the lines itself


@dataclass(frozen=True, slots=True)
class Answer:
    """The explanation of one pod, or of the pods of a manifest that are one workload.

    title    which pod it explains
    planned  True if the pod does not exist, and a manifest would make it
    notes    sentences about missing parts, with the reason
    trial    Slurm's verdict on the job; None: Slurm was not asked
    costs    what the job costs; None: there is no job, or a note says why it is not shown
    """

    title: str
    explanation: Explanation
    events: tuple[PodEvent, ...] = ()
    notes: tuple[str, ...] = ()
    planned: bool = False
    trial: Verdict | None = None
    costs: Costs | None = None

    @property
    def is_refused(self) -> bool:
        """True if the bridge would not submit its job, or Slurm would not accept the job."""
        return self.explanation.refusal is not None or (self.trial is not None and not self.trial.may)


def as_text(answers: Sequence[Answer], width: int, now: float) -> str:
    """The answers as text.  width: columns; now: epoch seconds"""
    width = max(width, NARROWEST)
    return "\n\n".join("\n".join(map(printable, _lines(answer, width, now))) for answer in answers)


def _lines(answer: Answer, width: int, now: float) -> Iterator[str]:
    explained = answer.explanation
    yield answer.title if answer.planned else f"{answer.title}: {explained.state or explained.phase}"
    yield from wrapped(_planned_sentence(answer) if answer.planned else explained.sentence, width)
    yield from _next(explained, width)
    yield from _jobs(explained, now, width)
    yield from _spec(explained, answer.planned, width)
    yield from costs_lines(answer.costs, width) if answer.costs is not None else ()
    yield from _nodes(explained, width)
    yield from _story(answer, now, width)
    if answer.notes:
        yield ""
        for note in answer.notes:
            yield from wrapped(note, width, indent="")


def _planned_sentence(answer: Answer) -> str:
    explained, trial = answer.explanation, answer.trial
    if explained.refusal is not None:
        return f"Its job would not be submitted. {explained.refusal.message}"
    waits, job = "", "it"
    if explained.phase == Phase.GATHERING.value:
        waits, job = f"It would wait. {explained.sentence} ", "the job below"
    if trial is not None and not trial.may:
        return f"{waits}Slurm would refuse {job}: {trial.why_not}."
    return (
        f"{waits}Slurm would accept {job}: its user, account, QOS, partition, features and devices were tried. "
        "Nothing was submitted."
    )


def _next(explained: Explanation, width: int) -> Iterator[str]:
    for number, action in enumerate(explained.next):
        yield from wrapped(
            action, width, first=f"{INDENT}{'now: ' if number == 0 else '     '}", indent=f"{INDENT}     "
        )


def _jobs(explained: Explanation, now: float, width: int) -> Iterator[str]:
    states = dict(explained.states)
    for job in explained.jobs:
        yield ""
        yield f"Slurm job {job.id}"
        yield from pairs(_facts_of(job, states.get(job.id, ()), explained, now), width)
    if unread := [job_id for job_id in states if job_id not in {job.id for job in explained.jobs}]:
        yield ""
        for job_id in unread:
            yield f"Slurm job {job_id}: {'+'.join(states[job_id])}, not read in detail"


def _facts_of(job: Job, states: tuple[str, ...], explained: Explanation, now: float) -> Iterator[tuple[str, str]]:
    reason = f" ({job.reason})" if job.reason not in ("", "None") else ""
    yield "state", f"{'+'.join(states or sorted(job.states))}{reason}"
    yield "of", f"user {job.user}, account {job.account or '-'}, partition {job.partition}, QOS {job.qos or '-'}"
    yield "submitted", clock(job.submitted, now) if job.submitted else ""
    yield from _start_and_end(job, now)
    yield "time limit", _limit(job.time_limit_min) if job.time_limit_min is not None else ""
    yield "nodes", job.nodes
    if explained.grant is not None and explained.grant.job_id == job.id:
        for node in explained.grant.nodes:
            yield "holds", _holding(node.name, node.cpus, node.memory_mib, dict(node.gres))
    yield "name", job.name


def _start_and_end(job: Job, now: float) -> Iterator[tuple[str, str]]:
    if "PENDING" not in job.states:
        yield "started", clock(job.starts, now) if job.starts else ""
        yield "ends" if job.ends and job.ends > now else "ended", clock(job.ends, now) if job.ends else ""
    elif is_blocked(job.reason):
        yield "expected", "no start: the job cannot start as it is"
    elif job.starts and job.starts > now:
        follows = " (from time limits)" if job.reason not in NO_CONTENDER else ""
        yield "expected", clock(job.starts, now) + (f" on {job.planned_nodes}" if job.planned_nodes else "") + follows
    else:
        yield "expected", "Slurm names no start"


def _holding(name: str, cpus: int, memory_mib: int, gres: dict[str, int]) -> str:
    devices = "".join(f", {count:,} {name}" for name, count in sorted(gres.items()) if ":" in name or len(gres) == 1)
    return f"{_cpus(cpus)}, {memory_mib:,} MiB{devices} on {name}"


def _cpus(number: int) -> str:
    return f"{number} CPU" if number == 1 else f"{number:,} CPUs"


def _spec(explained: Explanation, planned: bool, width: int) -> Iterator[str]:
    if explained.spec is None:
        return
    yield ""
    yield from wrapped(_heading(explained, explained.spec, planned), width, indent="")
    yield from pairs(_asked(explained.spec), width)
    words = as_sbatch(explained.spec)
    yield from textwrap.wrap(
        words,
        width - 2,
        initial_indent=f"{INDENT}as sbatch options: ",
        subsequent_indent=INDENT * 2,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _heading(explained: Explanation, spec: JobSpec, planned: bool) -> str:
    user = f"as user {spec.user}"
    if explained.missing is None:
        return f"The job of the pods that exist, {user}"
    if explained.missing:
        absent = "missing pod is" if explained.missing == 1 else f"{explained.missing:,} missing pods are"
        user += f", if the {absent} like {explained.like}"
    if explained.refusal is not None and not explained.states:
        return f"The job that would be needed, {user}"
    return f"The job as it {'would be sent' if planned or not explained.states else 'is asked for'}, {user}"


def _asked(spec: JobSpec) -> Iterator[tuple[str, str]]:
    for number, part in enumerate((spec, *spec.parts)):
        yield "needs" if number == 0 else "and", _needs(part)
    chosen = (("account", spec.account), ("partition", spec.partition), ("QOS", spec.qos))
    yield "in", ", ".join(f"{option} {value or 'by default'}" for option, value in chosen)
    limit = "the partition's default" if spec.time_limit_min is None else _limit(spec.time_limit_min)
    yield "time limit", limit + (f", at least {_limit(spec.time_least_min)}" if spec.time_least_min is not None else "")
    yield "only", spec.constraints
    yield "reservation", spec.reservation
    yield "exclusive", spec.exclusive
    yield "licenses", ", ".join(f"{count:,} {name}" for name, count in spec.licenses)
    yield (
        "not before",
        dated(spec.begin) if spec.begin is not None else "",
    )
    yield "depends on", spec.dependency.removeprefix(SINGLETON).lstrip(",")
    yield "switches", f"at most {spec.switches[0]}" if spec.switches is not None else ""


def _needs(spec: JobSpec) -> str:
    """A line with the needs of one pod, the number of pods, and the limits of their placement."""
    devices = "".join(f", {count:,} {name}" for name, count in spec.gres)
    one = f"{_cpus(spec.cpus_per_task)}, {spec.memory_mib:,} MiB{devices}"
    if spec.tasks == 1:
        return f"{one} on one node"
    share = f"for each of {spec.tasks:,} pods"
    if spec.tasks_per_node is not None:
        return f"{one} {share}, {spec.tasks_per_node:,} a node"
    if spec.max_nodes == 1:
        return f"{one} {share}, all on one node"
    least = f", on at least {spec.min_nodes:,} nodes" if spec.min_nodes is not None else ""
    return f"{one} {share}{least}{f', on at most {spec.max_nodes:,} nodes' if spec.max_nodes is not None else ''}"


def _limit(minutes: int) -> str:
    return "none" if minutes == UNLIMITED else f"{minutes:,} min"


def _nodes(explained: Explanation, width: int) -> Iterator[str]:
    nodes = explained.nodes
    if nodes is None:
        return
    yield ""
    yield f"Nodes that can run it: {len(nodes.usable):,} of {nodes.count:,}"
    if nodes.usable:
        yield from wrapped(_first_names(nodes.usable), width)
    if nodes.away:
        yield from wrapped(f"of these, Slurm allocates to no job: {_first_names(nodes.away)}", width)
    for why, count in nodes.misses:
        yield from wrapped(f"{count:,} {why}", width)


def _first_names(names: Sequence[str]) -> str:
    more = len(names) - MOST_NODES
    return ", ".join(names[:MOST_NODES]) + (f" and {more:,} more" if more > 0 else "")


def _story(answer: Answer, now: float, width: int) -> Iterator[str]:
    """Lines with the steps that the bridge remembers and the events of Kubernetes, in the order of time."""
    lines = [(at, entry) for at, entry in answer.explanation.story]
    lines += [
        (event.at, f"{event.reason}: {event.message}" + (f" ({event.count:,} times)" if event.count > 1 else ""))
        for event in answer.events
    ]
    if not lines:
        return
    yield ""
    yield f"Story (UTC, {dated(now, '%Y-%m-%d')})"
    for at, line in sorted(lines, key=lambda line: line[0]):
        today = dated(at, "%Y-%m-%d") == dated(now, "%Y-%m-%d")
        when = dated(at, "%H:%M:%S" if today else "%m-%d %H:%M:%S")
        yield from wrapped(line, width, first=f"{INDENT}{when}  ", indent=INDENT * 2 + " " * len(when))


# --- for programs ---------------------------------------------------------------------------------------------------


def as_json(answers: Sequence[Answer]) -> str:
    """A list with one entry for each workload: `explanation` with all its fields, `request` (the body of job/submit),
    `sbatch`,
    `events`, and `trial`: Slurm's error number and text for the trial (2018: all but the trial's node was accepted)."""
    return json.dumps([_entry(answer) for answer in answers], indent=2)  # ASCII: no character controls a terminal


def _entry(answer: Answer) -> dict[str, Any]:
    spec = answer.explanation.spec
    return {
        "title": answer.title,
        "planned": answer.planned,
        "explanation": msgspec.to_builtins(answer.explanation, enc_hook=plain),
        "request": json.loads(bodies.job_body(spec, immediate=False)) if spec is not None else None,
        "sbatch": as_sbatch(spec) if spec is not None else None,
        "events": msgspec.to_builtins(answer.events),
        "trial": msgspec.to_builtins(answer.trial),
        "costs": msgspec.to_builtins(answer.costs),
        "notes": list(answer.notes),
    }
