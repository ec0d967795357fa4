"""The emitter of the adapters: one that can be copied, and marks what it closes.

What a *mark* is stands in `makers`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Self, cast

from msgspec.structs import replace

from perdure.clock import Clock, Ids, RandomIds, SystemClock
from perdure.loop.model import ModelRequest
from perdure.wire import (
    ContentPartDone,
    Emitter,
    FunctionCall,
    Item,
    Message,
    OutputItemDone,
    Request,
    StreamEvent,
    with_unknown,
)
from perdure.wire.open_items import OpenCall, OpenMessage

Marks = Mapping[str, object]


class Writer(Emitter):
    """An emitter for an answer that comes in pieces.

    Its ids come from one that is made at the start, and a count; so a copy that goes a few steps
    ahead does not change what the original makes.

    Args:
        request: What is answered.
        ids: Where the one id comes from.
        clock: Where the times come from.
    """

    def __init__(
        self, request: ModelRequest | None, *, ids: Ids | None = None, clock: Clock | None = None
    ) -> None:
        settings = Request() if request is None else request.settings
        series = _Series((ids or RandomIds()).new(""))
        super().__init__(settings, ids=series, clock=clock or SystemClock())
        self._numbers = cast("count[int]", _Count())  # what an open item holds is copied with it
        self._marks: dict[str, object] = {}
        self._part_marks: dict[int, Marks] = {}

    def name(self, response_id: str, model: str) -> None:
        """Say what the provider calls the response and its model; empty says nothing."""
        self.response = replace(
            self.response,
            id=response_id or self.response.id,
            model=model or self.response.model,
        )

    def mark(self, marks: Marks) -> None:
        """Give the open item members, which it shows when it closes."""
        self._marks.update(marks)

    def mark_response(self, marks: Marks) -> None:
        """Give the response members, which the next event that carries it shows."""
        self.response = with_unknown(self.response, marks)

    def end_part(self, marks: Marks | None = None) -> list[StreamEvent]:
        """Close the open part of the message, so that what follows is one of its own.

        Args:
            marks: Members for the part.
        """
        if not isinstance(self._open, OpenMessage):
            return []
        events = self._open.end()
        if marks and events and isinstance(done := events[-1], ContentPartDone):
            self._part_marks[done.content_index] = marks
            events[-1] = replace(done, part=with_unknown(done.part, marks))
        return events

    @property
    def in_message(self) -> bool:
        """Whether a message is open."""
        return isinstance(self._open, OpenMessage)

    @property
    def calls(self) -> bool:
        """Whether a call was made."""
        return isinstance(self._open, OpenCall) or any(
            isinstance(i, FunctionCall) for i in self._done
        )

    def new_id(self, prefix: str) -> str:
        """An id for an item that the writer does not make itself."""
        return self._ids.new(prefix)

    def copy(self) -> Self:
        """A writer in the same state."""
        shared = (self._clock, self.response, *self._done)  # none of them ever changes
        return copy.deepcopy(self, {id(value): value for value in shared})

    def _finished(self, item: Item) -> OutputItemDone:
        if self._part_marks and isinstance(item, Message) and isinstance(item.content, tuple):
            parts = list(item.content)
            for index, marks in self._part_marks.items():
                parts[index] = with_unknown(parts[index], marks)
            item = replace(item, content=tuple(parts))
        if self._marks:
            item = with_unknown(item, self._marks)
        self._marks, self._part_marks = {}, {}
        return super()._finished(item)


class _Series:
    """Ids that are one random id and a count."""

    __slots__ = ("_next", "_seed")

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._next = 0

    def new(self, prefix: str) -> str:
        self._next += 1
        return f"{prefix}{self._seed}{self._next:03d}"


class _Count(Iterator[int]):
    """`itertools.count`, which cannot be copied from Python 3.14 on."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def __next__(self) -> int:
        number = self._next
        self._next = number + 1
        return number
