"""What the policy lets pods choose in Slurm, as single choices that Slurm can be asked about."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.cli.doctor.views import Choice
from bridge.settings import Settings
from scheduler.policy.rules import ANY, Tenant
from scheduler.policy.templates import is_template


def choices(chosen: Settings) -> list[Choice]:
    """What the policy lets pods choose, for each Slurm user, without what templates give: that follows from namespaces."""
    return choices_of(chosen.policy.policy().tenants)


def choices_of(tenants: Iterable[Tenant]) -> list[Choice]:
    """What these tenants let pods choose, one choice at a time, for each Slurm user; ("", "") is the user's own default."""
    wanted: dict[Choice, None] = {}
    for tenant in tenants:
        if is_template(tenant.user):
            continue
        wanted[tenant.user, "", ""] = None
        for what in ("account", "partition", "qos"):
            choice = tenant.choices[what]
            for value in (choice.default, *choice.allowed):
                if value and value != ANY and not is_template(value):
                    wanted[tenant.user, what, value] = None
    return list(wanted)
