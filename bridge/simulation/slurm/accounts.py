"""Answers of the simulated slurmdbd and slurmctld about accounts: associations, QOS, shares (Slurm facts 10).

Each user has an association in each account, and each account one below root.  With PrivateData (`private_accounts`) an
ordinary user sees only associations and shares of the same user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.slurm.requests import Answer, Asked, yes

NOTHING_SET = {"set": False, "infinite": True, "number": 0}


def associations(asked: Asked, _: str) -> Answer:
    """`GET slurmdb/…/associations/`; each key of the query may come several times."""
    found = [each for each in _associations(asked.cluster) if _is_wanted(asked, each) and _may_see(asked, each["user"])]
    nothing = {"description": "slurmdb_associations_get() found nothing", "source": "_dump_assoc_cond"}
    return yes(asked, {"associations": found}, () if found else (nothing,))


def _is_wanted(asked: Asked, association: Mapping[str, Any]) -> bool:
    for key, field in (("account", "account"), ("user", "user"), ("parent_account", "parent_account")):
        if (wanted := asked.query.get(key)) and association[field] not in wanted:
            return False
    return True


def _may_see(asked: Asked, user: str) -> bool:
    private = asked.cluster.private_accounts and not asked.operator and asked.as_user not in asked.cluster.operators
    return not private or user == asked.as_user


def _associations(cluster: SlurmCluster) -> Iterator[dict[str, Any]]:
    for account in _accounts(cluster):
        yield {
            "account": account,
            "user": "",
            "partition": "",
            "parent_account": "root",
            "lineage": f"/{account}/",
            "is_default": False,
            "max": _limits_of_association(None, {}),
        }
    for user in cluster.users.values():
        for account in user.accounts:
            yield {
                "account": account,
                "user": user.name,
                "partition": "",
                "parent_account": "",
                "lineage": f"/{account}/0-{user.name}/",
                "is_default": account == user.accounts[0],
                "max": _limits_of_association(user.max_submit_jobs, user.group_tres),
            }


def _accounts(cluster: SlurmCluster) -> list[str]:
    return sorted({account for user in cluster.users.values() for account in user.accounts} - {"root"})


def _limits_of_association(submit_jobs: int | None, group_tres: Mapping[str, int]) -> dict[str, Any]:
    total = {"set": True, "infinite": False, "number": submit_jobs} if submit_jobs is not None else NOTHING_SET
    per = {"count": NOTHING_SET, "accruing": NOTHING_SET, "submitted": NOTHING_SET, "wall_clock": NOTHING_SET}
    return {
        "jobs": {"per": per, "active": NOTHING_SET, "accruing": NOTHING_SET, "total": total},
        "tres": {
            "total": [_tres("gres", name, count) for name, count in group_tres.items()],
            "group": {"minutes": [], "active": []},
            "minutes": {"total": [], "per": {"job": []}},
            "per": {"job": [], "node": []},
        },
        "per": {"account": {"wall_clock": NOTHING_SET}},
    }


def _tres(kind: str, name: str, count: int) -> dict[str, Any]:
    return {"type": kind, "name": name, "id": 1001, "count": count}


def qos(asked: Asked, argument: str) -> Answer:
    """`GET slurmdb/…/qos/{name}`: of a QOS that does not exist 200 and nothing."""
    known = {name for user in asked.cluster.users.values() for name in user.qos}
    nothing = {"description": "slurmdb_qos_get() found nothing", "source": "_op_handler_qos"}
    if argument not in known:
        return yes(asked, {"qos": []}, (nothing,))
    return yes(
        asked, {"qos": [{"name": argument, "limits": {"max": _NO_LIMITS, "min": {"tres": {"per": {"job": []}}}}}]}
    )


_PER = {"account": NOTHING_SET, "user": NOTHING_SET}
_NO_LIMITS = {
    "active_jobs": {"accruing": NOTHING_SET, "count": NOTHING_SET},
    "jobs": {"count": NOTHING_SET, "active_jobs": {"per": _PER}, "per": _PER},
    "tres": {
        "total": [],
        "minutes": {"total": [], "per": {"qos": [], "job": [], "account": [], "user": []}},
        "per": {"account": [], "job": [], "node": [], "user": []},
    },
    "wall_clock": {"per": {"qos": NOTHING_SET, "job": NOTHING_SET}},
}


def shares(asked: Asked, _: str) -> Answer:
    """`GET shares`, as if nothing had been used yet: root, then each account and its users.  Filters are ignored."""
    found = [_share("root", "", "ASSOCIATION", 0.0)]
    for account in _accounts(asked.cluster):
        found.append(_share(account, "root", "ASSOCIATION", 0.0))
        users = [user for user in asked.cluster.users.values() if account in user.accounts]
        found += [_share(user.name, account, "USER", 1.0) for user in users if _may_see(asked, user.name)]
    return yes(asked, {"shares": {"shares": found, "total_shares": 0}})


def _share(name: str, parent: str, kind: str, factor: float) -> dict[str, Any]:
    def real(value: float) -> dict[str, Any]:
        return {"set": True, "infinite": False, "number": value}

    return {
        "name": name,
        "parent": parent,
        "partition": "",
        "type": [kind],
        "shares_normalized": real(0.5),
        "effective_usage": real(0.0),
        "fairshare": {"factor": real(factor), "level": real(1.0)},
    }
