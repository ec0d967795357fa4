"""Streams: many consumers, early and late, quick and slow, see the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import given, settings, strategies as st

from perdure import call_model
from perdure.compose import (
    AsyncStarted,
    ModelResult,
    ToolArgumentsDelta,
    ToolCallOutputEvent,
    ToolPreliminaryResult,
    ToolResultEvent,
    TurnEndEvent,
    TurnRetryEvent,
    TurnStartEvent,
    client_tool,
    extract_reasoning_deltas,
    extract_text,
    extract_text_deltas,
    extract_tool_calls,
    extract_tool_deltas,
    manual_tool,
    server_tool,
)
from perdure.errors import Truncated
from perdure.loop import ModelRequest, Retry
from perdure.testing import ScriptedModel, attempts, call, error, item, reasoning, turn
from perdure.wire import (
    Fold,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    ResponseCompleted,
    StreamEvent,
    decode_item,
)
from tests.compose.helpers import Counter, Whole


@client_tool(output=str, events=int, effect="none")
async def work(x: str) -> AsyncIterator[object]:
    """Work."""
    yield 1
    yield 2
    yield f"did {x}"


def script() -> ScriptedModel:
    return ScriptedModel(
        [
            turn(
                reasoning("I should look.", text="Deep thought."),
                "Looking at both. ",
                call("work", {"x": "a"}, "c1"),
                call("work", {"x": "b"}, "c2"),
            ),
            "Both are done.",
        ]
    )


STREAMS: dict[str, Callable[[ModelResult], AsyncIterator[object]]] = {
    "text": lambda result: result.text_stream(),
    "reasoning": lambda result: result.reasoning_stream(),
    "tool": lambda result: result.tool_stream(),
    "tool_calls": lambda result: result.tool_calls_stream(),
    "items": lambda result: result.items_stream(),
    "new_messages": lambda result: result.new_messages_stream(),
    "full": lambda result: result.full_responses_stream(),
    "context": lambda result: result.context_updates(),
    "events": lambda result: result.events(),
}


async def all_of(stream: AsyncIterator[object]) -> list[object]:
    return [one async for one in stream]


async def test_text_and_thoughts_of_all_turns() -> None:
    result = call_model(script(), "go", tools=[work])
    assert "".join([p async for p in result.text_stream()]) == "Looking at both. Both are done."
    thoughts = "".join([p async for p in result.reasoning_stream()])
    assert thoughts == "I should look.Deep thought."


async def test_calls_come_as_soon_as_they_are_whole_with_their_turn() -> None:
    result = call_model(script(), "go", tools=[work])
    calls = [one async for one in result.tool_calls_stream()]
    assert [(one.id, one.members, one.turn) for one in calls] == [
        ("c1", {"x": "a"}, 0),
        ("c2", {"x": "b"}, 0),
    ]
    assert await result.tool_calls() == tuple(calls)


async def test_the_tool_stream_has_arguments_and_preliminary_results() -> None:
    result = call_model(script(), "go", tools=[work])
    events = [one async for one in result.tool_stream()]
    pieces = [one.content for one in events if isinstance(one, ToolArgumentsDelta)]
    assert "".join(pieces) == '{"x":"a"}{"x":"b"}'
    shown = [
        (one.tool_call_id, one.result) for one in events if isinstance(one, ToolPreliminaryResult)
    ]
    assert sorted(shown) == [("c1", 1), ("c1", 2), ("c2", 1), ("c2", 2)]


async def test_items_grow_until_they_are_whole_and_outputs_follow() -> None:
    result = call_model(script(), "go", tools=[work])
    grown: dict[str, list[Item]] = {}
    async for one in result.items_stream():
        key = one.call_id if isinstance(one, FunctionCallOutput) else str(one.id)
        grown.setdefault(f"{one.type} {key}", []).append(one)
    assert [name.split()[0] for name in grown] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
    ]
    for items in grown.values():
        last = items[-1]
        if isinstance(last, Message | FunctionCall):
            assert last.status == "completed"
            assert all(one.status == "in_progress" for one in items[:-1])  # type: ignore[union-attr]
            texts = [one.text if isinstance(one, Message) else one.arguments for one in items]  # type: ignore[union-attr]
            assert (
                all(last.text.startswith(t) for t in texts)
                if isinstance(last, Message)
                else (all(last.arguments.startswith(t) for t in texts))
            )
        assert len(items) == len({repr(one) for one in items}), "nothing comes twice alike"


async def test_manual_calls_and_items_of_the_provider_come_once() -> None:
    clock = decode_item(b'{"type":"openrouter:datetime","id":"dt_1","status":"completed"}')
    model = ScriptedModel([turn(item(clock), call("mine", call_id="c1"))])
    result = call_model(model, "go", tools=[manual_tool("mine"), server_tool({"type": "datetime"})])
    items = [one async for one in result.items_stream()]
    whole = [one for one in items if getattr(one, "status", "") == "completed"]
    assert [one.type for one in whole] == ["openrouter:datetime", "function_call"]
    messages = [one async for one in result.new_messages_stream()]
    assert [one.type for one in messages] == ["function_call"]


async def test_new_messages_are_what_the_run_adds() -> None:
    result = call_model(script(), "go", tools=[work])
    messages = [one async for one in result.new_messages_stream()]
    state = await result.state()
    added = [one for one in state.messages[1:] if one.type != "reasoning"]
    assert messages == added


async def test_the_full_stream_tells_everything_in_its_order() -> None:
    result = call_model(script(), "go", tools=[work])
    events = await all_of(result.full_responses_stream())
    types = [event.type for event in events]  # type: ignore[attr-defined]
    engine = [name for name in types if not name.startswith("response.") or name.endswith("ted")]
    marks = [name for name in engine if name != "tool.preliminary_result"]
    assert marks == [
        "turn.start",
        "response.completed",
        "turn.end",
        "tool.result",
        "tool.call_output",
        "tool.result",
        "tool.call_output",
        "turn.start",
        "response.completed",
        "turn.end",
    ]
    assert types.index("tool.preliminary_result") > types.index("turn.end")
    assert extract_text_deltas(events)[-1] == " done."
    assert "".join(extract_tool_deltas(events)) == '{"x":"a"}{"x":"b"}'
    assert "".join(extract_reasoning_deltas(events)).endswith("thought.")
    response = await result.response()
    assert extract_text(response) == "Both are done."
    assert extract_tool_calls(response) == ()


@pytest.mark.parametrize("whole", [False, True])
async def test_the_wires_events_of_a_turn_fold_to_its_response(whole: bool) -> None:
    model = Whole(script()) if whole else script()
    result = call_model(model, "go", tools=[work])
    fold = Fold()
    async for event in result.full_responses_stream():
        if isinstance(event, TurnEndEvent):
            assert fold.response().output
            fold = Fold()
        elif event.type.startswith("response."):
            if isinstance(event, ResponseCompleted):
                streamed = [fold.item(index) for index in range(len(event.response.output))]
                for ours, theirs in zip(streamed, event.response.output, strict=True):
                    if isinstance(theirs, Message | FunctionCall):
                        assert ours == theirs
            fold.feed(event)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(set(STREAMS) - {"events", "context", "items"}))
async def test_bodies_that_were_not_streamed_reach_every_stream(name: str) -> None:
    streamed = await all_of(STREAMS[name](call_model(script(), "go", tools=[work])))
    whole = await all_of(STREAMS[name](call_model(Whole(script()), "go", tools=[work])))
    if name in ("text", "reasoning"):
        assert "".join(map(str, whole)) == "".join(map(str, streamed))
    elif name in ("tool_calls", "new_messages"):
        assert whole == streamed
    else:
        kinds = {one.type for one in streamed}  # type: ignore[attr-defined]
        got = {one.type for one in whole}  # type: ignore[attr-defined]
        assert kinds - got <= {
            "response.reasoning.delta",
            "response.reasoning.done",
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_part.done",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
        }


@pytest.mark.parametrize("name", sorted(STREAMS))
async def test_a_consumer_after_the_end_sees_what_one_from_the_beginning_saw(name: str) -> None:
    result = call_model(script(), "go", tools=[work], context={"work": {"a": 1}})
    early = asyncio.create_task(all_of(STREAMS[name](result)))
    await result.text()
    seen = await early
    late, later = await all_of(STREAMS[name](result)), await all_of(STREAMS[name](result))
    assert late == later
    if name != "items":
        assert late == seen
    else:
        assert [x for x in late if x in seen] == late


@settings(max_examples=25)
@given(
    paces=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    joins=st.lists(st.integers(0, 12), min_size=6, max_size=6),
)
def test_any_subscriber_at_any_time_sees_the_same_sequence(
    paces: list[int], joins: list[int]
) -> None:
    async def consumer(result: ModelResult, pace: int, join: int) -> list[object]:
        for _ in range(join):
            await asyncio.sleep(0)
        seen: list[object] = []
        async for event in result.full_responses_stream():
            seen.append(event)
            for _ in range(pace):
                await asyncio.sleep(0)
        return seen

    async def run() -> None:
        result = call_model(script(), "go", tools=[work])
        consumers = [
            asyncio.create_task(consumer(result, pace, join))
            for pace, join in zip(paces, joins, strict=False)
        ]
        seen = [await one for one in consumers]
        assert all(one == seen[0] for one in seen)
        check_order(seen[0])

    asyncio.run(run())


def check_order(events: list[object]) -> None:
    """turn.start k < events < turn.end k < tool events of round k+1 < turn.start k+1."""
    inside, turns = False, 0
    for event in events:
        if isinstance(event, TurnStartEvent):
            assert not inside
            assert event.turn_number == turns
            inside = True
        elif isinstance(event, TurnEndEvent):
            assert inside
            assert event.turn_number == turns
            inside, turns = False, turns + 1
        elif isinstance(
            event, ToolResultEvent | ToolCallOutputEvent | ToolPreliminaryResult | AsyncStarted
        ):
            assert not inside
        else:
            assert inside


async def test_an_error_comes_after_all_that_came_before_it() -> None:
    model = ScriptedModel([turn("Half an ans", error(Truncated()))])
    result = call_model(model, "go", retry=Retry())
    for _ in range(2):
        pieces: list[str] = []

        async def read(into: list[str]) -> None:
            async for piece in result.text_stream():
                into.append(piece)

        with pytest.raises(Truncated):
            await read(pieces)
        assert "".join(pieces) == "Half an ans"


async def test_argument_pieces_are_keyed_by_item_and_calls_by_call_id() -> None:
    model = ScriptedModel([turn(call("work", {"x": "abc"}, "the-call")), "done"])
    result = call_model(model, "go", tools=[Counter().tool()])
    pieces = [one async for one in result.tool_stream() if isinstance(one, ToolArgumentsDelta)]
    assert {one.item_id for one in pieces} == {"fc_t0_0"}
    assert [one.id async for one in result.tool_calls_stream()] == ["the-call"]


async def test_a_slow_consumer_never_holds_up_the_run() -> None:
    result = call_model(script(), "go", tools=[work])
    stream = result.full_responses_stream()
    await anext(stream)  # and never again
    assert await result.text() == "Both are done."


async def test_the_end_of_the_first_turn_is_never_lost() -> None:
    result = call_model(ScriptedModel(["x"]), "go")
    await result.text()
    events = await all_of(result.full_responses_stream())
    assert isinstance(events[-1], TurnEndEvent)


def joined(events: list[object]) -> list[object]:
    """The events with neighbouring deltas of a text as one."""
    told: list[object] = []
    for event in events:
        piece = extract_text_deltas([event])
        if piece and told and isinstance(told[-1], str):
            told[-1] += piece[0]
        else:
            told.append(piece[0] if piece else event)
    return told


async def test_twenty_consumers_of_mixed_speed_see_the_same_and_little_is_held() -> None:
    words = "word " * 6000

    async def consume(result: ModelResult, pace: int, join: int) -> list[object]:
        for _ in range(join):
            await asyncio.sleep(0)
        seen: list[object] = []
        async for event in result.full_responses_stream():
            seen.append(event)
            if pace and len(seen) % pace == 0:
                await asyncio.sleep(0)
        return seen

    class Yields:
        """A model that lets others run now and then."""

        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
            count = 0
            async for event in ScriptedModel([words]).stream(request):
                count += 1
                if count % 20 == 0:
                    await asyncio.sleep(0)
                yield event

    result = call_model(Yields(), "go")
    paces = [0, 1, 7, 400]
    during = [asyncio.create_task(consume(result, paces[n % 4], n * 15)) for n in range(16)]
    await result.text()
    seen = [await one for one in during] + [await consume(result, pace, 0) for pace in paces]
    first = joined(seen[0])
    assert words in first
    assert all(joined(one) == first for one in seen)
    assert len(seen[-1]) < 3000 < len(seen[0])


async def test_an_attempt_that_failed_is_marked_void_and_its_text_comes_once() -> None:
    model = ScriptedModel(
        [attempts(turn(reasoning("Hm, one."), error(Truncated())), turn(reasoning("Two."), "Yes."))]
    )
    policy = Retry(max_attempts=2, backoff=lambda attempt, error: 0)
    result = call_model(model, "go", retry=policy)
    events = await all_of(result.full_responses_stream())
    (at,) = [n for n, event in enumerate(events) if isinstance(event, TurnRetryEvent)]
    assert "".join(extract_reasoning_deltas(events[at:])) == "Two."
    assert "".join([piece async for piece in result.text_stream()]) == "Yes."
    fold = Fold()
    for event in events[at + 1 : -1]:
        fold.feed(event)  # type: ignore[arg-type]
    assert fold.response() == await result.response()
