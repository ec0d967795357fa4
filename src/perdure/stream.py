"""A run while it happens, for many consumers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Generic, Self

from perdure.errors import ConfigError
from perdure.loop import Broadcast, DriveHandle, Event, ItemEnd, ItemUpdate
from perdure.output import JsonValue, Plan
from perdure.output.showing import partial_values
from perdure.result import OutputT_co, RunResult, read_result
from perdure.wire import Item, Message, OutputTextDelta, SurrogateJoiner

Begin = Callable[[Broadcast], Awaitable[DriveHandle]]


class RunStream(Generic[OutputT_co]):
    """One run, streamed. Enter it to start; leave it to stop what still runs.

    Every method may be called many times, before, during and after the run: each consumer sees the
    same sequence from the beginning, up to joined deltas for one that comes late, and none holds up
    the run.
    """

    def __init__(
        self,
        begin: Begin,
        *,
        on_exit: Callable[[], Awaitable[None]] | None = None,
        plan: Plan[OutputT_co] | None = None,
    ) -> None:
        self._begin = begin
        self._on_exit = on_exit
        self._plan = plan
        self._broadcast = Broadcast()
        self._handle: DriveHandle | None = None

    async def __aenter__(self) -> Self:
        if self._handle is not None:
            raise ConfigError("a stream runs once; ask the agent for another")
        try:
            self._handle = await self._begin(self._broadcast)
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
        handle = self._started()
        if not handle.done and not self._broadcast.closed:
            handle.abort("the consumer left")
        try:
            await handle.wind_down()
        finally:
            if self._on_exit is not None:
                await self._on_exit()

    def abort(self, reason: str = "aborted") -> None:
        """Stop the run; it ends as `aborted`, with this reason as its cause."""
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
        """
        handle = self._started()
        await handle.settled()
        return read_result(handle, self._plan)

    def _started(self) -> DriveHandle:
        if self._handle is None:
            raise ConfigError("enter the stream first: `async with agent.stream(...) as stream:`")
        return self._handle
