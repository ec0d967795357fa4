"""Carriers: what a foreign message holds of items that its format cannot express.

A *carrier* is an element of a message's member `unsupported_content`: `original_type`, `data` and
`reason`, and `at`, a path into the items of the message. With `insert`, `data` is an element of the
list there; without, it holds members of the object there, and `absent` names some it does not have.
Two kinds have an empty path: `boundaries` says how many pieces of the content belong to each item,
and `items` holds the items whole, where nothing smaller would do. Carriers that somebody else made
have no path; they stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

from perdure.formats.values import Json, copied, is_array, is_object, objects, same

MEMBER = "unsupported_content"

BOUNDARIES = "boundaries"
ITEMS = "items"

Path = tuple[str | int, ...]


class Missing(NamedTuple):
    """What the content of a message has no piece for.

    Attributes:
        items: The places of items that gave nothing.
        parts: For an item that gave something, the places of parts that did not.
    """

    items: frozenset[int] = frozenset()
    parts: Mapping[int, Sequence[int]] = {}


class Reasons(NamedTuple):
    """Why things are carried.

    Attributes:
        maker: The name of the format.
        why: For a member or a type, why it is; the first that fits is given.
    """

    maker: str
    why: Mapping[str, str]


def own_and_others(message: Mapping[str, object]) -> tuple[list[Json], list[object]]:
    """The carriers of a message that are perdure's, and those that are somebody else's."""
    given = message.get(MEMBER)
    own: list[Json] = []
    others: list[object] = []
    for one in given if is_array(given) else []:
        if is_object(one) and is_array(one.get("at")) and "data" in one:
            own.append(one)
        else:
            others.append(one)
    return own, others


# --- making them ---------------------------------------------------------------------


def carry(
    message: Json,
    wanted: list[Json],
    missing: Missing,
    counts: Sequence[int],
    read: Callable[[Sequence[int] | None], list[Json]],
    *,
    reasons: Reasons,
) -> None:
    """Put the carriers into a message that its items need to be read back.

    Args:
        message: The message; carriers in it that are somebody else's stay.
        wanted: The items.
        missing: What the content has no piece for.
        counts: How many pieces of the content each of the other items gave.
        read: Reads the message, by the format's rules or by such counts, without its carriers.
        reasons: What the carriers give as their reasons.
    """
    _, others = own_and_others(message)
    made = _carriers(wanted, missing, counts, read, reasons)
    if made:
        message[MEMBER] = [*others, *made]
        if not same(restored(read, made), wanted):
            message[MEMBER] = _whole_items(wanted, reasons)


def _carriers(
    wanted: list[Json],
    missing: Missing,
    counts: Sequence[int],
    read: Callable[[Sequence[int] | None], list[Json]],
    reasons: Reasons,
) -> list[Json]:
    found = read(None)
    made: list[Json] = []
    if len(found) != len(counts):
        found = read(counts)
        made.append(_whole(BOUNDARIES, list(counts), "where one item ends and the next begins"))
    if len(found) != len(counts):
        return _whole_items(wanted, reasons)
    return made + _differences(found, wanted, missing, reasons)


def _whole_items(wanted: list[Json], reasons: Reasons) -> list[Json]:
    return [_whole(ITEMS, copied(wanted), f"{reasons.maker} has no such order")]


def _whole(kind: str, data: object, reason: str) -> Json:
    return {"original_type": kind, "data": data, "reason": reason, "at": []}


def _differences(
    found: list[Json], wanted: list[Json], missing: Missing, reasons: Reasons
) -> list[Json]:
    made: list[Json] = []
    rest = iter(found)
    for index, item in enumerate(wanted):
        if index in missing.items:
            made.append(_inserted(item, (index,), reasons))
            continue
        read = cast("Json", copied(next(rest)))
        name = "output" if "output" in item else "content"
        parts, content = read.get(name), item.get(name)
        if is_array(parts) and is_array(content):
            for place in missing.parts.get(index, ()):
                made.append(_inserted(content[place], (index, name, place), reasons))
                parts.insert(place, content[place])
        _compare(read, item, (index,), reasons, made)
    return made


def _inserted(value: object, at: Path, reasons: Reasons) -> Json:
    kind = value.get("type") if is_object(value) else None
    why = reasons.why.get(kind) if isinstance(kind, str) else None
    return {
        "original_type": kind,
        "data": copied(value),
        "reason": why or f"{reasons.maker} has no such type",
        "at": list(at),
        "insert": True,
    }


def _compare(read: Json, wanted: Json, at: Path, reasons: Reasons, made: list[Json]) -> None:
    """Note what reading gets wrong in an object and below it."""
    data: Json = {}
    for name, value in wanted.items():
        if name not in read:
            data[name] = value
            continue
        mine = read[name]
        if is_object(mine) and is_object(value):
            _compare(mine, value, (*at, name), reasons, made)
        elif _alike(mine, value):
            pairs = zip(objects(mine), objects(value), strict=True)
            for index, (one, other) in enumerate(pairs):
                _compare(one, other, (*at, name, index), reasons, made)
        elif not same(mine, value):
            data[name] = value
    absent = [name for name in read if name not in wanted]
    if not data and not absent:
        return
    why = next((why for name, why in reasons.why.items() if name in data), None)
    if not data:
        why = "the item does not have it"
    carrier: Json = {
        "original_type": wanted.get("type", read.get("type")),
        "data": copied(data),
        "reason": why or f"{reasons.maker} has no place for it",
        "at": list(at),
    }
    if absent:
        carrier["absent"] = absent
    made.append(carrier)


def _alike(one: object, other: object) -> bool:
    """Whether two values are lists of equally many objects."""
    if not (is_array(one) and is_array(other)):
        return False
    return len(one) == len(objects(one)) == len(other) == len(objects(other))


# --- reading them ----------------------------------------------------------------------


def restored(
    read: Callable[[Sequence[int] | None], list[Json]], given: Sequence[Json]
) -> list[Json]:
    """The items of a message whose content `read` reads, with what its carriers hold."""
    counts: list[int] | None = None
    for one in given:
        data = one["data"]
        if one.get("original_type") == ITEMS and not one["at"]:
            return cast("list[Json]", copied(data))
        if one.get("original_type") == BOUNDARIES and not one["at"] and is_array(data):
            counts = [count for count in data if isinstance(count, int)]
    items = cast("list[Json]", copied(read(counts)))
    for one in given:
        _apply(items, one)
    return items


def _apply(items: list[Json], carrier: Json) -> None:
    """Put back what a carrier holds; one whose place is gone is left out."""
    path = carrier["at"]
    if not is_array(path) or not path:
        return
    *way, last = path
    target: object = items
    for step in way if carrier.get("insert") else path:
        target = _step(target, step)
    data = copied(carrier["data"])
    if carrier.get("insert"):
        if is_array(target) and isinstance(last, int):
            target.insert(last, data)
    elif is_object(target) and is_object(data):
        target.update(data)
        absent = carrier.get("absent")
        for name in absent if is_array(absent) else []:
            if isinstance(name, str):
                target.pop(name, None)


def _step(target: object, step: object) -> object:
    if is_array(target) and isinstance(step, int) and 0 <= step < len(target):
        return target[step]
    if is_object(target) and isinstance(step, str):
        return target.get(step)
    return None
