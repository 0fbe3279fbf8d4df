"""Each action class declares its kind once (scheduler/actions.py), and every table of actions knows the class."""

from __future__ import annotations

import dataclasses

import pytest

from scheduler import actions as act
from scheduler.apply import plans, results
from scheduler.model.slurm import NodeSpec
from scheduler.tuning import Tuning
from tests.builders import OWNER, Story, job_of, pod

DECLARED = {"limit_class": str, "effect": act.Effect, "urgent": bool}
UNLIMITED = {act.NudgeScheduler, act.PollNodes, act.Reconfigure}
# The watch of the nodes shows what became of these; a nudge has no answer that matters.
WITHOUT_ENDER = {act.NudgeScheduler, act.SetNodeCondition, act.TaintNode, act.UnmarkNode}


def test_the_union_of_actions_names_every_class_that_declares_a_kind() -> None:
    declaring = {each for each in vars(act).values() if dataclasses.is_dataclass(each) and hasattr(each, "effect")}
    assert declaring == set(act.ACTIONS)


@pytest.mark.parametrize("kind", act.ACTIONS, ids=lambda kind: kind.__name__)
def test_each_action_class_declares_its_kind_itself(kind: type[act.Action]) -> None:
    for name, of in DECLARED.items():
        assert isinstance(vars(kind).get(name), of), name
    assert "subject" in dir(kind)
    assert not any("__dict__" in vars(base) for base in kind.__mro__), "a base without slots"


@pytest.mark.parametrize("kind", act.ACTIONS, ids=lambda kind: kind.__name__)
def test_a_setting_limits_the_actions_of_each_class_except_the_rare_classes(kind: type[act.Action]) -> None:
    limits = {each.name for each in dataclasses.fields(Tuning)}
    assert kind.limit_class in limits or kind in UNLIMITED
    assert (kind.limit_class == "") == (kind in UNLIMITED)


def test_the_world_notes_the_begin_of_every_action_and_the_end_of_answered_actions() -> None:
    assert set(plans._ON_PLANNED) == set(act.ACTIONS)
    assert set(results._ON_ENDED) == set(act.ACTIONS) - WITHOUT_ENDER


ABOUT: dict[str, act.Action] = {
    "hpc/train~": act.FindJobs("key", "hpc/train~", "why"),
    "job 17": act.CancelJob("key", 17, "name", "alice", "why"),
    "hpc/train": act.DeletePod("key", "uid", "hpc", "train", "why"),
    "hpc/data, logs": act.ReadClaims("key", "uid", "hpc", ("data", "logs"), "why"),
    "ReplicaSet hpc/web": act.ReadOwner("hpc", OWNER, "why"),
    "Slurm": act.Reconfigure("why"),
    "Slurm node x1": act.RegisterNode(NodeSpec("x1", "198.51.100.7", 8, 1024, (), ()), "why"),
    "node x1": act.TaintNode("x1", "uid", "why"),
}


@pytest.mark.parametrize("subject", ABOUT)
def test_an_action_says_for_a_line_of_the_log_what_it_is_about_and_why(subject: str) -> None:
    assert (ABOUT[subject].subject, ABOUT[subject].reason) == (subject, "why")


def test_a_submission_is_about_its_job_and_a_status_says_its_message() -> None:
    story, train = Story(), pod("train")
    story.sees(train)
    [asked] = story.acts(act.AllocateNow, story.now + 20)
    assert asked.subject == job_of(train, 1).name
    on_node = act.SetNodeCondition("x1", "uid", True, "SlurmReady", "In service.")
    on_job = act.SetJobCondition("key", "uid", "hpc", "train", "SlurmJobPending", "It waits.")
    assert (on_node.reason, on_job.reason) == ("In service.", "It waits.")
