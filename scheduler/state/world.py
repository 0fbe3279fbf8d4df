"""The World: what is known of both clusters, and the only mutable object.

`apply(event)` is its only door.  It is total: any event in any order, any number of times, is folded into facts.  It
decides nothing; it only marks the workloads that the next pass visits (ARCHITECTURE 3).  How each event changes the facts is
in `scheduler/apply/`, and `scheduler.apply.events.new_world` joins both.

Three things keep old news from overwriting new: a list swaps whole, a fact learned from an answer is not contradicted by
a poll that began before that answer, and what vanished is remembered as absent, not as ended.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler import events as ev
from scheduler import names
from scheduler.state import derived
from scheduler.state.jobs import Jobs
from scheduler.tuning import Config

MAX_CROWDED = 128  # nodes; of more those that were noted last


class World(Jobs):
    """See the module.  Its facts are those of Tables."""

    def __init__(
        self, config: Config, started: float, apply_event: Callable[[World, ev.Event], None], *, guarded: bool = False
    ) -> None:
        super().__init__(config, started, guarded=guarded)
        self._apply_event = apply_event

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
        self._apply_event(self, event)

    def slurm_nodes_shown(self, failed: Callable[[str, Exception], None]) -> None:
        """Note what the last poll shows of nodes, once the mark of the cluster is known.

        failed   is called with the name of a node that could not be noted, and the exception
        """
        if self.cluster_known and self.slurm_nodes is not None and self.nodes_polled is not None:
            gres, mark = self.config.translation.gres, names.node_mark(self.cluster)
            began, at = self.nodes_polled
            self.node_state.shown(self.slurm_nodes, self.nodes, gres, mark, began, at, failed)

    def note_crowded(self, node: str, until: float) -> None:
        """A grant on that node could not be used: other workloads are checked before they ask for it (F6)."""
        self.crowded.pop(node, None)
        self.crowded[node] = until
        first = next(iter(self.crowded))
        if len(self.crowded) > MAX_CROWDED or self.crowded[first] <= self.newest_event_at:
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
        for marks in (self.searching_workloads, self.waits_for_ports, *self.limited.values()):
            marks.pop(key, None)
        self.affinity_workloads.discard(key)
        self.wants_ports.discard(key)
        self.waiting_terms.drop(key)
        self.affinity_index.drop_prepared(key)
        self._is_granted_no_more(key)
        self.dirty.pop(key, None)
        self.unpark(key)
        self.quotas.forget(workload)
