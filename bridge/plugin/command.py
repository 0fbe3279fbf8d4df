"""The command line of `kubectl slurm`: what it takes, and which module answers.

`doctor`, `explain` and `policy` are those of `slurm-bridge`, with its options: they ask Slurm too, and so need its settings.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, TextIO

from bridge import __main__ as slurm_bridge
from bridge.cli.terminal import printable
from bridge.errors import BridgeError, ConfigError, said
from bridge.kube import auth
from bridge.kube.kubeconfig import contexts_of
from bridge.plugin import completion, trace
from bridge.plugin.cluster import Cluster, Selection, connected, own_namespace
from bridge.plugin.lists import HISTORY, QUEUE, View, entry
from bridge.plugin.table import Screen
from bridge.plugin.watch import follow
from scheduler import names

COMPLETION_S = 3.0
PASSED_ON = {
    "doctor": "check both ends, and say what to do (slurm-bridge doctor)",
    "explain": "what would become of a manifest (-f FILE) or a pod, in detail (slurm-bridge explain)",
    "policy": "who a namespace is in Slurm (slurm-bridge policy)",
}
NEED_SLURM = (
    "This command asks Slurm, too: it needs the settings of the bridge (--config), or --slurm-url and SLURM_JWT. "
    "kubectl slurm queue, why, trace and history need your kubeconfig alone."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 2 with one line that says what is wrong and what to do; 141 if nobody reads the output any more."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in PASSED_ON:
        return _passed_on(given)
    options = parser().parse_args(given)
    try:
        return _answered(options)
    except BrokenPipeError:  # as in `kubectl slurm queue | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return slurm_bridge.EXIT_NOT_READ
    except BridgeError as error:
        print(printable(f"kubectl slurm: {said(error)}"), file=sys.stderr)  # noqa: T201 - the one line
        return slurm_bridge.EXIT_CONFIG
    except KeyboardInterrupt:
        return 130


def _passed_on(given: list[str]) -> int:
    code = slurm_bridge.main(given)
    if code == slurm_bridge.EXIT_CONFIG and given[0] != "doctor":
        print(NEED_SLURM, file=sys.stderr)  # noqa: T201
    return code


def parser() -> argparse.ArgumentParser:
    """The options of every command that is answered here."""
    top = argparse.ArgumentParser(
        prog="kubectl slurm", description="Pods of slurm-bridge as squeue and sacct show jobs, with your own rights."
    )
    _add_commands(top)
    return top


def _commands() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, by its name."""
    return _add_commands(argparse.ArgumentParser(prog="kubectl slurm"))


def _add_commands(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    commands = top.add_subparsers(required=True, metavar="COMMAND", dest="command")
    where, form = _where(), _form(("json", "wide"))
    queue = commands.add_parser("queue", parents=[where, form, _list()], help="pods that wait or run, as squeue")
    queue.set_defaults(answer=_listed, view=QUEUE)
    history = commands.add_parser("history", parents=[where, form, _list()], help="pods that ran, as sacct")
    history.set_defaults(answer=_listed, view=HISTORY)
    why = commands.add_parser("why", parents=[where, _form(("json",))], help="why a pod waits, stopped or failed")
    why.set_defaults(answer=_why)
    traced = commands.add_parser("trace", parents=[where, _form(("json",))], help="the times of a pod, as a waterfall")
    traced.set_defaults(answer=_trace)
    for each in (why, traced):
        each.add_argument("pod", metavar="POD", help="name of a pod, or NAMESPACE/NAME")
    for name, about in PASSED_ON.items():
        commands.add_parser(name, help=about, add_help=False)
    script = commands.add_parser("completion", help="a completion script for a shell; see its first lines")
    script.add_argument("shell", choices=sorted(completion.SCRIPTS))
    script.set_defaults(answer=None)
    return dict(commands.choices)


def complete(arguments: Sequence[str] | None = None) -> int:
    """Answer `kubectl_complete-slurm`.  Exit code 0: without a cluster there are fewer candidates, and no message."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    helps = {name: each.format_help() for name, each in _commands().items()}
    _print(completion.answer(words or [""], helps, completion.Sources(_pods, _namespaces, _contexts)))
    return 0


def _before(words: Sequence[str]) -> argparse.Namespace:
    """The options before the word to complete, without an option whose value is that word."""
    whole = words[1:-1] if words[-1].startswith("-") else words[1:]
    return _where().parse_known_args(whole)[0]


def _pods(words: Sequence[str]) -> list[str]:
    options = _before(words)

    async def found() -> list[str]:
        async with AsyncExitStack() as stack:
            cluster = await connected(options.kubeconfig, options.context, stack, _quiet)
            pods = await cluster.pods(Selection(options.scheduler, _namespace(options)))
            return [seen.pod.name for seen in pods.values()]

    return _in_time(found)


def _namespaces(words: Sequence[str]) -> list[str]:
    options = _before(words)

    async def found() -> list[str]:
        async with AsyncExitStack() as stack:
            return await (await connected(options.kubeconfig, options.context, stack, _quiet)).namespaces()

    return _in_time(found)


def _contexts(words: Sequence[str]) -> list[str]:
    async def found() -> list[str]:
        path = auth.path_of(_before(words).kubeconfig or None)
        return contexts_of(path) if path else []

    return _in_time(found)


def _in_time(found: Callable[[], Coroutine[Any, Any, list[str]]]) -> list[str]:
    """The names; none if the cluster does not give them: a shell that completes has no place for a message."""

    async def limited() -> list[str]:
        async with asyncio.timeout(COMPLETION_S):
            return await found()

    try:
        return asyncio.run(limited())
    except (BridgeError, TimeoutError):
        return []


def _quiet(_sentence: str) -> None:
    """No message: see _in_time."""


def _where() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("-n", "--namespace", default="", help="default: that of the context")
    options.add_argument("--context", default="", metavar="NAME", help="of the kubeconfig; default: the current one")
    options.add_argument("--kubeconfig", default="", metavar="FILE", help="default: KUBECONFIG, else ~/.kube/config")
    options.add_argument(
        "--scheduler", default=names.SCHEDULER_NAME, metavar="NAME", help=f"default: {names.SCHEDULER_NAME}"
    )
    return options


def _form(forms: Sequence[str]) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("-o", "--output", choices=forms, help="instead of the usual text")
    return options


def _list() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("-A", "--all-namespaces", action="store_true", help="pods of all namespaces")
    options.add_argument("-l", "--selector", default="", metavar="LABELS", help="only pods with these labels")
    options.add_argument("-w", "--watch", action="store_true", help="until it is interrupted")
    return options


def screen_of(stream: TextIO, environ: Mapping[str, str], *, wide: bool = False) -> Screen:
    """Colours and cut lines on a terminal alone, and no colours where NO_COLOR is set or TERM is dumb."""
    if not stream.isatty():
        return Screen()
    plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
    width = None if wide else shutil.get_terminal_size((trace.DEFAULT_WIDTH, 24)).columns
    return Screen(width, colours=not plain, live=environ.get("TERM") != "dumb")


def _answered(options: argparse.Namespace) -> int:
    if options.answer is None:
        _print([completion.SCRIPTS[options.shell].rstrip("\n")])
    else:
        asyncio.run(_connected(options))
    return 0


async def _connected(options: argparse.Namespace) -> None:
    async with AsyncExitStack() as stack:
        cluster = await connected(options.kubeconfig, options.context, stack, _warn)
        await options.answer(cluster, options)


def _namespace(options: argparse.Namespace) -> str:
    return str(options.namespace) or own_namespace(options.kubeconfig, options.context)


async def _listed(cluster: Cluster, options: argparse.Namespace) -> None:
    view: View = options.view
    namespace = "" if options.all_namespaces else _namespace(options)
    chosen = Selection(options.scheduler, namespace, options.selector)
    screen = screen_of(sys.stdout, os.environ, wide=options.output == "wide")
    if options.watch:
        await follow(cluster, chosen, view, options.output, screen, _print)
        return
    pods = view.pods((await cluster.pods(chosen)).values())
    if options.output == "json":
        _print([json.dumps([entry(seen) for seen in pods], indent=2)])
    elif not pods:
        where = f"in namespace {namespace}" if namespace else "in any namespace"
        _warn(view.empty.format(where=where))
    else:
        _print(view.lines(pods, time.time(), screen, spaces=not namespace, wide=options.output == "wide"))


def _named(options: argparse.Namespace) -> tuple[str, str]:
    """Namespace and name, of "train", "pod/train" or "hpc/train"."""
    before, _, name = str(options.pod).rpartition("/")
    own = before if before not in ("", "pod", "pods", "po") else ""
    return own or _namespace(options), name


async def _why(cluster: Cluster, options: argparse.Namespace) -> None:
    seen = await cluster.pod(*_named(options))
    _check_scheduler(seen.pod.full_name, seen.pod.scheduler_name, options.scheduler)
    events, note = await cluster.events(seen)
    if options.output == "json":
        told = [{"at": each.at, "reason": each.reason, "message": each.message, "count": each.count} for each in events]
        _print([json.dumps(entry(seen) | {"events": told, "note": note}, indent=2)])
    else:
        _print(trace.explained(seen, events, note, time.time(), screen_of(sys.stdout, os.environ)))


async def _trace(cluster: Cluster, options: argparse.Namespace) -> None:
    seen = await cluster.pod(*_named(options))
    _check_scheduler(seen.pod.full_name, seen.pod.scheduler_name, options.scheduler)
    events, note = await cluster.events(seen)
    if options.output == "json":
        _print([json.dumps(entry(seen) | trace.timed(seen, events) | {"note": note}, indent=2)])
    else:
        _print([*trace.waterfall(seen, events, time.time(), screen_of(sys.stdout, os.environ)), *filter(None, [note])])


def _check_scheduler(pod: str, named: str, wanted: str) -> None:
    if named != wanted:
        raise ConfigError(
            f"pod {pod} names the scheduler {named}, not {wanted}, so that slurm-bridge does nothing for it.",
            f"Create it with schedulerName: {wanted}, or name its scheduler with --scheduler.",
        )


def _print(lines: Sequence[str]) -> None:
    print("\n".join(lines), flush=True)  # noqa: T201 - the answer


def _warn(sentence: str) -> None:
    print(printable(sentence), file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
