"""Answers to pending calls: an output that somebody gives, or an approval that runs the call."""

from __future__ import annotations

import msgspec

from perdure.loop.decisions import Decider, Provenance
from perdure.wire import FunctionCallOutput, Part, function_call_output
from perdure.wire.outputs import error_output

CHECK_FIRST = "Check whether it took effect before asking for it again."

OUTCOME_UNKNOWN = f"Error: the outcome of this call is unknown. {CHECK_FIRST}"
"""What the model reads of a call that may have run and is not run again."""

OUTCOME_UNKNOWN_REASON = "not run again: outcome unknown"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What is said about one pending call."""

    call_id: str
    output: FunctionCallOutput | None = None
    """Ends the call without running it. None approves it."""
    arguments: str | None = None
    """For an approval: JSON text in place of the call's arguments."""
    note: str = ""
    """What the user said with it; the model reads it after the outputs."""
    terminate: bool = False
    """End the drive once every answer is in, instead of calling the model."""
    by: Decider | None = None
    """Who answered. There is no default: one that names nobody is recorded as anonymous."""
    reason: str = ""
    """Why, for the record."""
    origin: str = ""
    """Where an output was taken from, if it was produced elsewhere."""
    idempotency_key: str = ""
    """For an approval: the key its tool gets. Another key makes it another operation."""
    run_again: bool = False
    """Run a call that may have run although its effect does not allow it."""
    landed: bool = False
    """Its output is what its tool gave in a drive that was cut; it stands in its place among the
    outputs of the batch."""
    provenance: Provenance | None = None
    """How it came, if it came from outside the drive."""


def approve(
    call_id: str,
    *,
    arguments: str | None = None,
    note: str = "",
    by: Decider | None = None,
    reason: str = "",
    idempotency_key: str = "",
    run_again: bool = False,
) -> Answer:
    """Let a pending call run, with its own arguments or with others.

    A call that may have run runs again only as its effect allows (DESIGN 5), or with `run_again`.
    It never passes an approval gate of several people.
    """
    return Answer(
        call_id=call_id,
        arguments=arguments,
        note=note,
        by=by,
        reason=reason,
        idempotency_key=idempotency_key,
        run_again=run_again,
    )


def answer_with(
    call_id: str,
    value: str | tuple[Part, ...],
    *,
    note: str = "",
    by: Decider | None = None,
    reason: str = "",
    origin: str = "",
) -> Answer:
    """End a pending call with an output, without running it."""
    return Answer(
        call_id=call_id,
        output=function_call_output(call_id, value),
        note=note,
        by=by,
        reason=reason,
        origin=origin,
    )


def refuse(
    call_id: str, why: str = "denied", *, by: Decider | None = None, note: str = ""
) -> Answer:
    """End a pending call with a refusal, and end the drive instead of calling the model."""
    return Answer(
        call_id=call_id,
        output=function_call_output(call_id, error_output(why)),
        note=note,
        by=by,
        reason=why,
        terminate=True,
    )


def deny(call_id: str, why: str = "denied", *, by: Decider | None = None, note: str = "") -> Answer:
    """End a pending call with a refusal that the model reads, and go on."""
    return msgspec.structs.replace(refuse(call_id, why, by=by, note=note), terminate=False)


def outcome_unknown(call_id: str, *, by: Decider | None = None, reason: str = "") -> Answer:
    """End a call that may have run with the error that says so."""
    return answer_with(call_id, OUTCOME_UNKNOWN, by=by, reason=reason or OUTCOME_UNKNOWN_REASON)
