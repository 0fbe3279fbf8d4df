"""values.schema.json of the Helm chart: its part `settings` is the model by which the bridge itself reads settings.

    python -m integration.chart         writes it (`make chart-schema`); a unit test fails while it is out of date

Helm refuses a wrong type and an unknown key before anything is installed.  What a schema cannot say (a URL, a template of the
policy) the bridge says at its start, as with every settings file.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bridge.settings import Settings
from bridge.webhook.review import Intercept
from scheduler.tuning import Tuning

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
    settings = _plain(Settings.model_json_schema())
    definitions = settings.pop("$defs")
    definitions["Tuning"] = _tuning(definitions["Tuning"])
    for key in SET_BY_THE_POD:
        del settings["properties"][key]
    settings["properties"]["slurm_url"]["minLength"] = 1
    settings["required"] = NEEDED
    settings["description"] = "what settings.yaml holds"
    text = {"type": "string"}
    switch = {"type": "boolean"}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart slurm-bridge",
        **_mapping(
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
            admission=_mapping(enabled=switch, intercept=switch),
            webhook=_mapping(
                enabled=switch,
                replicas={"type": "integer", "minimum": 0},
                failurePolicy={"enum": ["Ignore", "Fail"]},
                intercept={"enum": [each.value for each in Intercept]},
                resources=_mapping(limits=_amounts(), requests=_amounts()),
            ),
            monitoring=_mapping(enabled=switch),
            resources=_mapping(limits=_amounts(), requests=_amounts()),
            nodeSelector={"type": "object", "additionalProperties": text},
            tolerations=_list(
                _mapping(key=text, operator=text, value=text, effect=text, tolerationSeconds={"type": "integer"})
            ),
            **{"global": {"type": "object"}},  # Helm adds it where this is a part of another chart
        ),
        "$defs": definitions,
    }


def text() -> str:
    """The file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def _line(description: str) -> str:
    return " ".join(description.split())


def _mapping(**keys: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": keys}


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _amounts() -> Schema:
    """The schema of amounts of resources: "100m", 2."""
    return {"type": "object", "additionalProperties": {"type": ["string", "number"]}}


def _tuning(model: Schema) -> Schema:
    """Its keys are the fields of the core's own class, which the model checks one by one."""
    meanings = Tuning.meanings()
    keys = {
        key: {**_amount(key, value), "default": value, "description": _line(meanings.get(key, INTERNAL))}
        for key, value in asdict(Tuning()).items()
    }
    return {**_mapping(**keys), "description": model["description"]}


def _amount(key: str, default: float) -> Schema:
    if isinstance(default, int):
        return {"type": "integer", "minimum": 1}
    return {"type": "number", "exclusiveMinimum" if key.endswith("_rate") else "minimum": 0}


def _plain(written: Any) -> Any:
    """Without titles, which repeat the key, and without "or null", which hides in Helm's complaint what the other type is."""
    if isinstance(written, list):
        return [_plain(each) for each in written]
    if not isinstance(written, dict):
        return written
    kept = {key: _plain(value) for key, value in written.items() if not (key == "title" and isinstance(value, str))}
    if isinstance(kept.get("description"), str):
        kept["description"] = _line(kept["description"])
    choices = kept.get("anyOf", [])
    if len(choices) == 2 and choices[1] == {"type": "null"}:
        del kept["anyOf"]
        if kept.get("default", "") is None:
            del kept["default"]
        kept |= choices[0]
    return kept


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
