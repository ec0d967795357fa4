"""The entries that the format defines: those that make the context, and those that record.

Each class shows the members that the format gives its type; what it does not show stays in `line`,
the source that every hash is taken over and every copy made of. Members of perdure's own on them
are named `perdure:*`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from perdure.log.ids import ParentRef
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
    below: int = field(default=0, name="perdure:below")
    """Of such an end, of a program: how far its agents were that had not ended."""
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


class UnknownEntry(Entry, frozen=True, kw_only=True, tag="\x7fentry"):
    """An entry of a type nobody knows, or one whose members have other types than they should."""

    type: str = field(default="", name="\x7ftype")
    malformed: str = field(default="", name="\x7fmalformed")
    """For an entry of a known type: what is wrong with it."""
