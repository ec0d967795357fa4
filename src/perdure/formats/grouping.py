"""Which items become one message, and what says that they do not.

By a format's rules an item *joins* the message before it or begins another. A history that has it
otherwise is read with the mark `begins` on the first item of a message that would have joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from perdure.formats.marks import put
from perdure.formats.values import Json, member

K = TypeVar("K")


class Group(NamedTuple):
    """The items of one message.

    Attributes:
        joined: By the rules, they would belong to the message before; a mark says they do not.
    """

    first: int
    last: int
    joined: bool


class Rules(NamedTuple, Generic[K]):
    """How a format puts items into messages.

    Attributes:
        mark: The format's mark.
        kind: What an item is for this; None if it gives nothing, and goes wherever it stands.
        joins: Whether an item of one kind joins a message that one of another kind is last in.
    """

    mark: str
    kind: Callable[[Json], K | None]
    joins: Callable[[K, K], bool]


def groups(items: Sequence[Json], rules: Rules[K]) -> list[Group]:
    """The messages of a history."""
    starts: list[int] = []
    joined: list[bool] = []
    before: K | None = None
    for index, item in enumerate(items):
        kind = rules.kind(item)
        if kind is None:
            continue  # it goes with the message that is open, or else with the first
        joins = before is not None and rules.joins(before, kind)
        if not joins or member(item, rules.mark).get("begins") is True:
            starts.append(index if starts else 0)
            joined.append(joins)
        before = kind
    if items and not starts:
        starts, joined = [0], [False]
    ends = [*starts[1:], len(items)][: len(starts)]
    return [Group(*one) for one in zip(starts, ends, joined, strict=True)]


def joined_history(messages: Iterable[list[Json]], rules: Rules[K]) -> list[Json]:
    """The items of messages, marked so that each message stays one of its own."""
    items: list[Json] = []
    before: K | None = None
    for found in messages:
        kinds = [(item, kind) for item in found if (kind := rules.kind(item)) is not None]
        if kinds:
            first, kind = kinds[0]
            if before is not None and rules.joins(before, kind):
                put(first, rules.mark, begins=True)
            before = kinds[-1][1]
        items += found
    return items


def without_begin(items: list[Json], index: int, mark: str) -> list[Json]:
    """The items as they are read before anybody knows what stands before them."""
    own = {name: one for name, one in member(items[index], mark).items() if name != "begins"}
    item = {name: one for name, one in items[index].items() if name != mark}
    return [*items[:index], {**item, mark: own} if own else item, *items[index + 1 :]]
