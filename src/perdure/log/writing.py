"""Making entries: a draft, sealed under its parent, is an entry with an id."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec
from msgspec import Raw

from perdure.clock import Ids
from perdure.errors import EntryRefused, NotIJson
from perdure.log.entries import ERASED, SALT, AnyEntry, decode_entry
from perdure.log.ids import ENVELOPE, ParentRef, digest, entry_id
from perdure.log.normalise import normalise

RESERVED = frozenset((*ENVELOPE, "content"))
"""Names that no member of a body may have."""

NORMALISED = "normalised"


class Draft:
    """An entry that has no parent yet. Others name it by the draft itself (LOG 1.7)."""

    __slots__ = ("body", "id", "parents", "type")

    def __init__(
        self,
        type: str,  # noqa: A002 - the format's own name
        body: Mapping[str, object],
        *,
        parents: tuple[ParentRef, ...] = (),
    ) -> None:
        self.type = type
        self.body = dict(body)
        """JSON values; `msgspec.Raw` for JSON text; a draft for the id it will have."""
        self.parents = parents
        self.id = ""
        """Empty until it is sealed."""

    def __repr__(self) -> str:
        return f"Draft({self.type!r}, {self.body!r})"


def salted(draft: Draft, ids: Ids) -> Draft:
    """The draft, with a salt if its body could be guessed from its hash (LOG 7)."""
    if SALT not in draft.body and _tells_something(draft):
        draft.body[SALT] = ids.new("")
    return draft


_STRUCTURE: Mapping[str, frozenset[str]] = {
    "dispatch": frozenset({"perdure:principal"}),
    "label": frozenset(),
    "link": frozenset(),
    "run": frozenset({"ref", "trigger"}),
    "decision": frozenset(
        {
            "reason",
            "args",
            "perdure:who",
            "perdure:evidence",
            "perdure:wait",
            "perdure:approval",
            "perdure:principal",
        }
    ),
    "response": frozenset({"error"}),
    "perdure:spend": frozenset(),
}
"""Of the types whose members say nothing of a user, those members that do."""


def _tells_something(draft: Draft) -> bool:
    content = _STRUCTURE.get(draft.type)
    return content is None or not content.isdisjoint(draft.body)


def seal(draft: Draft, parent: str | None, ts: str) -> AnyEntry:
    """The entry of a draft; the draft gets its id.

    Raises:
        EntryRefused: A member has a name that belongs to the envelope, or the draft names another
            that was not sealed.
        NotIJson: The body holds what no JSON can, named by its path.
    """
    if not RESERVED.isdisjoint(draft.body):
        taken = min(RESERVED.intersection(draft.body))
        raise EntryRefused(f"a body must not have a member {taken!r}")
    members, content = _body(draft.body)
    parents = tuple(sorted(draft.parents, key=_place)) if draft.parents else ()
    draft.id = entry_id(draft.type, parent, parents, ts, content)
    members["id"], members["parent"] = draft.id, parent
    members["ts"], members["type"] = ts, draft.type
    if parents:
        members["parents"] = parents
    return decode_entry(_line(members))


def _place(ref: ParentRef) -> tuple[str, str]:
    return ref.session, ref.entry


def _body(body: dict[str, object]) -> tuple[dict[str, object], str]:
    """The members of a body, each as msgspec is to write it, and the content hash.

    What need not change keeps its spelling.
    """
    plain = _plain_members(body)
    source = _plain_text(plain) or json_text(body)
    text, changes = normalise(source)
    if NORMALISED in body and changes:
        raise EntryRefused(f"the body has a member {NORMALISED!r} already")
    if changes:
        members = msgspec.json.decode(text, type=dict[str, Raw])
        noted = {**members, NORMALISED: Raw(msgspec.json.encode(changes))}
        source = text = normalise(msgspec.json.encode(noted)).text
    elif b"\n" in source or b"\r" in source:
        source = text
    elif plain is not None:
        return plain, digest(text)
    return dict(msgspec.json.decode(source, type=dict[str, Raw])), digest(text)


def _line(members: Mapping[str, object]) -> bytes:
    if "".join(members).isascii():
        return _SORTED.encode(members)
    return msgspec.json.encode({name: members[name] for name in sorted(members, key=_utf16)})


_SORTED = msgspec.json.Encoder(order="sorted")


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be")


# --- values as JSON text -------------------------------------------------------------


def json_text(value: object) -> bytes:
    """A value as JSON text, exact: no number rounded, a lone surrogate as its escape.

    Raises:
        NotIJson: A part of it is of no JSON type, or not a finite number; the path says where.
        EntryRefused: It names a draft that was not sealed.
    """
    return _plain_text(_plain_members(value)) or "".join(_pieces(value, "")).encode()


def _plain_members(value: object) -> dict[str, object] | None:
    """The members of an object, if msgspec writes each of them as it is."""
    if not isinstance(value, dict):
        return None
    members: dict[str, object] = {}
    for name, member in cast("dict[str, object]", value).items():
        written = member
        if isinstance(member, Draft) and member.id:
            written = member.id
        elif type(member) not in _PLAIN or type(name) is not str:
            return None
        elif isinstance(member, Raw) and _is_padded(member):
            return None  # in a line, no white space stands around what is a member
        members[name] = written
    return members


def _is_padded(raw: Raw) -> bool:
    text = bytes(raw)
    return text[:1] <= b" " or text[-1:] <= b" "


def _plain_text(members: Mapping[str, object] | None) -> bytes:
    """Members as msgspec writes them; empty if they are not plain."""
    if members is None:
        return b""
    try:
        return msgspec.json.encode(members)
    except UnicodeEncodeError:  # a lone surrogate
        return b""


_PLAIN = frozenset({str, Raw, bool, int, type(None)})
"""Types of members that msgspec writes as they are."""


_quote = json.encoder.encode_basestring_ascii


def _pieces(value: object, path: str) -> list[str]:
    match value:
        case None:
            return ["null"]
        case bool():
            return ["true" if value else "false"]
        case str():
            return [_string(value)]
        case int():
            return [str(value)]
        case float():
            if not math.isfinite(value):
                raise NotIJson(f"{value!r} is not a number that JSON has", path=path)
            return [repr(value)]
        case Raw():
            return [bytes(value).decode()]
        case Draft():
            if not value.id:
                raise EntryRefused(f"{path}: the entry it names is not written yet")
            return [_string(value.id)]
        case Mapping():
            return _object(cast("Mapping[object, object]", value), path)
        case list() | tuple():
            return _array(cast("Sequence[object]", value), path)
        case _:
            raise NotIJson(f"{type(value).__name__!r} is not a JSON type", path=path)


def _string(text: str) -> str:
    try:
        return msgspec.json.encode(text).decode()
    except UnicodeEncodeError:
        return _quote(text)


def _object(value: Mapping[object, object], path: str) -> list[str]:
    pieces: list[str] = []
    for name, member in value.items():
        if type(name) is not str:
            raise NotIJson(f"the member name {name!r} is not a string", path=path)
        pieces += [",", _string(name), ":", *_pieces(member, f"{path}/{name}")]
    return ["{", *pieces[1:], "}"]


def _array(value: Sequence[object], path: str) -> list[str]:
    pieces: list[str] = []
    for index, element in enumerate(value):
        pieces += [",", *_pieces(element, f"{path}/{index}")]
    return ["[", *pieces[1:], "]"]


# --- erasing -----------------------------------------------------------------------------


def erased_line(line: bytes) -> bytes:
    """What stands for a line whose body is erased: its envelope and its content hash (LOG 7)."""
    members = msgspec.json.decode(line, type=dict[str, Raw])
    if ERASED in members:
        return line
    envelope = {name: members.pop(name) for name in ENVELOPE if name in members}
    content = digest(normalise(msgspec.json.encode(members)).text)
    return msgspec.json.encode({**envelope, ERASED: content})
