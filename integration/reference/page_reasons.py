"""docs/reasons.md: every reason of Slurm for a job that waits, what it means and what to do."""

from __future__ import annotations

from pathlib import Path

from integration.reference.markdown import code, table
from scheduler.model.reasons import REASONS, meaning_of

# One name a line, as libslurmfull of Slurm 26.05 spells them; integration/journeys/test_reasons.py compares both.
LIST = Path(__file__).with_name("slurm_reasons.txt")

INTRO = """\
# Why a job waits

<!-- Generated from scheduler/model/reasons.py by `make reference`. -->

While the job of a pod waits, the pod's condition `PodScheduled` shows Slurm's reason and its meaning:

    Waiting in Slurm partition gpu (Priority: others are before it in the queue). Job 4711, as of 13:40 UTC.

The message also says, as far as Slurm tells it, when the job is expected to start, and on which nodes; and the place among
the bridge's waiting jobs in the partition. Slurm computes the expected start from the time limits of the jobs before it. Once
9 jobs started in the partition, the bridge knows how the waits there differed from that: then the expected start is an
interval into which 8 of 10 jobs should fall, and Slurm's own time follows in parentheses. For a limit the message says the
value and what has it. The last sentence is what the user can do, if that is more than to wait:

    Waiting in Slurm partition gpu (AssocGrpGRES: its account allows all its jobs together no more GRES such as GPUs now
    (GrpTRES=gres/gpu=4 of user bob in account teamb)). Job 4711, as of 13:40 UTC. You can wait until jobs end, or choose
    another account.
    Waiting in Slurm partition gpu (Priority: others are before it in the queue); expected start between 14:05 and
    14:10 UTC on g3 (from past waits, 41 of 50 such intervals held; from time limits 14:30 UTC); number 3 of
    slurm-bridge's 12 waiting jobs there. Job 4712, as of 13:40 UTC.

This page lists every reason of Slurm 26.05. The pod shows a reason of a newer Slurm without a meaning. `it` is the job.
"""

LIMITS = """
## Limits

The name of the limit is in parentheses, as in `sacctmgr`. `Assoc…` limits belong to the association (account and user) or to
a parent account. Other limits belong to the QOS of the job or of its partition. The pod shows the value, too, if slurmdbd
shows it to the bridge's token. slurmrestd does not show what is used of a limit: `slurm-bridge explain` counts the jobs
that run, and `scontrol show assoc_mgr` has it.

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
