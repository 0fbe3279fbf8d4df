"""Granted places → members: each gets one, no node gives more than Slurm granted there, and always the same (W8, S11)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.kubernetes import Pod
from scheduler.model.slurm import GrantedNode, JobSpec
from scheduler.place.assign import Part, Place, places, tasks_on
from scheduler.place.devices import assigned_gpus
from scheduler.translate.grouping import rank_of
from tests.builders import pod

Laid = tuple[list[Part], dict[str, str]]
CPUS, MEMORY = 2, 100


@st.composite
def parts(draw: st.DrawFn, *, standing: bool) -> Laid:
    """Up to three shapes, each with nodes of its own grant and with members; and the nodes of bound members."""
    found: list[Part] = []
    stands: dict[str, str] = {}
    first: Counter[str] = Counter()  # Slurm gives a device of a node once, whatever component asks
    for shape in range(draw(st.integers(1, 3))):
        gpus = draw(st.integers(0, 2))
        rooms = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
        nodes = []
        for name, room in zip(("x0", "x1", "x2", "x3"), rooms, strict=False):
            has = room * gpus
            indices = {"gpu": f"{first[name]}-{first[name] + has - 1}"} if has else {}
            gres = {"gpu": has} if has else {}
            nodes.append(GrantedNode(name, room * CPUS + draw(st.integers(0, 1)), room * MEMORY, gres, indices))
            first[name] += has
        count = draw(st.integers(1, sum(rooms)))
        members = [pod(f"s{shape}-{number}", gpu=gpus) for number in range(count)]
        spec = JobSpec("job", "alice", CPUS, MEMORY, tasks=max(2, count), gres=(("gpu", gpus),) if gpus else ())
        found.append(Part(spec, nodes, draw(st.permutations(members))))
        if standing:
            slots = [node.name for node in nodes for _ in range(tasks_on(node, spec))]
            chosen = draw(st.permutations(slots))
            stands |= {each.uid: name for each, name in zip(members, chosen, strict=False) if draw(st.booleans())}
    return found, stands


def all_of(laid: list[Part]) -> list[Pod]:
    return [each for part in laid for each in part.members]


def checked(laid: list[Part], found: dict[str, Place]) -> None:
    members = all_of(laid)
    assert found.keys() == {each.uid for each in members}
    assert sorted(place.rank for place in found.values()) == list(range(len(members)))
    assert [each.uid for each in sorted(members, key=rank_of)] == sorted(found, key=lambda uid: found[uid].rank)
    seats = Counter((place.node.name, place.local_rank) for place in found.values())
    assert max(seats.values()) == 1
    for part in laid:
        used = Counter(found[each.uid].node.name for each in part.members)
        for node in part.nodes:
            assert used[node.name] * part.spec.cpus_per_task <= node.cpus
            assert used[node.name] * part.spec.memory_mib <= node.memory_mib
            for name, count in part.spec.gres:
                assert used[node.name] * count <= node.gres.get(name, 0)


@given(parts(standing=False))
def test_every_member_has_a_place_of_its_own_within_what_was_granted(laid: Laid) -> None:
    found = places(*laid)
    assert found is not None, "Slurm granted room for all of them"
    checked(laid[0], dict(found))
    for part in laid[0]:  # neighbours in rank are neighbours in Slurm's order of nodes
        order = [node.name for node in part.nodes]
        along = [order.index(found[each.uid].node.name) for each in sorted(part.members, key=rank_of)]
        assert along == sorted(along)


@given(parts(standing=True))
def test_bound_members_stay_and_the_others_take_the_remaining_places(laid: Laid) -> None:
    members, stands = laid
    found = places(members, stands)
    assert found is not None
    checked(members, dict(found))
    assert {uid: found[uid].node.name for uid in stands} == stands


@given(parts(standing=False), st.randoms(use_true_random=False))
def test_bound_members_keep_their_ranks_and_replacements_get_those_that_are_free(laid: Laid, rng: Random) -> None:
    former = places(*laid)
    assert former is not None
    members, stands, ranks = list[Part](), dict[str, str](), dict[str, tuple[int, int]]()
    for part in laid[0]:
        kept = rng.sample(list(part.members), rng.randint(0, len(part.members)))
        fresh = [
            pod(f"r{rng.randint(0, 9)}-{number}", uid=f"uid-r-{each.uid}") for number, each in enumerate(part.members)
        ]
        members.append(replace(part, members=(*kept, *fresh[: len(part.members) - len(kept)])))
        stands |= {each.uid: former[each.uid].node.name for each in kept}
        ranks |= {each.uid: (former[each.uid].rank, former[each.uid].local_rank) for each in kept}
    found = places(members, stands, ranks=ranks)
    assert found is not None
    assert {uid: (found[uid].rank, found[uid].local_rank) for uid in ranks} == ranks
    assert sorted(place.rank for place in found.values()) == list(range(len(found)))
    assert max(Counter((place.node.name, place.local_rank) for place in found.values()).values()) == 1


@given(parts(standing=True), st.randoms(use_true_random=False))
def test_the_same_members_in_another_order_are_placed_the_same(laid: Laid, rng: Random) -> None:
    members, stands = laid
    shuffled = [Part(part.spec, part.nodes, rng.sample(list(part.members), len(part.members))) for part in members]
    assert places(shuffled, dict(reversed(stands.items()))) == places(members, stands)


@given(parts(standing=False))
def test_no_two_members_get_the_same_gpu(laid: Laid) -> None:
    members = sorted(all_of(laid[0]), key=rank_of)
    found = places(*laid)
    assert found is not None
    first = assigned_gpus(members[::2], found, laid[0], ())
    held = [(found[uid].node.name, told) for uid, told in first.items()]
    both = first | assigned_gpus(members[1::2], found, laid[0], held)
    for part in laid[0]:
        asked = dict(part.spec.gres).get("gpu", 0)
        assert all(len(both.get(each.uid, "").split(",")) == max(1, asked) for each in part.members)
    told = Counter((found[uid].node.name, index) for uid, indices in both.items() for index in indices.split(","))
    assert not told or max(told.values()) == 1
