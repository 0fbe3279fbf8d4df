"""The headless run of `slurm-bridge dev`, which writes a log or one JSON object.

The run creates pods, and waits until each pod was bound and has ended.  Then it creates a ReplicaSet and cancels one of its
jobs in Slurm: the pod of that job ends and is recreated.  If a step takes too long, the run ends with an error that names the
missing pods and their conditions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any

from bridge.dev.load import SHORT_S, Kind, Load
from bridge.dev.session import Session
from bridge.dev.workload_client import PodHistory, WorkloadClient
from scheduler import names
from scheduler.model.hostlist import fold

LOOK_EVERY_S = 0.02
PAUSE_S = 0.05
OUTLIVED_S = 5.0  # the run deletes a pod that has not ended this long after its time, as pods without real containers


class StalledError(Exception):
    """A step of the run took too long; str() names the step."""


@dataclass(slots=True)
class Run:
    """One headless run.

    say         called with each line of the log
    give_up_s   the longest time of a step
    """

    session: Session
    workload_client: WorkloadClient
    load: Load
    pods: int
    say: Callable[[str, str], None]
    give_up_s: float
    mine: dict[str, int] = field(default_factory=dict)  # uid of each pod to the seconds that it runs
    _shown: dict[str, str] = field(default_factory=dict)
    _overdue: set[str] = field(default_factory=set)

    async def go(self, services: Sequence[Kind]) -> None:
        """Perform the run.  Raises StalledError, RemoteError."""
        self.workload_client.on_change = self._report_pod
        await self._until("the bridge to be ready", lambda: self.session.world is not None and self.session.world.ready)
        self.say("", f"{self.pods} pods")
        for made in range(self.pods):
            pod, seconds = self.load.next_pod(runs_s=SHORT_S, most=self.pods - made)
            self.mine[await self.workload_client.create("pods", pod)] = seconds
            self._report_jobs()
            await asyncio.sleep(PAUSE_S)
        await self._until("every pod to have been bound and ended", self._all_ended)
        for kind in services[:1]:
            await self._service(kind)
        await self._until("no job to be left", self._nothing_left)

    async def _service(self, kind: Kind) -> None:
        """Create a ReplicaSet and cancel one of its jobs in Slurm; the pod ends, and is recreated."""
        self.say("", "a ReplicaSet; one of its jobs is cancelled in Slurm, the pod of that job ends and is recreated")
        await self.workload_client.create("replicasets", self.load.service(kind))
        first = await self._until(f"{kind.weight} pods of {kind.name} to run", lambda: self._running(kind))
        job = next(iter(first.values()))
        await self.session.cancel_job(job)
        await self._until(
            f"another pod of {kind.name} to run", lambda: job not in (now := self._running(kind)).values() and now
        )
        self.say("", "the ReplicaSet is deleted; its pods end, and so do their jobs")
        await self.workload_client.delete("replicasets", kind.name)
        await self._until("its pods to be gone", lambda: all(history.gone for history in self._of(kind)))

    def _of(self, kind: Kind) -> list[PodHistory]:
        return [
            history
            for uid, history in self.workload_client.histories.items()
            if history.name.startswith(kind.name) and uid not in self.mine
        ]

    def _running(self, kind: Kind) -> dict[str, int]:
        """Pod name to job id, if as many pods run as the ReplicaSet wants; otherwise empty."""
        running = {
            history.name: history.job for history in self._of(kind) if history.phase == "Running" and not history.gone
        }
        found = {name: job for name, job in running.items() if job is not None}
        return found if len(found) == kind.weight else {}

    def _all_ended(self) -> bool:
        return all(self._check_ended(uid) for uid in self.mine)

    def _check_ended(self, uid: str) -> bool:
        history = self.workload_client.histories[uid]
        late = history.bound is not None and self.session.clock() > history.bound + self.mine[uid] + OUTLIVED_S
        if late and history.ended is None and uid not in self._overdue:
            self._overdue.add(uid)
        return history.ended is not None

    def _nothing_left(self) -> bool:
        return not self.session.invariants.ours()

    async def _until(self, condition: str, ask: Callable[[], Any]) -> Any:
        """Wait until *ask* returns something, and return that.  condition: for the error.  Raises StalledError."""
        try:
            async with asyncio.timeout(self.give_up_s):
                while not (answer := ask()):
                    self._report_jobs()
                    await self._end_overdue()
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError:
            raise StalledError(f"waited {self.give_up_s:.0f} s for {condition}{self._lacking()}.") from None
        return answer

    async def _end_overdue(self) -> None:
        while self._overdue:
            await self.workload_client.delete("pods", self.workload_client.histories[self._overdue.pop()].name)
            return

    def _lacking(self) -> str:
        """The pods that are not bound or have not ended, the jobs left, and the reasons, as the end of a sentence."""
        histories = [self.workload_client.histories[uid] for uid in self.mine]
        unbound = [
            f"{history.name} is not bound ({history.says or 'it shows no reason'})"
            for history in histories
            if not history.bound
        ]
        running = [
            f"{history.name} has not ended ({history.phase})"
            for history in histories
            if history.bound and not history.ended
        ]
        left = [f"job {job.id} is {job.state}" for job in self.session.invariants.ours()]
        reasons = [*unbound, *running, *left]
        world = self.session.world
        reasons += [outage.why for outage in world.outages.values()] if world else ["the bridge has not started"]
        reasons += [f"the bridge waits for {missing}" for missing in world.missing] if world else []
        more = f"; and {len(reasons) - 5:,} more" if len(reasons) > 5 else ""
        return f": {'; '.join(reason.rstrip('.') for reason in reasons[:5])}{more}" if reasons else ""

    # --- reports ------------------------------------------------------------------------------------------

    def _report_pod(self, history: PodHistory) -> None:
        if history.gone:
            line = "gone"
        elif history.node:
            doing = "bound to" if history.phase == "Pending" else f"{history.phase} on"
            line = f"{doing} {history.node}, Slurm job {history.job}"
        else:
            line = history.says or "created"
        self._say_once(f"pod {history.name}", line)

    def _report_jobs(self) -> None:
        for job in self.session.slurm.observations.jobs():
            if self.session.invariants.is_ours(job):
                where = f" on {fold(job.nodes)}" if job.nodes and not job.ended else ""
                self._say_once(f"job {job.id}", f"{job.state}{where}  ({job.user}, {job.name.partition('~')[0]})")

    def _say_once(self, subject: str, line: str) -> None:
        if self._shown.get(subject) != line:
            self._shown[subject] = line
            self.say(subject, line)

    def result(self) -> dict[str, Any]:
        """The result of the run for the JSON output; times in milliseconds."""
        histories = {uid: self.workload_client.histories[uid] for uid in self.mine}
        took = {
            uid: (history.bound - history.created) * 1000
            for uid, history in histories.items()
            if history.bound and history.created
        }
        at_once = [ms for uid, ms in took.items() if names.workload_key(uid) in self.session.at_once]
        return {
            "pods": self.pods,
            "bound": len(took),
            "ended": sum(history.ended is not None for history in histories.values()),
            "failed": sum(history.phase == "Failed" and not history.gone for history in histories.values())
            + self.pods
            - len(took),
            "violations": len(self.session.violations),
            "broken": [str(violation) for violation in self.session.violations],
            "checked": dict(sorted(self.session.invariants.checked.items())),
            "create_to_bind_ms": {"at_once": percentiles(at_once), "all": percentiles(list(took.values()))},
        }


def exit_code(result: Mapping[str, Any]) -> int:
    """0 if every pod was bound and ended, and every invariant held; otherwise 1."""
    return 1 if result.get("stalled") or result["failed"] or result["violations"] else 0


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """The number of values, their percentiles and maximum; only the number if there are no values."""
    if not values:
        return {"n": 0}
    cut = quantiles(values, n=100, method="inclusive") if len(values) > 1 else list(values) * 99
    named = {"p50": cut[49], "p90": cut[89], "p99": cut[98], "max": max(values)}
    return {"n": len(values)} | {name: round(value, 1) for name, value in named.items()}
