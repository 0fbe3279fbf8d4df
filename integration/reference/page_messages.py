"""docs/messages.md: every message that a user or an admin can see, found in the code (texts.py)."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from integration.readme import ROOT
from integration.reference import reasons
from integration.reference.markdown import code, table
from integration.reference.texts import (
    IN_ACCOUNTING,
    IN_SLURM,
    Code,
    Place,
    Search,
    Text,
    answers,
    argument,
    template,
)

LEFT_OUT = frozenset({"dev", "page", "simulation"})  # the simulated clusters, and their page

INTRO = """\
# Messages

<!-- Generated from the code by `make reference`. Edit the sentences where the code has them. -->

Words in braces are filled in. "Parts" are pieces of these messages: they take the place of such words, or follow the message.
A message with the text of Slurm, of Kubernetes or of kubelet shows that text as it is.

A command that cannot do its work ends with exit code 2 and one line, `slurm-bridge: MESSAGE`. The lines of the log are not
listed here.
"""
# What an HTTP status means, and what to do.
STATUS = {
    200: ("The answer, or what `slurm-bridge release` did; /readyz and /healthz: `ok`.", "Nothing."),
    401: (
        "The request carries no bearer token, or a wrong one.",
        "Send the token of the setting that the answer names.",
    ),
    403: (
        "The request comes from another machine, or not from `slurm-bridge release`.",
        "Run the command where the bridge runs, or set `http_token_file`.",
    ),
    404: ("There is no such pod.", "Check namespace and name."),
    421: ("The request names another host.", "Ask `127.0.0.1` or `localhost`."),
    429: ("Too many requests are waiting for an answer.", "Try again after the seconds of `Retry-After`."),
    500: ("The bridge does not work as it should.", "Look in the log of the bridge; report the error."),
    503: (
        "The bridge is not ready, or this replica does not lead.",
        "Read the lines below; ask the replica that leads.",
    ),
}
READY_IN = ("bridge.readiness", "bridge.health", "bridge.starting")  # modules with functions of /readyz
READY_BY = frozenset(
    {"not_ready", "undecoded", "quarantined", "degraded", "_degraded", "_lease_trouble", "role", "problem"}
)
READY = "The lines of /readyz: reasons come with status 503, notes with 503 or 200."
DOCTOR = """\
Each finding of `slurm-bridge doctor` with the level *warning* or *error*, and its advice. Exit code 1 means warnings, 2
errors."""
OUTPUT = "The sentences that a command prints if it can do its work. It also prints messages of the lists above."
# What prints them: modules of the scheduler and of `bridge`.
OUTPUT_OF: Mapping[str, tuple[str, ...]] = {
    "`explain`": (
        "bridge.cli.costs_text",
        "bridge.cli.explain",
        "bridge.cli.explain_text",
        "bridge.cli.manifest",
        "bridge.cli.manifest_controllers",
        "bridge.cli.planned_pods",
        "scheduler.explain",
    ),
    "`policy check` and `policy show`": (
        "bridge.cli.policy_check",
        "bridge.cli.policy_namespaces",
        "bridge.cli.policy_show",
    ),
    "`uninstall`": ("bridge.cli.uninstall", "scheduler.rules.uninstall"),
}
COMMANDS = "If no advice is listed, the message itself says what to do."
# Heading and introduction of each list, by the packages and modules of `bridge` that raise its messages.
COMMAND_OF: Mapping[tuple[str, ...], tuple[str, str]] = {
    ("app", "connections", "preflight"): ("Start", "What a start checks in both clusters."),
    ("policy_file", "settings"): ("Settings", "The settings file and the options of the command line."),
    ("http_access", "http_server"): (
        "HTTP server",
        "The address and the token of /explain, /release, /readyz and /metrics.",
    ),
    ("kube",): ("Credentials for Kubernetes", "The kubeconfig, or the service account of the bridge's pod."),
    ("slurm",): ("Credentials for Slurm", "The URL of slurmrestd, certificates and tokens."),
    ("tracing",): ("Traces", "The variables of OpenTelemetry in the environment."),
    ("cli.bridge_client", "cli.doctor"): ("`doctor`", ""),
    (
        "cli.explain",
        "cli.pod_name",
        "cli.manifest",
        "cli.manifest_controllers",
        "cli.manifest_yaml",
        "cli.planned_pods",
    ): ("`explain`", ""),
    ("cli.policy_check", "cli.policy_namespaces", "cli.policy_show"): ("`policy check` and `policy show`", ""),
    ("cli.release",): ("`release`", ""),
    ("cli.uninstall",): ("`uninstall`", ""),
    ("mint",): ("`mint`", ""),
    ("webhook",): ("`webhook`", ""),
    ("plugin",): ("`kubectl slurm`", ""),
}
LEVELS = ("error", "warning")
UNSEEN = "NotSeen"  # what could not be looked at is an error, too


@dataclass(frozen=True, slots=True)
class Call:
    """A call whose arguments are a message and, perhaps, an advice."""

    module: str
    messages: tuple[Text, ...]
    advice: tuple[Text, ...]


def sources() -> list[Path]:
    """The code of the product."""
    found = (path for part in ("scheduler", "bridge") for path in (ROOT / part).rglob("*.py"))
    return sorted(path for path in found if not LEFT_OUT & set(path.relative_to(ROOT).parts))


@cache
def search() -> Search:
    """All of it, read once."""
    return Search(Code(sources(), ROOT))


def text() -> str:
    """The page."""
    found = search()
    parts = [INTRO]
    for title, some in (("On pods", reasons.OF_PODS), ("On nodes", reasons.OF_NODES)):
        parts.append(f"\n## {title}\n")
        parts += [_of_reason(each, found.found.get(each.name, {})) for each in some]
    parts.append("\n## In Slurm\n\nReasons of drained nodes, as `sinfo -R` shows them:\n\n")
    parts.append(_listed(found.found[IN_SLURM], ("", "Parts:\n\n")))
    parts.append("\nComments of ended jobs, as `sacct -o Comment` shows them:\n\n")
    parts.append(_listed(found.found[IN_ACCOUNTING], ("", "Parts:\n\n")))
    parts += ["\n## HTTP\n\n", _statuses(), f"\n{READY}\n\n", _listed(_readiness(), ("", "Parts:\n\n"))]
    parts += [f"\n## Command line and settings\n\n{COMMANDS}\n", *_by_command(config_errors()), _of_settings()]
    parts += [f"\n## Output of commands\n\n{OUTPUT}\n", *_outputs()]
    parts += [
        f"\n## doctor\n\n{DOCTOR}\n\n",
        _pairs([*(each for level in LEVELS for each in findings(level)), *_unseen()]),
    ]
    return "".join(parts)


# --- pods and nodes -----------------------------------------------------------------------------------------------


def _of_reason(reason: reasons.Reason, found: Iterable[Text]) -> str:
    where = ", ".join("event" if each == reasons.EVENT else f"condition {code(each)}" for each in reason.where)
    head = f"\n### {reason.name}\n\n{where[0].upper()}{where[1:]}. {reason.meaning}\n\nWhat to do: {reason.to_do}\n\n"
    return head + _listed(found, ("Messages:\n\n", "Parts:\n\n"))


def _listed(found: Iterable[Text], heads: tuple[str, str]) -> str:
    """Whole messages first, then their parts; each once."""
    whole = sorted({_shown(each) for each in found if each.whole} - {""})
    parts = sorted({_shown(each) for each in found if not each.whole} - {"", *whole})
    lists = ((head, some) for head, some in zip(heads, (whole, parts), strict=True) if some)
    return "\n".join(head + "".join(f"* {each}\n" for each in some) for head, some in lists)


def _shown(each: Text) -> str:
    """The text as Markdown: in one line, with nothing in it that is taken for markup."""
    return " ".join(each.template.split()).replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_").strip()


# --- HTTP ---------------------------------------------------------------------------------------------------------


def responses() -> Iterator[tuple[int, tuple[Text, ...]]]:
    """The status and the texts of each HTTP answer; if the status is conditional, that of the failure."""
    for call, place in search().code.calls.get("Response", []):
        said = argument(call, -1, "text")
        if said is None:
            continue
        status = argument(call, -1, "status")
        if isinstance(status, ast.IfExp):  # `503 if reasons else 200`: the text with 200 is "ok"
            status = status.body
        numbers = (
            [each.value for each in ast.walk(status) if isinstance(each, ast.Constant)] if status is not None else [200]
        )
        found = tuple(search().of(said, place))
        yield from ((number, found) for number in numbers if isinstance(number, int))


def _statuses() -> str:
    by_status: dict[int, dict[str, None]] = {}
    for status, found in responses():
        by_status.setdefault(status, {}).update(dict.fromkeys(_shown(each) for each in found))
    rows = []
    for status, said in sorted(by_status.items()):
        meaning, to_do = STATUS[status]
        lines = "the lines below" if status == 503 and not any(said) else "<br>".join(sorted(filter(None, said)))
        rows.append((str(status), meaning, to_do, lines))
    return table(("status", "meaning", "what to do", "texts"), rows)


def _readiness() -> list[Text]:
    """The texts of the functions that make the lines of /readyz."""
    of = search()
    found: dict[Text, None] = {}
    for module in READY_IN:
        functions = [each for name, each in of.code.modules[module].functions.items() if name in READY_BY]
        methods = [each for name in READY_BY for each, where in of.code.methods.get(name, []) if where == module]
        for function in (*functions, *methods):
            for returned in answers(function):
                found.update(dict.fromkeys(of.of(returned, Place(module, function))))
    return list(found)


# --- the command line ---------------------------------------------------------------------------------------------


def calls(*callees: str, package: str = "") -> Iterator[Call]:
    """Each call of these, with what may be its first argument, and its second or `do`."""
    of = search()
    for callee in callees:
        for call, place in of.code.calls.get(callee, []):
            if not place.module.startswith(package) or not call.args or isinstance(call.func, ast.Attribute):
                continue
            do = argument(call, 1, "do")
            advice = tuple(of.of(do, place)) if do is not None else ()
            if do is not None and not advice:  # a single word: NAME=VALUE
                word = template(do, of.code.modules[place.module].values)
                advice = (Text(word, True),) if word else ()
            yield Call(place.module, tuple(of.of(call.args[0], place)), advice)


def config_errors() -> list[Call]:
    """The errors that end a command with exit code 2."""
    return list(calls("ConfigError", "NotYet"))


def findings(level: str) -> list[Call]:
    """The findings of `doctor` of that level."""
    return list(calls(level, package="bridge.cli.doctor"))


def _unseen() -> Iterator[Call]:
    """The sentences of observations that failed, with advice; the others are short reasons, or sentences of an error."""
    return (each for each in findings(UNSEEN) if each.advice and any(text.whole for text in each.messages))


def _by_command(found: Iterable[Call]) -> Iterator[str]:
    by_heading: dict[tuple[str, str], list[Call]] = {each: [] for each in COMMAND_OF.values()}
    for each in found:
        by_heading[_heading(each.module)].append(each)
    for (title, about), some in by_heading.items():
        if rows := _pairs(some):
            yield f"\n### {title}\n\n" + (f"{about}\n\n" if about else "") + rows


def _heading(module: str) -> tuple[str, str]:
    """The heading of COMMAND_OF for the messages of that module.  Raises LookupError if no entry has it."""
    name = module.removeprefix("bridge.")
    for parts, heading in COMMAND_OF.items():
        if any(name == part or name.startswith(f"{part}.") for part in parts):
            return heading
    raise LookupError(f"{module}: name it in COMMAND_OF, so that its messages have a heading")


def _of_settings() -> str:
    """Mistakes that the models of the settings find; the line names the file and the key before them."""
    found = [
        Text(each.template, True) for call in calls("ValueError", package="bridge.settings") for each in call.messages
    ]
    about = (
        "After `FILE: KEY: `. The checks of pydantic (a wrong type, a number out of range) have messages of their own."
    )
    return f"\n### Values of settings\n\n{about}\n\n{_listed(found, ('', ''))}"


def _pairs(found: Iterable[Call]) -> str:
    rows = {(_cell(each.messages), _cell(each.advice)): None for each in found}
    shown = sorted(row for row in rows if row[0])
    return table(("message", "what to do"), shown) if shown else ""


def _cell(found: Sequence[Text]) -> str:
    """Whole texts, then their parts."""
    whole = [_shown(each) for each in found if each.whole]
    parts = [_shown(each) for each in found if not each.whole]
    return "<br>".join(dict.fromkeys([*whole, *(f"(part) {each}" for each in parts if each not in whole)]))


# --- output of commands -------------------------------------------------------------------------------------------


def sentences(module: str) -> list[str]:
    """The sentences of a module that no list above has, in the order of its code: texts that end with a full stop."""
    texts = search().unreached(module).get(module, [])
    return [each for each in texts if each.rstrip().endswith(".") and not each.startswith((" ", ",", ";"))]


def _outputs() -> Iterator[str]:
    for title, modules in OUTPUT_OF.items():
        found = [Text(each, True) for module in modules for each in sentences(module)]
        yield f"\n### {title}\n\n{_listed(found, ('', ''))}"
