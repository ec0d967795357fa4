"""What the loop asks of a model: to stream one response."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

import msgspec

from perdure.errors import Truncated
from perdure.loop.compaction import Compaction
from perdure.loop.transcript import Items
from perdure.wire import (
    Fold,
    Request,
    Response,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
)


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request: its settings, and the input as a snapshot of the transcript.

    Attributes:
        settings: Every member but `input`.
        input: What the model reads, in order.
        via: Who is asked, in place of the drive's own model. Its name is in the settings.
        compaction: What its input begins with in place of the transcript's beginning.
    """

    settings: Request
    input: Items
    via: Model | None = None
    compaction: Compaction | None = None

    def to_request(self) -> Request:
        """The request as one wire value. Copies the input; meant for tests and for people."""
        return msgspec.structs.replace(self.settings, input=tuple(self.input))


@runtime_checkable
class Model(Protocol):
    """Anything that streams an Open Responses response.

    An implementation is usually an async generator method. Contract:

    * The events come in the order of the wire and end with a terminal one. An implementation whose
      server was cut off raises `errors.Truncated` after the events that came.
    * A failure raises an `errors.ModelError`. Nothing is sent again behind the caller's back.
    * It may have an `async check()` that raises `errors.ConfigError` if no request could be sent,
      for want of a key, say; it is asked before a drive begins.
    * The caller closes the iterator (`aclose`) as soon as it wants no more events; whatever the
      iterator holds, a connection above all, is released before `aclose` returns.
    """

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """The events of the response to `request`."""
        ...


async def collect(stream: AsyncIterator[StreamEvent]) -> Response:
    """Fold a stream to its response, and close it.

    Returns:
        The response of the terminal event; its `status` says how it went.

    Raises:
        Truncated: The stream ended before its terminal event.
    """
    fold = Fold()
    try:
        async for event in stream:
            fold.feed(event)
            if is_terminal(event):
                return fold.response()
    finally:
        await close(stream)
    raise Truncated


_TERMINAL = frozenset({ResponseCompleted, ResponseIncomplete, ResponseFailed})


def is_terminal(event: StreamEvent) -> bool:
    """Whether an event ends its stream."""
    return type(event) in _TERMINAL


async def close(stream: AsyncIterator[StreamEvent]) -> None:
    """Close a model's stream, if it holds anything to close."""
    aclose = getattr(stream, "aclose", None)
    if aclose is not None:
        await aclose()


async def check(model: Model) -> None:
    """Ask a model whether it could send a request.

    Raises:
        ConfigError: It could not.
    """
    ask = getattr(model, "check", None)
    if ask is not None:
        await ask()
