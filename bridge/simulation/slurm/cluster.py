"""A simulated Slurm: slurmctld with its queue, slurmdbd with its records, and the interface of slurmrestd (rest.py).

A pure state machine: time is an argument, all randomness comes from a seed, nothing runs by itself.  It answers as Slurm
26.05 was measured to, in what the bridge uses; the contract suite runs the same tests on it and on the real one:

* Jobs wait in one queue, by partition tier, priority and id.  The first job that does not fit has the reason Resources, the
  jobs behind it in its partition have Priority.  A backfill pass starts small jobs that do not delay that job, and computes
  expected starts.
* `stock` simulates Slurm's defaults: a new job is considered after 3 s, and freed capacity is used at the next event or
  backfill pass (up to 30 s later), unless an update of any job triggers a pass in the next second.  Without `stock` every
  second has a full pass.
* Only the backfill pass starts a heterogeneous job, all of its components together or none.
* Immediate allocations are refused with 2013 while a runnable job of an equal or higher tier waits anywhere, with 2016
  if there is no room now (and preempt lower jobs all the same, as the real one does).

Levers for faults and tests are methods of their own: preempt, drain, down, resume, cancel, hold, release, suspend, end,
lose_state, and the switches controller_up and accounting_up.
"""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from bridge.simulation.slurm.jobs import Condition, SimJob, SimPartition, SimUser
from bridge.simulation.slurm.nodes import Holding, SlurmSimNode, Wanted
from bridge.simulation.slurm.start_times import fits_empty, held_by, places_for
from bridge.simulation.slurm.waits import SINGLETON, open_conditions
from scheduler.model.hostlist import fold

# Slurm's own defaults (Slurm facts 5): batch_sched_delay, bf_interval, the rounds in which limits of time are looked at.
SUBMIT_DELAY_S = 3
BACKFILL_INTERVAL_S = 30
LIMIT_CHECK_S = 30
MIN_JOB_AGE_S = 300
MAX_JOB_COUNT = 10_000
# slurmctld saves its state about every five seconds: a crash loses the changes since then.
SAVE_INTERVAL_S = 5
# slurmctld sends new jobs to slurmdbd in rounds, and jobs that end at once.  The rounds and the saves of the state come in
# turn, so that slurmdbd has records of some of the jobs that a crash loses.
ACCOUNTING_INTERVAL_S = 5
FIRST_ACCOUNTING_S = 2
BACKFILL_DEPTH = 100
# Ends of one component of a heterogeneous job that end all; a time limit or a cancel of a component does not.
SHARED_FATES = frozenset({"PREEMPTED", "NODE_FAIL"})
NEVER = float("inf")


class SlurmCluster:
    """One simulated cluster.

    nodes, partitions, users   as slurm.conf and sacctmgr would give them; the first partition marked default is
    seed                       decides how late freed capacity is noticed
    stock                      Slurm's own scheduling pace; False: a full pass every second
    accounting                 True: the cluster has a slurmdbd
    counts_memory              False: SelectTypeParameters=CR_Core
    licenses                   name to the number of licenses
    started                    epoch seconds
    """

    def __init__(
        self,
        nodes: Iterable[SlurmSimNode],
        partitions: Iterable[SimPartition],
        users: Iterable[SimUser],
        *,
        seed: int = 0,
        stock: bool = True,
        accounting: bool = True,
        counts_memory: bool = True,
        started: float = 0.0,
        licenses: Mapping[str, int] | None = None,
        max_job_count: int = MAX_JOB_COUNT,
        min_job_age_s: int = MIN_JOB_AGE_S,
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.partitions = {partition.name: partition for partition in partitions}
        self.users = {user.name: user for user in users}
        self.jobs: dict[int, SimJob] = {}
        self.licenses = dict(licenses or {})
        self.counts_memory = counts_memory
        self.accounting = accounting
        self.controller_up = True
        self.accounting_up = accounting
        self.slurm_conf: dict[str, Any] = {}  # values of slurm.conf in place of the values that follow from the cluster
        self.reservations: set[str] = set()
        self.operators: set[str] = set()  # users whose AdminLevel is Operator
        self.private_accounts = False  # PrivateData=accounts,usage, of slurmdbd and of slurmctld
        self.max_job_count = max_job_count
        self.min_job_age_s = min_job_age_s
        self._named: dict[str, list[SimJob]] = {}  # jobs that have, or had, that name; `twin` uses only living jobs
        self.accounted: list[SimJob] = []  # what slurmdbd lists, lost jobs included
        self.accounted_by_id: dict[int, SimJob] = {}  # of jobs with one id the last
        self.next_id = 1
        self._serial = 0
        self._stock = stock
        self._random = random.Random(seed)  # noqa: S311  (chance of a simulation, reproducible by its seed)
        self._signature = f"signed-{seed}"
        self._tokens: dict[str, tuple[str, float | None]] = {}
        self._begin(started)

    def _begin(self, started: float) -> None:
        for node in self.nodes.values():
            node.counts_memory = self.counts_memory
        self.features = frozenset(feature for node in self.nodes.values() for feature in node.features)
        self.gres_names = frozenset(name for node in self.nodes.values() for name, _ in node.devices)
        self._pending: dict[int, SimJob] = {}
        self._live: dict[int, SimJob] = {}
        self._ended: dict[int, SimJob] = {}
        self._unsaved: list[SimJob] = []
        self._unlisted: dict[int, SimJob] = {}
        self._accounting_due = started + FIRST_ACCOUNTING_S
        self._pass_due = NEVER
        self._backfill_due = started + BACKFILL_INTERVAL_S
        self._limit_check_due = started + LIMIT_CHECK_S

    @classmethod
    def example(
        cls, *, external: int = 4, slurmd: int = 1, started: float = 0.0, seed: int = 0, stock: bool = True
    ) -> SlurmCluster:
        """A cluster like the one of `integration/rig`: nodes k1… without slurmd, n1… with one, alice, bob and carol."""
        devices = {("gpu", "h100"): 8}
        has = ("h100",)
        nodes = [
            SlurmSimNode(f"n{i + 1}", features=has, devices=devices, external=False, dynamic=False)
            for i in range(slurmd)
        ]
        nodes += [SlurmSimNode(f"k{i + 1}", features=has, devices=devices) for i in range(external)]
        partitions = (
            SimPartition("main", default_time_min=60, default=True),
            SimPartition("gpu", default_time_min=60),
            SimPartition("short", max_time_min=5),
            SimPartition("low", tier=1, preempted=True),
        )
        users = (
            SimUser("alice", ("teama", "teama-dev"), ("normal", "high", "low")),
            SimUser("bob", ("teamb",), ("normal", "low"), max_submit_jobs=50, group_tres={"gpu": 4}),
            SimUser("carol", ("teamb",)),
            SimUser("slurm", ("root",), ("normal", "high", "low")),
        )
        licenses = {"matlab": 10}
        return cls(nodes, partitions, users, seed=seed, stock=stock, started=started, licenses=licenses)

    # --- the two ways in: requests to slurmrestd (rest.py), and time

    def tick(self, now: float) -> None:
        """Let slurmctld do what is due by `now`; to be called every second, as its own loop runs."""
        if not self.controller_up:
            return
        if now >= self._limit_check_due:
            self._limit_check_due = now + LIMIT_CHECK_S
            self._check_limits(now)
        self._forget_old(now)
        if now >= self._accounting_due:
            self._accounting_due = now + ACCOUNTING_INTERVAL_S
            self.account(now)
        if not self._stock:
            self._pass_due = self._backfill_due = min(now, self._pass_due, self._backfill_due)
        backfill = now >= self._backfill_due
        if backfill or now >= self._pass_due:
            self._pass_due = NEVER
            self._schedule(now)
        if backfill:
            self._backfill_due = now + BACKFILL_INTERVAL_S
            self._backfill(now)
        if now % SAVE_INTERVAL_S < 1:
            self._unsaved.clear()

    # --- access

    def token(self, user: str, *, issued: float | None = None, expires: float | None = None) -> str:
        """A token of that user which this cluster accepts, until `expires` (epoch seconds)."""
        times = {"iat": issued, "exp": expires}
        claims = {"sun": user} | {claim: at for claim, at in times.items() if at is not None}
        middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        token = f"e30.{middle}.{self._signature}"
        self._tokens[token] = (user, expires)
        return token

    def who(self, token: str, now: float) -> str | None:
        """The user of a token; None: the token is not accepted."""
        user, expires = self._tokens.get(token, (None, None))
        return None if expires is not None and expires <= now else user

    # --- jobs come

    def new_job(self, job: SimJob) -> None:
        """Take a job into the queue."""
        self.jobs[job.id] = self._pending[job.id] = job
        self._unsaved.append(job)
        self.note_name(job)
        if self.accounting:
            self._unlisted[job.id] = job

    def new_id(self) -> tuple[int, int]:
        """The next job id, and a serial number that never comes again."""
        self._serial += 1
        self.next_id += 1
        return self.next_id - 1, self._serial

    def look_after_submission(self, now: float) -> None:
        """A batch submission is looked at after a delay, so that many are looked at together."""
        self._pass_due = min(self._pass_due, now + (SUBMIT_DELAY_S if self._stock else 0))

    def look_soon(self, now: float) -> None:
        """Any update of a job makes slurmctld look at its queue at the next second (the nudge)."""
        self._pass_due = min(self._pass_due, now)

    def live_of(self, user: str) -> int:
        """The number of jobs of a user that wait or run."""
        return sum(1 for jobs in (self._pending, self._live) for job in jobs.values() if job.user == user)

    @property
    def waiting(self) -> int:
        """The number of jobs that wait."""
        return len(self._pending)

    def held_of(self, user: str, gres: str) -> int:
        """The number of devices of that name that a user's jobs hold."""
        return sum(
            len(indices)
            for job in self._live.values()
            if job.user == user
            for holding in job.holdings
            for (name, _), indices in holding.devices.items()
            if name == gres
        )

    def over_limit(self, user: SimUser, wanted: Wanted) -> bool:
        """True if the user's group limit leaves no room for this job now."""
        for gres, limit in user.group_tres.items():
            asked = wanted.devices(gres)
            if asked and asked + self.held_of(user.name, gres) > limit:
                return True
        return False

    def twin(self, job: SimJob) -> SimJob | None:
        """Another living job of this name and user, submitted before: what singleton waits for.

        Components of one heterogeneous job do not wait for each other.
        """
        named = [each for each in self._named.get(job.name, ()) if each.name == job.name and self._lives(each)]
        self._named[job.name] = named
        others = (each for each in named if each.user == job.user and each.serial < job.serial)
        return next((each for each in others if not job.het_id or each.het_id != job.het_id), None)

    def note_name(self, job: SimJob) -> None:
        """Note the name of a job that is new, or that was renamed."""
        named = self._named.setdefault(job.name, [])
        if all(each is not job for each in named):
            named.append(job)

    def _lives(self, job: SimJob) -> bool:
        """True if slurmctld has the job, and the job waits or runs: slurmctld may have lost it."""
        return self._live.get(job.id) is job or self._pending.get(job.id) is job

    def components(self, job: SimJob) -> list[SimJob]:
        """All components of the heterogeneous job to which this job belongs, the leader first; an ordinary job alone."""
        if not job.het_id:
            return [job]
        found: list[SimJob] = []
        # The ids of the components are consecutive.  Ended components may be forgotten.
        for job_id in range(job.het_id, self.next_id):
            each = self.jobs.get(job_id)
            if each is not None and each.het_id == job.het_id:
                found.append(each)
            elif job_id > job.id:
                break
        return found

    def has_licenses(self, job: SimJob) -> bool:
        """True if the licenses that the job requests are free now."""
        if not job.licenses:
            return True
        held: Counter[str] = Counter()
        for other in self._live.values():
            held.update(other.licenses)
        return all(held[name] + count <= self.licenses[name] for name, count in job.licenses.items())

    def blocks_immediate(self, partition: SimPartition, requested: SimJob, now: float) -> bool:
        """True if another runnable job of an equal or higher tier waits, in any partition."""
        return any(
            job is not requested
            and self.partitions[job.partition].tier >= partition.tier
            and job.reason not in ("AssocGrpGRES", "ReqNodeNotAvail")
            and not self.not_runnable(job, now)
            for job in self._pending.values()
        )

    def could(self, wanted: Wanted) -> bool:
        """True if the empty cluster could run the job."""
        return fits_empty(wanted, self.nodes.values())

    def has_nodes_in_service(self, job: SimJob) -> bool:
        """True if the nodes that are neither down nor drained suffice."""
        return fits_empty(job.wanted, [node for node in self.nodes.values() if node.in_service])

    def _has_any_node(self, partition: SimPartition) -> bool:
        """True if one node of the partition is in service."""
        return any(node.in_service and partition.has(node.features) for node in self.nodes.values())

    def place(self, job: SimJob, now: float, barred: Collection[str] = ()) -> bool:
        """Start the job if there is room; True if it started.  barred: nodes that it may not have"""
        places = places_for(job.wanted, self.nodes, [node for node in self.nodes.values() if node.name not in barred])
        if places:
            self._start(job, places, now)
        return bool(places)

    def start(self, job: SimJob, node: str, now: float) -> None:
        """Start a job of one task on that node, which has room for it."""
        self._start(job, {node: 1}, now)

    def preempt_for(self, job: SimJob, now: float) -> bool:
        """End lower jobs, the youngest first, until the job fits somewhere; False if that does not help."""
        everywhere = list(self.nodes.values())
        for nodes in [[node] for node in everywhere] if job.wanted.tasks == 1 else [everywhere]:
            victims = self._victims(job, nodes)
            for victim in victims:
                if not victim.ended:  # by the fate of another component
                    self.end(victim.id, "PREEMPTED", now)
            if victims:
                return True
        return False

    # --- jobs go

    def end(self, job_id: int, state: str, now: float, *, exit_code: int = 0) -> None:
        """End the job in that state.  Its resources are free at once; slurmctld notices that at its next pass."""
        job = self.jobs[job_id]
        assert not job.ended, f"job {job_id} has ended already"
        if not job.holdings:
            job.starts = int(now)
            job.dependency = self.drop_met_conditions(job, now)
        for holding in job.holdings:
            self.nodes[holding.node].give_back(job_id, holding)
        job.state, job.ends, job.exit_code, job.flags = state, int(now), exit_code, ()
        if state == "PREEMPTED" and not job.preempted:
            job.preempted = int(now)
        if state != "CANCELLED":  # which keeps the reason why it waited, or is held
            job.reason = {"TIMEOUT": "TimeLimit", "NODE_FAIL": "NodeDown"}.get(state, "None")
        job.planned = ""
        self._pending.pop(job_id, None)
        self._live.pop(job_id, None)
        self._ended[job_id] = job
        self._list(job)
        self._notice_by_chance(now)
        if state in SHARED_FATES:
            for other in self.components(job):
                if not other.ended:
                    self.end(other.id, state, now)

    def refuse(self, job: SimJob, now: float) -> None:
        """Refuse an immediate allocation, which leaves a record."""
        self.end(job.id, "FAILED", now)
        job.reason = "BadConstraints"

    def cancel(self, job_id: int, now: float) -> None:
        """Cancel the job; of a heterogeneous job one component, or, by the id of its leader, all components that live."""
        job = self.jobs[job_id]
        for each in self.components(job) if job.id == job.het_id else [job]:
            if not each.ended:
                self.end(each.id, "CANCELLED", now)

    def preempt(self, job_id: int, now: float, *, grace_s: int = 0) -> None:
        """Preempt the job: at once, or after a grace in which it is SIGNALING and its end is known."""
        job = self.jobs[job_id]
        if grace_s:
            job.flags, job.preempted, job.ends = ("SIGNALING",), int(now), int(now) + grace_s
        else:
            self.end(job_id, "PREEMPTED", now)

    def suspend(self, job_id: int) -> None:
        """`scontrol suspend`: the job keeps its nodes."""
        assert self.jobs[job_id].state == "RUNNING"
        self.jobs[job_id].state = "SUSPENDED"

    def unsuspend(self, job_id: int) -> None:
        """`scontrol resume`."""
        assert self.jobs[job_id].state == "SUSPENDED"
        self.jobs[job_id].state = "RUNNING"

    def hold(self, job_id: int, *, by_admin: bool = True) -> None:
        """Hold the job until it is released."""
        job = self.jobs[job_id]
        job.held = job.reason = "JobHeldAdmin" if by_admin else "JobHeldUser"

    def release(self, job_id: int, now: float) -> None:
        """End the hold."""
        job = self.jobs[job_id]
        job.held, job.reason = "", "None"
        self.look_soon(now)

    def lose_state(self, now: float, *, younger_than_s: float = SAVE_INTERVAL_S) -> list[int]:
        """slurmctld is killed and comes back with a state that old.

        Returns the lost ids, which will be used again.  Accounting keeps the records that it has of these jobs.
        """
        lost = [job for job in self._unsaved if now - job.submitted <= younger_than_s and job.id in self.jobs]
        return self._lose(lost, now)

    def lose_everything(self, now: float) -> list[int]:
        """slurmctld is killed and comes back without any state: it knows no job, and gives ids out from the first on.

        Returns the ids it lost.
        """
        return self._lose(list(self.jobs.values()), now)

    def _lose(self, lost: list[SimJob], now: float) -> list[int]:
        for job in lost:
            for holding in () if job.ended else job.holdings:
                self.nodes[holding.node].give_back(job.id, holding)
            for jobs in (self.jobs, self._pending, self._live, self._ended, self._unlisted):
                jobs.pop(job.id, None)
        self._unsaved.clear()
        if lost:
            self.next_id = min(job.id for job in lost)
        self.look_soon(now)
        return [job.id for job in lost]

    # --- nodes

    def drain(self, node: str, reason: str = "") -> None:
        """Drain the node: jobs there run on, new jobs do not start."""
        self.nodes[node].drained, self.nodes[node].reason = True, reason

    def down(self, node: str, now: float, reason: str = "") -> None:
        """Set the node down: its jobs fail at once."""
        self.nodes[node].down, self.nodes[node].reason = True, reason
        while self.nodes[node].jobs:
            self.end(min(self.nodes[node].jobs), "NODE_FAIL", now)

    def resume(self, node: str, now: float) -> None:
        """Return the node to service."""
        self.nodes[node].drained = self.nodes[node].down = False
        self.nodes[node].reason = ""
        self.look_soon(now)

    def add_node(self, node: SlurmSimNode) -> None:
        """Add a node, as `new/node` does."""
        assert node.name not in self.nodes
        node.counts_memory = self.counts_memory
        self.nodes[node.name] = node
        self.features |= frozenset(node.features)
        self.gres_names |= frozenset(name for name, _ in node.devices)

    def remove_node(self, node: str) -> None:
        """Delete a node, which must be idle."""
        assert not self.nodes[node].jobs
        del self.nodes[node]

    # --- what must always hold

    def check(self) -> None:
        """No core, memory or device is given twice, and every list of jobs agrees."""
        for node in self.nodes.values():
            there = {job.id: h for job in self._live.values() for h in job.holdings if h.node == node.name}
            assert node.jobs == there.keys()
            holdings = there.values()
            cores = 0
            for holding in holdings:
                assert not cores & holding.cores, f"cores of {node.name} were given twice"
                cores |= holding.cores
            assert cores | node.free_cores == (1 << node.cpus) - 1
            assert sum(h.memory_mib for h in holdings) + node.free_memory_mib == node.memory_mib
            for kind, has in node.devices.items():
                given = [index for h in holdings for index in h.devices.get(kind, ())] + node.free_devices[kind]
                given += node.lost_devices.get(kind, ())
                assert len(given) == len(set(given)) == has, f"devices of {node.name} were given twice"
        for name, count in self.licenses.items():
            held = sum(job.licenses.get(name, 0) for job in self._live.values())
            assert held <= count, f"more licenses of {name} are held than there are"
        assert self._pending.keys() == {job.id for job in self.jobs.values() if job.pending}
        assert self._live.keys() == {job.id for job in self.jobs.values() if job.holds}
        assert self._ended.keys() == {job.id for job in self.jobs.values() if job.ended}

    # --- slurmctld's own rounds

    def _queue(self) -> list[SimJob]:
        """The order of the queue: tier, then priority (reduced by nice), then id."""
        return sorted(self._pending.values(), key=lambda job: (-self.partitions[job.partition].tier, job.nice, job.id))

    def _schedule(self, now: float) -> None:
        """One pass of the main scheduler: in order, each partition up to its first job that does not fit.

        The nodes of that partition are left to backfill then.
        """
        blocked: set[str] = set()
        barred: set[str] = set()

        def block(name: str) -> None:
            blocked.add(name)
            barred.update(node.name for node in self.nodes.values() if self.partitions[name].has(node.features))

        for job in self._queue():
            if why := self.not_runnable(job, now):
                job.reason, job.starts, job.planned = why, job.begin if why == "BeginTime" else 0, ""
            elif job.het_id:
                job.reason = job.reason if job.reason in ("Resources", "ReqNodeNotAvail") else "None"
                block(job.partition)
            elif self.over_limit(self.users[job.user], job.wanted):
                job.reason, job.starts, job.planned = "AssocGrpGRES", 0, ""
            elif not job.wanted.excluded and not self._has_any_node(self.partitions[job.partition]):
                job.reason = "Resources"
            elif not self.has_nodes_in_service(job):
                job.reason, job.starts, job.planned = "ReqNodeNotAvail", 0, ""
            elif job.partition in blocked:
                job.reason = "Priority"
            elif not self.has_licenses(job):
                job.reason, job.starts, job.planned = "Licenses", 0, ""
                block(job.partition)
            elif not self.place(job, now, barred) and not (self.preempt_for(job, now) and self.place(job, now, barred)):
                job.reason = "Resources"
                block(job.partition)

    def _backfill(self, now: float) -> None:
        """Compute when the pending jobs will start, and start the jobs that delay no other."""
        planned: dict[str, float] = {}  # node name to when a pending job starts there
        looked_at: set[int] = set()
        for job in self._queue()[:BACKFILL_DEPTH]:
            if job.het_id:
                if job.het_id not in looked_at:  # where the first of its components stands in the queue
                    looked_at.add(job.het_id)
                    self._start_together(self.components(self.jobs[job.het_id]), now, planned)
                continue
            if job.reason not in ("Resources", "Priority"):
                continue
            limit = job.time_limit_min
            places = places_for(job.wanted, self.nodes, self._free_for(limit, now, planned))
            if not places and job.time_least_min:
                places = places_for(job.wanted, self.nodes, self._free_for(job.time_least_min, now, planned))
                until = min((planned.get(name, NEVER) for name in places or ()), default=NEVER)
                limit = limit if until == NEVER else int(min((until - now) // 60, limit or NEVER))
            if places and self.has_licenses(job):
                job.time_limit_min = limit
                self._start(job, places, now)
                continue
            start, names = self._expected(job, now, planned)
            if names:
                job.starts, job.planned = int(start), fold(names)
                planned.update({name: min(start, planned.get(name, NEVER)) for name in names})

    def _free_for(self, minutes: int | None, now: float, planned: Mapping[str, float]) -> list[SlurmSimNode]:
        """The nodes where a job of that many minutes ends before another job is planned to start."""
        needs_s = (minutes or 10**9) * 60
        return [node for node in self.nodes.values() if planned.get(node.name, NEVER) - now >= needs_s]

    def _start_together(self, jobs: list[SimJob], now: float, planned: dict[str, float]) -> None:
        """All components of a heterogeneous job or none, each on nodes of its own.

        While a component must wait, nodes are kept for the others.  If a component was cancelled, the job waits for ever.
        """
        places: dict[int, Mapping[str, int]] = {}
        kept: set[str] = set()
        user = self.users[jobs[0].user]
        for job in sorted(jobs, key=lambda job: (-self.partitions[job.partition].tier, job.het_offset)):
            if not job.pending or self.not_runnable(job, now):
                continue
            if self.over_limit(user, job.wanted) or not self.has_licenses(job):
                continue
            free = self._free_for(job.time_limit_min, now, planned)
            found = places_for(job.wanted, self.nodes, [node for node in free if node.name not in kept])
            places |= {job.id: found} if found else {}
            kept |= (found or {}).keys()
            job.reason = "Resources" if self.has_nodes_in_service(job) else "ReqNodeNotAvail"
        if len(places) == len(jobs):
            for job in jobs:
                self._start(job, places[job.id], now)
        else:
            planned.update({name: min(now, planned.get(name, NEVER)) for name in kept})

    def _expected(self, job: SimJob, now: float, planned: Mapping[str, float]) -> tuple[float, list[str]]:
        """The nodes that will have room first, and when, if no further job comes.  None: not known."""
        best: tuple[float, list[str]] = (NEVER, [])
        if job.wanted.tasks == 1:
            for node in self.nodes.values():
                ends = [self.jobs[job_id].ends for job_id in node.jobs]
                if node.in_service and node.room_when_empty(job.wanted) and all(ends):
                    best = min(best, (max([now, *ends, planned.get(node.name, now)]), [node.name]))
            return best
        for end in sorted({other.ends for other in self._live.values() if other.ends}):
            over = [other for other in self._live.values() if 0 < other.ends <= end]
            if places := places_for(job.wanted, self.nodes, freed=held_by(over)):
                return max([now, end, *(planned.get(name, now) for name in places)]), list(places)
        return best

    def not_runnable(self, job: SimJob, now: float) -> str:
        """Why the job cannot start even with room; "": it can."""
        if job.held:
            return job.held
        return self._not_eligible(job, now) if self.partitions[job.partition].up else "PartitionDown"

    def _not_eligible(self, job: SimJob, now: float) -> str:
        """Why a job that is not held may not start yet, by its own request; "": it may."""
        unmet = self.drop_met_conditions(job, now)
        if any(condition.failed for condition in unmet):
            return "DependencyNeverSatisfied"
        if unmet:
            return "Dependency"
        return "BeginTime" if job.begin > now else ""

    def drop_met_conditions(self, job: SimJob, now: float) -> tuple[Condition, ...]:
        """The conditions of its dependency that do not hold.  A condition that held once is dropped, except singleton."""
        if not job.dependency:
            return ()
        left = open_conditions(job, self.jobs, self.twin(job), now)
        job.dependency = (*(each for each in job.dependency if each.kind == SINGLETON and each not in left), *left)
        return left

    def _victims(self, job: SimJob, nodes: list[SlurmSimNode]) -> list[SimJob]:
        """Jobs on these nodes to preempt so that this job fits there; empty if that is not possible."""
        tier = self.partitions[job.partition].tier
        there = [self.jobs[job_id] for node in nodes if node.in_service for job_id in node.jobs]
        lower = {
            other.id: other
            for other in there
            if self.partitions[other.partition].preempted and self.partitions[other.partition].tier < tier
        }
        victims: list[SimJob] = []
        for other in sorted(lower.values(), key=lambda other: -other.serial):
            victims.append(other)
            if places := places_for(job.wanted, self.nodes, nodes, held_by(victims)):
                return [victim for victim in victims if not places.keys().isdisjoint(victim.nodes)]
        return []

    def _notice_by_chance(self, now: float) -> None:
        """Set the time of the next scheduling pass after a job's end: often soon, at the latest that of the backfill."""
        if self._stock:
            self._pass_due = min(self._pass_due, now + self._random.choice((1, 1, 6, 20, BACKFILL_INTERVAL_S)))

    def _start(self, job: SimJob, places: Mapping[str, int], now: float) -> None:
        job.holdings = self._taken(job, places)
        self._run(job, now)

    def _taken(self, job: SimJob, places: Mapping[str, int]) -> tuple[Holding, ...]:
        return tuple(self.nodes[name].take(job.id, job.wanted, tasks) for name, tasks in places.items())

    def _run(self, job: SimJob, now: float) -> None:
        job.state, job.reason, job.starts, job.planned = "RUNNING", "None", int(now), ""
        job.ends = int(now) + job.time_limit_min * 60 if job.time_limit_min is not None else 0
        self._pending.pop(job.id, None)
        self._live[job.id] = job

    def account(self, now: float) -> None:
        """Send new jobs to slurmdbd.  It lists a job by its name from when the job may start: not held, and not waiting."""
        for job in list(self._unlisted.values()):
            self.accounted_by_id[job.id] = job
            if not job.pending or not (job.held or self._not_eligible(job, now)):
                self._list(job)

    def _list(self, job: SimJob) -> None:
        if self._unlisted.pop(job.id, None) is not None:
            self.accounted_by_id[job.id] = job
            self.accounted.append(job)

    def _check_limits(self, now: float) -> None:
        for job in [job for job in self._live.values() if job.ends and job.ends <= now]:
            self.end(job.id, "PREEMPTED" if "SIGNALING" in job.flags else "TIMEOUT", now)

    def _forget_old(self, now: float) -> None:
        for job in self._oldest_ended(now):
            del self.jobs[job.id]
            del self._ended[job.id]

    def _oldest_ended(self, now: float) -> list[SimJob]:
        """Ended jobs are in the order of their ends."""
        old: list[SimJob] = []
        for job in self._ended.values():
            if now - job.ends < self.min_job_age_s:
                break
            old.append(job)
        return old
