"""The command line of `kubectl slurm`: its commands and options, and which function answers each command.

`doctor`, `explain` and `policy` are the commands of `slurm-bridge`, with the same options.  They also ask Slurm, so they need
the settings of the bridge.

Each command imports what it needs when it runs: the shell's completion needs the options alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Sequence

from bridge import __main__ as slurm_bridge
from bridge.cli.terminal import NotWritten, discard_output, say, tell, use_any_encoding, written
from bridge.errors import BridgeError, said
from bridge.plugin import completion, variables
from scheduler import names

PASSED_ON = {
    "doctor": "check both clusters, and say what to do (slurm-bridge doctor)",
    "explain": "show a pod, or what would become of a manifest (-f FILE), in detail (slurm-bridge explain)",
    "policy": "check or show which Slurm user a namespace has (slurm-bridge policy)",
}
NEED_SLURM = (
    "This command asks Slurm, too: it needs the settings of the bridge (--config), or, except explain -f, --slurm-url and "
    "SLURM_JWT. kubectl slurm queue, why, trace and history need your kubeconfig alone, nodes and free the address of the "
    "bridge."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 if the answer was printed; 2 after an error, with one line that says what to do.

    Further: 1 if the output cannot be written, 141 if the reader of the output closed it, 130 if the user interrupts the
    command.  `doctor`, `explain` and `policy` have the exit codes of the same commands of `slurm-bridge`.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    return _contained(lambda: _typed(given))


def _contained(command: Callable[[], int]) -> int:
    """The exit code of a command, also if it fails."""
    use_any_encoding()
    try:
        return command()
    except BrokenPipeError:  # as in `kubectl slurm queue | head`
        discard_output()
        return slurm_bridge.EXIT_NOT_READ
    except BridgeError as error:
        tell(f"kubectl slurm: {said(error)}")
        return slurm_bridge.EXIT_CONFIG
    except NotWritten as error:
        discard_output()
        tell(f"kubectl slurm: {error}")
        return slurm_bridge.EXIT_NOT_WRITTEN
    except KeyboardInterrupt:
        return 130


def _typed(given: list[str]) -> int:
    if given and given[0] in PASSED_ON:
        return _passed_on(given)
    with written():  # the help
        options = parser().parse_args(given)
    return _answered(options)


def _passed_on(given: list[str]) -> int:
    code = slurm_bridge.main(given)
    if code == slurm_bridge.EXIT_CONFIG and given[0] != "doctor" and not _names_settings(given):
        tell(NEED_SLURM)
    return code


def _names_settings(given: list[str]) -> bool:
    """True if the user named settings or a slurmrestd: missing settings are then not the mistake."""
    is_named = any(word.partition("=")[0] in ("--config", "--slurm-url") for word in given)
    from bridge.settings import ENVIRONMENT

    is_named |= any(os.environ.get(ENVIRONMENT + name) for name in ("CONFIG", "SLURM_URL"))
    return is_named or given[:2] == ["policy", "check"]


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    top = argparse.ArgumentParser(
        prog="kubectl slurm",
        description="Pods and nodes of slurm-bridge as squeue, sacct and sinfo show them, with your own rights.",
    )
    _add_commands(top)
    return top


def _commands() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, by its name."""
    return _add_commands(argparse.ArgumentParser(prog="kubectl slurm"))


def _add_commands(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    commands = top.add_subparsers(required=True, metavar="COMMAND", dest="command")
    where, form = _where(), _form()
    queue = slurm_bridge.add_command(
        commands, "queue", parents=[where, form, _list(), _watch()], help="show pods that wait or run, as squeue"
    )
    queue.set_defaults(answer="queue")
    history = slurm_bridge.add_command(
        commands, "history", parents=[where, form, _list(), _watch()], help="show pods that ended, as sacct"
    )
    history.set_defaults(answer="history")
    why = slurm_bridge.add_command(
        commands, "why", parents=[where, form, _slurm(), _watch()], help="show why a pod waits, was stopped or failed"
    )
    why.set_defaults(answer="why")
    traced = slurm_bridge.add_command(
        commands, "trace", parents=[where, form, _watch()], help="show the steps of a pod and their times, as bars"
    )
    traced.set_defaults(answer="trace_of")
    for subcommand in (why, traced):
        subcommand.add_argument("pod", metavar="POD", help="name of a pod, or NAMESPACE/NAME")
    asks = [_bridge(), form, _watch()]
    every = slurm_bridge.add_command(
        commands, "nodes", parents=asks, help="show nodes of both clusters, as sinfo; asks the bridge"
    )
    every.add_argument("-N", "--each", action="store_true", help="a line for each node, instead of one for each group")
    every.set_defaults(answer="listed_nodes")
    room = slurm_bridge.add_command(
        commands,
        "free",
        parents=asks,
        help="show CPUs, memory and devices that are free, by partition; asks the bridge",
    )
    room.set_defaults(answer="listed_free")
    for name, about in PASSED_ON.items():
        commands.add_parser(name, help=about, add_help=False)
    script = slurm_bridge.add_command(
        commands, "completion", help="print a completion script for a shell; its first lines say how to use it"
    )
    script.add_argument("shell", choices=sorted(completion.SCRIPTS))
    script.set_defaults(answer=None)
    return dict(commands.choices)


def complete(arguments: Sequence[str] | None = None) -> int:
    """Answer `kubectl_complete-slurm`.  If the cluster does not answer, there are fewer candidates.

    Returns the exit code, as `main`.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    return _contained(lambda: _completed(words))


def _completed(words: list[str]) -> int:
    helps = {name: parser.format_help() for name, parser in _commands().items()}
    helps |= {name: text for name, text in slurm_bridge.helps().items() if name.partition(" ")[0] in PASSED_ON}
    say("\n".join(completion.answer(words or [""], helps, completion.Sources(_pods, _namespaces, _contexts))))
    return 0


def _before(words: Sequence[str]) -> argparse.Namespace:
    """The options before the word to complete.  An option whose value is this word has its default."""
    whole = words[1:-1] if words[-1].startswith("-") else words[1:]
    return _where().parse_known_args(whole)[0]


def _pods(words: Sequence[str]) -> list[str]:
    from bridge.plugin import candidates

    return candidates.pods(_before(words))


def _namespaces(words: Sequence[str]) -> list[str]:
    from bridge.plugin import candidates

    return candidates.namespaces(_before(words))


def _contexts(words: Sequence[str]) -> list[str]:
    from bridge.plugin import candidates

    return candidates.contexts(_before(words))


def _where() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("-n", "--namespace", default="", help="default: that of the context")
    options.add_argument("--context", default="", metavar="NAME", help="of the kubeconfig; default: the current one")
    options.add_argument("--kubeconfig", default="", metavar="FILE", help="default: KUBECONFIG, else ~/.kube/config")
    options.add_argument(
        "--scheduler", default=names.SCHEDULER_NAME, metavar="NAME", help=f"default: {names.SCHEDULER_NAME}"
    )
    return options


def _form() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument(
        "-o", "--output", choices=("text", "wide", "json"), default="text", help="output format; default: text"
    )
    return options


def _watch() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("-w", "--watch", action="store_true", help="follow changes until interrupted")
    return options


def _bridge() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("-p", "--partition", default="", metavar="NAME", help="only this partition")
    options.add_argument(
        "--bridge",
        default=os.environ.get(variables.BRIDGE_URL) or variables.DEFAULT_BRIDGE,
        metavar="URL",
        help=f"address of the running bridge ({variables.BRIDGE_URL}); default: {variables.DEFAULT_BRIDGE}",
    )
    options.add_argument(
        "--http-token-file",
        default=os.environ.get(variables.BRIDGE_TOKEN_FILE, ""),
        metavar="FILE",
        help=f"file with the bridge's bearer token ({variables.BRIDGE_TOKEN_FILE})",
    )
    return options


def _slurm() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument(
        "--slurm-url",
        default=os.environ.get(variables.SLURM_URL, ""),
        metavar="URL",
        help=f"slurmrestd, to show what the job costs ({variables.SLURM_URL})",
    )
    options.add_argument(
        "--slurm-token-file",
        default="",
        metavar="FILE",
        help=f"file with your own token for it, of `scontrol token` (or {variables.SLURM_TOKEN})",
    )
    return options


def _list() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("-A", "--all-namespaces", action="store_true", help="pods of all namespaces")
    options.add_argument("-l", "--selector", default="", metavar="LABELS", help="only pods with these labels")
    return options


def _answered(options: argparse.Namespace) -> int:
    if options.answer is None:
        say(completion.SCRIPTS[options.shell].rstrip("\n"))
        return 0
    from bridge.plugin import answers

    asyncio.run(getattr(answers, options.answer)(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
