"""Which limit holds a job back, and its value, on its pod (Q2)."""

from __future__ import annotations

from dataclasses import replace

from scheduler.actions import Action, Outcome, ReadLimits, SetPodCondition
from scheduler.apply.job_results import MOST_LIMITS
from scheduler.events import AccountingOutageBegan, LimitsRead, SlurmNodesPolled
from scheduler.model.kubernetes import Condition
from scheduler.model.limits import KnownLimits, Limit, LimitsOf
from scheduler.model.slurm import Job, Partition
from tests.builders import CONFIG, START, Story, job_of, pod, slurm_node

NOW = START + 20
TRAIN = pod("train")
WITH_ACCOUNTING = replace(CONFIG, accounting=True)
OF = LimitsOf("alice", "teama", "normal")
GPUS = Limit("GrpTRES", "gres/gpu", 4, account="teama", user="alice")
CPUS = Limit("GrpTRES", "cpu", 100, account="teama")
OF_QOS = Limit("GrpTRES", "gres/gpu", 2, qos="normal")


def waits(what: object = TRAIN, job_id: int = 17, reason: str = "AssocGrpGRES", **fields: object) -> Job:
    job = job_of(what, job_id, "PENDING")
    return replace(job, reason=reason, account="teama", qos="normal", **fields)


def queued(config: object = WITH_ACCOUNTING) -> Story:
    story = Story(config)
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 0.5)
    return story


def of_kind(actions: list[Action], kind: type) -> list[Action]:
    return [each for each in actions if isinstance(each, kind)]


def answered(story: Story, read: Action, *limits: Limit, at: float) -> None:
    assert isinstance(read, ReadLimits)
    story.sees(LimitsRead(read.of, KnownLimits(at, limits)))
    story.ended(read, at=at)


def said(story: Story, at: float) -> str:
    [report] = story.acts(SetPodCondition, at)
    return report.message


def test_a_pod_says_the_value_of_the_limit_and_whose_it_is() -> None:
    story = queued()
    story.reads(waits(), at=NOW + 1)
    decided = story.decides(NOW + 1)
    assert of_kind(decided, SetPodCondition) == [], "it waits a moment for the value"
    [read] = of_kind(decided, ReadLimits)
    assert read == ReadLimits(read.key, OF, "the limits of alice in account teama")
    answered(story, read, GPUS, CPUS, OF_QOS, at=NOW + 1.1)
    message = said(story, NOW + 1.1)
    assert "(AssocGrpGRES: its account allows all its jobs together no more GRES such as GPUs now " in message
    assert "(GrpTRES=gres/gpu=4 of user alice in account teama)). Job 17" in message


def test_a_limit_of_a_qos_is_not_mistaken_for_one_of_an_association() -> None:
    story = queued()
    story.reads(waits(reason="QOSGrpGRES"), at=NOW + 1)
    [read] = story.acts(ReadLimits, NOW + 1)
    answered(story, read, GPUS, OF_QOS, at=NOW + 1.1)
    assert "(GrpTRES=gres/gpu=2 of QOS normal)" in said(story, NOW + 1.1)


def test_several_limits_that_may_be_meant_are_all_shown() -> None:
    story = queued()
    story.reads(waits(reason="AssocGrpCpuLimit"), at=NOW + 1)
    [read] = story.acts(ReadLimits, NOW + 1)
    answered(story, read, CPUS, replace(CPUS, value=7, account="top"), at=NOW + 1.1)
    assert "(GrpTRES=cpu=100 of account teama; GrpTRES=cpu=7 of account top)" in said(story, NOW + 1.1)


def test_a_pod_says_its_reason_without_a_value_if_the_value_does_not_come() -> None:
    story = queued()
    story.reads(waits(), at=NOW + 1)
    [read] = story.acts(ReadLimits, NOW + 1)
    assert story.acts(SetPodCondition, NOW + 1.9) == []
    assert "(GrpTRES=gres/…)" in said(story, NOW + 2)
    answered(story, read, GPUS, at=NOW + 3)
    assert story.acts(SetPodCondition, NOW + 30) == [], "a value that comes late is no news"


def test_limits_that_cannot_be_read_are_not_asked_for_at_once_again() -> None:
    story = queued()
    story.reads(waits(), at=NOW + 1)
    [read] = story.acts(ReadLimits, NOW + 1)
    story.ended(read, Outcome.REFUSED, at=NOW + 1.1, number=2002)
    assert "(GrpTRES=gres/…)" in said(story, NOW + 1.1)
    story.reads(waits(), at=NOW + 30)
    assert story.acts(ReadLimits, NOW + 30) == []
    story.reads(waits(), at=NOW + 70)
    assert len(story.acts(ReadLimits, NOW + 70)) == 1


def test_the_jobs_of_a_user_in_an_account_share_one_read() -> None:
    story, others = Story(WITH_ACCOUNTING, checked=False), [pod(f"p{number}") for number in range(5)]
    for number, each in enumerate(others, 20):
        story.queues(each, number, at=NOW)
    story.polls(dict.fromkeys(range(20, 25), "PENDING"), at=NOW + 0.5)
    for number, each in enumerate(others, 20):
        story.reads(waits(each, number), at=NOW + 1)
    [read] = story.acts(ReadLimits, NOW + 1)
    answered(story, read, GPUS, at=NOW + 1.1)
    reports = [each for step in range(3) for each in story.acts(SetPodCondition, NOW + 1.1 + step)]
    assert len(reports) == 5
    assert all("=4 of user alice" in report.message for report in reports)


def test_nothing_is_asked_without_slurmdbd_or_for_another_reason() -> None:
    for story, job in (
        (queued(CONFIG), waits()),
        (queued(), waits(reason="Resources")),
        (queued(), waits(reason="AccountingPolicy")),
        (queued(), replace(waits(), account="")),
    ):
        story.reads(job, at=NOW + 1)
        decided = story.decides(NOW + 1)
        assert not of_kind(decided, ReadLimits)
        assert of_kind(decided, SetPodCondition)
    away = queued()
    away.sees(AccountingOutageBegan(NOW, "slurmdbd does not answer."))
    away.reads(waits(), at=NOW + 1)
    assert not of_kind(away.decides(NOW + 1), ReadLimits)


def test_the_qos_of_the_partition_is_asked_for_too() -> None:
    story = queued()
    story.sees(SlurmNodesPolled((slurm_node("x1"),), (Partition("main", default=True, qos="part"),), NOW + 0.6))
    story.reads(waits(reason="QOSGrpCpuLimit"), at=NOW + 1)
    [read] = story.acts(ReadLimits, NOW + 1)
    assert read.of.partition_qos == "part"


def test_a_restart_writes_nothing_because_the_value_is_not_known_yet() -> None:
    story = queued()
    story.reads(waits(), at=NOW + 1)
    [read] = story.acts(ReadLimits, NOW + 1)
    answered(story, read, GPUS, at=NOW + 1.1)
    message = said(story, NOW + 1.1)
    next_life = Story(started=NOW + 2)  # without accounting: it never learns the value
    next_life.sees(replace(TRAIN, scheduled=Condition(False, "SlurmJobPending", message)))
    next_life.polls({17: "PENDING"}, at=NOW + 30)
    next_life.reads(waits(), at=NOW + 30)
    assert [each for step in range(10) for each in next_life.acts(SetPodCondition, NOW + 30 + step)] == []


def test_the_number_of_limits_that_are_kept_is_bounded() -> None:
    story = Story(WITH_ACCOUNTING)
    for number in range(MOST_LIMITS + 1):
        story.sees(LimitsRead(OF._replace(user=f"u{number}"), KnownLimits(NOW)))
    assert len(story.world.limits) == MOST_LIMITS
    assert OF._replace(user="u0") not in story.world.limits


def test_a_job_whose_limits_were_read_long_ago_shows_them_while_they_are_read_again() -> None:
    story = queued()
    story.reads(waits(), at=NOW + 1)
    [read] = story.acts(ReadLimits, NOW + 1)
    answered(story, read, GPUS, replace(GPUS, name="GrpTRESMins"), at=NOW + 1.1)
    assert "(GrpTRES=gres/gpu=4 of user alice in account teama)" in said(story, NOW + 1.1)
    later = NOW + 1.1 + CONFIG.tuning.limits_every_s
    story.reads(waits(reason="QOSGrpGRES"), at=later)
    acts = story.decides(later)
    assert len(of_kind(acts, ReadLimits)) == len(of_kind(acts, SetPodCondition)) == 1


def test_a_pod_does_not_wait_for_its_turn_to_read_limits() -> None:
    story, others = Story(WITH_ACCOUNTING, checked=False), [pod(f"p{number}") for number in range(5)]
    for number, each in enumerate(others, 20):
        story.queues(each, number, at=NOW)
    story.polls(dict.fromkeys(range(20, 25), "PENDING"), at=NOW + 0.5)
    for number, each in enumerate(others, 20):
        story.reads(replace(waits(each, number), account=f"team{number}"), at=NOW + 1)
    plan = story.plan(NOW + 1)
    assert len(of_kind(list(plan.actions), ReadLimits)) < 5
    assert plan.parked == {}
