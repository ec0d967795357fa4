"""Time and ids, injected everywhere, so that tests decide what they are (DESIGN 8).

*wall*: nanoseconds since the Unix epoch, for what is written down.
*monotonic*: seconds on a clock that never steps, for what is measured.

This module imports nothing of perdure.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Protocol


class Clock(Protocol):
    """Where a drive reads the time and waits."""

    def wall(self) -> int:
        """Nanoseconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never steps."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; returns at once for zero and less."""
        ...


class Ids(Protocol):
    """Where a drive gets the ids it makes up."""

    def new(self, prefix: str) -> str:
        """A fresh id that begins with `prefix`, of letters, digits, `_` and `-`."""
        ...


def boot_time() -> float:
    """Seconds since the machine started, those it slept among them.

    What leases are measured with: a machine that slept has held no lease meanwhile (LOG 2.2).
    """
    return time.clock_gettime(_BOOT_CLOCK)


_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's clocks."""

    def wall(self) -> int:
        return time.time_ns()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0))


class RandomIds:
    """Ids of 128 random bits in hexadecimal."""

    def new(self, prefix: str) -> str:
        return prefix + secrets.token_hex(16)
