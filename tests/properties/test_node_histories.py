"""Whatever happens to nodes on either side: nobody else's node or drain is touched, nothing that runs is harmed, and when
it is over both sides are in step (N1-N7).
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler import names
from scheduler.actions import (
    Action,
    ChangeNode,
    NodeChange,
    Outcome,
    RegisterNode,
    RemoveNode,
    SetNodeCondition,
    TaintNode,
    UnmarkNode,
    is_as_found,
)
from scheduler.decide import visit_nodes
from scheduler.events import ActionEnded, NodeDeleted, NodeSeen, Planned, SlurmNodesPolled
from scheduler.model.kubernetes import Condition, Node, Taint
from scheduler.model.slurm import Partition, SlurmNode
from scheduler.rules.scheduling_pass import Pass
from tests.builders import CLUSTER, START, Story, amounts, node

MARK = names.node_mark(CLUSTER)
NAMES = ("x1", "x2", "x3")  # the last one is known to Slurm already, by another
TAINT = Taint(names.MANAGED_TAINT, "true", "NoSchedule")
THEIRS = "fan broken"
OUT_OF_SERVICE = {"DRAIN", "DOWN", "NOT_RESPONDING"}

HAPPENINGS = st.sampled_from(
    ["label", "unlabel", "cordon", "uncordon", "lost", "ready", "shrink", "grow", "deleted", "job", "job", "job ends",
     "admin drains", "admin resumes", "another makes it", "silent", "poll", "bridge is killed"]
)  # fmt: skip
STEPS = st.lists(
    st.tuples(HAPPENINGS, st.sampled_from(NAMES), st.sampled_from([1, 31, 62, 700])), min_size=10, max_size=40
)
FATES = st.sampled_from([Outcome.DONE] * 5 + [Outcome.REFUSED, Outcome.UNKNOWN, Outcome.UNREACHED])


class Sides:
    """The truth of both sides, and a world that gets events about it."""

    def __init__(self) -> None:
        self.now = START + 20
        self.nodes = {name: node(name, uid=f"uid-{name}", address="198.51.100.7") for name in NAMES}
        self.slurm: dict[str, SlurmNode] = {}
        self.jobs: set[str] = set()
        self.theirs: set[str] = set()  # in Slurm, made by another
        self.begin()

    def begin(self) -> None:
        """A new process of the bridge."""
        self.story = Story(nodes=tuple(self.nodes.values()))
        self.story.world.started = self.now - 20
        self.poll()

    def poll(self) -> None:
        self.story.sees(SlurmNodesPolled(tuple(self.slurm.values()), (Partition("main", default=True),), self.now))

    def see(self, name: str, **changes: object) -> None:
        if name in self.nodes:
            self.nodes[name] = replace(self.nodes[name], **changes)
            self.story.sees(NodeSeen(self.nodes[name]))

    def set(self, name: str, *, plus: str = "", less: tuple[str, ...] = (), reason: str = "") -> None:
        known = self.slurm[name]
        states = known.states.union({plus} if plus else ()).difference(less)
        self.slurm[name] = replace(known, states=states, reason=reason)

    def occupy(self, name: str, *, busy: bool) -> None:
        states = self.slurm[name].states - {"IDLE", "MIXED"} | {"MIXED" if busy else "IDLE"}
        self.slurm[name] = replace(self.slurm[name], states=states)
        (self.jobs.add if busy else self.jobs.discard)(name)

    # --- what happens

    def happen(self, what: str, name: str) -> None:
        if what == "poll":
            self.poll()
        elif what == "bridge is killed":
            self.begin()
        elif what == "another makes it" and name not in self.slurm:
            self.theirs.add(name)
            self.slurm[name] = SlurmNode(name, frozenset({"IDLE", "EXTERNAL"}), ("main",), (), 64, 512_000, {"gpu": 8})
        elif name in self.slurm:
            self.happen_in_slurm(what, name, self.slurm[name])
        self.happen_in_kubernetes(what, name)

    def happen_in_kubernetes(self, what: str, name: str) -> None:
        match what:
            case "label" | "unlabel":
                self.see(name, labels={names.EXTERNAL_NODE_LABEL: "true"} if what == "label" else {})
            case "cordon" | "uncordon":
                self.see(name, unschedulable=what == "cordon")
            case "lost" | "ready":
                self.see(name, ready=what == "ready")
            case "shrink" | "grow":
                size = amounts(cpu=32_000 if what == "shrink" else 64_000, memory=512_000, gpu=8, pods=110)
                self.see(name, allocatable=size)
            case "deleted":
                if len(self.nodes) > 1 and self.nodes.pop(name, None) is not None:
                    self.story.sees(NodeDeleted(name))

    def happen_in_slurm(self, what: str, name: str, known: SlurmNode) -> None:
        match what:
            case "job" if not known.states & OUT_OF_SERVICE:
                self.occupy(name, busy=True)
            case "job ends" if name in self.jobs:
                self.occupy(name, busy=False)
            case "admin drains":
                self.set(name, plus="DRAIN", reason=THEIRS)
            case "admin resumes" if known.reason == THEIRS:
                self.set(name, less=("DRAIN", "DOWN"))
            case "silent":
                self.set(name, plus="NOT_RESPONDING", reason=known.reason)

    # --- what the bridge does

    def act(self, fate: Outcome) -> list[Action]:
        every, this_pass = (Pass(self.story.world, self.now) for _ in range(2))
        visit_nodes(every, everything=True)
        visit_nodes(this_pass, everything=False)
        plan = this_pass.plan()
        assert set(every.actions) == set(plan.actions), "a pass over all nodes finds nothing more"
        self.story.world.apply(Planned(plan, self.now))
        for action in plan.actions:
            self.perform(action, fate)
        return list(plan.actions)

    def perform(self, action: Action, fate: Outcome) -> None:
        known = self.slurm.get(action.name) if isinstance(action, ChangeNode | RemoveNode) else None
        if known is not None and not is_as_found(action, known):  # the actor looks first
            self.story.world.apply(ActionEnded(action, Outcome.DONE, self.now, self.now))
            return
        refused = self.forbids(action)
        if not refused and fate in (Outcome.DONE, Outcome.UNKNOWN):
            self.take_effect(action)
        outcome = Outcome.REFUSED if refused else fate
        self.story.world.apply(ActionEnded(action, outcome, self.now, self.now))

    def forbids(self, action: Action) -> bool:
        """True if Slurm refuses it.  Raises if the request must never be sent."""
        if isinstance(action, RegisterNode):
            return action.name in self.slurm
        if not isinstance(action, ChangeNode | RemoveNode):
            return False
        assert action.name not in self.theirs, "somebody else's node"
        known = self.slurm.get(action.name)
        if known is None:
            return True
        if isinstance(action, RemoveNode) or action.change is NodeChange.DOWN:
            assert known.states & OUT_OF_SERVICE or self.moved(known), "in service"
            assert action.name not in self.jobs or self.moved(known), "a job runs there"
        assert known.reason != THEIRS or not known.states & {"DRAIN", "DOWN"}, "an admin's drain is undone"
        return action.name in self.jobs and (isinstance(action, RemoveNode) or action.change is NodeChange.DOWN)

    def moved(self, known: SlurmNode) -> bool:
        """Slurm's admin did something that no poll has shown yet."""
        assert self.story.world.slurm_nodes is not None
        return self.story.world.slurm_nodes.get(known.name) != known

    def take_effect(self, action: Action) -> None:
        match action:
            case RegisterNode(spec):
                states = frozenset({"IDLE", "EXTERNAL", "DYNAMIC_NORM"})
                has = dict(spec.gres)
                self.slurm[spec.name] = SlurmNode(
                    spec.name, states, ("main",), spec.features, spec.cpus, spec.memory_mib, has
                )
            case ChangeNode(name, NodeChange.RESUME):
                self.set(name, less=("DRAIN", "DOWN"))
            case ChangeNode(name, change, reason):
                self.set(name, plus=change.value, reason=reason)
            case RemoveNode(name):
                del self.slurm[name]
            case SetNodeCondition():
                self.see(action.node, in_slurm=Condition(action.status, action.condition, action.message))
            case TaintNode(name):
                self.see(name, taints=(TAINT,))
            case UnmarkNode(name):
                self.see(name, taints=(), in_slurm=None)

    def live(self, seconds: int) -> None:
        """Time passes, with a poll every 31 s."""
        end = self.now + seconds
        while self.now + 31 <= end:
            self.now += 31
            self.poll()
            self.act(Outcome.DONE)
        self.now = end

    def rest(self) -> None:
        """Nothing happens any more, jobs end, and all that is asked for succeeds."""
        for name in sorted(self.jobs):
            self.occupy(name, busy=False)
        for _ in range(100):
            self.now += 31
            self.poll()
            while self.act(Outcome.DONE):
                self.poll()
        self.in_step()

    def in_step(self) -> None:
        for name in NAMES:
            here, known = self.nodes.get(name), self.slurm.get(name)
            if name in self.theirs:
                assert known is not None, "it was made by somebody else"
            elif here is None or not here.labels:
                kept = known is not None and known.reason == THEIRS and known.states & {"DRAIN", "DOWN"}
                assert known is None or kept, "nobody wants it"
                assert here is None or kept or (here.in_slurm, here.taints) == (None, ())
            else:
                self.as_wanted(here, known)

    def as_wanted(self, here: Node, known: SlurmNode | None) -> None:
        assert here.in_slurm is not None
        if known is None:
            assert not here.ready or here.unschedulable
            return
        assert here.taints == (TAINT,)
        assert MARK in known.features
        assert known.states & {"DRAIN", "DOWN"} or "NOT_RESPONDING" not in known.states
        if known.reason != THEIRS:
            wrong = not here.ready or here.unschedulable
            assert bool(known.states & {"DRAIN", "DOWN"}) is wrong
            assert wrong or known.cpus <= here.allocatable["cpu"] // 1000
        assert here.in_slurm.status is not bool(known.states & OUT_OF_SERVICE)


@settings(max_examples=80, deadline=None)
@given(STEPS, st.lists(FATES, min_size=8, max_size=8))
def test_in_any_history_only_jobs_of_the_bridge_are_touched_and_in_the_end_both_sides_agree(
    steps: list[tuple[str, str, int]], fates: list[Outcome]
) -> None:
    sides = Sides()
    sides.happen("another makes it", "x3")
    for name in NAMES:
        sides.happen("label", name)
    sides.live(31)
    for number, (what, name, pause) in enumerate(steps):
        sides.happen(what, name)
        sides.act(fates[number % len(fates)])
        sides.live(pause)
    sides.rest()
