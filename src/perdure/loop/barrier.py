"""Telling subscribers, each of which the drive waits for, but not for ever.

As long as a drive goes on, a subscriber takes the time it takes. When the drive *winds down*, all
of them together have a bounded time: a subscriber that does not return in it is *hung*. It is cut
and hears nothing more of this drive; the others still hear everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from perdure.clock import Clock
from perdure.errors import SubscriberHung
from perdure.loop.events import Event

Subscriber = Callable[[Event], Awaitable[None]]
"""Called with every event, in order. What it raises ends the drive in error."""

LINGER = 1.0
"""Seconds that a subscriber gets for an event when the time to wind down is over."""


class Barrier:
    """Tells the subscribers of one drive, in order."""

    def __init__(
        self,
        middleware: Sequence[Subscriber],
        subscribers: Sequence[Subscriber],
        clock: Clock,
        wind_down: float,
    ) -> None:
        self._middleware = middleware
        self._subscribers = subscribers  # one who subscribes during a drive hears the next event
        self._clock = clock
        self._wind_down = wind_down
        self._deadline: float | None = None
        self._hung: list[Subscriber] = []
        self._telling: asyncio.Task[object] | None = None
        self._cut = False
        self._watch: asyncio.Task[None] | None = None

    async def tell(self, event: Event) -> None:
        """Tell every subscriber; one at a time, and one event at a time.

        Raises:
            SubscriberHung: The drive winds down, and one did not return in time.
            Exception: What one raised. Those after it have not heard the event.
        """
        for subscriber in (*self._middleware, *self._subscribers):
            await self._tell_one(subscriber, event)

    async def tell_all(self, event: Event) -> None:
        """Tell every subscriber, also those after one that fails.

        Raises:
            Exception: What the first that failed raised, when all have heard the event.
        """
        failures: list[Exception] = []
        for subscriber in (*self._middleware, *self._subscribers):
            try:
                await self._tell_one(subscriber, event)
            except Exception as error:  # noqa: BLE001 - a subscriber may raise anything
                failures.append(error)
        if failures:
            raise failures[0]

    @property
    def anybody(self) -> bool:
        """Whether anybody is to be told."""
        return bool(self._middleware or self._subscribers)

    def hurry(self) -> None:
        """The drive winds down: from now on the subscribers' time is bounded."""
        if self._deadline is not None:
            return
        self._deadline = self._clock.monotonic() + self._wind_down
        if self._telling is not None:
            self._watch = asyncio.get_running_loop().create_task(self._cut_later(self._telling))

    async def _tell_one(self, subscriber: Subscriber, event: Event) -> None:
        if subscriber in self._hung:
            return
        if self._deadline is None:
            await self._tell_patiently(subscriber, event)
        else:
            await self._tell_in_time(subscriber, event)

    async def _tell_patiently(self, subscriber: Subscriber, event: Event) -> None:
        task = self._telling = asyncio.current_task()
        try:
            await subscriber(event)
        except asyncio.CancelledError:
            if not self._cut or task is None:
                raise
            task.uncancel()
            self._hang(subscriber, event)
        finally:
            self._telling = None
            if self._watch is not None:
                self._watch.cancel()

    async def _cut_later(self, telling: asyncio.Task[object]) -> None:
        await self._clock.sleep(self._wind_down)
        if self._telling is telling:
            self._cut = True
            telling.cancel()

    async def _tell_in_time(self, subscriber: Subscriber, event: Event) -> None:
        loop = asyncio.get_running_loop()
        left = (self._deadline or 0) - self._clock.monotonic()
        timer = loop.create_task(self._clock.sleep(max(left, LINGER)))
        telling = loop.create_task(_call(subscriber, event))
        try:
            await asyncio.wait({telling, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            if not telling.done():
                telling.cancel()
        if not telling.done():
            self._hang(subscriber, event)
        await telling

    def _hang(self, subscriber: Subscriber, event: Event) -> None:
        self._hung.append(subscriber)
        raise SubscriberHung(event.type) from None


async def _call(subscriber: Subscriber, event: Event) -> None:
    await subscriber(event)
