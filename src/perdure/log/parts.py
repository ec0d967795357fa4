"""Instructions in parts, and the list of parts that were left out.

A delta lists every part in force after it. An element with an `id` is one part, with its `text` or
with the `hash` of a text it had before; `{keep: n}` hands back the next n parts in force. Which are
next a *cursor* tells: it starts at the first part, and naming one that is in force moves it behind
that one. What cannot be resolved stays as it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from perdure.log.entries import Json
from perdure.log.ids import text_hash

History: TypeAlias = Mapping[str, Mapping[str, Json]]
"""Per part, what it was with each text it has had since the last new beginning, by their hashes."""

NO_HISTORY: History = {}

SEPARATOR = "\n\n"


class Resolved(NamedTuple):
    """A list with every element that could be resolved."""

    elements: tuple[Json, ...]
    unresolved: tuple[str, ...] = ()
    """What each of the other elements lacks."""


class _Cursor:
    """A place in a list in force."""

    def __init__(self, in_force: Sequence[Json]) -> None:
        self._in_force = in_force
        self._places: dict[str, int] = {}
        for place, element in enumerate(in_force):
            self._places.setdefault(_id(element), place)
        self._at = 0

    def take(self, count: int, explicit: frozenset[str]) -> Sequence[Json] | None:
        """The next elements; None if there are not as many, or one of them is named beside."""
        run = self._in_force[self._at : self._at + count]
        self._at += count
        if len(run) == count and not any(_id(element) in explicit for element in run):
            return run
        return None

    def named(self, part_id: str) -> Json | None:
        """The element of this id, if it is in force; the cursor moves behind it."""
        place = self._places.get(part_id)
        if place is None:
            return None
        self._at = place + 1
        return self._in_force[place]


def resolve_parts(delta: Sequence[Json], in_force: Sequence[Json], history: History) -> Resolved:
    """The parts in force after a delta."""
    explicit, cursor = _ids(delta), _Cursor(in_force)
    elements: list[Json] = []
    unresolved: list[str] = []
    for element in delta:
        count = _keep(element)
        if count:
            run = cursor.take(count, explicit)
            elements += [element] if run is None else run
            unresolved += ["no such run of parts"] if run is None else []
        elif part_id := _id(element):
            part = _part(element, cursor.named(part_id), history.get(part_id, {}))
            elements.append(element if part is None else part)
            unresolved += [f"no text of part {part_id!r} has this hash"] if part is None else []
        else:
            elements.append(element)
            unresolved.append("a part without an id")
    return Resolved(tuple(elements), tuple(unresolved))


def _part(element: Json, in_force: Json | None, was: Mapping[str, Json]) -> Json | None:
    if isinstance(element.get("text"), str):
        return element
    named = element.get("hash")
    if named is None:
        return {**element, "text": ""}
    before = was.get(str(named))
    if before is None:
        return None
    part = {name: value for name, value in element.items() if name != "hash"}
    source = part.get("source") or (in_force or before).get("source")
    return {**part, "text": before["text"]} | ({"source": source} if source else {})


def resolve_omitted(
    delta: Sequence[Json], in_force: Sequence[Json], lists: Mapping[str, Sequence[Json]]
) -> Resolved:
    """The list of left out parts after a delta.

    Args:
        delta: What a config entry says.
        in_force: The list before it.
        lists: What earlier config entries left in force, for a run `of` one of them.
    """
    explicit = _ids(delta)
    cursors = {"": _Cursor(in_force)}
    elements: list[Json] = []
    unresolved: list[str] = []
    for element in delta:
        count, of = _keep(element), str(element.get("of", ""))
        if not count:
            elements.append(element)
            for cursor in cursors.values():
                cursor.named(_id(element))
            if not _id(element):
                unresolved.append("a left out part without an id")
            continue
        if of and of not in lists:
            elements.append(element)
            unresolved.append(f"no config entry {of!r} stands before it")
            continue
        if of not in cursors:
            cursors[of] = _Cursor(lists[of])
        run = cursors[of].take(count, explicit)
        elements += [element] if run is None else run
        unresolved += ["no such run of left out parts"] if run is None else []
    return Resolved(tuple(elements), tuple(unresolved))


def join_parts(parts: Iterable[Json]) -> str:
    """The instructions that parts make."""
    return SEPARATOR.join(str(part["text"]) for part in parts if "text" in part)


def remember(history: History, parts: Iterable[Json]) -> History:
    """The history with the texts of `parts`."""
    grown = dict(history)
    for part in parts:
        part_id, text = _id(part), part.get("text")
        if part_id and isinstance(text, str):
            grown[part_id] = {**grown.get(part_id, {}), text_hash(text): part}
    return grown


def _ids(delta: Iterable[Json]) -> frozenset[str]:
    return frozenset(filter(None, map(_id, delta)))


def _id(element: Json) -> str:
    found = element.get("id")
    return found if isinstance(found, str) else ""


def _keep(element: Json) -> int:
    """How many parts the element hands back; 0 if it is no such element."""
    count = element.get("keep")
    if isinstance(count, bool) or not isinstance(count, int) or _id(element):
        return 0
    return max(count, 0)
