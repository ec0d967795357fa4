"""The progress of all jobs of a batch, handed on one at a time."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from perdure.tools.job import Job
from perdure.tools.result import ToolResult


class _Posted(NamedTuple):
    place: int
    job: Job
    partial: ToolResult


class ProgressLine:
    """Delivers in the order of posting, in the context in which it was made.

    Args:
        deliver: Takes one; it is never called twice at once.
        fail: Told what `deliver` raised. What was posted before that is dropped.
    """

    def __init__(
        self,
        deliver: Callable[[Job, ToolResult], Awaitable[None]],
        fail: Callable[[Exception], None],
    ) -> None:
        self._deliver_one = deliver
        self._fail = fail
        self._context = contextvars.copy_context()
        self._queue: collections.deque[_Posted] = collections.deque()
        self._current: _Posted | None = None
        self._finished: set[int] = set()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def post(self, place: int, job: Job, partial: ToolResult) -> None:
        """Take progress of the job in that place of the batch; dropped if that job has finished."""
        if place in self._finished:
            return
        self._queue.append(_Posted(place, job, partial))
        if self._task is None:
            self._task = asyncio.create_task(self._deliver(), context=self._context)

    async def finish(self, place: int) -> None:
        """Wait until all progress of a job is delivered, and take no more of it."""
        self._finished.add(place)
        while self._owes(place):
            self._changed.clear()
            await self._changed.wait()

    def _owes(self, place: int) -> bool:
        if self._current is not None and self._current.place == place:
            return True
        return any(posted.place == place for posted in self._queue)

    async def close(self) -> None:
        """End a delivery that nobody waits for any more: all jobs have settled."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({self._task})

    async def _deliver(self) -> None:
        try:
            while self._queue:
                self._current = self._queue.popleft()
                await self._deliver_one(self._current.job, self._current.partial)
                self._current = None
                self._changed.set()
        except Exception as error:  # noqa: BLE001 - a subscriber may raise anything
            self._fail(error)
        finally:
            self._queue.clear()
            self._current = self._task = None
            self._changed.set()
