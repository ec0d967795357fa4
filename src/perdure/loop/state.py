"""The data of one drive, and the one way its own items enter the transcript."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from perdure.loop.abort import AbortSignal
from perdure.loop.config import Config
from perdure.loop.delivery import Delivery
from perdure.loop.events import (
    InputMode,
    ItemEnd,
    ItemStart,
    Reason,
    Source,
    StopCause,
    TurnInput,
)
from perdure.loop.pending import PendingCall
from perdure.loop.transcript import Outgoing, Transcript
from perdure.loop.usage import NO_USAGE
from perdure.tools import ToolSet
from perdure.wire import Item, Usage


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
    transcript: Transcript
    delivery: Delivery
    signal: AbortSignal
    tools: ToolSet
    outgoing: Outgoing
    source: Source = "input"
    turn: int = 0
    start: int = 0
    """How many items the transcript had when the drive began."""
    inputs: list[TurnInput] = dataclasses.field(default_factory=list[TurnInput])
    """What the next turn answers."""
    why: dict[str, PendingCall] = dataclasses.field(default_factory=dict[str, PendingCall])
    """What is known of calls that were cut, by call id."""
    partial: tuple[Item, ...] = ()
    usage: Usage = NO_USAGE
    """What all responses of the drive used."""


async def add(drive: Drive, item: Item, mode: InputMode) -> None:
    """Append an item of the loop's own to the transcript."""
    turn = drive.turn
    await drive.delivery.deliver(ItemStart(run_id=drive.run_id, turn=turn, item=item))
    drive.transcript.append(item)
    drive.inputs.append(TurnInput(item=item, mode=mode))
    await drive.delivery.deliver(ItemEnd(run_id=drive.run_id, turn=turn, item=item))
