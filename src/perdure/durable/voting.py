"""Votes about held calls: which are taken, what they come to, and what follows from that.

A vote that is about nothing is refused on record: another call, other arguments, a hold that is
over, somebody who has no say, a signature that is none. What is left is recorded, and the tally
says of each vote whether it counts; that depends on keys, which change (LOG 5.7, 9). A tally stands
on the record before anything follows from it, and is never counted again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import msgspec

from perdure.ballots import Tally, Verifier, count, signature_fault
from perdure.durable.messages import Vote
from perdure.errors import ConfigError
from perdure.log import Call, Draft, Message, View
from perdure.log.approvals import HeldGate, subject_of, votes_of
from perdure.log.entries import MESSAGE, Json
from perdure.loop import Answer, Provenance, approve, deny
from perdure.tools import Gate, KeySource, ToolSet, approval_of
from perdure.tools.approval import coarse, keys_for

EXPIRED = "the approval expired"
ESCALATED = "the approval expired, and others are asked"

NO_LONGER = "it does not wait for this vote any more"
DECIDED = "it was decided"


# --- taking a vote -------------------------------------------------------------------------------


def vote_fault(gate: Gate, approver: str, signature: str) -> str:
    """Why nobody could count a vote at a gate, whatever the keys; empty if somebody could."""
    if not approver:
        return "it names nobody; say by=..."
    if gate.of and approver not in gate.of:
        return f"{approver!r} is none of the approvers: {', '.join(gate.of)}"
    if not gate.signed:
        return "a word is enough here; leave the signature out" if signature else ""
    if not signature:
        return "it is not signed; sign the ballot, with Ballot.sign() or `perdure approve --key`"
    return signature_fault(signature)


def take_vote(view: View, message: Message, told: Vote, now: int) -> Draft | str:
    """The entry of a vote, or why it is refused."""
    call = view.calls.open.get(told.call_id)
    gate = view.approvals.waiting(call) if call is not None else None
    if call is None or gate is None or gate.hold.id != told.hold:
        return f"call {told.call_id!r}: {NO_LONGER}"
    if gate.tally is not None:
        return f"call {told.call_id!r}: {DECIDED}"
    if told.digest != gate.gate.digest:
        return f"call {told.call_id!r} has other arguments than those voted about"
    if fault := vote_fault(gate.gate, told.who, told.signature):
        return f"call {told.call_id!r}: {fault}"
    body: Json = {
        "call_id": call.call_id,
        "target": call.entry,
        "hold": told.hold,
        "digest": told.digest,
        "approver": told.who,
        "verdict": "approve" if told.approves else "deny",
        "at": coarse(min(told.at, now)),
        MESSAGE: message.id,
    }
    if told.signature:
        body["signature"] = told.signature
    if told.reason:
        body["reason"] = told.reason
    return Draft("perdure:vote", body)


# --- counting ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """What votes are counted with."""

    session: str
    view: View
    tools: ToolSet
    """Today's, which may hold keys of approvers."""
    source: KeySource | None
    """The keys of the agent's definition."""
    now: int
    """Nanoseconds since the Unix epoch."""


def tallies(counting: Counting, leave: Collection[str] = ()) -> list[Draft]:
    """The tallies that are due: of calls that are approved, denied or expired by now.

    Args:
        counting: What is counted, and with what.
        leave: Calls that somebody has answered in another way.

    Raises:
        ConfigError: The keys of an approver could not be had, or a verifier failed.
    """
    found: list[Draft] = []
    for call, gate in _waiting(counting.view):
        due = gate.gate.due
        if call.call_id in leave or gate.tally is not None:
            continue
        if not gate.votes and (due is None or counting.now < due):
            continue
        keys = _keys(counting, call, gate)
        tally = _counted(counting, call, gate, keys)
        if tally.outcome != "pending":
            found.append(_tally_draft(call, gate, tally, keys))
    return found


def _waiting(view: View) -> list[tuple[Call, HeldGate]]:
    found = ((call, view.approvals.waiting(call)) for call in view.calls.open.values())
    return [(call, gate) for call, gate in found if gate is not None]


def _keys(counting: Counting, call: Call, gate: HeldGate) -> Mapping[str, Verifier]:
    if not gate.gate.signed:
        return {}
    tool = counting.tools.get(call.call.name)
    today = approval_of(tool) if tool is not None else None
    level = today.at(gate.gate.level) if today is not None else None
    try:
        keys = keys_for(gate.gate.of, level, counting.source)
    except Exception as error:
        raise ConfigError(f"the keys of {gate.gate.asks} could not be had: {error}") from error
    if not keys:
        raise ConfigError(
            f"call {call.call_id!r} waits for signatures of {gate.gate.asks}, and nobody says any "
            "key of theirs; give Agent(approvers=Keyring({...}))"
        )
    return keys


def _counted(counting: Counting, call: Call, gate: HeldGate, keys: Mapping[str, Verifier]) -> Tally:
    subject = subject_of(counting.session, call, gate)
    try:
        return count(gate.gate.policy, subject, votes_of(gate), keys, now=counting.now)
    except Exception as error:
        raise ConfigError(f"a vote about {call.call_id!r} could not be checked: {error}") from error


def _tally_draft(call: Call, gate: HeldGate, tally: Tally, keys: Mapping[str, Verifier]) -> Draft:
    policy = gate.gate.policy
    body: Json = {
        "call_id": call.call_id,
        "target": call.entry,
        "hold": gate.hold.id,
        "outcome": tally.outcome,
        "need": policy.need,
        "approvers": list(policy.approvers),
        "signed": policy.signed,
        "digest": gate.gate.digest,
        "approved_by": list(tally.approved_by),
        "denied_by": list(tally.denied_by),
        "uncounted": [dataclasses.asdict(one) for one in tally.uncounted],
        "votes": list(tally.records),
    }
    if policy.due is not None:
        body["due"] = policy.due
    if keys:
        body["keys"] = {name: key.key_ids[0] for name, key in keys.items() if key.key_ids}
    return Draft("perdure:tally", body)


# --- what follows --------------------------------------------------------------------------------


def tallied_answers(view: View, tools: ToolSet) -> dict[str, Answer]:
    """What the tallies of held calls answer them with, by call."""
    answers: dict[str, Answer] = {}
    for call, gate in _waiting(view):
        if gate.outcome == "approved":
            answers[call.call_id] = _approved(call, gate)
        elif gate.outcome == "denied":
            answers[call.call_id] = _denied(call, gate)
        elif gate.outcome == "expired":
            answers[call.call_id] = _expired(call, gate, tools)
    return answers


def _approved(call: Call, gate: HeldGate) -> Answer:
    names = gate.tally.approved_by if gate.tally is not None else ()
    answer = approve(
        call.call_id,
        by="human",
        arguments=call.dispatched_arguments if call.dispatched else call.arguments,
        reason=f"approved by {', '.join(names)}",
        idempotency_key=call.key,
        run_again=call.dispatched,
    )
    return msgspec.structs.replace(answer, provenance=Provenance(who=", ".join(names)))


def _denied(call: Call, gate: HeldGate) -> Answer:
    names = gate.tally.denied_by if gate.tally is not None else ()
    why = "; ".join(_reasons(gate, names))
    text = f"denied by {', '.join(names)}" + (f": {why}" if why else "")
    answer = deny(call.call_id, text, by="human")
    return msgspec.structs.replace(answer, provenance=_by(names, gate))


def _reasons(gate: HeldGate, names: Sequence[str]) -> list[str]:
    """Why those said no whose votes counted, each once."""
    uncounted = gate.tally.uncounted if gate.tally is not None else ()
    left = [one.get("vote") for one in uncounted]
    counted = [vote for vote in gate.votes if vote.id not in left and vote.approver in names]
    return [vote.reason for vote in counted if vote.reason and vote.verdict == "deny"]


def _by(names: Sequence[str], gate: HeldGate) -> Provenance:
    return Provenance(who=", ".join(names), tally=gate.tally.id if gate.tally is not None else "")


def _expired(call: Call, gate: HeldGate, tools: ToolSet) -> Answer:
    tool = tools.get(call.call.name)
    today = approval_of(tool) if tool is not None else None
    if today is not None and today.at(gate.gate.level + 1) is not None:
        return approve(
            call.call_id,
            by="policy",
            arguments=call.dispatched_arguments if call.dispatched else call.arguments,
            reason=ESCALATED,
            idempotency_key=call.key,
            run_again=call.dispatched,
        )
    had = len(gate.tally.approved_by) if gate.tally is not None else 0
    text = f"{EXPIRED}: {had} of {gate.gate.need} approved in time"
    answer = deny(call.call_id, text, by="policy")
    return msgspec.structs.replace(answer, provenance=_by((), gate))


# --- reminders -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reminder:
    """A call waits for votes, and somebody wants to be told of it."""

    run_id: str
    """What the user calls the run; the session's id if it is none."""
    session: str
    call_id: str
    tool: str
    arguments: str
    approvers: tuple[str, ...]
    """Those who have not voted; empty if anybody may."""
    number: int
    """Which reminder it is, from 1."""
    due: int | None
    """When the approval expires, in nanoseconds since the Unix epoch."""


OnReminder: TypeAlias = Callable[[Reminder], object] | Callable[[Reminder], Awaitable[object]]
"""Tells people that a call waits for their votes."""


def reminders(counting: Counting) -> list[tuple[Draft, Call, HeldGate]]:
    """The reminders whose time has come, each with its entry; of several missed ones, the last."""
    found: list[tuple[Draft, Call, HeldGate]] = []
    for call, gate in _waiting(counting.view):
        if gate.tally is not None:
            continue
        missed = [
            number
            for number, at in enumerate(gate.gate.reminders, 1)
            if at <= counting.now and number not in gate.reminded
        ]
        for number in missed:
            body: Json = {
                "call_id": call.call_id,
                "target": call.entry,
                "hold": gate.hold.id,
                "number": number,
            }
            found.append((Draft("perdure:reminder", body), call, gate))
    return found


def reminder_of(run_id: str, session: str, draft: Draft, call: Call, gate: HeldGate) -> Reminder:
    """What people are told."""
    voted = {vote.approver for vote in gate.votes}
    number = draft.body["number"]
    return Reminder(
        run_id=run_id,
        session=session,
        call_id=call.call_id,
        tool=call.call.name,
        arguments=call.arguments,
        approvers=tuple(name for name in gate.gate.of if name not in voted),
        number=number if isinstance(number, int) else 0,
        due=gate.gate.due,
    )
