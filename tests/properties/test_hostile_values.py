"""Whatever a tenant, a node or a server writes: each reader gives a value or a refusal, and each sentence is one line.

Readers of annotations, names, times, quantities and lists of hosts; then a world that gets such values from both sides,
its decisions, and its texts: in conditions, in an explanation, on the page and in traces.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.cli.explain_text import Answer, as_json, as_text
from bridge.explanation_json import decoded, encoded
from bridge.kube.admin_reads import PodEvent
from bridge.page.snapshot import detail, snapshot
from bridge.telemetry import Span, Telemetry
from scheduler import names
from scheduler.actions import (
    AllocateNow,
    BindPod,
    DeletePod,
    FailByDeadline,
    Outcome,
    SetJobCondition,
    SetNodeCondition,
    SetPodCondition,
)
from scheduler.events import ActionEnded, NodesListed, OutageBegan, Side, SlurmNodesPolled
from scheduler.explain import as_sbatch, explain
from scheduler.model import hostlist, quantity
from scheduler.model.kubernetes import Condition, Container, Node, Pod, PodPhase, Taint
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Grant, GrantedNode, Job, JobSpec, NodeSpec, Partition, SlurmNode
from scheduler.model.text import dated, line, moment
from scheduler.nodes.registration import ExternalNodes, registration
from scheduler.rules.status import clock, exact_clock
from scheduler.translate import values
from scheduler.translate.grouping import group_of
from scheduler.translate.job_options import job_options
from scheduler.translate.job_spec import MOST_AMOUNT, MOST_CPUS, jobspec
from tests.builders import ALICE, CONFIG, START, Story, key_of, pod
from tests.traces import Backend
from tests.unit.tracing.stories import Traced

NOW = START + 20
# A terminal obeys these: CSI as escape sequence and as one character, a title, a bell, text from right to left.
ESCAPES = ["\x1b[2J\x1b[31m", "\x9b31m", "\x1b]0;title\x07", "\u202e", "a\nb", "\r", "\x00", "\x7f", "\u2028"]
NUMBERS = ["-1", "1e999", "NaN", "Infinity", "1_000", "٣", "²", "9" * 5000, str(10**18), "0x10", "+7", "1" * 20]
TIMES = [
    "0000-01-01",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00+23:59",
    "now+999999999weeks",
    "24:00",
    "99:99:99",
]
NESTED = [
    "[" * 2000,
    "n[" + "0-1," * 2000 + "1]",
    "n[0-999999999]",
    "n" + "[0-9]" * 60,
    "(" * 3000 + ")" * 3000,
    "," * 5000,
]
TEXTS = st.one_of(
    st.sampled_from(["", " ", "x1", "main", *ESCAPES, *NUMBERS, *TIMES, *NESTED, "a" * 100_000]),
    st.text(max_size=30),
    st.text(alphabet="0123456789-:,+Tnow[]x.KMGi/@= ", max_size=30),
)
SHORT = st.one_of(st.sampled_from(["x1", "main", "gpu", *ESCAPES, "n[0-9", "", "9" * 300]), st.text(max_size=12))
# The first and the last second that a calendar has, and what lies beyond; what JSON can write of a number.
SECONDS = st.one_of(
    st.sampled_from(
        [0.0, -1.0, -62135596800.0, -62135596801.0, 253402300799.0, 253402300800.0, 1e15, 1e18, -1e18, NOW]
    ),
    st.integers(-(10**18), 10**18).map(float),
)
ANY_SECONDS = st.one_of(SECONDS, st.sampled_from([float("nan"), float("inf"), float("-inf"), 1e308]))
COUNTS = st.sampled_from([0, 1, 2, 64, 2**31, 2**63 - 1, 10**18, 10**30])


def one_line(text: str) -> bool:
    """No terminal and no log takes it for more than its letters."""
    return text.isprintable()


# --- readers --------------------------------------------------------------------------------------------------------


@given(ANY_SECONDS, ANY_SECONDS)
@example(253402300800.0, NOW)
@example(float("nan"), float("nan"))
def test_every_time_has_words(at: float, now: float) -> None:
    for said in (clock(at, now), exact_clock(at, now), dated(at)):
        assert said
        assert one_line(said)
    assert (moment(at) is None) == ("no date" in dated(at))


@given(TEXTS, st.integers(1, 50))
def test_every_text_has_a_line_of_bounded_length(text: str, most: int) -> None:
    assert one_line(line(text, most))
    assert len(line(text, most)) <= most


READERS: dict[str, Callable[[str], Any]] = {
    read.__name__: read
    for read in (
        values.text,
        values.word,
        values.partition,
        values.readable_name,
        values.count,
        values.nice,
        values.memory_mib,
        values.exclusive,
        values.time_limit_min,
        values.switches,
        values.gres,
        values.licenses,
        values.dependency,
    )
}


def found(read: Callable[..., Any], refusal: type[Exception], *given: Any) -> Any:
    """What the reader finds; None where it refuses, in words of bounded length."""
    try:
        return read(*given)
    except refusal as error:
        why = str(error)
    assert 0 < len(why) < 1000
    return None


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60)
@given(TEXTS)
def test_every_value_of_an_annotation_is_read_or_refused(name: str, text: str) -> None:
    msgspec.json.encode(found(READERS[name], values.Unreadable, text))


@given(TEXTS, SECONDS)
@example("0001-01-01T00:00:00+23:59", NOW)
@example("9999-12-31T23:59:59-23:59", 253402300799.0)
def test_every_begin_is_read_or_refused(text: str, created: float) -> None:
    at = found(values.begin, values.Unreadable, text, created)
    assert at is None or at >= 1


@given(TEXTS, st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.booleans())
def test_every_quantity_is_read_or_refused(text: str, resource: str, up: bool) -> None:
    amount = found(quantity.amount, quantity.QuantityError, resource, text, up)
    assert amount is None or 0 <= amount <= 1000 * (2**63 - 1)


@given(TEXTS, st.lists(TEXTS, max_size=5))
def test_every_list_of_hosts_is_read_or_refused(text: str, called: list[str]) -> None:
    hosts = found(hostlist.expand, hostlist.HostlistError, text, 1000)
    assert hosts is None or len(hosts) <= 1000
    assert set(hostlist.expand(hostlist.folded(called))) == {name for name in called if hostlist.is_name(name)}


@given(TEXTS)
def test_every_text_has_its_name_or_none(text: str) -> None:
    names.shown_job(text)
    names.parse_job_name(text)
    assert names.parse_job_name(names.job_name(text, names.cluster_id(text), names.workload_key(text))) is not None
    assert len(names.traceparent(text, text)) == 55


# --- pods and nodes -------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(sorted(names.PREFIX + key for key in names.JOB_OPTIONS | names.GROUPING | names.WRITTEN_BY_US))


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """Of any text and any size, as far as a name of it goes."""
    amounts = draw(st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), COUNTS, max_size=3))
    return pod(
        "train",
        containers=(Container("main", requests=amounts, limits=amounts),),
        annotations=draw(st.dictionaries(KEYS, TEXTS, max_size=3)),
        labels=draw(st.dictionaries(st.sampled_from([names.PREFIX + names.GANG, "app"]), SHORT, max_size=2)),
        created=draw(SECONDS),
        active_deadline_s=draw(st.sampled_from([None, 1, 2**31, 2**63 - 1])),
        grace_s=draw(st.sampled_from([-(10**12), -1, 0, 30, 2**31, 10**10])),
        scheduled=draw(st.none() | st.builds(Condition, st.just(False), SHORT, TEXTS)),
        waits=draw(SHORT),
        end_reason=draw(SHORT),
    )


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    return Node(
        draw(st.sampled_from(["x1", "x2"])),
        labels=draw(
            st.dictionaries(
                st.sampled_from([names.EXTERNAL_NODE_LABEL, names.SLURM_NODE_LABEL, "rack"]), SHORT, max_size=3
            )
        ),
        taints=tuple(draw(st.lists(st.builds(Taint, SHORT, SHORT, st.just("NoSchedule")), max_size=1))),
        allocatable=draw(st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu"]), COUNTS)),
        address=draw(SHORT),
        partitions=draw(TEXTS),
        ready_since=draw(SECONDS),
        in_slurm=draw(st.none() | st.builds(Condition, st.booleans(), SHORT, TEXTS)),
    )


@st.composite
def slurm_nodes(draw: st.DrawFn) -> SlurmNode:
    return SlurmNode(
        draw(st.one_of(st.sampled_from(["x1", "x2"]), SHORT)),
        states=frozenset(draw(st.lists(st.one_of(st.sampled_from(["IDLE", "DRAIN", "EXTERNAL"]), SHORT), max_size=3))),
        partitions=("main", *draw(st.lists(SHORT, max_size=2))),
        features=tuple(draw(st.lists(SHORT, max_size=2))),
        cpus=draw(COUNTS),
        memory_mib=draw(COUNTS),
        gres=draw(st.dictionaries(SHORT, COUNTS, max_size=2)),
        reason=draw(TEXTS),
    )


@st.composite
def read(draw: st.DrawFn, like: Job) -> Job:
    """That job as slurmctld, or its user, may have made it meanwhile."""
    return replace(
        like,
        partition=draw(SHORT),
        account=draw(SHORT),
        qos=draw(SHORT),
        reason=draw(TEXTS),
        comment=draw(TEXTS),
        submitted=draw(SECONDS),
        starts=draw(SECONDS),
        ends=draw(SECONDS),
        preempted=draw(st.none() | SECONDS),
        planned_nodes=draw(TEXTS),
        excluded_nodes=draw(TEXTS),
        dependency=draw(TEXTS),
        time_limit_min=draw(st.none() | COUNTS),
        exit_code=draw(COUNTS),
    )


@given(pods())
def test_every_pod_is_translated_or_refused(one: Pod) -> None:
    story = Story()
    group_of(one)
    if isinstance(said := job_options(one), Refusal):
        assert one_line(line(said.message))
    spec = jobspec(one, (), ALICE, story.world.translation_context, "key")
    if isinstance(spec, JobSpec):
        assert spec.cpus_per_task <= MOST_CPUS
        assert max((spec.memory_mib, *(count for _, count in spec.gres))) <= MOST_AMOUNT
        msgspec.json.encode(spec, enc_hook=dict)
        assert as_sbatch(spec)
    else:
        assert spec.message


@given(nodes())
def test_every_node_is_registered_or_refused(one: Node) -> None:
    spec = registration(one, ExternalNodes(feature_labels=("rack",)), {"nvidia.com/gpu": "gpu"}, {}, "mark")
    if isinstance(spec, NodeSpec):
        assert not any(char.isspace() for word in (spec.name, spec.address, *spec.features) for char in word)
    else:
        assert spec.message


# --- a world that gets such values ---------------------------------------------------------------------------------


class Sees:
    """A story that checks the texts of every pass as an admin would: each is one line, and can be shown."""

    def __init__(self) -> None:
        config = replace(CONFIG, shared_nodes=True, accounting=True)
        self.story = Traced(Backend(), recent=10, config=config)
        self.telemetry = self.story.telemetry

    def passes(self, at: float) -> list[Any]:
        acts = self.story.decides(at)
        for each in acts:
            self.telemetry.on_planned(each, at)
            if isinstance(each, SetPodCondition | SetJobCondition | SetNodeCondition):
                assert one_line(each.message), each
        self.looks(at)
        return acts

    def ends(self, action: Any, outcome: Outcome = Outcome.DONE, *, at: float, **answer: Any) -> None:
        self.story.sees(ActionEnded(action, outcome, at, at, **answer))

    def looks(self, at: float) -> None:
        world = self.story.world
        for key in world.workloads:
            told = explain(world, key, at)
            assert decoded(encoded(told)).sentence == told.sentence
            event = PodEvent(at=-1e18, reason="\x1b[2J", message="a\nb", source="", count=2, warning=True)
            shown = [Answer("pod hpc/train", told, (event,), notes=("\x9b",))]
            assert all(map(one_line, as_text(shown, 0, at).split("\n")))
            assert all(map(one_line, as_json(shown).split("\n")))
            json.loads(as_json(shown))
            steps = [Span("bound", -1e18, 1e18), *self.telemetry.recent.of(key)]
            msgspec.json.encode(detail(world, key, steps, at))
        msgspec.json.encode(snapshot(world, at))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_world_that_gets_hostile_values_decides_and_says_one_line(data: st.DataObject) -> None:
    sees = Sees()
    story = sees.story
    story.sees(NodesListed(tuple(data.draw(st.lists(nodes(), max_size=2, unique_by=lambda each: each.name)))))
    known = tuple(data.draw(st.lists(slurm_nodes(), max_size=3)))
    limit = data.draw(st.none() | COUNTS)
    partitions = (Partition("main", default=True, max_time_min=limit), Partition(data.draw(SHORT)))
    story.sees(SlurmNodesPolled(known, partitions, NOW))
    story.sees(data.draw(pods()))
    for each in sees.passes(NOW):
        if isinstance(each, AllocateNow):
            sees.ends(each, Outcome.REFUSED, at=NOW, refusal=Refusal(names.REFUSED, data.draw(TEXTS), 2045))
    story.sees(OutageBegan(Side.SLURM, data.draw(SECONDS), data.draw(TEXTS)))
    sees.passes(NOW + 10)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_job_with_hostile_values_is_followed_and_explained(data: st.DataObject) -> None:
    sees = Sees()
    story, train = sees.story, pod("train", gpu=data.draw(st.sampled_from([0, 1])))
    asked = story.queues(train, 17, at=NOW)
    job = Job(17, asked.spec.name, "alice", frozenset({"PENDING"}))
    story.reads(data.draw(read(job)), at=NOW + 1)
    sees.passes(NOW + 10)
    granted = Grant(17, (GrantedNode("x1", 8, 8000, {"gpu": 8}, {"gpu": data.draw(TEXTS)}),))
    if data.draw(st.booleans()):
        granted = replace(granted, nodes=(GrantedNode(data.draw(SHORT), 8, 8000, {"gpu": 8}),))
    running = data.draw(read(replace(job, states=frozenset({"RUNNING", data.draw(SHORT)}))))
    story.polls({17: "RUNNING"}, at=NOW + 11)
    story.reads(running, at=NOW + 12, granted=granted)
    bound = replace(
        story.bound(train, 17), started=data.draw(st.none() | SECONDS), waits_since=data.draw(st.none() | SECONDS)
    )
    for each in sees.passes(NOW + 12):
        if isinstance(each, BindPod):
            msgspec.json.encode(dict(each.annotations))
            sees.ends(each, at=NOW + 12)
            story.sees(bound)
    for at in (13, 100, 1000):
        story.polls({17: "RUNNING"}, at=NOW + at)
        sees.passes(NOW + at)
    finished = replace(bound, phase=PodPhase.FAILED, exit_code=2**31, end_reason=data.draw(SHORT))
    story.sees(finished)
    sees.passes(NOW + 1001)


@pytest.mark.parametrize("text", ESCAPES)
def test_words_of_a_refusal_control_no_terminal(text: str) -> None:
    sees = Sees()
    sees.story.sees(pod("train"))
    [asked] = sees.story.acts(AllocateNow, NOW)
    sees.ends(asked, Outcome.REFUSED, at=NOW, refusal=Refusal(names.REFUSED, f"No account{text}.", 2045))
    [said] = [each for each in sees.passes(NOW + 1) if isinstance(each, SetPodCondition)]
    assert said.message.startswith("No account")


@settings(max_examples=60)
@given(ANY_SECONDS, ANY_SECONDS)
def test_every_time_fits_a_trace(began: float, ended: float) -> None:
    telemetry = Telemetry(clock=lambda: NOW, recent=10)
    story = Story()
    shown = replace(story.runs(pod("train"), 17, at=NOW), created=began)
    story.sees(shown)
    end = DeletePod(key_of(shown), shown.uid, "hpc", "train", "why", None)
    for action in (end, FailByDeadline(key_of(shown), shown.uid, "hpc", "train", "why", False)):
        telemetry.on_ended(ActionEnded(action, Outcome.DONE, began, ended), story.world)
    telemetry._add_step(key_of(shown), "ended", began, ended)
    assert telemetry.recent.of(key_of(shown))
    assert all(0 <= step.start <= step.end < 2**63 / 1e9 for step in telemetry.recent.of(key_of(shown)))
