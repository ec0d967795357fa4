"""The events of one answer, as an iterator that holds a connection and gives it back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from perdure.errors import BadBody, DecodeError, ModelError, Rejected, Transport, WireError
from perdure.models.http.client import Exchange
from perdure.wire import StreamEvent

QUOTE = 2000
"""The most bytes of a frame to keep in an error."""


class StreamEnd(NamedTuple):
    """What a decoder says if the bytes ended here.

    Attributes:
        events: What is left: the event of a last frame without its blank line.
        error: None if the stream finished; `errors.Truncated` and the like if it did not.
    """

    events: list[StreamEvent]
    error: ModelError | None


class Decoder(Protocol):
    """Makes events of the bytes of one answer, in pieces of any size."""

    @property
    def finished(self) -> bool:
        """Whether the terminal event, or the mark of the end, has come."""
        ...

    @property
    def failure(self) -> WireError | None:
        """What the next `feed` raises."""
        ...

    def feed(self, data: bytes) -> list[StreamEvent]:
        """The events that these bytes complete. Raises `WireError`, and loses none before it."""
        ...

    def end(self) -> StreamEnd:
        """What it would be if the bytes ended here. The decoder is left as it was."""
        ...


class EventStream:
    """The events of one response, in order. Each is given once, to one consumer.

    The request is sent when the first event is asked for. The connection is closed, or free for the
    next request, when the stream has ended or failed and when `aclose` returns; a read that waits
    in another task then ends too. Dropping the stream closes it as well.

    Raises:
        ConfigError: The request cannot be sent. Nothing was.
        ModelError: It failed, after the events that came before.
    """

    __slots__ = (
        "_closed",
        "_decoder",
        "_error",
        "_exchange",
        "_lock",
        "_pending",
        "_scope",
        "_send",
    )

    def __init__(self, send: Callable[[], Awaitable[Exchange]], decoder: Decoder) -> None:
        self._send = send
        self._decoder = decoder
        self._pending: Iterator[StreamEvent] = iter(())
        self._exchange: Exchange | None = None
        self._scope: asyncio.Timeout | None = None  # around sending, so that `aclose` can cut it
        self._error: ModelError | None = None  # to be raised after what is pending
        self._closed = False
        self._lock = asyncio.Lock()

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        for event in self._pending:
            return event
        return await self._more()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop, and let go of the connection."""
        self._closed = True
        self._pending = iter(())
        if self._lock.locked():
            self._interrupt()
        async with self._lock:
            await self._release()

    def __del__(self) -> None:
        exchange: Exchange | None = getattr(self, "_exchange", None)
        if exchange is not None:
            with contextlib.suppress(RuntimeError):  # its event loop is closed
                exchange.answer.abort()

    async def _more(self) -> StreamEvent:
        async with self._lock:
            try:
                while not self._closed:
                    for event in self._pending:
                        return event
                    await self._fill()
            except BaseException as error:
                if self._closed and isinstance(error, ModelError):
                    raise StopAsyncIteration from None
                self._closed = True
                self._abort()
                raise
        raise StopAsyncIteration

    async def _fill(self) -> None:
        """Get the next events; at the end, close or raise."""
        exchange = self._exchange or await self._open()
        decoder = self._decoder
        if decoder.failure is not None:
            self._error = bad_frame(decoder.failure)
        if self._error is not None:
            raise exchange.failed(self._error)
        if decoder.finished:
            self._closed = True
            await self._release()
            return
        try:
            data = await exchange.answer.read()
        except ModelError as broken:
            self._end(broken)
            return
        if not data:
            self._end(None)
            return
        with contextlib.suppress(WireError):  # it stands in `failure` then
            self._pending = iter(decoder.feed(data))

    async def _open(self) -> Exchange:
        try:
            async with asyncio.timeout(None) as self._scope:
                self._exchange = await self._send()
        except TimeoutError:
            if self._closed:
                raise StopAsyncIteration from None
            raise
        finally:
            self._scope = None
        return self._exchange

    def _end(self, broken: ModelError | None) -> None:
        """No more bytes come."""
        end = self._decoder.end()
        self._pending = iter(end.events)
        if end.error is None:
            self._decoder = _FINISHED
        elif isinstance(broken, Transport) and not isinstance(end.error, Rejected):
            self._error = broken
        else:
            self._error = end.error

    def _interrupt(self) -> None:
        """End a read that waits in another task."""
        if self._scope is not None:
            self._scope.reschedule(0)
        elif self._exchange is not None:
            self._exchange.answer.abort()

    async def _release(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if self._decoder.finished:
            await exchange.answer.finish()
        else:
            exchange.answer.abort()

    def _abort(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.answer.abort()


class _Finished:
    """The decoder of a stream that has ended well."""

    finished = True
    failure: WireError | None = None

    def feed(self, data: bytes) -> list[StreamEvent]:
        del data
        return []

    def end(self) -> StreamEnd:
        return StreamEnd([], None)


_FINISHED = _Finished()


def bad_frame(failure: WireError) -> BadBody:
    """The model's error for a frame that a decoder refused."""
    body = failure.source[:QUOTE] if isinstance(failure, DecodeError) else b""
    error = BadBody(f"the server sent a frame that is no event: {failure}", body=body)
    error.__cause__ = failure
    return error
