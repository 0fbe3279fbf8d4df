"""Facts in a few words, for tests: pods, nodes and jobs with what matters named and the rest sensible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from scheduler import names
from scheduler.actions import Action, AllocateNow, BindPod, Outcome, Plan, ReadOwner, SubmitJob
from scheduler.apply.events import new_world
from scheduler.decide import decide
from scheduler.events import (
    ActionEnded,
    Event,
    JobRead,
    JobsPolled,
    NamespacesListed,
    NodesListed,
    Planned,
    PodDeleted,
    PodSeen,
    PodsListed,
    Scope,
    SlurmNodesPolled,
)
from scheduler.model.kubernetes import Container, Namespace, Node, OwnerRef, Pod, PodPhase, owner_key
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Grant, GrantedNode, Job, Partition, SlurmNode
from scheduler.place.feasible import slurm_name
from scheduler.policy.rules import Choice, Policy, Rule, Tenant
from scheduler.state.derived import rebuilt
from scheduler.state.pod_records import LastStatus
from scheduler.state.workload import Workload
from scheduler.state.world import World
from scheduler.translate.job_spec import Translation
from scheduler.tuning import Config, Tuning

A = TypeVar("A", bound=Action)
MIB = 1024 * 1024
START = 1000.0
ALICE = Tenant(
    "alice",
    accounts=Choice("", ("teama", "teama-dev")),
    partitions=Choice("", ("main", "gpu")),
    qos=Choice("", ("high",)),
)
POLICY = Policy((Rule(("hpc",), ALICE), Rule(("other",), Tenant("bob"))))
# Stories are about pods: actions on shared nodes are part of the stories that are about nodes.
CONFIG = Config(policy=POLICY, translation=Translation(gres={"nvidia.com/gpu": "gpu"}), shared_nodes=False)
KUBE_SYSTEM = Namespace("kube-system", "uid-of-kube-system")
CLUSTER = names.cluster_id(KUBE_SYSTEM.uid)


def amounts(**given: int) -> dict[str, int]:
    """cpu in millicores, memory in MiB, gpu as nvidia.com/gpu; anything else as it is."""
    known = {"cpu": ("cpu", 1), "memory": ("memory", MIB), "gpu": ("nvidia.com/gpu", 1)}
    return {known.get(key, (key, 1))[0]: value * known.get(key, (key, 1))[1] for key, value in given.items()}


def pod(name: str = "train", *, cpu: int = 1000, memory: int = 100, gpu: int = 0, **fields: Any) -> Pod:
    """A pending pod of namespace hpc that wants this."""
    wants = amounts(cpu=cpu, memory=memory, **({"gpu": gpu} if gpu else {}))
    annotations = {names.PREFIX + key: value for key, value in fields.pop("says", {}).items()}
    given: dict[str, Any] = {
        "uid": f"uid-{name}",
        "namespace": "hpc",
        "name": name,
        "created": START + 1,
        "scheduler_name": names.SCHEDULER_NAME,
        "restart_policy": "Never",
        "containers": (Container("main", requests=wants),),
        "annotations": annotations,
    }
    return Pod(**(given | fields))


def node(
    name: str = "x1", *, cpu: int = 64000, memory: int = 512000, gpu: int = 8, pods: int = 110, **fields: Any
) -> Node:
    return Node(name=name, allocatable=amounts(cpu=cpu, memory=memory, gpu=gpu, pods=pods), **fields)


def slurm_node(
    name: str = "x1", *, external: bool = True, static: bool = False, partitions: tuple[str, ...] = ("main", "gpu")
) -> SlurmNode:
    """static: an external node of slurm.conf, on which devices are lost that a job requests by task."""
    external_states = {"IDLE", "EXTERNAL"} if static else {"IDLE", "EXTERNAL", "DYNAMIC_NORM"}
    states = frozenset(external_states if external else {"IDLE"})
    return SlurmNode(name, states, partitions, (), 64, 512000, {"gpu": 8})


def key_of(what: Pod) -> str:
    return names.workload_key(what.uid)


def job_of(what: Pod, job_id: int, *states: str, user: str = "alice", **fields: Any) -> Job:
    """The placeholder of that pod as Slurm shows it."""
    name = names.job_name(what.full_name, CLUSTER, key_of(what))
    fields.setdefault("nodes", "" if "PENDING" in states else "x1")  # Slurm shows the nodes of ended jobs, too
    return Job(job_id, name, user, frozenset(states or ("RUNNING",)), partition="main", **fields)


def grant(job_id: int, on: str = "x1", *, cpus: int = 1, memory: int = 100, gpu: int = 0) -> Grant:
    return Grant(job_id, (GrantedNode(on, cpus, memory, {"gpu": gpu} if gpu else {}),))


OWNER = OwnerRef("apps/v1", "ReplicaSet", "web", "uid-web")


# In a row of plans that do nothing, between which nothing changes, one in so many is checked: a workload that one of them
# misses is missed by the next ones, too.  With a check of each the tests take nearly twice as long.
QUIET_CHECKED = 5


class Story:
    """A world to which a test applies events, and whose decisions it reads, in the order of the test's sentences."""

    def __init__(
        self,
        config: Config = CONFIG,
        nodes: Iterable[Node] = (node("x1"), node("x2")),
        *,
        guarded: bool = False,
        started: float = START,
        pods: Iterable[Pod] = (),
        checked: bool = True,
    ) -> None:
        """
        pods     the first list
        checked  its plans are compared with those of a World without indexes that visits all workloads.  This does not hold
                 for stories whose plans are full (the order counts), or in which a rule looks again after a time; and it
                 takes too long for stories about effort.
        """
        self.world = self.new_world(config, started, guarded)
        self.now = started
        self.checked = checked
        self.quiet = 0  # so many plans in a row did nothing
        self.polled = dict[int, frozenset[str]]()  # what the last poll showed
        nodes = tuple(nodes)
        managed = {names.MANAGED_LABEL: "true"}
        self.sees(
            NamespacesListed((KUBE_SYSTEM, Namespace("hpc", "1", managed), Namespace("other", "2", managed))),
            NodesListed(nodes),
            PodsListed(Scope.OURS, tuple(pods), started),
            PodsListed(Scope.OTHERS, (), started),
            SlurmNodesPolled(
                tuple(slurm_node(slurm_name(each)) for each in nodes),
                (Partition("main", default=True), Partition("gpu", max_time_min=600)),
                started,
            ),
        )
        self.polls(at=started)

    def new_world(self, config: Config, started: float, guarded: bool) -> World:
        """The world of the story; it knows nothing yet."""
        return new_world(config, started=started, guarded=guarded)

    def sees(self, *events: Event | Pod) -> None:
        for event in events:
            self._hears(PodSeen(Scope.OURS, event) if isinstance(event, Pod) else event)

    def loses(self, what: Pod, at: float) -> None:
        self._hears(PodDeleted(Scope.OURS, what, at))

    def polls(self, states: Mapping[int, str] | None = None, *, at: float) -> None:
        """A poll that began and ended then."""
        sets = {job_id: frozenset(said.split()) for job_id, said in (states or {}).items()}
        self.world.apply(JobsPolled(at, at, sets))
        if sets != self.polled:
            self.polled, self.quiet = sets, 0

    def reads(self, job: Job | None, *, at: float, job_id: int = 0, granted: Grant | None = None) -> None:
        self._hears(JobRead(job.id if job else job_id, at, at, job, granted))

    def _hears(self, event: Event) -> None:
        self.world.apply(event)
        self.quiet = 0

    def plan(self, at: float) -> Plan:
        """Decide, and take it as planned."""
        plan = decide(self.world, at)
        is_checked = self.checked and (bool(plan.actions) or self.quiet % QUIET_CHECKED == 0)
        self.quiet = 0 if plan.actions else self.quiet + 1
        if is_checked:
            self.world.validate()
            self.check(plan, at)
        self.world.apply(Planned(plan, at))
        if is_checked:
            self.check_wakes()
        return plan

    def check(self, plan: Plan, at: float) -> None:
        """Marks and wake-ups miss no workload, and the plan relies on no index that differs from the facts."""
        (does, rereads), (would_do, would_reread) = (
            apart_from_rereads(each, self.world) for each in (plan, decide(rebuilt(self.world), at, everything=True))
        )
        assert does == would_do, "incremental plan == full plan of a world whose indexes are computed anew"
        assert rereads <= would_reread, "a visit reads known owners again, and no workload is visited for that alone"

    def check_wakes(self) -> None:
        """A visit at the time for which a wait set the wake-up does not wait for that time again, which would never end."""
        if self.world.wakes:
            due = min(self.world.wakes.values())
            plan = decide(self.world, due)
            assert plan.actions or all(at > due for at in plan.wake.values()), f"{plan.wake} at {due}: the wait is over"

    def decides(self, at: float) -> list[Action]:
        return list(self.plan(at).actions)

    def acts(self, kind: type[A], at: float) -> list[A]:
        """Decide, and look only at the actions of that kind."""
        return [action for action in self.decides(at) if isinstance(action, kind)]

    def ended(self, action: Action, outcome: Outcome = Outcome.DONE, *, at: float, **answer: Any) -> None:
        number = answer.pop("number", None)
        if number is not None:
            later = answer.pop("later", is_twin(action, number))
            wait_s = answer.pop("retry_after_s", None)
            answer["refusal"] = Refusal(names.REFUSED, f"Slurm refused it (error {number}).", number, later, wait_s)
        self._hears(ActionEnded(action, outcome, answer.pop("began", at), at, **answer))

    def queues(self, what: Pod, job_id: int, *, at: float) -> SubmitJob:
        """The pod is created, and its job waits in Slurm's queue; immediate allocation is refused before."""
        self.sees(what)
        [asked] = [each for each in self.decides(at) if isinstance(each, AllocateNow | SubmitJob)]
        if isinstance(asked, AllocateNow):
            self.ended(asked, Outcome.REFUSED, at=at, number=2013)
            [asked] = self.acts(SubmitJob, at)
        self.ended(asked, at=at, job_id=job_id)
        return asked

    def binds(self, what: Pod, job_id: int, *, on: str = "x1", at: float) -> BindPod:
        """The pod comes and is granted nodes at once; its bind is sent, and has no answer yet."""
        self.sees(what)
        [asked] = self.acts(AllocateNow, at)
        wants = asked.spec
        granted = grant(
            job_id, on, cpus=wants.cpus_per_task, memory=wants.memory_mib, gpu=dict(wants.gres).get("gpu", 0)
        )
        self.ended(asked, at=at, job_id=job_id, grant=granted)
        [bind] = self.acts(BindPod, at)
        return bind

    def runs(self, what: Pod, job_id: int, *, on: str = "x1", at: float) -> Pod:
        """The pod comes, is granted nodes at once and bound; the watch and a poll have shown it."""
        self.ended(self.binds(what, job_id, on=on, at=at), at=at)
        shown = self.bound(what, job_id, on)
        self.sees(shown)
        return shown

    def bound(self, what: Pod, job_id: int, on: str = "x1", **fields: Any) -> Pod:
        """The pod as the watch shows it after our bind."""
        keys = {**what.annotations, names.JOB_ID: str(job_id)}
        return replace(what, node=on, annotations=keys, **({"phase": PodPhase.RUNNING} | fields))


# What a bind writes on a pod without a gang, beside the job's id.
OF_A_BIND = {names.JOB_NODES: "x1", names.SIZE: "1", names.RANK: "0", names.LOCAL_RANK: "0"}


def apart_from_rereads(plan: Plan, world: World) -> tuple[set[str], set[tuple[str, str]]]:
    """What the plan does; and which owners that are known it reads again (owners.read_in_passing)."""
    reads = [each for each in plan.actions if isinstance(each, ReadOwner)]
    again = [each for each in reads if owner_key(each.namespace, each.ref) in world.owners]
    rest = {repr(each) for each in plan.actions if each not in again}
    return rest, {owner_key(each.namespace, each.ref) for each in again}


def told_by(workload: Workload) -> list[LastStatus]:
    """What this process showed last on the pods of the workload, about each subject."""
    return [told for about in workload.last_status.values() for told in about.values()]


def is_twin(action: Action, number: int) -> bool:
    """True if the refusal says that a job of this name lives.  The executor says that this refusal may pass."""
    return isinstance(action, AllocateNow) and number == 2038


def without(config: Config, **tuning: Any) -> Config:
    """The same with other tuning."""
    return replace(config, tuning=replace(config.tuning, **tuning) if config.tuning else Tuning(**tuning))
