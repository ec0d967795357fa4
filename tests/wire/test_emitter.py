"""The emitter's events are in order by construction, and say what was said."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from perdure import wire
from perdure.errors import ConfigError, TerminalSent
from perdure.testing.clock import FakeClock
from perdure.testing.stream_check import check_stream
from perdure.wire.emitter import Emitter
from perdure.wire.events import TerminalEvent
from perdure.wire.fold import Fold


class CountingIds:
    def __init__(self) -> None:
        self._numbers = count(1)

    def new(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"


def emitter(**members: Any) -> Emitter:
    request = wire.decode_request(json.dumps({"model": "m", "input": "hi", **members}))
    return Emitter(request, ids=CountingIds(), clock=FakeClock(wall=7_000_000_000))


def types(events: list[wire.StreamEvent]) -> list[str]:
    return [event.type.removeprefix("response.") for event in events]


CITATION = wire.UrlCitation(url="u", title="t", start_index=0, end_index=1)
ERROR = wire.ErrorPayload(type="server_error", code="c", message="oops", param=None)
USAGE = wire.Usage(input_tokens=1, output_tokens=2, total_tokens=3)


def test_a_message() -> None:
    emit = emitter()
    events = [*emit.text("Hel"), *emit.text("lo"), *emit.complete(usage=USAGE)]
    assert types(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    check_stream(events)
    last = events[-1]
    assert isinstance(last, wire.ResponseCompleted)
    assert last.response.output_text == "Hello"
    assert last.response.usage == USAGE
    assert last.response.completed_at == last.response.created_at == 7


def test_everything_in_one_response() -> None:
    emit = emitter()
    steps = [
        emit.start(),
        emit.start(),
        emit.reasoning_summary("first"),
        emit.end_summary(),
        emit.reasoning_summary("second"),
        emit.reasoning_text("deep"),
        emit.encrypted("secret"),
        emit.text("a"),
        emit.annotation(CITATION),
        emit.refusal("no"),
        emit.text("b", logprobs=[wire.LogProb(token="b", logprob=-1)]),
        emit.message(id="msg_own", phase="final_answer"),
        emit.text(""),
        emit.call("f", "call_own"),
        emit.arguments('{"a"'),
        emit.arguments(":1}"),
        emit.call("g"),
        emit.item(wire.function_call_output("call_own", "1")),
        emit.close(),
        emit.complete(),
    ]
    events = [event for step in steps for event in step]
    check_stream(events)
    last = events[-1]
    assert isinstance(last, wire.ResponseCompleted)
    assert [json.loads(wire.encode(item)) for item in last.response.output] == [
        {
            "type": "reasoning",
            "id": "rs_2",
            "status": "completed",
            "summary": [
                {"type": "summary_text", "text": "first"},
                {"type": "summary_text", "text": "second"},
            ],
            "content": [{"type": "reasoning_text", "text": "deep"}],
            "encrypted_content": "secret",
        },
        {
            "type": "message",
            "id": "msg_3",
            "status": "completed",
            "role": "assistant",
            "content": [
                {
                    "type": "output_text",
                    "text": "a",
                    "annotations": [json.loads(wire.encode(CITATION))],
                },
                {"type": "refusal", "refusal": "no"},
                {
                    "type": "output_text",
                    "text": "b",
                    "annotations": [],
                    "logprobs": [{"token": "b", "logprob": -1}],
                },
            ],
        },
        {
            "type": "message",
            "id": "msg_own",
            "status": "completed",
            "role": "assistant",
            "phase": "final_answer",
            "content": [{"type": "output_text", "text": "", "annotations": []}],
        },
        {
            "type": "function_call",
            "id": "fc_4",
            "call_id": "call_own",
            "name": "f",
            "arguments": '{"a":1}',
            "status": "completed",
        },
        {
            "type": "function_call",
            "id": "fc_5",
            "call_id": "call_6",
            "name": "g",
            "arguments": "",
            "status": "completed",
        },
        {
            "type": "function_call_output",
            "call_id": "call_own",
            "output": "1",
            "status": "completed",
        },
    ]


def test_a_cut_response_marks_the_open_item() -> None:
    emit = emitter()
    events = [*emit.text("whole"), *emit.close(), *emit.text("ha")]
    events += emit.incomplete("max_output_tokens")
    check_stream(events)
    last = events[-1]
    assert isinstance(last, wire.ResponseIncomplete)
    assert [getattr(item, "status", "") for item in last.response.output] == [
        "completed",
        "incomplete",
    ]
    assert last.response.incomplete_details == wire.IncompleteDetails(reason="max_output_tokens")


def test_a_failure_leaves_the_open_item_open() -> None:
    emit = emitter()
    events = [*emit.call("f", "c"), *emit.arguments('{"a'), *emit.fail(ERROR)]
    check_stream(events)
    assert types(events)[-3:] == ["function_call_arguments.delta", "error", "failed"]
    last = events[-1]
    assert isinstance(last, wire.ResponseFailed)
    assert last.response.error == ERROR
    assert last.response.completed_at is None
    (call,) = last.response.output
    assert isinstance(call, wire.FunctionCall)
    assert (call.arguments, call.status) == ('{"a', "incomplete")


def test_a_failure_before_anything_else() -> None:
    events = emitter().fail(ERROR)
    check_stream(events)
    assert types(events) == ["created", "in_progress", "error", "failed"]


@pytest.mark.parametrize(
    "end", [lambda e: e.complete(), lambda e: e.incomplete("x"), lambda e: e.fail(ERROR)]
)
def test_nothing_follows_the_end(end: Callable[[Emitter], object]) -> None:
    emit = emitter()
    emit.text("x")
    end(emit)
    for again in (
        emit.start,
        emit.message,
        emit.reasoning,
        emit.end_summary,
        emit.close,
        emit.complete,
        lambda: emit.text("x"),
        lambda: emit.refusal("x"),
        lambda: emit.annotation(CITATION),
        lambda: emit.reasoning_summary("x"),
        lambda: emit.reasoning_text("x"),
        lambda: emit.encrypted("x"),
        lambda: emit.call("f"),
        lambda: emit.arguments("x"),
        lambda: emit.item(wire.user("x")),
        lambda: emit.incomplete("x"),
        lambda: emit.fail(ERROR),
    ):
        with pytest.raises(TerminalSent):
            again()


def test_arguments_need_a_call() -> None:
    emit = emitter()
    emit.text("x")
    with pytest.raises(ConfigError, match="call"):
        emit.arguments("{}")


def test_an_item_of_an_unknown_type_goes_as_it_is() -> None:
    thing = wire.decode_item('{"type":"acme:thing","id":"t","status":"odd","b":1}')
    emit = emitter()
    events = [*emit.item(thing), *emit.complete()]
    check_stream(events)
    last = events[-1]
    assert isinstance(last, wire.ResponseCompleted)
    assert last.response.output == (thing,)


def test_the_response_repeats_the_request() -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    emit = emitter(
        instructions="Be brief.", tools=[tool], temperature=0.2, store=False, metadata={"a": "b"}
    )
    body = json.loads(wire.encode(emit.response))
    assert body == {
        "id": "resp_1",
        "object": "response",
        "created_at": 7,
        "completed_at": None,
        "status": "in_progress",
        "incomplete_details": None,
        "model": "m",
        "previous_response_id": None,
        "instructions": "Be brief.",
        "output": [],
        "error": None,
        "tools": [{**tool, "description": None, "strict": False}],
        "tool_choice": "auto",
        "truncation": "disabled",
        "parallel_tool_calls": True,
        "text": {"format": {"type": "text"}},
        "top_p": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "top_logprobs": 0,
        "temperature": 0.2,
        "reasoning": {"effort": None, "summary": None},
        "usage": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "store": False,
        "background": False,
        "service_tier": "default",
        "metadata": {"a": "b"},
        "safety_identifier": None,
        "prompt_cache_key": None,
    }


# --- any order of calls -----------------------------------------------------------------------

pieces = st.text(max_size=4)
steps = st.one_of(
    st.tuples(st.just("text"), pieces),
    st.tuples(st.just("refusal"), pieces),
    st.tuples(st.just("reasoning_summary"), pieces),
    st.tuples(st.just("reasoning_text"), pieces),
    st.tuples(st.just("encrypted"), pieces),
    st.tuples(st.just("call"), pieces),
    st.tuples(st.just("arguments"), pieces),
    st.tuples(st.just("annotation"), st.just(CITATION)),
    st.tuples(st.just("item"), st.just(wire.user("x"))),
    *(
        st.tuples(st.just(name))
        for name in ("start", "message", "reasoning", "end_summary", "close")
    ),
)
ends = st.sampled_from([("complete",), ("incomplete", "max_output_tokens"), ("fail", ERROR)])


@given(st.lists(steps, max_size=25), ends)
def test_any_order_of_calls_gives_a_stream_in_order(
    said: list[tuple[Any, ...]], end: tuple[Any, ...]
) -> None:
    emit = emitter()
    events: list[wire.StreamEvent] = []
    for name, *arguments in [*said, end]:
        try:
            events += getattr(emit, name)(*arguments)
        except ConfigError:
            assert name == "arguments"
    check_stream(events)
    last = events[-1]
    assert isinstance(last, TerminalEvent)
    made, relayed = Fold(), Fold()
    for event in events[:-1]:
        made.feed(event)
        relayed.feed(wire.decode_event(wire.encode(event)))
    if last.response.status != "failed":  # an item that stays open is in progress until the end
        assert made.response().output == last.response.output
        texts = [joined(item) for item in relayed.response().output]
        assert texts == [joined(item) for item in last.response.output]
    assert len(made.response().output) == len(last.response.output)


def joined(item: wire.Item) -> str:
    return wire.encode(item).decode()


# --- the checker itself --------------------------------------------------------------------------


def good_stream() -> list[wire.StreamEvent]:
    emit = emitter()
    made = [*emit.reasoning_summary("s"), *emit.end_summary(), *emit.reasoning_text("t")]
    made += [*emit.text("a"), *emit.refusal("b"), *emit.call("f", "c"), *emit.arguments("{}")]
    return [*made, *emit.complete()]


def numbered(events: list[wire.StreamEvent]) -> list[wire.StreamEvent]:
    fresh = []
    for number, event in enumerate(events):
        members = {**json.loads(wire.encode(event)), "sequence_number": number}
        fresh.append(wire.decode_event(json.dumps(members)))
    return fresh


def test_leaving_out_any_event_but_a_progress_report_or_delta_is_noticed() -> None:
    good = good_stream()
    check_stream(good)
    for left_out, event in enumerate(good):
        rest = numbered(good[:left_out] + good[left_out + 1 :])
        if event.type in {"response.in_progress", "response.function_call_arguments.done"}:
            continue
        with pytest.raises(AssertionError):
            check_stream(rest)


def is_in_order(events: list[wire.StreamEvent]) -> bool:
    try:
        check_stream(numbered(events))
    except AssertionError:
        return False
    return True


def test_swapping_two_neighbours_is_noticed() -> None:
    good = good_stream()
    free = [
        (one.type, other.type)
        for at, (one, other) in enumerate(pairwise(good))
        if is_in_order([*good[:at], other, one, *good[at + 2 :]])
    ]
    assert free == [
        ("response.in_progress", "response.output_item.added"),
        # a thought and its summary may be told side by side
        ("response.reasoning_summary_part.done", "response.reasoning.delta"),
    ]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda events: [], "no terminal event"),
        (lambda events: events[1:], "sequence_number"),
        (lambda events: numbered(events[1:]), "first event"),
        (lambda events: numbered([*events, *events[1:2]]), "nothing may follow"),
        (lambda events: numbered([*events[:2], emitter().fail(ERROR)[-2], *events[2:]]), "failed"),
        (lambda events: numbered([*events[:2], events[0], *events[2:]]), "only it"),
        (lambda events: [*events[:-1], wire.decode_event(b'{"type":"x"}')], "sequence_number"),
    ],
)
def test_a_broken_rule_is_named(
    change: Callable[[list[wire.StreamEvent]], list[wire.StreamEvent]], rule: str
) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_stream(change(good_stream()))


def test_events_of_unknown_types_may_stand_in_between() -> None:
    good = good_stream()
    ping = wire.decode_event('{"type":"acme:ping","sequence_number":0,"x":1}')
    check_stream(numbered([*good[:4], ping, *good[4:]]))
