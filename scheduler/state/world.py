"""The World: what is known of both clusters, and the only mutable object.

`apply(event)` is its only door.  It is total: any event in any order, any number of times, is folded into facts.  It
decides nothing; it only marks the workloads that the next pass visits (ARCHITECTURE 3).  An exception in a fold is a defect;
a guarded world contains it (quarantine.py).

Three things keep old news from overwriting new: a list swaps whole, a fact learned from an answer is not contradicted by
a poll that began before that answer, and what vanished is remembered as absent, not as ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from scheduler import events as ev
from scheduler import names
from scheduler.apply import kubernetes, policy, results, slurm
from scheduler.state import derived, quarantine
from scheduler.state.jobs import Jobs

MAX_CROWDED = 128  # nodes; of more those that were noted last

_FOLDS: Mapping[type, Callable[[World, Any], None]] = {
    **kubernetes.FOLDS,
    **slurm.FOLDS,
    **results.FOLDS,
    **policy.FOLDS,
}

# In which attribute an event tells when it came; of the others `at`, where they have one.
_TOLD_AT = {ev.JobsPolled: "ended", ev.JobRead: "ended", ev.ClockTold: "ended", ev.SideLost: ""}


class World(Jobs):
    """See the module.  Its facts are those of Tables."""

    def apply(self, event: ev.Event) -> None:
        """Fold one event into the facts."""
        self.fold(event)
        if every := self.config.tuning.validate_every:
            self.applied += 1
            if self.applied % every == 0:
                self.validate()

    def validate(self) -> None:
        """Compute all indexes, counts and phases anew from the facts.  Raises InvalidIndex where the World differs."""
        derived.validate(self)

    def fold(self, event: ev.Event) -> None:
        """As `apply`, for an event that is a part of the event which is being applied."""
        at = getattr(event, _TOLD_AT.get(type(event), "at"), None)
        if at is not None and at > self.heard_at:
            self.heard_at = at
        try:
            _FOLDS[type(event)](self, event)
            if self.quarantine:
                quarantine.folded(self, event)
        except Exception as error:
            if not self.guarded:
                raise
            quarantine.fold_failed(self, event, error)

    def slurm_nodes_shown(self) -> None:
        """Note what the last poll shows of nodes, once the mark of the cluster is known."""
        if self.cluster_known and self.slurm_nodes is not None and self.nodes_polled is not None:
            gres, mark = self.config.translation.gres, names.node_mark(self.cluster)
            began, at = self.nodes_polled
            failed = partial(quarantine.slurm_node_failed, self)
            self.node_state.shown(self.slurm_nodes, self.nodes, gres, mark, began, at, failed)

    def note_crowded(self, node: str, until: float) -> None:
        """A grant on that node could not be used: other workloads are checked before they ask for it (F6)."""
        self.crowded.pop(node, None)
        self.crowded[node] = until
        first = next(iter(self.crowded))
        if len(self.crowded) > MAX_CROWDED or self.crowded[first] <= self.heard_at:
            del self.crowded[first]

    def forget(self, key: str) -> None:
        """Remove a workload that has no pod, no live job and no action in flight."""
        workload = self.workloads.pop(key, None)
        if workload is None:
            return
        for job_id in workload.jobs:
            job = self.placeholders.get(job_id)
            if job is None:
                continue
            job.hinted_by.discard(key)
            if job.key == key or (job.key is None and not job.hinted_by):
                for other in self.concerned(job):
                    other.jobs.discard(job_id)
                self.placeholders.pop(job_id)
                self.absent.discard(job_id)
                self.expected.discard(job_id)
        for job_id in workload.foreign_jobs & self.foreign:  # without the workload another user of the policy's will do
            self.foreign.discard(job_id)
            self.schedule_read(job_id, self.last_poll_began)
        before = self.phase_of.pop(key, None)
        if before is not None:
            self.by_phase[before].pop(key, None)
        queued = self.partition_of.pop(key, "")
        if queued:
            self.queued_in[queued] -= 1
        for index in (self.detail_new, self.detail_round, self.running_new, self.running_round):
            index.pop(key, None)
        for marks in (self.looking, self.waits_for_ports, *self.limited.values()):
            marks.pop(key, None)
        self.affinity_workloads.discard(key)
        self.wants_ports.discard(key)
        self.waiting_terms.drop(key)
        self.neighbours.asks_no_more(key)
        self._is_granted_no_more(key)
        self.dirty.pop(key, None)
        self.unpark(key)
        self.quotas.forget(workload)
