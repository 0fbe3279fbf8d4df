"""Pods that stand on a node which Slurm gives away, and for which Slurm granted nothing (N10, V7).

Kubernetes lets whoever may create pods name a node (spec.nodeName), or another scheduler and a toleration of our taint.  What
such a pod takes is known to placement, as that of any pod; Slurm knows nothing of it.  In a namespace that is managed it is
told so, counted, and ended if the settings say so.

Nothing is said or done on a doubt.  Another copy of the bridge may have bound the pod, and a job of it may be there that
nobody has read: so what is said waits until every job that Slurm listed since then was read, and until nothing of an
earlier life can be on its way.  Static pods and pods of system namespaces belong to their nodes.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler import actions as act
from scheduler import names
from scheduler.asking import is_managed
from scheduler.ending import end_pod, goes_until
from scheduler.events import Side
from scheduler.looking import looked, scan_until
from scheduler.model import JobSpec, Pod
from scheduler.running import may_act
from scheduler.strays import stands_on_shared
from scheduler.telling import say
from scheduler.view import View
from scheduler.workload import Placeholder, Workload

LOOK_AGAIN_S = 1.0
END = "end"  # of the setting `bypass`


def without_a_job(workload: Workload, view: View) -> None:
    """No job of Slurm is known for these bound pods."""
    if (workload.bound_here and not workload.stands_for_none) or workload.renamed is not None:
        return
    if workload.look is not None and not looked(workload, workload.look, view):
        return
    _tell(workload, _those_that_count(workload, workload.unfinished, view), view)


def beside_its_job(workload: Workload, job: Placeholder, view: View) -> None:
    """More pods stand for one job than it was asked for: those that no bind of the bridge brought there are too many."""
    if not any(uid in workload.strays for uid in workload.pods) or job.spec is None:
        return
    too_many = len([pod for pod in workload.unfinished if workload.node_of(pod)]) - _tasks(job.spec)
    if too_many > 0:
        uninvited = sorted(workload.strays.items(), key=lambda each: each[1])[-too_many:]
        pods = [workload.pods[uid] for uid, _ in uninvited if uid in workload.pods]
        _tell(workload, _those_that_count(workload, pods, view), view)


def _tasks(spec: JobSpec) -> int:
    return sum(each.tasks for each in (spec, *spec.parts))


def _those_that_count(workload: Workload, pods: Iterable[Pod], view: View) -> list[Pod]:
    standing = (pod for pod in pods if pod.node and pod.uid in workload.strays)
    staying = (pod for pod in standing if goes_until(workload, pod, view) <= view.now)
    return [pod for pod in staying if stands_on_shared(view.world, pod) and is_managed(pod, view.world)]


def _tell(workload: Workload, pods: list[Pod], view: View) -> None:
    if not pods or not _proven(workload, pods, view):
        return
    ends = view.world.config.bypass == END
    for pod in pods:
        why = f"The pod stands on node {pod.node}, which Slurm gives away, and no Slurm job holds its place"
        how = (
            f"scheduler {pod.scheduler_name} brought it there"
            if workload.others
            else "slurm-bridge did not bring it there"
        )
        then = "It is ended (settings: bypass)." if ends else "Slurm may give that place to others."
        message = f"{why}: {how}. {then} Give it schedulerName {view.world.config.scheduler_name} and no nodeName."
        say(view, workload, pod, "", message, essence=("bypass", pod.node), warning=True, event=names.BYPASS)
        if ends and may_act(workload, pod, view):
            end_pod(workload, pod, f"{why}: {how}", view)


def _proven(workload: Workload, pods: Iterable[Pod], view: View) -> bool:
    """Every job that Slurm listed long enough after they came was read, and none is theirs."""
    world = view.world
    settled = max(workload.strays[pod.uid] for pod in pods) + view.tuning.settle_s
    at = max(settled, world.quiet_until(), scan_until(workload, view))
    if view.now < at:
        view.wake_at(workload.key, at)
        return False
    polled = world.polled is not None and world.polled.began >= settled and Side.SLURM not in world.lost
    may_be_theirs = any(world.seen_first.get(each, settled) <= settled for each in (*world.unread, *world.unreadable))
    if not polled or may_be_theirs or not _of_no_other_bridge(workload, view):
        view.wake_at(workload.key, view.now + LOOK_AGAIN_S)
        return False
    return True


def _of_no_other_bridge(workload: Workload, view: View) -> bool:
    """A pod of another scheduler that names a job: that scheduler may be another bridge, which made the job for it."""
    shown = workload.pod.annotations.get(names.JOB_ID, "") if workload.others else ""
    if not (shown.isascii() and shown.isdecimal() and len(shown) <= 10) or workload.covered is False:
        return True
    if workload.covered is None and view.now >= workload.wait_until and not view.being_read(int(shown)):
        why = f"is job {shown} the placeholder of {workload.readable}?"
        view.add(act.ReadJob(int(shown), why, workload.key, grant=False), workload.key)
    return False
