"""Expressions of Kubernetes' label selectors: of affinity terms, and of rules of the policy that select namespaces."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache

from scheduler.model.kubernetes import Requirement

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)  # what Go reads as a number; Python's int reads more


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """True if these labels satisfy the expression."""
    return accepts(requirement.operator, requirement.values, labels.get(requirement.key))


def accepts(operator: str, values: Collection[str], value: str | None) -> bool:
    """True if an expression accepts this value of its label; None: the label is missing."""
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(operator, next(iter(values), ""), value)
    return False  # an operator newer than this code: better no node than a wrong one


def _compares(operator: str, bound: str, value: str | None) -> bool:
    """Gt and Lt compare whole numbers; other values match nothing, as in kube-scheduler."""
    number, limit = _number(value or ""), _number(bound)
    if number is None or limit is None:
        return False
    return number > limit if operator == "Gt" else number < limit


@lru_cache(4096)
def _number(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) else None
