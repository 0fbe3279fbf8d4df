"""What doctor and `policy check` advise if Slurm refuses an account, a partition or a QOS that the policy offers."""

from __future__ import annotations

import pytest

from bridge.cli.doctor.findings import Level
from bridge.cli.doctor.slurm_checks import refused
from bridge.cli.doctor.views import Observations
from bridge.slurm.admin_reads import Verdict

SEEN = Observations(now=0.0)


@pytest.mark.parametrize(
    ("number", "do"),
    [
        (2045, "see AllowAccounts and DenyAccounts in scontrol show partition gpu"),
        (2066, "see AllowQos and DenyQos in scontrol show partition gpu"),
        (2003, "scontrol show partition gpu shows whose groups may use it (AllowGroups)"),
        (2070, "scontrol update partition=gpu state=up"),
    ],
)
def test_a_partition_that_excludes_the_user_is_a_warning_with_the_parameter_that_excludes(number: int, do: str) -> None:
    """Slurm has the partition, but refuses it with the number of an account, of a QOS or of its state (measured, 26.05.5)."""
    found = refused(("alice", "partition", "gpu"), Verdict(number, "Slurm's text"), SEEN)
    assert found.level is Level.WARNING
    assert found.do.endswith(f"{do}; or correct the policy.")


def test_an_account_that_slurm_may_not_have_is_made_first() -> None:
    found = refused(("alice", "account", "new"), Verdict(2045, "Slurm's text"), SEEN)
    assert found.level is Level.ERROR
    assert (
        "sacctmgr add user alice account=new (before that, sacctmgr add account new if Slurm has no such account)"
        in found.do
    )


def test_only_a_number_without_a_remedy_leads_to_slurmctlds_log() -> None:
    found = refused(("alice", "partition", "gpu"), Verdict(2999, "Slurm's text"), SEEN)
    assert (found.level, found.do) == (
        Level.WARNING,
        "slurmctld's log says more at that time; a job_submit plugin may have refused it.",
    )
