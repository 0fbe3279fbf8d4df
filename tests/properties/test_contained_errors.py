"""Any history in which folds and rules raise at any line: the facts stay consistent, and at the end nothing is left to do.

The histories of test_core_histories, with defects: while one event is folded, or one pass is decided, one call somewhere
inside raises.  The invariants that are held against the truth of both clusters hold as without defects.  When the defects
end, nothing stays in quarantine, and every pod is bound or says why not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from scheduler import actions as act
from scheduler import decide
from scheduler.apply import (
    hinted_jobs,
    job_polls,
    job_reads,
    job_results,
    kubernetes_nodes,
    membership,
    pods,
    relabelled,
    reused_ids,
    settling,
    submission_results,
    surplus,
)
from scheduler.events import AbsenceConfirmed, Event, OutageEnded, Planned, Side
from scheduler.model.kubernetes import Pod
from scheduler.nodes.observed import NodeState
from scheduler.place.fit import NodeInfo, needs
from scheduler.rules import binding, driver, granted, guard, identity, submission, unsubmitted
from scheduler.rules.scheduling_pass import Pass
from scheduler.state import anomalies
from scheduler.state.placeholder import Placeholder
from scheduler.state.pod_counts import PodCounts
from scheduler.state.workload import Workload
from scheduler.state.world import World
from tests.builders import without
from tests.properties.test_core_histories import CONFIG_HERE, Histories

# Every one of these may raise before it does anything, or after it has done all of it.
FRAGILE: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (
        World,
        (
            "refresh",
            "put_on_node",
            "remove_from_node",
            "set_states",
            "touch",
            "stop_reading",
            "drop",
            "schedule_read",
            "assume",
        ),
    ),
    (
        World,
        (
            "back_off",
            "grant_changed",
            "mark_absent",
            "forget",
            "count_queued",
            "input_changed",
            "workloads_of",
            "jobs_of",
        ),
    ),
    (Workload, ("put", "take_out", "put_on", "show", "add_to_story", "end_pod_in_flight")),
    (PodCounts, ("count", "drop")),
    (Placeholder, ("mark_present", "is_lost")),
    (NodeInfo, ("put", "remove")),
    (NodeState, ("observe", "remove_node")),
    (Pass, ("add", "wake_at", "park", "node_infos")),
    (pods, ("settle", "take_workload", "take_hint", "_our_pod", "_forget_pod")),
    (kubernetes_nodes, ("_node_deleted",)),
    (submission_results, ("_submitted", "_submission_refused")),
    (job_results, ("_take_changes",)),
    (job_polls, ("_note_missing",)),
    (job_reads, ("_decide_whose", "_adopt", "_disprove", "_take_details")),
    (reused_ids, ("detach_others", "note_arrivals", "suspect_reuse")),
    (hinted_jobs, ("drop_hint",)),
    (membership, ("move", "group_of", "take_group", "_take_alone")),
    (settling, ("size_of", "take_group")),
    (surplus, ("move", "size_of", "rank_of")),
    (submission, ("jobspec", "feasible")),
    (binding, ("places",)),
    (identity, ("is_trusted",)),
    (relabelled, ("gather", "move", "settle_and_refresh")),
    (anomalies, ("missing",)),
    (driver, ("enter", "write_status")),
    (guard, ("enter_shared",)),
    (granted, ("place_and_bind", "_use_grant")),
    (unsubmitted, ("submit",)),
)


class Defect(Exception):
    """An unexpected exception."""


class Broken:
    """Counts calls of what is fragile, and raises at one of them."""

    def __init__(self) -> None:
        self.left = 0
        self.after = False

    def calls(self, whole: Any, *args: Any, **kwargs: Any) -> Any:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Defect
        now = self.left == 0
        found = whole(*args, **kwargs)
        if now:
            raise Defect
        return found


@contextmanager
def fragile(broken: Broken) -> Iterator[None]:
    """Everything of FRAGILE is wrapped."""
    whole = [(owner, name, getattr(owner, name)) for owner, named in FRAGILE for name in named]
    for owner, name, function in whole:
        setattr(owner, name, _wrapped(broken, function))
    try:
        yield
    finally:
        for owner, name, function in whole:
            setattr(owner, name, function)


def _wrapped(broken: Broken, function: Any) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return broken.calls(function, *args, **kwargs)

    return wrapper


class Defects(Histories):
    GUARDED = True
    # What raises in a fold may leave an index as it was, until it is retried.
    CONFIG = without(CONFIG_HERE, validate_every=0)

    def __init__(self) -> None:
        super().__init__()
        self.broken = Broken()
        self.armed = (0, False)

    @rule(call=st.integers(1, 60), after=st.booleans())
    def the_next_event_meets_a_defect(self, call: int, after: bool) -> None:
        self.armed = call, after

    @contextmanager
    def met(self) -> Iterator[None]:
        (self.broken.left, self.broken.after), self.armed = self.armed, (0, False)
        if self.broken.left:
            with fragile(self.broken):
                yield
        else:
            yield
        self.broken.left = 0

    def tell(self, event: Event) -> None:
        with self.met():
            self.world.apply(event)
        self.last = event

    def the_loop_passes(self) -> None:
        with self.met():
            plan = decide.decide(self.world, self.now)
        self.check(plan)
        with self.met():
            self.story.world.apply(Planned(plan, self.now))
        self.under_way += [each for each in plan.actions if self.world.is_under_way(each)]

    @rule()
    def it_is_told_twice(self) -> None:
        """What is in quarantine is kept as it is seen: twice the same is no change of facts, but may be another try."""

    # --- always -----------------------------------------------------------------------------------------------------

    @invariant()
    def no_half_written_facts(self) -> None:
        world = self.world
        for uid, key in world.key_of_pod.items():
            entry = world.quarantine.get((act.ObjectKind.WORKLOAD, key))
            assert uid in world.workloads[key].pods or (entry is not None and uid in entry.pods), "no pod is lost"
        for key, workload in world.workloads.items():
            fresh = PodCounts()
            for one in workload.pods.values():
                assert world.key_of_pod[one.uid] == key, "a pod is of one workload"
                over = one.uid in workload.written_off
                fresh.count(one, workload.node_of(one), workload.shown.get(one.uid), over=over)
            assert workload.pod_counts == fresh, "the counts are those of the pods"
            assert workload.shown.keys() <= workload.pods.keys()
        for there in world.node_info.values():
            taken: Counter[str] = Counter()
            for one in there.pods.values():
                taken.update(needs(one))
            assert {name: amount for name, amount in there.taken.items() if amount} == +taken, "a node counts its pods"
        for job in world.placeholders.values():
            for key in job.hinted_by:
                assert job.id in world.workloads[key].jobs
        assert world.under_way == self.limit_classes(), "a limit class counts the actions in flight"
        for key in [
            key for index in (world.searching_workloads, world.detail_new, world.running_round) for key in index
        ]:
            assert key in world.workloads
        assert +world.queued_in == Counter(world.partition_of.values())

    def known_of(self, key: str) -> Collection[str]:
        entry = self.world.quarantine.get((act.ObjectKind.WORKLOAD, key))
        return {*super().known_of(key), *(entry.pods if entry is not None else ())}

    def stands_on_its_job(self, one: Pod) -> bool:
        """What was known of its job may be dropped: one by another name may be its own then (docs/decisions/0003)."""
        workload = self.world.workloads[self.world.key_of_pod[one.uid]]
        return super().stands_on_its_job(one) or workload.renamed is not None

    def limit_classes(self) -> Counter[str]:
        return Counter(each.limit_class for each in self.world.in_flight.values())

    # --- when the defects end ---------------------------------------------------------------------------------------

    def teardown(self) -> None:
        self.armed = (0, False)
        for side in Side:
            self.tell(OutageEnded(side, self.now))
        self.an_ordinary_second(self.world.config.tuning.quarantine_s, "x1", starts=False)
        # A defect while absence was weighed holds it back until an admin says so (X6).
        self.tell(AbsenceConfirmed(self.now))
        super().teardown()

    def in_order(self) -> None:
        assert self.world.quarantine == {}, "what is mended is in quarantine no more"
        for one in self.pods.values():
            assert self.world.workloads[self.world.key_of_pod[one.uid]].pods[one.uid] == one
        super().in_order()


TestDefects = Defects.TestCase
TestDefects.settings = settings(max_examples=120, stateful_step_count=50, report_multiple_bugs=False)
