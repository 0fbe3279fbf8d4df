"""Every reason that Slurm can give is worded (Q2, O1).  integration/journeys/test_reasons.py reads the list from Slurm."""

from __future__ import annotations

import re

import pytest

from integration.reference.page_reasons import names
from scheduler.model.reasons import REASONS, meaning_of


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


@pytest.mark.parametrize(
    ("reason", "meaning", "user"),
    [
        (
            "AssocGrpJobsLimit",
            "its account allows all its jobs together no more running jobs now (GrpJobs)",
            "wait until jobs end, or choose another `account`",
        ),
        (
            "AssocMaxSubmitJobLimit",
            "its account allows one user no more jobs in the queue now (MaxSubmitJobs)",
            "wait until jobs end, or choose another `account`",
        ),
        (
            "AssocMaxMemPerNode",
            "it requests more memory than its account allows one job on one node (MaxTRESPerNode=mem)",
            "request less, or choose another `account`",
        ),
        (
            "AssocMaxCpuMinutesPerJobLimit",
            "it requests more CPU minutes than its account allows one job (MaxTRESMins=cpu)",
            "request less, or choose another `account`",
        ),
        (
            "QOSMaxWallDurationPerJobLimit",
            "it requests more wall-clock time than its QOS allows one job (MaxWall)",
            "request less, or choose another `qos`",
        ),
        (
            "QOSGrpCPURunMinutesLimit",
            "its QOS allows all its jobs together no more CPU minutes of running jobs now (GrpTRESRunMins=cpu)",
            "wait until jobs end, or choose another `qos`",
        ),
        (
            "QOSMinGRES",
            "its QOS demands more GRES such as GPUs than it requests (MinTRES=gres/…)",
            "request more, or choose another `qos`",
        ),
        (
            "MaxJobsPerAccount",
            "its QOS allows one account no more running jobs now (MaxJobsPerAccount)",
            "wait until jobs end, or choose another `qos`",
        ),
    ],
)
def test_a_limit_is_worded_as_whose_it_is_and_what_the_user_can_do_about_it(
    reason: str, meaning: str, user: str
) -> None:
    found = meaning_of(reason)
    assert found is not None
    assert (found.meaning, found.user) == (meaning, user)
