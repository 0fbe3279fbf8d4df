"""The policies of the lives, and what each gives to a namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridge.settings import Settings
from bridge.settings_policy import Policy as SettingsPolicy
from bridge.simulation.tenant_history import Tenant, TenantOf
from scheduler import names

MANAGED = names.MANAGED_LABEL
USERS = {"alice-a": "alice", "bob-b": "bob"}
USER_LABEL = "x/slurm-user"
ACCOUNT_LABEL = "x/account"
SETTINGS = Settings.model_validate(
    {
        "slurm_url": "http://127.0.0.1:1",
        "policy": {
            "rules": [
                {"namespaces": ["alice-*"], "user": "alice", "account": {"default": "teama"}},
                {"namespaces": ["bob-*"], "user": "bob"},
            ]
        },
    }
)


@dataclass(frozen=True)
class AnyPolicy:
    """A policy of a life: as an admin writes it, and as a person reads it."""

    written: SettingsPolicy
    gives: TenantOf


def policy(*rules: dict[str, Any], gives: TenantOf) -> AnyPolicy:
    return AnyPolicy(SettingsPolicy.model_validate({"rules": rules}), gives)


def by_names(alice: Tenant | None, bob: Tenant | None) -> AnyPolicy:
    """A policy with one rule for each of the two namespaces."""
    spaces = {"alice-a": alice, "bob-b": bob}
    rules = [
        {"namespaces": [space], "user": tenant.user, "account": {"default": tenant.account}}
        for space, tenant in spaces.items()
        if tenant is not None
    ]
    return policy(*rules, gives=lambda space, _: spaces.get(space))


def _by_label(_: str, labels: Mapping[str, str]) -> Tenant | None:
    return Tenant(labels[USER_LABEL], "") if USER_LABEL in labels else None


def _by_labels(_: str, labels: Mapping[str, str]) -> Tenant | None:
    both = USER_LABEL in labels and ACCOUNT_LABEL in labels
    return Tenant(labels[USER_LABEL], labels[ACCOUNT_LABEL]) if both else None


# Policies that give the same users, by labels of the namespaces; that limit jobs; and that give one namespace nobody.
BY_LABEL = {"namespaces": ["*-?"], "user": f"{{namespace.labels['{USER_LABEL}']}}"}
POLICIES = (
    AnyPolicy(
        SETTINGS.policy, lambda space, _: {"alice-a": Tenant("alice", "teama"), "bob-b": Tenant("bob", "")}.get(space)
    ),
    policy(BY_LABEL, gives=_by_label),
    policy({**BY_LABEL, "max_jobs": 3, "max_submit_rate": 5, "max_time": "3:00:00"}, gives=_by_label),
    by_names(Tenant("alice", ""), None),
)
# Policies that give a namespace another user, or another account.  alice has no association with teamb.
OTHERS = (
    *POLICIES,
    policy({**BY_LABEL, "account": {"default": f"{{namespace.labels['{ACCOUNT_LABEL}']}}"}}, gives=_by_labels),
    by_names(Tenant("bob", ""), Tenant("alice", "")),
    by_names(Tenant("bob", "teamb"), Tenant("bob", "teamb")),
    by_names(Tenant("alice", "teama-dev"), Tenant("alice", "teama")),
    by_names(Tenant("alice", "teamb"), Tenant("bob", "teamb")),
    by_names(None, Tenant("alice", "teama-dev")),
)


def of_managed(gives: TenantOf) -> TenantOf:
    """The tenant that *gives* returns for a managed namespace; None for any other namespace."""
    return lambda namespace, labels: gives(namespace, labels) if labels.get(MANAGED) == "true" else None
