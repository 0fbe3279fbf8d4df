"""Whose job it is, by its user, its times and what the pods name (ARCHITECTURE 4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, Outcome
from scheduler.events import NamespaceDeleted, NamespaceSeen, NamespacesListed, PolicyChanged
from scheduler.model.kubernetes import Condition, Pod, PodPhase
from scheduler.model.slurm import Job
from scheduler.policy.rules import Policy, Rule, Tenant
from scheduler.state.job_ownership import (
    belongs_to,
    former_user_key,
    has_user_of_policy,
    is_to_be_replaced,
    living_job_of_former_user,
)
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload
from tests.builders import ALICE, CONFIG, OF_A_BIND, START, Story, job_of, key_of, pod

OLD = pod("train", created=START - 600)  # of an earlier process
RUNS = replace(OLD, node="x1", annotations={**OF_A_BIND, "slurm-bridge/job-id": "17"}, started=START - 500)
BOB = Tenant("bob")


def story_of(what: Pod, *rules: Rule) -> tuple[Story, Workload]:
    """A new process, which knows the pod from its first list."""
    story = Story(replace(CONFIG, policy=Policy(rules or (Rule(("hpc",), ALICE),))), pods=(what,))
    return story, story.world.workloads[key_of(what)]


def job(user: str, *states: str, submitted: float = START - 590, **fields: Any) -> Job:
    return job_of(OLD, 17, *states, user=user, submitted=submitted, **fields)


def is_its(story: Story, workload: Workload, found: Job) -> bool:
    return belongs_to(story.world, workload, found.id, found.user, found)


HPC_BOB = (Rule(("hpc",), BOB), Rule(("other",), ALICE))  # alice had the namespace before


def test_the_job_of_a_waiting_pod_has_the_user_that_the_policy_gives() -> None:
    story, workload = story_of(OLD)
    assert is_its(story, workload, job("alice", "PENDING"))
    assert not is_its(story, workload, job("bob", "PENDING"))


def test_a_job_of_the_former_user_that_waits_is_replaced_and_is_not_the_pods() -> None:
    story, workload = story_of(OLD, *HPC_BOB)
    waits = job("alice", "PENDING")
    assert not is_its(story, workload, waits)
    assert is_to_be_replaced(story.world, workload, waits)


@pytest.mark.parametrize(
    ("nodes", "states", "holds"),
    [("x1", "RUNNING", True), ("x2", "RUNNING", False), ("x1", "CANCELLED", False), ("x[1", "RUNNING", True)],
)
def test_a_job_of_the_former_user_is_the_pods_where_they_may_stand_on_its_nodes(
    nodes: str, states: str, holds: bool
) -> None:
    """Nodes that cannot be read may be those of the pod."""
    story, workload = story_of(replace(RUNS, annotations={}), *HPC_BOB)
    found = job("alice", states, nodes=nodes)
    assert is_its(story, workload, found) is holds
    assert is_to_be_replaced(story.world, workload, found) is not holds


@pytest.mark.parametrize(
    ("nodes", "states", "holds"), [("x1", "RUNNING", True), ("x2", "RUNNING", False), ("x1", "", False)]
)
def test_a_job_of_the_former_user_is_the_pods_where_they_may_stand_on_a_node_of_another_component(
    nodes: str, states: str, holds: bool
) -> None:
    story, workload = story_of(replace(RUNS, annotations={}), *HPC_BOB)
    part = Job(18, "", "alice", frozenset([states or "FAILED"]), nodes=nodes, het_id=17, het_offset=1)
    found = job("alice", states or "FAILED", nodes="x7", het_id=17, het_offset=0, parts=(part,))
    assert is_its(story, workload, found) is holds


def test_a_job_that_was_made_long_after_the_start_as_another_user_is_neither_the_pods_nor_replaced() -> None:
    story, workload = story_of(RUNS, *HPC_BOB)
    late = job("alice", submitted=START + CONFIG.tuning.settle_s + 1)
    assert not is_its(story, workload, late)
    assert not is_to_be_replaced(story.world, workload, late)
    just = replace(late, submitted=START + CONFIG.tuning.settle_s)
    assert is_its(story, workload, just), "a request of the process before may take effect until then"


def test_a_job_whose_submission_time_is_not_known_is_not_replaced() -> None:
    story, workload = story_of(OLD, *HPC_BOB)
    unknown = replace(job("alice", "PENDING"), submitted=None)
    assert not is_its(story, workload, unknown)
    assert not is_to_be_replaced(story.world, workload, unknown)


def test_a_job_of_a_user_that_the_policy_can_not_give_is_not_replaced() -> None:
    story, workload = story_of(OLD, Rule(("hpc",), BOB))
    assert not is_to_be_replaced(story.world, workload, job("alice", "PENDING"))


def test_pods_whose_namespace_has_no_user_any_more_keep_the_job_that_they_name_and_no_other() -> None:
    story, workload = story_of(RUNS, Rule(("other",), ALICE))
    assert is_its(story, workload, job("alice"))
    assert not belongs_to(story.world, workload, 18, "alice", replace(job("alice"), id=18))
    assert belongs_to(story.world, workload, 17, "alice", None), "also before it is read"
    assert not is_to_be_replaced(story.world, workload, job("alice")), "they have no other job"


def test_a_waiting_pod_whose_namespace_has_no_user_any_more_keeps_the_job_that_its_condition_shows() -> None:
    shown = Condition(False, names.PENDING, "Waiting in Slurm partition main. Job 17, as of 08:00 UTC.")
    story = Story(replace(CONFIG, policy=Policy((Rule(("other",), ALICE),))))
    story.polls({17: "PENDING"}, at=START + 1)
    story.sees(replace(OLD, scheduled=shown))
    assert is_its(story, story.world.workloads[key_of(OLD)], job("alice", "PENDING"))


def test_a_surplus_pod_whose_namespace_has_no_user_any_more_keeps_the_job_that_its_condition_shows() -> None:
    """After a restart the pod is in the gang at first, and the gang has the job that the other members show."""
    gang: dict[str, Any] = {"labels": {"slurm-bridge/gang": "g"}, "says": {"gang-size": "2"}, "created": START - 600}
    first, second, surplus = (
        pod(name, scheduled=Condition(False, names.PENDING, f"Waiting in Slurm partition main. Job {job_id}."), **gang)
        for name, job_id in (("w-0", 16), ("w-1", 16), ("w-2", 17))
    )
    story = Story(replace(CONFIG, policy=Policy((Rule(("other",), ALICE),))))
    story.polls({16: "PENDING", 17: "PENDING"}, at=START + 1)
    story.sees(surplus, second, first)
    alone = story.world.workloads[key_of(surplus)]
    assert is_its(story, alone, replace(job_of(surplus, 17, "PENDING"), submitted=START - 590))
    assert not is_its(story, alone, replace(job_of(surplus, 16, "PENDING"), submitted=START - 590))


def test_a_gang_does_not_get_the_job_that_a_client_wrote_on_a_member_because_another_member_waits() -> None:
    """The namespace has no user any more, and the condition of the member that waits shows no job."""
    gang: dict[str, Any] = {"labels": {"slurm-bridge/gang": "g"}, "created": START - 600}
    shown = Condition(False, names.GATHERING, "1 of 2 pods are here.")
    waits = pod("waits", says={"gang-size": "2"}, scheduled=shown, **gang)
    forged = pod("forged", says={"gang-size": "2", "job-id": "17"}, node="x1", **gang)
    story = Story(replace(CONFIG, policy=Policy((Rule(("other",), ALICE),))), pods=(waits, forged))
    [workload] = story.world.workloads.values()
    assert workload.hint == 17
    assert not is_its(story, workload, job("alice"))


@pytest.mark.parametrize("rule", [Rule(("other",), ALICE), Rule(("hpc",), BOB)], ids=["no user", "another user"])
def test_a_gang_without_its_former_user_whose_members_show_two_jobs_keeps_one_of_them(
    rule: Rule,
) -> None:
    gang: dict[str, Any] = {"labels": {"slurm-bridge/gang": "g"}, "created": START - 600}
    bind = {**OF_A_BIND, "slurm-bridge/size": "2", "slurm-bridge/gang-size": "2"}
    members = [
        replace(pod(name, **gang), node="x1", started=START - 500, annotations={**bind, names.JOB_ID: job_id})
        for name, job_id in (("a", "17"), ("b", "18"))
    ]
    story = Story(replace(CONFIG, policy=Policy((rule,))), pods=members)
    [workload] = story.world.workloads.values()
    assert [is_its(story, workload, replace(job("alice"), id=job_id)) for job_id in (17, 18)] == [False, True]


def test_a_pod_whose_namespace_has_no_user_any_more_keeps_its_job() -> None:
    """It may be given the former user again."""
    story, workload = story_of(OLD, Rule(("other",), ALICE))
    assert not is_to_be_replaced(story.world, workload, job("alice", "PENDING"))


def test_where_neither_the_pods_nor_the_job_have_a_user_of_the_policy_the_job_must_be_as_old_as_they_are() -> None:
    story, workload = story_of(RUNS, Rule(("other",), Tenant("carol")))
    assert is_its(story, workload, job("alice"))
    assert not is_its(story, workload, job("alice", submitted=START - 400))


TO_BOB = Policy((Rule(("hpc",), BOB),))
REPLACEMENT = job("alice", nodes="x1", submitted=START - 100)  # with the id of the lost job; the pod is older


def test_a_replacement_of_the_former_user_is_the_pods_although_the_policy_gives_that_user_to_nobody_now() -> None:
    """The process before was killed before it wrote `job-since`; this one read the job after the change (V7)."""
    never, workload = story_of(RUNS, *TO_BOB.rules)
    assert not is_its(never, workload, REPLACEMENT)
    story, workload = story_of(RUNS)
    story.sees(PolicyChanged(TO_BOB, START + 10))
    assert is_its(story, workload, REPLACEMENT)
    assert not is_its(story, workload, replace(REPLACEMENT, nodes="x2"))
    assert not is_its(story, workload, replace(REPLACEMENT, states=frozenset({"CANCELLED"})))
    assert not is_its(story, workload, replace(REPLACEMENT, submitted=START + 11 + CONFIG.tuning.settle_s))
    assert not is_its(story, workload, replace(REPLACEMENT, user="root"))
    assert not is_its(story, workload, replace(REPLACEMENT, user="carol"))


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_replacement_of_the_former_user_by_labels_is_the_pods_although_the_namespace_has_other_labels(
    is_listed: bool,
) -> None:
    story, workload = story_of(RUNS, Rule(("*",), Tenant("{namespace.labels['user']}")))
    namespaces = story.world.namespaces
    assert namespaces is not None
    hpc = namespaces["hpc"]
    others = tuple(each for each in namespaces.values() if each.name != "hpc")
    for user in ("root", "alice", "bob"):
        labelled = replace(hpc, labels={**hpc.labels, "user": user})
        story.sees(NamespacesListed((*others, labelled)) if is_listed else NamespaceSeen(labelled))
    assert is_its(story, workload, REPLACEMENT)
    assert not is_its(story, workload, replace(REPLACEMENT, user="carol"))
    assert not is_its(story, workload, replace(REPLACEMENT, user="root")), (
        "no pod runs as root, whatever the labels say"
    )
    story.sees(NamespacesListed(others) if is_listed else NamespaceDeleted("hpc"))
    assert "hpc" not in story.world.labels_at
    assert not story.world.former_labels, "a later namespace of that name has no former labels"


@pytest.mark.parametrize(
    "rules", [(Rule(("other",), ALICE),), HPC_BOB], ids=["no user in the namespace", "another user in the namespace"]
)
def test_a_client_that_binds_a_pod_as_of_the_job_of_another_user_does_not_make_the_job_the_pods(
    rules: tuple[Rule, ...],
) -> None:
    """If the pod made the job its own, the bridge would cancel the job of alice when the pod of another user ends (V6)."""
    bound_by_client = replace(OLD, node="x1", annotations={"slurm-bridge/job-id": "17"}, started=START - 500)
    story, workload = story_of(bound_by_client, *rules)
    forged = job("alice", nodes="x3")
    assert workload.hint == 17
    assert not is_its(story, workload, forged)


def test_the_job_of_the_user_that_the_policy_gives_is_not_replaced() -> None:
    story, workload = story_of(OLD)
    assert not is_to_be_replaced(story.world, workload, job("alice", "PENDING"))


def test_a_pod_without_a_node_holds_no_job_of_a_former_user_whatever_its_nodes_are() -> None:
    story, workload = story_of(OLD, *HPC_BOB)
    assert is_to_be_replaced(story.world, workload, job("alice", nodes="x[1"))


def test_a_job_that_a_previous_process_submitted_follows_the_policy() -> None:
    story, workload = story_of(OLD)
    waits = job("alice", "PENDING")
    story.polls({17: "PENDING"}, at=START + 1)
    story.reads(waits, at=START + 1)
    assert story.world.placeholders[17].key == workload.key
    story.sees(PolicyChanged(Policy((Rule(("hpc",), BOB),)), START + 2))
    assert not is_its(story, workload, waits)


def test_pods_keep_the_job_that_they_name_and_that_is_as_old_as_they_are_though_no_rule_names_its_user() -> None:
    story, workload = story_of(RUNS, Rule(("hpc",), BOB))
    assert is_its(story, workload, job("alice"))
    assert not is_its(story, workload, replace(job("alice"), id=18)), "they name another job"
    assert not is_its(story, workload, job("alice", submitted=START - 400)), "they started before the job was made"
    assert not is_its(story, workload, job("root")), "no pod runs as root"
    assert not is_its(story, workload, replace(job("alice"), submitted=None)), "its time is not known"


def test_a_job_that_another_user_made_under_the_name_of_a_gang_is_not_its_job_because_members_wait() -> None:
    """slurmctld lost its state and gave the id of the gang's job to it.  A pod that waits has no start to compare with."""
    gang: dict[str, Any] = {"labels": {"slurm-bridge/gang": "g"}, "says": {"gang-size": "2"}, "created": START - 600}
    runs = replace(pod("runs", **gang), node="x1", started=START - 500)
    runs = replace(
        runs, annotations={**runs.annotations, **OF_A_BIND, "slurm-bridge/size": "2", "slurm-bridge/job-id": "17"}
    )
    story = Story(replace(CONFIG, policy=Policy((Rule(("hpc",), BOB),))), pods=(runs, pod("waits", **gang)))
    [workload] = story.world.workloads.values()
    assert workload.pod_counts.unbound == 1
    assert is_its(story, workload, job("carol"))
    assert not is_its(story, workload, job("carol", submitted=START - 400))


@pytest.mark.parametrize("is_deleted", [False, True])
def test_the_job_of_pods_that_have_ended_is_theirs_though_no_rule_gives_its_user_any_more(is_deleted: bool) -> None:
    """Otherwise the job runs on for nothing, beside the job that the waiting pods of the gang get (V1, L2)."""
    gang: dict[str, Any] = {"labels": {"slurm-bridge/gang": "g"}, "says": {"gang-size": "2"}, "created": START - 600}
    bind = {**OF_A_BIND, "slurm-bridge/size": "2", "slurm-bridge/job-id": "17"}
    runs = replace(pod("runs", **gang), node="x1", started=START - 500)
    runs = replace(runs, annotations={**runs.annotations, **bind})
    story = Story(replace(CONFIG, policy=Policy((Rule(("hpc",), BOB),))), pods=(runs, pod("waits", **gang)))
    [workload] = story.world.workloads.values()
    if is_deleted:
        story.loses(runs, START + 5)
    else:
        story.sees(replace(runs, phase=PodPhase.SUCCEEDED))
    assert is_its(story, workload, job("carol"))
    assert not is_its(story, workload, job("carol", submitted=START - 400)), "another job has the id now"


def test_a_pod_that_came_after_the_start_makes_no_job_its_own_by_naming_it() -> None:
    story, _ = story_of(OLD, Rule(("hpc",), BOB))
    young = replace(RUNS, uid="uid-young", name="young", created=START + 50, started=START + 55)
    story.sees(young)
    workload = story.world.workloads[key_of(young)]
    assert not belongs_to(story.world, workload, 17, "alice", job("alice", submitted=START + 52))


def test_only_a_job_of_a_former_user_that_lives_is_waited_for() -> None:
    story, workload = story_of(OLD, *HPC_BOB)
    key = former_user_key(workload, "alice")

    def known(job_id: int, of: str | None, states: str) -> None:
        story.world.placeholders[job_id] = Placeholder(job_id, of, "alice", frozenset({states}), known_since=0.0)
        workload.former_user_jobs |= {job_id}

    known(17, key, "CANCELLED")
    known(18, "of-other-pods", "RUNNING")
    workload.former_user_jobs |= {19}  # forgotten already
    assert living_job_of_former_user(story.world, workload) is None
    known(20, key, "PENDING")
    former = living_job_of_former_user(story.world, workload)
    assert former is not None
    assert former.id == 20


def test_a_job_without_pods_is_the_bridges_only_if_the_policy_can_give_its_user() -> None:
    story, _ = story_of(OLD)
    assert has_user_of_policy(story.world, job("alice"))
    assert not has_user_of_policy(story.world, job("bob"))


def test_a_policy_that_changes_replaces_a_later_job_of_the_former_user() -> None:
    story, workload = story_of(OLD, Rule(("hpc",), ALICE), Rule(("other",), BOB))
    made = job("alice", "PENDING", submitted=START + 100)
    story.sees(PolicyChanged(Policy(HPC_BOB), START + 110))
    assert is_to_be_replaced(story.world, workload, made)
    assert not is_to_be_replaced(
        story.world, workload, replace(made, submitted=START + 110 + CONFIG.tuning.settle_s + 1)
    )


# --- what this process submitted ----------------------------------------------------------------------------------------

NEW = pod("train", created=START + 10)
NOW = START + 20


def submitted_story(story: Story) -> Workload:
    """The job of the pod waits as alice, and was read; then the policy gives bob, and nobody alice any more."""
    story.queues(NEW, 17, at=NOW)
    story.reads(job_of(NEW, 17, "PENDING", submitted=NOW), at=NOW + 1)
    story.sees(PolicyChanged(TO_BOB, NOW + 2))
    return story.world.workloads[key_of(NEW)]


def test_a_job_that_this_process_submitted_stays_the_pods_under_another_policy() -> None:
    story = Story()
    workload = submitted_story(story)
    read = job_of(NEW, 17, "PENDING", submitted=NOW)
    assert belongs_to(story.world, workload, 17, "alice", read)
    assert belongs_to(story.world, workload, 17, "alice", None)
    assert not belongs_to(story.world, workload, 17, "carol", replace(read, user="carol"))
    assert not belongs_to(story.world, workload, 18, "alice", replace(read, id=18))


def test_another_job_that_got_the_id_of_a_job_that_this_process_submitted_is_not_the_pods() -> None:
    story = Story()
    workload = submitted_story(story)
    assert not belongs_to(story.world, workload, 17, "alice", job_of(NEW, 17, "PENDING", submitted=NOW + 30))


def test_a_job_of_the_user_that_this_process_just_asked_as_is_the_pods() -> None:
    story = Story()
    story.sees(NEW)
    assert story.acts(AllocateNow, NOW)
    story.sees(PolicyChanged(TO_BOB, NOW + 1))
    workload = story.world.workloads[key_of(NEW)]
    assert belongs_to(story.world, workload, 17, "alice", None)
    assert not belongs_to(story.world, workload, 17, "carol", None)


@pytest.mark.parametrize(("after_s", "found"), [(0, True), (12, True), (13, False)])
def test_after_a_lost_answer_a_job_is_the_pods_if_it_was_made_before_the_request_was_over(
    after_s: float, found: bool
) -> None:
    story = Story()
    story.sees(NEW)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.UNKNOWN, at=NOW)
    story.sees(PolicyChanged(TO_BOB, NOW + 1))
    workload = story.world.workloads[key_of(NEW)]
    made = job_of(NEW, 17, submitted=NOW + after_s)
    assert belongs_to(story.world, workload, 17, "alice", made) is found
    assert belongs_to(story.world, workload, 17, "alice", replace(made, submitted=None)), "its time is not known"
    assert belongs_to(story.world, workload, 17, "alice", None)
    assert not belongs_to(story.world, workload, 17, "carol", replace(made, user="carol"))


def test_a_job_whose_pods_are_gone_is_judged_by_the_user_of_those_pods() -> None:
    story, workload = story_of(OLD, Rule(("hpc",), ALICE), Rule(("other",), BOB))
    story.loses(OLD, START + 5)
    assert not workload.pods
    assert is_its(story, workload, job("alice"))
    assert not is_its(story, workload, job("bob"))


def test_a_job_of_a_workload_whose_pods_are_unknown_is_its_if_the_policy_can_give_its_user() -> None:
    story, _ = story_of(OLD)
    unknown = Workload("of-nobody")
    assert is_its(story, unknown, job("alice"))
    assert not is_its(story, unknown, job("bob")), "no rule gives bob"
    assert not belongs_to(story.world, unknown, 17, "alice", None), "it was not read"
