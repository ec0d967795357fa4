"""When a model call is made again.

Only an attempt that has not committed is made again: before a message or a call has opened, nothing
of it can be in the transcript. Every request that is sent is counted; nothing re-sends behind the
loop's back (DESIGN 5).
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from typing import cast

from perdure.counts import check_count
from perdure.errors import (
    ModelError,
    Overloaded,
    RateLimited,
    RecordedFailure,
    Rejected,
    ServerFailed,
    Transport,
    Truncated,
)
from perdure.loop.model import ModelRequest
from perdure.seconds import check_seconds

BASE_DELAY = 0.5
"""Seconds, before jitter, that the first retry waits; each further one waits twice as long."""

MAX_DELAY = 30.0
"""Seconds that a retry waits at most on its own account."""

MAX_RETRY_AFTER = 300.0
"""Seconds up to which a server's Retry-After is honoured; a longer one ends the drive in error."""

_RETRYABLE_STATUSES = frozenset({408, 409, 425})

Revise = Callable[[int, ModelRequest, Exception], ModelRequest | None]
"""Given the number of the attempt that failed, its request and its error: what to send next. None
sends the same again."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The policy for model calls that fail before their answer begins.

    Raises:
        ConfigError: `max_attempts` is no whole number of at least 1, or `max_retry_after` no
            number of seconds.
    """

    max_attempts: int = 1
    """The first one counts; 1 means no retry."""
    retryable: Callable[[Exception], bool] | None = None
    """Whether an error is worth another attempt; None is `is_retryable`."""
    backoff: Callable[[int, Exception], float] | None = None
    """Seconds to wait, given the attempt that failed, from 1, and its error; None is `delay`."""
    revise: Revise | None = None
    max_retry_after: float = MAX_RETRY_AFTER
    random: Callable[[], float] = random.random
    """A number from 0 to 1, for the jitter."""

    def __post_init__(self) -> None:
        check_count("Retry(max_attempts=...)", self.max_attempts)
        if self.max_retry_after != math.inf:  # whatever a server asks for
            check_seconds("Retry(max_retry_after=...)", self.max_retry_after, zero=True)

    def allows(self, attempt: int, error: Exception) -> bool:
        """Whether the attempt after `attempt` may be made."""
        if attempt >= self.max_attempts:
            return False
        if (retry_after(error) or 0) > self.max_retry_after:
            return False
        return (self.retryable or is_retryable)(error)

    def wait(self, attempt: int, error: Exception) -> float:
        """Seconds to wait before the next attempt."""
        if self.backoff is not None:
            return max(0.0, self.backoff(attempt, error))
        return delay(attempt, error, self.random())


def is_retryable(error: Exception) -> bool:
    """Whether the same request may fare better later.

    True for a server that is overloaded, limits the rate or failed, for a stream that was cut, and
    for a connection that failed. A quota that is used up does not come back in seconds.
    """
    if isinstance(error, RateLimited | Overloaded | ServerFailed | Transport | Truncated):
        return True
    if isinstance(error, RecordedFailure):
        return error.again
    status = error.status if isinstance(error, ModelError) else None
    if type(error) is Rejected and status is not None:  # somebody's own model, which knows no more
        return status == 429 or status >= 500 or status in _RETRYABLE_STATUSES
    return status in _RETRYABLE_STATUSES


def delay(attempt: int, error: Exception, chance: float) -> float:
    """Full jitter over a delay that doubles, or what the server asked for."""
    asked = retry_after(error)
    if asked is not None:
        return max(0.0, asked)
    return chance * min(MAX_DELAY, BASE_DELAY * 2.0 ** (attempt - 1))


def retry_after(error: Exception) -> float | None:
    """The seconds a server asked to wait, if it said."""
    return cast("float | None", getattr(error, "retry_after", None))
