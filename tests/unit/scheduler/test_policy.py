"""Who a namespace may be in Slurm (I1)."""

from __future__ import annotations

import pytest

from scheduler.apply.events import new_world
from scheduler.events import JobsPolled
from scheduler.model.kubernetes import Requirement
from scheduler.model.refusal import Refusal
from scheduler.policy import tenants
from scheduler.policy.rules import ANY, Choice, Policy, Rule, Tenant
from scheduler.policy.tenants import Identities
from tests.builders import CONFIG, START, Story, pod

ALICE, BOB, CAROL = Tenant("alice"), Tenant("bob"), Tenant("carol")


def test_the_first_rule_that_matches_decides() -> None:
    policy = Policy((Rule(("team-*",), ALICE), Rule(("team-a", "b"), BOB)))
    assert policy.tenant("team-a", "default") == ALICE
    assert policy.tenant("b", "default") == BOB


def test_a_rule_may_be_for_some_service_accounts_only() -> None:
    policy = Policy((Rule(("hpc",), ALICE, ("trainer-*",)), Rule(("hpc",), BOB)))
    assert policy.tenant("hpc", "trainer-1") == ALICE
    assert policy.tenant("hpc", "default") == BOB
    assert policy.tenant("hpc", "") == BOB


def test_a_rule_with_neither_names_nor_labels_matches_no_pod() -> None:
    policy = Policy((Rule((), ALICE),))
    assert isinstance(policy.tenant("hpc", "default"), Refusal)
    assert not policy.can_give_in("hpc", "alice")


def test_patterns_are_case_sensitive_and_whole() -> None:
    assert isinstance(Policy((Rule(("team",), ALICE),)).tenant("team-a", ""), Refusal)
    assert isinstance(Policy((Rule(("TEAM",), ALICE),)).tenant("team", ""), Refusal)


def test_where_no_rule_matches_the_default_does() -> None:
    assert Policy((Rule(("hpc",), ALICE),), default=CAROL).tenant("other", "") == CAROL


def test_a_namespace_without_a_rule_is_refused_with_what_to_do() -> None:
    refused = Policy((Rule(("hpc",), ALICE),)).tenant("other", "default")
    assert isinstance(refused, Refusal)
    assert refused.message == (
        "Namespace other has no Slurm user: the admin's policy has no rule for it, and no default. "
        "Ask the admin for a rule under `policy` in the settings of slurm-bridge."
    )


def test_only_users_of_the_policy_can_own_placeholders() -> None:
    policy = Policy((Rule(("hpc",), ALICE), Rule(("b",), BOB), Rule(("c",), ALICE)), default=CAROL)
    known = ("alice", "bob", "carol", "dave", "root", "")
    assert [user for user in known if policy.can_give(user)] == ["alice", "bob", "carol"]
    assert not Policy().can_give("alice")


@pytest.mark.parametrize(
    ("choice", "wanted", "picked"),
    [
        (Choice(), None, ""),
        (Choice("teama"), None, "teama"),
        (Choice("teama"), "teama", "teama"),
        (Choice("teama", ("teamb",)), "teamb", "teamb"),
        (Choice("teama", (ANY,)), "anything", "anything"),
        (Choice("", (ANY,)), None, ""),
    ],
)
def test_a_choice_within_what_is_allowed(choice: Choice, wanted: str | None, picked: str) -> None:
    assert choice.pick("account", wanted, "here") == picked


@pytest.mark.parametrize(
    ("option", "is_found"), [("account", True), ("qos", True), ("partition", False), ("reservation", False)]
)
def test_upper_case_matters_where_it_matters_to_slurm(option: str, is_found: bool) -> None:
    for choice in (Choice("TeamA"), Choice("", ("TeamA",))):
        assert isinstance(choice.pick(option, "teama", "here"), str) is is_found


@pytest.mark.parametrize(
    ("choice", "hint"),
    [
        (Choice(), "No value may be chosen here: ask for none, or have the admin allow this one in the policy."),
        (Choice("teama"), "Allowed here: teama."),
        (Choice("", ("b", "a")), "Allowed here: a, b."),
    ],
)
def test_a_refusal_names_the_allowed_values(choice: Choice, hint: str) -> None:
    refused = choice.pick("account", "teamx", "namespace hpc")
    assert isinstance(refused, Refusal)
    assert refused.message == f'The account "teamx" is not allowed for namespace hpc. {hint}'


LABELS = {"tenant": "red", "stage": "test"}


@pytest.mark.parametrize(
    ("expression", "written"),
    [
        (Requirement("tenant", "In", ("red",)), "tenant=red"),
        (Requirement("tenant", "In", ("red", "blue")), "tenant in (red,blue)"),
        (Requirement("tenant", "NotIn", ("green",)), "tenant notin (green)"),
        (Requirement("tenant", "Exists"), "tenant"),
        (Requirement("gone", "DoesNotExist"), "!gone"),
    ],
)
def test_a_rule_is_called_by_what_it_selects_as_kubectl_writes_it(expression: Requirement, written: str) -> None:
    rule = Rule(("team-*", "b"), ALICE, ("trainer",), (expression,))
    policy = Policy((rule,), default=BOB)
    assert policy.tenant("b", "trainer", LABELS) == ALICE
    called = f"Rule 1 of the policy (namespaces team-*, b; namespace labels {written}; service accounts trainer)"
    assert [policy.called(place) for place in (0, 1)] == [called, "The default of the policy"]


def test_no_pod_gets_slurm_user_though_a_rule_names_it() -> None:
    refused = Policy((Rule(("hpc",), Tenant("Slurm")),), privileged=frozenset({"slurm"})).tenant("hpc", "")
    assert isinstance(refused, Refusal)
    assert refused.message == (
        'Rule 1 of the policy (namespaces hpc) gives user "Slurm", the user that runs Slurm (SlurmUser).'
    )


def test_a_policy_knows_if_some_text_of_it_is_a_template() -> None:
    plain = Policy((Rule(("hpc",), ALICE),), default=Tenant("bob", qos=Choice("normal", ("high",))))
    assert not plain.has_templates
    assert Policy((Rule(("hpc",), Tenant("{namespace}")),)).has_templates
    assert Policy(default=Tenant("bob", accounts=Choice("", ("{namespace}-dev",)))).has_templates


def test_what_tenants_can_count_up_is_forgotten_and_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """X7: a tenant chooses how many service accounts there are."""
    monkeypatch.setattr(tenants, "MAX_REMEMBERED", 3)
    identities = Identities(Policy(default=Tenant("{serviceAccount}")))
    for number in range(10):
        found = identities.of("hpc", {}, f"sa{number}")
        assert isinstance(found, Tenant)
        assert found.user == f"sa{number}"
        assert len(identities._known) <= 3
    assert identities.of("hpc", {}, "sa9") is found, "the last answers are remembered"
    for number in (10, 11):
        identities.of("hpc", {}, f"sa{number}")
    assert identities.of("hpc", {}, "sa9") is found, "as long as there is room"


def test_pods_have_one_tenant_only_if_all_of_them_are_managed_and_are_given_the_same() -> None:
    world = Story().world
    mine, theirs = pod("mine"), pod("theirs", namespace="other")
    known = world.known_tenant([mine, pod("another")])
    assert known is not None
    assert known.tenant.user == "alice"
    for others in ((), (mine, theirs), (mine, pod("wild", namespace="unmanaged"))):
        assert world.known_tenant(others) is None


def test_before_the_first_poll_no_pod_waits_for_jobs_to_be_read() -> None:
    world = new_world(CONFIG, started=START)
    assert world.scan_ends_at == float("-inf")
    world.apply(JobsPolled(START, START, {}))
    assert world.scan_ends_at > START
