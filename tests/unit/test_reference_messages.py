"""docs/messages.md has every message: what is found in the code, and that nothing is missed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from integration.readme import ROOT
from integration.reference import page_messages, reasons, texts
from integration.reference.page_messages import calls, config_errors, findings, responses, search
from integration.reference.texts import IN_ACCOUNTING, IN_LOG, IN_SLURM, Code, Search, is_prose

PAGE = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")
# Texts of the scheduler that are part of no message, and who sees them.
NO_MESSAGE = {
    "scheduler.decide": r"reads of .*|the nudge|the reconfiguration of Slurm",  # the log, after an error of our own
    "scheduler.actions": r"job \{job id\}|(Slurm )?node \{(name|node)\}|\{ref.kind\} \{namespace\}/\{ref.name\}",  # the log
    "scheduler.model.trace_context": r"00-\{trace id\}.*",  # the annotation `traceparent`
    "scheduler.model.anomaly": r"[a-z ,]+",  # values of a metric
    "scheduler.state.anomalies": r"Slurm (no longer lists|does not list) .* slurm-bridge release",  # the log, and /readyz
    "scheduler.explain": r".*",  # `explain`
    "scheduler.apply.pods": r"(pod )?\{pod.*|is on node .*",  # traces
    "scheduler.apply.plans": r"\{action.name\}: \{action.reason\}",  # traces
    "scheduler.apply.job_polls": r"whether many jobs are missing",  # the log, after an error of our own
    "scheduler.translate.grouping": r"\{api version\}/.*|batch Job|Kueue pod group",  # a key; kinds of groups
    "scheduler.rules.guard": r"the words for pods in quarantine",  # the log, after an error of our own
    "scheduler.model.hostlist": r".*",  # answers of Slurm that make no sense: /readyz, as "Slurm: …"
    "scheduler.model.limits": r"(.* of \{of\}|QOS \{qos\}|.*account \{account\})",  # the value of a limit: docs/reasons.md
    "scheduler.translate.job_spec": r"\{(have|count)\} \{name\}",  # amounts
    "scheduler.rules.uninstall": r".*",  # `uninstall`
    "scheduler.apply.surplus": r".* is a workload by itself",  # traces
    "scheduler.names": r".*\\d.*|\{kube system uid\}.*",  # a pattern, a key
    # `uninstall`
    "scheduler.rules.reconcile_nodes": (
        r", (which an admin|once no job) .*|(look at|remove|resume) Slurm .*|(take \{taint\})?the [tc].*"
    ),
    "scheduler.rules.node_condition": r" \\\(by .*| \(by .*",  # the signature of a bridge with another name: docs/scale.md
    "scheduler.model.text": r"a time that has no date|%Y.*|\{…\} s",  # times
    "scheduler.policy.rules": r"The policy| for \{user\}|rule \{place\}.*|.*\n.*",  # keys; docs/settings.md
    "scheduler.nodes.registration": r".*\n.*",  # docs/settings.md
    "scheduler.state.quarantine": r"an event of no workload|Slurm job \{job id\}|containment of .*",  # the log
    "scheduler.state.jobs": r"Slurm job \{job.id\} is \{list\}",  # traces
    "scheduler.state.backoff": r"[a-z ]+",  # kinds of attempts
    # behind Slurm's text: "Slurm refused it: …"
    "scheduler.model.slurm_errors": r"it does not know a job .*|there is no such license.*|no node of Slurm has .*",
    "scheduler.model.amounts": r"the empty mapping .*",  # an assertion
    "scheduler.state.derived": r".*",  # an assertion
    "scheduler.state.rivals": r".*",  # /readyz and the log
    "scheduler.state.quotas": r"(jobs|submissions) of ",  # keys
    "scheduler.rules.status": (
        r"%.*|.*\\d.*|\{date\}.*|\. Job \{job.id\}, as of "  # times; texts that are searched for
        r"|Waiting in Slurm partition \\S.*|\); expected start | as job \{job.id\}\. "
        r"|\(\?<=; expected start \).*| to |\\AYou can .*"
    ),
    "scheduler.model.reasons": r".*",  # docs/reasons.md
    "scheduler.rules.pod_state": r"Job ended",  # a state: docs/page.md
    "scheduler.policy.templates": r"(is longer|has a brace|names |\{namespace\},).*",  # mistakes of the settings
    "scheduler.tuning": r".*",  # docs/settings.md
    "scheduler.state.tables": r"the list of .*|Slurm's (nodes|jobs)",  # `explain`
    "scheduler.translate.job_options": r"no annotation says \{name\}",  # an assertion
}


def test_each_text_of_the_scheduler_is_in_a_message_or_known_to_be_in_none() -> None:
    """A new sentence is found by itself; if it is not, it needs a line here that says where it is shown."""
    for module, found in search().unreached("scheduler").items():
        others = [each for each in found if not re.fullmatch(NO_MESSAGE.get(module, "(?!)"), each, re.DOTALL)]
        assert others == [], module
    reached = search().found
    assert sum(len(each) for reason, each in reached.items() if reason != IN_LOG) > 300


def test_each_sentence_of_the_output_of_commands_is_listed() -> None:
    """Found without the search: each text of these modules that ends with a full stop, in a call or an assignment."""
    page = PAGE.replace("\\", "")
    section = page.partition("\n## Output of commands\n")[2].partition("\n## ")[0]
    for title, modules in page_messages.OUTPUT_OF.items():
        listed = section.partition(f"\n### {title}\n")[2].partition("\n### ")[0]
        for module in modules:
            for sentence in plain_sentences(module):
                assert f"* {sentence}\n" in listed or sentence in page, (module, sentence)
        assert listed.count("\n* ") > 5, title


def plain_sentences(module: str) -> list[str]:
    """Whole sentences of that module that have nothing to fill in, and are no docstring."""
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    docstrings = {each.value for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    filled = {part for each in ast.walk(tree) if isinstance(each, ast.JoinedStr) for part in each.values}
    found = (each for each in ast.walk(tree) if isinstance(each, ast.Constant) and each not in docstrings | filled)
    said = (each.value for each in found if isinstance(each.value, str))
    return [each.strip() for each in said if each[:1].isupper() and each.endswith(".") and " " in each]


def test_every_reason_has_its_messages() -> None:
    for each in reasons.ALL:
        assert any(text.whole for text in search().found[each.name]), each.name
        section = PAGE.split(f"\n### {each.name}\n")[1].split("\n### ")[0].split("\n## ")[0]
        assert "\nMessages:\n\n* " in section, each.name
        assert f"\nWhat to do: {each.to_do}\n" in section
    assert set(search().found) - {each.name for each in reasons.ALL} == {
        IN_SLURM,
        IN_ACCOUNTING,
        IN_LOG,
    }


@pytest.mark.parametrize(
    "message",
    [
        "Waiting in Slurm partition {job.partition} ({why}){start}{queue}. Job {job.id}, as of {time}.",
        "Namespace {pod.namespace} is not managed by slurm-bridge: the admin has to label it slurm-bridge/managed=true.",
        "Changed by another client and written back: {list}. Only slurm-bridge writes there.",
        "{path}: must be a mapping of keys to values.<br>(part) standard input | Write lines like key: value there.",
        "This needs the bearer token of the setting http\\_token\\_file.",
        "{token.source} can be read by every user of this host. | chmod o= {path}",
    ],
)
def test_messages_of_each_kind_are_there(message: str) -> None:
    assert message in PAGE


def count_calls(callee: str, package: str) -> int:
    """Calls of that name with an argument, counted without the search."""
    paths = (path for path in page_messages.sources() if str(path).startswith(str(ROOT / package)))
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    found = (node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args)
    return sum(node.func.id == callee for node in found if isinstance(node.func, ast.Name))


def test_every_error_of_a_command_and_every_finding_is_looked_at() -> None:
    assert len(config_errors()) == count_calls("ConfigError", "bridge") + count_calls("NotYet", "bridge") > 80
    for level in (*page_messages.LEVELS, page_messages.UNSEEN):
        assert len(findings(level)) == count_calls(level, "bridge/cli/doctor") > 5
    mistakes = list(calls("ValueError", package="bridge.settings"))
    assert len(mistakes) == count_calls("ValueError", "bridge/settings") > 15
    silent = [
        each.module
        for each in (*config_errors(), *findings("error"), *findings("warning"), *mistakes)
        if not each.messages
    ]
    # These pass on the sentence of another error, of NotSeen or of a Refusal, which are listed themselves.
    passing_on = [
        "bridge.cli.doctor.questions",
        "bridge.slurm.user_tokens",
        "bridge.webhook.own_certificate",
        "bridge.cli.doctor.findings",
        "bridge.cli.doctor.slurm_checks",
        "bridge.cli.doctor.slurm_checks",
        "bridge.cli.doctor.cross_checks",
        "bridge.cli.doctor.slurm_checks",
    ]
    assert silent == passing_on


def test_every_status_says_what_to_do() -> None:
    assert {status for status, _ in responses()} == page_messages.STATUS.keys()


def test_what_the_search_is_told_to_follow_exists() -> None:
    """After a rename the search would silently find less, so that the page loses messages."""
    code = search().code
    fields = {
        (owner.name, each.target.id)
        for module in code.modules.values()
        for owner in module.classes.values()
        for each in owner.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    carried = {(owner, attribute) for attribute, owners in texts.CARRIED.items() for owner in owners}
    assert carried <= fields, carried - fields
    stored = {attribute for _, attribute in fields} | code.stored.keys()
    assert stored >= texts.STORED, texts.STORED - stored
    assert code.methods.keys() >= texts.PROPERTIES, texts.PROPERTIES - code.methods.keys()
    functions = {name for module in code.modules.values() for name in module.functions}
    classes = {name for module in code.modules.values() for name in module.classes}
    assert functions | code.methods.keys() >= texts.VALUES, texts.VALUES - functions - code.methods.keys()
    called = texts.SINKS.keys() | texts.LOGGED.keys() | texts.CAUGHT
    assert functions | classes >= called, called - functions - classes
    assert code.modules.keys() >= NO_MESSAGE.keys(), NO_MESSAGE.keys() - code.modules.keys()


# --- the search itself ------------------------------------------------------------------------------------------------

SOURCE = """
from scheduler import names
from scheduler.model.refusal import Refusal

WHERE = "in the constant place"

def _why(count):
    return "there are too many" if count > 3 else f"there are {count} of them"

def refuse(count):
    said = _why(count)
    return Refusal(names.REFUSED, f"No, because {said} {WHERE}.")

def passes_on(reason, message):
    return Refusal(reason, message)

def uses_it():
    return passes_on(names.NO_NODE, "No node at all.")

def twice(count):
    said = "the first of two"
    first = Refusal(names.REFUSED, said)
    said = "the second of two"
    while count:
        yield Refusal(names.GATHERING, f"{said}")
        said = "the one of the loop"
    yield first

def nobody_calls_it():
    return "this is part of no message"
"""


def test_texts_are_followed_through_functions_variables_and_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sample_of_texts.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    found = Search(Code([tmp_path / "sample_of_texts.py"], tmp_path))
    said = {reason: {(text.template, text.whole) for text in texts} for reason, texts in found.found.items()}
    assert said == {
        "SlurmJobRefused": {
            ("No, because {said} in the constant place.", True),
            ("there are too many", False),
            ("there are {count} of them", False),
            ("in the constant place", False),
            ("the first of two", True),
        },
        "GangGathering": {("the second of two", False), ("the one of the loop", False)},
        "SlurmNoFeasibleNode": {("No node at all.", True)},
    }
    assert found.unreached("sample_of_texts") == {"sample_of_texts": ["this is part of no message"]}


@pytest.mark.parametrize(("text", "prose"), [("one two", True), ("word", False), (" : ", False), ("a=1", False)])
def test_prose_has_a_word_and_a_blank(text: str, prose: bool) -> None:
    assert is_prose(text) is prose
