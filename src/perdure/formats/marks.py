"""Marks: what items carry of the form that a foreign history had.

`perdure:FORMAT` on an item or a part is an object of that format's. One of its members is common:
`without` names members that the rules would write though the source had none.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from perdure.formats.values import Json, is_array, member, same


class Difference(NamedTuple):
    """How what the rules write differs from what was there.

    Attributes:
        changed: Members that the rules do not write, or not so.
        without: Members that only the rules write.
    """

    changed: Json
    without: list[object]


def difference(made: Json, wanted: Json, ignored: Collection[str] = ()) -> Difference:
    """What the rules get wrong."""
    changed = {
        name: one
        for name, one in wanted.items()
        if name not in ignored and (name not in made or not same(made[name], one))
    }
    return Difference(changed, [name for name in made if name not in wanted])


def put(value: Json, mark: str, **members: object) -> None:
    """Add members to a mark, but for empty ones."""
    given = {name: one for name, one in members.items() if one}
    if given:
        value[mark] = {**member(value, mark), **given}


def kept(value: Json, mark: str, made: Json) -> Json:
    """What the rules write for a value, without what its mark says was not there."""
    without = member(value, mark).get("without")
    names = without if is_array(without) else []
    return {name: one for name, one in made.items() if name not in names}
