"""The commands in docs/*.md, and what runs them.

A command is a line of a block of `sh`, or of an indented block, that begins with a program of PROGRAMS.  A quote that is open
at the end of a line goes on in the next one.  Commands inside sentences and tables are not looked at.

Where RUN_BY names a test, that test takes its lines from here (`lines`), so that they are run as they are written.  Otherwise
RUN_BY says why no test types them; a unit test keeps the table complete.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
PROGRAMS = ("docker", "helm", "kubectl", "make", "sacct", "scontrol", "slurm-bridge", "squeue")
JOURNEYS = "integration/journeys"
RUN_BY: Mapping[tuple[str, str], str] = {
    ("dev.md", "On your own clusters"): f"{JOURNEYS}/test_readme.py",
    ("for-slurm-admins.md", "Tokens"): f"{JOURNEYS}/test_installed.py",
    (
        "compose.md",
        "",
    ): "integration/compose/test_compose.py runs the same commands, as README has them, by podman-compose",
    (
        "for-slurm-admins.md",
        "A token for each user",
    ): "test_tokens.py makes such files for the users of its own Slurm",
    (
        "for-slurm-admins.md",
        "Minted tokens",
    ): "test_tokens.py runs the mint with the key of its own Slurm",
    ("for-slurm-admins.md", "What you see of a placeholder"): f"{JOURNEYS}/test_installed.py",
    ("install.md", "The image"): f"{JOURNEYS}/test_installed.py",
    ("install.md", "Two edits"): f"{JOURNEYS}/test_installed.py",
    ("install.md", "Apply"): f"{JOURNEYS}/test_installed.py",
    ("install.md", "Each namespace"): f"{JOURNEYS}/test_installed.py",
    ("install.md", "Look"): f"{JOURNEYS}/test_installed.py",
    ("install.md", "Metrics"): f"{JOURNEYS}/test_installed.py",
    ("install.md", "With Helm"): f"{JOURNEYS}/test_chart.py",
    ("install.md", "Kubernetes before 1.36"): f"{JOURNEYS}/test_installed_webhook.py",
    (
        "install.md",
        "Outside Kubernetes, beside slurmctld",
    ): "test_installed.py types its two blocks; integration/own_account.py applies the files for most journeys",
    ("monitoring.md", "Install"): "test_installed.py types the same line, as install.md has it",
    ("nodes.md", ""): f"{JOURNEYS}/test_installed_replicas.py",
    ("operations.md", "Change the settings"): f"{JOURNEYS}/test_installed.py",
    ("operations.md", "Two replicas"): f"{JOURNEYS}/test_installed_replicas.py",
    ("operations.md", "Tokens"): f"{JOURNEYS}/test_installed.py",
    ("operations.md", "Uninstall"): f"{JOURNEYS}/test_installed_replicas.py",
    ("page.md", ""): "port-forward ends with its terminal; test_page.py opens the page of its own bridge",
    ("performance.md", "Measure again"): "a benchmark measures; test_bench.py runs a short one",
    ("policy.md", ""): "tests/unit/test_policy_command.py runs both commands with files of its own",
    ("security.md", "What admission adds"): "test_admission.py applies this folder by its full path",
    ("security.md", "The webhook"): f"{JOURNEYS}/test_installed_webhook.py",
    (
        "tracing.md",
        "Switch it on",
    ): "there is no registry here, so no image of a Collector; test_tracing.py has a bridge send to a receiver of its own",
    ("troubleshooting.md", ""): "POD and … stand for what the reader has; test_doctor_explain.py runs both commands",
    ("troubleshooting.md", "Many jobs are missing"): "test_release.py runs it beside its own bridge",
    ("users.md", "The plugin"): f"{JOURNEYS}/test_plugin.py",
    ("workloads.md", ""): "test_examples.py applies each example",
}


def lines(document: str, section: str) -> list[str]:
    """The commands of a section, as they are written."""
    [body] = [body for name, heading, body in sections() if (name, heading) == (document, section)]
    return list(_commands(body))


def sections() -> Iterator[tuple[str, str, str]]:
    """Document, heading of the second level ("": before the first one), text; of all documents."""
    for path in sorted(DOCS.glob("*.md")):
        for part in re.split(r"^## ", f"\n{path.read_text(encoding='utf-8')}", flags=re.MULTILINE):
            heading, _, body = part.partition("\n")
            yield path.name, heading, body


def _commands(body: str) -> Iterator[str]:
    begun: list[str] = []
    for line in _typed(body):
        if begun or line.split()[0] in PROGRAMS:
            begun.append(line)
            if _is_whole(text := "\n".join(begun)):
                yield re.sub(r"\s+#\s.*$", "", text)
                begun = []
    assert not begun, f"a quote that is never closed: {begun}"


def _typed(body: str) -> Iterator[str]:
    """Lines of blocks of `sh`, and of indented blocks outside other fenced ones; without their indentation, none empty."""
    fence = ""
    for line in body.splitlines():
        if found := re.match(r" *```(\w*)", line):
            fence = "" if fence else found[1] or "text"
        elif line.strip() and (fence == "sh" or (not fence and line.startswith("    "))):
            yield line.strip()


def _is_whole(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:  # No closing quotation
        return False
    return True
