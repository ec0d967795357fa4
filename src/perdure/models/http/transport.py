"""HTTP on aiohttp: a session for each event loop, bodies of fragments, waits with limits.

The one module that imports aiohttp; others import it when they first send something. Everything it
raises is an `errors.ModelError`. Nothing here sends a request twice, follows a redirect, asks for
compression, keeps cookies, or looks for a proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import lru_cache, partial
from typing import NoReturn, cast

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from perdure.errors import BadBody, ModelError, ModelTimeout, TimeoutPhase, Transport, Truncated
from perdure.models.http.body import Body
from perdure.models.http.taping import current_tape
from perdure.models.http.timeouts import Timeouts

LINGER = 0.1
"""Seconds to wait for the end of a body whose stream has ended, so that its connection is kept."""


class Sessions:
    """aiohttp sessions, one for each event loop that sends.

    A session keeps connections open between requests. It closes with `aclose`, and when its event
    loop shuts down.
    """

    __slots__ = ("__weakref__", "_by_loop")

    def __init__(self) -> None:
        self._by_loop: dict[asyncio.AbstractEventLoop, _Session] = {}

    async def current(self) -> aiohttp.ClientSession:
        """The session of the running event loop."""
        loop = asyncio.get_running_loop()
        session = self._by_loop.get(loop)
        if session is None:
            for other in [known for known in self._by_loop if known.is_closed()]:
                del self._by_loop[other]
            session = self._by_loop[loop] = _Session()
            await session.park(partial(_forget, weakref.ref(self), loop))
        return session.client

    def forget(self, loop: asyncio.AbstractEventLoop) -> None:
        """The session of `loop` is closed."""
        self._by_loop.pop(loop, None)

    async def aclose(self) -> None:
        """Close the running event loop's session. Streams that still run on it end in an error."""
        session = self._by_loop.get(asyncio.get_running_loop())
        if session is not None:
            await session.aclose()


class _Session:
    """A session, and what closes it with its event loop."""

    __slots__ = ("_guard", "client")

    def __init__(self) -> None:
        self.client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        self._guard: AsyncGenerator[None] | None = None

    async def park(self, closed: Callable[[], object]) -> None:
        """Have the event loop close the session when it shuts down.

        It closes the async generators that were begun in it, so one waits here in its `yield`.
        """
        self._guard = _close_at_end(self.client, closed)
        await anext(self._guard)

    async def aclose(self) -> None:
        if self._guard is not None:
            await self._guard.aclose()


def _forget(sessions: weakref.ref[Sessions], loop: asyncio.AbstractEventLoop) -> None:
    # Weak, so that no cycle forms: sessions that are dropped close at once, not with the garbage.
    found = sessions()
    if found is not None:
        found.forget(loop)


async def _close_at_end(
    client: aiohttp.ClientSession, closed: Callable[[], object]
) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        closed()
        await client.close()


async def post(
    session: aiohttp.ClientSession,
    url: str,
    headers: Mapping[str, str],
    body: Body,
    timeouts: Timeouts,
) -> Answer:
    """`send`, unless a tape answers in place of the network. Raises as `send`."""
    tape = current_tape.get()
    if tape is None:
        return await send(session, url, headers, body, timeouts)
    taped = await tape.post(url, body, lambda: send(session, url, headers, body, timeouts))
    return cast("Answer", taped)


async def send(
    session: aiohttp.ClientSession,
    url: str,
    headers: Mapping[str, str],
    body: Body,
    timeouts: Timeouts,
) -> Answer:
    """Send one request, and wait for the head of its answer.

    Raises:
        ModelTimeout: Connecting, the first byte, or all of it takes too long.
        Transport: The connection failed.
        BadBody: The answer is not HTTP.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    phase, seconds = _first_limit(timeouts)
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            response = await session.post(
                url,
                data=_FragmentPayload(body),
                headers=headers,
                allow_redirects=False,
                timeout=_client_timeout(timeouts.connect),
            )
    except aiohttp.ServerTimeoutError as error:
        raise ModelTimeout("connect", timeouts.connect or 0) from error
    except TimeoutError as error:
        if not scope.expired() or seconds is None:
            raise Transport(f"the request to {url} timed out: {error}") from error
        raise ModelTimeout(phase, seconds) from None
    except (aiohttp.ClientError, OSError) as error:
        _raise_unsent(url, error)
    return Answer(response, timeouts, started)


def _first_limit(timeouts: Timeouts) -> tuple[TimeoutPhase, float | None]:
    """Which limit ends the wait for the head of an answer."""
    if timeouts.total is not None and timeouts.total <= (timeouts.first_byte or timeouts.total):
        return "total", timeouts.total
    return "first_byte", timeouts.first_byte


@lru_cache(maxsize=16)
def _client_timeout(connect: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, connect=connect)


def _raise_unsent(url: str, error: Exception) -> NoReturn:
    """Raise ours for an error that came before the head of an answer."""
    match error:
        case aiohttp.ClientResponseError():
            reason = " ".join(error.message.split())
            # Not chained: its repr shows the request's headers, and so the key.
            raise BadBody(f"the answer of {url} is not HTTP: {reason}") from None
        case aiohttp.InvalidURL():
            raise Transport(f"{url!r} is not a URL", sent=False) from error
        case aiohttp.ServerDisconnectedError():
            raise Transport(f"{url} closed the connection without an answer") from error
        case aiohttp.ClientConnectorError():
            why = f"cannot connect to {url}: {error.os_error}"
            raise Transport(why, sent=False) from error
        case _:
            raise Transport(f"the connection to {url} failed: {error}") from error


class Answer:
    """The answer to one request: its head, and its body as it comes.

    One timer watches it. A read that has to wait only notes since when; the timer looks at the note
    when it goes off, and is set again for what is left. So a chunk costs no timer of its own.
    """

    __slots__ = (
        "_content",
        "_deadline",
        "_error",
        "_idle",
        "_limit",
        "_loop",
        "_protocol",
        "_response",
        "_since",
        "_timer",
        "headers",
        "status",
    )

    def __init__(
        self, response: aiohttp.ClientResponse, timeouts: Timeouts, started: float
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._content = response.content
        self._protocol = response.connection.protocol if response.connection else None
        self._loop = asyncio.get_running_loop()
        self._error: ModelError | None = None
        self._idle: tuple[TimeoutPhase, float | None] = ("idle", timeouts.idle)
        self._limit: tuple[TimeoutPhase, float | None] = ("first_byte", timeouts.first_byte)
        self._since: float | None = started  # a read has waited since; None while none does
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        if timeouts.total is not None:
            self._deadline = self._loop.call_at(
                started + timeouts.total, self._expire, "total", timeouts.total
            )

    async def read(self) -> bytes:
        """What has come, at least a byte; nothing at the end of the body.

        Raises:
            ModelTimeout: The server was silent for too long, or the whole took too long.
            Transport: The connection was reset.
            Truncated: The connection was closed before the body had ended.
        """
        if self._error is not None:
            raise self._error
        self._watch()
        try:
            data = await self._content.readany()
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            return self._broken(error)
        finally:
            self._since = None
        if not data:
            self._stop_watching()
        elif self._limit is not self._idle:
            self._limit = self._idle
            if self._timer is not None:  # it is set for the first byte
                self._timer.cancel()
                self._timer = None
        return data

    async def read_all(self, limit: int) -> bytes:
        """The body. Raises as `read`, and `BadBody` if it is larger than `limit` bytes."""
        pieces: list[bytes] = []
        size = 0
        while data := await self.read():
            pieces.append(data)
            size += len(data)
            if size > limit:
                self.abort()
                raise BadBody(f"the answer is larger than {limit} bytes", status=self.status)
        return b"".join(pieces)

    async def read_some(self, limit: int) -> bytes:
        """The beginning of the body, as far as it comes; raises nothing."""
        data = b""
        with contextlib.suppress(ModelError):
            while len(data) < limit and (more := await self.read()):
                data += more
        return data

    async def finish(self) -> None:
        """Let the connection be used again, if the body ends at once; close it otherwise."""
        try:
            async with asyncio.timeout(LINGER):
                while await self.read():
                    pass
        except (ModelError, TimeoutError):
            self.abort()
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Close the connection now. A read that waits raises."""
        self._fail(Transport("the stream was closed"))

    # --- what goes wrong -------------------------------------------------------

    def _fail(self, error: ModelError) -> None:
        self._stop_watching()
        if self._error is None:
            self._error = error
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()
        if not self._content.is_eof():
            self._content.set_exception(error)

    def _broken(self, error: Exception) -> bytes:
        """The bytes that had come before the connection broke. The next read raises."""
        if self._error is not None:  # we broke it ourselves
            raise self._error from None
        self._error = self._cause(error)
        self._error.__cause__ = error
        self._stop_watching()
        self._response.close()
        # The buffer still holds what came, but refuses to give it while there is an exception.
        self._content.set_exception(None)  # type: ignore[arg-type]
        rest = self._content.read_nowait()
        if not rest:
            raise self._error
        return rest

    def _cause(self, error: Exception) -> ModelError:
        lost = self._protocol.exception() if self._protocol is not None else None
        if isinstance(error, aiohttp.ClientPayloadError) and not _is_reset(lost):
            return Truncated("the connection was closed before the end of the answer")
        return Transport(f"the connection broke while the answer came: {lost or error}")

    # --- the watch -------------------------------------------------------------

    def _watch(self) -> None:
        if self._since is None:
            self._since = self._loop.time()
        seconds = self._limit[1]
        if self._timer is None and seconds is not None:
            self._timer = self._loop.call_at(self._since + seconds, self._look)

    def _look(self) -> None:
        """The timer went off: has a read waited for too long?"""
        self._timer = None
        phase, seconds = self._limit
        if self._since is None or seconds is None:
            return
        if self._loop.time() >= self._since + seconds:
            self._expire(phase, seconds)
        else:
            self._timer = self._loop.call_at(self._since + seconds, self._look)

    def _expire(self, phase: TimeoutPhase, seconds: float) -> None:
        self._fail(ModelTimeout(phase, seconds))

    def _stop_watching(self) -> None:
        for handle in (self._timer, self._deadline):
            if handle is not None:
                handle.cancel()
        self._timer = self._deadline = None


def _is_reset(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and not isinstance(error, aiohttp.ServerDisconnectedError)


class _FragmentPayload(aiohttp.Payload):
    """A body of fragments, written in blocks."""

    _autoclose = True  # there is nothing to close

    def __init__(self, body: Body) -> None:
        super().__init__(body, content_type="application/json")
        self._body = body
        self._size = body.length

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._body.fragments).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for block in self._body.blocks():
            await writer.write(block)

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        del content_length  # it is the size that this body gave
        await self.write(writer)
