"""What every wire value is made of.

A wire value is a frozen record with exactly the member names of the Open Responses specification.
*Absent* is not null: a member that the source did not have is `ABSENT`, one that was null is None.
*Kept* is what a decoded value holds beside its typed members, so that encoding loses nothing:
members the type does not know, nulls where the type has none, and which required members were
missing.
*Source* is the exact bytes of a value whose type nobody registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, TypeVar

import msgspec

Absent: TypeAlias = msgspec.UnsetType
ABSENT = msgspec.UNSET

WireT = TypeVar("WireT", bound="Wire")

# A member name that no JSON may fill: values of these classes do not decode.
KEPT_NAME = "\x7fkept"


class Source:
    """The exact JSON text of a value, as it was given."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Source) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"Source({self.raw!r})"

    def value(self) -> object:
        """The source as Python values."""
        return msgspec.json.decode(self.raw)


class Kept:
    """What a decoded value holds beside its typed members.

    Attributes:
        members: Members without a typed place, each with its exact JSON text.
        absent: Required members the source did not have; the typed value is then its zero.
    """

    __slots__ = ("absent", "members")

    def __init__(self, members: Mapping[str, bytes], absent: frozenset[str]) -> None:
        self.members = dict(members)
        self.absent = absent

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Kept):
            return False
        return self.members == other.members and self.absent == other.absent

    def __hash__(self) -> int:
        return hash((frozenset(self.members.items()), self.absent))

    def __repr__(self) -> str:
        return f"Kept({self.members!r}, absent={sorted(self.absent)!r})"


class Wire(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    repr_omit_defaults=True,
):
    """The base of every wire value.

    Compare with `==`; change with `msgspec.structs.replace`, which keeps what is kept.
    """

    kept: Kept | Absent = msgspec.field(default=ABSENT, name=KEPT_NAME)

    @property
    def unknown(self) -> dict[str, object]:
        """The members that the type does not know, as Python values."""
        if not self.kept:
            return {}
        return {name: msgspec.json.decode(raw) for name, raw in self.kept.members.items()}


def with_unknown(value: WireT, members: Mapping[str, object]) -> WireT:
    """A copy of `value` that also carries `members`, which its type does not know.

    Members given here replace kept ones of the same name; typed members win over both.
    """
    kept = value.kept or Kept({}, frozenset())
    added = {name: msgspec.json.encode(member) for name, member in members.items()}
    return msgspec.structs.replace(value, kept=Kept({**kept.members, **added}, kept.absent))
