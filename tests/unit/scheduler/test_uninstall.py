"""A bridge that is being uninstalled asks for nothing more, takes back what it made, and knows when nothing is left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    AllocateNow,
    BindPod,
    CancelJob,
    ChangeNode,
    DeletePod,
    FailByDeadline,
    NodeChange,
    Outcome,
    ReadJob,
    RecordEnd,
    RemoveNode,
    SetNodeCondition,
    SetPodCondition,
    SubmitJob,
    UnmarkNode,
)
from scheduler.apply.events import new_world
from scheduler.events import (
    NamespaceSeen,
    NodeSeen,
    ObjectUndecoded,
    OutageBegan,
    PodSeen,
    Scope,
    Side,
    SlurmNodesPolled,
    UndecodedItems,
)
from scheduler.model.kubernetes import Condition, Namespace, Pod, PodPhase, Undecoded
from scheduler.model.slurm import Job
from scheduler.rules import uninstall
from scheduler.rules.node_condition import LEAVES
from scheduler.rules.reconcile_nodes import CORDONED
from scheduler.state.phase import Phase
from tests.builders import CLUSTER, CONFIG, OF_A_BIND, OWNER, START, Story, grant, job_of, pod
from tests.defects import breaks_rule
from tests.unit.scheduler.test_nodes import IN_SERVICE, PARTITIONS, Nodes, drained, in_slurm, labelled

WAIT, END = (replace(CONFIG, leaving=how) for how in (uninstall.WAIT, uninstall.END))
NOW = START + 20
TRAIN = pod("train", created=START - 60)
ASKS = (AllocateNow, SubmitJob)


def met(config: Any = WAIT) -> Story:
    """Both clusters as a bridge meets them that has just started to leave."""
    return Story(config)


def running(story: Story, what: Any = TRAIN, job: int = 17) -> Any:
    """A pod that a previous process bound, and its job, which is read."""
    shown = story.bound(what, job)
    story.polls({job: "RUNNING"}, at=START + 0.1)
    story.sees(shown)
    story.reads(job_of(what, job), at=START + 0.2, granted=grant(job))
    return shown


def waiting(story: Story, what: Any = TRAIN, job: int = 17) -> None:
    """A pod whose job waits in Slurm's queue."""
    story.polls({job: "PENDING"}, at=START + 0.1)
    story.sees(what)
    story.reads(job_of(what, job, "PENDING"), at=START + 0.2)


RING: dict[str, Any] = {"labels": {names.PREFIX + names.GANG: "ring"}, "says": {"gang-size": "2"}}


def ring(number: int) -> Pod:
    """A pod of a gang of two."""
    return pod(f"ring-{number}", created=START - 60, **RING)


def job_of_ring(story: Story, *states: str) -> Job:
    key = story.world.key_of_pod[ring(0).uid]
    return replace(job_of(ring(0), 17, *states), name=names.job_name("hpc/ring", CLUSTER, key))


def running_ring(story: Story, *waiting: Pod) -> Pod:
    """The first pod runs for job 17 of a previous process, which is read; the others wait."""
    story.polls({17: "RUNNING"}, at=START + 0.1)
    story.sees(shown := story.bound(ring(0), 17), *waiting)
    story.reads(job_of_ring(story), at=START + 0.2, granted=grant(17, cpus=2, memory=200))
    return shown


def left(story: Story, at: float = NOW) -> list[str]:
    return uninstall.left_to_remove(story.world, at)


# --- pods that wait -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [WAIT, END])
def test_a_pod_that_waits_gets_no_job_and_shows_that_once(config: Any) -> None:
    story = met(config)
    story.sees(TRAIN)
    [said] = story.decides(NOW)
    assert isinstance(said, SetPodCondition)
    assert (said.condition, said.message) == (names.LEAVING, uninstall.MESSAGE)
    assert uninstall.waits_for(story.world, NOW) != "", "the write is under way"
    story.ended(said, at=NOW + 1)
    assert left(story) == []
    assert story.decides(NOW + 10) == []


def test_a_pod_that_could_not_get_its_status_is_left_until_it_does() -> None:
    story = met()
    story.sees(TRAIN)
    [said] = story.decides(NOW)
    story.ended(said, Outcome.UNKNOWN, at=NOW + 1)
    assert left(story) == ["show on hpc/train, which waits, that it gets no job any more"]
    assert len(story.acts(SetPodCondition, NOW + 10)) == 1


def test_a_pod_that_has_its_status_from_an_earlier_run_gets_no_other() -> None:
    story = met()
    story.sees(replace(TRAIN, scheduled=Condition(False, names.LEAVING, uninstall.MESSAGE)))
    assert story.decides(NOW) == []
    assert left(story) == []


def test_a_job_that_waits_is_ended_after_the_quiet_period_and_its_pod_shows_it() -> None:
    story = met()
    waiting(story)
    assert story.acts(CancelJob, START + 1) == []
    assert "end Slurm job 17 of hpc/train" in left(story)
    [cancel] = story.acts(CancelJob, NOW)
    assert (cancel.job_id, cancel.reason) == (17, uninstall.WHY)
    story.ended(cancel, at=NOW + 1)
    story.polls({17: "CANCELLED"}, at=NOW + 1)
    [said] = story.acts(SetPodCondition, NOW + 10)
    assert said.condition == names.LEAVING
    story.ended(said, at=NOW + 11)
    assert left(story) == []


def test_a_job_that_slurm_forgot_is_left_no_more_once_two_lists_lack_it() -> None:
    story = met()
    waiting(story)
    for at, job in ((NOW, [17]), (NOW + 1.9, [17]), (NOW + 2, [])):
        story.polls({}, at=at)
        assert [number for number in job if not any(f"Slurm job {number}" in each for each in left(story, at))] == []
    assert not any("17" in each for each in left(story, NOW + 2))


def test_a_grant_is_not_released_while_the_answer_to_a_bind_is_lost() -> None:
    """The pod may be on its node already; the other member of its gang is gone, and is replaced."""
    story = met()
    other, replacement = ring(1), ring(2)
    shown = running_ring(story, other)
    [bind] = story.acts(BindPod, NOW)
    story.loses(shown, NOW + 1)
    story.sees(replacement)
    assert story.acts(CancelJob, NOW + 1) == [], "the bind is under way"
    story.ended(bind, Outcome.UNKNOWN, at=NOW + 2)
    assert story.acts(CancelJob, NOW + 2) == []
    for each in (other, replacement):
        story.loses(each, NOW + 3)
    assert [each.job_id for each in story.acts(CancelJob, NOW + 60)] == [17]


def test_a_job_that_holds_nodes_for_a_pod_that_is_not_bound_is_ended() -> None:
    story = met()
    story.polls({17: "RUNNING"}, at=START + 0.1)
    story.sees(TRAIN)
    story.reads(job_of(TRAIN, 17), at=START + 0.2, granted=grant(17))
    [cancel] = story.decides(NOW)
    assert isinstance(cancel, CancelJob)


def test_a_job_whose_pods_are_gone_is_ended() -> None:
    story = met()
    story.polls({17: "PENDING"}, at=START + 0.1)
    story.reads(job_of(TRAIN, 17, "PENDING"), at=START + 0.2)
    assert left(story) == ["end Slurm job 17 of pods that are gone"]
    assert [each.job_id for each in story.acts(CancelJob, NOW)] == [17]


def test_members_of_an_incomplete_gang_get_a_status_too() -> None:
    story = met()
    story.sees(ring(0))
    [said] = story.acts(SetPodCondition, NOW)
    assert said.condition == names.LEAVING


def test_a_gang_of_which_some_are_bound_is_bound_as_a_whole_and_nothing_new_is_asked() -> None:
    story = met()
    running_ring(story, ring(1))
    assert [each.name for each in story.decides(NOW) if isinstance(each, BindPod | CancelJob)] == ["ring-1"]
    assert left(story) == ["wait until pod hpc/ring-0 on node x1 ends (Slurm job 17)"]


# --- pods that run --------------------------------------------------------------------------------------------------


def test_a_pod_that_runs_is_waited_for_and_its_job_follows_it() -> None:
    story = met()
    shown = running(story)
    assert story.acts(CancelJob, NOW) == []
    assert left(story) == ["wait until pod hpc/train on node x1 ends (Slurm job 17)"]
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED))
    assert left(story) == ["end Slurm job 17 of hpc/train"]
    [cancel] = story.acts(CancelJob, NOW + 1)
    story.ended(cancel, at=NOW + 2)
    assert left(story) == []


@pytest.mark.parametrize(("owner", "how"), [(None, FailByDeadline), (OWNER, DeletePod)])
def test_a_pod_that_runs_is_ended_if_that_is_wanted_and_the_job_only_after_it(owner: Any, how: Any) -> None:
    story = met(END)
    what = replace(TRAIN, owner=owner)
    shown = running(story, what)
    assert story.acts(how, START + 1) == [], "the quiet period"
    [end] = story.decides(NOW)
    assert isinstance(end, how)
    assert end.reason == uninstall.WHY
    assert left(story) == ["end pod hpc/train on node x1 (Slurm job 17)"]
    story.ended(end, at=NOW + 1)
    assert story.acts(how, NOW + 2) == [], "it has its grace"
    story.sees(replace(shown, phase=PodPhase.FAILED))
    assert [each.job_id for each in story.acts(CancelJob, NOW + 3)] == [17]


@pytest.mark.parametrize(("grace_s", "shortened"), [(30, []), (10**10, [300])])
def test_a_pod_that_another_client_deleted_goes_with_a_grace_that_counts(grace_s: int, shortened: list[int]) -> None:
    story = met(END)
    shown = running(story)
    story.sees(replace(shown, deleting_at=START + grace_s, grace_s=grace_s))
    assert [each.grace_s for each in story.acts(DeletePod, NOW)] == shortened


def test_a_pod_whose_job_may_have_been_renamed_is_waited_for_though_pods_are_to_be_ended() -> None:
    story = met(END)
    shown = story.bound(TRAIN, 17, started=START - 50)
    story.sees(replace(shown, annotations={**shown.annotations, **OF_A_BIND}))
    story.polls({17: "RUNNING"}, at=START + 0.1)
    story.reads(replace(job_of(TRAIN, 17, submitted=START - 55), name="pretty"), at=START + 0.2)
    assert not [each for each in story.decides(NOW) if isinstance(each, FailByDeadline | CancelJob)]
    assert left(story) == [
        "wait until pod hpc/train on node x1 ends (Slurm job 17), which has another name since: the pod is not ended for it"
    ]


def test_a_pod_that_another_client_bound_beside_a_member_of_its_gang_is_not_ended() -> None:
    """It does not run for the job of the gang."""
    story = met(END)
    running_ring(story, ring(1), replace(ring(1), node="x2", phase=PodPhase.RUNNING))
    assert [each.name for each in story.acts(FailByDeadline, NOW)] == ["ring-0"]


def test_before_a_pod_is_ended_its_job_is_read() -> None:
    story = met(END)
    story.polls({17: "RUNNING"}, at=START + 0.1)
    story.sees(story.bound(TRAIN, 17))
    [read] = [each for each in story.decides(NOW) if isinstance(each, ReadJob | FailByDeadline)]
    assert isinstance(read, ReadJob)
    story.reads(replace(job_of(TRAIN, 17, user="carol"), name="precious"), at=NOW + 0.1)
    story.ended(read, at=NOW + 0.1)
    assert story.acts(FailByDeadline, NOW + 0.2) == []


def test_a_job_that_slurm_loses_is_not_asked_for_again() -> None:
    story = met()
    running(story)
    story.polls({}, at=NOW)
    story.polls({}, at=NOW + 3)
    [read] = story.acts(ReadJob, NOW + 3)
    story.reads(None, at=NOW + 3.1, job_id=17)
    story.ended(read, at=NOW + 3.1)
    story.polls({}, at=NOW + 6)
    done = story.decides(NOW + 6)
    assert not [each for each in done if isinstance(each, ASKS)]
    assert [type(each) for each in done] == [FailByDeadline]


def test_accounting_gets_how_pods_ended_before_nothing_is_left() -> None:
    story = Story(replace(WAIT, accounting=True))
    shown = running(story)
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED))
    [cancel] = story.acts(CancelJob, NOW)
    story.ended(cancel, at=NOW + 1)
    assert left(story) == ["record in Slurm's accounting how hpc/train ended"]
    [record] = story.acts(RecordEnd, NOW + 2)
    story.ended(record, at=NOW + 3)
    assert left(story) == []


def test_foreign_pods_and_jobs_are_no_concern() -> None:
    story = met(END)
    story.polls({5: "RUNNING"}, at=START + 0.1)
    story.reads(replace(job_of(TRAIN, 5, user="carol"), name="native"), at=START + 0.2)
    story.sees(pod("by-hand", node="x1", phase=PodPhase.RUNNING))
    assert not [each for each in story.decides(NOW) if isinstance(each, CancelJob | DeletePod | FailByDeadline)]
    assert left(story) == []


# --- nodes ----------------------------------------------------------------------------------------------------------


def test_an_own_node_is_drained_removed_when_idle_and_then_taken_leave_of_in_kubernetes() -> None:
    nodes = Nodes([labelled()], [in_slurm()], WAIT)
    [drain] = nodes.looks()
    assert isinstance(drain, ChangeNode)
    assert (drain.change, drain.reason) == (NodeChange.DRAIN, LEAVES)
    nodes.ended(drain, at=NOW + 1)
    nodes.shows(drained(LEAVES, "ALLOCATED"), at=NOW + 2)
    assert not [each for each in nodes.looks(NOW + 2) if isinstance(each, RemoveNode | UnmarkNode)], "a job is there"
    assert any("once no job is left there" in each for each in left(nodes))
    nodes.shows(drained(LEAVES), at=NOW + 5)
    [remove] = [each for each in nodes.looks(NOW + 5) if isinstance(each, RemoveNode)]
    nodes.ended(remove, at=NOW + 6)
    nodes.shows(at=NOW + 7)
    [release] = nodes.looks(NOW + 7)
    assert isinstance(release, UnmarkNode)
    nodes.ended(release, at=NOW + 8)
    nodes.sees(NodeSeen(labelled(taints=(), in_slurm=None)))
    assert nodes.looks(NOW + 9) == []
    assert left(nodes) == []


def test_a_labelled_node_is_registered_no_more() -> None:
    nodes = Nodes([labelled(in_slurm=None, taints=())], config=WAIT)
    assert nodes.looks() == []
    assert left(nodes) == []


def test_a_registered_node_that_an_admin_took_out_of_service_is_left_to_the_admin() -> None:
    nodes = Nodes([labelled()], [drained("fan is broken")], WAIT)
    assert not [each for each in nodes.looks() if isinstance(each, ChangeNode | RemoveNode)]
    [said, _] = left(nodes)
    assert "scontrol delete nodename=x1" in said


def test_a_drain_of_its_own_on_another_node_is_undone_once() -> None:
    shared = drained(CORDONED, features=())
    nodes = Nodes([labelled(labels={}, taints=(), unschedulable=True)], [shared], replace(WAIT, shared_nodes=True))
    assert left(nodes)[0] == f'resume Slurm node x1, drained with the reason "{CORDONED}"'
    [resume] = nodes.looks()
    assert isinstance(resume, ChangeNode)
    assert resume.change is NodeChange.RESUME
    assert not [each for each in nodes.looks(NOW + 0.5) if isinstance(each, ChangeNode)], "it is under way"
    nodes.ended(resume, at=NOW + 1)
    nodes.shows(shared, at=NOW + 2)  # another bridge of this Kubernetes drained it again
    [release] = nodes.looks(NOW + 2)
    assert isinstance(release, UnmarkNode)
    nodes.sees(NodeSeen(labelled(labels={}, taints=(), in_slurm=None, unschedulable=True)))
    assert left(nodes) == []


@pytest.mark.parametrize("known", [drained("lent out", features=()), in_slurm(features=("slurm-bridge-kffffffff",))])
def test_drains_of_admins_and_nodes_of_other_bridges_are_left_alone(known: Any) -> None:
    nodes = Nodes([labelled(labels={}, taints=(), in_slurm=None)], [known], replace(WAIT, shared_nodes=True))
    assert nodes.looks() == []
    assert left(nodes) == []


def test_a_registered_node_shows_that_it_leaves_while_a_job_is_there() -> None:
    nodes = Nodes([labelled()], [drained(LEAVES, "MIXED")], WAIT)
    [show] = nodes.looks()
    assert isinstance(show, SetNodeCondition)
    assert (show.status, show.condition) == (False, names.NODE_DRAINED)


def test_nothing_is_resumed_on_a_node_of_another_bridge_or_a_node_in_service() -> None:
    others = drained(CORDONED, features=("slurm-bridge-kffffffff",))
    in_service = in_slurm(reason=CORDONED, features=())
    for known, also in ((others, []), (in_service, [f"take the condition {names.IN_SLURM} from Kubernetes node x1"])):
        nodes = Nodes([labelled(labels={}, taints=())], [known], replace(WAIT, shared_nodes=True))
        assert not [each for each in nodes.looks() if isinstance(each, ChangeNode)]
        assert left(nodes) == also


@pytest.mark.parametrize(
    ("known", "is_readable", "shown_by", "remains"),
    [
        (in_slurm(reason="fan was broken"), True, "", ["remove Slurm node x1"]),
        (in_slurm("x1", "MIXED"), True, "", ["remove Slurm node x1, once no job is left there"]),
        (in_slurm(), False, "", ["remove Slurm node x1"]),
        (None, False, "", ["look at Slurm node x1, which cannot be read"]),
        (in_slurm(), True, " (by another)", ["remove Slurm node x1"]),
    ],
)
@pytest.mark.parametrize("is_tainted", [True, False])
def test_what_is_left_on_a_node_is_named(
    known: Any, is_readable: bool, shown_by: str, remains: list[str], is_tainted: bool
) -> None:
    shown = replace(IN_SERVICE, message=IN_SERVICE.message + shown_by)
    there = labelled(in_slurm=shown) if is_tainted else labelled(in_slurm=shown, taints=())
    nodes = Nodes([there], [known] if known is not None else [], WAIT)
    if not is_readable:
        nodes.sees(SlurmNodesPolled((), PARTITIONS, NOW, undecoded_nodes=UndecodedItems(frozenset({"x1"}))))
    taint = f"the taint {names.MANAGED_TAINT} and " if is_tainted else ""
    assert left(nodes) == [*remains, f"take {taint}the condition {names.IN_SLURM} from Kubernetes node x1"]


def test_a_change_of_a_node_is_under_way_until_slurm_shows_it() -> None:
    nodes = Nodes([labelled()], [in_slurm()], WAIT)
    nodes.polls({}, at=NOW)
    nodes.shows(in_slurm(), at=NOW)
    [drain] = nodes.looks()
    nodes.ended(drain, at=NOW + 1)
    assert uninstall.waits_for(nodes.world, NOW + 1) == "1 changes are under way."
    nodes.shows(drained(LEAVES), at=NOW + 2)
    assert uninstall.waits_for(nodes.world, NOW + 2) == ""


# --- when nothing is left --------------------------------------------------------------------------------------------


def test_nothing_is_concluded_before_the_quiet_period_is_over_and_both_were_read_once_more() -> None:
    story = met()
    quiet = story.world.quiet_until()
    assert "requests of a bridge that ran before" in uninstall.waits_for(story.world, quiet - 1)
    assert "once more" in uninstall.waits_for(story.world, quiet)
    story.polls({}, at=quiet)
    assert "once more" in uninstall.waits_for(story.world, quiet)
    story.sees(SlurmNodesPolled((), PARTITIONS, quiet))
    assert uninstall.waits_for(story.world, quiet) == ""
    story.polls({9: "PENDING"}, at=NOW + 1)
    assert "9" in uninstall.waits_for(story.world, NOW + 1)
    story.sees(OutageBegan(Side.SLURM, NOW + 2, "slurmctld does not answer."))
    assert uninstall.waits_for(story.world, NOW + 2) == "Slurm: slurmctld does not answer."


@pytest.mark.parametrize(("ids", "named"), [([7], "7."), ([7, 8, 9], "7, 8, 9."), ([6, 7, 8, 9], "6, 7, 8 and more.")])
def test_jobs_that_are_not_read_yet_are_named_up_to_three(ids: list[int], named: str) -> None:
    story = met()
    story.polls(dict.fromkeys(ids, "PENDING"), at=NOW)
    assert uninstall.waits_for(story.world, NOW) == f"Slurm jobs that are not read yet may be the bridge's: {named}"


def test_changes_that_are_under_way_are_waited_for_and_reads_are_not() -> None:
    story = met()
    story.sees(TRAIN)
    story.polls({}, at=NOW)
    story.sees(SlurmNodesPolled((), PARTITIONS, NOW))
    [said] = story.decides(NOW)
    assert uninstall.waits_for(story.world, NOW) == "1 changes are under way."
    story.ended(said, at=NOW + 1)
    assert uninstall.waits_for(story.world, NOW + 1) == ""
    running(story, pod("other", created=START - 60), 18)
    story.world.stop_reading(18)
    read = ReadJob(18, "its end is near")
    story.world.in_flight[0] = read
    assert uninstall.waits_for(story.world, NOW + 1) == ""


def test_before_both_clusters_were_read_it_is_not_known_what_is_left() -> None:
    world = new_world(WAIT, started=START)
    assert "the list of" in uninstall.waits_for(world, NOW)
    world.node_state.polled = NOW
    assert "the list of" in uninstall.waits_for(world, NOW)
    story = met()
    story.world.node_state.polled = float("-inf")
    assert uninstall.waits_for(story.world, NOW) == "Still to be read: Slurm's nodes."


def test_while_an_error_of_the_bridge_keeps_it_from_a_pod_it_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """X8."""
    breaks_rule(monkeypatch, Phase.UNSUBMITTED, "train")
    story = Story(WAIT, guarded=True)
    story.sees(TRAIN)
    story.decides(NOW)
    assert "an error of slurm-bridge itself" in uninstall.waits_for(story.world, NOW)


def test_while_a_node_cannot_be_read_it_is_not_known_if_the_bridge_left_something_on_it() -> None:
    story = met()
    story.sees(ObjectUndecoded(Undecoded("node", "", "x9", "uid-x9", "its labels are no mapping")))
    assert uninstall.waits_for(story.world, NOW) == "Kubernetes node x9 cannot be read: its labels are no mapping."


def test_a_pod_that_cannot_be_read_keeps_nobody_from_the_end() -> None:
    """If it was bound by the bridge, its job says so."""
    story = met()
    story.sees(ObjectUndecoded(Undecoded("pod", "hpc", "odd", "uid-odd", "its labels are no mapping")))
    story.polls({}, at=NOW)
    story.sees(SlurmNodesPolled((), PARTITIONS, NOW))
    assert uninstall.waits_for(story.world, NOW) == ""


def test_a_pod_of_another_scheduler_on_a_node_of_slurm_is_no_concern() -> None:
    story = met(END)
    other = pod("other", node="x1", phase=PodPhase.RUNNING, scheduler_name="default-scheduler", created=START - 60)
    story.sees(PodSeen(Scope.OTHERS, other))
    assert story.world.key_of_pod[other.uid]
    assert left(story) == []


def test_a_pod_that_shows_why_it_waited_before_gets_the_status_of_the_uninstall() -> None:
    story = met()
    story.sees(replace(TRAIN, scheduled=Condition(False, names.PENDING, "Waiting in Slurm partition main.")))
    assert left(story) == ["show on hpc/train, which waits, that it gets no job any more"]
    assert [each.condition for each in story.acts(SetPodCondition, NOW)] == [names.LEAVING]


def test_while_many_jobs_are_missing_an_admin_decides_first() -> None:
    """X6."""
    story = met()
    crowd = [pod(f"p{number}", created=START - 60) for number in range(12)]
    story.polls(dict.fromkeys(range(100, 112), "RUNNING"), at=START + 0.1)
    for number, each in enumerate(crowd):
        story.sees(story.bound(each, 100 + number))
        story.reads(job_of(each, 100 + number), at=START + 0.2, granted=grant(100 + number))
    story.polls({}, at=NOW)
    assert uninstall.waits_for(story.world, NOW) == (
        "Slurm no longer lists 12 of 12 jobs: no pod is ended for it. If they are gone: slurm-bridge release."
    )


def test_while_many_jobs_are_missing_that_only_pods_show_an_admin_decides_first() -> None:
    """X6."""
    story = met()
    story.polls({}, at=START + 0.1)
    for number in range(12):
        story.sees(story.bound(pod(f"p{number}", created=START - 60), 100 + number))
    story.polls({}, at=NOW)
    assert uninstall.waits_for(story.world, NOW) == (
        "Slurm does not list 12 jobs that pods from before the start of the bridge show: "
        "no pod is ended for it. If they are gone: slurm-bridge release."
    )


def test_what_is_in_flight_for_a_pod_is_still_to_be_finished() -> None:
    story = Story(CONFIG)
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    assert left(story) == [
        "finish what is under way for hpc/train",
        "show on hpc/train, which waits, that it gets no job any more",
    ]
    story.ended(asked, Outcome.REFUSED, at=NOW + 1, number=2014)
    assert left(story, NOW + 1) == ["show on hpc/train, which waits, that it gets no job any more"]


def test_a_pod_whose_job_is_over_is_to_be_ended_unless_its_namespace_is_not_managed() -> None:
    story = met()
    running(story)
    story.polls({}, at=NOW)
    story.polls({}, at=NOW + 3)
    story.reads(None, job_id=17, at=NOW + 3)
    assert left(story, NOW + 3) == ["end pod hpc/train on node x1"]
    story.sees(NamespaceSeen(Namespace("hpc", "1")))
    assert left(story, NOW + 3) == [], "it is left alone"


def test_a_gang_that_gathers_in_a_namespace_that_is_not_managed_gets_no_status() -> None:
    story = met()
    story.sees(NamespaceSeen(Namespace("hpc", "1")), ring(0))
    assert names.LEAVING not in {each.condition for each in story.acts(SetPodCondition, NOW)}
    assert left(story) == []


def test_of_a_gang_that_is_ended_the_pods_that_are_not_bound_yet_are_left_alone() -> None:
    story = met(END)
    running_ring(story, ring(1))
    ended = [each for each in story.decides(NOW) if isinstance(each, DeletePod | FailByDeadline)]
    assert [each.name for each in ended] == ["ring-0"]


# --- which jobs are still to be ended ---------------------------------------------------------------------------------


def test_of_a_pod_that_names_the_job_of_another_pod_only_the_status_is_left() -> None:
    story = met()
    running(story)
    story.sees(replace(story.bound(pod("copy", created=START - 60), 17), node="", phase=PodPhase.PENDING))
    story.sees(story.bound(pod("liar", created=START - 60), 17))
    assert [each for each in left(story) if "Slurm job 17" in each] == [
        "wait until pod hpc/train on node x1 ends (Slurm job 17)"
    ]


def test_a_job_that_only_an_ended_pod_names_is_left_until_a_read_shows_that_it_is_gone() -> None:
    story = met()
    story.polls({17: "RUNNING"}, at=START + 0.1)
    shown = story.bound(TRAIN, 17)
    story.sees(shown)
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED))
    assert left(story) == ["end Slurm job 17 of hpc/train"]
    story.sees(shown)
    story.reads(None, job_id=17, at=START + 0.2)
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED))
    assert left(story) == []


def test_a_waiting_job_that_one_read_does_not_find_is_still_to_be_ended() -> None:
    story = met()
    waiting(story)
    story.reads(None, job_id=17, at=NOW)
    assert "end Slurm job 17 of hpc/train" in left(story)


def test_a_pod_that_another_client_bound_is_waited_for_beside_the_job_that_waits_for_it() -> None:
    story = met()
    waiting(story)
    story.sees(replace(TRAIN, node="x1", phase=PodPhase.RUNNING))
    assert left(story) == ["wait until pod hpc/train on node x1 ends (Slurm job 17)"]


def test_a_pod_that_names_a_job_of_another_name_is_ended_with_the_own_job_that_holds_its_node() -> None:
    story = met(END)
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=START + 0.1)
    story.sees(story.bound(TRAIN, 17))
    story.reads(job_of(TRAIN, 18), at=START + 0.2, granted=grant(18))
    story.reads(replace(job_of(TRAIN, 17), name="pretty"), at=START + 0.3)
    assert left(story) == ["end pod hpc/train on node x1 (Slurm job 18)"]


def test_of_a_gang_that_waits_for_members_no_record_of_its_former_job_is_awaited() -> None:
    story = Story(replace(WAIT, accounting=True))
    shown = running_ring(story)
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED), ring(1))
    story.polls({17: "COMPLETED"}, at=NOW)
    story.reads(job_of_ring(story, "COMPLETED"), at=NOW)
    assert left(story) == ["show on hpc/ring, which waits, that it gets no job any more"]


def test_a_bind_that_is_under_way_is_to_be_finished_although_the_job_has_ended() -> None:
    story = met()
    shown = running_ring(story, ring(1))
    [bind] = story.acts(BindPod, NOW)
    story.loses(shown, NOW + 1)
    story.polls({17: "CANCELLED"}, at=NOW + 1)
    assert "finish what is under way for hpc/ring" in left(story)
    story.ended(bind, Outcome.REFUSED, at=NOW + 2)
    assert "finish what is under way for hpc/ring" not in left(story)


def test_an_end_of_a_pod_that_failed_is_repeated_after_the_backoff() -> None:
    story = met(END)
    running(story)
    [end] = story.acts(FailByDeadline, NOW)
    story.ended(end, Outcome.REFUSED, at=NOW + 1)
    assert story.acts(FailByDeadline, NOW + 1) == []
    [again] = story.world.wakes.values()
    assert len(story.acts(FailByDeadline, again)) == 1


def test_what_ended_before_the_start_is_recorded_before_nothing_is_left() -> None:
    """The previous process may not have recorded it."""
    story = Story(replace(WAIT, accounting=True))
    story.polls({17: "COMPLETED"}, at=START + 0.1)
    story.sees(story.bound(TRAIN, 17, phase=PodPhase.SUCCEEDED))
    assert left(story) == ["record in Slurm's accounting how hpc/train ended"]


def test_a_bridge_that_stays_does_none_of_this() -> None:
    story = Story(CONFIG)
    waiting(story)
    assert story.acts(CancelJob, NOW) == []
    assert names.LEAVING not in {each.condition for each in story.acts(SetPodCondition, NOW + 1)}
