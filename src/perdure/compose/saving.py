"""The state of a run at one moment, as it is saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure.compose.logged import Facts, status_of_pending
from perdure.compose.state import (
    ConversationState,
    PartialResponse,
    PendingToolCall,
    PendingWhy,
    Status,
    answered,
    update_state,
)
from perdure.compose.turns import tool_call_of
from perdure.loop import PendingCall
from perdure.wire import FunctionCall

if TYPE_CHECKING:
    from perdure.compose.run import Run


def snapshot(
    run: Run,
    state: ConversationState,
    status: Status,
    pending: Sequence[PendingToolCall] | None = None,
) -> ConversationState:
    """The state as it is to be saved now: what is committed, and no more.

    Args:
        run: The run.
        state: The state before.
        status: How the conversation stands.
        pending: The calls that wait; those of the state before unless given.
    """
    ledger = run.ledger
    messages = tuple(run.transcript.snapshot()[: ledger.committed])
    done = answered(messages)
    waiting = state.pending_tool_calls if pending is None else pending
    response = ledger.response
    return update_state(
        state,
        clock=run.spec.clock,
        status=status,
        messages=messages,
        pending_tool_calls=tuple(one for one in waiting if one.id not in done),
        unsent_tool_results=tuple(
            one for one in state.unsent_tool_results if one.call_id not in done
        ),
        previous_response_id=response.id if response else state.previous_response_id,
        partial_response=_partial(run),
        interrupted_by=run.interrupted_by,
        running_call_ids=tuple(sorted(ledger.running)),
        consumed_tool_choice=run.layers.consumed,
        tasks=run.tasks.remembered(),
    )


def pending_of_run(run: Run, calls: Sequence[PendingCall]) -> tuple[PendingToolCall, ...]:
    """The calls that a drive left without an output, with whom each waits for."""
    return tuple(
        PendingToolCall(
            id=one.call.call_id,
            name=one.call.name,
            arguments=tool_call_of(one.call, arguments=one.arguments).arguments,
            why=_why(run, one),
        )
        for one in calls
    )


def _why(run: Run, call: PendingCall) -> PendingWhy:
    if call.reason == "suspended":
        return "hitl"
    name = call.call.call_id
    # Held by somebody else's gate, it waits for whoever approves.
    return run.whys.get(name) or run.undecided.get(name) or "approval"


def status_of_run(run: Run, pending: Sequence[PendingToolCall]) -> Status:
    """How the conversation stands at the end of a run that did not fail."""
    if pending:
        return status_of_pending(pending)
    if run.tasks.waits:
        return "awaiting_async_tools"
    return "interrupted" if run.interrupted_by else "complete"


def facts_of_run(run: Run) -> Facts:
    """What a log's own entries do not say of a run."""
    return Facts(
        consumed_tool_choice=run.layers.consumed,
        interrupted_by=run.interrupted_by,
        partial_response=_partial(run),
        tasks=run.tasks.remembered(),
    )


def _partial(run: Run) -> PartialResponse | None:
    response = run.ledger.response
    if not run.interrupted_by or response is None:
        return None
    calls = tuple(
        PendingToolCall(id=item.call_id, name=item.name, arguments=tool_call_of(item).arguments)
        for item in response.output
        if isinstance(item, FunctionCall)
    )
    return PartialResponse(text=response.output_text, tool_calls=calls)
