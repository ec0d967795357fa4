"""Entries: what a session is a tree of.

*Context entries* (item, response, config, compaction, branch_summary) decide what the model gets;
all others are *record entries*. Their classes stand in `format_entries` and `own_entries`; here is
what all of them are together, and how a line becomes one.
"""

from __future__ import annotations

from typing import TypeAlias, cast

import msgspec
from msgspec import Raw, Struct, field

from perdure.errors import CorruptLog
from perdure.log.format_entries import (
    ERASED,
    MESSAGE,
    SALT,
    BranchSummaryEntry,
    CompactionEntry,
    ConfigEntry,
    CustomEntry,
    DecisionEntry,
    DispatchEntry,
    Entry,
    EnvEntry,
    InfoEntry,
    ItemEntry,
    Json,
    LabelEntry,
    LinkEntry,
    OutcomeEntry,
    QueuedEntry,
    ResponseEntry,
    RunBudget,
    RunEntry,
    UnknownEntry,
)
from perdure.log.ids import ParentRef
from perdure.log.own_entries import (
    AckEntry,
    ChannelEntry,
    ClosedEntry,
    CompensationEntry,
    EndEntry,
    NotStartedEntry,
    OwedEntry,
    RefusedEntry,
    ReminderEntry,
    ResultEntry,
    RetryEntry,
    SagaEntry,
    SignalEntry,
    SpendEntry,
    StepEntry,
    TallyEntry,
    VoteEntry,
    WaitEntry,
)

__all__ = [
    "ERASED",
    "MESSAGE",
    "SALT",
    "TYPES",
    "AckEntry",
    "AnyEntry",
    "BranchSummaryEntry",
    "ChannelEntry",
    "ClosedEntry",
    "CompactionEntry",
    "CompensationEntry",
    "ConfigEntry",
    "CustomEntry",
    "DecisionEntry",
    "DispatchEntry",
    "EndEntry",
    "Entry",
    "EnvEntry",
    "InfoEntry",
    "ItemEntry",
    "Json",
    "KnownEntry",
    "LabelEntry",
    "LinkEntry",
    "NotStartedEntry",
    "OutcomeEntry",
    "OwedEntry",
    "QueuedEntry",
    "RefusedEntry",
    "ReminderEntry",
    "ResponseEntry",
    "ResultEntry",
    "RetryEntry",
    "RunBudget",
    "RunEntry",
    "SagaEntry",
    "SignalEntry",
    "SpendEntry",
    "StepEntry",
    "TallyEntry",
    "UnknownEntry",
    "VoteEntry",
    "WaitEntry",
    "decode_entry",
    "ends_by_itself",
    "starts_effect",
]

KnownEntry: TypeAlias = (
    ItemEntry
    | ResponseEntry
    | ConfigEntry
    | CompactionEntry
    | BranchSummaryEntry
    | RunEntry
    | DispatchEntry
    | DecisionEntry
    | QueuedEntry
    | LabelEntry
    | InfoEntry
    | EnvEntry
    | OutcomeEntry
    | LinkEntry
    | CustomEntry
    | EndEntry
    | OwedEntry
    | ClosedEntry
    | ResultEntry
    | RetryEntry
    | SpendEntry
    | NotStartedEntry
    | RefusedEntry
    | StepEntry
    | WaitEntry
    | SignalEntry
    | ChannelEntry
    | AckEntry
    | SagaEntry
    | CompensationEntry
    | VoteEntry
    | TallyEntry
    | ReminderEntry
)
"""An entry of a type that has a class of its own."""

AnyEntry: TypeAlias = KnownEntry | UnknownEntry

TYPES = frozenset(
    str(cls.__struct_config__.tag) for cls in cast("tuple[type[Entry], ...]", KnownEntry.__args__)
)
"""The types that have a class of their own."""


class _Envelope(Struct, frozen=True, kw_only=True):
    """What an entry of any type has."""

    type: str = ""
    id: str = ""
    parent: str | None = None
    parents: tuple[ParentRef, ...] = ()
    ts: str = ""
    message: str = field(default="", name=MESSAGE)
    erased: str = field(default="", name=ERASED)


_ENTRY: msgspec.json.Decoder[KnownEntry] = msgspec.json.Decoder(KnownEntry)
_ENVELOPE = msgspec.json.Decoder(_Envelope)
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_set = msgspec.structs.force_setattr


def decode_entry(line: bytes) -> AnyEntry:
    """The entry of a line, not verified.

    Raises:
        CorruptLog: The line is no JSON object with an envelope.
    """
    entry: AnyEntry
    if not line.isascii():
        _check_utf8(line)  # the decoder does not look at what it skips
    try:
        entry = _ENTRY.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        entry = _other(line)
    _set(entry, "line", line)
    return entry


def _check_utf8(line: bytes) -> None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise CorruptLog(f"not an entry: byte {error.start} is not UTF-8") from None


def _other(line: bytes) -> AnyEntry:
    try:
        envelope = _ENVELOPE.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptLog(f"not an entry: {error}") from None
    malformed = ""
    if envelope.type in TYPES:
        try:
            return _ENTRY.decode(_without_nulls(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            malformed = str(error)
    return UnknownEntry(
        id=envelope.id,
        parent=envelope.parent,
        parents=envelope.parents,
        ts=envelope.ts,
        message=envelope.message,
        erased=envelope.erased,
        type=envelope.type,
        malformed=malformed,
    )


def _without_nulls(line: bytes) -> bytes:
    """The line without members that are null, which some writers give for absent ones."""
    members = {n: raw for n, raw in _MEMBERS.decode(line).items() if bytes(raw) != b"null"}
    return msgspec.json.encode(members)


def starts_effect(entry: AnyEntry) -> bool:
    """Whether something with an effect begins with it, so that a stop forbids it (LOG 3.5)."""
    if isinstance(entry, StepEntry):
        return entry.phase == "start"
    return isinstance(entry, DispatchEntry)


def ends_by_itself(entry: AnyEntry) -> bool:
    """Whether a run is over with it, and by no stop: a stop that came before wins (LOG 9)."""
    return isinstance(entry, ClosedEntry) and entry.status in _ENDS and not entry.message


_ENDS = frozenset({"done", "stopped"})
