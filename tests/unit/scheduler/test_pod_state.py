"""The state of a pod in one word (docs/users.md)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler import names
from scheduler.model.kubernetes import Condition, PodPhase
from scheduler.rules.pod_state import pod_state
from scheduler.state.phase import Phase
from tests.builders import START, pod

SUSPENDED = Condition(False, names.SUSPENDED, "…")
RUNS = {"phase": PodPhase.RUNNING}


@pytest.mark.parametrize(
    ("fields", "node", "reason", "phase", "word"),
    [
        ({"phase": PodPhase.SUCCEEDED}, "x1", "", None, "Completed"),
        ({"phase": PodPhase.FAILED}, "x1", "", None, "Failed"),
        ({"phase": PodPhase.FAILED, "disrupted": True}, "x1", "", None, "Stopped"),
        (RUNS | {"deleting_at": START}, "x1", "", None, "Ending"),
        (RUNS, "x1", "", Phase.ORPHANED, "Job ended"),
        (RUNS, "x1", "", Phase.BOUND, "Running"),
        (RUNS | {"crashes": "container main"}, "x1", "", None, "Crashing"),
        (RUNS | {"job_condition": SUSPENDED}, "x1", "", None, "Suspended"),
        (RUNS | {"job_condition": Condition(True, names.RUNS, "…")}, "x1", "", None, "Running"),
        ({}, "x1", "", Phase.BOUND, "Starting"),
        ({"gated": True}, "", "", None, "Gated"),
        ({}, "", names.REFUSED, Phase.GRANTED, "Granted"),
        ({}, "", names.REFUSED, Phase.GATHERING, "Refused"),
        ({}, "", "", Phase.GATHERING, "Gathering"),
        ({}, "", "", None, "Waiting"),
    ],
)
def test_the_word_for_the_state_of_a_pod(
    fields: dict[str, Any], node: str, reason: str, phase: Phase | None, word: str
) -> None:
    assert pod_state(pod(**fields), node, reason, phase) == word
