"""Many consumers of one drive: each sees the same, whenever it comes and however slow it is."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Sequence

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from perdure import wire
from perdure.agent import Agent
from perdure.loop import Broadcast, Cursor, Event, ItemEnd, ItemUpdate, RunEnd, RunStart
from perdure.loop.item_view import ItemView
from perdure.testing import ScriptedModel, call, turn
from perdure.testing.clock import settle
from perdure.wire import Fold, StreamEvent, user
from tests.loop.fakes import Tool, fails, item_ends, texts

LOGPROB = wire.LogProb(token="b", logprob=0.0, bytes=(), top_logprobs=())
VIEW = ItemView(Fold(), None)


def update(stream: StreamEvent) -> ItemUpdate:
    return ItemUpdate(run_id="r", turn=1, stream=stream, view=VIEW)


def text_delta(delta: str, item: int = 0, part: int = 0, **members: object) -> ItemUpdate:
    stream = wire.OutputTextDelta(
        item_id=f"msg_{item}", output_index=item, content_index=part, delta=delta
    )
    return update(msgspec.structs.replace(stream, **members))


def arguments_delta(delta: str, item: int = 0) -> ItemUpdate:
    return update(
        wire.FunctionCallArgumentsDelta(item_id=f"fc_{item}", output_index=item, delta=delta)
    )


def other(n: int) -> ItemEnd:
    return ItemEnd(run_id="r", turn=1, item=user(str(n)))


def joined(events: Iterable[Event]) -> list[object]:
    """The events with neighbouring deltas of one text as one."""
    told: list[object] = []
    last: tuple[object, ...] | None = None
    for event in events:
        stream = event.stream if isinstance(event, ItemUpdate) else None
        if not isinstance(stream, wire.OutputTextDelta | wire.FunctionCallArgumentsDelta):
            told.append(event)
            last = None
            continue
        place = (type(stream), stream.item_id, getattr(stream, "content_index", None))
        if place == last:
            told[-1] = (place, told[-1][1] + stream.delta)  # type: ignore[index]
        else:
            told.append((place, stream.delta))
        last = place
    return told


WORDS = st.text("ab", max_size=3)
EVENTS = st.one_of(
    st.builds(text_delta, WORDS),
    st.builds(text_delta, WORDS),
    st.builds(text_delta, WORDS, st.integers(0, 1), st.integers(0, 1)),
    st.builds(arguments_delta, WORDS, st.integers(0, 1)),
    st.builds(other, st.integers(0, 9)),
)


def read(cursor: Cursor[Event], broadcast: Broadcast, most: int) -> list[Event]:
    """What a consumer reads without waiting."""
    events: list[Event] = []
    while len(events) < most and (event := broadcast.read(cursor.position)) is not None:
        cursor.position += 1
        events.append(event)
    return events


@settings(max_examples=150)
@given(
    events=st.lists(EVENTS, min_size=12, max_size=80),
    tail=st.integers(1, 3),
    joins=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    paces=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=5), min_size=4, max_size=4),
)
def test_every_consumer_sees_the_same_whenever_it_comes_and_however_slow_it_is(
    events: list[Event], tail: int, joins: list[int], paces: list[list[int]]
) -> None:
    broadcast = Broadcast(tail)
    consumers: list[tuple[Cursor[Event], list[Event], list[int]]] = []
    for place, event in enumerate(events):
        for number, when in enumerate(joins):
            if when == place:
                consumers.append((broadcast.subscribe(), [], paces[number]))
        broadcast.append(event)
        for cursor, heard, pace in consumers:
            heard += read(cursor, broadcast, pace[place % len(pace)])
    consumers.append((broadcast.subscribe(), [], []))
    for cursor, heard, _ in consumers:
        heard += read(cursor, broadcast, len(events))
        assert joined(heard) == joined(events)


@settings(max_examples=30)
@given(tail=st.integers(1, 50), count=st.integers(0, 400))
def test_what_is_held_grows_with_the_content_and_not_with_the_deltas(tail: int, count: int) -> None:
    broadcast = Broadcast(tail)
    for _ in range(count):
        broadcast.append(text_delta("x"))
    assert held(broadcast) <= 2 * tail + count // tail + 1


def held(broadcast: Broadcast) -> int:
    return next(n for n in itertools.count() if broadcast.read(n) is None)


def test_a_consumer_that_never_reads_costs_no_more_than_one_seam() -> None:
    broadcast = Broadcast(10)
    stuck = [broadcast.subscribe() for _ in range(5)]
    for cursor in stuck:
        broadcast.append(text_delta("y"))
        read(cursor, broadcast, 1)
    for _ in range(1000):
        broadcast.append(text_delta("x"))
    assert held(broadcast) <= 2 * 10 + 1000 // 10 + 5
    assert joined(read(stuck[0], broadcast, 2000))


@pytest.mark.parametrize(
    "apart",
    [
        (text_delta("a"), text_delta("b", 1)),
        (text_delta("a"), text_delta("b", 0, 1)),
        (text_delta("a"), arguments_delta("b")),
        (text_delta("a"), other(1), text_delta("b")),
        (
            text_delta("a"),
            text_delta(
                "b", logprobs=(wire.LogProb(token="b", logprob=0.0, bytes=(), top_logprobs=()),)
            ),
        ),
    ],
    ids=["item", "part", "kind", "between", "logprobs"],
)
def test_what_does_not_belong_together_is_not_joined(apart: Sequence[Event]) -> None:
    broadcast = Broadcast(1)
    for event in apart:
        broadcast.append(event)
    for n in range(10):
        broadcast.append(other(n))
    assert read(broadcast.subscribe(), broadcast, len(apart)) == list(apart)


async def test_a_consumer_waits_for_what_comes_and_ends_when_it_is_over() -> None:
    broadcast = Broadcast()
    cursor = broadcast.subscribe()
    reading = asyncio.create_task(_all(cursor))
    await settle()
    broadcast.append(other(1))
    await settle()
    assert not reading.done()
    broadcast.append(other(2))
    broadcast.close()
    assert await reading == [other(1), other(2)]
    assert await _all(broadcast.subscribe()) == [other(1), other(2)]


async def _all(cursor: Cursor[Event]) -> list[Event]:
    return [event async for event in cursor]


async def test_consumers_that_give_up_waiting_leave_nothing_behind() -> None:
    broadcast = Broadcast()
    cursor = broadcast.subscribe()
    for _ in range(100):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await anext(cursor)
    assert len(broadcast._waiting) <= 1


async def test_every_view_of_a_run_shows_all_of_it_during_and_after_it() -> None:
    words = " ".join(f"w{n}" for n in range(5000))
    model = ScriptedModel([turn(words, call("a", {}, "c1")), "the end"])
    async with Agent(model, tools=[Tool("a")]).stream("go") as stream:
        first = asyncio.create_task(_texts(stream.text()))
        events = [event async for event in stream.events()]
        result = await stream.result()
        said = await first
        late = [event async for event in stream.events()]
        items = [item async for item in stream.items()]
    assert said == words + "the end" == await _texts(stream.text())
    assert texts(items) == item_ends(events) == texts(result.items)
    assert joined(late) == joined(events)
    assert isinstance(events[0], RunStart)
    assert isinstance(events[-1], RunEnd)
    assert len(late) < 5000


async def _texts(pieces: object) -> str:
    return "".join([piece async for piece in pieces])  # type: ignore[attr-defined]


async def test_a_slow_consumer_does_not_hold_up_the_run() -> None:
    async with Agent(ScriptedModel(["one two three"])).stream("go") as stream:
        slow = stream.events()
        await anext(slow)
        result = await stream.result()
        rest = [event async for event in slow]
    assert result.text == "one two three"
    assert isinstance(rest[-1], RunEnd)


async def test_leaving_a_stream_stops_the_run_and_it_has_one_end() -> None:
    model = ScriptedModel([" ".join(["word"] * 5000)], delay=0.0001)
    async with Agent(model).stream("go") as stream:
        async for _ in stream.text():
            break
    events = [event async for event in stream.events()]
    [end] = [event for event in events if isinstance(event, RunEnd)]
    assert (end.reason, str(end.error)) == ("aborted", "the consumer left")
    assert events[-1] is end


async def test_a_stream_of_a_run_that_fails_shows_its_end_and_raises_for_its_result() -> None:
    from perdure.errors import RunFailed
    from tests.loop.fakes import listening

    session, ear = listening(Agent(ScriptedModel(["hi"])))
    ear.on("response_end", fails())
    async with session.stream("go") as stream:
        events = [event async for event in stream.events()]
        with pytest.raises(RunFailed):
            await stream.result()
    assert isinstance(events[-1], RunEnd)
    assert events[-1].reason == "error"


async def test_a_consumer_that_waits_is_woken_for_what_it_wants_alone() -> None:
    broadcast, woken = Broadcast(), list[Event]()

    def whole(event: Event) -> bool:
        return isinstance(event, ItemEnd)

    async def consume(cursor: Cursor[Event]) -> None:
        async for event in cursor:
            woken.append(event)

    cursors = [broadcast.subscribe(whole) for _ in range(2)]
    consumers = [asyncio.create_task(consume(cursor)) for cursor in cursors]
    await settle()
    for _ in range(3):
        broadcast.append(text_delta("a"))
        await settle()
    assert [cursor.position for cursor in cursors] == [0, 0]
    broadcast.append(other(1))
    await settle()
    assert woken == [other(1), other(1)]
    broadcast.append(text_delta("b"))
    broadcast.close()
    for one in consumers:
        await one
    assert len(woken) == 2
