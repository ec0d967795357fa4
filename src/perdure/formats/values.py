"""JSON values as conversions handle them: items as plain objects, and what differs between two."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TypeGuard, cast

import msgspec

from perdure.errors import DecodeError
from perdure.wire import Item, decode_items, encode
from perdure.wire.jsontext import loads

Json = dict[str, object]
"""A JSON object."""


def is_object(value: object) -> TypeGuard[Json]:
    """Whether a value is a JSON object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[object]]:
    """Whether a value is a JSON array."""
    return isinstance(value, list)


def objects(value: object) -> list[Json]:
    """The elements of a list that are objects; none of what is no list."""
    return [one for one in value if is_object(one)] if is_array(value) else []


def member(value: Mapping[str, object], name: str) -> Json:
    """A member that is an object; an empty one if it is none."""
    found = value.get(name)
    return found if is_object(found) else {}


def text(value: Mapping[str, object], name: str) -> str:
    """A member that is a string; empty if it is none."""
    found = value.get(name)
    return found if isinstance(found, str) else ""


def copied(value: object, path: str = "") -> object:
    """A deep copy, with tuples as lists.

    Raises:
        DecodeError: It holds what JSON does not.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if value - value != 0:
            raise DecodeError(f"{value!r} is no JSON number", path=path)
        return value
    if isinstance(value, Mapping):
        found: Json = {}
        for name, one in cast("Mapping[object, object]", value).items():
            if not isinstance(name, str):
                raise DecodeError(f"a member is named {name!r}, which is no string", path=path)
            found[name] = copied(one, f"{path}.{name}")
        return found
    if isinstance(value, list | tuple):
        elements = cast("Iterable[object]", value)
        return [copied(one, f"{path}[{index}]") for index, one in enumerate(elements)]
    raise DecodeError(f"{type(value).__name__} is no JSON value", path=path)


def same(one: object, other: object) -> bool:
    """Whether two JSON values are equal. True is not 1; 1.0 is."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(same(v, other[k]) for k, v in one.items())
    if is_array(one) and is_array(other):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def is_message(item: Json) -> bool:
    """Whether an item is a message; one that has a role may have no type."""
    return item.get("type", "message") == "message" and isinstance(item.get("role"), str)


def plain(items: Iterable[Item]) -> list[Json]:
    """Items as objects."""
    return [cast("Json", loads(encode(item))) for item in items]


def typed(items: list[Json]) -> tuple[Item, ...]:
    """Objects as items."""
    return decode_items(compact(items))


def compact(value: object) -> str:
    """JSON text without white space.

    Lone surrogates and numbers of any size are written as they are; nothing here is hashed.
    """
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):
        return json.dumps(value, separators=(",", ":"))  # noqa: TID251 - msgspec refuses these


def parsed_object(source: str) -> Json | None:
    """The JSON object of a text; None if it is none."""
    try:
        value = loads(source.encode())
        copied(value)
    except (DecodeError, UnicodeEncodeError):
        return None
    return value if is_object(value) else None
