"""`slurm-bridge policy check` and `policy show`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge import settings
from bridge.__main__ import main
from bridge.cli.policy_check import takes_all_of
from scheduler.model.kubernetes import Requirement
from scheduler.policy.rules import Rule, Tenant

LABEL = "{namespace.labels['x/slurm-user']}"
ALICE = Tenant("alice")
TENANT, OTHER = Requirement("tenant", "Exists"), Requirement("zone", "In", ("a",))


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_BRIDGE_CONFIG", "SLURM_BRIDGE_SLURM_URL", "SLURM_JWT", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")


def written(tmp_path: Path, *rules: dict[str, Any], **more: Any) -> str:
    file = tmp_path / "settings.yaml"
    policy = {"rules": list(rules), **{key: more.pop(key) for key in ("default",) if key in more}}
    file.write_text(yaml.safe_dump({"policy": policy, **more}))
    return str(file)


def checked(path: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["policy", "check", path])
    return code, " ".join(capsys.readouterr().out.split())


def shown(path: str, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, list[str]]:
    code = main(["policy", "show", "--config", path, *options])
    return code, [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


# --- check --------------------------------------------------------------------------------------------------------------


def test_a_policy_without_a_flaw_is_nothing_to_look_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = checked(written(tmp_path, {"namespaces": ["a"], "user": "alice"}, default={"user": "bob"}), capsys)
    assert code == 0
    assert "1 rule and a default" in said
    assert "not checked, since the settings name no Slurm" in said


@pytest.mark.parametrize("more", [{"slurm_url": "http://127.0.0.1:9", "slurm_token_file": "/none"}, {"polcy": {}}])
def test_a_policy_on_standard_input_is_checked_as_a_file_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    path = written(tmp_path, {"namespaces": ["a"], "user": "alice"}, **more)

    def said(name: str) -> tuple[int, str]:
        code = main(["policy", "check", name])
        return code, "".join(capsys.readouterr()).replace(path, "standard input")

    monkeypatch.setattr("sys.stdin", io.StringIO(Path(path).read_text()))  # which gives it once, as a pipe does
    settings._standard_input.cache_clear()
    assert said("-") == said(path)


@pytest.mark.parametrize(
    ("one", "other", "all_of_it"),
    [
        (Rule(("*",), ALICE), Rule(("a",), ALICE), True),
        (Rule(("team-*",), ALICE), Rule(("team-a", "team-b-*"), ALICE), True),
        (Rule(("team-*",), ALICE), Rule(("team-a", "b"), ALICE), False),
        (Rule(("team-*",), ALICE), Rule(("team*",), ALICE), False),
        (Rule(("team-?",), ALICE), Rule(("team-a",), ALICE), True),
        (Rule(("team-?",), ALICE), Rule(("team-*",), ALICE), False),
        (Rule(("a",), ALICE, ("svc-*",)), Rule(("a",), ALICE, ("svc-1",)), True),
        (Rule(("a",), ALICE, ("svc-*",)), Rule(("a",), ALICE), False),
        (Rule(("a",), ALICE), Rule(("a",), ALICE, ("svc-1",)), True),
        (Rule((), ALICE, (), (TENANT,)), Rule(("a",), ALICE, (), (OTHER, TENANT)), True),
        (Rule((), ALICE, (), (TENANT, OTHER)), Rule((), ALICE, (), (TENANT,)), False),
        (Rule(("a",), ALICE), Rule((), ALICE, (), (TENANT,)), False),
        (Rule(("*",), ALICE), Rule((), ALICE, (), (TENANT,)), True),
    ],
)
def test_a_rule_behind_another_that_takes_all_of_its_pods_is_found(one: Rule, other: Rule, all_of_it: bool) -> None:
    assert takes_all_of(one, other) is all_of_it


def test_overlapping_rules_are_reported_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, {"namespaces": ["team-*"], "user": "alice"}, {"namespaces": ["team-a"], "user": "bob"})
    code, said = checked(path, capsys)
    assert code == 1
    assert (
        "Rule 2 (namespaces team-a) is never reached: rule 1 (namespaces team-*) matches all of its pods, and the first "
        "rule that matches decides. → Put rule 2 before rule 1, or remove it."
    ) in said
    code, said = checked(written(tmp_path, {"namespaces": ["*"], "user": "alice"}, default={"user": "bob"}), capsys)
    assert "The default is never reached: rule 1 matches every pod." in said


def test_a_policy_without_rules_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = checked(written(tmp_path), capsys)
    assert code == 1
    assert "every pod is refused" in said


@pytest.mark.parametrize(("accounts", "code"), [([], 1), (["svc-*"], 1), (["svc-a", "svc-b"], 0)])
def test_users_that_creators_of_service_accounts_choose_are_a_warning(
    accounts: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = {"namespaces": ["a"], "user": "{serviceAccount}", "service_accounts": accounts}
    assert checked(written(tmp_path, rule), capsys)[0] == code


def test_a_priority_class_that_no_rule_allows_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rule = {"namespaces": ["a"], "user": "alice", "qos": {"allowed": ["urgent"]}}
    path = written(tmp_path, rule, priority_classes={"high": {"qos": "Urgent"}, "odd": {"qos": "nowhere"}})
    code, said = checked(path, capsys)
    assert code == 1
    assert "PriorityClass odd selects QOS nowhere, which no rule allows: its pods are refused." in said
    assert "PriorityClass high" not in said


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"namespaces": [], "user": "a"}, "policy.rules (1st entry).namespaces: "),
        (
            {"user": "a"},
            "policy.rules (1st entry): selects no namespace: name some under namespaces, or their labels under",
        ),
        ({"namespaces": [""], "user": "a"}, "policy.rules (1st entry): an empty pattern matches nothing."),
        (
            {"namespaces": ["x"], "user": "a", "max_jobs": True},
            "policy.rules (1st entry).max_jobs: must be a whole number.",
        ),
        (
            {"namespace_selector": {}, "user": "a"},
            "policy.rules (1st entry).namespace_selector: selects every namespace",
        ),
        (
            {"namespace_selector": {"matchExpressions": [{"key": "x", "operator": "In"}]}, "user": "a"},
            "values must be given for In and NotIn, and for nothing else",
        ),
        ({"namespace_selector": {"matchLabel": {"x": "y"}}, "user": "a"}, "unknown key; did you mean matchLabels?"),
        ({"namespaces": ["a"], "user": "{pod.labels['x']}"}, "which is not a source; the sources are {namespace}, "),
        ({"namespaces": ["a"], "user": "Root"}, "must be an ordinary Slurm user's name."),
        ({"namespaces": ["a"], "user": "0"}, "must be an ordinary Slurm user's name, not a number."),
        ({"namespaces": ["a"], "user": "a", "max_time": 7200}, "max_time: must be in quotes"),
        ({"namespaces": ["a"], "user": "a", "max_time": "soon"}, 'max_time: "soon" is not'),
        ({"namespaces": ["a"], "user": "a", "max_gres": {"gpu:": 1}}, '"gpu:" is not a GRES as Slurm names it'),
        ({"namespaces": ["a"], "user": "a", "max_gres": {"gpu": -1}}, "max_gres.gpu: must be at least 0."),
        ({"namespaces": ["a"], "user": "a", "max_nodes": 0}, "policy.rules (1st entry).max_nodes: "),
        ({"namespaces": ["a"], "user": "a", "max_node": 1}, "unknown key; did you mean max_nodes?"),
        ({"namespaces": ["a"], "user": "a", "account": {"allowed": ["{x}"]}}, "which is not a source"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_key(
    rule: dict[str, Any], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "check", written(tmp_path, rule)]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("classes", "sentence"),
    [
        ({"high": {}}, "priority_classes.high: has no effect: set qos or nice."),
        ({"high": {"nice": -1}}, "priority_classes.high.nice: "),
        ({"high": {"qoss": "a"}}, "unknown key; did you mean qos?"),
    ],
)
def test_so_is_one_in_the_priority_classes(
    classes: dict[str, Any], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "check", written(tmp_path, priority_classes=classes)]) == 2
    assert sentence in capsys.readouterr().err


# --- show ---------------------------------------------------------------------------------------------------------------

TEAMS = {
    "namespaces": ["team-*"],
    "user": LABEL,
    "account": {"default": "{namespace}", "allowed": ["shared"]},
    "qos": {"allowed": ["*"]},
    "max_time": "2:00:00",
    "max_gres": {"gpu": 4},
    "max_jobs": 10,
}


def test_what_the_policy_gives_there_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, TEAMS, priority_classes={"low": {"nice": 100}})
    code, said = shown(path, capsys, "-n", "team-a", "--labels", "x/slurm-user=alice")
    assert code == 0
    assert said == [
        "Pods of namespace team-a, service account default:",
        "by Rule 1 of the policy (namespaces team-*)",
        "Slurm user alice",
        "account team-a; pods may name shared",
        "partition Slurm's own default",
        "qos Slurm's own default; pods may name any",
        "reservation Slurm's own default",
        "time limit at most 120 minutes; that is also asked for pods that name none",
        "nodes of a job no limit",
        "GRES of a job at most 4 gpu",
        "jobs at most 10 at a time, of this user under this rule",
        "submissions no limit",
        "PriorityClass low nice 100",
    ]


def test_a_namespace_without_a_user_shows_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = shown(written(tmp_path, TEAMS), capsys, "-n", "team-a", "--labels", "")
    assert code == 1
    assert "namespace team-a has no label x/slurm-user." in said[1]
    assert shown(written(tmp_path, TEAMS), capsys, "-n", "other", "--labels", "")[1][1].startswith(
        "Namespace other has no"
    )


def test_without_kubernetes_what_no_label_decides_is_shown_and_what_was_not_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = [
        {"namespaces": ["a"], "user": "alice", "service_accounts": ["svc-*"]},
        {"namespaces": ["a"], "user": "bob"},
    ]
    path = written(tmp_path, *rules)
    assert "Slurm user bob" in shown(path, capsys, "-n", "a")[1]
    assert "Slurm user alice" in shown(path, capsys, "-n", "a", "--service-account", "svc-1")[1]
    said = shown(path, capsys, "-n", "a")[1]
    assert said[-1].startswith("Whether Kubernetes has this namespace was not checked: ")
    assert shown(path, capsys, "-n", "a", "--labels", "")[1] == said[:-1]


@pytest.mark.parametrize("given", ["alice", "=alice", "="])
def test_what_is_no_label_is_a_sentence(given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "show", "--config", written(tmp_path, TEAMS), "-n", "a", "--labels", given]) == 2
    assert capsys.readouterr().err == f'slurm-bridge: --labels: "{given}" is not KEY=VALUE.\n'


@pytest.mark.parametrize("given", ["", "Team", "team/pods", "..", "a" * 64])
def test_a_name_that_no_namespace_can_have_is_a_mistake(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty name comes from a variable of a script that is not set: another namespace would be the wrong answer."""
    file = written(tmp_path, TEAMS)
    for command in (["show", "--config", file, "--labels", ""], ["check", file]):
        assert main(["policy", *command, "--namespace", given]) == 2
        said = (
            f'slurm-bridge: --namespace: "{given}" is not the name of a namespace. Write it as Kubernetes shows it.\n'
        )
        assert capsys.readouterr().err == said


# --- check, of namespaces that are given --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "code", "sentence"),
    [
        ("team-a,x/slurm-user=alice", 0, "1 namespace checked; Slurm users: alice (team-a)"),
        ("team-a", 2, "Refused are pods of team-a."),
        ("other,x/slurm-user=alice", 1, "Pods of these namespaces have no Slurm user, and are refused: other."),
    ],
)
def test_namespaces_can_be_tried_before_they_are_there(
    given: str, code: int, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "check", written(tmp_path, TEAMS), "--namespace", given]) == code
    assert sentence in " ".join(capsys.readouterr().out.split())


def test_a_rule_that_decides_for_none_of_the_named_namespaces_may_decide_in_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_label = {"namespace_selector": {"matchLabels": {"tenant": "yes"}}, "user": "alice"}
    file = written(
        tmp_path, {"namespaces": ["team-a"], "user": "bob"}, by_label, {"namespaces": ["lab"], "user": "carol"}
    )
    assert main(["policy", "check", file, "--namespace", "team-a,tenant=yes"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "rules 1 and 2 match pods of team-a: rule 1 decides" in said
    assert "decides for no pod now" not in said
    assert "that no namespace matches" not in said


def test_without_kubernetes_no_namespace_is_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = checked(written(tmp_path, TEAMS), capsys)
    assert code == 0
    assert "not checked, since there is no way to Kubernetes: namespaces" in said


def test_an_invalid_label_is_a_sentence_there_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "check", written(tmp_path, TEAMS), "-n", "a,alice"]) == 2
    assert capsys.readouterr().err == 'slurm-bridge: --namespace: "alice" is not KEY=VALUE.\n'
