"""Who owns the tasks of drives.

A drive runs in a task that this registry owns, not in its caller's: a caller that is cancelled asks
the drive to stop, waits for it to wind down, and leaves (DESIGN 8).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from perdure.clock import Clock
from perdure.errors import Aborted
from perdure.loop.abort import AbortSignal
from perdure.loop.events import RunEnd

_running: set[asyncio.Task[RunEnd]] = set()


class DriveHandle:
    """A drive that was started."""

    __slots__ = ("_clock", "_signal", "_task", "_wind_down")

    def __init__(
        self, task: asyncio.Task[RunEnd], signal: AbortSignal, clock: Clock, wind_down: float
    ) -> None:
        self._task = task
        self._signal = signal
        self._clock = clock
        self._wind_down = wind_down

    @property
    def done(self) -> bool:
        """Whether the drive has ended."""
        return self._task.done()

    def abort(self, cause: BaseException | str = "aborted") -> None:
        """Ask the drive to stop. It ends as `aborted`, with this cause. The first cause stands."""
        self._signal.abort(Aborted(cause) if isinstance(cause, str) else cause)

    async def wait(self) -> RunEnd:
        """Wait for the drive to end.

        A waiter that is cancelled aborts the drive, and waits for at most `wind_down` seconds more,
        also when it is cancelled again.
        """
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            self.abort("the caller was cancelled")
            await self.wind_down()
            raise

    async def wind_down(self) -> None:
        """Wait for the drive to end, for at most `wind_down` seconds, come what may."""
        deadline = self._clock.monotonic() + self._wind_down
        cancelled = False
        while not self._task.done():
            left = deadline - self._clock.monotonic()
            if left <= 0:
                break
            try:
                await asyncio.wait({self._task}, timeout=left)
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError


def start(
    drive: Coroutine[object, object, RunEnd], signal: AbortSignal, *, clock: Clock, wind_down: float
) -> DriveHandle:
    """Run a drive in a task of the registry's."""
    task = asyncio.get_running_loop().create_task(drive, name="perdure drive")
    _running.add(task)
    task.add_done_callback(_running.discard)
    return DriveHandle(task, signal, clock, wind_down)
