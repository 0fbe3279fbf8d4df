"""GATHERING: pods of a gang are missing, or have scheduling gates (W2, W5, W6)."""

from __future__ import annotations

from scheduler import actions as act
from scheduler import names
from scheduler.apply.gang_size import members_of
from scheduler.apply.surplus import surplus_pods
from scheduler.model.kubernetes import Pod, owner_key
from scheduler.rules.decision import NOTHING, Decision, combine, note, plan_action, wake
from scheduler.rules.identity import cancel, find_unseen_job
from scheduler.rules.owners import unreadable
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import exact_clock, statuses
from scheduler.rules.uninstall import no_new_job, withdraw
from scheduler.state.phase import chosen
from scheduler.state.placeholder import Placeholder
from scheduler.state.pod_counts import stays
from scheduler.state.workload import Workload
from scheduler.translate.grouping import GANG_SIZE, MAX_SIZE, Natural, natural

GATHER_SHOWN_S = 3.0  # pods show that members are missing once none has come for so long: most gather within a second
JOINS_S = 10.0  # within this time a surplus pod joins: its own job is read again that often
NAMES_COMPARED = 8  # characters of names that are put in natural order in the time in which one node is judged
SIZE_READ_EVERY_S = 30.0  # while pods are missing, the object that defines the size is read again so often
WHOLE = "Their job is submitted when all of them are here."
HELD_BACK = (
    "The other pods are missing: a quota, an admission policy, or a controller that makes the next pod only when the one "
    "before runs (OrderedReady, LeaderReady, InOrder) may prevent them."
)


def gathering(workload: Workload, this_pass: Pass) -> Decision:
    """Pods are missing, or gated; Kubernetes itself shows the gates (W5, W6)."""
    if workload.group is None or workload.in_flight is not None:
        return NOTHING
    if this_pass.world.may_be_bound_yet(workload):
        return Decision(
            why="A bind of one of the pods may still take effect, so the job is kept; the pods are read first."
        )
    job = chosen(workload, this_pass.world.jobs_of(workload))
    if job is not None and this_pass.world.config.leaving:
        return withdraw(workload, job, this_pass)
    if job is not None:
        return _read_size_first(workload, this_pass) or _keep_for_a_while(workload, job, this_pass)
    if (first := find_unseen_job(workload, this_pass) or no_new_job(workload, this_pass)) is not None:
        return first
    return gather(workload, this_pass)


def _read_size_first(workload: Workload, this_pass: Pass) -> Decision | None:
    """Read the size that only an owner has, as after a restart.  None: the size is known, or the owner shows none.

    Until the owner was read, no pod is known to be missing, and the job keeps its age in the queue (K8).
    """
    return _read_size_source(workload, this_pass) if is_size_unread(workload, this_pass) else None


def is_size_unread(workload: Workload, this_pass: Pass) -> bool:
    """True if only an object that was not read yet shows how many pods the gang has."""
    if workload.size or set(workload.pod_counts.sizes) != {None}:  # a pod by itself has size 1
        return False
    return not _is_size_source_known(workload, this_pass)


def _keep_for_a_while(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """Keep the job of an incomplete gang, and so its age in the queue, for as long as the lost member may be replaced.

    A surplus pod with a job of its own joins the gang when no controller replaces the member any more
    (`_stays_with_free_places`).  The job is kept until then, because otherwise both lose their turn.  The pods show that.
    """
    joins_s = JOINS_S if workload.surplus else 0.0
    left_at = max(workload.left_at, this_pass.world.started)
    until = left_at + this_pass.tuning.gang_bind_deadline_s + joins_s
    if this_pass.now < min(until, left_at + GATHER_SHOWN_S):
        return wake(min(until, left_at + GATHER_SHOWN_S))
    if this_pass.now < until:
        kept = f"Slurm job {job.id} is kept for them until {exact_clock(until, this_pass.now)}."
        return wake(until) + _shown(workload, f"{workload.gathered} {kept}", warning=False)
    left = f"{len(workload.members):,} of {workload.size:,} pods of {workload.readable} are left"
    why = left if workload.size else f"it is not known how many pods {workload.readable} has"
    return cancel(job, workload, this_pass, why)


def gather(workload: Workload, this_pass: Pass) -> Decision:
    """Pods of the gang are missing: read the size of the gang, and show how many pods are missing (W2, W6)."""
    sizes = workload.pod_counts.sizes
    assert workload.group is not None, "only a gang gathers"
    this_pass.effort += len(workload.pods)
    perhaps_in_stages = workload.group.size_source_kind == "JobSet" and not _is_size_source_known(workload, this_pass)
    if len(sizes) > 1 and not perhaps_in_stages:
        this_pass.effort += sum(len(pod.name) for pod in workload.pods.values()) // NAMES_COMPARED
        return _shown(workload, why_gathering(workload, this_pass))
    read = NOTHING
    if None in sizes or perhaps_in_stages:
        read = _read_size_source(workload, this_pass)
        if not workload.size:
            known = _is_size_source_known(workload, this_pass)
            return read + _shown(workload, why_gathering(workload, this_pass)) if known else read
    said_at = max(map(this_pass.world.created_at, workload.unfinished)) + GATHER_SHOWN_S
    if this_pass.now < said_at:
        return read + wake(said_at)
    held_back_at = _held_back_at(workload, this_pass)
    if this_pass.now < held_back_at:
        read += wake(held_back_at)
    return read + _shown(workload, why_gathering(workload, this_pass), warning=this_pass.now >= held_back_at)


def why_gathering(workload: Workload, this_pass: Pass) -> str:
    """Why nothing is asked for yet, in a sentence (W6)."""
    group, sizes = workload.group, workload.pod_counts.sizes
    assert group is not None, "only a gang gathers"
    if edited := regrouped(workload):
        return edited
    if len(sizes) > 1:
        return _disagreement(workload)
    if not workload.size and _is_size_source_known(workload, this_pass):
        owner = this_pass.world.size_source_of(workload)
        if owner is not None and (wanted := members_of(owner, group)) > MAX_SIZE:
            return f"{group.kind} {group.name} needs {wanted:,} pods, and a gang has at most {MAX_SIZE:,}."
        return (
            f"{group.kind} {group.name} does not show how many pods it has: give it the annotation "
            f"{GANG_SIZE} (1 to {MAX_SIZE:,})."
        )
    if not workload.size:
        return workload.gathered
    gated = sum(pod.gated for pod in workload.unfinished)
    alone = _running_alone(workload, this_pass)
    said = [workload.gathered]
    if gated:
        has, counts = ("has", "counts") if gated == 1 else ("have", "count")
        said.append(f"{gated:,} more {has} scheduling gates, and {counts} when these gates are removed.")
    if alone:
        runs, them = ("runs with a job of its own", "it") if alone == 1 else ("run with jobs of their own", "them")
        said.append(f"{alone:,} more {runs}, and cannot join the others: delete {them} to start all of them together.")
    if workload.size > workload.pod_counts.members + gated + alone:
        said.append(_advice(workload, this_pass))
    elif not alone:
        said.append(WHOLE)
    return " ".join(said)


def _running_alone(workload: Workload, this_pass: Pass) -> int:
    """How many surplus pods of the gang run.  They stay workloads by themselves, also if the gang lacks pods (W5)."""
    this_pass.effort += len(workload.surplus)
    return sum(stays(pod) and own.node_of(pod) != "" for own, pod in surplus_pods(this_pass.world, workload))


def regrouped(workload: Workload) -> str:
    """The sentence about waiting pods whose labels were edited and show another group; "": there are none."""
    uid = next(iter(workload.regrouped), "")
    if not uid:
        return ""
    group, others = workload.regrouped[uid], len(workload.regrouped) - 1
    shown = f"{group.kind} {group.name}" if group is not None else "no gang"
    more = f" and of {others:,} more" if others else ""
    return (
        f"The labels of {workload.pods[uid].full_name}{more} were edited and show {shown} now. "
        "A pod stays in the gang that it had when it was created: restore its labels, or recreate it."
    )


def _advice(workload: Workload, this_pass: Pass) -> str:
    """What completes the gang: its controller makes the other pods; if it has no controller, the user makes them."""
    group, is_late = workload.group, this_pass.now >= _held_back_at(workload, this_pass)
    assert group is not None, "only a gang gathers"
    if workload.first.owner is not None:
        return HELD_BACK if is_late else WHOLE
    said_by = f"{group.kind} {group.name}" if group.size_source is not None else f"annotation {GANG_SIZE}"
    others = "The other pods are missing: create them" if is_late else f"{WHOLE} Create the others"
    return f"{others}, or correct the size of the gang ({said_by})."


def _disagreement(workload: Workload) -> str:
    """The sizes that the members name, each with the first pod by name that names it."""
    assert workload.group is not None
    group, firsts = workload.group, dict[int | None, tuple[Natural, str]]()
    for uid, shown in workload.shown.items():
        if not stays(pod := workload.pods[uid]):
            continue
        named = natural(pod.name), pod.name
        firsts[shown.size] = min(named, firsts.get(shown.size, named))
    sizes = ", ".join(
        f"{name} says {'none' if size is None else f'{size:,}'}"
        for size, (_, name) in sorted(firsts.items(), key=lambda item: item[1])
    )
    return (
        f"The pods of {group.kind} {group.name} do not agree on their number ({sizes}): give all of them the same "
        f"annotation {GANG_SIZE}."
    )


def _held_back_at(workload: Workload, this_pass: Pass) -> float:
    """When the members show what may hold back the others: so long after the first of them came."""
    return min(map(this_pass.world.created_at, workload.unfinished)) + timeout_s(workload, this_pass)


def timeout_s(workload: Workload, this_pass: Pass) -> float:
    """Seconds after which its members also show what may hold back the others (K3: gang-timeout)."""
    staying = [group for uid, group in workload.shown.items() if stays(workload.pods[uid])]
    asked = [group.timeout_s for group in staying if group.timeout_s is not None]
    return max(asked, default=this_pass.tuning.gang_timeout_s)


def _read_size_source(workload: Workload, this_pass: Pass) -> Decision:
    """Read the numbers that only an owner has, by a narrow read that is repeated while pods are missing."""
    assert workload.group is not None
    world, pod = this_pass.world, workload.first
    ref = workload.group.size_source
    if ref is None:
        chain, unread = world.owners_of(pod)
        source = next((owner.ref for owner in chain if owner.ref.kind == workload.group.size_source_kind), None)
        ref = source or unread
    if ref is None:
        return NOTHING
    key = owner_key(pod.namespace, ref)
    next_at = max(workload.backoff.until, world.owner_read_at.get(key, float("-inf")) + SIZE_READ_EVERY_S)
    if _ended_since(workload, world.owner_read_at.get(key), this_pass):
        next_at = workload.backoff.until
    if this_pass.now < next_at:
        read = wake(next_at)
    else:
        read = plan_action(act.ReadOwner(pod.namespace, ref, f"how many pods has {ref.kind} {ref.name}?"))
    subject = f"{ref.kind} {ref.name}"
    failing = (
        [unreadable(member, subject, key, this_pass) for member in _not_gated(workload)] if not workload.size else []
    )
    return combine((read, note(awaits=key), *failing))


def _ended_since(workload: Workload, read_at: float | None, this_pass: Pass) -> bool:
    """The job of the gang ended: some of its pods may have succeeded before (W5)."""
    ends = [job.ended_seen for job in this_pass.world.jobs_of(workload) if job.ended_seen is not None]
    return read_at is not None and any(end >= read_at for end in ends)


def _is_size_source_known(workload: Workload, this_pass: Pass) -> bool:
    """True if the object that defines the size of the gang has been read, or none exists."""
    group = workload.group
    assert group is not None
    if group.size_source is not None:
        return owner_key(workload.first.namespace, group.size_source) in this_pass.world.owner_read_at
    return this_pass.world.owners_of(workload.first)[1] is None


def _shown(workload: Workload, message: str, *, warning: bool = True) -> Decision:
    return statuses(_not_gated(workload), names.GATHERING, message, warning=warning)


def _not_gated(workload: Workload) -> list[Pod]:
    """The pods that show a status of the bridge; Kubernetes shows SchedulingGated on the others."""
    return [pod for pod in workload.unfinished if not pod.gated]
