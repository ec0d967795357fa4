"""Where recorded traffic comes in: below the adapters, in place of the network.

A *tape* stands between the adapters of the code that runs under it and their servers. It sees each
request as bytes, may let it through or answer it, and the adapters notice nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Protocol

from perdure.models.http.body import Body


class Incoming(Protocol):
    """An answer on its way: `transport.Answer`, and what stands in for it."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read(self) -> bytes:
        """What has come, at least a byte; nothing at the end of the body."""
        ...

    async def read_all(self, limit: int) -> bytes:
        """The body."""
        ...

    async def read_some(self, limit: int) -> bytes:
        """The beginning of the body, as far as it comes; raises nothing."""
        ...

    async def finish(self) -> None:
        """Let the connection be used again, if the body ends at once."""
        ...

    def abort(self) -> None:
        """Close the connection now."""
        ...


class Tape(Protocol):
    """What answers in place of the network, or listens to it."""

    @property
    def keyless(self) -> bool:
        """Whether no request goes out, so that a key that is missing is missed by nobody."""
        ...

    async def post(self, url: str, body: Body, send: Callable[[], Awaitable[Incoming]]) -> Incoming:
        """The answer to a request. `send` sends it; its errors are the network's."""
        ...


current_tape: ContextVar[Tape | None] = ContextVar("perdure_tape", default=None)
"""The tape that requests go to."""

TAPED_KEY = "taped"
"""The key that is sent where none is needed."""
