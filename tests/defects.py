"""Defects of the bridge's own, for tests of their containment: a function or a rule that raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scheduler import decide
from scheduler.actions import Action, ObjectKind, SetPodCondition
from scheduler.model.kubernetes import Pod
from scheduler.rules.decision import Decision
from scheduler.rules.driver import enter
from scheduler.rules.scheduling_pass import Pass
from scheduler.state.phase import Phase
from scheduler.state.workload import Workload
from tests.builders import Story, key_of


class Defect(Exception):
    """An exception that no code of the bridge expects."""


def breaks(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, for_: Callable[..., bool]) -> Callable[[], None]:
    """That function raises when `for_` says so of its arguments; what is returned mends it."""
    whole = getattr(module, name)
    broken = [True]

    def breaking(*args: Any, **kwargs: Any) -> Any:
        if broken and for_(*args):
            raise Defect(name)
        return whole(*args, **kwargs)

    monkeypatch.setattr(module, name, breaking)
    return broken.clear


def breaks_rule(monkeypatch: pytest.MonkeyPatch, phase: Phase, name: str, *, late: bool = False) -> Callable[[], None]:
    """The rule of that phase raises for the pods of that name; late: after its decision came into the plan."""
    whole, broken = decide.RULES[phase], [True]

    def rule(workload: Workload, this_pass: Pass) -> Decision:
        bad = bool(broken) and workload.readable.startswith(f"hpc/{name}")
        if bad and late:
            enter(whole(workload, this_pass), workload, this_pass)
        if bad:
            raise Defect(phase.value)
        return whole(workload, this_pass)

    monkeypatch.setitem(decide.RULES, phase, rule)
    return broken.clear


def about(actions: list[Action], what: Pod) -> list[Action]:
    return [
        each for each in actions if getattr(each, "key", "") == key_of(what) and not isinstance(each, SetPodCondition)
    ]


def quarantined(story: Story) -> set[tuple[ObjectKind, str]]:
    return set(story.world.quarantine)
