"""The messages of waiting pods, shortened for a line of a list, and compared with what pods show (Q2, X7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import SetPodCondition
from scheduler.model.kubernetes import Condition
from scheduler.rules.status import brief
from tests.builders import START, Story, job_of, pod

NOW = START + 20
WAITS = "Waiting in Slurm partition main (Priority"


@pytest.mark.parametrize(
    "reason", ["Priority", "QOSMaxCpuPerUserLimit: the QOS allows 5 CPUs (of 3)", "Resources: a (b)"]
)
@pytest.mark.parametrize(
    ("start", "follows_from"),
    [
        ("", ""),
        ("; expected start 14:05 UTC", ""),
        ("; expected start 2026-11-24 14:05 UTC on x[1-2],y3", ""),
        ("; expected start 14:06 UTC on x1", " (from past waits; from time limits 14:10 UTC)"),
        (
            "; expected start between 14:05 and 2026-11-25 14:20 UTC on x[1-2],y3",
            " (from past waits, 8 of 10 such intervals held; from time limits 2026-11-25 14:30 UTC)",
        ),
    ],
)
@pytest.mark.parametrize("place", ["", "; number 2 of slurm-bridge's 14 waiting jobs there"])
@pytest.mark.parametrize("note", ["", "Slurm cannot change exclusive of a waiting job; recreate the pod to apply it."])
def test_of_a_waiting_job_a_line_has_the_reason_the_expected_start_and_the_note(
    reason: str, start: str, follows_from: str, place: str, note: str
) -> None:
    message = f"Waiting in Slurm partition main ({reason}){start}{follows_from}{place}. Job 12, as of 08:00 UTC."
    assert brief(f"{message} {note}".rstrip()) == ". ".join(
        filter(None, (reason + start.replace("between ", "").replace(" and ", " to "), note))
    )


@pytest.mark.parametrize(
    "message", ["", "Waiting as job 3.", "Waiting in Slurm partition main (Priority). Job 3.", WAITS]
)
def test_any_other_message_stays_as_it_is(message: str) -> None:
    assert brief(message) == message


@pytest.mark.parametrize(
    "hostile",
    [
        "0" * 200_000,
        "; expected start between " * 20_000,
        WAITS + "); number a" * 20_000,
        WAITS + "); expected start 14:05 UTC" * 10_000,
        WAITS + " (from past waits, 1; from time limits " * 20_000 + "). Job 1, as of ",
        WAITS + "). Job 1, as of " + "a" * 200_000,
        "(Max" + "a" * 200_000,
    ],
    ids=lambda text: text[-16:],
)
def test_a_condition_that_another_client_wrote_is_compared_and_shortened_at_once(hostile: str) -> None:
    """A regular expression took time that grows with the square of the length: a minute and more for some of these."""
    assert brief(hostile) == hostile
    story = Story()
    waits = replace(pod(), scheduled=Condition(False, names.PENDING, hostile))
    story.queues(waits, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.reads(replace(job_of(waits, 17, "PENDING"), reason="Priority"), at=NOW + 8)
    [shown] = story.acts(SetPodCondition, NOW + 8)
    assert shown.message.startswith("Waiting in Slurm partition main (Priority: ")
