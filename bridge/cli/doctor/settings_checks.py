"""Checks of the bridge's own settings, and of the bridge that may run on this host."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.cli.doctor.findings import Check, Result, count, error, ok, unknown, warning
from bridge.cli.doctor.questions import MISTAKEN
from bridge.cli.doctor.slurm_checks import accepted
from bridge.cli.doctor.views import Observations
from bridge.slurm.transport import DEFAULT_DEADLINE_S
from scheduler.model.text import span


def _file(seen: Observations) -> Iterator[Result]:
    chosen = seen.settings.get()
    rules = len(chosen.policy.rules)
    if not seen.source:
        yield error(
            "No settings are named: the policy in them maps namespaces to Slurm users.",
            "Name the bridge's file: --config FILE, or SLURM_BRIDGE_CONFIG. docs/settings.md begins with a minimal one.",
        )
    elif not rules and chosen.policy.default is None:
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
    reasons, http = seen.bridge.get(), seen.usable.http
    if not reasons:
        yield ok(f"the bridge at {http} is ready")
        return
    state = "works only in part" if reasons[0] == "ok" else "is not ready"
    own = [reason.rstrip(".") for reason in reasons if reason != "ok" and not _is_found_here(reason, seen)]
    if own:
        yield warning(f"The bridge at {http} {state}: {'; '.join(own)}.", "Its log says more.")
    else:
        yield unknown(f"the bridge at {http} {state}, for what other rows report")


def _is_found_here(reason: str, seen: Observations) -> bool:
    """True if another row reports the cause: this host asked the same servers, and they did not answer as they should."""
    return any(reason.startswith(beginnings) and trouble(seen) for beginnings, trouble in FOUND_HERE)


def _slurm_fails(seen: Observations) -> bool:
    return seen.jobs.missing is not None and seen.jobs.missing.because != MISTAKEN


def _slurmdbd_fails(seen: Observations) -> bool:
    return _slurm_fails(seen) or seen.accounting.missing is not None


def _kubernetes_fails(seen: Observations) -> bool:
    if (missing := seen.greeting.missing) is not None:
        return missing.because != MISTAKEN
    return not all((seen.rights.value or {}).values()) or bool(seen.rights_in.value)


def _user_fails(seen: Observations) -> bool:
    tokens = (seen.user_tokens.value or {}).values()
    users = [verdict for (_, option, _), verdict in seen.verdicts.items() if not option]
    return any(token.missing is not None for token in tokens) or not all(map(accepted, users))


def _partition_fails(seen: Observations) -> bool:
    return not all(accepted(verdict) for (_, option, _), verdict in seen.verdicts.items() if option == "partition")


# How a line of /readyz begins (bridge/readiness.py, starting.py, preflight/), and whether other rows report its cause.
FOUND_HERE = (
    (("Slurm accounting",), _slurmdbd_fails),
    (("Slurm: ", "slurm_url ", "Slurm has not answered", "token "), _slurm_fails),
    (("slurm-bridge cannot act as ", "Slurm: token "), _user_fails),
    (("policy: Slurm has no partition",), _partition_fails),
    (("Kubernetes: ", "kubeconfig", "Kubernetes has not answered"), _kubernetes_fails),
)


CHECKS = (
    Check("file", _file),
    Check("patience", _patience),
    Check("bridge", _bridge),
)
