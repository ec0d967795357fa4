"""What becomes of a call: the outcome of its job, judged by the hooks, in its slot."""

from __future__ import annotations

import dataclasses

from perdure.errors import OutcomeUnknown, Suspend, ToolError, ToolTimeout
from perdure.loop.answers import CHECK_FIRST
from perdure.loop.context import LoopPort
from perdure.loop.decisions import ToolDecision
from perdure.loop.middleware import ToolResultInfo
from perdure.loop.slots import Slot, pending_of
from perdure.loop.state import Drive
from perdure.tools import Outcome, ToolResult, error_result
from perdure.wire import text_of
from perdure.wire.outputs import ERROR


def take_outcome(drive: Drive, slot: Slot, outcome: Outcome, *, stopped: bool) -> None:
    """Put what became of a job into its slot.

    Unless the batch was `stopped`, every job gets a result: the next request needs its output
    (DESIGN 6.1).
    """
    slot.result, slot.error, slot.entered = outcome.result, outcome.error, bool(outcome.entered)
    slot.committed = outcome.committed
    if slot.result is not None:
        if not slot.entered and outcome.status == "returned":
            # A wrap_tool_call answered without entering the tool: that is a rejection (DESIGN 8).
            reason = text_of(slot.result.output)
            slot.decision = ToolDecision(action="reject", reason=reason, by="policy")
    elif isinstance(outcome.error, Suspend):
        slot.wait = outcome.error.wait
        slot.decision = ToolDecision(action="hold", by="policy", reason=str(outcome.error))
        drive.why[slot.call.call_id] = pending_of(slot, "suspended")
    elif _is_unknown(outcome, stopped=stopped) and drive.config.on_unknown == "halt":
        slot.unknown = True
        drive.why[slot.call.call_id] = pending_of(slot, "unknown")
    elif _is_known_unknown(outcome):
        # Nobody knows the outcome, and the model has to be told so (LOG 5.10).
        still = "may still run" if outcome.status == "abandoned" else "may have taken effect"
        slot.result = ToolResult(f"Error: {outcome.error}; it {still}. {CHECK_FIRST}")
        slot.doubted = True
    elif outcome.status == "signalled":
        slot.result = error_result(ToolError(f"the tool ended by {outcome.error!r}"))
    elif not stopped:
        check = f" {CHECK_FIRST}" if outcome.may_have_run else ""
        slot.result = ToolResult(f"Error: the tool ended without a result.{check}")
        slot.doubted = outcome.may_have_run
    else:
        ran = slot.entered or slot.was_dispatched
        drive.why[slot.call.call_id] = pending_of(slot, "aborted" if ran else "undispatched")


def as_known(port: LoopPort, outcome: Outcome) -> Outcome:
    """The outcome of a call, in view of what its tool left running has come to (DESIGN 8)."""
    if port.unknown is None or outcome.status not in ("returned", "failed", "signalled"):
        return outcome
    return dataclasses.replace(
        outcome, status="failed", result=None, error=port.unknown, may_have_run=True
    )


def take_failure(slot: Slot, outcome: Outcome) -> None:
    """Tell what failed from what was made to fail: a saga undoes what a tool gave (LOG 5.9)."""
    if slot.result is None or not slot.entered or slot.committed:
        return
    if slot.error is None and slot.result.is_error:
        slot.error = ToolError(text_of(slot.result.output).removeprefix(ERROR))
    if slot.error is not None and outcome.own is not None and not outcome.own.is_error:
        slot.gave = outcome.own


def _is_known_unknown(outcome: Outcome) -> bool:
    """Whether the tool said, or its time showed, that nobody knows what came of the call."""
    told = isinstance(outcome.error, ToolTimeout | OutcomeUnknown) or outcome.status == "failed"
    return told and outcome.may_have_run


def _is_unknown(outcome: Outcome, *, stopped: bool) -> bool:
    """Whether nobody knows what came of a call. What a stop cut says so of itself, as `aborted`."""
    return _is_known_unknown(outcome) or (outcome.may_have_run and not stopped)


async def judge(drive: Drive, slot: Slot) -> None:
    """Let `after_tool_call` see what a call gave; also a call that an abort cut, with its error."""
    if slot.rejected or slot.held:
        return
    result = slot.result or error_result(slot.error or ToolError("cut"))
    async with drive.deciding:
        override = await drive.hooks.after_tool_call(
            lambda result, error: ToolResultInfo(
                run_id=drive.run_id,
                turn=drive.turn,
                call=slot.call,
                tool=slot.info.tool,
                arguments=slot.arguments,
                result=result,
                error=error,
            ),
            result,
            slot.error,
        )
    if override is not None and slot.result is not None and not slot.committed:
        if slot.error is None and override.error is not None and slot.entered:
            slot.gave = slot.result
        slot.result, slot.error = override.result, override.error
