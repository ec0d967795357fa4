"""Answers of Gemini that nobody recorded: cut, filtered, failed, odd."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.errors import (
    BadBody,
    DecodeError,
    EmptyBody,
    Overloaded,
    RateLimited,
    Rejected,
    Truncated,
)
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models.gemini import StreamDecoder, request_body, response
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
    UrlCitation,
)
from tests.models.gemini.streams import call, frame, text
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
    settings = Request(model="gemini-x", max_output_tokens=limit)
    return StreamDecoder(
        ModelRequest(settings=settings, input=Items.of([])), ids=Count(), clock=CLOCK
    )


def events_of(stream: bytes, limit: int | None = None) -> list[StreamEvent]:
    return whole(decoder(limit), stream)


def answer(stream: bytes, limit: int | None = None) -> Response:
    return folded(events_of(stream, limit))


def sent_back(got: Response) -> list[dict[str, Any]]:
    request = ModelRequest(settings=Request(model="gemini-3-x"), input=Items.of(got.output))
    body: Any = request_body(request).value()
    parts: list[dict[str, Any]] = body["contents"][1]["parts"]
    return parts


# --- parts ----------------------------------------------------------------------------------


def test_text_in_pieces_is_one_part_and_signed_text_one_of_its_own() -> None:
    stream = frame(text("a")) + frame(text(""), text("b")) + frame(text("c", "s1"), text("d"))
    got = answer(stream + frame(text("", "s2"), reason="STOP"))
    message = got.output[0]
    assert isinstance(message, Message)
    assert [part.text for part in message.content if isinstance(part, OutputText)] == [
        "ab",
        "c",
        "d",
        "",
    ]
    assert sent_back(got) == [text("ab"), text("c", "s1"), text("d"), text("", "s2")]


def test_thoughts_are_thoughts_and_marked_with_their_maker() -> None:
    hm = {"text": "hm", "thought": True}
    signed = {"text": "so", "thought": True, "thoughtSignature": "s"}
    got = answer(frame(hm) + frame(hm, signed) + frame(hm, text("a"), reason="STOP"))
    assert kinds(got) == "reasoning reasoning message"
    thoughts = [item for item in got.output if isinstance(item, Reasoning)]
    assert [t.unknown["perdure:provider"] for t in thoughts] == ["gemini"] * 2
    assert thoughts[0].encrypted_content == "s"
    assert sent_back(got) == [
        {"text": "hmhmso", "thought": True, "thoughtSignature": "s"},
        hm,
        text("a"),
    ]


def test_calls_have_the_ids_that_the_api_gives_or_chance_ones() -> None:
    stream = frame(call(args={"x": 1}, signature="s", id="c1"), call(), call(), reason="STOP")
    got = answer(stream)
    calls = [item for item in got.output if isinstance(item, FunctionCall)]
    ids = [item.call_id for item in calls]
    assert ids[0] == "c1"
    assert len(set(ids)) == 3
    assert [item.arguments for item in calls] == ['{"x": 1}', "{}", "{}"]
    assert [part.get("thoughtSignature") for part in sent_back(got)] == ["s", None, None]
    other = folded(whole(StreamDecoder(clock=CLOCK), stream))
    again = [item.call_id for item in other.output if isinstance(item, FunctionCall)]
    assert not set(ids[1:]) & set(again[1:])


def test_arguments_keep_their_bytes() -> None:
    stream = frame(call(args={"x": 1}), reason="STOP").replace(b'"x": 1', b'"x": 1.50')
    got = answer(stream)
    assert [i.arguments for i in got.output if isinstance(i, FunctionCall)] == ['{"x": 1.50}']


def test_a_part_nobody_knows_is_an_item_that_goes_back_whole() -> None:
    drawn = {"inlineData": {"mimeType": "image/png", "data": "AA=="}, "thoughtSignature": "s"}
    odd = {"text": "a", "videoMetadata": {"fps": 1}, "thoughtSignature": "t"}
    got = answer(frame(drawn) + frame(odd, text("b"), reason="STOP"))
    assert kinds(got) == "gemini:inlineData message"
    assert sent_back(got) == [drawn, odd, text("b")]


GROUNDING = {
    "groundingChunks": [
        {"web": {"uri": "https://x", "title": "X"}},
        {"retrievedContext": {"text": "t"}},
    ],
    "groundingSupports": [
        {"segment": {"startIndex": 3, "endIndex": 5, "text": "bc"}, "groundingChunkIndices": [0]},
        {
            "segment": {"startIndex": 0, "endIndex": 1, "text": "bc"},
            "groundingChunkIndices": [1, 9],
        },
        {"segment": {"text": "zz"}, "groundingChunkIndices": [0]},
    ],
}


@pytest.mark.parametrize("last", [[], [text("", "s")]])
def test_what_text_rests_on_is_cited_by_characters(last: list[dict[str, Any]]) -> None:
    grounded = {"candidate": {"groundingMetadata": GROUNDING}}
    got = answer(frame(text("\N{SNOWMAN}b")) + frame(text("c"), *last, reason="STOP", **grounded))
    message = got.output[0]
    assert isinstance(message, Message)
    part = message.content[0]
    assert isinstance(part, OutputText)
    assert part.text == "\N{SNOWMAN}bc"
    notes = part.annotations or ()
    spans = [(n.start_index, n.end_index) for n in notes if isinstance(n, UrlCitation)]
    assert [n.type for n in notes] == ["url_citation", "gemini:retrievedContext", "url_citation"]
    assert spans == [(1, 3), (0, 3)]
    own: Any = got.unknown["perdure:gemini"]
    assert own["groundingMetadata"] == GROUNDING


def test_half_a_character_is_replaced() -> None:
    stream = frame(text("a?b"), reason="STOP").replace(b"a?b", b"a\\ud83db")
    assert answer(stream).output_text == "a\ufffdb"


# --- ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        ("STOP", "completed"),
        ("MAX_TOKENS", "incomplete:max_output_tokens"),
        ("SAFETY", "incomplete:content_filter"),
        ("RECITATION", "incomplete:content_filter"),
        ("BLOCKLIST", "incomplete:content_filter"),
        ("PROHIBITED_CONTENT", "incomplete:content_filter"),
        ("SPII", "incomplete:content_filter"),
        ("IMAGE_SAFETY", "incomplete:content_filter"),
        ("MALFORMED_FUNCTION_CALL", "failed"),
        ("UNEXPECTED_TOOL_CALL", "failed"),
        ("OTHER", "failed"),
    ],
)
def test_why_it_ended_says_whether_it_is_an_answer(reason: str, wanted: str) -> None:
    told = {"candidate": {"finishMessage": "as told"}}
    got = answer(frame(text("a")) + frame(call(), reason=reason, **told))
    assert end_of(got) == wanted
    if wanted == "failed":
        assert got.error
        assert (got.error.code, got.error.message) == (reason, "as told")
    own: Any = got.unknown["perdure:gemini"]
    assert own["finishReason"] == reason


def test_a_prompt_that_is_blocked_gets_no_answer() -> None:
    blocked = {
        "promptFeedback": {"blockReason": "SAFETY"},
        "usageMetadata": {"promptTokenCount": 3},
    }
    got = answer(b"data: " + json.dumps(blocked).encode() + b"\n\n")
    assert end_of(got) == "incomplete:content_filter"
    assert usage_of(got) == (3, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("tokens", "wanted"), [(100, "incomplete:max_output_tokens"), (99, "completed")]
)
def test_calls_of_an_answer_that_used_all_its_tokens_count_as_cut(tokens: int, wanted: str) -> None:
    used = {"promptTokenCount": 1, "candidatesTokenCount": tokens - 9, "thoughtsTokenCount": 9}
    assert end_of(answer(frame(call(), reason="STOP", usageMetadata=used), limit=100)) == wanted
    said = frame(text("a"), reason="STOP", usageMetadata=used)
    assert end_of(answer(said, limit=100)) == "completed"


def test_usage_counts_thoughts_and_tools_once() -> None:
    told = {
        "promptTokenCount": 10,
        "cachedContentTokenCount": 4,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 7,
        "toolUsePromptTokenCount": 3,
    }
    earlier = {"promptTokenCount": 10, "candidatesTokenCount": 1}
    stream = frame(text("a"), usageMetadata=earlier) + frame(
        text("b"), reason="STOP", usageMetadata=told
    )
    assert usage_of(answer(stream)) == (13, 4, 0, 12, 7)
    assert answer(frame(text("a"), reason="STOP")).usage is None


# --- what goes wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status", "cls"),
    [(429, "RESOURCE_EXHAUSTED", RateLimited), (503, "UNAVAILABLE", Overloaded)],
)
@pytest.mark.parametrize("before", [b"", frame(text("a"))])
def test_an_error_in_the_stream_fails_the_response(
    code: int, status: str, cls: type[Rejected], before: bytes
) -> None:
    told = {"error": {"code": code, "status": status, "message": "busy"}}
    got = answer(before + b"data: " + json.dumps(told).encode() + b"\n\n")
    assert got.error
    error = failure(got.error)
    assert type(error) is cls
    assert error.message == "busy"


BAD = {
    "nonsense": b"data: {nonsense\n\n",
    "a second candidate": frame(text("a"), candidate={"index": 1}),
    "a call without a name": frame({"functionCall": {"args": {}}}),
    "text that is none": frame({"text": 1}),
    "parts that are none": b'data: {"candidates":[{"content":{"parts":[1]}}]}\n\n',
    "negative counts": frame(text("a"), reason="STOP", usageMetadata={"promptTokenCount": -1}),
}


@pytest.mark.parametrize("name", BAD)
def test_what_the_api_never_says_is_no_answer(name: str) -> None:
    one = decoder()
    with pytest.raises(DecodeError):
        feed_bytes(one, BAD[name] + frame(reason="STOP"))
    assert isinstance(one.end().error, BadBody)


def feed_bytes(one: StreamDecoder, stream: bytes) -> None:
    for at in range(len(stream)):
        one.feed(stream[at : at + 1])


def test_what_follows_the_end_is_not_looked_at() -> None:
    one = decoder()
    events = one.feed(frame(text("a"), reason="STOP") + frame(text("b")))
    assert kinds(folded(events)) == "message"
    assert one.feed(b"data: {nonsense\n\n") == []


def test_every_cut_of_a_stream_with_everything_in_it() -> None:
    stream = frame(text("a\N{GRINNING FACE}")) + frame({"text": "h", "thought": True})
    stream += frame(call(signature="s"), {"executableCode": {"code": "1"}})
    stream += frame(text("", "s"), reason="STOP", candidate={"groundingMetadata": GROUNDING})
    assert check_every_cut(decoder(), stream, events_of(stream)) == len(stream) - 4


def test_a_copy_goes_its_own_way() -> None:
    one = decoder()
    one.feed(frame(text("a")))
    twin = one.copy()
    first = twin.feed(frame(text("b")) + frame(text("c"), reason="STOP"))
    second = one.feed(frame(text("d"), reason="STOP"))
    assert [e.response.output_text for e in (first[-1], second[-1])] == ["abc", "ad"]  # type: ignore[union-attr]
    assert [len([e for e in es if isinstance(e, OutputTextDelta)]) for es in (first, second)] == [
        2,
        1,
    ]


WHOLE = json.dumps({"candidates": [{"content": {}, "finishReason": "STOP"}]}).encode()


@pytest.mark.parametrize(
    ("body", "cls"),
    [
        (b"", EmptyBody),
        (WHOLE[:-5], Truncated),
        (b"<html>Bad gateway</html>", BadBody),
        (b"{}", BadBody),
        (b'{"candidates":[{"content":{}}]}', BadBody),
        (b'{"error":{"code":503,"status":"UNAVAILABLE","message":"busy"}}', Overloaded),
    ],
)
def test_a_body_that_is_no_answer_says_what_it_is(body: bytes, cls: type[Exception]) -> None:
    check_refused_body(body, cls, decoder(), response)
