"""Cassettes: recorded traffic with models, to test against without a key or a network.

```python
with Cassette("tapes/weather.jsonl"):  # records once, replays ever after
    result = await agent.run("What is the weather in Oslo?")
```

A *cassette* is a file of JSON lines, one *exchange* each: the request as it was sent, the answer
with its exact bytes, and where they were cut into pieces on their way. It stands below the
adapters, so they run as ever. Keys are in no cassette: of headers, only those of an answer that
describe it are kept, and the secrets of URLs are replaced.
"""

from __future__ import annotations

import abc
import asyncio
import contextvars
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

import msgspec

from perdure.errors import BadBody, ConfigError, ModelError, Transport, Truncated
from perdure.loop import Loss, losses_of
from perdure.loop.model import Model, ModelRequest, close
from perdure.middleware import Redactor
from perdure.models import Resolved, Target
from perdure.models.capabilities import Capabilities, of_client, of_scheme
from perdure.models.http.body import Body
from perdure.models.http.taping import Incoming, Tape, current_tape
from perdure.models.others.targets import target_of
from perdure.testing.cassettes_file import (
    Exchange,
    Failure,
    difference,
    read_cassette,
    value_of,
    write_cassette,
)
from perdure.wire import StreamEvent

__all__ = [
    "Cassette",
    "Exchange",
    "Mode",
    "NotRecorded",
    "RecordedModel",
    "read_cassette",
    "write_cassette",
]

Mode = Literal["auto", "record", "replay"]
"""Replay if the file is there and record if not; or one of the two, whatever is there."""

KEPT_HEADERS = frozenset(
    (
        "content-type",
        "request-id",
        "retry-after",
        "retry-after-ms",
        "x-amzn-errortype",
        "x-amzn-requestid",
        "x-request-id",
        "x-should-retry",
    )
)
"""The headers of an answer that a cassette keeps."""


class NotRecorded(ModelError):
    """A request that the cassette has no answer to.

    Attributes:
        at: Where it differs from the nearest one that is recorded, as `input[2].content`.
    """

    def __init__(self, path: str, url: str, at: str = "") -> None:
        self.at = at
        where = f"; the nearest one differs at {at or 'its root'}" if at != "-" else ""
        super().__init__(
            f"cassette {path!r} has no answer to this request to {url}{where}; "
            "record it again if the change is meant"
        )


# --- the cassette -----------------------------------------------------------------------------


class Cassette:
    """Records the requests that are sent inside its `with` block, or answers them from its file.

    A request is answered by the first exchange that was not used yet and whose path and body are
    the same; the order of members does not matter. Where nothing fits it fails, and the error says
    where the nearest one differs. Recording writes the file when the block ends without an error.

    Args:
        path: The file.
        mode: Whether to record or to replay.
        scrub: Takes what must not be kept out of a body, of requests and of answers that are UTF-8;
            replay scrubs before it compares.
        by_order: Answer requests in the order of the file, whatever they say.

    Raises:
        ConfigError: It is to be replayed and is not there, or is no cassette.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        mode: Mode = "auto",
        scrub: Callable[[str], str] | None = None,
        by_order: bool = False,
    ) -> None:
        self.path = Path(path)
        if mode == "replay" and not self.path.exists():
            raise ConfigError(f"cassette {str(path)!r} is not there; record it first")
        self._scrub = scrub or _as_it_is
        self._by_order = by_order
        self.recording = mode == "record" or (mode == "auto" and not self.path.exists())
        self._left = [] if self.recording else read_cassette(self.path)
        self._taken: list[_Recorded] = []
        self._tokens: list[contextvars.Token[Tape | None]] = []

    @property
    def keyless(self) -> bool:
        """Whether no request goes out."""
        return not self.recording

    @property
    def unused(self) -> tuple[Exchange, ...]:
        """What is recorded and nobody has asked for."""
        return tuple(self._left)

    def __enter__(self) -> Self:
        self._tokens.append(current_tape.set(self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        current_tape.reset(self._tokens.pop())
        if self.recording and not self._tokens and error is None:
            self.save()

    def save(self) -> None:
        """Write what was recorded until now."""
        write_cassette(self.path, [one.exchange(self._scrub) for one in self._taken])

    async def post(self, url: str, body: Body, send: Callable[[], Awaitable[Incoming]]) -> Incoming:
        """Answer a request, or send it and listen.

        Raises:
            NotRecorded: It is to be answered, and nothing that is recorded fits.
            ModelError: No answer came, then or now.
        """
        request = self._scrub(b"".join(body.fragments).decode())
        if not self.recording:
            return await self._answer(url, request)
        taken = _Recorded(url, request)
        self._taken.append(taken)
        try:
            taken.answer = await send()
        except ModelError as error:
            taken.failure = Failure.of(error)
            raise
        return taken

    async def _answer(self, url: str, request: str) -> Incoming:
        found = self._find(urlsplit(url).path, request)
        if found is None:
            raise NotRecorded(str(self.path), url, self._difference(url, request))
        self._left.remove(found)
        await asyncio.sleep(0)
        if not found.status:
            raise (found.failure or Failure(type="Transport")).error()
        return _Replayed(found)

    def _find(self, path: str, request: str) -> Exchange | None:
        if self._by_order:
            return self._left[0] if self._left else None
        asked = value_of(request)
        for one in self._left:
            if one.path == path and one.value() == asked:
                return one
        return None

    def _difference(self, url: str, request: str) -> str:
        """Where the nearest exchange differs: the one that agrees the longest."""
        path = urlsplit(url).path
        places = [
            difference(one.value(), value_of(request)) for one in self._left if one.path == path
        ]
        return max((place for place in places if place is not None), key=len, default="-")


class _Body(abc.ABC):
    """The reading of an answer that gives its pieces one by one."""

    @property
    @abc.abstractmethod
    def status(self) -> int: ...

    @property
    @abc.abstractmethod
    def headers(self) -> Mapping[str, str]: ...

    @abc.abstractmethod
    async def read(self) -> bytes: ...

    async def read_all(self, limit: int) -> bytes:
        pieces: list[bytes] = []
        while piece := await self.read():
            pieces.append(piece)
            if sum(map(len, pieces)) > limit:
                self.abort()
                raise BadBody(f"the answer is larger than {limit} bytes", status=self.status)
        return b"".join(pieces)

    async def read_some(self, limit: int) -> bytes:
        data = b""
        try:
            while len(data) < limit and (more := await self.read()):
                data += more
        except ModelError:
            pass
        return data

    async def finish(self) -> None:
        return None

    def abort(self) -> None:
        return None


class _Recorded(_Body):
    """An answer that is listened to."""

    def __init__(self, url: str, request: str) -> None:
        self._url = url
        self._request = request
        self._pieces: list[bytes] = []
        self._ended = False
        self.failure: Failure | None = None
        self.answer: Incoming | None = None

    @property
    def status(self) -> int:
        return self._incoming().status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._incoming().headers

    async def read(self) -> bytes:
        try:
            piece = await self._incoming().read()
        except ModelError as error:
            self.failure = Failure.of(error)
            raise
        self._ended = not piece
        if piece:
            self._pieces.append(piece)
        return piece

    async def finish(self) -> None:
        # What follows the terminal event is read, so that it is recorded, too.
        try:
            async with asyncio.timeout(1.0):
                while await self.read():
                    pass
        except (ModelError, TimeoutError):
            self.abort()

    def abort(self) -> None:
        self._incoming().abort()

    def exchange(self, scrub: Callable[[str], str]) -> Exchange:
        """What is kept."""
        whole = b"".join(self._pieces)
        text = _text(whole)
        clean = scrub(text) if text is not None else None
        answer = self.answer
        kept = {} if answer is None else {n.lower(): v for n, v in answer.headers.items()}
        return Exchange(
            url=Redactor()(self._url),
            request=msgspec.Raw(_json(self._request)),
            status=0 if answer is None else answer.status,
            headers={name: kept[name] for name in sorted(KEPT_HEADERS & kept.keys())},
            cuts=[len(piece) for piece in self._pieces] if clean == text else [],
            body=clean or "",
            body_b64="" if clean is not None else b64encode(whole).decode(),
            failure=self.failure,
            abandoned=answer is not None and not self._ended and self.failure is None,
        )

    def _incoming(self) -> Incoming:
        if self.answer is None:
            raise Transport("no answer has come")
        return self.answer


class _Replayed(_Body):
    """An answer from a cassette."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._pieces = exchange.pieces()[::-1]
        self._aborted = False

    @property
    def status(self) -> int:
        return self._exchange.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._exchange.headers

    async def read(self) -> bytes:
        await asyncio.sleep(0)  # as a network would, let others run
        if self._aborted:
            raise Transport("the stream was closed")
        if self._pieces:
            return self._pieces.pop()
        if self._exchange.failure is not None:
            raise self._exchange.failure.error()
        if self._exchange.abandoned:
            raise Truncated("nobody read this answer to its end when it was recorded")
        return b""

    def abort(self) -> None:
        self._aborted = True


def _as_it_is(text: str) -> str:
    return text


def _json(text: str) -> bytes:
    """A request as one line of JSON: as it was sent, or a string of it."""
    if isinstance(value_of(text), str) or "\n" in text:
        return msgspec.json.encode(text)
    return text.encode()


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


# --- a model with a cassette of its own ---------------------------------------------------------


class RecordedModel:
    """A model whose traffic is recorded once and replayed ever after.

    ```python
    agent = Agent(RecordedModel("openai:gpt-5-mini", "tapes/weather.jsonl"), tools=[weather])
    ```

    What is recorded is what its adapter sends and gets, so a replay runs the adapter. A model that
    sends nothing through perdure's transport has nothing to record.

    Args:
        model: A model string, a client with a name, or a client.
        path: The cassette.
        mode: Whether to record or to replay.
        scrub: As for `Cassette`.
    """

    def __init__(
        self,
        model: Target,
        path: str | Path,
        *,
        mode: Mode = "auto",
        scrub: Callable[[str], str] | None = None,
    ) -> None:
        self._resolved: Resolved = target_of(model)
        self._scheme = model.partition(":")[0] if isinstance(model, str) else ""
        self.cassette = Cassette(path, mode=mode, scrub=scrub)

    @property
    def model(self) -> Model:
        """The model behind it."""
        return self._resolved.model

    def capabilities(self, model: str) -> Capabilities:
        """What the model behind it can do."""
        name = self._resolved.name or model
        return of_scheme(self._scheme, name) if self._scheme else of_client(self.model, name)

    def losses(self, request: ModelRequest) -> tuple[Loss, ...]:
        """What of a request the model behind it does not get."""
        return losses_of(self.model, self._named(request))

    def _named(self, request: ModelRequest) -> ModelRequest:
        name = self._resolved.name or request.settings.model
        settings = msgspec.structs.replace(request.settings, model=name)
        return msgspec.structs.replace(request, settings=settings, via=None)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """The events of the answer. Raises as the model, and `NotRecorded`."""
        stream = self.model.stream(self._named(request))
        try:
            with self.cassette:  # sending is all that the tape has to see
                first = await anext(stream, None)
            if first is None:
                return
            yield first
            async for event in stream:
                yield event
        finally:
            await close(stream)
            if self.cassette.recording:
                self.cassette.save()
