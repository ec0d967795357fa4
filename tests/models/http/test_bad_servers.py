"""Servers that misbehave: each gives its error, with the server's words; nothing hangs or leaks."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from perdure.errors import (
    AuthFailed,
    BadBody,
    ContextTooLong,
    DecodeError,
    EmptyBody,
    FrameTooLarge,
    InvalidInput,
    ModelError,
    ModelTimeout,
    NotFound,
    NotTerminal,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    Rejected,
    ServerFailed,
    Transport,
    Truncated,
)
from perdure.models import OpenResponses, Timeouts
from perdure.wire import OutputTextDelta, StreamEvent
from tests.models.servers import (
    COMPLETED,
    SSE_HEAD,
    Answer,
    RawServer,
    chunks,
    delta,
    http,
    request,
    sse,
)

PROXY_PAGE = b"""<html>\r
<head><title>502 Bad Gateway</title><style>h1 { color: red }</style></head>\r
<body><center><h1>502 Bad Gateway</h1></center><hr><center>nginx/1.27</center></body></html>"""


def error(message: str, **members: Any) -> bytes:
    return json.dumps({"error": {"message": message, "type": "x", **members}}).encode()


def writing(data: bytes, end: Callable[[asyncio.StreamWriter], None]) -> Answer:
    """Write, and then end the connection in some way."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(0.01)  # so that what was written has been read
        end(writer)
        raise ConnectionError

    return answer


def closing(writer: asyncio.StreamWriter) -> None:
    writer.close()


def resetting(writer: asyncio.StreamWriter) -> None:
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def read(model: OpenResponses) -> tuple[list[StreamEvent], ModelError | None]:
    """The events of a stream, and the error it ended in."""
    events: list[StreamEvent] = []
    stream = model.stream(request())
    try:
        async for event in stream:
            events.append(event)
    except ModelError as failure:
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        return events, failure
    return events, None


class Bad(NamedTuple):
    answer: bytes | Answer
    kind: type[ModelError]
    words: str
    events: int = 0


CHUNKED = SSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
UNTIL_CLOSE = SSE_HEAD + b"Connection: close\r\n\r\n"
TWO = b"".join(list(chunks([delta("a"), delta("b")]))[:2])

CASES = {
    # --- refused
    "400": Bad(http(error("no", param="input[0]"), status=400), InvalidInput, "no"),
    "401": Bad(http(error("wrong key"), status=401), AuthFailed, "wrong key"),
    "403": Bad(http(error("not for you"), status=403), AuthFailed, "not for you"),
    "404": Bad(http(error("no such model"), status=404), NotFound, "no such model"),
    "404 without a body": Bad(http(b"", status=404), NotFound, "Not Found"),
    "413": Bad(http(b"too large", status=413, type_="text/plain"), InvalidInput, "too large"),
    "422 of FastAPI": Bad(http(b'{"detail":"field required"}', status=422), InvalidInput, "field"),
    "429": Bad(http(error("slow down"), status=429), RateLimited, "slow down"),
    "429 that is a quota": Bad(
        http(error("You exceeded your current quota", code="insufficient_quota"), status=429),
        QuotaExhausted,
        "current quota",
    ),
    "429 whose type is a quota": Bad(
        http(error("no credit", type="insufficient_quota"), status=429), QuotaExhausted, "credit"
    ),
    "402": Bad(http(error("add credits"), status=402), QuotaExhausted, "add credits"),
    "context by code": Bad(
        http(error("too many tokens", code="context_length_exceeded"), status=400),
        ContextTooLong,
        "too many tokens",
    ),
    "context by its words": Bad(
        http(error("This model's maximum context length is 4096 tokens."), status=400),
        ContextTooLong,
        "4096",
    ),
    "500": Bad(http(error("oops"), status=500), ServerFailed, "oops"),
    "500 in plain text": Bad(
        http(b"Internal Server Error", status=500, type_="text/plain"), ServerFailed, "Internal"
    ),
    "502 of a proxy": Bad(
        http(PROXY_PAGE, status=502, type_="text/html"), ServerFailed, "502 Bad Gateway nginx/1.27"
    ),
    "503": Bad(http(error("busy"), status=503), Overloaded, "busy"),
    "529": Bad(http(error("overloaded"), status=529), Overloaded, "overloaded"),
    "500 that is overload": Bad(
        http(error("hm", code="server_overloaded"), status=500), Overloaded, "hm"
    ),
    "a redirect": Bad(
        http(b"", status=307, Location="https://elsewhere.example/v1"),
        InvalidInput,
        "https://elsewhere.example/v1",
    ),
    # --- 200, and not a response
    "HTML for JSON": Bad(
        http(b"<html><h1>Sign in</h1></html>", type_="text/html"), BadBody, "Sign in"
    ),
    "HTML that says it is JSON": Bad(http(b"<html>Sign in</html>"), BadBody, "Sign in"),
    "JSON that is cut": Bad(http(b'{"id":"resp_1","outp'), Truncated, "middle"),
    "JSON that is malformed": Bad(http(b'{"id":nonsense}'), BadBody, "malformed"),
    "JSON that is no response": Bad(http(b'{"hello":"world"}'), BadBody, "world"),
    "an error under 200": Bad(http(error("hm", code="rate_limit_exceeded")), RateLimited, "hm"),
    "queued": Bad(http(b'{"id":"resp_1","status":"queued","output":[]}'), NotTerminal, "'queued'"),
    "an empty body": Bad(http(b""), EmptyBody, "empty"),
    "an empty stream": Bad(sse(b""), EmptyBody, "empty"),
    "an empty stream until close": Bad(writing(UNTIL_CLOSE, closing), EmptyBody, "empty"),
    # --- 200, and then
    "a stream that just ends": Bad(sse(delta() + delta()), Truncated, "terminal", events=2),
    "a stream cut inside a character": Bad(
        writing(UNTIL_CLOSE + delta() + delta("é").split(b"u00e9")[0] + b"\xc3", closing),
        Truncated,
        "terminal",
        events=1,
    ),
    "a chunked stream that is cut": Bad(
        writing(CHUNKED + TWO + b"40\r\ndata: \xc3", closing), Truncated, "terminal", events=2
    ),
    "a body shorter than it says": Bad(
        writing(http(b'{"id":"\xc3' + b" " * 50)[:-50], closing), Truncated, "middle"
    ),
    "a reset": Bad(writing(CHUNKED + TWO, resetting), Transport, "reset by peer", events=2),
    "a reset before anything": Bad(writing(b"", resetting), Transport, "reset by peer"),
    "a close before anything": Bad(writing(b"", closing), Transport, "without an answer"),
    "an oversized frame": Bad(
        sse(delta() + b"data: " + b"x" * (17 * 2**20) + b"\n\n"), BadBody, "16777216", events=1
    ),
    "a malformed frame": Bad(
        sse(delta() + b"data: {nonsense\n\n" + COMPLETED), BadBody, "malformed", events=1
    ),
    "a duplicate member": Bad(
        sse(delta() + delta().replace(b'"delta":', b'"delta":"a","delta":') + COMPLETED),
        BadBody,
        "duplicate member 'delta'",
        events=1,
    ),
    "an error event and the end": Bad(
        sse(
            b'event: error\ndata: {"type":"error","error":{"message":"hm","code":"slow_down"}}\n\n'
        ),
        Overloaded,
        "hm",
        events=1,
    ),
    "no HTTP": Bad(writing(b"SSH-2.0-OpenSSH_9.9\r\n\r\n", closing), BadBody, "not HTTP"),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_bad_server_gives_its_error_and_leaves_nothing_open(name: str) -> None:
    bad = CASES[name]
    async with RawServer(bad.answer) as server:
        model = OpenResponses(server.base_url, timeouts=Timeouts(first_byte=20, idle=20))
        events, failure = await read(model)
        assert type(failure) is bad.kind
        assert bad.words in str(failure)
        assert len(events) == bad.events
        assert server.connections == 1  # nothing is sent again
        await model.aclose()
        await server.gone()


async def test_what_went_wrong_with_a_frame_is_the_cause() -> None:
    for name, kind in (("an oversized frame", FrameTooLarge), ("a duplicate member", DecodeError)):
        async with RawServer(CASES[name].answer) as server:
            model = OpenResponses(server.base_url)
            _, failure = await read(model)
            assert failure is not None
            assert isinstance(failure.__cause__, kind)
            await model.aclose()


async def test_a_refusal_carries_what_the_server_said() -> None:
    body = error("no", type="invalid_request", code="invalid_value", param="input[3].call_id")
    async with RawServer(http(body, status=400, X_RateLimit_Reset="7", Set_Cookie="a")) as server:
        model = OpenResponses(server.base_url)
        _, failure = await read(model)
        assert isinstance(failure, Rejected)
        assert (failure.status, failure.type, failure.code, failure.param, failure.message) == (
            400,
            "invalid_request",
            "invalid_value",
            "input[3].call_id",
            "no",
        )
        assert failure.headers == {"X-RateLimit-Reset": "7"}
        await model.aclose()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("3", 3.0), ("0.5", 0.5), ("-1", 0.0), ("Wed, 21 Oct 2015 07:28:10 GMT", 10.0)],
)
async def test_retry_after_is_in_the_error(value: str, seconds: float) -> None:
    date = "Wed, 21 Oct 2015 07:28:00 GMT"
    answer = http(error("slow"), status=429, Retry_After=value, Date=date)
    async with RawServer(answer) as server:
        model = OpenResponses(server.base_url)
        _, failure = await read(model)
        assert isinstance(failure, RateLimited)
        assert failure.retry_after == seconds
        await model.aclose()


async def test_a_huge_error_page_is_neither_read_whole_nor_shown_whole() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 X\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")
        while True:
            writer.write(b"wrong " * 1000)
            await writer.drain()

    async with RawServer(endless) as server:
        model = OpenResponses(server.base_url)
        _, failure = await read(model)
        assert isinstance(failure, ServerFailed)
        assert len(failure.message) < 1000
        await server.gone()
        await model.aclose()


# --- silence -------------------------------------------------------------------------


def silent_after(data: bytes) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        await reader.read()

    return answer


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n", UNTIL_CLOSE, CHUNKED])
async def test_silence_before_the_first_byte(head: bytes) -> None:
    async with RawServer(silent_after(head)) as server:
        model = OpenResponses(server.base_url, timeouts=Timeouts(first_byte=0.05))
        events, failure = await read(model)
        assert events == []
        assert isinstance(failure, ModelTimeout)
        assert (failure.phase, failure.seconds) == ("first_byte", 0.05)
        await server.gone()
        await model.aclose()


@pytest.mark.parametrize("head", [CHUNKED + TWO, UNTIL_CLOSE + delta("a") + delta("b")])
async def test_silence_in_the_middle(head: bytes) -> None:
    async with RawServer(silent_after(head)) as server:
        model = OpenResponses(server.base_url, timeouts=Timeouts(idle=0.05))
        events, failure = await read(model)
        assert [e.delta for e in events if isinstance(e, OutputTextDelta)] == ["a", "b"]
        assert isinstance(failure, ModelTimeout)
        assert failure.phase == "idle"
        await server.gone()
        await model.aclose()


async def test_a_slow_consumer_is_not_a_silent_server() -> None:
    types: list[str] = []
    async with RawServer(sse(delta("a") + delta("b") + COMPLETED)) as server:
        model = OpenResponses(server.base_url, timeouts=Timeouts(first_byte=5, idle=0.01))
        async with model.stream(request()) as events:
            async for event in events:
                await asyncio.sleep(0.05)
                types.append(event.type)
        await model.aclose()
    assert types[-1] == "response.completed"


async def test_a_stream_that_never_ends_reaches_the_total() -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(UNTIL_CLOSE)
        while True:
            writer.write(b": ping\n\n")
            await writer.drain()
            await asyncio.sleep(0.005)

    async with RawServer(trickle) as server:
        model = OpenResponses(server.base_url, timeouts=Timeouts(total=0.1))
        _, failure = await read(model)
        assert isinstance(failure, ModelTimeout)
        assert (failure.phase, failure.seconds) == ("total", 0.1)
        await server.gone()
        await model.aclose()


async def test_a_total_before_the_head_of_an_answer() -> None:
    async with RawServer(silent_after(b"")) as server:
        model = OpenResponses(server.base_url, timeouts=Timeouts(total=0.05))
        _, failure = await read(model)
        assert isinstance(failure, ModelTimeout)
        assert failure.phase == "total"
        await server.gone()
        await model.aclose()


async def test_an_error_page_that_stops_in_the_middle_still_gives_its_error() -> None:
    head = b"HTTP/1.1 500 X\r\nContent-Type: text/plain\r\nContent-Length: 99\r\n\r\noops"
    async with RawServer(silent_after(head)) as server:
        model = OpenResponses(server.base_url, timeouts=Timeouts(idle=0.05))
        _, failure = await read(model)
        assert isinstance(failure, ServerFailed)
        assert failure.message == "oops"
        await server.gone()
        await model.aclose()


async def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        model = OpenResponses(f"http://127.0.0.1:{port}/v1")
        _, failure = await read(model)
        assert type(failure) is Transport
        assert f"127.0.0.1:{port}" in str(failure)
        await model.aclose()


async def test_connecting_takes_too_long() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(8)]
        for filler in fillers:  # what the backlog does not hold waits for an answer
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        try:
            model = OpenResponses(
                f"http://127.0.0.1:{full.getsockname()[1]}/v1", timeouts=Timeouts(connect=0.1)
            )
            _, failure = await read(model)
            assert isinstance(failure, ModelTimeout)
            assert failure.phase == "connect"
            await model.aclose()
        finally:
            for filler in fillers:
                filler.close()


async def test_what_was_buffered_when_the_connection_broke_is_not_lost() -> None:
    for end in (closing, resetting):
        async with RawServer(writing(CHUNKED + TWO, end)) as server:
            model = OpenResponses(server.base_url)
            stream = model.stream(request())
            first = await anext(stream)
            await server.gone()
            await asyncio.sleep(0.02)  # the client learns of the end while nobody reads
            second = await anext(stream)
            assert isinstance(first, OutputTextDelta)
            assert isinstance(second, OutputTextDelta)
            with pytest.raises(ModelError):
                await anext(stream)
            await model.aclose()


# --- the same without streaming -----------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (http(error("slow"), status=429), RateLimited),
        (http(b""), EmptyBody),
        (http(b"<html>Sign in</html>"), BadBody),
        (http(b'{"id":"r","status":"in_progress","output":[]}'), NotTerminal),
        (writing(http(b"x" * 50)[:-20], closing), Truncated),
        (silent_after(http(b"x" * 50)[:-20]), ModelTimeout),
    ],
)
async def test_a_bad_answer_to_a_request_that_does_not_stream(
    answer: bytes | Answer, kind: type[ModelError]
) -> None:
    async with RawServer(answer) as server:
        model = OpenResponses(server.base_url, timeouts=Timeouts(idle=0.05))
        calls: list[Awaitable[object]] = [model.create(request())]
        for call in calls:
            with pytest.raises(ModelError) as raised:
                await call
            assert type(raised.value) is kind
        await model.aclose()
        await server.gone()
