"""A real Open Responses server on loopback, in front of any model.

```python
async with LoopbackServer(ScriptedModel(["Hello."])) as server:
    model = OpenResponses(server.base_url)
```
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import NamedTuple, Self

from aiohttp import web
from msgspec.structs import replace

from perdure.errors import InvalidRequest, Rejected, Transport, Truncated
from perdure.loop.model import Model, ModelRequest, close, collect, is_terminal
from perdure.loop.transcript import Items
from perdure.models.http.failures import failure
from perdure.wire import (
    ABSENT,
    CompactRequest,
    CompactResponse,
    ErrorEvent,
    Request,
    Response,
    ResponseFailed,
    StreamEvent,
    Wire,
    decode_compact_request,
    decode_request,
    encode,
    user,
)
from perdure.wire.errors import error_body, error_to_http
from perdure.wire.fold import Fold
from perdure.wire.sse import SSE_DONE, SSE_HEADERS, write_sse
from perdure.wire.validate import validate_request

BODY_LIMIT = 16 * 1024 * 1024
"""The bytes of the largest request that is taken."""

GRACE = 1.0
"""Seconds that answers still running get when the server stops."""


class Received(NamedTuple):
    """A request as it came."""

    path: str
    headers: Mapping[str, str]
    body: bytes


Handler = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
"""Answers a request itself, well or badly; None leaves it to the server."""

Compact = Callable[[CompactRequest], Awaitable[CompactResponse]]


class LoopbackServer:
    """Serves a model at `base_url` for as long as the `async with` block runs.

    `POST /v1/responses` streams or not, as the request asks, and refuses what the specification
    refuses. What the model raises before its first event is an HTTP error; later it is an `error`
    event and `response.failed`; `Truncated` and `Transport` cut the connection.

    Args:
        model: Who answers.
        handler: Sees each request first; it may answer, well or badly, or leave it to the server.
        compact: Answers `POST /v1/responses/compact`; without it that is refused.
        port: Where to listen; 0 takes a free port.

    Attributes:
        received: The requests that came, in order.
        written: How many events it has written, over all streams.
        abandoned: How many streams their clients closed before the end.
    """

    def __init__(
        self,
        model: Model,
        *,
        handler: Handler | None = None,
        compact: Compact | None = None,
        port: int = 0,
    ) -> None:
        self._model = model
        self._handler = handler
        self._compact = compact
        self._port = port
        self._runner: web.AppRunner | None = None
        self.received: list[Received] = []
        self.written = 0
        self.abandoned = 0

    @property
    def base_url(self) -> str:
        """What a client appends `/responses` to."""
        return f"http://127.0.0.1:{self._port}/v1"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_post("/v1/responses", self._responses)
        app.router.add_post("/v1/responses/compact", self._compactions)
        # With cancellation a handler learns at once that its client has gone.
        runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=GRACE
        )
        await runner.setup()
        self._runner = runner
        await web.TCPSite(runner, "127.0.0.1", self._port).start()
        self._port = runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _responses(self, http: web.Request) -> web.StreamResponse:
        return await self._answer(http, self._respond)

    async def _compactions(self, http: web.Request) -> web.StreamResponse:
        return await self._answer(http, self._respond_compact)

    async def _answer(
        self,
        http: web.Request,
        respond: Callable[[web.Request, bytes], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        try:
            body = await http.read()
        except web.HTTPRequestEntityTooLarge:
            too_large = Rejected(
                f"a request may have {BODY_LIMIT} bytes",
                status=413,
                type="invalid_request",
                code="request_too_large",
            )
            return _error(too_large)
        self.received.append(Received(http.path, dict(http.headers), body))
        answer = await self._handler(http) if self._handler is not None else None
        if answer is not None:
            return answer
        try:
            return await respond(http, body)
        except Truncated:
            return _cut(http, reset=False)
        except Transport:
            return _cut(http, reset=True)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a model raises is the server's answer
            return _error(error)

    async def _respond(self, http: web.Request, body: bytes) -> web.StreamResponse:
        request = decode_request(body)
        validate_request(request)
        if request.background:
            raise InvalidRequest(
                "is not supported", param="background", code="unsupported_parameter"
            )
        events = self._model.stream(_model_request(request))
        if not request.stream:
            return _json(_or_raise(await collect(events)))
        try:
            first = await anext(events, None)
            if first is None:
                raise Truncated
            return await self._stream(http, first, events)
        finally:
            await close(events)

    async def _respond_compact(self, http: web.Request, body: bytes) -> web.StreamResponse:
        del http
        request = decode_compact_request(body)
        validate_request(request)
        if self._compact is None:
            raise Rejected(
                "this server folds no histories",
                type="invalid_request",
                code="compaction_not_supported",
            )
        return _json(await self._compact(request))

    async def _stream(
        self, http: web.Request, first: StreamEvent, rest: AsyncIterator[StreamEvent]
    ) -> web.StreamResponse:
        answer = web.StreamResponse(headers=dict(SSE_HEADERS))
        shown = _Shown()
        try:
            await answer.prepare(http)
            await self._write(answer, shown, first)
            if not is_terminal(first):
                await self._rest(answer, shown, rest)
            await answer.write(SSE_DONE)
        except (ConnectionResetError, asyncio.CancelledError):
            self.abandoned += 1
            raise
        return answer

    async def _rest(
        self, answer: web.StreamResponse, shown: _Shown, rest: AsyncIterator[StreamEvent]
    ) -> None:
        try:
            async for event in rest:
                await self._write(answer, shown, event)
                if is_terminal(event):
                    return
        except (Truncated, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a model raises is told to the client
            for event in shown.failing(error):
                await self._write(answer, shown, event)
            return
        raise Truncated

    async def _write(self, answer: web.StreamResponse, shown: _Shown, event: StreamEvent) -> None:
        shown.feed(event)
        self.written += 1
        await answer.write(write_sse(event.type, encode(event)))


class _Shown:
    """What a client has been shown of a stream."""

    __slots__ = ("_count", "_fold")

    def __init__(self) -> None:
        self._count = 0
        self._fold = Fold()

    def feed(self, event: StreamEvent) -> None:
        self._count += 1
        self._fold.feed(event)

    def failing(self, error: Exception) -> tuple[StreamEvent, StreamEvent]:
        """The end of a stream that failed in the middle."""
        payload = error_to_http(error).payload
        response = self._fold.response() or Response(id="", object="response", output=())
        failed = replace(response, status="failed", error=payload)
        return (
            ErrorEvent(error=payload, sequence_number=self._count),
            ResponseFailed(response=failed, sequence_number=self._count + 1),
        )


def _model_request(request: Request) -> ModelRequest:
    given = request.input or ()
    items = (user(given),) if isinstance(given, str) else given
    return ModelRequest(settings=replace(request, input=ABSENT), input=Items.of(items))


def _or_raise(response: Response) -> Response:
    """The response, unless it failed: then its error is the HTTP answer."""
    if response.status == "failed" and response.error:
        raise failure(response.error)
    return response


def _json(value: Wire) -> web.Response:
    return web.Response(body=encode(value), content_type="application/json")


def _error(error: Exception) -> web.Response:
    status, payload = error_to_http(error)
    headers: dict[str, str] = {}
    if isinstance(error, Rejected) and error.retry_after is not None:
        headers["Retry-After"] = f"{error.retry_after:g}"
    return web.Response(
        status=status, body=error_body(payload), content_type="application/json", headers=headers
    )


def _cut(http: web.Request, *, reset: bool) -> web.StreamResponse:
    """Close the connection in the middle of the answer."""
    transport = http.transport
    if transport is not None:
        sock = transport.get_extra_info("socket")
        if reset and sock is not None:  # without it the client sees an orderly end
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.close()
    return web.Response()
