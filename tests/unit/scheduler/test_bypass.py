"""Pods that reach a node of Slurm without Slurm get an event, are counted, and are ended if the settings say so (N10, V7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    Action,
    AllocateNow,
    BindPod,
    CancelJob,
    DeletePod,
    FailByDeadline,
    Outcome,
    ReadJob,
    SetPodCondition,
    SubmitJob,
)
from scheduler.events import (
    NamespaceSeen,
    NodeSeen,
    OutageBegan,
    OutageEnded,
    PodDeleted,
    PodSeen,
    PodsListed,
    Scope,
    Side,
)
from scheduler.model.kubernetes import Namespace, OwnerRef, Pod, PodPhase
from scheduler.model.slurm import Job
from scheduler.rules.end_pod import OUTLIVES_S
from scheduler.state.backoff import Attempt
from scheduler.state.rivals import RECENT_S, another_bridge
from tests.builders import CONFIG, KUBE_SYSTEM, OWNER, START, Story, grant, job_of, key_of, node, pod, without
from tests.unit.scheduler.test_gangs import member, ring
from tests.unit.scheduler.test_gangs import runs as gang_runs

NOW = START + 20
ENDING = replace(CONFIG, bypass="end")
DAEMONS = OwnerRef("apps/v1", "DaemonSet", "log", "uid-log")
RUNS = {"phase": PodPhase.RUNNING, "node": "x1", "created": NOW}


def squatter(name: str = "squatter", **fields: Any) -> Pod:
    """It came with spec.nodeName."""
    return pod(name, **(RUNS | fields))


def of_others(name: str = "foreign", **fields: Any) -> PodSeen:
    """Another scheduler bound it: it tolerates the bridge's taint."""
    return PodSeen(Scope.OTHERS, squatter(name, **({"scheduler_name": "default-scheduler"} | fields)))


def goes_on(story: Story, *, since: float = NOW, seconds: int = 60, jobs: dict[int, Job] | None = None) -> list[Action]:
    """A poll a second; whatever is read is answered by `jobs`, and everything else succeeds."""
    jobs, done = jobs or {}, []
    for second in range(seconds):
        at = since + second
        story.polls({job_id: " ".join(job.states) for job_id, job in jobs.items()}, at=at)
        for action in story.decides(at):
            done.append(action)
            if isinstance(action, ReadJob):
                story.reads(jobs.get(action.job_id), job_id=action.job_id, at=at, granted=grant(action.job_id))
            elif isinstance(action, CancelJob):
                jobs = {**jobs, action.job_id: replace(jobs[action.job_id], states=frozenset({"CANCELLED"}))}
            story.ended(action, at=at)
    return done


def told(acts: list[Action]) -> dict[str, str]:
    return {
        each.name: each.message for each in acts if isinstance(each, SetPodCondition) and each.event == names.BYPASS
    }


def ended(acts: list[Action]) -> list[str]:
    return [each.name for each in acts if isinstance(each, DeletePod | FailByDeadline)]


# --- what it is -------------------------------------------------------------------------------------------------------


def test_a_pod_with_a_node_of_its_own_choice_is_reported_and_counted_and_lives() -> None:
    story = Story()
    story.sees(squatter())
    acts = goes_on(story)
    assert told(acts) == {
        "squatter": "The pod runs on node x1, which Slurm allocates, and no Slurm job holds resources for it: "
        "slurm-bridge did not bind it. Slurm may give these resources to other jobs. Give it schedulerName slurm-bridge and "
        "no nodeName."
    }
    [report] = [each for each in acts if isinstance(each, SetPodCondition)]
    assert report.warning
    assert ended(acts) == []
    assert story.world.bypassing == {"uid-squatter"}
    assert not [each for each in acts if isinstance(each, AllocateNow | SubmitJob | BindPod | CancelJob)]
    story.loses(squatter(phase=PodPhase.SUCCEEDED), NOW + 100)
    assert story.world.bypassing == set()


def test_a_pod_that_another_scheduler_bound_is_reported_and_counted_and_lives() -> None:
    story = Story()
    story.sees(of_others())
    acts = goes_on(story)
    assert told(acts).keys() == {"foreign"}
    assert "scheduler default-scheduler bound it" in told(acts)["foreign"]
    assert story.world.bypassing == {"uid-foreign"}
    story.world.apply(PodsListed(Scope.OTHERS, (), NOW + 70))
    story.decides(NOW + 200)
    assert story.world.bypassing == set()
    assert story.world.workloads == {}, "nothing is kept of it"


@pytest.mark.parametrize("owner", [None, OWNER])
def test_a_bypassing_pod_is_ended_if_the_settings_say_so(owner: OwnerRef | None) -> None:
    story = Story(ENDING)
    story.sees(squatter(owner=owner), of_others(owner=owner))
    acts = goes_on(story)
    assert sorted(ended(acts)) == ["foreign", "squatter"], "each once"
    assert "It is ended (settings: bypass)." in told(acts)["squatter"]


def test_a_bypassing_pod_is_ended_though_another_client_deleted_it_with_a_grace_of_centuries() -> None:
    story = Story(ENDING)
    story.sees(squatter(deleting_at=NOW + 10**10, grace_s=10**10))
    [end] = [each for each in goes_on(story) if isinstance(each, DeletePod)]
    assert end.grace_s == 300


ELSEWHERE = [
    ("its namespace is not managed", {"namespace": "grey"}),
    ("its namespace is a system namespace", {"namespace": "agents", "owner": DAEMONS}),
    ("it mirrors a static pod", {"annotations": {names.MIRROR: "x"}}),
    ("Slurm does not know its node", {"node": "k8s-only"}),
    ("it has ended", {"phase": PodPhase.SUCCEEDED}),
    ("it is being deleted", {"deleting_at": NOW + 30}),
]


@pytest.mark.parametrize("fields", [each[1] for each in ELSEWHERE], ids=[each[0] for each in ELSEWHERE])
def test_a_pod_is_not_bypassing_if(fields: dict[str, Any]) -> None:
    story = Story(ENDING)
    story.sees(NodeSeen(node("k8s-only")))
    story.world.slurm_nodes = {
        name: each for name, each in (story.world.slurm_nodes or {}).items() if name != "k8s-only"
    }
    story.sees(NamespaceSeen(Namespace("agents", "8", {names.MANAGED_LABEL: "true", names.SYSTEM_LABEL: "true"})))
    story.sees(squatter(**fields), of_others(**fields))
    acts = goes_on(story)
    assert told(acts) == {}
    assert ended(acts) == []


@pytest.mark.parametrize("owner", [DAEMONS, OwnerRef("example.com/v1", "DaemonSet", "log", "uid-log")])
def test_a_daemon_set_of_a_tenant_takes_no_node_unseen(owner: OwnerRef) -> None:
    """Users who may create pods in a managed namespace may create a DaemonSet there, or name one as the owner."""
    story = Story(ENDING)
    story.sees(squatter(owner=owner), of_others(owner=owner))
    acts = goes_on(story)
    assert sorted(ended(acts)) == ["foreign", "squatter"]
    assert story.world.bypassing


def test_a_namespace_that_becomes_managed_later_shows_its_pods_then_and_not_when_it_is_no_more() -> None:
    story = Story()
    story.sees(squatter(namespace="grey"), of_others(namespace="grey"))
    assert told(goes_on(story)) == {}
    story.sees(NamespaceSeen(Namespace("grey", "9", {names.MANAGED_LABEL: "true"})))
    assert told(goes_on(story, since=NOW + 60)).keys() == {"squatter", "foreign"}
    story.sees(NamespaceSeen(Namespace("grey", "9")))
    story.sees(of_others("later", namespace="grey"))
    assert told(goes_on(story, since=NOW + 120)) == {}


# --- what it invents --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_read", "is_listed", "hint"),
    [(False, True, 17), (False, False, None), (True, True, 17), (True, False, 17)],
    ids=["a job that is not read yet", "that is missing, too", "a job that was read", "that is missing since"],
)
def test_a_pod_that_names_a_job_of_an_older_pod_is_left_alone_for_it_unless_nobody_knows_that_job(
    is_read: bool, is_listed: bool, hint: int | None
) -> None:
    story, old = Story(), pod("old", created=START - 60)
    story.polls({17: "RUNNING"}, at=NOW)
    story.sees(story.bound(old, 17))
    if is_read:
        story.reads(job_of(old, 17), at=NOW + 1, granted=grant(17))
    if not is_listed:
        story.polls({}, at=NOW + 2)
    new = story.bound(pod("new", created=NOW + 2), 17)
    story.sees(new)
    assert story.world.workloads[key_of(new)].hint == hint


def test_a_job_id_that_it_invents_counts_for_nothing() -> None:
    """The id of a job that does not exist, of a foreign job, and of the job of another pod of the bridge."""
    story = Story()
    honest = story.runs(pod("honest", created=NOW - 5), 17, at=NOW)
    jobs = {17: job_of(honest, 17), 4: Job(4, "interactive", "carol", frozenset({"RUNNING"}))}
    for name, shown in (("ghost", "900001"), ("thief", "4"), ("parasite", "17")):
        story.sees(squatter(name, says={"job-id": shown}), of_others(f"{name}-2", says={"job-id": shown}))
    acts = goes_on(story, jobs=jobs)
    assert told(acts).keys() == {f"{name}{end}" for name in ("ghost", "thief", "parasite") for end in ("", "-2")}
    assert not [each for each in acts if isinstance(each, AllocateNow | CancelJob)]
    assert story.world.placeholders[17].key == key_of(honest)


def test_a_pod_that_was_created_in_the_second_in_which_this_process_began_is_of_this_process() -> None:
    """Creation times are cut to whole seconds."""
    story = Story()
    story.sees(squatter(created=START - 0.7, says={"job-id": "900001"}))
    assert told(goes_on(story)).keys() == {"squatter"}


def test_pods_beside_a_gang_of_their_own_without_a_grant_are_reported() -> None:
    """A gang of one, and three more that claim to be of it."""
    story = Story(ENDING)
    gang = {"labels": {names.PREFIX + names.GANG: "ring"}}
    first = pod("w-0", says={"gang-size": "1"}, **gang)
    bind = story.binds(first, 17, at=NOW)
    story.ended(bind, at=NOW)
    story.sees(story.bound(first, 17))
    for number in (1, 2, 3):
        story.sees(squatter(f"w-{number}", says={"gang-size": "1", "job-id": "17"}, **gang))
    [workload] = story.world.workloads.values()
    name = f"hpc/ring~{story.world.cluster}.{workload.key}"
    acts = goes_on(story, since=NOW + 1, jobs={17: replace(job_of(first, 17), name=name)})
    assert sorted(ended(acts)) == ["w-1", "w-2", "w-3"]
    assert not [each for each in acts if isinstance(each, CancelJob)]


# --- bound by another client while it waits ---------------------------------------------------------------------------


def asks(story: Story, answer: str) -> Job:
    """The pod asks for nodes, and that answer comes: its job as Slurm has it a second later."""
    job = job_of(pod(), 17, answer, submitted=NOW, nodes={"RUNNING": "x2", "CANCELLED": "x1"}.get(answer, ""))
    if answer == "PENDING":
        story.queues(pod(), 17, at=NOW)
        return job
    story.sees(pod())
    [asked] = story.acts(AllocateNow, NOW)
    if answer == "FAILED":
        story.ended(asked, Outcome.UNKNOWN, at=NOW)
    else:
        story.ended(asked, at=NOW, job_id=17, grant=grant(17, job.nodes))
    return job


@pytest.mark.parametrize(
    ("answer", "in_flight"),
    [("PENDING", False), ("RUNNING", False), ("RUNNING", True), ("FAILED", False), ("CANCELLED", False)],
)
def test_a_pod_that_another_client_binds_is_not_ended_for_the_end_of_what_it_asked_for(
    answer: str, in_flight: bool
) -> None:
    """An attempt that failed, a grant that was taken away, a job that is ended because its pod is on another node.

    in_flight   a bind to the granted node is on its way, which the API server refuses
    """
    story = Story()
    job = asks(story, answer)
    binds = story.acts(BindPod, NOW) if in_flight else []
    story.polls({17: answer}, at=NOW + 1)
    if answer in ("FAILED", "CANCELLED"):
        story.reads(job, at=NOW + 2)
    story.sees(pod(phase=PodPhase.RUNNING, node="x1", started=NOW + 3))
    for bind in binds:
        story.ended(bind, Outcome.REFUSED, at=NOW + 3, number=409)
    acts = goes_on(story, since=NOW + 4, jobs={17: job})
    assert ended(acts) == []
    assert told(acts).keys() == {"train"}
    cancels = [each for each in acts if isinstance(each, CancelJob)]
    assert len(cancels) == (answer in ("PENDING", "RUNNING"))
    assert not [each for each in acts if isinstance(each, AllocateNow | SubmitJob | BindPod)]


def test_a_pod_that_another_process_bound_ends_with_the_job_that_it_names() -> None:
    """Two lives overlap, and the other one bound it: the end of that job is its end."""
    story = Story()
    story.queues(pod(), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(story.bound(pod(), 17, started=NOW + 2))
    running = job_of(pod(), 17, submitted=NOW)
    assert ended(goes_on(story, since=NOW + 2, seconds=20, jobs={17: running})) == []
    over = replace(running, states=frozenset({"CANCELLED"}))
    assert ended(goes_on(story, since=NOW + 30, seconds=5, jobs={17: over})) == ["train"]


def test_a_member_that_another_client_binds_lives_on_when_the_job_of_its_gang_ends() -> None:
    story = Story()
    shown = gang_runs(story, ring(2), ("x1", 2), at=NOW)
    story.loses(replace(shown[1], phase=PodPhase.SUCCEEDED), NOW + 2)
    story.sees(member(1, 2, uid="another", phase=PodPhase.RUNNING, node="x1", created=NOW + 3))
    [workload] = story.world.workloads.values()
    name = f"hpc/ring~{story.world.cluster}.{workload.key}"
    over = Job(17, name, "alice", frozenset({"CANCELLED"}), nodes="x1", submitted=NOW)
    assert ended(goes_on(story, since=NOW + 4, seconds=5, jobs={17: over})) == [shown[0].name]


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_a_job_whose_id_was_not_answered_is_cancelled_if_another_client_binds_its_pod(state: str) -> None:
    """The pod had another job before, which was cancelled, and whose id it therefore still has (life 700823)."""
    story = Story()
    story.queues(pod(), 17, at=NOW)
    first = job_of(pod(), 17, "CANCELLED", submitted=NOW)
    story.polls({17: "CANCELLED"}, at=NOW + 1)
    story.reads(first, at=NOW + 1)
    [again] = story.acts(AllocateNow, NOW + 30)
    story.ended(again, Outcome.UNKNOWN, at=NOW + 30)
    second = job_of(pod(), 18, state, submitted=NOW + 30, nodes="x1" if state == "RUNNING" else "")
    story.polls({17: "CANCELLED", 18: state}, at=NOW + 31)
    story.reads(second, at=NOW + 31)
    story.sees(pod(phase=PodPhase.RUNNING, node="x2", started=NOW + 32))
    acts = goes_on(story, since=NOW + 33, jobs={17: first, 18: second})
    assert [each.job_id for each in acts if isinstance(each, CancelJob)] == [18]
    assert ended(acts) == []


@pytest.mark.parametrize("seen_waiting", [True, False])
def test_an_older_pod_that_another_client_bound_is_not_ended(seen_waiting: bool) -> None:
    """It names a job that never was, and this process saw it wait; or it names no job, as no bind of the bridge does."""
    story = Story()
    older = pod(created=START - 100)
    says = {names.JOB_ID: "4000000"} if seen_waiting else {}
    if seen_waiting:
        story.sees(older)
    job = job_of(older, 17, "CANCELLED", submitted=START - 90)
    story.polls({17: "CANCELLED"}, at=NOW)
    story.reads(job, at=NOW)
    story.sees(replace(older, phase=PodPhase.RUNNING, node="x1", started=NOW + 1, annotations=says))
    acts = goes_on(story, since=NOW + 2, jobs={17: job})
    assert ended(acts) == []
    assert told(acts).keys() == {"train"}


def test_a_pod_whose_job_id_is_no_id_shows_that_no_job_holds_its_place() -> None:
    """Its job was cancelled while no bridge ran."""
    story = Story()
    story.sees(replace(story.bound(pod(created=START - 100), 17), annotations={names.JOB_ID: "x"}, started=START - 90))
    assert told(goes_on(story)).keys() == {"train"}


def test_a_pod_that_another_client_binds_just_where_its_bind_goes_is_not_ended_for_that_job() -> None:
    story = Story()
    job = asks(story, "RUNNING")
    [bind] = story.acts(BindPod, NOW)
    story.sees(pod(phase=PodPhase.RUNNING, node=bind.node, started=NOW + 1))
    story.ended(bind, Outcome.REFUSED, at=NOW + 1, number=409)
    over = replace(job, states=frozenset({"PREEMPTED"}))
    story.polls({17: "PREEMPTED"}, at=NOW + 2)
    story.reads(over, at=NOW + 2)
    assert ended(goes_on(story, since=NOW + 3, jobs={17: over})) == []


@pytest.mark.parametrize("answer_first", [True, False])
def test_a_pod_whose_job_id_was_edited_before_anyone_saw_it_bound_ends_with_its_job(answer_first: bool) -> None:
    """The API server took the bind of the bridge: whatever id the pod shows since, no other client bound it."""
    story = Story()
    job = asks(story, "RUNNING")
    [bind] = story.acts(BindPod, NOW)
    edited = {**bind.annotations, names.JOB_ID: "9"}
    if answer_first:
        story.ended(bind, at=NOW + 1)
    story.sees(pod(phase=PodPhase.RUNNING, node=bind.node, started=NOW + 1, annotations=edited))
    if not answer_first:
        story.ended(bind, at=NOW + 1)
    over = replace(job, states=frozenset({"CANCELLED"}))
    assert ended(goes_on(story, since=NOW + 3, jobs={17: over})) == ["train"]


def test_the_rest_of_a_gang_says_why_it_waits_when_another_client_binds_a_member() -> None:
    story = Story()
    first, second = ring(2)
    story.sees(first, second)
    story.sees(replace(first, phase=PodPhase.RUNNING, node="x1", started=NOW))
    reports = [each for each in goes_on(story) if isinstance(each, SetPodCondition) and each.uid == second.uid]
    assert "slurm-bridge did not bind them" in reports[-1].message


def test_the_rest_of_a_gang_says_so_too_when_the_member_names_the_job_of_another_pod() -> None:
    story = Story()
    story.runs(pod("honest"), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW)
    first, second = ring(2)
    story.sees(first, second)
    story.sees(replace(first, phase=PodPhase.RUNNING, node="x1", started=NOW, annotations={names.JOB_ID: "17"}))
    [report] = [each for each in story.decides(NOW) if isinstance(each, SetPodCondition) and each.uid == second.uid]
    assert "slurm-bridge did not bind them" in report.message


def test_the_job_of_a_gang_that_waits_is_ended_when_another_client_binds_a_member_and_invents_a_job_for_it() -> None:
    """The invented id is not the gang's job: the job would have had no pods, and no waiting pod would have said why."""
    story = Story()
    first, second = ring(2)
    story.sees(first)
    asked = story.queues(second, 17, at=NOW)
    waits = Job(17, asked.spec.name, "alice", frozenset({"PENDING"}), partition="main", submitted=NOW)
    story.polls({17: "PENDING"}, at=NOW)
    story.sees(replace(first, phase=PodPhase.RUNNING, node="x1", started=NOW, annotations={names.JOB_ID: "4000000"}))
    acts = goes_on(story, since=NOW + 1, jobs={17: waits})
    assert [each.job_id for each in acts if isinstance(each, CancelJob)] == [17]
    reports = [each for each in acts if isinstance(each, SetPodCondition) and each.uid == second.uid]
    assert "slurm-bridge did not bind them" in reports[-1].message


# --- no doubt ---------------------------------------------------------------------------------------------------------


def test_a_pod_that_another_copy_of_the_bridge_bound_is_known_by_its_job() -> None:
    """Two lives overlap: this one saw the pod first when it stood already."""
    story = Story(ENDING)
    what = pod("train", created=NOW)
    story.sees(story.bound(what, 17))
    acts = goes_on(story, jobs={17: job_of(what, 17, ends=NOW + 10_000.0, starts=NOW)})
    assert told(acts) == {}
    assert ended(acts) == []
    assert story.world.placeholders[17].key == key_of(what)


def bound_by_a_copy(story: Story, job: Job, at: float) -> Pod:
    """The pod that waits for that job, as another copy of the bridge binds it for the job."""
    story.polls({17: "PENDING"}, at=at)
    on_node = pod(phase=PodPhase.RUNNING, node="x1", started=at, annotations={names.JOB_ID: str(job.id)})
    story.sees(on_node)
    return on_node


def test_a_job_that_waited_when_slurm_listed_it_last_is_not_ended_where_a_copy_bound_the_pod_for_it() -> None:
    """The copy knew before this bridge that Slurm had started the job."""
    story = Story(ENDING)
    job = asks(story, "PENDING")
    bound_by_a_copy(story, job, NOW + 20)
    acts = [act for second in range(20, 23) for act in story.decides(NOW + second)]
    assert not [each for each in acts if isinstance(each, CancelJob)]
    acts = goes_on(story, since=NOW + 23, jobs={17: replace(job, states=frozenset({"RUNNING"}), nodes="x1")})
    assert not [each for each in acts if isinstance(each, CancelJob)]
    assert ended(acts) == []
    assert told(acts) == {}


def test_a_waiting_job_is_ended_if_another_client_bound_its_pod_and_wrote_its_id() -> None:
    story = Story()
    job = asks(story, "PENDING")
    bound_by_a_copy(story, job, NOW + 20)
    acts = goes_on(story, since=NOW + 21, seconds=60, jobs={17: job})
    assert [each.job_id for each in acts if isinstance(each, CancelJob)] == [17]


def test_another_copy_of_the_bridge_is_reported_for_a_while_and_the_former_leader_is_not() -> None:
    story = Story()
    job = asks(story, "PENDING")
    assert another_bridge(story.world, NOW) == ""
    bound_by_a_copy(story, job, NOW + 20)
    said = another_bridge(story.world, NOW + 21)
    assert said.startswith(
        "Another slurm-bridge schedules pods of schedulerName slurm-bridge: it bound pod hpc/train, whose"
    )
    assert "Slurm job is 17. Stop one of the two, or let both use one lease" in said
    assert another_bridge(story.world, NOW + 20 + RECENT_S) == said
    assert another_bridge(story.world, NOW + 20 + RECENT_S + 1) == ""

    settle_s = ENDING.tuning.settle_s
    for later_s, is_told in ((settle_s - 1, False), (settle_s, True)):
        soon = Story()
        soon.world.started = NOW
        bound_by_a_copy(soon, asks(soon, "PENDING"), NOW + later_s)
        shown = another_bridge(soon.world, NOW + later_s)
        assert bool(shown) is is_told, "before that, a request of the process before may take effect"


def test_another_bridge_with_another_policy_is_reported() -> None:
    story = Story()
    asks(story, "PENDING")
    theirs = replace(job_of(pod(), 30), user="bob")
    bound_by_a_copy(story, theirs, NOW + 20)
    assert another_bridge(story.world, NOW + 21) == "", "an id proves nothing"
    story.polls({17: "PENDING", 30: "RUNNING"}, at=NOW + 22)
    story.reads(theirs, at=NOW + 22)
    assert "by another policy: it bound pod hpc/train for Slurm job 30" in another_bridge(story.world, NOW + 23)


def test_another_bridge_is_reported_also_if_another_client_removed_the_job_id_from_the_pod() -> None:
    story = Story(ENDING)
    what = pod("train", created=START - 60)
    story.polls({17: "RUNNING"}, at=START + 1)
    story.sees(replace(story.bound(what, 17), annotations={}))
    acts = goes_on(story, jobs={17: job_of(what, 17, ends=NOW + 10_000.0, starts=NOW)})
    assert told(acts) == {}
    assert ended(acts) == []


def test_a_pod_whose_job_may_have_been_renamed_by_its_user_is_left_in_peace() -> None:
    story = Story(ENDING)
    what = story.bound(pod("train", created=START - 60), 17, started=START - 50)
    story.sees(what)
    renamed = Job(17, "pretty", "alice", frozenset({"RUNNING"}), submitted=START - 55)
    acts = goes_on(story, seconds=200, jobs={17: renamed})
    assert [each for each in acts if isinstance(each, ReadJob)]
    assert told(acts) == {}
    assert ended(acts) == []


def test_a_pod_that_a_previous_process_may_have_bound_is_not_reported_although_its_job_is_anothers_now() -> None:
    story, foreign = Story(ENDING), Job(4, "interactive", "carol", frozenset({"RUNNING"}))
    story.polls({4: "RUNNING"}, at=START + 1)
    story.reads(foreign, at=START + 1)
    story.sees(story.bound(pod(created=START - 60), 4))
    acts = goes_on(story, jobs={4: foreign})
    assert told(acts) == {}
    assert ended(acts) == []


def test_a_pod_that_may_run_for_a_renamed_job_is_left_in_peace_also_when_its_own_job_ends() -> None:
    """Another client bound it and wrote the id of a job with another name, of the same user and on the same node."""
    story, older = Story(ENDING), pod(created=START - 100)
    story.queues(older, 17, at=NOW)
    own = job_of(older, 17, submitted=NOW)
    renamed = Job(9, "pretty", "alice", frozenset({"RUNNING"}), submitted=NOW + 1, nodes="x1")
    story.polls({17: "RUNNING", 9: "RUNNING"}, at=NOW + 1)
    story.reads(own, at=NOW + 1, granted=grant(17))
    story.sees(replace(older, phase=PodPhase.RUNNING, node="x1", started=NOW + 2, annotations={names.JOB_ID: "9"}))
    story.reads(renamed, at=NOW + 3)
    over = replace(own, states=frozenset({"CANCELLED"}))
    acts = goes_on(story, since=NOW + 4, seconds=30, jobs={17: over, 9: renamed})
    assert told(acts) == {}
    assert ended(acts) == []


def test_a_bypassing_pod_is_not_reported_while_a_job_is_unread() -> None:
    story = Story(ENDING)
    story.polls({4: "RUNNING"}, at=NOW)
    story.sees(squatter())
    for second in range(60):
        story.polls({4: "RUNNING"}, at=NOW + second)
        acts = story.decides(NOW + second)
        assert {type(each) for each in acts} <= {ReadJob}


def test_a_bypassing_pod_is_not_reported_while_a_bind_of_a_previous_process_may_be_in_flight() -> None:
    story = Story(without(CONFIG, settle_s=5.0))
    story.sees(squatter())
    quiet_until = story.world.quiet_until()
    story.polls({}, at=quiet_until - 1)
    assert told(story.decides(quiet_until - 1)) == {}
    assert told(story.decides(quiet_until)).keys() == {"squatter"}


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_bypassing_pod_is_reported_after_a_poll_that_began_when_no_bind_could_be_in_flight(is_listed: bool) -> None:
    """If that poll lists another job, the pod may be bound for it, so the job is read first."""
    story = Story()
    story.sees(squatter())
    settled = START + CONFIG.tuning.settle_s
    story.polls({4: "RUNNING"} if is_listed else {}, at=settled)
    acts = story.decides(settled)
    assert [each.job_id for each in acts if isinstance(each, ReadJob)] == [4] * is_listed
    assert bool(told(acts)) is not is_listed


def test_a_bypassing_pod_is_not_reported_if_slurm_stopped_to_answer_after_the_poll() -> None:
    story = Story(ENDING)
    story.sees(squatter())
    story.polls({}, at=NOW)
    story.sees(OutageBegan(Side.SLURM, NOW, "Slurm does not answer."))
    assert story.decides(NOW + 1) == []
    story.sees(OutageEnded(Side.SLURM, NOW + 2))
    story.polls({}, at=NOW + 3)
    assert told(story.decides(NOW + 3)).keys() == {"squatter"}


def test_a_bypassing_pod_that_is_to_end_soon_is_reported_and_ended_if_it_does_not() -> None:
    """Another client deleted it with a long grace, of which little is left; its node does not report."""
    story = Story(ENDING)
    ends = NOW + CONFIG.tuning.silent_node_s  # the longest grace that counts
    story.sees(squatter(deleting_at=ends, grace_s=1000))
    story.polls({}, at=NOW)
    [again_at] = story.plan(NOW).wake.values()
    assert again_at == ends + OUTLIVES_S
    story.polls({}, at=again_at)
    acts = story.decides(again_at)
    assert told(acts).keys() == {"squatter"}
    assert ended(acts) == ["squatter"]


def test_a_bypassing_pod_is_not_reported_while_slurm_is_away() -> None:
    story = Story(ENDING)
    story.sees(squatter(), of_others(), OutageBegan(Side.SLURM, NOW, "Slurm does not answer."))
    for second in range(60):
        assert story.decides(NOW + second) == []


@pytest.mark.parametrize("fields", [{"node": "x9"}, {"phase": PodPhase.SUCCEEDED}, {"namespace": "kube-system"}])
def test_a_pod_of_another_scheduler_is_ignored_if_slurm_does_not_allocate_its_node_or_it_has_ended_or_serves_the_cluster(
    fields: dict[str, Any],
) -> None:
    story = Story(replace(ENDING, managed_namespaces=frozenset({"kube-system"})))
    story.sees(NodeSeen(node("x9")), of_others(**fields))
    assert goes_on(story) == []
    assert story.world.workloads == {}


def test_a_pod_of_another_bridge_is_left_to_that_bridge() -> None:
    """Two bridges of one Kubernetes, each with its own schedulerName, both on these nodes."""
    story = Story(ENDING)
    seen = of_others("theirs", scheduler_name="second-bridge", says={"job-id": "30"})
    cluster = names.cluster_id(KUBE_SYSTEM.uid, "second-bridge")
    theirs = Job(30, f"hpc/theirs~{cluster}.{key_of(seen.pod)}", "alice", frozenset({"RUNNING"}))
    story.sees(seen)
    acts = goes_on(story, jobs={30: theirs})
    assert told(acts) == {}
    assert ended(acts) == []
    [read] = [each for each in acts if isinstance(each, ReadJob) and each.key]
    assert not read.grant, "its nodes do not matter"


def test_the_job_of_another_bridge_is_read_again_after_a_while_if_the_read_fails() -> None:
    story = Story(ENDING)
    seen = of_others("theirs", scheduler_name="second-bridge", says={"job-id": "30"})
    story.sees(seen)
    story.polls({}, at=NOW)
    [read] = story.acts(ReadJob, NOW)
    story.ended(read, Outcome.UNREACHED, at=NOW)
    again_at = story.world.workloads[key_of(seen.pod)].retry_from(Attempt.READ_JOB)
    assert again_at > NOW
    assert story.decides((NOW + again_at) / 2) == []
    assert [each.job_id for each in story.acts(ReadJob, again_at)] == [30]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("interactive", id="no bridge's"),
        pytest.param(f"hpc/theirs~{names.cluster_id(KUBE_SYSTEM.uid, 'third-bridge')}.k1", id="another bridge's"),
        pytest.param("", id="gone"),
    ],
)
def test_a_pod_of_another_scheduler_is_not_excused_by_a_job_that_the_bridge_of_its_scheduler_did_not_make(
    name: str,
) -> None:
    story = Story(ENDING)
    seen = of_others("theirs", scheduler_name="second-bridge", says={"job-id": "30"})
    story.sees(seen)
    acts = goes_on(story, jobs={30: Job(30, name, "carol", frozenset({"RUNNING"}))} if name else None)
    assert ended(acts) == ["theirs"]


@pytest.mark.parametrize("is_forgotten", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_job_that_two_pods_of_another_bridge_name_is_judged_for_the_pod_that_is_left(
    is_first: bool, is_forgotten: bool
) -> None:
    story = Story(ENDING)
    left, gone = (of_others(name, scheduler_name="second-bridge", says={"job-id": "30"}) for name in ("left", "gone"))
    story.sees(*((gone, left) if is_first else (left, gone)))
    cluster = names.cluster_id(KUBE_SYSTEM.uid, "second-bridge")
    theirs = Job(30, f"hpc/left~{cluster}.{key_of(left.pod)}", "alice", frozenset({"RUNNING"}))
    at, asked = NOW, list[ReadJob]()
    while not asked:
        at += 1
        story.polls({30: "RUNNING"}, at=at)
        for action in story.decides(at):
            if isinstance(action, ReadJob) and action.key:
                asked.append(action)
            elif isinstance(action, ReadJob):
                story.reads(theirs, at=at)
                story.ended(action, at=at)
    story.sees(PodDeleted(Scope.OTHERS, gone.pod, at))
    if is_forgotten:
        story.decides(at)
    story.reads(theirs, at=at + 1)
    for action in asked:
        story.ended(action, at=at + 1)
    acts = goes_on(story, since=at + 1, jobs={30: theirs})
    assert (told(acts), ended(acts)) == ({}, [])


def test_what_it_takes_is_known_to_placement_as_ever() -> None:
    story = Story()
    story.sees(squatter(cpu=60_000), pod("next", cpu=8000))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17, cpus=8))
    [cancel] = story.acts(CancelJob, NOW)
    assert cancel.reason == "released: on node x1 other pods use the cpu that the pod needs"
