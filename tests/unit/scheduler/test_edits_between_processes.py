"""The user edited keys of the bridge while no bridge ran, or before the bind: the name of the job decides whose pod it is.

A process that saw the bind knows the right values (test_own_keys.py).  The next process knows only what the pods show, and
the jobs, whose names the user of a pod cannot forge for another pod.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import Action, AllocateNow, CancelJob, FailByDeadline, ReadJob, RestoreKeys, SetPodCondition
from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.model.slurm import Job
from scheduler.translate.grouping import Group, group_of
from tests.builders import CLUSTER, START, Story, grant, job_of, key_of
from tests.unit.scheduler.test_gangs import member
from tests.unit.scheduler.test_gangs import runs as gang_runs
from tests.unit.scheduler.test_hints import ENDS, TRAIN, bound_before, lives

HARM = CancelJob | ENDS
OWN_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def trace_of_gang(what: Pod) -> str:
    return names.traceparent(CLUSTER, key_of_gang(what))


def key_of_gang(what: Pod) -> str:
    group = group_of(what)
    assert isinstance(group, Group)
    return names.workload_key(group.identity)


def harm(actions: list[Action]) -> list[str]:
    return [each.reason for each in actions if isinstance(each, HARM)]


# --- a surplus pod, which has a job of its own beside the running gang ------------------------------------------------

GANG = [member(number, 2, created=START - 60) for number in range(2)]
GANGS_JOB = Job(
    17,
    names.job_name("hpc/ring", CLUSTER, key_of_gang(GANG[0])),
    "alice",
    frozenset({"RUNNING"}),
    partition="main",
    nodes="x1",
    submitted=START - 55,
    tasks=2,
)


def gang_bound() -> list[Pod]:
    """The gang as a previous process bound it."""
    shown = [bound_before(Story(), each, 17) for each in GANG]
    written = [{names.SIZE: "2", names.RANK: str(n), names.TRACEPARENT: trace_of_gang(GANG[n])} for n in range(2)]
    return [replace(each, annotations={**each.annotations, **written[n]}) for n, each in enumerate(shown)]


def beside_its_gang(
    says: dict[str, str],
    *,
    is_read_first: bool = False,
    state: str = "RUNNING",
    nodes: str = "x2",
    **edited: str | None,
) -> tuple[Story, dict[int, Job]]:
    """A previous process bound the gang on x1 and its surplus pod on x2.  Then the surplus pod was edited.

    is_read_first   the jobs are read before the list of pods comes
    state, nodes    of the surplus pod's job
    """
    story = Story()
    surplus = member(2, 2, created=START - 60, says=says)
    own = job_of(surplus, 18, state, nodes=nodes, submitted=START - 55)
    story.polls({17: "RUNNING", 18: state}, at=START + 1)
    if is_read_first:
        story.reads(own, at=START + 1.5, granted=grant(18, nodes) if nodes else None)
        story.reads(GANGS_JOB, at=START + 1.5, granted=grant(17))
    story.sees(*gang_bound())
    shown = bound_before(story, surplus, 18)
    written = {names.TRACEPARENT: names.traceparent(CLUSTER, key_of(surplus)), **shown.annotations}
    annotations = {key: value for key, value in {**written, **edited}.items() if value is not None}
    story.sees(replace(shown, node="x2", annotations=annotations))
    return story, {17: GANGS_JOB, 18: own}


EDITS: list[tuple[dict[str, str], dict[str, str | None]]] = [
    ({"traceparent": trace_of_gang(GANG[0])}, {}),  # its manifest is that of a member that ran
    ({}, {names.TRACEPARENT: trace_of_gang(GANG[0])}),
    ({}, {names.SIZE: None}),
    ({"traceparent": OWN_TRACE}, {names.SIZE: "2"}),
    ({"traceparent": OWN_TRACE}, {names.SIZE: None}),
    ({}, dict.fromkeys((*names.ONLY_OURS, names.TRACEPARENT))),
]


@pytest.mark.parametrize("is_read_first", [False, True])
@pytest.mark.parametrize(("says", "edited"), EDITS)
def test_a_surplus_pod_that_shows_the_marks_of_a_member_keeps_its_own_job_after_a_restart(
    says: dict[str, str], edited: dict[str, str | None], is_read_first: bool
) -> None:
    story, jobs = beside_its_gang(says, is_read_first=is_read_first, **edited)
    assert harm(lives(story, jobs, START + 2, seconds=60)) == []


@pytest.mark.parametrize(
    ("state", "nodes", "runs_for_it"), [("PENDING", "", False), ("RUNNING", "x3", False), ("RUNNING", "x2", True)]
)
@pytest.mark.parametrize("is_read_first", [False, True])
def test_a_surplus_pod_on_a_node_that_its_own_job_does_not_hold_runs_for_another_client_and_does_not_end_with_that_job(
    is_read_first: bool, state: str, nodes: str, runs_for_it: bool
) -> None:
    """Its job waited when the former process ended, and another client has bound the pod."""
    nothing = dict.fromkeys((*names.ONLY_OURS, names.TRACEPARENT))
    story, jobs = beside_its_gang({}, is_read_first=is_read_first, state=state, nodes=nodes, **nothing)
    story.reads(jobs[18], at=START + 2, granted=grant(18, nodes) if nodes else None)
    surplus = member(2, 2).uid
    assert (story.world.key_of_pod[surplus] == names.workload_key(surplus)) is runs_for_it


@pytest.mark.parametrize(("says", "edited"), EDITS)
def test_such_a_surplus_pod_keeps_its_own_job_also_if_the_job_of_the_gang_ended_meanwhile(
    says: dict[str, str], edited: dict[str, str | None]
) -> None:
    story, jobs = beside_its_gang(says, **edited)
    over = replace(GANGS_JOB, states=frozenset({"CANCELLED"}))
    story.polls({17: "CANCELLED", 18: "RUNNING"}, at=START + 2)
    story.reads(over, at=START + 2)
    done = lives(story, jobs | {17: over}, START + 3, seconds=60)
    assert {(type(each), each.name) for each in done if isinstance(each, HARM)} == {
        (FailByDeadline, "w-0"),
        (FailByDeadline, "w-1"),
    }


@pytest.mark.parametrize("is_read_first", [False, True])
def test_a_pod_that_shows_nothing_of_a_job_that_ended_while_no_bridge_ran_runs_on_as_if_another_client_had_bound_it(
    is_read_first: bool,
) -> None:
    """The name of an ended job does not prove that the pod was bound for it, whether the job or the pod is seen first."""
    removed: dict[str, str | None] = dict.fromkeys((*names.ONLY_OURS, names.TRACEPARENT))
    story, jobs = beside_its_gang({}, is_read_first=is_read_first, state="CANCELLED", **removed)
    assert harm(lives(story, jobs, START + 2, seconds=60)) == []
    assert {story.world.key_of_pod[f"uid-w-{number}"] for number in range(3)} == {key_of_gang(GANG[0])}


@pytest.mark.parametrize(("says", "edited"), EDITS)
def test_such_a_surplus_pod_ends_with_its_own_job_and_the_gang_runs_on(
    says: dict[str, str], edited: dict[str, str | None]
) -> None:
    story, jobs = beside_its_gang(says, **edited)
    lives(story, jobs, START + 2, seconds=40)
    over = replace(jobs[18], states=frozenset({"CANCELLED"}))
    ended = [each for each in lives(story, {17: GANGS_JOB, 18: over}, START + 43) if isinstance(each, HARM)]
    assert {each.name for each in ended} == {"w-2"}


@pytest.mark.parametrize(("says", "edited"), EDITS)
def test_the_job_of_such_a_surplus_pod_ends_after_the_pod(says: dict[str, str], edited: dict[str, str | None]) -> None:
    story, jobs = beside_its_gang(says, **edited)
    lives(story, jobs, START + 2, seconds=40)
    [alone] = [each for each in story.world.workloads.values() if "uid-w-2" in each.pods]
    story.sees(replace(alone.pods["uid-w-2"], phase=PodPhase.SUCCEEDED))
    done = [each for each in lives(story, jobs, START + 43, seconds=5) if isinstance(each, HARM)]
    assert {each.job_id for each in done if isinstance(each, CancelJob)} == {18}


@pytest.mark.parametrize("runs", [False, True])
def test_a_pod_that_has_a_place_in_its_gang_loses_the_job_of_its_own_although_that_was_read_before_the_pod_was_seen(
    runs: bool,
) -> None:
    """A member left, so this pod is needed.  A previous process had submitted a job for this pod by itself."""
    story, state = Story(), "RUNNING" if runs else "PENDING"
    needed = member(2, 2, created=START - 60)
    own = job_of(needed, 18, "PENDING", submitted=START - 55)
    of_gang = replace(GANGS_JOB, states=frozenset({state}), nodes="x1" if runs else "")
    story.polls({17: state, 18: "PENDING"}, at=START + 1)
    story.reads(own, at=START + 1.5)
    story.reads(of_gang, at=START + 1.5, granted=grant(17, cpus=2, memory=200) if runs else None)
    if runs:  # the previous process bound the pod for the job of the gang
        shown = replace(bound_before(story, needed, 17), node="x1")
        written = {names.SIZE: "2", names.RANK: "1", names.TRACEPARENT: trace_of_gang(needed)}
        story.sees(gang_bound()[0], replace(shown, annotations={**shown.annotations, **written}))
    else:
        story.sees(GANG[0], needed)
    done = lives(story, {17: of_gang, 18: own}, START + 2)
    assert {each.job_id for each in done if isinstance(each, CancelJob)} == {18}
    assert story.world.key_of_pod[needed.uid] == key_of_gang(needed)


def test_the_story_of_a_gang_has_each_pod_once_although_a_bind_of_the_previous_process_is_seen_late() -> None:
    story = Story()
    story.polls({17: "RUNNING"}, at=START + 1)
    story.sees(*GANG)
    story.sees(*gang_bound())
    entries = [entry for _, entry in story.world.story(key_of_gang(GANG[0]))]
    assert [entry for entry in entries if "created" in entry] == ["pod hpc/w-0 created", "pod hpc/w-1 created"]


# --- the id of the job is gone ----------------------------------------------------------------------------------------


def without_id(shown: Pod, *more: str) -> Pod:
    kept = {key: text for key, text in shown.annotations.items() if key not in (names.JOB_ID, *more)}
    return replace(shown, annotations=kept)


def see_written(story: Story, actions: list[Action]) -> None:
    """The watch shows what was written on the pods."""
    for each in actions:
        if isinstance(each, SetPodCondition) and each.annotations:
            [shown] = [
                workload.pods[each.uid] for workload in story.world.workloads.values() if each.uid in workload.pods
            ]
            story.sees(replace(shown, annotations={**shown.annotations, **each.annotations}))


@pytest.mark.parametrize("more", [(), tuple(names.ONLY_OURS)])
def test_a_pod_whose_user_removed_the_id_while_no_bridge_ran_gets_it_again_and_ends_with_its_job(
    more: tuple[str, ...],
) -> None:
    story = Story(pods=(without_id(bound_before(Story(), TRAIN, 17), *more),))
    job = job_of(TRAIN, 17, submitted=START - 55)
    done = lives(story, {17: job}, START + 2)
    [told] = [each for each in done if isinstance(each, SetPodCondition) and each.annotations]
    assert told.annotations[names.JOB_ID] == "17"
    assert told.message == "Slurm job 17 holds the place of this pod, which named no job."
    assert told.warning
    see_written(story, done)
    over = replace(job, states=frozenset({"CANCELLED"}))
    assert [each for each in lives(story, {17: over}, START + 43) if isinstance(each, ENDS)]


def test_a_member_of_a_gang_whose_user_removed_the_id_while_no_bridge_ran_ends_with_the_job_of_the_gang() -> None:
    shown = gang_bound()
    story = Story(pods=(without_id(shown[0]), shown[1]))
    done = lives(story, {17: GANGS_JOB}, START + 2)
    see_written(story, done)
    over = replace(GANGS_JOB, states=frozenset({"CANCELLED"}))
    ended = [each for each in lives(story, {17: over}, START + 43) if isinstance(each, ENDS)]
    assert {each.name for each in ended} == {"w-0", "w-1"}


@pytest.mark.parametrize("nodes", ["x1", "x2"])
def test_a_pod_for_which_the_job_of_its_gang_has_no_place_does_not_get_its_id(nodes: str) -> None:
    """Another client bound it beside the gang."""
    stray = replace(member(2, 2, created=START - 60), node=nodes, phase=PodPhase.RUNNING, started=START - 50)
    story = Story(pods=(*gang_bound(), stray))
    done = lives(story, {17: GANGS_JOB}, START + 2)
    assert not [each for each in done if isinstance(each, SetPodCondition) and each.annotations]


def test_a_member_on_a_node_that_the_job_of_its_gang_does_not_hold_does_not_get_its_id() -> None:
    """Another client bound it there.  The job has a place for a second pod, but on another node."""
    elsewhere = replace(GANG[1], node="x2", phase=PodPhase.RUNNING, started=START - 50)
    story = Story(pods=(gang_bound()[0], elsewhere))
    done = lives(story, {17: GANGS_JOB}, START + 2)
    assert not [each for each in done if isinstance(each, SetPodCondition) and each.annotations]


@pytest.mark.parametrize(("created", "gets_it"), [(START - 60, True), (START + 1, False)], ids=["older", "younger"])
def test_a_pod_that_another_client_bound_in_its_granted_place_gets_the_id_only_if_it_is_older_than_this_process(
    created: float, gets_it: bool
) -> None:
    """A previous process may have bound an older pod.  No bridge has bound the younger one."""
    story, now = Story(), START + 20
    story.polls(at=now)
    what = replace(TRAIN, created=created)
    story.sees(what)
    [asked] = story.acts(AllocateNow, now)
    story.sees(replace(what, node="x1", phase=PodPhase.RUNNING))
    story.ended(asked, at=now, job_id=17, grant=grant(17))
    story.polls({17: "RUNNING"}, at=now + 1)
    assert [each.job_id for each in story.acts(ReadJob, now + 1)] == [17] * gets_it, "by Slurm's clock, since when?"
    story.reads(job_of(what, 17, submitted=now), at=now + 2, granted=grant(17))
    told = [each.annotations for each in story.acts(SetPodCondition, now + 2) if each.annotations]
    assert [each[names.JOB_ID] for each in told] == ["17"] * gets_it


# --- a time that the bridge did not write -----------------------------------------------------------------------------


@pytest.mark.parametrize("since", ["2001-01-01T00:00:00Z", "2099-01-01T00:00:00Z"])
def test_no_pod_says_that_slurm_lost_its_job_because_its_user_invented_when_slurm_had_it(since: str) -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=START + 20)
    story.reads(job_of(TRAIN, 17, submitted=START + 20), at=START + 21, granted=grant(17))
    story.polls({17: "RUNNING"}, at=START + 21)
    story.sees(replace(shown, annotations={**shown.annotations, names.JOB_SINCE: since}))
    [restore] = story.decides(START + 22)
    assert isinstance(restore, RestoreKeys)
    assert restore.annotations == {names.JOB_SINCE: None}


# --- a pod with the label of a gang, and with a node that its user chose ----------------------------------------------


@pytest.mark.parametrize("says", [{}, {"job-id": "17"}])
@pytest.mark.parametrize("on", ["x1", "x2"])
def test_a_pod_that_names_its_node_itself_does_not_end_the_gang_whose_label_it_shows(
    on: str, says: dict[str, str]
) -> None:
    story = Story()
    gang_runs(story, [member(number, 2) for number in range(2)], ("x1", 2), at=START + 20)
    story.sees(member(2, 2, created=START + 50, node=on, phase=PodPhase.RUNNING, started=START + 50, says=says))
    done = lives(story, {17: replace(GANGS_JOB, submitted=START + 20)}, START + 51)
    assert harm(done) == []
    assert {each.name for each in done if isinstance(each, SetPodCondition) and each.event == names.BYPASS} == {"w-2"}


def test_after_a_restart_such_a_pod_does_not_end_the_gang_either() -> None:
    stray = member(2, 2, created=START - 60, node="x2", phase=PodPhase.RUNNING, started=START - 50)
    story = Story(pods=(*gang_bound(), stray))
    assert harm(lives(story, {17: GANGS_JOB}, START + 2)) == []


def test_a_pod_that_another_client_binds_beside_its_gang_is_not_ended_for_a_job_that_slurm_does_not_have() -> None:
    """Another pod of the gang terminates, so this pod waits.  The other client writes an invented job id on this pod."""
    story = Story()
    shown = gang_runs(story, [member(number, 2) for number in range(2)], ("x1", 2), at=START + 20)
    story.sees(*(replace(each, deleting_at=START + 50, grace_s=600) for each in shown[1:]))
    late = member(2, 2, created=START + 50)
    story.sees(late)
    annotations = {**late.annotations, names.JOB_ID: "4000000"}
    story.sees(replace(late, node="x2", phase=PodPhase.RUNNING, started=START + 52, annotations=annotations))
    jobs = {17: replace(GANGS_JOB, submitted=START + 20)}
    done = lives(story, jobs, START + 53, seconds=5)
    story.reads(None, job_id=4000000, at=START + 58)
    done += lives(story, jobs, START + 59, seconds=60)
    assert harm(done) == []
