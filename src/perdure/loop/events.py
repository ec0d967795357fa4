"""What a drive tells as it goes, in order, one at a time.

```
run_start (item_start item_end)*
  { turn_start
    (item_start item_update* item_end)* response_end
    (tool_start [tool_end])* { tool_dispatch | tool_update | tool_end }*
    (item_start item_end)* turn_end }*
run_end
```

`run_start` and `run_end` are the format's words for the start and end of a drive. Every
`tool_start` has a `tool_end`, however the drive ends; there is one `run_end`, and nothing after it
(DESIGN 6.2). An event with `durable` false is shown before what it says is safe (DESIGN 6.10).
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec

from perdure.loop.item_view import ItemView
from perdure.loop.model import ModelRequest
from perdure.loop.pending import PendingCall
from perdure.loop.usage import NO_USAGE
from perdure.tools import Effect, ToolResult
from perdure.wire import FunctionCallOutput, Item, Response, StreamEvent, Usage

Source = Literal["input", "resume"]
"""What a drive began from: an input, or answers to pending calls."""

Reason = Literal["done", "stopped", "input_required", "aborted", "error"]
"""Why a drive ended."""

StopCause = Literal["max_turns", "length", "content_filter", "terminate", "partial_terminate"]
"""What stopped a drive that ended as `stopped`."""

InputMode = Literal["prompt", "resume", "tool", "continued"]
"""How an item came to be among a turn's inputs."""


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    durable: ClassVar[bool] = False


class RunStart(_Event, frozen=True, kw_only=True):
    """A drive begins."""

    type: ClassVar[Literal["run_start"]] = "run_start"
    source: Source


class TurnInput(msgspec.Struct, frozen=True, kw_only=True):
    """One item that a turn answers, and how it came."""

    item: Item
    mode: InputMode


class TurnStart(_Event, frozen=True, kw_only=True):
    """A turn begins; `request` is exactly what the model gets."""

    type: ClassVar[Literal["turn_start"]] = "turn_start"
    turn: int
    request: ModelRequest
    inputs: tuple[TurnInput, ...]


class ItemStart(_Event, frozen=True, kw_only=True):
    """An item opens. One that the model makes fills in with the updates that follow."""

    type: ClassVar[Literal["item_start"]] = "item_start"
    turn: int
    item: Item
    response_id: str = ""


class ItemUpdate(_Event, frozen=True, kw_only=True):
    """One wire event of an item on its way, as it came."""

    type: ClassVar[Literal["item_update"]] = "item_update"
    turn: int
    stream: StreamEvent
    view: ItemView
    response_id: str = ""

    @property
    def item(self) -> Item | None:
        """The item as far as it has come when asked. None if the stream never opened it."""
        return self.view.item()


class ItemEnd(_Event, frozen=True, kw_only=True):
    """An item is whole and in the transcript."""

    type: ClassVar[Literal["item_end"]] = "item_end"
    turn: int
    item: Item
    response_id: str = ""


class ResponseEnd(_Event, frozen=True, kw_only=True):
    """The response is whole, before any of its calls runs."""

    type: ClassVar[Literal["response_end"]] = "response_end"
    turn: int
    response: Response


class ToolStart(_Event, frozen=True, kw_only=True):
    """A call was decided, in the model's order. `arguments` are what the tool will get."""

    type: ClassVar[Literal["tool_start"]] = "tool_start"
    turn: int
    call_id: str
    name: str
    arguments: str
    parent: str = ""


class ToolDispatch(_Event, frozen=True, kw_only=True):
    """A call is about to enter its tool. It is durable first, unless the effect is `none`."""

    type: ClassVar[Literal["tool_dispatch"]] = "tool_dispatch"
    turn: int
    call_id: str
    name: str
    effect: Effect
    idempotency_key: str
    parent: str = ""


class ToolUpdate(_Event, frozen=True, kw_only=True):
    """Progress of a running call."""

    type: ClassVar[Literal["tool_update"]] = "tool_update"
    turn: int
    call_id: str
    name: str
    partial: ToolResult
    parent: str = ""


class ToolEnd(_Event, frozen=True, kw_only=True):
    """A call ended, in the order of completion.

    `output` is what will stand in the transcript; None for a call that stays pending.
    `error` is set when the tool failed, was not found, was refused or was cut.
    """

    type: ClassVar[Literal["tool_end"]] = "tool_end"
    turn: int
    call_id: str
    name: str
    result: ToolResult | None
    output: FunctionCallOutput | None
    error: BaseException | None = None
    parent: str = ""


class TurnEnd(_Event, frozen=True, kw_only=True):
    """A turn is over; the results stand in the model's order."""

    type: ClassVar[Literal["turn_end"]] = "turn_end"
    turn: int
    response: Response
    tool_results: tuple[ToolResult, ...] = ()


class RunEnd(_Event, frozen=True, kw_only=True):
    """A drive is over. Nothing follows.

    A drive that was refused before it began is this event alone, with an empty `run_id`.
    """

    type: ClassVar[Literal["run_end"]] = "run_end"
    durable: ClassVar[bool] = True
    items: tuple[Item, ...]
    """What the drive added to the transcript."""
    reason: Reason
    cause: StopCause | None = None
    error: BaseException | None = None
    """The failure, or why the drive was aborted."""
    pending: tuple[PendingCall, ...] = ()
    """The calls without an output, in transcript order."""
    partial: tuple[Item, ...] = ()
    """What the model had begun when it was cut, marked incomplete; not in the transcript."""
    turns: int = 0
    usage: Usage = NO_USAGE
    """The sum over the responses of the drive, as far as their servers said."""


Event: TypeAlias = (
    RunStart
    | TurnStart
    | ItemStart
    | ItemUpdate
    | ItemEnd
    | ResponseEnd
    | ToolStart
    | ToolDispatch
    | ToolUpdate
    | ToolEnd
    | TurnEnd
    | RunEnd
)
