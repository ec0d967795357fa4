"""A token bucket: so many in a time, and no more."""

from __future__ import annotations

from typing import cast

from perdure.clock import Clock, SystemClock
from perdure.counts import check_rate
from perdure.seconds import check_seconds


class Bucket:
    """Holds tokens that come back with time. It starts full.

    Who waits is served when there is a token, not in order. Who is cancelled while waiting has
    taken none.

    Args:
        count: How many tokens come back in `per` seconds.
        per: Seconds; zero or less means that nobody waits.
        burst: How many it holds at most; `count` unless given, at least one.
        clock: Where the time comes from.

    Raises:
        ConfigError: `count`, or `burst`, is no positive number, or `per` is no number.
    """

    __slots__ = ("_clock", "_seconds", "_size", "_tokens", "_when")

    def __init__(
        self, count: float, *, per: float, burst: float | None, clock: Clock | None
    ) -> None:
        check_rate("a rate", count)
        if burst is not None:
            check_rate("a burst", burst)
        unlimited = isinstance(cast("object", per), int | float) and per <= 0
        if not unlimited:
            check_seconds("the time of a rate", per)
        self._seconds = per / count  # for one token
        self._size = max(1.0, count if burst is None else burst)
        self._clock: Clock = clock or SystemClock()
        self._tokens = self._size
        self._when = self._clock.monotonic()

    async def take(self) -> None:
        """Take a token, waiting until there is one."""
        if self._seconds <= 0:
            return
        while (held := self._filled()) < 1.0 - _ROUNDING:
            await self._clock.sleep((1.0 - held) * self._seconds)
        self._tokens -= 1.0

    def _filled(self) -> float:
        now = self._clock.monotonic()
        grown = self._tokens + (now - self._when) / self._seconds
        self._tokens, self._when = min(self._size, grown), now
        return self._tokens


_ROUNDING = 1e-9
"""So that a sleep that ends exactly in time is enough, whatever floats make of it."""
