"""docs/reasons.md: every reason of Slurm for a job that waits, what it means and what to do."""

from __future__ import annotations

from pathlib import Path

from integration.reference.markdown import code, table
from scheduler.rules.reasons import REASONS, meaning_of

# One name a line, as libslurmfull of Slurm 26.05 spells them; integration/journeys/test_reasons.py compares both.
LIST = Path(__file__).with_name("slurm_reasons.txt")

INTRO = """\
# Why a job waits

<!-- Generated from scheduler/rules/reasons.py by `make reference`. -->

While the job of a pod waits, the pod's condition `PodScheduled` shows Slurm's reason and its meaning:

    Waiting in Slurm partition gpu (Priority: others are before it in the queue). Job 4711, as of 13:40 UTC.

This page lists every reason of Slurm 26.05. The pod shows a reason of a newer Slurm without a meaning. `it` is the job.
"""

LIMITS = """
## Limits

The name of the limit is in parentheses, as in `sacctmgr`. `Assoc…` limits belong to the association (account and user) or to
a parent account. Other limits belong to the QOS of the job or of its partition.

"""


def names() -> list[str]:
    """Every reason of Slurm."""
    return LIST.read_text(encoding="utf-8").split()


def text() -> str:
    """The page."""
    heads = ("reason", "meaning", "what the user can do", "what an admin can do")
    return (
        INTRO
        + "\n"
        + table(heads, _rows(list(REASONS)))
        + LIMITS
        + table(heads, _rows(sorted(set(names()) - REASONS.keys())))
    )


def _rows(reasons: list[str]) -> list[tuple[str, str, str, str]]:
    found = {name: meaning_of(name) for name in reasons}
    return [(code(name), each.meaning, each.user, each.admin) for name, each in found.items() if each is not None]
