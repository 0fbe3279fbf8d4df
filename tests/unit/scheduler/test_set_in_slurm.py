"""What a waiting job has in Slurm that its pods did not ask for is shown: Slurm's reason alone would mislead (Q2, S9)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import SetPodCondition, UpdateJob
from scheduler.model.slurm import Job, JobSpec
from scheduler.rules import set_in_slurm as set_in_slurm_module
from scheduler.rules.set_in_slurm import set_in_slurm
from tests.builders import START, Story, job_of, pod
from tests.unit.scheduler.test_gangs import member

NOW = START + 20
TO_DO = "You can ask the admin of Slurm to change job 17 (scontrol update), or delete the pod and create it again."


def shown(read: Job, **says: str) -> str:
    """The message of the pod's condition after this read of its waiting job; says: the pod's annotations"""
    what = pod(says={key.replace("_", "-"): value for key, value in says.items()})
    story = Story()
    story.queues(what, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.reads(replace(read, name=job_of(what, 17).name), at=NOW + 4)
    [report] = story.acts(SetPodCondition, NOW + 4)
    return report.message


def waits(reason: str, **fields: object) -> Job:
    return replace(job_of(pod(), 17, "PENDING"), reason=reason, **fields)


def test_a_pod_whose_job_an_admin_bound_to_a_node_that_it_cannot_use_does_not_only_show_that_others_are_first() -> None:
    """Slurm shows Priority for such a job, although no other job waits, and never starts it."""
    message = shown(waits("Priority", required_nodes="x9", excluded_nodes="x[8-9]"))
    assert message.endswith(
        "Job 17, as of 00:17 UTC. Set in Slurm, not by the pod: the required nodes x9, which its pod cannot use. "
        + TO_DO
    )


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (waits("Resources", required_nodes="x2"), "the required nodes x2."),
        (waits("Resources", required_nodes="x[", excluded_nodes="x2"), "the required nodes x[."),
        (waits("Resources", least_nodes=2), "2 nodes."),
        (waits("Resources", required_nodes="x[1-2]", least_nodes=2), "the required nodes x[1-2] and 2 nodes."),
        (waits("BeginTime"), "a begin time."),
        (waits("Dependency", dependency="afterok:8(unfulfilled)"), "the dependency afterok:8(unfulfilled)."),
        (waits("DependencyNeverSatisfied", dependency="afterok:8(failed)"), "the dependency afterok:8(failed)."),
        (waits("ReservationDeleted"), "a reservation."),
        (waits("ReservationInvalid"), "a reservation."),
        (waits("BadConstraints", memory_mib=99_999), "99,999 MiB of memory."),
        (waits("BadConstraints", constraints="h100"), "the constraint h100."),
    ],
)
def test_an_option_that_the_pod_did_not_ask_for_is_named_in_place_of_advice_about_an_annotation(
    read: Job, words: str
) -> None:
    message = shown(read)
    assert f" Set in Slurm, not by the pod: {words} {TO_DO}" in message
    assert "annotation" not in message


@pytest.mark.parametrize(
    ("read", "says", "advice"),
    [
        (waits("BeginTime"), {"begin": "now+1hour"}, "You can change the annotation begin."),
        (
            waits("DependencyNeverSatisfied", dependency="afterok:8(failed)"),
            {"dependency": "afterok:8"},
            "You can change or remove the annotation dependency.",
        ),
        (waits("Dependency", dependency="singleton(unfulfilled)"), {}, ""),
        (waits("Resources", least_nodes=1), {}, "You can request less, or a shorter time limit."),
        (waits("Resources", memory_mib=99_999), {}, "You can request less, or a shorter time limit."),
        (waits("Resources", constraints="h100"), {}, "You can request less, or a shorter time limit."),
        (
            waits("BadConstraints", constraints="h100", memory_mib=100),
            {"constraints": "h100"},
            "You can correct constraints, the node selector or the requests.",
        ),
    ],
)
def test_an_option_that_the_pod_or_the_bridge_asked_for_is_not_said_to_be_set_by_others(
    read: Job, says: dict[str, str], advice: str
) -> None:
    message = shown(read, **says)
    assert "Set in Slurm" not in message
    assert message.endswith(advice or "UTC.")


def test_nodes_that_the_bridge_asked_for_again_are_not_said_to_be_set_by_others() -> None:
    """The job that takes the place of a lost one must have its nodes (S7)."""
    asked = JobSpec("train", "alice", 1, 100, required_nodes="x[1-2]")
    assert set_in_slurm(asked, waits("Resources", required_nodes="x[1-2]", least_nodes=2)) == ""


@pytest.mark.parametrize(
    "read",
    [
        waits("Priority", required_nodes=",".join(f"x{number}" for number in range(5000))),
        waits("Dependency", dependency=",".join(f"afterok:{number}(unfulfilled)" for number in range(5000))),
        waits("BadConstraints", constraints="|".join(f"feature-{number}" for number in range(5000))),
    ],
    ids=["nodes", "dependency", "constraint"],
)
def test_a_long_value_that_others_set_does_not_keep_the_pod_from_saying_what_to_do(read: Job) -> None:
    """Nor does each of thousands of pods keep it in memory."""
    assert shown(read).endswith(f"…. {TO_DO}")
    assert len(set_in_slurm(JobSpec("train", "alice", 1, 100), read)) < 300


def test_a_pod_shows_no_more_that_others_set_something_when_they_have_taken_it_back() -> None:
    what, story = pod(), Story()
    story.queues(what, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.reads(waits("Resources", least_nodes=2), at=NOW + 4)
    [report] = story.acts(SetPodCondition, NOW + 4)
    story.ended(report, at=NOW + 4)
    story.reads(waits("Resources", least_nodes=1), at=NOW + 8)
    [report] = story.acts(SetPodCondition, NOW + 8)
    assert report.condition == names.PENDING
    assert "Set in Slurm" not in report.message


def test_a_pod_whose_user_took_an_option_back_does_not_show_that_others_set_it() -> None:
    """The last read of the job is older than the change, so it still shows the reason of the option."""
    what, story = pod(says={"begin": "now+1hour"}), Story()
    story.queues(what, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.reads(waits("BeginTime"), at=NOW + 4)
    [report] = story.acts(SetPodCondition, NOW + 4)
    story.ended(report, at=NOW + 4)
    story.sees(replace(what, annotations={}))
    [update] = story.acts(UpdateJob, NOW + 8)
    story.ended(update, at=NOW + 8)
    assert not story.acts(SetPodCondition, NOW + 12)
    story.reads(waits("BeginTime"), at=NOW + 12)
    [report] = story.acts(SetPodCondition, NOW + 12)
    assert "Set in Slurm, not by the pod: a begin time." in report.message


def test_a_gang_asks_for_more_nodes_and_memory_than_one_of_its_pods() -> None:
    asked = JobSpec("ring", "alice", 1, 100, tasks=2)
    assert not set_in_slurm(asked, waits("BadConstraints", least_nodes=2, memory_mib=200))


@pytest.mark.parametrize("second_cpu", [1000, 2000], ids=["of one shape", "of two shapes"])
def test_a_gang_does_not_show_that_others_set_its_nodes_and_memory_which_slurm_counts_for_all_of_its_pods(
    second_cpu: int,
) -> None:
    story, pods = Story(), [member(0, 2), member(1, 2, cpu=second_cpu)]
    story.sees(pods[0])
    submit = story.queues(pods[1], 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    read = waits("BadConstraints", least_nodes=2, memory_mib=99_999)
    story.reads(replace(read, name=submit.spec.name), at=NOW + 4)
    reports = story.acts(SetPodCondition, NOW + 4)
    assert len(reports) == 2
    assert not [report for report in reports if "Set in Slurm" in report.message]


def test_what_a_user_sets_in_the_job_of_a_large_gang_is_worked_out_once_and_not_for_each_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To expand the nodes that a job must not have takes milliseconds in a large cluster."""
    story, pods = Story(), [member(number, 9) for number in range(9)]
    story.sees(*pods[1:])
    submit = story.queues(pods[0], 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    expanded = list[str]()

    def counted(text: str) -> list[str]:
        expanded.append(text)
        return [text]

    monkeypatch.setattr(set_in_slurm_module, "expand", counted)
    read = waits("Priority", required_nodes="only-here", excluded_nodes="far-away", name=submit.spec.name)
    story.reads(read, at=NOW + 4)
    reports = story.acts(SetPodCondition, NOW + 4)
    assert len(reports) == 9
    assert all("Set in Slurm, not by the pod: the required nodes only-here. " in each.message for each in reports)
    assert sorted(expanded) == ["far-away", "only-here"]


def test_a_dependency_that_is_gone_from_the_job_before_its_reason_changes_is_not_named() -> None:
    assert "Set in Slurm" not in shown(waits("Dependency", dependency=""))


def test_the_next_process_shows_what_others_set_in_a_waiting_job_too() -> None:
    what = pod(created=START - 60)
    story = Story(pods=(what,))
    story.polls({17: "PENDING"}, at=NOW)
    said = list[str]()
    for at in (NOW + second for second in range(10)):
        story.reads(waits("BeginTime", submitted=START - 50), at=at)
        for action in story.decides(at):
            story.ended(action, at=at)
            said += [action.message] if isinstance(action, SetPodCondition) else []
    assert "Set in Slurm, not by the pod: a begin time." in said[-1]
