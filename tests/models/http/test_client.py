"""The client over loopback HTTP: what arrives, keys that stay hidden, prompt closing."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import AuthFailed, ConfigError, ModelError, Rejected
from perdure.loop.model import Model, ModelRequest, collect
from perdure.loop.transcript import Items
from perdure.models import Hooks, HttpRequest, HttpResponse, OpenResponses, Timeouts
from perdure.models.http import transport
from perdure.models.openresponses import request_body
from perdure.wire import (
    Compaction,
    CompactRequest,
    OutputTextDelta,
    Request,
    ResponseCompleted,
    encode,
    user,
)
from tests.models.servers import (
    COMPLETED,
    SSE_HEAD,
    RawServer,
    chunks,
    delta,
    http,
    recorded_streams,
    request,
    sse,
    until,
)

KEY = "sk-very-secret-0123456789"


def pieces(body: bytes, seed: str) -> list[bytes]:
    pick, cut, at = random.Random(seed), [], 0
    while at < len(body):
        size = pick.choice((1, 3, 40, 300, 5000))
        cut.append(body[at : at + size])
        at += size
    return cut


@pytest.mark.parametrize("seed", range(4))
async def test_recorded_streams_arrive_as_they_were_in_pieces_of_any_size(
    shared: Path, seed: int
) -> None:
    streams = recorded_streams(shared)
    bodies = iter(streams)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = next(bodies)
        cut = pieces(stream.body, f"{stream.name}{seed}")
        if seed % 2:
            writer.write(SSE_HEAD + b"Content-Length: %d\r\n\r\n" % len(stream.body))
        else:
            writer.write(SSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            cut = list(chunks(cut))
        for piece in cut:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    async with RawServer(answer) as server:
        model = OpenResponses(server.base_url)
        for stream in streams:
            async with model.stream(request()) as events:
                assert [event async for event in events] == stream.events
        assert server.connections == 1
        await model.aclose()
        await server.gone()


async def test_it_is_a_model() -> None:
    model = OpenResponses("http://127.0.0.1:1/v1")
    assert isinstance(model, Model)


async def test_the_bytes_that_are_sent_are_the_request() -> None:
    items = [user("x" * 1000 + str(n)) for n in range(2000)]
    sent = ModelRequest(settings=Request(model="m", temperature=0.5), input=Items.of(items))
    async with RawServer(sse(COMPLETED)) as server:
        model = OpenResponses(server.base_url)
        await collect(model.stream(sent))
        assert server.bodies == [b"".join(request_body(sent).fragments)]
        whole = json.loads(encode(sent.to_request()))
        assert json.loads(server.bodies[0]) == {**whole, "stream": True, "store": False}
        await model.aclose()


async def test_the_headers_that_are_sent() -> None:
    async with RawServer(sse(COMPLETED)) as server:
        model = OpenResponses(
            server.base_url,
            api_key=KEY,
            user_agent="tests/1",
            headers={"X-Mine": "yes", "accept-encoding": "br"},
        )
        await collect(model.stream(request()))
        head = server.heads[0].decode()
        assert head.startswith("POST /v1/responses HTTP/1.1\r\n")
        for line in (
            f"Authorization: Bearer {KEY}",
            "User-Agent: tests/1",
            "X-Mine: yes",
            "accept-encoding: br",
            "Content-Type: application/json",
            "Accept: text/event-stream",
        ):
            assert f"\r\n{line}\r\n" in head
        assert "Accept-Encoding: identity" not in head
        await model.aclose()
        plain = OpenResponses(server.base_url)
        await collect(plain.stream(request()))
        head = server.heads[1].decode()
        assert "Authorization" not in head
        assert "Accept-Encoding: identity" in head
        assert "User-Agent: perdure" in head
        await plain.aclose()


async def test_a_base_url_keeps_its_query_and_may_be_asked_for_each_time() -> None:
    async with RawServer(sse(COMPLETED)) as server:
        model = OpenResponses(lambda: f"{server.base_url}/?api-version=1")
        await collect(model.stream(request()))
        assert server.heads[0].startswith(b"POST /v1/responses?api-version=1 HTTP/1.1")
        await model.aclose()


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000",
        "ftp://x/v1",
        "http://",
        "http://host:99999/v1",
        "http://host:x/v1",
        "http://[::1/v1",
        "http://host/v1#m",
        "http://host /v1",
    ],
)
def test_a_base_url_that_cannot_be_is_refused_at_once(url: str) -> None:
    assert refuses(url)


def refuses(url: str) -> bool:
    try:
        OpenResponses(url)
    except ConfigError:
        return True
    return False


async def test_a_base_url_that_cannot_be_is_refused_when_it_is_asked_for() -> None:
    model = OpenResponses(lambda: "nowhere")
    with pytest.raises(ConfigError, match="nowhere"):
        await collect(model.stream(request()))


@pytest.mark.parametrize("host", ["host", "host:99999", "ho st"])
def test_a_base_url_holds_no_credentials_and_does_not_show_them(host: str) -> None:
    with pytest.raises(ConfigError) as raised:
        OpenResponses(f"http://ann:secret@{host}/v1")
    assert "secret" not in str(raised.value)


def test_a_header_that_cannot_be_sent_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="X-A") as raised:
        OpenResponses("http://host/v1", headers={"X-A": "secret\r\nX-B: 1"})
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("url", ["http://[::1]:1/v1", "https://host", "http://host/a/b?x=1"])
def test_an_address_with_ipv6_or_a_path_is_fine(url: str) -> None:
    assert not refuses(url)


async def test_a_json_body_where_a_stream_was_asked_for_is_one_event() -> None:
    body = json.dumps({"id": "resp_1", "status": "completed", "output": []}).encode()
    async with RawServer(http(body)) as server:
        model = OpenResponses(server.base_url)
        async with model.stream(request()) as events:
            got = [event async for event in events]
        assert [type(event) for event in got] == [ResponseCompleted]
        assert (await model.create(request())).id == "resp_1"
        assert [json.loads(body)["stream"] for body in server.bodies] == [True, False]
        await model.aclose()


async def test_compact_folds_a_history() -> None:
    output = b'[{"type":"compaction","encrypted_content":"x"}]'
    body = b'{"id":"c","object":"response.compaction","created_at":1,"output":%b}' % output
    async with RawServer(http(body)) as server:
        model = OpenResponses(server.base_url)
        folded = await model.compact(CompactRequest(model="m", input=(user("hi"),)))
        assert folded.output == (Compaction(encrypted_content="x"),)
        assert server.heads[0].startswith(b"POST /v1/responses/compact ")
        await model.aclose()


# --- hooks ---------------------------------------------------------------------------------


class Seen:
    """What the hooks were told."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []
        self.responses: list[HttpResponse] = []
        self.errors: list[ModelError] = []

    @property
    def hooks(self) -> Hooks:
        return Hooks(
            before_request=self.requests.append,
            after_response=self.responses.append,
            on_error=lambda request, error: self.errors.append(error),
        )


async def test_hooks_see_every_request_its_answer_and_its_error() -> None:
    answers = iter([sse(COMPLETED), http(b"", status=500), sse(delta())])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(next(answers))

    seen = Seen()
    async with RawServer(answer) as server:
        model = OpenResponses(server.base_url, hooks=seen.hooks, api_key=KEY)
        await collect(model.stream(request()))
        for _ in range(2):
            with pytest.raises(ModelError):
                await collect(model.stream(request()))
        assert len(seen.requests) == 3
        assert [r.size for r in seen.requests] == [len(body) for body in server.bodies]
        assert [r.status for r in seen.responses] == [200, 500, 200]
        assert [type(e).__name__ for e in seen.errors] == ["ServerFailed", "Truncated"]
        assert KEY not in repr(seen.requests) + repr(seen.responses)
        await model.aclose()


async def test_a_hook_may_add_headers_and_may_refuse() -> None:
    def add(request: HttpRequest) -> None:
        request.headers["traceparent"] = "00-1"

    def refuse(request: HttpRequest) -> None:
        raise PermissionError("not today")

    async with RawServer(sse(COMPLETED)) as server:
        model = OpenResponses(server.base_url, hooks=Hooks(before_request=add))
        await collect(model.stream(request()))
        assert b"traceparent: 00-1" in server.heads[0]
        await model.aclose()
        refusing = OpenResponses(server.base_url, hooks=Hooks(before_request=refuse))
        with pytest.raises(PermissionError):
            await collect(refusing.stream(request()))
        assert len(server.heads) == 1


async def test_a_hook_that_raises_after_the_response_closes_the_connection() -> None:
    def refuse(response: HttpResponse) -> None:
        raise PermissionError("not today")

    async with RawServer(SSE_HEAD + b"Connection: close\r\n\r\n" + delta()) as server:
        model = OpenResponses(server.base_url, hooks=Hooks(after_response=refuse))
        with pytest.raises(PermissionError):
            await collect(model.stream(request()))
        await server.gone()
        await model.aclose()


# --- keys ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        http(json.dumps({"error": {"message": f"bad key {KEY}"}}).encode(), status=401),
        http(f"bad key {KEY}".encode(), status=500, X_RateLimit_Key=KEY),
        http(f"<html>{KEY}</html>".encode()),
        sse(f'data: {{"type":"error","error":{{"message":"bad {KEY}"}}}}\n\n'.encode()),
        sse(f"data: {{{KEY}\n\n".encode()),
        f"HTTP/9.9 {KEY}\r\n\r\n".encode(),
    ],
)
async def test_a_key_never_shows_in_an_error(answer: bytes) -> None:
    seen = Seen()
    async with RawServer(answer, close=True) as server:
        model = OpenResponses(server.base_url, api_key=KEY, hooks=seen.hooks)
        with pytest.raises(ModelError) as raised:
            await collect(model.stream(request()))
        shown = [str(raised.value), repr(raised.value), repr(vars(raised.value))]
        shown += traceback.format_exception(raised.value)
        shown += map(repr, seen.errors)
        assert KEY not in "".join(shown)
        await model.aclose()


async def test_a_key_is_asked_for_each_request_and_may_be_awaited() -> None:
    keys = iter(["one", "two"])

    async def key() -> str:
        await asyncio.sleep(0)
        return next(keys)

    async with RawServer(sse(COMPLETED)) as server:
        model = OpenResponses(server.base_url, api_key=key)
        for _ in range(2):
            await collect(model.stream(request()))
        assert b"Bearer one\r" in server.heads[0]
        assert b"Bearer two\r" in server.heads[1]
        await model.aclose()


@pytest.mark.parametrize("key", ["a\r\nX-Evil: 1", "schlüssel"])
async def test_a_key_that_no_header_may_hold_is_refused_unsent(key: str) -> None:
    async with RawServer(sse(COMPLETED)) as server:
        model = OpenResponses(server.base_url, api_key=key)
        with pytest.raises(ConfigError) as raised:
            await collect(model.stream(request()))
        assert key not in str(raised.value)
        assert server.connections == 0


async def test_a_held_conversation_is_refused_unsent() -> None:
    async with RawServer(sse(COMPLETED)) as server:
        model = OpenResponses(server.base_url)
        held = Request(model="m", previous_response_id="resp_1")
        with pytest.raises(ConfigError):
            await collect(model.stream(ModelRequest(settings=held, input=Items.of([user("x")]))))
        assert server.connections == 0


# --- closing -------------------------------------------------------------------------------


class Endless:
    """Streams deltas until its client has gone.

    Attributes:
        written: How many frames it has written.
    """

    def __init__(self) -> None:
        self.written = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        while not reader.at_eof():
            self.written += 1
            writer.write(next(iter(chunks([delta(number=self.written)]))))
            await writer.drain()
            await asyncio.sleep(0.002)
        raise ConnectionError


async def _aclose(events: Any) -> None:
    await events.aclose()


async def _leave(events: Any) -> None:
    async with events:
        pass


@pytest.mark.parametrize("close", [_aclose, _leave])
async def test_a_consumer_that_stops_early_closes_the_connection(
    close: Callable[[Any], Any],
) -> None:
    endless = Endless()
    async with RawServer(endless) as server:
        model = OpenResponses(server.base_url)
        events = model.stream(request())
        async for event in events:
            assert isinstance(event, OutputTextDelta)
            break
        await close(events)
        written = endless.written
        await server.gone()
        assert endless.written - written <= 3
        with pytest.raises(StopAsyncIteration):
            await anext(events)
        await events.aclose()
        await model.aclose()


async def test_a_stream_that_is_dropped_closes_the_connection() -> None:
    async with RawServer(Endless()) as server:
        model = OpenResponses(server.base_url)
        async for _ in model.stream(request()):
            break
        await server.gone()
        assert (server.connections, server.open) == (1, 0)
        await model.aclose()


async def test_a_stream_that_was_never_read_sends_nothing() -> None:
    async with RawServer(Endless()) as server:
        model = OpenResponses(server.base_url)
        async with model.stream(request()):
            pass
        assert server.connections == 0


async def test_a_reader_that_is_cancelled_closes_the_connection() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"2\r\n: \r\n")
        await reader.read()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    for answer in (silent, mute):
        async with RawServer(answer) as server:
            model = OpenResponses(server.base_url)
            events = model.stream(request())
            task = asyncio.ensure_future(anext(events))
            await until(lambda: bool(server.bodies))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.gone()
            with pytest.raises(StopAsyncIteration):
                await anext(events)
            await model.aclose()


async def test_closing_ends_a_read_that_waits_in_another_task() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"2\r\n: \r\n")
        await reader.read()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    for answer in (silent, mute):
        async with RawServer(answer) as server:
            model = OpenResponses(server.base_url)
            events = model.stream(request())
            task = asyncio.ensure_future(anext(events))
            await until(lambda: bool(server.bodies))
            await asyncio.sleep(0.01)
            await events.aclose()
            with pytest.raises(StopAsyncIteration):
                await task
            await server.gone()
            await model.aclose()


async def test_a_request_that_does_not_stream_closes_when_it_is_cancelled() -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with RawServer(mute) as server:
        model = OpenResponses(server.base_url)
        task = asyncio.ensure_future(model.create(request()))
        await until(lambda: bool(server.bodies))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.gone()
        await model.aclose()


# --- connections ---------------------------------------------------------------------------


async def test_a_finished_stream_leaves_its_connection_for_the_next_request() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        head, end = chunks([delta() + COMPLETED])
        writer.write(head)
        await writer.drain()
        await asyncio.sleep(0.005)  # the end of the body comes after the terminal event
        writer.write(end)

    async with RawServer(answer) as server:
        model = OpenResponses(server.base_url)
        for _ in range(3):
            await collect(model.stream(request()))
        assert len(server.heads) == 3
        assert server.connections == 1
        await model.aclose()
        await server.gone()


async def test_a_body_that_does_not_end_after_its_stream_costs_only_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "LINGER", 0.01)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE_HEAD + b"Connection: close\r\n\r\n" + COMPLETED)
        await reader.read()

    async with RawServer(answer) as server:
        model = OpenResponses(server.base_url)
        assert (await collect(model.stream(request()))).id == "resp_1"
        await server.gone()
        await model.aclose()


async def test_many_streams_at_once() -> None:
    async with RawServer(sse(delta() * 100 + COMPLETED)) as server:
        model = OpenResponses(server.base_url)

        async def one() -> int:
            async with model.stream(request()) as events:
                return len([event async for event in events])

        assert await asyncio.gather(*(one() for _ in range(50))) == [101] * 50
        await model.aclose()
        await server.gone()


async def test_a_closed_client_opens_again() -> None:
    async with RawServer(sse(COMPLETED)) as server:
        model = OpenResponses(server.base_url)
        for _ in range(2):
            await collect(model.stream(request()))
            await model.aclose()
        assert server.connections == 2


LOOPS = """
import asyncio, gc, logging
from perdure.loop.model import ModelRequest, collect
from perdure.loop.transcript import Items
from perdure.models import OpenResponses
from perdure.testing import LoopbackServer, ScriptedModel
from perdure.wire import Request, user

models = []

# That a loaded machine is slow is no leak.
logging.getLogger("asyncio").addFilter(lambda record: "took" not in record.msg)

async def once(model):
    async with LoopbackServer(ScriptedModel(["Hello there."])) as server:
        urls[0] = server.base_url
        request = ModelRequest(settings=Request(model="m"), input=Items.of([user("hi")]))
        return (await collect(model.stream(request))).output_text

async def abandon(model):
    async with LoopbackServer(ScriptedModel(["Hello there."])) as server:
        urls[0] = server.base_url
        request = ModelRequest(settings=Request(model="m"), input=Items.of([user("hi")]))
        stream = model.stream(request)
        await anext(stream)
        models.append(stream)

urls = [""]
model = OpenResponses(lambda: urls[0])
for _ in range(3):
    print(asyncio.run(once(model)))
asyncio.run(abandon(model))
models.clear()
print(asyncio.run(once(OpenResponses(lambda: urls[0]))))
gc.collect()
"""


def test_an_event_loop_that_ends_closes_its_connections_without_a_word() -> None:
    source = Path(__file__).resolve().parents[3] / "src"
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(source)]))
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", LOOPS],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == ["Hello there."] * 4


@pytest.mark.parametrize("name", ["connect", "first_byte", "idle", "total"])
def test_a_timeout_must_be_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Timeouts(**{name: 0.0})
    assert getattr(Timeouts(**{name: None}), name) is None


async def test_environment_proxies_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with RawServer(sse(COMPLETED)) as server:
        model = OpenResponses(server.base_url)
        await collect(model.stream(request()))
        await model.aclose()
        assert server.connections == 1


async def test_a_refusal_is_one_of_the_errors_a_caller_can_catch() -> None:
    async with RawServer(http(b'{"error":{"message":"no"}}', status=401)) as server:
        model = OpenResponses(server.base_url)
        for kind in (AuthFailed, Rejected, ModelError):
            with pytest.raises(kind):
                await collect(model.stream(request()))
        await model.aclose()
