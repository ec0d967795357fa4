"""The transcript: items in order, and snapshots of it that cost nothing.

A *transcript* only grows. A *snapshot* (`Items`) is the transcript's list and a length, so taking
one copies nothing (DESIGN 7). What a consumer works out once per item, as the bytes an adapter
sends for it, it keeps in the snapshot's `memo`, which all snapshots of one list share: it is true
for as long as the list only grows, and another list has another memo.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import cast, overload

from perdure.wire import Item, Reasoning


class Items(Sequence[Item]):
    """The first `length` items of a list that only grows."""

    __slots__ = ("_items", "_length", "memo")

    def __init__(
        self, items: list[Item], length: int, memo: dict[Hashable, object] | None = None
    ) -> None:
        self._items = items
        self._length = length
        self.memo: dict[Hashable, object] = {} if memo is None else memo
        """What consumers keep per list, each under a key of its own."""

    @classmethod
    def of(cls, items: Iterable[Item]) -> Items:
        """A snapshot of items that belong to no transcript."""
        fixed = list(items)
        return cls(fixed, len(fixed))

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return self._items[start:stop:step]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._items[index]

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items[: self._length])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Items):
            return self[:] == other[:]
        if isinstance(other, list | tuple):
            return self[:] == list(cast("Sequence[object]", other))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Items({self[:]!r})"


_LEFT_OUT = "perdure.loop:left_out"


def filtered(items: Iterable[Item], keep: Callable[[Item], bool]) -> Items:
    """The items that `keep` keeps, as a snapshot that knows where thoughts were left out."""
    kept = Transcript()
    before = frozenset(left_out(items)) if isinstance(items, Items) else frozenset[int]()
    for place, item in enumerate(items):
        if place in before:
            kept.leave_out()
        if keep(item):
            kept.append(item)
        elif isinstance(item, Reasoning):
            kept.leave_out()
    return kept.snapshot()


def left_out(items: Items) -> Sequence[int]:
    """The places of a snapshot's list before which a thought was left out, in order.

    What a thought led to may be of no use to its provider without it (DESIGN 6.1).
    """
    return cast("Sequence[int]", items.memo.get(_LEFT_OUT, ()))


class Transcript:
    """Items in order. It only grows."""

    __slots__ = ("_items", "_makers", "_memo")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._items: list[Item] = list(items)
        self._memo: dict[Hashable, object] = {}
        self._makers: dict[int, str] = {}  # by identity; the list keeps the items alive

    def append(self, item: Item) -> None:
        """Add an item at the end."""
        self._items.append(item)

    def leave_out(self) -> None:
        """Remember that a thought was left out here; see `left_out`."""
        places = cast("list[int]", self._memo.setdefault(_LEFT_OUT, []))
        places.append(len(self._items))

    def attribute(self, item: Item, model_name: str) -> None:
        """Remember which model made an item of the transcript. An empty name says nothing."""
        if model_name:
            self._makers[id(item)] = model_name

    def maker(self, item: Item) -> str:
        """The model that made an item; empty if nobody said."""
        return self._makers.get(id(item), "")

    def snapshot(self) -> Items:
        """The transcript as it stands; later items do not show in it."""
        return Items(self._items, len(self._items), self._memo)

    def __len__(self) -> int:
        return len(self._items)


class Outgoing:
    """The items of a transcript that a model is to see, as a list that grows with it.

    Every item is asked for once, when it is first seen.
    """

    __slots__ = ("_keep", "_kept", "_seen", "_source")

    def __init__(self, source: Transcript, keep: Callable[[Item], bool]) -> None:
        self._source = source
        self._keep = keep
        self._seen = 0
        self._kept = Transcript()

    def snapshot(self) -> Items:
        """What the model is to see now."""
        for item in self._source.snapshot()[self._seen :]:
            if self._keep(item):
                self._kept.append(item)
            elif isinstance(item, Reasoning):
                self._kept.leave_out()
        self._seen = len(self._source)
        return self._kept.snapshot()
