"""Bytes of an answer to events, without a network."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from perdure.errors import (
    BadBody,
    DecodeError,
    EmptyBody,
    FrameTooLarge,
    InvalidInput,
    NotTerminal,
    RateLimited,
    Rejected,
    ServerFailed,
    Truncated,
)
from perdure.models.http.client import BODY_LIMIT
from perdure.models.openresponses import StreamDecoder, response
from perdure.wire import (
    ErrorEvent,
    Fold,
    OutputTextDelta,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
    encode,
)
from tests.models.servers import COMPLETED, delta, recorded_streams

DUPLICATE = delta().replace(b'"delta":', b'"delta": "a", "delta":')
BROKEN = b"event: response.output_text.delta\ndata: {nonsense\n\n"


def test_recorded_streams_give_the_same_events_in_pieces_of_any_size(shared: Path) -> None:
    streams = recorded_streams(shared)
    assert len(streams) == 9
    for stream in streams:
        pick = random.Random(stream.name)
        decoder, events, at = StreamDecoder(), [], 0
        while at < len(stream.body):
            size = pick.choice((1, 2, 7, 50, 1000))
            events += decoder.feed(stream.body[at : at + size])
            at += size
        assert events == stream.events
        assert decoder.finished
        assert decoder.end() == ([], None)


def test_a_recorded_stream_cut_at_any_byte_keeps_what_had_come_and_says_truncated(
    shared: Path,
) -> None:
    for stream in recorded_streams(shared):
        events, ends = stream.events, _data_ends(stream.body)
        assert len(events) == len(ends)
        decoder, seen = StreamDecoder(), list[StreamEvent]()
        for cut in range(len(stream.body) + 1):
            left, error = decoder.end()
            whole = sum(cut >= end for end in ends)
            assert len(seen) + len(left) == whole
            assert left == events[len(seen) : whole]
            if cut == 0:
                assert type(error) is EmptyBody
            elif whole == len(events):
                assert error is None
            else:
                assert type(error) is Truncated
            seen += decoder.feed(stream.body[cut : cut + 1])
        assert seen == events


def _data_ends(body: bytes) -> list[int]:
    """Where the data of each frame ends."""
    ends, at = [], 0
    for block in body.split(b"\n\n")[:-1]:
        ends.append(at + len(block))
        at += len(block) + 2
    return ends


def test_a_copy_goes_its_own_way() -> None:
    decoder = StreamDecoder()
    decoder.feed(delta("a")[:20])
    twin = decoder.copy()
    assert [e.delta for e in twin.feed(delta("a")[20:]) if isinstance(e, OutputTextDelta)] == ["a"]
    assert decoder.feed(b"") == []
    assert len(decoder.feed(delta("a")[20:])) == 1


def test_the_end_is_only_asked_and_changes_nothing() -> None:
    decoder = StreamDecoder()
    decoder.feed(COMPLETED[:-1])
    for _ in range(2):
        events, error = decoder.end()
        assert [type(e) for e in events] == [ResponseCompleted]
        assert error is None
    assert not decoder.finished
    assert [type(e) for e in decoder.feed(b"\n")] == [ResponseCompleted]
    assert decoder.finished


def test_done_ends_a_stream_without_a_terminal_event() -> None:
    decoder = StreamDecoder()
    assert len(decoder.feed(delta() + b"data: [DONE]\n\n")) == 1
    assert decoder.finished
    assert decoder.end() == ([], None)
    assert StreamDecoder().copy().feed(b"data: [DONE]\n\n") == []


def test_what_follows_the_terminal_event_is_not_looked_at() -> None:
    decoder = StreamDecoder()
    assert len(decoder.feed(COMPLETED + BROKEN)) == 1
    assert decoder.feed(BROKEN) == []


@pytest.mark.parametrize("bad", [BROKEN, DUPLICATE, b'data: {"type":"response.completed"}\n\n'])
def test_a_bad_frame_loses_none_of_the_events_before_it(bad: bytes) -> None:
    decoder = StreamDecoder()
    assert len(decoder.feed(delta("a") + delta("b") + bad + delta("c"))) == 2
    for _ in range(2):
        with pytest.raises(DecodeError) as raised:
            decoder.feed(delta("d"))
    assert raised.value.source
    assert isinstance(decoder.end().error, BadBody)
    with pytest.raises(DecodeError):
        StreamDecoder().feed(bad)


def test_a_frame_beyond_the_limit_is_refused_after_the_events_before_it() -> None:
    decoder = StreamDecoder(frame_limit=1000)
    assert len(decoder.feed(delta() + b"data: " + b"x" * 2000)) == 1
    with pytest.raises(FrameTooLarge):
        decoder.feed(b"x")
    assert isinstance(decoder.end().error, BadBody)


@pytest.mark.parametrize(
    ("data", "kind", "code"),
    [
        (
            b'{"type":"error","error":{"type":"too_many_requests","code":null,"message":"slow"}}',
            RateLimited,
            None,
        ),
        (b'{"error":{"type":"invalid_request","message":"slow","param":"x"}}', InvalidInput, None),
        (
            b'{"type":"error","code":"server_error","message":"slow","sequence_number":3}',
            ServerFailed,
            "server_error",
        ),
    ],
)
def test_an_error_frame_is_an_event_and_decides_what_a_cut_stream_says(
    data: bytes, kind: type[Rejected], code: str | None
) -> None:
    decoder = StreamDecoder()
    events = decoder.feed(delta() + b"event: error\ndata: " + data + b"\n\n")
    assert [type(e) for e in events] == [OutputTextDelta, ErrorEvent]
    error = decoder.end().error
    assert isinstance(error, Rejected)
    assert type(error) is kind
    assert error.message == "slow"
    assert error.code == code
    failed = decoder.feed(COMPLETED.replace(b"completed", b"failed"))
    assert [type(e) for e in failed] == [ResponseFailed]
    assert decoder.end() == ([], None)


def test_comments_alone_are_a_truncated_stream_and_no_byte_an_empty_body() -> None:
    decoder = StreamDecoder()
    assert type(decoder.end().error) is EmptyBody
    decoder.feed(b"\r\n")
    assert type(decoder.end().error) is EmptyBody
    decoder.feed(b": ping\n\n")
    assert type(decoder.end().error) is Truncated


# --- a JSON body where a stream was asked for ------------------------------------------


def body(**members: object) -> bytes:
    return json.dumps({"id": "resp_1", "output": [], **members}, indent=1).encode()


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ({"status": "completed"}, ResponseCompleted),
        ({"status": "complete"}, ResponseCompleted),
        ({}, ResponseCompleted),
        ({"status": "incomplete", "incomplete_details": {"reason": "x"}}, ResponseIncomplete),
        ({"status": "failed", "error": {"message": "m"}}, ResponseFailed),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_json_body_is_one_terminal_event(
    members: dict[str, object], kind: type[StreamEvent], size: int
) -> None:
    decoder = StreamDecoder()
    raw = b" \n" + body(**members)
    for at in range(0, len(raw), size):
        assert decoder.feed(raw[at : at + size]) == []
    events, error = decoder.copy().end()
    assert error is None
    assert [type(e) for e in events] == [kind]
    fold = Fold()
    fold.feed(events[0])
    folded = fold.response()
    assert folded is not None
    assert folded.status == kind.__struct_config__.tag.removeprefix("response.")  # type: ignore[union-attr]


@pytest.mark.parametrize("status", ["queued", "in_progress", "cancelled", "made_up"])
def test_a_json_body_that_is_no_end_is_an_error(status: str) -> None:
    decoder = StreamDecoder()
    decoder.feed(body(status=status))
    error = decoder.end().error
    assert type(error) is NotTerminal
    assert status in str(error)


@pytest.mark.parametrize(
    ("raw", "kind", "words"),
    [
        (b"<html><p>Sign in to <b>the caf&eacute;</b></html>", BadBody, "Sign in to the café"),
        (b'{"detail":"hm"}', BadBody, "hm"),
        (b"[]", BadBody, "array"),
        (b'{"id":"resp_1","output":"x"}', BadBody, "output"),
        (b'{"id":"resp_1","output":[],"id":"resp_2"}', BadBody, "duplicate member 'id'"),
        (b'{"id":"resp_1","output":[', Truncated, "middle"),
        ('{"id":"é'.encode()[:-1], Truncated, "middle"),
        (b'{"error":{"message":"no","code":"rate_limit_exceeded"}}', RateLimited, "no"),
    ],
)
def test_a_body_that_is_no_response_says_why(raw: bytes, kind: type[Exception], words: str) -> None:
    decoder = StreamDecoder()
    decoder.feed(raw)
    events, error = decoder.end()
    assert events == []
    assert type(error) is kind
    assert words in str(error)
    with pytest.raises(kind):
        response(raw)


def test_recorded_json_bodies_are_responses(shared: Path) -> None:
    lines = (shared / "fixtures/wire/responses.jsonl").read_text("utf-8").splitlines()
    seen = 0
    for line in lines:
        one = json.loads(line)
        if one["status"] != 200 or one["stream"] or not one["path"].endswith("/responses"):
            continue
        seen += 1
        raw = json.dumps(one["response"]).encode()
        if one["response"]["status"] in ("queued", "in_progress"):
            with pytest.raises(NotTerminal):
                response(raw)
            continue
        got = json.loads(encode(response(raw)))
        expected = one["response"]
        if expected["status"] == "complete":
            expected["status"] = "completed"
        assert got == expected
    assert seen > 100


def test_a_json_body_beyond_the_limit_is_refused() -> None:
    decoder = StreamDecoder()
    start = b'{"id":'
    assert decoder.feed(start + b" " * (BODY_LIMIT - len(start))) == []
    with pytest.raises(DecodeError, match=f"{BODY_LIMIT} bytes"):
        decoder.feed(b" ")
    assert isinstance(decoder.end().error, BadBody)
