"""What README says is so.  Its commands are run by the tests that `RUN_BY` names; here is what needs no cluster."""

from __future__ import annotations

import re

from integration.readme import LANGUAGES, ROOT, RUN_BY, blocks, commands
from scheduler import names

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_command_is_in_a_section_that_a_test_runs() -> None:
    found = commands()
    assert {each.section for each in found} == RUN_BY.keys()
    assert len(found) >= 15, "commands are found where README has them"
    assert all("lines_for(__file__)" in (ROOT / test).read_text(encoding="utf-8") for test in RUN_BY.values())
    assert {each.language for each in blocks()} <= LANGUAGES


def test_every_key_is_documented() -> None:
    told = set(re.findall(r"`(?:slurm-bridge/)?([a-z-]+)`", TEXT.split("\n## What users write\n")[1].split("\n## ")[0]))
    assert told >= (names.JOB_OPTIONS | names.GROUPING | names.WRITTEN_BY_US)


def test_every_file_that_it_names_is_there() -> None:
    linked = re.findall(r"\]\(([^)#:]+)\)", TEXT)
    named = re.findall(r"`([\w./-]+/[\w.-]+\.(?:md|py|yaml))`", TEXT)
    assert len(linked) >= 4
    for path in [*linked, *named]:
        assert (ROOT / path).exists(), path
