"""Work that handlers leave behind: kept track of, waited for, told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from perdure.clock import Clock
from perdure.compose.hooks.words import AsyncWork


class HookSignal:
    """Whether and why the work of a handler is to stop. Set once."""

    __slots__ = ("_event", "reason")

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason: str | None = None
        """Why; None while it is not set."""

    def __bool__(self) -> bool:
        return self.reason is not None

    def set(self, reason: str) -> None:
        """Tell whoever listens. The first reason stands."""
        if self.reason is None:
            self.reason = reason
            self._event.set()

    async def wait(self) -> str:
        """Wait until it is set; gives the reason."""
        await self._event.wait()
        return self.reason or ""


class Detached:
    """The work that handlers of one manager have left behind, and the emits that run.

    Args:
        clock: What timeouts are measured with.
        warn: Told of work that failed or outlived its time.
    """

    def __init__(self, clock: Clock, warn: Callable[[str], None]) -> None:
        self._clock = clock
        self._warn = warn
        self._running: set[HookSignal] = set()
        self._watched: dict[asyncio.Task[None], tuple[asyncio.Future[object], HookSignal]] = {}
        self._let_go: set[asyncio.Future[object]] = set()

    @contextmanager
    def emitting(self) -> Generator[HookSignal]:
        """The signal of an emit, while it runs."""
        signal = HookSignal()
        self._running.add(signal)
        try:
            yield signal
        finally:
            self._running.discard(signal)

    def track(self, given: AsyncWork, signal: HookSignal, name: str) -> asyncio.Task[None] | None:
        """Watch over work; None if there is none."""
        if given.work is None:
            return None
        job: asyncio.Future[object] = asyncio.ensure_future(given.work)
        task = asyncio.create_task(self._watch(job, given, signal, name))
        self._watched[task] = (job, signal)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._watched.pop(task, None)

    async def _watch(
        self, job: asyncio.Future[object], given: AsyncWork, signal: HookSignal, name: str
    ) -> None:
        timer = asyncio.ensure_future(self._sleep(given.timeout))
        try:
            await asyncio.wait({job, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if not job.done():
            self._warn(f"the work of a handler of {name!r} outlived its {given.timeout} seconds")
            signal.set("timed out")
            self._let_go.add(job)
            job.add_done_callback(self._late)
        else:
            self._told(job, name)

    async def _sleep(self, seconds: float) -> object:
        await self._clock.sleep(seconds)
        return None

    def _told(self, job: asyncio.Future[object], name: str) -> None:
        if job.cancelled():
            self._warn(f"the work of a handler of {name!r} was cancelled")
        elif (error := job.exception()) is not None:
            self._warn(f"the work of a handler of {name!r} failed: {error!r}")

    def _late(self, job: asyncio.Future[object]) -> None:
        self._let_go.discard(job)
        if not job.cancelled():
            job.exception()  # looked at, so that nobody reports it as never retrieved

    async def drain(self) -> None:
        """Wait until no work is left, also none that work started meanwhile.

        Called from such work, it does not wait for that.
        """
        while mine := self._waited_for():
            await asyncio.wait(mine)

    def _waited_for(self) -> set[asyncio.Task[None]]:
        here = asyncio.current_task()
        loop = asyncio.get_running_loop()
        return {
            task
            for task, (job, _) in self._watched.items()
            if job is not here and not task.done() and task.get_loop() is loop
        }

    def abort(self, reason: str) -> None:
        """Tell every emit that runs, and all work that is left of emits."""
        for signal in [*self._running, *(signal for _, signal in self._watched.values())]:
            signal.set(reason)
