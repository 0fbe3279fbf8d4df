"""The phases of workloads, and which workloads the next pass visits.

`refresh` is called after a fact of a workload has changed: it derives the phase, updates the indexes, and marks the workload
for a visit.  A workload is also visited when its timer is due, or when its turn in a limit comes (`park`).  A visit costs
more than the update of the indexes.  So after a change on which no rule acts, `update_indexes` is called instead.
"""

from __future__ import annotations

from typing import Any

from scheduler import actions as act
from scheduler.model.amounts import EMPTY
from scheduler.state.backoff import NO_FAILURE, Attempt
from scheduler.state.occupancy import Occupancy
from scheduler.state.phase import WAITING, Phase, phase_and_job
from scheduler.state.placeholder import Placeholder
from scheduler.state.token_buckets import FairQueue
from scheduler.state.workload import Workload

# Reasons of jobs that do not wait for nodes now: Slurm grants immediate allocations although they wait (Slurm facts 8).
NO_CONTENDER = frozenset(
    {"BeginTime", "Dependency", "DependencyNeverSatisfied", "JobHeldUser", "JobHeldAdmin", "Reservation"}
)


class Visits(Occupancy):
    """See the module."""

    def refresh(self, workload: Workload) -> None:
        """Derive the phase of the workload, update the indexes, and mark the workload for a visit."""
        self.dirty[workload.key] = None
        self.update_indexes(workload)

    def update_indexes(self, workload: Workload) -> None:
        """Derive the phase of the workload, and update the indexes."""
        key = workload.key
        now = self._derive_phase(workload)
        _keep(self.searching_workloads, key, workload.job_search is not None)
        if self.quotas.counted:
            self.quotas.count(workload, self.jobs_of(workload))
        _keep(self.waits_for_ports, key, key in self.wants_ports and now in WAITING)
        if now not in WAITING:
            self.waiting_terms.drop(key)
            self.affinity_index.drop_prepared(key)
        elif key in self.affinity_workloads and key not in self.waiting_terms:
            self.waiting_terms.add(key, workload.pods.values())
        self.count_queued(workload)

    def _derive_phase(self, workload: Workload) -> Phase:
        """Derive the phase, and the job on which it depends.  If the phase has changed, update the indexes by phase."""
        key = workload.key
        now, job = phase_and_job(workload, self.placeholders, self.config.tuning.absent_s)
        if job is not None:
            self.job_of[key] = job
        else:
            self.job_of.pop(key, None)
        before = self.phase_of.get(key)
        if now is Phase.GRANTED:
            self.granted_unbound_pods = None
        if before is not now:
            if before is not None:
                self.by_phase[before].pop(key, None)
            self.by_phase[now][key] = None
            self.phase_of[key] = now
            self._phase_changed(workload, before, now)
        return now

    def _phase_changed(self, workload: Workload, before: Phase | None, now: Phase) -> None:
        key = workload.key
        if Phase.GRANTED in (before, now):
            self.grant_changed(workload)
        if now is Phase.BOUND:
            workload.left_out = None
        for index in (self.detail_new, self.detail_round, self.running_new, self.running_round):
            index.pop(key, None)
        learned = max((job.known_since for job in self.jobs_of(workload)), default=float("-inf"))
        if now is Phase.QUEUED:
            self.detail_new[key] = learned + self.config.tuning.detail_fresh_s
        elif self._may_run(workload, now) and workload.hint is not None:
            self.running_new[key] = max(learned, self.started) + self.config.tuning.running_fresh_s

    @staticmethod
    def _may_run(workload: Workload, now: Phase) -> bool:
        """True if pods of the workload may run: it is BOUND, or it is a GRANTED gang, some pods of which may be bound."""
        return now is Phase.BOUND or (now is Phase.GRANTED and workload.group is not None)

    def waits_in(self, workload: Workload) -> str:
        """The partition in which a job of the workload waits for nodes, or is about to wait; "": no job does.

        An immediate allocation beside such a job would be refused because of it.
        """
        now = self.phase_of.get(workload.key)
        if now is Phase.UNSUBMITTED and workload.refused is None:
            submits = workload.in_flight is not None and isinstance(workload.in_flight.action, act.SubmitJob)
            about_to = workload.immediate_refused and not self.is_quarantined(workload.key)
            return workload.asked_in if submits or about_to else ""
        job = self.waiting_job(workload)
        if job is None:
            return ""
        asked = job.job.partition if job.job else (job.spec.partition if job.spec else "")
        return asked or self.default_partition

    def waiting_job(self, workload: Workload) -> Placeholder | None:
        """The job of the workload that waits for nodes; None: there is none, or it does not wait for nodes now."""
        if self.phase_of.get(workload.key) is not Phase.QUEUED:
            return None
        job = self.job_of.get(workload.key)
        if job is None or job.job is None:
            return job
        return None if job.job.is_held or job.job.reason in NO_CONTENDER else job

    def count_queued(self, workload: Workload) -> None:
        """Update the counts of waiting jobs by partition, for this workload."""
        partition = self.waits_in(workload)
        before = self.partition_of.pop(workload.key, "")
        if before:
            self.queued_in[before] -= 1
        if partition:
            self.queued_in[partition] += 1
            self.partition_of[workload.key] = partition
        if (job := self.waiting_job(workload)) is not None:
            self.waiting_order.put(workload.key, partition, job.job.priority if job.job is not None else None, job.id)
        else:
            self.waiting_order.drop(workload.key)

    def due(self, now: float) -> tuple[list[str], float | None]:
        """The keys of the due timers, and the time of the next timer (None: there is none).

        Only the due part of the heap is read.
        """
        keys: list[str] = []
        next_at: float | None = None
        todo = [0]
        while todo:
            place = todo.pop()
            if place >= len(self.timers):
                continue
            at, key = self.timers[place]
            if at <= now:
                keys.append(key)
                todo += (2 * place + 2, 2 * place + 1)
            elif next_at is None or at < next_at:
                next_at = at
        return keys, next_at

    def park(self, key: str, limit: str) -> None:
        """Let the workload wait for its turn in the limit."""
        if (workload := self.workloads.get(key)) is not None:
            self.parked.setdefault(limit, FairQueue()).put(key, workload.namespace)
            self.parked_in.setdefault(key, set()).add(limit)

    def unpark(self, key: str, limit: str = "") -> None:
        """Let the workload not wait in the limit any more; "": in no limit."""
        waits_in = self.parked_in.get(key, set())
        for name in [limit] if limit else list(waits_in):
            waits_in.discard(name)
            self.parked[name].pop(key)
        if not waits_in:
            self.parked_in.pop(key, None)

    def input_changed(self, workload: Workload) -> None:
        """Note that the user's input of the workload changed: a refused workload may be accepted now (Q4)."""
        self.clear_refusal(workload)
        workload.retry_at = float("-inf")
        for asked in (*self.jobs_of(workload), workload.in_flight):
            if asked is not None:
                asked.components = EMPTY
        for job in self.jobs_of(workload):
            job.retry_changes()
        self.count_queued(workload)

    def clear_refusal(self, workload: Workload) -> None:
        """Forget that Slurm refused the workload, and that limits of its user hold it back."""
        workload.refused = None
        take_out(self.limited, workload.key)

    def back_off(
        self, workload: Workload, at: float, began: float = float("inf"), attempt: Attempt | None = None
    ) -> None:
        """Double the wait before the next attempt.

        began    when the failed call was sent: calls that were sent together count as one attempt
        attempt  only the next attempt of this kind waits; None: all attempts that have no kind
        """
        if attempt is not None:
            before = workload.backoffs.get(attempt, NO_FAILURE)
            workload.backoffs[attempt] = before.after(at, began, self.config.tuning)
        else:
            workload.backoff = workload.backoff.after(at, began, self.config.tuning)

    def drop_facts(self, workload: Workload) -> None:
        """Replace the workload that has the key of *workload* by *workload*, which has no pods: its phase is DONE."""
        key = workload.key
        self.workloads[key] = workload
        self.take_out_of_indexes(key)
        self.by_phase[Phase.DONE][key] = None
        self.phase_of[key] = Phase.DONE
        _keep(self.searching_workloads, key, workload.job_search is not None)
        self.dirty[key] = None

    def take_out_of_indexes(self, key: str) -> None:
        """Take a workload out of each index of workloads."""
        self.phase_of.pop(key, None)
        self.job_of.pop(key, None)
        if queued := self.partition_of.pop(key, ""):
            self.queued_in[queued] -= 1
        self.waiting_order.drop(key)
        for index in (self.detail_new, self.detail_round, self.running_new, self.running_round):
            index.pop(key, None)
        for marks in (*self.by_phase.values(), self.searching_workloads, self.waits_for_ports):
            marks.pop(key, None)
        self.wants_ports.discard(key)
        self.affinity_workloads.discard(key)
        self.waiting_terms.drop(key)
        self.affinity_index.drop_prepared(key)
        self._forget_granted(key)


def take_out(index: dict[Any, dict[str, None]], key: str) -> None:
    """Take the workload out of each set of the index, and remove sets that are empty then."""
    for name, keys in list(index.items()):
        keys.pop(key, None)
        if not keys:
            del index[name]


def _keep(index: dict[str, None], key: str, belongs: bool) -> None:
    if belongs:
        index[key] = None
    else:
        index.pop(key, None)
