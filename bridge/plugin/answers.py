"""What each command of `kubectl slurm` prints: which server it calls, and in which form it shows the answer.

Each command is a coroutine that takes the options and prints the answer.  It raises BridgeError if it gets no answer, and
BrokenPipeError or NotWritten if it cannot print.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TextIO

from bridge.cli.pod_name import named
from bridge.cli.terminal import say, tell
from bridge.errors import ConfigError
from bridge.kube.admin_reads import PodEvent
from bridge.node_survey import Survey
from bridge.plugin import nodes, survey, trace
from bridge.plugin.cluster import Selection, connected, namespace_of
from bridge.plugin.costs import ShownCosts, costs_of
from bridge.plugin.lists import HISTORY, QUEUE, Entry, View, entry
from bridge.plugin.nodes import Shown
from bridge.plugin.pods import Seen
from bridge.plugin.table import Screen
from bridge.plugin.watch import ask_again, follow


def screen_of(stream: TextIO, environ: Mapping[str, str], *, wide: bool = False) -> Screen:
    """What the stream can show.  Only a terminal gets colours and cut lines.  If NO_COLOR is set or TERM is dumb: no colours.

    wide   no line is cut
    """
    if not stream.isatty():
        return Screen()
    plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
    size = shutil.get_terminal_size((trace.DEFAULT_WIDTH, 24))
    live = environ.get("TERM") != "dumb"
    return Screen(None if wide else size.columns, colours=not plain, live=live, height=size.lines)


# --- pods ---------------------------------------------------------------------------------------------------------------


async def queue(options: argparse.Namespace) -> None:
    """`queue`."""
    await _list_pods(options, QUEUE)


async def history(options: argparse.Namespace) -> None:
    """`history`."""
    await _list_pods(options, HISTORY)


async def _list_pods(options: argparse.Namespace, view: View) -> None:
    namespace = "" if options.all_namespaces else namespace_of(options)
    chosen = Selection(options.scheduler, namespace, options.selector)
    screen = _screen(options)
    async with AsyncExitStack() as stack:
        cluster = await connected(options.kubeconfig, options.context, stack, tell)
        if options.watch:
            await follow(cluster, chosen, view, options.output, screen, show)
            return
        pods = view.pods((await cluster.pods(chosen)).values())
    if options.output == "json":
        show([json.dumps([entry(seen) for seen in pods], indent=2)])
    elif not pods:
        where = f"in namespace {namespace}" if namespace else "in any namespace"
        tell(view.empty.format(where=where))
    else:
        show(view.lines(pods, time.time(), screen, spaces=not namespace, wide=options.output == "wide"))


@dataclass(frozen=True, slots=True)
class _PodShown:
    """One pod and its events, as `why` or `trace` shows them."""

    entry: Entry
    text: Callable[[Screen], list[str]]

    @property
    def rows(self) -> Mapping[str, object]:
        return self.entries

    @property
    def entries(self) -> Mapping[str, Entry]:
        return {str(self.entry["uid"]): self.entry}

    def lines(self, screen: Screen, only: Collection[str] | None = None) -> list[str]:
        """The text.

        only   None: the first answer.  Later the rows that changed: an empty line and the whole text, or no line if none did
        """
        if only is None:
            return self.text(screen)
        return ["", *self.text(screen)] if only else []


async def why(options: argparse.Namespace) -> None:
    """`why POD`."""
    # With -w the costs are read again only if the pod has another job or node, or has ended.
    known: dict[tuple[object, ...], ShownCosts] = {}

    async def describe(seen: Seen, events: Sequence[PodEvent], note: str) -> _PodShown:
        of_pod = [
            {"at": event.at, "reason": event.reason, "message": event.message, "count": event.count} for event in events
        ]
        wide, state = options.output == "wide", (seen.job, seen.pod.node, seen.pod.finished)
        if state not in known:
            known[state] = await costs_of(seen, options)
        costs = known[state]
        return _PodShown(
            entry(seen) | {"events": of_pod, "note": note, "costs": costs.entry},
            lambda screen: [
                *trace.explained(seen, events, note, time.time(), screen, wide=wide),
                *costs.text(screen),
            ],
        )

    await _of_pod(options, describe)


async def trace_of(options: argparse.Namespace) -> None:
    """`trace POD`."""

    async def describe(seen: Seen, events: Sequence[PodEvent], note: str) -> _PodShown:
        wide = options.output == "wide"
        return _PodShown(
            entry(seen) | trace.timed(seen, events) | {"note": note},
            lambda screen: [*trace.waterfall(seen, events, time.time(), screen, wide=wide), *filter(None, [note])],
        )

    await _of_pod(options, describe)


async def _of_pod(
    options: argparse.Namespace, describe: Callable[[Seen, Sequence[PodEvent], str], Awaitable[_PodShown]]
) -> None:
    namespace, name = named(options.pod)
    async with AsyncExitStack() as stack:
        cluster = await connected(options.kubeconfig, options.context, stack, tell)

        async def ask() -> _PodShown:
            seen = await cluster.pod(namespace or namespace_of(options), name)
            _check_scheduler(seen.pod.full_name, seen.pod.scheduler_name, options.scheduler)
            return await describe(seen, *await cluster.events(seen))

        if options.watch:
            await ask_again(ask, options.output, _screen(options), show, tell)
            return
        found = await ask()
    show([json.dumps(found.entry, indent=2)] if options.output == "json" else found.lines(_screen(options)))


def _check_scheduler(pod: str, named: str, wanted: str) -> None:
    if named != wanted:
        raise ConfigError(
            f"pod {pod} names the scheduler {named}, not {wanted}, so slurm-bridge does nothing for it.",
            f"Create it with schedulerName: {wanted}, or name its scheduler with --scheduler.",
        )


# --- nodes --------------------------------------------------------------------------------------------------------------


async def listed_nodes(options: argparse.Namespace) -> None:
    """`nodes`."""
    await _surveyed(
        options, lambda seen: nodes.nodes(seen, options.partition, wide=options.output == "wide", each=options.each)
    )


async def listed_free(options: argparse.Namespace) -> None:
    """`free`."""
    await _surveyed(options, lambda seen: nodes.free(seen, options.partition, wide=options.output == "wide"))


async def _surveyed(options: argparse.Namespace, view: Callable[[Survey], Shown]) -> None:
    async def ask() -> Shown:
        return view(await survey.asked(options.bridge, options.http_token_file))

    if options.watch:
        await ask_again(ask, options.output, _screen(options), show, tell)
        return
    found = await ask()
    if options.output == "json":
        show([json.dumps(list(found.entries.values()), indent=2)])
    elif not found.rows:
        tell(found.empty)
    else:
        show(found.lines(_screen(options)))


# --- the terminal -------------------------------------------------------------------------------------------------------


def _screen(options: argparse.Namespace) -> Screen:
    return screen_of(sys.stdout, os.environ, wide=options.output == "wide")


def show(lines: Sequence[str]) -> None:
    """Print an answer.  Raises BrokenPipeError and NotWritten."""
    say("\n".join(lines))
