"""The explanation of one workload (O4): from the same world, by the same rules that decide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, BindPod, Outcome, SetPodCondition, SubmitJob
from scheduler.apply.events import new_world
from scheduler.decide import decide
from scheduler.events import (
    ClaimsRead,
    JobRead,
    JobsPolled,
    NamespacesListed,
    NodesListed,
    OutageBegan,
    PodSeen,
    PodsListed,
    Scope,
    Side,
    SlurmNodesPolled,
)
from scheduler.explain import GATES_ALONE, Explanation, as_sbatch, explain, key_of, prepare
from scheduler.model.kubernetes import Claim, Condition, Namespace, Pod, PodPhase, PodTerm, Requirement, Taint
from scheduler.model.slurm import UNLIMITED, Grant, GrantedNode, JobSpec, Partition
from scheduler.policy.rules import Policy, Rule, Tenant
from scheduler.translate.values import LONGEST_WAIT_S
from tests.builders import CLUSTER, CONFIG, KUBE_SYSTEM, OWNER, START, Story, job_of, node, pod, slurm_node, without
from tests.builders import key_of as pod_key
from tests.unit.scheduler.test_gangs import runs as gang_runs

NOW = START + 20


def explained(story: Story, what: Pod, at: float = NOW) -> Explanation:
    return explain(story.world, pod_key(what), at)


def test_the_word_for_a_pod_is_what_the_bridge_would_show_on_it_now() -> None:
    story = Story(replace(CONFIG, policy=Policy((Rule(("hpc",), Tenant("alice", max_jobs=1)),))))
    story.queues(pod("first"), 17, at=NOW)
    story.sees(second := pod("second"))
    told = explained(story, second)
    assert (told.refusal, told.state) == (None, "Limited")


def test_the_word_for_a_pod_is_what_it_shows_while_there_is_nothing_new() -> None:
    story = Story(without(CONFIG, submits=0))
    story.sees(train := pod("train", scheduled=Condition(False, names.REFUSED, "Slurm refused it (error 2072).")))
    told = explained(story, train)
    assert told.sentence.startswith("The pod waits for its turn")
    assert (told.refusal, told.state) == (None, "Refused")


def test_the_word_for_a_pod_of_a_gang_is_not_that_of_another_pod_whose_volume_claim_is_refused() -> None:
    story, gang = Story(), [member("w-0", 2), member("w-1", 2, claims=("data",))]
    story.sees(*gang, ClaimsRead(gang[1].uid, (Claim("data", bound=False, problem="claim data does not exist"),), NOW))
    told = gang_explained(story, *gang)
    assert told.sentence == "The pod's volume claims are read first."
    assert (told.name, told.state) == ("w-0", "Waiting")


def test_a_pod_without_an_obstacle_shows_the_job_that_will_be_sent() -> None:
    story, train = Story(), pod("train", cpu=2500, gpu=2, says={"qos": "high"})
    story.sees(train)
    told = explained(story, train)
    [asked] = story.acts(AllocateNow, NOW)
    assert told.spec == asked.spec
    assert told.phase == "unsubmitted"
    assert told.sentence == "Nothing prevents the submission: the next pass requests the job."
    assert told.next == (asked.reason,)
    assert told.nodes is not None
    assert told.nodes.usable == ("x1", "x2")


def test_explaining_changes_nothing() -> None:
    story, train = Story(), pod("train")
    story.sees(train)
    before = decide(story.world, NOW)
    explained(story, train)
    assert decide(story.world, NOW) == before


def test_where_it_cannot_run_every_reason_is_counted() -> None:
    tainted = node("x3", taints=(Taint("dedicated", "db", "NoSchedule"),))
    story = Story(nodes=(node("x1", cpu=1000), node("x2", ready=False), tainted))
    train = pod("train", cpu=4000)
    story.sees(train)
    told = explained(story, train)
    assert told.nodes is not None
    assert (told.nodes.count, told.nodes.usable) == (3, ())
    assert dict(told.nodes.misses) == {
        "not ready": 1,
        "with too little cpu in all": 1,
        "with untolerated taint {dedicated: db}": 1,
    }
    assert told.refusal is not None
    assert told.refusal.reason == names.NO_NODE
    assert told.spec is not None, "what it would need is shown all the same"
    assert told.next == (), "that the pod gets a condition is not worth saying"
    assert told.state == "Refused"


@pytest.mark.parametrize("state", ["DRAIN", "FAIL", "INVALID_REG"])
def test_nodes_that_slurm_allocates_to_no_job_are_named_with_their_states(state: str) -> None:
    story, train = Story(), pod("train")
    story.sees(train)
    away = replace(slurm_node("x1"), states=frozenset({"IDLE", state, "EXTERNAL"}))
    story.sees(SlurmNodesPolled((away, slurm_node("x2")), (Partition("main", default=True),), NOW))
    told = explained(story, train)
    assert told.nodes is not None
    assert told.nodes.away == (f"x1 ({'+'.join(sorted(away.states))})",)


@pytest.mark.parametrize(
    ("namespace", "words"),
    [("nowhere", "Namespace nowhere does not exist"), ("kube-system", "Namespace kube-system is not managed")],
)
def test_a_namespace_that_may_not_use_the_bridge_is_the_reason(namespace: str, words: str) -> None:
    story, train = Story(), replace(pod("train"), namespace=namespace)
    story.sees(train)
    told = explained(story, train)
    assert told.sentence.startswith(words)
    assert told.spec is None


def test_a_choice_that_the_policy_does_not_allow_is_the_reason() -> None:
    story, train = Story(), pod("train", says={"account": "teamx"})
    story.sees(train)
    assert explained(story, train).sentence.startswith('The account "teamx" is not allowed for namespace hpc.')


def test_a_waiting_job_shows_slurms_reason_and_expected_start() -> None:
    story, train = Story(), pod("train")
    story.queues(train, 17, at=NOW)
    waiting = job_of(train, 17, "PENDING", reason="Priority", starts=NOW + 3600, planned_nodes="x2")
    story.reads(waiting, at=NOW + 1)
    told = explained(story, train, NOW + 2)
    assert told.phase == "queued"
    assert told.sentence.startswith(
        "Waiting in Slurm partition main (Priority: others are before it in the queue); expected"
    )
    assert told.jobs == (waiting,)
    assert told.states == ((17, ("PENDING",)),)


@pytest.mark.parametrize(
    "reason",
    [
        "InvalidQOS",
        "AssocMaxWallDurationPerJobLimit",
        "QOSMinGRES",
        "JobHeldUser",
        "JobHeldAdmin",
        "PartitionDown",
        "PartitionInactive",
    ],
)
def test_a_waiting_job_that_cannot_start_as_it_is_shows_no_expected_start(reason: str) -> None:
    """Slurm still shows the start that it expected before an admin changed the rights, limits, job or partition."""
    story, train = Story(), pod("train")
    story.queues(train, 17, at=NOW)
    story.reads(job_of(train, 17, "PENDING", reason=reason, starts=NOW + 3600, planned_nodes="x2"), at=NOW + 1)
    told = explained(story, train, NOW + 2)
    assert f"({reason}: " in told.sentence
    assert "expected" not in told.sentence


def test_a_waiting_job_whose_nodes_went_away_shows_both() -> None:
    story, train = Story(), pod("train")
    story.queues(train, 17, at=NOW)
    story.reads(job_of(train, 17, "PENDING", reason="Resources"), at=NOW + 1)
    story.sees(NodesListed((node("x1", unschedulable=True), node("x2", ready=False))))
    told = explained(story, train, NOW + 2)
    assert "(Resources: waiting for nodes: first in line)" in told.sentence
    assert "0/2 nodes can run this pod in Slurm partition main: 1 cordoned, 1 not ready." in told.sentence


def test_a_refusal_of_slurm_is_reported_with_when_it_is_tried_again() -> None:
    story, train = Story(), pod("train")
    story.sees(train)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2072)
    told = explained(story, train, NOW + 2)
    assert told.sentence.startswith("Slurm refused it (error 2072). It is tried again at ")
    assert told.story[-1] == (NOW, "Slurm refused it (error 2072).")
    assert told.refusal is not None
    assert told.refusal.message == "Slurm refused it (error 2072)."


def test_a_pod_that_waits_for_the_search_after_a_start_says_so() -> None:
    story, train = Story(), pod("train", created=START - 3600)
    story.sees(train)
    story.polls({16: "PENDING"}, at=START + 0.1)
    told = explained(story, train, START + 0.2)
    assert story.acts(AllocateNow, START + 0.2) == []
    assert "no job is requested before 00:16:43 UTC" in told.sentence
    assert "asking Slurm" not in " ".join(told.next)


def test_a_pod_whose_owner_is_not_read_yet_says_so() -> None:
    story, train = Story(), pod("train", owner=OWNER)
    story.sees(train)
    assert explained(story, train).sentence == "The pod's owners are read first, for their annotations."


def test_a_pod_that_waits_for_a_full_limit_says_so() -> None:
    story, train = Story(without(CONFIG, submits=0)), pod("train")
    story.sees(train)
    assert explained(story, train).sentence.startswith("The pod waits for its turn")


def test_a_granted_pod_shows_what_its_bind_waits_for() -> None:
    story, train = Story(), pod("train")
    story.queues(train, 17, at=NOW - 2)
    story.polls({17: "RUNNING SUSPENDED"}, at=NOW - 1)
    told = explained(story, train)
    assert told.phase == "granted"
    assert told.sentence.endswith("The bind waits: an admin suspended Slurm job 17 (scontrol resume 17 ends that).")


@pytest.mark.parametrize(("partition", "usable"), [("", ("x1",)), ("gpu", ("x2",))])
def test_the_nodes_of_the_partition_of_the_job_are_judged(partition: str, usable: tuple[str, ...]) -> None:
    story, train = Story(), pod("train", says={"partition": partition} if partition else {})
    nodes = (slurm_node("x1", partitions=("main",)), slurm_node("x2", partitions=("gpu",)))
    story.sees(SlurmNodesPolled(nodes, (Partition("main", default=True), Partition("gpu")), NOW), train)
    told = explained(story, train)
    assert told.nodes is not None
    assert told.nodes.usable == usable


def test_the_job_is_shown_as_it_was_submitted() -> None:
    """While it waits, whatever the pod asks for now; and when it is over, though a job of that name came from elsewhere."""
    story, train = Story(), pod("train")
    submitted = story.queues(train, 17, at=NOW)
    story.sees(pod("train", says={"exclusive": "true"}))
    assert explained(story, train, NOW + 1).spec == submitted.spec
    story.polls({17: "PENDING", 18: "PENDING"}, at=NOW + 1)
    story.reads(job_of(train, 18, "PENDING"), at=NOW + 1)
    story.sees(replace(train, phase=PodPhase.FAILED))
    story.polls({17: "CANCELLED", 18: "CANCELLED"}, at=NOW + 2)
    told = explained(story, train, NOW + 2)
    assert (told.phase, told.spec) == ("done", submitted.spec)


def test_what_is_under_way_is_reported() -> None:
    story, train = Story(), pod("train")
    story.sees(train)
    story.acts(AllocateNow, NOW)
    assert "asking Slurm for nodes in partition main as alice" in explained(story, train, NOW + 2).sentence


def test_an_answer_that_was_lost_is_reported() -> None:
    story, train = Story(), pod("train")
    story.sees(train)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.UNKNOWN, at=NOW)
    assert "is looked for before it is repeated" in explained(story, train, NOW + 2).sentence


def test_an_outage_is_the_reason_while_it_lasts() -> None:
    story, train = Story(), pod("train")
    story.sees(train)
    story.world.apply(OutageBegan(Side.SLURM, NOW, "nothing listens at x:6820."))
    assert explained(story, train, NOW + 2).sentence.endswith("nothing listens at x:6820.")


def test_a_bound_pod_names_its_node_and_job() -> None:
    story, train = Story(), pod("train")
    shown = story.runs(train, 17, at=NOW)
    told = explained(story, shown, NOW + 1)
    assert (told.phase, told.node) == ("bound", "x1")
    assert told.sentence == "It is on node x1 for Slurm job 17, Running in Kubernetes."
    assert told.grant is not None
    assert [what for _, what in told.story] == [
        "pod hpc/train created",
        "asking Slurm for nodes in partition main as alice",
        "Slurm job 17 is RUNNING",
        "Slurm job 17 was granted x1",
        "is on node x1",
    ]
    assert [at for at, _ in told.story] == sorted(at for at, _ in told.story)


def test_a_pod_that_another_client_bound_is_not_called_a_pod_of_its_job() -> None:
    story, train = Story(), pod("train")
    story.queues(train, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(replace(train, node="x2", phase=PodPhase.RUNNING))
    assert explained(story, train, NOW + 1).sentence.startswith("It is on node x2, Running in Kubernetes.")


def test_a_bound_pod_shows_at_once_that_its_job_was_suspended() -> None:
    story = Story()
    shown = story.runs(pod("train"), 17, at=NOW)
    story.polls({17: "RUNNING SUSPENDED"}, at=NOW + 1)
    told = explained(story, shown, NOW + 1)
    assert told.sentence.startswith(
        "It is on node x1 for Slurm job 17, Running in Kubernetes. Slurm job 17 is suspended"
    )


def test_a_bound_pod_shows_the_condition_of_its_job() -> None:
    story = Story()
    shown = story.runs(pod("train"), 17, at=NOW)
    story.sees(replace(shown, job_condition=Condition(False, names.SUSPENDED, "Slurm job 17 is suspended.")))
    told = explained(story, shown)
    assert told.sentence.endswith("Running in Kubernetes. Slurm job 17 is suspended.")


def test_a_pod_whose_job_was_cancelled_shows_that() -> None:
    story, train = Story(), pod("train")
    shown = story.runs(train, 17, at=NOW)
    story.polls({17: "CANCELLED"}, at=NOW + 30)
    story.reads(job_of(train, 17, "CANCELLED"), at=NOW + 31)
    told = explained(story, shown, NOW + 32)
    assert told.phase == "orphaned"
    assert told.sentence == "It is on node x1. Slurm job 17 ended: CANCELLED."


def test_a_pod_whose_job_slurm_does_not_know_any_more_shows_that() -> None:
    story, train = Story(), pod("train")
    shown = story.runs(train, 17, at=NOW)
    story.polls(at=NOW + 5)
    story.reads(None, job_id=17, at=NOW + 5)
    story.polls(at=NOW + 7)
    told = explained(story, shown, NOW + 7)
    assert told.phase == "orphaned"
    assert told.sentence.startswith("It is on node x1. Slurm does not know its job 17 any more.")


def test_the_job_that_a_pod_ran_for_is_named_when_it_is_over_though_another_job_of_its_name_waits() -> None:
    story, train = Story(), pod("train")
    shown = story.runs(train, 17, at=NOW)
    story.polls({17: "RUNNING", 18: "PENDING"}, at=NOW + 1)
    story.reads(job_of(train, 18, "PENDING"), at=NOW + 1)
    story.polls({17: "CANCELLED", 18: "PENDING"}, at=NOW + 30)
    story.reads(job_of(train, 17, "CANCELLED"), at=NOW + 31)
    told = explained(story, shown, NOW + 32)
    assert told.sentence == "It is on node x1. Slurm job 17 ended: CANCELLED."


def test_a_pod_that_ended_shows_how() -> None:
    story, train = Story(), pod("train")
    story.sees(replace(story.runs(train, 17, at=NOW), phase=PodPhase.FAILED, exit_code=137, end_reason="OOMKilled"))
    assert explained(story, train).sentence == "It has ended (OOMKilled)."


def test_a_pod_that_ended_without_a_reason_shows_its_phase() -> None:
    story, train = Story(), pod("train")
    story.sees(replace(story.runs(train, 17, at=NOW), phase=PodPhase.SUCCEEDED, exit_code=0))
    assert explained(story, train).sentence == "It has ended (Succeeded)."


def test_a_pod_that_another_scheduler_bound_to_a_node_of_slurm_shows_that_it_has_no_job() -> None:
    story = Story()
    other = pod("other", node="x1", phase=PodPhase.RUNNING, scheduler_name="default-scheduler")
    story.sees(PodSeen(Scope.OTHERS, other))
    late = NOW + 2 * CONFIG.tuning.settle_s
    story.polls(at=late)
    told = explain(story.world, story.world.key_of_pod[other.uid], late)
    assert told.sentence.startswith(
        "It is on node x1, Running in Kubernetes. The pod runs on node x1, which Slurm allocates, "
    )


def test_a_pod_of_a_gang_that_has_ended_does_not_hide_the_pods_that_run() -> None:
    story, gang = Story(), [member(f"w-{number}", 2) for number in range(2)]
    story.sees(*gang)
    [asked] = story.acts(AllocateNow, NOW)
    nodes = Grant(17, (GrantedNode("x1", 2, 200),))
    story.ended(asked, at=NOW, job_id=17, grant=nodes)
    for bind in story.acts(BindPod, NOW):
        story.ended(bind, at=NOW)
    first, second = (story.bound(each, 17) for each in gang)
    story.sees(replace(first, phase=PodPhase.SUCCEEDED, exit_code=0), second)
    told = explain(story.world, story.world.key_of_pod[first.uid], NOW + 1)
    assert (told.name, told.phase) == ("w-1", "bound")


def test_each_pod_of_a_gang_has_its_own_node_and_state() -> None:
    """One pod of the gang runs, and the bind of the other is refused."""
    story, gang = Story(), [member(f"w-{number}", 2) for number in range(2)]
    story.sees(*gang)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=Grant(17, (GrantedNode("x1", 2, 200),)))
    done, refused = story.acts(BindPod, NOW)
    story.ended(done, at=NOW)
    story.ended(refused, Outcome.REFUSED, at=NOW, number=422)
    story.sees(story.bound(gang[0], 17))
    key = story.world.key_of_pod[gang[0].uid]
    runs, waits = (explain(story.world, key, NOW, each.name) for each in gang)
    assert (runs.name, runs.state, runs.node) == ("w-0", "Running", "x1")
    assert runs.sentence == "It is on node x1 for Slurm job 17, Running in Kubernetes."
    assert (waits.name, waits.state, waits.node) == ("w-1", "Granted", "")
    assert waits.sentence == (
        "Slurm granted job 17 x1; the bind has not been seen yet. "
        "The last bind for the job failed: Slurm refused it (error 422)."
    )


def test_a_pod_of_a_gang_that_ended_shows_how_though_others_run_and_its_successor_waits() -> None:
    story, gang = Story(), [member(f"w-{number}", 2) for number in range(2)]
    story.sees(*gang)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=Grant(17, (GrantedNode("x1", 2, 200),)))
    for bind in story.acts(BindPod, NOW):
        story.ended(bind, at=NOW)
    first, second = (story.bound(each, 17) for each in gang)
    story.sees(replace(first, phase=PodPhase.FAILED), second, member("w-2", 2, created=NOW + 1))
    key = story.world.key_of_pod[second.uid]
    ended, runs, waits = (explain(story.world, key, NOW + 2, f"w-{number}") for number in range(3))
    assert (ended.name, ended.state, ended.sentence) == ("w-0", "Failed", "It has ended (Failed).")
    assert (runs.name, runs.state) == ("w-1", "Running")
    assert waits.name == "w-2"
    assert not waits.sentence.startswith("It is on node")


def test_a_gated_pod_waits_for_its_gates() -> None:
    story, train = Story(), replace(pod("train"), gated=True)
    story.sees(train)
    assert explained(story, train).sentence.startswith("It has scheduling gates")


def member(name: str, size: int | None = 4, **fields: Any) -> Pod:
    says = {} if size is None else {"gang-size": str(size)}
    labels = {names.PREFIX + "gang": "ring", **fields.pop("labels", {})}
    return pod(name, labels=labels, says=says, **fields)


def gang_explained(story: Story, *pods: Pod, at: float = NOW) -> Explanation:
    story.sees(*pods)
    return explain(story.world, story.world.key_of_pod[pods[0].uid], at)


def test_a_gang_that_gathers_says_how_many_are_here_and_what_it_will_ask_for_if_the_others_are_alike() -> None:
    told = gang_explained(Story(), member("w-0", cpu=2000))
    assert told.phase == "gathering"
    assert told.sentence.startswith(
        "1 of 4 pods of gang ring are here in namespace hpc. Their job is submitted when all "
    )
    assert told.spec is not None
    assert (told.spec.tasks, told.spec.cpus_per_task) == (4, 2)
    assert (told.missing, told.like) == (3, "w-0")


def test_what_explain_says_of_a_gang_that_gathers_is_what_its_pods_show() -> None:
    story = Story()
    late = NOW + 86_400
    told = gang_explained(story, member("w-0"), member("w-1"), at=late)
    assert {told.sentence} == {report.message for report in story.acts(SetPodCondition, late)}
    assert "The other pods are missing: create them" in told.sentence


def test_missing_members_are_assumed_to_be_like_the_last_one_that_is_here() -> None:
    told = gang_explained(Story(), member("launcher"), member("w-0", cpu=4000))
    assert told.spec is not None
    [workers] = told.spec.parts
    assert (told.spec.tasks, workers.tasks, workers.cpus_per_task) == (1, 3, 4)
    assert (told.missing, told.like) == (2, "w-0")


def test_a_gang_of_which_some_have_gates_shows_both_and_knows_what_these_need() -> None:
    told = gang_explained(Story(), member("w-0", 2), replace(member("w-1", 2, cpu=4000), gated=True))
    assert told.sentence.startswith("1 of 2 pods of gang ring are here in namespace hpc. ")
    assert " 1 more has scheduling gates" in told.sentence
    assert told.spec is not None
    assert [told.spec.cpus_per_task, *(part.cpus_per_task for part in told.spec.parts)] == [1, 4]
    assert told.missing == 0


def test_a_gang_whose_first_pod_has_gates_says_what_the_others_wait_for() -> None:
    told = gang_explained(Story(), replace(member("w-0", 3), gated=True), member("w-1", 3))
    assert told.sentence.startswith("1 of 3 pods of gang ring are here in namespace hpc. ")
    assert " 1 more has scheduling gates" in told.sentence


def test_a_gang_of_which_all_pods_have_gates_waits_for_them() -> None:
    told = gang_explained(Story(), *(replace(member(f"w-{number}", 2), gated=True) for number in range(2)))
    assert told.sentence.startswith("It has scheduling gates")


def test_a_gang_of_which_a_pod_has_gates_says_as_its_other_pods_do_that_the_bridge_is_being_uninstalled() -> None:
    story = Story(replace(CONFIG, leaving="wait"))
    told = gang_explained(story, replace(member("w-0", 3), gated=True), member("w-1", 3))
    assert told.sentence.startswith("slurm-bridge is being uninstalled, and asks Slurm for no more nodes.")


def test_a_gang_that_lost_a_pod_says_how_long_its_job_is_kept_and_shows_this_job() -> None:
    story, gang = Story(), [member(f"w-{number}", 2) for number in range(2)]
    story.sees(gang[0])
    submitted = story.queues(gang[1], 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.loses(gang[1], NOW + 2)
    told = gang_explained(story, gang[0], at=NOW + 10)
    assert told.phase == "gathering"
    assert "Slurm job 17 is kept for them until " in told.sentence
    assert (told.spec, told.missing, told.like) == (submitted.spec, 0, "")


def test_of_a_gang_that_ended_no_pod_is_missing() -> None:
    story, gang = Story(), [member(f"w-{number}", 2, phase=PodPhase.SUCCEEDED, node="x1") for number in range(2)]
    told = gang_explained(story, *gang)
    assert (told.phase, told.missing) == ("done", 0)


@pytest.mark.parametrize("is_submitted", [False, True])
def test_a_gang_that_nodes_could_not_take_even_if_they_were_empty_is_refused_unless_it_has_a_job(
    is_submitted: bool,
) -> None:
    story, gang = Story(), [member(f"w-{number}", 2, cpu=60_000) for number in range(2)]
    if is_submitted:
        story.sees(gang[0])
        story.queues(gang[1], 17, at=NOW)
        story.polls({17: "PENDING"}, at=NOW + 1)
    story.sees(SlurmNodesPolled((slurm_node("x1"),), (Partition("main", default=True),), NOW + 2))
    told = gang_explained(story, *gang, at=NOW + 2)
    assert told.spec is not None
    assert (told.refusal is None) is is_submitted
    assert told.state == ("Pending" if is_submitted else "Refused")


def test_a_gang_says_how_many_are_here_also_before_the_first_lists() -> None:
    world = new_world(CONFIG, START)
    world.apply(NamespacesListed((KUBE_SYSTEM,)))
    world.apply(PodSeen(Scope.OURS, one := member("w-0")))
    told = explain(world, world.key_of_pod[one.uid], NOW)
    assert told.sentence.startswith("1 of 4 pods of gang ring are here in namespace hpc. ")
    assert " The bridge is not ready; it waits" in told.sentence


def test_a_gang_whose_pods_do_not_agree_on_their_number_says_who_says_what() -> None:
    told = gang_explained(Story(), member("w-0", 4), member("w-1", 5))
    assert "do not agree on their number (w-0 says 4, w-1 says 5)" in told.sentence
    assert told.missing is None


def test_a_gang_of_unknown_size_says_which_annotation_it_lacks() -> None:
    told = gang_explained(Story(), member("w-0", None))
    assert told.sentence.startswith(
        "gang ring does not show how many pods it has: give it the annotation slurm-bridge/gang-size"
    )
    assert told.missing is None


def test_an_obstacle_of_a_gang_is_reported_before_the_gang_is_complete() -> None:
    told = gang_explained(Story(), member("w-0", cpu=900_000))
    assert told.sentence.startswith("1 of 4 pods of gang ring are here in namespace hpc. ")
    assert " 0/2 nodes can run this pod" in told.sentence
    assert told.spec is not None
    assert told.spec.tasks == 4, "what it would need is of all four"


def test_before_the_first_lists_nothing_is_concluded() -> None:
    world, train = new_world(CONFIG, START), pod("train")
    world.apply(PodSeen(Scope.OURS, train))
    assert key_of(world, "hpc", "train") is None, "whose pod it is follows from what cluster this is"
    world.apply(NamespacesListed((KUBE_SYSTEM,)))
    told = explain(world, pod_key(train), NOW)
    assert told.sentence.startswith("The bridge is not ready; it waits for the list of Kubernetes nodes")
    assert (told.spec, told.nodes, told.next) == (None, None, ())


def test_before_the_first_lists_nothing_comes_next() -> None:
    """The job of a pod that ended is cancelled once both clusters are known."""
    world, train = new_world(CONFIG, START), pod("train")
    ended = Story().bound(train, 17, phase=PodPhase.SUCCEEDED, exit_code=0)
    managed = Namespace("hpc", "1", {names.MANAGED_LABEL: "true"})
    world.apply(NamespacesListed((KUBE_SYSTEM, managed)))
    world.apply(PodSeen(Scope.OURS, ended))
    world.apply(JobsPolled(NOW, NOW, {17: frozenset({"RUNNING"})}))
    world.apply(JobRead(17, NOW, NOW, job_of(train, 17), None))
    late = NOW + 600
    assert explain(world, pod_key(train), late).next == ()
    world.apply(NodesListed((node("x1"),)))
    world.apply(PodsListed(Scope.OURS, (ended,), NOW))
    world.apply(PodsListed(Scope.OTHERS, (), NOW))
    world.apply(SlurmNodesPolled((slurm_node("x1"),), (Partition("main", default=True),), NOW))
    assert explain(world, pod_key(train), late).next != ()


def test_a_pod_is_found_by_its_name_the_newest_of_them() -> None:
    story = Story()
    old, new = pod("train"), replace(pod("train"), uid="another", created=START + 5)
    story.sees(old, new)
    assert key_of(story.world, "hpc", "train") == pod_key(new)
    assert key_of(story.world, "hpc", "nope") is None
    story.sees(pod("train", namespace="other", uid="elsewhere", created=START + 9))
    assert key_of(story.world, "hpc", "train") == pod_key(new), "a newer pod of that name in another namespace"


def test_a_job_in_sbatchs_words() -> None:
    spec = JobSpec(
        name="my job~k1.2",
        user="alice",
        cpus_per_task=3,
        memory_mib=2048,
        gres=(("gpu:h100", 2),),
        account="teama",
        partition="gpu",
        constraints="a&b",
        time_limit_min=1501,
        nice=5,
        exclusive="user",
        excluded_nodes="x[1-3]",
    )
    assert as_sbatch(spec) == (
        "sbatch '--job-name=my job~k1.2' --account=teama --partition=gpu '--constraint=a&b' --nodes=1 --ntasks=1 "
        "--cpus-per-task=3 --mem=2048M --gres=gpu:h100:2 --time=1-01:01:00 --nice=5 '--exclude=x[1-3]' "
        "--dependency=singleton --exclusive=user"
    )
    assert "--time=UNLIMITED" in as_sbatch(replace(spec, time_limit_min=UNLIMITED))
    later = as_sbatch(replace(spec, begin=1_800_000_000, licenses=(("ansys", 1), ("flex", 2)), switches=(2, 90)))
    assert "--begin=2027-01-15T08:00:00Z --licenses=ansys:1,flex:2 --switches=2@1:30" in later
    assert "--switches=2 " in as_sbatch(replace(spec, switches=(2, LONGEST_WAIT_S)))


def test_a_gangs_job_in_sbatchs_words() -> None:
    launcher = JobSpec("ring", "alice", 1, 1000)
    workers = JobSpec("ring", "alice", 4, 1001, gres=(("gpu", 2),), tasks=8)
    both = as_sbatch(replace(launcher, parts=(workers,)))
    assert both == (
        "sbatch --job-name=ring --nodes=1 --ntasks=1 --cpus-per-task=1 --mem=1000M --dependency=singleton : "
        "--job-name=ring --ntasks=8 --cpus-per-task=4 --mem-per-cpu=251M --tres-per-task=gres/gpu:2 "
        "--dependency=singleton"
    )
    apart = as_sbatch(replace(workers, tasks_per_node=2, min_nodes=4, max_nodes=4))
    assert "--nodes=4 --ntasks=8 --ntasks-per-node=2 --cpus-per-task=4 --mem=2002M --gres=gpu:4 " in apart
    assert "--nodes=1-3 " in as_sbatch(replace(workers, max_nodes=3))
    assert "--nodes=2-3 " in as_sbatch(replace(workers, min_nodes=2, max_nodes=3))
    assert "--nodes=2 " in as_sbatch(replace(workers, min_nodes=2))
    assert "tres" not in as_sbatch(replace(workers, gres=()))


def test_the_name_of_the_job_is_the_pods() -> None:
    story, train = Story(), pod("train")
    submitted = story.queues(train, 17, at=NOW)
    assert isinstance(submitted, SubmitJob)
    told = explained(story, train, NOW + 1)
    assert told.spec is not None
    assert told.spec.name == names.job_name("hpc/train", CLUSTER, pod_key(train))


def test_a_pod_that_was_deleted_on_its_node_says_what_its_job_waits_for() -> None:
    """S3: the end of its containers was not observed."""
    story = Story()
    shown = story.runs(pod("train"), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.loses(shown, NOW + 2)
    told = explained(story, shown, NOW + 2)
    assert (told.phase, told.sentence) == (
        "done",
        "It was deleted while it was on node x1. Its job ends when the grace of its containers is over.",
    )


def test_a_pod_that_is_deleted_before_it_had_a_node_says_so() -> None:
    story, train = Story(), pod("train")
    story.queues(train, 17, at=NOW)
    story.sees(replace(train, deleting_at=NOW + 30))
    assert explained(story, train, NOW + 1).sentence == "It is being deleted, and was never on a node."


def test_a_member_that_leaves_shows_its_node_while_it_has_one() -> None:
    """Its containers run until their grace is over; the other pod of the gang waits."""
    story = Story()
    waits, leaves = member("w-0", 2), member("w-1", 2)
    story.sees(waits, replace(leaves, deleting_at=NOW + 30))
    key = story.world.key_of_pod[waits.uid]
    assert explain(story.world, key, NOW, "w-1").sentence == "It is being deleted, and was never on a node."
    shown = story.runs(pod("train"), 17, at=NOW)
    story.sees(replace(shown, deleting_at=NOW + 30))
    assert explained(story, shown, NOW + 1).sentence == "It is on node x1 for Slurm job 17, Running in Kubernetes."


def test_a_gated_replacement_in_a_gang_that_runs_waits_for_its_gates() -> None:
    """Slurm granted nodes to its gang, but no bind is on its way."""
    story = Story()
    leaves, stays = gang_runs(story, [member("w-0", 2), member("w-1", 2)], ("x1", 2), at=NOW)
    comes = member("w-2", 2, created=NOW + 1, gated=True)
    story.sees(replace(leaves, deleting_at=NOW + 600), comes)
    told = explain(story.world, story.world.key_of_pod[stays.uid], NOW + 2, comes.name)
    assert (told.state, told.sentence) == ("Gated", GATES_ALONE)


@pytest.mark.parametrize(
    ("by_us", "sentence"),
    [
        (True, "It has no node yet; other pods of its gang run."),
        (
            False,
            "The other pods of hpc/ring run, but slurm-bridge did not bind them, so there is no place for this pod. The pod "
            "waits until they end; delete them to start all of them again.",
        ),
    ],
    ids=["the job that it names is read first", "another client bound it"],
)
def test_a_member_without_a_node_beside_a_pod_that_runs_says_so(by_us: bool, sentence: str) -> None:
    story = Story()
    runs, waits = (member(f"w-{number}", 2, created=START - 60 if by_us else NOW) for number in range(2))
    story.polls({17: "RUNNING"}, at=START + 1)
    story.sees(story.bound(runs, 17, started=START - 50) if by_us else replace(runs, node="x1"), waits)
    told = explain(story.world, story.world.key_of_pod[runs.uid], NOW, waits.name)
    assert (told.phase, told.sentence) == ("bound", sentence)


def test_of_a_job_without_pods_the_history_is_left() -> None:
    story, train = Story(), pod("train")
    story.polls({17: "RUNNING"}, at=START + 1)
    story.reads(job_of(train, 17), at=START + 2)
    told = explained(story, train, START + 3)
    assert (told.name, told.phase, told.sentence) == ("", "done", "Its pods are gone.")
    assert [said for _, said in told.story] == ["Slurm job 17 is RUNNING"]


def test_an_explanation_of_many_pods_is_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod whose terms have to be compared with many others: each call compares some, so that events never wait long."""
    apart = (PodTerm((Requirement("app", "In", ("a",)),), frozenset({"hpc"})),)
    story = Story()
    story.sees(pod("train", labels={"app": "a"}, anti_affinity=apart))
    for number in range(300):
        term = PodTerm((Requirement("n", "In", (str(number),)),), frozenset({"hpc"}))
        story.sees(
            PodSeen(Scope.OTHERS, pod(f"other-{number}", node="x1", labels={"n": str(number)}, anti_affinity=(term,)))
        )
    monkeypatch.setattr("scheduler.explain.AT_ONCE", 10)
    calls = 1
    while not prepare(story.world, "hpc", "train"):
        calls += 1
    assert 1 < calls < 100
    assert explained(story, pod("train")).phase == "unsubmitted"
    assert prepare(story.world, "hpc", "no-such-pod")
    from_all = (PodTerm((Requirement("n", "Exists"),), frozenset({"hpc"})),)
    story.sees(pod("runs", node="x2", phase=PodPhase.RUNNING, anti_affinity=from_all))
    assert prepare(story.world, "hpc", "runs"), "no node is to be chosen for it"


def test_an_explanation_beside_a_large_gang_whose_bind_waits_is_computed_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pods with a grant that are not bound yet count for the anti-affinity of other pods, too (F5)."""
    monkeypatch.setattr("scheduler.explain.AT_ONCE", 10)
    story = Story(checked=False)
    terms = [PodTerm((Requirement("app", "NotIn", ("a", str(n))),), frozenset({"hpc"})) for n in range(15 * 20)]
    gang = [
        member(f"w-{n}", 20, anti_affinity=tuple(terms[n * 15 : n * 15 + 15]), labels={"app": "a"}) for n in range(20)
    ]
    story.sees(*gang)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=Grant(17, (GrantedNode("x1", 20, 2000),)))
    story.sees(train := pod("train", labels={"app": "a"}))
    assert not prepare(story.world, "hpc", "train")
    while not prepare(story.world, "hpc", "train"):
        pass
    assert explained(story, train).phase == "unsubmitted"


def test_a_waiting_job_of_which_nothing_was_read_says_so() -> None:
    story, train = Story(), pod("train")
    story.queues(train, 17, at=NOW)
    assert explained(story, train, NOW + 1).sentence == (
        "It waits in Slurm's queue as job 17, of which no more has been read yet."
    )


@pytest.mark.parametrize(("gated", "tasks"), [(True, 2), (False, 1)], ids=["has gates", "is to be bound"])
def test_a_gang_of_which_one_pod_leaves_and_the_other_is_not_bound_is_explained(gated: bool, tasks: int) -> None:
    """A previous process submitted the job, so the job that the pods ask for now is shown."""
    story = Story()
    first, second = (member(f"w-{number}", 2, created=START - 60) for number in range(2))
    leaves = replace(story.bound(first, 17, started=START - 50), deleting_at=NOW + 600)
    story.sees(leaves, replace(second, gated=gated))
    [key] = {story.world.key_of_pod[each.uid] for each in (first, second)}
    job = replace(job_of(first, 17, "RUNNING"), name=names.job_name("hpc/ring", CLUSTER, key), tasks=2)
    story.polls({17: "RUNNING"}, at=NOW)
    story.reads(job, at=NOW, granted=Grant(17, (GrantedNode("x1", 2, 200),)))
    told = explain(story.world, key, NOW + 1)
    assert told.phase == "granted"
    assert told.spec is not None
    assert told.spec.tasks == tasks
