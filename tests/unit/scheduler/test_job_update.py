"""Annotations edited and nodes changed while the job waits: changed in place, or said (K8, F2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import BindPod, CancelJob, Outcome, PollNodes, ReadJob, RestoreKeys, SetPodCondition, UpdateJob
from scheduler.events import NodeSeen, OutageBegan, OutageEnded, Side, SlurmNodesPolled
from scheduler.model.kubernetes import Condition, Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Job, JobSpec, Partition
from scheduler.translate import job_update
from tests.builders import CLUSTER, START, Story, grant, job_of, key_of, node, pod, slurm_node, told_by

NOW = START + 20
TRAIN = pod("train")


def edited(says: dict[str, str], what: Pod = TRAIN) -> Pod:
    return replace(what, annotations={names.PREFIX + key: value for key, value in says.items()})


def queued(what: Pod = TRAIN) -> Story:
    story = Story()
    story.queues(what, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    return story


@pytest.mark.parametrize(
    ("says", "field", "value"),
    [
        ({"account": "teama"}, "account", "teama"),
        ({"partition": "gpu"}, "partition", "gpu"),
        ({"qos": "high"}, "qos", "high"),
        ({"constraints": "ib"}, "constraints", "ib"),
        ({"comment": "second thoughts"}, "comment", "second thoughts"),
        ({"time-limit": "1:00:00"}, "time_limit_min", 60),
        ({"nice": "50"}, "nice", 50),
        ({"memory": "2G"}, "memory_mib", 2048),
        ({"wckey": "w"}, "wckey", "w"),
        ({"cpus-per-task": "4"}, "cpus_per_task", 4),
        ({"gres": "gpu:1"}, "gres", (("gpu", 1),)),
        ({"licenses": "matlab:2"}, "licenses", (("matlab", 2),)),
        ({"begin": "now+1hour"}, "begin", int(TRAIN.created) + 3600),
        ({"dependency": "afterany:8"}, "dependency", "singleton,afterany:8"),
        ({"switches": "1@5"}, "switches", (1, 300)),
    ],
)
def test_what_slurm_lets_a_user_change_is_changed_in_place(says: dict[str, str], field: str, value: object) -> None:
    """It keeps its age in the queue."""
    story = queued()
    story.sees(edited(says))
    [update] = story.acts(UpdateJob, NOW + 2)
    assert (update.job_id, update.user, update.changes) == (17, "alice", {field})
    assert update.reason == f"job 17 gets new {field}"
    assert getattr(update.spec, field) == value
    story.ended(update, at=NOW + 2)
    assert story.acts(UpdateJob, NOW + 60) == []


@pytest.mark.parametrize(
    ("asked", "is_in", "then", "shown"),
    [
        ({"partition": "gpu"}, "gpu", {}, "main"),
        ({}, "main", {"partition": "gpu"}, "gpu"),
        ({"partition": "gpu"}, "main", {"partition": "gpu", "nice": "50"}, "main"),
    ],
    ids=["it asks for none any more", "it asks for another one", "an admin moved the job before another change"],
)
def test_a_job_that_was_changed_is_shown_in_its_partition_at_once(
    asked: dict[str, str], is_in: str, then: dict[str, str], shown: str
) -> None:
    """It is also where its nodes are judged, before the job is read again (F2)."""
    story = queued(edited(asked))
    story.reads(replace(job_of(TRAIN, 17, "PENDING"), reason="Priority", partition=is_in), at=NOW + 1)
    story.decides(NOW + 1)
    story.sees(edited(then))
    [update] = story.acts(UpdateJob, NOW + 2)
    story.ended(update, at=NOW + 2)
    story.decides(NOW + 2)
    assert told_by(story.world.workloads[key_of(TRAIN)])[-1].message.startswith(f"Waiting in Slurm partition {shown} ")


def test_a_pod_that_does_not_show_its_job_yet_shows_it_while_the_answer_to_a_change_is_awaited() -> None:
    story = queued()
    story.sees(edited({"qos": "high"}))
    assert story.acts(UpdateJob, NOW + 2)
    story.reads(replace(job_of(TRAIN, 17, "PENDING"), reason="Priority"), at=NOW + 3)
    [told] = story.acts(SetPodCondition, NOW + 3)
    assert told.message.startswith("Waiting in Slurm partition main")


def test_a_job_that_its_user_names_says_in_its_comment_whose_it_is() -> None:
    story = queued()
    story.reads(replace(job_of(TRAIN, 17, "PENDING"), reason="Priority"), at=NOW + 1)
    story.sees(edited({"job-name": "bert"}))
    [update] = story.acts(UpdateJob, NOW + 2)
    assert update.changes == {"name", "comment"}
    assert (update.spec.name, update.spec.comment) == (f"bert~{CLUSTER}.{key_of(TRAIN)}", "hpc/train")


@pytest.mark.parametrize("reason", ["Dependency", "None", ""])
def test_a_job_keeps_its_name_as_long_as_it_may_wait_for_another_job_of_that_name(reason: str) -> None:
    """A process before this one may have submitted that job.  Under another name, both would run (V1)."""
    story = queued()
    waits = job_of(TRAIN, 17, "PENDING")
    story.reads(replace(waits, reason=reason), at=NOW + 1)
    story.sees(edited({"job-name": "bert", "nice": "50"}))
    [update] = story.acts(UpdateJob, NOW + 2)
    assert update.changes == {"nice"}
    story.ended(update, at=NOW + 2)
    story.reads(replace(waits, reason="Priority"), at=NOW + 4)
    [update] = story.acts(UpdateJob, NOW + 5)
    assert update.changes == {"name", "comment"}


def test_the_pod_shows_that_its_job_gets_its_new_name_later() -> None:
    story = queued()
    story.reads(replace(job_of(TRAIN, 17, "PENDING"), reason="Dependency"), at=NOW + 1)
    story.sees(edited({"job-name": "bert"}))
    [shown] = story.acts(SetPodCondition, NOW + 2)
    assert shown.message.endswith(" The job gets its new name when it no longer waits for another job.")


@pytest.mark.parametrize(
    ("before", "after", "cannot"),
    [
        (
            {},
            {"exclusive": "true"},
            "Slurm cannot change slurm-bridge/exclusive of a waiting job; recreate the pod to apply it.",
        ),
        (
            {"time-limit": "5"},
            {},
            "Slurm cannot set slurm-bridge/time-limit of a waiting job back to its default; give it a value, or recreate "
            "the pod.",
        ),
        (
            {"account": "teama", "exclusive": "true"},
            {},
            "Slurm cannot change slurm-bridge/exclusive of a waiting job; recreate the pod to apply it. "
            "Slurm cannot set slurm-bridge/account of a waiting job back to its default; give it a value, or recreate the "
            "pod.",
        ),
    ],
    ids=["how it shares its nodes", "a time limit back to Slurm's default", "an account back to the user's default"],
)
def test_the_pod_shows_what_slurm_cannot_change(before: dict[str, str], after: dict[str, str], cannot: str) -> None:
    """A time limit can be changed, so nobody should be told that it cannot."""
    story = queued(edited(before))
    story.sees(edited(after))
    acts = story.decides(NOW + 2)
    assert not any(isinstance(each, UpdateJob) for each in acts)
    [said] = [each for each in acts if isinstance(each, SetPodCondition)]
    assert said.message == f"Waiting in Slurm partition main as job 17. {cannot}"


def test_of_a_mixed_edit_the_possible_half_is_done_and_the_other_half_is_reported() -> None:
    story = queued()
    story.sees(edited({"nice": "5", "exclusive": "true"}))
    acts = story.decides(NOW + 2)
    assert [each.changes for each in acts if isinstance(each, UpdateJob)] == [{"nice"}]
    assert [each.message for each in acts if isinstance(each, SetPodCondition)] == [
        "Waiting in Slurm partition main as job 17. Slurm cannot change slurm-bridge/exclusive of a waiting job; recreate "
        "the pod to apply it."
    ]
    [update] = [each for each in acts if isinstance(each, UpdateJob)]
    story.ended(update, at=NOW + 2)
    [job] = story.world.placeholders.values()
    assert job.spec is not None
    assert job.spec.exclusive == "", "what was not changed is not what was asked: a grant is held against what was"


def test_an_edit_that_cannot_be_read_is_reported_and_the_job_stays_as_it_is() -> None:
    story = queued()
    story.sees(edited({"nice": "-1"}))
    acts = story.decides(NOW + 2)
    assert not any(isinstance(each, UpdateJob | CancelJob) for each in acts)
    [said] = [each for each in acts if isinstance(each, SetPodCondition)]
    assert '"-1"' in said.message


QOS_REFUSED = (
    "The new value of slurm-bridge/qos is not applied to the job: Slurm refused it (error 2066). "
    'Asked for: user "alice", partition "main", qos "high". '
)
QOS_REMEDY = (
    "If not: sacctmgr modify user alice set qos+=high (before that, sacctmgr add qos high if Slurm has no such QOS). "
)


def refused_qos(story: Story, at: float) -> None:
    [update] = story.acts(UpdateJob, at)
    assert update.changes == {"qos"}
    story.ended(update, Outcome.REFUSED, at=at, number=2066)


def test_an_edit_that_slurm_refuses_is_reported_and_sent_again_after_minutes() -> None:
    story = queued()
    story.sees(edited({"qos": "high"}))
    refused_qos(story, NOW + 2)
    [said] = story.acts(SetPodCondition, NOW + 10)
    assert said.message.startswith(f"Waiting in Slurm partition main as job 17. {QOS_REFUSED}")
    assert QOS_REMEDY in said.message
    assert story.acts(UpdateJob, NOW + 10) == []
    [update] = story.acts(UpdateJob, NOW + 2 + story.world.config.tuning.refused_retry_s)
    story.ended(update, at=NOW + 303)
    assert not any("qos" in said.message for said in story.acts(SetPodCondition, NOW + 310))


def test_an_edit_that_slurm_refused_is_sent_again_when_a_node_gets_the_feature_that_it_asks_for() -> None:
    story = queued()
    story.sees(edited({"constraints": "h100"}))
    [update] = story.acts(UpdateJob, NOW + 2)
    story.ended(update, Outcome.REFUSED, at=NOW + 2, number=2029)
    assert story.acts(UpdateJob, NOW + 10) == []
    nodes = (replace(slurm_node("x1"), features=("h100",)), slurm_node("x2"))
    partitions = (Partition("main", default=True), Partition("gpu", max_time_min=600))
    story.sees(SlurmNodesPolled(nodes, partitions, NOW + 11))
    [update] = story.acts(UpdateJob, NOW + 11)
    assert update.changes == {"constraints"}


def test_a_refused_edit_is_still_reported_after_a_later_edit() -> None:
    """Otherwise the user would believe that both are in force."""
    story = queued()
    story.sees(edited({"qos": "high"}))
    refused_qos(story, NOW + 2)
    story.decides(NOW + 10)
    story.sees(edited({"qos": "high", "nice": "1"}))
    [both] = story.acts(UpdateJob, NOW + 20)
    assert both.changes == {"nice", "qos"}, "Slurm may accept them now"
    story.ended(both, Outcome.REFUSED, at=NOW + 20, number=2066)
    [nice] = story.acts(UpdateJob, NOW + 22)
    assert nice.changes == {"nice"}
    story.ended(nice, at=NOW + 22)
    refused_qos(story, NOW + 24)
    [job] = story.world.placeholders.values()
    assert job.spec is not None
    assert (job.spec.nice, job.spec.qos) == (1, ""), "what was refused is not what was asked"
    assert QOS_REFUSED in story.world.workloads[key_of(TRAIN)].last_status[TRAIN.uid]["PodScheduled"].message
    assert story.acts(UpdateJob, NOW + 100) == []


@pytest.mark.parametrize("later", [{}, {"nice": "6"}], ids=["taken back", "replaced by another value"])
def test_a_refused_edit_is_not_reported_any_more_after_it_was(later: dict[str, str]) -> None:
    story = queued()
    story.sees(edited({"nice": "5"}))
    [update] = story.acts(UpdateJob, NOW + 2)
    story.ended(update, Outcome.REFUSED, at=NOW + 2, number=2066)
    [refused] = story.acts(SetPodCondition, NOW + 10)
    assert "The new value of slurm-bridge/nice is not applied to the job" in refused.message
    story.sees(edited(later))
    [said] = story.acts(SetPodCondition, NOW + 20)
    assert "is not applied" not in said.message


def test_of_two_edits_the_one_that_slurm_accepts_is_not_lost() -> None:
    """Slurm changes all fields of an update or none, and does not say which one it refuses."""
    story = queued()
    story.sees(edited({"nice": "5", "qos": "high"}))
    [both] = story.acts(UpdateJob, NOW + 2)
    story.ended(both, Outcome.REFUSED, at=NOW + 2, number=2066)
    story.sees(edited({"nice": "5"}))
    [nice] = story.acts(UpdateJob, NOW + 4)
    assert (nice.changes, nice.spec.nice) == ({"nice"}, 5)


@pytest.mark.parametrize(
    ("refused", "together"),
    [((), {"nice", "qos"}), (("account",), {"account", "qos"})],
    ids=["the first edit is accepted", "the second edit is accepted"],
)
def test_as_soon_as_slurm_accepts_one_of_three_edits_the_others_are_sent_together_at_once(
    refused: tuple[str, ...], together: set[str]
) -> None:
    """Slurm may have refused them because of the accepted one: a QOS may be allowed in one account only."""
    story = queued()
    story.sees(edited({"account": "teama", "nice": "5", "qos": "high"}))
    [update] = story.acts(UpdateJob, NOW + 2)
    story.ended(update, Outcome.REFUSED, at=NOW + 2, number=2066)
    at = NOW + 4
    for field in refused:
        [update] = story.acts(UpdateJob, at)
        assert update.changes == {field}
        story.ended(update, Outcome.REFUSED, at=at, number=2045)
        at += 2
    [accepted] = story.acts(UpdateJob, at)
    assert len(accepted.changes) == 1
    story.ended(accepted, at=at)
    [update] = story.acts(UpdateJob, at + 1)
    assert update.changes == together


def test_nodes_that_slurm_refused_to_exclude_are_excluded_at_once_after_it_excluded_others() -> None:
    """A refusal counts until Slurm accepts another value of the same field."""
    story = Story(nodes=[node("x1"), node("x2"), node("x3")])
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.sees(NodeSeen(node("x2", unschedulable=True)))
    [update] = story.acts(UpdateJob, NOW + 2)
    story.ended(update, Outcome.REFUSED, at=NOW + 2, number=2050)
    story.sees(NodeSeen(node("x3", unschedulable=True)))
    [update] = story.acts(UpdateJob, NOW + 4)
    assert update.spec.excluded_nodes == "x[2-3]"
    story.ended(update, at=NOW + 4)
    story.sees(NodeSeen(node("x3")))
    [update] = story.acts(UpdateJob, NOW + 6)
    assert update.spec.excluded_nodes == "x2"


def test_a_change_of_nodes_is_no_reason_to_send_a_refused_edit_again() -> None:
    """Nodes change again and again."""
    story = queued()
    story.sees(edited({"qos": "high"}))
    refused_qos(story, NOW + 2)
    story.sees(NodeSeen(node("x2", unschedulable=True)))
    [update] = story.acts(UpdateJob, NOW + 4)
    assert update.changes == {"excluded_nodes"}
    story.ended(update, at=NOW + 4)
    assert story.acts(UpdateJob, NOW + 10) == []


@pytest.mark.parametrize(
    "refusal",
    [{"number": 2018}, {"number": 2066, "later": True}],
    ids=["a node is not in Slurm any more", "Slurm may take it later"],
)
def test_an_edit_that_slurm_may_take_later_is_sent_again_and_not_reported(refusal: dict[str, Any]) -> None:
    story = queued()
    story.sees(edited({"nice": "5"}))
    [update] = story.acts(UpdateJob, NOW + 2)
    story.ended(update, Outcome.REFUSED, at=NOW + 3, **refusal)
    assert story.world.nodes_stale is (refusal["number"] == 2018), "Slurm's nodes are read again"
    assert {type(each) for each in story.decides(NOW + 4)} - {PollNodes} == {UpdateJob}


def test_an_edit_waits_for_the_answer_to_the_update_before_it() -> None:
    story = queued()
    story.sees(edited({"nice": "5"}))
    [update] = story.acts(UpdateJob, NOW + 2)
    story.sees(edited({"nice": "6"}))
    assert story.acts(UpdateJob, NOW + 10) == []
    story.ended(update, at=NOW + 11)
    assert [each.spec.nice for each in story.acts(UpdateJob, NOW + 11)] == [6]


def test_after_an_outage_a_job_is_read_before_it_is_changed() -> None:
    """Slurm may have lost its state, and given the id to another job."""
    story = queued()
    story.sees(OutageBegan(Side.SLURM, NOW + 2, "It does not answer."), OutageEnded(Side.SLURM, NOW + 3))
    story.sees(edited({"nice": "5"}))
    acts = story.decides(NOW + 4)
    assert [type(each) for each in acts if isinstance(each, UpdateJob | ReadJob)] == [ReadJob]
    story.reads(job_of(TRAIN, 17, "PENDING"), at=NOW + 5)
    assert [each.changes for each in story.acts(UpdateJob, NOW + 5)] == [{"nice"}]


def test_what_a_pod_shows_about_an_edit_stays_while_its_job_is_read_again_or_changed() -> None:
    """Without the sentence, and then with it again, each of the two would be a write and an event."""
    story = queued()
    waits = job_of(TRAIN, 17, "PENDING", reason="Priority")
    story.reads(waits, at=NOW + 2)
    story.sees(edited({"exclusive": "true"}))
    acts = story.decides(NOW + 3)
    [said] = [each for each in acts if isinstance(each, SetPodCondition)]
    assert "Slurm cannot change slurm-bridge/exclusive" in said.message
    for each in acts:
        story.ended(each, at=NOW + 3)
    story.sees(OutageBegan(Side.SLURM, NOW + 4, "It does not answer."))
    story.polls({17: "PENDING"}, at=NOW + 5)
    story.sees(OutageEnded(Side.SLURM, NOW + 5), edited({"exclusive": "true", "nice": "5"}))
    [read] = story.decides(NOW + 6)
    assert isinstance(read, ReadJob), "slurmctld may have given the id to another job"
    story.reads(waits, at=NOW + 6)
    story.ended(read, at=NOW + 6)
    acts = story.decides(NOW + 7)
    [update] = [each for each in acts if isinstance(each, UpdateJob)]
    assert not any(isinstance(each, SetPodCondition) for each in acts)
    story.reads(waits, at=NOW + 8)
    assert story.acts(SetPodCondition, NOW + 8) == [], "the update is in flight"
    story.ended(update, at=NOW + 9)
    assert story.acts(SetPodCondition, NOW + 9) == []


@pytest.mark.parametrize("refusal", [None, Refusal("NoAnswer", "The connection was lost.")])
@pytest.mark.parametrize("outcome", [Outcome.UNREACHED, Outcome.UNKNOWN])
def test_an_edit_whose_answer_was_lost_is_sent_again(outcome: Outcome, refusal: Refusal | None) -> None:
    """It says what shall be, not what shall be added: twice is as good as once."""
    story = queued()
    story.sees(edited({"nice": "5"}))
    [update] = story.acts(UpdateJob, NOW + 2)
    story.ended(update, outcome, at=NOW + 3, refusal=refusal)
    assert story.acts(UpdateJob, NOW + 3) == []
    assert len(story.acts(UpdateJob, NOW + 4)) == 1


@pytest.mark.parametrize(
    ("says", "cpu", "what"),
    [
        ({names.PREFIX + "qos": "high", names.PREFIX + "nice": "5"}, 1000, "slurm-bridge/nice, slurm-bridge/qos"),
        ({names.ALIAS_PREFIX + "qos": "high"}, 1000, "slurm-bridge/qos"),
        ({names.PREFIX + "quos": "high"}, 1000, "its annotations"),
        ({}, 4000, "its resources"),
    ],
    ids=["annotations", "an alias", "a key that nobody knows", "resized in place"],
)
def test_a_change_after_the_bind_is_ignored_and_reported_once(says: dict[str, str], cpu: int, what: str) -> None:
    """K8, T11: the job stays as it was granted."""
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    changed = replace(shown, annotations={**shown.annotations, **says}, containers=pod(cpu=cpu).containers)
    story.sees(changed)
    [said] = story.decides(NOW + 5)
    assert isinstance(said, SetPodCondition)
    assert (said.condition, said.event, said.warning) == ("", "SlurmChangeIgnored", True)
    assert said.message == (
        f"Changed after the pod was bound: {what}. Its Slurm job stays as it is; recreate the pod to apply it."
    )
    story.ended(said, at=NOW + 5)
    story.sees(replace(changed, labels={"unrelated": "news"}))
    assert story.acts(SetPodCondition, NOW + 4000) == []


def test_what_others_write_on_a_running_pod_is_their_own_business() -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.sees(replace(shown, annotations={**shown.annotations, "example.org/seen": "yes"}))
    assert story.decides(NOW + 5) == []


def test_which_job_a_running_pod_has_is_not_for_others_to_write() -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(replace(shown, annotations={**shown.annotations, names.JOB_ID: "4"}))
    story.polls({17: "RUNNING"}, at=NOW + 60)
    [written] = story.acts(RestoreKeys, NOW + 60)
    assert written.annotations == {names.JOB_ID: "17"}


def test_a_pod_that_is_resized_while_it_waits_changes_its_job_in_place() -> None:
    """Kubernetes lets a pod be resized before it is bound."""
    story = queued()
    story.sees(replace(TRAIN, containers=pod(cpu=4000, memory=300).containers))
    [update] = story.acts(UpdateJob, NOW + 2)
    assert update.changes == {"cpus_per_task", "memory_mib"}
    assert (update.spec.cpus_per_task, update.spec.memory_mib) == (4, 300)


def zones() -> Story:
    """Partition main has the nodes x1 and x2, gpu has x3 and x4; x1 and x3 are in zone a."""
    where = {"x1": ("a", "main"), "x2": ("b", "main"), "x3": ("a", "gpu"), "x4": ("b", "gpu")}
    story = Story(nodes=[node(name, labels={"zone": zone}) for name, (zone, _) in where.items()])
    known = tuple(slurm_node(name, partitions=(partition,)) for name, (_, partition) in where.items())
    story.sees(SlurmNodesPolled(known, (Partition("main", default=True), Partition("gpu")), START + 1))
    return story


def test_the_job_that_an_admin_moves_to_another_partition_gets_nodes_there_that_its_pod_can_use() -> None:
    """S9, F2: otherwise Slurm grants a node of the new partition that the pod cannot use, and the job is released."""
    story = zones()
    in_zone = pod(node_selector={"zone": "a"})
    assert story.queues(in_zone, 17, at=NOW).spec.excluded_nodes == "x2"
    story.polls({17: "PENDING"}, at=NOW + 1)
    moved = replace(job_of(in_zone, 17, "PENDING"), reason="Resources", partition="gpu", excluded_nodes="x2")
    story.reads(moved, at=NOW + 1)
    [update] = story.acts(UpdateJob, NOW + 2)
    assert (update.changes, update.spec.excluded_nodes) == ({"excluded_nodes"}, "x4")
    story.ended(update, at=NOW + 2)
    story.reads(replace(moved, excluded_nodes="x4"), at=NOW + 3)
    assert not story.acts(UpdateJob, NOW + 4), "the job stays where the admin moved it"

    story.sees(replace(in_zone, annotations={names.PREFIX + "partition": "main"}))
    [update] = story.acts(UpdateJob, NOW + 5)
    assert update.changes == {"partition", "excluded_nodes"}, "the user may move it, too"
    assert (update.spec.partition, update.spec.excluded_nodes) == ("main", "x2")
    story.ended(update, at=NOW + 5)
    assert not story.acts(UpdateJob, NOW + 6), "although no read has shown the new partition yet"


@pytest.mark.parametrize(
    ("asked", "is_in", "excluded", "then"),
    [({"partition": "gpu"}, "main", "x4", ["x2"]), ({}, "main,gpu", "x2", [])],
    ids=["to the default partition", "to several, of which Slurm chooses one at the start"],
)
def test_the_nodes_of_a_moved_job_are_those_of_its_partition_if_it_is_in_one_alone(
    asked: dict[str, str], is_in: str, excluded: str, then: list[str]
) -> None:
    story, in_zone = zones(), pod(node_selector={"zone": "a"}, says=asked)
    assert story.queues(in_zone, 17, at=NOW).spec.excluded_nodes == excluded
    story.polls({17: "PENDING"}, at=NOW + 1)
    moved = job_of(in_zone, 17, "PENDING", reason="Resources", excluded_nodes=excluded)
    story.reads(replace(moved, partition=is_in), at=NOW + 1)
    acts = story.decides(NOW + 2)
    assert [each.spec.excluded_nodes for each in acts if isinstance(each, UpdateJob)] == then
    assert [
        each.message for each in acts if isinstance(each, SetPodCondition) and "nodes can run" in each.message
    ] == []


def test_a_job_of_a_previous_process_stays_in_the_partition_to_which_an_admin_moved_it() -> None:
    in_zone = pod(node_selector={"zone": "a"}, created=START - 100)
    story = zones()
    story.sees(in_zone)
    story.polls({17: "PENDING"}, at=NOW)
    moved = replace(job_of(in_zone, 17, "PENDING"), reason="Resources", partition="gpu", excluded_nodes="x2")
    story.reads(moved, at=NOW)
    [update] = story.acts(UpdateJob, NOW + 1)
    assert (update.changes, update.spec.excluded_nodes) == ({"excluded_nodes"}, "x4")
    story.ended(update, at=NOW + 1)
    story.reads(replace(moved, excluded_nodes="x4"), at=NOW + 2)
    assert not story.acts(UpdateJob, NOW + 3)


def test_a_moved_job_that_starts_before_a_restart_is_used_though_its_pod_fits_nowhere_in_the_former_partition() -> None:
    """An admin moved it for that very reason; its grant would be released in vain, again and again (L3)."""
    in_zone = pod(node_selector={"zone": "a"}, created=START - 100)
    story = zones()
    story.sees(NodeSeen(node("x1", labels={"zone": "a"}, unschedulable=True)), in_zone)
    story.polls({17: "RUNNING"}, at=NOW)
    [read] = story.acts(ReadJob, NOW)
    moved = replace(job_of(in_zone, 17, "RUNNING"), partition="gpu", nodes="x3", excluded_nodes="x4")
    story.reads(moved, at=NOW, granted=grant(17, "x3"))
    story.ended(read, at=NOW)
    [bind] = [each for each in story.decides(NOW) if isinstance(each, BindPod | CancelJob)]
    assert isinstance(bind, BindPod)
    assert bind.node == "x3"


def test_a_job_of_a_previous_process_whose_pod_asks_for_another_partition_gets_nodes_there() -> None:
    in_zone = pod(node_selector={"zone": "a"}, created=START - 100)
    story = zones()
    story.sees(in_zone)
    story.polls({17: "PENDING"}, at=NOW)
    story.reads(replace(job_of(in_zone, 17, "PENDING"), reason="Resources", excluded_nodes="x2"), at=NOW)
    assert not story.acts(UpdateJob, NOW + 1)
    story.sees(replace(in_zone, annotations={names.PREFIX + "partition": "gpu"}))
    [update] = story.acts(UpdateJob, NOW + 2)
    assert update.changes == {"partition", "excluded_nodes"}
    assert (update.spec.partition, update.spec.excluded_nodes) == ("gpu", "x4")


def test_a_job_waits_for_nodes_of_its_own_partition_after_another_one_has_become_the_default() -> None:
    story = zones()
    in_zone = pod(node_selector={"zone": "a"})
    story.queues(in_zone, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.reads(replace(job_of(in_zone, 17, "PENDING"), reason="Resources", excluded_nodes="x2"), at=NOW + 1)
    known = tuple((story.world.slurm_nodes or {}).values())
    story.sees(SlurmNodesPolled(known, (Partition("main"), Partition("gpu", default=True)), NOW + 2))
    assert not story.acts(UpdateJob, NOW + 3)


def test_the_job_of_a_gang_that_an_admin_moves_is_laid_out_on_nodes_of_its_new_partition() -> None:
    story = zones()
    alike = {"labels": {names.PREFIX + "gang": "g"}, "says": {"gang-size": "2"}, "node_selector": {"zone": "a"}}
    first, second = pod("a", **alike), pod("b", **alike)
    story.sees(first)
    submit = story.queues(second, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    name = submit.spec.name
    moved = replace(job_of(first, 17, "PENDING"), name=name, reason="Resources", partition="gpu", tasks=2)
    story.reads(replace(moved, excluded_nodes="x2"), at=NOW + 1)
    [update] = story.acts(UpdateJob, NOW + 2)
    assert (update.changes, update.spec.excluded_nodes, update.spec.partition) == ({"excluded_nodes"}, "x4", "")


def test_a_gang_whose_job_an_admin_moves_says_if_the_new_partition_has_no_room_for_it() -> None:
    story = Story(nodes=(node("x1"), node("x2", cpu=1000)))
    known = slurm_node("x1", partitions=("main",)), slurm_node("x2", partitions=("gpu",))
    story.sees(SlurmNodesPolled(known, (Partition("main", default=True), Partition("gpu")), START + 1))
    alike = {"labels": {names.PREFIX + "gang": "g"}, "says": {"gang-size": "2"}}
    first, second = pod("a", **alike), pod("b", **alike)
    story.sees(first)
    submit = story.queues(second, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    moved = replace(job_of(first, 17, "PENDING"), name=submit.spec.name, reason="Resources", partition="gpu", tasks=2)
    story.reads(moved, at=NOW + 1)
    said = [each.message for each in story.decides(NOW + 2) if isinstance(each, SetPodCondition)]
    assert len(said) == 2
    assert all(
        each.endswith("1 node can run them, and would take 1. One node has cpu for one such pod.") for each in said
    )


def test_when_nodes_change_waiting_jobs_are_updated_once_a_second_at_most() -> None:
    story = queued()
    story.sees(NodeSeen(node("x2", unschedulable=True)))
    [update] = story.acts(UpdateJob, NOW + 2)
    assert (update.changes, update.spec.excluded_nodes) == ({"excluded_nodes"}, "x2")
    story.ended(update, at=NOW + 2)
    story.sees(NodeSeen(node("x2")))
    assert story.acts(UpdateJob, NOW + 2.5) == []
    [update] = story.acts(UpdateJob, NOW + 3)
    assert update.spec.excluded_nodes == ""


def test_a_job_that_no_node_can_run_just_now_keeps_its_age_and_the_pod_shows_it() -> None:
    """A pool of nodes that reboots costs no pod its place in the queue."""
    story = queued()
    story.sees(NodeSeen(node("x1", unschedulable=True)), NodeSeen(node("x2", unschedulable=True)))
    acts = story.decides(NOW + 2)
    assert not any(isinstance(each, UpdateJob | CancelJob) for each in acts)
    [said] = [each for each in acts if isinstance(each, SetPodCondition)]
    assert "0/2 nodes can run this pod" in said.message
    story.sees(NodeSeen(node("x1")))
    [update] = story.acts(UpdateJob, NOW + 4)
    assert update.spec.excluded_nodes == "x2"


def test_a_change_of_slurms_partitions_reaches_waiting_services() -> None:
    """T7: a service asks for the longest that its partition allows."""
    story = Story()
    service = pod("web", restart_policy="Always", says={"partition": "gpu"})
    story.queues(service, 17, at=NOW)
    nodes = (slurm_node("x1"), slurm_node("x2"))
    longer = (Partition("main", default=True), Partition("gpu", max_time_min=1200))
    story.sees(SlurmNodesPolled(nodes, longer, NOW + 2))
    [update] = story.acts(UpdateJob, NOW + 2)
    assert (update.changes, update.spec.time_limit_min) == ({"time_limit_min"}, 1200)


# --- heterogeneous jobs -------------------------------------------------------------------------------------------


LABELS = {names.PREFIX + "gang": "mpi"}
LAUNCHER = pod("mpi-0", labels=LABELS, says={"gang-size": "3"})
WORKERS = [pod(f"mpi-{rank}", gpu=1, labels=LABELS, says={"gang-size": "3"}) for rank in (1, 2)]
NODES = [node(f"x{number}") for number in range(1, 5)]  # so many that no component has to leave some to the other


def two_components() -> Story:
    """A launcher and two workers, queued as jobs 17 and 18."""
    story = Story(nodes=NODES)
    story.sees(*WORKERS)
    asked = story.queues(LAUNCHER, 17, at=NOW)
    assert [each.tasks for each in (asked.spec, *asked.spec.parts)] == [1, 2]
    story.polls({17: "PENDING", 18: "PENDING"}, at=NOW + 1)
    return story


def components(story: Story, excluded: str = "") -> Job:
    """The leader, as Slurm shows it with its other component."""
    [workload] = story.world.workloads.values()
    name = names.job_name(workload.readable, CLUSTER, workload.key)
    workers, launcher = (
        Job(job_id, name, "alice", frozenset({"PENDING"}), partition="main", reason="Priority") for job_id in (18, 17)
    )
    workers = replace(workers, het_id=17, het_offset=1, excluded_nodes=excluded)
    return replace(launcher, het_id=17, het_offset=0, excluded_nodes=excluded, parts=(workers,))


def test_when_nodes_change_each_component_is_updated_by_its_own_id() -> None:
    story = two_components()
    story.sees(NodeSeen(node("x2", unschedulable=True)))
    acts = story.decides(NOW + 2)
    [leader] = [each for each in acts if isinstance(each, UpdateJob)]
    assert (leader.component_id, leader.changes, leader.spec.excluded_nodes) == (17, {"excluded_nodes"}, "x2")
    story.ended(leader, at=NOW + 2)
    assert story.acts(UpdateJob, NOW + 3) == [], "who the other is, is not known yet: Slurm told the leader's id alone"
    [read] = [each for each in acts if isinstance(each, ReadJob) and each.job_id == 17]
    story.reads(components(story), at=NOW + 3)
    story.ended(read, at=NOW + 3)
    [workers] = story.acts(UpdateJob, NOW + 3)
    assert (workers.component_id, workers.changes, workers.spec.parts[0].excluded_nodes) == (
        18,
        {"excluded_nodes"},
        "x2",
    )
    story.ended(workers, at=NOW + 3)
    assert story.acts(UpdateJob, NOW + 60) == []


def test_what_is_edited_on_all_pods_of_a_gang_is_changed_in_every_component() -> None:
    story = two_components()
    story.reads(components(story), at=NOW + 1)
    story.sees(*[edited({"gang-size": "3", "comment": "second thoughts"}, each) for each in (LAUNCHER, *WORKERS)])
    told = []
    for at in (NOW + 2, NOW + 3):
        [update] = story.acts(UpdateJob, at)
        story.ended(update, at=at)
        told.append((update.component_id, update.changes))
    assert told == [(17, {"comment"}), (18, {"comment"})]
    assert story.acts(UpdateJob, NOW + 60) == []


def test_an_edit_that_slurm_refuses_for_one_component_is_still_made_in_the_other() -> None:
    story = two_components()
    story.reads(components(story), at=NOW + 1)
    story.sees(*[edited({"gang-size": "3", "comment": "second thoughts"}, each) for each in (LAUNCHER, *WORKERS)])
    [launcher] = story.acts(UpdateJob, NOW + 2)
    story.ended(launcher, Outcome.REFUSED, at=NOW + 2, number=2066)
    [workers] = story.acts(UpdateJob, NOW + 20)
    assert (launcher.component_id, workers.component_id, workers.changes) == (17, 18, {"comment"})


def test_a_job_that_got_the_id_of_a_job_of_two_components_is_not_compared_with_an_edit_that_slurm_refused_for_these() -> (
    None
):
    story = two_components()
    story.reads(components(story), at=NOW + 1)
    story.sees(*[edited({"gang-size": "3", "comment": "second thoughts"}, each) for each in (LAUNCHER, *WORKERS)])
    for at in (NOW + 2, NOW + 20):
        [update] = story.acts(UpdateJob, at)
        story.ended(update, Outcome.REFUSED, at=at, number=2066)
    story.sees(TRAIN)
    story.polls({17: "PENDING"}, at=NOW + 22)
    story.reads(job_of(TRAIN, 17, "PENDING", reason="Priority"), at=NOW + 23)
    said = [each.message for each in story.acts(SetPodCondition, NOW + 23) if each.uid == TRAIN.uid]
    assert not any("comment" in each for each in said)


def test_a_number_of_nodes_that_is_edited_while_the_gang_waits_is_reported() -> None:
    """Slurm takes the number of nodes only at the submission."""
    story = two_components()
    story.sees(*[edited({"gang-size": "3", "min-nodes": "3"}, each) for each in (LAUNCHER, *WORKERS)])
    acts = story.decides(NOW + 2)
    assert not any(isinstance(each, UpdateJob | CancelJob) for each in acts)
    [said] = {each.message for each in acts if isinstance(each, SetPodCondition)}
    assert "Slurm cannot change slurm-bridge/min-nodes of a waiting job; recreate the pod to apply it." in said


def test_a_waiting_job_of_which_a_component_ended_is_cancelled() -> None:
    story = two_components()
    story.reads(components(story), at=NOW + 1)
    story.polls({17: "PENDING", 18: "CANCELLED"}, at=NOW + 2)
    assert [each.reason for each in story.acts(CancelJob, NOW + 2)] == ["a component of job 17 ended"]


def test_a_gang_of_which_one_waiting_pod_is_resized_gets_another_job() -> None:
    """Slurm cannot change how many tasks the components of a job have."""
    story = two_components()
    story.sees(replace(WORKERS[0], containers=pod(cpu=4000, gpu=1).containers))
    [cancel] = story.acts(CancelJob, NOW + 2)
    assert cancel.reason == "hpc/mpi has [1, 1, 1] pods by shape now, and had [1, 2]"


def test_of_a_job_of_a_previous_process_the_nodes_of_every_component_are_compared() -> None:
    read = components(two_components(), excluded="x1")
    story = Story(nodes=NODES)
    story.sees(LAUNCHER, *WORKERS)
    story.polls({17: "PENDING", 18: "PENDING"}, at=NOW)
    story.reads(read, at=NOW)
    told = []
    for at in (NOW + 1, NOW + 2):
        [update] = story.acts(UpdateJob, at)
        story.ended(update, at=at)
        told.append((update.component_id, update.changes))
    assert told == [(17, {"excluded_nodes"}), (18, {"excluded_nodes"})]
    assert story.acts(UpdateJob, NOW + 60) == []


# --- adopted jobs -------------------------------------------------------------------------------------------------


def adopted(excluded: str) -> Story:
    story = Story()
    story.sees(TRAIN)
    story.polls({17: "PENDING"}, at=NOW)
    story.reads(replace(job_of(TRAIN, 17, "PENDING"), excluded_nodes=excluded, reason="Priority"), at=NOW)
    return story


def test_a_job_of_a_previous_process_is_not_changed_by_a_new_version_of_the_bridge() -> None:
    """What is compared is the user's input, not the translation."""
    story = adopted("")
    assert not any(isinstance(each, UpdateJob | CancelJob) for each in story.decides(NOW + 1))


NOWHERE = "0/2 nodes can run this pod in Slurm partition main: 2 not matching the pod's node selector."


@pytest.mark.parametrize(
    ("shown", "written"),
    [(f"Waiting … Job 17, as of 00:10 UTC. {NOWHERE}", 0), ("Waiting … Job 17, as of 00:10 UTC.", 1)],
)
def test_what_a_pod_lacks_is_written_at_once_unless_a_previous_process_has_written_it(shown: str, written: int) -> None:
    """Slurm has not looked at the job yet, and most jobs start soon."""
    story, astray = Story(), pod(node_selector={"zone": "nowhere"}, created=START - 100)
    story.sees(replace(astray, scheduled=Condition(False, names.PENDING, shown)))
    story.polls({17: "PENDING"}, at=START + 1)
    story.reads(replace(job_of(astray, 17, "PENDING"), reason="None"), at=START + 1)
    said = [each.message for each in story.decides(START + 2) if isinstance(each, SetPodCondition)]
    assert [each.endswith(NOWHERE) for each in said] == [True] * written


def test_a_job_of_a_previous_process_follows_edits_of_its_pod() -> None:
    story = adopted("")
    assert story.acts(UpdateJob, NOW + 1) == []
    story.sees(edited({"nice": "5", "exclusive": "true"}))
    acts = story.decides(NOW + 20)
    [update] = [each for each in acts if isinstance(each, UpdateJob)]
    assert (update.job_id, update.changes, update.spec.nice) == (17, {"nice"}, 5)
    [said] = [each for each in acts if isinstance(each, SetPodCondition)]
    assert "Slurm cannot change slurm-bridge/exclusive of a waiting job; recreate the pod to apply it." in said.message
    story.ended(update, at=NOW + 20)
    assert story.acts(UpdateJob, NOW + 60) == []


def test_the_nodes_of_a_job_are_compared_however_they_were_written() -> None:
    story = adopted("x2,x1")
    story.sees(NodeSeen(node("x1", unschedulable=True)))
    [update] = story.acts(UpdateJob, NOW + 1)
    assert (update.changes, update.spec.excluded_nodes) == ({"excluded_nodes"}, "x1")
    story = adopted("x[1-2]")
    assert len(story.acts(UpdateJob, NOW + 1)) == 1


def test_nodes_that_slurm_refused_to_exclude_are_not_reported_any_more_when_an_admin_has_excluded_them() -> None:
    story = adopted("")
    story.sees(NodeSeen(node("x1", unschedulable=True)))
    [update] = story.acts(UpdateJob, NOW + 1)
    story.ended(update, Outcome.REFUSED, at=NOW + 1, number=2066)
    [refused] = story.acts(SetPodCondition, NOW + 20)
    assert "The new value of excluded nodes is not applied to the job" in refused.message
    story.reads(replace(job_of(TRAIN, 17, "PENDING"), excluded_nodes="x1", reason="Priority"), at=NOW + 30)
    [said] = story.acts(SetPodCondition, NOW + 30)
    assert "excluded nodes" not in said.message


@pytest.mark.parametrize("nonsense", ["n[1-999999999]", "n[3-1]", "x1 x2", "[["])
def test_a_hostlist_that_is_none_is_replaced(nonsense: str) -> None:
    """X7: its owner may write anything there without harm to other pods."""
    story = adopted(nonsense)
    [update] = story.acts(UpdateJob, NOW + 1)
    assert (update.changes, update.spec.excluded_nodes) == ({"excluded_nodes"}, "")


def test_a_job_of_a_previous_process_with_other_components_is_compared_as_its_pods_are_wanted_now() -> None:
    part = JobSpec("ring", "alice", 2, 1, excluded_nodes="x1")
    wanted = JobSpec("ring", "alice", 1, 1, parts=(part,))
    alike = replace(job_of(TRAIN, 18, "PENDING"), excluded_nodes="x2")
    both = replace(job_of(TRAIN, 17, "PENDING"), excluded_nodes="x3", parts=(alike,))
    assert [each.excluded_nodes for each in job_update.adopted(wanted, both).parts] == ["x2"]
    assert job_update.adopted(wanted, replace(both, parts=())).parts == (part,)
