"""Translates a pod to the specification of its placeholder job (rules T).

The needs of a pod are counted as Kubernetes counts them (T1), and the job asks for the larger of request and limit (T2).
Annotations may ask for more (T6), never for less: kubelet gives the containers the resources of their spec in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import NamedTuple

from scheduler import names
from scheduler.model.amounts import EMPTY, Amounts
from scheduler.model.kubernetes import Container, Owner, Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import SINGLETON, UNLIMITED, JobSpec, Shape
from scheduler.model.trace_context import trace_of
from scheduler.policy.job_limits import beyond_rule, time_allowed
from scheduler.policy.rules import Priority, Tenant
from scheduler.translate.job_options import JobOptions, as_written, job_options
from scheduler.translate.pod_limits import beyond_limits, listed
from scheduler.translate.values import MAX_MINUTES

MIB = 1024 * 1024
MOST_AMOUNT = 2**31 - 1  # of MiB, of devices of a kind
# Slurm counts the CPUs of a task in 16 bits, and the last two values are no counts.  slurmrestd cuts larger numbers without
# an error: 65,537 becomes 1 (Slurm facts 7).
MOST_CPUS = 2**16 - 3
MOST_COMMENT = 1024  # characters, as of the user's own comment


@dataclass(frozen=True, slots=True)
class Translation:
    """The admin's settings of the translation.

    gres                 extended resource to GRES name ("nvidia.com/gpu" to "gpu") (T5)
    default_memory_mib   for pods that ask for no memory (T4)
    ignored              patterns of extended resources that pods may use although Slurm does not count them (T5)
    """

    gres: Mapping[str, str]
    default_memory_mib: int = 1024
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TranslationContext:
    """The inputs of a translation besides the pod.

    longest_min   the longest time limit of a partition in minutes, UNLIMITED, or None: not known (T7)
    priorities    PriorityClass to the QOS and nice value of its pods, unless their annotations choose
    traced        comments of jobs name the trace of their workload (O3)
    """

    translation: Translation
    cluster: str
    longest_min: Callable[[str], int | None]
    priorities: Mapping[str, Priority] = field(default_factory=dict)
    traced: bool = False


# --- what a pod needs ---------------------------------------------------------------------------------------------


def summed(pod: Pod) -> Amounts:
    """The amounts that must fit on a node (F1): the requests as kubelet and kube-scheduler count them, and one pod."""
    amounts = _effective(pod, _requests, pod.pod_requests)
    amounts["pods"] = 1
    return amounts


def peak(pod: Pod) -> Amounts:
    """The most that the pod may use: the larger of request and limit (T2).

    A limit of the pod caps its containers.  A request of the pod does not: without a pod limit, the containers' limits count.
    """
    requests = pod.pod_requests
    caps = {resource: max(limit, requests.get(resource, 0)) for resource, limit in pod.pod_limits.items()}
    return _effective(pod, _larger, caps, at_least=requests)


def _effective(
    pod: Pod, of: Callable[[Container], Amounts], pod_level: Amounts, at_least: Amounts = EMPTY
) -> dict[str, int]:
    """T1: max(sum of containers and sidecars, each init container beside the sidecars before it) + overhead.

    pod_level   replaces the sums over containers
    at_least    the result is not smaller
    """
    running: dict[str, int] = {}
    for container in pod.containers:
        _add(running, of(container))
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in pod.init_containers:
        amounts = of(container)
        # Only its own amounts can raise the maximum: pods of other schedulers may have any number of containers and amounts.
        for resource, amount in amounts.items():
            starting[resource] = max(starting.get(resource, 0), sidecars.get(resource, 0) + amount)
        if container.sidecar:
            _add(sidecars, amounts)
    _add(running, sidecars)
    total = _max(running, starting) if starting else running
    total.update(pod_level)
    if at_least:
        total = _max(total, at_least)
    _add(total, pod.overhead)
    return total


_requests: Callable[[Container], Amounts] = attrgetter("requests")


def _larger(container: Container) -> Amounts:
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
    context: TranslationContext,
    key: str,
    readable: str = "",
    pods: int = 1,
    gang: int = 1,
) -> JobSpec | Refusal:
    """The placeholder job of this pod, of one task and without excluded nodes; or a Refusal in words.

    key        of the workload, part of the job's name
    readable   the job's name if the user gives none; "": namespace and name of the pod
    pods       number of pods of the workload
    gang       number of pods of its gang, with pods that have ended (W5)
    """
    checked = _checked(pod, owners, tenant, context, max(pods, gang))
    if isinstance(checked, Refusal):
        return checked
    options, allowed, shape, limit, nice = checked
    readable = readable or pod.full_name
    spec = JobSpec(
        name=names.job_name(options.job_name or readable, context.cluster, key),
        user=tenant.user,
        cpus_per_task=shape.cpus,
        memory_mib=shape.memory_mib,
        gres=shape.gres,
        account=allowed[names.ACCOUNT],
        partition=allowed[names.PARTITION],
        qos=allowed[names.QOS],
        reservation=allowed[names.RESERVATION],
        time_limit_min=limit,
        nice=nice,
    )
    spec = _with_options(spec, options, readable, tenant, pods)
    if context.traced:
        spec = replace(spec, comment=_comment(options, readable, _trace(pod, context.cluster, key)))
    return beyond_rule(spec, tenant) or spec


class _Checked(NamedTuple):
    """The options that a pod asks for, checked against its containers and the policy."""

    options: JobOptions
    allowed: dict[str, str]
    shape: Shape
    time_limit_min: int | None
    nice: int | None


def _checked(
    pod: Pod, owners: tuple[Owner, ...], tenant: Tenant, context: TranslationContext, gang: int
) -> _Checked | Refusal:
    if refusal := _unsupported(pod):
        return refusal
    options = job_options(pod, owners)
    if isinstance(options, Refusal):
        return options
    priority = context.priorities.get(pod.priority_class, Priority())
    allowed = _allowed(pod, options, priority, tenant)
    if isinstance(allowed, Refusal):
        return allowed
    if refusal := _impossible_nodes(pod, owners, options, gang):
        return refusal
    shape = shape_of(pod, owners, options, context.translation)
    if isinstance(shape, Refusal):
        return shape
    limit = _time_limit(pod, owners, options, tenant, context.longest_min(allowed[names.PARTITION]))
    if isinstance(limit, Refusal):
        return limit
    if refusal := _least_above_limit(pod, owners, options, limit):
        return refusal
    return _Checked(options, allowed, shape, limit, options.nice if options.nice is not None else priority.nice)


def _with_options(spec: JobSpec, options: JobOptions, readable: str, tenant: Tenant, pods: int) -> JobSpec:
    """The job with the options that neither the policy nor the pod's containers restrict."""
    return replace(
        spec,
        constraints=options.constraints or "",
        wckey=options.wckey or "",
        comment=_comment(options, readable),
        time_least_min=options.time_min,
        exclusive=options.exclusive or "",
        licenses=options.licenses or (),
        begin=options.begin,
        dependency=",".join(filter(None, (SINGLETON, options.dependency))),
        switches=options.switches,
        min_nodes=min(options.min_nodes, pods) if options.min_nodes is not None and pods > 1 else None,
        max_nodes=_most_nodes(options, tenant, pods) if pods > 1 else None,
    )


def _unsupported(pod: Pod) -> Refusal | None:
    """A Refusal if the pod is too large, or has fields that the bridge does not support; None: otherwise."""
    if too_many := beyond_limits(pod):
        return Refusal(names.REFUSED, too_many)
    if pod.refused_fields:
        message = (
            f"Not supported yet: {listed(pod.refused_fields)}. Remove them from the pod, or use another scheduler."
        )
        return Refusal(names.REFUSED, message)
    return None


def _impossible_nodes(pod: Pod, owners: tuple[Owner, ...], options: JobOptions, gang: int) -> Refusal | None:
    """A Refusal if annotations ask for more nodes than the gang has pods, or for more than they allow; None: otherwise.

    Pods of the gang that have ended count: the annotations stay as they are when the other pods start again (W5).
    """
    if gang > 1:
        least, most = options.min_nodes, options.max_nodes
        if least is not None and most is not None and least > most:
            asked = as_written(names.MIN_NODES, pod, owners)
            allowed = as_written(names.MAX_NODES, pod, owners)
            allowed = allowed[:1].lower() + allowed[1:]
            return Refusal(names.REFUSED, f"{asked} is more than {allowed} allows. Correct one of them.")
        if least is None or least <= gang:
            return None
        asked = f"Annotation {names.PREFIX}{names.MIN_NODES}: {least:,} nodes"
        return Refusal(names.REFUSED, f"{asked}, but the gang has {gang:,} pods. Lower the number.")
    for key_name, nodes in ((names.MIN_NODES, options.min_nodes), (names.MAX_NODES, options.max_nodes)):
        if nodes not in (None, 1):
            asked = f"Annotation {names.PREFIX}{key_name}: {nodes:,} nodes"
            return Refusal(names.REFUSED, f"{asked}, but a single pod runs on one node. Remove the annotation.")
    return None


def _least_above_limit(pod: Pod, owners: tuple[Owner, ...], options: JobOptions, limit: int | None) -> Refusal | None:
    """A Refusal if time-min is longer than the time limit; None: otherwise."""
    if options.time_min is None or limit in (None, UNLIMITED) or options.time_min <= limit:
        return None
    problem = (
        f"asks for at least {options.time_min:,} minutes, but the time limit is {limit:,}: lower it, or raise the limit"
    )
    return Refusal(names.REFUSED, f"{as_written(names.TIME_MIN, pod, owners)} {problem}.")


def _most_nodes(options: JobOptions, tenant: Tenant, pods: int) -> int | None:
    """The most nodes of the job: the annotation; otherwise the policy's limit, if the pods could use more; otherwise None."""
    if options.max_nodes is not None or tenant.max_nodes is None or tenant.max_nodes >= pods:
        return options.max_nodes
    return tenant.max_nodes


def _comment(options: JobOptions, readable: str, trace: str = "") -> str:
    """The user's comment, the trace if it fits, and the pod's name if the user chose the name of the job."""
    comment = "; ".join(filter(None, (options.comment, trace, readable if options.job_name else "")))
    return comment if not trace or len(comment) <= MOST_COMMENT else _comment(options, readable)


def _trace(pod: Pod, cluster: str, key: str) -> str:
    """The trace of the workload, for people and programs that look at the job (O3)."""
    shown = pod.annotations.get(names.TRACEPARENT)
    return f"traceparent={trace_of(names.traceparent(cluster, key), () if shown is None else (shown,)).root}"


def _allowed(pod: Pod, options: JobOptions, priority: Priority, tenant: Tenant) -> dict[str, str] | Refusal:
    """The four options that the policy governs (I1), by key; a Refusal if it does not allow one."""
    picked: dict[str, str] = {}
    wanted = {
        names.ACCOUNT: options.account,
        names.PARTITION: options.partition,
        names.QOS: options.qos if options.qos is not None else priority.qos or None,
        names.RESERVATION: options.reservation,
    }
    for option, choice in tenant.choices.items():
        value = choice.pick(option, wanted[option], f"namespace {pod.namespace}")
        if isinstance(value, Refusal):
            if option == names.QOS and options.qos is None:
                source = f"PriorityClass {pod.priority_class} of the pod selects this QOS (settings: priority_classes)."
                return replace(value, message=f"{value.message} {source}")
            return value
        picked[option] = value
    return picked


def shape_of(pod: Pod, owners: tuple[Owner, ...], options: JobOptions, translation: Translation) -> Shape | Refusal:
    """The needs of the pod on one node, in Slurm's units (T3–T6); a Refusal if annotations ask for less than it uses."""
    amounts = peak(pod)
    gres: dict[str, int] = {}
    for resource, amount in amounts.items():
        if resource in translation.gres and amount > 0:
            name = translation.gres[resource]
            gres[name] = gres.get(name, 0) + amount
        elif amount > 0 and is_extended(resource) and not _is_ignored(resource, translation):
            return _uncounted(resource)
    cpus = max(1, -(-amounts.get("cpu", 0) // 1000))
    memory_mib = -(-amounts.get("memory", 0) // MIB)
    if options.cpus_per_task is not None and options.cpus_per_task < cpus:
        return _understated(names.CPUS_PER_TASK, f"{options.cpus_per_task:,} CPUs", f"{cpus:,}", pod, owners)
    if options.memory is not None and options.memory < memory_mib:
        return _understated(names.MEMORY, f"{options.memory:,} MiB", f"{memory_mib:,} MiB", pod, owners)
    if options.gres is not None and (lacking := _lacking(options.gres, gres, translation)):
        return _understated(names.GRES, *lacking, pod, owners)
    shape = Shape(
        cpus=options.cpus_per_task or cpus,
        memory_mib=options.memory or memory_mib or translation.default_memory_mib,
        gres=options.gres if options.gres is not None else tuple(sorted(gres.items())),
    )
    if shape.cpus > MOST_CPUS or max((shape.memory_mib, *(count for _, count in shape.gres))) > MOST_AMOUNT:
        return Refusal(names.REFUSED, f"The pod asks for more than any node has: {_amounts(shape)}.")
    return shape


def _amounts(shape: Shape) -> str:
    devices = "".join(f", {count:,} {name}" for name, count in shape.gres)
    return f"{shape.cpus:,} CPUs, {shape.memory_mib:,} MiB{devices}"


def is_extended(resource: str) -> bool:
    """True for an extended resource, which a device plugin or an administrator advertises."""
    return "/" in resource and "kubernetes.io/" not in resource


def _is_ignored(resource: str, translation: Translation) -> bool:
    return any(fnmatchcase(resource, pattern) for pattern in translation.ignored)


def _uncounted(resource: str) -> Refusal:
    return Refusal(
        names.REFUSED,
        f"The pod asks for {resource}, which Slurm does not count. An admin names its GRES (settings: gres), or lets pods "
        "use it uncounted (settings: ignored_resources).",
    )


def _understated(name: str, asked: str, taken: str, pod: Pod, owners: tuple[Owner, ...]) -> Refusal:
    return Refusal(
        names.REFUSED,
        f"{as_written(name, pod, owners)} asks for {asked}, but the containers of the pod take {taken} (the larger of "
        "requests and limits, with overhead). The annotation may ask for more, not for less: raise it, or remove it.",
    )


def _lacking(
    asked: tuple[tuple[str, int], ...], taken: Mapping[str, int], translation: Translation
) -> tuple[str, str] | None:
    """The first GRES of which the annotation asks for less than the containers use: (asked, used) in words; None: none.

    A device with a type counts as one without ("gpu:h100" as "gpu"), unless the settings map a resource to that type, as for
    slices of a GPU.  A device without a type never counts as one of a type, because Slurm may choose another type.
    """
    own = frozenset(translation.gres.values())  # the names of all that the containers use, so no device counts twice
    for name, count in taken.items():
        usable = (had for gres, had in asked if gres == name or (gres.partition(":")[0] == name and gres not in own))
        if (have := sum(usable)) < count:
            return f"{have:,} {name}", f"{count:,} {name}"
    return None


def deadline_min(deadline_s: int) -> int:
    """A deadline as a time limit, which Slurm counts in minutes (T7).  A Job may name a deadline that Slurm cannot count."""
    return min(max(1, -(-deadline_s // 60)), MAX_MINUTES)


def _time_limit(
    pod: Pod, owners: tuple[Owner, ...], options: JobOptions, tenant: Tenant, longest_min: int | None
) -> int | Refusal | None:
    """The time limit in minutes (T7); None: Slurm's default.

    The first of these that exists: the annotation; activeDeadlineSeconds of the pod or its batch Job; the longest limit that
    the rule of the policy allows; for services (restartPolicy: Always) the longest limit of the partition.
    """
    if options.time_limit is not None:
        source = as_written(names.TIME_LIMIT, pod, owners) if tenant.max_time_min is not None else ""
        return time_allowed(options.time_limit, tenant, source)
    deadlines_s = [pod.active_deadline_s] + [owner.active_deadline_s for owner in owners]
    known = [deadline_s for deadline_s in deadlines_s if deadline_s is not None]
    if known:
        return time_allowed(deadline_min(min(known)), tenant, f"activeDeadlineSeconds: {min(known)}")
    if tenant.max_time_min is not None:
        return tenant.max_time_min if longest_min in (None, UNLIMITED) else min(tenant.max_time_min, longest_min)
    return longest_min if pod.restart_policy == "Always" else None
