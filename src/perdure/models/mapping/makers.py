"""What one provider gets back and no other: marks, and values of its own types.

A *mark* is a member `perdure:NAME` that an adapter gave to an item or a part, so that its provider
gets back exactly what it said. Items, parts, tools and annotations of a type `PROVIDER:TYPE` hold
what only that provider knows.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from msgspec.structs import replace

from perdure.loop.config import PROVIDERS
from perdure.models.mapping.losses import Lost
from perdure.wire import ABSENT, Kept, Wire

MAKER = "perdure:provider"
"""The mark of a thought: who made it, and gets its signature back."""

REDACTED = "perdure:redacted"
"""The mark of a thought that its maker shows nothing of."""

_MARK = "perdure:"
_OF_ANOTHER = "a mark for the provider that made it"

WireT = TypeVar("WireT", bound=Wire)


def slug_of(type_: str) -> str:
    """Who a type belongs to: what stands before its colon."""
    return type_.partition(":")[0]


def is_makers(type_: str) -> bool:
    """Whether a type is one that the adapter of a provider gives and takes back."""
    return slug_of(type_) in PROVIDERS and ":" in type_


def is_mark(name: str) -> bool:
    """Whether a member is a mark."""
    return name.startswith(_MARK)


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
