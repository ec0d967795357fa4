"""The streams of a run: each is a view of one sequence of events, which every consumer sees whole.

A view keeps what it needs for itself alone, so a consumer may come at any time, be slow, or leave.
Bodies that were not streamed show as if they had been.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TypeAlias, cast

import msgspec

from perdure.compose.bodies import Preliminary, value_of
from perdure.compose.events import (
    AsyncSettled,
    AsyncStarted,
    FullEvent,
    ToolArgumentsDelta,
    ToolCallOutputEvent,
    ToolPreliminaryResult,
    ToolResultEvent,
    ToolStreamEvent,
    TurnEndEvent,
    TurnRetryEvent,
    TurnStartEvent,
)
from perdure.compose.kinds import Origin
from perdure.compose.turns import ToolCall, tool_call_of
from perdure.loop import (
    Broadcast,
    Event,
    ItemEnd,
    ItemStart,
    ItemUpdate,
    ModelRetry,
    ResponseEnd,
    ToolEnd,
    ToolUpdate,
    TurnStart,
)
from perdure.wire import (
    ContentPartAdded,
    ContentPartDone,
    FunctionCall,
    FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone,
    FunctionCallOutput,
    Item,
    Message,
    OutputItemAdded,
    OutputItemDone,
    OutputText,
    OutputTextDelta,
    OutputTextDone,
    Reasoning,
    ReasoningDelta,
    ReasoningSummaryTextDelta,
    ReasoningTextDelta,
    Response,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
    SurrogateJoiner,
    text_of,
)

_Delta: TypeAlias = (
    OutputTextDelta | ReasoningSummaryTextDelta | ReasoningDelta | ReasoningTextDelta
)
Mark: TypeAlias = AsyncStarted | AsyncSettled | ToolPreliminaryResult
RunEvent: TypeAlias = Event | Mark

Wants: TypeAlias = Callable[[Event], bool]

# What each view asks for; a consumer that waits is not woken for anything else.

_THOUGHTS = (ReasoningSummaryTextDelta, ReasoningDelta, ReasoningTextDelta)
_FRAME = frozenset[type]({TurnStart, ResponseEnd, ItemEnd})
_SHOWN = frozenset[type]({ToolUpdate, ToolPreliminaryResult})


def _wants_texts(event: Event) -> bool:
    if isinstance(event, ItemUpdate):
        return type(event.stream) is OutputTextDelta
    return type(event) in _FRAME


def _wants_thoughts(event: Event) -> bool:
    if isinstance(event, ItemUpdate):
        return isinstance(event.stream, _THOUGHTS)
    return type(event) in _FRAME


def _wants_tools(event: Event) -> bool:
    if isinstance(event, ItemUpdate):
        return type(event.stream) is FunctionCallArgumentsDelta
    return type(event) in _FRAME or type(event) in _SHOWN


def _wants_items(event: Event) -> bool:
    return type(event) in _FRAME


class RunLog(Broadcast):
    """The events of a run, which may take several drives, and how it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Exception | None = None

    def close(self) -> None:
        """A drive is over; the run may not be."""

    def mark(self, mark: Mark) -> None:
        """Add what no drive tells."""
        self.append(cast("Event", mark))

    def finish(self, failure: Exception | None) -> None:
        """The run is over. Consumers get the failure after all that came before it."""
        self.failure = failure
        super().close()

    async def events(self, wants: Wants | None = None) -> AsyncIterator[RunEvent]:
        """Everything that is wanted, from the beginning.

        Raises:
            Exception: What ended the run in error, at its place.
        """
        async for event in self.subscribe(wants):
            yield event
        if self.failure is not None:
            raise self.failure


class _Answering:
    """Whether a model answers; only then are the items the model's."""

    __slots__ = ("now", "turn")

    def __init__(self) -> None:
        self.now = False
        self.turn = -1

    def see(self, event: RunEvent) -> None:
        if isinstance(event, TurnStart):
            self.now, self.turn = True, self.turn + 1
        elif isinstance(event, ResponseEnd):
            self.now = False


# --- text and thoughts ------------------------------------------------------------------


def texts(log: RunLog) -> AsyncIterator[str]:
    """The assistant's text of all turns, as it comes."""
    return _said(log, _wants_texts, (OutputTextDelta,), _text)


def thoughts(log: RunLog) -> AsyncIterator[str]:
    """What the model shows of its thoughts in all turns, as it comes."""
    return _said(log, _wants_thoughts, _THOUGHTS, _thought)


async def _said(
    log: RunLog,
    wants: Callable[[Event], bool],
    deltas: tuple[type[_Delta], ...],
    said: Callable[[Item], str | None],
) -> AsyncIterator[str]:
    """What deltas say, and what items say of which there were none; None is said by no item."""
    joiner, streamed, answering = SurrogateJoiner(), set[str](), _Answering()
    async for event in log.events(wants):
        answering.see(event)
        piece = ""
        if isinstance(event, ItemUpdate):
            if isinstance(event.stream, deltas):
                streamed.add(event.stream.item_id)
                piece = joiner.feed(event.stream.delta)
        elif isinstance(event, ItemEnd) and answering.now:
            whole = said(event.item)
            if whole is not None:
                piece = joiner.end()
                if (event.item.id or "") not in streamed:
                    piece += whole
        if piece:
            yield piece


def _text(item: Item) -> str | None:
    return item.text if isinstance(item, Message) else None


def _thought(item: Item) -> str | None:
    if not isinstance(item, Reasoning):
        return None
    return text_of(item.summary) + text_of(item.content or ())


# --- tools ------------------------------------------------------------------------------


async def tool_events(log: RunLog) -> AsyncIterator[ToolStreamEvent]:
    """The arguments of calls as they come, and the preliminary results of tools."""
    streamed, answering = set[str](), _Answering()
    async for event in log.events(_wants_tools):
        answering.see(event)
        if isinstance(event, ItemUpdate):
            if isinstance(event.stream, FunctionCallArgumentsDelta):
                streamed.add(event.stream.item_id)
                yield ToolArgumentsDelta(item_id=event.stream.item_id, content=event.stream.delta)
        elif isinstance(event, ItemEnd) and isinstance(event.item, FunctionCall):
            key = event.item.id or event.item.call_id
            if answering.now and key not in streamed and event.item.arguments:
                yield ToolArgumentsDelta(item_id=key, content=event.item.arguments)
        elif (shown := _preliminary(event)) is not None:
            yield shown


def _preliminary(event: RunEvent) -> ToolPreliminaryResult | None:
    if isinstance(event, ToolPreliminaryResult):
        return event
    if isinstance(event, ToolUpdate) and isinstance(event.partial.details, Preliminary):
        return ToolPreliminaryResult(
            tool_call_id=event.call_id, name=event.name, result=event.partial.details.value
        )
    return None


async def tool_calls(log: RunLog) -> AsyncIterator[ToolCall]:
    """The calls of all turns, each as soon as it is whole."""
    answering = _Answering()
    async for event in log.events(_wants_items):
        answering.see(event)
        if isinstance(event, ItemEnd) and isinstance(event.item, FunctionCall) and answering.now:
            yield tool_call_of(event.item, answering.turn)


# --- items ------------------------------------------------------------------------------


async def items(log: RunLog) -> AsyncIterator[Item]:
    """The items of the run as they grow: each again and again, until it is whole.

    An item that has grown by several pieces since this consumer looked comes once.
    """
    answering, cursor, last = _Answering(), log.subscribe(), None
    async for event in cursor:
        answering.see(event)
        if isinstance(event, ItemUpdate):
            while _same_item(event, log.read(cursor.position)):
                cursor.position += 1
            item = event.item
            if item is not None and (item := _in_progress(item)) != last:
                yield (last := item)
        elif isinstance(event, ItemStart) and answering.now:
            yield (last := _in_progress(event.item))
        elif isinstance(event, ItemEnd) and (answering.now or _is_tools(event)):
            if event.item == last:  # the provider's own items may be whole when they open
                continue
            yield (last := event.item)
    if log.failure is not None:
        raise log.failure


def _same_item(event: ItemUpdate, following: Event | None) -> bool:
    return isinstance(following, ItemUpdate) and _place(following) == _place(event)


def _place(event: ItemUpdate) -> tuple[object, ...]:
    stream = event.stream
    index, name = getattr(stream, "output_index", None), getattr(stream, "item_id", None)
    return (event.run_id, event.turn, event.response_id, index, name)


def _in_progress(item: Item) -> Item:
    if isinstance(item, Message | FunctionCall | Reasoning):
        return msgspec.structs.replace(item, status="in_progress")
    return item


def _is_tools(event: ItemEnd) -> bool:
    """Whether an item is an output that was made here, and not sent by the caller."""
    made_here = event.answer is None or bool(event.answer.reason)
    return isinstance(event.item, FunctionCallOutput) and made_here


async def new_messages(log: RunLog) -> AsyncIterator[Message | FunctionCall | FunctionCallOutput]:
    """The messages, calls and outputs that the run adds to the conversation, each whole."""
    answering = _Answering()
    async for event in log.events(_wants_items):
        answering.see(event)
        if not isinstance(event, ItemEnd):
            continue
        item = event.item
        if isinstance(item, FunctionCallOutput):
            if _is_tools(event):
                yield item
        elif answering.now and isinstance(item, Message | FunctionCall):
            yield item


# --- everything -------------------------------------------------------------------------


async def full(log: RunLog, sources: Mapping[str, Origin]) -> AsyncIterator[FullEvent]:
    """The wire's events and what the engine does between them.

    Args:
        log: The run.
        sources: Where the tools come from, by name.
    """
    view = _Full(sources)
    async for event in log.events():
        for shown in view.see(event):
            yield shown


class _Full:
    """What the full stream has seen so far."""

    def __init__(self, sources: Mapping[str, Origin]) -> None:
        self._sources = sources
        self._answering = _Answering()
        self._wire = _WireView()
        self._ends: dict[str, ToolEnd] = {}
        self._shown: dict[str, list[object]] = {}

    def see(self, event: RunEvent) -> Iterator[FullEvent]:
        self._answering.see(event)
        match event:
            case TurnStart():
                self._wire = _WireView()
                yield TurnStartEvent(turn_number=self._answering.turn)
            case ModelRetry():
                self._wire = _WireView()
                yield TurnRetryEvent(
                    turn_number=self._answering.turn, attempt=event.attempt, error=str(event.error)
                )
            case ResponseEnd():
                yield _terminal(event.response)
                yield TurnEndEvent(turn_number=self._answering.turn)
            case ItemUpdate():
                yield self._wire.update(event)
            case ItemStart() if self._answering.now:
                yield self._wire.start(event.item)
            case ItemEnd() if self._answering.now:
                yield from self._wire.end(event.item)
            case ItemEnd(item=FunctionCallOutput() as output):
                yield from self._settled(output)
            case ToolEnd() if not event.parent:
                self._ends[event.call_id] = event
            case AsyncStarted() | AsyncSettled():
                yield event
            case ToolUpdate() | ToolPreliminaryResult():
                shown = _preliminary(event)
                if shown is not None:
                    self._shown.setdefault(shown.tool_call_id, []).append(shown.result)
                    yield shown
            case _:
                pass

    def _settled(self, output: FunctionCallOutput) -> Iterator[FullEvent]:
        end = self._ends.pop(output.call_id, None)
        if end is None:
            return
        error = str(end.error) if end.error is not None else ""
        if not end.rejected and end.result is not None:
            yield ToolResultEvent(
                tool_call_id=end.call_id,
                name=end.name,
                source=self._sources.get(end.name, "client"),
                result=None if error else value_of(end.result),
                error=error,
                preliminary_results=tuple(self._shown.pop(end.call_id, ())),
            )
        yield ToolCallOutputEvent(
            tool_call_id=end.call_id, name=end.name, output=output, error=error
        )


class _WireView:
    """One response as the wire tells it."""

    def __init__(self) -> None:
        self._open: list[Item] = []
        self._streamed: set[int] = set()

    def start(self, item: Item) -> StreamEvent:
        self._open.append(item)
        return OutputItemAdded(output_index=len(self._open) - 1, item=_emptied(item))

    def update(self, event: ItemUpdate) -> StreamEvent:
        index = getattr(event.stream, "output_index", None)
        if isinstance(index, int):
            self._streamed.add(index)
        return event.stream

    def end(self, item: Item) -> Iterator[StreamEvent]:
        index = self._index(item)
        if index not in self._streamed:
            yield from _as_streamed(item, index)
        yield OutputItemDone(output_index=index, item=item)

    def _index(self, item: Item) -> int:
        for index, opened in enumerate(self._open):
            if type(opened) is type(item) and _name(opened) == _name(item):
                return index
        return max(len(self._open) - 1, 0)


def _name(item: Item) -> str:
    if isinstance(item, FunctionCall):
        return item.call_id
    return str(item.id or "")


def _terminal(response: Response) -> StreamEvent:
    if response.status == "failed":
        return ResponseFailed(response=response)
    if response.status == "incomplete":
        return ResponseIncomplete(response=response)
    return ResponseCompleted(response=response)


def _emptied(item: Item) -> Item:
    """An item as it opens, before its deltas."""
    if isinstance(item, Message):
        return msgspec.structs.replace(item, content=(), status="in_progress")
    if isinstance(item, FunctionCall):
        return msgspec.structs.replace(item, arguments="", status="in_progress")
    return item


def _as_streamed(item: Item, index: int) -> Iterator[StreamEvent]:
    """What a stream would have told of an item that came whole."""
    name = str(getattr(item, "id", None) or getattr(item, "call_id", None) or "")
    if isinstance(item, FunctionCall):
        place = {"item_id": name, "output_index": index}
        if item.arguments:
            yield FunctionCallArgumentsDelta(delta=item.arguments, **place)  # type: ignore[arg-type]
        yield FunctionCallArgumentsDone(arguments=item.arguments, **place)  # type: ignore[arg-type]
    elif isinstance(item, Message) and not isinstance(item.content, str):
        for number, part in enumerate(item.content):
            yield from _part_as_streamed(part, name, index, number)


def _part_as_streamed(part: object, name: str, index: int, number: int) -> Iterator[StreamEvent]:
    if not isinstance(part, OutputText):
        return
    empty = msgspec.structs.replace(part, text="", annotations=())
    yield ContentPartAdded(item_id=name, output_index=index, content_index=number, part=empty)
    if part.text:
        yield OutputTextDelta(
            item_id=name, output_index=index, content_index=number, delta=part.text
        )
    yield OutputTextDone(item_id=name, output_index=index, content_index=number, text=part.text)
    yield ContentPartDone(item_id=name, output_index=index, content_index=number, part=part)
