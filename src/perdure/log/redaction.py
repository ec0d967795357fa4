"""The redacted projection: a session without some of its bodies, as the format lets it travel.

What stands in a file must hash to its id, so a body cannot just go: it is replaced by what is left
of its structure, every id behind it is computed anew, and the header says `redacted`. Such a
session can be read; it is continued by nobody and imported nowhere. Stores that keep a content hash
apart from the body leave ids as they are (LOG 7), and are exported like this.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw

from perdure.log.entries import ERASED, MESSAGE, Json
from perdure.log.header import Header, decode_header
from perdure.log.ids import ENVELOPE, ParentRef, digest, entry_id
from perdure.log.normalise import normalise
from perdure.log.writing import json_text

REDACTED = "perdure:redacted"
"""Stands in a body that was replaced, with the content hash of the one that was there."""

_HASH = re.compile(rb'"(sha256:[0-9a-f]{64})"')

_STRUCTURE: Mapping[str, frozenset[str]] = {
    "item": frozenset(
        {"response", "visible", "queued_from", "perdure:model_call_id", "perdure:terminate"}
    ),
    "queued": frozenset({"mode", "visible", "perdure:queue_id", "perdure:again"}),
    "response": frozenset(
        {
            "response_id",
            "model",
            "status",
            "usage",
            "incomplete",
            "attempts",
            "perdure:settled",
            "perdure:reserved",
        }
    ),
    "decision": frozenset({"call_id", "target", "verdict", "by", "perdure:suspended"}),
    "run": frozenset(
        {"run_id", "phase", "source", "reason", "pending", "config_base", "perdure:budget"}
    ),
    "dispatch": frozenset({"call_id", "target", "idempotency_key", "perdure:effect"}),
    "label": frozenset({"target", "label", "synthetic"}),
    "link": frozenset({"rel", "session", "call_id"}),
    "compaction": frozenset({"first_kept", "tokens_before", "usage"}),
    "branch_summary": frozenset({"from", "usage"}),
    "custom": frozenset({"ns", "call_id"}),
    "perdure:spend": frozenset({"model", "tokens", "usd", "came", "estimated", "session", "spend"}),
    "perdure:owed": frozenset({"run_id", "queued"}),
}
"""Of each type, the members that say nothing of what was said."""

_ANY = frozenset({"call_id", "target", "run_id", "phase", "status", MESSAGE})

_ITEM = frozenset({"type", "id", "call_id", "name", "role", "status"})

_EMPTY: Mapping[str, Json] = {
    "message": {"content": []},
    "function_call": {"arguments": "{}"},
    "function_call_output": {"output": ""},
}


class Projected(NamedTuple):
    """A session without some of its bodies."""

    header: Header
    lines: tuple[bytes, ...]
    ids: Mapping[str, str]
    """The id that each entry has now, by the one it had."""


def redacted(header: Header, lines: Sequence[bytes], entries: Collection[str] = ()) -> Projected:
    """The projection of a session in which bodies are gone.

    Args:
        header: Its header.
        lines: Its entries.
        entries: The ids of those whose bodies are to go, beside those that are gone already.
    """
    ids: dict[str, str] = {}
    projected: list[bytes] = []
    changed = header.redacted
    for line in lines:
        members = msgspec.json.decode(line, type=dict[str, Raw])
        doomed = ERASED in members or _text(members.get("id")) in entries
        changed = changed or doomed
        known = _text(members.get("id"))
        ids[known], text = _projected(members, ids, doomed=doomed) if changed else (known, line)
        projected.append(text)
    return Projected(_header(header, ids), tuple(projected), ids)


def _header(header: Header, ids: Mapping[str, str]) -> Header:
    members = msgspec.json.decode(header.line, type=dict[str, Raw])
    told: dict[str, object] = {**members, "redacted": True}
    if header.base:
        told["base"] = ids.get(header.base, header.base)
    return decode_header(json_text(told))


def _projected(
    members: Mapping[str, Raw], ids: Mapping[str, str], *, doomed: bool
) -> tuple[str, bytes]:
    """The id that an entry has now, and its line."""
    kind = _text(members.get("type"))
    body = {name: value for name, value in members.items() if name not in ENVELOPE}
    gone = _text(body.pop(ERASED, None)) or digest(normalise(msgspec.json.encode(body)).text)
    if doomed:
        body = {**_left(kind, body), REDACTED: Raw(msgspec.json.encode(gone))}
    body.pop("request_hash", None)  # it is the hash of what is not there any more
    body = {name: _renamed(value, ids) for name, value in body.items()}
    parent = msgspec.json.decode(members.get("parent", Raw(b"null")), type=str | None)
    parent = ids.get(parent, parent) if parent is not None else None
    refs = msgspec.json.decode(members.get("parents", Raw(b"[]")), type=tuple[ParentRef, ...])
    parents = tuple(
        ref if ref.session else ParentRef(entry=ids.get(ref.entry, ref.entry)) for ref in refs
    )
    parents = tuple(sorted(parents, key=lambda ref: (ref.session, ref.entry)))
    ts = _text(members.get("ts"))
    content = digest(normalise(msgspec.json.encode(body)).text)
    name = entry_id(kind, parent, parents, ts, content)
    envelope: dict[str, object] = {"type": kind, "id": name, "parent": parent, "ts": ts}
    if parents:
        envelope["parents"] = parents
    return name, msgspec.json.encode({**envelope, **body})


def _renamed(value: Raw, ids: Mapping[str, str]) -> Raw:
    """JSON text in which entries have their new names."""

    def name(found: re.Match[bytes]) -> bytes:
        known = found.group(1).decode()
        return msgspec.json.encode(ids.get(known, known))

    return Raw(_HASH.sub(name, bytes(value)))


# --- what is left of a body --------------------------------------------------------------


def _left(kind: str, body: Mapping[str, Raw]) -> dict[str, Raw]:
    kept = _STRUCTURE.get(kind, frozenset()) | _ANY
    left = {name: value for name, value in body.items() if name in kept}
    for name in ("item", "summary"):
        if name in body:
            left[name] = _shell(body[name])
    if "pinned" in body:
        pinned = msgspec.json.decode(body["pinned"], type=list[Raw])
        left["pinned"] = Raw(msgspec.json.encode([_shell(item) for item in pinned]))
    if kind == "decision" and "reason" in body:
        left["reason"] = Raw(b'"redacted"')  # a rejection needs one
    if kind == "response" and "error" in body:
        left["error"] = Raw(b'{"message":"redacted"}')  # it failed all the same
    if kind == "custom":
        left["data"] = Raw(b"null")
    return left


def _shell(item: Raw) -> Raw:
    """What is left of an item: enough to know what it was, and of which call."""
    try:
        members = msgspec.json.decode(item, type=dict[str, Raw])
    except msgspec.DecodeError:
        members = {}
    kind = _text(members.get("type"))
    if kind not in _EMPTY:
        return Raw(msgspec.json.encode({"type": REDACTED}))
    kept = {name: value for name, value in members.items() if name in _ITEM}
    return Raw(msgspec.json.encode({**kept, **_EMPTY[kind]}))


def _text(value: Raw | None) -> str:
    if value is None:
        return ""
    found = msgspec.json.decode(value)
    return found if isinstance(found, str) else ""
