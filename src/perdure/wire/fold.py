"""Stream events, folded to the response they make.

*index*: the `output_index` that events carry. *Position*: the number an item has from its
opening on, in the order of the output. They are the same until a server uses an index again: then
the index names the newest of its items, which stands at the end. So ask for the item, or for its
position, directly after the event, and never index the output by an `output_index`.
*Closed*: an item that was reported done, or that a snapshot gave an end status.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from perdure.wire import events as ev
from perdure.wire.items import FunctionCall, Item, Message, Reasoning
from perdure.wire.partial import PartialItem, PartialPart, Place, id_of
from perdure.wire.parts import OutputText, Part, ReasoningText, Refusal, SummaryText
from perdure.wire.responses import TERMINAL_STATUSES, ErrorPayload, Response

_WholePartEvent: TypeAlias = (
    ev.ContentPartAdded
    | ev.ContentPartDone
    | ev.ReasoningSummaryPartAdded
    | ev.ReasoningSummaryPartDone
)

_PartEvent: TypeAlias = (
    ev.DeltaEvent
    | ev.OutputTextDone
    | ev.RefusalDone
    | ev.ReasoningDone
    | ev.ReasoningTextDone
    | ev.ReasoningSummaryTextDone
    | ev.OutputTextAnnotationAdded
    | _WholePartEvent
)


class _Kind(NamedTuple):
    """Where the text of a kind of delta belongs."""

    owner: type[Item]
    place: Place
    part: Part
    """What the text goes into if no part has opened."""


_TEXT = _Kind(Message, "content", OutputText(text="", annotations=()))
_REFUSAL = _Kind(Message, "content", Refusal(refusal=""))
_REASONING = _Kind(Reasoning, "content", ReasoningText(text=""))
_SUMMARY = _Kind(Reasoning, "summary", SummaryText(text=""))


_BARE = Response(id="", object="response", status="in_progress", output=())


class Fold:
    """What the events of a stream have made so far.

    Unknown events are ignored, and so is what names nothing sensible: a fold never raises.
    """

    __slots__ = (
        "_closed",
        "_error",
        "_items",
        "_last",
        "_last_place",
        "_positions",
        "_response",
        "_reused",
    )

    def __init__(self) -> None:
        self._response: Response | None = None
        self._items: dict[int, PartialItem] = {}  # by position
        self._positions: dict[int, int] = {}  # index -> position
        self._closed: set[int] = set()  # positions
        self._reused: list[int] = []
        self._error: ErrorPayload | None = None
        # Where the last delta went: the next one mostly goes there, too.
        self._last: PartialPart | None = None
        self._last_place: tuple[int, int, _Kind] | None = None

    def feed(self, event: ev.StreamEvent) -> None:
        """Take one event into account."""
        match event:
            case ev.OutputTextDelta():
                part = self._append(event, event.content_index, _TEXT)
                if part and event.logprobs:
                    part.add_logprobs(event.logprobs)
            case ev.FunctionCallArgumentsDelta():
                item = self._item(event.output_index, FunctionCall)
                if item:
                    item.append_arguments(event.delta)
            case ev.ReasoningDelta() | ev.ReasoningTextDelta():
                self._append(event, event.content_index, _REASONING)
            case ev.ReasoningSummaryTextDelta():
                self._append(event, event.summary_index, _SUMMARY)
            case ev.RefusalDelta():
                self._append(event, event.content_index, _REFUSAL)
            case _:
                self._feed_whole(event)

    def response(self) -> Response:
        """The response as far as it has come.

        Until the server has sent one, the items that came stand in a bare response without an
        id: in progress, or failed if an error came.
        """
        response = self._response or _BARE
        output = tuple(self._items[at].value() for at in sorted(self._items))
        if [*map(id, output)] != [*map(id, response.output)]:
            response = replace(response, output=output)
        if self._error is not None:
            response = replace(response, status="failed", error=self._error)
        return response

    def item_at(self, index: int) -> Item | None:
        """The item that events at an index name now. Joins the text of that item only."""
        position = self._positions.get(index)
        return None if position is None else self.item(position)

    def position(self, index: int) -> int | None:
        """The position of the item that events at an index name now."""
        return self._positions.get(index)

    def item(self, position: int) -> Item | None:
        """The item at a position. Joins the text of that item only."""
        item = self._items.get(position)
        return item.value() if item else None

    def reused_indexes(self) -> tuple[int, ...]:
        """The indexes that named a second item, in the order in which they did."""
        return tuple(dict.fromkeys(self._reused))

    def copy(self) -> Fold:
        """A fold in the same state."""
        twin = Fold()
        twin._response, twin._error = self._response, self._error
        twin._items = {
            position: PartialItem(item.value()) for position, item in self._items.items()
        }
        twin._positions, twin._closed = self._positions.copy(), self._closed.copy()
        twin._reused = self._reused.copy()
        return twin

    # --- deltas and parts

    def _append(self, event: ev.DeltaEvent, at: int, kind: _Kind) -> PartialPart | None:
        place = (event.output_index, at, kind)
        if place != self._last_place:
            self._last, self._last_place = self._part(event, at, kind), place
        if self._last:
            self._last.append(event.delta)
        return self._last

    def _part(self, event: _PartEvent, at: int, kind: _Kind) -> PartialPart | None:
        """The part that an event's text belongs to; opens it, and its item, if nothing has."""
        parts = self._parts(event, kind)
        if parts is None or at < 0:
            return None
        part = parts.get(at)
        if part is None:
            part = parts[at] = PartialPart(kind.part)
        return part if part.takes(type(kind.part)) else None

    def _parts(self, event: _PartEvent, kind: _Kind) -> dict[int, PartialPart] | None:
        item = self._item(event.output_index, kind.owner)
        if item is None and event.output_index not in self._positions:
            item = self._place(event.output_index, _bare(kind.owner, event.item_id), done=False)
        return item.parts(kind.place) if item else None

    def _item(self, index: int, owner: type[Item]) -> PartialItem | None:
        position = self._positions.get(index)
        if position is None:
            return None
        item = self._items[position]
        return item if item.holds(owner) else None

    # --- everything that is not a delta

    def _feed_whole(self, event: ev.StreamEvent) -> None:
        self._last_place = None
        match event:
            case ev.OutputItemAdded():
                if event.item is not None:
                    self._place(event.output_index, event.item, done=False)
            case ev.OutputItemDone():
                self._close(event)
            case ev.ContentPartAdded() | ev.ContentPartDone():
                kind = _REASONING if isinstance(event.part, ReasoningText) else _TEXT
                self._put_part(event, event.content_index, kind)
            case ev.ReasoningSummaryPartAdded() | ev.ReasoningSummaryPartDone():
                self._put_part(event, event.summary_index, _SUMMARY)
            case ev.FunctionCallArgumentsDone():
                item = self._item(event.output_index, FunctionCall)
                if item:
                    item.set_arguments(event.arguments)
            case ev.OutputTextAnnotationAdded():
                part = self._part(event, event.content_index, _TEXT)
                if part and event.annotation is not None and event.annotation_index >= 0:
                    part.annotate(event.annotation_index, event.annotation)
            case ev.ErrorEvent():
                self._error = event.error
            case _:
                self._feed_text_done(event)

    def _feed_text_done(self, event: ev.StreamEvent) -> None:
        match event:
            case ev.OutputTextDone():
                part = self._set_text(event, event.content_index, _TEXT, event.text)
                if part and event.logprobs:
                    part.set_logprobs(event.logprobs)
            case ev.RefusalDone():
                self._set_text(event, event.content_index, _REFUSAL, event.refusal)
            case ev.ReasoningDone() | ev.ReasoningTextDone():
                self._set_text(event, event.content_index, _REASONING, event.text)
            case ev.ReasoningSummaryTextDone():
                self._set_text(event, event.summary_index, _SUMMARY, event.text)
            case ev.ResponseCreated() | ev.ResponseQueued() | ev.ResponseInProgress():
                self._snapshot(event.response)
            case ev.ResponseCompleted() | ev.ResponseFailed() | ev.ResponseIncomplete():
                self._finish(event.response)
            case _:
                pass

    def _set_text(self, event: _PartEvent, at: int, kind: _Kind, text: str) -> PartialPart | None:
        part = self._part(event, at, kind)
        if part:
            part.set_text(text)
        return part

    def _put_part(self, event: _WholePartEvent, at: int, kind: _Kind) -> None:
        parts = self._parts(event, kind)
        if parts is not None and at >= 0:
            parts[at] = PartialPart(event.part)

    # --- items

    def _close(self, event: ev.OutputItemDone) -> None:
        if event.item is not None:
            self._place(event.output_index, event.item, done=True)
        elif event.output_index in self._positions:
            self._closed.add(self._positions[event.output_index])

    def _place(self, index: int, item: Item, *, done: bool) -> PartialItem | None:
        if index < 0:
            return None
        position = self._positions.get(index)
        if position is None:
            position = self._end() if self._reused else index
        elif position in self._closed and not self._same(position, item):
            self._reused.append(index)
            position = self._end()
        self._positions[index] = position
        self._items[position] = PartialItem(item)
        if done:
            self._closed.add(position)
        return self._items[position]

    def _same(self, position: int, item: Item) -> bool:
        # Items without ids are different ones: so some servers stream parallel calls.
        return id_of(item) is not None and self._items[position].id == id_of(item)

    def _end(self) -> int:
        return max(self._items, default=-1) + 1

    # --- snapshots

    def _snapshot(self, response: Response) -> None:
        """A response that is not the last. Many servers leave its output empty."""
        self._response = response
        if self._reused:
            self._add_unknown(response.output)
        elif response.output or not self._items:
            self._take(response.output)

    def _finish(self, response: Response) -> None:
        self._response = response
        self._take(response.output)
        if response.error or response.status != "failed":
            self._error = None

    def _add_unknown(self, output: tuple[Item, ...]) -> None:
        known = {item.id for item in self._items.values()}
        for item in output:
            if id_of(item) is not None and id_of(item) not in known:
                self._items[self._end()] = PartialItem(item)

    def _take(self, output: tuple[Item, ...]) -> None:
        closed = {self._items[position].id for position in self._closed} - {None}
        self._items = {position: PartialItem(item) for position, item in enumerate(output)}
        self._positions = {position: position for position in self._items}
        self._closed = {
            position
            for position, item in enumerate(output)
            if id_of(item) in closed or _has_ended(item)
        }


def _has_ended(item: Item) -> bool:
    # A registered type may have no status, as a reference has none.
    return getattr(item, "status", None) in TERMINAL_STATUSES


def _bare(owner: type[Item], item_id: str) -> Item:
    """An item for text whose item never opened."""
    if owner is Reasoning:
        return Reasoning(id=item_id, status="in_progress", summary=())
    return Message(id=item_id, status="in_progress", role="assistant", content=())
