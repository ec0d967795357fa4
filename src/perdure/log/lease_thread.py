"""The thread on which leases are renewed, so that a blocked event loop does not lose them.

One a process, with an event loop of its own; it is started when it is first needed and lives until
the process ends. What keeps a process that hangs from renewing for ever is the *pulse* of the loop
that drives: who renews looks at how long it has been silent (DESIGN 8).
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import dataclasses
import math
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeAlias

from perdure.log.store import Renewing

Work: TypeAlias = Callable[[], Coroutine[object, object, None]]

Stop: TypeAlias = Callable[[], Awaitable[None]]
"""Cancels work, and waits until it has ended."""

_BEATS = 4
"""How often a loop shows that it lives within the time it may be silent."""

_CLOSE_SECONDS = 5.0
"""How long the end of the process waits for what the thread holds to be let go of."""


class Pulse:
    """When an event loop last came round. To be made and stopped on it, read from anywhere.

    Args:
        loop: The loop that runs.
        clock: What tells the time, in seconds.
        within: How long it may be silent, in seconds.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float], *, within: float
    ) -> None:
        self.loop = loop
        self._clock = clock
        self._every = within / _BEATS
        self._beat()

    def silent(self) -> float:
        """Seconds since it last came round."""
        return self._clock() - self._last

    def stop(self) -> None:
        """Do not listen any more."""
        self._timer.cancel()

    def _beat(self) -> None:
        self._last = self._clock()
        self._timer = self.loop.call_later(self._every, self._beat)


def work_here(work: Work, *, after: float, name: str) -> Stop:
    """Do work on the loop that runs.

    Args:
        work: What to do.
        after: Seconds until it begins.
        name: Of its task.
    """

    async def later() -> None:
        await asyncio.sleep(after)
        await work()

    task = asyncio.get_running_loop().create_task(later(), name=name)

    async def stop() -> None:
        await _end(task)

    return stop


def work_there(store: Renewing, work: Work, *, after: float, name: str) -> Stop:
    """Do work on the thread. When the last work for a store has ended, the store leaves its loop.

    What is stopped before it has begun never wakes the thread.

    Args:
        store: What is used there.
        work: What to do.
        after: Seconds until it begins.
        name: Of its task.
    """
    with _lock:
        thread = _started()
        job = _Job(store, work, time.monotonic() + after, name)
        thread.add(job)

    async def stop() -> None:
        with _lock:
            if thread is not _thread:
                return  # the process was forked, or ends
            ending = thread.ending(job)
        if ending is not None:
            await asyncio.wrap_future(ending)

    return stop


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


# --- the thread --------------------------------------------------------------------------------


@dataclasses.dataclass(eq=False, slots=True)
class _Job:
    store: Renewing
    work: Work
    due: float
    name: str
    task: asyncio.Task[None] | None = None


@dataclasses.dataclass(slots=True)
class _User:
    """A store, while there is work for it."""

    jobs: int = 0
    entered: bool = False
    """Something has used it on the thread, so it may hold something there."""


class _Thread:
    """An event loop on a thread. Its methods are called under `_lock`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(
            target=self.loop.run_forever, name="perdure-leases", daemon=True
        )
        self.thread.start()
        self._users: dict[int, _User] = {}
        self._waiting: dict[_Job, None] = {}
        self._next = math.inf
        """When the loop looks at what waits, unless it is woken."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, job: _Job) -> None:
        """Begin a job when it is due."""
        self._users.setdefault(id(job.store), _User()).jobs += 1
        self._waiting[job] = None
        if job.due < self._next:
            self._next = job.due
            self.loop.call_soon_threadsafe(self._look)

    def ending(self, job: _Job) -> concurrent.futures.Future[None] | None:
        """Begin to stop a job; what to wait for, if anything."""
        if job.task is not None:
            return asyncio.run_coroutine_threadsafe(_end(job.task), self.loop)
        del self._waiting[job]
        if not self._was_last(job.store):
            return None
        return asyncio.run_coroutine_threadsafe(_leave(job.store), self.loop)

    def _was_last(self, store: Renewing) -> bool:
        """Count a job that is over; whether the store is to leave the loop."""
        user = self._users[id(store)]
        user.jobs -= 1
        if user.jobs:
            return False
        del self._users[id(store)]
        return user.entered

    def _look(self) -> None:
        """Begin what is due. On the loop."""
        with _lock:
            now = time.monotonic()
            for job in [job for job in self._waiting if job.due <= now]:
                del self._waiting[job]
                self._users[id(job.store)].entered = True
                job.task = self.loop.create_task(self._do(job), name=job.name)
            self._next = min((job.due for job in self._waiting), default=math.inf)
            if self._timer is not None:
                self._timer.cancel()
            if self._waiting:
                self._timer = self.loop.call_later(self._next - now, self._look)

    async def _do(self, job: _Job) -> None:
        try:
            await job.work()
        finally:
            with _lock:
                last = self._was_last(job.store)
            if last:
                await _leave(job.store)


async def _leave(store: Renewing) -> None:
    with contextlib.suppress(Exception):  # connections that break while they are closed
        await store.leave_loop()


_lock = threading.Lock()
_thread: _Thread | None = None


def _started() -> _Thread:
    global _thread  # noqa: PLW0603 - one thread a process is the point
    if _thread is None:
        _thread = _Thread()
    return _thread


def close() -> None:
    """Stop the thread, and let go of what it holds. The next work starts another."""
    global _thread
    with _lock:
        ending, _thread = _thread, None
    if ending is None:
        return
    loop, thread = ending.loop, ending.thread
    with contextlib.suppress(TimeoutError):  # a store that does not let go
        asyncio.run_coroutine_threadsafe(_wind_down(), loop).result(_CLOSE_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_CLOSE_SECONDS)
    if not thread.is_alive():
        loop.close()


async def _wind_down() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def _forget() -> None:
    """In a forked child the thread is gone; the next work starts another."""
    global _lock, _thread
    _lock, _thread = threading.Lock(), None


atexit.register(close)
os.register_at_fork(after_in_child=_forget)
