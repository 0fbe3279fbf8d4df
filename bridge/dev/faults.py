"""The faults that can be made, as a table: what each does, and where it cannot be made, why.

To add a fault is to add a line.  Each acts on the stage and says in a sentence what it did.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.dev.slurm_cluster import SlurmCluster
from bridge.errors import FarSideError, said

if TYPE_CHECKING:
    from bridge.dev.stage import Stage

ON_SLURM = "Only in a simulated Slurm: a real one is not ours to break."
ON_KUBERNETES = "Only in a simulated Kubernetes: a real one is not ours to break."


@dataclass(frozen=True, slots=True)
class Fault:
    """One button.

    label      of the button
    does       what happens, for the tooltip
    act        makes it, and says what was done
    on         of one that lasts: whether it does now
    needs      "slurm" or "kubernetes": that end must be simulated
    """

    label: str
    does: str
    act: Callable[[Stage], Awaitable[str]]
    on: Callable[[Stage], bool] | None = None
    needs: str = ""

    def unavailable(self, stage: Stage) -> str:
        """Why it cannot be made here; "" it can."""
        if self.needs == "slurm" and stage.slurm.simulated is None:
            return ON_SLURM
        if self.needs == "kubernetes" and stage.kube.simulated is None:
            return ON_KUBERNETES
        return ""


def _simulated(stage: Stage) -> SlurmCluster:
    assert stage.slurm.simulated is not None, "the button is disabled"
    return stage.slurm.simulated


async def _slurmrestd(stage: Stage) -> str:
    stage.cable.cut = not stage.cable.cut
    return "slurmrestd is down." if stage.cable.cut else "slurmrestd is up again."


async def _slurmctld(stage: Stage) -> str:
    slurm = _simulated(stage)
    slurm.controller_up = not slurm.controller_up
    return "slurmctld is up again." if slurm.controller_up else "slurmctld is down; slurmrestd says so."


async def _slurmdbd(stage: Stage) -> str:
    slurm = _simulated(stage)
    slurm.accounting_up = not slurm.accounting_up
    return "slurmdbd is up again." if slurm.accounting_up else "slurmdbd is down; slurmctld goes on without it."


async def _stall(stage: Stage) -> str:
    stage.slurm.ticking = not stage.slurm.ticking
    return "slurmctld schedules again." if stage.slurm.ticking else "slurmctld answers, and schedules nothing."


async def _crash(stage: Stage) -> str:
    lost = _simulated(stage).lose_state(stage.clock())
    stage.promises.lost_at = stage.clock()
    if not lost:
        return "slurmctld crashed and came back; it had saved everything."
    return f"slurmctld crashed and came back without jobs {', '.join(map(str, lost))}: it had not saved them."


async def _forget(stage: Stage) -> str:
    lost = _simulated(stage).lose_everything(stage.clock())
    stage.promises.lost_at = stage.clock()
    return f"slurmctld came back without its state: {len(lost)} jobs are unknown to it."


async def _lose_answer(stage: Stage) -> str:
    stage.cable.lose_next = True
    return "The answer to the next write will be lost, though it takes effect."


async def _preempt(stage: Stage) -> str:
    running = [job.id for job in stage.promises.ours() if job.holds]
    if not running:
        return "No job runs that could be preempted."
    job_id = stage.chance.choice(sorted(running))
    _simulated(stage).preempt(job_id, stage.clock())
    return f"Job {job_id} was preempted: its node is free at once, its pod has still to go."


async def _cancel(stage: Stage) -> str:
    live = sorted(job.id for job in stage.promises.ours())
    if not live:
        return "There is no job that could be cancelled."
    job_id = stage.chance.choice(live)
    try:
        await stage.cancel_job(job_id)
    except FarSideError as error:
        return said(error)
    return f"Job {job_id} was cancelled, as scancel does."


async def _hold(stage: Stage) -> str:
    slurm = _simulated(stage)
    if held := [job.id for job in slurm.jobs.values() if job.held]:
        for job_id in held:
            slurm.release(job_id, stage.clock())
        return f"Job {', '.join(map(str, held))} is released, as scontrol release does."
    waiting = sorted(job.id for job in stage.promises.ours() if job.state == "PENDING")
    if not waiting:
        return "No job waits that could be held."
    job_id = stage.chance.choice(waiting)
    slurm.hold(job_id)
    return f"Job {job_id} is held by an admin, as scontrol hold does, until pressed again."


async def _suspend(stage: Stage) -> str:
    slurm = _simulated(stage)
    if suspended := [job.id for job in slurm.jobs.values() if job.state == "SUSPENDED"]:
        for job_id in suspended:
            slurm.unsuspend(job_id)
        return f"Job {', '.join(map(str, suspended))} runs again."
    running = sorted(job.id for job in stage.promises.ours() if job.state == "RUNNING")
    if not running:
        return "No job runs that could be suspended."
    job_id = stage.chance.choice(running)
    slurm.suspend(job_id)
    return f"Job {job_id} is suspended by an admin, until pressed again; its pod runs on."


async def _shorten(stage: Stage) -> str:
    running = sorted(job.id for job in stage.promises.ours() if job.state == "RUNNING")
    if not running:
        return "No job runs whose time limit could be changed."
    job = _simulated(stage).jobs[stage.chance.choice(running)]
    job.time_limit_min = max(1, int(stage.clock() - job.starts) // 60 + 2)
    job.ends = job.starts + job.time_limit_min * 60
    return f"The time limit of job {job.id} is {job.time_limit_min} minutes now, as its user says."


async def _drain(stage: Stage) -> str:
    slurm = _simulated(stage)
    if drained := [name for name, node in slurm.nodes.items() if node.drained]:
        for name in drained:
            slurm.resume(name, stage.clock())
        return f"{', '.join(drained)} is back in service."
    name = stage.chance.choice(sorted(slurm.nodes))
    slurm.drain(name, "a fault that you made")
    return f"{name} is drained: jobs there run on, no new one starts."


async def _apiserver(stage: Stage) -> str:
    if stage.outage.lasts:
        stage.outage.end()
        return "The API server is back."
    stage.outage.begin()
    return "The API server is away: requests of the bridge do not reach it, and its watches broke off."


async def _silence(stage: Stage) -> str:
    assert stage.kube.simulated is not None, "the button is disabled"
    actors = stage.kube.simulated.cluster.actors
    if silent := sorted(actors.silent):
        for name in silent:
            actors.start_kubelet(stage.clock(), name)
        stage.kube.simulated.wake()
        return f"The kubelet of {', '.join(silent)} is back."
    name = stage.chance.choice([node["metadata"]["name"] for node in stage.kube.simulated.cluster.store.all("nodes")])
    actors.stop_kubelet(stage.clock(), name)
    return f"The kubelet of {name} says nothing: what runs there runs on, nothing starts or ends."


async def _expire(stage: Stage) -> str:
    assert stage.kube.simulated is not None, "the button is disabled"
    stage.kube.simulated.cluster.compact()
    stage.kube.simulated.wake()
    return "The API server has forgotten its history: every watch has to list anew."


async def _restart(stage: Stage) -> str:
    stage.kill_bridge()
    return f"The bridge was killed; life {stage.promises.life + 1} begins with nothing but the two clusters."


def _drained(stage: Stage) -> bool:
    slurm = stage.slurm.simulated
    return slurm is not None and any(node.drained for node in slurm.nodes.values())


FAULTS: Mapping[str, Fault] = {
    "slurmrestd-down": Fault(
        "slurmrestd down",
        "Nothing of the bridge reaches slurmrestd, until pressed again.",
        _slurmrestd,
        on=lambda stage: stage.cable.cut,
    ),
    "slurmctld-down": Fault(
        "slurmctld down",
        "slurmrestd answers that it cannot reach slurmctld, until pressed again.",
        _slurmctld,
        on=lambda stage: stage.slurm.simulated is not None and not stage.slurm.simulated.controller_up,
        needs="slurm",
    ),
    "slurmdbd-down": Fault(
        "slurmdbd down",
        "Accounting does not answer, and slurmrestd tells no partitions, until pressed again; slurmctld goes on.",
        _slurmdbd,
        on=lambda stage: stage.slurm.simulated is not None and not stage.slurm.simulated.accounting_up,
        needs="slurm",
    ),
    "slurmctld-stall": Fault(
        "slurmctld stalls",
        "It answers, and schedules nothing, until pressed again.",
        _stall,
        on=lambda stage: not stage.slurm.ticking,
        needs="slurm",
    ),
    "slurmctld-crash": Fault(
        "slurmctld crashes",
        "It loses what it had not saved, up to five seconds of jobs, and gives those ids out again.",
        _crash,
        needs="slurm",
    ),
    "slurmctld-forgets": Fault(
        "slurmctld forgets",
        "It comes back without its state: it knows no job at all, and begins with the first id again.",
        _forget,
        needs="slurm",
    ),
    "lose-answer": Fault(
        "lose an answer",
        "The next write to Slurm takes effect, and the bridge is not told.",
        _lose_answer,
        on=lambda stage: stage.cable.lose_next,
    ),
    "apiserver-down": Fault(
        "API server down",
        "Nothing of the bridge reaches the API server, until pressed again; kubelets and controllers go on.",
        _apiserver,
        on=lambda stage: stage.outage.lasts,
        needs="kubernetes",
    ),
    "silent-kubelet": Fault(
        "silent kubelet",
        "A node is cut off, until pressed again: its pods neither start nor end, and it is NotReady after 40 s.",
        _silence,
        on=lambda stage: stage.kube.simulated is not None and bool(stage.kube.simulated.cluster.actors.silent),
        needs="kubernetes",
    ),
    "expire-watches": Fault(
        "expire watches",
        "The API server forgets its history: watches end, and everything is listed anew.",
        _expire,
        needs="kubernetes",
    ),
    "preempt-job": Fault(
        "preempt a job",
        "A running job gives way: its node is free at once, its pod has still to go.",
        _preempt,
        needs="slurm",
    ),
    "cancel-job": Fault("cancel a job", "As its user does with scancel.", _cancel),
    "hold-job": Fault(
        "hold a job",
        "An admin holds a waiting job, or, pressed again, releases it.",
        _hold,
        needs="slurm",
    ),
    "suspend-job": Fault(
        "suspend a job",
        "An admin suspends a running job, or, pressed again, lets it run on. Its pod runs all the time.",
        _suspend,
        needs="slurm",
    ),
    "shorten-job": Fault(
        "shorten a job",
        "The user of a running job gives it a shorter time limit.",
        _shorten,
        needs="slurm",
    ),
    "drain-node": Fault(
        "drain a node",
        "Jobs there run on, none starts, until pressed again.",
        _drain,
        on=_drained,
        needs="slurm",
    ),
    "restart-bridge": Fault(
        "kill the bridge",
        "At whatever it is doing; the next life starts from the two clusters.",
        _restart,
    ),
}
