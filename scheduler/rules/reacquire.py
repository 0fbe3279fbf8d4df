"""Pods run and Slurm has lost their job, or given it back to its queue: the same nodes are asked for once more (S7).

What runs need not die of what slurmctld forgot.  A job of the same name on exactly the nodes that the pods stand on, at
once or not at all: where Slurm grants it the pods stand on a live placeholder again, and nobody noticed.  Where Slurm
refuses it because somebody else has them by now, that was the one attempt, and the pods follow their job (S4).  Where it has
the nodes not in service, nobody else can have them either, and they are asked for again for a while: a slurmctld that lost
its state has to hear of its nodes first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from scheduler import actions as act
from scheduler import names
from scheduler.events import Side
from scheduler.model.hostlist import folded
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import SINGLETON, JobSpec
from scheduler.place.assign import shortfall, tasks_on
from scheduler.place.feasible import slurm_name
from scheduler.rules.identity import look_at, looked
from scheduler.rules.restore_keys import keys_of
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import clock, say
from scheduler.rules.submission import all_known, spec_for
from scheduler.state.own_keys import names_job
from scheduler.state.workload import Placeholder, Workload


def reacquire(workload: Workload, lost: Placeholder, this_pass: Pass) -> bool:
    """Ask for them, or wait for what was asked.  False: that was tried, or cannot be."""
    if workload.hold is not None:
        return True
    if workload.look is not None and not looked(workload, workload.look, this_pass):
        return True
    if workload.reacquired is not None and workload.reacquired[0] == lost.id:
        return False
    members = workload.members
    if not members or any(not workload.node_of(pod) for pod in members) or _is_being_ended(workload, this_pass):
        return False  # it ends, or is yet to be bound as a whole
    if this_pass.free("retake") < 1:  # a translation now would be thrown away
        this_pass.park(workload.key, "retake")
        return True
    if not all_known(workload, members, this_pass):
        return True
    until = lost.lost_since + this_pass.tuning.retake_s
    if this_pass.now < until and _not_in_slurm(workload, this_pass):
        _say_waits(workload, lost, until, this_pass)
        this_pass.wake_at(workload.key, min(until, this_pass.now + 1.0))
        return True
    spec = _spec(workload, this_pass)
    if spec is None:
        return False
    if this_pass.now < workload.wait_until:
        if workload.failures:
            _say_waits(workload, lost, until, this_pass)
        this_pass.wake_at(workload.key, workload.wait_until)
    elif this_pass.take_token("retake"):
        why = f"Slurm has lost job {lost.id}" if not lost.requeued else f"Slurm requeued job {lost.id}"
        asked = act.AllocateNow(workload.key, spec, f"{why}: {spec.required_nodes} is asked for again")
        this_pass.add(asked, workload.key)
    return True


def _is_being_ended(workload: Workload, this_pass: Pass) -> bool:
    """An end of one of its pods is under way, or the watch has not shown it yet."""
    return any(
        isinstance(held.action, act.DeletePod | act.FailByDeadline | act.EvictPod)
        and (held.until is None or this_pass.now < held.until)
        for held in workload.pod_holds.values()
    )


def _not_in_slurm(workload: Workload, this_pass: Pass) -> bool:
    """Slurm does not know the nodes that the pods stand on: they are yet to be registered again."""
    nodes, known = this_pass.world.nodes or {}, this_pass.world.slurm_nodes or {}
    stands = [nodes.get(workload.node_of(pod)) for pod in workload.members]
    return any(node is not None and slurm_name(node) not in known for node in stands)


def _say_waits(workload: Workload, lost: Placeholder, until: float, this_pass: Pass) -> None:
    why, still = "are not in service there", f" until {clock(until, this_pass.now)}"
    if workload.refused is not None:
        why, still = f"could not be asked for: {workload.refused.message.rstrip('.')}", ""
    message = (
        f"Slurm {'requeued' if lost.requeued else 'lost'} job {lost.id} of this pod, and its nodes {why}. "
        f"They are asked for again{still}; the pod runs on meanwhile."
    )
    for pod in workload.members:
        say(this_pass, workload, pod, "", message, essence=("away", str(lost.id)), warning=True, event=names.ABSENCE)


def _spec(workload: Workload, this_pass: Pass) -> JobSpec | None:
    """What they were asked for, on exactly those nodes; None: that cannot be asked for at once."""
    spec = spec_for(workload, this_pass)
    if isinstance(spec, Refusal) or spec.parts:  # Slurm starts heterogeneous jobs from its queue alone (2078)
        return None
    nodes = this_pass.world.nodes or {}
    stands = {workload.node_of(pod) for pod in workload.members}
    if not stands <= nodes.keys():
        return None
    where, several = folded(slurm_name(nodes[name]) for name in stands), len(stands) if spec.tasks > 1 else None
    return replace(
        spec,
        required_nodes=where,
        excluded_nodes="",
        min_nodes=several,
        max_nodes=several,
        begin=None,
        dependency=SINGLETON,  # what it waited for before it started has come
        switches=None,
    )


def check(workload: Workload, job: Placeholder, this_pass: Pass) -> str:
    """Why a job that was asked for in place of a lost one does not hold the nodes of its pods, in words; "": it does."""
    assert job.spec is not None
    assert job.grant is not None
    if missing := shortfall(job.spec, job.grant):
        return f"Slurm granted job {job.id} without {missing}"
    room = {node.name: tasks_on(node, job.spec) for node in job.grant.nodes}
    if (
        not room.keys() <= this_pass.world.by_slurm_name.keys()
    ):  # one is in Kubernetes no more: that proves nothing (V7)
        return ""
    for name, count in Counter(this_pass.world.in_slurm(workload.node_of(pod)) for pod in workload.members).items():
        if count > room.get(name, 0):
            return f"job {job.id} has room for {room.get(name, 0)} of the {count} pods that stand on {name}"
    return ""


def show(workload: Workload, job: Placeholder, this_pass: Pass) -> None:
    """On pods that name another, mostly the lost one: a bridge that starts anew knows them by it (ARCHITECTURE 4)."""
    for pod in workload.members:
        edited = workload.edited.get(pod.uid)
        if edited is not None and names.JOB_ID in edited.right:
            continue  # not the id that the bind wrote: it is put back (own_keys)
        if pod.node and not names_job(pod, job, this_pass.world):
            if job.job is None and not this_pass.world.clocks[Side.SLURM].told:
                look_at(
                    job, workload, this_pass, f"when was job {job.id} submitted?"
                )  # by a clock that nobody knows yet
                return
            if pod.annotations.get(names.JOB_ID) == str(job.id):
                message = f"Slurm lost job {job.id} of this pod; a new job with the same id holds its place."
            else:
                message = (
                    f"Slurm job {job.id} holds the place of this pod; the one that it named does not, or not any more."
                )
            essence = ("retaken", str(job.id), str(job.asked_at))
            shown = keys_of(job, this_pass)
            say(
                this_pass,
                workload,
                pod,
                "",
                message,
                essence=essence,
                warning=True,
                event=names.RETAKEN,
                annotations=shown,
            )
