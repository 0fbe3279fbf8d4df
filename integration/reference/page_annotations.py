"""docs/annotations.md: every key, condition and reason, from the tables beside this file and the readers of the bridge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from integration.reference import keys, reasons
from integration.reference.markdown import code, table
from scheduler import names
from scheduler.model.kubernetes import Pod
from scheduler.model.refusal import Refusal
from scheduler.translate.job_options import job_options

CREATED = 1_795_000_000.0  # epoch seconds, when the pods of the examples were created: in November 2026
SHOWN = 40  # characters of a refused value

INTRO = f"""\
# Annotations, labels, conditions and events

<!-- Generated from scheduler/names.py, scheduler/translate/job_options.py and integration/reference/ by `make reference`. -->

All keys of slurm-bridge begin with `{names.PREFIX}`. Kubernetes takes annotations and labels only as texts: write numbers in
quotes.

## Annotations that choose options of the job

A user writes them on the pod, or on a controller of the pod (its Deployment, Job, JobSet …, in that object's own metadata).
The annotation of the pod has precedence, then that of the nearest controller. Each says what the option of sbatch says,
within the [policy](policy.md). An unusable value is refused before anything is submitted: the pod gets the condition
`{names.REFUSED}` with a message that names key and value. A key on a pod that begins with `{names.PREFIX}` and is not on
this page is refused, too.

While the pod waits, an edit changes its job in place where Slurm allows that; otherwise the condition says what cannot be
changed. After the bind an edit has no effect (event `{names.CHANGE_IGNORED}`), except of `{names.SIGNAL}`. Controllers are
not watched: an edit on one is read about once a minute while its pods wait. After the bind, no event shows such an edit.

"""


BEYOND_VALUES = """\
Besides values of these kinds, the bridge refuses what the policy does not allow, and amounts that are less than what the
containers of the pod take."""
WRITTEN = f"""\
Written with the bind, before a container starts; programs read them by the downward API ([workloads.md](workloads.md)). Only
the bridge writes them, except `traceparent`. A pod that has one of the others before its bind is refused. What another client
changes later is written back (event `{names.PUT_BACK}`)."""
OF_NODES = """\
[security.md](security.md#which-keys-decide-about-a-node) says who should be able to write them."""
OTHER_KEYS = """\
Besides these, the policy may name any label of a namespace, and the setting `external_nodes` any label of a node."""
ALIASES = """\
Annotations of the Go slurm-bridge ([comparison.md](comparison.md)) are read as aliases. If an
object has both, the key of this project has precedence. Other keys with this prefix are ignored."""


def text() -> str:
    """The page."""
    sections = (
        _of_options(),
        _section(
            "What is refused", ("annotation", "value, for example", "message on the pod"), _refused(), BEYOND_VALUES
        ),
        _of_keys("Gangs", keys.GROUPS, "A label, and annotations of the pod itself."),
        _of_keys("Annotations that the bridge writes on pods", keys.WRITTEN, WRITTEN),
        _aliases(),
        _of_keys("Admission", keys.OF_ADMISSION),
        _of_keys("Namespaces", keys.OF_NAMESPACES),
        _of_keys("Nodes", keys.OF_NODES, OF_NODES),
        _of_keys("Other objects", keys.ELSEWHERE),
        _of_keys("Keys of other projects that the bridge reads", keys.READ, OTHER_KEYS),
        _section("Fields", ("field", "where", "who writes it", "meaning"), keys.FIELDS),
        _conditions(),
        _reasons("Reasons on pods", reasons.OF_PODS),
        _reasons("Reasons on nodes", reasons.OF_NODES),
        _section("In Slurm", ("what", "value", "meaning"), keys.IN_SLURM),
    )
    return INTRO + "".join(sections)


def _of_options() -> str:
    rows = [
        (code(names.PREFIX + each.key), code(each.option), each.syntax, _each(each.examples), each.meaning)
        for each in keys.JOB_OPTIONS
    ]
    return table(("annotation", "option of sbatch", "syntax", "examples", "meaning"), rows)


def _refused() -> Iterable[Sequence[str]]:
    for option in keys.JOB_OPTIONS:
        for value in option.refused:
            shown = value if len(value) <= SHOWN else f"{value[:10]}… ({len(value)} characters)"
            message = (
                refusal(option.key, value).replace(value, shown) if value.isprintable() else refusal(option.key, value)
            )
            yield code(names.PREFIX + option.key), code(repr(shown)[1:-1]), message


def refusal(key: str, value: str) -> str:
    """The message on a pod with this annotation.  Raises AssertionError if the value is accepted."""
    said = job_options(pod_with(key, value))
    assert isinstance(said, Refusal), f"{key}: {value!r} is taken"
    return said.message


def pod_with(key: str, value: str) -> Pod:
    """A pod that has this annotation of the bridge."""
    return Pod("uid", "hpc", "train", CREATED, annotations={names.PREFIX + key: value})


def _aliases() -> str:
    rows = [(code(names.ALIAS_PREFIX + alias), code(names.PREFIX + key), "") for alias, key in names.ALIASES.items()]
    refused = "refused: the admin decides this by the policy"
    rows += [(code(names.ALIAS_PREFIX + each), "", refused) for each in sorted(names.ALIASES_REFUSED)]
    return _section("Aliases", ("alias", "read as", ""), rows, ALIASES)


def _of_keys(title: str, rows: Iterable[keys.Key], about: str = "") -> str:
    heads = ("key", "kind", "on", "who writes it", "value", "example", "meaning", "refused, or ignored")
    cells = [
        (
            code(each.key),
            each.kind,
            each.where,
            each.writer,
            each.syntax,
            code(each.example),
            each.meaning,
            each.refused,
        )
        for each in rows
    ]
    return _section(title, heads, cells, about)


def _conditions() -> str:
    rows = (
        (
            code(reasons.POD_SCHEDULED),
            "Pod",
            "`False` while the pod waits; the message says why. Kubernetes sets it to `True` with the bind.",
        ),
        (
            code(names.RUNNING_CONDITION),
            "Pod",
            "State of the job of a bound pod. Written only when there is something to say: `False` with the reason "
            f"`{names.SUSPENDED}`, `True` otherwise.",
        ),
        (
            code(reasons.DISRUPTION),
            "Pod",
            f"`True`, reason `{names.ENDED}`: the bridge ends the pod because its job was ended, preempted or lost. Not "
            "written at the time limit.",
        ),
        (code(names.IN_SLURM), "Node", "State of the node in Slurm: `True` if Slurm gives jobs to it."),
    )
    return _section("Conditions", ("condition", "on", "meaning"), rows)


def _reasons(title: str, found: Iterable[reasons.Reason]) -> str:
    rows = [(code(each.name), _each(each.where), each.meaning, each.to_do) for each in found]
    about = "[messages.md](messages.md) has the messages of each reason."
    return _section(title, ("reason", "of", "meaning", "what to do"), rows, about)


def _each(words: Iterable[str]) -> str:
    return ", ".join("event" if word == reasons.EVENT else code(word) for word in words)


def _section(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], about: str = "") -> str:
    before = f"{about}\n\n" if about else ""
    return f"\n## {title}\n\n{before}{table(heads, rows)}"
