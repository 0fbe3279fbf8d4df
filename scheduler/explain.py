"""The explanation of one workload, from the facts of the World (O4).

The code that decides also explains: the phase is that of the World, the job is the job that `decide` would submit, and
`feasible` judges the nodes.  The rule of the phase makes its decision: its status says why a pod waits, and its actions are
what comes next.  `explain` reads the World and changes nothing.  The running bridge answers with it.  So does a command, from
a World that the command makes from lists of both clusters.
"""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass
from itertools import chain

from scheduler.actions import ObjectKind, SetPodCondition
from scheduler.decide import RULES
from scheduler.events import Side
from scheduler.model.kubernetes import Pod
from scheduler.model.left_out import left_out_of
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import UNLIMITED, Grant, Job, JobSpec, SlurmNode
from scheduler.model.text import dated
from scheduler.names import LACKS_RIGHTS, MANAGED_LABEL, NOT_MANAGED
from scheduler.place.feasible import CONTESTED, feasible, slurm_name
from scheduler.place.fit import checks, kind_of, node_requirements, why_unusable
from scheduler.rules.decision import NOTHING, Decision, PodStatuses, Status
from scheduler.rules.driver import enter
from scheduler.rules.gathering import why_gathering
from scheduler.rules.guard import sentence
from scheduler.rules.orphaned import how_it_ended
from scheduler.rules.pod_state import pod_state
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import clock, waits
from scheduler.rules.submission import (
    foreseen_job,
    is_managed,
    missing_pods,
    not_managed,
    present_pods,
    spec_for,
    too_large,
)
from scheduler.state.phase import Phase, chosen
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload
from scheduler.state.world import World
from scheduler.translate.gang import together
from scheduler.translate.job_spec import jobspec
from scheduler.translate.values import LONGEST_WAIT_S

AT_ONCE = 8000  # comparisons: some milliseconds
GATES = "It has scheduling gates: no job is requested until the controllers that set the gates remove them."
GATES_ALONE = (
    "It has scheduling gates: it waits until the controllers that set the gates remove them. Its gang has a job."
)
QUARANTINED = "quarantined"
UNSETTLED = "Many pods of its gang changed a moment ago: which of them are its members is determined again first."
LEFT_OUT = "on which a grant could not be used a while ago"  # F6
SECOND_CHOICE = "with a slurmd of their own, while external nodes have such devices"  # G2


@dataclass(frozen=True, slots=True)
class Nodes:
    """Where a pod can run at all, whatever is in use now.

    usable    Kubernetes' names of nodes that can run it
    away      usable nodes that Slurm allocates to no job now, each with its states ("k1 (DRAIN+IDLE)")
    misses    why the other nodes cannot, and how many for each reason, most frequent first
    """

    count: int
    usable: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    misses: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """One workload.

    phase     the value of Phase, or "quarantined"
    state     the state of the pod in one word (rules/pod_state.py); "": an older bridge answered
    sentence  its state, and why it waits, if it does
    refusal   why no job is submitted; None: there is a job to submit, or one was submitted
    user      the Slurm user whose job it is; "": the policy has none
    spec      the job as it was submitted, else as it would be submitted now; None: it is refused before
    missing   how many pods of its gang do not exist yet; `spec` takes them to be like the pod `like`.  None: not known, and
              `spec` is of the pods that exist
    jobs      the jobs that are or may be its own, as last read
    states    of these jobs, by id, as the last poll showed them
    grant     the nodes of the job
    next      what the bridge would do now, in words
    story     the last events and actions: epoch seconds, and what happened; oldest first
    known_at  when Slurm was last asked, epoch seconds
    accounting_outage  why slurmdbd does not answer now; "": it answers
    """

    namespace: str
    name: str
    key: str
    phase: str
    sentence: str
    user: str = ""
    node: str = ""
    refusal: Refusal | None = None
    spec: JobSpec | None = None
    missing: int | None = 0
    like: str = ""
    nodes: Nodes | None = None
    jobs: tuple[Job, ...] = ()
    states: tuple[tuple[int, tuple[str, ...]], ...] = ()
    grant: Grant | None = None
    next: tuple[str, ...] = ()
    story: tuple[tuple[float, str], ...] = ()
    known_at: float | None = None
    state: str = ""
    accounting_outage: str = ""


def key_of(world: World, namespace: str, name: str) -> str | None:
    """The workload of the pod of that name; of several pods that had the name, the newest."""
    everywhere = chain(
        ((key, workload.pods) for key, workload in world.workloads.items()),
        ((entry.name, entry.pods) for entry in world.quarantine.values() if entry.kind is ObjectKind.WORKLOAD),
    )
    found = [
        (pod.created, key)
        for key, pods in everywhere
        for pod in pods.values()
        if pod.namespace == namespace and pod.name == name
    ]
    return max(found)[1] if found else None


def prepare(world: World, namespace: str, name: str) -> bool:
    """Do a part of the comparisons of the workload's pods with others, which `explain` needs.  False: some are left."""
    key = key_of(world, namespace, name)
    if key is None or world.phase_of[key] not in _WAITING:
        return True
    return world.compare_some(world.workloads[key], AT_ONCE, with_granted=True)


def explain(world: World, key: str, now: float, name: str = "") -> Explanation:
    """Everything about the workload of that key, which the World must have.  Pure; some 20 ms for 5,000 nodes.

    name   of the pod whose state and node are wanted; "": the first that has not ended
    """
    workload = world.workloads[key]
    this_pass = Pass(world, now)
    phase = world.phase_of[key]
    if (entry := world.quarantine.get((ObjectKind.WORKLOAD, key))) is not None:  # the rule may raise again
        first = next(iter({**entry.pods, **workload.pods}.values()), None)
        return _brief(workload, first, QUARANTINED, sentence(this_pass.tuning.quarantine_s), this_pass)
    pod = _pod(workload, name)
    if pod is None:
        return _brief(workload, None, phase.value, "Its pods are gone.", this_pass)
    if key in world.unsettled:  # the phase may be out of date, so no rule runs, as in a pass
        return _brief(workload, pod, phase.value, UNSETTLED, this_pass)
    spec, refusal = _job(workload, pod, this_pass) if phase in _WAITING else (None, None)
    candidates = sorted(world.jobs_of(workload), key=lambda job: job.id)
    current = chosen(workload, candidates)
    asked = next((job.spec for job in reversed(candidates) if job.spec is not None), None)
    known = current.spec if current is not None else None
    decision = RULES[phase](workload, this_pass) if world.ready else NOTHING
    absent, like = _absent(workload) if phase is Phase.GATHERING and known is None else (0, "")
    return Explanation(
        namespace=pod.namespace,
        name=pod.name,
        key=key,
        phase=phase.value,
        sentence=_sentence(workload, pod, current, refusal, decision, this_pass),
        user=_user(pod, world),
        node=workload.node_of(pod),
        refusal=refusal,
        spec=known or spec or asked,
        missing=absent,
        like=like,
        nodes=_nodes(workload, pod, world) if phase in _WAITING else None,
        jobs=tuple(job.job for job in candidates if job.job is not None),
        states=tuple((job.id, tuple(sorted(job.states))) for job in candidates),
        grant=current.grant if current is not None else None,
        next=_next(workload, decision, this_pass),
        story=tuple(workload.story),
        known_at=world.polled.ended if world.polled is not None else None,
        state=_state(workload, pod, refusal, decision, phase),
        accounting_outage=world.accounting_outage.why if world.accounting_outage is not None else "",
    )


def _brief(workload: Workload, pod: Pod | None, phase: str, why: str, this_pass: Pass) -> Explanation:
    """The explanation of a workload for which no rule runs now."""
    return Explanation(
        namespace=pod.namespace if pod is not None else "",
        name=pod.name if pod is not None else "",
        key=workload.key,
        phase=phase,
        sentence=why,
        node=workload.node_of(pod) if pod is not None else "",
        story=tuple(workload.story),
        known_at=this_pass.world.polled.ended if this_pass.world.polled is not None else None,
    )


_WAITING = (Phase.GATHERING, Phase.UNSUBMITTED, Phase.QUEUED, Phase.GRANTED)


def _pod(workload: Workload, name: str) -> Pod | None:
    if named := [pod for pod in workload.pods.values() if pod.name == name]:
        return max(named, key=lambda pod: pod.created)
    pods = workload.unfinished or list(workload.pods.values()) or [gone.pod for gone in workload.deleted_pods.values()]
    return pods[0] if pods else None


def _absent(workload: Workload) -> tuple[int | None, str]:
    """The number of pods of its gang that do not exist yet, and the name of the pod that they are assumed to equal."""
    if not workload.size:
        return None, ""
    absent = missing_pods(workload)
    return absent, present_pods(workload)[-1].name if absent else ""


def _user(pod: Pod, world: World) -> str:
    tenant = world.tenant_of(pod)
    return "" if isinstance(tenant, Refusal) else tenant.user


# --- the job --------------------------------------------------------------------------------------------------------


def _job(workload: Workload, pod: Pod, this_pass: Pass) -> tuple[JobSpec | None, Refusal | None]:
    """The job to submit, and why it is not submitted; both, if only a node is lacking."""
    world = this_pass.world
    if not world.ready:
        return None, Refusal("", f"The bridge is not ready; it waits for {', '.join(world.missing)}.")
    if not is_managed(pod, world):
        if pod.namespace in (world.namespaces or {}):
            return None, Refusal(NOT_MANAGED, not_managed(pod))
        return None, Refusal(
            NOT_MANAGED,
            f"Namespace {pod.namespace} does not exist: the admin has to create it, and label it {MANAGED_LABEL}=true.",
        )
    if pod.namespace in world.lacking_rights:
        lacking = (
            world.lacking_rights[pod.namespace]
            or "slurm-bridge lacks rights in Kubernetes; its admin sees which in /readyz."
        )
        return None, Refusal(LACKS_RIGHTS, lacking)
    spec = (foreseen_job if world.phase_of[workload.key] is Phase.GATHERING else spec_for)(workload, this_pass)
    if isinstance(spec, JobSpec):
        asked_for = any(job.alive for job in world.jobs_of(workload))
        return spec, workload.refused or (None if asked_for else too_large(workload, spec, this_pass))
    return _without_nodes(workload, world), spec


def _without_nodes(workload: Workload, world: World) -> JobSpec | None:
    """The translation alone; None: it is refused."""
    pods = present_pods(workload)
    specs = [_translated(workload, pod, world) for pod in pods]
    asked = [(pod, spec) for pod, spec in zip(pods, specs, strict=True) if spec is not None]
    job = together(asked + asked[-1:] * missing_pods(workload)) if len(asked) == len(pods) else None
    return job if isinstance(job, JobSpec) else None


def _translated(workload: Workload, pod: Pod, world: World) -> JobSpec | None:
    """One pod, as if it were alone; None: it is refused."""
    tenant = world.tenant_of(pod)
    if isinstance(tenant, Refusal):
        return None
    pods = max(workload.size, len(workload.unfinished))
    owners, context = world.owners_of(pod)[0], world.translation_context
    spec = jobspec(pod, owners, tenant, context, workload.key, workload.readable, pods, workload.gang)
    return spec if isinstance(spec, JobSpec) else None


def _nodes(workload: Workload, pod: Pod, world: World) -> Nodes | None:
    """Every node, judged as `feasible` judges it, without nodes left out; None: there is no job whose nodes to judge."""
    spec = _translated(workload, pod, world) if world.ready else None
    if spec is None:
        return None
    own_pods = world.own_pods(workload.key, present_pods(workload), missing_pods(workload))
    closed, taken = world.closed_to(pod, own_pods), world.host_ports.taken(pod, own_pods.on_nodes)
    wanted = node_requirements(
        pod, spec, spec.partition or world.default_partition, world.volumes_of(pod), closed, taken
    )
    nodes, slurm_nodes = list((world.nodes or {}).values()), world.slurm_nodes or {}
    fit, made = feasible(wanted, nodes, slurm_nodes, world.contested).nodes, checks(wanted)
    left_out = left_out_of(workload.nodes_left_out, kind_of(pod))
    usable: dict[str, SlurmNode] = {}
    misses: Counter[str] = Counter()
    for node in nodes:
        known = slurm_nodes.get(slurm_name(node))
        if known is not None and known.name in left_out:
            misses[LEFT_OUT] += 1
        elif known is not None and known.name in fit:
            usable[node.name] = known
        else:
            is_contested = slurm_name(node) in world.contested
            misses[CONTESTED if is_contested else why_unusable(wanted, node, known, made) or SECOND_CHOICE] += 1
    return Nodes(
        count=len(nodes),
        usable=tuple(sorted(usable)),
        away=tuple(
            f"{name} ({'+'.join(sorted(known.states))})" for name, known in sorted(usable.items()) if known.closed
        ),
        misses=tuple(sorted(misses.items(), key=lambda item: (-item[1], item[0]))),
    )


# --- its state ------------------------------------------------------------------------------------------------------


def _sentence(
    workload: Workload,
    pod: Pod,
    job: Placeholder | None,
    refusal: Refusal | None,
    decision: Decision,
    this_pass: Pass,
) -> str:
    node = workload.node_of(pod)
    if pod.finished or (pod.deleting_at is not None and not node):  # whatever the other pods of its gang do
        return _why_done(pod)
    if pod.gated and job is not None:  # the other pods of its gang wait or run
        return GATES_ALONE
    match this_pass.world.phase_of[workload.key]:
        case Phase.GATHERING:
            return _why_gathering(workload, refusal, decision, this_pass)
        case Phase.UNSUBMITTED:
            return _why_unsubmitted(pod, refusal, decision, this_pass)
        case Phase.QUEUED:
            return _why_queued(workload, pod, job, decision, this_pass)
        case Phase.GRANTED if not node:
            return _why_granted(pod, job, decision)
        case Phase.GRANTED | Phase.BOUND if node:
            return _why_bound(workload, pod, decision, this_pass)
        case Phase.BOUND:
            return _shown(decision, pod) or "It has no node yet; other pods of its gang run."
        case Phase.ORPHANED:
            place = f"It is on node {node}" if node else "It has no node"
            over = f"{place}. {_how_the_job_ended(workload, this_pass)}."
            return f"{over} {_shown(decision, pod)}".rstrip()
    return _why_done(pod)


def _state(workload: Workload, pod: Pod, refusal: Refusal | None, decision: Decision, phase: Phase) -> str:
    said = next((status.reason for status in decision.statuses if _is_of(status, pod)), "")
    shown = workload.shown_condition(pod)
    reason = said or (refusal.reason if refusal is not None else shown.reason if shown is not None else "")
    return pod_state(pod, workload.node_of(pod), reason, phase)


def _shown(decision: Decision, pod: Pod) -> str:
    """The first status that the decision has for the pod, and why the workload waits; "": it has none, and does not wait."""
    shown = next((status.message for status in decision.statuses if _is_of(status, pod)), "")
    why = next(decision.reasons_to_wait, "")
    return " ".join(dict.fromkeys(text for text in (shown, why) if text))


def _is_of(status: Status, pod: Pod) -> bool:
    if isinstance(status, PodStatuses):
        return any(other.uid == pod.uid for other in status.pods)
    return status.pod.uid == pod.uid


def _why_gathering(workload: Workload, refusal: Refusal | None, decision: Decision, this_pass: Pass) -> str:
    if sum(pod.gated for pod in workload.unfinished) == workload.pod_counts.unfinished:
        return GATES
    said = [_shown(decision, workload.members[0]) or why_gathering(workload, this_pass)]
    if refusal is not None:
        said.append(refusal.message)
    return " ".join(said)


def _why_unsubmitted(pod: Pod, refusal: Refusal | None, decision: Decision, this_pass: Pass) -> str:
    if (away := this_pass.world.outages.get(Side.SLURM)) is not None:  # the pod does not show why
        return f"Slurm has not been usable since {clock(away.since, this_pass.now)}: {away.why}"
    if refusal is not None and refusal.reason == NOT_MANAGED:
        return refusal.message
    shown = _shown(decision, pod)
    return shown or (
        refusal.message if refusal is not None else "Nothing prevents the submission: the next pass requests the job."
    )


def _why_queued(workload: Workload, pod: Pod, job: Placeholder | None, decision: Decision, this_pass: Pass) -> str:
    assert job is not None, "QUEUED has a placeholder"
    if shown := _shown(decision, pod):
        return shown
    if job.job is None:
        return f"It waits in Slurm's queue as job {job.id}, of which no more has been read yet."
    return waits(workload, job.job, this_pass)


def _why_granted(pod: Pod, job: Placeholder | None, decision: Decision) -> str:
    assert job is not None, "GRANTED has a placeholder"
    nodes = ", ".join(node.name for node in job.grant.nodes) if job.grant is not None else "nodes, not read yet"
    message = f"Slurm granted job {job.id} {nodes}; the bind has not been seen yet."
    trouble = f"The last bind for the job failed: {job.bind_trouble}" if job.bind_trouble else ""
    return f"{message} {_shown(decision, pod) or trouble}".rstrip()


def _why_bound(workload: Workload, pod: Pod, decision: Decision, this_pass: Pass) -> str:
    job = this_pass.world.job_of_bound_pods(workload)
    by = f" for Slurm job {job.id}" if job is not None and workload.is_bound_for(pod, job) else ""
    said = f"It is on node {workload.node_of(pod)}{by}, {pod.phase.value} in Kubernetes."
    if shown := _shown(decision, pod):
        return f"{said} {shown}"
    return f"{said} {pod.job_condition.message}" if pod.job_condition is not None else said


def _why_done(pod: Pod) -> str:
    if pod.finished:
        return f"It has ended ({pod.end_reason or pod.phase.value})."
    if pod.node:  # its containers may still run (S3)
        return f"It was deleted while it was on node {pod.node}. Its job ends when the grace of its containers is over."
    return "It is being deleted, and was never on a node."


def _how_the_job_ended(workload: Workload, this_pass: Pass) -> str:
    absent_s = this_pass.tuning.absent_s
    job = [job for job in this_pass.world.jobs_of(workload) if job.has_proven_end(absent_s)][-1]
    return how_it_ended(job) if job.ended else f"Slurm does not know its job {job.id} any more"


def _next(workload: Workload, decision: Decision, this_pass: Pass) -> tuple[str, ...]:
    """The actions of the decision that the limits allow now."""
    enter(decision, workload, this_pass)
    return tuple(
        dict.fromkeys(action.reason for action in this_pass.actions if not isinstance(action, SetPodCondition))
    )


# --- as options of sbatch   -----------------------------------------------------------------------------------------


def as_sbatch(spec: JobSpec) -> str:
    """The job in sbatch's options, for people who know them.  sbatch cannot run it: the job has no script."""
    return " : ".join([shlex.join(["sbatch", *_options(spec)]), *(shlex.join(_options(part)) for part in spec.parts)])


def _options(spec: JobSpec) -> list[str]:
    """The sbatch options of one component."""
    wanted = {
        "job-name": spec.name,
        "account": spec.account,
        "partition": spec.partition,
        "qos": spec.qos,
        "reservation": spec.reservation,
        "constraint": spec.constraints,
        "wckey": spec.wckey,
        "comment": spec.comment,
        "nodes": _how_many_nodes(spec),
        "ntasks": str(spec.tasks),
        "ntasks-per-node": str(spec.tasks_per_node or ""),
        "cpus-per-task": str(spec.cpus_per_task),
        **_memory_and_devices(spec),
        "time": _time(spec.time_limit_min),
        "time-min": _time(spec.time_least_min),
        "nice": str(spec.nice) if spec.nice is not None else "",
        "exclude": spec.excluded_nodes,
        "nodelist": spec.required_nodes,
        "dependency": spec.dependency,
        "begin": dated(spec.begin, "%Y-%m-%dT%H:%M:%SZ") if spec.begin is not None else "",
        "licenses": ",".join(f"{name}:{count}" for name, count in spec.licenses),
        "switches": _switches(spec.switches),
    }
    words = [f"--{name}={value}" for name, value in wanted.items() if value]
    if spec.exclusive:
        words.append("--exclusive" if spec.exclusive == "exclusive" else f"--exclusive={spec.exclusive}")
    return words


def _how_many_nodes(spec: JobSpec) -> str:
    """The value of --nodes; "": as few nodes as possible."""
    if spec.tasks == 1:
        return "1"
    if spec.max_nodes is None:
        return str(spec.min_nodes or "")
    return str(spec.max_nodes) if spec.min_nodes == spec.max_nodes else f"{spec.min_nodes or 1}-{spec.max_nodes}"


def _memory_and_devices(spec: JobSpec) -> dict[str, str]:
    """sbatch's options for memory and devices: by node if the number of pods on a node is known, else by CPU and by pod."""
    places = 1 if spec.tasks == 1 else spec.tasks_per_node
    devices = ",".join(f"{name}:{count * (places or 1)}" for name, count in spec.gres)
    if places is not None:
        return {"mem": f"{places * spec.memory_mib}M", "gres": devices}
    tres = ",".join(f"gres/{device}" for device in devices.split(",") if device)
    return {"mem-per-cpu": f"{-(-spec.memory_mib // spec.cpus_per_task)}M", "tres-per-task": tres}


def _switches(wanted: tuple[int, int] | None) -> str:
    if wanted is None:
        return ""
    count, wait_s = wanted
    return str(count) if wait_s >= LONGEST_WAIT_S else f"{count}@{wait_s // 60}:{wait_s % 60:02}"


def _time(minutes: int | None) -> str:
    if minutes is None:
        return ""
    if minutes == UNLIMITED:
        return "UNLIMITED"
    days, rest = divmod(minutes, 1440)
    return f"{f'{days}-' if days else ''}{rest // 60:02}:{rest % 60:02}:00"
