"""The entries of perdure's own types, `perdure:*`: facts that the format has no place for.

All are record entries: what a foreign reader computes of a session does not depend on them
(docs/format.md).
"""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar, Literal

from msgspec import Raw, field

from perdure.log.format_entries import Entry, Json
from perdure.loop.spend import NO_TOKENS, Spend, Tokens


class EndEntry(Entry, frozen=True, kw_only=True, tag="perdure:end"):
    """The loop's own reason and cause of a drive's end, beside the format's (LOG 4.3)."""

    type: ClassVar[Literal["perdure:end"]] = "perdure:end"
    run_id: str = ""
    reason: str = ""
    cause: str = ""
    wait: Json | None = field(default=None, name="perdure:wait")
    """Of a drive of a program that a wait unwound: what it waits for (LOG 5.4)."""
    needs: Json | None = None
    """Of a budget that refused a request: the limit under which it could be sent, as `tokens`, or
    as text `cost` or `seconds`."""
    above: int = 0
    """Of such a budget: 0 for the session's own, 1 for its parent's, and so on."""


class OwedEntry(Entry, frozen=True, kw_only=True, tag="perdure:owed"):
    """What a drive that ended still owes its queues (LOG 4.4)."""

    type: ClassVar[Literal["perdure:owed"]] = "perdure:owed"
    run_id: str = ""
    queued: tuple[str, ...] = ()


class ClosedEntry(Entry, frozen=True, kw_only=True, tag="perdure:closed"):
    """A run is over (LOG 4.2)."""

    type: ClassVar[Literal["perdure:closed"]] = "perdure:closed"
    status: str = ""
    cause: str = ""
    """What stopped or cancelled it, in a word or in words."""
    who: str = ""
    """Who cancelled it."""
    result: Raw = Raw(b"")
    """Of a program that is done: what it returned, as JSON."""
    report: Json | None = None
    """Of a saga that was rolled back: what was undone, what was not, and what is unknown."""


class ResultEntry(Entry, frozen=True, kw_only=True, tag="perdure:result"):
    """What a call gave, before the place of its output has come (DESIGN 6.3)."""

    type: ClassVar[Literal["perdure:result"]] = "perdure:result"
    call_id: str = ""
    target: str = ""
    output: Raw = Raw(b"")
    """The output, as the item it is to become."""


class RetryEntry(Entry, frozen=True, kw_only=True, tag="perdure:retry"):
    """Somebody asked a run to go on that rests; its limits, its tries count anew (LOG 4.2)."""

    type: ClassVar[Literal["perdure:retry"]] = "perdure:retry"
    who: str = ""
    reason: str = ""


class SpendEntry(Entry, frozen=True, kw_only=True, tag="perdure:spend"):
    """What a request reserved or took, or a sub-agent spent."""

    type: ClassVar[Literal["perdure:spend"]] = "perdure:spend"
    phase: str = ""
    """`reserve`: a request is about to be sent. `settle`: one has ended, and no response tells of
    it. `child`: a sub-agent works in a session, and, with `spend`, has ended."""
    model: str = ""
    tokens: Tokens = NO_TOKENS
    """Of a reservation: what it may take. Of a settlement: what it took."""
    usd: Decimal | None = None
    target: str = ""
    """Of a settlement: the reservation; empty if none was written."""
    came: Literal["answered", "dropped", "failed", "lost", "refused", "unsent", ""] = ""
    estimated: bool = False
    call_id: str = ""
    session: str = ""
    spend: Spend | None = None


class NotStartedEntry(Entry, frozen=True, kw_only=True, tag="perdure:not_started"):
    """A dispatch whose tool was provably not entered (LOG 5.1)."""

    type: ClassVar[Literal["perdure:not_started"]] = "perdure:not_started"
    call_id: str = ""
    target: str = ""
    """The dispatch entry."""
    fence: str = ""


class RefusedEntry(Entry, frozen=True, kw_only=True, tag="perdure:refused"):
    """An inbox message that nothing came of (LOG 3.1); `perdure:message` names it."""

    type: ClassVar[Literal["perdure:refused"]] = "perdure:refused"
    reason: str = ""


class StepEntry(Entry, frozen=True, kw_only=True, tag="perdure:step"):
    """The start or the end of a step (LOG 5.5)."""

    type: ClassVar[Literal["perdure:step"]] = "perdure:step"
    call_id: str = ""
    target: str = ""
    """The call's item."""
    phase: str = ""
    """`start`: it is about to run. `end`: it ran, or failed for certain. `void`: it never ran."""
    name: str = ""
    effect: str = ""
    idempotency_key: str = ""
    """Of a start."""
    arguments: str = ""
    """Of the end of a call that a tool made: what its own tool got."""
    result: Raw = Raw(b"")
    """Of an end: what it gave, as JSON; empty if it failed."""
    error: str = ""
    """Of an end: why it failed."""
    who: str = field(default="", name="perdure:who")
    """Of what somebody said of it: who."""
    evidence: Raw = field(default=Raw(b""), name="perdure:evidence")


class WaitEntry(Entry, frozen=True, kw_only=True, tag="perdure:wait"):
    """The beginning or the end of a wait inside a call."""

    type: ClassVar[Literal["perdure:wait"]] = "perdure:wait"
    call_id: str = ""
    target: str = ""
    """The call's item."""
    phase: str = ""
    """`begin` or `end`."""
    kind: str = ""
    """`sleep`, `signal`, `interrupt`, `channel`, `race`, or `child` for an agent of a program."""
    name: str = ""
    due: int | None = None
    """Of a begin: when it ends by itself, in nanoseconds since the Unix epoch."""
    prompt: str = ""
    """Of the begin of an interrupt: what is asked."""
    schema: Json | None = None
    """Of the begin of an interrupt: the JSON Schema that an answer has to fit."""
    refused: str = ""
    """Of the begin of an interrupt that is asked again: why the answer before was not taken."""
    outcome: str = ""
    """Of an end: `due`, `signal`, `timeout`, `answer`, `message`, `won`, or `failed`."""
    value: Raw = Raw(b"")
    """Of an end: what came, as JSON."""
    race: str = ""
    """Of a begin: the race that it is part of; when that is won, nobody waits for it any more."""
    who: str = field(default="", name="perdure:who")


class SignalEntry(Entry, frozen=True, kw_only=True, tag="perdure:signal"):
    """A signal came, from outside; the first of a name stands."""

    type: ClassVar[Literal["perdure:signal"]] = "perdure:signal"
    name: str = ""
    value: Raw = Raw(b"null")
    who: str = field(default="", name="perdure:who")


class ChannelEntry(Entry, frozen=True, kw_only=True, tag="perdure:channel"):
    """A message came for a channel of the run, from outside."""

    type: ClassVar[Literal["perdure:channel"]] = "perdure:channel"
    channel: str = ""
    key: str = ""
    """No other message of the channel has it."""
    value: Raw = Raw(b"null")
    who: str = field(default="", name="perdure:who")


class AckEntry(Entry, frozen=True, kw_only=True, tag="perdure:ack"):
    """A call is done with a message of a channel."""

    type: ClassVar[Literal["perdure:ack"]] = "perdure:ack"
    call_id: str = ""
    target: str = ""
    channel: str = ""
    key: str = ""


class SagaEntry(Entry, frozen=True, kw_only=True, tag="perdure:saga"):
    """What happens to a saga (LOG 5.9)."""

    type: ClassVar[Literal["perdure:saga"]] = "perdure:saga"
    phase: str = ""
    """`tripped`: a call failed, and the saga with it. `failed`: so did another. `cancelled`: it
    was cancelled. `never_ran`: somebody says so of a call that is not undone. `halted`: the
    rollback waits for somebody. `stopped`: a compensator failed. `resumed`: it goes on.
    `undone`: nothing is left to be undone."""
    call_id: str = ""
    target: str = ""
    """The call's item."""
    session: str = ""
    """Of a halt: the session that has the call."""
    step: str = ""
    """Of a halt: the step of the call, if it is a call that its tool made."""
    cause: str = ""
    output: Raw = Raw(b"")
    """What the tool of a failed call gave, if a hook made the failure."""
    report: Json | None = None
    who: str = field(default="", name="perdure:who")
    evidence: Raw = field(default=Raw(b""), name="perdure:evidence")


class CompensationEntry(Entry, frozen=True, kw_only=True, tag="perdure:compensation"):
    """The start or the end of undoing a call, in the session of the root (LOG 5.9)."""

    type: ClassVar[Literal["perdure:compensation"]] = "perdure:compensation"
    call_id: str = ""
    target: str = ""
    """The call's item."""
    session: str = ""
    """The session that has the call."""
    step: str = ""
    """The step of the call, if it is a call that its tool made."""
    phase: str = ""
    """`start`, `end`, or `settled`, by somebody."""
    tool: str = ""
    idempotency_key: str = ""
    error: str = ""
    """Of an end: why it failed."""
    verdict: str = ""
    """Of `settled`: `compensated` by hand, or `left` as it is."""
    reason: str = ""
    who: str = field(default="", name="perdure:who")
    evidence: Raw = field(default=Raw(b""), name="perdure:evidence")


class VoteEntry(Entry, frozen=True, kw_only=True, tag="perdure:vote"):
    """A vote about a held call was accepted; whether it counts, the tally says (LOG 5.7)."""

    type: ClassVar[Literal["perdure:vote"]] = "perdure:vote"
    call_id: str = ""
    target: str = ""
    """The call's item."""
    hold: str = ""
    """The decision entry that holds it."""
    digest: str = ""
    """SHA-256 of the canonical arguments that were voted about."""
    approver: str = ""
    verdict: str = ""
    """`approve` or `deny`."""
    signature: str = ""
    """`ALGORITHM:BASE64URL`; empty for a word."""
    at: int = 0
    """When it was put, in nanoseconds since the Unix epoch, by the clock of whoever put it."""
    reason: str = ""


class TallyEntry(Entry, frozen=True, kw_only=True, tag="perdure:tally"):
    """What the votes about a hold came to. It is written before the tool runs, and is final."""

    type: ClassVar[Literal["perdure:tally"]] = "perdure:tally"
    call_id: str = ""
    target: str = ""
    hold: str = ""
    outcome: str = ""
    """`approved`, `denied` or `expired`."""
    need: int = 1
    approvers: tuple[str, ...] = ()
    signed: bool = False
    due: int | None = None
    digest: str = ""
    approved_by: tuple[str, ...] = ()
    denied_by: tuple[str, ...] = ()
    uncounted: tuple[Json, ...] = ()
    """`{vote, approver, reason}` of each vote that does not count."""
    votes: tuple[str, ...] = ()
    """Every vote that was read, by its entry."""
    keys: Json = field(default_factory=dict[str, object])
    """The text of each approver's key when it was counted."""


class ReminderEntry(Entry, frozen=True, kw_only=True, tag="perdure:reminder"):
    """People are about to be reminded of a call that waits for their votes."""

    type: ClassVar[Literal["perdure:reminder"]] = "perdure:reminder"
    call_id: str = ""
    target: str = ""
    hold: str = ""
    number: int = 0
    """Which of the gate's reminders it is, from 1."""
