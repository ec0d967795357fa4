"""Rate limits: of requests to a model, and of calls of tools."""

from __future__ import annotations

import fnmatch
from collections.abc import AsyncGenerator, Sequence

from perdure.clock import Clock
from perdure.loop import Middleware, ModelRequest, NextModel, NextTool, ToolCallInfo
from perdure.loop.model import close
from perdure.middleware.bucket import Bucket
from perdure.tools import ToolResult
from perdure.wire import StreamEvent


class RateLimit(Middleware):
    """Lets so many requests go out in a time: retries, fallbacks and hedges are requests too.

    It counts what is sent, wherever it stands in the list. Agents that share one share its limit.

    Args:
        requests: How many in `per` seconds.
        per: Seconds; zero or less is no limit.
        burst: How many at once after a pause; `requests` unless given.
        clock: Where the time comes from.

    Raises:
        ConfigError: `requests` is not positive.
    """

    per_request = True

    def __init__(
        self,
        requests: float,
        *,
        per: float = 60.0,
        burst: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._bucket = Bucket(requests, per=per, burst=burst, clock=clock)

    async def wrap_model_call(
        self,
        request: ModelRequest,
        next: NextModel,  # noqa: A002 - the hook's own name
    ) -> AsyncGenerator[StreamEvent, None]:
        """Wait for a token, then send."""
        await self._bucket.take()
        stream = next(request)
        try:
            async for event in stream:
                yield event
        finally:
            await close(stream)


class ToolRateLimit(Middleware):
    """Lets so many calls of tools run in a time. A call that waits keeps its place in the batch.

    Args:
        calls: How many in `per` seconds, of all the tools it limits together.
        per: Seconds; zero or less is no limit.
        tools: Names of the tools it limits, or shell patterns over names; all unless given.
        burst: How many at once after a pause; `calls` unless given.
        clock: Where the time comes from.

    Raises:
        ConfigError: `calls` is not positive.
    """

    def __init__(
        self,
        calls: float,
        *,
        per: float = 60.0,
        tools: Sequence[str] = ("*",),
        burst: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._bucket = Bucket(calls, per=per, burst=burst, clock=clock)
        self._tools = tuple(tools)

    async def wrap_tool_call(self, info: ToolCallInfo, next: NextTool) -> ToolResult:  # noqa: A002
        """Wait for a token, then run the call."""
        if any(fnmatch.fnmatchcase(info.call.name, pattern) for pattern in self._tools):
            await self._bucket.take()
        return await next()
