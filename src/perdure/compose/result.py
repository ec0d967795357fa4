"""What `call_model` gives back: a result that begins when it is first asked for anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self, TypeVar

from perdure.compose import streams
from perdure.compose.events import FullEvent, ToolStreamEvent
from perdure.compose.kinds import Origin
from perdure.compose.lifecycle import UsageTotals
from perdure.compose.run import Run
from perdure.compose.shared_context import Snapshot
from perdure.compose.state import AsyncTask, ConversationState, PendingToolCall
from perdure.compose.streams import RunLog
from perdure.compose.turns import ToolCall
from perdure.errors import ConfigError, InputRequired
from perdure.loop import Event
from perdure.wire import FunctionCall, FunctionCallOutput, Item, Message, Response

T = TypeVar("T")

_running: set[asyncio.Task[None]] = set()
"""The event loop holds its tasks weakly; a run must not vanish while nobody waits for it."""


class ModelResult:
    """A run that begins when its result, or any of its streams, is first asked for.

    Every accessor waits for the one run; every stream shows all of it, whenever it is asked for
    and however slowly it is read. A run that fails raises the same error from each of them; a
    stream raises it after all that came before. A consumer that leaves leaves alone. Entered as a
    context manager, the result stops what still runs when it is left.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        if self._task is None:
            return "<ModelResult, not begun>"
        return f"<ModelResult of {self._run.session_id!r}, {'over' if self._over else 'running'}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._task is None:
            return
        if not self._over:
            self.cancel("the result was left")
        await asyncio.wait({self._task})

    # --- the run ---------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        return self._task is not None and self._task.done()

    def begin(self) -> None:
        """Begin now, without waiting for anything. Asking for anything begins it too."""
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._run.go(), name="perdure call_model")
            _running.add(self._task)
            self._task.add_done_callback(_running.discard)

    async def wait(self) -> None:
        """Wait until the run is over, however it ends."""
        self.begin()
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task})

    async def _ended(self) -> Run:
        await self.wait()
        if self._run.failure is not None:
            raise self._run.failure
        return self._run

    def cancel(self, reason: str = "cancelled") -> None:
        """Stop the run: the model's stream is closed, tools are told. It ends with `Aborted`."""
        self._run.abort(reason)

    # --- accessors ---------------------------------------------------------------------------

    async def text(self) -> str:
        """The text of the last response; empty if the run paused before there was one.

        Raises:
            PerdureError: What ended the run in error, as from every accessor.
        """
        response = (await self._ended()).ledger.response
        return response.output_text if response is not None else ""

    async def response(self) -> Response:
        """The last response: the answer, or the one that made the run pause.

        Raises:
            InputRequired: The run went on with decisions and paused again without a request.
        """
        run = await self._ended()
        if run.ledger.response is None:
            waiting = run.state.pending_tool_calls if run.state is not None else ()
            raise InputRequired(tuple(one.id for one in waiting))
        return run.ledger.response

    async def tool_calls(self) -> tuple[ToolCall, ...]:
        """All calls of the run, each with its turn."""
        return tuple((await self._ended()).ledger.calls)

    async def state(self) -> ConversationState:
        """The conversation as the run left it; give it to the next `call_model`."""
        run = await self._ended()
        if run.state is None:
            raise ConfigError("the run had no state")
        return run.state

    async def pending_tool_calls(self) -> tuple[PendingToolCall, ...]:
        """The calls that wait, for an approval, a person's answer or the caller's own tool."""
        return (await self.state()).pending_tool_calls

    async def requires_approval(self) -> bool:
        """Whether calls wait for an approval."""
        return any(one.why == "approval" for one in await self.pending_tool_calls())

    async def tasks(self) -> tuple[AsyncTask, ...]:
        """The tasks that outlive their calls, as the run left them."""
        return (await self.state()).tasks

    async def usage(self) -> UsageTotals:
        """What all model calls of the run used, those of a failed run too. It never raises."""
        await self.wait()
        return self._run.totals()

    # --- streams ---------------------------------------------------------------------------

    @property
    def _log(self) -> RunLog:
        self.begin()
        return self._run.log

    def text_stream(self) -> AsyncIterator[str]:
        """The assistant's text of all turns, as it comes."""
        return _lazily(lambda: streams.texts(self._log))

    def reasoning_stream(self) -> AsyncIterator[str]:
        """What the model shows of its thoughts in all turns."""
        return _lazily(lambda: streams.thoughts(self._log))

    def tool_stream(self) -> AsyncIterator[ToolStreamEvent]:
        """Arguments of calls as they come, and preliminary results of tools."""
        return _lazily(lambda: streams.tool_events(self._log))

    def tool_calls_stream(self) -> AsyncIterator[ToolCall]:
        """The calls of all turns, each as soon as it is whole."""
        return _lazily(lambda: streams.tool_calls(self._log))

    def items_stream(self) -> AsyncIterator[Item]:
        """Items as they grow: one comes again and again under its id until it is whole."""
        return _lazily(lambda: streams.items(self._log))

    def new_messages_stream(self) -> AsyncIterator[Message | FunctionCall | FunctionCallOutput]:
        """Messages, calls and outputs that the run adds to the conversation, each whole."""
        return _lazily(lambda: streams.new_messages(self._log))

    def full_responses_stream(self) -> AsyncIterator[FullEvent]:
        """The wire's events of all turns, and what the engine does between them."""
        sources: dict[str, Origin] = {tool.name: tool.source for tool in self._run.spec.clients}
        return _lazily(lambda: streams.full(self._log, sources))

    def context_updates(self) -> AsyncIterator[Snapshot]:
        """The tools' context after each change, until the run ends."""

        def begun() -> AsyncIterator[Snapshot]:
            self.begin()
            return self._run.contexts.subscribe()

        return _lazily(begun)

    def events(self) -> AsyncIterator[Event]:
        """Every event of the loop, as `agent.stream(...).events()` gives them."""

        def begun() -> AsyncIterator[Event]:
            return self._log.subscribe()

        return _lazily(begun)


async def _lazily(begin: Callable[[], AsyncIterator[T]]) -> AsyncIterator[T]:
    """A stream that begins the run when it is first read."""
    async for one in begin():
        yield one
