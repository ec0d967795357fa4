"""A session as lines that a person reads: one for each entry."""

from __future__ import annotations

from typing import cast

from perdure.log.context import item_of
from perdure.log.entries import (
    AnyEntry,
    BranchSummaryEntry,
    ClosedEntry,
    CompactionEntry,
    ConfigEntry,
    CustomEntry,
    DecisionEntry,
    DispatchEntry,
    EndEntry,
    InfoEntry,
    ItemEntry,
    Json,
    LabelEntry,
    LinkEntry,
    QueuedEntry,
    ResponseEntry,
    RunEntry,
)
from perdure.wire import FunctionCall, FunctionCallOutput, Item, Message, Reasoning, text_of

SHORT_ID = 8
"""How many hexadecimal digits of an id are shown."""


def short_id(entry: str) -> str:
    """An id, shortened for people."""
    return entry.removeprefix("sha256:")[:SHORT_ID]


def item_line(item: Item) -> str:
    """An item in a few words."""
    match item:
        case Message():
            return f"{item.role}: {item.text}"
        case FunctionCall():
            return f"call {item.name}({item.arguments}) as {item.call_id}"
        case FunctionCallOutput():
            return f"output of {item.call_id}: {item.text}"
        case Reasoning():
            return f"thought: {text_of(item.summary)}"
        case _:
            return item.type or "an item of no type"


def entry_line(entry: AnyEntry) -> str:
    """An entry in a few words, without its id and time."""
    if entry.erased:
        return f"{entry.type}: erased"
    match entry:
        case ItemEntry():
            return _item(entry)
        case ResponseEntry():
            return _response(entry)
        case ConfigEntry():
            return _config(entry)
        case RunEntry():
            return _run(entry)
        case DispatchEntry():
            return _dispatch(entry)
        case DecisionEntry():
            return _decision(entry)
        case _:
            return _other(entry)


def _other(entry: AnyEntry) -> str:
    match entry:
        case LabelEntry():
            return f"label {entry.label or 'taken back'} on {short_id(entry.target)}"
        case QueuedEntry():
            return f"queued as {entry.mode}: {item_line(item_of(entry.item))}"
        case CompactionEntry():
            kept = short_id(entry.first_kept)
            return f"folded up to {kept}: {item_line(item_of(entry.summary))}"
        case BranchSummaryEntry():
            return f"of branch {short_id(entry.from_)}: {item_line(item_of(entry.summary))}"
        case InfoEntry():
            return f"named {entry.name!r}"
        case LinkEntry():
            return f"{entry.rel} {entry.session}"
        case CustomEntry():
            return f"{entry.ns} {bytes(entry.data).decode()}"
        case EndEntry():
            return f"end: {entry.reason}{_ref(entry.cause)}"
        case ClosedEntry():
            return f"closed: {entry.status}"
        case _:
            return entry.type


def _item(entry: ItemEntry) -> str:
    hidden = "" if entry.visible else " (hidden)"
    return item_line(item_of(entry.item)) + hidden


def _response(entry: ResponseEntry) -> str:
    words = [f"response of {entry.model or 'a model'}", entry.status]
    error = entry.error
    if isinstance(error, dict):
        words.append(str(cast("Json", error).get("message", "")))
    if entry.usage:
        words.append(f"{entry.usage.get('total_tokens', '?')} tokens")
    if entry.attempts > 1:
        words.append(f"{entry.attempts} attempts")
    return ", ".join(word for word in words if word)


def _config(entry: ConfigEntry) -> str:
    names = [n for n in entry.members if n not in ("id", "parent", "ts", "type", "perdure:salt")]
    model = f" for {entry.model}" if isinstance(entry.model, str) else ""
    return f"settings{model}: {', '.join(sorted(names))}"


def _run(entry: RunEntry) -> str:
    if entry.phase == "start":
        return f"run {entry.run_id} starts from {entry.source}" + _ref(entry.ref)
    waits = f", waiting: {', '.join(entry.pending)}" if entry.pending else ""
    return f"run {entry.run_id} ends: {entry.reason}" + _ref(entry.ref) + waits


def _ref(ref: str) -> str:
    return f" ({ref})" if ref else ""


def _dispatch(entry: DispatchEntry) -> str:
    effect = f", effect {entry.effect}" if entry.effect else ""
    return f"dispatch of {entry.call_id}{effect}"


def _decision(entry: DecisionEntry) -> str:
    by = f" by {entry.by}" if entry.by else ""
    return f"decision on {entry.call_id}: {entry.verdict}{by}" + _ref(entry.reason)
