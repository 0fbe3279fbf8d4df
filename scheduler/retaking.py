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
from scheduler.asking import all_known, spec_for
from scheduler.events import Side
from scheduler.feasible import slurm_name
from scheduler.hostlist import folded
from scheduler.looking import look_at, looked
from scheduler.model import SINGLETON, JobSpec, Refusal
from scheduler.own_keys import keys_of, names_job
from scheduler.placement import shortfall, tasks_on
from scheduler.telling import clock, say
from scheduler.view import View
from scheduler.workload import Placeholder, Workload


def retake(workload: Workload, lost: Placeholder, view: View) -> bool:
    """Ask for them, or wait for what was asked.  False: that was tried, or cannot be."""
    if workload.hold is not None:
        return True
    if workload.look is not None and not looked(workload, workload.look, view):
        return True
    if workload.retaken is not None and workload.retaken[0] == lost.id:
        return False
    members = workload.members
    if not members or any(not workload.node_of(pod) for pod in members) or _is_being_ended(workload, view):
        return False  # it ends, or is yet to be bound as a whole
    if view.free("retake") < 1:  # a translation now would be thrown away
        view.park(workload.key, "retake")
        return True
    if not all_known(workload, members, view):
        return True
    until = lost.lost_since + view.tuning.retake_s
    if view.now < until and _not_in_slurm(workload, view):
        _say_waits(workload, lost, until, view)
        view.wake_at(workload.key, min(until, view.now + 1.0))
        return True
    spec = _spec(workload, view)
    if spec is None:
        return False
    if view.now < workload.wait_until:
        if workload.failures:
            _say_waits(workload, lost, until, view)
        view.wake_at(workload.key, workload.wait_until)
    elif view.ration("retake"):
        why = f"Slurm has lost job {lost.id}" if not lost.requeued else f"Slurm requeued job {lost.id}"
        asked = act.AllocateNow(workload.key, spec, f"{why}: {spec.required_nodes} is asked for again")
        view.add(asked, workload.key)
    return True


def _is_being_ended(workload: Workload, view: View) -> bool:
    """An end of one of its pods is under way, or the watch has not shown it yet."""
    return any(
        isinstance(held.action, act.EvictPod | act.EndByDeadline | act.AskEviction)
        and (held.until is None or view.now < held.until)
        for held in workload.pod_holds.values()
    )


def _not_in_slurm(workload: Workload, view: View) -> bool:
    """Slurm does not know the nodes that the pods stand on: they are yet to be registered again."""
    nodes, known = view.world.nodes or {}, view.world.slurm_nodes or {}
    stands = [nodes.get(workload.node_of(pod)) for pod in workload.members]
    return any(node is not None and slurm_name(node) not in known for node in stands)


def _say_waits(workload: Workload, lost: Placeholder, until: float, view: View) -> None:
    why, still = "are not in service there", f" until {clock(until, view.now)}"
    if workload.refused is not None:
        why, still = f"could not be asked for: {workload.refused.message.rstrip('.')}", ""
    message = (
        f"Slurm {'requeued' if lost.requeued else 'lost'} job {lost.id} of this pod, and its nodes {why}. "
        f"They are asked for again{still}; the pod runs on meanwhile."
    )
    for pod in workload.members:
        say(view, workload, pod, "", message, essence=("away", str(lost.id)), warning=True, event=names.ABSENCE)


def _spec(workload: Workload, view: View) -> JobSpec | None:
    """What they were asked for, on exactly those nodes; None: that cannot be asked for at once."""
    spec = spec_for(workload, view)
    if isinstance(spec, Refusal) or spec.parts:  # Slurm starts heterogeneous jobs from its queue alone (2078)
        return None
    nodes = view.world.nodes or {}
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


def check(workload: Workload, job: Placeholder, view: View) -> str:
    """Why a job that was asked for in place of a lost one does not hold the nodes of its pods, in words; "": it does."""
    assert job.spec is not None
    assert job.grant is not None
    if missing := shortfall(job.spec, job.grant):
        return f"Slurm granted job {job.id} without {missing}"
    room = {node.name: tasks_on(node, job.spec) for node in job.grant.nodes}
    if not room.keys() <= view.world.by_slurm_name.keys():  # one is in Kubernetes no more: that proves nothing (V7)
        return ""
    for name, count in Counter(view.world.in_slurm(workload.node_of(pod)) for pod in workload.members).items():
        if count > room.get(name, 0):
            return f"job {job.id} has room for {room.get(name, 0)} of the {count} pods that stand on {name}"
    return ""


def show(workload: Workload, job: Placeholder, view: View) -> None:
    """On pods that name another, mostly the lost one: a bridge that starts anew knows them by it (ARCHITECTURE 4)."""
    for pod in workload.members:
        edited = workload.edited.get(pod.uid)
        if edited is not None and names.JOB_ID in edited.right:
            continue  # not the id that the bind wrote: it is put back (own_keys)
        if pod.node and not names_job(pod, job, view.world):
            if job.job is None and not view.world.clocks[Side.SLURM].told:
                look_at(job, workload, view, f"when was job {job.id} submitted?")  # by a clock that nobody knows yet
                return
            if pod.annotations.get(names.JOB_ID) == str(job.id):
                message = f"Slurm lost job {job.id} of this pod; a new job with the same id holds its place."
            else:
                message = (
                    f"Slurm job {job.id} holds the place of this pod; the one that it named does not, or not any more."
                )
            essence = ("retaken", str(job.id), str(job.asked_at))
            shown = keys_of(job, view)
            say(view, workload, pod, "", message, essence=essence, warning=True, event=names.RETAKEN, annotations=shown)
