"""The items of the page as JSON, shared by all readers; each item has the number of the change that last updated it.

A *look* reads all items once.  The bridge has one thread, and the items of ten thousand pods take longer than a pass may
wait.  So a look is made in slices of two milliseconds, and pauses between the slices leave most of the time to the bridge.
An item shows the World at the time of its slice, so two items may be a second apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from bridge.pace import Pace

Item = Any  # what JSON can say
Sections = Mapping[str, Mapping[str, Item]]
# Section, key, and a function that returns the item; None: there is no item, but the look may pause here.
Entry = tuple[str, str, Callable[[], Item]] | None

REST = 9  # a rest is nine times as long as the slice before, so a look takes a tenth of the loop's time
FIRST_REST = 1  # the same for the first look, for which a reader waits
GONE = b"null"


class Feed:
    """The items, each with the number of its last change.

    look     returns all entries as they are now, lazily, so that the look can pause between two of them
    failed   is called with the name of an item that could not be made, and the exception; the look goes on
    """

    def __init__(
        self,
        look: Callable[[], Iterable[Entry]],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._look = look
        self._failed = failed
        self._items: dict[tuple[str, str], tuple[int, bytes]] = {}  # in the order of the numbers
        self.number = 0  # of the last change
        self.looked = 0  # the number of complete looks

    async def refresh(self) -> None:
        """Make one look, and number the changes."""
        seen: set[tuple[str, str]] = set()
        pace = Pace(REST if self.looked else FIRST_REST, time.perf_counter)
        for found in self._look():
            if found is not None:
                seen.add(found[:2])
                self._take(*found)
            if pace.over():
                await pace.rest()
        for known in tuple(self._items):
            if known not in seen and self._items[known][1] is not GONE:
                self._change(known, GONE)
            if pace.over():
                await pace.rest()
        self.looked += 1

    def _take(self, section: str, key: str, make: Callable[[], Item]) -> None:
        try:
            text = msgspec.json.encode(make())
        except Exception as error:  # noqa: BLE001 - contained to this item, or raised
            self._failed(f"{section} {key}", error)
            return
        known = self._items.get((section, key))
        if known is None or known[1] != text:
            self._change((section, key), text)

    def _change(self, known: tuple[str, str], text: bytes) -> None:
        self.number += 1
        self._items.pop(known, None)
        self._items[known] = (self.number, text)

    def since(self, number: int) -> list[tuple[int, str, str, bytes]]:
        """The changes after that number, oldest first: number, section, key, JSON.  Of 0: all present items."""
        found: list[tuple[int, str, str, bytes]] = []
        for (section, key), (changed, text) in reversed(self._items.items()):
            if changed <= number:
                break
            if number or text is not GONE:
                found.append((changed, section, key, text))
        found.reverse()
        return found

    def forget(self, sent: int) -> None:
        """Forget items that are gone.  sent: every reader was sent all changes up to this number"""
        for known, (changed, text) in tuple(self._items.items()):
            if changed > sent:
                break
            if text is GONE:
                del self._items[known]


def entries_of(sections: Sections) -> Iterator[Entry]:
    """The entries of sections whose items exist already."""
    for section, items in sections.items():
        for key, item in items.items():
            yield entry(section, key, item)


def sections_of(entries: Iterable[Entry]) -> Sections:
    """The sections with the items of all these entries, made at once."""
    sections: dict[str, dict[str, Item]] = {}
    for section, key, make in filter(None, entries):
        sections.setdefault(section, {})[key] = make()
    return sections


def entry(section: str, key: str, item: Item) -> Entry:
    """The entry of an item that exists already."""
    return section, key, lambda: item
