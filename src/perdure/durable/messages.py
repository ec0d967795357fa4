"""What a run's inbox can hold, and how it is written.

A message names what it is about by the entry it answers: a decision by the hold, a resolution by
the dispatch. So it is bound to one moment of one call, and its id, made of the same, lets the store
keep the first and call every other a duplicate (LOG 3.2, DESIGN 6.5).
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import msgspec
from msgspec import Struct

from perdure.errors import ConfigError
from perdure.log import Message, Session
from perdure.log.entries import RefusedEntry


class _Told(Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    who: str = ""
    """Who says it, by name."""
    reason: str = ""


class Approve(_Told, frozen=True, kw_only=True, omit_defaults=True, tag="approve"):
    """Let a held call run."""

    call_id: str
    hold: str
    """The decision entry that holds it."""
    digest: str
    """Of the arguments that were decided on, as they were held."""
    arguments: str | None = None
    """JSON text to run it with instead."""
    note: str = ""
    """What the model is told with it."""


class Deny(_Told, frozen=True, kw_only=True, omit_defaults=True, tag="deny"):
    """Refuse a held call; the model reads the reason and goes on."""

    call_id: str
    hold: str
    digest: str
    note: str = ""


class Vote(_Told, frozen=True, kw_only=True, omit_defaults=True, tag="vote"):
    """A verdict about a held call by one of those who have to approve it; `who` is the approver."""

    call_id: str
    hold: str
    digest: str
    approves: bool
    signature: str = ""
    """`ALGORITHM:BASE64URL`, of the bytes that `perdure.ballots.decision_bytes` gives."""
    at: int = 0
    """When it was put, in nanoseconds since the Unix epoch."""


class Resolve(_Told, frozen=True, kw_only=True, omit_defaults=True, tag="resolve"):
    """Say what came of a call that may have run."""

    call_id: str
    dispatch: str
    """The dispatch entry whose outcome is told."""
    step: str = ""
    """The step of the call that it is about; `dispatch` is then the entry of its start."""
    output: str | None = None
    """What the tool gave, or the JSON that the step gave; None if it never ran."""
    failed: str = ""
    """Why the tool failed, and did nothing; `output` says so to the model."""
    evidence: str = ""
    """JSON text: what the word rests on."""
    min_age: float = 0.0
    """Seconds after the dispatch before which nobody can know that it never ran."""


class Cancel(_Told, frozen=True, kw_only=True, omit_defaults=True, tag="cancel"):
    """Stop the run for good."""


class Retry(_Told, frozen=True, kw_only=True, omit_defaults=True, tag="retry"):
    """Let a run go on that a limit stopped."""

    end: str
    """The run-end entry it answers."""


class Settle(_Told, frozen=True, kw_only=True, omit_defaults=True, tag="settle"):
    """Say what became of an effect at which the rollback of a saga stops."""

    call_id: str
    target: str
    """The call's item."""
    session: str
    """The session that has it."""
    step: str = ""
    tool: str = ""
    verdict: str
    """`compensated` by hand, or `left` as it is."""
    about: str
    """The entry that says that the rollback stops there."""
    evidence: str = ""


class Signal(_Told, frozen=True, kw_only=True, omit_defaults=True, tag="signal"):
    """Something happened that calls of the run may wait for; the first of a name stands."""

    name: str
    value: msgspec.Raw = msgspec.Raw(b"null")


class Sent(_Told, frozen=True, kw_only=True, omit_defaults=True, tag="send"):
    """A message for a channel of the run."""

    channel: str
    key: str
    value: msgspec.Raw = msgspec.Raw(b"null")


class Reply(_Told, frozen=True, kw_only=True, omit_defaults=True, tag="reply"):
    """What somebody answers to a question of a call."""

    call_id: str
    begin: str
    """The entry with which the wait for it began."""
    value: msgspec.Raw


class Late(_Told, frozen=True, kw_only=True, omit_defaults=True, tag="late"):
    """A driver that could not record it tells what a call of its own gave (LOG 3.4)."""

    call_id: str
    dispatch: str
    failure: str = ""
    """What it failed with, in a saga."""
    item: msgspec.Raw
    """Its output, as the item it is to become."""


class NotStarted(_Told, frozen=True, kw_only=True, omit_defaults=True, tag="not_started"):
    """A driver that could not record it tells that a dispatch of its own entered no tool."""

    call_id: str
    dispatch: str
    fence: str


Told: TypeAlias = (
    Approve
    | Deny
    | Vote
    | Resolve
    | Settle
    | Cancel
    | Retry
    | Signal
    | Sent
    | Reply
    | Late
    | NotStarted
)

_DECODER: msgspec.json.Decoder[Told] = msgspec.json.Decoder(Told)


def decode_told(message: Message) -> Told | None:
    """What a message says; None if it is of no kind that is known."""
    try:
        return _DECODER.decode(message.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def message_of(told: Told, session: Session) -> Message:
    """The message that says it, under the id that what it is about gives it.

    Raises:
        ConfigError: A text in it has half of a surrogate pair.
    """
    try:
        body = msgspec.json.encode(told)
    except UnicodeEncodeError as error:
        raise ConfigError(f"what is told has half of a surrogate pair: {error}") from None
    return Message(
        id=_message_id(told, session),
        body=body,
        stop=isinstance(told, Cancel),
    )


def _message_id(told: Told, session: Session) -> str:
    base = _subject(told)
    refused = {
        entry.message
        for entry in session.entries
        if isinstance(entry, RefusedEntry) and entry.message
    }
    number = 0
    while (name := f"{base}/{number}" if number else base) in refused:
        number += 1
    return name


def _vote_digest(told: Vote) -> str:
    """Tells a vote from all others about its hold, but not when it was put."""
    parts = (told.who, str(told.approves), told.digest, told.signature)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def _subject(told: Told) -> str:
    match told:
        case Approve() | Deny():
            return f"decide/{told.hold}"
        case Vote():
            return f"vote/{told.hold}/{_vote_digest(told)}"
        case Resolve():
            return f"resolve/{told.dispatch}"
        case Settle():
            return f"settle/{told.about}"
        case Retry():
            return f"retry/{told.end}"
        case Signal():
            return f"signal/{told.name}"
        case Sent():
            return f"channel/{len(told.channel)}/{told.channel}/{told.key}"
        case Reply():
            return f"reply/{told.begin}"
        case Late():
            return f"late/{told.dispatch}"
        case NotStarted():
            return f"not_started/{told.dispatch}"
        case Cancel():
            return "cancel"
