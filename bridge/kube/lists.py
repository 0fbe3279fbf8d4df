"""One consistent list of objects, page by page.

A page that is too long is asked for again at half its size, because tenants choose how long their pods are.  An object that
cannot be decoded, or is too long to be read, is named beside the decoded ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bridge.errors import ContractError, RemoteError
from bridge.kube.codec import Codec, undecoded
from bridge.kube.decoding import head_of
from bridge.kube.responses import judged
from bridge.kube.transport import MAX_BODY, SIDE, Call, Reply, TooLong, Transport
from bridge.kube.wire import ListMeta, Page
from scheduler.model.kubernetes import Undecoded

PAGE_SIZE = 500
LIST_DEADLINE_S = 30.0

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Query(Generic[M]):
    """Which objects.

    name    of the objects, for messages
    kind    of one object
    fields  a field selector; "": all
    labels  a label selector; "": all
    """

    name: str
    kind: str
    path: str
    codec: Codec[M]
    fields: str = ""
    labels: str = ""

    @property
    def params(self) -> dict[str, str]:
        """The selectors, as parameters of a list or a watch."""
        chosen = {"fieldSelector": self.fields, "labelSelector": self.labels}
        return {name: selector for name, selector in chosen.items() if selector}


@dataclass(frozen=True, slots=True)
class Listed(Generic[M]):
    """A complete list.  undecoded: the objects on it that could not be decoded.  version: where a watch may begin."""

    found: tuple[M, ...]
    undecoded: tuple[Undecoded, ...]
    version: str


class Expired(RemoteError):
    """410 between two pages: the snapshot has expired, so the pages so far are not part of a complete list."""


async def listed(
    transport: Transport,
    query: Query[M],
    page_size: int = PAGE_SIZE,
    on_reply: Callable[[Reply], None] = lambda _reply: None,
) -> Listed[M]:
    """Every page of one consistent list.  Raises Expired, and what any read raises.

    The server makes the next page while the bridge decodes one.  on_reply: called for each answer that is a page
    """
    pages = _Pages(transport, query, page_size, on_reply)
    found: list[M] = []

    def take(page: Page) -> None:
        decoded, others = query.codec.items(page)
        found.extend(decoded)
        pages.undecoded.extend(others)

    page = await pages.ask("")
    while token := page.metadata.continue_:
        following = asyncio.create_task(pages.ask(token))
        try:
            await asyncio.sleep(0)  # the request is sent before this page is decoded
            take(page)
            page = await following
            if page.metadata.continue_ == token:
                raise ContractError(
                    f"list {query.name}", SIDE, "the list has no end: two pages name the same next page"
                )
        finally:
            following.cancel()
    take(page)
    return Listed(tuple(found), tuple(pages.undecoded), page.metadata.resource_version)


@dataclass(slots=True)
class _Pages(Generic[M]):
    """The pages of one list.  A page that is too long is asked for again at half its size, down to one object.

    undecoded   objects that are not on the pages, because they are too long to be read
    """

    transport: Transport
    query: Query[M]
    most: int
    on_reply: Callable[[Reply], None]
    size: int = field(init=False)
    undecoded: list[Undecoded] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.size = self.most

    async def ask(self, token: str) -> Page:
        """The page that the continue token names.  Raises Expired, and what any read raises."""
        operation = f"list {self.query.name}"
        while True:
            params = self.query.params | {"limit": str(self.size)} | ({"continue": token} if token else {})
            try:
                reply = await self.transport.exchange(
                    Call("GET", self.query.path, params=params, deadline_s=LIST_DEADLINE_S)
                )
            except TooLong as error:
                if self.size == 1:
                    return self._page_of_one(error)
                self.size //= 2
                continue
            if reply.status == 410:
                raise Expired(operation, SIDE, "the list outlived its snapshot", 410)
            if len(reply.body) < MAX_BODY // 8:  # the objects of the next page may be smaller
                self.size = min(self.most, 2 * self.size)
            page = self.query.codec.page(judged(operation, reply).body)
            self.on_reply(reply)
            return page

    def _page_of_one(self, too_long: TooLong) -> Page:
        """A page without its only object, which is too long.  The first bytes show the metadata and name the object."""
        head = head_of(too_long.head)
        meta = ListMeta(head.of("metadata", "resourceVersion"), head.of("metadata", "continue"))
        if not meta.resource_version:
            raise too_long
        kind = self.query.kind
        self.undecoded.append(undecoded(kind, head, ("items", ""), too_long.message))
        if not meta.continue_:  # on the last page, the server may have put more objects after this one
            self.undecoded.append(Undecoded(kind, "", "", "", "the end of the list is too long to be read"))
        return Page(meta)
