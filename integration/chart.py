"""values.schema.json of the Helm chart: its part `settings` is the model by which the bridge itself reads settings.

    python -m integration.chart         writes it (`make chart-schema`); a unit test fails while it is out of date

Helm refuses a wrong type and an unknown key before anything is installed.  The bridge reports mistakes that a schema cannot
express (in a URL, in a template of the policy) at its start, as for every settings file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bridge.settings import schema as settings_schema
from bridge.webhook.review import Intercept

CHART = Path(__file__).resolve().parent.parent / "manifests" / "chart"
FILE = CHART / "values.schema.json"
# The Deployment sets these by its environment, which wins over the file: written in the settings they would have no effect.
SET_BY_THE_POD = ("kubeconfig", "slurm_token_file", "http")
NEEDED = ["slurm_url", "policy"]
INTERNAL = "Internal: any release may change or drop it."
NAME = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"  # of a namespace
Schema = dict[str, Any]


def schema() -> Schema:
    """The JSON schema of the values of the chart."""
    settings, definitions = _settings()
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart slurm-bridge",
        **_values(settings),
        "$defs": definitions,
    }


def _values(settings: Schema) -> Schema:
    text = {"type": "string"}
    switch = {"type": "boolean"}
    return _mapping(
        image=_mapping(
            repository={**text, "minLength": 1},
            tag=text,
            pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
            pullSecrets=_list(text),
        ),
        replicas={"type": "integer", "minimum": 0},
        settings=settings,
        token=_mapping(secret={**text, "minLength": 1}, content=text),
        namespaces={**_list({**text, "pattern": NAME}), "uniqueItems": True},
        admission=_mapping(enabled=switch, others={"type": "object", "additionalProperties": text}),
        intercept={"enum": [*(each.value for each in Intercept), "none"]},
        webhook=_mapping(
            enabled=switch,
            replicas={"type": "integer", "minimum": 0},
            failurePolicy={"enum": ["Ignore", "Fail"]},
            resources=_mapping(limits=_amounts(), requests=_amounts()),
        ),
        monitoring=_mapping(enabled=switch, labels={"type": "object", "additionalProperties": text}),
        env=_list(
            {
                **_mapping(name={**text, "minLength": 1}, value=text, valueFrom={"type": "object"}),
                "required": ["name"],
            }
        ),
        resources=_mapping(limits=_amounts(), requests=_amounts()),
        nodeSelector={"type": "object", "additionalProperties": text},
        tolerations=_list(
            _mapping(key=text, operator=text, value=text, effect=text, tolerationSeconds={"type": "integer"})
        ),
        **{"global": {"type": "object"}},  # Helm adds it where this is a part of another chart
    )


def _settings() -> tuple[Schema, Schema]:
    """The schema of settings.yaml as the chart takes it, and the definitions that it refers to."""
    settings = settings_schema()
    definitions = settings.pop("$defs")
    for part in (settings, *definitions.values()):
        del part["title"]
        for each in (part, *part["properties"].values()):
            each["description"] = _line(each.get("description", INTERNAL))
            if "$ref" in each:  # its keys have their own defaults
                each.pop("default", None)
    for key in SET_BY_THE_POD:
        del settings["properties"][key]
    settings["properties"]["slurm_url"]["minLength"] = 1
    settings["required"] = NEEDED
    settings["description"] = "what settings.yaml holds"
    return settings, definitions


def text() -> str:
    """The file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def _line(description: str) -> str:
    """The description in one line, without the table of fields that a docstring may have."""
    return " ".join(description.partition("\n\n")[0].split())


def _mapping(**keys: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": keys}


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _amounts() -> Schema:
    """The schema of amounts of resources: "100m", 2."""
    return {"type": "object", "additionalProperties": {"type": ["string", "number"]}}


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
