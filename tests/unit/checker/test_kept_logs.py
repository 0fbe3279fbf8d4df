"""The logs of a rig with a violation are kept, because the rig ends and the next rig of its name replaces them."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.checker import __main__ as checker
from integration.rigging import places

RECORD = "3|3|alice|2001|teama|main|normal|COMPLETED|2026-11-24T09:03:57|None|k1|cpu=1,mem=64M,node=1|01:00:00|by-hand"
LOG = """\
[2026-11-24T09:03:57.000] TRACE_JOBS: select_nodes: [JobId=3] change state: PENDING -> RUNNING
[2026-11-24T09:04:20.000] TRACE_JOBS: job_signal: [JobId=3] change state: RUNNING -> COMPLETED
"""


def _logs(folder: Path) -> Path:
    folder.mkdir()
    (folder / "slurmctld.log").write_text(LOG)
    (folder / checker.RECORDS).write_text(RECORD.replace("|", "\x1f") + "\n")
    (folder / checker.PODS).write_text('{"items": []}')
    return folder


def test_kept_logs_are_judged_without_their_rig(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checker.main([str(_logs(tmp_path / "log")), "--must", "V6"]) == 0
    assert capsys.readouterr().out == "checker: 0 pods and 1 jobs in the logs; judged: V6 1\n"


def test_a_suite_in_which_nothing_was_judged_of_an_invariant_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checker.main([str(_logs(tmp_path / "log")), "--must", "V2,V6"]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "checker: MISSING V2 was not judged: the logs have no bind by a bridge, which its user agent shows, for a job of "
        "slurmdbd"
    ]


def test_logs_that_show_nothing_at_all_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _logs(tmp_path / "log")
    (folder / "slurmctld.log").write_text("")
    assert checker.main([str(folder)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "checker: 0 pods and 0 jobs in the logs; judged: nothing",
        "checker: MISSING everything: the logs show nothing that can be judged",
    ]
    assert checker.main([str(folder), "--must", ""]) == 0, "a part of a suite may be without bridge and pods"


def test_a_name_that_is_no_invariant_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        checker.main([str(_logs(tmp_path / "log")), "--must", "V2,X-ray"])
    assert "no invariant is called X-ray" in capsys.readouterr().err


def test_kept_logs_replace_older_ones_of_the_same_rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = _logs(tmp_path / "log")
    kept = checker.keep(folder, "it-torture")
    (kept / "of-the-older-run").touch()
    assert checker.keep(folder, "it-torture") == kept == places.cache() / "log" / "broken-it-torture"
    assert sorted(each.name for each in kept.iterdir()) == sorted(each.name for each in folder.iterdir())
