"""What runs does not die of what slurmctld forgot: the same nodes are asked for once more (S7)."""

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
    FailByDeadline,
    Outcome,
    ReadClaims,
    ReadJob,
    ReadOwner,
    RecordEnd,
    RestoreKeys,
    SetJobCondition,
    SetPodCondition,
    SubmitJob,
)
from scheduler.events import ClaimsRead, NodeDeleted, NodeSeen, OutageBegan, OutageEnded, Side, SlurmNodesPolled
from scheduler.model.kubernetes import Claim, HostPort, Node, OwnerRef, Pod, PodPhase, PodTerm, Requirement, Taint
from scheduler.model.slurm import Grant, GrantedNode, Job, Partition
from scheduler.state.phase import Phase
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload
from tests.builders import CLUSTER, CONFIG, OF_A_BIND, START, Story, grant, job_of, key_of, node, pod, slurm_node
from tests.unit.scheduler.test_gangs import member, ring
from tests.unit.scheduler.test_gangs import runs as ring_runs

NOW = START + 20
TRAIN = pod("train", gpu=1)


def loses(story: Story, at: float, left: dict[int, str] | None = None) -> None:
    """Two polls lack the job, and a read denies it.  Slurm's clock is known, as it is once anything was read."""
    story.world.clocks[Side.SLURM].is_known = True
    for when in (at - 2, at):
        story.polls(left or {}, at=when)
        for read in story.acts(ReadJob, when):
            story.reads(None, job_id=read.job_id, at=when)
            story.ended(read, at=when)


def asked_again(story: Story, what: Pod | None = None) -> AllocateNow:
    """What is under way for that pod; None: for the one workload."""
    keys = list(story.world.workloads) if what is None else [key_of(what)]
    [workload] = (story.world.workloads[key] for key in keys)
    assert workload.in_flight is not None
    assert isinstance(workload.in_flight.action, AllocateNow)
    return workload.in_flight.action


def lost(story: Story, what: Pod = TRAIN) -> AllocateNow:
    story.runs(what, 17, on="x2", at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    loses(story, NOW + 7)
    return asked_again(story)


def test_exactly_its_nodes_are_asked_for_under_its_name_and_it_runs_on_in_the_new_job() -> None:
    story = Story()
    asked = lost(story)
    assert asked.spec.name == names.job_name("hpc/train", story.world.cluster, key_of(TRAIN))
    assert (asked.spec.required_nodes, asked.spec.excluded_nodes, asked.spec.gres) == ("x2", "", (("gpu", 1),))
    assert (asked.spec.min_nodes, asked.spec.max_nodes) == (None, None), "of one pod, the nodes say how many"
    assert asked.reason == "Slurm has lost job 17: x2 is asked for again"
    story.ended(asked, at=NOW + 7, job_id=30, grant=grant(30, "x2", gpu=1))
    [said] = story.decides(NOW + 7)
    assert isinstance(said, SetPodCondition)
    assert (said.condition, said.event, said.warning) == ("", "SlurmJobReplaced", True)
    assert said.message == ("Slurm job 30 holds the place of this pod; the job that the pod named does not.")
    assert said.annotations == {names.JOB_ID: "30", names.JOB_SINCE: "1970-01-01T00:17:10Z"}, (
        "a bridge that starts anew reads it there"
    )
    shown = story.bound(TRAIN, 30, "x2")
    story.sees(replace(shown, annotations={**shown.annotations, **said.annotations}))
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND
    assert list(story.world.placeholders) == [30], "nobody misses the lost one any more"
    for minute in range(1, 60):
        story.polls({30: "RUNNING"}, at=NOW + 60 * minute)
        assert {type(each) for each in story.decides(NOW + 60 * minute)} <= {ReadJob}

    story.sees(story.bound(TRAIN, 17, "x2", phase=PodPhase.SUCCEEDED))
    assert [each.job_id for each in story.acts(CancelJob, NOW + 3600)] == [30]


def test_a_pod_whose_bind_another_client_overtook_with_an_invented_job_ends_with_the_job_that_holds_its_place() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.reads(job_of(TRAIN, 17, nodes="x2"), at=NOW + 1, granted=grant(17, "x2", gpu=1))
    [bind] = story.acts(BindPod, NOW + 1)
    story.ended(bind, Outcome.UNREACHED, at=NOW + 1)
    story.sees(story.bound(TRAIN, 4000000, "x2"))
    [said] = story.acts(SetPodCondition, NOW + 2)
    assert said.annotations is not None
    story.ended(said, at=NOW + 2)
    shown = story.bound(TRAIN, 17, "x2")
    story.sees(replace(shown, annotations=shown.annotations | said.annotations))
    story.polls({}, at=NOW + 10)
    [read] = story.acts(ReadJob, NOW + 10)
    story.reads(job_of(TRAIN, 17, "CANCELLED"), at=NOW + 10)
    story.ended(read, at=NOW + 10)
    story.polls({}, at=NOW + 20)
    [end] = story.acts(FailByDeadline, NOW + 20)
    assert end.reason == "Slurm job 17 ended: CANCELLED"
    assert story.acts(AllocateNow, NOW + 60) == [], "its nodes are not asked for again in the name of the invented job"


def test_a_new_job_that_soon_ends_does_not_make_its_pod_say_once_more_that_this_job_replaced_the_lost_one() -> None:
    """The watch has not shown yet that the pod names the new job."""
    story = Story()
    asked = lost(story)
    story.ended(asked, at=NOW + 7, job_id=30, grant=grant(30, "x2", gpu=1))
    [replaced] = story.acts(SetPodCondition, NOW + 7)
    story.ended(replaced, at=NOW + 8)
    story.polls({30: "RUNNING"}, at=NOW + 8)
    limit: dict[str, Any] = {"starts": NOW + 7, "ends": NOW + 67, "time_limit_min": 1}
    story.reads(job_of(TRAIN, 30, "RUNNING", nodes="x2", **limit), granted=grant(30, "x2", gpu=1), at=NOW + 8)
    [ends_soon] = story.acts(SetJobCondition, NOW + 20)
    assert ends_soon.condition == names.ENDS_SOON
    story.ended(ends_soon, at=NOW + 21)
    assert story.acts(SetPodCondition, NOW + 40) == []


@pytest.mark.parametrize(("number", "stale"), [(2018, True), (2068, False)], ids=["unknown to Slurm", "down"])
def test_nodes_that_may_soon_be_back_in_service_are_asked_for_again(number: int, stale: bool) -> None:
    """After its start slurmctld finds nodes again some time later."""
    story = Story()
    asked = lost(story)
    story.ended(asked, Outcome.REFUSED, at=NOW + 7, number=number)
    assert story.world.nodes_stale is stale, "Slurm's nodes are read again"
    [again] = [each for each in story.decides(NOW + 8) if isinstance(each, AllocateNow | FailByDeadline)]
    assert isinstance(again, AllocateNow)
    assert again.spec.required_nodes == "x2"


def test_a_pod_that_runs_says_by_an_event_alone_that_its_owner_cannot_be_read() -> None:
    """After a restart the owner is read before the nodes are asked for again.  PodScheduled=False would say that it waits."""
    story = Story()
    owned = replace(TRAIN, created=START - 60, owner=OwnerRef("batch/v1", "Job", "train", "uid-job"))
    story.sees(story.bound(owned, 17, "x2", started=START - 50))
    said: list[SetPodCondition] = []
    for at in (NOW + second for second in range(60)):
        story.polls({}, at=at)
        for action in story.decides(at):
            if isinstance(action, ReadJob):
                story.reads(None, job_id=action.job_id, at=at)
            said += [action] if isinstance(action, SetPodCondition) else []
            story.ended(action, Outcome.UNREACHED if isinstance(action, ReadOwner) else Outcome.DONE, at=at)
    assert {(each.condition, each.event) for each in said if "cannot be read" in each.message} == {
        ("", names.UNREADABLE)
    }


def test_the_nodes_of_a_pod_are_asked_for_again_although_its_volume_claim_is_being_deleted() -> None:
    """Kubernetes deletes the claim after the pod.  So the pod still has its volume, and needs nothing but its nodes."""
    story = Story()
    old = replace(TRAIN, created=START - 60, claims=("data",))
    story.sees(story.bound(old, 17, "x2", started=START - 50))
    deleted, asked = Claim("data", False, problem="claim data is being deleted"), list[AllocateNow]()
    for at in (NOW + second for second in range(20)):
        story.polls({}, at=at)
        for action in story.decides(at):
            if isinstance(action, ReadJob):
                story.reads(None, job_id=action.job_id, at=at)
            if isinstance(action, ReadClaims):
                story.sees(ClaimsRead(old.uid, (deleted,), at))
            if isinstance(action, AllocateNow):
                asked.append(action)
            else:
                story.ended(action, at=at)
    assert [each.spec.required_nodes for each in asked] == ["x2"]


def test_the_new_job_may_be_renamed_before_it_is_ever_read() -> None:
    """It is younger than the pod that runs for it, and as old as Slurm's answer: the pod is left in peace (decision 0003)."""
    story = Story()
    story.sees(replace(story.runs(TRAIN, 17, on="x2", at=NOW), started=NOW))
    loses(story, NOW + 7)
    story.ended(asked_again(story), at=NOW + 7, job_id=30, grant=grant(30, "x2", gpu=1))
    story.sees(story.bound(TRAIN, 30, "x2", started=NOW))
    story.polls({30: "RUNNING"}, at=NOW + 8)
    renamed = replace(job_of(TRAIN, 30), name="mine", nodes="x2", submitted=NOW + 7)
    for second in range(70, 130):
        story.polls({30: "RUNNING"}, at=NOW + second)
        for action in story.decides(NOW + second):
            assert isinstance(action, ReadJob | SetPodCondition)
            if isinstance(action, ReadJob):
                story.reads(renamed, at=NOW + second)
            story.ended(action, at=NOW + second)
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND


def test_the_new_job_of_a_pod_of_an_earlier_process_may_be_renamed_before_it_is_ever_read() -> None:
    """This process did not bind the pod, but it submitted the job."""
    story = Story()
    old = replace(TRAIN, created=START - 60)
    story.sees(story.bound(replace(old, annotations=OF_A_BIND), 17, "x2", started=START - 50))
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.reads(job_of(TRAIN, 17, nodes="x2", submitted=START - 55), at=NOW + 1, granted=grant(17, "x2", gpu=1))
    loses(story, NOW + 7)
    story.ended(asked_again(story), at=NOW + 7, job_id=30, grant=grant(30, "x2", gpu=1))
    renamed = replace(job_of(TRAIN, 30), name="mine", nodes="x2", submitted=NOW + 7)
    for second in range(8, 130):
        story.polls({30: "RUNNING"}, at=NOW + second)
        for action in story.decides(NOW + second):
            assert not isinstance(action, AllocateNow | FailByDeadline | CancelJob)
            if isinstance(action, ReadJob):
                story.reads(renamed, job_id=30, at=NOW + second)
            story.ended(action, at=NOW + second)


def test_a_pod_keeps_the_twin_of_its_lost_job_that_was_read_before_the_loss_was_certain() -> None:
    """The answer to the request for its nodes was lost, and slurmctld lost everything once more before the twin was read."""
    story = Story()
    story.runs(TRAIN, 17, on="x2", at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.polls({30: "RUNNING"}, at=NOW + 2)
    for read in story.acts(ReadJob, NOW + 2):
        story.reads(None, job_id=17, at=NOW + 2) if read.job_id == 17 else story.reads(job_of(TRAIN, 30), at=NOW + 2)
        story.ended(read, at=NOW + 2)
    story.polls({30: "RUNNING"}, at=NOW + 5)
    assert story.acts(FailByDeadline, NOW + 5) == []
    assert (story.world.phase_of[key_of(TRAIN)], story.world.workloads[key_of(TRAIN)].hint) == (Phase.BOUND, 30)


def test_what_slurm_will_not_give_again_ends_the_pod_after_one_attempt() -> None:
    story = Story()
    story.ended(lost(story), Outcome.REFUSED, at=NOW + 7, number=2016)
    [end] = story.decides(NOW + 7)
    assert isinstance(end, FailByDeadline)


def test_a_token_that_is_not_accepted_is_no_attempt() -> None:
    """Its nodes may still be had when the admin has renewed it; until then nothing says that they are lost."""
    story = Story()
    asked, now = lost(story), NOW + 7
    story.ended(asked, Outcome.REFUSED, at=now, number=1007, later=True)
    [said] = story.acts(SetPodCondition, now)
    assert said.message == (
        "Slurm lost job 17 of this pod, and its nodes could not be requested: Slurm refused it (error 1007). "
        "They are requested again; the pod runs on meanwhile."
    )
    [asked] = story.acts(AllocateNow, now + 1)
    for _ in range(9):
        story.ended(asked, Outcome.REFUSED, at=now, number=1007, later=True)
        again: list[AllocateNow] = []
        while not again:
            now += 1
            again = story.acts(AllocateNow, now)
            assert story.acts(FailByDeadline, now) == []
        [asked] = again
    story.ended(asked, at=now, job_id=30, grant=grant(30, "x2", gpu=1))
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND


def test_nodes_that_are_not_in_service_are_asked_for_again_for_two_minutes() -> None:
    """A slurmctld that lost its state does not know the nodes yet; no other job can get them meanwhile."""
    story = Story()
    story.ended(lost(story), Outcome.REFUSED, at=NOW + 7, number=2068)
    [said] = story.decides(NOW + 7)
    assert isinstance(said, SetPodCondition)
    assert (said.event, said.warning) == (names.ABSENCE, True)
    assert said.message == (
        "Slurm lost job 17 of this pod, and its nodes are not in service there. They are requested again until 00:19 UTC; "
        "the pod runs on meanwhile."
    )
    [asked] = story.acts(AllocateNow, NOW + 8)
    story.ended(asked, at=NOW + 8, job_id=30, grant=grant(30, "x2", gpu=1))
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND


def test_nodes_that_stay_out_of_service_end_the_pod() -> None:
    story = Story()
    asked, now = lost(story), NOW + 7
    while now < NOW + 5 + 120:
        story.ended(asked, Outcome.REFUSED, at=now, number=2068)
        again: list[AllocateNow] = []
        while not again and now < NOW + 200:
            now += 1
            story.polls({}, at=now)
            again = story.acts(AllocateNow, now)
            assert story.acts(FailByDeadline, now) == []
        [asked] = again
    story.ended(asked, Outcome.REFUSED, at=now, number=2068)
    assert len(story.acts(FailByDeadline, now)) == 1


def test_a_host_port_that_the_pod_itself_holds_is_not_in_its_way() -> None:
    story = Story(nodes=(node("x2"),))
    asked = lost(story, pod("train", gpu=1, host_ports=(HostPort(80),)))
    assert asked.spec.required_nodes == "x2"


def test_nodes_that_slurm_does_not_know_any_more_are_waited_for() -> None:
    """Its external nodes went with its state; they are registered again."""
    story = Story()
    story.runs(TRAIN, 17, on="x2", at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    known = dict(story.world.slurm_nodes or {})
    story.world.slurm_nodes = {name: node for name, node in known.items() if name != "x2"}
    loses(story, NOW + 7)
    assert [type(each) for each in story.decides(NOW + 60)] == []
    story.world.slurm_nodes = known
    [asked] = story.acts(AllocateNow, NOW + 62)
    assert asked.spec.required_nodes == "x2"


def test_nodes_that_slurm_never_knows_again_are_asked_for_once_after_two_minutes() -> None:
    story = Story()
    story.runs(TRAIN, 17, on="x2", at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.world.slurm_nodes = {name: node for name, node in (story.world.slurm_nodes or {}).items() if name != "x2"}
    loses(story, NOW + 7)
    assert story.acts(AllocateNow, NOW + 124) == []
    [asked] = story.acts(AllocateNow, NOW + 125)
    story.ended(asked, Outcome.REFUSED, at=NOW + 125, number=2018)
    assert len(story.acts(FailByDeadline, NOW + 125)) == 1


def test_a_pod_whose_node_is_not_in_kubernetes_any_more_ends_with_its_lost_job() -> None:
    story = Story()
    story.runs(TRAIN, 17, on="x2", at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(NodeDeleted("x2"))
    assert [type(each) for each in is_lost(story, NOW + 7)] == [FailByDeadline]


def test_a_gang_of_which_one_pod_is_still_to_be_bound_ends_with_its_lost_job_without_a_read() -> None:
    """Its nodes are not asked for again, so what the new pod asks for does not matter."""
    story = Story()
    shown = gang_runs(story)
    story.loses(replace(shown[2], phase=PodPhase.FAILED), NOW + 2)
    new = pod("ring-2", says={"gang-size": "3"}, labels={names.PREFIX + "gang": "ring"}, created=NOW + 2, uid="uid-new")
    story.sees(replace(new, owner=OwnerRef("batch/v1", "Job", "train", "uid-job")))
    acts = is_lost(story, NOW + 7)
    assert sorted(each.name for each in acts if isinstance(each, FailByDeadline)) == ["ring-0", "ring-1"]
    assert not [each for each in acts if isinstance(each, ReadOwner | AllocateNow)]


def test_a_lost_answer_is_looked_up_and_the_job_that_it_made_is_taken() -> None:
    story = Story()
    story.ended(lost(story), Outcome.UNKNOWN, at=NOW + 7)
    assert story.decides(NOW + 8) == []
    story.polls({30: "RUNNING"}, at=NOW + 9)
    [read] = story.acts(ReadJob, NOW + 9)
    story.reads(job_of(TRAIN, 30), at=NOW + 9, granted=grant(30, "x2", gpu=1))
    story.ended(read, at=NOW + 9)
    [said] = story.decides(NOW + 30)
    assert isinstance(said, SetPodCondition)
    assert (said.annotations or {})[names.JOB_ID] == "30"
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND


def test_a_lost_answer_that_made_nothing_ends_the_pod_when_it_can_no_longer_come() -> None:
    story = Story()
    story.ended(lost(story), Outcome.UNKNOWN, at=NOW + 7)
    for second in range(8, 19):
        story.polls({}, at=NOW + second)
        assert story.acts(FailByDeadline, NOW + second) == []
    story.polls({}, at=NOW + 20)
    assert len(story.acts(FailByDeadline, NOW + 20)) == 1


def test_a_twin_that_lives_is_looked_for_and_takes_the_place() -> None:
    """The job was never lost, or an earlier attempt was granted unheard."""
    story = Story()
    asked = lost(story)
    story.polls({30: "RUNNING"}, at=NOW + 7.5)
    story.ended(asked, Outcome.REFUSED, at=NOW + 8, number=2038)
    [read] = story.acts(ReadJob, NOW + 8)
    story.reads(job_of(TRAIN, 30), at=NOW + 8.5, granted=grant(30, "x2", gpu=1))
    story.ended(read, at=NOW + 8.5)
    story.polls({30: "RUNNING"}, at=NOW + 30)
    [said] = story.decides(NOW + 30)
    assert isinstance(said, SetPodCondition)
    assert (said.annotations or {})[names.JOB_ID] == "30"
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND


def test_a_twin_that_is_never_found_is_asked_past_ever_more_seldom() -> None:
    """Each request that Slurm refuses leaves a FAILED record there."""
    story = Story()
    asked, requests = lost(story), 1
    story.ended(asked, Outcome.REFUSED, at=NOW + 7, number=2038)
    for second in range(8, 128):
        story.polls({}, at=NOW + second)
        for action in story.decides(NOW + second):
            assert isinstance(action, AllocateNow | SetPodCondition)
            if isinstance(action, AllocateNow):
                requests += 1
                story.ended(action, Outcome.REFUSED, at=NOW + second, number=2038)
            else:
                story.ended(action, at=NOW + second)
    assert requests <= 9


def lost_beside_a_hint(story: Story) -> AllocateNow:
    """A life that was killed got job 30 for the nodes; a stranger's pod shows that id, so no scan reads the job."""
    story.sees(replace(pod("stranger", created=0.0), node="x1", annotations={names.JOB_ID: "30"}))
    story.runs(TRAIN, 17, on="x2", at=NOW)
    story.polls({17: "RUNNING", 30: "RUNNING"}, at=NOW + 1)
    loses(story, NOW + 7, {30: "RUNNING"})
    return asked_again(story, TRAIN)


def test_a_twin_that_only_a_pod_of_a_previous_process_shows_is_read_and_takes_the_place() -> None:
    story = Story()
    story.ended(lost_beside_a_hint(story), Outcome.REFUSED, at=NOW + 8, number=2038)
    acts = story.decides(NOW + 8)
    assert [each.job_id for each in acts if isinstance(each, ReadJob)] == [30]
    assert [each for each in acts if isinstance(each, AllocateNow)] == [], "it is not asked again and again"
    story.reads(job_of(TRAIN, 30), at=NOW + 8.5, granted=grant(30, "x2", gpu=1))
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND


@pytest.mark.parametrize(
    ("outcome", "number"), [(Outcome.REFUSED, 2050), (Outcome.REFUSED, 2016), (Outcome.UNKNOWN, 0)]
)
def test_no_pod_ends_while_a_job_that_may_be_its_twin_is_unread(outcome: Outcome, number: int) -> None:
    """Slurm checks limits before it looks for a twin, which counts for the limit itself; and an answer may be lost."""
    story = Story()
    asked = lost_beside_a_hint(story)
    if outcome is Outcome.REFUSED:
        story.ended(asked, outcome, at=NOW + 8, number=number, later=True)
    else:
        story.ended(asked, outcome, at=NOW + 8)
    acts = story.decides(NOW + 8)
    assert [(type(each), each.job_id) for each in acts if not isinstance(each, SetPodCondition)] == [(ReadJob, 30)]
    story.polls({30: "RUNNING"}, at=NOW + 30)
    assert story.acts(FailByDeadline, NOW + 30) == []
    story.reads(job_of(TRAIN, 30), at=NOW + 31, granted=grant(30, "x2", gpu=1))
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND


@pytest.mark.parametrize("number", [2050, 2016])
def test_no_pod_of_a_previous_process_ends_while_a_job_is_unread_that_this_process_may_have_submitted_for_it(
    number: int,
) -> None:
    """It was granted job 30 for the nodes of lost job 17, and could not write its id on the pod before it was killed."""
    story = Story()
    old = replace(TRAIN, created=START - 60)
    story.sees(story.bound(replace(old, annotations=OF_A_BIND), 17, "x2", started=START - 50))
    unread = {30: "RUNNING"}
    loses(story, NOW + 7, unread)
    asked = asked_again(story)
    story.ended(asked, Outcome.REFUSED, at=NOW + 8, number=number, later=True)
    assert story.acts(FailByDeadline, NOW + 8) == []
    story.polls(unread, at=NOW + 30)
    assert story.acts(FailByDeadline, NOW + 30) == []
    story.reads(job_of(old, 30), at=NOW + 31, granted=grant(30, "x2", gpu=1))
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND


@pytest.mark.parametrize(("number", "later"), [(2050, True), (2045, False)])
def test_a_waiting_pod_finds_its_own_job_that_another_pod_shows_although_slurm_refuses_to_make_another(
    number: int, later: bool
) -> None:
    """A previous process submitted it.  Slurm checks limits, for which it counts, and names before it looks for a twin."""
    story = Story()
    story.sees(replace(pod("stranger", created=0.0), node="x1", annotations={names.JOB_ID: "30"}))
    old = replace(TRAIN, created=START - 60)
    story.sees(old)
    story.polls({30: "RUNNING"}, at=NOW)
    asked = next(each for each in story.decides(NOW + 9) if isinstance(each, AllocateNow | SubmitJob))
    if isinstance(asked, AllocateNow):
        story.ended(asked, Outcome.REFUSED, at=NOW + 9, number=2013)
        [asked] = story.acts(SubmitJob, NOW + 9)
    story.ended(asked, Outcome.REFUSED, at=NOW + 9, number=number, later=later)
    [read] = story.acts(ReadJob, NOW + 9)
    assert read.job_id == 30
    story.reads(job_of(old, 30), at=NOW + 10, granted=grant(30, gpu=1))
    assert story.world.phase_of[key_of(TRAIN)] is Phase.GRANTED


def test_a_pod_ends_when_the_job_that_might_have_been_its_twin_is_anothers() -> None:
    story = Story()
    story.ended(lost_beside_a_hint(story), Outcome.REFUSED, at=NOW + 8, number=2050, later=True)
    [read] = story.acts(ReadJob, NOW + 8)
    story.reads(job_of(pod("stranger"), 30), at=NOW + 9)
    story.ended(read, at=NOW + 9)
    story.polls({30: "RUNNING"}, at=NOW + 10)
    assert len(story.acts(FailByDeadline, NOW + 10)) == 1


def test_in_an_outage_nothing_is_asked_and_no_pod_is_ended() -> None:
    story = Story()
    asked = lost(story)
    story.sees(OutageBegan(Side.SLURM, NOW + 7, "slurmrestd does not answer."))
    story.ended(asked, Outcome.UNREACHED, at=NOW + 7)
    for second in range(8, 40):
        assert story.decides(NOW + second) == []
    story.sees(OutageEnded(Side.SLURM, NOW + 40))
    assert [each.spec.required_nodes for each in story.acts(AllocateNow, NOW + 40)] == ["x2"]


def test_a_grant_that_lacks_what_the_pod_holds_is_released_and_the_pod_ends() -> None:
    story = Story()
    story.ended(lost(story), at=NOW + 7, job_id=30, grant=grant(30, "x2"))
    [cancel] = story.acts(CancelJob, NOW + 7)
    assert cancel.reason == "Slurm granted job 30 without 1 gpu (0 on x2)"
    story.ended(cancel, at=NOW + 7)
    [end] = story.acts(FailByDeadline, NOW + 7)
    assert end.reason == f"Slurm job 30 ended: CANCELLED (slurm-bridge ended it: {cancel.reason})"


def test_a_pod_that_is_being_deleted_is_not_worth_an_attempt() -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(replace(shown, deleting_at=NOW + 30))
    loses(story, NOW + 7)
    assert story.decides(NOW + 8) == []
    assert all(each.in_flight is None for each in story.world.workloads.values())


def test_at_most_ten_a_second_are_asked_for() -> None:
    story = Story()
    for number in range(15):
        story.runs(pod(f"p{number}"), 100 + number, at=NOW)
    story.polls({100 + number: "RUNNING" for number in range(15)}, at=NOW + 1)
    loses(story, NOW + 7)
    under_way = [each for each in story.world.workloads.values() if each.in_flight is not None]
    assert len(under_way) == 10
    assert story.acts(AllocateNow, NOW + 7) == []


def test_a_job_that_slurm_requeued_gives_its_place_in_the_queue_for_its_nodes() -> None:
    story = Story()
    story.runs(TRAIN, 17, on="x2", at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    [cancel] = story.acts(CancelJob, NOW + 1)
    assert cancel.reason == "Slurm requeued job 17 while its pods run"
    story.ended(cancel, at=NOW + 1)
    [asked] = story.acts(AllocateNow, NOW + 1)
    assert asked.reason == "Slurm requeued job 17: x2 is asked for again"
    story.ended(asked, Outcome.REFUSED, at=NOW + 1, number=2016)
    [end] = story.acts(FailByDeadline, NOW + 1)
    assert end.reason.startswith("Slurm requeued the job of this pod (17)")


def gang_runs(story: Story, on: tuple[str, ...] = ("x1", "x1", "x2"), **fields: Any) -> list[Pod]:
    """Two of its pods are on x1, one is on x2."""
    says, labels = {"gang-size": str(len(on)), **fields.pop("says", {})}, {names.PREFIX + "gang": "ring"}
    members = [pod(f"ring-{rank}", says=says, labels=labels, **fields) for rank in range(len(on))]
    story.sees(*members)
    [asked] = story.acts(AllocateNow, NOW)
    nodes = tuple(
        GrantedNode(story.world.in_slurm(name), on.count(name), 100 * on.count(name)) for name in sorted(set(on))
    )
    story.ended(asked, at=NOW, job_id=17, grant=Grant(17, nodes))
    for bind in story.decides(NOW):
        story.ended(bind, at=NOW)
    shown = [story.bound(one, 17, stand) for one, stand in zip(members, on, strict=True)]
    story.sees(*shown)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    return shown


@pytest.mark.parametrize("phase", [PodPhase.SUCCEEDED, PodPhase.FAILED])
def test_a_gang_of_which_a_pod_has_ended_asks_for_the_nodes_of_the_others_whatever_min_nodes_says(
    phase: PodPhase,
) -> None:
    """S7: with fewer pods than min-nodes their job was refused as impossible, so the pods that ran were ended."""
    on = ("x1", "x2", "x3")
    story = Story(nodes=map(node, on))
    shown = gang_runs(story, on, says={"min-nodes": "3"})
    story.sees(replace(shown[2], phase=phase))
    story.decides(NOW + 2)
    loses(story, NOW + 7)
    spec = asked_again(story).spec
    assert (spec.required_nodes, spec.tasks, spec.min_nodes, spec.max_nodes) == ("x[1-2]", 2, 2, 2)


def test_a_gang_asks_for_all_of_its_nodes_at_once() -> None:
    story = Story()
    gang_runs(story)
    loses(story, NOW + 7)
    spec = asked_again(story).spec
    assert (spec.required_nodes, spec.tasks, spec.min_nodes, spec.max_nodes) == ("x[1-2]", 3, 2, 2)
    granted = Grant(30, (GrantedNode("x1", 2, 200), GrantedNode("x2", 1, 100)))
    story.ended(asked_again(story), at=NOW + 7, job_id=30, grant=granted)
    assert len(story.acts(SetPodCondition, NOW + 7)) == 3
    assert story.acts(CancelJob, NOW + 8) == []


TAINTED = [node(name, taints=(Taint("maintenance", "soon", "NoSchedule"),)) for name in ("x1", "x2")]
WITHOUT_DEVICES = [node(name, gpu=0) for name in ("x1", "x2")]


@pytest.mark.parametrize("nodes", [TAINTED, WITHOUT_DEVICES], ids=["a taint", "devices that their nodes lost"])
def test_pods_that_run_ask_for_their_nodes_again_though_no_node_could_run_new_pods(nodes: list[Node]) -> None:
    """Neither ends a pod that runs, but the pods were ended without a request."""
    story = Story()
    story.runs(TRAIN, 17, on="x2", at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(*map(NodeSeen, nodes))
    loses(story, NOW + 7)
    assert asked_again(story).spec.required_nodes == "x2"
    story = Story()
    gang_runs(story, gpu=1)
    story.sees(*map(NodeSeen, nodes))
    loses(story, NOW + 7)
    spec = asked_again(story).spec
    assert (spec.required_nodes, spec.tasks, spec.tasks_per_node, spec.excluded_nodes) == ("x[1-2]", 3, None, "")


def test_a_gang_asks_for_its_node_again_although_slurm_has_nodes_that_kubernetes_lacks() -> None:
    """The taint made the job exclude no node, so the layout looked for a Kubernetes node of each node in Slurm."""
    story = Story()
    gang_runs(story, ("x1", "x1"))
    story.sees(NodeSeen(TAINTED[0]), NodeDeleted("x2"))
    loses(story, NOW + 7)
    spec = asked_again(story).spec
    assert (spec.required_nodes, spec.tasks) == ("x1", 2)


def test_the_layout_of_a_gang_that_asks_for_its_nodes_again_is_that_of_its_pods() -> None:
    """Its nodes take fewer pods now than when it was bound."""
    story = Story(nodes=[node("x1", pods=2), node("x2", pods=2)])
    gang_runs(story, ("x1", "x1", "x2", "x2"))
    story.sees(NodeSeen(node("x1", pods=1)), NodeSeen(node("x2", pods=1)))
    loses(story, NOW + 7)
    spec = asked_again(story).spec
    assert (spec.required_nodes, spec.tasks, spec.tasks_per_node) == ("x[1-2]", 4, 2)


@pytest.mark.parametrize(("external", "exclusive"), [(True, ""), (False, "exclusive")])
def test_the_node_of_a_pod_with_devices_decides_if_it_asks_for_all_of_it_again(external: bool, exclusive: str) -> None:
    """G2: whether the pod would get another kind of node if it were new does not matter."""
    story = Story()
    kinds = slurm_node("x1", external=not external), slurm_node("x2", external=external)
    partitions = (Partition("main", default=True),)
    story.sees(SlurmNodesPolled(kinds[1:], partitions, NOW))
    story.runs(TRAIN, 17, on="x2", at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    tainted = node("x2", taints=(Taint("maintenance", "soon", "NoSchedule"),))
    story.sees(SlurmNodesPolled(kinds, partitions, NOW + 1), NodeSeen(tainted))
    loses(story, NOW + 7)
    assert asked_again(story).spec.exclusive == exclusive


def test_host_ports_of_a_gang_are_not_in_its_own_way() -> None:
    story = Story()
    gang_runs(story, ("x1", "x2"), host_ports=(HostPort(80),))
    loses(story, NOW + 7)
    assert asked_again(story).spec.required_nodes == "x[1-2]"


def test_a_gang_that_is_granted_other_nodes_than_it_runs_on_is_ended_with_its_job() -> None:
    story = Story()
    gang_runs(story)
    loses(story, NOW + 7)
    granted = Grant(30, (GrantedNode("x1", 1, 100), GrantedNode("x2", 2, 200)))
    story.ended(asked_again(story), at=NOW + 7, job_id=30, grant=granted)
    [cancel] = story.acts(CancelJob, NOW + 7)
    assert cancel.reason == "job 30 has room for 1 of the 2 pods on x1"
    story.ended(cancel, at=NOW + 7)
    assert len(story.acts(FailByDeadline, NOW + 7)) == 3


def test_a_node_that_is_not_in_kubernetes_any_more_does_not_prove_that_the_new_job_lacks_it() -> None:
    """Its name in Slurm is not known any more (V7)."""
    story = Story(nodes=(node("x1"), node("k2", labels={names.SLURM_NODE_LABEL: "x2"})))
    gang_runs(story, ("x1", "x1", "k2"))
    loses(story, NOW + 7)
    asked = asked_again(story)
    assert asked.spec.required_nodes == "x[1-2]"
    story.sees(NodeDeleted("k2"))
    granted = Grant(30, (GrantedNode("x1", 2, 200), GrantedNode("x2", 1, 100)))
    story.ended(asked, at=NOW + 7, job_id=30, grant=granted)
    assert {type(each) for each in story.decides(NOW + 7)} == {SetPodCondition}


def test_another_node_that_was_called_like_its_own_takes_no_place_from_it() -> None:
    story = Story()
    asked = lost(story)
    story.sees(NodeSeen(node("x9", labels={names.SLURM_NODE_LABEL: "x2"})))
    story.ended(asked, at=NOW + 7, job_id=30, grant=grant(30, "x2", gpu=1))
    assert [type(each) for each in story.decides(NOW + 7)] == [SetPodCondition]


def test_an_id_that_went_to_another_of_our_workloads_is_a_job_lost() -> None:
    """slurmctld came back without its state: the pod's job is submitted again, and not given up for another tenant's job."""
    story = Story()
    story.runs(TRAIN, 17, on="x2", at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.queues(pod("other"), 17, at=NOW + 2)
    [asked] = story.acts(AllocateNow, NOW + 2)
    assert (asked.key, asked.spec.required_nodes) == (key_of(TRAIN), "x2")
    story.ended(asked, at=NOW + 2, job_id=18, grant=grant(18, "x2", gpu=1))
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND
    assert story.world.placeholders[17].key == key_of(pod("other"))


def test_a_pod_whose_id_was_given_out_again_is_not_ended_for_what_became_of_that_job() -> None:
    """17 is another pod's job now, and was cancelled."""
    story = Story()
    story.sees(story.bound(replace(TRAIN, created=START - 60), 17, "x2"))
    story.polls({17: "CANCELLED"}, at=NOW)
    story.reads(job_of(pod("other"), 17, "CANCELLED"), at=NOW)
    assert story.acts(FailByDeadline, NOW) == []
    assert asked_again(story).spec.required_nodes == "x2"


def ends_as_a_strangers_job(story: Story, *, until: float) -> None:
    """slurmctld lost its state in a long outage: bob's job has the id 17 now, and ended before the bridge reads it."""
    story.world.clocks[Side.SLURM].is_known = True
    bobs = Job(17, "other", "bob", frozenset({"TIMEOUT"}), submitted=until - 40, nodes="x1")
    story.sees(OutageBegan(Side.SLURM, NOW + 100, "no answer"))
    for at in range(int(until) - 10, int(until)):
        story.polls({17: "TIMEOUT"}, at=at)
        story.sees(OutageEnded(Side.SLURM, at))
        for read in story.acts(ReadJob, at):
            story.reads(bobs, at=at)
            story.ended(read, at=at)


def test_a_pod_does_not_end_with_the_ended_job_of_another_user_that_got_its_id_in_an_outage() -> None:
    story = Story()
    story.runs(TRAIN, 17, on="x2", at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    ends_as_a_strangers_job(story, until=NOW + 900)
    assert asked_again(story).spec.required_nodes == "x2"
    story.ended(asked_again(story), Outcome.REFUSED, at=NOW + 900, number=2013)
    [end] = story.acts(FailByDeadline, NOW + 900)
    assert end.reason.startswith("Slurm lost the job of this pod (17); its nodes were asked for again")
    assert not end.counts, "bob's job reached its time limit, and the pod's job did not"


def test_the_proven_end_of_a_job_counts_though_another_job_has_its_id_now() -> None:
    job = Placeholder(17, key_of(TRAIN), "alice", frozenset({"CANCELLED"}), known_since=NOW, denied=True)
    assert (job.ended, job.alive, job.shows_end) == (False, False, True)
    job.end_proven = True
    assert (job.ended, job.alive) == (True, False)


def test_the_end_of_a_pod_is_not_recorded_with_the_job_of_another_user_that_has_the_id_now() -> None:
    story = Story(replace(CONFIG, accounting=True))
    shown = story.runs(TRAIN, 17, on="x2", at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(OutageBegan(Side.SLURM, NOW + 100, "no answer"))
    story.polls({17: "TIMEOUT"}, at=NOW + 900)
    story.sees(OutageEnded(Side.SLURM, NOW + 900))
    [read] = story.acts(ReadJob, NOW + 900)
    story.reads(Job(17, "other", "bob", frozenset({"TIMEOUT"}), submitted=NOW + 860), at=NOW + 900)
    story.ended(read, at=NOW + 900)
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED, exit_code=0))
    assert story.acts(RecordEnd, NOW + 901) == []


def an_id_of_an_earlier_life_is_a_strangers(submitted: float | None) -> Story:
    """The bridge was restarted; job 17, which a pod shows that ran before, is carol's."""
    story = Story()
    story.sees(replace(story.bound(TRAIN, 17, "x2"), created=START - 60, started=START - 50))
    story.polls({17: "RUNNING"}, at=NOW)
    story.reads(Job(17, "interactive", "carol", frozenset({"RUNNING"}), submitted=submitted), at=NOW)
    return story


def test_an_id_that_went_to_a_stranger_between_two_processes_is_a_job_lost() -> None:
    story = an_id_of_an_earlier_life_is_a_strangers(START - 10)
    assert story.acts(CancelJob, NOW) == []
    assert asked_again(story).spec.required_nodes == "x2"
    assert 17 in story.world.foreign


@pytest.mark.parametrize("submitted", [None, START - 55], ids=["nobody knows when", "before the pod ran"])
def test_a_job_that_is_as_old_as_its_pod_and_was_renamed_leaves_the_pod_in_peace(submitted: float | None) -> None:
    story = an_id_of_an_earlier_life_is_a_strangers(submitted)
    for second in range(90):
        story.polls({17: "RUNNING"}, at=NOW + second)
        assert story.decides(NOW + second) == []
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND


def gang_of_an_earlier_life(*members: Pod) -> Workload:
    """The bridge was restarted; job 17, which pods of the gang may show, was submitted 10 s before and is carol's."""
    story = Story()
    story.sees(*members)
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW)
    story.reads(Job(17, "interactive", "carol", frozenset({"RUNNING"}), submitted=START - 10), at=NOW)
    [gang] = {key: story.world.workloads[key] for key in story.world.key_of_pod.values()}.values()
    return gang


def bound_before(number: int, job_id: int, started: float | None) -> Pod:
    return replace(Story().bound(member(number, 2), job_id), created=START - 60, started=started)


def waits(number: int) -> Pod:
    return replace(member(number, 2), created=START - 60)


@pytest.mark.parametrize(
    ("members", "hint", "is_lost"),
    [
        ([bound_before(0, 17, START - 50), bound_before(1, 17, START - 50)], 17, True),
        ([bound_before(0, 17, START - 50), waits(1)], 17, True),
        ([bound_before(0, 17, START - 5), bound_before(1, 17, START - 50)], 17, False),
        ([bound_before(0, 17, None), bound_before(1, 17, None)], 17, False),
        ([bound_before(1, 18, START - 5), bound_before(0, 17, START - 50)], 18, False),
        ([bound_before(1, 18, START - 50), bound_before(0, 17, START - 5)], 17, False),
    ],
    ids=[
        "all ran before the job was submitted",
        "a pod that waits says nothing",
        "one started later, so the job may be theirs, renamed",
        "nobody knows when they started",
        "the pod that names it ran before, and another pod names another job",
        "the pod that names it started later, and another pod names another job",
    ],
)
def test_a_job_of_another_name_is_not_a_gangs_if_the_pods_that_name_it_ran_before_it_was_submitted(
    members: list[Pod], hint: int, is_lost: bool
) -> None:
    gang = gang_of_an_earlier_life(*members)
    assert (gang.hint, gang.lost_job is not None) == (hint, is_lost)


def asked_while(story: Story, running: Job, *, seconds: int) -> list[AllocateNow]:
    """The submissions while only that job runs; a poll a second, and each read shows it."""
    asked = []
    for at in (NOW + second for second in range(seconds)):
        story.polls({running.id: "RUNNING"}, at=at)
        for action in story.decides(at):
            if isinstance(action, ReadJob):
                story.reads(running, at=at)
                story.ended(action, at=at)
            elif isinstance(action, AllocateNow):
                asked.append(action)
    return asked


@pytest.mark.parametrize(
    ("since", "is_lost"),
    [("1970-01-01T00:16:20Z", True), ("1970-01-01T00:16:40Z", False), ("tomorrow", True), ("", True)],
    ids=["submitted after job-since", "submitted before job-since", "job-since is not a time", "no job-since"],
)
def test_a_restarted_bridge_distinguishes_a_renamed_replacement_from_a_strangers_job_by_job_since(
    since: str, is_lost: bool
) -> None:
    """Both were submitted while the pod ran.  A job that was submitted later than job-since is not the pod's."""
    story = Story()
    shown = replace(story.bound(TRAIN, 17, "x2"), created=START - 60, started=START - 50)
    story.sees(replace(shown, annotations={**shown.annotations, **({names.JOB_SINCE: since} if since else {})}))
    renamed = replace(job_of(TRAIN, 17), name="mine", submitted=START - 10)
    assert bool(asked_while(story, renamed, seconds=90)) is is_lost
    assert story.world.workloads[key_of(TRAIN)].hint == 17


def test_a_new_job_with_the_id_of_the_lost_one_is_distinguished_by_its_time() -> None:
    story = Story()
    story.sees(replace(story.runs(TRAIN, 17, on="x2", at=NOW), started=NOW))
    loses(story, NOW + 7)
    story.ended(asked_again(story), at=NOW + 7, job_id=17, grant=grant(17, "x2", gpu=1))
    said = []
    for second in range(8, 130):
        story.polls({17: "RUNNING"}, at=NOW + second)
        for action in story.decides(NOW + second):
            if isinstance(action, ReadJob):
                read = replace(job_of(TRAIN, 17), submitted=NOW + 7)
                story.reads(read, at=NOW + second, granted=grant(17, "x2", gpu=1))
            if isinstance(action, SetPodCondition):
                said.append(action)
            story.ended(action, at=NOW + second)
    assert said[0].message == "Slurm lost job 17 of this pod; a new job with the same id holds its place."
    assert said[0].annotations == {names.JOB_ID: "17", names.JOB_SINCE: "1970-01-01T00:17:11Z"}


def shows_its_new_job() -> tuple[Story, Pod]:
    """Job 30 replaced the lost job at NOW + 7, and the pod, as it is returned, shows that."""
    story = Story()
    story.ended(lost(story), at=NOW + 7, job_id=30, grant=grant(30, "x2", gpu=1))
    [said] = story.acts(SetPodCondition, NOW + 7)
    story.ended(said, at=NOW + 7)
    shown = story.bound(TRAIN, 30, "x2")
    shown = replace(shown, annotations={**shown.annotations, **(said.annotations or {})})
    story.sees(shown)
    return story, shown


def test_a_job_that_is_lost_again_and_replaced_under_the_same_id_has_a_time_of_its_own_on_the_pod() -> None:
    """The new job was read before its submission was answered.  By the time on the pod the next process knows the job."""
    story, _ = shows_its_new_job()
    story.polls({30: "RUNNING"}, at=NOW + 10)
    loses(story, NOW + 27)
    asked = asked_again(story)
    story.polls({30: "RUNNING"}, at=NOW + 28)
    story.reads(job_of(TRAIN, 30, nodes="x2", submitted=NOW + 27), at=NOW + 28, granted=grant(30, "x2", gpu=1))
    story.ended(asked, began=NOW + 27, at=NOW + 29, job_id=30, grant=grant(30, "x2", gpu=1))
    again = [each.annotations for each in story.acts(SetPodCondition, NOW + 29) if each.annotations]
    assert again == [{names.JOB_ID: "30", names.JOB_SINCE: "1970-01-01T00:17:32Z"}]


def test_what_the_bridge_writes_about_a_new_job_is_no_edit() -> None:
    story, shown = shows_its_new_job()
    story.polls({30: "RUNNING"}, at=NOW + 8)
    assert story.acts(RestoreKeys, NOW + 60) == []

    story.sees(replace(shown, annotations={**shown.annotations, names.JOB_SINCE: "1970-01-01T00:00:00Z"}))
    [restore] = story.acts(RestoreKeys, NOW + 61)
    assert restore.annotations == {names.JOB_SINCE: "1970-01-01T00:17:10Z"}


def lost_with_an_edited_id() -> tuple[Story, AllocateNow, Pod]:
    """The job is lost, and its id on the pod was edited.  Also the request for the nodes, and the pod as it was bound."""
    story = Story()
    asked = lost(story)
    shown = story.bound(TRAIN, 17, "x2")
    story.sees(replace(shown, annotations={**shown.annotations, names.JOB_ID: "4"}))
    return story, asked, shown


def test_an_id_that_was_edited_before_the_job_was_replaced_is_put_back_as_the_new_one() -> None:
    story, asked, _ = lost_with_an_edited_id()
    story.ended(asked, at=NOW + 7, job_id=30, grant=grant(30, "x2", gpu=1))
    [restore] = [each for each in story.decides(NOW + 7) if isinstance(each, SetPodCondition | RestoreKeys)]
    assert isinstance(restore, RestoreKeys)
    assert restore.annotations == {names.JOB_ID: "30", names.JOB_SINCE: "1970-01-01T00:17:10Z"}


@pytest.mark.parametrize(
    ("gpu", "says", "external", "driver", "exclusive"),
    [
        (1, {}, False, False, "exclusive"),
        (1, {}, False, True, ""),
        (1, {}, True, False, ""),
        (0, {}, False, False, ""),
        (0, {"exclusive": "user"}, False, False, "user"),
    ],
    ids=["devices on a node with a slurmd", "with a device driver", "an external node", "no devices", "as it asked"],
)
def test_the_new_job_takes_the_node_whole_only_if_the_first_one_did(
    gpu: int, says: dict[str, str], external: bool, driver: bool, exclusive: str
) -> None:
    """On a node with a slurmd, Slurm's own jobs would be given the devices that the pod uses (G2)."""
    story = Story(replace(CONFIG, device_driver=driver))
    story.sees(
        SlurmNodesPolled(
            (slurm_node("x1", external=external), slurm_node("x2", external=external)),
            (Partition("main", default=True),),
            NOW - 1,
        )
    )
    what = pod("train", gpu=gpu, says=says)
    story.runs(what, 17, on="x2", at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    loses(story, NOW + 7)
    assert asked_again(story).spec.exclusive == exclusive


def test_an_id_that_was_edited_is_put_back_although_the_new_job_got_the_same_id() -> None:
    """Then the pod shows that this is a new job."""
    story, asked, shown = lost_with_an_edited_id()
    story.ended(asked, at=NOW + 7, job_id=17, grant=grant(17, "x2", gpu=1))
    [restore] = story.acts(RestoreKeys, NOW + 7)
    assert restore.annotations == {names.JOB_ID: "17"}
    story.ended(restore, at=NOW + 7)
    story.sees(shown)
    [said] = story.acts(SetPodCondition, NOW + 8)
    assert said.annotations == {names.JOB_ID: "17", names.JOB_SINCE: "1970-01-01T00:17:11Z"}


def test_a_time_that_was_edited_before_the_job_was_replaced_is_written_once() -> None:
    story = Story()
    asked = lost(story)
    shown = story.bound(TRAIN, 17, "x2")
    story.sees(replace(shown, annotations={**shown.annotations, names.JOB_SINCE: "1970-01-01T00:00:00Z"}))
    story.ended(asked, at=NOW + 7, job_id=30, grant=grant(30, "x2", gpu=1))
    [said] = [each for each in story.decides(NOW + 7) if isinstance(each, SetPodCondition | RestoreKeys)]
    assert isinstance(said, SetPodCondition)
    assert said.annotations == {names.JOB_ID: "30", names.JOB_SINCE: "1970-01-01T00:17:10Z"}


def test_the_time_is_by_slurms_clock() -> None:
    story = Story()
    story.runs(TRAIN, 17, on="x2", at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.reads(replace(job_of(TRAIN, 17), as_of=int(NOW + 1 + 3600)), at=NOW + 1, granted=grant(17, "x2", gpu=1))
    loses(story, NOW + 7)
    story.ended(asked_again(story), at=NOW + 7, job_id=30, grant=grant(30, "x2", gpu=1))
    [said] = story.acts(SetPodCondition, NOW + 7)
    assert (said.annotations or {})[names.JOB_SINCE] == "1970-01-01T01:17:10Z"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_gang_of_which_one_pod_names_the_new_job_already_follows_that_one(order: tuple[int, int]) -> None:
    """The bridge died between two writes.  Meanwhile Slurm gave the lost job's id to carol, and the new job was cancelled."""
    story = Story()
    of_gang: dict[str, Any] = {"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": "2"}}
    pods = [pod(f"ring-{index}", created=START - 100, **of_gang) for index in range(2)]
    shown = [story.bound(each, 17, f"x{1 + index}", started=START - 90) for index, each in enumerate(pods)]
    new = {names.JOB_ID: "30", names.JOB_SINCE: "1970-01-01T00:16:00Z"}
    shown[0] = replace(shown[0], annotations={**shown[0].annotations, **new})
    story.sees(*(shown[index] for index in order))
    [workload] = story.world.workloads.values()
    name = f"hpc/ring~{CLUSTER}.{workload.key}"
    jobs = {
        17: Job(17, "interactive", "carol", frozenset({"RUNNING"}), nodes="x2", submitted=START - 45),
        30: Job(30, name, "alice", frozenset({"CANCELLED"}), nodes="x[1-2]", submitted=START - 43),
    }
    ended: dict[str, str] = {}
    for second in range(90):
        story.polls({job.id: " ".join(job.states) for job in jobs.values()}, at=NOW + second)
        for action in story.decides(NOW + second):
            if isinstance(action, ReadJob):
                story.reads(jobs[action.job_id], at=NOW + second)
            if isinstance(action, FailByDeadline):
                ended[action.name] = action.reason
            story.ended(action, at=NOW + second)
    assert ended == dict.fromkeys(("ring-0", "ring-1"), "Slurm job 30 ended: CANCELLED")


def test_a_job_that_has_no_pod_is_ended_although_a_pod_with_a_new_job_names_its_id() -> None:
    """Slurm lost the job of the pod and gave its id to a job of another pod.  The process ended before the pod named its job.

    A pod that names a running job is enough to leave the pod alone, but the job of the other pod is read.
    """
    story = Story()
    story.sees(story.bound(replace(TRAIN, created=START - 100), 17, "x2", started=START - 90))
    gone = job_of(pod("gone", created=START - 60), 17, submitted=START - 40)
    jobs = {17: gone, 30: job_of(TRAIN, 30, submitted=START - 40, nodes="x2")}
    cancelled = set[int]()
    for second in range(60):
        story.polls(dict.fromkeys(jobs.keys() - cancelled, "RUNNING"), at=NOW + second)
        for action in story.decides(NOW + second):
            assert not isinstance(action, FailByDeadline | AllocateNow)
            if isinstance(action, ReadJob):
                story.reads(jobs[action.job_id], at=NOW + second, granted=grant(action.job_id, "x2", gpu=1))
            if isinstance(action, CancelJob):
                cancelled.add(action.job_id)
            story.ended(action, at=NOW + second)
    assert cancelled == {17}


def test_what_another_tenants_pod_shows_does_not_keep_a_pod_running_without_a_job() -> None:
    story = Story()
    story.sees(replace(story.bound(TRAIN, 17, "x2"), created=START - 100, started=START - 90))
    liar = story.bound(pod("liar", namespace="other", created=START - 30), 17, "x1")
    says = {**liar.annotations, names.JOB_SINCE: "9999-01-01T00:00:00Z"}
    story.sees(replace(liar, annotations=says, started=START - 20))
    carols = Job(17, "interactive", "carol", frozenset({"RUNNING"}), nodes="x1", submitted=START - 50)
    asked = asked_while(story, carols, seconds=30)
    assert [(each.key, each.spec.required_nodes) for each in asked] == [(key_of(TRAIN), "x2")]


def test_a_job_that_slurm_loses_twice_under_one_id_is_asked_for_twice() -> None:
    story = Story()
    story.ended(lost(story), Outcome.UNKNOWN, at=NOW + 7)
    found = replace(job_of(TRAIN, 17, nodes="x2"), submitted=NOW + 7)
    story.polls({17: "RUNNING"}, at=NOW + 20)
    for read in story.acts(ReadJob, NOW + 20):
        story.reads(found, at=NOW + 20, granted=grant(17, "x2", gpu=1))
        story.ended(read, at=NOW + 20)
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND
    loses(story, NOW + 60)
    assert asked_again(story).reason == "Slurm has lost job 17: x2 is asked for again"


def test_a_pod_that_changes_while_the_new_job_is_yet_to_be_shown_was_not_edited() -> None:
    story = Story()
    story.ended(lost(story), at=NOW + 7, job_id=30, grant=grant(30, "x2", gpu=1))
    [said] = story.acts(SetPodCondition, NOW + 7)
    assert said.annotations is not None
    story.sees(replace(story.bound(TRAIN, 17, "x2"), labels={"a": "b"}))
    story.polls({30: "RUNNING"}, at=NOW + 8)
    assert story.acts(RestoreKeys, NOW + 8) == []


def test_a_time_that_the_tenant_writes_while_the_new_one_is_on_its_way_is_put_back() -> None:
    story = Story()
    story.ended(lost(story), at=NOW + 7, job_id=30, grant=grant(30, "x2", gpu=1))
    [said] = story.acts(SetPodCondition, NOW + 7)
    shown = story.bound(TRAIN, 30, "x2")
    story.sees(replace(shown, annotations={**shown.annotations, names.JOB_SINCE: "9999-01-01T00:00:00Z"}))
    story.ended(said, Outcome.UNREACHED, at=NOW + 8)
    story.polls({30: "RUNNING"}, at=NOW + 9)
    [restore] = story.acts(RestoreKeys, NOW + 9)
    assert said.annotations is not None
    assert restore.annotations == {names.JOB_SINCE: said.annotations[names.JOB_SINCE]}


def test_no_time_is_written_by_an_unknown_clock() -> None:
    """No read has shown Slurm's time yet: the new job is read first."""
    story = Story()
    asked = lost(story)
    story.world.clocks[Side.SLURM].is_known = False
    story.ended(asked, at=NOW + 7, job_id=30, grant=grant(30, "x2", gpu=1))
    [read] = story.decides(NOW + 7)
    assert isinstance(read, ReadJob)
    new = replace(job_of(TRAIN, 30, nodes="x2"), submitted=NOW + 7206, as_of=int(NOW + 7207))
    story.reads(new, at=NOW + 8, granted=grant(30, "x2", gpu=1))
    story.ended(read, at=NOW + 8)
    [said] = story.acts(SetPodCondition, NOW + 8)
    assert (said.annotations or {})[names.JOB_SINCE] == "1970-01-01T02:17:06Z"


def test_a_late_first_answer_of_slurm_is_read_to_its_end_before_a_job_is_taken_as_lost() -> None:
    """The bridge died before it wrote on the pod that 30 is its job now, and slurmctld was away after the restart."""
    story = Story()
    story.world.first_polled = None
    story.sees(story.bound(pod("train", gpu=1, created=START - 60), 17, "x2"))
    story.polls({17: "CANCELLED", 30: "RUNNING"}, at=NOW)
    story.reads(job_of(pod("other"), 17, "CANCELLED"), at=NOW)
    assert not [each for each in story.decides(NOW) if isinstance(each, FailByDeadline | AllocateNow)], "30 is unread"
    story.reads(job_of(TRAIN, 30), at=NOW + 1, granted=grant(30, "x2", gpu=1))
    [said] = story.acts(SetPodCondition, NOW + 1)
    assert (said.annotations or {})[names.JOB_ID] == "30"
    assert story.world.phase_of[key_of(TRAIN)] is Phase.BOUND


def test_the_record_of_an_attempt_that_has_the_lost_jobs_id_is_not_its_end() -> None:
    """slurmctld lost its state, and gave the id to a request of the same name, which it refused: that never held a node."""
    story = Story()
    story.runs(TRAIN, 17, on="x2", at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.polls({17: "FAILED"}, at=NOW + 30)
    [read] = story.acts(ReadJob, NOW + 30)
    story.reads(job_of(TRAIN, 17, "FAILED", nodes=""), at=NOW + 31)
    story.ended(read, at=NOW + 31)
    assert story.acts(FailByDeadline, NOW + 31) == []
    assert asked_again(story).spec.required_nodes == "x2"


def signalled(story: Story) -> FailByDeadline:
    """Slurm preempts its job with a grace: its end is under way."""
    story.runs(TRAIN, 17, on="x2", at=NOW)
    story.polls({17: "RUNNING SIGNALING"}, at=NOW + 1)
    [read] = story.acts(ReadJob, NOW + 1)
    told = job_of(TRAIN, 17, "RUNNING", "SIGNALING", preempted=NOW + 1, ends=NOW + 31)
    story.reads(told, at=NOW + 1, granted=grant(17, "x2", gpu=1))
    story.ended(read, at=NOW + 1)
    [end] = story.acts(FailByDeadline, NOW + 1)
    return end


def is_lost(story: Story, at: float) -> list[Action]:
    """Two polls lack the job, and a read denies it; what is decided then."""
    for when in (at - 2, at):
        story.polls({}, at=when)
        acts = story.decides(when)
        for read in [each for each in acts if isinstance(each, ReadJob)]:
            story.reads(None, job_id=17, at=when)
            story.ended(read, at=when)
    return [*acts, *story.decides(at)]


def test_the_nodes_of_a_pod_that_is_being_ended_are_not_asked_for_again() -> None:
    story = Story()
    end = signalled(story)
    assert not [each for each in is_lost(story, NOW + 20) if isinstance(each, AllocateNow)]
    story.ended(end, at=NOW + 21)
    story.polls({}, at=NOW + 22)
    assert not [each for each in story.decides(NOW + 22) if isinstance(each, AllocateNow)]


@pytest.mark.parametrize("seconds", [300, 62])
def test_an_end_that_came_to_nothing_does_not_cost_a_lost_jobs_pod_its_nodes(seconds: int) -> None:
    """The preemption was taken back, and the pod runs on: its grace, and half a minute more, have passed."""
    story = Story()
    end = signalled(story)
    story.ended(end, at=NOW + 2)
    story.polls({17: "RUNNING"}, at=NOW + 3)
    acts = is_lost(story, NOW + seconds)
    assert [each.spec.required_nodes for each in acts if isinstance(each, AllocateNow)] == ["x2"]


def test_a_gang_whose_affinity_its_own_members_meet_keeps_its_node() -> None:
    """No other pod is selected by the affinity, so no node seemed feasible, and the pods were ended."""
    wants = (PodTerm((Requirement("role", "In", ("worker",)),), frozenset({"hpc"})),)
    leader, worker = member(0, 2, affinity=wants), member(1, 2, labels={"role": "worker"})
    story = Story()
    story.sees(leader, worker)
    [allocate] = story.acts(AllocateNow, NOW)
    story.ended(allocate, at=NOW, job_id=17, grant=Grant(17, (GrantedNode("x2", 2, 200),)))
    for bind in story.acts(BindPod, NOW):
        story.ended(bind, at=NOW)
    story.sees(*(story.bound(each, 17, "x2") for each in (leader, worker)))
    story.polls({17: "RUNNING"}, at=NOW + 1)
    loses(story, NOW + 7)
    asked = asked_again(story)
    assert (asked.spec.required_nodes, asked.spec.min_nodes, asked.spec.max_nodes) == ("x2", 1, 1)


def test_a_pod_that_is_bound_to_the_new_job_is_not_told_of_the_replacement() -> None:
    story = Story()
    shown = gang_runs(story)
    loses(story, NOW + 7)
    held = Grant(30, (GrantedNode("x1", 2, 200), GrantedNode("x2", 1, 100)))
    story.ended(asked_again(story), at=NOW + 7, job_id=30, grant=held)
    for action in story.decides(NOW + 7):
        story.ended(action, at=NOW + 7)
    since = {names.JOB_ID: "30", names.JOB_SINCE: "1970-01-01T00:17:10Z"}
    told = [replace(each, annotations={**each.annotations, **since}) for each in shown]
    story.sees(*told)
    story.polls({30: "RUNNING"}, at=NOW + 8)
    story.sees(replace(told[2], phase=PodPhase.FAILED), member(3, 3, created=NOW + 9))
    [bind] = story.acts(BindPod, NOW + 10)
    story.ended(bind, at=NOW + 10)
    assert story.acts(SetPodCondition, NOW + 11) == []


def test_a_surplus_pod_gets_its_nodes_again_although_the_pods_of_its_gang_no_longer_agree_on_their_number() -> None:
    """A surplus pod that waits would be refused: its gang may have any number of pods."""
    story = Story()
    shown = ring_runs(story, ring(2), ("x1", 2))
    surplus = member(2, 2)
    story.runs(surplus, 18, on="x2", at=NOW)
    story.sees(replace(shown[0], annotations={**shown[0].annotations, names.PREFIX + "gang-size": "3"}))
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW + 1)
    loses(story, NOW + 7, {17: "RUNNING"})
    assert asked_again(story, surplus).spec.required_nodes == "x2"
