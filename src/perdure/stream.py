"""A run while it happens, for many consumers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, Self

from perdure.errors import ConfigError
from perdure.loop import Broadcast, DriveHandle, Event, ItemEnd, ItemUpdate
from perdure.output import JsonValue, Plan
from perdure.output.showing import partial_values
from perdure.result import OutputT_co, RunResult, read_result, result_of_run
from perdure.wire import Item, Message, OutputTextDelta, SurrogateJoiner

if TYPE_CHECKING:
    from perdure.durable import Following


class Running(Protocol[OutputT_co]):
    """What a stream shows: one drive, or what is left of a run by id."""

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        ...

    def abort(self, cause: str) -> None:
        """Ask it to stop; the first cause stands."""
        ...

    async def settled(self) -> None:
        """Wait for its end, without being able to stop it."""
        ...

    async def wind_down(self) -> None:
        """Wait for its end, for at most `wind_down` seconds, come what may."""
        ...

    def result(self) -> RunResult[OutputT_co]:
        """How it went, once it has ended. Raises as `RunStream.result`."""
        ...

    def unseen(self) -> BaseException | None:
        """What kept it from being shown, if `result` has not raised it."""
        ...


Begin = Callable[[Broadcast], Awaitable[DriveHandle | Running[OutputT_co]]]
"""Starts what a stream shows, and shows it there."""


class RunStream(Generic[OutputT_co]):
    """One run, streamed. Enter it to start; leave it to stop what still runs.

    Leaving raises what kept a run by id from being shown at all, as a store that refuses, unless
    `result` has raised it; that a drive failed stands in its end.

    Every method may be called many times, before, during and after the run: each consumer sees the
    same sequence from the beginning, up to joined deltas for one that comes late, and none holds up
    the run.
    """

    def __init__(
        self,
        begin: Begin[OutputT_co],
        *,
        on_exit: Callable[[], Awaitable[None]] | None = None,
        plan: Plan[OutputT_co] | None = None,
        events: Broadcast | None = None,
    ) -> None:
        self._begin = begin
        self._on_exit = on_exit
        self._plan = plan
        self._broadcast = events if events is not None else Broadcast()
        self._running: Running[OutputT_co] | None = None

    async def __aenter__(self) -> Self:
        if self._running is not None:
            raise ConfigError("a stream runs once; ask the agent for another")
        try:
            begun = await self._begin(self._broadcast)
            self._running = OneDrive(begun, self._plan) if isinstance(begun, DriveHandle) else begun
        except BaseException:
            if self._on_exit is not None:
                await self._on_exit()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        running = self._started()
        if not running.done and not self._broadcast.closed:
            running.abort("the consumer left")
        try:
            await running.wind_down()
        finally:
            if self._on_exit is not None:
                await self._on_exit()
        unseen = running.unseen()
        if unseen is not None and error is None:
            raise unseen

    def abort(self, reason: str = "aborted") -> None:
        """Stop the run; it ends as `aborted`, with this reason as its cause.

        A run by id that another process drives goes on there. The stream ends, and `result` says
        how the run stands.
        """
        self._started().abort(reason)

    def events(self) -> AsyncIterator[Event]:
        """Every event of the run."""
        self._started()
        return self._broadcast.subscribe()

    async def text(self) -> AsyncIterator[str]:
        """The assistant's text as it comes. Text that was not streamed comes whole."""
        joiner = SurrogateJoiner()
        streamed: set[str] = set()
        async for event in self.events():
            piece = ""
            if isinstance(event, ItemUpdate) and isinstance(event.stream, OutputTextDelta):
                streamed.add(event.stream.item_id)
                piece = joiner.feed(event.stream.delta)
            elif isinstance(event, ItemEnd) and isinstance(event.item, Message):
                piece = joiner.end()
                if event.item.role == "assistant" and (event.item.id or "") not in streamed:
                    piece += event.item.text
            if piece:
                yield piece

    async def items(self) -> AsyncIterator[Item]:
        """Every item that enters the transcript, whole."""
        async for event in self.events():
            if isinstance(event, ItemEnd):
                yield event.item

    def partial_output(self) -> AsyncIterator[JsonValue]:
        """A typed answer as it comes: JSON values, each further than the one before.

        They are not checked, and members may be missing: `result` has the value of the type. An
        answer that is sent back begins again from nothing. Without `output=` there are none.
        """
        return partial_values(self.events(), self._plan)

    async def result(self) -> RunResult[OutputT_co]:
        """Wait for the run and return how it went.

        Raises:
            RunFailed: It ended in error.
            ConfigError: A run by id could not go on: the agent could send no request, say.
            LogError: The store of a run by id refuses.
        """
        running = self._started()
        await running.settled()
        return running.result()

    def _started(self) -> Running[OutputT_co]:
        if self._running is None:
            raise ConfigError("enter the stream first: `async with agent.stream(...) as stream:`")
        return self._running


class OneDrive(Generic[OutputT_co]):
    """One drive, as a stream shows it."""

    __slots__ = ("_handle", "_plan", "abort", "settled", "wind_down")

    def __init__(self, handle: DriveHandle, plan: Plan[OutputT_co] | None) -> None:
        self._handle = handle
        self._plan = plan
        self.abort = handle.abort
        self.settled = handle.settled
        self.wind_down = handle.wind_down

    @property
    def done(self) -> bool:
        return self._handle.done

    def result(self) -> RunResult[OutputT_co]:
        return read_result(self._handle, self._plan)

    def unseen(self) -> None:
        """Nothing: what a drive fails with stands in its end."""


class WholeRun(Generic[OutputT_co]):
    """A run by id, as a stream shows it."""

    __slots__ = ("_following", "_plan", "abort", "settled", "unseen", "wind_down")

    def __init__(self, following: Following, plan: Plan[OutputT_co] | None) -> None:
        self._following = following
        self._plan = plan
        self.abort = following.abort
        self.settled = following.settled
        self.wind_down = following.wind_down
        self.unseen = following.unseen

    @property
    def done(self) -> bool:
        return self._following.done

    def result(self) -> RunResult[OutputT_co]:
        ran = self._following.ran()
        return result_of_run(ran.state, ran.error, self._plan)
