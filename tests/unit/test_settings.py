"""What an admin writes: every mistake is one sentence that names the key, and the precedence is documented."""

from __future__ import annotations

import datetime
import json
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bridge import settings
from bridge.errors import ConfigError
from bridge.settings import DEFAULT_GRES, Settings, load, usable
from bridge.settings_mistakes import KINDS, TEXT, UNKNOWN_KEY, in_words
from scheduler.policy.rules import Choice, Rule, Tenant
from scheduler.tuning import Tuning

FULL = """
slurm_url: https://slurm.example.org/rest
scheduler_name: slurm-bridge-2
managed_namespaces: [batch]
pending_reason: Unschedulable
default_memory_mib: 512
gres: {example.org/fpga: fpga}
policy:
  rules:
    - namespaces: ["team-*"]
      service_accounts: [trainer]
      user: alice
      account: {default: teama, allowed: [teamb]}
      partition: {default: gpu}
  default: {user: guest}
tuning: {settle_s: 20, submits: 4}
"""


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    return str(file)


def mistake(tmp_path: Path, text: str, **options: str) -> str:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load({"config": path, **options}, {})
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def test_without_a_word_everything_has_its_default() -> None:
    chosen = load({}, {})
    assert chosen == Settings()
    config = chosen.config(accounting=False)
    assert config.tuning == Tuning()
    assert config.translation.gres == DEFAULT_GRES
    assert config.policy.tenants == ()


def test_what_is_written_reaches_the_core(tmp_path: Path) -> None:
    config = load({"config": written(tmp_path, FULL)}, {}).config(accounting=True)
    alice = Tenant("alice", Choice("teama", ("teamb",)), Choice("gpu"))
    assert config.policy.rules == (Rule(("team-*",), alice, ("trainer",)),)
    assert config.policy.default == Tenant("guest")
    assert (config.scheduler_name, config.pending_reason, config.accounting) == (
        "slurm-bridge-2",
        "Unschedulable",
        True,
    )
    assert config.managed_namespaces == {"batch"}
    assert (config.translation.gres, config.translation.default_memory_mib) == ({"example.org/fpga": "fpga"}, 512)
    assert asdict(config.tuning) == asdict(Tuning()) | {"settle_s": 20.0, "submits": 4}
    assert isinstance(config.tuning.settle_s, float)


def test_an_option_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "slurm_url: http://localhost:1\nhttp: 127.0.0.1:1\n")
    environment = {"SLURM_BRIDGE_CONFIG": path, "SLURM_BRIDGE_SLURM_URL": "http://localhost:2", "UNRELATED": "x"}
    assert load({}, environment).slurm_url == "http://localhost:2"
    assert load({"slurm_url": None}, environment).slurm_url == "http://localhost:2"
    chosen = load({"slurm_url": "http://localhost:3"}, environment)
    assert (chosen.slurm_url, chosen.http) == ("http://localhost:3", "127.0.0.1:1")


def test_the_file_named_by_an_option_wins_over_that_of_the_environment(tmp_path: Path) -> None:
    path = written(tmp_path, "default_memory_mib: 7")
    assert load({"config": path}, {"SLURM_BRIDGE_CONFIG": "/nowhere"}).default_memory_mib == 7


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert load({"config": written(tmp_path, "# nothing yet\n")}, {}) == Settings()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("slurm_ulr: http://localhost", "slurm_ulr: unknown key; did you mean slurm_url?"),
        ("zzz: 1", "zzz: unknown key. Remove unknown keys, or correct them: docs/settings.md lists all keys."),
        ("policy: {ruels: []}", "policy.ruels: unknown key; did you mean rules?"),
        (
            "policy: {rules: [{namespaces: [a], usr: x, user: y}]}",
            "policy.rules (1st entry).usr: unknown key; did you mean user?",
        ),
        ("policy: {default: {user: root}}", "policy.default.user: must be an ordinary Slurm user's name."),
        ("policy: {default: {user: ROOT}}", "policy.default.user: must be an ordinary Slurm user's name."),
        ('policy: {default: {user: "0"}}', "policy.default.user: must be an ordinary Slurm user's name, not a number."),
        (
            'policy: {rules: [{namespaces: [a], user: "+1000"}]}',
            "policy.rules (1st entry).user: must be an ordinary Slurm user's name, not a number.",
        ),
        (
            "policy: {default: {user: a, max_jobs: 0}}",
            "policy.default.max_jobs: must be at least 1.",
        ),
        ('policy: {default: {user: "a b"}}', "policy.default.user: must be an ordinary Slurm user's name."),
        ("tuning: {settle: 3}", "tuning.settle: unknown key; did you mean settle_s?"),
        ("tuning: {settle_s: soon}", "tuning.settle_s: must be a number."),
        ("tuning: {settle_s: -1}", "tuning.settle_s: must be at least 0."),
        ("tuning: {settle_s: .nan}", "tuning.settle_s: must be at most 1,000,000."),
        ("tuning: {settle_s: .inf}", "tuning.settle_s: must be at most 1,000,000."),
        ("tuning: {settle_s: true}", "tuning.settle_s: must be a number."),
        ("tuning: {detail_rate: 0}", "tuning.detail_rate: must be more than 0."),
        ("tuning: {submits: 0}", "tuning.submits: must be at least 1."),
        ("tuning: {submits: 1.5}", "tuning.submits: must be a whole number."),
        ("slurm_url: localhost:6820", 'slurm_url: "localhost:6820" is not a URL like http://HOST:PORT.'),
        ("slurm_url: ftp://localhost", 'slurm_url: "ftp://localhost" is not a URL like http://HOST:PORT.'),
        ("slurm_url: http://localhost:port", 'slurm_url: "http://localhost:port" is not a URL like http://HOST:PORT.'),
        (
            "slurm_url: http://localhost:99999",
            'slurm_url: "http://localhost:99999" is not a URL like http://HOST:PORT.',
        ),
        ('slurm_url: "http://[::1"', 'slurm_url: "http://[::1" is not a URL like http://HOST:PORT.'),
        (
            "slurm_url: http://slurm:6820",
            "slurm_url: http://slurm:6820 would send the token unencrypted to another host; "
            "use https, or set allow_plain_http: true.",
        ),
        (
            "slurm_ca_file: ca.pem\nslurm_url: http://127.0.0.1:6820",
            "slurm_ca_file: is for https, and slurm_url is http://127.0.0.1:6820.",
        ),
        (
            "slurm_key_file: x.key\nslurm_url: https://slurm",
            "slurm_key_file: names a key without its certificate; name that in slurm_cert_file.",
        ),
        ("- a list", "must be a mapping of keys to values. Write lines like key: value there."),
        ("just text", "must be a mapping of keys to values. Write lines like key: value there."),
    ],
)
def test_each_mistake_is_one_sentence_that_names_the_key(tmp_path: Path, text: str, sentence: str) -> None:
    assert mistake(tmp_path, text) == sentence.replace("?", "?")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("policy: {rules: [{namespaces: [], user: alice}]}", "policy.rules (1st entry).namespaces"),
        ("policy: {rules: [{namespaces: [a], user: b}, {namespaces: [a]}]}", "policy.rules (2nd entry).user"),
        ("managed_namespaces: [a, b, 3]", "managed_namespaces (3rd entry)"),
        ("policy: {rules: [{namespaces: [a], user: 7}]}", "policy.rules (1st entry).user"),
        ("policy: {rules: [{namespaces: [a], user: alice, qos: high}]}", "policy.rules (1st entry).qos"),
        ("default_memory_mib: 0", "default_memory_mib"),
        ("default_memory_mib: lots", "default_memory_mib"),
        ("poll_interval_s: 0", "poll_interval_s"),
        ("log_level: loud", "log_level"),
        ("pending_reason: not camel", "pending_reason"),
        ("scheduler_name: ''", "scheduler_name"),
        ("gres: [gpu]", "gres"),
        ("gres: {nvidia.com/gpu: 'gpu:2'}", "gres"),
        ("gres: {nvidia.com/gpu: ''}", "gres"),
        ("gres: {nvidia.com/gpu: gres/gpu}", "gres"),
        ("1: one", "1"),
    ],
)
def test_a_value_of_the_wrong_kind_names_its_key(tmp_path: Path, text: str, key: str) -> None:
    message = mistake(tmp_path, text)
    assert message.startswith((f"{key}: ", f"{key}."))
    assert message.endswith(".")


def test_of_many_mistakes_the_first_are_reported_and_the_others_counted(tmp_path: Path) -> None:
    said = mistake(tmp_path, "\n".join(f"{key}: 1" for key in "abcdefg"))
    assert "a: unknown key. b: unknown key. " in said
    assert "e: unknown key. There are 2 more. Remove unknown keys" in said
    assert "f: unknown" not in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "policy: {rules: [{namespaces: [a], user: b, 5: x}]}",
            "policy.rules (1st entry).5: is no key: keys are words.",
        ),
        (
            "policy: {rules: [{namespaces: [a], user: b, account: {yes: x}}]}",
            "policy.rules (1st entry).account.1: is no key: keys are words.",
        ),
        (
            "priority_classes: {5: {nice: -1, qso: high}}",
            f"priority_classes.5: {TEXT}. priority_classes.5.nice: must be at least 0. "
            "priority_classes.5.qso: unknown key; did you mean qos?",
        ),
    ],
)
def test_a_number_as_a_key_is_named_as_a_key_also_beside_other_mistakes(
    tmp_path: Path, text: str, sentence: str
) -> None:
    assert mistake(tmp_path, text) == sentence


def test_a_key_of_many_lines_is_shown_in_one_and_not_in_full(tmp_path: Path) -> None:
    said = mistake(tmp_path, json.dumps({"a\nb\x1b[31m" + "c" * 900: 1}))
    assert said.isprintable()
    assert said.startswith("a b [31mccc")
    assert len(said) < 600


def test_a_misspelled_key_is_not_also_reported_as_missing_and_hides_no_other_mistake(tmp_path: Path) -> None:
    rules = [{"namespaces": ["a"], "usr": "alice"}, {"namespaces": ["b"], "user": "bob", "max_jobs": "many"}]
    assert mistake(tmp_path, json.dumps({"policy": {"rules": rules}})) == (
        "policy.rules (1st entry).usr: unknown key; did you mean user? "
        "policy.rules (2nd entry).max_jobs: must be a whole number."
    )


def test_a_file_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load({"config": str(tmp_path / "none.yaml")}, {})
    assert str(caught.value).endswith(
        "cannot be read: No such file or directory. Name a settings file that exists and can be read."
    )


@pytest.mark.parametrize(
    "text", ["a: 2026-02-30", "a: 2026-01-01T25:00:00Z", "a: 0b_", f"a: {'9' * 5000}", "a: " + "[" * 3000]
)
def test_a_value_that_cannot_be_read_makes_the_file_no_yaml(tmp_path: Path, text: str) -> None:
    """A date that does not exist, a number without digits or with too many, and lists in lists without end."""
    assert mistake(tmp_path, text) == "is not YAML. Correct it, or point --config at a settings file."


@pytest.mark.parametrize(("text", "where"), [("a: [1", " in line 1"), ("a: 1\n\tb: 2", " in line 2"), ("\x00", "")])
def test_a_file_that_is_no_yaml_names_the_line(tmp_path: Path, text: str, where: str) -> None:
    assert mistake(tmp_path, text) == f"is not YAML{where}. Correct it, or point --config at a settings file."


def test_a_key_that_is_given_twice_is_a_mistake(tmp_path: Path) -> None:
    """Otherwise the first list of rules would have no effect, and nothing would say so."""
    rules = "  rules: [{namespaces: [hpc], user: alice}]\n"
    said = mistake(tmp_path, f"policy:\n{rules}  patience: {{}}\n{rules}")
    assert said == '"rules" is given twice, the second time in line 4. Remove one of them.'


def test_a_key_may_replace_one_of_a_mapping_that_is_merged(tmp_path: Path) -> None:
    file = written(tmp_path, "policy:\n  rules: [&a {namespaces: [a], user: alice}, {<<: *a, namespaces: [b]}]\n")
    rules = load({"config": file}, {}).core_policy("").rules
    assert [(rule.namespaces, rule.tenant.user) for rule in rules] == [(("a",), "alice"), (("b",), "alice")]


def test_a_file_without_an_end_is_a_mistake(tmp_path: Path) -> None:
    assert mistake(tmp_path, "#" * (settings.MOST_CHARACTERS + 1)).startswith("is longer than")


def test_a_file_that_is_no_text_is_no_yaml(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ConfigError, match="is not YAML"):
        load({"config": str(file)}, {})


@pytest.mark.parametrize(
    "text",
    [
        "bogus: 1",
        "1: one",
        "log_level: loud\nbogus: 1\npolicy: {ruels: []}",
        "http: {a: b}",
    ],
)
def test_of_settings_with_a_mistake_all_other_keys_can_be_used(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, f"{text}\nslurm_url: http://localhost:1\nscheduler_name: other")
    chosen, uncertain = usable({"config": path, "slurm_token_file": "t"}, {})
    assert (chosen.slurm_url, chosen.scheduler_name, chosen.slurm_token_file) == ("http://localhost:1", "other", "t")
    assert chosen.log_level == "info"
    assert "policy" in uncertain, "whatever was meant, without a policy nothing goes"
    assert not uncertain & {"slurm_url", "scheduler_name", "slurm_token_file", "gres"}


def test_a_key_that_was_meant_is_in_doubt_as_long_as_nothing_else_gives_it(tmp_path: Path) -> None:
    path = written(tmp_path, "slurm_ulr: http://localhost:1\nmanaged_namespace: [hpc]\npolicy: {rules: []}")
    assert {"slurm_url", "managed_namespaces"} < usable({"config": path}, {})[1]
    assert "slurm_url" not in usable({"config": path, "slurm_url": "http://localhost:1"}, {})[1]
    assert "policy" not in usable({"config": path}, {})[1]


def test_of_settings_that_cannot_be_read_the_options_can_be_used(tmp_path: Path) -> None:
    options = {"config": written(tmp_path, "a: ["), "slurm_url": "http://localhost:1"}
    chosen, uncertain = usable(options, {})
    assert chosen == Settings(slurm_url="http://localhost:1")
    assert uncertain == Settings.model_fields.keys() - {"slurm_url"}


def test_a_url_over_which_no_token_may_travel_is_never_usable(tmp_path: Path) -> None:
    """I5."""
    assert usable({"config": written(tmp_path, "bogus: 1\nslurm_url: http://slurm:6820")}, {})[0].slurm_url == ""


@pytest.mark.parametrize(
    "url", ["http://localhost:6820", "http://127.0.0.1:6820", "http://[::1]:6820", "https://slurm.example.org/x", ""]
)
def test_plain_http_stays_on_this_host(url: str) -> None:
    """I5."""
    assert load({"slurm_url": url}, {}).slurm_url == url


def test_plain_http_to_another_host_needs_a_word(tmp_path: Path) -> None:
    path = written(tmp_path, "allow_plain_http: true")
    assert load({"config": path, "slurm_url": "http://slurm:6820"}, {}).slurm_url == "http://slurm:6820"


@pytest.mark.parametrize(
    ("http", "address"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("[::1]:0", ("::1", 0)),
        (":9000", ("", 9000)),
        ("", None),
    ],
)
def test_the_address_of_the_health_checks(http: str, address: tuple[str, int] | None) -> None:
    assert load({"http": http}, {}).http_address == address


@pytest.mark.parametrize(
    ("http", "url"),
    [
        (":8080", "http://127.0.0.1:8080"),  # as in the pod of manifests/base
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("[::]:8080", "http://[::1]:8080"),
        ("[2001:db8::1]:8080", "http://[2001:db8::1]:8080"),
        ("", ""),
    ],
)
def test_where_a_command_on_the_same_machine_asks_the_bridge(http: str, url: str) -> None:
    assert load({"http": http}, {}).http_url == url


@pytest.mark.parametrize(
    "http", ["8080", "localhost", "localhost:http", "localhost:-1", "localhost:65536", "localhost:"]
)
def test_an_address_that_is_none(http: str) -> None:
    with pytest.raises(ConfigError, match=r"^http: ") as caught:
        assert load({"http": http}, {}).http_address
    assert str(caught.value) == f'http: "{http}" is not HOST:PORT.'


def test_without_a_lease_it_is_the_only_one() -> None:
    assert load({}, {}).lease is None


def test_a_lease_is_this_replicas_by_the_name_of_its_pod_or_host(tmp_path: Path) -> None:
    lease = load({"config": written(tmp_path, "lease: {namespace: hpc, name: bridge, duration_s: 15}")}, {}).lease
    assert lease is not None
    terms = lease.terms({"POD_NAME": "slurm-bridge-0"})
    assert (terms.readable, terms.identity, terms.duration_s) == ("hpc/bridge", "slurm-bridge-0", 15)
    assert lease.terms({}).identity == socket.gethostname()
    assert terms.works_for_s < terms.duration_s
    assert 2 * terms.renew_every_s < terms.works_for_s


@pytest.mark.parametrize(
    ("lease", "says"),
    [
        ("{duration_s: 1}", "lease.duration_s: "),
        ("{duration_s: 61}", "lease.duration_s: "),
        ("{duration_s: soon}", "lease.duration_s: "),
        ("{name: ''}", "lease.name: "),
        ("{name: A/B}", 'lease.name: "A/B" is not a valid name of a Kubernetes object'),
        ("{namespace: '..'}", "lease.namespace: "),
        ('{identity: "a\\nb"}', "lease.identity: must be at most 253 printable characters"),
        ("{durations: 3}", "did you mean duration_s?"),
        ("3", "lease: "),
    ],
)
def test_an_invalid_lease_setting_is_one_sentence(tmp_path: Path, lease: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({"config": written(tmp_path, f"lease: {lease}")}, {})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


# --- every kind of mistake that the models can find -------------------------------------------------------------------

ODD = (None, True, 0, -1, 1.5, 10**30, float("nan"), float("inf"), "", "x", "1", [], ["x"], [1], {}, {1: "x"}, {"x": 1})
ODD += ({"x": "y"}, [{}], datetime.date(2026, 11, 23), b"x", "9" * 5000)
OF_PYDANTIC = re.compile(r"\b(Input|should|valid|Tuple|dictionary|integer|instance|Field|items?|characters? after)\b")


WHOLE = settings.schema()
Put = Callable[[Any], Any]  # returns settings with that value in one place


def under(key: str | int, around: Put) -> Put:
    return lambda value: around({key: value})


def in_a_list(around: Put) -> Put:
    return lambda value: around([value])


def places_in(part: Any, around: Put) -> Iterator[Put]:
    """Of each key of the schema's part, and of the parts in it: what puts such a value into the settings."""
    for key, inner in settings.definition(part, WHOLE)["properties"].items():
        put = under(key, around)
        yield put
        match inner:
            case {"$ref": _}:
                yield from places_in(inner, put)
            case {"items": {"$ref": _} as item}:
                yield from places_in(item, in_a_list(put))
            case {"additionalProperties": {"$ref": _} as item}:
                yield from places_in(item, under("x", put))
                yield from places_in(item, under(5, put))


PUTS: list[Put] = [*places_in(WHOLE, lambda value: value), lambda value: value]


def mistaken(written: Any) -> ValidationError | None:
    try:
        Settings.model_validate(written)
    except ValidationError as error:
        return error
    return None


def test_any_mistake_in_the_settings_is_reported_in_the_bridges_own_words() -> None:
    """Each odd value in the place of each value of each model.  No kind of pydantic's errors is left to its own words."""
    raised = [(error, put(odd)) for put in PUTS for odd in ODD if (error := mistaken(put(odd))) is not None]
    found = {each["type"] for error, _ in raised for each in error.errors()}
    assert found <= {*KINDS, "value_error", *UNKNOWN_KEY}
    for error, written in raised:
        for each in error.errors():
            assert each["type"] not in KINDS or not OF_PYDANTIC.search(in_words(each)), each
        said = settings._sentences(error.errors(), written if isinstance(written, dict) else {})
        assert "[key]" not in said
        assert said.isprintable()
    assert found - {"value_error", *UNKNOWN_KEY} == KINDS.keys(), "words for a kind that nothing raises"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "policy: {rules: [{namespaces: [], user: a}]}",
            "policy.rules (1st entry).namespaces: must not be an empty list.",
        ),
        ("policy: {rules: [{namespaces: [a]}]}", "policy.rules (1st entry).user: is not given, and is required."),
        ("policy: {rules: [{namespaces: [a], user: 7}]}", f"policy.rules (1st entry).user: {TEXT}."),
        ("managed_namespaces: hpc", "managed_namespaces: must be a list, as [a, b]."),
        ("policy: [a]", "policy: must be a mapping of keys to values."),
        ("gres: {1: gpu}", f"gres.1: {TEXT}."),
        ("default_memory_mib: yes", "default_memory_mib: must be a whole number."),
        ("policy: {default: {user: a, max_time: yes}}", f"policy.default.max_time: {TEXT}."),
        ("poll_interval_s: true", "poll_interval_s: must be a number."),
        ("default_memory_mib: lots", "default_memory_mib: must be a whole number."),
        ("default_memory_mib: 1.5", "default_memory_mib: must be a whole number."),
        ("poll_interval_s: 0.01", "poll_interval_s: must be at least 0.1."),
        ("poll_interval_s: 61", "poll_interval_s: must be at most 60."),
        ("policy: {default: {user: a, max_submit_rate: 0}}", "policy.default.max_submit_rate: must be more than 0."),
        ("shared_nodes: perhaps", "shared_nodes: must be true or false."),
        ("scheduler_name: ''", "scheduler_name: must not be empty."),
        ("log_level: loud", "log_level: must be debug, info, warning or error."),
        ("bypass: perhaps", "bypass: must be warn or end."),
        (
            "pending_reason: not camel",
            "pending_reason: must be letters only, the first one a capital, as in SlurmJobPending.",
        ),
    ],
)
def test_kinds_of_mistakes_in_words(tmp_path: Path, text: str, sentence: str) -> None:
    assert mistake(tmp_path, text) == sentence
