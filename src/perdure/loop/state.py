"""The data of one drive, and the one way its own items enter the transcript."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from typing import NamedTuple, TypeAlias

from perdure.loop.abort import AbortSignal
from perdure.loop.answers import Answer
from perdure.loop.callids import CallIds
from perdure.loop.config import Config
from perdure.loop.delivery import Delivery
from perdure.loop.events import (
    Event,
    InputMode,
    ItemEnd,
    ItemStart,
    Reason,
    Source,
    StopCause,
    TurnInput,
)
from perdure.loop.hooks import Hooks
from perdure.loop.middleware import RunInfo
from perdure.loop.pending import PendingCall
from perdure.loop.queues import Queues, Waiting
from perdure.loop.spending import Spending
from perdure.loop.transcript import Items, Outgoing, Transcript
from perdure.loop.trigger import Trigger
from perdure.loop.usage import NO_USAGE
from perdure.tools import Call, ToolResult, ToolSet
from perdure.wire import FunctionCall, Item, Reasoning, Request, Usage

Invoker: TypeAlias = "Callable[[Drive, Call, str, str], Coroutine[object, object, ToolResult]]"
"""Runs a nested call: the drive, the call that makes it, the tool's name, the arguments."""


class Outcome(NamedTuple):
    """Why a drive ends."""

    reason: Reason
    cause: StopCause | None = None
    error: BaseException | None = None


@dataclasses.dataclass(slots=True, kw_only=True)
class Drive:
    """The data of one drive."""

    run_id: str
    config: Config
    hooks: Hooks
    transcript: Transcript
    delivery: Delivery
    signal: AbortSignal
    queues: Queues
    call_ids: CallIds
    nested: Invoker
    """Runs the calls that tools make."""
    spending: Spending
    """Its requests, and what they took."""
    trigger: Trigger | None = None
    source: Source = "input"
    began: bool = False
    """Its `run_start` was told."""
    turn: int = 0
    asked: int = 0
    """How many turns have asked the model."""
    started: float = 0.0
    """When it began, on the clock's monotonic reading."""
    start: int = 0
    """How many items the transcript had when the drive began."""
    taking: bool = True
    """Whether the drive will still look into the queues."""
    inputs: list[TurnInput] = dataclasses.field(default_factory=list[TurnInput])
    """What the next turn answers."""
    delivered: list[Waiting] = dataclasses.field(default_factory=list[Waiting])
    """Deliveries in the transcript that no request has carried yet."""
    why: dict[str, PendingCall] = dataclasses.field(default_factory=dict[str, PendingCall])
    """What is known of calls that have no output, by call id."""
    deciding: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    """Held while a call is decided on or its result is judged: one at a time, nested ones too."""
    tools: ToolSet = dataclasses.field(default_factory=ToolSet)
    """The tools of the turn, resolved once."""
    settings: tuple[ToolSet, Request] | None = None
    """The settings of the last request, and the tools they name."""
    outgoing: dict[str, Outgoing] = dataclasses.field(default_factory=dict[str, Outgoing])
    """What each model is to see, by its name."""
    partial: tuple[Item, ...] = ()
    broken: tuple[FunctionCall, ...] = ()
    """The calls of a response that broke off; they never run (DESIGN 6.6)."""
    withheld: bool = False
    failure: Exception | None = None
    """What failed around a nested call; the batch around it raises it."""
    closing: bool = False
    """The event loop is closing under the drive: there is time for one last append."""
    usage: Usage = NO_USAGE
    """What all responses of the drive used."""

    def info(self) -> RunInfo:
        """The drive as hooks see it."""
        return RunInfo(
            run_id=self.run_id,
            source=self.source,
            trigger=self.trigger,
            transcript=self.transcript.snapshot(),
        )

    def visible(self, model_name: str) -> Items:
        """What a model is to see now: without hidden types and other models' thoughts."""
        outgoing = self.outgoing.get(model_name)
        if outgoing is None:
            outgoing = Outgoing(self.transcript, lambda item: self.is_for(model_name, item))
            self.outgoing[model_name] = outgoing
        return outgoing.snapshot()

    def is_for(self, model_name: str, item: Item) -> bool:
        """Whether a request to a model carries the item.

        A thought is for the model that made it alone: it is signed for nobody else. One that
        nobody is known to have made is for all.
        """
        if isinstance(item, Reasoning) and model_name:
            maker = self.transcript.maker(item)
            if maker and maker != model_name:
                return False
        return self.config.keep(item)


async def add(
    drive: Drive,
    item: Item,
    mode: InputMode,
    *,
    hidden: bool = False,
    trigger: Trigger | None = None,
    answer: Answer | None = None,
    queue_id: str = "",
) -> None:
    """Append an item that the model did not make."""
    run_id, turn = drive.run_id, drive.turn
    if isinstance(item, FunctionCall):
        drive.call_ids.reserve((item.call_id,))
    await drive.delivery.deliver(ItemStart(run_id=run_id, turn=turn, item=item, hidden=hidden))
    drive.transcript.append(item)
    drive.inputs.append(TurnInput(item=item, mode=mode, trigger=trigger))
    await drive.delivery.deliver(
        ItemEnd(
            run_id=run_id,
            turn=turn,
            item=item,
            hidden=hidden,
            trigger=trigger if mode == "prompt" else None,
            answer=answer,
            queue_id=queue_id,
        )
    )


async def add_waiting(drive: Drive, waiting: list[Waiting]) -> None:
    """Append what a queue gave.

    If telling of an item fails, what has not joined the transcript goes back to its queue.
    """
    before = len(drive.transcript)
    try:
        for one in waiting:
            await add(
                drive,
                one.item,
                one.mode,
                hidden=one.hidden,
                trigger=one.trigger,
                queue_id=one.id,
            )
    finally:
        joined = len(drive.transcript) - before
        drive.delivered += [one for one in waiting[:joined] if one.mode == "deliver"]
        drive.queues.give_back(waiting[joined:])


async def keep(drive: Drive, item: Item, mode: InputMode = "tool") -> Exception | None:
    """Append an item that must not get lost, whatever fails while it is told; gives the failure."""
    run_id, turn = drive.run_id, drive.turn
    first = await _tell(drive, ItemStart(run_id=run_id, turn=turn, item=item))
    drive.transcript.append(item)
    drive.inputs.append(TurnInput(item=item, mode=mode))
    second = await _tell(drive, ItemEnd(run_id=run_id, turn=turn, item=item))
    return first or second


async def _tell(drive: Drive, event: Event) -> Exception | None:
    try:
        await drive.delivery.deliver(event)
    except Exception as error:  # noqa: BLE001 - a subscriber or the ledger may raise anything
        return error
    return None
