"""The list-watch machine, failure by failure, on a virtual clock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bridge.errors import ContractError, Unanswered, Unreachable
from bridge.kube.transport import Reply, StreamRefused, TooLong
from bridge.kube.versions import OLDER_S, SeenVersions
from bridge.kube.watch import BACKOFF_MOST_S, KubeWatches, Listing, ListWatch, State, Watching, our_pods
from bridge.simulation.virtual_time import run
from scheduler.events import Event, ObjectUndecoded, OutageBegan, OutageEnded, PodDeleted, PodSeen, PodsListed
from scheduler.model.kubernetes import Undecoded
from tests.unit.kube.fakes import FakeTransport, bookmark, line, listed, no, pod

AWAY = Unreachable("get", "Kubernetes", "no connection to https://api")
BROKEN = Unanswered("watch", "Kubernetes", "https://api closed the connection")
TOO_OLD = line("ERROR", {"kind": "Status", "code": 410, "message": "too old"})


class Watched:
    """A list-watch on a far end, and all it said."""

    def __init__(self, far: FakeTransport, seen: SeenVersions | None = None) -> None:
        self.events: list[Event] = []
        self.said: list[str] = []
        self.undecoded: list[Undecoded] = []
        self.far = far
        self.watch = ListWatch(
            far,
            our_pods("slurm-bridge"),
            self.events.append,
            clock=lambda: asyncio.get_running_loop().time(),
            on_failure=self.said.append,
            on_recovered=lambda: self.said.append("fine"),
            on_undecoded=self.undecoded.append,
            rng=random.Random(1),
            seen=seen or SeenVersions(),
        )

    async def steps(self, count: int, state: State | None = None) -> State:
        state = state or Listing()
        for _ in range(count):
            state = await self.watch.step(state)
        return state

    @property
    def told(self) -> list[str]:
        return [_short(event) for event in self.events]


def _short(event: Event) -> str:
    match event:
        case PodsListed():
            others = [f"not {each.name}" for each in event.undecoded]
            return ", ".join(["listed " + " ".join(pod.name for pod in event.pods), *others])
        case ObjectUndecoded():
            return f"not {event.object.name}"
        case PodSeen():
            return f"seen {event.pod.name}"
        case PodDeleted():
            return f"gone {event.pod.name}"
    raise AssertionError(event)


def on_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def wrapped() -> None:
        run(test())

    wrapped.__name__ = test.__name__
    wrapped.__doc__ = test.__doc__
    return wrapped


def now() -> float:
    return asyncio.get_running_loop().time()


@on_virtual_time
async def test_a_list_then_its_changes() -> None:
    far = FakeTransport(
        listed("5", pod("a")),
        streams=[[line("ADDED", pod("b", version="6")), line("DELETED", pod("a", version="7")), bookmark("9")]],
    )
    watched = Watched(far)
    assert await watched.steps(2) == Watching("9")
    assert watched.told == ["listed a", "seen b", "gone a"]
    assert watched.said == ["fine", "fine"]
    asked = far.opened[0]
    assert asked["resourceVersion"] == "5"
    assert asked["allowWatchBookmarks"] == "true"
    assert asked["fieldSelector"] == "spec.schedulerName=slurm-bridge"
    assert 240 <= int(asked["timeoutSeconds"]) <= 300


@on_virtual_time
async def test_a_page_that_fails_starts_the_list_over_and_nothing_half_is_reported() -> None:
    far = FakeTransport(listed("5", pod("a"), token="t"), AWAY, listed("8", pod("b")))
    watched = Watched(far)
    assert await watched.steps(1) == Listing()
    assert watched.told == []
    assert await watched.steps(1) == Watching("8")
    assert watched.told == ["listed b"]
    assert "continue" not in far.asked[2][2]


@on_virtual_time
async def test_pages_are_asked_for_with_their_token() -> None:
    far = FakeTransport(listed("5", pod("a"), token="t1"), listed("5", pod("b"), token="t2"), listed("5", pod("c")))
    watched = Watched(far)
    await watched.steps(1)
    assert [asked[2].get("continue") for asked in far.asked] == [None, "t1", "t2"]
    assert watched.told == ["listed a b c"]


@on_virtual_time
async def test_a_forgotten_page_token_starts_the_list_over_at_once_the_first_time() -> None:
    far = FakeTransport(listed("5", pod("a"), token="t"), no(410, "Expired"), listed("8"))
    watched, began = Watched(far), now()
    assert await watched.steps(2) == Watching("8")
    assert now() == began
    assert watched.said == ["fine"]


@on_virtual_time
async def test_an_expired_version_is_listed_again_at_once_whatever_form_the_answer_has() -> None:
    for stream in ([TOO_OLD], StreamRefused(no(410, "Expired"))):
        far = FakeTransport(listed("8"), streams=[stream])
        watched, began = Watched(far), now()
        assert await watched.steps(2, Watching("5")) == Watching("8")
        assert now() == began
        assert watched.told == ["listed "]


@on_virtual_time
async def test_a_server_that_forgets_at_once_again_and_again_is_asked_ever_more_slowly() -> None:
    rounds = 8
    far = FakeTransport(*[listed("8")] * rounds, streams=[[TOO_OLD]] * rounds)
    watched, began = Watched(far), now()
    await watched.steps(2 * rounds, Watching("5"))
    assert now() - began > 5
    assert any("forgets" in said for said in watched.said)


@on_virtual_time
async def test_a_broken_watch_resumes_from_its_version_and_reports_nothing_the_first_time() -> None:
    far = FakeTransport(streams=[[line("ADDED", pod("a", version="6")), BROKEN], [bookmark("7")]])
    watched = Watched(far)
    assert await watched.steps(1, Watching("5")) == Watching("6")
    assert await watched.steps(1, Watching("6")) == Watching("7")
    assert [opened["resourceVersion"] for opened in far.opened] == ["5", "6"]
    assert watched.told == ["seen a"]
    assert watched.said == ["fine", "fine"]


@on_virtual_time
async def test_a_change_without_a_version_does_not_let_the_watch_begin_anew_at_the_present() -> None:
    """A watch without a resourceVersion begins with all objects of that moment, so a deletion before it is never seen."""
    for change in (bookmark(""), line("BOOKMARK", {"metadata": {}}), line("MODIFIED", pod(version=""))):
        far = FakeTransport(streams=[[bookmark("6"), change, BROKEN]])
        assert await Watched(far).steps(1, Watching("5")) == Watching("6")


@on_virtual_time
async def test_a_watch_that_breaks_again_is_trouble() -> None:
    far = FakeTransport(streams=[AWAY, AWAY, [bookmark("7")]])
    watched = Watched(far)
    assert await watched.steps(2, Watching("5")) == Watching("5")
    assert watched.said == ["Kubernetes: get: no connection to https://api"]
    assert await watched.steps(1, Watching("5")) == Watching("7")
    assert watched.said[-1] == "fine"


@on_virtual_time
async def test_a_server_that_hangs_at_the_next_watch_is_a_failure() -> None:
    hangs = Unanswered("watch", "Kubernetes", "https://api did not answer within 15 s")
    far = FakeTransport(streams=[[150.0, BROKEN], hangs, hangs])
    watched = Watched(far)
    await watched.steps(1, Watching("5"))
    assert watched.said == ["fine"]
    far.opens_after_s = 15.0
    await watched.steps(2, Watching("5"))
    assert watched.said == ["fine", str(hangs), str(hangs)]


@on_virtual_time
async def test_a_watch_that_something_between_us_cuts_every_minute_is_no_trouble() -> None:
    far = FakeTransport(streams=[[60.0, BROKEN]] * 5)
    watched = Watched(far)
    await watched.steps(5, Watching("5"))
    assert set(watched.said) == {"fine"}


@on_virtual_time
async def test_waiting_grows_is_never_the_same_and_has_a_limit() -> None:
    far = FakeTransport(*[AWAY] * 12)
    watched = Watched(far)
    await watched.steps(12)
    waits = [after - before for before, after in zip(far.times, far.times[1:], strict=False)]
    assert 0.1 <= waits[0] <= 0.2
    assert all(wait <= BACKOFF_MOST_S for wait in waits)
    assert min(waits[6:]) >= BACKOFF_MOST_S / 2
    assert len({round(wait, 6) for wait in waits}) == len(waits)


@on_virtual_time
async def test_waiting_starts_small_again_after_the_watch_has_shown_something() -> None:
    far = FakeTransport(*[AWAY] * 8, listed("5"), streams=[[bookmark("6"), BROKEN], [bookmark("7")]])
    watched = Watched(far)
    await watched.steps(9)
    began = now()
    await watched.steps(1, Watching("5"))
    assert now() - began <= 0.2


@on_virtual_time
async def test_the_server_may_ask_for_more_time_but_not_for_ever() -> None:
    far = FakeTransport(no(429, "TooManyRequests", retryAfterSeconds=9), no(429, "Too", retryAfterSeconds=86400))
    watched, began = Watched(far), now()
    await watched.steps(1)
    assert now() - began == pytest.approx(9)
    await watched.steps(1)
    assert now() - began == pytest.approx(39)


@on_virtual_time
async def test_an_answer_that_makes_no_sense_is_never_mistaken_for_an_empty_cluster() -> None:
    for nonsense in (Reply(200, {}, b"<html>"), Reply(404, {}, b"not here"), listed(""), no(403, "Forbidden")):
        watched = Watched(FakeTransport(nonsense))
        assert await watched.steps(1) == Listing()
        assert watched.told == []
        assert len(watched.said) == 1


@on_virtual_time
async def test_a_line_that_makes_no_sense_is_a_gap_so_everything_is_listed_again() -> None:
    lines = [line("ADDED", pod("a", version="6")), b'{"type":"ADDED","object":7}']
    failed = line("ERROR", {"kind": "Status", "code": 500, "message": "etcd event lost"})
    for stream in (
        lines,
        [lines[0], failed],
        [lines[0], ContractError("watch", "Kubernetes", "nonsense")],
    ):
        watched = Watched(FakeTransport(streams=[stream]))
        assert await watched.steps(1, Watching("5")) == Listing()
        assert watched.told == ["seen a"]
        assert len(watched.said) == 2


@on_virtual_time
async def test_a_watch_that_ends_as_it_should_goes_on_at_once() -> None:
    far = FakeTransport(streams=[[250.0, bookmark("6")]])
    watched, began = Watched(far), now()
    assert await watched.steps(1, Watching("5")) == Watching("6")
    assert now() - began == 250


@on_virtual_time
async def test_a_watch_without_any_event_or_bookmark_is_listed_again() -> None:
    """As of a server restored from a backup: our version is far in its future."""
    watched = Watched(FakeTransport(streams=[[250.0]]))
    assert await watched.steps(1, Watching("5")) == Listing()


@on_virtual_time
async def test_silence_is_given_up_sooner_once_the_server_is_known_to_send_bookmarks() -> None:
    far = FakeTransport(streams=[[line("ADDED", pod(version="6"))], [bookmark("7")], [bookmark("8")]])
    await Watched(far).steps(3, Watching("5"))
    assert all(255 <= stall <= 315 for stall in far.stalls[:2])
    assert far.stalls[2] == 150


@on_virtual_time
async def test_a_server_that_ends_every_watch_at_once_is_not_hammered() -> None:
    far = FakeTransport(streams=[[]] * 10)
    watched, began = Watched(far), now()
    assert await watched.steps(10, Watching("5")) == Watching("5")
    assert now() - began > 10
    assert any("ends every watch at once" in said for said in watched.said)


@on_virtual_time
async def test_run_lists_watches_and_recovers_by_itself() -> None:
    far = FakeTransport(
        listed("5", pod("a")),
        AWAY,
        listed("9", pod("b")),
        streams=[[line("ADDED", pod("b", version="6")), TOO_OLD], [3600.0]],
    )
    watched = Watched(far)
    task = asyncio.create_task(watched.watch.run())
    await asyncio.sleep(60)
    task.cancel()
    assert watched.told == ["listed a", "seen b", "listed b"]


@on_virtual_time
async def test_the_four_watches_report_one_outage() -> None:
    events: list[Event] = []
    watches = KubeWatches(FakeTransport(), "slurm-bridge", events.append, now)
    watches._recovered("nodes")
    watches._failed("nodes", "the server is away")
    watches._failed("our pods", "the server is away, too")
    watches._recovered("nodes")
    assert [type(event) for event in events] == [OutageBegan]
    watches._recovered("our pods")
    assert [type(event) for event in events] == [OutageBegan, OutageEnded]
    assert isinstance(events[0], OutageBegan)
    assert events[0].why == "the server is away"


# --- a list that goes back in time ------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_list_that_is_older_than_a_seen_version_is_requested_again() -> None:
    far = FakeTransport(listed("5", pod("a")), listed("6"), listed("9", pod("b")), streams=[[bookmark("8"), TOO_OLD]])
    watched = Watched(far)
    assert await watched.steps(3) == Listing()
    assert watched.told == ["listed a"], "the old list told nothing"
    assert "version 6" in watched.said[-1]
    assert await watched.steps(1) == Watching("9")
    assert watched.told == ["listed a", "listed b"]


@on_virtual_time
async def test_watches_that_begin_again_know_which_versions_the_process_saw() -> None:
    seen = SeenVersions()
    before = Watched(FakeTransport(listed("5"), streams=[[line("ADDED", pod("a", version="8"))]]), seen)
    await before.steps(2)
    after = Watched(FakeTransport(listed("7"), listed("8", pod("a"))), seen)
    assert await after.steps(2) == Watching("8")
    assert after.told == ["listed a"]


@on_virtual_time
async def test_what_was_seen_while_a_list_was_under_way_does_not_make_the_list_old() -> None:
    seen, far = SeenVersions(), FakeTransport(listed("5", pod("a")))
    watched = Watched(far, seen)
    far.on_ask = lambda: seen.see("/api/v1/pods", "9")
    assert await watched.steps(1) == Watching("5")


@on_virtual_time
async def test_an_etcd_restored_from_a_backup_is_believed_after_a_while() -> None:
    seen = SeenVersions()
    seen.see("/api/v1/pods", "1000")
    far = FakeTransport(*[listed("5", pod("a"))] * 20, streams=[[line("ADDED", pod("b", version="6"))]])
    watched, began, state = Watched(far, seen), now(), None
    while not watched.told:
        state = await watched.steps(1)
    assert OLDER_S <= now() - began <= OLDER_S + BACKOFF_MOST_S
    await watched.steps(1, state)
    assert watched.told == ["listed a", "seen b"]
    assert seen.newest("/api/v1/pods") == 6


@on_virtual_time
async def test_versions_that_are_no_numbers_are_not_compared() -> None:
    seen = SeenVersions()
    far = FakeTransport(listed("b"), listed("a", pod("a")), listed("9" * 5000), streams=[[TOO_OLD], [TOO_OLD]])
    watched = Watched(far, seen)
    await watched.steps(5)
    assert watched.told == ["listed ", "listed a", "listed "]
    assert seen.newest("/api/v1/pods") == 0


# --- objects that cannot be decoded, and pages that are too long ------------------------------------------------------


def odd(name: str = "odd", version: str = "7") -> dict[str, Any]:
    """A pod that cannot be decoded."""
    broken = pod(name, uid=f"u-{name}", version=version)
    broken["metadata"]["labels"] = 7
    return broken


@on_virtual_time
async def test_a_list_reports_what_it_cannot_decode_beside_the_others() -> None:
    watched = Watched(FakeTransport(listed("5", pod("a"), odd(), pod("b"))))
    assert await watched.steps(1) == Watching("5")
    assert watched.told == ["listed a b, not odd"]
    assert [each.uid for each in watched.undecoded] == ["u-odd"]
    assert watched.said == ["fine"]


@on_virtual_time
async def test_a_watch_continues_after_a_change_that_it_cannot_decode() -> None:
    far = FakeTransport(streams=[[line("MODIFIED", odd(version="6")), line("ADDED", pod("a", version="7")), BROKEN]])
    watched = Watched(far)
    assert await watched.steps(1, Watching("5")) == Watching("7")
    assert watched.told == ["not odd", "seen a"]
    assert [each.uid for each in watched.undecoded] == ["u-odd"]


@on_virtual_time
async def test_a_watch_that_breaks_behind_such_a_change_begins_behind_it() -> None:
    watched = Watched(FakeTransport(streams=[[line("MODIFIED", odd(version="6")), BROKEN]]))
    assert await watched.steps(1, Watching("5")) == Watching("6")


@on_virtual_time
async def test_the_deletion_of_an_undecoded_object_is_proven_by_a_new_list() -> None:
    far = FakeTransport(listed("9", pod("a")), streams=[[line("DELETED", odd(version="6"))]])
    watched = Watched(far)
    assert await watched.steps(1, Watching("5")) == Listing()
    assert await watched.steps(1, Listing()) == Watching("9")
    assert watched.told == ["listed a"]


def too_long(head: bytes = b"") -> TooLong:
    return TooLong("get", "Kubernetes", "the answer is longer than 16 MiB", 200, head)


@on_virtual_time
async def test_a_page_that_is_too_long_is_asked_for_again_at_half_its_size() -> None:
    far = FakeTransport(
        listed("5", pod("a"), token="t1"),
        too_long(),
        too_long(),
        listed("5", pod("b"), token="t2"),
        listed("5", pod("c")),
    )
    watched = Watched(far)
    await watched.steps(1)
    assert [(asked[2]["limit"], asked[2].get("continue")) for asked in far.asked] == [
        ("500", None),
        ("500", "t1"),
        ("250", "t1"),
        ("125", "t1"),
        ("250", "t2"),  # what comes then may be small again
    ]
    assert watched.told == ["listed a b c"]
    assert watched.said == ["fine"]


@on_virtual_time
async def test_an_object_that_is_too_long_is_left_out_and_reported_by_its_name() -> None:
    head = b'{"kind":"PodList","metadata":{"resourceVersion":"5","continue":"t1"},"items":[{"metadata":{"name":"odd",'
    head += b'"namespace":"hpc","uid":"u-odd","annotations":{"a":"xxxx'
    far = FakeTransport(*[too_long(head)] * 9, listed("5", pod("b")))
    watched = Watched(far)
    await watched.steps(1)
    assert [asked[2]["limit"] for asked in far.asked] == ["500", "250", "125", "62", "31", "15", "7", "3", "1", "1"]
    assert far.asked[-1][2]["continue"] == "t1"
    assert watched.told == ["listed b, not odd"]


@on_virtual_time
async def test_where_the_end_of_a_list_is_too_long_nothing_is_taken_as_missing() -> None:
    """The last object; or a server that does not page, and everything there is."""
    head = b'{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"odd","uid":"u-odd"'
    watched = Watched(FakeTransport(*[too_long(head)] * 9))
    await watched.steps(1)
    [event] = watched.events
    assert isinstance(event, PodsListed)
    assert [each.name for each in event.undecoded] == ["odd", ""]


@on_virtual_time
async def test_a_page_of_which_not_even_the_beginning_makes_sense_is_no_list() -> None:
    watched = Watched(FakeTransport(*[too_long(b"<html>")] * 9))
    assert await watched.steps(1) == Listing()
    assert watched.told == []
