"""One side does not answer: bound pods run on, waiting pods say so, and work continues by itself (X1, X2)."""

from __future__ import annotations

from scheduler.actions import (
    Action,
    AllocateNow,
    BindPod,
    CancelJob,
    DeletePod,
    ReadJob,
    SetPodCondition,
    SubmitJob,
    UpdateJob,
)
from scheduler.events import AccountingOutageBegan, AccountingOutageEnded, OutageBegan, OutageEnded, Side
from scheduler.model.kubernetes import PodPhase
from tests.builders import START, Story, grant, job_of, pod

NOW = START + 20
DOWN = OutageBegan(Side.SLURM, NOW + 1, "slurmrestd does not answer.")
UP = OutageEnded(Side.SLURM, NOW + 31)


def calls_of_slurm(actions: list[Action]) -> list[Action]:
    return [each for each in actions if isinstance(each, AllocateNow | SubmitJob | CancelJob | UpdateJob | ReadJob)]


def test_a_pod_that_comes_in_an_outage_says_so_and_goes_on_by_itself() -> None:
    story = Story()
    story.sees(DOWN, pod("train"))
    assert story.decides(NOW + 2) == [], "a hiccup is not a write on every waiting pod"
    [said] = story.decides(NOW + 4)
    assert isinstance(said, SetPodCondition)
    assert (said.condition, said.warning) == ("SlurmUnavailable", True)
    assert said.message == (
        "Slurm has not been usable since 00:17 UTC. The pod waits to be submitted. The admin sees why in /readyz."
    )
    assert story.decides(NOW + 20) == []
    story.sees(UP)
    assert [type(each) for each in story.decides(NOW + 31)] == [AllocateNow]


def test_a_waiting_pod_says_so_and_later_why_it_waits() -> None:
    story = Story()
    story.queues(pod("train"), 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 0.5)
    story.sees(DOWN)
    [said] = story.decides(NOW + 4)
    assert isinstance(said, SetPodCondition)
    assert said.message == (
        "Slurm has not been usable since 00:17 UTC. The pod waits in its queue as job 17. The admin sees why in /readyz."
    )
    story.sees(UP)
    story.polls({17: "PENDING"}, at=NOW + 32)
    story.reads(job_of(pod("train"), 17, "PENDING", reason="Priority"), at=NOW + 32)
    [said] = story.acts(SetPodCondition, NOW + 32)
    assert said.message.startswith("Waiting in Slurm partition main (Priority")


def test_a_pod_that_was_about_to_be_bound_says_so() -> None:
    """Which nodes its job holds was just being asked."""
    story = Story()
    story.queues(pod("train"), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 0.5)
    assert [type(each) for each in story.decides(NOW + 0.5)] == [ReadJob]
    story.sees(DOWN)
    assert story.decides(NOW + 2) == []
    [said] = story.decides(NOW + 4)
    assert isinstance(said, SetPodCondition)
    assert said.message == (
        "Slurm has not been usable since 00:17 UTC. The pod waits to be bound for job 17. The admin sees why in /readyz."
    )


def test_nothing_is_asked_of_a_slurm_that_does_not_answer() -> None:
    story = Story()
    shown = story.runs(pod("runs"), 17, at=NOW)
    story.queues(pod("waits"), 18, at=NOW)
    story.polls({17: "RUNNING", 18: "PENDING", 99: "RUNNING"}, at=NOW + 0.5)
    story.sees(DOWN)
    story.sees(pod("new"))
    story.loses(pod("waits"), NOW + 2)
    story.sees(story.bound(pod("runs"), 17, phase=PodPhase.SUCCEEDED))
    for second in range(2, 30):
        assert calls_of_slurm(story.decides(NOW + second)) == []

    story.sees(UP)
    acts = story.decides(NOW + 31)
    assert [type(each) for each in acts if isinstance(each, AllocateNow | SubmitJob)] != []
    assert [each for each in acts if isinstance(each, CancelJob)] == [], "an id may have been given out again meanwhile"
    for job_id, name in ((17, "runs"), (18, "waits")):
        [read] = [each for each in acts if isinstance(each, ReadJob) and each.job_id == job_id]
        story.reads(job_of(pod(name), job_id, "RUNNING"), at=NOW + 31.5)
        story.ended(read, at=NOW + 31.6)
    cancels = story.acts(CancelJob, NOW + 32)
    assert {each.job_id for each in cancels} == {17, 18}
    assert shown.node == "x1"


def test_bound_pods_live_on() -> None:
    story = Story()
    story.runs(pod("runs"), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 0.5)
    story.sees(DOWN)
    for minute in range(1, 60):
        assert story.decides(NOW + 60 * minute) == []


def test_after_an_outage_what_is_known_by_its_id_alone_is_read_again() -> None:
    story = Story()
    story.runs(pod("runs"), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 0.5)
    story.sees(DOWN, UP)
    [read] = story.acts(ReadJob, NOW + 31)
    assert read.job_id == 17


def test_the_first_reason_stays_and_a_side_that_was_not_lost_cannot_come_back() -> None:
    story = Story()
    story.sees(DOWN, OutageBegan(Side.SLURM, NOW + 5, "another."))
    assert story.world.outages[Side.SLURM] == DOWN
    story.sees(UP, UP)
    assert story.world.outages == {}
    assert story.decides(NOW + 40) == []


def test_an_outage_of_kubernetes_does_not_stop_submissions() -> None:
    story = Story()
    story.sees(OutageBegan(Side.KUBERNETES, NOW, "the API server does not answer."), pod("train"))
    assert len(story.acts(AllocateNow, NOW + 1)) == 1
    story.sees(OutageEnded(Side.KUBERNETES, NOW + 2))
    assert story.world.outages == {}


def test_a_grant_from_before_the_outage_waits_for_fresh_news() -> None:
    """What is known of the job is old news: it may have ended meanwhile."""
    story = Story()
    story.queues(pod("train"), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 0.5)
    story.sees(DOWN)
    assert not any(isinstance(each, BindPod | ReadJob | DeletePod) for each in story.decides(NOW + 2))
    story.sees(UP)
    assert {each.job_id for each in story.acts(ReadJob, NOW + 31)} == {17}


def test_after_an_outage_a_grant_is_read_again_before_a_pod_is_bound_to_it() -> None:
    """slurmctld may have come back without its newest state, and given the id to another job."""
    story = Story()
    train = pod("train")
    story.queues(train, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 0.5)
    story.reads(job_of(train, 17), at=NOW + 0.6, granted=grant(17))
    story.polls({17: "RUNNING"}, at=NOW + 0.8)
    story.sees(OutageBegan(Side.SLURM, NOW + 0.9, "slurmrestd does not answer."), OutageEnded(Side.SLURM, NOW + 1.2))
    acts = story.decides(NOW + 1.2)
    assert [type(each) for each in acts if isinstance(each, BindPod | ReadJob)] == [ReadJob]
    story.reads(job_of(train, 17), at=NOW + 1.3, granted=grant(17))
    story.ended(acts[0], at=NOW + 1.3)
    assert [each.job_id for each in story.acts(BindPod, NOW + 1.3)] == [17]


def test_an_outage_of_slurmdbd_counts_from_its_first_sign() -> None:
    story = Story()
    story.sees(AccountingOutageBegan(NOW, "It is down."), AccountingOutageBegan(NOW + 5, "It is still down."))
    assert story.world.accounting_outage == AccountingOutageBegan(NOW, "It is down.")
    story.sees(AccountingOutageEnded(NOW + 9))
    assert story.world.accounting_outage is None
