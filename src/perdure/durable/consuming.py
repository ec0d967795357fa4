"""What becomes of the messages of an inbox, from the record alone (LOG 3).

A message was checked when it was put, as advice; here it is checked with authority, by the driver
that holds the lease. Each becomes exactly one entry: what it says, or `perdure:refused`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw

from perdure.durable.messages import (
    Approve,
    Cancel,
    Deny,
    Late,
    NotStarted,
    Reply,
    Resolve,
    Retry,
    Sent,
    Settle,
    Signal,
    Told,
    Vote,
    decode_told,
)
from perdure.durable.replies import fault_in
from perdure.durable.voting import take_vote
from perdure.log import Call, Draft, Message, View
from perdure.log.context import item_of
from perdure.log.entries import MESSAGE, ItemEntry, Json
from perdure.log.programs import OWN, program_work
from perdure.log.sagas import Done
from perdure.log.timestamps import wall_of
from perdure.log.work import CallWork
from perdure.loop import Answer, Provenance, answer_with, approve, deny
from perdure.tools import arguments_digest
from perdure.wire import FunctionCallOutput

LIMITS = frozenset({"max_turns", "length", "content_filter", "budget"})
"""What stops a run without ending it (LOG 4.2)."""

OVER = "the run is over"
RESOLVED = "resolved by hand"
NEVER_RAN = "it never ran"
CAME_LATE = "its result came late"


@dataclasses.dataclass(slots=True, kw_only=True)
class Taken:
    """What a driver does with the messages it found."""

    answers: dict[str, Answer] = dataclasses.field(default_factory=dict[str, Answer])
    """By call; the entries that they become name their messages."""
    drafts: list[Draft] = dataclasses.field(default_factory=list[Draft])
    """What is written outside a drive."""
    cancel: tuple[Message, Cancel] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """What a driver knows when it judges messages."""

    view: View
    now: int
    """Nanoseconds since the Unix epoch."""
    rolls_back: bool = False
    """The saga is being rolled back, so that what may have run is to be known."""


def consume(authority: Authority, messages: Sequence[Message]) -> Taken:
    """Judge messages in the order of their numbers."""
    taken = Taken()
    for message in messages:
        told = decode_told(message)
        why = OVER if authority.view.closed is not None else _take(authority, message, told, taken)
        if why:
            refused = {"reason": why, MESSAGE: message.id}
            taken.drafts.append(Draft("perdure:refused", refused))
    return taken


def _take(authority: Authority, message: Message, told: Told | None, taken: Taken) -> str:
    """Take a message, or say why not."""
    match told:
        case None:
            return "nobody knows what it says"
        case Cancel():
            if taken.cancel is not None:
                return "the run is being cancelled already"
            taken.cancel = (message, told)
            return ""
        case Retry():
            return _retry(authority.view, message, told, taken)
        case Signal():
            return _signal(authority.view, message, told, taken)
        case Sent():
            return _sent(authority.view, message, told, taken)
        case Reply():
            return _reply(authority.view, message, told, taken)
        case Resolve() if told.step:
            return _resolved_step(authority, message, told, taken)
        case Vote():
            return _vote(authority, message, told, taken)
        case NotStarted():
            return _not_started(authority.view, message, told, taken)
        case Settle():
            return settle(authority.view, message, told, taken)
        case Late() if told.failure:
            return _failed(authority, message, told, told.failure, taken)
        case Resolve() if told.failed and authority.view.is_saga:
            return _failed(authority, message, told, told.failed, taken)
        case _:
            answer = answer_of(authority, told, message.id)
            if isinstance(answer, str):
                return answer
            if answer.call_id in taken.answers:
                return "somebody said otherwise before"
            taken.answers[answer.call_id] = answer
            return ""


# --- what answers a call -----------------------------------------------------------------------


def answer_of(
    authority: Authority, told: Approve | Deny | Resolve | Late, message: str = ""
) -> Answer | str:
    """The answer that a message gives a call, or why it gives none."""
    call = authority.view.calls.open.get(told.call_id)
    if call is None:
        known = authority.view.calls.named(told.call_id) is not None
        return f"call {told.call_id!r} {'has its output' if known else 'does not exist'}"
    match told:
        case Approve() | Deny():
            return _decided(authority, call, told, message)
        case Resolve():
            return _resolved(authority, call, told, message)
        case Late():
            return _late(call, told, message)


def _decided(authority: Authority, call: Call, told: Approve | Deny, message: str) -> Answer | str:
    said = Provenance(message=message, who=told.who)
    last = call.decisions[-1] if call.decisions else None
    if last is None or last.id != told.hold:
        again = _cut_denial(call, told, said)
        return again or f"call {call.call_id!r} does not wait for this decision any more"
    if call.suspended:
        return f"call {call.call_id!r} waits for what its tool waits for, not for a decision"
    if why := _at_a_gate(authority.view, call, told):
        return f"call {call.call_id!r} {why}"
    if arguments_digest(call.arguments) != told.digest:
        return f"call {call.call_id!r} has other arguments than those decided on"
    if isinstance(told, Deny):
        answer = deny(call.call_id, told.reason or "denied", by="human", note=told.note)
    else:
        answer = approve(
            call.call_id,
            arguments=told.arguments,
            note=told.note,
            by="human",
            reason=told.reason,
            idempotency_key=call.key,
        )
    return msgspec.structs.replace(answer, provenance=said)


def _at_a_gate(view: View, call: Call, told: Approve | Deny) -> str:
    """Why a word does not decide about a call that waits for votes; empty if it does."""
    gate = view.approvals.waiting(call)
    if gate is None:
        return ""
    if gate.tally is not None:
        return f"was decided: {gate.outcome}"
    if isinstance(told, Approve):
        return f"waits for the approval of {gate.gate.asks}"
    ours = not gate.gate.of or told.who in gate.gate.of
    return "is denied by an approver only with a vote" if ours else ""


def _cut_denial(call: Call, told: Approve | Deny, said: Provenance) -> Answer | None:
    """The output that a denial owes whose first entry a crash left alone (LOG 1.4)."""
    if not isinstance(told, Deny) or call.state != "rejected" or len(call.decisions) < 2:
        return None
    if call.decisions[-2].id != told.hold:
        return None
    answer = deny(call.call_id, told.reason or "denied", by="human", note=told.note)
    return msgspec.structs.replace(answer, provenance=said)


def _resolved(authority: Authority, call: Call, told: Resolve, message: str) -> Answer | str:
    reason = told.reason or (RESOLVED if told.output is not None else NEVER_RAN)
    owed = told.output is not None and _was_answered(call, reason)
    why = "" if owed else not_halted(call, rolls_back=authority.rolls_back)
    if not why and dispatch_of(call) != told.dispatch:
        why = "it was dispatched again since"
    if why:
        return f"call {call.call_id!r} is not halted: {why}"
    said = Provenance(message=message, who=told.who, evidence=told.evidence)
    if told.output is not None:
        answer = answer_with(call.call_id, told.output, by="human", reason=reason)
        return msgspec.structs.replace(answer, provenance=said)
    young = too_young(authority, call, told.min_age)
    if young is not None:
        return f"call {call.call_id!r} may still be running: it is {young[0]:.3f} s old"
    answer = approve(
        call.call_id,
        by="human",
        arguments=call.dispatched_arguments,
        reason=reason,
        idempotency_key=call.key,
        run_again=True,
    )
    return msgspec.structs.replace(answer, provenance=said)


def not_halted(call: Call, *, rolls_back: bool = False) -> str:
    """Why nobody has to say what came of a call; empty if somebody has to.

    Args:
        call: The call.
        rolls_back: The saga is being rolled back: then one that may have run, and waits to be let
            in again, halts it.
    """
    if call.state in ("in_flight", "unknown"):
        return ""
    if rolls_back and call.waits and call.dispatched and not call.suspended:
        return ""
    return "it never started" if call.state == "never_started" else f"it is {call.state}"


def too_young(authority: Authority, call: Call, min_age: float) -> tuple[float, float] | None:
    """The age and the least age, in seconds, of a call that may still be running (LOG 5.2)."""
    last = call.last_dispatch
    if last is None:
        return None
    least = max(min_age, last.lasts or 0.0)
    age = (authority.now - wall_of(last.ts)) / 1e9
    return (age, least) if age < least or age < 0 else None


def dispatch_of(call: Call) -> str:
    """The entry that a resolution of a call names: its last dispatch, or its item."""
    last = call.last_dispatch
    return last.id if last is not None else call.entry


def _late(call: Call, told: Late, message: str) -> Answer | str:
    last = call.dispatches[-1] if call.dispatches else None
    if last is None or last.id != told.dispatch or last.id in call.voided:
        return f"call {call.call_id!r} went on without it"
    if call.state != "in_flight" and not _was_answered(call, CAME_LATE):
        return f"call {call.call_id!r} is {call.state}"
    output = item_of(told.item)
    if not isinstance(output, FunctionCallOutput) or output.call_id != call.call_id:
        return f"it is no output of call {call.call_id!r}"
    return Answer(
        call_id=call.call_id,
        output=output,
        by="policy",
        reason=CAME_LATE,
        provenance=Provenance(message=message),
    )


def _failed(
    authority: Authority, message: Message, told: Late | Resolve, why: str, taken: Taken
) -> str:
    """A call of a saga failed, as its driver or somebody else says: the saga is tripped."""
    view = authority.view
    answer = answer_of(authority, told, message.id)
    call = view.calls.open.get(told.call_id)
    if isinstance(answer, str) or call is None:
        return str(answer)
    said = answer.provenance
    evidence = said.evidence if said is not None else ""
    body: Json = {
        "phase": "tripped" if view.saga.tripped is None else "failed",
        "call_id": call.call_id,
        "target": call.entry,
        "cause": why if isinstance(told, Late) else f"{call.call.name} failed: {why}",
        "perdure:who": told.who,
        "perdure:evidence": Raw(evidence.encode()) if evidence else "",
    }
    taken.drafts.append(Draft("perdure:saga", _named(message, body)))
    return ""


def settle(view: View, message: Message, told: Settle, taken: Taken) -> str:
    """Take what somebody says of an effect at which a rollback stops, or say why not."""
    undoing = view.saga.of(Done(told.session, told.target, told.step))
    if view.saga.tripped is None or undoing.is_over:
        return f"no rollback stops at call {told.call_id!r}"
    body: Json = {
        "phase": "settled",
        "call_id": told.call_id,
        "target": told.target,
        "session": told.session,
        "step": told.step,
        "tool": told.tool,
        "verdict": told.verdict,
        "reason": told.reason,
        "perdure:who": told.who,
        "perdure:evidence": Raw(told.evidence.encode()) if told.evidence else "",
    }
    taken.drafts.append(Draft("perdure:compensation", _named(message, body)))
    return ""


def _was_answered(call: Call, reason: str) -> bool:
    """Whether a crash left an answer without the output that follows it (LOG 1.4)."""
    return call.state == "answered" and call.reason == reason


# --- steps and waits -----------------------------------------------------------------------------


class Working(NamedTuple):
    """What has steps and waits: a call, or a program."""

    call_id: str
    """Empty for a program."""
    target: str
    work: CallWork


def working(view: View, call_id: str) -> Working | None:
    """The steps and waits of a call that is open, or, for an empty id, of the program."""
    if not call_id and view.is_program:
        return Working("", OWN, program_work(view.work))
    call = view.calls.open.get(call_id)
    return Working(call.call_id, call.entry, view.work.of(call.entry)) if call is not None else None


def _signal(view: View, message: Message, told: Signal, taken: Taken) -> str:
    if told.name in view.work.signals:
        return f"the signal {told.name!r} came before"
    body: Json = {"name": told.name, "value": told.value, "perdure:who": told.who}
    taken.drafts.append(Draft("perdure:signal", _named(message, body)))
    return ""


def _sent(view: View, message: Message, told: Sent, taken: Taken) -> str:
    if told.key in view.work.channels.get(told.channel, {}):
        return f"channel {told.channel!r} had the message {told.key!r} before"
    body: Json = {
        "channel": told.channel,
        "key": told.key,
        "value": told.value,
        "perdure:who": told.who,
    }
    taken.drafts.append(Draft("perdure:channel", _named(message, body)))
    return ""


def _reply(view: View, message: Message, told: Reply, taken: Taken) -> str:
    found = working(view, told.call_id)
    waits = found.work.open_waits if found is not None else []
    begin = next((one.begin for one in waits if one.begin.id == told.begin), None)
    if found is None or begin is None:
        return f"call {told.call_id!r} does not wait for this answer any more"
    if fault := fault_in(begin, bytes(told.value).decode()):
        return fault
    body: Json = {
        "call_id": found.call_id,
        "target": found.target,
        "phase": "end",
        "kind": begin.kind,
        "name": begin.name,
        "outcome": "answer",
        "value": told.value,
        "perdure:who": told.who,
    }
    taken.drafts.append(Draft("perdure:wait", _named(message, body)))
    return ""


def _resolved_step(authority: Authority, message: Message, told: Resolve, taken: Taken) -> str:
    view = authority.view
    found = working(view, told.call_id)
    step = found.work.steps.get(told.step) if found is not None else None
    if found is None or step is None or not step.is_open or step.start is None:
        return f"step {told.step!r} of call {told.call_id!r} is not halted"
    if step.start.id != told.dispatch:
        return f"step {told.step!r} of call {told.call_id!r} was taken again since"
    body: Json = {
        "call_id": found.call_id,
        "target": found.target,
        "phase": "end" if told.output is not None else "void",
        "name": told.step,
        "effect": step.start.effect,
        "result": Raw(told.output.encode()) if told.output is not None else "",
        "perdure:who": told.who,
        "perdure:evidence": Raw(told.evidence.encode()) if told.evidence else "",
    }
    taken.drafts.append(Draft("perdure:step", _named(message, body)))
    return ""


def _named(message: Message, body: Json) -> Json:
    """A body with the message that it came of, without what is empty."""
    return {**{name: value for name, value in body.items() if value != ""}, MESSAGE: message.id}


def _vote(authority: Authority, message: Message, told: Vote, taken: Taken) -> str:
    draft = take_vote(authority.view, message, told, authority.now)
    if isinstance(draft, str):
        return draft
    taken.drafts.append(draft)
    return ""


# --- what is written outside a drive -------------------------------------------------------------


def _not_started(view: View, message: Message, told: NotStarted, taken: Taken) -> str:
    call = view.calls.open.get(told.call_id)
    last = call.dispatches[-1] if call is not None and call.dispatches else None
    if call is None or last is None or last.id != told.dispatch or call.state != "in_flight":
        return f"call {told.call_id!r} went on without it"
    body = {
        "call_id": told.call_id,
        "target": told.dispatch,
        "fence": told.fence,
        MESSAGE: message.id,
    }
    taken.drafts.append(Draft("perdure:not_started", body))
    return ""


def _retry(view: View, message: Message, told: Retry, taken: Taken) -> str:
    why = no_retry(view)
    last = view.drives.last
    if not why and (last is None or last.end is None or last.end.id != told.end):
        why = "the run went on since"
    if why:
        return why
    members = {"who": told.who, "reason": told.reason, MESSAGE: message.id}
    taken.drafts.append(Draft("perdure:retry", {n: v for n, v in members.items() if v}))
    cut = cut_answer(view)
    if cut:
        taken.drafts.append(Draft("config", {"omit": {"items": cut}}))
    return ""


def no_retry(view: View) -> str:
    """Why a run has nothing to be asked to do again; empty if it has."""
    if view.tries.are_used_up and view.drives.open is None:
        return ""
    last = view.drives.last
    told = last.told if last is not None and view.drives.open is None else None
    if told is None or told.reason != "stopped" or told.cause not in LIMITS:
        return "no limit stopped the run"
    return ""


def cut_answer(view: View) -> list[str]:
    """The items at the tail of an answer that was cut and made no calls."""
    last = view.drives.response
    if last is None or not (last.incomplete or last.error) or view.drives.response_calls:
        return []
    found: list[str] = []
    for entry in reversed(view.path):
        if isinstance(entry, ItemEntry):
            if not entry.response or entry.response != last.response_id:
                break
            found.append(entry.id)
    return found
