"""A clock that a test moves by hand."""

from __future__ import annotations

import asyncio
import heapq
import itertools

_TURNS_OF_THE_LOOP = 50
"""How often tasks get to run before the clock moves on: what wakes may wake others."""


class FakeClock:
    """A `Clock` that stands still until `advance` moves it.

    Attributes:
        sleeping: How many tasks sleep on it.
    """

    def __init__(self, *, wall: int = 1_700_000_000_000_000_000, monotonic: float = 0.0) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    @property
    def sleeping(self) -> int:
        return sum(not future.done() for _, _, future in self._sleepers)

    def wall(self) -> int:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Move the clock, waking whoever's time comes, each at its time and in order.

        Tasks get to run before the clock moves, after each waking and at the end, so whoever falls
        asleep on the way and is due within `seconds` is woken too.
        """
        end = self._monotonic + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, future = heapq.heappop(self._sleepers)
            if future.done():
                continue
            self._move(due)
            future.set_result(None)
            await settle()
        self._move(end)

    def _move(self, monotonic: float) -> None:
        self._wall += round((monotonic - self._monotonic) * 1e9)
        self._monotonic = monotonic


async def settle() -> None:
    """Let every task run until it waits for something that only the test can bring about."""
    for _ in range(_TURNS_OF_THE_LOOP):
        await asyncio.sleep(0)
