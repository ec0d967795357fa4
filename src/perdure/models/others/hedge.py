"""Asking a second model when the first one is slow, and taking who begins to answer first.

A *racer* is one request of several for the same turn. It *wins* when the first message or call of
its answer opens, or its answer ends; until then nothing of it is shown. The others are cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import NamedTuple

from msgspec.structs import replace

from perdure.clock import Clock, SystemClock
from perdure.errors import Truncated
from perdure.loop import Middleware, ModelRequest, NextModel, RunInfo, is_retryable
from perdure.loop.attempt import output_index
from perdure.loop.model import check, close, is_terminal
from perdure.models.others.targets import Target, aimed, target_of, without_thoughts
from perdure.models.registry import Resolved
from perdure.seconds import check_seconds
from perdure.wire import (
    ErrorEvent,
    FunctionCall,
    Message,
    OutputItemAdded,
    Reasoning,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
)


class _Head(NamedTuple):
    """What a racer gave until it won, or failed by an event that says so."""

    events: list[StreamEvent]
    rest: AsyncIterator[StreamEvent]
    failed: bool


class Hedge(Middleware):
    """Sends a request to a backup when nothing has begun to answer it in time.

    The first backup is asked after `delay` seconds, the next after as many more; at once where a
    racer fails. Who begins to answer first is taken, and the others are cancelled. If all fail, the
    error is one that is worth a retry, if there is one.

    Every request goes through the middleware that counts requests: what losers used is in
    `Cost(...).meter.discarded`, as far as they told. A backup that is another model gets no
    thoughts of the agent's own, and its thoughts are not kept.

    Args:
        delay: Seconds; zero asks all at once.
        backups: Who is asked then; the agent's own model again unless given.
        clock: What it waits on.

    Raises:
        UnknownModel: A string names nobody.
        ConfigError: The delay is no such number, or something is no model.
    """

    def __init__(self, delay: float, *backups: Target, clock: Clock | None = None) -> None:
        check_seconds("Hedge(delay)", delay, zero=True)
        self._delay = delay
        self._backups: list[Resolved | None] = [target_of(one) for one in backups] or [None]
        self._clock: Clock = clock or SystemClock()

    async def before_run(self, info: RunInfo) -> None:
        """See that every backup could be asked. Raises `ConfigError` for want of a key, say."""
        del info
        for backup in self._backups:
            if backup is not None:
                await check(backup.model)

    async def wrap_model_call(
        self,
        request: ModelRequest,
        next: NextModel,  # noqa: A002 - the hook's own name
    ) -> AsyncGenerator[StreamEvent, None]:
        """The events of whoever begins to answer first.

        Raises:
            ModelError: All have failed.
        """
        race = _Race([request, *(_for(request, one) for one in self._backups)], next)
        try:
            winner, head = await race.run(self._delay, self._clock)
            foreign = winner.settings.model != request.settings.model
            async for event in _all(head):
                shown = race.thoughtless(event) if foreign else event
                if shown is not None:
                    yield shown
        finally:
            await race.end()


def _for(request: ModelRequest, backup: Resolved | None) -> ModelRequest:
    if backup is None:
        return request
    other = aimed(request, backup)
    return without_thoughts(other) if other.settings.model != request.settings.model else other


async def _all(head: _Head) -> AsyncGenerator[StreamEvent, None]:
    for event in head.events:
        yield event
    async for event in head.rest:
        yield event


class _Race:
    """The racers of one turn."""

    def __init__(self, requests: list[ModelRequest], call: NextModel) -> None:
        self._waiting = requests[::-1]
        self._call = call
        self._running: dict[asyncio.Task[_Head], ModelRequest] = {}
        self._streams: list[AsyncIterator[StreamEvent]] = []
        self._heads: list[tuple[ModelRequest, _Head]] = []  # that say that they failed
        self._errors: list[Exception] = []
        self._thoughts: set[int] = set()  # output indexes of thoughts
        self._giving_up: asyncio.Task[None] | None = None

    async def run(self, delay: float, clock: Clock) -> tuple[ModelRequest, _Head]:
        """Who wins, and with what. The others are cancelled at once."""
        self._start()
        if not delay:
            while self._waiting:
                self._start()
        while self._running:
            await self._wait(delay, clock)
            won = self._winner()
            if won is not None:
                losers = [stream for stream in self._streams if stream is not won[1].rest]
                work = self._give_up(losers)
                self._giving_up = asyncio.get_running_loop().create_task(work)
                return won
        if self._errors:
            raise _worst(self._errors)
        return self._heads[0]

    async def end(self) -> None:
        """Let go of every connection."""
        if self._giving_up is not None:
            await asyncio.wait({self._giving_up})
        await self._give_up(self._streams)

    async def _give_up(self, streams: list[AsyncIterator[StreamEvent]]) -> None:
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        for task in self._running:
            _ = task.cancelled() or task.exception()  # seen, so that nobody reports it as lost
        self._running.clear()
        for stream in streams:
            with contextlib.suppress(Exception):  # a loser's trouble is nobody's
                await close(stream)

    def thoughtless(self, event: StreamEvent) -> StreamEvent | None:
        """The event without thoughts; None if it is of one."""
        if isinstance(event, OutputItemAdded) and isinstance(event.item, Reasoning):
            self._thoughts.add(event.output_index)
        if output_index(event) in self._thoughts:
            return None
        if isinstance(event, ResponseCompleted | ResponseIncomplete | ResponseFailed):
            kept = [item for item in event.response.output if not isinstance(item, Reasoning)]
            return replace(event, response=replace(event.response, output=tuple(kept)))
        return event

    def _start(self) -> None:
        if not self._waiting:
            return
        request = self._waiting.pop()
        task = asyncio.get_running_loop().create_task(self._race(request), name="perdure-hedge")
        self._running[task] = request

    async def _race(self, request: ModelRequest) -> _Head:
        stream = self._call(request)
        self._streams.append(stream)
        events: list[StreamEvent] = []
        async for event in stream:
            events.append(event)
            if isinstance(event, ErrorEvent | ResponseFailed):
                return _Head(events, stream, failed=True)
            if is_terminal(event) or _opens(event):
                return _Head(events, stream, failed=False)
        raise Truncated

    async def _wait(self, delay: float, clock: Clock) -> None:
        """Wait until a racer has won or failed; start the next if that takes too long."""
        waited: set[asyncio.Task[_Head] | asyncio.Task[None]] = {*self._running}
        timer = None
        if self._waiting:
            timer = asyncio.get_running_loop().create_task(clock.sleep(delay))
            waited.add(timer)
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if timer is not None and timer.done():
                self._start()
        finally:
            if timer is not None:
                timer.cancel()

    def _winner(self) -> tuple[ModelRequest, _Head] | None:
        for task in [task for task in self._running if task.done()]:
            request = self._running.pop(task)
            error = task.exception()
            if isinstance(error, Exception):
                self._errors.append(error)
            elif error is not None:
                raise error
            elif task.result().failed:
                self._heads.append((request, task.result()))
            else:
                return request, task.result()
            self._start()
        return None


def _opens(event: StreamEvent) -> bool:
    return isinstance(event, OutputItemAdded) and isinstance(event.item, Message | FunctionCall)


def _worst(errors: list[Exception]) -> Exception:
    """The error of a race that all have lost: one worth a retry before one that is not."""
    chosen = next((error for error in errors if is_retryable(error)), errors[0])
    for other in errors:
        if other is not chosen:
            chosen.add_note(f"another request failed: {type(other).__name__}: {other}")
    return chosen
