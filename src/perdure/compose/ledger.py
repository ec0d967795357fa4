"""What a run knows of itself while it goes on, from the loop's events alone, and when it is saved.

A state accessor stands where a log would: what must not get lost is saved at the points where the
loop waits for its ledger (DESIGN 7). *Committed* is the part of the transcript that a save holds.
What the caller said is committed with the response to it, never alone, so that a request that
fails can be made again; so are answers that the caller sent, and the calls stay pending until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator

from perdure.clock import Clock
from perdure.compose.bodies import Preliminary, value_of
from perdure.compose.kinds import Origin
from perdure.compose.stops import ToolExecution, cost_of
from perdure.compose.turns import ToolCall, tool_call_of
from perdure.loop import (
    Event,
    ItemEnd,
    Ledger,
    ModelRetry,
    ResponseEnd,
    RunEnd,
    Ticket,
    ToolDispatch,
    ToolEnd,
    ToolStart,
    ToolUpdate,
    Transcript,
    TurnStart,
)
from perdure.loop.usage import NO_USAGE, add
from perdure.wire import FunctionCall, FunctionCallOutput, Request, Response, Usage

Save = Callable[[], Awaitable[None]]
SourceOf = Callable[[str], Origin]


class RunLedger:
    """The ledger of the drives of one run.

    Args:
        transcript: What the drives grow.
        committed: How many of its items are saved already.
        clock: What durations are measured with.
        source: Where a tool comes from, by its name.
        save: Saves the state; None where nothing is to be saved.
        inner: The log's recorder, where there is a log.
    """

    def __init__(
        self,
        transcript: Transcript,
        *,
        committed: int,
        clock: Clock,
        source: SourceOf,
        save: Save | None,
        inner: Ledger | None = None,
    ) -> None:
        self._transcript = transcript
        self._clock = clock
        self._source = source
        self._save = save
        self._inner = inner
        self._lock = asyncio.Lock()
        self._saved = 0
        self._changes = 0
        self._ticket = _Ticket(self, 0)
        self._started: dict[str, ToolStart] = {}
        self._shown: dict[str, list[object]] = {}
        self._since = 0.0
        self.committed = committed
        self.commits_answers = False
        """Answers that open a drive are kept at once: somebody decided, and tools ran."""
        self.answering = False
        self.requests = 0
        self.request: Request | None = None
        """The settings of the last request."""
        self.response: Response | None = None
        """The last response that came."""
        self.seconds = 0.0
        """How long the last response took."""
        self.usage: Usage = NO_USAGE
        self.cost: float | None = None
        self.model_calls = 0
        self.calls: list[ToolCall] = []
        """All calls of the run."""
        self.executions: dict[str, ToolExecution] = {}
        """What became of the calls of the last round."""
        self.running: set[str] = set()
        """Calls that may have run and have no output."""
        self._see: dict[type, Callable[..., None]] = {
            TurnStart: self._turn,
            ModelRetry: self._retry,
            ResponseEnd: self._response_end,
            ItemEnd: self._item,
            ToolStart: self._start,
            ToolUpdate: self._update,
            ToolDispatch: self._dispatch,
            ToolEnd: self._tool_end,
        }

    def note(self, event: Event) -> Ticket:
        """Take an event; its ticket saves what came before it, if anything did."""
        see = self._see.get(type(event))
        if see is not None:
            see(event)
        if self._inner is not None:
            return self._inner.note(event)
        if isinstance(event, RunEnd):
            return _Ticket(self, 0)  # saved by the run, which alone knows how it stands
        if self._ticket.changes != self._changes:
            self._ticket = _Ticket(self, self._changes)
        return self._ticket

    async def flush(self, changes: int | None = None) -> None:
        """Save, unless all those changes are saved already."""
        wanted = self._changes if changes is None else changes
        if self._save is None or self._saved >= wanted:
            return
        async with self._lock:
            if self._saved >= wanted:
                return
            saving = self._changes
            await self._save()
            self._saved = saving

    def mark_saved(self) -> None:
        """The run has saved everything itself."""
        self._saved = self._changes

    # --- what events say -------------------------------------------------------------------

    def _turn(self, event: TurnStart) -> None:
        self.requests += 1
        self.request = event.request.settings
        self.answering = True
        self.executions = {}
        self._since = self._clock.monotonic()

    def _retry(self, event: ModelRetry) -> None:
        self.request = event.request.settings
        self._since = self._clock.monotonic()

    def _response_end(self, event: ResponseEnd) -> None:
        self.answering = False
        self.response = event.response
        self.seconds = self._clock.monotonic() - self._since
        self.model_calls += 1
        usage = event.response.usage or None
        self.usage = add(self.usage, usage)
        cost = cost_of(usage)
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost
        if event.response.status != "failed":
            self._commit()

    def _item(self, event: ItemEnd) -> None:
        item = event.item
        if isinstance(item, FunctionCall) and self.answering:
            self.calls.append(tool_call_of(item, self.requests - 1))
        elif isinstance(item, FunctionCallOutput):
            self.running.discard(item.call_id)
            if not self.answering and (event.answer is None or self.commits_answers):
                self._commit()

    def _commit(self) -> None:
        self.committed = len(self._transcript)
        self._changes += 1

    def _start(self, event: ToolStart) -> None:
        if not event.parent:
            self._started[event.call_id] = event

    def _update(self, event: ToolUpdate) -> None:
        if isinstance(event.partial.details, Preliminary):
            self._shown.setdefault(event.call_id, []).append(event.partial.details.value)

    def _dispatch(self, event: ToolDispatch) -> None:
        """One save for a whole round: whatever was decided to run may have run from now on."""
        if event.parent or event.call_id in self.running:
            return
        self.running |= self._started.keys()
        self._changes += 1

    def _tool_end(self, event: ToolEnd) -> None:
        if event.parent:
            return
        start = self._started.pop(event.call_id, None)
        if event.held:
            self.running.discard(event.call_id)
        if start is None:
            return
        call = FunctionCall(call_id=event.call_id, name=event.name, arguments=start.arguments)
        self.executions[event.call_id] = ToolExecution(
            call=tool_call_of(call, self.requests - 1),
            result=value_of(event.result) if event.result and event.error is None else None,
            error=str(event.error) if event.error is not None else "",
            source=self._source(event.name),
            events=tuple(self._shown.pop(event.call_id, ())),
            output=event.output,
            entered=event.entered,
        )


class _Ticket:
    """Await it to have a change saved."""

    __slots__ = ("_ledger", "changes")

    def __init__(self, ledger: RunLedger, changes: int) -> None:
        self._ledger = ledger
        self.changes = changes

    def __await__(self) -> Generator[object, None, None]:
        return self._ledger.flush(self.changes).__await__()
