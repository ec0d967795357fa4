"""What a drive tells as it goes, in order, one at a time.

```
queued* run_start (item_start item_end)* [batch (item_start item_end)*]
  { (item_start item_end)* (turn_start | model_blocked -> run_end)
    ((item_start item_update*)* model_retry)*
    (item_start item_update* item_end)* response_end
    [batch] turn_end (item_start item_end)* }*
run_end queued*

batch = (tool_start [tool_end])+ {tool_dispatch | tool_update | tool_end}* (item_start item_end)*
```

`run_start` and `run_end` are the format's words for the start and end of a drive. Every
`tool_start` has a `tool_end`, however the drive ends; there is one `run_end`, and nothing after it
(DESIGN 6.2). An event with `durable` false is shown before what it says is safe (DESIGN 6.10).

Events read from a record are marked as `replayed` and keep the same order. A stream of a run by id
holds all of its drives, one after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, TypeAlias

import msgspec

from perdure.errors import LogError
from perdure.loop.answers import Answer
from perdure.loop.decisions import ToolDecision
from perdure.loop.item_view import ItemView
from perdure.loop.losses import Loss
from perdure.loop.model import ModelRequest
from perdure.loop.pending import PendingCall
from perdure.loop.spend import NO_SPEND, Spend
from perdure.loop.trigger import Trigger
from perdure.loop.usage import NO_USAGE
from perdure.tools import Effect, ToolResult
from perdure.wire import (
    FunctionCallOutput,
    Item,
    Message,
    Response,
    StreamEvent,
    Usage,
    is_extension,
)

Source = Literal["input", "resume"]
"""What a drive began from: an input, or answers to pending calls."""

Reason = Literal["done", "stopped", "input_required", "aborted", "error"]
"""Why a drive ended."""

StopCause = Literal[
    "max_turns",
    "budget",
    "length",
    "content_filter",
    "terminate",
    "partial_terminate",
    "hook",
    "guard",
    "refused",
]
"""What stopped a drive that ended as `stopped`.

`max_turns`: its turns were used up. `budget`: its time, tokens or money were. `length`,
`content_filter`: the answer was cut. `terminate`: all results of the batch asked for it;
`partial_terminate`: some did. `hook`: `should_stop` said so. `guard`: a `Guard` was raised.
`refused`: an answer to a pending call ended it.
"""

InputMode = Literal[
    "prompt", "resume", "steer", "follow_up", "deliver", "hook", "tool", "continued"
]
"""How an item came to be among a turn's inputs.

`prompt`: the drive was asked with it. `resume`: it answers a pending call. `steer`, `follow_up`,
`deliver`: it came from a queue. `hook`: `before_turn` gave it, or it says that an answer will not
do. `tool`: the output of a call that the loop ran, or a note. `continued`: it stood at the
transcript's end when the drive began.
"""

QueueMode = Literal["steer", "follow_up", "deliver"]
"""How an item was queued. What is delivered waits with what is steered."""


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    replayed: bool = False
    """It was read from a record, and did not happen just now."""

    @property
    def durable(self) -> bool:
        """Whether what it tells is safe."""
        return self.replayed


class RunStart(_Event, frozen=True, kw_only=True):
    """A drive begins."""

    type: ClassVar[Literal["run_start"]] = "run_start"
    source: Source
    trigger: Trigger | None = None


class TurnInput(msgspec.Struct, frozen=True, kw_only=True):
    """One item that a turn answers, and how it came."""

    item: Item
    mode: InputMode
    trigger: Trigger | None = None


class TurnStart(_Event, frozen=True, kw_only=True):
    """A turn begins; `request` is exactly what the model gets."""

    type: ClassVar[Literal["turn_start"]] = "turn_start"
    turn: int
    request: ModelRequest
    inputs: tuple[TurnInput, ...]
    """What this turn answers: what joined the transcript since the last response, and on the first
    turn what stood at its end when the drive began."""
    losses: tuple[Loss, ...] = ()
    """What of the request the model's provider does not get, or gets in another form."""


class ModelRetry(_Event, frozen=True, kw_only=True):
    """A model call failed before the answer began, and is made again after a delay."""

    type: ClassVar[Literal["model_retry"]] = "model_retry"
    turn: int
    attempt: int
    """The number of the attempt that failed, from 1."""
    error: Exception
    delay: float
    """Seconds."""
    request: ModelRequest
    """What the next attempt sends."""
    losses: tuple[Loss, ...] = ()
    """What of it the model's provider does not get, or gets in another form."""


class ModelBlocked(_Event, frozen=True, kw_only=True):
    """A hook refused the request, so it was not sent. In place of the turn's `turn_start`."""

    type: ClassVar[Literal["model_blocked"]] = "model_blocked"
    turn: int
    request: ModelRequest
    error: Exception


class ItemStart(_Event, frozen=True, kw_only=True):
    """An item opens. One that the model makes fills in with the updates that follow.

    An item that the model finished before its answer began is dropped without an `item_end` if the
    attempt fails; a `model_retry` or the end of the drive says so.
    """

    type: ClassVar[Literal["item_start"]] = "item_start"
    turn: int
    item: Item
    response_id: str = ""
    hidden: bool = False


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
    hidden: bool = False
    trigger: Trigger | None = None
    """What brought it in, for an item that the drive was asked with."""
    model_call_id: str = ""
    """The id the model gave a call that runs under another."""
    answer: Answer | None = None
    """For an output that answers a pending call: who gave it, and why."""
    queue_id: str = ""
    """For an item from a queue: the `Queued` report it answers to."""


class ResponseEnd(_Event, frozen=True, kw_only=True):
    """The response is whole, before any of its calls runs."""

    type: ClassVar[Literal["response_end"]] = "response_end"
    turn: int
    response: Response
    withheld: bool = False
    """A guard withheld it; the response is then the loop's account of it, without what was kept."""
    attempts: int = 1
    """How many requests it took."""


class ToolStart(_Event, frozen=True, kw_only=True):
    """A call was decided, in the model's order. `arguments` are what the tool will get."""

    type: ClassVar[Literal["tool_start"]] = "tool_start"
    turn: int
    """0 for a call that a resume approved."""
    call_id: str
    name: str
    arguments: str
    decision: ToolDecision | None = None
    parent: str = ""
    """The call whose tool makes this one."""


class ToolDispatch(_Event, frozen=True, kw_only=True):
    """A call is about to enter its tool. It is durable first, unless the effect is `none`."""

    type: ClassVar[Literal["tool_dispatch"]] = "tool_dispatch"
    turn: int
    call_id: str
    name: str
    effect: Effect
    idempotency_key: str
    lasts: float | None = None
    """Seconds after which the tool has ended, its grace among them; None without a timeout."""
    subsession: bool = False
    """The tool works in a session of its own."""
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
    rejected: bool = False
    held: bool = False
    entered: bool = False
    """It entered its tool in this drive; with a `tool_dispatch` and without this, it provably did
    not."""
    doubted: bool = False
    """Nobody knows what came of it, and its output says so."""
    failed: bool = False
    """It entered its tool and failed, or a hook made a failure of what it gave."""
    gave: FunctionCallOutput | None = None
    """Of a failure that a hook made: what its tool gave."""
    trips: bool = False
    """It failed where that ends the drive, and nothing was ending it before."""
    wait: Mapping[str, object] | None = None
    """Of a call whose tool waits: for what. It is held, and entered again when that has come."""
    reason: str = ""
    """Why it was rejected or held."""
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
    items: tuple[Item, ...]
    """What the drive added to the transcript."""
    reason: Reason
    cause: StopCause | None = None
    error: BaseException | None = None
    """The failure, or why the drive was aborted."""
    pending: tuple[PendingCall, ...] = ()
    """The calls without an output, in transcript order."""
    withheld: bool = False
    """A guard withheld the model's last word, so whatever the items end with is no answer."""
    partial: tuple[Item, ...] = ()
    """What the model had begun when it was cut, marked incomplete; not in the transcript."""
    turns: int = 0
    """How many turns asked the model."""
    usage: Usage = NO_USAGE
    """The sum over the responses of the drive, as far as their servers said."""
    spend: Spend = NO_SPEND
    """The sum over all its requests, and those of what it started below it."""

    @property
    def durable(self) -> bool:
        """Whether the record says so too: not if the drive ended because its record refused."""
        return self.replayed or not isinstance(self.error, LogError)

    @property
    def answer(self) -> str:
        """The text of the assistant's message that ends the items; empty if there is none.

        Items of extension types after it do not count. A cut or withheld answer is none, nor is
        what was said before a call.
        """
        if self.withheld or self.cause in ("length", "content_filter"):
            return ""
        return answer_in(self.items)


def answer_in(items: Sequence[Item]) -> str:
    """The text of the assistant's message that ends items; empty if there is none."""
    for item in reversed(items):
        if not is_extension(item):
            said = isinstance(item, Message) and item.role == "assistant"
            return item.text if isinstance(item, Message) and said else ""
    return ""


class Queued(_Event, frozen=True, kw_only=True):
    """An item was accepted into a queue. It belongs to no drive and may come at any place.

    `run_id` names the drive that will take it unless it stops first; empty if none was running.
    """

    type: ClassVar[Literal["queued"]] = "queued"
    queue_id: str
    item: Item
    mode: QueueMode
    hidden: bool = False
    trigger: Trigger | None = None


Event: TypeAlias = (
    RunStart
    | TurnStart
    | ModelRetry
    | ModelBlocked
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
    | Queued
)
