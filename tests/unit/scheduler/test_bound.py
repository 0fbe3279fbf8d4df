"""Bound pods and their job: which job is read and when, and what is done if it is not theirs (V7, S4b, S7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import Action, AllocateNow, CancelJob, Outcome, ReadJob, SetJobCondition, SetPodCondition
from scheduler.events import OutageBegan, Side
from scheduler.explain import explain
from scheduler.model.kubernetes import Condition, PodPhase
from scheduler.model.slurm import Job
from tests.builders import CLUSTER, START, Story, grant, job_of, key_of, pod
from tests.unit.scheduler.test_bypass import goes_on, told
from tests.unit.scheduler.test_gangs import granted, member
from tests.unit.scheduler.test_hints import OLD, RENAMED, TRAIN, bound_before

NOW = START + 60
IS_IT_ITS_OWN = "is job 17 the placeholder of hpc/train?"
WHEN_DOES_IT_END = "when does job 17 end?"
MAY_IT_BE_THEIRS = "does job 17 live, which may be theirs under another name?"


def reads(story: Story, at: float) -> list[str]:
    """Why jobs are read."""
    return [each.reason for each in story.acts(ReadJob, at)]


# --- jobs that only a pod shows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("edited", [False, True])
def test_the_job_that_a_pod_names_is_read_when_another_client_edits_the_pod(edited: bool) -> None:
    """Until then it is enough that the job runs.  Only the job of the pods shows that the edit is to be undone."""
    story = Story()
    story.polls({17: "RUNNING"}, at=START + 1)
    shown = bound_before(story, TRAIN, 17)
    story.sees(shown)
    if edited:
        story.sees(replace(shown, annotations={**shown.annotations, names.RANK: "7"}))
    assert reads(story, NOW) == [IS_IT_ITS_OWN if edited else WHEN_DOES_IT_END]


def test_the_job_that_a_pod_names_is_read_when_slurm_shows_another_state_than_running() -> None:
    """Its end may be near, or its nodes may be used by another job meanwhile."""
    story = Story()
    story.polls({17: "RUNNING"}, at=START + 1)
    story.sees(bound_before(story, TRAIN, 17))
    story.polls({17: "RUNNING SUSPENDED"}, at=NOW)
    assert reads(story, NOW) == ["what became of job 17?"]


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
def test_the_job_that_a_pod_names_is_read_when_it_ends_and_not_while_it_runs_if_only_its_twin_is_known(
    state: str,
) -> None:
    """While the twin waits, its state does not show that the job of the pod is over."""
    story = Story()
    story.polls({17: "RUNNING", 18: "PENDING"}, at=START + 1)
    story.sees(bound_before(story, TRAIN, 17))
    story.reads(job_of(TRAIN, 18, "PENDING", submitted=START - 54), at=START + 2)
    story.polls({17: state, 18: "PENDING"}, at=START + 3)
    assert (IS_IT_ITS_OWN in reads(story, START + 3)) is (state == "COMPLETED")


def test_a_job_that_slurm_lists_and_cannot_read_is_read_again_while_its_pod_runs() -> None:
    story = Story()
    story.runs(pod(), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.reads(None, job_id=17, at=NOW + 2)
    assert [each.reason for each in story.acts(ReadJob, NOW + 5)] == ["does job 17 live?"]
    story.polls({17: "PENDING"}, at=NOW + 6)
    assert story.acts(CancelJob, NOW + 6) == [], "it may be another job"


@pytest.mark.parametrize(
    ("jobs", "is_read"),
    [({17: "RUNNING"}, False), ({17: "COMPLETED"}, True), ({}, True)],
    ids=["runs", "ended", "absent"],
)
def test_a_renamed_job_is_read_again_when_it_may_be_over(jobs: dict[int, str], is_read: bool) -> None:
    story = Story()
    story.polls({17: "RUNNING"}, at=START + 1)
    story.sees(bound_before(story, TRAIN, 17))
    story.reads(RENAMED, at=START + 2)
    story.polls({17: "RUNNING"}, at=NOW)
    story.polls(jobs, at=NOW + 3)
    assert reads(story, NOW + 6) == [MAY_IT_BE_THEIRS if is_read else WHEN_DOES_IT_END]


def test_a_job_with_the_name_of_the_pod_is_kept_while_its_node_is_unknown_although_the_pod_names_a_renamed_job() -> (
    None
):
    """If the node comes back with another name in Kubernetes, the pod may be on it."""
    story = Story()
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=START + 1)
    story.sees(bound_before(story, TRAIN, 17))
    story.reads(RENAMED, at=START + 2)
    story.reads(job_of(TRAIN, 18, submitted=START - 54, nodes="x9"), at=START + 2, granted=grant(18, "x9"))
    assert story.acts(CancelJob, NOW) == []


def test_an_ended_job_that_another_pod_of_the_gang_names_is_not_read_while_the_job_of_the_gang_runs() -> None:
    story = Story()
    story.polls({17: "RUNNING", 9: "COMPLETED"}, at=START + 1)
    size = {names.SIZE: "2"}
    story.sees(
        bound_before(story, member(1, 2, **OLD), 9, **size), bound_before(story, member(0, 2, **OLD), 17, **size)
    )
    [workload] = story.world.workloads.values()
    name = f"hpc/ring~{CLUSTER}.{workload.key}"
    own = Job(17, name, "alice", frozenset({"RUNNING"}), partition="main", nodes="x1", submitted=START - 55, tasks=2)
    story.reads(own, at=NOW, granted=granted(17, ("x1", 2)))
    assert 9 not in [each.job_id for each in story.acts(ReadJob, NOW)]


# --- jobs of others --------------------------------------------------------------------------------------------------


def test_a_gang_whose_bound_pod_names_the_job_of_another_workload_shows_that_its_job_is_lost() -> None:
    story = Story()
    other = pod("other", **OLD)
    story.polls({17: "RUNNING"}, at=START + 1)
    story.sees(other)
    story.reads(job_of(other, 17, submitted=START - 50), at=START + 1, granted=grant(17, "x2"))
    story.sees(bound_before(story, member(0, 2, **OLD), 17, **{names.SIZE: "2"}), member(1, 2, **OLD))
    story.polls({17: "RUNNING"}, at=NOW)
    [said] = story.acts(SetPodCondition, NOW)
    assert said.name == "w-1"
    assert "run, but Slurm lost their job (another job has its id 17 now)" in said.message


@pytest.mark.parametrize("lives", [True, False])
def test_a_job_of_which_a_component_ended_is_ended_for_its_own_pods_alone_and_while_it_lives(lives: bool) -> None:
    """Another pod shows its id, too."""
    story = Story()
    own, other = bound_before(story, TRAIN, 17), bound_before(story, pod("other", **OLD), 17)
    story.polls({17: "RUNNING"}, at=START + 1)
    story.sees(own)
    ended = Job(18, "", "alice", frozenset({"COMPLETED"}), het_id=17, het_offset=1)
    story.reads(job_of(TRAIN, 17, submitted=START - 55, het_id=17, het_offset=0, parts=(ended,)), at=START + 2)
    story.sees(other)
    if not lives:
        story.polls({17: "COMPLETED"}, at=START + 3)
    assert [each.key for each in story.acts(CancelJob, NOW)] == [key_of(TRAIN)] * lives


def test_a_waiting_job_is_ended_at_once_if_another_client_binds_its_pod_and_names_another_job() -> None:
    story = Story()
    story.queues(pod(), 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.sees(pod(phase=PodPhase.RUNNING, node="x1", started=NOW + 2, annotations={names.JOB_ID: "4000000"}))
    assert [each.job_id for each in story.acts(CancelJob, NOW + 2)] == [17]


def test_a_pod_that_a_copy_of_the_bridge_bound_shows_at_once_that_its_job_is_suspended() -> None:
    story = Story()
    story.queues(pod(), 17, at=NOW)
    story.polls({17: "RUNNING SUSPENDED"}, at=NOW + 1)
    story.reads(job_of(pod(), 17, "RUNNING", "SUSPENDED"), at=NOW + 1, granted=grant(17))
    story.sees(pod(phase=PodPhase.RUNNING, node="x1", started=NOW + 2, annotations={names.JOB_ID: "17"}))
    [said] = story.acts(SetJobCondition, NOW + 2)
    assert said.condition == "SlurmJobSuspended"


def test_a_pod_whose_job_was_suspended_while_no_bridge_ran_shows_that_although_slurm_shows_no_grant_of_such_a_job() -> (
    None
):
    """S6: resources/{id} answers 2085 for a suspended job (Slurm facts 2), and is not asked again and again."""
    train = pod(created=START - 100, node="x1", phase=PodPhase.RUNNING, started=START - 90)
    story = Story(pods=[replace(train, annotations={names.JOB_ID: "17"})])
    story.polls({17: "SUSPENDED"}, at=NOW)

    def does(at: float) -> list[Action]:
        """The decisions; each is done at once."""
        actions = story.decides(at)
        for action in actions:
            if isinstance(action, ReadJob):
                state = "RUNNING" if at >= NOW + 12 else "SUSPENDED"
                story.reads(job_of(train, 17, state), at=at, granted=grant(17) if state == "RUNNING" else None)
            story.ended(action, at=at)
        return actions

    done = [action for after in range(12) for action in does(NOW + after)]
    assert [each.condition for each in done if isinstance(each, SetJobCondition)] == ["SlurmJobSuspended"]
    assert len([each for each in done if isinstance(each, ReadJob)]) <= 2

    story.polls({17: "RUNNING"}, at=NOW + 12)
    done = [action for after in range(12, 18) for action in does(NOW + after)]
    assert "which nodes did Slurm grant job 17?" in [each.reason for each in done if isinstance(each, ReadJob)]
    assert [each.condition for each in done if isinstance(each, SetJobCondition)] == ["SlurmJobRuns"]


# --- no job is known --------------------------------------------------------------------------------------------------


def test_a_pod_that_another_client_binds_is_not_reported_while_the_job_of_an_unanswered_request_is_looked_for() -> None:
    story = Story()
    story.sees(pod())
    [asked] = story.acts(AllocateNow, NOW)
    story.sees(pod(phase=PodPhase.RUNNING, node="x1", started=NOW + 1))
    story.ended(asked, Outcome.UNKNOWN, at=NOW + 10)
    assert told(goes_on(story, since=NOW + 10, seconds=12)) == {}
    assert told(goes_on(story, since=NOW + 22, seconds=12)).keys() == {"train"}


@pytest.mark.parametrize(("job_id", "ends"), [(17, True), (9, False)], ids=["its job", "its former job, which ended"])
def test_a_job_ends_if_a_pod_that_terminates_on_another_node_is_bound_for_it(job_id: int, ends: bool) -> None:
    """A pod of a former job of the gang may terminate for long, if its node is dead."""
    story = Story()
    story.polls({17: "RUNNING", 9: "CANCELLED"}, at=NOW)
    leaves, stays = (member(rank, 2, **OLD) for rank in range(2))
    size = {names.SIZE: "2"}
    story.sees(bound_before(story, stays, 17, **size))
    story.sees(replace(bound_before(story, leaves, job_id, **size), node="x2", deleting_at=NOW + 30))
    name = f"hpc/ring~{CLUSTER}.{story.world.key_of_pod[stays.uid]}"
    for read, states in ((9, "CANCELLED"), (17, "RUNNING")):
        job = Job(read, name, "alice", frozenset({states}), partition="main", nodes="x1", submitted=START - 55, tasks=2)
        story.reads(job, at=NOW, granted=granted(17, ("x1", 2)) if read == 17 else None)
    assert [each.job_id for each in story.acts(CancelJob, NOW)] == [17] * ends


# --- reads and cancels ------------------------------------------------------------------------------------------------


def test_no_job_is_read_while_slurm_is_away() -> None:
    story = Story()
    story.polls({17: "COMPLETED"}, at=START + 1)
    story.sees(bound_before(story, TRAIN, 17), OutageBegan(Side.SLURM, START + 2, "connection refused"))
    assert reads(story, NOW) == []


def test_a_twin_is_cancelled_once() -> None:
    story = Story()
    shown = story.runs(pod(), 17, at=NOW)
    story.polls({17: "RUNNING", 18: "PENDING"}, at=NOW + 1)
    story.reads(job_of(pod(), 18, "PENDING", submitted=NOW), at=NOW + 1)
    assert [each.job_id for each in story.acts(CancelJob, NOW + 2)] == [18]
    story.sees(replace(shown, labels={"edited": "now"}))
    assert story.acts(CancelJob, NOW + 3) == []


# --- what is looked for before another job is asked for ---------------------------------------------------------------


def test_a_waiting_pod_that_shows_an_ended_job_asks_for_another_one_without_a_read() -> None:
    story = Story()
    story.polls({17: "CANCELLED"}, at=START + 1)
    story.sees(replace(TRAIN, scheduled=Condition(False, names.PENDING, "… Job 17, as of …")))
    acts = story.decides(NOW)
    assert [type(each) for each in acts if isinstance(each, ReadJob | AllocateNow)] == [AllocateNow]


@pytest.mark.parametrize(
    ("outcome", "number", "why"),
    [
        (Outcome.UNKNOWN, None, "A submission was not answered; a job named hpc/train~"),
        (Outcome.REFUSED, 2038, "Slurm may have a job named hpc/train~"),
    ],
    ids=["no answer", "a twin"],
)
def test_a_pod_waits_while_a_job_is_looked_for_that_may_be_its_own(
    outcome: Outcome, number: int | None, why: str
) -> None:
    story = Story()
    story.sees(pod())
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, outcome, at=NOW, number=number)
    assert explain(story.world, key_of(pod()), NOW + 1).sentence.startswith(why)


# --- which of several jobs is the job of the pods ---------------------------------------------------------------------


def test_the_job_for_which_a_pod_runs_is_kept_and_an_older_twin_is_ended() -> None:
    story = Story()
    shown = story.runs(pod(), 18, at=NOW)
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW + 1)
    story.reads(job_of(shown, 18), at=NOW + 1, granted=grant(18))
    story.reads(job_of(shown, 17), at=NOW + 1, granted=grant(17))
    assert [each.job_id for each in story.acts(CancelJob, NOW + 2)] == [17]
    assert "for Slurm job 18, " in explain(story.world, key_of(shown), NOW + 2).sentence


def test_a_pod_that_names_an_unknown_job_runs_for_the_job_of_its_name_that_lives() -> None:
    """While no bridge ran, a client wrote another id.  An earlier job of the pod has ended."""
    story = Story()
    story.polls({17: "CANCELLED", 18: "RUNNING"}, at=START + 1)
    story.sees(bound_before(story, TRAIN, 4))
    story.reads(job_of(TRAIN, 17, "CANCELLED", submitted=START - 60), at=START + 2)
    story.reads(job_of(TRAIN, 18, submitted=START - 55), at=START + 2, granted=grant(18))
    assert "for Slurm job 18, " in explain(story.world, key_of(TRAIN), NOW).sentence


def test_a_gang_whose_pods_show_two_unread_jobs_runs_for_the_job_that_was_shown_last() -> None:
    story = Story()
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=START + 1)
    labels, says = {names.PREFIX + names.GANG: "ring"}, {"gang-size": "2"}
    for job_id in (17, 18):
        what = pod(f"w-{job_id}", created=START - 60, labels=labels, says=says)
        story.sees(bound_before(story, what, job_id, **{names.SIZE: "2"}))
    [workload] = story.world.workloads.values()
    assert "for Slurm job 18, " in explain(story.world, workload.key, START + 2).sentence
