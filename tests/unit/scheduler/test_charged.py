"""Nobody is charged for less than they take (T5, T6); each sentence: test_translation.py."""

from __future__ import annotations

from dataclasses import replace

from scheduler import names
from scheduler.actions import AllocateNow, SetPodCondition, SubmitJob, UpdateJob
from scheduler.model.kubernetes import Container
from tests.builders import CONFIG, START, Story, pod

NOW = START + 20
SUBMISSIONS = (AllocateNow, SubmitJob)


def told(story: Story, at: float = NOW) -> dict[str, str]:
    """The status of each pod; asserts that nothing is submitted."""
    acts = story.decides(at)
    assert not [each for each in acts if isinstance(each, SUBMISSIONS)]
    reports = [each for each in acts if isinstance(each, SetPodCondition)]
    assert {each.condition for each in reports} == {names.REFUSED}
    return {each.name: each.message for each in reports}


def test_a_pod_that_says_that_it_takes_less_than_it_does_is_refused_until_it_says_the_truth() -> None:
    story = Story()
    thief = pod(
        "thief", cpu=60_000, memory=400_000, gpu=8, says={"gres": "gpu:0", "cpus-per-task": "1", "memory": "1M"}
    )
    story.sees(thief)
    assert '"1" asks for 1 CPUs, but the containers of the pod take 60' in told(story)["thief"]
    story.sees(replace(thief, annotations={}))
    [asked] = story.acts(AllocateNow, NOW + 6)
    assert (asked.spec.cpus_per_task, asked.spec.memory_mib, asked.spec.gres) == (60, 400_000, (("gpu", 8),))


def test_one_member_that_takes_more_than_it_says_holds_its_gang_back_and_is_named() -> None:
    story = Story()
    gang = {"labels": {names.PREFIX + names.GANG: "ring"}}
    story.sees(pod("launcher", says={"gang-size": "2"}, **gang))
    story.sees(pod("worker", gpu=4, says={"gang-size": "2", "gres": "gpu:1"}, **gang))
    said = told(story)
    assert said.keys() == {"launcher", "worker"}
    assert all(message.startswith("worker: Annotation slurm-bridge/gres:") for message in said.values())


def test_a_job_that_waits_is_not_made_smaller_than_what_its_pod_takes() -> None:
    story = Story()
    train = pod("train", gpu=2)
    story.queues(train, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.sees(replace(train, annotations={names.PREFIX + names.GRES: "gpu:1"}))
    acts = story.decides(NOW + 2)
    assert not [each for each in acts if isinstance(each, UpdateJob)]
    [report] = [each for each in acts if isinstance(each, SetPodCondition)]
    assert 'gres: "gpu:1" asks for 1 gpu, but the containers of the pod take 2 gpu' in report.message


def test_a_pod_that_takes_a_device_that_slurm_does_not_count_waits_for_its_admin() -> None:
    fpga = pod("fpga", containers=(Container("main", {"example.org/fpga": 1}),))
    story = Story()
    story.sees(fpga)
    assert "example.org/fpga, which Slurm does not count" in told(story)["fpga"]
    let = replace(CONFIG, translation=replace(CONFIG.translation, ignored=("example.org/*",)))
    story = Story(let)
    story.sees(fpga)
    assert story.decides(NOW)
    story = Story(replace(CONFIG, translation=replace(CONFIG.translation, gres={"example.org/fpga": "fpga"})))
    story.sees(fpga)
    assert "example.org/fpga" not in "".join(
        each.reason for each in story.decides(NOW) if not isinstance(each, SetPodCondition)
    )
