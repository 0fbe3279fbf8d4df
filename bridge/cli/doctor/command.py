"""The command: look, judge, print."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from bridge.cli.doctor import (
    cross_checks,
    kubernetes_checks,
    node_checks,
    settings_checks,
    slurm_checks,
    slurm_conf_checks,
)
from bridge.cli.doctor.findings import exit_code, findings
from bridge.cli.doctor.look import look
from bridge.cli.doctor.report import as_json, as_text
from bridge.cli.terminal import columns, say

GROUPS = (
    ("Settings", settings_checks.CHECKS),
    ("Kubernetes", kubernetes_checks.CHECKS),
    ("Slurm", (*slurm_checks.CHECKS, *slurm_conf_checks.CHECKS)),
    ("Both", (*cross_checks.CHECKS, *node_checks.CHECKS)),
)


def main(options: Mapping[str, str | None]) -> int:
    """Exit code 0 (nothing to do), 1 (warnings), 2 (errors).

    options   by field of Settings; `output` "text", "wide" or "json"
    """
    with asyncio.Runner() as runner:
        found = list(findings(GROUPS, runner.run(look(options, os.environ))))
        output = options.get("output")
        say(as_json(found) if output == "json" else as_text(found, columns(output)))
    # Only now the threads have ended that resolve names, which may take long if no name server answers.
    return exit_code(found)
