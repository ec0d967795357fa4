"""Entries: what a session is a tree of.

*Context entries* (item, response, config, compaction, branch_summary) decide what the model gets;
all others are *record entries*. Each class shows the members that the format gives its type; what
it does not show stays in `line`, the source that every hash is taken over and every copy made of.
"""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from perdure.errors import CorruptLog
from perdure.log.ids import ParentRef
from perdure.loop.spend import NO_TOKENS, Spend, Tokens
from perdure.tools import Gate

ERASED = "perdure:erased"
"""Stands in the line of an entry whose body was erased, with the body's content hash."""

MESSAGE = "perdure:message"
"""Names, in the entry that came of it, the inbox message that an append consumed (LOG 3.1)."""

SALT = "perdure:salt"
"""128 random bits, so that the hash of a body that is gone tells nothing about it (LOG 7)."""

Json: TypeAlias = dict[str, object]


class Entry(Struct, frozen=True, kw_only=True, gc=False):
    """What all entries have. They are made of JSON, so no cycle goes through them."""

    id: str = ""
    parent: str | None = None
    parents: tuple[ParentRef, ...] = ()
    ts: str = ""
    message: str = field(default="", name=MESSAGE)
    erased: str = field(default="", name=ERASED)
    """The content hash of a body that was erased; the other members are then empty."""
    line: bytes = field(default=b"", name="\x7fline")
    """The JSON text it was read from, or is written as, without a line end."""

    @property
    def members(self) -> Json:
        """Everything the line holds."""
        return msgspec.json.decode(self.line, type=Json)


# --- context entries ---------------------------------------------------------------


class ItemEntry(Entry, frozen=True, kw_only=True, tag="item"):
    """An item of the transcript."""

    type: ClassVar[Literal["item"]] = "item"
    item: Raw = Raw(b"{}")
    response: str = ""
    """The response that the model's item belongs to."""
    visible: bool = True
    source: Json | None = None
    queued_from: str = ""
    model_call_id: str = field(default="", name="perdure:model_call_id")
    """The id the model gave a call that runs under another."""
    terminate: bool = field(default=False, name="perdure:terminate")
    """On an output: its result asks to end the drive."""


class ResponseEntry(Entry, frozen=True, kw_only=True, tag="response"):
    """What became of one model call; it stands behind its output items."""

    type: ClassVar[Literal["response"]] = "response"
    response_id: str = ""
    model: str = ""
    status: str = ""
    withheld: bool = field(default=False, name="perdure:withheld")
    """A guard withheld it, so it is no answer."""
    usage: Json | None = None
    incomplete: object = None
    error: object = None
    request_hash: str = ""
    latency_ms: int | float = 0
    attempts: int = 1
    reserved: str = field(default="", name="perdure:reserved")
    """The reservation that it settles, if others are open."""
    settled: bool = field(default=False, name="perdure:settled")
    """What its request took is settled by an entry of its own."""


class ConfigEntry(Entry, frozen=True, kw_only=True, tag="config"):
    """A change of settings. What is UNSET stays as it was."""

    type: ClassVar[Literal["config"]] = "config"
    model: str | UnsetType = UNSET
    instructions: str | UnsetType = UNSET
    instructions_parts: list[Json] | UnsetType = UNSET
    instructions_omitted: list[Json] | UnsetType = UNSET
    reasoning: Json | UnsetType = UNSET
    text: Json | UnsetType = UNSET
    tools_added: list[Json] = field(default_factory=list[Json])
    tools_removed: list[str] = field(default_factory=list[str])
    extra: Json = field(default_factory=dict[str, object])
    replace: bool = False
    omit: Json | UnsetType = UNSET


class CompactionEntry(Entry, frozen=True, kw_only=True, tag="compaction"):
    """The path before `first_kept`, folded into a summary."""

    type: ClassVar[Literal["compaction"]] = "compaction"
    first_kept: str = ""
    summary: Raw = Raw(b"{}")
    pinned: tuple[Raw, ...] = ()
    config: Json = field(default_factory=dict[str, object])
    tokens_before: int | float = 0
    usage: Json | None = None


class BranchSummaryEntry(Entry, frozen=True, kw_only=True, tag="branch_summary"):
    """What a branch that was left is worth remembering for."""

    type: ClassVar[Literal["branch_summary"]] = "branch_summary"
    from_: str = field(default="", name="from")
    summary: Raw = Raw(b"{}")
    usage: Json | None = None


# --- record entries ----------------------------------------------------------------


class RunBudget(Struct, frozen=True, kw_only=True):
    """Limits of one run."""

    tokens: int | None = None
    cost: Decimal | None = None
    turns: int | None = None
    seconds: float | None = None
    output: int | None = None
    prices: tuple[Json, ...] = ()
    """What tokens cost, by model, if that was given as data."""


class RunEntry(Entry, frozen=True, kw_only=True, tag="run"):
    """The start or the end of a drive."""

    type: ClassVar[Literal["run"]] = "run"
    run_id: str = ""
    phase: str = ""
    source: str = ""
    reason: str = ""
    pending: tuple[str, ...] = ()
    ref: str = ""
    trigger: Json | None = None
    until: str = field(default="", name="perdure:until")
    """Of the end of a drive that a crash cut: the time of the last entry before it."""
    budget: RunBudget | None = field(default=None, name="perdure:budget")
    """Of a start: what this run was given over the limits of its agent."""
    config_base: str = ""
    """Of a start: tells the settings of the agent, before hooks changed a request's."""


class DispatchEntry(Entry, frozen=True, kw_only=True, tag="dispatch"):
    """A call is about to enter its tool."""

    type: ClassVar[Literal["dispatch"]] = "dispatch"
    call_id: str = ""
    target: str = ""
    idempotency_key: str = ""
    effect: str = field(default="", name="perdure:effect")
    lasts: float | None = field(default=None, name="perdure:lasts")
    """Seconds after which its tool has ended, its grace among them; None without a timeout."""
    deployment: str = field(default="", name="perdure:deployment")
    """Who runs it."""
    principal: str = field(default="", name="perdure:principal")
    """For whom it runs."""


class DecisionEntry(Entry, frozen=True, kw_only=True, tag="decision"):
    """What was decided about a call."""

    type: ClassVar[Literal["decision"]] = "decision"
    call_id: str = ""
    target: str = ""
    verdict: str = ""
    by: str = ""
    reason: str = ""
    args: Raw = Raw(b"")
    """Empty if the call's own arguments stand."""
    arguments: str = field(default="", name="perdure:arguments")
    """The exact text of `args`, which is spelled canonically."""
    suspended: bool = field(default=False, name="perdure:suspended")
    """A hold after the dispatch because the tool waits (LOG 5.4)."""
    wait: Json | None = field(default=None, name="perdure:wait")
    """What a suspended call's tool waits for."""
    who: str = field(default="", name="perdure:who")
    """Who decided, by name."""
    run_again: bool = field(default=False, name="perdure:run_again")
    """Somebody accepted that a call which may have run runs once more."""
    evidence: Raw = field(default=Raw(b""), name="perdure:evidence")
    """What the decision rests on; empty if nobody said."""
    gate: Gate | None = field(default=None, name="perdure:approval")
    """Of a hold: whose approval it waits for."""
    tally: str = field(default="", name="perdure:tally")
    """The entry of the tally that let the call in."""
    deployment: str = field(default="", name="perdure:deployment")
    principal: str = field(default="", name="perdure:principal")


class QueuedEntry(Entry, frozen=True, kw_only=True, tag="queued"):
    """An input was accepted, and is owed until an item names it."""

    type: ClassVar[Literal["queued"]] = "queued"
    item: Raw = Raw(b"{}")
    mode: str = ""
    trigger: Json | None = None
    ref: str = ""
    visible: bool = True
    queue_id: str = field(default="", name="perdure:queue_id")
    """The loop's name for it."""
    again: str = field(default="", name="perdure:again")
    """The queued entry that a drive's end closed and that this one stands for."""


class LabelEntry(Entry, frozen=True, kw_only=True, tag="label"):
    """A name for an entry; null takes it back."""

    type: ClassVar[Literal["label"]] = "label"
    target: str = ""
    label: str | None = None
    synthetic: bool = False


class InfoEntry(Entry, frozen=True, kw_only=True, tag="info"):
    """What the session is called."""

    type: ClassVar[Literal["info"]] = "info"
    name: str = ""


class EnvEntry(Entry, frozen=True, kw_only=True, tag="env"):
    """Where the work happens, until the next one."""

    type: ClassVar[Literal["env"]] = "env"
    cwd: str = ""
    vcs: Json | None = None
    files: Json | None = None
    tools: Json | None = None
    workspace: Json | None = None


class OutcomeEntry(Entry, frozen=True, kw_only=True, tag="outcome"):
    """A judgement on an entry."""

    type: ClassVar[Literal["outcome"]] = "outcome"
    kind: str = ""
    target: str = ""
    score: int | float | None = None
    passed: bool | None = field(default=None, name="pass")
    label: str = ""
    details: object = None


class LinkEntry(Entry, frozen=True, kw_only=True, tag="link"):
    """Another session that belongs to this one."""

    type: ClassVar[Literal["link"]] = "link"
    rel: str = ""
    session: str = ""
    call_id: str = ""


class CustomEntry(Entry, frozen=True, kw_only=True, tag="custom"):
    """Whatever a program keeps in a namespace of its own."""

    type: ClassVar[Literal["custom"]] = "custom"
    ns: str = ""
    data: Raw = Raw(b"null")
    call_id: str = ""


# --- perdure's own facts (docs/format.md) --------------------------------------------


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
    rollback waits for somebody. `stopped`: a compensator
    failed. `resumed`: it goes on. `undone`: nothing is left to be undone."""
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


class UnknownEntry(Entry, frozen=True, kw_only=True, tag="\x7fentry"):
    """An entry of a type nobody knows, or one whose members have other types than they should."""

    type: str = field(default="", name="\x7ftype")
    malformed: str = field(default="", name="\x7fmalformed")
    """For an entry of a known type: what is wrong with it."""


AnyEntry: TypeAlias = (
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
    | UnknownEntry
)

_KnownEntry: TypeAlias = (
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

TYPES = frozenset(
    str(cls.__struct_config__.tag) for cls in cast("tuple[type[Entry], ...]", _KnownEntry.__args__)
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


_ENTRY: msgspec.json.Decoder[_KnownEntry] = msgspec.json.Decoder(_KnownEntry)
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
