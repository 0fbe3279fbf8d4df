"""The World: what is known of both clusters.  It is the only mutable object of the scheduler.

Only `apply(event)` changes it.  `apply` accepts every event, in any order and any number of times, and changes facts.  It
decides nothing; it only marks the workloads that the next pass visits (ARCHITECTURE 3).  The functions that change the facts
are in `scheduler/apply/`, and `scheduler.apply.events.new_world` joins both.

Three rules keep old observations from overwriting newer ones: a list replaces the former list as a whole; a poll that began
before an answer does not contradict the answer; an object that vanished counts as absent, not as ended.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler import events as ev
from scheduler import names
from scheduler.state import derived
from scheduler.state.jobs import Jobs
from scheduler.state.visits import take_out
from scheduler.tuning import Config

MAX_CROWDED = 128  # nodes; if there are more, the oldest are dropped


class World(Jobs):
    """See the module.  The class Tables declares the facts."""

    def __init__(
        self, config: Config, started: float, apply_event: Callable[[World, ev.Event], None], *, guarded: bool = False
    ) -> None:
        super().__init__(config, started, guarded=guarded)
        self._apply_event = apply_event

    def apply(self, event: ev.Event) -> None:
        """Change the facts by one event."""
        self.apply_part(event)
        if every := self.config.tuning.validate_every:
            self.applied += 1
            if self.applied % every == 0:
                self.validate()

    def validate(self) -> None:
        """Recompute all indexes, counts and phases from the facts.  Raises InvalidIndex if the World differs."""
        derived.validate(self)

    def apply_part(self, event: ev.Event) -> None:
        """As `apply`, for an event that is a part of another event, which is being applied."""
        self._apply_event(self, event)

    def observe_slurm_nodes(self, failed: Callable[[str, Exception], None]) -> None:
        """Note the nodes of the last poll, if the mark of the cluster is known.

        failed   is called with the name of a node whose state could not be noted, and the exception
        """
        if self.is_cluster_known and self.slurm_nodes is not None and self.nodes_polled is not None:
            gres, mark = self.config.translation.gres, names.node_mark(self.cluster)
            began, at = self.nodes_polled
            self.node_state.observe_slurm(self.slurm_nodes, self.nodes, gres, mark, began, at, failed)

    def note_crowded(self, node: str, until: float) -> None:
        """Note that a grant on that node could not be used, which counts until *until*.

        Until then other workloads are checked before they ask for the node (F6).
        """
        self.crowded.pop(node, None)
        self.crowded[node] = until
        if len(self.crowded) > MAX_CROWDED:
            del self.crowded[next(iter(self.crowded))]

    def forget(self, key: str) -> None:
        """Remove a workload, which must have no pod, no live job and no action in flight."""
        workload = self.workloads.pop(key, None)
        if workload is None:
            return
        for job_id in workload.jobs:
            job = self.placeholders.get(job_id)
            if job is None:
                continue
            job.hinted_by.discard(key)
            if job.key == key or (job.key is None and not job.hinted_by):
                self.remove_record(job)
                if not job.ended and self.is_listed_alive(job_id):  # a read found no such job; it may have been wrong
                    self.schedule_read(job_id, self.last_poll_began)
        for job_id in workload.foreign_jobs & self.foreign:  # other users of the policy may own it
            self.foreign.discard(job_id)
            self.schedule_read(job_id, self.last_poll_began)
        self.take_out_of_indexes(key)
        take_out(self.limited, key)
        take_out(self.waits_for_owner, key)
        self.dirty.pop(key, None)
        self.wakes.pop(key, None)
        self.unpark(key)
        self.quotas.forget(workload)
