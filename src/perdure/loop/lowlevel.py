"""The low-level loop: a drive over a transcript, as a stream of events. It needs no store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

from perdure.errors import ConfigError
from perdure.loop.abort import AbortSignal
from perdure.loop.barrier import Barrier, Subscriber
from perdure.loop.broadcast import Broadcast
from perdure.loop.callids import CallIds
from perdure.loop.config import Config
from perdure.loop.delivery import Delivery
from perdure.loop.drive import Opening, check_opening, run_drive
from perdure.loop.events import Event, RunEnd
from perdure.loop.hooks import Hooks
from perdure.loop.ledger import Ledger, NullLedger, transacts
from perdure.loop.nested import run_nested
from perdure.loop.pending import PendingCall
from perdure.loop.queues import Queues
from perdure.loop.registry import DriveHandle, start
from perdure.loop.spending import spending_of
from perdure.loop.state import Drive
from perdure.loop.transcript import Transcript
from perdure.loop.trigger import Hidden, Trigger
from perdure.tools import ToolSet, check_transactional
from perdure.wire import FunctionCall, Item

EVENT_BUFFER = 256
"""How many events the loop runs ahead of who reads them before it waits."""


def begin(
    transcript: Transcript,
    opening: Opening,
    config: Config,
    *,
    consumers: Broadcast | None = None,
    ledger: Ledger | None = None,
    subscribers: Sequence[Subscriber] = (),
    queues: Queues | None = None,
    call_ids: CallIds | None = None,
    trigger: Trigger | None = None,
    pending: Sequence[PendingCall] = (),
) -> DriveHandle:
    """Start a drive over `transcript`, which grows with it.

    Args:
        transcript: What there is.
        opening: What the drive begins with; the caller has checked that it may.
        config: What it runs with.
        consumers: Where its events are shown.
        ledger: Where they are written down; nowhere if None.
        subscribers: Who hears every event, beside the middleware.
        queues: Where steered and queued items wait.
        call_ids: The ids that no new call may have; those of the transcript if None.
        trigger: What caused it.
        pending: What is known of the calls that have no output.

    Raises:
        NoTransactions: A tool is transactional, and the ledger does not commit what it does.
    """
    check_transactional(config.tools, transacts=transacts(ledger))
    signal = AbortSignal()
    queues = queues or Queues()
    hooks = Hooks(config.middleware)
    barrier = Barrier(hooks.subscribers, subscribers, config.clock, config.wind_down)
    signal.listeners.append(barrier.hurry)
    drive = Drive(
        run_id=config.ids.new("run_"),
        config=config,
        hooks=hooks,
        transcript=transcript,
        delivery=Delivery(ledger or NullLedger(), queues, barrier=barrier, consumers=consumers),
        signal=signal,
        queues=queues,
        call_ids=call_ids or CallIds(ids_of(transcript.snapshot())),
        nested=run_nested,
        spending=spending_of(config.account, ledger),
        trigger=trigger,
        start=len(transcript),
        started=config.clock.monotonic(),
        why={one.call.call_id: one for one in pending},
    )
    return start(drive, run_drive(drive, opening))


def ids_of(items: Iterable[Item]) -> Iterator[str]:
    """The ids of the calls among items."""
    return (item.call_id for item in items if isinstance(item, FunctionCall))


def run(
    transcript: Iterable[Item],
    prompts: Iterable[Item | Hidden],
    config: Config,
    *,
    trigger: Trigger | None = None,
) -> Events:
    """Drive the loop from a transcript and new items.

    Use it as `async with run(...) as events: async for event in events: ...`. It raises nothing:
    the last event is a `RunEnd` that says how it went, misuse included. The transcript given is
    not changed; what the drive added is on the end. Leaving the block aborts a drive that still
    runs, and waits for it to wind down.
    """
    return Events(transcript, prompts, config, trigger)


def continue_(transcript: Iterable[Item], config: Config) -> Events:
    """Drive the loop from a transcript as it stands; see `run`."""
    return Events(transcript, (), config)


class Events(AsyncIterator[Event]):
    """The events of a low-level drive. One reader, who is at most `EVENT_BUFFER` events behind."""

    def __init__(
        self,
        transcript: Iterable[Item],
        prompts: Iterable[Item | Hidden],
        config: Config,
        trigger: Trigger | None = None,
    ) -> None:
        self._transcript = Transcript(transcript)
        self._prompts = tuple(prompts)
        self._config = config
        self._trigger = trigger
        self._queue: asyncio.Queue[Event] = asyncio.Queue(EVENT_BUFFER)
        self._handle: DriveHandle | None = None
        self._entered = False
        self._reading = True
        self._ended = False

    async def __aenter__(self) -> Self:
        self._entered = True
        try:
            ToolSet(self._config.tools)  # two of one name are refused before anything happens
            check_opening(self._transcript.snapshot(), self._prompts)
            self._handle = begin(
                self._transcript,
                Opening(prompts=self._prompts),
                self._config,
                subscribers=(self._put,),
                trigger=self._trigger,
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
            if not self._ended:
                self._handle.abort("the reader left")
            await self._handle.wind_down()
        self._ended = True

    async def __anext__(self) -> Event:
        if self._ended:
            raise StopAsyncIteration
        if not self._entered:
            raise ConfigError("enter the drive first: `async with run(...) as events:`")
        event = await self._queue.get()
        self._ended = isinstance(event, RunEnd)
        return event

    async def _put(self, event: Event) -> None:
        if self._reading:
            await self._queue.put(event)


def refused(error: Exception) -> RunEnd:
    """The end of a drive that was refused before it began."""
    return RunEnd(run_id="", items=(), reason="error", error=error)
