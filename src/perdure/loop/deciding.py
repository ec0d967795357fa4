"""Deciding about one call: hooks, gates and its arguments, before it may run."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

from perdure.errors import InvalidArguments, ToolError
from perdure.loop.decisions import ToolDecision
from perdure.loop.events import ToolStart
from perdure.loop.gates import Asked, gated
from perdure.loop.slots import (
    Slot,
    is_guess,
    knows_nothing,
    not_known,
    tell_doubt,
    tell_end,
)
from perdure.loop.state import Drive
from perdure.tools import approval_of, check_arguments, effect_of, error_result, parse_arguments

CALL_REJECTED = "call rejected"
"""What the model reads of a rejected call, if nobody said why."""

OnHold = Callable[[Slot, ToolDecision], Awaitable[ToolDecision]]
"""What becomes of a decision to hold, where nobody can answer later."""


async def decide(
    drive: Drive,
    slot: Slot,
    *,
    given: ToolDecision | None = None,
    on_hold: OnHold | None = None,
) -> None:
    """Decide about a call, tell it, and settle it at once if it does not run."""
    refusal = _malformed(slot)
    if refusal is not None and knows_nothing(drive, slot):
        raise not_known(slot, refusal)
    if refusal is None and given is None:
        async with drive.deciding:
            given = await drive.hooks.before_tool_call(
                lambda arguments: dataclasses.replace(slot.info, arguments=arguments),
                slot.arguments,
            )
    slot.decide(given)
    if refusal is None and not slot.held and not slot.rejected:
        refusal = _unfit(slot)
    if refusal is not None and knows_nothing(drive, slot):
        raise not_known(slot, refusal)
    if refusal is None:
        _gate(drive, slot)
    if slot.held and on_hold is not None:
        refusal = await _decide_now(slot, on_hold)
    if slot.rejected:
        refusal = ToolError((slot.decision.reason if slot.decision else "") or CALL_REJECTED)
    if refusal is not None:
        slot.result, slot.error = error_result(refusal), refusal
        if is_guess(drive, slot):
            tell_doubt(slot)
    slot.started = True
    await drive.delivery.deliver(
        ToolStart(
            run_id=drive.run_id,
            turn=drive.turn,
            call_id=slot.call.call_id,
            name=slot.call.name,
            arguments=slot.arguments,
            decision=slot.decision,
            parent=slot.info.parent,
        )
    )
    if refusal is not None or slot.held:
        await tell_end(drive, slot)


def _malformed(slot: Slot) -> ToolError | None:
    """Why a call cannot be put to anybody: its arguments are no JSON object."""
    try:
        parse_arguments(slot.arguments, required=False)
    except InvalidArguments as error:
        return error
    return None


async def _decide_now(slot: Slot, on_hold: OnHold) -> ToolError | None:
    """Put a held call to somebody who answers at once; why it cannot run then, if it cannot."""
    slot.decide(await on_hold(slot, slot.decision or ToolDecision(action="hold")))
    return None if slot.held or slot.rejected else _unfit(slot)


def _gate(drive: Drive, slot: Slot) -> None:
    """Hold a call whose tool needs an approval, unless the record says that it has it.

    A call whose tool waits is inside it: it enters again without a new approval (LOG 5.4).
    """
    tool = slot.info.tool
    approval = approval_of(tool) if tool is not None else None
    inside = slot.before is not None and slot.before.reason == "suspended"
    if approval is None or slot.rejected or inside:
        return
    asked = Asked(slot.call.call_id, slot.arguments, drive.config.clock.wall())
    gates = drive.config.gates if not slot.info.parent else None
    slot.decide(gated(asked, approval, gates, slot.decision))


def _unfit(slot: Slot) -> ToolError | None:
    """Why a call that may run cannot: no tool has its name, or its arguments do not fit it."""
    tool = slot.info.tool
    if tool is None:
        return ToolError(f'unknown tool "{slot.call.name}"')
    try:
        check_arguments(tool, slot.arguments)
    except InvalidArguments as error:
        return error
    slot.effect = effect_of(tool, slot.arguments)
    if slot.effect == "transactional" and slot.info.parent:
        return ToolError(f"tool {slot.call.name!r} is transactional: no tool can call it")
    return None
