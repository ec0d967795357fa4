"""Nested calls: a tool runs another tool of its turn."""

from __future__ import annotations

from perdure.errors import OutcomeUnknown, Suspend, ToolError
from perdure.loop.batch import run_one
from perdure.loop.config import Nested
from perdure.loop.decisions import ToolDecision
from perdure.loop.middleware import ToolCallInfo
from perdure.loop.slots import Slot
from perdure.loop.state import Drive
from perdure.tools import AskedCall, Call, Question, ToolResult, current_elicitor
from perdure.wire import FunctionCall, text_of
from perdure.wire.outputs import ERROR

CLIP = 500
"""How many characters of a call's arguments the question about it shows."""


async def run_nested(drive: Drive, parent: Call, name: str, arguments: str) -> ToolResult:
    """Run a tool as the work of `parent`: decided, told, dispatched and judged like any call.

    Nothing enters the transcript. With a record it is a step of `parent` (LOG 5.5).

    Raises:
        ToolError: It failed, was refused, or there is no such tool.
        Suspend: It is an agent that waits.
    """
    memo, tool = drive.config.memo, drive.tools.get(name)
    asked = name, arguments
    if memo is None or tool is None:
        return (await _run(drive, parent, asked, "", "")).result
    return await memo(
        parent, tool, arguments, lambda key, call_id: _run(drive, parent, asked, key, call_id)
    )


async def _run(
    drive: Drive, parent: Call, asked: tuple[str, str], key: str, call_id: str
) -> Nested:
    """A nested call has a fresh id and a fresh key unless it is given them."""
    name, arguments = asked
    call_id = call_id or drive.config.ids.new("call_")
    call = FunctionCall(call_id=call_id, name=name, arguments=arguments)
    info = ToolCallInfo(
        run_id=drive.run_id,
        turn=drive.turn,
        call=call,
        tool=drive.tools.get(name),
        arguments=arguments or "{}",
        batch=(call,),
        index=0,
        parent=parent.id,
    )
    slot = Slot(
        call=call,
        index=0,
        info=info,
        arguments=arguments or "{}",
        key=key or f"{drive.run_id}/{call_id}",
    )
    try:
        await run_one(drive, slot, hold=_ask)
    except Exception as error:  # noqa: BLE001 - a hook, a subscriber, the ledger may raise anything
        # It ends the drive when the batch has ended; its text may be a guard's, so not the tool's.
        drive.failure = drive.failure or error
        raise ToolError("not run: the drive is about to end") from None
    finally:
        drive.why.pop(call_id, None)
    if slot.result is not None and slot.error is None and not slot.rejected:
        return Nested(slot.result, slot.arguments)
    if slot.unknown:
        raise OutcomeUnknown(str(slot.error)) from slot.error
    if slot.wait is not None:
        raise Suspend(str(slot.error), wait=slot.wait)
    said = text_of(slot.result.output) if slot.result is not None else str(slot.error)
    raise ToolError(said.removeprefix(ERROR)) from slot.error


async def _ask(slot: Slot, decision: ToolDecision) -> ToolDecision:
    """Put a held nested call to the user: nobody can answer it later, its tool is running.

    Without an elicitor, or if the user cancels, the hold refuses it. Nobody's yes opens a gate.
    """
    if decision.gate is not None:
        return _refusal(decision, "a tool cannot ask for it; let the model make this call")
    elicitor = current_elicitor.get()
    if elicitor is None:
        return _refusal(decision, "nobody could be asked")
    asked = AskedCall(
        call_id=slot.call.call_id,
        name=slot.call.name,
        arguments=slot.arguments,
        parent=slot.info.parent,
        reason=decision.reason,
    )
    question = f"Allow {asked.name} with arguments {asked.arguments[:CLIP]}? {asked.reason}"
    try:
        reply = await elicitor.ask(Question(message=question.rstrip(), asked=asked))
    except Exception as error:  # noqa: BLE001 - asking failed, which is not a yes
        return _refusal(decision, f"asking failed: {error}")
    if reply.action == "accept":
        return ToolDecision(
            action="proceed",
            reason=decision.reason or "allowed when asked",
            arguments=decision.arguments,
            by="human",
        )
    if reply.action == "decline":
        return ToolDecision(
            action="reject",
            reason="declined when asked" + (f": {decision.reason}" if decision.reason else ""),
            by="human",
        )
    return _refusal(decision, "the question was cancelled")


def _refusal(decision: ToolDecision, why: str) -> ToolDecision:
    reason = f"{decision.reason}: {why}" if decision.reason else why
    return ToolDecision(action="reject", reason=reason, by=decision.by)
