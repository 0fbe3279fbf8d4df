"""A pod → the placeholder job to ask Slurm for (BEHAVIOUR T).

What a pod needs is counted as Kubernetes counts it (T1), asked of Slurm as the larger of request and limit (T2), and
overruled by what its annotations say (T6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scheduler import names
from scheduler.model import SINGLETON, Amounts, Container, JobSpec, Owner, Pod, Refusal, Shape
from scheduler.policy import Tenant
from scheduler.wishes import Wishes, wishes

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Translation:
    """The admin's settings of the translation.

    gres                 extended resource to GRES name ("nvidia.com/gpu" to "gpu") (T5)
    default_memory_mib   asked where a pod asks for none (T4)
    """

    gres: Mapping[str, str]
    default_memory_mib: int = 1024


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a translation needs to know besides the pod.

    longest_min   the longest time limit of a partition in minutes, UNLIMITED, or None where not known (T7)
    """

    translation: Translation
    cluster: str
    longest_min: Callable[[str], int | None]


# --- what a pod needs ---------------------------------------------------------------------------------------------


def needs(pod: Pod) -> Amounts:
    """Requests as kubelet and kube-scheduler count them, plus the one pod that it is: what must fit a node (F)."""
    amounts = _effective(pod, lambda container: container.requests, pod.pod_requests)
    amounts["pods"] = 1
    return amounts


def peak(pod: Pod) -> Amounts:
    """What the pod may use at most: the larger of request and limit (T2)."""
    return _effective(pod, _larger, _max(pod.pod_requests, pod.pod_limits))


def _effective(pod: Pod, of: Callable[[Container], Amounts], pod_level: Amounts) -> dict[str, int]:
    """T1: max(sum of containers and sidecars, each init container beside the sidecars before it) + overhead."""
    running: dict[str, int] = {}
    for container in pod.containers:
        _add(running, of(container))
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in pod.init_containers:
        if container.sidecar:
            _add(sidecars, of(container))
            starting = _max(starting, sidecars)
        else:
            beside = dict(sidecars)
            _add(beside, of(container))
            starting = _max(starting, beside)
    _add(running, sidecars)
    total = _max(running, starting)
    total.update(pod_level)
    _add(total, pod.overhead)
    return total


def _larger(container: Container) -> Amounts:
    if not container.limits:
        return container.requests
    return _max(container.requests, container.limits)


def _add(total: dict[str, int], more: Amounts) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def _max(one: Amounts, other: Amounts) -> dict[str, int]:
    larger = dict(one)
    for resource, amount in other.items():
        larger[resource] = max(larger.get(resource, 0), amount)
    return larger


# --- the job ------------------------------------------------------------------------------------------------------


def jobspec(
    pod: Pod,
    owners: tuple[Owner, ...],
    tenant: Tenant,
    around: Surroundings,
    key: str,
    readable: str = "",
    pods: int = 1,
) -> JobSpec | Refusal:
    """The placeholder as this pod asks for it, for one task and without excluded nodes; or a no in words.

    readable   what the job is called where the user gives no name; "": the pod's full name
    pods       how many members the workload has
    """
    if pod.refused_fields:
        return Refusal(
            names.REFUSED, f"Not supported yet: {', '.join(pod.refused_fields)}. The pod is not run without."
        )
    asked = wishes(pod, owners)
    if isinstance(asked, Refusal):
        return asked
    allowed = _allowed(asked, tenant, f"namespace {pod.namespace}")
    if isinstance(allowed, Refusal):
        return allowed
    for key_name, nodes in ((names.MIN_NODES, asked.min_nodes), (names.MAX_NODES, asked.max_nodes)):
        if pods == 1 and nodes not in (None, 1):
            said = f"Annotation {names.PREFIX}{key_name}: {nodes} nodes, but a single pod stands on one. Take it away."
            return Refusal(names.REFUSED, said)
    shape = shape_of(pod, asked, around.translation)
    return JobSpec(
        name=names.job_name(asked.job_name or readable or pod.full_name, around.cluster, key),
        user=tenant.user,
        cpus_per_task=shape.cpus,
        memory_mib=shape.memory_mib,
        gres=shape.gres,
        account=allowed[names.ACCOUNT],
        partition=allowed[names.PARTITION],
        qos=allowed[names.QOS],
        reservation=allowed[names.RESERVATION],
        constraints=asked.constraints or "",
        wckey=asked.wckey or "",
        comment=_comment(asked, readable or pod.full_name),
        time_limit_min=_time_limit(pod, owners, asked.time_limit, around.longest_min(allowed[names.PARTITION])),
        nice=asked.nice,
        exclusive=asked.exclusive or "",
        licenses=asked.licenses or (),
        begin=asked.begin,
        dependency=",".join(filter(None, (SINGLETON, asked.dependency))),
        switches=asked.switches,
        min_nodes=asked.min_nodes if pods > 1 else None,
        max_nodes=asked.max_nodes if pods > 1 else None,
    )


def _comment(asked: Wishes, readable: str) -> str:
    """The user's; and whose the job is, where its name does not say so, because the user chose that too."""
    return "; ".join(filter(None, (asked.comment, readable if asked.job_name else "")))


def _allowed(asked: Wishes, tenant: Tenant, where: str) -> dict[str, str] | Refusal:
    """What the policy makes of the four wishes that it governs (I1), by key."""
    picked: dict[str, str] = {}
    for what, choice, wanted in (
        (names.ACCOUNT, tenant.accounts, asked.account),
        (names.PARTITION, tenant.partitions, asked.partition),
        (names.QOS, tenant.qos, asked.qos),
        (names.RESERVATION, tenant.reservations, asked.reservation),
    ):
        value = choice.pick(what, wanted, where)
        if isinstance(value, Refusal):
            return value
        picked[what] = value
    return picked


def shape_of(pod: Pod, asked: Wishes, translation: Translation) -> Shape:
    """Slurm's words for what the pod needs of one node (T3–T6)."""
    amounts = peak(pod)
    memory = amounts.get("memory", 0)
    gres: dict[str, int] = {}
    for resource, amount in amounts.items():
        if resource in translation.gres and amount > 0:
            name = translation.gres[resource]
            gres[name] = gres.get(name, 0) + amount
    return Shape(
        cpus=asked.cpus_per_task or max(1, -(-amounts.get("cpu", 0) // 1000)),
        memory_mib=asked.memory or (max(1, -(-memory // MIB)) if memory else translation.default_memory_mib),
        gres=asked.gres if asked.gres is not None else tuple(sorted(gres.items())),
    )


def deadline_min(deadline_s: int) -> int:
    """A deadline as a time limit, which Slurm counts in minutes (T7)."""
    return max(1, -(-deadline_s // 60))


def _time_limit(pod: Pod, owners: tuple[Owner, ...], wanted: int | None, longest_min: int | None) -> int | None:
    """T7: annotation, else the pod's or its batch Job's activeDeadlineSeconds, else (services) the longest allowed."""
    if wanted is not None:
        return wanted
    deadlines_s = [pod.active_deadline_s] + [owner.active_deadline_s for owner in owners]
    known = [deadline_s for deadline_s in deadlines_s if deadline_s is not None]
    if known:
        return deadline_min(min(known))
    if pod.restart_policy == "Always":
        return longest_min
    return None
