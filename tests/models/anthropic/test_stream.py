"""Answers of the Messages API that nobody recorded: cut, filtered, failed, odd."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.errors import (
    BadBody,
    DecodeError,
    EmptyBody,
    FrameTooLarge,
    Overloaded,
    RateLimited,
    Rejected,
    ServerFailed,
    Truncated,
)
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models.anthropic import StreamDecoder, request_body, response
from perdure.models.http.failures import failure
from perdure.wire import (
    FunctionCall,
    FunctionCallArgumentsDelta,
    Message,
    OutputText,
    OutputTextDelta,
    Reasoning,
    Request,
    Response,
    ResponseFailed,
    StreamEvent,
    UnknownAnnotation,
    UnknownItem,
    UrlCitation,
)
from tests.models.anthropic.streams import block, frame, start, stop, text, tool
from tests.models.recorded import (
    CLOCK,
    Count,
    check_every_cut,
    check_refused_body,
    end_of,
    folded,
    kinds,
    usage_of,
    whole,
)


def decoder(limit: int | None = None) -> StreamDecoder:
    settings = Request(model="claude-x", max_output_tokens=limit)
    return StreamDecoder(
        ModelRequest(settings=settings, input=Items.of([])), ids=Count(), clock=CLOCK
    )


def events_of(stream: bytes, limit: int | None = None) -> list[StreamEvent]:
    return whole(decoder(limit), stream)


def feed_bytes(one: StreamDecoder, stream: bytes) -> None:
    for at in range(len(stream)):
        one.feed(stream[at : at + 1])


def answer(stream: bytes, limit: int | None = None) -> Response:
    return folded(events_of(stream, limit))


def arguments(got: Response) -> list[str]:
    return [item.arguments for item in got.output if isinstance(item, FunctionCall)]


# --- blocks ---------------------------------------------------------------------------------


def test_text_blocks_are_parts_of_one_message_with_their_citations() -> None:
    cited = {"type": "web_search_result_location", "url": "https://x", "title": None}
    where = {"type": "char_location", "document_index": 0, "start_char_index": 1}
    deltas: list[dict[str, Any]] = [
        {"type": "citations_delta", "citation": cited},
        {"type": "text_delta", "text": "b\N{SNOWMAN}"},
        {"type": "citations_delta", "citation": where},
    ]
    content = {"type": "text", "text": "", "citations": []}
    got = answer(start() + text(0, "a", "b") + block(1, content, *deltas) + text(2, "c") + stop())
    message = got.output[0]
    assert isinstance(message, Message)
    assert [part.text for part in message.content if isinstance(part, OutputText)] == [
        "ab",
        "b\N{SNOWMAN}",
        "c",
    ]
    part = message.content[1]
    assert isinstance(part, OutputText)
    assert part.annotations
    first, second = part.annotations
    assert isinstance(first, UrlCitation)
    assert (first.url, first.title, first.start_index, first.end_index) == ("https://x", "", 0, 2)
    assert isinstance(second, UnknownAnnotation)
    assert second.type == "anthropic:char_location"
    assert sent_back(got)[1]["citations"] == [cited, where]


def sent_back(got: Response) -> list[dict[str, Any]]:
    request = ModelRequest(settings=Request(model="m"), input=Items.of(got.output))
    body: Any = request_body(request).value()
    blocks: list[dict[str, Any]] = body["messages"][0]["content"]
    return blocks


def test_a_thought_keeps_its_text_and_its_signature() -> None:
    deltas = [
        {"type": "thinking_delta", "thinking": "h"},
        {"type": "thinking_delta", "thinking": "m"},
        {"type": "signature_delta", "signature": "si"},
        {"type": "signature_delta", "signature": "g"},
    ]
    empty = {"type": "thinking", "thinking": "", "signature": ""}
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    stream = (
        start() + block(0, empty, *deltas) + block(1, empty, deltas[2]) + block(2, hidden)
    ) + text(3, "a")
    got = answer(stream + stop())
    assert kinds(got) == "reasoning reasoning reasoning message"
    thoughts = [item for item in got.output if isinstance(item, Reasoning)]
    assert [t.encrypted_content for t in thoughts] == ["sig", "si", "xyz"]
    assert [t.unknown["perdure:provider"] for t in thoughts] == ["anthropic"] * 3
    assert sent_back(got)[:3] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "thinking", "thinking": "", "signature": "si"},
        hidden,
    ]


def test_arguments_come_as_they_are_and_none_are_an_empty_object() -> None:
    stream = (
        start() + tool(0, "", '{"x": ', "1.50}") + tool(1, "") + tool(2) + tool(3, input={"y": 1})
    )
    events = events_of(stream + stop("tool_use"))
    got = folded(events)
    assert arguments(got) == ['{"x": 1.50}', "{}", "{}", '{"y": 1}']
    assert [e.delta for e in events if isinstance(e, FunctionCallArgumentsDelta)][:2] == [
        '{"x": ',
        "1.50}",
    ]


def test_who_called_is_kept_unless_it_is_the_model_itself() -> None:
    program = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
    stream = start() + tool(0, caller=program) + tool(1, caller={"type": "direct"})
    got = answer(stream + stop("tool_use"))
    blocks = sent_back(got)
    assert [b.get("caller") for b in blocks] == [program, None]


def test_a_block_nobody_knows_is_an_item_that_goes_back_whole() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    piece = [{"type": "input_json_delta", "partial_json": p} for p in ('{"q":', " 1.50}")]
    folding = {"type": "compaction", "content": None}
    deltas = [{"type": "compaction_delta", "content": c} for c in ("a", "b")]
    future = {"type": "hologram", "data": [1.50]}
    stream = start() + block(0, search, *piece) + block(1, folding, *deltas) + block(2, future)
    got = answer(stream + text(3, "a") + stop())
    assert kinds(got) == "anthropic:server_tool_use anthropic:compaction anthropic:hologram message"
    first = got.output[0]
    assert isinstance(first, UnknownItem)
    assert (first.id, first.status) == ("s1", "completed")
    assert sent_back(got) == [
        {**search, "input": {"q": 1.5}},
        {"type": "compaction", "content": "ab"},
        future,
        {"type": "text", "text": "a"},
    ]
    assert b'{"q": 1.50}' in first.source.raw


def test_a_block_that_was_cut_keeps_its_input_as_text() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    got = answer(
        start()
        + block(0, search, {"type": "input_json_delta", "partial_json": '{"q": "a'})
        + stop("max_tokens")
    )
    item = got.output[0]
    assert isinstance(item, UnknownItem)
    value: Any = item.source.value()
    assert value["block"]["input"] == '{"q": "a'


def test_events_nobody_knows_are_passed_over() -> None:
    future = frame({"type": "content_block_pondered", "index": 7, "mood": "good"})
    assert kinds(answer(start() + future + text(0, "a") + future + stop())) == "message"


def test_half_a_character_waits_for_the_other_half() -> None:
    delta = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%b"}}'
    halves = b"".join(b"data: " + delta % half + b"\n\n" for half in (b"a\\ud83d", b"\\ude00b"))
    opened = frame({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}})
    closed = frame({"type": "content_block_stop", "index": 0})
    assert answer(start() + opened + halves + closed + stop()).output_text == "a\N{GRINNING FACE}b"


def test_an_answer_without_content_has_no_items() -> None:
    assert answer(start() + stop()).output == ()


# --- ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        ("end_turn", "completed"),
        ("stop_sequence", "completed"),
        ("max_tokens", "incomplete:max_output_tokens"),
        ("model_context_window_exceeded", "incomplete:max_output_tokens"),
        ("refusal", "incomplete:content_filter"),
        ("pause_turn", "incomplete:pause_turn"),
        ("compaction", "incomplete:compaction"),
        ("something_new", "incomplete:something_new"),
    ],
)
def test_why_it_stopped_says_whether_it_is_an_answer(reason: str, wanted: str) -> None:
    got = answer(start() + text(0, "a") + stop(reason))
    assert end_of(got) == wanted
    own: Any = got.unknown["perdure:anthropic"]
    assert own["stop_reason"] == reason


def test_what_is_said_of_a_refusal_is_kept() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "No."}
    own: Any = answer(start() + stop("refusal", stop_details=details)).unknown["perdure:anthropic"]
    assert own["stop_details"] == details


def test_a_call_that_was_cut_is_incomplete_and_the_one_before_is_not() -> None:
    stream = start() + tool(0, '{"path":"a"}') + tool(1, '{"path":"a')
    got = answer(stream + stop("max_tokens"))
    assert end_of(got) == "incomplete:max_output_tokens"
    calls = [item for item in got.output if isinstance(item, FunctionCall)]
    assert [call.status for call in calls] == ["completed", "incomplete"]


@pytest.mark.parametrize(
    ("tokens", "reason", "wanted"),
    [
        (100, "tool_use", "incomplete:max_output_tokens"),
        (99, "tool_use", "completed"),
        (100, "end_turn", "incomplete:max_output_tokens"),
    ],
)
def test_calls_of_an_answer_that_used_all_its_tokens_count_as_cut(
    tokens: int, reason: str, wanted: str
) -> None:
    got = answer(start() + tool(0, '{"path":"a"}') + stop(reason, tokens), limit=100)
    assert end_of(got) == wanted
    assert end_of(answer(start() + text(0, "a") + stop("end_turn", 100), limit=100)) == "completed"


def test_stopping_for_calls_without_one_is_a_failure() -> None:
    got = answer(start() + text(0, "a") + stop("tool_use"))
    assert end_of(got) == "failed"
    assert got.error
    assert got.error.code == "no_calls"


def test_usage_adds_up_and_later_counts_replace_earlier_ones() -> None:
    told = {
        "cache_read_input_tokens": 10,
        "cache_creation_input_tokens": 20,
        "cache_creation": {"ephemeral_1h_input_tokens": 15},
    }
    got = answer(start(**told) + text(0, "a") + stop(tokens=9))
    assert usage_of(got) == (35, 10, 20, 9, 0)
    assert got.usage
    assert got.usage.input_tokens_details
    assert got.usage.input_tokens_details.cache_creation_1h_tokens == 15


def test_negative_counts_are_refused() -> None:
    one = decoder()
    with pytest.raises(DecodeError, match="malformed"):
        feed_bytes(one, start() + text(0, "a") + stop(tokens=-1))
    assert isinstance(one.end().error, BadBody)


def test_usage_that_never_came_is_unknown() -> None:
    one = decoder()
    events = one.feed(start() + text(0, "a"))
    assert type(one.end().error) is Truncated
    assert all(getattr(e, "response", None) is None or not e.response.usage for e in events)  # type: ignore[union-attr]
    message = {"type": "message", "content": [], "stop_reason": "end_turn"}
    assert response(json.dumps(message).encode()).usage is None


# --- what goes wrong ------------------------------------------------------------------------


def fault(kind: str, message: str = "busy", **members: Any) -> bytes:
    return frame({"type": "error", "error": {"type": kind, "message": message, **members}})


@pytest.mark.parametrize(
    ("kind", "cls"),
    [
        ("overloaded_error", Overloaded),
        ("rate_limit_error", RateLimited),
        ("api_error", ServerFailed),
        ("timeout_error", ServerFailed),
    ],
)
@pytest.mark.parametrize("before", [b"", start(), start() + text(0, "a")])
def test_an_error_in_the_stream_fails_the_response(
    kind: str, cls: type[Rejected], before: bytes
) -> None:
    events = events_of(before + fault(kind))
    assert isinstance(events[-1], ResponseFailed)
    got = folded(events)
    assert got.error
    error = failure(got.error)
    assert type(error) is cls
    assert error.message == "busy"
    if before:
        assert usage_of(got) == (5, 0, 0, 1, 0)


DELTA = {"type": "text_delta", "text": "a"}
OPEN = frame({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}})
BAD = {
    "a delta before its block": start()
    + frame({"type": "content_block_delta", "index": 0, "delta": DELTA}),
    "a delta after its block": start()
    + text(0, "a")
    + frame({"type": "content_block_delta", "index": 0, "delta": DELTA}),
    "a delta of another block": start()
    + OPEN
    + frame({"type": "content_block_delta", "index": 1, "delta": DELTA}),
    "a block inside another": start() + OPEN + OPEN,
    "a block out of order": start() + text(1, "a"),
    "a delta of another kind": start()
    + OPEN
    + frame(
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": "a"},
        }
    ),
    "a second start": start() + start(),
    "a stop without a reason": start() + text(0, "a") + stop(None),
    "a stop without a delta": start() + text(0, "a") + frame({"type": "message_stop"}),
    "an end inside a block": start() + OPEN + stop(),
    "a member of the wrong type": start() + OPEN.replace(b'"index": 0', b'"index": "0"'),
    "nonsense": start() + b"data: {nonsense\n\n",
}


@pytest.mark.parametrize("name", BAD)
def test_what_comes_out_of_order_is_no_answer(name: str) -> None:
    one = decoder()
    with pytest.raises(DecodeError):
        feed_bytes(one, BAD[name] + stop())
    assert isinstance(one.end().error, BadBody)
    with pytest.raises(DecodeError):
        one.feed(b"")


def test_a_bad_frame_loses_none_of_the_events_before_it() -> None:
    one = decoder()
    events = one.feed(start() + text(0, "a") + b"data: {nonsense\n\n")
    assert [e.delta for e in events if isinstance(e, OutputTextDelta)] == ["a"]
    assert one.failure is not None


def test_what_follows_the_end_is_not_looked_at() -> None:
    one = decoder()
    events = one.feed(start() + text(0, "a") + stop() + text(1, "b"))
    assert kinds(folded(events)) == "message"
    assert one.feed(b"data: {nonsense\n\n") == []
    assert one.end() == ([], None)


def test_every_cut_of_a_stream_with_everything_in_it() -> None:
    stream = start() + text(0, "a", "\N{GRINNING FACE}") + tool(1, '{"x":', "1}") + stop("tool_use")
    stream = stream.replace(b"\n", b"\r\n")
    assert check_every_cut(decoder(), stream, events_of(stream)) == len(stream) - 4


def test_a_frame_beyond_the_limit_is_refused() -> None:
    one = StreamDecoder(frame_limit=100)
    with pytest.raises(FrameTooLarge):
        one.feed(b"data: " + b"x" * 200)


def test_a_copy_goes_its_own_way() -> None:
    one = decoder()
    one.feed(start() + OPEN)
    twin = one.copy()
    rest = frame({"type": "content_block_delta", "index": 0, "delta": DELTA})
    more = frame({"type": "content_block_stop", "index": 0}) + stop()
    first = twin.feed(rest + rest + more)
    second = one.feed(rest + more)
    assert [len([e for e in es if isinstance(e, OutputTextDelta)]) for es in (first, second)] == [
        2,
        1,
    ]
    ids = [e.response.output[0].id for e in (first[-1], second[-1])]  # type: ignore[union-attr]
    assert ids[0] == ids[1]


# --- JSON bodies ----------------------------------------------------------------------------

WHOLE = json.dumps({"type": "message", "content": [], "stop_reason": "end_turn"}).encode()


@pytest.mark.parametrize(
    ("body", "cls"),
    [
        (b"", EmptyBody),
        (b" \n", EmptyBody),
        (WHOLE[:-5], Truncated),
        (b"<html>Bad gateway</html>", BadBody),
        (b"[]", BadBody),
        (b"{}", BadBody),
        (b'{"type":"message","content":[]}', BadBody),
        (b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}', Overloaded),
    ],
)
def test_a_body_that_is_no_message_says_what_it_is(body: bytes, cls: type[Exception]) -> None:
    check_refused_body(body, cls, decoder(), response)
