"""Every reason that Slurm can give is worded (Q2, O1).  integration/journeys/test_reasons.py reads the list from Slurm."""

from __future__ import annotations

import re

import pytest

from integration.reference.page_reasons import names
from scheduler.rules.reasons import REASONS, meaning_of


@pytest.mark.parametrize("reason", names())
def test_every_reason_of_slurm_has_a_meaning(reason: str) -> None:
    found = meaning_of(reason)
    assert found is not None
    for text in (found.meaning, found.user, found.admin):
        assert not text.endswith((".", ";", ",")), "a clause that a sentence takes in"
        assert "  " not in text
    assert found.meaning, reason
    assert "." not in found.user, "lists leave it out up to its full stop"


def test_no_meaning_is_of_a_reason_that_slurm_does_not_have() -> None:
    assert REASONS.keys() <= set(names())


def test_a_reason_of_a_newer_slurm_has_no_meaning_and_no_error() -> None:
    for unknown in ("", "InvalidReason", "QOSGrpQubits", "AssocMaxCpuPerMoon", "Assoc", "QOSMaxJobsPerUserLimitToo"):
        assert meaning_of(unknown) is None


@pytest.mark.parametrize(
    ("reason", "limit"),
    [
        ("QOSMaxGRESPerUser", "MaxTRESPerUser=gres/…"),
        ("AssocGrpCpuLimit", "GrpTRES=cpu"),
        ("AssocGrpCPURunMinutesLimit", "GrpTRESRunMins=cpu"),
        ("AssocMaxCpuMinutesPerJobLimit", "MaxTRESMins=cpu"),
        ("AssocMaxMemPerNode", "MaxTRESPerNode=mem"),
        ("AssocMaxJobsLimit", "MaxJobs"),
        ("QOSMaxSubmitJobPerUserLimit", "MaxSubmitJobsPerUser"),
        ("QOSMaxWallDurationPerJobLimit", "MaxWall"),
        ("QOSGrpWallLimit", "GrpWall"),
        ("QOSMinGRES", "MinTRES=gres/…"),
        ("MaxJobsPerAccount", "MaxJobsPerAccount"),
        ("MaxNodeRunMinsPerUser", "MaxTRESRunMinsPerUser=node"),
    ],
)
def test_a_limit_is_named_as_sacctmgr_names_it(reason: str, limit: str) -> None:
    found = meaning_of(reason)
    assert found is not None
    assert re.findall(r"\(([^()]*)\)$", found.meaning) == [limit]
