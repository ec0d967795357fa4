"""The bodies that a recorder writes, and what is owed the queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw

from perdure.errors import BudgetExceeded, Guard
from perdure.log.entries import MESSAGE, SALT, Json
from perdure.log.path import View
from perdure.log.recorded_requests import trigger_json
from perdure.log.settings import Settings
from perdure.log.writing import Draft
from perdure.loop import Compaction, Hidden, Limits, Provenance, RunEnd, ToolEnd, Trigger, unhide
from perdure.tools import ToolResult
from perdure.wire import FunctionCallOutput, Item, encode, function_call_output
from perdure.wire.marks import is_mark

HIDDEN_ITEM = "perdure:response_id"
"""Marks, in a custom entry, an item that no model is shown; with the response it belongs to."""

CUT = {"reason": "cut"}
"""What a response that broke off says of itself: it is no answer."""

AGAIN = "perdure:again"


class Owed(NamedTuple):
    """A queued input that no item has taken up yet."""

    body: Json
    entry: Draft | str

    def again(self) -> Owed:
        """The same once more, for readers that take it for closed by the end of the drive."""
        body = {name: value for name, value in self.body.items() if name not in (SALT, AGAIN)}
        return Owed(body, Draft("queued", {**body, AGAIN: self.entry}))


def raw_body(value: msgspec.Struct | None | msgspec.UnsetType) -> Raw | None:
    """A wire value as a body holds it; None if it is not there."""
    return Raw(encode(value)) if value else None  # type: ignore[arg-type]


def original_output(event: ToolEnd) -> FunctionCallOutput:
    """The output as the tool gave it; the entry says what had to change of it."""
    original = event.result.original if event.result is not None else None
    if event.output is not None and original is None:
        return event.output
    return function_call_output(event.call_id, "" if original is None else original)


def committed_draft(call: Json, result: ToolResult, *, early: bool) -> Draft:
    """What is written with a transactional tool's effect: its output, or a result before its place.

    Args:
        call: The members that name the call.
        result: What its function gave.
        early: The outputs of calls before it are not known yet (DESIGN 6.7).
    """
    given = result.output if result.original is None else result.original
    output = Raw(encode(function_call_output(str(call["call_id"]), given)))
    if early:
        return Draft("perdure:result", {**call, "output": output})
    body: Json = {"item": output}
    return Draft("item", {**body, "perdure:terminate": True} if result.terminate else body)


def failure_draft(call: Json, event: ToolEnd) -> Draft:
    """What says that a call of a saga failed; written before its output."""
    phase = "tripped" if event.trips else "failed"
    body: Json = {"phase": phase, **call, "cause": f"{event.name} failed: {event.error}"}
    if event.gave is not None:
        body["output"] = Raw(encode(event.gave))
    return Draft("perdure:saga", body)


def compaction_draft(compaction: Compaction, first_kept: Draft | str, settings: Settings) -> Draft:
    """What a compaction folds, with a checkpoint of the settings in force."""
    made = {
        "model": compaction.model,
        "response_id": compaction.response_id,
        "request_hash": compaction.request_hash,
    }
    optional: Json = {
        "pinned": [Raw(encode(item)) for item in compaction.pinned],
        "tokens_before": compaction.tokens_before,
        "usage": raw_body(compaction.usage),
        "fold": {name: value for name, value in made.items() if value},
    }
    body: Json = {
        "first_kept": first_kept,
        "summary": Raw(encode(compaction.summary)),
        "config": settings.as_json(),
        **{name: value for name, value in optional.items() if value},
    }
    return Draft("compaction", body)


def hidden_item(item: Item, response: str) -> Draft:
    """An item that no model is shown."""
    own = not item.type or is_mark(item.type)  # whoever made it, an entry of perdure's it is not
    kind = "perdure:item" if own else item.type
    return Draft("custom", {"ns": kind, "data": Raw(encode(item)), HIDDEN_ITEM: response})


def input_draft(
    given: Item | Hidden, keep: Callable[[Item], bool], trigger: Trigger | None = None
) -> Draft:
    """An item that the model did not make."""
    item, hidden = unhide(given)
    draft = Draft("item", {"item": Raw(encode(item))}) if keep(item) else hidden_item(item, "")
    if hidden:
        draft.body["visible"] = False
    if trigger is not None:
        draft.body["source"] = trigger_body(trigger)
    return draft


def trigger_body(trigger: Trigger) -> Json:
    """A trigger, its extras as members."""
    members = {"kind": trigger.kind, "ref": trigger.ref, "source": trigger.source}
    return {**trigger_json(members), **trigger.extra}


def message_body(said: Provenance) -> Json:
    """What an entry says of the inbox message that it came of."""
    return {MESSAGE: said.message} if said.message else {}


def owed_draft(run_id: str, entries: Sequence[Draft | str]) -> Draft:
    """What the end of a drive says it still owes its queues (LOG 4.4)."""
    return Draft("perdure:owed", {"run_id": run_id, "queued": list(entries)})


def told_draft(event: RunEnd) -> Draft:
    """What the loop says of an end (LOG 4.3)."""
    body: Json = {"run_id": event.run_id, "reason": event.reason}
    if event.cause:
        body["cause"] = event.cause
    if event.cause == "budget" and isinstance(event.error, BudgetExceeded):
        body |= needs_of(event.error)
    return Draft("perdure:end", body)


def limits_body(limits: Limits) -> Json:
    """Limits as the start of a drive holds them."""
    body: Json = {
        "tokens": limits.tokens,
        "cost": None if limits.usd is None else f"{limits.usd:f}",
        "turns": limits.turns,
        "seconds": limits.seconds,
        "output": limits.output,
        "prices": [dict(row) for row in limits.prices] or None,
    }
    return {name: limit for name, limit in body.items() if limit is not None}


def needs_of(error: BudgetExceeded) -> Json:
    """The limit under which a request could be sent that a budget refused."""
    needed = error.needed if isinstance(error.needed, int) else str(error.needed)
    needs: Json = {"needs": {error.what: needed}}
    return {**needs, "above": error.above} if error.above else needs


def run_end_draft(event: RunEnd, view: View) -> Draft:
    """The end as the format has it, from core entries alone (LOG 4.3)."""
    pending: Sequence[str] = ()
    reason = "aborted"
    if view.drives.open is not None:
        pending, reason = view.drives.verdict(view.drives.open, view.calls)
    standing = {"error": "error", "aborted": "interrupted"}.get(event.reason, reason)
    ref: str = event.cause or ""
    if event.error is not None and not isinstance(event.error, Guard):
        ref = str(event.error)
    body: Json = {
        "run_id": event.run_id,
        "phase": "end",
        "reason": standing,
        "pending": list(pending),
    }
    return Draft("run", {**body, "ref": ref} if ref else body)
