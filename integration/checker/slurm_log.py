"""slurmctld's log, read as the life of each job: every state that it was in, to the millisecond.

The log needs SlurmctldDebug=verbose and DebugFlags=TraceJobs.  Facts that this file rests on (Slurm 26.05):

* `[JobId=N] change state: A -> B` comes with every change; N is `7`, or `5+1(6)` for the second component of job 5.
* A start of slurmctld lists what it knows again (`Recovered JobId=N`), without states.  What it does not list is lost.  A job
  may have gone back to an earlier state: the next change says from which state.
* A preemption with grace begins with SIGCONT and SIGTERM; nothing else sends SIGCONT to a running job.
* An id is given out again after slurmctld lost the job that had it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

HOLDS = ("RUNNING", "SUSPENDED")  # states in which a job has its nodes
_AT = r"^\[(?P<at>[-0-9T:.]+)\] "
_JOB = r"JobId=(?:(?P<leader>\d+)\+\d+\()?(?P<id>\d+)\)?"
CHANGE = re.compile(rf"TRACE_JOBS: (?P<by>\w+): \[{_JOB}\] change state: (?P<old>[\w,]+) -> (?P<new>[\w,]+)")
SUBMIT = re.compile(rf"_slurm_rpc_submit_batch_(?:het_)?job: {_JOB} ")
UPDATE = re.compile(rf"_slurm_rpc_update_job: complete {_JOB} uid=(?P<uid>\d+)")
LIMIT = re.compile(rf"_update_job: setting time_limit to (?P<minutes>\d+) for {_JOB}")
NOTICE = re.compile(rf"job_signal: 18 of running {_JOB}")
RECOVERED = re.compile(rf"Recovered {_JOB} Assoc")
STARTED, SERVES = "slurmctld version", "Running as primary controller"
FORGOTTEN = "UNINITIALISED"  # a job that ended MinJobAge ago; also a request that is only looked at
TENTATIVE = "_het_job_limit_check"  # a component is "completed" for a moment, to see if its limits allow it
STAMP = re.compile(_AT)
REPEATED_S = 0.05  # most changes are logged twice, by the code that makes them and by what it calls


@dataclass(frozen=True, slots=True)
class Change:
    """The state (its base: RUNNING, PENDING …) from a time on; "LOST": slurmctld knows the job no more."""

    at: float
    state: str
    line: str


@dataclass(slots=True, eq=False)
class Life:
    """One job.

    leader   the id of the heterogeneous job that it is a component of; else its own id
    limits   when it was given another time limit, and that in seconds
    notices  when Slurm gave notice that it preempts the job
    """

    id: int
    leader: int
    changes: list[Change]
    limits: list[tuple[float, float]] = field(default_factory=list)
    notices: list[float] = field(default_factory=list)

    @property
    def begun(self) -> float:
        return self.changes[0].at

    def change_at(self, at: float) -> Change:
        """The last change by then; the first one if there is none."""
        return next((each for each in reversed(self.changes) if each.at <= at), self.changes[0])

    def holds(self) -> list[tuple[Change, float]]:
        """The changes by which it got nodes, and when it lost them; inf: not yet."""
        found: list[tuple[Change, float]] = []
        for number, each in enumerate(self.changes):
            if each.state not in HOLDS or (number and self.changes[number - 1].state in HOLDS):
                continue
            later = (other.at for other in self.changes[number + 1 :] if other.state not in HOLDS)
            found.append((each, next(later, float("inf"))))
        return found

    @property
    def over(self) -> float:
        """When it ended or was lost; inf if it has not."""
        last = self.changes[-1]
        return float("inf") if last.state in (*HOLDS, "PENDING") else last.at


@dataclass(frozen=True, slots=True)
class Update:
    """A change of a job's options, by whom."""

    at: float
    id: int
    uid: int
    line: str


@dataclass(slots=True)
class SlurmLog:
    """All that the log says.  starts: when slurmctld started, and when it served."""

    lives: list[Life] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    starts: list[tuple[float, float]] = field(default_factory=list)
    _now: dict[int, Life] = field(default_factory=dict)
    _known: set[int] | None = None  # ids that a start has recovered; None: it serves
    _since: float = 0.0
    _written: tuple[float, tuple[int, str, str]] = (0.0, (0, "", ""))  # the last change, and when

    def add(self, at: float, text: str, line: str) -> None:
        """Takes one line into account."""
        if found := CHANGE.search(text):
            if found["by"] != TENTATIVE and found["new"] != FORGOTTEN:
                self._changed(at, found, line)
        elif found := SUBMIT.search(text):
            self._begin(int(found["id"]), int(found["id"]), Change(at, "PENDING", line))
        elif found := UPDATE.search(text):
            self.updates.append(Update(at, int(found["id"]), int(found["uid"]), line))
        elif (found := LIMIT.search(text)) and (life := self._now.get(int(found["id"]))):
            life.limits.append((at, int(found["minutes"]) * 60.0))
        elif (found := NOTICE.search(text)) and (life := self._now.get(int(found["id"]))):
            life.notices.append(at)
        elif found := RECOVERED.search(text):
            if self._known is not None:
                self._known.add(int(found["id"]))
        elif STARTED in text:
            self._known, self._since = set(), at
        elif SERVES in text and self._known is not None:
            self._lose(at, line)

    def _begin(self, number: int, leader: int, first: Change) -> None:
        life = Life(number, leader, [first])
        self._now[number] = life
        self.lives.append(life)

    def _changed(self, at: float, found: re.Match[str], line: str) -> None:
        number, old, new = int(found["id"]), _base(found["old"]), _base(found["new"])
        leader = int(found["leader"] or number)
        change, (before, last) = (number, found["old"], found["new"]), self._written
        self._written = at, change
        if change == last and at - before < REPEATED_S:
            return
        life = self._now.get(number)
        if life is None or (
            life.over < float("inf") and old == "PENDING" and new != "PENDING" and not self._may_be_back(life)
        ):
            # The log shows the submission of the leader alone; a component may be named first when it gets its nodes.
            of = self._now.get(leader) if leader != number and old == "PENDING" else None
            self._begin(number, leader, Change(of.begun if of is not None else at, old, line))
            life = self._now[number]
        life.leader = leader
        if life.changes[-1].state != old:
            # slurmctld was killed, and went back to what it had saved.
            back = self._since if life.changes[-1].at < self._since else at
            life.changes.append(Change(back, old, line))
        if new != old:
            life.changes.append(Change(at, new, line))

    def _may_be_back(self, life: Life) -> bool:
        """True if slurmctld started since its end, and knew it: its end may be forgotten."""
        return life.changes[-1].state != "LOST" and life.changes[-1].at < self._since

    def _lose(self, at: float, line: str) -> None:
        known, self._known = self._known or set(), None
        self.starts.append((self._since, at))
        for number, life in list(self._now.items()):
            if number not in known:
                if life.over == float("inf"):
                    life.changes.append(Change(self._since, "LOST", line))
                del self._now[number]


def read(path: Path) -> SlurmLog:
    """What the file says."""
    found = SlurmLog()
    for number, text in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if stamp := STAMP.match(text):
            at = datetime.fromisoformat(stamp["at"]).replace(tzinfo=UTC).timestamp()
            found.add(at, text, f"{path.name}:{number}")
    return found


def _base(state: str) -> str:
    return state.partition(",")[0]
