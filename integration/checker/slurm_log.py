"""slurmctld's log, read as the history of each job: every state that it was in, to the millisecond.

The log needs SlurmctldDebug=verbose and DebugFlags=TraceJobs.  Facts that this file rests on (Slurm 26.05):

* `[JobId=N] change state: A -> B` comes with every change; N is `7`, or `5+1(6)` for the second component of job 5.
* A start of slurmctld lists what it knows again (`Recovered JobId=N`), without states.  What it does not list is lost.  A job
  may have gone back to an earlier state: the next change says from which state.
* `… JobId=N NodeList=k1` comes right after the change to RUNNING.  slurmdbd may never learn of these nodes: a slurmctld that
  is killed loses what it has not yet sent.
* `_slurm_rpc_request_resource_layout: JobId=N running!` answers a read, and shows that N runs.  If a start of slurmctld has
  forgotten that N was cancelled, no other line may show it.
* `_update_job: …` comes with each change that an update makes, even if the update is refused in the end.  An update without a
  field (the nudge) has no such line.
* A new name and a new time limit are shown, the former ones are not.  After an update of the end time, a time limit is shown.
* `_update_job: set nodes to k1 for JobId=N` shows the nodes that a running job keeps when it gives up others.
* A preemption with grace begins with SIGCONT and SIGTERM; nothing else sends SIGCONT to a running job.
* An id is given out again after slurmctld lost the job that had it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

HOLDS = ("RUNNING", "SUSPENDED")  # states in which a job has its nodes
_AT = r"^\[(?P<at>[-0-9T:.]+)\] "
_JOB = r"JobId=(?:(?P<leader>\d+)\+\d+\()?(?P<id>\d+)\)?"
CHANGE = re.compile(rf"TRACE_JOBS: (?P<by>\w+): \[{_JOB}\] change state: (?P<old>[\w,]+) -> (?P<new>[\w,]+)")
SUBMIT = re.compile(rf"_slurm_rpc_submit_batch_(?:het_)?job: {_JOB} ")
GRANT = re.compile(rf"{_JOB} NodeList=(?P<nodes>\S+)")
RUNS = re.compile(rf"_slurm_rpc_request_resource_layout: {_JOB} running!")
UPDATE = re.compile(rf"_slurm_rpc_update_job: (?:complete )?{_JOB} uid=(?P<uid>\d+)")
WRITES = re.compile(rf"\b_update_job: (?:.*{_JOB})?")
LIMIT = re.compile(rf"_update_job: setting time_limit to (?P<minutes>\d+) for {_JOB}")
NAME = re.compile(rf"_update_job: setting name to (?P<name>.*) for {_JOB}")
MOVE = re.compile(r"_update_job: setting (?:account|partition|QOS) to ")
NODES = re.compile(rf"_update_job: set(?:ting)? nodes to (?P<nodes>\S+) for {_JOB}")
NOTICE = re.compile(rf"job_signal: 18 of running {_JOB}")
KILL = re.compile(rf"_slurm_rpc_kill_job: REQUEST_KILL_JOB {_JOB} uid (?P<uid>\d+)")
RECOVERED = re.compile(rf"Recovered {_JOB} Assoc")
STARTED, SERVES = re.compile("slurmctld version"), re.compile("Running as primary controller")
FORGOTTEN = "UNINITIALISED"  # a job that ended MinJobAge ago; also a request that is only looked at
TENTATIVE = "_het_job_limit_check"  # a component is "completed" for a moment, to see if its limits allow it
STAMP = re.compile(_AT)
UNSAVED_S = 30.0  # slurmctld saves its jobs every few seconds, and later on a machine that is busy
KILLED_S = 1.0  # a job ends so soon after the request that ends it
REPEATED_S = 0.05  # most changes are logged twice, by the code that makes them and by what it calls


@dataclass(frozen=True, slots=True)
class Change:
    """The state (its base: RUNNING, PENDING …) from a time on; "LOST": slurmctld knows the job no more.

    nodes  that came with it, as Slurm writes a host list; "": the log names none
    """

    at: float
    state: str
    line: str
    nodes: str = ""


@dataclass(slots=True, eq=False)
class JobHistory:
    """What happened to one job.

    leader   the id of the heterogeneous job that it is a component of; else its own id
    limits   when it was given another time limit, and that in seconds
    names    when it was given another name, and that
    notices  when Slurm gave notice that it preempts the job
    kills    when the job was to be ended by its id alone, as `scancel 7` does, and by which UID
    unsure   the job ended, and slurmctld was killed soon after and listed the job at its start.  The log does not show if
             slurmctld remembers the end
    """

    id: int
    leader: int
    changes: list[Change]
    limits: list[tuple[float, float]] = field(default_factory=list)
    names: list[tuple[float, str]] = field(default_factory=list)
    notices: list[float] = field(default_factory=list)
    kills: list[tuple[float, int]] = field(default_factory=list)
    unsure: bool = False

    @property
    def begun(self) -> float:
        return self.changes[0].at

    def add(self, change: Change) -> None:
        """The next change."""
        self.changes.append(change)
        self.unsure = False

    def back_to(self, state: str, since: float, line: str) -> None:
        """slurmctld was killed, and has forgotten what came after that state."""
        nodes = next((each.nodes for each in reversed(self.changes) if each.nodes), "") if state in HOLDS else ""
        self.add(Change(since, state, line, nodes))

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

    def held(self) -> list[tuple[float, float, str]]:
        """From when until when it held which nodes, as Slurm writes a host list; "": the log names none."""
        found: list[tuple[float, float, str]] = []
        ends = [change.at for change in self.changes[1:]] + [float("inf")]
        nodes = ""
        for change, until in zip(self.changes, ends, strict=True):
            nodes = (change.nodes or nodes) if change.state in HOLDS else ""
            if change.state in HOLDS:
                found.append((change.at, until, nodes))
        return found

    def knows_name(self, at: float) -> bool:
        """False if the log does not show which name it had then: it was renamed later."""
        return not self.names or self.names[0][0] <= at

    def ends(self, at: float, limit_s: float) -> float:
        """When the time limit of a job that has its nodes at that time is over: time in which it is suspended does not count.

        If starts of slurmctld have forgotten its end, it goes on as before.
        """
        began, suspended_s = at, 0.0
        known = [change for change in self.changes if change.at <= at]
        for number in range(len(known) - 1, -1, -1):
            if known[number].state == "PENDING":
                break
            until = known[number + 1].at if number + 1 < len(known) else at
            suspended_s += until - known[number].at if known[number].state == "SUSPENDED" else 0.0
            began = known[number].at if known[number].state in HOLDS else began
        return began + suspended_s + limit_s

    def end_forgotten(self) -> list[float]:
        """When starts of slurmctld made it run again though it had ended."""
        return [
            later.at
            for one, later in pairwise(self.changes)
            if one.state not in (*HOLDS, "PENDING") and later.state in HOLDS
        ]

    @property
    def killed_by(self) -> int | None:
        """The UID that ended the job by its id alone; None: nobody did.  A bridge ends jobs by id and name together."""
        return next((uid for at, uid in reversed(self.kills) if 0 <= self.over - at <= KILLED_S), None)

    @property
    def over(self) -> float:
        """When it ended or was lost; inf if it has not."""
        last = self.changes[-1]
        return float("inf") if last.state in (*HOLDS, "PENDING") else last.at


@dataclass(frozen=True, slots=True)
class Update:
    """A request that changed a job's options, or may have changed some of them, and the UID that sent it.

    moves  account, partition or QOS were among them
    """

    at: float
    id: int
    uid: int
    line: str
    moves: bool = False


@dataclass(slots=True)
class SlurmLog:
    """All that the log says.  starts: when slurmctld started, and when it served."""

    histories: list[JobHistory] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    starts: list[tuple[float, float]] = field(default_factory=list)
    _now: dict[int, JobHistory] = field(default_factory=dict)
    _known: set[int] | None = None  # ids that a start has recovered; None: it serves
    _since: float = 0.0
    _repeated: tuple[float, tuple[int, str, str]] = (0.0, (0, "", ""))  # the last change, and when
    _writing: set[int] = field(default_factory=set)  # ids of jobs that an update is changing; 0: the line names no job
    _moving: set[int] = field(default_factory=set)  # ids of those among them whose account, partition or QOS it changes

    def add(self, at: float, text: str, line: str) -> None:
        """Takes one line into account."""
        for pattern, handle in _LINES.items():
            if found := pattern.search(text):
                handle(self, at, found, line)
                return

    def _submitted(self, at: float, found: re.Match[str], line: str) -> None:
        self._begin(int(found["id"]), int(found["id"]), Change(at, "PENDING", line))

    def _begin(self, number: int, leader: int, first: Change) -> None:
        history = JobHistory(number, leader, [first])
        self._now[number] = history
        self.histories.append(history)

    def _changed(self, at: float, found: re.Match[str], line: str) -> None:
        if found["by"] == TENTATIVE or found["new"] == FORGOTTEN:
            return
        number, old, new = int(found["id"]), _base(found["old"]), _base(found["new"])
        leader = int(found["leader"] or number)
        change, (before, last) = (number, found["old"], found["new"]), self._repeated
        self._repeated = at, change
        if change == last and at - before < REPEATED_S:
            return
        history = self._now.get(number)
        if history is None or (
            history.over < float("inf") and old == "PENDING" and new != "PENDING" and not self._may_be_back(history)
        ):
            # The log shows the submission of the leader alone; a component may be named first when it gets its nodes.
            of = self._now.get(leader) if leader != number and old == "PENDING" else None
            self._begin(number, leader, Change(of.begun if of is not None else at, old, line))
            history = self._now[number]
        history.leader = leader
        if history.changes[-1].state != old:
            history.back_to(old, self._since if history.changes[-1].at < self._since else at, line)
        if new != old:
            history.add(Change(at, new, line))

    def _granted(self, at: float, found: re.Match[str], line: str) -> None:
        history = self._now.get(int(found["id"]))
        if history is not None and history.changes[-1].state in HOLDS:
            history.changes[-1] = replace(history.changes[-1], nodes=found["nodes"])

    def _runs(self, at: float, found: re.Match[str], line: str) -> None:
        history = self._now.get(int(found["id"]))
        if history is not None and history.changes[-1].state not in HOLDS and self._may_be_back(history):
            history.back_to("RUNNING", self._since, line)

    def _writes(self, at: float, found: re.Match[str], line: str) -> None:
        number = int(found["id"] or 0)
        self._writing.add(number)
        if MOVE.search(found.string):
            self._moving.add(number)
        if (history := self._now.get(number)) is None:
            return
        if limit := LIMIT.search(found.string):
            history.limits.append((at, int(limit["minutes"]) * 60.0))
        elif name := NAME.search(found.string):
            history.names.append((at, name["name"]))
        elif (kept := NODES.search(found.string)) and history.changes[-1].state in HOLDS:
            history.add(Change(at, history.changes[-1].state, line, kept["nodes"]))

    def _updated(self, at: float, found: re.Match[str], line: str) -> None:
        number = int(found["id"])
        if self._writing & {0, number}:
            self.updates.append(Update(at, number, int(found["uid"]), line, number in self._moving))
        self._writing -= {0, number}
        self._moving.discard(number)

    def _noticed(self, at: float, found: re.Match[str], line: str) -> None:
        if history := self._now.get(int(found["id"])):
            history.notices.append(at)

    def _killed(self, at: float, found: re.Match[str], line: str) -> None:
        if history := self._now.get(int(found["id"])):
            history.kills.append((at, int(found["uid"])))

    def _started(self, at: float, found: re.Match[str], line: str) -> None:
        self._known, self._since = set(), at

    def _recovered(self, at: float, found: re.Match[str], line: str) -> None:
        if self._known is not None:
            self._known.add(int(found["id"]))

    def _may_be_back(self, history: JobHistory) -> bool:
        """True if slurmctld started since its end, and knew it: its end may be forgotten."""
        return history.changes[-1].state != "LOST" and history.changes[-1].at < self._since

    def _serves(self, at: float, found: re.Match[str], line: str) -> None:
        if self._known is None:
            return
        known, self._known = self._known, None
        self.starts.append((self._since, at))
        for number, history in list(self._now.items()):
            if number not in known:
                if history.over == float("inf"):
                    history.add(Change(self._since, "LOST", line))
                del self._now[number]
            elif history.over < float("inf") and self._since - history.over < UNSAVED_S:
                history.unsure = True


_LINES = {
    CHANGE: SlurmLog._changed,
    SUBMIT: SlurmLog._submitted,
    GRANT: SlurmLog._granted,
    RUNS: SlurmLog._runs,
    UPDATE: SlurmLog._updated,
    WRITES: SlurmLog._writes,
    NOTICE: SlurmLog._noticed,
    KILL: SlurmLog._killed,
    RECOVERED: SlurmLog._recovered,
    STARTED: SlurmLog._started,
    SERVES: SlurmLog._serves,
}


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
