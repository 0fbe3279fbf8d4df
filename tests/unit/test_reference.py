"""The generated pages are up to date and complete."""

from __future__ import annotations

import ast
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bridge.settings import OPTIONS
from bridge.webhook.review import OPT_OUT
from integration.readme import ROOT
from integration.reference import keys, reasons
from integration.reference.page_annotations import pod_with, refusal
from integration.reference.page_settings import MODELS, SECTIONS, TENANT
from integration.reference.pages import PAGES
from scheduler import names
from scheduler.model.kubernetes import Pod
from scheduler.model.refusal import Refusal
from scheduler.translate import job_options
from scheduler.translate.grouping import Group, group_of
from scheduler.tuning import Tuning


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_what_the_code_gives(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == PAGES[page](), "make reference writes it"


# --- settings ---------------------------------------------------------------------------------------------------------

SETTINGS = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")


# Of each setting: its part of the settings, its key, and its schema.  Internal values of `tuning` have no description.
EVERY = [(model, key, field) for model, part in MODELS.items() for key, field in part["properties"].items()]
FOR_ADMINS = [each for each in EVERY if "description" in each[2]]
TUNING = MODELS["Tuning"]["properties"]
ADVISED = {key for key, field in TUNING.items() if "description" in field}


def test_every_setting_says_what_it_means_and_when_to_change_it() -> None:
    assert len(FOR_ADMINS) > 65
    assert {model for model, _, field in EVERY if "description" not in field} == {"Tuning"}
    for model, key, field in FOR_ADMINS:
        meaning, _, change = field["description"].partition("\n")
        assert meaning.endswith("."), (model, key)
        has_keys_of_its_own = "$ref" in str(field)  # only such a part needs no advice
        assert change.endswith(".") or has_keys_of_its_own, (model, key)
        assert "\n" not in change, (model, key)


def test_every_setting_is_in_the_page() -> None:
    assert all(f"\n| `{key}` | " in SETTINGS for _, key, _ in FOR_ADMINS)
    assert {each.model for each in SECTIONS if each.model} == MODELS.keys()
    rule_again = len(TENANT)  # a rule has the keys of the section about what pods get
    assert SETTINGS.count("\n| `") == len(FOR_ADMINS) - rule_again + len(OPTIONS)


def test_every_tuning_value_is_in_the_page_with_its_default_and_values_for_admins_with_a_text() -> None:
    assert TUNING.keys() == asdict(Tuning()).keys()
    for name, default in asdict(Tuning()).items():
        if name not in ADVISED:
            assert f"`{name}` ({default})" in SETTINGS
    assert 15 <= len(ADVISED) <= 20


def test_tuning_values_that_the_documentation_mentions_are_for_admins() -> None:
    advised = {
        name
        for path in (ROOT / "docs").glob("*.md")
        for name in re.findall(r"`tuning: \{(\w+): ", path.read_text(encoding="utf-8"))
    }
    assert "gang_bind_deadline_s" in advised
    assert advised <= ADVISED


# --- annotations ------------------------------------------------------------------------------------------------------

ANNOTATIONS = (ROOT / "docs" / "annotations.md").read_text(encoding="utf-8")
DESCRIBED = {names.PREFIX + each.key for each in keys.JOB_OPTIONS} | {each.key for each in keys.OTHERS}
# Constants of names.py that are no keys and no reasons; the sections about conditions and Slurm name them.
NO_KEYS = {"SCHEDULER_NAME", "PREFIX", "ALIAS_PREFIX", "RUNNING_CONDITION", "IN_SLURM", "NODE_REASON", "NODE_MARK"}
KEY = r"([a-z0-9-]+\.)+[a-z]+/[\w./-]*|slurm-bridge/[\w-]*"  # as Kubernetes has keys with a domain
# Texts of the code that look like a key of Kubernetes and are none.
NO_KEY = re.compile(
    r"""[a-z.-]*k8s\.io/v\d\w*                 # a version of an API
    | kubernetes\.io/(no-provisioner)?         # a provisioner; the prefix of resources
    | (nvidia|amd|gpu\.intel)\.com/[\w.-]+     # extended resources
    | node\.kubernetes\.io/(not-ready|unreachable)  # taints
    | slurm-bridge/(slurm-bridge-webhook)?     # namespace and name of a Secret; the prefix
    | slurmjob\.slinky\.slurm\.net/            # the prefix of aliases
    | trainer\.kubeflow\.org/[\w-]*           # an API, and a label of its Jobs: `explain -f` alone reads them
    """,
    re.VERBOSE,
)


def constants() -> dict[str, str]:
    """The texts of names.py, by their names."""
    return {name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}


def sources() -> list[Path]:
    """The code of the product, without the simulated clusters."""
    paths = (path for part in ("scheduler", "bridge") for path in (ROOT / part).rglob("*.py"))
    return [path for path in paths if not {"dev", "simulation"} & set(path.parts)]


def test_every_name_is_described() -> None:
    told = {key.removeprefix(names.PREFIX) for key in DESCRIBED} | {each.name for each in reasons.ALL}
    missing = {
        name: value
        for name, value in constants().items()
        if name not in NO_KEYS and value.removeprefix(names.PREFIX) not in told
    }
    assert missing == {}
    assert all(f"`{constants()[name]}" in ANNOTATIONS for name in NO_KEYS)


def test_every_key_is_in_the_page_and_no_other() -> None:
    wanted = names.JOB_OPTIONS | names.GROUPING | names.WRITTEN_BY_US
    assert {names.PREFIX + each for each in wanted} <= DESCRIBED
    assert {each.key for each in keys.JOB_OPTIONS} == names.JOB_OPTIONS
    assert all(f"| `{key}` | " in ANNOTATIONS for key in DESCRIBED)
    for alias in (*names.ALIASES, *names.ALIASES_REFUSED):
        assert f"| `{names.ALIAS_PREFIX}{alias}` | " in ANNOTATIONS
    assert {each.name for each in reasons.ALL} <= set(constants().values()), "a reason that no code has"


def test_every_key_that_the_code_spells_is_described() -> None:
    """A text like example.org/name, or PREFIX + "name", anywhere in the code."""
    spelled = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Constant(value=str(text)) if re.fullmatch(
                    r"([a-z0-9-]+\.)+[a-z]+/[\w./-]*|slurm-bridge/[\w-]*", text
                ):
                    spelled.add(text)
                case ast.BinOp(
                    left=ast.Name(id="PREFIX") | ast.Attribute(attr="PREFIX"), right=ast.Constant(value=str(text))
                ):
                    spelled.add(names.PREFIX + text)
    assert len(spelled) > 25
    assert {text for text in spelled if not NO_KEY.fullmatch(text)} - DESCRIBED == {names.RUNNING_CONDITION}


@pytest.mark.parametrize("option", keys.JOB_OPTIONS, ids=lambda option: option.key)
def test_the_examples_of_an_option_are_accepted_and_its_wrong_values_are_refused(option: keys.JobOption) -> None:
    for value in option.examples:
        read = job_options.job_options(pod_with(option.key, value))
        assert isinstance(read, job_options.JobOptions), (option.key, value, read)
        assert getattr(read, option.key.replace("-", "_")) is not None
    assert option.refused
    for value in option.refused:
        assert refusal(option.key, value).startswith(f"Annotation {names.PREFIX}{option.key}: ")


def test_examples_of_gangs_are_taken_and_other_values_refused() -> None:
    label, size, timeout = keys.GROUPS
    pod = Pod("uid", "hpc", "train", labels={label.key: label.example})
    taken = group_of(replace(pod, annotations={size.key: size.example, timeout.key: timeout.example}))
    assert isinstance(taken, Group)
    assert (taken.name, taken.size, taken.timeout_s) == (label.example, int(size.example), int(timeout.example))
    for key in (size.key, timeout.key):
        for value in ("0", "-1", "many", "1.5", "999999999"):
            assert isinstance(group_of(replace(pod, annotations={key: value})), Refusal), (key, value)
    assert isinstance(group_of(replace(pod, labels={label.key: ""})), Refusal)
    assert isinstance(group_of(replace(pod, labels={label.key: "job"})), Refusal)
    assert isinstance(group_of(replace(pod, labels={}, annotations={size.key: size.example})), Refusal)


def test_the_annotation_for_admission_means_nothing_on_pods_of_the_bridge() -> None:
    assert job_options.user_input(Pod("uid", "hpc", "train", annotations={OPT_OUT: "false"})) == {}


def test_every_reason_says_what_it_means_and_what_to_do() -> None:
    assert len({each.name for each in reasons.ALL}) == len(reasons.ALL)
    for each in reasons.ALL:
        assert each.meaning.endswith("."), each.name
        assert each.to_do.endswith("."), each.name
        assert each.where, each.name
