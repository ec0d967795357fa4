"""How many tools of a batch run at once."""

from __future__ import annotations

import asyncio
import collections


class Slots:
    """A number of slots, given in the order they were asked for."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._closed = False
        self._waiting: collections.deque[asyncio.Future[bool]] = collections.deque()

    async def acquire(self) -> bool:
        """Wait for a slot; False when there will be none."""
        if self._closed:
            return False
        if self._free:
            self._free -= 1
            return True
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                self.release()
            raise

    def release(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(True)
                return
        self._free += 1

    def close(self) -> None:
        self._closed = True
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(False)
