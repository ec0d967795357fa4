"""Middleware: the one extension point of the loop.

A *middleware* is an object with any of the hook methods below. Several chain in the order they are
given: for a hook that changes something, each sees what the one before it left; a `wrap_` hook of
an earlier one lies outside that of a later one. A *guard* is a hook that stops the drive by raising
`Guard`; its text reaches the host alone, never the model, the transcript or the caller.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias

from perdure.loop.decisions import ToolDecision
from perdure.loop.events import Event, RunEnd, Source, TurnInput
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.loop.trigger import Hidden, Trigger
from perdure.tools import Tool, ToolResult
from perdure.wire import FunctionCall, Item, Message, Response, StreamEvent

NextModel: TypeAlias = Callable[[ModelRequest], AsyncIterator[StreamEvent]]
NextTool: TypeAlias = Callable[[], Awaitable[ToolResult]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """The drive that a hook belongs to."""

    run_id: str
    source: Source
    trigger: Trigger | None
    transcript: Items
    """As it stands when the hook is called."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TurnStartInfo:
    """A turn about to begin."""

    run_id: str
    turn: int
    transcript: Items
    inputs: tuple[TurnInput, ...]
    """What joined the transcript for this turn; on a drive's first, also what it continues."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MessageInfo:
    """A message that the model has completed.

    Whether it is the answer is not known yet: a call may follow it in the same response.
    """

    run_id: str
    turn: int
    response_id: str
    output: tuple[Item, ...]
    """The items of the response before it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallInfo:
    """A call about to be decided on."""

    run_id: str
    turn: int
    call: FunctionCall
    tool: Tool | None
    """None if no tool has its name; it then fails, unless a hook rejects it first."""
    arguments: str
    """What the tool will get, as far as hooks before this one have rewritten it."""
    batch: tuple[FunctionCall, ...]
    index: int
    parent: str = ""
    """The call whose tool makes this one, for a nested call."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultInfo:
    """A call that has ended."""

    run_id: str
    turn: int
    call: FunctionCall
    tool: Tool | None
    arguments: str
    result: ToolResult
    error: BaseException | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolOverride:
    """What replaces the result of a call."""

    result: ToolResult
    error: BaseException | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TurnInfo:
    """A turn that is over."""

    run_id: str
    turn: int
    response: Response
    tool_results: tuple[ToolResult, ...]
    final: bool
    """The model called no tools, so its response is the answer unless something is queued."""
    transcript: Items


class Middleware:
    """The base of middleware; every hook does nothing until it is overridden.

    Hooks run one at a time, on the drive's task; `wrap_tool_call` and `after_tool_call` on the
    call's. What a hook raises ends the drive: `Guard` as stopped with cause `guard`, anything else
    in error. An abort does not cut a hook short.
    """

    alongside: bool = False
    """Run `before_model_call` beside the model call instead of before it.

    It cannot change the request then. If it raises, nothing of the response enters the transcript;
    no tool starts before it has settled.
    """

    per_request: bool = False
    """Let `wrap_model_call` stand inside that of every middleware that says nothing of the kind.

    It is called once for each request that is sent then, also where another sends several.
    """

    async def before_run(self, info: RunInfo) -> None:
        """A drive is about to begin; called before its `run_start`."""

    async def before_turn(self, info: TurnStartInfo) -> Sequence[Item | Hidden]:
        """Give items that join the transcript for this turn, as facts: the time, a reminder."""
        return ()

    async def transform(self, items: Sequence[Item], info: RunInfo) -> Sequence[Item]:
        """Shorten or edit what this one request carries. The transcript stays as it is.

        A request that a hook edited cannot be rebuilt from a record, so its response has no hash
        there; one that a hook shortened can, if it returns `Compacted` items, which say what was
        folded.
        """
        return items

    async def before_model_call(self, request: ModelRequest) -> ModelRequest | None:
        """See the request as it will be sent, and return another to send instead; None keeps it.

        A `Guard` stops the drive before the call: `model_blocked` is told, and no `turn_start`.
        """
        return None

    def wrap_model_call(self, request: ModelRequest, next: NextModel) -> AsyncIterator[StreamEvent]:  # noqa: A002
        """Stand around the call of the model.

        `next` may be called again only before any event was passed on; what is passed on has been
        seen.
        """
        return next(request)

    async def on_message(self, message: Message, info: MessageInfo) -> Message | None:
        """The output guard: see each message of the assistant before it enters the transcript.

        It is whole by then. Return another to take its place; None keeps it.

        A `Guard` withholds it: it reaches neither transcript nor caller, the calls of its response
        never run, and the drive stops. Deltas have been shown by then; whoever must not show
        withheld text shows messages at their `item_end`.
        """
        return None

    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        """Decide about a call. None lets it proceed.

        Called for every call of a batch, in the model's order, before any of them runs. Of several
        decisions the strictest stands: reject over hold over proceed.
        """
        return None

    async def wrap_tool_call(self, info: ToolCallInfo, next: NextTool) -> ToolResult:  # noqa: A002
        """Stand around the tool, on the call's own task. The dispatch is written inside of it.

        An answer given without `next` is a rejection. A second `next` is refused for a tool whose
        effect is `once` or `transactional`. Nothing raised here turns "may have run" into "failed".
        """
        return await next()

    async def after_tool_call(self, info: ToolResultInfo) -> ToolOverride | None:
        """See the result of a call that was not rejected, and replace it; None keeps it.

        The next call of its chain is dispatched only after this has returned.
        """
        return None

    async def should_stop(self, info: TurnInfo) -> bool:
        """End the drive after this turn, as stopped with cause `hook`."""
        return False

    async def on_event(self, event: Event) -> None:
        """Hear every event. The drive waits for it, so it is a barrier.

        Called one at a time, in order. If it raises, the drive ends in error; events that an abort
        leaves behind are still told, for at most the wind-down.
        """

    async def on_end(self, end: RunEnd) -> None:
        """The drive is over; called after `run_end` was told to every subscriber."""
