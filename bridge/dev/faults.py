"""The faults that a user of `slurm-bridge dev` can inject, as a table.

To add a fault, add an entry to FAULTS.  A fault changes the session and returns a sentence about its effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol

from bridge.dev.backends import KubeBackend, SlurmBackend
from bridge.errors import RemoteError, said
from bridge.simulation.fault_injection import Cable, Outage
from bridge.simulation.invariants.checks import Invariants
from bridge.simulation.slurm.cluster import SlurmCluster

ON_SLURM = "Only in a simulated Slurm: `slurm-bridge dev` does not break a real one."
ON_KUBERNETES = "Only in a simulated Kubernetes: `slurm-bridge dev` does not break a real one."


class Session(Protocol):
    """The interface of the session that faults use (session.py)."""

    kube: KubeBackend
    slurm: SlurmBackend
    clock: Callable[[], float]
    rng: Random
    cable: Cable
    outage: Outage
    invariants: Invariants

    async def cancel_job(self, job_id: int) -> None: ...

    def kill_bridge(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Fault:
    """One button.

    label      of the button
    does       the effect of the fault, for the tooltip
    act        injects the fault, and returns a sentence about its effect
    on         for a lasting fault: returns True while the fault lasts
    needs      "slurm" or "kubernetes": that cluster must be simulated
    """

    label: str
    does: str
    act: Callable[[Session], Awaitable[str]]
    on: Callable[[Session], bool] | None = None
    needs: str = ""

    def unavailable(self, session: Session) -> str:
        """Why the fault cannot be injected here; "": it can be."""
        if self.needs == "slurm" and session.slurm.simulated is None:
            return ON_SLURM
        if self.needs == "kubernetes" and session.kube.simulated is None:
            return ON_KUBERNETES
        return ""


def _simulated(session: Session) -> SlurmCluster:
    assert session.slurm.simulated is not None, "the button is disabled"
    return session.slurm.simulated


async def _slurmrestd(session: Session) -> str:
    session.cable.cut = not session.cable.cut
    return "slurmrestd is down." if session.cable.cut else "slurmrestd is up again."


async def _slurmctld(session: Session) -> str:
    slurm = _simulated(session)
    slurm.controller_up = not slurm.controller_up
    return "slurmctld is up again." if slurm.controller_up else "slurmctld is down; slurmrestd reports that."


async def _slurmdbd(session: Session) -> str:
    slurm = _simulated(session)
    slurm.accounting_up = not slurm.accounting_up
    return "slurmdbd is up again." if slurm.accounting_up else "slurmdbd is down; slurmctld works without it."


async def _stall(session: Session) -> str:
    session.slurm.ticking = not session.slurm.ticking
    return "slurmctld schedules again." if session.slurm.ticking else "slurmctld answers, and schedules no job."


async def _crash(session: Session) -> str:
    lost = _simulated(session).lose_state(session.clock())
    session.invariants.note_lost(lost)
    if not lost:
        return "slurmctld crashed and came back; it had saved all jobs."
    return f"slurmctld crashed and came back without jobs {', '.join(map(str, lost))}, which it had not saved."


async def _forget(session: Session) -> str:
    lost = _simulated(session).lose_everything(session.clock())
    session.invariants.note_lost(lost)
    return f"slurmctld came back without its state, and lost {len(lost):,} jobs."


async def _lose_answer(session: Session) -> str:
    session.cable.lose_next = True
    return "The next write will take effect, and its answer will be lost."


async def _preempt(session: Session) -> str:
    running = [job.id for job in session.invariants.ours() if job.holds]
    if not running:
        return "No job runs, so none can be preempted."
    job_id = session.rng.choice(sorted(running))
    _simulated(session).preempt(job_id, session.clock())
    return f"Job {job_id} was preempted: Slurm frees its node at once, while its pod still terminates."


async def _cancel(session: Session) -> str:
    live = sorted(job.id for job in session.invariants.ours())
    if not live:
        return "No job exists, so none can be cancelled."
    job_id = session.rng.choice(live)
    try:
        await session.cancel_job(job_id)
    except RemoteError as error:
        return said(error)
    return f"Job {job_id} was cancelled, as scancel does."


async def _hold(session: Session) -> str:
    slurm = _simulated(session)
    if held := [job.id for job in slurm.jobs.values() if job.held]:
        for job_id in held:
            slurm.release(job_id, session.clock())
        return f"Job {', '.join(map(str, held))} is released, as scontrol release does."
    waiting = sorted(job.id for job in session.invariants.ours() if job.state == "PENDING")
    if not waiting:
        return "No job waits, so none can be held."
    job_id = session.rng.choice(waiting)
    slurm.hold(job_id)
    return f"Job {job_id} is held, as by scontrol hold of an admin, until you press the button again."


async def _suspend(session: Session) -> str:
    slurm = _simulated(session)
    if suspended := [job.id for job in slurm.jobs.values() if job.state == "SUSPENDED"]:
        for job_id in suspended:
            slurm.unsuspend(job_id)
        return f"Job {', '.join(map(str, suspended))} runs again."
    running = sorted(job.id for job in session.invariants.ours() if job.state == "RUNNING")
    if not running:
        return "No job runs, so none can be suspended."
    job_id = session.rng.choice(running)
    slurm.suspend(job_id)
    return f"Job {job_id} is suspended, as by an admin, until you press the button again; its pod runs on."


async def _shorten(session: Session) -> str:
    running = sorted(job.id for job in session.invariants.ours() if job.state == "RUNNING")
    if not running:
        return "No job runs, so no time limit can be changed."
    job = _simulated(session).jobs[session.rng.choice(running)]
    job.time_limit_min = max(1, int(session.clock() - job.starts) // 60 + 2)
    job.ends = job.starts + job.time_limit_min * 60
    return f"The time limit of job {job.id} is {job.time_limit_min} minutes now; its user changed it."


async def _drain(session: Session) -> str:
    slurm = _simulated(session)
    if drained := [name for name, node in slurm.nodes.items() if node.drained]:
        for name in drained:
            slurm.resume(name, session.clock())
        return f"{', '.join(drained)} is back in service."
    name = session.rng.choice(sorted(slurm.nodes))
    slurm.drain(name, "an injected fault")
    return f"{name} is drained: its jobs run on, and no new job starts there."


async def _apiserver(session: Session) -> str:
    if session.outage.lasts:
        session.outage.end()
        return "The API server is back."
    session.outage.begin()
    return "The API server is down: it gets no request of the bridge, and all watches of the bridge ended."


async def _silence(session: Session) -> str:
    assert session.kube.simulated is not None, "the button is disabled"
    actors = session.kube.simulated.cluster.actors
    if silent := sorted(actors.silent):
        for name in silent:
            actors.start_kubelet(session.clock(), name)
        session.kube.simulated.wake()
        return f"The kubelet of {', '.join(silent)} is back."
    name = session.rng.choice([node["metadata"]["name"] for node in session.kube.simulated.cluster.store.all("nodes")])
    actors.stop_kubelet(session.clock(), name)
    return f"The kubelet of {name} reports nothing: pods there run on, and no pod starts or ends there."


async def _expire(session: Session) -> str:
    assert session.kube.simulated is not None, "the button is disabled"
    session.kube.simulated.cluster.compact()
    session.kube.simulated.wake()
    return "The API server has dropped its history: each watch has to list again."


async def _restart(session: Session) -> str:
    session.kill_bridge()
    return f"The bridge was killed; process {session.invariants.process + 1} starts, and knows only the two clusters."


def _drained(session: Session) -> bool:
    slurm = session.slurm.simulated
    return slurm is not None and any(node.drained for node in slurm.nodes.values())


FAULTS: Mapping[str, Fault] = {
    "slurmrestd-down": Fault(
        "slurmrestd down",
        "No request of the bridge reaches slurmrestd, until you press again.",
        _slurmrestd,
        on=lambda session: session.cable.cut,
    ),
    "slurmctld-down": Fault(
        "slurmctld down",
        "slurmrestd answers that it cannot reach slurmctld, until you press again.",
        _slurmctld,
        on=lambda session: session.slurm.simulated is not None and not session.slurm.simulated.controller_up,
        needs="slurm",
    ),
    "slurmdbd-down": Fault(
        "slurmdbd down",
        "Accounting does not answer, and slurmrestd shows no partitions, until you press again; slurmctld works.",
        _slurmdbd,
        on=lambda session: session.slurm.simulated is not None and not session.slurm.simulated.accounting_up,
        needs="slurm",
    ),
    "slurmctld-stall": Fault(
        "slurmctld stalls",
        "slurmctld answers, and schedules no job, until you press again.",
        _stall,
        on=lambda session: not session.slurm.ticking,
        needs="slurm",
    ),
    "slurmctld-crash": Fault(
        "slurmctld crashes",
        "slurmctld loses the jobs that it had not saved, up to five seconds of jobs, and reuses their ids.",
        _crash,
        needs="slurm",
    ),
    "slurmctld-forgets": Fault(
        "slurmctld forgets",
        "slurmctld comes back without its state: it knows no job, and begins with the first id again.",
        _forget,
        needs="slurm",
    ),
    "lose-answer": Fault(
        "lose an answer",
        "The next write to Slurm takes effect, and the bridge gets no answer.",
        _lose_answer,
        on=lambda session: session.cable.lose_next,
    ),
    "apiserver-down": Fault(
        "API server down",
        "No request of the bridge reaches the API server, until you press again; kubelets and controllers work.",
        _apiserver,
        on=lambda session: session.outage.lasts,
        needs="kubernetes",
    ),
    "silent-kubelet": Fault(
        "silent kubelet",
        "A node is cut off, until you press again: its pods neither start nor end, and it is NotReady after 40 s.",
        _silence,
        on=lambda session: session.kube.simulated is not None and bool(session.kube.simulated.cluster.actors.silent),
        needs="kubernetes",
    ),
    "expire-watches": Fault(
        "expire watches",
        "The API server drops its history: watches end, and all objects are listed again.",
        _expire,
        needs="kubernetes",
    ),
    "preempt-job": Fault(
        "preempt a job",
        "A running job is preempted: Slurm frees its node at once, while its pod still terminates.",
        _preempt,
        needs="slurm",
    ),
    "cancel-job": Fault("cancel a job", "The user of a job cancels it, as by scancel.", _cancel),
    "hold-job": Fault(
        "hold a job",
        "An admin holds a waiting job.  If you press again, the admin releases it.",
        _hold,
        needs="slurm",
    ),
    "suspend-job": Fault(
        "suspend a job",
        "An admin suspends a running job. If you press again, the admin resumes it. Its pod runs all the time.",
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
        "The jobs of a node run on, and no new job starts there, until you press again.",
        _drain,
        on=_drained,
        needs="slurm",
    ),
    "restart-bridge": Fault(
        "kill the bridge",
        "The bridge is killed at any instant; the next process knows only the two clusters.",
        _restart,
    ),
}
