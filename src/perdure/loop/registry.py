"""Who owns the tasks of drives.

A drive runs in a task that this registry owns, not in its caller's: a caller that is cancelled asks
the drive to stop, waits for it to wind down, and leaves (DESIGN 8).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine

from perdure.errors import Aborted
from perdure.loop.context import DriveScope, current
from perdure.loop.events import RunEnd
from perdure.loop.state import Drive
from perdure.loop.transcript import Items
from perdure.tools import current_elicitor

LINGER = 1.0
"""Seconds between two cancellations of a drive that does not end."""

_running: set[asyncio.Task[RunEnd]] = set()
_watching: set[asyncio.Task[None]] = set()


class DriveHandle:
    """A drive that was started."""

    __slots__ = ("_drive", "_task")

    def __init__(self, task: asyncio.Task[RunEnd], drive: Drive) -> None:
        self._task = task
        self._drive = drive

    @property
    def run_id(self) -> str:
        """The drive's id."""
        return self._drive.run_id

    @property
    def turn(self) -> int:
        """The turn it is in; 0 before the first."""
        return self._drive.turn

    @property
    def taking(self) -> bool:
        """Whether it will still look into the queues."""
        return self._drive.taking

    @property
    def done(self) -> bool:
        """Whether the drive has ended."""
        return self._task.done()

    def abort(self, cause: BaseException | str = "aborted") -> None:
        """Ask the drive to stop. It ends as `aborted`, with this cause. The first cause stands.

        Work it left in the background is stopped with it; that of a drive that has ended is not.
        """
        if not self._task.done():
            self._drive.signal.abort(Aborted(cause) if isinstance(cause, str) else cause)

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

    async def settled(self) -> None:
        """Wait for the drive to end, without being able to abort it."""
        await asyncio.wait({self._task})

    def end(self) -> RunEnd:
        """The end of a drive that has ended."""
        return self._task.result()

    def transcript(self) -> Items:
        """What the drive runs over: as it stands, and once it has ended, as it stood then."""
        drive = self._drive
        snapshot = drive.transcript.snapshot()
        if not self._task.done():
            return snapshot
        length = drive.start + len(self._task.result().items)
        return snapshot if len(snapshot) == length else Items.of(snapshot[:length])

    def when_done(self, callback: Callable[[RunEnd], None]) -> None:
        """Call back with the end, as soon as there is one."""

        def ended(task: asyncio.Task[RunEnd]) -> None:
            if not task.cancelled():
                callback(task.result())

        self._task.add_done_callback(ended)

    async def wind_down(self) -> None:
        """Wait for the drive to end, for at most `wind_down` seconds, come what may."""
        clock = self._drive.config.clock
        deadline = clock.monotonic() + self._drive.config.wind_down
        cancelled = False
        while not self._task.done():
            left = deadline - clock.monotonic()
            if left <= 0:
                break
            timer = asyncio.get_running_loop().create_task(clock.sleep(left))
            waited: set[asyncio.Task[RunEnd] | asyncio.Task[None]] = {self._task, timer}
            try:
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                cancelled = True
            finally:
                timer.cancel()
        if cancelled:
            raise asyncio.CancelledError


def start(drive: Drive, work: Coroutine[object, object, RunEnd]) -> DriveHandle:
    """Run a drive in a task of the registry's. What it starts knows the drive by its context."""
    context = contextvars.copy_context()
    context.run(current.set, DriveScope(drive))
    if drive.config.elicitor is not None:
        context.run(current_elicitor.set, drive.config.elicitor)
    loop = asyncio.get_running_loop()
    task = loop.create_task(work, name=f"perdure {drive.run_id}", context=context)
    _running.add(task)
    task.add_done_callback(_running.discard)
    drive.signal.listeners.append(lambda: _end_in_time(drive, task))
    return DriveHandle(task, drive)


def _end_in_time(drive: Drive, task: asyncio.Task[RunEnd]) -> None:
    """See to it that an aborted drive ends, whatever a hook or a model holds it with.

    It has its time to wind down and its tools have their grace; after both it is cancelled, and
    ends as a drive does whose event loop closes.
    """
    watch = asyncio.get_running_loop().create_task(_cancel_late(drive, task))
    _watching.add(watch)
    watch.add_done_callback(_watching.discard)
    task.add_done_callback(lambda _: watch.cancel())


async def _cancel_late(drive: Drive, task: asyncio.Task[RunEnd]) -> None:
    await drive.config.clock.sleep(drive.config.wind_down + drive.config.grace)
    task.cancel()
    while drive.taking:  # the batch passes a second cancellation on to the hooks around its tools
        await drive.config.clock.sleep(LINGER)
        task.cancel()
