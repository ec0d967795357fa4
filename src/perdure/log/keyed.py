"""Inputs with a key: what was said once, and what came of it, from the record alone.

A key is a member of the trigger of a keyed input. The *exchange* of a key are the drives from the
one that took the input to the first that finished, or up to the next input of somebody else.
"""

from __future__ import annotations

import dataclasses

from perdure.log.context import item_of
from perdure.log.drives import Drive
from perdure.log.entries import AnyEntry, ItemEntry, ResponseEntry
from perdure.log.path import View
from perdure.log.spend import own_spend, usage_of
from perdure.loop.spend import NO_SPEND, Spend
from perdure.loop.usage import NO_USAGE
from perdure.wire import FunctionCallOutput, Item, Usage

KEY = "perdure:key"
"""The member of a trigger that holds the key of an input."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What was said under a key, and what came of it."""

    run_id: str
    """The drive that took the input."""
    inputs: tuple[Item, ...]
    items: tuple[Item, ...]
    """What its drives added, the inputs first."""
    reason: str = ""
    """Of the drive that finished it, or of its last; empty if a crash cut that."""
    cause: str = ""
    turns: int = 0
    usage: Usage = NO_USAGE
    spend: Spend = NO_SPEND
    finished: bool = False
    superseded: bool = False
    """It did not finish, and somebody said something else since."""


def exchange_of(view: View, key: str) -> Exchange | None:
    """The exchange of a key; None if nothing was said under it."""
    found: list[AnyEntry] = []
    drives = {one.start.id: one for one in view.drives.all}
    drive: Drive | None = None
    before: list[AnyEntry] = []
    taken: Drive | None = None
    superseded = False
    for entry in view.path:
        if entry.id in drives:
            drive, before = drives[entry.id], []
            if taken is not None and _is_finished(taken):
                break
            taken = drive if taken is not None else None
        if taken is None and _key_of(entry) == key:
            taken, found = drive, [*before]
        elif taken is not None and _is_prompt(entry) and _key_of(entry) != key:
            superseded = True
            break
        (found if taken is not None else before).append(entry)
    return _exchange(found, key, taken, superseded=superseded) if found else None


def _exchange(found: list[AnyEntry], key: str, last: Drive | None, *, superseded: bool) -> Exchange:
    entries = [entry for entry in found if isinstance(entry, ItemEntry)]
    first = next((entry for entry in entries if _key_of(entry) == key), None)
    start = entries.index(first) if first is not None else 0
    entries = entries[start:]
    told = last.told if last is not None and last.end is not None else None
    responses = tuple(entry for entry in found if isinstance(entry, ResponseEntry))
    return Exchange(
        run_id=last.run_id if last is not None else "",
        inputs=tuple(item_of(entry.item) for entry in entries if _key_of(entry) == key),
        items=tuple(item_of(entry.item) for entry in entries),
        reason=told.reason if told is not None else "",
        cause=told.cause if told is not None else "",
        turns=len(responses),
        usage=usage_of(responses),
        spend=own_spend(found).spend(),
        finished=last is not None and _is_finished(last),
        superseded=superseded,
    )


def _is_finished(drive: Drive) -> bool:
    told = drive.told if drive.end is not None else None
    return told is not None and told.reason in ("done", "stopped")


def _key_of(entry: AnyEntry) -> str:
    source = entry.source if isinstance(entry, ItemEntry) else None
    return str((source or {}).get(KEY, ""))


def _is_prompt(entry: AnyEntry) -> bool:
    """Whether somebody said it, neither the model nor a tool nor a queue."""
    if not isinstance(entry, ItemEntry) or entry.response or entry.queued_from:
        return False
    return not isinstance(item_of(entry.item), FunctionCallOutput)
