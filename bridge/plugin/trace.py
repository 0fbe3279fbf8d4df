"""`trace`: the times of one pod as a waterfall, and `why`: its state, what the bridge says of it, and its events.

The times come from Kubernetes, in whole seconds: the creation, the first event about the job, the bind, and the start and end
of each container.  The bridge's own traces (OpenTelemetry) are more exact, and need a collector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bridge.cli.paragraphs import wrapped
from bridge.cli.terminal import printable
from bridge.kube.admin_reads import PodEvent
from bridge.plugin.lists import asked_for
from bridge.plugin.pods import IF_UNSEEN, UNSEEN, Seen, state_of, why
from bridge.plugin.table import COLOURS, RESET, Screen, age, pairs
from scheduler import names
from scheduler.model.text import dated

LEAST_BAR = 20  # columns
DEFAULT_WIDTH = 100
MOST_EVENTS = 15


@dataclass(frozen=True, slots=True)
class Span:
    """One part of a pod's life.  begin, end: epoch seconds; end None: the part goes on"""

    name: str
    begin: float
    end: float | None


def spans(seen: Seen, events: Sequence[PodEvent]) -> list[Span]:
    """The parts of a pod's life in their order.  A part that ends before its begin (two clocks) is left out."""
    return [span for span in _spans(seen, events) if span.end is None or span.end >= span.begin]


def _spans(seen: Seen, events: Sequence[PodEvent]) -> Iterator[Span]:
    pod = seen.pod
    over = seen.ended
    asked = min((event.began for event in events if event.reason in (names.SUBMITTED, names.PENDING)), default=None)
    bound = pod.bound_at
    if asked is not None and (bound is None or asked <= bound):
        yield Span("before its job", pod.created, asked)
        yield Span("waits in Slurm", asked, bound or over)
    else:
        yield Span("until the bind", pod.created, bound or over)
    if bound is None:
        return
    first = min((run.began for run in seen.runs if run.began is not None), default=None)
    if first is None and pod.finished:
        yield Span("on its node", bound, over)  # no container shows the time of its start
    else:
        yield Span("kubelet prepares", bound, first)
    pulls = [event.began for event in events if event.reason == "Pulling"]
    pulled = [event.at for event in events if event.reason == "Pulled"]
    if pulls and pulled and max(pulled) >= min(pulls):
        yield Span("  pulls images", min(pulls), max(pulled))
    for run in sorted(seen.runs, key=lambda run: (not run.initial, run.began or 0.0)):
        if run.began is not None:
            code = f", exit {run.exit_code}" if run.exit_code is not None else ""
            yield Span(f"{'init ' if run.initial else ''}container {run.container}{code}", run.began, run.ended)


def waterfall(seen: Seen, events: Sequence[PodEvent], now: float, screen: Screen, *, wide: bool = False) -> list[str]:
    """The lines: for each part its name, its offset from the first part, its length, and a bar.  wide: also its begin"""
    parts = spans(seen, events)
    # No part is left if the clocks of two machines differ by more than the life of the pod.
    begin = min((part.begin for part in parts), default=seen.pod.created)
    end = max(((part.end if part.end is not None else now) for part in parts), default=begin)
    names_width = max((len(part.name) for part in parts), default=0)
    width = max(LEAST_BAR, (screen.width or DEFAULT_WIDTH) - names_width - 20 - (10 if wide else 0))
    scale = width / max(end - begin, 1.0)
    lines = [printable(_title(seen)), f"created {dated(seen.pod.created)}, {age(end - begin)} in all", ""]
    for part in parts:
        until = part.end if part.end is not None else now
        lead = min(width - 1, int((part.begin - begin) * scale))
        length = max(1, min(width - lead, round((until - part.begin) * scale)))
        mark = "▒" if part.end is None else "█"
        name = printable(part.name).ljust(names_width) + (f"  {dated(part.begin, '%H:%M:%S')}" if wide else "")
        lines.append(
            f"{name}  {'+' + age(part.begin - begin):>8} {age(until - part.begin):>7}  {' ' * lead}{mark * length}"
        )
    if any(part.end is None for part in parts):
        lines += ["", "▒ goes on"]
    return lines


def _title(seen: Seen) -> str:
    job = f", Slurm job {seen.job}" if seen.job else ""
    node = f", node {seen.pod.node}" if seen.pod.node else ""
    return f"Pod {seen.pod.full_name}: {state_of(seen)}{job}{node}"


def explained(
    seen: Seen, events: Sequence[PodEvent], note: str, now: float, screen: Screen, *, wide: bool = False
) -> list[str]:
    """The lines of `why`.  wide: also the resources and options that the pod requests, and all events"""
    pod, state = seen.pod, state_of(seen)
    colour = COLOURS.get(state, "") if screen.colours else ""
    heads = pairs(
        {
            "Pod": pod.full_name,
            "State": state,
            "For": age(now - (seen.ended or pod.bound_at or pod.created)),
            "Job": str(seen.job or ""),
            "Node": pod.node,
            "Gang": seen.gang,
            **(_asked_for(seen) if wide else {}),
        }
    )
    if colour:
        heads = [line.replace(state, f"{colour}{state}{RESET}") if line.startswith("State") else line for line in heads]
    reason = why(seen) or "Nothing is wrong that Kubernetes shows."
    lines = [*heads, "", *paragraph(f"{reason} {IF_UNSEEN}" if reason == UNSEEN else reason, screen)]
    if events:
        lines += ["", "Events (UTC)"]
        for event in events if wide else events[-MOST_EVENTS:]:
            again = f" ({event.count:,} times)" if event.count > 1 else ""
            lines += paragraph(
                f"{dated(event.at, '%m-%d %H:%M:%S')}  {event.reason}: {event.message}{again}", screen, "  "
            )
    if note:
        lines += ["", *paragraph(note, screen)]
    return lines


def _asked_for(seen: Seen) -> dict[str, str]:
    cpus, memory, devices = asked_for(seen.pod)
    options = {option: seen.pod.annotations.get(names.PREFIX + option.lower(), "") for option in ("Partition", "QOS")}
    return {"CPUs": cpus, "Memory": memory, "Devices": devices, **options}


def paragraph(text: str, screen: Screen, indent: str = "") -> list[str]:
    """The lines of a paragraph, wrapped to the screen.  indent: of the first line; other lines are indented twice as far"""
    width = max(LEAST_BAR, screen.width or DEFAULT_WIDTH)
    return wrapped(printable(text), width, first=indent, indent=indent * 2)


def timed(seen: Seen, events: Sequence[PodEvent]) -> dict[str, Any]:
    """What `trace` prints for programs: the parts of the pod's life."""
    return {
        "spans": [{"name": span.name.strip(), "begin": span.begin, "end": span.end} for span in spans(seen, events)]
    }
