"""What entries say, as the values that events carry."""

from __future__ import annotations

from typing import NamedTuple, cast

import msgspec

from perdure.errors import DecodeError, NotIJson, RecordedFailure
from perdure.log import Settings
from perdure.log.context import item_of
from perdure.log.entries import CustomEntry, DecisionEntry, Json, QueuedEntry, ResponseEntry
from perdure.log.recorded_bodies import HIDDEN_ITEM
from perdure.log.spend import usage_in
from perdure.loop import Answer, ModelRequest, ModelRetry, Provenance, ToolDecision, Trigger
from perdure.loop.decisions import Action, Decider
from perdure.loop.events import QueueMode, Reason, StopCause
from perdure.wire import (
    ABSENT,
    ErrorPayload,
    FunctionCallOutput,
    IncompleteDetails,
    Item,
    Request,
    Response,
    Usage,
)
from perdure.wire.outputs import is_error

_REASONS: dict[str, Reason] = {
    "done": "done",
    "stopped": "stopped",
    "input_required": "input_required",
    "aborted": "aborted",
    "interrupted": "aborted",
}

_CAUSES: dict[str, StopCause] = {
    "max_turns": "max_turns",
    "budget": "budget",
    "length": "length",
    "content_filter": "content_filter",
    "terminate": "terminate",
    "partial_terminate": "partial_terminate",
    "hook": "hook",
    "guard": "guard",
    "refused": "refused",
}

_DECIDERS: dict[str, Decider] = {"human": "human", "policy": "policy", "agent": "agent"}

_ACTIONS: dict[str, Action] = {"proceed": "proceed", "hold": "hold", "reject": "reject"}

_NAMED = ("kind", "ref", "source")
"""The members of a trigger that have a place of their own."""

_RESPONSE_MARKS = (HIDDEN_ITEM, "agentturn:response_id")
"""What marks an item that no model is shown, in perdure's name and in the one it is read from."""

_CUT = "cut"
"""What the record says of a response that broke off: nobody was given it as a response."""


# --- drives ----------------------------------------------------------------------------------


def reason_of(name: str) -> Reason:
    """Why a drive ended; what is no reason of the loop's is a failure."""
    return _REASONS.get(name, "error")


def cause_of_stop(name: str) -> StopCause:
    """What stopped a drive; a foreign record that does not say so leaves the host's own will."""
    return _CAUSES.get(name, "hook")


def trigger_of(members: Json | None) -> Trigger | None:
    """A trigger, as the entry of a drive or of an item holds it."""
    if not members:
        return None
    kind, ref, source = (str(members.get(name) or "") for name in _NAMED)
    extra = {name: value for name, value in members.items() if name not in _NAMED}
    return Trigger(kind=kind, ref=ref, source=source, extra=extra)


def queue_mode(entry: QueuedEntry) -> QueueMode:
    """How an item was queued, as far as the format says."""
    return "follow_up" if entry.mode == "followup" else "steer"


def data_of(entry: CustomEntry) -> Json:
    """What a program kept, as members; none if it is no object."""
    found: object = msgspec.json.decode(entry.data)
    return cast("Json", found) if isinstance(found, dict) else {}


class HiddenItem(NamedTuple):
    """An item that no model is shown."""

    item: Item
    response: str
    """The response that it belongs to; empty if no model made it."""


def hidden_in(entry: CustomEntry) -> HiddenItem | None:
    """The item that a custom entry holds, if it holds one."""
    for mark in _RESPONSE_MARKS:
        if mark.encode() in entry.line and mark in entry.members:
            response = entry.members.get(mark)
            return HiddenItem(item_of(entry.data), str(response or ""))
    return None


# --- model calls -----------------------------------------------------------------------------


def settings_of(settings: Settings) -> Request:
    """Recorded settings as a request; what the wire has no place for is left out."""
    try:
        return settings.request()
    except (DecodeError, NotIJson):
        return Request(model=settings.model or ABSENT, instructions=settings.instructions or ABSENT)


def usage_of(entry: ResponseEntry) -> Usage | None:
    """The tokens of a response, if it says them as the wire does."""
    return usage_in(entry.usage) if entry.usage else None


def error_of(entry: ResponseEntry) -> ErrorPayload | None:
    """What a response failed with."""
    if not entry.error:
        return None
    try:
        return msgspec.convert(entry.error, ErrorPayload)
    except msgspec.ValidationError:
        return ErrorPayload(message=message_of(entry.error))


def message_of(error: object) -> str:
    """The words of a recorded error."""
    if isinstance(error, dict):
        return str(cast("Json", error).get("message", ""))
    return str(error)


def cut_reason(entry: ResponseEntry) -> str:
    """Why a response is incomplete; empty if it is not."""
    incomplete = entry.incomplete
    if isinstance(incomplete, dict):
        return str(cast("Json", incomplete).get("reason", "")) or "unknown"
    return "unknown" if incomplete else ""


def broke_off(entry: ResponseEntry) -> bool:
    """Whether the model call ended without a response: by a crash, an abort, or an error.

    A response that its server failed names more of the error than its words.
    """
    if entry.error:
        error: object = entry.error
        return not isinstance(error, dict) or set(cast("Json", error)) <= {"message"}
    return cut_reason(entry) == _CUT


def was_blocked(entry: ResponseEntry) -> bool:
    """Whether a hook refused the request, so that no model was asked."""
    return bool(entry.error) and not (entry.model or entry.response_id or entry.request_hash)


def response_of(entry: ResponseEntry, output: tuple[Item, ...]) -> Response:
    """A response, as far as the record has it."""
    reason = cut_reason(entry)
    return Response(
        id=entry.response_id,
        object="response",
        status=entry.status or ABSENT,
        model=entry.model or ABSENT,
        output=output,
        usage=usage_of(entry),
        error=error_of(entry),
        incomplete_details=IncompleteDetails(reason=reason) if reason else None,
    )


def retry_of(data: Json, request: ModelRequest, *, run_id: str, turn: int) -> ModelRetry:
    """An attempt that failed, and was made again with `request`."""
    number, delay = data.get("attempt"), data.get("delay_ms")
    return ModelRetry(
        run_id=run_id,
        turn=turn,
        attempt=number if isinstance(number, int) else 1,
        error=RecordedFailure(str(data.get("error", "")), again=True),
        delay=delay / 1000 if isinstance(delay, int | float) else 0.0,
        request=request,
        replayed=True,
    )


# --- calls -----------------------------------------------------------------------------------


def _provenance_of(entry: DecisionEntry) -> Provenance | None:
    evidence = bytes(entry.evidence).decode()
    if not (entry.message or entry.who or evidence or entry.tally):
        return None
    return Provenance(message=entry.message, who=entry.who, evidence=evidence, tally=entry.tally)


def decision_of(entry: DecisionEntry) -> ToolDecision:
    """A decision as the loop has it; an answer lets nothing run, so it is a rejection."""
    arguments = entry.arguments or bytes(entry.args).decode()
    return ToolDecision(
        action=_ACTIONS.get(entry.verdict, "reject"),
        reason=entry.reason,
        arguments=arguments or None,
        by=_DECIDERS.get(entry.by),
        run_again=entry.run_again,
        provenance=_provenance_of(entry),
        gate=entry.gate,
    )


def is_failure(entry: DecisionEntry) -> bool:
    """Whether a rejection says only that a call could not run: no such tool, or no fit arguments.

    Its reason is then the output, which begins as that of every failure does.
    """
    by_nobody = entry.verdict == "reject" and entry.by == "policy"
    return by_nobody and is_error(entry.reason)


def answer_of(entry: DecisionEntry, output: FunctionCallOutput) -> Answer:
    """The answer that ended a pending call."""
    return Answer(
        call_id=output.call_id,
        output=output,
        by=_DECIDERS.get(entry.by),
        reason=entry.reason,
        provenance=_provenance_of(entry),
    )
