"""Small parts that the tests of the loop are made of."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Sequence,
)
from itertools import count
from typing import TypeVar

from perdure import wire
from perdure.agent import Agent
from perdure.loop import (
    Config,
    Event,
    Hidden,
    ItemEnd,
    ModelRequest,
    RunEnd,
    ToolDispatch,
    ToolEnd,
    ToolStart,
    run,
)
from perdure.session import Session
from perdure.testing.event_check import check_events
from perdure.tools import Call, ToolResult
from perdure.wire import FunctionCall, FunctionCallOutput, Item, Message, StreamEvent

E = TypeVar("E")
React = Callable[[Event], Awaitable[None] | None]


class CountingIds:
    """Ids that count."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def new(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"


class Ear:
    """A subscriber that keeps what it hears, and says if it is ever entered twice at once."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.twice = False
        self._inside = False
        self._reactions: list[tuple[str, dict[str, object], React]] = []

    def on(self, kind: str, react: React, **members: object) -> None:
        """React once, to the first event of a kind that has these members."""
        self._reactions.append((kind, members, react))

    async def __call__(self, event: Event) -> None:
        self.twice = self.twice or self._inside
        self._inside = True
        try:
            self.events.append(event)
            await asyncio.sleep(0)
            await self._react(event)
        finally:
            self._inside = False

    async def _react(self, event: Event) -> None:
        for reaction in list(self._reactions):
            kind, members, react = reaction
            has = all(getattr(event, name, None) == value for name, value in members.items())
            if event.type == kind and has:
                self._reactions.remove(reaction)
                reacted = react(event)
                if reacted is not None:
                    await reacted

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def end(self) -> RunEnd:
        """The last end."""
        return self.of(RunEnd)[-1]

    @property
    def names(self) -> list[str]:
        """The types of the events, without deltas."""
        return [event.type for event in self.events if event.type != "item_update"]

    def check(self) -> None:
        """The events are whole and in order, and came one at a time."""
        check_events(self.events)
        assert not self.twice


class Failure(Exception):
    """What a fake fails with."""


def fails(words: str = "it failed") -> React:
    """A reaction that raises."""

    def react(event: Event) -> None:
        raise Failure(words)

    return react


class Tool:
    """A tool that counts its entries and does what a function says.

    `does` gets the call and gives the text of the result.
    """

    description = ""
    parameters: dict[str, object] | None = None

    def __init__(
        self,
        name: str,
        does: Callable[[Call], Awaitable[str | ToolResult]] | str | BaseException = "ok",
        *,
        effect: str = "once",
        sequential: bool = False,
        resource: str | None = None,
        timeout: float | None = None,
    ) -> None:
        self.name = name
        self.does = does
        self.effect = effect
        self.sequential = sequential
        self.resource = resource
        self.timeout = timeout
        self.calls: list[Call] = []
        """The calls that entered it."""
        self.ended: list[str] = []

    async def execute(self, call: Call) -> ToolResult:
        self.calls.append(call)
        if isinstance(self.does, BaseException):
            raise self.does
        given = self.does if isinstance(self.does, str) else await self.does(call)
        self.ended.append(call.id)
        return given if isinstance(given, ToolResult) else ToolResult(given)

    @property
    def entered(self) -> list[str]:
        """The ids of the calls that entered it."""
        return [call.id for call in self.calls]


def waits(
    gate: asyncio.Event, text: str = "ok"
) -> Callable[[Call], Coroutine[object, object, str]]:
    """A tool's work: wait for a gate, deaf to being told to stop."""

    async def work(call: Call) -> str:
        await gate.wait()
        return text

    return work


async def never(call: Call) -> str:
    """A tool's work that never ends by itself."""
    await asyncio.Event().wait()
    return "never"


async def until_told(call: Call) -> str:
    """A tool's work that ends when it is told to stop."""
    await call.cancelled
    return f"stopped: {call.cancelled.reason}"


# --- running ------------------------------------------------------------------------


@dataclasses.dataclass
class Ran:
    """What a low-level drive told."""

    events: list[Event]

    @property
    def end(self) -> RunEnd:
        last = self.events[-1]
        assert isinstance(last, RunEnd)
        return last

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def names(self) -> list[str]:
        return [event.type for event in self.events if event.type != "item_update"]


async def ran(
    config: Config,
    *prompts: str | Item | Hidden,
    transcript: Iterable[Item] = (),
    check: bool = True,
) -> Ran:
    """Run a low-level drive to its end and check its events.

    Of an event that a subscriber fails on, those after it hear nothing: then check the events of
    the first.
    """
    items = [wire.user(given) if isinstance(given, str) else given for given in prompts]
    async with run(transcript, items, config) as events:
        heard = [event async for event in events]
    if check:
        check_events(heard)
    return Ran(heard)


def listening(agent: Agent, **members: object) -> tuple[Session, Ear]:
    """A session of an agent, and an ear in it."""
    session = agent.session(**members)  # type: ignore[arg-type]
    ear = Ear()
    session.subscribe(ear)
    return session, ear


# --- looking at items ---------------------------------------------------------------


def outputs(items: Iterable[Item]) -> list[tuple[str, str]]:
    """The outputs among items: call id and text."""
    return [(one.call_id, one.text) for one in items if isinstance(one, FunctionCallOutput)]


def texts(items: Iterable[Item]) -> list[str]:
    """What was said, called and answered, in short."""
    said: list[str] = []
    for one in items:
        match one:
            case Message():
                said.append(f"{one.role}: {one.text}")
            case FunctionCall():
                said.append(f"call {one.call_id}: {one.name}({one.arguments})")
            case FunctionCallOutput():
                said.append(f"output {one.call_id}: {one.text}")
            case _:
                said.append(one.type)
    return said


def item_ends(events: Iterable[Event]) -> list[str]:
    return texts(event.item for event in events if isinstance(event, ItemEnd))


def life(events: Iterable[Event], call_id: str) -> list[str]:
    """The events of one call."""
    return [
        event.type
        for event in events
        if isinstance(event, ToolStart | ToolDispatch | ToolEnd) and event.call_id == call_id
    ]


def pending(end: RunEnd) -> dict[str, str]:
    return {one.call.call_id: one.reason for one in end.pending}


# --- the wire, by hand --------------------------------------------------------------


class Stream:
    """A model that plays streams of wire events, one for each request."""

    def __init__(self, *streams: Sequence[StreamEvent | Exception]) -> None:
        self._streams = list(streams)
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        self.requests.append(request)
        for event in self._streams[len(self.requests) - 1]:
            if isinstance(event, Exception):
                raise event
            yield event


def created(response_id: str = "resp_1") -> StreamEvent:
    response = wire.Response(id=response_id, status="in_progress", output=())
    return wire.ResponseCreated(response=response)


def added(index: int, item: Item) -> StreamEvent:
    return wire.OutputItemAdded(output_index=index, item=item)


def done(index: int, item: Item) -> StreamEvent:
    return wire.OutputItemDone(output_index=index, item=item)


def arguments(index: int, delta: str) -> StreamEvent:
    return wire.FunctionCallArgumentsDelta(item_id="", output_index=index, delta=delta)


def completed(*items: Item, response_id: str = "resp_1") -> StreamEvent:
    response = wire.Response(id=response_id, status="completed", output=items)
    return wire.ResponseCompleted(response=response)


def says(text: str, index: int = 0, *, item_id: str = "msg_1") -> list[StreamEvent]:
    """A message, whole."""
    item = wire.assistant(text, id=item_id)
    opening = Message(id=item_id, status="in_progress", role="assistant", content=())
    return [added(index, opening), done(index, item)]


def answer(text: str = "done", *, item_id: str = "msg_1") -> list[StreamEvent]:
    """A stream that says one thing."""
    said = wire.assistant(text, id=item_id)
    return [created(), *says(text, item_id=item_id), completed(said)]


# --- a ledger by hand ---------------------------------------------------------------


class HeldTicket:
    """A ticket that somebody completes, or refuses."""

    def __init__(self, ledger: Ledger, event: Event) -> None:
        self.event = event
        self._ledger = ledger
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def complete(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def refuse(self, error: Exception) -> None:
        self._future.set_exception(error)
        self._future.exception()  # whoever waits gets it; nobody has to

    def __await__(self) -> Generator[object, None, None]:
        self._ledger.waited.append(self.event)
        yield from asyncio.shield(self._future).__await__()


class Ledger:
    """A ledger whose tickets complete by hand, or at once."""

    def __init__(self, *, by_hand: bool = False) -> None:
        self.by_hand = by_hand
        self.noted: list[Event] = []
        self.waited: list[Event] = []
        """The events that somebody waited for, in order."""
        self.tickets: list[HeldTicket] = []
        self.refusals: dict[str, Exception] = {}
        """What `note` raises for an event of a type."""
        self.broken: dict[str, Exception] = {}
        """What the ticket of an event of a type raises."""

    def note(self, event: Event) -> HeldTicket:
        if event.type in self.refusals:
            raise self.refusals[event.type]
        self.noted.append(event)
        ticket = HeldTicket(self, event)
        self.tickets.append(ticket)
        if event.type in self.broken:
            ticket.refuse(self.broken[event.type])
        elif not self.by_hand:
            ticket.complete()
        return ticket

    def complete(self) -> None:
        """All that was noted is durable."""
        for ticket in self.tickets:
            ticket.complete()
        self.tickets.clear()
