"""The low-level loop: a drive over a transcript, as a stream of events. It needs no store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Self

from perdure.loop.abort import AbortSignal
from perdure.loop.broadcast import Broadcast
from perdure.loop.config import Config
from perdure.loop.delivery import Delivery, Subscriber
from perdure.loop.drive import check_input, run_drive
from perdure.loop.events import Event, RunEnd
from perdure.loop.ledger import Ledger, NullLedger
from perdure.loop.registry import DriveHandle, start
from perdure.loop.state import Drive
from perdure.loop.transcript import Outgoing, Transcript
from perdure.tools import ToolSet
from perdure.wire import Item

EVENT_BUFFER = 256
"""How many events the loop runs ahead of who reads them before it waits."""


def begin(
    transcript: Transcript,
    prompts: Iterable[Item],
    config: Config,
    *,
    consumers: Broadcast | None = None,
    ledger: Ledger | None = None,
    subscribers: Sequence[Subscriber] = (),
) -> DriveHandle:
    """Start a drive over `transcript`, which grows with it.

    Raises:
        DuplicateTool: Two tools share a name.
        NoPrompt, CannotContinue, InputRequired: See `check_input`.
    """
    items = tuple(prompts)
    check_input(transcript, items)
    signal = AbortSignal()
    drive = Drive(
        run_id=config.ids.new("run_"),
        config=config,
        transcript=transcript,
        delivery=Delivery(ledger or NullLedger(), consumers, subscribers),
        signal=signal,
        tools=ToolSet(config.tools),
        outgoing=Outgoing(transcript, config.keep),
        start=len(transcript),
    )
    return start(run_drive(drive, items), signal, clock=config.clock, wind_down=config.wind_down)


def run(transcript: Iterable[Item], prompts: Iterable[Item], config: Config) -> Events:
    """Drive the loop from a transcript and new items.

    Use it as `async with run(...) as events: async for event in events: ...`. It raises nothing:
    the last event is a `RunEnd` that says how it went, misuse included. The transcript given is
    not changed; what the drive added is on the end. Leaving the block aborts a drive that still
    runs, and waits for it to wind down.
    """
    return Events(transcript, prompts, config)


def continue_(transcript: Iterable[Item], config: Config) -> Events:
    """Drive the loop from a transcript as it stands; see `run`."""
    return Events(transcript, (), config)


class Events(AsyncIterator[Event]):
    """The events of a low-level drive. One reader, who is at most `EVENT_BUFFER` events behind."""

    def __init__(self, transcript: Iterable[Item], prompts: Iterable[Item], config: Config) -> None:
        self._transcript = transcript
        self._prompts = prompts
        self._config = config
        self._queue: asyncio.Queue[Event] = asyncio.Queue(EVENT_BUFFER)
        self._handle: DriveHandle | None = None
        self._reading = True
        self._ended = False

    async def __aenter__(self) -> Self:
        try:
            self._handle = begin(
                Transcript(self._transcript),
                self._prompts,
                self._config,
                subscribers=(self._put,),
            )
        except Exception as error:  # noqa: BLE001 - the low-level loop raises nothing
            self._queue.put_nowait(refused(error))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._reading = False
        while not self._queue.empty():
            self._queue.get_nowait()
        if self._handle is not None and not self._handle.done:
            self._handle.abort("the reader left")
            await self._handle.wind_down()

    async def __anext__(self) -> Event:
        if self._ended:
            raise StopAsyncIteration
        event = await self._queue.get()
        self._ended = isinstance(event, RunEnd)
        return event

    async def _put(self, event: Event) -> None:
        if self._reading:
            await self._queue.put(event)


def refused(error: Exception) -> RunEnd:
    """The end of a drive that was refused before it began."""
    return RunEnd(run_id="", items=(), reason="error", error=error)
