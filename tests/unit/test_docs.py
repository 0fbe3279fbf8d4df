"""The manifests in docs/workloads.md are parts of examples/, which a journey runs; docs/metrics.md is complete."""

from __future__ import annotations

import re
import textwrap

import yaml

from bridge.kube.client import SELECTED_NODE
from bridge.settings import Settings
from bridge.simulation.kube import limits
from bridge.simulation.kube.kinds import KINDS
from bridge.slurm.wire import API_VERSIONS
from bridge.telemetry import Telemetry
from bridge.tracing.describe import CONTROLLERS
from bridge.webhook.metrics import Outcome
from integration import documents
from integration.kubectl_commands import COMMANDS
from integration.readme import ROOT
from integration.rigging import places
from scheduler import names
from scheduler.events import Side
from scheduler.model.anomaly import Anomaly
from scheduler.model.refusal import Refusal
from scheduler.policy.rules import Choice, Tenant

TEXT = (ROOT / "docs" / "workloads.md").read_text(encoding="utf-8")


def dedented(lines: list[str], first: int, count: int) -> str:
    return textwrap.dedent("\n".join(lines[first : first + count]))


def test_every_piece_of_a_manifest_is_part_of_the_example_that_it_names() -> None:
    pieces = re.findall(r"^```yaml\n# (examples/[\w-]+\.yaml)\n(.*?)\n^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert len(pieces) == TEXT.count("```yaml"), "each begins with the name of its example"
    for path, piece in pieces:
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        wanted, count = textwrap.dedent(piece), len(piece.splitlines())
        assert any(dedented(lines, first, count) == wanted for first in range(len(lines))), (path, piece)


def test_what_it_says_of_slurms_devices_is_what_the_journey_of_that_example_has() -> None:
    journey = (ROOT / "integration" / "journeys" / "test_examples.py").read_text(encoding="utf-8")
    [devices] = re.findall(r"^```text\n(.*?)\n```$", TEXT, re.MULTILINE)
    assert f'"{devices}"' in journey


def test_every_command_is_one_for_an_example_that_is_there() -> None:
    commands = re.findall(r"^ {4}(\S.*)$", TEXT, re.MULTILINE)
    assert commands
    for command in commands:
        assert (ROOT / command.removeprefix("kubectl apply -f ")).is_file(), command


METRICS = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


def test_every_metric_is_in_the_documentation_and_no_other() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "bridge").rglob("*.py")))
    made = set(re.findall(r'"(slurm_bridge_\w+)"', code))
    assert len(made) > 10
    assert set(re.findall(r"^\| `(slurm_bridge_\w+?)(?:_total)?`", METRICS, re.MULTILINE)) == made


def test_every_attribute_of_spans_is_in_the_documentation_and_no_other() -> None:
    attribute = r"((?:k8s|slurm|slurm_bridge)\.[a-z_.]+)"
    code = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "bridge" / "tracing").glob("*.py")))
    of_controllers = {f"k8s.{kind.lower()}.name" for kind in CONTROLLERS}
    text = (ROOT / "docs" / "tracing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]+) \|", text.partition("## Attributes")[2].partition("\n## ")[0], re.MULTILINE)
    told = {name for row in rows for name in re.findall(f"`{attribute}`", row)}
    assert len(told) > 20
    assert told == set(re.findall(f'"{attribute}"', code)) | of_controllers


def test_every_outcome_of_a_review_by_the_webhook_is_in_the_documentation() -> None:
    [row] = re.findall(r"^\| `slurm_bridge_webhook_reviews_total` .*$", METRICS, re.MULTILINE)
    assert {each.value for each in Outcome} | {"outcome"} | {"slurm_bridge_webhook_reviews_total"} == set(
        re.findall(r"`([a-z_]+)`", row)
    )


def test_every_reason_why_something_is_not_believed_is_in_the_documentation() -> None:
    telemetry = Telemetry()
    for side in Side:
        telemetry.on_call(side)("list", 0.1, "contracterror")
    telemetry.on_unsolicited()
    table = re.findall(r"^\| (`[^|]+) \|", METRICS.partition("## Rejected observations")[2], re.MULTILINE)
    told = {reason for cell in table for reason in re.findall(r"`([^`]+)`", cell)}
    assert told == {each.value for each in Anomaly} | telemetry.rejected.keys()


# --- the policy -------------------------------------------------------------------------------------------------------

POLICY = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")


def test_the_example_of_the_policy_gives_what_the_document_says() -> None:
    [example] = re.findall(r"^```yaml\n(.*?)^```$", POLICY, re.MULTILINE | re.DOTALL)
    policy = Settings.model_validate(yaml.safe_load(example)).core_policy("slurm")
    labels = {"example.org/tenant": "true", "example.org/slurm-user": "alice"}
    found = policy.tenant("team-a", "default", labels)
    assert found == Tenant(
        "alice",
        accounts=Choice("team-a", ("team-a-dev",)),
        partitions=Choice("batch", ("gpu",)),
        qos=Choice("normal", ("urgent",)),
        max_jobs=500,
        max_time_min=24 * 60,
        max_nodes=8,
        max_gres=(("gpu", 16),),
    )
    assert isinstance(policy.tenant("team-a", "default", {}), Refusal)
    assert policy.tenant("ci-1", "runner", {}) == Tenant("ci")


# --- uninstall, versions, links ---------------------------------------------------------------------------------------


def test_the_table_of_what_an_uninstall_takes_back_names_every_key_that_the_bridge_writes() -> None:
    section = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").partition("## Uninstall")[2]
    written = {key.removeprefix(names.PREFIX) for key in (*names.ONLY_OURS, names.TRACEPARENT)}
    written |= {names.RUNNING_CONDITION, names.MANAGED_TAINT, names.IN_SLURM, names.LEAVING, SELECTED_NODE}
    written |= {names.NODE_REASON.strip(), "DisruptionTarget", "activeDeadlineSeconds"}
    assert {each for each in written if f"`{each}`" not in section} == set()


def test_the_versions_that_were_run_are_those_of_the_rig() -> None:
    text = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    for version in (places.KUBERNETES, places.ETCD, places.KWOK, *(each.name for each in API_VERSIONS)):
        assert version in text, version


def test_every_command_of_a_document_is_typed_by_a_test_or_has_a_reason_why_not() -> None:
    found = {(name, heading) for name, heading, _ in documents.sections() if documents.lines(name, heading)}
    assert found == documents.RUN_BY.keys()
    for (name, heading), test in documents.RUN_BY.items():
        if test.startswith(documents.JOURNEYS):
            assert f'lines("{name}", "{heading}")' in (ROOT / test).read_text(encoding="utf-8"), (name, heading)
        else:
            named = re.findall(r"[\w/]+\.py", test)
            assert named, "it says what is run in its place"
            assert all((ROOT / path).exists() or (ROOT / documents.JOURNEYS / path).exists() for path in named), test


def test_the_limits_of_dev_are_documented_in_the_sentences_that_it_says() -> None:
    table = re.findall(
        r"(?m)^\| (`.+`) \| (.+) \| (refused|performed) \|$", (ROOT / "docs" / "dev.md").read_text("utf-8")
    )
    said = {sentence: (set(re.findall(r"`(.+?)`", commands)), how) for commands, sentence, how in table}
    wanted: dict[str, tuple[set[str], str]] = {}
    for template in [text for name, text in vars(limits).items() if name.startswith("NO_")]:
        sentence = template.format(kind="KIND", plural="PLURAL", version="VERSION")
        pattern = re.escape(sentence).replace("KIND", r"\w+").replace("PLURAL", r".+").replace("VERSION", r".+")
        limited = [each for each in COMMANDS if re.fullmatch(pattern, each.limit)]
        assert limited, f"no command of integration/kubectl_commands.py has the limit {sentence!r}"
        wanted[sentence] = ({each.name for each in limited}, "refused" if limited[0].refused else "performed")
    assert said == wanted


def test_dev_documents_the_kinds_on_which_no_controller_acts() -> None:
    [listed] = re.findall(r"no controller acts are ([\w,\s]+)\.", (ROOT / "docs" / "dev.md").read_text("utf-8"))
    assert set(re.findall(r"\w+", listed)) - {"and"} == {kind.kind for kind in KINDS.values() if kind.idle}


def test_every_link_to_a_file_leads_to_one() -> None:
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
        assert [link for link in links if not (path.parent / link).exists()] == [], path
