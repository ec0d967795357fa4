"""Answers of Converse that nobody recorded: cut, filtered, failed, odd."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from perdure.errors import (
    BadBody,
    DecodeError,
    EmptyBody,
    FrameTooLarge,
    InvalidInput,
    Overloaded,
    RateLimited,
    Rejected,
    ServerFailed,
    Truncated,
)
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models.bedrock import StreamDecoder, request_body, response
from perdure.models.http.failures import failure
from perdure.wire import (
    FunctionCall,
    Message,
    OutputText,
    OutputTextDelta,
    Reasoning,
    Request,
    Response,
    StreamEvent,
    UnknownItem,
    UrlCitation,
    text_of,
)
from tests.models.bedrock.streams import (
    closed,
    delta,
    framed,
    message,
    opened,
    start,
    stop,
    text,
    tool,
)
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

pytest.importorskip("botocore")

CLAUDE = "anthropic.claude-x"


def decoder(limit: int | None = None, model: str = CLAUDE) -> StreamDecoder:
    settings = Request(model=model, max_output_tokens=limit)
    return StreamDecoder(
        ModelRequest(settings=settings, input=Items.of([])), ids=Count(), clock=CLOCK
    )


def events_of(stream: bytes, limit: int | None = None) -> list[StreamEvent]:
    return whole(decoder(limit), stream)


def answer(stream: bytes, limit: int | None = None) -> Response:
    return folded(events_of(stream, limit))


def sent_back(got: Response) -> list[dict[str, Any]]:
    request = ModelRequest(settings=Request(model=CLAUDE), input=Items.of(got.output))
    body: Any = request_body(request).value()
    blocks: list[dict[str, Any]] = body["messages"][0]["content"]
    return blocks


def feed_bytes(one: StreamDecoder, stream: bytes) -> None:
    for at in range(len(stream)):
        one.feed(stream[at : at + 1])


# --- blocks ---------------------------------------------------------------------------------


def test_text_blocks_are_parts_of_one_message_and_empty_ones_are_none() -> None:
    stream = start() + text(0, "") + text(1, "a", "", "b") + closed(2) + text(3, "c") + stop()
    got = answer(stream)
    item = got.output[0]
    assert isinstance(item, Message)
    assert [p.text for p in item.content if isinstance(p, OutputText)] == ["ab", "c"]
    assert sent_back(got) == [{"text": "ab"}, {"text": "c"}]


WEB = {"title": "X", "location": {"web": {"url": "https://x", "domain": "x"}}}
PAGE = {"title": "Y", "location": {"documentPage": {"documentIndex": 0, "start": 1, "end": 2}}}


def test_cited_text_goes_back_as_the_block_it_was() -> None:
    cited = delta(0, {"text": "ab"}) + delta(0, {"citation": WEB}) + delta(0, {"citation": PAGE})
    block = {"citationsContent": {"content": [{"text": "ab"}], "citations": [WEB, PAGE]}}
    body = {"output": {"message": {"content": [block]}}, "stopReason": "end_turn"}
    whole_body = response(json.dumps(body).encode(), ids=Count(), clock=CLOCK)
    for got in (answer(start() + cited + closed(0) + stop()), whole_body):
        item = got.output[0]
        assert isinstance(item, Message)
        part = item.content[0]
        assert isinstance(part, OutputText)
        first, second = part.annotations or (None, None)
        assert isinstance(first, UrlCitation)
        assert (first.url, first.title, first.end_index) == ("https://x", "X", 2)
        assert second is not None
        assert second.type == "bedrock:citation"
        assert sent_back(got) == [block]


def thought(index: int, *deltas: dict[str, str]) -> bytes:
    return b"".join(delta(index, {"reasoningContent": one}) for one in deltas) + closed(index)


def test_a_thought_keeps_its_text_and_its_signature() -> None:
    stream = start() + thought(0, {"text": "h"}, {"text": "m"}, {"signature": "sig"})
    stream += thought(1, {"text": ""}, {"signature": "s2"}) + thought(
        2, {"redactedContent": "eA=="}
    )
    got = answer(stream + thought(3, {"text": "unsigned"}) + text(4, "a") + stop())
    assert kinds(got) == "reasoning reasoning reasoning reasoning message"
    assert sent_back(got) == [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}},
        {"reasoningContent": {"reasoningText": {"text": "", "signature": "s2"}}},
        {"reasoningContent": {"redactedContent": "eA=="}},
        {"text": "a"},
    ]


@pytest.mark.parametrize(("model", "summary"), [(CLAUDE, "hm"), ("us.deepseek.r1-v1:0", "")])
def test_claude_summarizes_and_others_show_what_they_think(model: str, summary: str) -> None:
    stream = start() + thought(0, {"text": "hm"}) + text(1, "a") + stop()
    got = folded(whole(decoder(model=model), stream)).output[0]
    assert isinstance(got, Reasoning)
    assert text_of(got.summary) == summary
    assert text_of(got.content or ()) == ("" if summary else "hm")


def test_arguments_come_as_they_are_and_none_are_an_empty_object() -> None:
    stream = start() + tool(0, '{"x": ', "1.50}") + tool(1) + tool(2, type="tool_use")
    got = answer(stream + stop("tool_use"))
    assert [i.arguments for i in got.output if isinstance(i, FunctionCall)] == [
        '{"x": 1.50}',
        "{}",
        "{}",
    ]


def test_a_call_the_api_makes_itself_is_an_item_that_goes_back_whole() -> None:
    own = tool(0, '{"snippet": ', '"1"}', type="server_tool_use")
    result = {"toolUseId": "tooluse_0", "type": "nova_result", "status": "success"}
    given = [{"json": {"n": 1.5}}, {"text": "a"}]
    stream = start() + own + opened(1, {"toolResult": result})
    stream += b"".join(delta(1, {"toolResult": [one]}) for one in given) + closed(1)
    stream += opened(2, {"image": {"format": "png"}})
    stream += delta(2, {"image": {"source": {"bytes": "AA=="}}}) + closed(2)
    got = answer(stream + text(3, "a") + stop())
    assert kinds(got) == "bedrock:toolUse bedrock:toolResult bedrock:image message"
    first = got.output[0]
    assert isinstance(first, UnknownItem)
    assert first.id == "tooluse_0"
    blocks = sent_back(got)
    assert blocks[0]["toolUse"] == {
        "toolUseId": "tooluse_0",
        "name": "f",
        "type": "server_tool_use",
        "input": {"snippet": "1"},
    }
    assert blocks[1]["toolResult"] == {**result, "content": given}
    assert blocks[2]["image"]["format"] == "png"


# --- ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        ("end_turn", "completed"),
        ("stop_sequence", "completed"),
        ("max_tokens", "incomplete:max_output_tokens"),
        ("model_context_window_exceeded", "incomplete:max_output_tokens"),
        ("guardrail_intervened", "incomplete:content_filter"),
        ("content_filtered", "incomplete:content_filter"),
        ("malformed_tool_use", "failed"),
        ("malformed_model_output", "failed"),
        ("something_new", "incomplete:something_new"),
    ],
)
def test_why_it_stopped_says_whether_it_is_an_answer(reason: str, wanted: str) -> None:
    got = answer(start() + text(0, "a") + stop(reason))
    assert end_of(got) == wanted


def test_a_call_that_was_cut_is_incomplete_and_the_one_before_is_not() -> None:
    got = answer(start() + tool(0, '{"a":1}') + tool(1, '{"a":') + stop("max_tokens"))
    calls = [item for item in got.output if isinstance(item, FunctionCall)]
    assert [call.status for call in calls] == ["completed", "incomplete"]


@pytest.mark.parametrize(
    ("tokens", "wanted"), [(100, "incomplete:max_output_tokens"), (99, "completed")]
)
def test_calls_of_an_answer_that_used_all_its_tokens_count_as_cut(tokens: int, wanted: str) -> None:
    stream = start() + tool(0, '{"a":1}') + stop("tool_use", tokens)
    assert end_of(answer(stream, limit=100)) == wanted


def test_stopping_for_calls_without_one_is_a_failure() -> None:
    got = answer(start() + text(0, "a") + stop("tool_use"))
    assert got.error
    assert got.error.code == "no_calls"


def test_usage_adds_up() -> None:
    told = stop(cacheReadInputTokens=10, cacheWriteInputTokens=20)
    assert usage_of(answer(start() + text(0, "a") + told)) == (35, 10, 20, 9, 0)


def test_an_answer_is_not_whole_before_its_usage_has_come() -> None:
    one = decoder()
    one.feed(start() + text(0, "a") + message("messageStop", {"stopReason": "end_turn"}))
    assert not one.finished
    assert type(one.end().error) is Truncated


# --- what goes wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("throttlingException", RateLimited),
        ("serviceUnavailableException", Overloaded),
        ("internalServerException", ServerFailed),
        ("modelStreamErrorException", ServerFailed),
        ("validationException", InvalidInput),
    ],
)
@pytest.mark.parametrize("before", [b"", start(), start() + delta(0, {"text": "a"})])
def test_an_exception_in_the_stream_fails_the_response(
    name: str, cls: type[Rejected], before: bytes
) -> None:
    got = answer(before + message(name, {"message": "busy"}, "exception"))
    assert got.error
    error = failure(got.error)
    assert type(error) is cls
    assert (error.message, error.code) == ("busy", name)


GOOD = text(0, "a")
BAD = {
    "a delta of another block": start() + delta(0, {"text": "a"}) + delta(1, {"text": "b"}),
    "a delta after its block": start() + GOOD + delta(0, {"text": "a"}),
    "a block inside another": start() + delta(0, {"text": "a"}) + opened(1, {"toolUse": {}}),
    "a block again": start() + GOOD + opened(0, {"toolUse": {"toolUseId": "x", "name": "f"}}),
    "a stop of none": start() + GOOD + closed(0),
    "a delta of another kind": start()
    + delta(0, {"text": "a"})
    + delta(0, {"toolUse": {"input": "{}"}}),
    "an end inside a block": start()
    + delta(0, {"text": "a"})
    + message("messageStop", {"stopReason": "end_turn"}),
    "no reason to stop": start() + GOOD + stop(None),
    "negative counts": start() + GOOD + stop(tokens=-1),
    "a member of the wrong type": start()
    + message("contentBlockDelta", {"contentBlockIndex": "0"}),
    "a wrong checksum": start() + GOOD[:-1] + b"x",
    "a wrong length": start() + b"\x00\x00\x00\x01" + GOOD,
    "no headers": start() + framed(b"\x01", b"{}"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_comes_out_of_order_is_no_answer(name: str) -> None:
    one = decoder()
    with pytest.raises(DecodeError):
        feed_bytes(one, BAD[name] + stop())
    assert isinstance(one.end().error, BadBody)
    with pytest.raises(DecodeError):
        one.feed(b"x")


def test_a_bad_message_loses_none_of_the_events_before_it() -> None:
    one = decoder()
    events = one.feed(start() + GOOD[:-1] + b"x")
    assert [type(e).__name__ for e in events][:2] == ["ResponseCreated", "ResponseInProgress"]
    assert one.failure is None  # the parser says it with the next bytes
    with pytest.raises(DecodeError):
        one.feed(b"x")


def test_a_message_beyond_the_limit_is_refused() -> None:
    one = StreamDecoder(frame_limit=1000)
    with pytest.raises(FrameTooLarge):
        one.feed((2000).to_bytes(4) + b"x" * 20)
    assert isinstance(one.end().error, BadBody)


def test_events_nobody_knows_are_passed_over() -> None:
    future = message("contentBlockPondered", {"mood": "good"})
    assert kinds(answer(start() + future + GOOD + stop())) == "message"


def test_what_follows_the_end_is_not_looked_at() -> None:
    one = decoder()
    events = one.feed(start() + GOOD + stop() + text(1, "b"))
    assert kinds(folded(events)) == "message"
    assert one.feed(b"nonsense") == []
    assert one.end() == ([], None)


def test_every_cut_of_a_stream_with_everything_in_it() -> None:
    stream = start() + thought(0, {"text": "h"}, {"signature": "s"}) + text(1, "a")
    stream += tool(2, '{"x":', "1}") + stop("tool_use")
    assert check_every_cut(decoder(), stream, events_of(stream)) == len(stream)


def test_a_copy_goes_its_own_way() -> None:
    one = decoder()
    one.feed(start() + delta(0, {"text": "a"})[:20])
    twin = one.copy()
    rest = delta(0, {"text": "a"})[20:]
    first = twin.feed(rest + delta(0, {"text": "b"}) + closed(0) + stop())
    second = one.feed(rest + closed(0) + stop())
    assert [e.response.output_text for e in (first[-1], second[-1])] == ["ab", "a"]  # type: ignore[union-attr]
    assert [len([e for e in es if isinstance(e, OutputTextDelta)]) for es in (first, second)] == [
        2,
        1,
    ]


WHOLE = json.dumps({"output": {"message": {"content": []}}, "stopReason": "end_turn"}).encode()


@pytest.mark.parametrize(
    ("body", "cls"),
    [
        (b"", EmptyBody),
        (WHOLE[:-5], Truncated),
        (b"<html>Bad gateway</html>", BadBody),
        (b"{}", BadBody),
        (b'{"message":"busy"}', BadBody),
        (b'{"output":{"message":{"content":[]}}}', BadBody),
    ],
)
def test_a_body_that_is_no_answer_says_what_it_is(body: bytes, cls: type[Exception]) -> None:
    check_refused_body(body, cls, decoder(), response)


LAZY = """
import sys
import perdure.models.bedrock as bedrock
assert not [name for name in sys.modules if name.startswith(("botocore", "aiohttp", "yarl"))]
sys.modules["botocore"] = None
from perdure.errors import ConfigError
try:
    bedrock.StreamDecoder()
except ConfigError as error:
    assert "perdure[bedrock]" in str(error)
else:
    raise AssertionError
bedrock.response(b'{"output":{"message":{"content":[]}},"stopReason":"end_turn"}')
"""


def test_botocore_is_loaded_when_it_is_needed_and_missed_with_a_hint() -> None:
    subprocess.run([sys.executable, "-c", LAZY], check=True)
