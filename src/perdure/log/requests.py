"""Requests, rebuilt: what a response answered, and its hash.

The request of a response is the context of its path without its own output: the items before it
that name its `response_id`, however record entries stand between them. Hashing it costs the items
since the last one (DESIGN 7).
"""

from __future__ import annotations

from typing import NamedTuple

from perdure.errors import NoRequestHash, PerdureError, RequestMismatch
from perdure.log.context import ContextFold
from perdure.log.entries import AnyEntry, ItemEntry, ResponseEntry
from perdure.log.settings import Settings
from perdure.loop import Items
from perdure.wire import FunctionCall, Item
from perdure.wire.normal import RequestHash


class Rebuilt(NamedTuple):
    """The request that a response answered."""

    settings: Settings
    items: Items
    output: tuple[str, ...]
    """The entries of the response's own items."""


class TailFold:
    """The items that may be the output of the next response entry."""

    def __init__(self) -> None:
        self._response = ""
        self._entries: list[str] = []
        self._calls = 0
        self._claimed = False

    def apply(self, entry: AnyEntry, item: Item | None) -> None:
        """Take an entry, its item with it if it has one."""
        if isinstance(entry, ResponseEntry):
            self._claimed = self._claimed or self._owns(entry)
        if not isinstance(entry, ItemEntry):
            return
        if not entry.response or entry.response != self._response:
            self._response = entry.response
            self._entries = []
            self._calls = 0
            self._claimed = False
        if entry.response:
            self._entries.append(entry.id)
            self._calls += isinstance(item, FunctionCall)

    def output(self, entry: ResponseEntry) -> tuple[str, ...]:
        """The entries of a response's own items."""
        return tuple(self._entries) if self._owns(entry) else ()

    def calls(self, entry: ResponseEntry) -> int:
        """How many of them are function calls."""
        return self._calls if self._owns(entry) else 0

    @property
    def unclaimed(self) -> tuple[str, ...]:
        """The items at the tail whose response entry is missing."""
        return () if self._claimed else tuple(self._entries)

    def _owns(self, entry: ResponseEntry) -> bool:
        return bool(entry.response_id) and entry.response_id == self._response


def rebuild(context: ContextFold, output: tuple[str, ...]) -> Rebuilt:
    """The request of a response whose entry comes next on the path of `context`."""
    entries = context.item_entries
    first = len(entries) - len(output)
    if tuple(entries[first:]) == output:
        items = context.first_items(first)
    else:  # something else stands between them, or one of them is omitted
        own = frozenset(output)
        pairs = zip(context.items, entries, strict=True)
        items = Items.of(item for item, entry in pairs if entry not in own)
    return Rebuilt(context.settings.current, items, output)


class HashFold:
    """The request hashes of a path; each costs the items since the last."""

    def __init__(self) -> None:
        self._settings: Settings | None = None
        self._memo: object = None
        self._hash: RequestHash | None = None
        self._hashed = 0

    def of(self, request: Rebuilt) -> str:
        """The hash of a request.

        Raises:
            WireError: The settings are no request, or hold what canonical JSON cannot carry.
        """
        same = request.settings is self._settings and request.items.memo is self._memo
        if self._hash is None or not same or self._hashed > len(request.items):
            self._hash = RequestHash(request.settings.request())
            self._settings, self._memo, self._hashed = request.settings, request.items.memo, 0
        self._hash.extend(request.items[self._hashed :])
        self._hashed = len(request.items)
        return self._hash.digest()


def check_hash(entry: ResponseEntry, rebuilt: str) -> None:
    """Whether a response answers the request that the log rebuilds.

    Raises:
        NoRequestHash: It does not say which it answered.
        RequestMismatch: It answers another.
    """
    if not entry.request_hash:
        raise NoRequestHash(entry.id)
    if entry.request_hash != rebuilt:
        raise RequestMismatch(entry.id, entry.request_hash, rebuilt)


def hash_fault(entry: ResponseEntry, request: Rebuilt, hashes: HashFold) -> str:
    """What is wrong with a response's request hash; empty if it agrees, or there is none."""
    if not entry.request_hash:
        return ""
    try:
        check_hash(entry, hashes.of(request))
    except PerdureError as error:
        return str(error)
    return ""
