"""Checks of the bridge's own settings, and of the bridge that may run on this host."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.cli.doctor.findings import Check, Result, count, error, ok, unknown, warning
from bridge.cli.doctor.views import Observations
from bridge.slurm.transport import DEFAULT_DEADLINE_S
from scheduler.model.text import span


def _file(seen: Observations) -> Iterator[Result]:
    chosen = seen.settings.get()
    rules = len(chosen.policy.rules)
    if not rules and chosen.policy.default is None:
        yield error(
            f"{seen.source}: the policy maps no namespace to a Slurm user, so that every pod is refused.",
            "Write policy.rules: namespaces, and the Slurm user whose jobs their pods are.",
        )
    else:
        default = " and a default" if chosen.policy.default else ""
        yield ok(f"{seen.source}: {count(rules, 'rule')}{default} in the policy")


def _patience(seen: Observations) -> Iterator[Result]:
    """The check that `run` makes at its start: settle time and quiet period must be at least as long as the longest call."""
    tuning = seen.chosen("tuning").tuning
    for key in ("settle_s", "quiet_s"):
        if getattr(tuning, key) < DEFAULT_DEADLINE_S:
            yield error(
                f"tuning.{key} is shorter than the longest call ({span(DEFAULT_DEADLINE_S)}): the bridge would not start.",
                f"Remove tuning.{key}, or raise it.",
            )


def _bridge(seen: Observations) -> Iterator[Result]:
    if (missing := seen.bridge.missing) is not None and not missing.failed:
        yield unknown(missing.because)
        return
    reasons = [reason.rstrip(".") for reason in seen.bridge.get()]
    http = seen.usable.http
    if reasons and reasons[0] == "ok":
        yield warning(f"The bridge at {http} works only in part: {'; '.join(reasons[1:])}.", "Its log says more.")
    elif reasons:
        yield warning(f"The bridge at {http} is not ready: {'; '.join(reasons)}.", "Its log says more.")
    else:
        yield ok(f"the bridge at {http} is ready")


CHECKS = (
    Check("file", _file),
    Check("patience", _patience),
    Check("bridge", _bridge),
)
