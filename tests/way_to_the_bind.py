"""Follows a granted workload call by call on its way to the bind, and counts the files that the way enters.

    python -m tests.way_to_the_bind            the counts of each scenario
    python -m tests.way_to_the_bind "one pod"  also the calls of that scenario, in order

A reader who follows the code enters a file with the first call of one of its functions, and returns to the file with each
call of one of its functions after a call into another file.  A comprehension or a generator expression belongs to the
function that it is written in.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from types import FrameType

import scheduler
from scheduler import names
from scheduler.actions import AllocateNow, BindPod, Plan, SubmitJob
from scheduler.decide import decide
from scheduler.model.kubernetes import Pod
from scheduler.model.slurm import Grant, GrantedNode, Job
from scheduler.rules.granted import granted
from tests.builders import START, Story, grant, job_of, pod

ROOT = f"{Path(scheduler.__file__).parent}/"
NOW = START + 100  # the quiet period is over


@dataclass(frozen=True, slots=True)
class Way:
    """The calls of one way in order, each as (file below scheduler/, function)."""

    calls: tuple[tuple[str, str], ...]

    @property
    def visits(self) -> list[str]:
        """The files in the order in which they are entered, also again."""
        return [file for file, _ in groupby(file for file, _ in self.calls)]

    @property
    def files(self) -> int:
        """The number of files that the way enters."""
        return len(set(self.visits))

    @property
    def returns(self) -> int:
        """How often the way returns to a file that it had left."""
        return len(self.visits) - self.files

    def __str__(self) -> str:
        return f"{self.files} files, {self.returns} returns, {len(self.calls)} calls"


@dataclass(frozen=True, slots=True)
class Followed:
    """The way within the rule of GRANTED, and the way through the whole pass, which also writes the plan."""

    rule: Way
    whole: Way


class _Follower:
    """Notes each call of a function of scheduler/ while it is the profiler of the interpreter."""

    def __init__(self) -> None:
        self.whole: list[tuple[str, str]] = []
        self.rule: list[tuple[str, str]] = []
        self._in_rule = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(ROOT):
            return
        if code is granted.__code__:
            self._in_rule = event == "call"
        if event == "call" and not code.co_name.startswith("<"):
            called = code.co_filename.removeprefix(ROOT), code.co_name
            self.whole.append(called)
            if self._in_rule:
                self.rule.append(called)


def followed(story: Story, at: float) -> Followed:
    """Follow the pass at that time, which binds pods."""
    follower = _Follower()
    before = sys.getprofile()
    sys.setprofile(follower)
    try:
        plan = decide(story.world, at)
    finally:
        sys.setprofile(before)
    assert _binds(plan), "the pass binds nothing"
    return Followed(Way(tuple(follower.rule)), Way(tuple(follower.whole)))


def _binds(plan: Plan) -> list[BindPod]:
    return [action for action in plan.actions if isinstance(action, BindPod)]


def _warm() -> Story:
    """A bridge that has bound a pod before: what depends on the first use of a node or a policy is known."""
    story = Story()
    story.runs(pod("earlier"), 16, at=START + 20)
    return story


def _gang(size: int) -> list[Pod]:
    labels, says = {names.PREFIX + names.GANG: "ring"}, {"gang-size": str(size)}
    return [pod(f"w-{rank}", labels=labels, says=says) for rank in range(size)]


def one_pod() -> Followed:
    """Slurm grants nodes to one pod at once."""
    story = _warm()
    story.sees(pod())
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    return followed(story, NOW)


def queued_pod() -> Followed:
    """The job of one pod waits in the queue, starts, and is read."""
    story, waiting = _warm(), pod()
    story.queues(waiting, 17, at=NOW)
    story.polls({16: "RUNNING", 17: "RUNNING"}, at=NOW + 5)
    story.decides(NOW + 5)  # reads the job, and visits the pod that runs
    story.reads(job_of(waiting, 17, submitted=NOW), at=NOW + 6, granted=grant(17))
    return followed(story, NOW + 6)


def gang_on_two_nodes() -> Followed:
    """Slurm grants two nodes to a gang of four pods at once."""
    story = _warm()
    story.sees(*_gang(4))
    [asked] = story.acts(AllocateNow, NOW)
    nodes = tuple(GrantedNode(name, 2, 200) for name in ("x1", "x2"))
    story.ended(asked, at=NOW, job_id=17, grant=Grant(17, nodes))
    return followed(story, NOW)


def gang_of_two_shapes() -> Followed:
    """The heterogeneous job of a gang waits in the queue, starts, and is read."""
    story, (small, large) = _warm(), _gang(2)
    large = replace(large, containers=pod(cpu=2000).containers)
    story.sees(small, large)
    [asked] = story.acts(SubmitJob, NOW)
    story.ended(asked, at=NOW, job_id=17)
    story.polls({16: "RUNNING", 17: "RUNNING", 18: "RUNNING"}, at=NOW + 5)
    story.decides(NOW + 5)  # reads the job, and visits the pod that runs
    name, running = asked.spec.name, frozenset({"RUNNING"})
    other = Job(18, name, "alice", running, partition="main", het_id=17, het_offset=1)
    read = Job(17, name, "alice", running, partition="main", submitted=NOW, het_id=17, het_offset=0, parts=(other,))
    parts = (Grant(18, (GrantedNode("x2", 2, 100),)),)
    story.reads(read, at=NOW + 6, granted=Grant(17, (GrantedNode("x1", 1, 100),), parts))
    return followed(story, NOW + 6)


SCENARIOS: dict[str, Callable[[], Followed]] = {
    "one pod": one_pod,
    "queued pod": queued_pod,
    "gang on two nodes": gang_on_two_nodes,
    "gang of two shapes": gang_of_two_shapes,
}


def _lines(way: Way) -> Iterator[str]:
    for file, calls in groupby(way.calls, key=lambda call: call[0]):
        yield f"    {file}: {', '.join(function for _, function in calls)}"


def _report(shown: Sequence[str]) -> Iterator[str]:
    for scenario, follow in SCENARIOS.items():
        found = follow()
        yield f"{scenario}: in the rule {found.rule}; in the whole pass {found.whole}"
        if scenario in shown:
            yield from ("  the rule", *_lines(found.rule), "  the whole pass", *_lines(found.whole))


if __name__ == "__main__":
    print("\n".join(_report(sys.argv[1:])))
