"""How much one job of a rule may ask for, and what PriorityClasses mean (I7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.actions import AllocateNow, SetPodCondition, SubmitJob
from scheduler.model.kubernetes import Owner, Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import UNLIMITED, JobSpec
from scheduler.policy.rules import Choice, Policy, Priority, Rule, Tenant
from scheduler.translate.job_spec import Translation, TranslationContext, jobspec
from tests.builders import CLUSTER, CONFIG, OWNER, START, Story, key_of, node, pod
from tests.unit.scheduler.test_gangs import ring

NOW = START + 20
GRES = {"nvidia.com/gpu": "gpu", "nvidia.com/mig-1g.10gb": "gpu:1g.10gb", "x/fpga": "fpga"}
PRIORITIES = {"high": Priority("urgent"), "low": Priority(nice=100), "both": Priority("urgent", 5)}
LONGEST = {"": 600, "endless": UNLIMITED}


def asks(what: Pod, tenant: Tenant, pods: int = 1, owners: tuple[Owner, ...] = ()) -> JobSpec | Refusal:
    translation_context = TranslationContext(Translation(GRES), CLUSTER, LONGEST.get, PRIORITIES)
    return jobspec(
        what, owners, replace(tenant, rule="Rule 1 of the policy"), translation_context, key_of(what), pods=pods
    )


def spec(what: Pod, tenant: Tenant, pods: int = 1) -> JobSpec:
    found = asks(what, tenant, pods)
    assert isinstance(found, JobSpec), found
    return found


def no(what: Pod, tenant: Tenant, pods: int = 1, owners: tuple[Owner, ...] = ()) -> str:
    found = asks(what, tenant, pods, owners)
    assert isinstance(found, Refusal), found
    return found.message


# --- max_time -----------------------------------------------------------------------------------------------------------

TIMED = Tenant("alice", max_time_min=120)


@pytest.mark.parametrize(
    ("says", "given", "sentence"),
    [
        ({"time-limit": "2:01:00"}, {}, 'Annotation slurm-bridge/time-limit: "2:01:00" asks for 121 minutes.'),
        ({"time-limit": "UNLIMITED"}, {}, 'Annotation slurm-bridge/time-limit: "UNLIMITED" asks for no time limit.'),
        ({}, {"active_deadline_s": 7201}, "activeDeadlineSeconds: 7201 asks for 121 minutes."),
    ],
    ids=["longer", "no limit", "a deadline"],
)
def test_a_time_limit_beyond_the_rules_is_refused_and_says_who_asks_for_it(
    says: dict[str, str], given: dict[str, Any], sentence: str
) -> None:
    assert (
        no(pod(says=says, **given), TIMED)
        == f"{sentence} Rule 1 of the policy allows 120 minutes (max_time). Ask for less."
    )


def test_the_deadline_of_a_batch_job_counts_as_the_pods_own() -> None:
    assert "activeDeadlineSeconds: 9000 asks for 150 minutes" in no(
        pod(), TIMED, owners=(Owner(OWNER, active_deadline_s=9000),)
    )


@pytest.mark.parametrize(
    ("tenant", "says", "minutes"),
    [
        (TIMED, {"time-limit": "120"}, 120),
        (TIMED, {}, 120),
        (Tenant("alice", max_time_min=5000), {}, 600),
        (Tenant("alice", partitions=Choice("endless"), max_time_min=5000), {}, 5000),
        (Tenant("alice", partitions=Choice("new"), max_time_min=5000), {}, 5000),
    ],
    ids=["as asked", "none asked", "the partition's is shorter", "the partition has none", "not known"],
)
def test_a_pod_that_names_no_time_limit_is_given_the_rules_as_far_as_the_partition_goes(
    tenant: Tenant, says: dict[str, str], minutes: int
) -> None:
    for restart in ("Never", "Always"):
        assert spec(pod(says=says, restart_policy=restart), tenant).time_limit_min == minutes


def test_time_min_beyond_the_rules_time_is_refused() -> None:
    assert "asks for at least 200 minutes, but the time limit is 120" in no(pod(says={"time-min": "200"}), TIMED)


# --- max_nodes ----------------------------------------------------------------------------------------------------------

FEW = Tenant("alice", max_nodes=4)


def test_a_gang_takes_no_more_nodes_than_the_rule_allows() -> None:
    assert spec(pod(), FEW, pods=8).max_nodes == 4
    assert spec(pod(says={"max-nodes": "3"}), FEW, pods=8).max_nodes == 3
    assert spec(pod(), FEW, pods=4).max_nodes is None, "so many pods take no more nodes anyway"
    assert spec(pod(), FEW).max_nodes is None


@pytest.mark.parametrize("says", [{"min-nodes": "5"}, {"max-nodes": "5"}])
def test_a_gang_that_wants_more_nodes_is_refused(says: dict[str, str]) -> None:
    assert no(pod(says=says), FEW, pods=8) == (
        "The pods of the job may take 5 nodes. Rule 1 of the policy allows 4 (max_nodes). Ask for less."
    )


# --- max_gres -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "what", "sentence"),
    [
        ({"gpu": 2}, pod(gpu=3), "The pods of the job ask for 3 gpu. Rule 1 of the policy allows 2 (max_gres)."),
        ({"gpu": 0}, pod(gpu=1), "The pods of the job ask for 1 gpu. Rule 1 of the policy allows 0 (max_gres)."),
        ({"gpu": 2}, pod(gpu=2, says={"gres": "gpu:h100:3"}), "ask for 3 gpu."),
        ({"gpu:h100": 1}, pod(says={"gres": "gpu:h100:2"}), "ask for 2 gpu:h100."),
    ],
)
def test_more_devices_than_the_rule_allows_are_refused(most: dict[str, int], what: Pod, sentence: str) -> None:
    assert sentence in no(what, Tenant("alice", max_gres=tuple(most.items())))


def test_what_the_rule_does_not_name_and_what_is_within_it_is_asked_for() -> None:
    tenant = Tenant("alice", max_gres=(("gpu", 2), ("gpu:h100", 1)))
    assert spec(pod(gpu=2), tenant).gres == (("gpu", 2),)
    assert spec(pod(says={"gres": "fpga:7,gpu:a100:2"}), tenant).gres == (("fpga", 7), ("gpu:a100", 2))


def ruled(**limits: Any) -> Story:
    config = replace(CONFIG, policy=Policy((Rule(("hpc",), Tenant("alice", **limits)),)))
    return Story(config, nodes=[node(f"x{number}") for number in range(1, 5)])


def test_the_devices_of_all_pods_of_a_gang_count_together() -> None:
    story = ruled(max_gres=(("gpu", 7),))
    story.sees(*ring(4, gpu=2))
    assert {each.message for each in story.acts(SetPodCondition, NOW)} == {
        "The pods of the job ask for 8 gpu. Rule 1 of the policy (namespaces hpc) allows 7 (max_gres). Ask for less."
    }
    story = ruled(max_gres=(("gpu", 8),))
    story.sees(*ring(4, gpu=2))
    assert [each for each in story.decides(NOW) if isinstance(each, AllocateNow | SubmitJob)]


@pytest.mark.parametrize(("most", "shares"), [(2, [1, 1]), (3, [2, 1]), (4, [None, None])])
def test_the_components_of_a_gang_share_the_nodes_that_the_rule_allows(most: int, shares: list[int | None]) -> None:
    story = ruled(max_nodes=most)
    story.sees(*of_two_kinds())
    [spec] = [each.spec for each in story.acts(SubmitJob, NOW)]
    assert [each.max_nodes for each in (spec, *spec.parts)] == shares


def test_a_gang_of_more_kinds_than_the_rule_allows_nodes_is_refused() -> None:
    story = ruled(max_nodes=1)
    story.sees(*of_two_kinds())
    assert {each.message for each in story.acts(SetPodCondition, NOW)} == {
        "2 kinds of pods of this gang ask for different resources or nodes, and Slurm gives each kind nodes of its own: at "
        "least 2 nodes in all. Annotation slurm-bridge/max-nodes or the policy (max_nodes) allows 1. Raise the number, or "
        "let the pods ask for the same."
    }


def of_two_kinds() -> list[Pod]:
    """Two pods of 1 CPU and two of 2 CPUs."""
    return [
        replace(each, containers=pod(cpu=1000 * (1 + number % 2)).containers) for number, each in enumerate(ring(4))
    ]


# --- priority classes ---------------------------------------------------------------------------------------------------

URGENT = Tenant("alice", qos=Choice("normal", ("urgent", "high")))


@pytest.mark.parametrize(
    ("name", "says", "qos", "nice"),
    [
        ("high", {}, "urgent", None),
        ("low", {}, "normal", 100),
        ("both", {}, "urgent", 5),
        ("unknown", {}, "normal", None),
        ("", {}, "normal", None),
        ("both", {"qos": "high"}, "high", 5),
        ("both", {"nice": "0"}, "urgent", 0),
    ],
)
def test_a_priority_class_chooses_what_the_annotations_do_not(
    name: str, says: dict[str, str], qos: str, nice: int | None
) -> None:
    found = spec(pod(priority_class=name, says=says), URGENT)
    assert (found.qos, found.nice) == (qos, nice)


def test_a_priority_class_chooses_only_what_the_rule_allows() -> None:
    assert no(pod(priority_class="high"), Tenant("alice", qos=Choice("normal"))) == (
        'The qos "urgent" is not allowed for namespace hpc. Allowed here: normal. '
        "PriorityClass high of the pod selects this QOS (settings: priority_classes)."
    )
    refused = no(pod(priority_class="high", says={"qos": "best"}), URGENT)
    assert refused == 'The qos "best" is not allowed for namespace hpc. Allowed here: high, normal, urgent.'
