"""Pods can be put in order whatever they are called and whatever they show: no name, index or label breaks a comparison."""

from __future__ import annotations

from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from scheduler import names
from scheduler.model.kubernetes import Pod
from scheduler.model.slurm import GrantedNode
from scheduler.place.assign import Part, Place
from scheduler.place.devices import assigned_gpus
from scheduler.translate.grouping import (
    COMPLETION_INDEX,
    JOBSET_JOB,
    JOBSET_PART,
    JOBSET_RANK,
    KUEUE_RANK,
    LWS_RANK,
    SET_INDEX,
    by_rank,
    natural,
)
from tests.builders import START, Story, pod

INDICES = (JOBSET_RANK, JOBSET_PART, JOBSET_JOB, LWS_RANK, KUEUE_RANK, SET_INDEX, COMPLETION_INDEX)
# Stems that are prefixes of each other, numbers with zeros before them, digits of other scripts, very long numbers.
TEXTS = st.one_of(
    st.sampled_from(
        ["", "0", "00", "7", "007", "worker", "worker1", "worker-1", "1worker", "-1", "٣", "²", "9" * 5000]
    ),
    st.text(alphabet="w1-0²", max_size=6),
    st.text(max_size=6),
)


@st.composite
def hostile(draw: st.DrawFn) -> list[Pod]:
    """Members of one gang, each with its own name, each with any of the indices, or none."""
    called = draw(st.lists(TEXTS, min_size=2, max_size=6, unique=True))
    gang = {names.PREFIX + names.GANG: "ring"}
    return [
        pod(
            name,
            uid=f"uid-{number}",
            labels=gang | draw(st.dictionaries(st.sampled_from(INDICES), TEXTS, max_size=3)),
            says={"gang-size": str(len(called))},
        )
        for number, name in enumerate(called)
    ]


@given(hostile(), st.integers(0, 99))
@example([pod("worker"), pod("worker1")], 0)
def test_members_have_one_order_however_they_are_called(pods: list[Pod], seed: int) -> None:
    mixed = list(pods)
    Random(seed).shuffle(mixed)
    assert by_rank(mixed) == by_rank(pods)


@given(st.integers(0, 10**30), st.integers(0, 10**30))
def test_numbers_in_names_count_by_their_value(one: int, other: int) -> None:
    assert (natural(f"w-{one}") < natural(f"w-{other}")) == (one < other)
    assert natural(f"w-00{one}") == natural(f"w-{one}")


@given(hostile())
def test_a_gang_is_asked_for_however_its_members_are_called(pods: list[Pod]) -> None:
    story = Story()
    story.sees(*pods)
    story.decides(START + 10)
    assert len({story.world.key_of_pod[each.uid] for each in pods}) == 1


@given(st.one_of(TEXTS, st.text(alphabet="0123,-[]xgpu", max_size=12)))
@example("1]x[2")
@example("0],b[1")
def test_device_indices_that_cannot_be_read_give_a_pod_no_devices(indices: str) -> None:
    asked = pod("train", gpu=1)
    story = Story()
    story.sees(asked)
    [ask] = story.decides(START + 10)
    spec = ask.spec
    node = GrantedNode("x1", 1, 100, {"gpu": 1}, {"gpu": indices})
    told = assigned_gpus([asked], {asked.uid: Place(node, 0, 0)}, [Part(spec, [node], [asked])], ())
    assert all(each.isdecimal() for each in told.get(asked.uid, "0").split(","))
