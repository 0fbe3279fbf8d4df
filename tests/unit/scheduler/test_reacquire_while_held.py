"""Many jobs vanished (X6): the nodes of their pods are asked for repeatedly, before pods that wait, and at `release` (S7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from scheduler import names
from scheduler.actions import (
    Action,
    AllocateNow,
    CancelJob,
    DeletePod,
    FailByDeadline,
    Outcome,
    ReadJob,
    SetPodCondition,
    SubmitJob,
)
from scheduler.events import AbsenceConfirmed, NamespaceSeen, OutageBegan, OutageEnded, Side
from scheduler.model.kubernetes import Namespace, Pod, PodPhase
from scheduler.model.slurm import Job
from tests.builders import CONFIG, START, Story, grant, job_of, key_of, node, pod, told_by, without
from tests.unit.scheduler.test_gangs import launched, launcher_and_workers

NOW = START + 20
COUNT = 12
FULL, QUEUE_BEFORE = 2016, 2013

Answer = Callable[["Site", AllocateNow, float], None]


def refuses(site: Site, asked: AllocateNow, at: float) -> None:
    site.story.ended(asked, Outcome.REFUSED, at=at, number=FULL)


def others_wait(site: Site, asked: AllocateNow, at: float) -> None:
    site.story.ended(asked, Outcome.REFUSED, at=at, number=QUEUE_BEFORE)


def grants(site: Site, asked: AllocateNow, at: float) -> None:
    job_id = site.makes_job(asked.key)
    site.story.ended(asked, at=at, job_id=job_id, grant=grant(job_id, asked.spec.required_nodes or "x1"))


class Site:
    """Pods run; then Slurm lists none of their jobs, and reads find none.  Each second has a list, and answers to all calls.

    jobs    the jobs that Slurm has now; made: the pod of each job that was made since
    asked   when the nodes of which workload were asked for
    ends    UIDs of the pods that the bridge ended
    said    the conditions that the bridge set on the pods
    """

    def __init__(self, count: int = COUNT) -> None:
        self.story = Story(without(CONFIG, reacquire_rate=50.0, submits=50, reads=50), nodes=[node("x1"), node("x2")])
        self.pods = [self.story.runs(pod(f"p{number}"), 17 + number, at=NOW) for number in range(count)]
        self.story.polls({17 + number: "RUNNING" for number in range(count)}, at=NOW + 1)
        self.jobs: dict[int, str] = {}
        self.made: dict[int, Pod] = {}
        self.asked: list[tuple[float, str]] = []
        self.submitted: list[tuple[float, str]] = []
        self.ends: set[str] = set()
        self.said: list[SetPodCondition] = []
        self.at = NOW + 4

    def lives(self, seconds: float, answer: Answer = refuses, *, away: bool = False) -> None:
        """Live for that many seconds."""
        for _ in range(int(seconds)):
            self.at += 1
            if not away:
                self.story.polls(self.jobs, at=self.at)
            for action in self.story.decides(self.at):
                self._performs(action, answer)

    def _performs(self, action: Action, answer: Answer) -> None:
        match action:
            case ReadJob():
                found = job_of(self.made[action.job_id], action.job_id) if action.job_id in self.made else None
                self.story.reads(found, job_id=action.job_id, at=self.at, granted=grant(found.id) if found else None)
                self.story.ended(action, at=self.at)
            case AllocateNow() if action.spec.required_nodes:
                self.asked.append((self.at, action.key))
                answer(self, action, self.at)
            case AllocateNow() | SubmitJob():
                self.submitted.append((self.at, action.key))
                self.story.ended(action, Outcome.REFUSED, at=self.at, number=FULL)
            case CancelJob():
                self.jobs[action.job_id] = "CANCELLED"
                self.story.ended(action, at=self.at)
            case DeletePod() | FailByDeadline():
                self.ends.add(action.uid)
                self.story.ended(action, at=self.at)
            case SetPodCondition():
                self.said.append(action)
                self.story.ended(action, at=self.at)
            case _:
                self.story.ended(action, at=self.at)

    def makes_job(self, key: str) -> int:
        """Slurm starts a job of that workload.  Returns its id."""
        job_id = 1000 + len(self.made)
        self.jobs[job_id], self.made[job_id] = "RUNNING", next(each for each in self.pods if key_of(each) == key)
        return job_id

    def tries(self, what: Pod) -> list[float]:
        return [at for at, key in self.asked if key == key_of(what)]

    def runs_in_a_new_job(self, what: Pod) -> bool:
        workload = self.story.world.workloads[key_of(what)]
        return any(job.alive for job in self.story.world.jobs_of(workload))


def test_while_the_pods_are_held_a_refused_attempt_is_repeated_ever_more_slowly() -> None:
    site = Site()
    site.lives(600, others_wait)
    assert site.ends == set()
    for each in site.pods:
        tries = site.tries(each)
        pauses = [after - before for before, after in pairwise(tries)]
        assert pauses[:5] == [1, 2, 4, 8, 16]
        assert set(pauses[6:]) == {60}, "as S14 says"


def test_pods_that_are_refused_repeatedly_run_on_in_new_jobs_when_there_is_room() -> None:
    site = Site()
    site.lives(200)
    site.lives(70, grants)
    assert site.ends == set()
    assert all(site.runs_in_a_new_job(each) for each in site.pods)
    assert site.story.world.held_back_since is None
    before = len(site.asked)
    site.lives(300)
    assert len(site.asked) == before, "once they have a job, nothing is asked for again"


def test_a_held_pod_says_that_it_is_held_however_often_it_is_asked_for() -> None:
    site = Site()
    site.lives(200)
    said = [told for each in site.story.world.workloads.values() for told in told_by(each)]
    assert len(said) == COUNT
    assert all("Nothing is ended until Slurm lists these jobs again" in told.message for told in said)
    assert {told.at <= NOW + 20 for told in said} == {True}, "the words do not change, so they are written once"
    assert [(each.event, each.warning) for each in site.said] == [(names.ABSENCE, True)] * COUNT


def test_a_held_pod_says_nothing_before_the_first_attempt_to_get_its_nodes_is_answered() -> None:
    """Slurm usually grants the nodes, and then there is nothing to say."""
    site = Site()
    site.lives(10, lambda site, asked, at: None)
    assert len(site.asked) == COUNT
    assert [each.last_status for each in site.story.world.workloads.values()] == [{}] * COUNT


def test_that_the_nodes_of_a_held_pod_cannot_be_asked_for_is_noted_once() -> None:
    """Each such note makes another pass begin, which visits the pods that waited."""
    site = Site()
    first = site.pods[0]
    site.story.sees(replace(first, annotations=first.annotations | {names.PREFIX + names.TIME_LIMIT: "soon"}))
    noted: Counter[str] = Counter()
    for _ in range(200):
        site.at += 1
        site.story.polls({}, at=site.at)
        plan = site.story.plan(site.at)
        noted.update(key for key, _ in plan.not_asked_for)
        for action in plan.actions:
            site._performs(action, refuses)
    assert noted == {key_of(first): 1}


def test_release_with_room_ends_no_pod() -> None:
    site = Site()
    site.lives(200)
    site.story.sees(AbsenceConfirmed(site.at))
    site.lives(20, grants)
    assert site.ends == set()
    assert all(site.runs_in_a_new_job(each) for each in site.pods)


def test_release_without_room_asks_once_more_at_once_and_then_ends_the_pods() -> None:
    site = Site()
    site.lives(200)
    asked, released = len(site.asked), site.at
    site.story.sees(AbsenceConfirmed(released))
    site.lives(20)
    later = site.asked[asked:]
    assert Counter(key for _, key in later) == {key_of(each): 1 for each in site.pods}
    assert {at for at, _ in later} == {released + 1}, "without what was left of the pause"
    assert site.ends == {each.uid for each in site.pods}


def test_a_second_release_starts_nothing_anew_for_pods_that_are_being_ended() -> None:
    site = Site()
    site.lives(100)
    site.story.sees(AbsenceConfirmed(site.at))
    site.lives(5)
    asked = len(site.asked)
    site.story.sees(AbsenceConfirmed(site.at))
    site.lives(20)
    assert len(site.asked) == asked


def test_slurmctld_away_meanwhile_is_asked_nothing_and_asked_at_once_when_it_is_back() -> None:
    site = Site()
    site.lives(200)
    asked = len(site.asked)
    site.story.sees(OutageBegan(Side.SLURM, site.at, "slurmrestd does not answer."))
    site.lives(100, away=True)
    assert (len(site.asked), site.ends) == (asked, set())
    site.story.sees(OutageEnded(Side.SLURM, site.at))
    site.lives(3, grants)
    assert all(site.runs_in_a_new_job(each) for each in site.pods)
    assert site.ends == set()


def test_a_bridge_that_is_restarted_meanwhile_goes_on_asking() -> None:
    """It knows the lost jobs only by the ids that the pods show."""
    before = Site()
    before.lives(100)
    after = Site.__new__(Site)
    after.__dict__.update(before.__dict__ | {"asked": []})
    after.story = Story(before.story.world.config, (node("x1"), node("x2")), started=before.at, pods=before.pods)
    after.lives(300)
    assert after.ends == set()
    assert all(len(after.tries(each)) > 5 for each in after.pods)
    after.lives(70, grants)
    assert all(after.runs_in_a_new_job(each) for each in after.pods)
    assert after.ends == set()


def test_a_pod_that_ends_meanwhile_is_asked_for_no_more() -> None:
    site = Site()
    site.lives(100)
    ended, *_ = site.pods
    site.story.sees(site.story.bound(ended, 17, phase=PodPhase.SUCCEEDED))
    asked = len(site.tries(ended))
    site.lives(200)
    assert len(site.tries(ended)) == asked
    assert site.ends == set()


def test_the_job_of_a_pod_that_ended_while_it_was_asked_for_is_ended() -> None:
    site = Site()
    site.lives(100)
    ended, *_ = site.pods

    def ends_first(site: Site, asked: AllocateNow, at: float) -> None:
        if asked.key == key_of(ended):
            site.story.sees(site.story.bound(ended, 17, phase=PodPhase.SUCCEEDED))
        grants(site, asked, at)

    site.lives(70, ends_first)
    workload = site.story.world.workloads[key_of(ended)]
    assert not any(job.alive for job in site.story.world.jobs_of(workload))
    assert list(site.jobs.values()).count("CANCELLED") == 1


def test_an_attempt_whose_answer_was_lost_is_looked_up_before_the_next_one() -> None:
    """It made the job: no second one is asked for."""
    site = Site()
    site.lives(100)
    first, *_ = site.pods

    def unheard(site: Site, asked: AllocateNow, at: float) -> None:
        if asked.key != key_of(first):
            refuses(site, asked, at)
            return
        site.makes_job(asked.key)
        site.story.ended(asked, Outcome.UNKNOWN, at=at)

    asked = len(site.tries(first))
    site.lives(200, unheard)
    assert len(site.tries(first)) == asked + 1
    assert site.runs_in_a_new_job(first)


def test_attempts_that_are_never_answered_wait_for_the_search_each_time() -> None:
    site = Site()

    def unheard(site: Site, asked: AllocateNow, at: float) -> None:
        site.story.ended(asked, Outcome.UNKNOWN, at=at)

    site.lives(200, unheard)
    for each in site.pods:
        tries = site.tries(each)
        assert min(after - before for before, after in pairwise(tries)) >= 12
    assert site.ends == set()


# --- pods that run come before pods that wait ---------------------------------------------------------------------------


def test_a_pod_that_waits_is_submitted_when_slurm_has_answered_for_the_pods_that_run() -> None:
    """Any job that waits makes Slurm refuse the nodes to them, and any job that starts may take the nodes."""
    site = Site(count=3)
    new = pod("new", created=NOW + 3)
    site.story.sees(new)
    unsent: list[AllocateNow] = []

    def later(site: Site, asked: AllocateNow, at: float) -> None:
        unsent.append(asked)

    site.at = NOW + 4
    site.story.polls({}, at=NOW + 4)
    site.lives(20, later)
    assert site.submitted == [], "from the first list that lacks the jobs on"
    [said] = told_by(site.story.world.workloads[key_of(new)])
    assert said.message == (
        "Slurm lost jobs of pods that run. slurm-bridge asks for the nodes of those pods first; it submits this pod after "
        "that, at 00:19:04 UTC at the latest."
    )
    for asked in unsent:
        grants(site, asked, site.at)
    site.lives(2)
    assert [key for _, key in site.submitted][:1] == [key_of(new)]


def test_pods_that_are_held_for_hours_keep_no_other_pod_from_being_submitted() -> None:
    site = Site()
    site.lives(30)
    site.story.sees(pod("new", created=site.at))
    site.lives(2)
    assert len(site.submitted) > 0


@pytest.mark.parametrize("number", [2068, 1007], ids=["the node is down", "the token is refused"])
def test_a_pod_that_waits_is_submitted_after_two_minutes_whatever_became_of_the_pods_that_run(number: int) -> None:
    site = Site(count=1)
    site.story.polls({}, at=NOW + 4)
    site.story.sees(pod("new", created=NOW + 4))

    def fails(site: Site, asked: AllocateNow, at: float) -> None:
        site.story.ended(asked, Outcome.REFUSED, at=at, number=number)

    site.lives(130, fails)
    first, _ = site.submitted[0]
    assert NOW + 4 + 120 <= first <= NOW + 4 + 122


def test_an_id_that_a_user_invented_delays_nobody() -> None:
    site = Site(count=0)
    site.story.sees(pod("liar", created=NOW + 3, node="x1", annotations={names.JOB_ID: "4711"}))
    site.story.sees(pod("new", created=NOW + 4))
    site.lives(1)
    assert [at for at, _ in site.submitted][:1] == [site.at]


def test_a_job_that_is_missing_for_one_list_delays_no_pod_for_longer() -> None:
    site = Site(count=1)
    site.story.polls({}, at=NOW + 4)
    site.story.sees(pod("new", created=NOW + 4))
    acts = site.story.decides(NOW + 4)
    assert not [each for each in acts if isinstance(each, AllocateNow | SubmitJob | CancelJob | SetPodCondition)]
    site.jobs[17] = "RUNNING"
    site.lives(1)
    assert [key for _, key in site.submitted][:1] == [key_of(pod("new"))]
    assert not [each for each in site.story.acts(SetPodCondition, site.at) if each.name == "new"]


def test_a_pod_whose_nodes_cannot_be_asked_for_again_delays_no_pod_while_it_ends() -> None:
    """Its user has made an annotation unreadable.  For two minutes no pod was submitted, though nothing was asked for."""
    story = Story()
    unlike = {names.PREFIX + names.TIME_LIMIT: "soon"}
    train = story.runs(pod("train"), 17, on="x2", at=NOW)
    story.sees(replace(train, annotations=train.annotations | unlike))
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.world.clocks[Side.SLURM].is_known = True
    new = pod("new", created=NOW + 4)
    story.sees(new)
    did: list[Action] = []
    for at in (NOW + 5, NOW + 7, NOW + 8):
        story.polls({}, at=at)
        for action in story.decides(at):
            did.append(action)
            if isinstance(action, ReadJob):
                story.reads(None, job_id=action.job_id, at=at)
                story.ended(action, at=at)
    assert [each.name for each in did if isinstance(each, FailByDeadline)] == ["train"]
    assert [each.key for each in did if isinstance(each, AllocateNow)] == [key_of(new)]


def test_a_held_pod_whose_nodes_cannot_be_asked_for_again_delays_no_pod() -> None:
    """Its user has made an annotation unreadable.  For two minutes no pod was submitted, though nothing was asked for."""
    site = Site()
    first = site.pods[0]
    site.story.sees(replace(first, annotations=first.annotations | {names.PREFIX + names.TIME_LIMIT: "soon"}))
    new = pod("new", created=site.at)
    site.story.sees(new)
    site.lives(10)
    assert site.tries(first) == []
    assert all(site.tries(each) for each in site.pods[1:])
    assert key_of(new) in [key for _, key in site.submitted]
    assert site.ends == set()
    site.story.sees(first)
    site.lives(65)
    assert site.tries(first) != [], "its nodes are asked for when its annotation can be read"


def submits_new(story: Story, at: float) -> bool:
    """A pod comes.  True if it is submitted in the next pass."""
    new = pod("new", created=at)
    story.sees(new)
    return any(isinstance(each, AllocateNow | SubmitJob) and each.key == key_of(new) for each in story.decides(at))


def runs_as_17() -> Story:
    story = Story()
    story.runs(pod("train"), 17, on="x2", at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    return story


def answers_reads(story: Story, at: float, *jobs: Job) -> None:
    known = {job.id: job for job in jobs}
    for read in story.acts(ReadJob, at):
        if read.job_id in known:
            story.reads(known[read.job_id], at=at, granted=grant(read.job_id, "x2"))
            story.ended(read, at=at)


def its_job_is_missing() -> Story:
    story = runs_as_17()
    story.polls({}, at=NOW + 5)
    return story


def a_previous_process_bound_it() -> Story:
    story = Story()
    story.sees(story.bound(pod("train", created=START - 60), 17, "x2", started=START - 50))
    story.polls({}, at=NOW + 5)
    return story


def its_namespace_is_not_managed() -> Story:
    other = pod("train", namespace="other")
    story = Story()
    story.runs(other, 17, on="x2", at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(NamespaceSeen(Namespace("other", "2")))
    story.polls({}, at=NOW + 5)
    return story


def its_job_ended() -> Story:
    story = runs_as_17()
    story.polls({17: "CANCELLED"}, at=NOW + 5)
    answers_reads(story, NOW + 5, job_of(pod("train"), 17, "CANCELLED"))
    return story


def its_twin_lives(*, lost: bool) -> Story:
    """Slurm made two jobs for the pod, and one of them is missing.  lost: a read denied the missing job"""
    story = runs_as_17()
    story.polls({30: "RUNNING"}, at=NOW + 2)
    answers_reads(story, NOW + 2, job_of(pod("train"), 30))
    if lost:
        story.reads(None, job_id=17, at=NOW + 3)
        story.polls({30: "RUNNING"}, at=NOW + 4)
    return story


def its_job_has_components() -> Story:
    """Such a job cannot start at once, so its nodes are not asked for again."""
    story = Story()
    binds = launched(story)
    for bind in binds:
        story.ended(bind, at=NOW)
    story.sees(*(story.bound(each, 17, bind.node) for each, bind in zip(launcher_and_workers(), binds, strict=True)))
    story.polls({}, at=NOW + 5)
    return story


@pytest.mark.parametrize(
    ("life", "waits"),
    [
        (its_job_is_missing, True),
        (a_previous_process_bound_it, True),
        (its_namespace_is_not_managed, False),
        (its_job_ended, False),
        (partial(its_twin_lives, lost=False), False),
        (partial(its_twin_lives, lost=True), False),
        (its_job_has_components, False),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_pod_that_comes_waits_only_for_a_running_pod_whose_nodes_can_be_asked_for_again(
    life: Callable[[], Story], waits: bool
) -> None:
    assert submits_new(life(), NOW + 5) is not waits


def test_a_pod_whose_nodes_cannot_be_had_for_long_does_not_hide_that_another_pod_comes_first() -> None:
    site = Site(count=2)
    site.jobs[18] = "RUNNING"

    def fails(site: Site, asked: AllocateNow, at: float) -> None:
        site.story.ended(asked, Outcome.REFUSED, at=at, number=1007)

    site.lives(130, fails)
    assert site.tries(site.pods[0])
    site.jobs.clear()
    site.at += 1
    site.story.polls({}, at=site.at)
    assert not submits_new(site.story, site.at)
