"""The model's half of a turn: attempts, what they hold, the names of calls, what is left out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure import wire
from perdure.errors import BadBody, Overloaded, Rejected, Truncated, rejection
from perdure.loop import (
    Config,
    ItemEnd,
    ItemStart,
    ItemUpdate,
    Middleware,
    ModelRequest,
    ModelRetry,
    NextModel,
    ResponseEnd,
    Retry,
    RunEnd,
    ToolStart,
    is_retryable,
    run,
)
from perdure.testing import FakeClock, ScriptedModel, attempts, call, error, fail, text, turn
from perdure.testing.clock import settle
from perdure.testing.scripted import item as whole, reasoning
from perdure.wire import FunctionCall, StreamEvent, function_call, user
from tests.loop.fakes import (
    Ran,
    Stream,
    Tool,
    added,
    answer,
    arguments,
    completed,
    created,
    done,
    item_ends,
    outputs,
    pending,
    ran,
    says,
    texts,
)

NO_WAIT = Retry(max_attempts=3, backoff=lambda attempt, error: 0)


def busy() -> Rejected:
    return rejection("busy", status=503)


def thought(item_id: str = "rs_1") -> wire.Reasoning:
    return wire.Reasoning(id=item_id, summary=(wire.SummaryText(text="hm"),), status="completed")


# --- attempts -----------------------------------------------------------------------


async def test_a_failure_between_thought_and_answer_is_retried_and_leaves_no_thought() -> None:
    model = ScriptedModel([attempts(turn(reasoning("hm"), error(busy())), "42")])
    told = await ran(Config(model=model, retry=NO_WAIT), "go")
    assert texts(told.end.items) == ["user: go", "assistant: 42"]
    assert told.end.reason == "done"
    assert [type(event.error) for event in told.of(ModelRetry)] == [Overloaded]
    assert len(model.requests) == 2
    assert told.of(ResponseEnd)[0].attempts == 2
    thoughts = [event for event in told.of(ItemStart) if isinstance(event.item, wire.Reasoning)]
    assert len(thoughts) == 1  # it was shown as it came


async def test_a_held_thought_enters_the_transcript_before_the_answer() -> None:
    model = ScriptedModel([turn(reasoning("hm"), "42")])
    told = await ran(Config(model=model), "go")
    assert texts(told.end.items) == ["user: go", "reasoning", "assistant: 42"]
    assert item_ends(told.events) == texts(told.end.items)


async def test_a_thought_without_an_answer_enters_the_transcript_with_the_response() -> None:
    told = await ran(Config(model=ScriptedModel([turn(reasoning("hm"))])), "go")
    assert texts(told.end.items) == ["user: go", "reasoning"]
    assert told.end.reason == "done"


ERROR = wire.ErrorEvent(error=wire.ErrorPayload(type="server_error", code="x", message="no"))


async def test_an_error_event_before_the_answer_is_a_failed_attempt() -> None:
    model = Stream([created(), ERROR], answer())
    told = await ran(Config(model=model, retry=NO_WAIT), "go")
    assert told.end.reason == "done"
    assert len(model.requests) == 2
    assert isinstance(told.of(ModelRetry)[0].error, Rejected)


async def test_an_error_event_after_the_answer_began_is_final() -> None:
    model = Stream([created(), *says("hal")[:1], ERROR], answer())
    told = await ran(Config(model=model, retry=NO_WAIT), "go")
    assert (told.end.reason, len(model.requests)) == ("error", 1)
    assert isinstance(told.end.error, Rejected)


async def test_a_failed_response_is_retried_before_the_answer_began_and_told_after_it() -> None:
    before = ScriptedModel([attempts(fail("oops"), "ok")])
    told = await ran(Config(model=before, retry=NO_WAIT), "go")
    assert (told.end.reason, len(before.requests)) == ("done", 2)
    after = ScriptedModel([attempts(turn("hal", fail("oops")), "ok")])
    told = await ran(Config(model=after, retry=NO_WAIT), "go")
    assert (told.end.reason, len(after.requests)) == ("error", 1)
    assert [event.response.status for event in told.of(ResponseEnd)] == ["failed"]


async def test_the_last_failed_response_is_told_and_its_tokens_count() -> None:
    failed = wire.Response(
        id="resp_1",
        status="failed",
        output=(),
        error=wire.ErrorPayload(type="server_error", code="x", message="no"),
        usage=wire.Usage(input_tokens=1, output_tokens=0, total_tokens=1),
    )
    stream = [created(), wire.ResponseFailed(response=failed)]
    told = await ran(Config(model=Stream(stream, stream, stream), retry=NO_WAIT), "go")
    assert [event.attempts for event in told.of(ResponseEnd)] == [3]
    assert told.end.usage.input_tokens == 3


async def test_text_is_never_repeated_and_half_a_call_never_runs_after_a_cut_stream() -> None:
    tool = Tool("pay")
    half = [
        created(),
        added(0, FunctionCall(id="fc_1", call_id="c1", name="pay", arguments="")),
        arguments(0, '{"cents": 1'),
        Truncated(),
    ]
    model = Stream(half, answer())
    told = await ran(Config(model=model, tools=[tool], retry=NO_WAIT), "go")
    assert (told.end.reason, len(model.requests)) == ("error", 1)
    assert tool.entered == []
    assert texts(told.end.items) == ["user: go"]
    [partial] = told.end.partial
    assert isinstance(partial, FunctionCall)
    assert (partial.arguments, partial.status) == ('{"cents": 1', "incomplete")


async def test_an_attempt_whose_stream_cannot_even_be_opened_is_retried() -> None:
    class Refuses:
        def __init__(self) -> None:
            self.requests = 0

        def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
            self.requests += 1
            if self.requests == 1:
                raise busy()
            return Stream(answer()).stream(request)

    model = Refuses()
    told = await ran(Config(model=model, retry=NO_WAIT), "go")
    assert (told.end.reason, model.requests) == ("done", 2)


async def test_attempts_are_counted_and_an_abort_cuts_the_wait_between_them() -> None:
    clock = FakeClock()
    model = ScriptedModel([attempts(error(busy()), error(busy()), "ok")], clock=clock)
    config = Config(
        model=model,
        clock=clock,
        retry=Retry(max_attempts=5, backoff=lambda attempt, error: 10.0 * attempt),
    )
    async with run([], [user("go")], config) as events:
        retries: list[ModelRetry] = []
        async for event in events:
            if isinstance(event, ModelRetry):
                retries.append(event)
                await settle()
                if event.attempt == 1:
                    await clock.advance(10)
                else:
                    assert events._handle is not None
                    events._handle.abort("enough")
            if isinstance(event, RunEnd):
                assert (event.reason, str(event.error)) == ("aborted", "enough")
    assert [(one.attempt, one.delay) for one in retries] == [(1, 10.0), (2, 20.0)]
    assert len(model.requests) == 2


async def test_the_server_decides_how_long_to_wait_up_to_a_cap() -> None:
    asked = rejection("slow", status=429, retry_after=0.0)
    too_long = rejection("slow", status=429, retry_after=301.0)
    model = ScriptedModel([attempts(error(asked), error(too_long), "ok")])
    told = await ran(Config(model=model, retry=Retry(max_attempts=5)), "go")
    assert [event.delay for event in told.of(ModelRetry)] == [0.0]
    assert (told.end.reason, told.end.error) == ("error", too_long)


async def test_a_full_jitter_doubles_up_to_thirty_seconds() -> None:
    retry = Retry(max_attempts=10, random=lambda: 1.0)
    assert [retry.wait(n, busy()) for n in range(1, 9)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert Retry(random=lambda: 0.0).wait(5, busy()) == 0


@pytest.mark.parametrize(
    ("raised", "again"),
    [
        (rejection("x", status=408), True),
        (rejection("x", status=409), True),
        (rejection("x", status=429), True),
        (rejection("x", status=500), True),
        (rejection("x", status=400), False),
        (rejection("x", status=401), False),
        (Truncated(), True),
        (BadBody("x"), False),
        (ValueError("x"), False),
    ],
    ids=str,
)
async def test_what_is_worth_another_attempt(raised: Exception, again: bool) -> None:
    model = ScriptedModel([attempts(error(raised), "ok")])
    told = await ran(Config(model=model, retry=NO_WAIT), "go")
    assert told.end.reason == ("done" if again else "error")
    assert told.end.error is (None if again else raised)


async def test_a_model_of_one_s_own_may_raise_the_status_alone() -> None:
    model = ScriptedModel([attempts(error(Rejected("busy", status=503)), "ok")])
    told = await ran(Config(model=model, retry=NO_WAIT), "go")
    assert told.end.reason == "done"
    assert is_retryable(Rejected("slow down", status=429))
    assert not is_retryable(Rejected("no", status=400))
    assert not is_retryable(rejection("pay first", status=429, code="insufficient_quota"))


async def test_a_revised_request_is_the_one_that_is_sent_and_told() -> None:
    def fall_back(attempt: int, request: ModelRequest, error: Exception) -> ModelRequest:
        settings = wire.Request(model="small")
        return ModelRequest(settings=settings, input=request.input)

    model = ScriptedModel([attempts(error(busy()), "ok")])
    retry = Retry(max_attempts=2, backoff=lambda attempt, error: 0, revise=fall_back)
    told = await ran(Config(model=model, model_name="big", retry=retry), "go")
    assert [request.settings.model for request in model.requests] == ["big", "small"]
    assert told.of(ModelRetry)[0].request is model.requests[1]


async def test_a_stream_that_fails_in_a_subscriber_is_not_an_attempt_that_failed() -> None:
    class Fails(Middleware):
        async def on_event(self, event: object) -> None:
            if isinstance(event, ItemStart) and event.item.type == "reasoning":
                raise busy()

    model = ScriptedModel([attempts(turn(reasoning("hm"), "one"), "two")])
    told = await ran(Config(model=model, retry=NO_WAIT, middleware=[Fails()]), "go")
    assert (told.end.reason, len(model.requests)) == ("error", 1)


async def test_a_stream_is_closed_as_soon_as_the_reader_leaves() -> None:
    model = ScriptedModel([" ".join(["word"] * 1000)])
    async with run([], [user("go")], Config(model=model)) as events:
        async for event in events:
            if isinstance(event, ItemUpdate):
                break
    assert model.abandoned == 1
    handle = events._handle
    assert handle is not None
    assert handle.end().reason == "aborted"
    [partial] = handle.end().partial
    assert partial.status == "incomplete"  # type: ignore[union-attr]


async def test_a_wrapped_stream_is_closed_before_the_drive_goes_on() -> None:
    kept: list[AsyncIterator[StreamEvent]] = []  # so that only the loop can close it

    class Passes(Middleware):
        async def wrap_model_call(
            self,
            request: ModelRequest,
            next: NextModel,  # noqa: A002
        ) -> AsyncIterator[StreamEvent]:
            kept.append(next(request))
            async for event in kept[0]:
                yield event

    model = ScriptedModel([" ".join(["word"] * 1000)])
    closed: list[int] = []

    class Looks(Middleware):
        async def on_end(self, end: RunEnd) -> None:
            closed.append(model.abandoned)

    async with run([], [user("go")], Config(model=model, middleware=[Passes(), Looks()])) as events:
        async for event in events:
            if isinstance(event, ItemUpdate):
                break
    assert closed == [1]


# --- what a call is called ----------------------------------------------------------


def opening(call_id: str, name: str = "t", item_id: str | None = None) -> FunctionCall:
    return FunctionCall(id=item_id, call_id=call_id, name=name, arguments="", status="in_progress")


async def test_two_calls_at_one_index_without_item_ids_each_run_with_their_own_output() -> None:
    one, two = function_call("c1", "t", '{"n": 1}'), function_call("c2", "t", '{"n": 2}')
    stream = [
        created(),
        added(0, opening("c1")),
        arguments(0, '{"n": 1}'),
        done(0, one),
        added(0, opening("c2")),
        arguments(0, '{"n": 2}'),
        done(0, two),
        completed(one, two),
    ]
    tool = Tool("t", lambda call: _give(call.arguments))
    told = await ran(Config(model=Stream(stream, answer()), tools=[tool]), "go")
    assert outputs(told.end.items) == [("c1", '{"n": 1}'), ("c2", '{"n": 2}')]
    assert told.end.reason == "done"


async def _give(value: str) -> str:
    return value


async def test_calls_that_the_response_leaves_out_are_run_and_answered() -> None:
    one, two = function_call("c1", "t"), function_call("c2", "t")
    stream = [created(), done(0, one), done(0, two), completed(two)]
    tool = Tool("t")
    told = await ran(Config(model=Stream(stream, answer()), tools=[tool]), "go")
    assert outputs(told.end.items) == [("c1", "ok"), ("c2", "ok")]


async def test_calls_that_were_not_streamed_are_run() -> None:
    one = function_call("c1", "t")
    tool = Tool("t")
    told = await ran(Config(model=Stream([completed(one)], answer()), tools=[tool]), "go")
    assert outputs(told.end.items) == [("c1", "ok")]


async def test_a_call_that_opened_and_is_finished_by_the_response_alone_is_one_call() -> None:
    one = function_call("c1", "t", '{"n": 1}')
    stream = [created(), added(0, opening("c1")), arguments(0, '{"n": 1}'), completed(one)]
    tool = Tool("t")
    told = await ran(Config(model=Stream(stream, answer()), tools=[tool]), "go")
    assert outputs(told.end.items) == [("c1", "ok")]
    starts = [one for one in told.of(ItemStart) if isinstance(one.item, FunctionCall)]
    assert len(starts) == 1


async def test_a_message_that_opened_and_is_finished_by_the_response_alone_is_one_message() -> None:
    told = await ran(Config(model=Stream([*answer()[:2], answer()[-1]])), "go")
    assert texts(told.end.items) == ["user: go", "assistant: done"]
    assert len(told.of(ItemStart)) == 2


async def test_a_call_without_an_id_gets_one_and_keeps_it() -> None:
    one = function_call("", "t", '{"n": 1}')
    stream = [
        created(),
        added(0, opening("")),
        arguments(0, '{"n": 1}'),
        done(0, one),
        completed(one),
    ]
    tool = Tool("t")
    told = await ran(Config(model=Stream(stream, answer()), tools=[tool]), "go")
    [(call_id, _)] = outputs(told.end.items)
    assert call_id
    assert ids_of_call(told) == {call_id}


def ids_of_call(told: Ran) -> set[str]:
    """Every id that events, and the response, name a call by."""
    ids = {event.call_id for event in told.of(ToolStart)}
    items = [event.item for event in told.of(ItemStart)]
    items += [event.item for event in told.of(ItemEnd)]
    for item in [*items, *(event.item for event in told.of(ItemUpdate))]:
        if isinstance(item, FunctionCall):
            ids.add(item.call_id)
    for event in told.of(ResponseEnd):
        ids |= {one.call_id for one in event.response.output if isinstance(one, FunctionCall)}
    return ids


@pytest.mark.parametrize("opens", [True, False], ids=["opened", "done alone"])
async def test_a_repeated_call_id_of_another_turn_is_a_new_call_under_a_new_id(
    opens: bool,
) -> None:
    one, two = function_call("c1", "t", '{"n": 1}'), function_call("c1", "t", '{"n": 2}')
    opened = [added(0, opening("c1"))] if opens else []
    model = Stream(
        [created(), done(0, one), completed(one)],
        [created(), *opened, done(0, two), completed(two)],
        answer(),
    )
    tool = Tool("t", lambda call: _give(call.arguments))
    told = await ran(Config(model=model, tools=[tool]), "go")
    assert outputs(told.end.items) == [("c1", '{"n": 1}'), ("c1_2", '{"n": 2}')]
    ends = [one for one in told.of(ItemEnd) if isinstance(one.item, FunctionCall)]
    assert [one.model_call_id for one in ends] == ["", "c1"]
    sent = [one.call_id for one in model.requests[2].input if isinstance(one, FunctionCall)]
    assert sent == ["c1", "c1_2"]
    second = told.of(ResponseEnd)[1].response.output
    assert [one.call_id for one in second if isinstance(one, FunctionCall)] == ["c1_2"]


async def test_the_same_call_twice_in_one_response_is_one_call() -> None:
    one = function_call("c1", "t", '{"n": 1}')
    stream = [created(), done(0, one), done(1, one), completed(one, one)]
    tool = Tool("t")
    told = await ran(Config(model=Stream(stream, answer()), tools=[tool]), "go")
    assert tool.entered == ["c1"]
    assert outputs(told.end.items) == [("c1", "ok")]


async def test_a_repeated_id_with_other_arguments_in_one_response_is_another_call() -> None:
    one, two = function_call("c1", "t", '{"n": 1}'), function_call("c1", "t", '{"n": 2}')
    stream = [created(), done(0, one), done(1, two), completed(one, two)]
    tool = Tool("t", lambda call: _give(call.arguments))
    told = await ran(Config(model=Stream(stream, answer()), tools=[tool]), "go")
    assert outputs(told.end.items) == [("c1", '{"n": 1}'), ("c1_2", '{"n": 2}')]


async def test_a_response_names_its_calls_as_the_transcript_does_also_beside_a_twin() -> None:
    one, two = function_call("c1", "t", '{"n": 1}'), function_call("c1", "t", '{"n": 2}')
    stream = [created(), done(0, one), done(1, one), done(2, two), completed(one, one, two)]
    told = await ran(Config(model=Stream(stream, answer()), tools=[Tool("t")]), "go")
    listed = told.of(ResponseEnd)[0].response.output
    named = [(one.call_id, one.arguments) for one in listed if isinstance(one, FunctionCall)]
    assert set(named) == {("c1", '{"n": 1}'), ("c1_2", '{"n": 2}')}


async def test_a_response_that_lists_its_calls_in_another_order_names_each_by_its_own_id() -> None:
    old: list[wire.Item] = [
        user("hi"),
        function_call("c1", "t"),
        wire.function_call_output("c1", "x"),
    ]
    one = wire.FunctionCall(id="a", call_id="c1", name="t", arguments='{"n": 1}')
    two = wire.FunctionCall(id="b", call_id="c2", name="t", arguments='{"n": 2}')
    stream = [created(), done(0, one), done(1, two), completed(two, one)]
    model = Stream(stream, answer())
    told = await ran(Config(model=model, tools=[Tool("t")]), "go", transcript=old)
    listed = told.of(ResponseEnd)[0].response.output
    named = {one.arguments: one.call_id for one in listed if isinstance(one, FunctionCall)}
    assert named == {'{"n": 1}': "c1_2", '{"n": 2}': "c2"}


async def test_a_prompt_that_holds_calls_takes_their_ids() -> None:
    history: list[wire.Item] = [
        user("hi"),
        function_call("c1", "t"),
        wire.function_call_output("c1", "old"),
    ]
    model = ScriptedModel([call("t", {}, "c1"), "done"], after=1)
    told = await ran(Config(model=model, tools=[Tool("t")]), *history)
    assert outputs(told.end.items) == [("c1", "old"), ("c1_2", "ok")]


async def test_a_long_id_is_cut_so_that_it_stays_within_64_characters() -> None:
    long = "x" * 64
    model = ScriptedModel([call("t", {}, long), call("t", {"again": 1}, long), "done"])
    told = await ran(Config(model=model, tools=[Tool("t")]), "go")
    second = outputs(told.end.items)[1][0]
    assert len(second) == 64
    assert second != long


async def test_an_index_used_again_shows_each_item_as_its_own() -> None:
    stream = [
        created(),
        added(0, opening("c1")),
        arguments(0, "{}"),
        done(0, function_call("c1", "t")),
        *says("so", 0, item_id="msg_9"),
        completed(function_call("c1", "t"), wire.assistant("so", id="msg_9")),
    ]
    told = await ran(Config(model=Stream(stream, answer()), tools=[Tool("t")]), "go")
    assert texts(told.end.items)[1:3] == ["call c1: t({})", "assistant: so"]
    [update] = [event for event in told.of(ItemUpdate) if event.turn == 1]
    shown = update.item
    assert isinstance(shown, FunctionCall)
    assert shown.call_id == "c1"


# --- whole answers ------------------------------------------------------------------


async def test_text_before_a_call_streamed_or_not_gives_one_transcript() -> None:
    said, asked = wire.assistant("ok..", id="msg_1"), function_call("c1", "t")
    tools = [Tool("t")], [Tool("t")]
    streamed = [created(), *says("ok.."), done(1, asked), completed(said, asked)]
    first = await ran(Config(model=Stream(streamed, answer()), tools=tools[0]), "go")
    at_once = Stream([completed(said, asked)], answer())
    second = await ran(Config(model=at_once, tools=tools[1]), "go")
    assert first.end.items == second.end.items
    assert [tool[0].entered for tool in tools] == [["c1"], ["c1"]]


async def test_an_extension_item_after_the_answer_is_kept_and_is_not_the_answer() -> None:
    note = wire.decode_item(b'{"type":"acme:trace","id":"n1","data":{"b":1,"a":2}}')
    told = await ran(Config(model=ScriptedModel([turn("42", whole(note))])), "go")
    assert told.end.items[-1] == note
    assert wire.encode(told.end.items[-1]) == wire.encode(note)


async def test_unknown_stream_events_reach_the_consumers() -> None:
    searching = wire.decode_event(
        b'{"type":"response.web_search_call.searching","output_index":0,"item_id":"ws_1"}'
    )
    search = wire.decode_item(b'{"type":"web_search_call","id":"ws_1","status":"completed"}')
    stream = [created(), added(0, search), searching, done(0, search), *answer()[1:]]
    told = await ran(Config(model=Stream(stream)), "go")
    assert searching in [event.stream for event in told.of(ItemUpdate)]


@pytest.mark.parametrize(
    ("reason", "cause"), [("max_output_tokens", "length"), ("content_filter", "content_filter")]
)
async def test_the_calls_of_a_cut_answer_never_run_and_are_answered_so(
    reason: str, cause: str
) -> None:
    tool = Tool("pay")
    calls = call("pay", {}, "c1"), call("pay", {}, "c2")
    cut = turn("I will pay.", *calls, incomplete=reason)  # type: ignore[arg-type]
    told = await ran(Config(model=ScriptedModel([cut]), tools=[tool]), "go")
    assert (told.end.reason, told.end.cause) == ("stopped", cause)
    assert tool.entered == []
    assert [call_id for call_id, _ in outputs(told.end.items)] == ["c1", "c2"]
    assert all("not run" in said for _, said in outputs(told.end.items))
    assert told.end.pending == ()


async def test_the_calls_of_a_response_that_broke_off_never_run() -> None:
    tool = Tool("pay")
    broken = [created(), done(0, function_call("c1", "pay")), Truncated()]
    told = await ran(Config(model=Stream(broken), tools=[tool]), "go")
    assert told.end.reason == "error"
    assert pending(told.end) == {}
    assert outputs(told.end.items) == [
        ("c1", "Error: not run: the response that made this call was cut")
    ]


async def test_an_abort_while_the_model_speaks_keeps_what_it_had_begun() -> None:
    gate = asyncio.Event()

    class Stalls:
        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
            for event in answer("half a sentence")[:2]:
                yield event
            yield wire.OutputTextDelta(item_id="msg_1", output_index=0, content_index=0, delta="ha")
            await gate.wait()

    config = Config(model=Stalls())
    async with run([], [user("go")], config) as events:
        heard = []
        async for event in events:
            heard.append(event)
            if isinstance(event, ItemUpdate):
                assert events._handle is not None
                events._handle.abort("esc")
    end = heard[-1]
    assert isinstance(end, RunEnd)
    assert (end.reason, str(end.error)) == ("aborted", "esc")
    assert texts(end.partial) == ["assistant: ha"]
    assert texts(end.items) == ["user: go"]


async def test_a_failed_response_that_lists_nothing_still_shows_what_had_begun() -> None:
    response = wire.Response(
        id="resp_1",
        status="failed",
        output=(),
        error=wire.ErrorPayload(type="server_error", code="x", message="no"),
    )
    delta = wire.OutputTextDelta(item_id="msg_1", output_index=0, content_index=0, delta="ha")
    stream = [*answer()[:2], delta, wire.ResponseFailed(response=response)]
    told = await ran(Config(model=Stream(stream)), "go")
    assert told.end.reason == "error"
    assert texts(told.end.partial) == ["assistant: ha"]


async def test_a_model_that_says_nothing_at_all_is_a_truncated_stream() -> None:
    told = await ran(Config(model=Stream([])), "go")
    assert isinstance(told.end.error, Truncated)


async def test_deltas_of_a_thousand_words_fold_to_the_answer() -> None:
    words = " ".join(f"w{n}" for n in range(1000))
    told = await ran(Config(model=ScriptedModel([text(words)])), "go")
    assert texts(told.end.items) == ["user: go", f"assistant: {words}"]
