"""docs/settings.md: every setting, from the models that read them."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Union, get_args, get_origin

import annotated_types
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bridge import settings, settings_policy
from bridge.__main__ import _parser
from bridge.policy_file import RELOADED
from bridge.settings import ENVIRONMENT, OPTIONS
from integration.reference.markdown import code, table
from scheduler.tuning import Tuning

HEADS = ("setting", "type, unit", "default", "meaning", "when to change it")
UNITS = {"_s": "seconds", "_mib": "MiB", "_rate": "a second"}

INTRO = f"""\
# Settings

<!-- Generated from bridge/settings.py, bridge/settings_policy.py and scheduler/tuning.py by `make reference`. Edit these. -->

The settings are one YAML file. `slurm-bridge run --config settings.yaml` names it, or the environment variable
`{ENVIRONMENT}CONFIG`. The Helm chart writes its value `settings` into this file. If the file has an unknown key or an
unusable value, the bridge names the key and does not start. `slurm-bridge doctor --config settings.yaml` checks the file
without a start.

A minimal file:

```yaml
slurm_url: https://slurmrestd.example/
slurm_token_file: /run/secrets/slurm/token
policy:
  rules:
  - namespaces: [hpc]
    user: alice
```

These settings can also be given by an option of the command line or by an environment variable. The option has
precedence over the environment variable, which has precedence over the file.

"""
RELOAD = f"""
The running bridge reads {" and ".join(code(each) for each in sorted(RELOADED))} again when the file changes
([policy.md](policy.md)).
All other settings take effect at the next start; /readyz names those that were changed since the start.
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the settings that has a table of its own.

    title    its heading
    about    sentences before the table
    model    whose fields are in the table; None: there is no table
    left_out fields that another table has
    """

    title: str
    about: str
    model: type[BaseModel] | None = None
    left_out: frozenset[str] = frozenset()


TENANT = frozenset(settings_policy.Tenant.model_fields)
SECTIONS = (
    Section("All settings", "", settings.Settings),
    Section(
        "`gres`", f"The default:\n\n```yaml\n{yaml.safe_dump({'gres': settings.DEFAULT_GRES}, sort_keys=False)}```"
    ),
    Section("`policy`", "[policy.md](policy.md) explains the policy with an example.", settings_policy.Policy),
    Section(
        "`policy.rules`, which pods a rule matches",
        "Each rule has these keys, and those of the next section.",
        settings_policy.Rule,
        left_out=TENANT,
    ),
    Section(
        "`policy.rules`, `policy.default`, what the pods get",
        "",
        settings_policy.Tenant,
    ),
    Section("`account`, `partition`, `qos`, `reservation` of a rule", "", settings_policy.Choice),
    Section("`namespace_selector` of a rule", "All parts of a selector must match.", settings_policy.Selector),
    Section("`matchExpressions` of a selector", "", settings_policy.Expression),
    Section("`priority_classes`, each of them", "", settings_policy.PriorityClass),
    Section("`external_nodes`", "[nodes.md](nodes.md) explains registered nodes.", settings.ExternalNodes),
    Section("`lease`", "[operations.md](operations.md#two-replicas) explains replicas.", settings.LeaseSettings),
)


def text() -> str:
    """The page."""
    of_run = vars(_parser().parse_args(["run"]))
    given = table(
        ("setting", "option of `run`", "environment variable"),
        (
            (
                code(each),
                code("--" + each.replace("_", "-")) if each in of_run else "",
                code(ENVIRONMENT + each.upper()),
            )
            for each in OPTIONS
        ),
    )
    return INTRO + given + RELOAD + "".join(_section(each) for each in SECTIONS) + _tuning()


def _section(section: Section) -> str:
    fields_of = written(section.model) if section.model else ()
    rows = [row(key, field) for key, field in fields_of if key not in section.left_out]
    parts = [f"## {section.title}\n", section.about and f"{section.about}\n", table(HEADS, rows) if rows else ""]
    return "".join(f"\n{part}" for part in parts if part)


def written(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """The fields of a model, by the keys as they are written in the file."""
    for name, field in model.model_fields.items():
        yield field.alias or name, field


def row(key: str, field: FieldInfo) -> tuple[str, ...]:
    """One setting."""
    meaning, _, change = (field.description or "").partition("\n")
    return code(key), _type(key, field), _default(field), meaning, change


# --- types and defaults -------------------------------------------------------------------------------------------


def _type(key: str, field: FieldInfo) -> str:
    words = _of(field.annotation)
    limits = [_limit(each) for each in field.metadata]
    return ", ".join(each for each in (words, _unit(key), *limits) if each)


def _of(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in (str, int, float, bool):
        return {str: "text", int: "whole number", float: "number", bool: "`true` or `false`"}[annotation]
    if origin is Literal:
        return " or ".join(code(each) for each in arguments)
    if origin in (Union, types.UnionType):
        [found] = [each for each in arguments if each is not types.NoneType]
        return _of(found)
    if origin is tuple:
        return f"list of {_plural(_of(arguments[0]))}"
    if origin is Mapping:
        return f"mapping from text to {_of(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping, see below"
    raise TypeError(f"no words for the type {annotation}")


def _plural(words: str) -> str:
    return {"text": "texts", "mapping, see below": "mappings, see below"}[words]


def _unit(key: str) -> str:
    return next((unit for end, unit in UNITS.items() if key.endswith(end)), "")


def _limit(limit: Any) -> str:
    match limit:
        case annotated_types.Ge(ge=least):
            return f"at least {least}"
        case annotated_types.Gt(gt=least):
            return f"more than {least}"
        case annotated_types.Le(le=most):
            return f"at most {most}"
        case annotated_types.MinLen():
            return "not empty"
        case _ if getattr(limit, "pattern", None):
            return ""  # its text says what is possible
    raise TypeError(f"no words for the limit {limit}")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is None:
        return "not set"
    if isinstance(field.default, BaseModel):
        return "see below"
    return value(field.default)


def value(default: Any) -> str:
    """A default as it would be written in the file."""
    if default in ("", (), {}):
        return "empty"
    if isinstance(default, Mapping):
        return "see below"
    flow = yaml.safe_dump(default, default_flow_style=True, width=10_000, sort_keys=False).removesuffix("...\n")
    return code(flow.strip())


# --- tuning -------------------------------------------------------------------------------------------------------


def _tuning() -> str:
    meanings, defaults = Tuning.meanings(), Tuning()
    known = {each.name: getattr(defaults, each.name) for each in fields(Tuning)}
    rows = []
    for name, default in known.items():
        if name in meanings:
            meaning, _, change = meanings[name].partition("\n")
            kind = "whole number, at least 1" if isinstance(default, int) else "number, at least 0"
            what, _, least = kind.partition(", ")
            rows.append(
                (code(name), ", ".join(filter(None, (what, _unit(name), least))), value(default), meaning, change)
            )
    internal = ", ".join(f"{code(name)} ({default})" for name, default in known.items() if name not in meanings)
    return (
        f"\n## `tuning`\n\nThe defaults fit most clusters.\n\n{table(HEADS, rows)}\n"
        "All other keys of `tuning` are internal. They are accepted, for tests and experiments. A wrong value can make the\n"
        "bridge slow or unsafe, and any release may change or drop a key. `scheduler/tuning.py` says what they mean. Their\n"
        f"defaults:\n\n{internal}.\n"
    )
