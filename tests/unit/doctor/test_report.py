"""How findings are printed: aligned, no wider than asked, and as JSON with the exit code."""

from __future__ import annotations

import json

from bridge.cli.doctor.findings import Finding, Level, exit_code, not_checked
from bridge.cli.doctor.report import as_json, as_text

FOUND = [
    Finding("Slurm", "token", Level.OK, "token file t: of slurm"),
    Finding("Slurm", "users", Level.ERROR, "The host of slurmctld has no user zoe.", "Correct the user in the policy."),
    not_checked("slurmctld is away").at("Slurm", "jobs"),
    not_checked("slurmctld is away.").at("Slurm", "clock"),
    Finding("Both", "nodes", Level.WARNING, "One of them is out of service.", "sinfo -R"),
]


def test_a_table_says_what_to_do_below_what_it_is_about() -> None:
    assert as_text(FOUND, 80).splitlines() == [
        "Slurm",
        "  ok     token  token file t: of slurm",
        "  ERROR  users  The host of slurmctld has no user zoe.",
        "                → Correct the user in the policy.",
        "  -      not checked, since slurmctld is away: jobs, clock",
        "",
        "Both",
        "  WARN   nodes  One of them is out of service.",
        "                → sinfo -R",
        "",
        "1 error, 1 warning; 1 ok, 2 not checked.",
    ]


def test_a_narrow_terminal_wraps_words_and_keeps_the_margin() -> None:
    lines = as_text([Finding("Slurm", "users", Level.ERROR, "word " * 40)], 60).splitlines()
    assert max(map(len, lines)) <= 60
    assert all(line.startswith(" " * 16 + "word") for line in lines[2:-2])


def test_that_nothing_is_to_be_done_is_reported() -> None:
    assert as_text(FOUND[:1], 80).splitlines()[-1] == "Nothing to do; 1 ok."


def test_json_holds_everything_and_the_exit_code() -> None:
    told = json.loads(as_json(FOUND))
    assert told["exit_code"] == exit_code(FOUND) == 2
    assert [each["level"] for each in told["findings"]] == ["ok", "error", "unknown", "unknown", "warning"]
    assert told["findings"][1]["do"] == "Correct the user in the policy."


def test_what_could_not_be_checked_is_no_failure_of_its_own() -> None:
    assert exit_code(FOUND[2:3]) == 0
    assert exit_code(FOUND[4:]) == 1


def test_what_a_server_or_a_tenant_wrote_controls_no_terminal() -> None:
    text = as_text(
        [Finding("Slurm", "nodes", Level.ERROR, "Node \x1b[2J\x1b]0;owned\x07x1 is away.", "Do \x9bsomething.")], 80
    )
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\x9b" not in text
    assert "\ufffd[2J" in text
