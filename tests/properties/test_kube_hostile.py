"""Every parser of the Kubernetes side, on values that a tenant, a kubelet, a proxy or a wrong server could write (X5).

Each gives a value or a ContractError, and its message about an object that it cannot decode is plain text.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import ContractError, RemoteError
from bridge.kube import admin_reads, codec
from bridge.kube.decoding import head_of
from bridge.kube.objects import MAX_YEAR, epoch
from bridge.kube.responses import refusal
from bridge.kube.transport import Cut, Reply
from scheduler.model.kubernetes import Node, OwnerRef
from scheduler.nodes.registration import ExternalNodes, registration
from tests.properties.test_kube_codec import JSON, POD, paths, replaced
from tests.unit.kube.fakes import FakeTransport

TIME = "2026-11-21T05:00:00Z"
NODE = {
    "metadata": {
        "name": "x1",
        "uid": "n-1",
        "resourceVersion": "5",
        "labels": {"slurm-bridge/external-node": "true"},
        "annotations": {"slurm-bridge/partitions": "main"},
    },
    "spec": {"unschedulable": False, "taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {
        "allocatable": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": TIME}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    },
}
NAMESPACE = {"metadata": {"name": "hpc", "uid": "1", "labels": {"slurm-bridge/managed": "true"}}}
OWNER = {
    "metadata": {"name": "job", "uid": "o-1", "annotations": {"slurm-bridge/partition": "main"}},
    "spec": {
        "parallelism": 2,
        "completions": 3,
        "activeDeadlineSeconds": 9,
        "replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 1}}}],
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "minMember": 3,
    },
    "status": {"succeeded": 1},
}
CLAIM = {
    "metadata": {"name": "c", "annotations": {"volume.kubernetes.io/selected-node": "x1"}, "deletionTimestamp": TIME},
    "spec": {"volumeName": "v", "storageClassName": "s"},
    "status": {"phase": "Bound"},
}
VOLUME = {"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{}]}}}}
STORAGE_CLASS = {
    "provisioner": "p",
    "volumeBindingMode": "WaitForFirstConsumer",
    "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
}
STATUS = {
    "kind": "Status",
    "status": "Failure",
    "message": "no",
    "reason": "Conflict",
    "code": 409,
    "details": {"name": "a", "retryAfterSeconds": 3, "causes": [{"field": "metadata.uid"}]},
}
EVENT = {
    "reason": "r",
    "message": "m",
    "type": "Warning",
    "count": 3,
    "source": {"component": "c"},
    "lastTimestamp": TIME,
    "eventTime": TIME,
    "series": {"count": 2, "lastObservedTime": TIME},
}
WATCHED = [(codec.PODS, POD), (codec.NODES, NODE), (codec.NAMESPACES, NAMESPACE)]
READERS: list[tuple[Callable[[bytes], Any], dict[str, Any]]] = [
    (codec.PODS.one, POD),
    (codec.NODES.one, NODE),
    (codec.TAINTED.one, NODE),
    (codec.NAMESPACES.one, NAMESPACE),
    *(
        (codec.owner_codec(OwnerRef("v1", kind, "job", "o-1")).one, OWNER)
        for kind in ("Job", "JobSet", "PodGroup", "X")
    ),
    (codec.CLAIMS.one, CLAIM),
    (codec.VOLUMES.one, VOLUME),
    (codec.STORAGE_CLASSES.one, STORAGE_CLASS),
    (codec.status_of, STATUS),
    (codec.event_count, {"count": 3}),
    (codec.is_allowed, {"status": {"allowed": True}}),
    (codec.git_version, {"gitVersion": "v1.36.3"}),
    (codec.PODS.page, {"metadata": {"resourceVersion": "5", "continue": "t"}, "items": [POD]}),
]

# Written into the text as they are, since no JSON library writes them.
RAW = st.sampled_from(
    [
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"-0",
        b"1" + b"0" * 400,
        b"1" + b"0" * 5000,
        b'"\\ud800"',
        b'"\xff"',
        b'"\x00"',
        *(b'{"f:a":' * depth + b"{}" + b"}" * depth for depth in (200, 1_200, 9_000, 20_000)),
        *(b"[" * depth + b"]" * depth for depth in (1_200, 9_000, 20_000)),
        b"[" * 9_000,
    ]
)
HOSTILE = st.one_of(
    JSON.map(lambda value: json.dumps(value).encode()),
    RAW,
    st.sampled_from(
        [
            *(
                "0000-01-01T00:00:00Z",
                "9999-12-31T23:59:59-14:00",
                "10000-01-01T00:00:00Z",
                "1970-01-01T00:00:00+99:99",
            ),
            *("fe80::1%eth0", "fe80::1%x State=DOWN", "10.0.0.1\n", "\x1b[2J\x1b]0;owned\x07", "x" * 100_000, "\u202e"),
            *("1e999999999", "NaN", "٣", "9" * 70, "-5", "1e24E", "0x10", "1_000", "."),
            *(10**18, 2**63, -(2**63), 2**64, -1, 0, 1.5, True, None, [], {}, [None], {"": None}, {"a": {"b": []}}),
        ]
    ).map(lambda value: json.dumps(value).encode()),
)
MARK = "\u2603 to be replaced \u2603"


def spoiled(thing: Any, path: tuple[Any, ...], text: bytes) -> bytes:
    """The JSON of the object, with this text in place of the value there."""
    return json.dumps(replaced(thing, path, MARK)).encode().replace(json.dumps(MARK).encode(), text)


@st.composite
def spoiled_texts(draw: st.DrawFn, things: Iterable[tuple[Any, Any]]) -> tuple[Any, bytes]:
    reader, thing = draw(st.sampled_from(list(things)))
    return reader, spoiled(thing, draw(st.sampled_from(paths(thing))), draw(HOSTILE))


@settings(max_examples=500, deadline=None)
@given(spoiled_texts(READERS))
def test_every_answer_gives_a_value_or_a_contract_error(case: tuple[Callable[[bytes], Any], bytes]) -> None:
    read, text = case
    said = ""
    try:
        read(text)
    except ContractError as refused:
        said = str(refused)
    assert said.isprintable()
    assert len(said) < 1000


@settings(max_examples=500, deadline=None)
@given(spoiled_texts(WATCHED), st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "\x1b"]))
def test_every_line_of_a_watch_gives_a_change_or_a_contract_error(case: tuple[Any, bytes], kind: str) -> None:
    reader, text = case
    try:
        change = reader.line(b'{"type":' + json.dumps(kind).encode() + b',"object":' + text + b"}")
    except ContractError as refused:
        said = str(refused)
    else:
        said = f"{change.object} {change.version}" if isinstance(change, codec.Undecodable) else ""
    assert said.isprintable()


@settings(max_examples=300, deadline=None)
@given(spoiled_texts(WATCHED))
def test_one_item_of_any_kind_never_harms_the_next_one(case: tuple[Any, bytes]) -> None:
    reader, text = case
    good = next(thing for other, thing in WATCHED if other is reader)
    page = b'{"metadata":{"resourceVersion":"5"},"items":[' + text + b"," + json.dumps(good).encode() + b"]}"
    try:
        read = reader.page(page)
    except ContractError:
        assert text.count(b"[") != text.count(b"]"), "the items could be told apart"
        return
    found, undecoded = reader.items(read)
    assert len(found) + len(undecoded) == 2
    assert found[-1] == reader.one(json.dumps(good).encode())


@settings(max_examples=150, deadline=None)
@given(
    spoiled_texts([(None, STATUS)]),
    st.integers(100, 599),
    st.text(max_size=12) | st.sampled_from(["9" * 400, "NaN", "-1", "1e9", "٣", "Fri, 31 Dec 99999 23:59:59 GMT"]),
)
def test_every_refusal_is_one_of_our_errors(case: tuple[None, bytes], status: int, retry_after: str) -> None:
    error = refusal("bind", Reply(status, {"retry-after": retry_after, "date": retry_after}, case[1]))
    assert isinstance(error, RemoteError)
    assert str(error).isprintable()
    wait = getattr(error, "retry_after_s", None)
    assert wait is None or (math.isfinite(wait) and wait >= 0)


@settings(max_examples=150, deadline=None)
@given(spoiled_texts([(None, EVENT)]), st.text(max_size=12) | st.sampled_from(["Fri, 31 Dec 99999 23:59:59 GMT"]))
def test_events_of_a_pod_and_the_clock_of_the_server_are_read_or_left_out(case: tuple[None, bytes], date: str) -> None:
    text = b'{"items":[' + case[1] + b"," + json.dumps(EVENT).encode() + b"]}"
    far = FakeTransport(Reply(200, {}, text), Reply(200, {"date": date}, b'{"gitVersion":"v1"}'))

    async def ask() -> int:
        try:
            return len(await admin_reads.events_of(far, "hpc", "u-1"))
        except ContractError:  # no JSON at all
            return 1
        finally:
            await admin_reads.greet(far)

    assert asyncio.run(ask()) >= 1


@given(st.text(max_size=45) | st.datetimes().map(lambda moment: moment.isoformat() + "Z"))
def test_a_time_that_cannot_be_shown_is_none(text: str) -> None:
    seconds = epoch(text)
    assert seconds is None or 0 - 86_400 <= seconds <= (MAX_YEAR - 1969) * 366 * 86_400


@given(st.text(max_size=40) | st.sampled_from(["fe80::1%eth0", "fe80::1%x State=DOWN", "fe80::1%", "10.0.0.1%x"]))
def test_an_address_reaches_slurm_only_as_a_plain_address(address: str) -> None:
    node = Node("x1", address=address, allocatable={"cpu": 64_000, "memory": 2**39})
    made = registration(node, ExternalNodes(), {}, {}, "mark")
    if hasattr(made, "message"):
        assert made.message.isprintable()
    else:
        assert set(address) <= set("0123456789abcdefABCDEF.:")


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_the_search_for_a_name_takes_any_bytes(one: bytes, other: bytes) -> None:
    for text in (one, b'{"metadata":{"name":' + one + b',"uid":"' + other):
        assert all(value.isprintable() for value in head_of(text).texts.values())
        try:
            codec.PODS.line(Cut(text))
        except ContractError:
            continue


def test_the_search_for_a_name_takes_a_time_proportional_to_what_it_reads() -> None:
    """Strings that never end, and brackets that never close, are read once."""
    for text in (b'"' * 10**7, b'"\\' * 10**7, b"{" * 10**7, b'{"a":"' * 10**6, b"\\" * 10**7, b'"' + b"\\\\" * 10**6):
        assert isinstance(head_of(text).texts, dict)
