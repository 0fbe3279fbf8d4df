"""The limits of one job by a rule of the policy: max_time, max_nodes, max_gres (I7).

A job that asks for more is refused.  The amounts that the job asks for count, although an `exclusive` job may hold more of a
node.  The devices of all pods of a gang count together.  A gang may use as many nodes as it has pods, unless its annotation
or the policy sets fewer.
"""

from __future__ import annotations

from scheduler.model.refusal import Refusal
from scheduler.model.slurm import UNLIMITED, JobSpec
from scheduler.names import REFUSED
from scheduler.policy.rules import Tenant


def time_allowed(asked_min: int, tenant: Tenant, source: str) -> int | Refusal:
    """The time limit in minutes if the rule allows it; otherwise a Refusal.  source: the annotation, to begin a sentence"""
    most = tenant.max_time_min
    if most is None or (asked_min != UNLIMITED and asked_min <= most):
        return asked_min
    asked = "no time limit" if asked_min == UNLIMITED else f"{asked_min:,} minutes"
    return _no(tenant, f"{source} asks for {asked}", f"{most:,} minutes", "max_time")


def beyond_rule(spec: JobSpec, tenant: Tenant) -> Refusal | None:
    """The Refusal of a job that asks for more than the rule allows, all components together; None: it does not."""
    components = (spec, *spec.parts)
    if tenant.max_nodes is not None:
        least = sum(component.min_nodes or 1 for component in components)
        most = sum(min(component.tasks, component.max_nodes or component.tasks) for component in components)
        if len(components) == 1:  # such a job says itself how many nodes it may take
            most = max(least, spec.max_nodes or 1)
        if most > tenant.max_nodes:
            return _no(tenant, f"The pods of the job may take {most:,} nodes", f"{tenant.max_nodes:,}", "max_nodes")
    for name, allowed in tenant.max_gres:
        asked = sum(
            component.tasks * count for component in components for gres, count in component.gres if _is_of(gres, name)
        )
        if asked > allowed:
            return _no(tenant, f"The pods of the job ask for {asked:,} {name}", f"{allowed:,}", "max_gres")
    return None


def _is_of(gres: str, name: str) -> bool:
    """True if that GRES is the named one, or a type of it ("gpu:h100" of "gpu")."""
    return gres == name or gres.startswith(f"{name}:")


def _no(tenant: Tenant, asked: str, allowed: str, limit: str) -> Refusal:
    return Refusal(REFUSED, f"{asked}. {tenant.rule} allows {allowed} ({limit}). Ask for less.")
