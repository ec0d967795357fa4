"""The scripted model: its turns follow from the transcript, its streams from the specification."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from typing import Any

import pytest

from perdure.errors import ModelError, RateLimited, Transport, Truncated
from perdure.loop.model import Model, ModelRequest, collect
from perdure.loop.transcript import Items, Transcript
from perdure.testing import (
    FakeClock,
    ScriptedModel,
    TurnLike,
    attempts,
    call,
    check_stream,
    error,
    fail,
    item,
    reasoning,
    refusal,
    text,
    turn,
)
from perdure.testing.clock import settle
from perdure.testing.scripted import CutReason, ScriptEnded, turns_in
from perdure.wire import (
    Compaction,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    OutputTextDelta,
    Reasoning,
    Refusal,
    Request,
    Response,
    ResponseFailed,
    StreamEvent,
    Usage,
    assistant,
    function_call,
    function_call_output,
    user,
)


def ask(items: Items | Iterable[Item] = (), *, model: str = "m") -> ModelRequest:
    snapshot = items if isinstance(items, Items) else Items.of(items or [user("hi")])
    return ModelRequest(settings=Request(model=model), input=snapshot)


async def read(
    stream: AsyncIterator[StreamEvent],
) -> tuple[list[StreamEvent], ModelError | None]:
    """The events of a stream, and the error it ends in."""
    seen: list[StreamEvent] = []
    try:
        async for event in stream:
            seen.append(event)
    except ModelError as cause:
        return seen, cause
    return seen, None


async def events_of(model: ScriptedModel, request: ModelRequest | None = None) -> list[StreamEvent]:
    return [event async for event in model.stream(request or ask())]


async def one(answer: TurnLike) -> Response:
    model = ScriptedModel([answer])
    check_stream(await events_of(model))
    return await collect(model.stream(ask()))


def test_it_is_a_model() -> None:
    assert isinstance(ScriptedModel([]), Model)


# --- what a turn gives ----------------------------------------------------------------


async def test_a_text_is_streamed_word_by_word() -> None:
    events = await events_of(ScriptedModel(["Hello there,\n  you. "]))
    deltas = [event.delta for event in events if isinstance(event, OutputTextDelta)]
    assert deltas == ["Hello", " there,", "\n  you.", " "]
    response = await one("Hello there,\n  you. ")
    assert response.output_text == "Hello there,\n  you. "
    assert response.status == "completed"


@pytest.mark.parametrize("words", ["", " ", "\n", "a", " a"])
async def test_any_text_comes_through_whole(words: str) -> None:
    assert (await one(words)).output_text == words


async def test_a_turn_may_think_speak_and_call() -> None:
    response = await one(
        turn(
            reasoning("I should add.", text="19 + 23", encrypted_content="sealed"),
            "Let me see.",
            call("add", {"a": 19, "b": 23}),
            call("raw", '{"a":', "call_mine"),
        )
    )
    thought, message, first, second = response.output
    assert isinstance(thought, Reasoning)
    assert thought.encrypted_content == "sealed"
    assert isinstance(message, Message)
    assert message.text == "Let me see."
    assert isinstance(first, FunctionCall)
    assert (first.name, first.arguments) == ("add", '{"a":19,"b":23}')
    assert isinstance(second, FunctionCall)
    assert (second.call_id, second.arguments) == ("call_mine", '{"a":')


async def test_a_refusal_and_a_whole_item() -> None:
    folded = Compaction(encrypted_content="x")
    response = await one(turn(refusal("I cannot."), item(folded)))
    message, last = response.output
    assert isinstance(message, Message)
    assert message.content == (Refusal(refusal="I cannot."),)
    assert isinstance(last, Compaction)


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
async def test_an_answer_may_be_cut(reason: CutReason) -> None:
    response = await one(turn("half a", incomplete=reason))
    assert response.status == "incomplete"
    assert response.incomplete_details
    assert response.incomplete_details.reason == reason


async def test_usage_counts_unless_it_is_given() -> None:
    usage = Usage(input_tokens=5, output_tokens=7, total_tokens=12)
    assert (await one(turn("x", usage=usage))).usage == usage
    counted = (await one("x y")).usage
    assert counted
    assert counted.total_tokens == counted.input_tokens + counted.output_tokens > 0


async def test_a_response_may_fail() -> None:
    model = ScriptedModel([turn("half", fail("out of order", code="server_error"))])
    events = await events_of(model)
    check_stream(events)
    last = events[-1]
    assert isinstance(last, ResponseFailed)
    assert last.response.error
    assert last.response.error.message == "out of order"


@pytest.mark.parametrize("answer", [RateLimited("slow"), error(RateLimited("slow"))])
async def test_an_error_before_anything(answer: TurnLike) -> None:
    model = ScriptedModel([answer])
    with pytest.raises(RateLimited):
        await anext(model.stream(ask()))


async def test_an_error_in_the_middle_comes_after_what_stands_before_it() -> None:
    model = ScriptedModel([turn("half an ans", error(Truncated()))])
    seen, cause = await read(model.stream(ask()))
    assert isinstance(cause, Truncated)
    assert "".join(e.delta for e in seen if isinstance(e, OutputTextDelta)) == "half an ans"


async def test_events_are_sent_as_they_are() -> None:
    events = await events_of(ScriptedModel(["Hello."]))
    assert await events_of(ScriptedModel([events])) == events


async def test_a_function_sees_the_request() -> None:
    async def later(request: ModelRequest) -> str:
        await asyncio.sleep(0)
        return f"model {request.settings.model}"

    def now(request: ModelRequest) -> TurnLike:
        return later if len(request.input) > 1 else text("one item")

    model = ScriptedModel([now])
    assert (await collect(model.stream(ask()))).output_text == "one item"
    two = ask([user("a"), user("b")], model="x")
    assert (await collect(model.stream(two))).output_text == "model x"


async def test_the_same_input_may_be_answered_differently_each_time() -> None:
    model = ScriptedModel([attempts(Transport("reset"), "fine", "finer"), "next"])
    with pytest.raises(Transport):
        await collect(model.stream(ask()))
    for expected in ("fine", "finer", "finer"):
        assert (await collect(model.stream(ask()))).output_text == expected


# --- which turn ------------------------------------------------------------------------


async def run(model: ScriptedModel, transcript: Transcript) -> Response:
    """One turn of a small loop: the answer, and an output for each call."""
    response = await collect(model.stream(ask(transcript.snapshot())))
    for made in response.output:
        transcript.append(made)
    for made in response.output:
        if isinstance(made, FunctionCall):
            transcript.append(function_call_output(made.call_id, "ok"))
    return response


SCRIPT: list[TurnLike] = [
    turn("First", call("a"), call("b", call_id="mine")),
    turn(reasoning("hm"), call("c")),
    "The answer.",
    "More.",
]


async def test_a_conversation_goes_through_the_script() -> None:
    model, transcript = ScriptedModel(SCRIPT), Transcript([user("hi")])
    for _ in range(3):
        response = await run(model, transcript)
    assert response.output_text == "The answer."
    transcript.append(user("and?"))
    assert (await run(model, transcript)).output_text == "More."
    assert len(model.requests) == 4


async def test_a_new_instance_goes_on_where_the_transcript_stands() -> None:
    transcript = Transcript([user("hi")])
    for expected in ("First", "", "The answer."):
        assert (await run(ScriptedModel(SCRIPT), transcript)).output_text == expected


async def test_the_same_input_gets_the_same_bytes() -> None:
    clock = FakeClock()
    model = ScriptedModel(SCRIPT, clock=clock)
    assert await events_of(model) == await events_of(ScriptedModel(SCRIPT, clock=clock))


async def test_a_branch_gets_the_answer_that_belongs_there() -> None:
    model, transcript = ScriptedModel(SCRIPT), Transcript([user("hi")])
    for _ in range(3):
        await run(model, transcript)
    branch = Items(transcript._items, 1, transcript.snapshot().memo)
    assert (await collect(model.stream(ask(branch)))).output_text == "First"


@pytest.mark.parametrize(
    "keep",
    [
        lambda one: not isinstance(one, Reasoning),
        lambda one: not isinstance(one, Message),
        lambda one: isinstance(one, FunctionCall | FunctionCallOutput | Message),
    ],
)
async def test_a_filtered_input_still_shows_which_turn_is_next(
    keep: Callable[[Item], bool],
) -> None:
    transcript = Transcript([user("hi")])
    for _ in range(2):
        await run(ScriptedModel(SCRIPT), transcript)
    kept = [one for one in transcript.snapshot() if keep(one)]
    assert turns_in(Items.of(kept)) == 2


async def test_a_history_that_was_folded_away_does_not_start_the_script_again() -> None:
    transcript = Transcript([user("hi")])
    for _ in range(2):
        await run(ScriptedModel(SCRIPT), transcript)
    tail = [user("summary: ..."), *transcript.snapshot()[-2:]]
    assert (await run(ScriptedModel(SCRIPT), Transcript(tail))).output_text == "The answer."


@pytest.mark.parametrize(
    ("items", "turns"),
    [
        ([], 0),
        ([user("a")], 0),
        ([user("a"), assistant("b")], 1),
        ([user("a"), assistant("b"), user("c"), assistant("d"), user("e")], 2),
        ([function_call("x", "f"), function_call("y", "f")], 1),
        (
            [
                function_call("x", "f"),
                function_call_output("x", ""),
                function_call("y", "f"),
                function_call_output("y", ""),
            ],
            2,
        ),
    ],
)
def test_without_the_models_ids_each_unbroken_run_counts(items: list[Item], turns: int) -> None:
    assert turns_in(Items.of(items)) == turns


async def test_a_script_may_begin_in_the_middle_of_a_transcript() -> None:
    history = [user("a"), assistant("b"), user("c")]
    model = ScriptedModel(["mine", "more"], after=1)
    transcript = Transcript(history)
    assert (await run(model, transcript)).output_text == "mine"
    transcript.append(user("d"))
    assert (await run(model, transcript)).output_text == "more"


async def test_a_script_that_has_ended_says_so() -> None:
    model, transcript = ScriptedModel(["only"]), Transcript([user("hi")])
    await run(model, transcript)
    transcript.append(user("again"))
    with pytest.raises(ScriptEnded, match="turn 1") as raised:
        await run(model, transcript)
    assert isinstance(raised.value, ModelError)


async def test_a_function_may_be_the_whole_script() -> None:
    model = ScriptedModel(lambda number: call("f", {"n": number}))
    transcript = Transcript([user("hi")])
    for _ in range(20):
        await run(model, transcript)
    made = [one.arguments for one in transcript.snapshot() if isinstance(one, FunctionCall)]
    assert made == [f'{{"n":{n}}}' for n in range(20)]


def test_finding_the_turn_looks_only_at_new_items() -> None:
    looked: list[int] = []

    class Watched(list[Item]):
        def __getitem__(self, index: Any) -> Any:
            if isinstance(index, slice):
                looked.append(len(range(*index.indices(len(self)))))
            return super().__getitem__(index)

    items, memo = Watched(), dict[Hashable, object]()
    for number in range(100):
        items.append(user(str(number)))
        turns_in(Items(items, len(items), memo))
    assert sum(looked) == 100


# --- how it streams ----------------------------------------------------------------------


async def test_it_waits_between_events_on_its_clock() -> None:
    clock = FakeClock()
    model = ScriptedModel(["a b"], delay=1, clock=clock)
    seen: list[StreamEvent] = []

    async def read() -> None:
        async for event in model.stream(ask()):
            seen.append(event)

    task = asyncio.ensure_future(read())
    await settle()
    assert len(seen) == 1
    await clock.advance(3)
    assert len(seen) == 4
    await clock.advance(100)
    await task


async def test_a_stream_that_is_closed_early_is_counted() -> None:
    model = ScriptedModel(["a b c", "d"])
    stream = model.stream(ask())
    await anext(stream)
    await stream.aclose()
    assert model.abandoned == 1
    await collect(model.stream(ask()))
    await events_of(model)
    assert model.abandoned == 1
