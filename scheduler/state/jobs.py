"""Slurm jobs in the World: their states, their absence, and the ids that are to be read.

A job that the last list lacks is absent.  It counts as lost only after a second list and a read lack it, too
(ARCHITECTURE 6).
"""

from __future__ import annotations

import bisect

from scheduler import names
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import ENDED, States, holds_nodes, is_ended
from scheduler.model.text import span
from scheduler.state.backoff import NO_FAILURE
from scheduler.state.phase import Phase, chosen
from scheduler.state.placeholder import MAX_BIND_FAILURES, Placeholder
from scheduler.state.visits import Visits, take_out
from scheduler.state.workload import Workload

RELEASED_AT_ONCE = 3  # after up to so many failures in a row, a workload is submitted for other nodes without backoff
MAX_UNREADABLE = 6  # failed reads of a job, over a minute; after that the job is read every UNREADABLE_EVERY_S
UNREADABLE_EVERY_S = 300.0


class Jobs(Visits):
    """See the module."""

    def set_states(self, job: Placeholder, states: States, at: float) -> None:
        if is_ended(states) and not job.shows_end:
            job.ended_seen = at
            if job.proven:
                self.ended_jobs[min(states & ENDED)] += 1
            # Only a read shows if the pods of a renamed job end with it (L4).
            if not any(workload.renamed == job.id for workload in self.workloads_of(job)):
                self.stop_reading(job.id)
            if (workload := self.workloads.get(job.key or "")) is not None:
                self._wait_before_next_job(workload, job, at)
            self._wake_one_held_back(job)
        if holds_nodes(states) and not job.holds_nodes:
            job.granted_at = at
            if (workload := self.workloads.get(job.key or "")) is not None:
                workload.backoff = workload.backoff.at_latest(at)  # the bind does not wait because of earlier failures
        elif not holds_nodes(states) and not is_ended(states):
            job.grant = None  # the job waits, perhaps because it was requeued: its next grant is another one
            job.bind_refused.clear()
            job.bind_trouble = ""
        if "CONFIGURING" in job.states and "CONFIGURING" not in states:
            job.prepared_at = at
        if states != job.states:
            self._add_to_story(job, at, f"Slurm job {job.id} is {' '.join(sorted(states))}")
            job.states_since = at
        job.states = states
        self.touch(job)

    def _wait_before_next_job(self, workload: Workload, job: Placeholder, at: float) -> None:
        """The job ended: let the workload wait before it is submitted again, because its next job may be ended at once, too.

        If the bridge released the grant and the next submission excludes one of its nodes, the first few submissions do not
        wait (F6).  If Kubernetes refuses to bind its pods, the next submission waits as after a refusal by Slurm (Q4).
        """
        at_once = 0
        if workload.releasing is not None and workload.releasing[0] == job.id:
            workload.release_messages = dict.fromkeys((pod.uid for pod in workload.members), workload.releasing[1])
            workload.releasing = None
            if any(job.bind_refused[pod.uid] >= MAX_BIND_FAILURES for pod in workload.members):
                self._note_refused_binds(workload, job, at)
                return
            granted = job.grant.everywhere if job.grant is not None else ()
            elsewhere = any(node.name in workload.nodes_left_out for node in granted)
            at_once = RELEASED_AT_ONCE if elsewhere else 0
        if not any(workload.node_of(pod) for pod in workload.pods.values()):
            self.back_off(workload, at)
            if workload.backoff.failures <= at_once:
                workload.backoff = workload.backoff.at_latest(at)

    def _note_refused_binds(self, workload: Workload, job: Placeholder, at: float) -> None:
        """Kubernetes refuses to bind these pods: each further grant would hold nodes in vain until something changes."""
        again = (
            f"slurm-bridge asks for nodes again in {span(self.config.tuning.refused_retry_s)}, or when the pod changes."
        )
        message = f"Slurm job {job.id} was released, because the pod cannot be bound. {job.bind_trouble} {again}"
        workload.refused = Refusal(names.REFUSED, message)
        workload.retry_at = at + self.config.tuning.refused_retry_s
        workload.backoff = NO_FAILURE

    def _wake_one_held_back(self, job: Placeholder) -> None:
        """A job of the bridge ended: wake the oldest workload that the limits of its user hold back (Q4)."""
        refused = self.limited.get(job.user, {})
        able = [key for key in refused if not self.is_quarantined(key)]
        first = min(able, key=lambda key: (self.workloads[key].created, key), default=None)
        if first is not None:
            take_out(self.limited, first)  # the next end of a job wakes the next workload
            self.workloads[first].retry_at = float("-inf")
            self.dirty[first] = None

    def _add_to_story(self, job: Placeholder, at: float, entry: str) -> None:
        workload = self.workloads.get(job.key or "")
        if workload is not None:
            workload.add_to_story(at, entry)

    def touch(self, job: Placeholder) -> None:
        for workload in self.workloads_of(job):
            self.refresh(workload)

    def drop(self, job: Placeholder) -> None:
        """Remove the record of a job that is not needed any more, and mark the workloads that had the job for a visit."""
        for workload in self.remove_record(job):
            self.refresh(workload)

    def remove_record(self, job: Placeholder) -> list[Workload]:
        """Remove the record of the job.  Returns the workloads that had the job."""
        self.absent.discard(job.id)
        self.expected.discard(job.id)
        self.placeholders.pop(job.id, None)
        if job.ended or job.is_lost(self.config.tuning.absent_s):
            self.forgotten_at[job.id] = max(job.known_since, job.read_began)
        concerned = self.workloads_of(job)
        for workload in concerned:
            workload.jobs.discard(job.id)
        return concerned

    # --- absence ------------------------------------------------------------------------------------------------------

    def mark_absent(self, job: Placeholder, began: float) -> None:
        """Note that a poll, or a read, that was sent at *began* lacks the job.

        If the job is absent or lost now and was not before, its workloads are marked for a visit.
        """
        self.expected.discard(job.id)
        self.absent.add(job.id)
        absent_s = self.config.tuning.absent_s
        before = job.absent, job.is_lost(absent_s)
        if job.absent_first is None:
            job.absent_first = began
        job.absent_last = began
        if job.is_lost(absent_s):
            self._move_hint(job)
        if (job.absent, job.is_lost(absent_s)) != before:
            self.touch(job)

    def _move_hint(self, lost: Placeholder) -> None:
        """The job is lost.  If another live job is proven the workload's, the pods run for that job from now on (S7)."""
        for workload in self.workloads_of(lost):
            other = chosen(workload, self.jobs_of(workload))
            if other is not None and workload.hint == lost.id != workload.renamed:
                workload.hint = other.id

    # --- ids that are not known ----------------------------------------------------------------------------------------

    def schedule_read(self, job_id: int, began: float) -> None:
        """Schedule a read of the job.  began: when the poll that showed the id was sent"""
        if job_id not in self.first_listed_at:
            self.first_listed_at[job_id] = began
            bisect.insort(self.unread, job_id)

    def stop_reading(self, job_id: int) -> None:
        """Cancel the scheduled read of the job."""
        self.unreadable.pop(job_id, None)
        self.reads_postponed.pop(job_id, None)
        if job_id in self.hidden:
            self.hidden.discard(job_id)
            self._visit_after_hidden()
        if self.first_listed_at.pop(job_id, None) is not None:
            self._drop_from_search(job_id)

    def note_failed_read(self, job_id: int, at: float) -> None:
        """Note a failed read.  After MAX_UNREADABLE failures the job is read less often, and no workload waits for it.

        The job does not count as foreign: it may be a job of the bridge without a pod.
        """
        failed = self.unreadable.get(job_id, (0, at))[0] + 1
        if failed >= MAX_UNREADABLE or job_id in self.reads_postponed:
            self.postpone_read(job_id, at + UNREADABLE_EVERY_S)
        else:
            self.unreadable[job_id] = (failed, at + self.config.tuning.backoff_s * 2**failed)

    def postpone_read(self, job_id: int, at: float) -> None:
        """Read the job again at *at*, because its reads fail.  No workload waits for it any more."""
        self.unreadable.pop(job_id, None)
        self.reads_postponed.pop(job_id, None)
        self.reads_postponed[job_id] = at
        if job_id in self.hidden:
            self._visit_after_hidden()
        self._drop_from_search(job_id)

    def _visit_after_hidden(self) -> None:
        """Mark the workloads that waited for the reads of `hidden`, if no such read is due soon (V1)."""
        if self.hidden <= self.reads_postponed.keys():
            self.dirty.update(self.by_phase[Phase.UNSUBMITTED])
            self.dirty.update(self.by_phase[Phase.ORPHANED])

    def next_read_at(self, job_id: int) -> float:
        """The time before which a job whose reads failed is not read again, epoch seconds; -inf: no read failed."""
        return max(self.unreadable.get(job_id, (0, float("-inf")))[1], self.reads_postponed.get(job_id, float("-inf")))

    def sort_unread(self, *job_ids: int) -> None:
        """Sort the ids that are to be read.  The reads of *job_ids* are not postponed any more."""
        for job_id in job_ids:
            self.reads_postponed.pop(job_id, None)
        self.unread = sorted(self.first_listed_at.keys() - self.reads_postponed.keys())

    def _drop_from_search(self, job_id: int) -> None:
        at = bisect.bisect_left(self.unread, job_id)
        if at < len(self.unread) and self.unread[at] == job_id:
            del self.unread[at]
        self.dirty.update(self.searching_workloads)
        if not self.unread and self.newest_event_at <= self.scan_ends_at:  # no workload waits for reads any more
            self.dirty.update(self.by_phase[Phase.UNSUBMITTED])
            self.dirty.update(self.by_phase[Phase.ORPHANED])
