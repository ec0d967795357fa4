"""Calls of tools that failed, run again where their effect allows it."""

from __future__ import annotations

import random
from collections.abc import Callable

from perdure.clock import Clock, SystemClock
from perdure.counts import check_count
from perdure.errors import CallEnded, ConfigError, Guard, InvalidArguments, ToolError
from perdure.loop import Middleware, NextTool, ToolCallInfo
from perdure.loop.retry import delay
from perdure.tools import Effect, ToolResult, effect_of

REPEATABLE: frozenset[Effect] = frozenset({"none", "idempotent", "keyed"})
"""Effects that let a call run again: a keyed one does so under the key it has."""


class ToolRetry(Middleware):
    """Runs a call again that failed, unless its effect is `once` or `transactional`.

    The model sees the last attempt alone; the record has a dispatch for each, and the tool gets the
    same idempotency key each time. Arguments that do not fit fail no better a second time and are
    not tried again.

    Args:
        attempts: How often a call runs at most; the first one counts.
        retryable: Whether an error is worth another attempt; every error of a tool unless given.
        backoff: Seconds to wait, given the attempt that failed, from 1, and its error; up to half a
            second, doubling, at random, unless given.
        clock: What it waits on.

    Raises:
        ConfigError: `attempts` is not positive.
    """

    def __init__(
        self,
        attempts: int = 3,
        *,
        retryable: Callable[[Exception], bool] | None = None,
        backoff: Callable[[int, Exception], float] | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_count("ToolRetry(attempts=...)", attempts)
        self._attempts = attempts
        self._retryable = retryable or _is_tools_own
        self._backoff = backoff or _backoff
        self._clock: Clock = clock or SystemClock()

    async def wrap_tool_call(self, info: ToolCallInfo, next: NextTool) -> ToolResult:  # noqa: A002
        """Run the call until it succeeds, or for the last time."""
        attempt = 1
        while True:
            try:
                return await next()
            except (Guard, CallEnded, InvalidArguments, ConfigError):
                raise
            except Exception as error:
                if attempt >= self._attempts or not self._may(info, error):
                    raise
                await self._clock.sleep(self._backoff(attempt, error))
                attempt += 1

    def _may(self, info: ToolCallInfo, error: Exception) -> bool:
        if info.tool is None or effect_of(info.tool, info.arguments) not in REPEATABLE:
            return False
        return self._retryable(error)


def _is_tools_own(error: Exception) -> bool:
    return isinstance(error, ToolError)


def _backoff(attempt: int, error: Exception) -> float:
    return delay(attempt, error, random.random())
