"""A pod comes, Slurm has room: two calls of Slurm, one write of the pod (W1, S1, K4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import (
    AllocateNow,
    BindPod,
    CancelJob,
    Outcome,
    ReadClaims,
    ReadJob,
    ReadOwner,
    SelectVolumeNode,
    SetPodCondition,
    SubmitJob,
)
from scheduler.apply.events import new_world
from scheduler.events import (
    ClaimsRead,
    NamespaceDeleted,
    NamespaceSeen,
    NamespacesListed,
    NodeDeleted,
    NodeSeen,
    OwnerRead,
    PodDeleted,
    PodSeen,
    PodsListed,
    Scope,
    SlurmNodesPolled,
)
from scheduler.model.kubernetes import Claim, HostPort, Namespace, NodeTerm, Owner, OwnerRef, PodPhase, Requirement
from scheduler.model.slurm import JobSpec, Partition
from scheduler.state.placeholder import MAX_BIND_FAILURES
from tests.builders import (
    CLUSTER,
    CONFIG,
    KUBE_SYSTEM,
    OWNER,
    START,
    Story,
    grant,
    job_of,
    key_of,
    node,
    pod,
    slurm_node,
)

NOW = START + 20  # the quiet period is over
TRAIN = pod("train")


def test_a_pod_is_asked_for_granted_and_bound_with_one_write() -> None:
    story = Story()
    story.sees(TRAIN)
    spec = JobSpec(f"hpc/train~{CLUSTER}.{key_of(TRAIN)}", "alice", 1, 100)
    [asked] = story.decides(NOW)
    assert asked == AllocateNow(key_of(TRAIN), spec, "asking Slurm for nodes in partition main as alice")

    story.ended(asked, at=NOW + 1, job_id=17, grant=grant(17))
    [bind] = story.decides(NOW + 1)
    assert bind == BindPod(
        key_of(TRAIN),
        "uid-train",
        "hpc",
        "train",
        "x1",
        17,
        {
            "slurm-bridge/job-id": "17",
            "slurm-bridge/job-nodes": "x1",
            "slurm-bridge/size": "1",
            "slurm-bridge/rank": "0",
            "slurm-bridge/local-rank": "0",
            "slurm-bridge/job-gpus": "",
            "slurm-bridge/traceparent": names.traceparent(CLUSTER, key_of(TRAIN)),
        },
        "Slurm job 17 was granted x1",
        created=TRAIN.created,
        asked=NOW + 1,
        granted=NOW + 1,
    )
    assert story.decides(NOW + 1) == []

    story.ended(bind, at=NOW + 2)
    story.sees(story.bound(TRAIN, 17))
    story.polls({17: "RUNNING"}, at=NOW + 3)
    plan = story.plan(NOW + 3)
    assert (plan.actions, plan.wake) == ((), {})


def test_binding_waits_for_no_quiet_period() -> None:
    story = Story()
    assert story.runs(TRAIN, 17, at=START + 1).node == "x1"


def test_a_callers_trace_is_kept() -> None:
    story = Story()
    caller = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    story.sees(replace(TRAIN, annotations={names.TRACEPARENT: caller}))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    [bind] = story.acts(BindPod, NOW)
    assert names.TRACEPARENT not in bind.annotations


def test_a_grant_that_could_not_be_read_with_the_answer_is_read_before_the_bind() -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17)
    [read] = story.decides(NOW)
    assert read == ReadJob(17, "which nodes did Slurm grant job 17?", key_of(TRAIN))
    assert story.decides(NOW) == []  # it is being read

    story.ended(read, Outcome.UNREACHED, at=NOW)
    assert story.decides(NOW) == []
    [again] = story.decides(NOW + 1)
    story.reads(job_of(TRAIN, 17), at=NOW + 1, granted=grant(17))
    story.ended(again, at=NOW + 1)
    [bind] = story.decides(NOW + 1)
    assert isinstance(bind, BindPod)


def test_the_time_of_the_submission_is_slurms_only_if_a_previous_process_made_the_job() -> None:
    """The metrics of a bind count from it.  Slurm shows whole seconds."""
    own, after = Story(), Story(started=NOW + 5)
    own.sees(TRAIN)
    [asked] = own.acts(AllocateNow, NOW + 0.7)
    own.ended(asked, at=NOW + 0.7, job_id=17)
    read = job_of(TRAIN, 17, submitted=NOW)
    for story in (own, after):
        story.sees(TRAIN)
        story.polls({17: "RUNNING"}, at=NOW + 6)
        story.reads(read, at=NOW + 6, granted=grant(17))
        story.polls({17: "RUNNING"}, at=NOW + 39)
    [bind] = own.acts(BindPod, NOW + 40)
    assert bind.asked == NOW + 0.7
    [bind] = after.acts(BindPod, NOW + 40)
    assert bind.asked == NOW


def test_a_node_is_bound_by_its_name_in_kubernetes() -> None:
    story = Story(nodes=[node("ip-10-0-0-7", labels={names.SLURM_NODE_LABEL: "x7"})])
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    assert asked.spec.excluded_nodes == ""
    story.ended(asked, at=NOW, job_id=17, grant=grant(17, "x7"))
    [bind] = story.acts(BindPod, NOW)
    assert (bind.node, bind.annotations[names.JOB_NODES]) == ("ip-10-0-0-7", "x7")


# --- which jobs may use it ----------------------------------------------------------------------------------------


def test_a_namespace_that_is_not_managed_shows_that_until_it_is() -> None:
    story = Story()
    story.sees(NamespaceSeen(Namespace("hpc", "1")), TRAIN)
    [said] = story.decides(NOW)
    assert said == SetPodCondition(
        key_of(TRAIN),
        "uid-train",
        "hpc",
        "train",
        "NamespaceNotManaged",
        "Namespace hpc is not managed by slurm-bridge: the admin has to label it slurm-bridge/managed=true.",
        event="NamespaceNotManaged",
        warning=True,
        essence=(said.message,) if isinstance(said, SetPodCondition) else (),
    )
    assert story.decides(NOW + 1) == []

    story.sees(NamespaceSeen(Namespace("hpc", "1", {names.MANAGED_LABEL: "true"})))
    assert len(story.acts(AllocateNow, NOW + 2)) == 1


def test_a_namespace_may_be_managed_by_the_settings() -> None:
    story = Story(replace(CONFIG, managed_namespaces=frozenset({"hpc"})))
    story.sees(NamespaceSeen(Namespace("hpc", "1")), TRAIN)
    assert len(story.acts(AllocateNow, NOW)) == 1


def test_a_label_that_says_no_is_a_no_and_a_namespace_that_goes_is_not_managed() -> None:
    story = Story()
    story.sees(NamespaceSeen(Namespace("hpc", "1", {names.MANAGED_LABEL: "false"})), TRAIN)
    assert [type(each) for each in story.decides(NOW)] == [SetPodCondition]
    story = Story()
    story.sees(TRAIN, NamespaceDeleted("hpc"))
    assert [type(each) for each in story.decides(NOW)] == [SetPodCondition]


def test_a_namespace_without_a_slurm_user_shows_that() -> None:
    story = Story(replace(CONFIG, managed_namespaces=frozenset({"rogue"})))
    story.sees(pod("rogue", namespace="rogue"))
    [said] = story.acts(SetPodCondition, NOW)
    assert said.condition == names.REFUSED
    assert said.message.startswith("Namespace rogue has no Slurm user")


def test_a_gated_pod_is_no_member_until_it_is_ungated() -> None:
    story = Story()
    story.sees(pod("train", gated=True))
    assert story.decides(NOW) == []
    story.sees(TRAIN)
    assert len(story.acts(AllocateNow, NOW + 1)) == 1


# --- what is read first -------------------------------------------------------------------------------------------


def test_nothing_is_decided_before_everything_was_listed_once() -> None:
    world = new_world(CONFIG, START)
    assert world.missing == [
        "the list of namespaces",
        "the list of Kubernetes nodes",
        "the list of this scheduler's pods",
        "the list of other pods",
        "Slurm's nodes",
        "Slurm's jobs",
    ]
    assert not world.ready
    ready = Story().world
    assert ready.ready
    assert ready.missing == []


def test_changes_seen_before_the_first_list_do_not_pass_for_a_list() -> None:
    world = new_world(CONFIG, START)
    for event in (
        NodeSeen(node("x1")),
        NodeDeleted("x1"),
        NamespaceSeen(KUBE_SYSTEM),
        NamespaceDeleted("hpc"),
        PodSeen(Scope.OURS, TRAIN),
    ):
        world.apply(event)
    assert len(world.missing) == 6


def test_annotations_of_owners_are_read_once_before_the_first_decision() -> None:
    story = Story()
    rollout = OwnerRef("argoproj.io/v1alpha1", "Rollout", "web", "uid-rollout")
    one, two = pod("web-1", owner=OWNER), pod("web-2", owner=OWNER)
    story.sees(one, two)
    [read] = story.decides(NOW)
    assert read == ReadOwner("hpc", OWNER, "annotations of ReplicaSet web")

    story.sees(OwnerRead(OWNER, Owner(OWNER, {"slurm-bridge/qos": "high"}, rollout), NOW, "hpc"))
    story.ended(read, at=NOW)
    [next_read] = story.decides(NOW)
    assert next_read == ReadOwner("hpc", rollout, "annotations of Rollout web")

    story.sees(OwnerRead(rollout, Owner(rollout, {"slurm-bridge/partition": "gpu"}), NOW, "hpc"))
    story.ended(next_read, at=NOW)
    [first] = story.acts(AllocateNow, NOW)
    story.ended(first, at=NOW, job_id=17, grant=grant(17))
    [second] = story.acts(AllocateNow, NOW)
    assert {(each.spec.qos, each.spec.partition) for each in (first, second)} == {("high", "gpu")}
    assert first.key != second.key


def test_an_owner_that_cannot_be_read_or_is_not_known_is_no_error() -> None:
    """W2."""
    story = Story()
    story.sees(pod("web-1", owner=OWNER))
    [read] = story.decides(NOW)
    story.ended(read, Outcome.UNREACHED, at=NOW)
    assert story.decides(NOW) == []
    [read] = story.decides(NOW + 1)  # after a pause, again
    story.sees(OwnerRead(OWNER, None, NOW + 1, "hpc"))
    story.ended(read, at=NOW + 1)
    assert len(story.acts(AllocateNow, NOW + 1)) == 1


def test_a_circle_of_owners_ends() -> None:
    story = Story()
    story.sees(OwnerRead(OWNER, Owner(OWNER, owner=OWNER), NOW, "hpc"), pod("web-1", owner=OWNER))
    assert len(story.acts(AllocateNow, NOW)) == 1


def test_the_volumes_of_a_pod_are_read_and_limit_its_nodes() -> None:
    story = Story()
    with_data = pod("train", claims=("data",))
    story.sees(with_data)
    [read] = story.decides(NOW)
    assert read == ReadClaims(key_of(with_data), "uid-train", "hpc", ("data",), "its volumes")
    on_x2 = (NodeTerm(fields=(Requirement("metadata.name", "In", ("x2",)),)),)
    story.sees(ClaimsRead("uid-train", (Claim("data", True, on_x2),), NOW))
    story.ended(read, at=NOW)
    [asked] = story.acts(AllocateNow, NOW)
    assert asked.spec.excluded_nodes == "x1"


def test_a_volume_that_cannot_be_used_is_reported_and_looked_at_again_later() -> None:
    story = Story()
    story.sees(pod("train", claims=("scratch", "data")))
    [read] = story.decides(NOW)
    missing = Claim("data", False, problem="Claim data does not exist.")
    story.sees(ClaimsRead("uid-train", (Claim("scratch", True), missing), NOW))
    story.ended(read, at=NOW)
    [said] = story.decides(NOW)
    assert isinstance(said, SetPodCondition)
    assert (said.message, said.warning) == ("Claim data does not exist.", True)

    [again] = story.acts(ReadClaims, NOW + 1)
    story.sees(ClaimsRead("uid-train", (missing,), NOW + 1))
    story.ended(again, at=NOW + 1)
    assert story.acts(ReadClaims, NOW + 2) == []  # twice as long between
    [again] = story.acts(ReadClaims, NOW + 3)
    story.sees(ClaimsRead("uid-train", (Claim("data", True),), NOW + 3))
    story.ended(again, at=NOW + 3)
    assert len(story.acts(AllocateNow, NOW + 10)) == 1


def test_a_read_of_volumes_that_failed_is_repeated_after_a_pause() -> None:
    story = Story()
    story.sees(pod("train", claims=("data",)))
    [read] = story.decides(NOW)
    story.ended(read, Outcome.UNREACHED, at=NOW)
    assert story.decides(NOW) == []
    assert len(story.acts(ReadClaims, NOW + 1)) == 1


# --- the bind -----------------------------------------------------------------------------------------------------


def granted(story: Story, what: object = TRAIN, *, job_id: int = 17, at: float = NOW) -> BindPod:
    story.sees(what)
    [asked] = story.acts(AllocateNow, at)
    story.ended(asked, at=at, job_id=job_id, grant=grant(job_id))
    [bind] = story.acts(BindPod, at)
    return bind


def test_a_refused_bind_is_tried_again_with_growing_pauses_and_then_the_grant_is_released() -> None:
    story = Story()
    bind, at = granted(story), NOW
    for failure in range(MAX_BIND_FAILURES):
        story.ended(bind, Outcome.REFUSED, at=at, number=409)
        if failure == MAX_BIND_FAILURES - 1:
            break
        assert story.acts(BindPod, at) == []
        at += 2**failure
        [bind] = story.acts(BindPod, at)
    [cancel] = story.acts(CancelJob, at)
    assert cancel.reason == "released: the bind failed again and again: Slurm refused it (error 409).", (
        "and at once: only binds were refused"
    )


def test_a_bind_whose_answer_was_lost_is_repeated_for_it_cannot_hit_twice() -> None:
    """The binding carries the uid; ours already there is a success (Kubernetes facts 1)."""
    story = Story()
    bind = granted(story)
    story.ended(bind, Outcome.UNKNOWN, at=NOW)
    [again] = story.acts(BindPod, NOW + 1)
    assert replace(again, reason="") == replace(bind, reason="")


def test_a_bind_that_was_answered_is_no_news_before_the_watch_shows_it() -> None:
    story = Story()
    story.ended(granted(story), at=NOW)
    assert story.decides(NOW) == []


def test_the_watch_may_show_the_bind_before_its_answer_comes() -> None:
    story = Story()
    bind = granted(story)
    story.sees(story.bound(TRAIN, 17))
    assert story.decides(NOW) == []
    story.ended(bind, at=NOW)
    assert story.decides(NOW) == []
    assert story.world.workloads[key_of(TRAIN)].bound == {}


def test_a_pod_deleted_while_it_is_bound_frees_its_place() -> None:
    story = Story()
    bind = granted(story)
    story.sees(PodDeleted(Scope.OURS, TRAIN, NOW))
    story.ended(bind, Outcome.REFUSED, at=NOW, number=404)
    assert story.world.node_info == {}


BIG = {"cpu": 40_000}


def test_two_pods_are_never_given_the_same_room() -> None:
    """V3, V5: what one was given in this pass, or is on its way to, is taken for the next."""
    story = Story(nodes=[node("x1", cpu=64_000)])
    one, two = pod("one", **BIG), pod("two", created=START + 2, **BIG)
    story.runs(pod("warm"), 16, at=NOW)  # now the bridge trusts that there is room
    story.sees(one, two)
    asked = story.acts(AllocateNow, NOW)
    for job_id, each in enumerate(asked, 17):
        story.ended(each, at=NOW, job_id=job_id, grant=grant(job_id, cpus=40))
    acts = story.decides(NOW)
    [bind] = [each for each in acts if isinstance(each, BindPod)]
    [cancel] = [each for each in acts if isinstance(each, CancelJob)]
    assert (bind.name, cancel.job_id) == ("one", 18)


@pytest.mark.parametrize("in_one_pass", [True, False])
def test_no_nodes_are_asked_for_at_once_in_the_default_partition_while_a_job_is_on_its_way_to_its_queue(
    in_one_pass: bool,
) -> None:
    story, first, second = Story(), pod("later", says={"begin": "now+1hour"}), pod("next", created=START + 2)
    story.sees(first)
    before = [] if in_one_pass else story.decides(NOW)
    story.sees(second)
    assert [type(each) for each in before + story.decides(NOW)] == [SubmitJob, SubmitJob]


def test_a_bind_that_is_repeated_takes_no_more_room_than_the_first_one() -> None:
    story = Story(nodes=[node("x1", cpu=64_000)])
    story.runs(pod("warm", cpu=1000), 16, at=NOW)
    one, two = pod("one", cpu=30_000), pod("two", cpu=30_000)
    story.sees(one, two)
    first, second = story.acts(AllocateNow, NOW)
    story.ended(first, at=NOW, job_id=17, grant=grant(17, cpus=30))
    [bind] = story.acts(BindPod, NOW)
    story.ended(bind, Outcome.UNKNOWN, at=NOW)
    story.ended(second, at=NOW + 1, job_id=18, grant=grant(18, cpus=30))
    assert sorted(each.name for each in story.acts(BindPod, NOW + 1)) == ["one", "two"]


def test_news_from_before_the_bind_does_not_free_the_room_that_the_bind_took() -> None:
    """V3: the condition written before the bind comes through the watch after it."""
    story = Story(nodes=[node("x1", cpu=64_000)])
    one = pod("one")
    bind = granted(story, one)
    story.sees(replace(one, labels={"late": "news"}))
    story.ended(bind, at=NOW)
    story.sees(replace(one, labels={"later": "news"}))
    assert set(story.world.node_info["x1"].pods) == {one.uid}


def test_a_pod_is_on_one_node_whatever_was_assumed_of_it() -> None:
    story = Story()
    bind = granted(story)
    story.ended(bind, Outcome.UNKNOWN, at=NOW)
    story.sees(story.bound(TRAIN, 17, on="x2"))  # another process of ours, or somebody else, was faster
    assert {name: set(there.pods) for name, there in story.world.node_info.items()} == {"x2": {TRAIN.uid}}


def test_a_host_port_that_our_own_bind_took_is_taken() -> None:
    web = {"host_ports": (HostPort(80),)}
    story = Story()
    story.runs(pod("one", **web), 17, at=NOW)
    story.sees(pod("two", **web))
    [asked] = story.acts(AllocateNow, NOW + 1)
    assert asked.spec.excluded_nodes == "x1"


def test_a_finished_pod_takes_no_room() -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    assert set(story.world.node_info["x1"].pods) == {TRAIN.uid}
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED))
    assert story.world.node_info == {}


def test_other_pods_are_counted_and_forgotten_by_their_list() -> None:
    story = Story()
    daemon = pod("daemon", namespace="kube-system", node="x1", scheduler_name="default-scheduler")
    story.sees(PodSeen(Scope.OTHERS, daemon))
    assert set(story.world.node_info["x1"].pods) == {daemon.uid}
    assert story.world.workloads == {}
    story.sees(PodsListed(Scope.OTHERS, (), NOW))
    assert story.world.node_info == {}
    story.sees(PodSeen(Scope.OTHERS, daemon), PodDeleted(Scope.OTHERS, daemon, NOW))
    assert story.world.node_info == {}


def test_kube_system_cannot_go() -> None:
    story = Story()
    story.sees(NamespaceDeleted("kube-system"))
    assert story.world.ready
    story.sees(NamespacesListed((Namespace("hpc", "1"),)))
    assert not story.world.ready
    assert story.decides(NOW) == []


@pytest.mark.parametrize("gone", [True, False])
def test_a_pod_missing_from_a_list_is_gone(gone: bool) -> None:
    story = Story()
    story.sees(TRAIN)
    story.sees(PodsListed(Scope.OURS, () if gone else (TRAIN,), NOW))
    assert (story.acts(AllocateNow, NOW) == []) is gone


def test_the_story_of_a_workload_is_shown_in_order() -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.loses(shown, at=NOW + 5)
    assert [what for _, what in story.world.story(key_of(TRAIN))] == [
        "pod hpc/train created",
        "asking Slurm for nodes in partition main as alice",
        "Slurm job 17 is RUNNING",
        "Slurm job 17 was granted x1",
        "is on node x1",
        "pod hpc/train is gone",
    ]
    assert story.world.story("nobody") == []


# --- F4: volumes that are made where their pod goes -----------------------------------------------------------------


LOGS = Claim("logs", True)


def waits_for_its_volume(story: Story) -> ReadClaims | SelectVolumeNode:
    """A pod with such a claim, and one whose volume exists, granted x1 as job 17: what is done next."""
    new = replace(TRAIN, claims=("data", "logs"))
    story.sees(new)
    [read] = story.acts(ReadClaims, NOW)
    story.sees(ClaimsRead(new.uid, (Claim("data", False, waits=True), LOGS), NOW))
    story.ended(read, at=NOW)
    [allocate] = story.acts(AllocateNow, NOW)
    story.ended(allocate, at=NOW, job_id=17, grant=grant(17))
    acts = story.decides(NOW)
    assert not [each for each in acts if isinstance(each, BindPod)]
    [place] = [each for each in acts if isinstance(each, SelectVolumeNode)]
    assert (place.waiting, place.node) == (("data",), "x1")
    return place


def test_a_claim_gets_the_node_of_its_pod_and_the_bind_waits_for_it() -> None:
    story = Story()
    place = waits_for_its_volume(story)
    story.sees(ClaimsRead(TRAIN.uid, (Claim("data", False, waits=True, selected="x1"), LOGS), NOW + 0.1))
    story.ended(place, at=NOW + 0.1)
    assert not [each for each in story.decides(NOW + 0.5) if isinstance(each, BindPod | ReadClaims)]
    [read] = story.acts(ReadClaims, NOW + 1.2)
    story.sees(ClaimsRead(TRAIN.uid, (Claim("data", True), LOGS), NOW + 1.2))
    story.ended(read, at=NOW + 1.2)
    [bind] = story.acts(BindPod, NOW + 1.2)
    assert bind.node == "x1"


def test_a_job_that_its_user_renames_while_the_bind_waits_for_a_volume_ends_with_its_pod() -> None:
    """V7, L2: a job that was never read is not known by another name, and would keep its nodes."""
    story = Story()
    waits_for_its_volume(story)
    [read] = [job_id for job_id in story.world.reading if job_id == 17]
    job = job_of(TRAIN, read, submitted=NOW)
    story.reads(job, at=NOW + 0.1, granted=grant(17))
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.reads(replace(job, name="pretty"), at=NOW + 2, granted=grant(17))
    story.loses(replace(TRAIN, claims=("data", "logs")), NOW + 3)
    story.polls({17: "RUNNING"}, at=NOW + 15)
    [cancel] = story.acts(CancelJob, NOW + 15)
    assert (cancel.job_id, cancel.name) == (17, "pretty")


def test_a_pod_asks_for_nodes_where_the_volume_that_waits_for_it_can_be_made() -> None:
    story = Story(nodes=[node("x1", labels={"zone": "a"}), node("x2", labels={"zone": "b"})])
    story.sees(new := replace(TRAIN, claims=("data",)))
    [read] = story.acts(ReadClaims, NOW)
    in_zone_b = (NodeTerm((Requirement("zone", "In", ("b",)),)),)
    story.sees(ClaimsRead(new.uid, (Claim("data", False, in_zone_b, waits=True),), NOW))
    story.ended(read, at=NOW)
    [allocate] = story.acts(AllocateNow, NOW)
    assert allocate.spec.excluded_nodes == "x1"


def test_a_volume_that_is_not_made_is_not_waited_for_for_ever() -> None:
    story = Story()
    place = waits_for_its_volume(story)
    story.sees(ClaimsRead(TRAIN.uid, (Claim("data", False, waits=True, selected="x1"), LOGS), NOW))
    story.ended(place, at=NOW)
    late = NOW + 121
    story.polls({17: "RUNNING"}, at=late)
    [cancel] = story.acts(CancelJob, late)
    assert "the volumes of hpc/train were not made on x1" in cancel.reason


def test_a_pod_whose_volume_is_not_made_because_kubernetes_refuses_the_node_of_its_claim_says_so() -> None:
    story = Story()
    story.ended(waits_for_its_volume(story), Outcome.REFUSED, at=NOW, number=403)
    again, said = sorted(story.decides(NOW + 10), key=lambda each: isinstance(each, SetPodCondition))
    assert isinstance(said, SetPodCondition)
    story.ended(said, at=NOW + 10)
    story.ended(again, Outcome.REFUSED, at=NOW + 10, number=403)
    why = "The last request about its claims failed: Slurm refused it (error 403)."
    assert said.message == f"Slurm job 17 was granted x1; the bind waits for volumes there: data. {why}"
    late = NOW + 121
    story.polls({17: "RUNNING"}, at=late)
    [cancel] = story.acts(CancelJob, late)
    assert cancel.reason == f"released: the volumes of hpc/train were not made on x1. {why.rstrip('.')}"


def test_the_default_partition_may_change_while_nodes_are_asked_for() -> None:
    """Slurm's partitions are not known while slurmdbd is away at the start: the default one has no name then."""
    story = Story()
    story.sees(SlurmNodesPolled((slurm_node("x1"), slurm_node("x2")), (), NOW))
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    assert asked.reason == "asking Slurm for nodes in partition (default) as alice"
    story.sees(SlurmNodesPolled((slurm_node("x1"), slurm_node("x2")), (Partition("main", default=True),), NOW + 0.1))
    story.ended(asked, at=NOW + 0.2, job_id=17, grant=grant(17))
    assert not any(story.world.immediate_in_flight.values())
    story.sees(pod("next"))
    assert any(isinstance(each, AllocateNow) for each in story.decides(NOW + 0.3))


def test_a_poll_that_shows_a_job_before_its_answer_leaves_the_pods_alone_that_wait_for_their_turn() -> None:
    """In a burst each poll shows such jobs, and each of their answers empties the list of ids that are to be read."""
    story = Story()
    burst = [pod(f"p{number:02}") for number in range(40)]
    story.sees(*burst)
    [first] = story.acts(AllocateNow, NOW)
    story.ended(first, at=NOW, job_id=16, grant=grant(16))
    asked = story.acts(AllocateNow, NOW)
    waiting = {key_of(each) for each in burst} - {action.key for action in (first, *asked)}
    assert len(waiting) == 39 - story.world.config.tuning.submits
    story.polls({16: "RUNNING", 17: "RUNNING"}, at=NOW + 1)
    story.ended(asked[0], at=NOW + 1, job_id=17, grant=grant(17))
    assert waiting.isdisjoint(story.world.dirty)
    [next_in_turn] = story.acts(AllocateNow, NOW + 1)
    assert next_in_turn.key in waiting
