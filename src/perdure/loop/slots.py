"""One call of a batch: what is known of it, from its decision to its output."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import msgspec

from perdure.errors import NotEntered, OutcomeUnknown
from perdure.loop.answers import CHECK_FIRST
from perdure.loop.decisions import ToolDecision
from perdure.loop.events import ToolEnd
from perdure.loop.middleware import ToolCallInfo
from perdure.loop.pending import PendingCall, PendingReason
from perdure.loop.state import Drive
from perdure.tools import Effect, ToolResult
from perdure.wire import FunctionCall, FunctionCallOutput, function_call_output, text_of
from perdure.wire.outputs import ERROR


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Slot:
    """One call of a batch."""

    call: FunctionCall
    index: int
    info: ToolCallInfo
    arguments: str
    """What the tool gets."""
    effect: Effect = "once"
    key: str = ""
    decision: ToolDecision | None = None
    result: ToolResult | None = None
    output: FunctionCallOutput | None = None
    error: BaseException | None = None
    started: bool = False
    """Its `tool_start` was delivered, or its delivery failed."""
    settled: bool = False
    """Its `tool_end` was delivered, or its delivery failed."""
    entered: bool = False
    """It entered its tool in this drive."""
    before: PendingCall | None = None
    """What was known of it when this drive took it up."""
    wait: Mapping[str, object] | None = None
    """What its tool waits for."""
    committed: bool = False
    """Its output is on the record already, with what its tool did."""
    unknown: bool = False
    """Nobody knows what came of it, and the model is not told so."""
    known: bool = False
    """Its output is that of a drive that was cut; it does not run."""
    doubted: bool = False
    """Nobody knows what came of it, and the model is told so."""
    gave: ToolResult | None = None
    """What its tool gave, if a hook made a failure of it."""
    trips: bool = False
    """It failed where that ends the drive."""

    def decide(self, decision: ToolDecision | None) -> None:
        """Take a decision, and the arguments that it gives."""
        self.decision = decision
        if decision is not None and decision.arguments is not None:
            self.arguments = decision.arguments

    @property
    def was_dispatched(self) -> bool:
        """Whether it may have entered its tool in an earlier drive."""
        return self.before is not None and self.before.may_have_run

    @property
    def failed(self) -> bool:
        """Whether it entered its tool in this drive, and failed."""
        known = self.result is not None and not (self.doubted or self.held or self.rejected)
        return self.entered and known and self.error is not None

    @property
    def held(self) -> bool:
        return self.decision is not None and self.decision.action == "hold"

    @property
    def rejected(self) -> bool:
        return self.decision is not None and self.decision.action == "reject"


async def tell_end(drive: Drive, slot: Slot) -> None:
    """Deliver the `tool_end` of a call, once."""
    if slot.settled:
        return
    slot.settled = True
    if slot.result is not None and not slot.held:
        slot.output = shown(slot, slot.result)
    await drive.delivery.deliver(
        ToolEnd(
            run_id=drive.run_id,
            turn=drive.turn,
            call_id=slot.call.call_id,
            name=slot.call.name,
            result=slot.result,
            output=slot.output if not slot.info.parent else None,
            error=slot.error,
            rejected=slot.rejected,
            held=slot.held,
            entered=slot.entered,
            doubted=slot.doubted,
            failed=slot.failed,
            gave=shown(slot, slot.gave),
            trips=slot.trips,
            wait=slot.wait,
            reason=slot.decision.reason if slot.decision and (slot.rejected or slot.held) else "",
            parent=slot.info.parent,
        )
    )


def shown(slot: Slot, result: ToolResult | None) -> FunctionCallOutput | None:
    """A result as the output of a call."""
    return None if result is None else function_call_output(slot.call.call_id, result.output)


def pending_of(slot: Slot, reason: PendingReason) -> PendingCall:
    """A call as it is pending, and why."""
    gate = slot.decision.gate if slot.decision is not None and reason == "held" else None
    if slot.before is not None and slot.was_dispatched and not slot.entered:
        # Its last dispatch stands.
        return msgspec.structs.replace(slot.before, reason=reason, gate=gate)
    return PendingCall(
        call=slot.call,
        reason=reason,
        tool=slot.info.tool,
        idempotency_key=slot.key if slot.entered else "",
        effect=slot.effect if slot.entered else None,
        arguments=slot.arguments if slot.arguments != (slot.call.arguments or "{}") else None,
        gate=gate,
    )


def knows_nothing(drive: Drive, slot: Slot) -> bool:
    """Whether an answer to a call that is given without its tool would be a guess.

    It may have run in an earlier drive, and nothing but its tool turns that into a result
    (DESIGN 8). Where nobody is told so, the drive fails, and the next tries again.
    """
    before = slot.before
    runs_again = before is not None and before.effect in ("idempotent", "keyed")
    return runs_again and slot.was_dispatched and drive.config.on_unknown == "halt"


def is_guess(drive: Drive, slot: Slot) -> bool:
    """Whether a call that is answered without its tool may have run, and the model is told so.

    Where nobody is told, `knows_nothing` says so.
    """
    before = slot.before
    acts = before is not None and before.effect != "none"
    return acts and slot.was_dispatched and drive.config.on_unknown == "tell"


def tell_doubt(slot: Slot) -> None:
    """Put into words that a call which was answered without its tool may have run (LOG 5.10).

    It is no rejection, whoever answered: a call with a dispatch ends by its output (LOG 5.3).
    """
    said = text_of(slot.result.output) if slot.result is not None else ""
    why = f": {said.removeprefix(ERROR)}" if said else ""
    told = f"this call may have run before, and was not run again{why}"
    slot.result = ToolResult(f"{ERROR}{told.rstrip('.')}. {CHECK_FIRST}")
    slot.error = slot.error or OutcomeUnknown(told)
    slot.decision, slot.doubted = None, True


def not_known(slot: Slot, answer: BaseException | None) -> NotEntered:
    """Why a drive fails that would have guessed what came of a call."""
    error = NotEntered(slot.call.call_id, slot.call.name)
    error.__cause__ = answer
    return error
