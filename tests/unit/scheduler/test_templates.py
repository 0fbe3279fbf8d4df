"""Texts that are filled from the namespace, its labels and the service account (I1)."""

from __future__ import annotations

import pytest

from scheduler.model.kubernetes import Requirement
from scheduler.model.refusal import Refusal
from scheduler.policy.rules import ANY, Choice, Policy, Rule, Tenant
from scheduler.policy.templates import LONGEST, Missing, Origin, can_give, fill, mistake, no_ordinary_user, sources

LABEL = "{namespace.labels['x/slurm-user']}"
SELECTED = (Requirement("tenant", "Exists"),)
HERE = Origin("team-a", "trainer", {"x/slurm-user": "alice", "empty": ""})


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("alice", "alice"),
        ("a" * LONGEST, "a" * LONGEST),
        ("{namespace}", "team-a"),
        ("k8s-{namespace}-{serviceAccount}", "k8s-team-a-trainer"),
        (LABEL, "alice"),
        ('{namespace.labels["x/slurm-user"]}2', "alice2"),
    ],
)
def test_a_template_is_filled_from_the_sources_that_it_names(text: str, filled: str) -> None:
    assert mistake(text) == ""
    assert fill(text, HERE) == filled


def test_a_value_is_not_filled_again() -> None:
    assert fill("{namespace}", Origin("{serviceAccount}", "bob")) == "{serviceAccount}"


@pytest.mark.parametrize("key", ["x/other", "empty"])
def test_a_label_that_is_missing_or_empty_is_named_with_what_to_do(key: str) -> None:
    with pytest.raises(Missing) as missing:
        fill(f"{{namespace.labels['{key}']}}", HERE)
    assert str(missing.value) == (
        f"namespace team-a has no label {key}. An admin sets it: kubectl label namespace team-a {key}=VALUE"
    )


def test_a_missing_service_account_gives_no_user() -> None:
    with pytest.raises(Missing, match="names no service account"):
        fill("{serviceAccount}", Origin("team-a"))


@pytest.mark.parametrize(
    "text",
    [
        "{pod.labels['user']}",
        "{labels['user']}",
        "{annotations['user']}",
        "{namespace.annotations['user']}",
        "{namespace.labels[user]}",
        "{namespace.labels['']}",
        "{namespace.labels['a']['b']}",
        "{ namespace }",
        "{}",
        "{namespace",
        "namespace}",
        "{{namespace}}",
        "a" * (LONGEST + 1),
    ],
)
def test_nothing_else_is_a_source(text: str) -> None:
    assert mistake(text)


@pytest.mark.parametrize(
    ("text", "value", "possible"),
    [
        ("alice", "alice", True),
        ("alice", "alice2", False),
        ("{namespace}", "anything", True),
        ("{namespace}", "", False),
        ("k8s-{namespace}", "k8s-a", True),
        ("k8s-{namespace}", "k8s-", False),
        ("k8s-{namespace}", "a", False),
        ("{namespace}-{serviceAccount}", "a-b", True),
        ("{namespace}-{serviceAccount}", "-b", False),
        ("{namespace}-{serviceAccount}", "a-", False),
        ("{namespace}-{serviceAccount}", "ab", False),
        ("u-{namespace}-x", "u-x", False),
        ("u-{namespace}-x", "u-y-x", True),
        ("{namespace}", "a" * (LONGEST + 1), False),
    ],
)
def test_can_give_says_if_a_template_can_give_a_name(text: str, value: str, possible: bool) -> None:
    assert can_give(text, value) is possible


def test_a_name_that_nearly_matches_everywhere_is_judged_in_linear_time() -> None:
    """A pattern that goes back would take longer than the universe."""
    assert not can_give("{namespace}a" * 40 + "b", "a" * LONGEST)


@pytest.mark.parametrize(
    "user", ["root", "ROOT", "Root", "0", "1000", "-1", "+0", "", "a b", "a\tb", "a\n", "a,b", "*", "a\x00"]
)
def test_root_slurm_user_and_invalid_names_are_no_ordinary_users(user: str) -> None:
    assert no_ordinary_user(user)


# --- in a rule --------------------------------------------------------------------------------------------------------


def test_two_hundred_tenants_are_one_rule() -> None:
    policy = Policy((Rule((), Tenant(LABEL, accounts=Choice("acct-{namespace}", ("{namespace}-dev",))), (), SELECTED),))
    for number in range(200):
        labels = {"tenant": "", "x/slurm-user": f"user{number}"}
        assert policy.tenant(f"team-{number}", "default", labels) == Tenant(
            f"user{number}", accounts=Choice(f"acct-team-{number}", (f"team-{number}-dev",))
        )


def test_a_rule_selects_namespaces_by_name_by_label_or_by_both() -> None:
    by_name, by_label = Rule(("a-*",), Tenant("alice")), Rule((), Tenant("bob"), (), SELECTED)
    both = Rule(("a-*",), Tenant("carol"), (), SELECTED)
    policy = Policy((both, by_name, by_label))

    def user(namespace: str, labels: dict[str, str]) -> str:
        found = policy.tenant(namespace, "default", labels)
        return "" if isinstance(found, Refusal) else found.user

    assert user("a-1", {"tenant": "x"}) == "carol"
    assert user("a-1", {}) == "alice"
    assert user("b-1", {"tenant": ""}) == "bob"
    assert user("b-1", {}) == ""


@pytest.mark.parametrize("user", ["root", "Root", "1000", "hpcd", "HPCD"])
def test_a_user_from_a_template_is_checked_like_a_literal_user(user: str) -> None:
    policy = Policy((Rule(("team-*",), Tenant(LABEL)),), privileged=frozenset({"hpcd"}))
    refused = policy.tenant("team-a", "default", {"x/slurm-user": user})
    assert isinstance(refused, Refusal)
    assert refused.message.startswith(
        f'Rule 1 of the policy (namespaces team-*) fills user from "{LABEL}" with "{user}", which '
    )


def test_a_missing_label_is_a_refusal_that_names_the_rule_and_never_an_empty_user() -> None:
    refused = Policy((Rule(("team-*",), Tenant(LABEL)),)).tenant("team-a", "default", {})
    assert isinstance(refused, Refusal)
    assert refused.message == (
        f'Rule 1 of the policy (namespaces team-*) fills user from "{LABEL}", and namespace team-a has no label '
        "x/slurm-user. An admin sets it: kubectl label namespace team-a x/slurm-user=VALUE."
    )


def test_a_rule_that_matches_decides_though_it_cannot_be_filled() -> None:
    """A removed label does not make the next rule decide."""
    policy = Policy((Rule(("team-*",), Tenant(LABEL)), Rule(("*",), Tenant("bob"))), default=Tenant("carol"))
    assert isinstance(policy.tenant("team-a", "default", {}), Refusal)


def test_a_default_account_without_its_label_is_refused_and_an_allowed_one_is_left_out() -> None:
    account = "{namespace.labels['account']}"
    assert isinstance(Policy(default=Tenant("alice", accounts=Choice(account))).tenant("team-a", "", {}), Refusal)
    found = Policy(default=Tenant("alice", accounts=Choice("", (account, "b")))).tenant("team-a", "", {})
    assert found == Tenant("alice", accounts=Choice("", ("b",)))


@pytest.mark.parametrize("value", [ANY, "a,b", "a b"])
def test_a_label_does_not_allow_everything(value: str) -> None:
    account = Choice("", ("{namespace.labels['account']}",))
    assert Policy(default=Tenant("alice", account)).tenant("a", "", {"account": value}) == Tenant("alice", Choice())


def test_only_users_that_a_template_can_give_can_own_placeholders() -> None:
    policy = Policy((Rule(("a",), Tenant("k8s-{namespace}")),), privileged=frozenset({"k8s-slurm"}))
    known = ("k8s-a", "k8s-gone", "alice", "root", "k8s-", "k8s-slurm", "K8S-Slurm")
    assert [user for user in known if policy.can_give(user)] == ["k8s-a", "k8s-gone"]
    assert policy.can_give_in("a", "k8s-a")
    assert not policy.can_give_in("b", "k8s-a")


def test_a_template_gives_in_a_namespace_what_its_labels_and_any_service_account_fill() -> None:
    """The job of a pod that is gone: its service account is not known any more."""
    by_account = Tenant("{namespace.labels['x/slurm-user']}-{serviceAccount}")
    policy = Policy((Rule(("team-*",), by_account), Rule(("team-*",), Tenant("bob")), Rule(("ops",), Tenant("carol"))))
    labels = {"x/slurm-user": "user1"}
    assert policy.gives_in("team-a", labels, "user1-builder")
    assert not policy.gives_in("team-a", labels, "user2-builder")
    assert not policy.gives_in("team-a", {}, "user1-builder"), "the label has no value"
    assert not policy.gives_in("team-a", {"x/slurm-user": "{serviceAccount}"}, "user1-builder"), (
        "no text is parsed twice"
    )
    assert policy.gives_in("team-a", {}, "bob")
    assert not policy.gives_in("team-a", {}, "carol"), "a rule of another namespace"


def test_a_template_names_its_sources_in_order() -> None:
    assert sources("{namespace}-x-{serviceAccount}") == ["{namespace}", "{serviceAccount}"]
    assert sources("plain") == []
