"""What values carry beside what their types know: unknown members, marks, a provider's types.

What a *mark* is, and which there are, stands in `perdure.wire.marks`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from perdure.loop.config import PROVIDERS
from perdure.models.mapping.losses import Lost
from perdure.wire import (
    ABSENT,
    Kept,
    UnknownAnnotation,
    UnknownItem,
    UnknownPart,
    UnknownTool,
    UnknownToolChoice,
    Wire,
)
from perdure.wire.jsontext import members_of, text_of_raw
from perdure.wire.marks import is_mark, slug_of

_OF_ANOTHER = "a mark for the provider that made it"
_NOTHING: dict[str, bytes] = {}

WireT = TypeVar("WireT", bound=Wire)

Extension = UnknownItem | UnknownPart | UnknownAnnotation | UnknownTool | UnknownToolChoice

_encode = msgspec.json.Encoder().encode


def kept(value: Wire) -> Mapping[str, bytes]:
    """The members that the type of a value does not know, each with its JSON text."""
    return value.kept.members if value.kept else _NOTHING


def kept_object(value: Wire, name: str) -> dict[str, msgspec.Raw]:
    """A member that the type does not know, if it is an object: its members."""
    raw = kept(value).get(name)
    return members_of(raw) if raw is not None else {}


def kept_text(value: Wire, name: str) -> str | None:
    """A member that the type does not know, if it is a string."""
    return text_of_raw(kept(value).get(name))


def extension(value: Extension, maker: str, member: str) -> msgspec.Raw | None:
    """What an extension of a maker's holds in a member; None for one of somebody else's."""
    if not value.type.startswith(f"{maker}:"):
        return None
    return members_of(value.source.raw).get(member)


def as_unknown(members: Mapping[str, object]) -> Kept:
    """Members for the `kept` of a new value."""
    return Kept({name: _encode(member) for name, member in members.items()}, frozenset())


def report_unknown(
    value: Wire, lost: Lost, at: str = "", *, maker: str, own: Collection[str], cached: bool
) -> None:
    """Note the members that nobody here knows, and the marks of other makers.

    Args:
        value: What carries them.
        lost: Where they are noted.
        at: Where the value stands.
        maker: Who does not take them.
        own: The marks that it takes.
        cached: Whether a `cache_control` is taken.
    """
    report_marks(value, lost, at, own=own)
    for name, raw in kept(value).items():
        known = is_mark(name) or (cached and name == "cache_control")
        if not known and raw != b"null":
            lost.add(name, f"{maker} has no such member", f"{at}.{name}")


def is_makers(type_: str) -> bool:
    """Whether a type is one that the adapter of a provider gives and takes back."""
    return slug_of(type_) in PROVIDERS and ":" in type_


def report_marks(value: Wire, lost: Lost, at: str = "", *, own: Collection[str] = ()) -> None:
    """Note the marks of a value that its provider is not sent.

    Args:
        value: What carries them.
        lost: Where they are noted.
        at: Where the value stands.
        own: The marks that are sent, in one form or another.
    """
    for name in value.kept.members if value.kept else ():
        if is_mark(name) and name not in own:
            lost.add(name, _OF_ANOTHER, f"{at}.{name}")


def without_marks(value: WireT, lost: Lost, at: str = "") -> WireT:
    """A value without its marks, each of which is noted; the value itself if it has none."""
    if not value.kept or not any(map(is_mark, value.kept.members)):
        return value
    report_marks(value, lost, at)
    members = {name: raw for name, raw in value.kept.members.items() if not is_mark(name)}
    left = Kept(members, value.kept.absent) if members or value.kept.absent else ABSENT
    return replace(value, kept=left)
