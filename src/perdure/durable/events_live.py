"""A run by id while it happens: what its record tells first, then what its drives tell as they go.

One sequence holds both. What another driver writes meanwhile is told as its entries land, marked as
replayed as the rest of the record is; what our own drives tell is in the record too, and is not
told again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Literal

from perdure.durable.byid import Ran, go_on_with
from perdure.durable.control import Control
from perdure.durable.driven import Driven
from perdure.durable.driver import Driving
from perdure.durable.events import Projection
from perdure.durable.starting import begin_run
from perdure.log import Session, Store
from perdure.loop import (
    Broadcast,
    Event,
    Hidden,
    ItemUpdate,
    Queued,
    RunEnd,
    RunStart,
    ToolEnd,
    ToolStart,
    Trigger,
)
from perdure.wire import Item


class RunEvents(Broadcast):
    """The events of a run, over all of its drives; it ends when the run rests."""

    def __init__(self) -> None:
        super().__init__()
        self._projection: Projection | None = None
        self._live: set[str] = set()  # the drives that told of themselves
        self._queued: set[str] = set()
        self._running = ""  # the drive that began and whose end was not told
        self._started: dict[str, ToolStart] = {}  # its calls that have not ended
        self.begun = asyncio.Event()
        """Set once there is something to show, or somebody to wait for."""

    def append(self, event: Event) -> None:
        """Take what a drive tells."""
        if not isinstance(event, ItemUpdate):
            self._keep(event)
        self._show(event)

    def _keep(self, event: Event) -> None:
        match event:
            case RunStart():
                self._live.add(event.run_id)
                self._running = event.run_id
            case RunEnd():
                self._running = ""
                self._started.clear()
            case ToolStart():
                self._started[event.call_id] = event
            case ToolEnd():
                self._started.pop(event.call_id, None)
            case Queued():
                self._queued.add(event.queue_id)
            case _:
                pass

    def _show(self, event: Event) -> None:
        self.begun.set()
        super().append(event)

    def close(self) -> None:
        """A drive has ended; the run may go on."""

    def ended(self, end: RunEnd) -> None:
        """Tell the end of a drive that could not tell it itself, for want of its lease, say."""
        if not self._running or end.run_id != self._running:
            return
        for start in reversed(list(self._started.values())):
            self.append(_cut(start, end))
        self.append(end)

    def end(self) -> None:
        """Nothing more comes of the run for now."""
        super().close()

    def look(self, session: Session, *, waits: bool = False) -> None:
        """Take what a record has grown by since it was last seen."""
        if waits:
            self.begun.set()
        projection = self._projection = self._projection or Projection(
            session.header, session.origins
        )
        for entry in session.entries[projection.version :]:
            for event in projection.take(entry):
                if not self._was_told(event):
                    self._show(event)

    def _was_told(self, event: Event) -> bool:
        if isinstance(event, Queued):
            return event.queue_id in self._queued
        return event.run_id in self._live


def _cut(start: ToolStart, end: RunEnd) -> ToolEnd:
    """The end of a call that its drive could not tell any more."""
    return ToolEnd(
        run_id=start.run_id,
        turn=start.turn,
        call_id=start.call_id,
        name=start.name,
        result=None,
        output=None,
        error=end.error,
        parent=start.parent,
    )


class Following:
    """A run that is shown until it rests: what stands behind a stream of it."""

    def __init__(
        self, driven: Driven, events: RunEvents, control: Control, task: asyncio.Task[Ran]
    ) -> None:
        self._driven = driven
        self._events = events
        self._control = control
        self._task = task
        self._raised = False

    @property
    def done(self) -> bool:
        """Whether it rests."""
        return self._task.done()

    def abort(self, cause: BaseException | str = "aborted") -> None:
        """Stop the drive if it is ours; else only stop waiting for whoever drives the run."""
        self._control.abort(cause)

    async def settled(self) -> None:
        """Wait until it rests, without being able to stop it."""
        await asyncio.wait({self._task})

    async def wind_down(self) -> None:
        """Wait until it rests, for at most `wind_down` seconds, come what may."""
        timer = asyncio.get_running_loop().create_task(
            self._driven.clock.sleep(self._driven.wind_down)
        )
        cancelled = False
        while not (self._task.done() or timer.done()):
            waited: set[asyncio.Task[Ran] | asyncio.Task[None]] = {self._task, timer}
            try:
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                cancelled = True
        timer.cancel()
        if cancelled:
            raise asyncio.CancelledError

    def ran(self) -> Ran:
        """How the run stands now that it rests.

        Raises:
            ConfigError: The agent could not send a request.
            LogError: The store refuses.
        """
        self._raised = True
        return self._task.result()

    def unseen(self) -> BaseException | None:
        """What kept the run from being shown, if `ran` has not raised it."""
        if self._raised or not self._task.done() or self._task.cancelled():
            return None
        return self._task.exception()

    async def begun(self) -> None:
        """Wait until there is something to show, or to wait for.

        Raises:
            ConfigError: The agent could not send a request.
            LogError: The store refuses.
        """
        showing = asyncio.get_running_loop().create_task(self._events.begun.wait())
        try:
            waited: set[asyncio.Task[Ran] | asyncio.Task[Literal[True]]] = {self._task, showing}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.abort("the consumer left")
            with contextlib.suppress(asyncio.CancelledError):
                await self.wind_down()
            raise
        finally:
            showing.cancel()
        if self._task.done() and not self._events.begun.is_set():
            self.ran()


_following: set[asyncio.Task[Ran]] = set()
"""Those that go on also when whoever began them has left."""


async def follow(
    driven: Driven,
    store: Store,
    run_id: str,
    prompts: Sequence[Item | Hidden],
    events: RunEvents,
    *,
    saga: bool = False,
    trigger: Trigger | None = None,
    principal: str = "",
) -> Following:
    """Begin a run, or go on with it, and show it. Arguments are those of `run_by_id`.

    Raises:
        ConfigError: The id or the input cannot begin a run, or no request can be sent.
        RunMismatch: The id is bound to another input or kind.
        LogError: The store refuses.
    """
    session = await begin_run(
        driven, store, run_id, prompts, saga=saga, trigger=trigger, principal=principal
    )
    driving = Driving(consumers=events, trigger=trigger, watcher=events)
    task = asyncio.get_running_loop().create_task(
        _until_rest(driven, store, session, driving, events), name=f"perdure-stream-{session.id}"
    )
    _following.add(task)
    task.add_done_callback(_following.discard)
    following = Following(driven, events, driving.control, task)
    await following.begun()
    return following


async def _until_rest(
    driven: Driven, store: Store, session: Session, driving: Driving, events: RunEvents
) -> Ran:
    try:
        return await go_on_with(driven, store, session, driving=driving)
    finally:
        events.end()
