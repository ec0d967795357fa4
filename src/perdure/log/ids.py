"""Ids: what an entry is called is a hash of what it says.

*content hash*: of the body, everything but `id`, `type`, `parent`, `parents` and `ts`.
*entry id*: of the type, the parents, the time and the content hash. Two entries of one id are one
entry. Both are taken over canonical JSON, as the source line has it and never as our model does.
"""

from __future__ import annotations

import hashlib
import uuid

import msgspec

from perdure.clock import Clock, Ids

ENVELOPE = ("id", "type", "parent", "parents", "ts")
"""The members of an entry that are not its body."""

PREFIX = "sha256:"

_NIL = uuid.UUID(int=0)


def digest(raw: bytes) -> str:
    """`sha256:` and the hash of bytes."""
    return PREFIX + hashlib.sha256(raw).hexdigest()


def text_hash(text: str) -> str:
    """The hash by which a part of the instructions is named."""
    return digest(text.encode())


class ParentRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry that another converges: provenance, never walked."""

    entry: str
    session: str = ""
    """Empty for an entry of the same session."""


class _Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an id is the hash of; the members stand in canonical order."""

    content: str
    parent: str | None
    parents: tuple[ParentRef, ...] = ()
    ts: str
    type: str


_encode = msgspec.json.Encoder().encode


def entry_id(
    type: str,  # noqa: A002 - the format's own name
    parent: str | None,
    parents: tuple[ParentRef, ...],
    ts: str,
    content: str,
) -> str:
    """The id of an entry from its envelope and its content hash.

    Raises:
        UnicodeEncodeError: The type or the time holds a lone surrogate.
    """
    return digest(
        _encode(_Envelope(content=content, parent=parent, parents=parents, ts=ts, type=type))
    )


def new_session_id(clock: Clock, ids: Ids) -> str:
    """A fresh id for a root session: a UUIDv7."""
    random = int.from_bytes(hashlib.sha256(ids.new("session").encode()).digest()[:10])
    milliseconds = clock.wall() // 1_000_000
    number = milliseconds << 80 | 7 << 76 | (random >> 62 & 0xFFF) << 64 | 0b10 << 62
    return str(uuid.UUID(int=number | random & (1 << 62) - 1))


def subsession_id(parent_session: str, call_id: str, retry: int = 0) -> str:
    """The id of the session of a sub-agent: a UUIDv5 over the session and the call."""
    name = f"{parent_session}/{call_id}" + (f"/{retry}" if retry else "")
    return str(uuid.uuid5(_NIL, name))
