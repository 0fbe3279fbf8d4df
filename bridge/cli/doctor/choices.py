"""The accounts, partitions and QOS that the policy lets pods choose, as single choices that Slurm can be asked about."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.cli.doctor.views import Choice
from bridge.settings import Settings
from scheduler.policy.rules import ANY, Tenant
from scheduler.policy.templates import is_template


def choices(chosen: Settings) -> list[Choice]:
    """The choices of each Slurm user, without choices by templates, which depend on namespaces."""
    return choices_of(chosen.policy.policy().tenants)


def choices_of(tenants: Iterable[Tenant]) -> list[Choice]:
    """The single choices of the Slurm users of these tenants; ("", "") means the user's own default."""
    wanted: dict[Choice, None] = {}
    for tenant in tenants:
        if is_template(tenant.user):
            continue
        wanted[tenant.user, "", ""] = None
        for option in ("account", "partition", "qos"):
            choice = tenant.choices[option]
            for value in (choice.default, *choice.allowed):
                if value and value != ANY and not is_template(value):
                    wanted[tenant.user, option, value] = None
    return list(wanted)
