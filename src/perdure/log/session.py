"""A session: the tree of its entries, and what is projected from each of its paths.

A session here is a reading of lines. It holds what they say and changes only by taking more of
them; nothing is written through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perdure.errors import EntryRefused, NoEntry, NoRequestHash
from perdure.log.calls import Call
from perdure.log.context import Context, item_of
from perdure.log.drives import Drive
from perdure.log.entries import AnyEntry, DispatchEntry, ItemEntry, QueuedEntry, ResponseEntry
from perdure.log.header import Header
from perdure.log.leaf import LeafRule
from perdure.log.path import View
from perdure.log.requests import HashFold, Rebuilt, check_hash
from perdure.log.spend import Spend
from perdure.wire import FunctionCall

Origin = Iterable["Session"]
"""The sessions that a session was forked from, nearest first."""


class Session:
    """The entries of one session.

    Args:
        header: Its header.
        entries: Its entries, each after its parent.
        origins: The sessions it was forked from, so that dispatches there count.
    """

    def __init__(
        self, header: Header, entries: Iterable[AnyEntry] = (), *, origins: Origin = ()
    ) -> None:
        self.header = header
        self.entries: list[AnyEntry] = []
        """In the order of the file."""
        self.origins = tuple(origins)
        self._places: dict[str, int] = {}
        self._depths: dict[str, int] = {}
        self._parents: set[str] = set()
        self._dispatches: dict[str, tuple[DispatchEntry, ...]] = {}
        self._leaf = LeafRule(self)
        self._view: View | None = None
        for entry in entries:
            self.take(entry)

    # --- the tree ------------------------------------------------------------------------

    def take(self, entry: AnyEntry) -> bool:
        """Take the next entry. False if it is here already, which makes it the same entry.

        Raises:
            EntryRefused: Its parent is not here.
        """
        if entry.id in self._places:
            return False
        if entry.parent is not None and entry.parent not in self._places:
            raise EntryRefused(f"entry {entry.id!r} names a parent that is not here")
        self._places[entry.id] = len(self.entries)
        self._depths[entry.id] = 0 if entry.parent is None else self._depths[entry.parent] + 1
        self.entries.append(entry)
        if entry.parent is not None:
            self._parents.add(entry.parent)
        if isinstance(entry, DispatchEntry):
            self._dispatches[entry.target] = (*self._dispatches.get(entry.target, ()), entry)
        self._leaf.apply(entry, len(self.entries) - 1)
        return True

    @property
    def id(self) -> str:
        return self.header.id

    @property
    def version(self) -> int:
        """How many entries the session has, on all branches (LOG 1.1)."""
        return len(self.entries)

    @property
    def leaf(self) -> str | None:
        """Where the session goes on; None while it is empty."""
        return self._leaf.leaf

    @property
    def base_depth(self) -> int:
        """How deep the base stands; 0 if there is none."""
        return self._depths.get(self.header.base, 0)

    def __contains__(self, entry: str) -> bool:
        return entry in self._places

    def __len__(self) -> int:
        return len(self.entries)

    def get(self, entry: str) -> AnyEntry | None:
        """The entry of this id, if it is here."""
        place = self._places.get(entry)
        return None if place is None else self.entries[place]

    def entry(self, entry: str) -> AnyEntry:
        """The entry of this id.

        Raises:
            NoEntry: It is not here.
        """
        found = self.get(entry)
        if found is None:
            raise NoEntry(entry)
        return found

    def place(self, entry: str) -> int:
        """Where in the file an entry stands, from 0. Raises as `entry`."""
        if entry not in self._places:
            raise NoEntry(entry)
        return self._places[entry]

    def depth(self, entry: str) -> int:
        """How many entries stand above it. Raises as `entry`."""
        if entry not in self._depths:
            raise NoEntry(entry)
        return self._depths[entry]

    @property
    def heads(self) -> list[str]:
        """The entries without a child, in the order of the file."""
        return [entry.id for entry in self.entries if entry.id not in self._parents]

    def path(self, leaf: str | None = None) -> list[AnyEntry]:
        """The entries from a root to `leaf`, or to the session's leaf. Raises as `entry`."""
        found = list(self._upwards(self.leaf if leaf is None else leaf))
        found.reverse()
        return found

    def _upwards(self, start: str | None) -> Iterator[AnyEntry]:
        at = start
        while at is not None:
            entry = self.entry(at)
            yield entry
            at = entry.parent

    def dispatches_of(self, entry: str) -> tuple[DispatchEntry, ...]:
        """The dispatches of a call's entry, here and where the session was forked from."""
        found = self._dispatches.get(entry, ())
        for origin in self.origins:
            here = {one.id for one in found}
            found += tuple(d for d in origin._dispatches.get(entry, ()) if d.id not in here)
        return found

    @property
    def call_ids(self) -> frozenset[str]:
        """The ids of the function calls of every branch; no new call may have one of them."""
        raws = (entry.item for entry in self.entries if isinstance(entry, ItemEntry))
        items = (item_of(raw) for raw in raws if b'"function_call"' in bytes(raw))
        return frozenset(item.call_id for item in items if isinstance(item, FunctionCall))

    # --- projections ---------------------------------------------------------------------

    def fresh_view(self) -> View:
        """A view before the first entry."""
        return View(
            base=self.header.base,
            promised=self.header.promises("dispatch"),
            elsewhere=self.dispatches_of,
            halts=self.header.run is not None,
            is_program=self.header.is_program,
            is_saga=self.header.is_saga,
        )

    def at(self, leaf: str | None = None) -> View:
        """A view of its own at `leaf`, or at the session's leaf. Raises as `entry`."""
        view = self.fresh_view()
        for entry in self.path(leaf):
            view.follow(entry)
        return view

    def view(self, leaf: str | None = None) -> View:
        """A shared view at `leaf`. It moves on with the next one asked for. Raises as `entry`."""
        target = self.leaf if leaf is None else leaf
        view = self._view
        steps = self._steps(view, target) if view is not None else None
        if view is None or steps is None:
            self._view = view = self.at(target)
            return view
        for entry in steps:
            view.follow(entry)
        return view

    def _steps(self, view: View, target: str | None) -> list[AnyEntry] | None:
        """The entries from a view to `target`; None if it does not stand above it."""
        if view.leaf is None or target is None:
            return None
        steps: list[AnyEntry] = []
        floor = self._depths[view.leaf]
        for entry in self._upwards(target):
            if self._depths[entry.id] <= floor:
                steps.reverse()
                return steps if entry.id == view.leaf else None
            steps.append(entry)
        return None

    def context(self, leaf: str | None = None) -> Context:
        """The settings and items that a request from a leaf would hold. Raises as `entry`."""
        return self.view(leaf).context

    def calls(self, leaf: str | None = None) -> tuple[Call, ...]:
        """The calls of a path. Raises as `entry`."""
        return tuple(self.at(leaf).calls)

    def drives(self, leaf: str | None = None) -> tuple[Drive, ...]:
        """The drives of a path. Raises as `entry`."""
        return tuple(self.at(leaf).drives.all)

    def queued(self, leaf: str | None = None) -> tuple[QueuedEntry, ...]:
        """The inputs that a path owes its queues. Raises as `entry`."""
        return tuple(self.view(leaf).queues.owed.values())

    def spend(self, leaf: str | None = None) -> Spend:
        """What a path took. Raises as `entry`."""
        return self.view(leaf).spend

    @property
    def status(self) -> str:
        """How the session stands at its leaf."""
        return self.view().status

    def request_of(self, response: str) -> Rebuilt:
        """The request that a response entry answered.

        Raises:
            NoEntry: There is no such entry, or it is no response.
        """
        entry = self.entry(response)
        if not isinstance(entry, ResponseEntry):
            raise NoEntry(response)
        return self.at(response).request(entry)

    def check_request(self, response: str) -> None:
        """Whether the log rebuilds the request that a response answered.

        Raises:
            NoEntry: There is no such entry, or it is no response.
            NoRequestHash: It was recorded without the hash.
            RequestMismatch: It does not.
        """
        request = self.request_of(response)
        entry = self.entry(response)
        if isinstance(entry, ResponseEntry):
            if not entry.request_hash:
                raise NoRequestHash(response)
            check_hash(entry, HashFold().of(request))
