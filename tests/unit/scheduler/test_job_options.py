"""What annotations choose (K2, T8, T9): bad values, aliases, and precedence.  Good values: test_translation.py."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.model.kubernetes import Owner, OwnerRef, Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import MAX_NICE, UNLIMITED, JobSpec
from scheduler.policy.rules import ANY, Choice, Tenant
from scheduler.translate import values
from scheduler.translate.job_options import JobOptions, job_options
from scheduler.translate.job_spec import Translation, TranslationContext, jobspec
from scheduler.translate.values import MAX_TEXT
from tests.builders import CLUSTER, OWNER, key_of, pod

ANYTHING = Choice("", (ANY,))
FREE = Tenant("alice", ANYTHING, ANYTHING, ANYTHING, ANYTHING)
LIMITS = {"": 1440, "gpu": 600, "endless": UNLIMITED}
AROUND = TranslationContext(Translation(gres={"nvidia.com/gpu": "gpu"}), CLUSTER, LIMITS.get)
OWN, ALIAS = names.PREFIX, names.ALIAS_PREFIX


def annotated(says: dict[str, str], prefix: str = OWN, **fields: Any) -> Pod:
    return pod(annotations={prefix + key: value for key, value in says.items()}, **fields)


def spec_of(pod: Pod, *owners: Owner, tenant: Tenant = FREE) -> JobSpec:
    spec = jobspec(pod, owners, tenant, AROUND, key_of(pod))
    assert isinstance(spec, JobSpec), spec
    return spec


def refusal_of(pod: Pod, *owners: Owner, tenant: Tenant = FREE) -> str:
    refused = jobspec(pod, owners, tenant, AROUND, key_of(pod))
    assert isinstance(refused, Refusal), refused
    assert refused.reason == names.REFUSED
    assert not refused.later
    return refused.message


def test_a_job_name_that_looks_like_another_workloads_mark_does_not_take_its_place() -> None:
    imitation = f"x~{CLUSTER}.{'0' * 16}"
    assert names.parse_job_name(spec_of(annotated({"job-name": imitation})).name) == (CLUSTER, key_of(pod()))


BAD_NUMBERS = ["foo", "NaN", "-1", "1e99", "Infinity", "1.5", "", "٣", "0x10", "9" * 40, "1\n2", "9" * 200_000]
BAD_TEXTS = ["two\nlines", "bell\a", "nul\0", "\x1b[31mred", "x" * (MAX_TEXT + 1), "x" * 200_000]
BAD_NAMES = ["", " ", "a b", "-\n", "sl/ash", "quo'te", "$(reboot)", "ümlaut", *BAD_TEXTS]
BAD: list[tuple[str, str]] = [
    *((key, value) for key in ("nice", "cpus-per-task", "min-nodes", "max-nodes", "memory") for value in BAD_NUMBERS),
    *(("time-limit", value) for value in [*BAD_NUMBERS, "0", "1:2:3:4", "1-", "-1-00", "366-00:00:00:00", "9999999"]),
    ("nice", str(MAX_NICE + 1)),
    ("cpus-per-task", "0"),
    ("memory", "0"),
    ("memory", "0G"),
    ("memory", "4X"),
    ("memory", "4B"),
    ("memory", "4i"),
    ("memory", "999999999999T"),
    *(("gres", value) for value in ["", "gpu:", "gpu:-1", "gpu:1:2", "gpu:h100:NaN", "gpu;rm", "gpu:1,,", *BAD_TEXTS]),
    ("gres", "gpu:" + "9" * 12),
    *(("exclusive", value) for value in ["", "yes", "1", "TRUE\nFALSE", "x" * 200_000]),
    *((key, value) for key in ("account", "partition", "qos", "wckey") for value in BAD_NAMES),
    ("partition", "gpu,main"),
    *((key, value) for key in ("reservation", "constraints", "comment", "job-name") for value in BAD_TEXTS),
    ("job-name", "x" * (names.MAX_READABLE + 1)),
    *(
        ("licenses", value)
        for value in ["", "matlab:", "matlab:-1", "matlab:1:2", "mat lab", "a|b", "a,,b", *BAD_TEXTS]
    ),
    *(("switches", value) for value in [*BAD_NUMBERS, "0", "@5", "1@", "1@soon", "1@-5", "1@2@3"]),
    *(
        ("begin", value)
        for value in [*BAD_NUMBERS, "tomorrow", "teatime", "now-1hour", "now+", "now+1month", "now+1.5hours"]
    ),
    *(
        ("begin", value)
        for value in ["24:00", "12:60", "12:00:60", "4pm", "16", "2027-02-30", "2027-13-01", "2027-01-01 10:00"]
    ),
    *(("begin", value) for value in ["2027-01-01T25:00", "2027-01-01T10:00+24:00", "9999-12-31", "now+999999999weeks"]),
    *(
        ("dependency", value)
        for value in ["", "8", "afterany", "afterany:", "afterany:0", "afterany:x", "afterany:8,", "expand:8"]
    ),
    *(
        ("dependency", value)
        for value in ["afterany:-1", "afterany:8+5", "after:8+-5", "after:8+x", "afterok:8?afterok:9", "?"]
    ),
    *(("dependency", value) for value in ["afterany:8(failed)", "afterany: 8", "afterany:" + "9" * 11, *BAD_TEXTS]),
]


@pytest.mark.parametrize(("key", "value"), BAD, ids=lambda text: ascii(text)[:30])
def test_what_cannot_be_read_is_refused_with_key_and_value(key: str, value: str) -> None:
    """T8, T9, X7: never guessed; and the sentence stays short and printable whatever the value is."""
    message = refusal_of(annotated({key: value}))
    assert f"{OWN}{key}" in message
    shown = "".join(char if char.isprintable() else "�" for char in value[:60])
    assert f'"{shown}' in message
    assert len(message) < 300
    assert message.isprintable()


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("partitoin", f" Did you mean {OWN}partition?"),
        ("time_limit", f" Did you mean {OWN}time-limit?"),
        ("intercpt", f" Did you mean {OWN}intercept?"),
        ("priority", ""),
        ("zzz", ""),
    ],
)
def test_an_unknown_key_is_a_spelling_mistake(key: str, hint: str) -> None:
    assert refusal_of(annotated({key: "x"})) == f"Annotation {OWN}{key} is not a key of slurm-bridge.{hint}"


@pytest.mark.parametrize("value", ["false", "true", "perhaps"])
def test_an_annotation_for_admission_means_nothing_to_the_bridge(value: str) -> None:
    """A pod that names the bridge itself needs no admission, and may still have the annotation of its template."""
    assert spec_of(annotated({"intercept": value})) == spec_of(pod())


def test_an_unknown_key_of_an_owner_or_of_another_client_is_none_of_our_business() -> None:
    owner = Owner(OWNER, annotations={OWN + "made-up": "x"})
    assert spec_of(pod(annotations={"example.org/partitoin": "x", "partition": "y"}), owner) == spec_of(pod())


@pytest.mark.parametrize("key", names.ONLY_OURS)
def test_a_key_that_only_the_bridge_writes_is_refused_on_a_pod_that_is_not_bound(key: str) -> None:
    written = pod(annotations={key: "whatever\n"})
    message = f"Annotation {key} is written only by slurm-bridge, when it binds the pod. Remove it from the pod."
    assert refusal_of(written) == message
    assert spec_of(replace(written, node="x1")) == spec_of(pod())
    assert spec_of(pod(), Owner(OWNER, annotations={key: "1"})) == spec_of(pod()), "of an owner it says nothing"


def test_several_of_them_are_reported_together() -> None:
    message = refusal_of(annotated({"rank": "0", "job-gpus": "0-7"}))
    assert message.startswith("Annotations slurm-bridge/job-gpus, slurm-bridge/rank are written only by slurm-bridge")


def test_the_trace_of_a_caller_is_no_job_option() -> None:
    assert spec_of(annotated({"traceparent": "whatever\n"})) == spec_of(pod())


def test_demands_of_the_spec_that_are_not_honoured_yet_are_named() -> None:
    message = refusal_of(pod(refused_fields=("required pod affinity", "resource claims")))
    assert (
        message
        == "Not supported yet: required pod affinity, resource claims. Remove them from the pod, or use another scheduler."
    )


# --- aliases (K7) -------------------------------------------------------------------------------------------------

ALIASED = [
    ("account", "teama", JobOptions(account="teama")),
    ("constraints", "ib", JobOptions(constraints="ib")),
    ("cpu-per-task", "3", JobOptions(cpus_per_task=3)),
    ("exclusive", "true", JobOptions(exclusive="exclusive")),
    ("gres", "gpu:2", JobOptions(gres=(("gpu", 2),))),
    ("job-name", "bert", JobOptions(job_name="bert")),
    ("max-nodes", "1", JobOptions(max_nodes=1)),
    ("mem-per-node", "4G", JobOptions(memory=4096)),
    ("min-nodes", "1", JobOptions(min_nodes=1)),
    ("partition", "gpu", JobOptions(partition="gpu")),
    ("qos", "high", JobOptions(qos="high")),
    ("reservation", "maint", JobOptions(reservation="maint")),
    ("timelimit", "1:00:00", JobOptions(time_limit=60)),
    ("wckey", "w", JobOptions(wckey="w")),
    ("licenses", "matlab:2", JobOptions(licenses=(("matlab", 2),))),
]


@pytest.mark.parametrize(("key", "value", "read"), ALIASED)
def test_keys_of_the_go_slurm_bridge_are_read(key: str, value: str, read: JobOptions) -> None:
    assert job_options(annotated({key: value}, ALIAS)) == read


def test_every_alias_is_in_the_table_above() -> None:
    assert {key for key, _, _ in ALIASED} == set(names.ALIASES)


def test_a_bad_value_of_an_alias_is_refused_like_any_other() -> None:
    assert '"NaN"' in refusal_of(annotated({"timelimit": "NaN"}, ALIAS))
    others = {"account": "teama", "timelimit": "NaN", "wckey": "w"}
    assert refusal_of(annotated(others, ALIAS)).startswith(f'Annotation {ALIAS}timelimit: "NaN" ')


@pytest.mark.parametrize("key", ["priority", "user-id", "group-id"])
def test_aliases_that_are_the_admins_to_decide_are_refused(key: str) -> None:
    assert refusal_of(annotated({key: "0"}, ALIAS)) == (
        f"Annotation {ALIAS}{key}: only the admin may set this. Remove the annotation."
    )


def test_an_unknown_alias_is_left_alone() -> None:
    assert job_options(annotated({"placeholder": "x"}, ALIAS)) == JobOptions()


# --- precedence ---------------------------------------------------------------------------------------------------

NEAR = Owner(OWNER, annotations={OWN + "partition": "near", OWN + "qos": "near"})
FAR = Owner(
    OwnerRef("apps/v1", "Deployment", "web", "uid-deployment"),
    annotations={OWN + "partition": "far", OWN + "qos": "far", OWN + "account": "far"},
)


def test_an_own_key_wins_over_its_alias_on_the_same_object() -> None:
    said = pod(annotations={ALIAS + "partition": "alias", OWN + "partition": "own"})
    assert job_options(said) == JobOptions(partition="own")


def test_the_pod_wins_over_its_owners_and_the_nearest_owner_over_the_next() -> None:
    assert job_options(annotated({"partition": "pod"}), (NEAR, FAR)) == JobOptions(
        partition="pod", qos="near", account="far"
    )


def test_an_alias_on_the_pod_wins_over_an_own_key_of_its_owner() -> None:
    assert job_options(annotated({"partition": "pod"}, ALIAS), (NEAR,)) == JobOptions(partition="pod", qos="near")


def test_a_bad_value_that_a_nearer_object_overrules_harms_no_pod() -> None:
    owner = Owner(OWNER, annotations={OWN + "nice": "-1"})
    assert job_options(annotated({"nice": "5"}), (owner,)) == JobOptions(nice=5)


def test_the_pods_themselves_show_which_pods_are_a_gang() -> None:
    assert "remove it there, and write it into the template" in refusal_of(
        pod(), Owner(OWNER, annotations={OWN + "gang-size": "4"})
    )


def test_a_type_of_a_thousand_letters_is_read_once() -> None:
    """Where it could be split anywhere, 1,000 characters took 60 ms for each look at the pod; these would take an hour."""
    assert values.gres("gpu:0.a-1_b:2") == (("gpu:0.a-1_b", 2),)
    assert re.fullmatch(values.GRES_NAME, "gpu:" + "a" * 200_000 + "!", re.ASCII) is None


# --- the trace in the comment (O3) --------------------------------------------------------------------------------


def traced(**says: str) -> str:
    """The comment of the job of a pod with these annotations, while traces are sent."""
    what = annotated(says)
    spec = jobspec(what, (), FREE, replace(AROUND, traced=True), key_of(what))
    assert isinstance(spec, JobSpec)
    return spec.comment


def test_the_comment_of_a_job_names_the_trace_after_the_users_own_words() -> None:
    own = f"traceparent={names.traceparent(CLUSTER, key_of(pod()))}"
    assert traced() == own
    assert traced(comment="ticket 4711") == f"ticket 4711; {own}"
    assert traced(comment="ticket 4711", **{"job-name": "bert"}) == f"ticket 4711; {own}; hpc/train"
    assert spec_of(pod()).comment == "", "no trace is sent"


def test_a_callers_trace_is_that_of_the_job() -> None:
    root = names.traceparent(CLUSTER, key_of(pod())).split("-")[2]
    assert traced(traceparent=f"00-{'a' * 32}-{'b' * 16}-01") == f"traceparent=00-{'a' * 32}-{root}-01"


def test_a_comment_that_leaves_no_room_for_the_trace_stays_as_it_is() -> None:
    room = MAX_TEXT - len(f"; {traced()}")
    assert traced(comment="x" * room) == f"{'x' * room}; {traced()}"
    assert traced(comment="x" * (room + 1)) == "x" * (room + 1)
    longest = {"comment": "x" * MAX_TEXT, "job-name": "bert"}
    assert traced(**longest) == spec_of(annotated(longest)).comment == f"{'x' * MAX_TEXT}; hpc/train"
