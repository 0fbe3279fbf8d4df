"""Any history: the invariants of the core hold after every decision, and when the faults end everything is in order.

Two small truths, a Kubernetes and a Slurm, answer the core's actions: done, refused, not sent, or sent and lost, with or
without effect, at once or late, in any order.  Watch and polls lag behind as in real clusters.  The decisions of the core are
compared with the truth, not with the events that it got.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler import actions as act
from scheduler import names
from scheduler.actions import Action, Outcome, Plan
from scheduler.decide import decide
from scheduler.events import (
    ActionEnded,
    ClaimsRead,
    Event,
    JobRead,
    JobsPolled,
    LimitsRead,
    NodeDeleted,
    NodeSeen,
    OutageBegan,
    OutageEnded,
    OwnerRead,
    Planned,
    PodDeleted,
    PodSeen,
    PodsListed,
    Scope,
    Side,
    SlurmNodesPolled,
)
from scheduler.model.kubernetes import Claim, Owner, Pod, PodPhase, PodTerm, Requirement
from scheduler.model.limits import KnownLimits, Limit
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Grant, GrantedNode, Job, JobSpec, Partition, holds_nodes, is_ended
from scheduler.place.assign import shortfall
from scheduler.state.world import World
from scheduler.translate.grouping import group_of
from tests.builders import CLUSTER, CONFIG, OWNER, START, Story, key_of, node, pod, slurm_node, without

ROOMY = without(CONFIG, submits=999, reads=999, cancels=999, binds=999, pod_conditions=999, validate_every=1)
CONFIG_HERE = replace(ROOMY, accounting=True)
NODES = ("x1", "x2")
ANOTHER = "another"  # what an admin calls one of them in Slurm for a while
APART = (PodTerm((Requirement("app", "In", ("a",)),), frozenset({"hpc"})),)
APART_FROM_OTHERS = (PodTerm((Requirement("app", "In", ("b",)),), frozenset({"hpc"})),)
STEPS = st.sampled_from([0.0, 0.01, 0.3, 1.0, 2.5, 6.0, 13.0, 61.0, 310.0])
RUNS = frozenset({"RUNNING"})
WAITS = frozenset({"PENDING"})
SUSPENDED = frozenset({"SUSPENDED"})
ENDS = ["CANCELLED", "COMPLETED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"]
SELDOM = ["requeued", "forgotten", "again", "suspended", "limited", "preempted"]
CHANGES_A_JOB = (act.CancelJob, act.UpdateJob, act.NudgeScheduler)
HARMS_A_POD = (act.DeletePod, act.FailByDeadline, act.EvictPod, act.SetDeadline)
TOLD_TWICE = (PodSeen, PodsListed, NodeSeen, JobRead, JobsPolled, SlurmNodesPolled)
MORE_STEPS = 10  # of healing, for what began to end during the last of them
SUBMITS = (act.AllocateNow, act.SubmitJob)


@dataclass
class Late:
    """The effect of a call whose answer was lost, not there yet."""

    effect: Callable[[], object]
    until: float


class Histories(RuleBasedStateMachine):
    GUARDED = False
    CONFIG = CONFIG_HERE

    def __init__(self) -> None:
        super().__init__()
        self.story = Story(self.CONFIG, guarded=self.GUARDED)
        self.world: World = self.story.world
        self.now = START + 0.5
        self.pods: dict[str, Pod] = {}  # as the API server has them
        self.seen: dict[str, Pod] = {}  # as the watch has shown them
        self.jobs: dict[int, Job] = {}
        self.grants: dict[int, Grant] = {}
        self.next_id = 10
        self.serial = 0
        self.under_way: list[Action] = []
        self.late: list[Late] = []
        self.poll: tuple[float, dict[int, frozenset[str]]] | None = None
        self.last: Event | None = None
        self.bound_by_us: set[str] = set()

    # --- time, and what is observed -----------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        self.world.apply(event)
        self.last = event

    @rule(step=STEPS)
    def time_passes(self, step: float) -> None:
        self.now += step
        for late in [each for each in self.late if each.until <= self.now]:
            self.late.remove(late)
            late.effect()

    @rule()
    @precondition(lambda self: isinstance(self.last, TOLD_TWICE))
    def it_is_told_twice(self) -> None:
        """Idempotent: what was seen, listed, polled or read may come again."""
        assert self.last is not None
        before = facts(self.world)
        self.world.apply(self.last)
        assert facts(self.world) == before

    @rule()
    @precondition(lambda self: self.poll is None)
    def a_poll_begins(self) -> None:
        self.poll = self.now, {job_id: job.states for job_id, job in self.jobs.items()}

    @rule()
    @precondition(lambda self: self.poll is not None)
    def a_poll_ends(self) -> None:
        assert self.poll is not None
        (began, states), self.poll = self.poll, None
        self.tell(JobsPolled(began, self.now, states))

    def the_watch_catches_up(self) -> None:
        for uid in [uid for uid in self.seen if uid not in self.pods]:
            self.tell(PodDeleted(Scope.OURS, self.seen.pop(uid), self.now))
        for uid, now in self.pods.items():
            if self.seen.get(uid) != now:
                self.seen[uid] = now
                self.tell(PodSeen(Scope.OURS, now))

    def a_new_list(self) -> None:
        self.seen = dict(self.pods)
        self.tell(PodsListed(Scope.OURS, tuple(self.pods.values()), self.now))

    def a_node_changes(self, name: str, ready: bool, cpu: int) -> None:
        self.tell(NodeSeen(node(name, ready=ready, cpu=cpu)))

    def a_node_goes(self, name: str) -> None:
        """Its object; whatever runs there runs on."""
        self.tell(NodeDeleted(name))

    def a_node_is_called_otherwise(self, name: str) -> None:
        self.tell(NodeSeen(node(name, labels={names.SLURM_NODE_LABEL: ANOTHER})))

    def slurms_nodes_change(self, limit: int | None, one: bool) -> None:
        known = tuple(slurm_node(name) for name in NODES[: 1 if one else 2])
        partitions = (Partition("main", default=True), Partition("gpu", max_time_min=limit))
        self.tell(SlurmNodesPolled(known, partitions, self.now))

    def a_side_comes_or_goes(self, side: Side, lost: bool) -> None:
        self.tell(OutageBegan(side, self.now, "It does not answer.") if lost else OutageEnded(side, self.now))

    @rule(
        data=st.data(),
        what=st.sampled_from(["node", "node", "no node", "renamed", "partitions", "side", "side", "list"]),
    )
    def the_surroundings_change(self, data: st.DataObject, what: str) -> None:
        if what == "node":
            name, ready, cpu = data.draw(
                st.tuples(st.sampled_from(NODES), st.booleans(), st.sampled_from([3000, 64000]))
            )
            self.a_node_changes(name, ready, cpu)
        elif what == "no node":
            self.a_node_goes(data.draw(st.sampled_from(NODES)))
        elif what == "renamed":
            self.a_node_is_called_otherwise(data.draw(st.sampled_from(NODES)))
        elif what == "partitions":
            self.slurms_nodes_change(data.draw(st.sampled_from([None, 600, 60])), data.draw(st.booleans()))
        elif what == "side":
            self.a_side_comes_or_goes(data.draw(st.sampled_from(Side)), data.draw(st.booleans()))
        else:
            self.a_new_list()

    # --- what users and controllers do ------------------------------------------------------------------------------

    @rule(
        count=st.integers(1, 3),
        gpu=st.sampled_from([0, 0, 2]),
        cpu=st.sampled_from([1000, 2000]),
        owned=st.booleans(),
        old=st.booleans(),
        claims=st.sampled_from([(), (), ("data",)]),
        service=st.booleans(),
        anti_affinity=st.sampled_from([(), (), APART, APART_FROM_OTHERS]),
        wrong=st.sampled_from([{}, {}, {}, {"nice": "-1"}, {"partition": "gpu"}, {"account": "teamx"}]),
    )
    @precondition(lambda self: len(self.pods) < 6)
    def a_pod_comes(
        self,
        count: int,
        gpu: int,
        cpu: int,
        owned: bool,
        old: bool,
        claims: tuple[str, ...],
        service: bool,
        anti_affinity: tuple[PodTerm, ...],
        wrong: dict[str, str],
    ) -> None:
        for _ in range(count):
            self.one_pod_comes(gpu, cpu, owned, old, claims, service, anti_affinity, wrong)

    def one_pod_comes(
        self,
        gpu: int,
        cpu: int,
        owned: bool,
        old: bool,
        claims: tuple[str, ...],
        service: bool,
        anti_affinity: tuple[PodTerm, ...],
        wrong: dict[str, str],
    ) -> None:
        self.serial += 1
        new = pod(
            f"p{self.serial}",
            cpu=cpu,
            gpu=gpu,
            owner=OWNER if owned else None,
            created=START - 60 if old else self.now,
            claims=claims,
            restart_policy="Always" if service else "Never",
            labels=({}, {"app": "a"}, {"app": "b"})[self.serial % 3],
            anti_affinity=anti_affinity,
            says=wrong,
        )
        self.pods[new.uid] = new

    @rule(
        size=st.integers(2, 3),
        missing=st.sampled_from([-1, 0, 0, 0, 1]),
        cpu=st.sampled_from([1000, 2000]),
        owned=st.booleans(),
        old=st.booleans(),
        order=st.randoms(use_true_random=False),
    )
    @precondition(lambda self: len(self.pods) < 5)
    def a_gang_comes(self, size: int, missing: int, cpu: int, owned: bool, old: bool, order: Random) -> None:
        """All of it, or one too few, or one too many; in any order."""
        self.serial += 1
        gang, numbers = f"g{self.serial}", list(range(size - missing))
        order.shuffle(numbers)
        for number in numbers:
            self.one_of_a_gang_comes(gang, number, size, cpu, owned, START - 60 if old else self.now)

    def one_of_a_gang_comes(self, gang: str, number: int, size: int, cpu: int, owned: bool, created: float) -> None:
        self.serial += 1
        new = pod(
            f"{gang}-{number}",
            uid=f"uid-{gang}-{number}-{self.serial}",
            cpu=cpu,
            owner=OWNER if owned else None,
            created=created,
            labels={names.PREFIX + "gang": gang},
            says={"gang-size": str(size)},
        )
        self.pods[new.uid] = new

    @rule(number=st.integers(0, 9))
    def one_of_a_gang_comes_again(self, number: int) -> None:
        """A pod that is gone, finished or terminating is replaced by its controller."""
        there = {one.name for one in self.pods.values() if not one.finished and one.deleting_at is None}
        lost = [one for one in self.seen.values() if group_of(one) is not None and one.name not in there]
        if lost and len(self.pods) < 9:
            gang, _, rank = lost[number % len(lost)].name.partition("-")
            size = int(lost[number % len(lost)].annotations[names.PREFIX + "gang-size"])
            self.one_of_a_gang_comes(gang, int(rank), size, 1000, True, self.now)

    @rule(what=st.sampled_from(["edited", "claims", "deleted", "forced", "ends"]), number=st.integers(0, 9))
    def something_happens_to_a_pod(self, what: str, number: int) -> None:
        if what == "edited":
            self.a_pod_is_edited(number, [("nice", "5"), ("nice", "x"), ("gres", "gpu:1")][number % 3])
        elif what == "claims":
            self.a_pod_claims_a_job(number, 8 + number)
        elif what == "ends":
            self.a_pod_ends(number, number % 2 == 0)
        else:
            self.a_pod_is_deleted(number, force=what == "forced")

    def some_pod(self, number: int) -> Pod | None:
        return list(self.pods.values())[number % len(self.pods)] if self.pods else None

    def a_pod_is_edited(self, number: int, says: tuple[str, str]) -> None:
        if one := self.some_pod(number):
            said = {**one.annotations, names.PREFIX + says[0]: says[1]}
            self.pods[one.uid] = replace(one, annotations=said)

    def a_pod_claims_a_job(self, number: int, job_id: int) -> None:
        if one := self.some_pod(number):
            self.pods[one.uid] = replace(one, annotations={**one.annotations, names.JOB_ID: str(job_id)})

    def a_pod_is_deleted(self, number: int, force: bool) -> None:
        if one := self.some_pod(number):
            if force or not one.node:
                del self.pods[one.uid]
            else:
                self.pods[one.uid] = replace(one, deleting_at=self.now + one.grace_s)

    def a_pod_ends(self, number: int, well: bool) -> None:
        one = self.some_pod(number)
        if one is not None and one.node:
            self.pods[one.uid] = replace(one, phase=PodPhase.SUCCEEDED if well else PodPhase.FAILED, exit_code=1 - well)

    # --- what Slurm and its other users do ----------------------------------------------------------------------------

    @rule(
        what=st.sampled_from(["foreign", *3 * ["starts"], *2 * ["ends"], *SELDOM]),
        number=st.integers(0, 9),
        where=st.sampled_from(NODES),
        state=st.sampled_from(ENDS),
    )
    def something_happens_in_slurm(self, what: str, number: int, where: str, state: str) -> None:
        if what == "foreign":
            self.a_foreign_job_comes(number, ("carol", "alice")[number % 2])
        elif what == "starts":
            self.a_job_starts(number, where, short=number % 4 == 0)
        elif what == "ends":
            self.a_job_ends(number, state)
        elif what == "requeued":
            self.a_job_is_requeued(number)
        elif what == "forgotten":
            self.slurm_forgets_a_job(number)
        elif what in ("suspended", "limited", "preempted"):
            self.a_running_job_is(what, number)
        else:
            self.ids_are_given_out_again()

    def a_foreign_job_comes(self, imitates: int, user: str) -> None:
        one = self.some_pod(imitates)
        forged = one is not None and user == "carol"
        name = names.job_name("x", CLUSTER, key_of(one)) if one is not None and forged else "interactive"
        if one is not None and user == "alice":  # the bridge of another Kubernetes, which shares this Slurm
            name = names.job_name("x", "k00000000", key_of(one))
        self.jobs[self.next_id] = Job(self.next_id, name, user, RUNS)
        self.next_id += 1

    def a_job_starts(self, number: int, where: str, short: bool) -> None:
        waiting = [job for job in self.jobs.values() if job.states == WAITS and not self.twin_runs(job.name, job.user)]
        if waiting:
            self.start(waiting[number % len(waiting)].id, where, short)

    def a_job_ends(self, number: int, state: str) -> None:
        alive = [job for job in self.jobs.values() if not is_ended(job.states)]
        if alive:
            one = alive[number % len(alive)]
            self.jobs[one.id] = replace(one, states=frozenset({state}))

    def a_job_is_requeued(self, number: int) -> None:
        running = [job for job in self.jobs.values() if job.states == RUNS]
        if running:
            one = running[number % len(running)]
            self.jobs[one.id] = replace(one, states=WAITS, nodes="", ends=None, preempted=None)
            self.grants.pop(one.id, None)

    def a_running_job_is(self, what: str, number: int) -> None:
        """Suspended, or resumed; given an end, once; or preempted with a grace."""
        running = [job for job in self.jobs.values() if holds_nodes(job.states)]
        if not running:
            return
        one = running[number % len(running)]
        if what == "suspended":
            self.jobs[one.id] = replace(one, states=RUNS if one.states == SUSPENDED else SUSPENDED)
        elif one.ends is None and what == "limited":
            ends = self.now + (40.0, 130.0, 700.0, 2000.0)[number % 4]
            self.jobs[one.id] = replace(one, starts=self.now, ends=ends, time_limit_min=9)
        elif what == "preempted" and one.states == RUNS:
            self.jobs[one.id] = replace(one, states=RUNS | {"SIGNALING"}, preempted=self.now, ends=self.now + 30.0)

    def slurm_forgets_a_job(self, number: int) -> None:
        if self.jobs:
            del self.jobs[list(self.jobs)[number % len(self.jobs)]]

    def ids_are_given_out_again(self) -> None:
        """slurmctld lost its newest state; the next jobs get those ids."""
        self.next_id = max(10, max(self.jobs, default=9) + 1)
        self.jobs[self.next_id] = Job(self.next_id, "interactive", "carol", RUNS)
        self.next_id += 1

    def twin_runs(self, name: str, user: str) -> bool:
        return any(job.name == name and job.user == user and holds_nodes(job.states) for job in self.jobs.values())

    def start(self, job_id: int, where: str, short: bool) -> None:
        self.jobs[job_id] = replace(self.jobs[job_id], states=RUNS, nodes=where)
        gres = {} if short else {"gpu": 8}
        self.grants[job_id] = Grant(job_id, (GrantedNode(where, 64, 512_000, gres),))

    def make(self, spec: JobSpec, where: str | None, short: bool = False) -> int:
        job_id, self.next_id = self.next_id, self.next_id + 1
        partition = spec.partition or "main"
        self.jobs[job_id] = Job(job_id, spec.name, spec.user, WAITS, partition=partition, excluded_nodes="")
        if where is not None:
            self.start(job_id, where, short)
        return job_id

    # --- decide, and act ------------------------------------------------------------------------------------------

    @rule(watch=st.booleans())
    def the_loop_has_news(self, watch: bool) -> None:
        if watch:
            self.the_watch_catches_up()
        self.the_loop_passes()

    def the_loop_passes(self) -> None:
        plan = decide(self.world, self.now)
        self.story.check(plan, self.now)
        self.check(plan)
        self.world.apply(Planned(plan, self.now))
        self.under_way += plan.actions

    @rule(step=st.sampled_from([0.1, 1.0, 2.1]), where=st.sampled_from(NODES), starts=st.booleans())
    def an_ordinary_second(self, step: float, where: str, starts: bool) -> None:
        """Nothing goes wrong: the two sides are heard, the loop passes, and what is under way is done, oldest first."""
        self.time_passes(step)
        self.the_watch_catches_up()
        self.poll = None
        self.a_poll_begins()
        self.a_poll_ends()
        self.the_loop_passes()
        while self.under_way:
            self.does(self.under_way.pop(0), where)
        self.the_watch_catches_up()
        self.the_loop_passes()
        if starts:
            self.all_jobs_start(where)

    def does(self, action: Action, where: str) -> None:
        answer = self.effect(action, where, short=False)
        self.end(action, Outcome.REFUSED if isinstance(answer, Refusal) else Outcome.DONE, self.now, answer)

    def all_jobs_start(self, where: str) -> None:
        for job in list(self.jobs.values()):
            if job.states == WAITS and not self.twin_runs(job.name, job.user):
                self.start(job.id, where, short=False)

    def check(self, plan: Plan) -> None:
        """The invariants of ARCHITECTURE 7, held against the truth of both clusters."""
        submitting = [each.key for each in (*self.under_way, *plan.actions) if isinstance(each, SUBMITS)]
        assert len(submitting) == len(set(submitting)), "at most one submission under way a workload"
        binding = [each.uid for each in (*self.under_way, *plan.actions) if isinstance(each, act.BindPod)]
        assert len(binding) == len(set(binding)), "at most one bind under way a pod"
        for action in plan.actions:
            assert action.reason
            if isinstance(action, (*HARMS_A_POD, act.CancelJob)):
                assert self.now >= START + CONFIG_HERE.tuning.quiet_s, "quiet period"
            if isinstance(action, CHANGES_A_JOB):
                self.check_ours(action.job_id, action.user, action.key)
            if isinstance(action, act.CancelJob):
                self.check_nobody_stands_on(action)
            if isinstance(action, act.BindPod):
                self.check_bind(action)
            if isinstance(action, HARMS_A_POD):
                self.check_harm(action)

    def check_ours(self, job_id: int, user: str, key: str) -> None:
        """V6: Slurm lets a tenant touch no job of other users; of the tenant's own only the bridge's are touched."""
        job = self.jobs.get(job_id)
        assert user == "alice", "V6: nobody else is a tenant of these pods"
        assert job is None or job.user != user or names.parse_job_name(job.name) == (CLUSTER, key), "V6"

    def check_nobody_stands_on(self, cancel: act.CancelJob) -> None:
        """V7: no pod loses its job while it runs, whatever is not observed of its node."""
        workload = self.world.workloads.get(cancel.key)
        job = self.jobs.get(cancel.job_id)
        if workload is None or workload.group is not None or workload.hint != cancel.job_id:
            return
        if job is None or job.states != RUNS or names.parse_job_name(job.name) != (CLUSTER, cancel.key):
            return
        spec = self.world.placeholders[job.id].spec
        if spec is not None and spec.required_nodes and shortfall(spec, self.grants[job.id]):
            return  # it was to replace a lost job, and Slurm did not grant the devices of its pods again (S7)
        granted = [each.name for each in self.grants[job.id].nodes]
        for one in (self.pods.get(uid) for uid in workload.pods):
            stands = one is not None and one.node in granted and not one.finished and one.deleting_at is None
            assert not stands or cancel.key not in self.was_seen_to_stand(), f"V7: {cancel.reason}"

    def was_seen_to_stand(self) -> set[str]:
        return {self.world.key_of_pod[uid] for uid, one in self.seen.items() if one.node}

    def check_bind(self, bind: act.BindPod) -> None:
        """V2: to a node of its own placeholder's live grant, as far as anybody could know."""
        job = self.world.placeholders[bind.job_id]
        assert job.key == bind.key == self.world.key_of_pod[bind.uid]
        assert job.alive
        assert job.holds_nodes
        assert job.grant is not None
        assert bind.node in [granted.name for granted in job.grant.nodes]

    def check_harm(self, action: act.DeletePod | act.FailByDeadline | act.EvictPod | act.SetDeadline) -> None:
        """V7: never while the job of the pod runs, except before an end that Slurm has announced (S4b, S5)."""
        running = [job for job in self.jobs.values() if holds_nodes(job.states) and job.user == "alice"]
        ours = [job for job in running if names.parse_job_name(job.name) == (CLUSTER, action.key)]
        is_bound_for = self.world.workloads[action.key].hint
        for job in (job for job in ours if job.id == is_bound_for and job.preempted is None):
            assert isinstance(action, act.EvictPod | act.SetDeadline), "V7"
            assert job.ends is not None, "V7"
            if isinstance(action, act.SetDeadline):
                started = self.pods[action.uid].started
                assert started is not None
                assert started + action.seconds >= min(job.ends - 11, started + 1), "V7: ten seconds before"
            else:
                assert self.now >= job.ends - 600, "V7: not before it is near"

    @rule(
        number=st.integers(0, 99),
        how=st.sampled_from(["done", "done", "done", "done", "refused", "unreached", "no effect", "effect", "late"]),
        where=st.sampled_from(NODES),
        short=st.sampled_from([False, False, False, True]),
        error=st.sampled_from([2013, 2016, 2018, 2045, 2057]),
    )
    @precondition(lambda self: self.under_way)
    def an_action_ends(self, number: int, how: str, where: str, short: bool, error: int) -> None:
        action = self.under_way.pop(number % len(self.under_way))
        began = self.now
        if how in ("done", "effect"):
            answer = self.effect(action, where, short)
            outcome = Outcome.UNKNOWN if how == "effect" else Outcome.DONE
            if isinstance(answer, Refusal):
                outcome = Outcome.REFUSED
            self.end(action, outcome, began, answer)
        elif how == "late":
            self.late.append(Late(lambda: self.effect(action, where, short), self.now + 11.9))
            self.end(action, Outcome.UNKNOWN, began, None)
        else:
            outcomes = {"refused": Outcome.REFUSED, "unreached": Outcome.UNREACHED, "no effect": Outcome.UNKNOWN}
            refusal = Refusal(names.REFUSED, f"No (error {error}).", error, later=error == 2057)
            self.end(action, outcomes[how], began, refusal)

    def end(self, action: Action, outcome: Outcome, began: float, answer: object) -> None:
        known = outcome is Outcome.DONE
        self.tell(
            ActionEnded(
                action,
                outcome,
                began,
                self.now,
                refusal=answer if isinstance(answer, Refusal) else None,
                job_id=answer if known and isinstance(answer, int) else None,
                grant=self.grants.get(answer) if known and isinstance(answer, int) else None,
                found=answer if known and isinstance(answer, tuple) else (),
                node=answer if known and isinstance(answer, str) else "",
            )
        )

    def effect(self, action: Action, where: str, short: bool) -> object:
        """What the far side does; returns what it would answer."""
        match action:
            case act.AllocateNow():
                if self.twin_runs(action.spec.name, action.spec.user):
                    return Refusal(names.REFUSED, "A twin (error 2038).", 2038, later=True)
                return self.make(action.spec, action.spec.required_nodes or where, short)
            case act.SubmitJob():
                return self.make(action.spec, None)
            case act.CancelJob():
                job = self.jobs.get(action.job_id)
                meant = job is not None and (job.user, job.name) == (action.user, action.name)
                if job is not None and meant and not is_ended(job.states):
                    self.jobs[job.id] = replace(job, states=frozenset({"CANCELLED"}))
            case act.FindJobs():
                return tuple(job.id for job in self.jobs.values() if job.name == action.name)
            case act.BindPod():
                return self.bind(action)
            case act.ReadPod():
                return self.pods[action.uid].node if action.uid in self.pods else ""
            case act.DeletePod() | act.FailByDeadline() | act.EvictPod():
                self.end_pod(action)
            case act.SetDeadline():
                one = self.pods.get(action.uid)
                if one is not None:
                    self.pods[one.uid] = replace(one, set_deadline_s=action.seconds)
            case _:
                self.read(action, short)
        return None

    def read(self, action: Action, problem: bool) -> None:
        match action:
            case act.ReadJob():
                job = self.jobs.get(action.job_id)
                grant = self.grants.get(action.job_id) if job is not None and holds_nodes(job.states) else None
                self.tell(JobRead(action.job_id, self.now, self.now, job, grant))
            case act.ReadLimits():
                limit = Limit("GrpTRES", "gres/gpu", 4, account=action.of.account)
                self.tell(LimitsRead(action.of, KnownLimits(self.now, () if problem else (limit,))))
            case act.ReadOwner():
                self.tell(OwnerRead(action.ref, Owner(action.ref), self.now, action.namespace))
            case act.ReadClaims():
                said = "Claim data does not exist." if problem else ""
                self.tell(ClaimsRead(action.uid, (Claim("data", True, problem=said),), self.now))

    def end_pod(self, action: act.DeletePod | act.FailByDeadline | act.EvictPod) -> None:
        one = self.pods.get(action.uid)
        if one is not None and isinstance(action, act.DeletePod | act.EvictPod):
            self.pods[one.uid] = replace(one, deleting_at=self.now + one.grace_s)
        elif one is not None:
            self.pods[one.uid] = replace(one, phase=PodPhase.FAILED, end_reason="DeadlineExceeded")

    def bind(self, action: act.BindPod) -> Refusal | None:
        one = self.pods.get(action.uid)
        if one is None or one.deleting_at is not None or one.node not in ("", action.node):
            return Refusal(names.REFUSED, "Conflict (error 409).", 409, later=True)
        said = {**one.annotations, **action.annotations}
        self.bound_by_us.add(one.uid)
        self.pods[one.uid] = replace(one, node=action.node, annotations=said, phase=PodPhase.RUNNING, started=self.now)
        return None

    # --- always -------------------------------------------------------------------------------------------------------

    @invariant()
    def the_books_agree(self) -> None:
        world = self.world
        standing = [uid for there in world.node_info.values() for uid in there.pods]
        assert len(standing) == len(set(standing)), "a pod is on one node"
        assert all(count >= 0 for count in world.under_way.values())
        assert all(count >= 0 for count in world.queued_in.values())
        assert sum(len(keys) for keys in world.by_phase.values()) == len(world.workloads)
        assert set(world.phase_of) == set(world.workloads)
        assert sorted(world.first_listed_at.keys() - world.reads_postponed.keys()) == world.unread
        assert world.reads_postponed.keys() <= world.first_listed_at.keys()
        for job_id in world.absent | world.expected:
            assert job_id in world.placeholders
        assert world.unanswered_binds.keys() <= world.assumed.keys()
        for key, workload in world.workloads.items():
            assert key in world.by_phase[world.phase_of[key]]
            assert workload.key == key
            assert workload.pods_in_flight.keys() <= self.known_of(key), "what is held is there"

    def known_of(self, key: str) -> Collection[str]:
        """UIDs of the pods that are known to belong to that workload."""
        return self.world.workloads[key].pods.keys()

    # --- when the faults end ----------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """L1, L2: every pod is bound or says why not; no job is left without a workload."""
        self.now += 15.0
        for late in self.late:
            late.effect()
        self.late.clear()
        for side in Side:
            self.tell(OutageEnded(side, self.now))
        for name in NODES:
            self.tell(NodeSeen(node(name, cpu=640_000)))
        self.slurms_nodes_change(600, one=False)
        for job in [job for job in self.jobs.values() if job.states == SUSPENDED]:
            self.jobs[job.id] = replace(job, states=RUNS)
        for _ in range(30):
            self.heal_one_step()
        for _ in range(MORE_STEPS):
            if self.somebody_just_left():
                self.heal_one_step()
        self.in_order()

    def somebody_just_left(self) -> bool:
        """A pod ends, or its containers may run yet: its job ends after that (S3)."""
        terminates = any(one.deleting_at is not None for one in self.pods.values())
        gone = (each for workload in self.world.workloads.values() for each in workload.deleted_pods.values())
        return terminates or any(each.until > self.now for each in gone)

    def heal_one_step(self) -> None:
        for uid, one in list(self.pods.items()):
            if one.deleting_at is not None and one.deleting_at < self.now:
                del self.pods[uid]
        for job in list(self.jobs.values()):
            if "SIGNALING" in job.states and job.ends is not None and job.ends < self.now:
                self.jobs[job.id] = replace(job, states=frozenset({"PREEMPTED"}))
        for step in (12.0, 1.0, 0.0):
            self.an_ordinary_second(step, "x1", starts=True)

    def in_order(self) -> None:
        alive = {self.world.key_of_pod[one.uid]: one for one in self.pods.values() if not one.finished}
        for job in self.jobs.values():
            named = names.parse_job_name(job.name)
            if named is not None and named[0] == CLUSTER and job.user == "alice" and not is_ended(job.states):
                assert named[1] in alive, f"L2: job {job.id} has no workload"
                one = alive[named[1]]
                assert one.node or self.spoilt(named[1]), f"L1: {one.name} waits"
        for one in self.pods.values():
            if not one.finished:
                told = self.world.workloads[self.world.key_of_pod[one.uid]].last_status
                assert one.node or one.uid in told, f"L1: {one.name} is neither bound nor told why"
        for workload in self.world.workloads.values():
            bound = [bool(one.node) for one in workload.members]
            assert len(set(bound)) < 2 or self.spoilt(workload.key), f"V4: {workload.readable} is bound in part"

        for one in self.pods.values():
            if one.node and not one.finished and one.deleting_at is None and one.uid in self.bound_by_us:
                assert self.stands_on_its_job(one), f"S7: {one.name} is on {one.node}, and no live job of it does"

    def stands_on_its_job(self, one: Pod) -> bool:
        """Its placeholder lives and holds the node of the pod."""
        named = (CLUSTER, self.world.key_of_pod[one.uid])
        mine = [job for job in self.jobs.values() if names.parse_job_name(job.name) == named and job.user == "alice"]
        held = [node.name for job in mine if holds_nodes(job.states) for node in self.grants[job.id].nodes]
        # An admin calls the node by its own name again, which proves nothing (V7).
        return one.node in held or ANOTHER in held

    def spoilt(self, key: str) -> bool:
        """A pod asks for what cannot be read or for more than its place in a gang has, or shows a job before it is bound."""
        pods = self.world.workloads[key].pods.values()
        waiting = [one for one in pods if not one.node]
        preset = any(names.JOB_ID in one.annotations for one in waiting)
        more = len(waiting) < len(pods) and any(names.PREFIX + "gres" in one.annotations for one in waiting)
        return preset or more or any(one.annotations.get(names.PREFIX + "nice") in ("x", "-1") for one in pods)


def facts(world: World) -> tuple[object, ...]:
    """What a repeated event may not change."""
    return (
        {node: dict(there.pods) for node, there in world.node_info.items()},
        dict(world.phase_of),
        {job.id: (job.key, job.states, job.denied, job.absent) for job in world.placeholders.values()},
        set(world.foreign),
        list(world.unread),
        dict(world.reads_postponed),
        dict(world.queued_in),
    )


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=120, stateful_step_count=50, report_multiple_bugs=False)
