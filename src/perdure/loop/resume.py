"""Answers to pending calls: whether they may stand, and what they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.errors import (
    AmbiguousCall,
    CallAnswered,
    ConfigError,
    InvalidArguments,
    NeedsApproval,
    NotPending,
)
from perdure.loop.answers import Answer
from perdure.loop.batch import Approved, run_approved
from perdure.loop.decisions import ToolDecision
from perdure.loop.pending import PendingCall, unanswered
from perdure.loop.request import resolve_tools
from perdure.loop.state import Drive, Outcome, add
from perdure.loop.turn import add_batch, paused_by
from perdure.tools import Effect, Tool, ToolSet, arguments_digest, effect_of, parse_arguments
from perdure.wire import user

RUN_AGAIN = "run again: accepted by the caller"
RUN_AGAIN_SAFE = "run again: safe"
RUN_AGAIN_KEYED = "run again: keyed"

_STRICTNESS: Mapping[Effect, int] = {
    "none": 0,
    "idempotent": 1,
    "transactional": 2,
    "keyed": 3,
    "once": 4,
}


def check_answers(
    pending: Sequence[PendingCall],
    answers: Sequence[Answer],
    tools: ToolSet,
) -> tuple[Answer, ...]:
    """Whether answers may stand, all of them or none.

    Args:
        pending: The calls that wait.
        answers: What is said of them.
        tools: The tools of today.

    Returns:
        The answers in the order of the calls, each approval with the reason that lets it run.

    Raises:
        NotPending: Not every pending call has exactly one answer, or an answer names another call.
        CallAnswered: A call that a record answered or refused was approved.
        NeedsApproval: A call was approved whose gate only the votes of others open.
        AmbiguousCall: A call that may have run was approved, and its effect forbids it.
        ConfigError: An answer is an output of another call, or its arguments are no JSON object.
    """
    given: dict[str, Answer] = {}
    for answer in answers:
        if answer.call_id in given:
            raise NotPending(f"two answers name the call {answer.call_id!r}")
        given[answer.call_id] = answer
    waiting = {one.call.call_id: one for one in pending}
    if not waiting:
        raise NotPending("no call waits for an answer")
    strange = [call_id for call_id in given if call_id not in waiting]
    if strange:
        raise NotPending(f"call {strange[0]!r} is not pending; these are: {', '.join(waiting)}")
    missing = [call_id for call_id in waiting if call_id not in given]
    if missing:
        raise NotPending(f"call {missing[0]!r} is pending and has no answer")
    return tuple(_checked(one, given[call_id], tools) for call_id, one in waiting.items())


def _checked(call: PendingCall, answer: Answer, tools: ToolSet) -> Answer:
    if answer.output is not None:
        if answer.output.call_id != answer.call_id:
            raise ConfigError(
                f"the output names the call {answer.output.call_id!r}, the answer "
                f"{answer.call_id!r}"
            )
        return answer
    if answer.arguments is not None:
        _check_object(answer.call_id, answer.arguments)
    if call.gate is not None:
        raise NeedsApproval(answer.call_id, call.gate.asks)
    if call.reason in ("answered", "rejected"):
        raise CallAnswered(answer.call_id)
    if not call.may_have_run:
        return answer
    reason = rerun_reason(call, answer, tools.get(call.call.name))
    return answer if answer.reason else _with_reason(answer, reason)


def _check_object(call_id: str, arguments: str) -> None:
    try:
        parse_arguments(arguments, required=False)
    except InvalidArguments as error:
        raise ConfigError(f"the approval of call {call_id!r} has {error}") from None


def rerun_reason(call: PendingCall, answer: Answer, tool: Tool | None) -> str:
    """Why a call that may have run may run again (DESIGN 5).

    `none` and `idempotent` run again, and so does `transactional`, which without an output did not
    commit; `keyed` runs again with the arguments of its last dispatch under that dispatch's key, or
    with other arguments under a key of its own; `once` never does, unless the answer accepts the
    risk. The effect at its last dispatch and today's must both allow it.

    Raises:
        AmbiguousCall: It may not.
    """
    if answer.run_again:
        return RUN_AGAIN
    if tool is None:
        raise AmbiguousCall(answer.call_id, f"its tool {call.call.name!r} is gone")
    dispatched = call.arguments if call.arguments is not None else call.call.arguments
    arguments = answer.arguments if answer.arguments is not None else dispatched
    effect = max(effect_of(tool, arguments), call.effect or "none", key=_STRICTNESS.__getitem__)
    if effect == "transactional" and call.ran is not None:
        raise AmbiguousCall(answer.call_id, "it committed on another branch")
    if effect in ("none", "idempotent", "transactional"):
        return RUN_AGAIN_SAFE
    if effect != "keyed":
        raise AmbiguousCall(answer.call_id, f"its effect is {effect!r}")
    same = arguments_digest(arguments) == arguments_digest(dispatched)
    key = answer.idempotency_key or call.idempotency_key
    if same and not call.idempotency_key:
        raise AmbiguousCall(answer.call_id, "the key of its last dispatch is not known")
    if same and key != call.idempotency_key:
        raise AmbiguousCall(answer.call_id, "the same arguments need the key they had")
    if not same and (not answer.idempotency_key or key == call.idempotency_key):
        raise AmbiguousCall(answer.call_id, "other arguments need a key of their own")
    return RUN_AGAIN_KEYED


def _with_reason(answer: Answer, reason: str) -> Answer:
    import msgspec

    return msgspec.structs.replace(answer, reason=reason)


async def take_answers(drive: Drive, answers: Sequence[Answer]) -> Outcome | None:
    """Turn 0: append the outputs and their notes, then run what was approved, as one batch.

    Outputs come first, in the order of the calls. The batch runs in transcript order (DESIGN 5); a
    call that nothing had decided is put to `before_tool_call`.

    Returns:
        An outcome if the model is not to be called.
    """
    waiting = dict(drive.why)
    drive.tools = await resolve_tools(drive.config)
    approvals = [answer for answer in answers if answer.output is None]
    batch = _with_landed(answers) if approvals else []
    outputs = [one for one in answers if one.output is not None and one not in batch]
    for answer in outputs:
        if answer.output is not None:
            await add(drive, answer.output, "resume", answer=answer)
    for answer in outputs:
        if answer.note:
            await add(drive, user(answer.note), "resume")
    outcome = await _run_approvals(drive, batch, waiting) if batch else None
    if outcome is None and any(answer.terminate for answer in answers):
        outcome = Outcome("stopped", "refused")
    if outcome is None and len(answers) < len(waiting):
        return _still_waiting(drive)
    return outcome


def _with_landed(answers: Sequence[Answer]) -> list[Answer]:
    """The approvals, and what landed behind the first of them: one batch, in the order of calls."""
    first = next(place for place, answer in enumerate(answers) if answer.output is None)
    return [one for one in answers[first:] if one.output is None or one.landed]


def _still_waiting(drive: Drive) -> Outcome | None:
    """No model call while a call has no output (DESIGN 6.1)."""
    open_calls = unanswered(drive.transcript.snapshot())
    return Outcome("input_required") if open_calls else None


async def _run_approvals(
    drive: Drive, approvals: Sequence[Answer], waiting: Mapping[str, PendingCall]
) -> Outcome | None:
    for answer in approvals:
        drive.why.pop(answer.call_id, None)
    batch = await run_approved(drive, [_approved(one, waiting[one.call_id]) for one in approvals])
    await add_batch(drive, batch)
    drive.signal.check()
    for answer in approvals:
        if answer.note:
            await add(drive, user(answer.note), "resume")
    paused = paused_by(drive, batch)
    if paused is not None:
        return paused
    if batch.terminates == "all":
        return Outcome("stopped", "terminate")
    if batch.terminates == "some":
        return Outcome("stopped", "partial_terminate")
    return None


def _approved(answer: Answer, pending: PendingCall) -> Approved:
    arguments = answer.arguments
    if arguments is None:
        arguments = pending.arguments
    if arguments is None:
        arguments = pending.call.arguments or "{}"
    decision: ToolDecision | None = None
    if pending.reason != "undispatched" or pending.decided:
        decision = ToolDecision(
            action="proceed",
            reason=answer.reason,
            arguments=arguments,
            by=answer.by,
            run_again=answer.run_again and answer.by != "policy",
            provenance=answer.provenance,
        )
    return Approved(
        pending.call,
        arguments,
        answer.idempotency_key or pending.idempotency_key,
        decision if answer.output is None else None,
        pending,
        answer.output,
    )
