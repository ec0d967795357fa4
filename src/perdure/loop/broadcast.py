"""One sequence of events for many consumers, none of whom holds up the drive.

Every consumer, early or late, fast or slow, sees the same sequence, but for one thing: deltas that
lie further back than the tail are joined, so that what is held grows with the content and not with
the number of deltas (DESIGN 8). A join never crosses the place where a consumer stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeAlias, TypeVar
from weakref import WeakSet

import msgspec

from perdure.loop.events import Event, ItemUpdate
from perdure.wire import DeltaEvent, OutputTextDelta
from perdure.wire.values import ABSENT

T = TypeVar("T")

Wants: TypeAlias = Callable[[T], bool]
"""Whether a consumer is to be given an event."""

TAIL = 1024
"""How many of the newest events are always held as they came."""


class Replay(Generic[T]):
    """A sequence that every consumer sees from its beginning, whenever it comes.

    It holds everything that was appended, unless a subclass folds what lies behind the tail.
    """

    def __init__(self, tail: int = TAIL) -> None:
        self._events: list[T] = []
        self._joined = 0  # everything before this place has been joined
        self._tail = tail
        self._closed = False
        self._cursors: WeakSet[Cursor[T]] = WeakSet()
        self._waiting: dict[Wants[T] | None, list[asyncio.Future[None]]] = {}

    @property
    def closed(self) -> bool:
        """Whether the last event was appended."""
        return self._closed

    def append(self, event: T) -> None:
        """Add an event. Never waits."""
        self._events.append(event)
        if len(self._events) - self._joined >= 2 * self._tail:
            self._join()
        if self._waiting:
            self._wake([wants for wants in self._waiting if wants is None or wants(event)])

    def close(self) -> None:
        """Say that no event follows."""
        self._closed = True
        self._wake(list(self._waiting))

    def subscribe(self, wants: Wants[T] | None = None) -> Cursor[T]:
        """A new consumer, who sees everything from the beginning.

        Args:
            wants: Which events it is given; all if None. One that waits is not woken for others,
                and those that want by the same function cost together what one costs.
        """
        cursor = Cursor(self, wants)
        self._cursors.add(cursor)
        return cursor

    def snapshot(self) -> tuple[T, ...]:
        """What a consumer would see now, without waiting."""
        return tuple(self._events)

    def __len__(self) -> int:
        return len(self._events)

    def read(self, position: int) -> T | None:
        """The event at a position, None past the newest."""
        return self._events[position] if position < len(self._events) else None

    async def wait(self, wants: Wants[T] | None = None) -> None:
        """Wait until an event is appended that is wanted, or the sequence is closed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(wants, []).append(future)
        try:
            await future
        finally:
            waiting = self._waiting.get(wants, [])
            if future in waiting:  # whoever waited has given up
                waiting.remove(future)

    def _wake(self, wanted: list[Wants[T] | None]) -> None:
        for wants in wanted:
            for future in self._waiting.pop(wants, ()):
                if not future.done():
                    future.set_result(None)

    def _join(self) -> None:
        """Fold what lies between the last join and the tail."""
        self._joined = len(self._events)


class Broadcast(Replay[Event]):
    """The events of one drive. Neighbouring deltas behind the tail are joined."""

    def _join(self) -> None:
        """Join neighbouring deltas in what lies between the last join and the tail."""
        start, stop = self._joined, len(self._events) - self._tail
        stands = {cursor.position for cursor in self._cursors}
        joined: list[Event] = []
        moved: dict[int, int] = {}
        run: list[ItemUpdate] = []
        for position in range(start, stop):
            event = self._events[position]
            if position in stands:
                _flush(run, joined)
                moved[position] = start + len(joined)
            if not (isinstance(event, ItemUpdate) and _is_joinable(event.stream)):
                _flush(run, joined)
                joined.append(event)
                continue
            if run and not _continues(run[-1], event):
                _flush(run, joined)
            run.append(event)
        _flush(run, joined)
        self._events[start:stop] = joined
        self._joined = start + len(joined)
        shift = stop - self._joined
        for cursor in self._cursors:
            if cursor.position >= stop:
                cursor.position -= shift
            elif cursor.position >= start:
                cursor.position = moved[cursor.position]


class Cursor(AsyncIterator[T]):
    """One consumer's place in a sequence."""

    def __init__(self, sequence: Replay[T], wants: Wants[T] | None = None) -> None:
        self._sequence = sequence
        self._wants = wants
        self.position = 0

    async def __anext__(self) -> T:
        wants = self._wants
        while True:
            event = self._sequence.read(self.position)
            if event is not None:
                self.position += 1
                if wants is None or wants(event):
                    return event
            elif self._sequence.closed:
                raise StopAsyncIteration
            else:
                await self._sequence.wait(wants)


def _is_joinable(stream: object) -> bool:
    if isinstance(stream, OutputTextDelta) and stream.logprobs:
        return False
    return isinstance(stream, DeltaEvent) and not stream.kept


def _continues(before: ItemUpdate, after: ItemUpdate) -> bool:
    """Whether two deltas belong to the same text of the same item."""
    return _place(before) == _place(after)


def _place(update: ItemUpdate) -> tuple[object, ...]:
    stream = update.stream
    index = getattr(stream, "content_index", getattr(stream, "summary_index", None))
    item = getattr(stream, "item_id", None), getattr(stream, "output_index", None)
    return (update.run_id, update.turn, type(stream), *item, index, update.response_id)


def _flush(run: list[ItemUpdate], into: list[Event]) -> None:
    if not run:
        return
    if len(run) == 1:
        into.append(run[0])
    else:
        last = run[-1]
        text = "".join(update.stream.delta for update in run)  # type: ignore[union-attr]
        stream = msgspec.structs.replace(last.stream, delta=text, obfuscation=ABSENT)
        into.append(msgspec.structs.replace(last, stream=stream))
    run.clear()
