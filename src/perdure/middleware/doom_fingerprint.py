"""Fingerprints: what makes two calls the same call.

*Key material* is any JSON value that stands for a call; by default its arguments. The fingerprint
of a call is the hex SHA-256 over its tool's name, a newline and the canonical JSON (RFC 8785) of
its key material; that of other material, over the JSON alone. Lone surrogates are escaped, as
`JSON.stringify` does, so that ports in other languages agree.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring as _quote
from typing import Literal, TypeAlias, cast

from perdure.errors import NotIJson
from perdure.wire.canonical import format_number

MAX_DEPTH = 64
"""How deep key material may be nested."""

LoopKey: TypeAlias = Literal[False] | tuple[str, ...] | Callable[[Mapping[str, object]], object]
"""What stands for the calls of a tool in place of their arguments: some members of these; what a
function makes of them, where None exempts a call; False exempts all."""


def fingerprint(key: object, tool: str | None = None) -> str:
    """The fingerprint of key material, for a call of `tool` or by itself.

    Raises:
        NotIJson: The material is nothing that canonical JSON can write, or nested too deeply.
    """
    text = _write(key, MAX_DEPTH)
    if tool is not None:
        text = f"{tool}\n{text}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _write(value: object, depth: int) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return _string(value)
        case int() | float():
            return _number(value)
        case _ if depth == 0:
            raise NotIJson("nested too deeply")
        case list() | tuple():
            elements = cast("tuple[object, ...]", value)
            return f"[{','.join([_write(one, depth - 1) for one in elements])}]"
        case Mapping():
            members = cast("Mapping[object, object]", value)
            names = sorted([_name(name) for name in members], key=_utf16)
            return (
                "{"
                + ",".join(
                    [f"{_string(name)}:{_write(members[name], depth - 1)}" for name in names]
                )
                + "}"
            )
        case _:
            raise NotIJson(f"{type(value).__name__} is no JSON value")


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise NotIJson(f"a member is named {name!r}, which is no string")
    return name


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def _string(text: str) -> str:
    quoted = _quote(text)
    if text.isascii():
        return quoted
    return "".join(f"\\u{ord(one):04x}" if 0xD800 <= ord(one) <= 0xDFFF else one for one in quoted)


def _number(number: float) -> str:
    try:
        double = float(number)
    except OverflowError:
        double = math.inf
    if not math.isfinite(double) or double != number:
        raise NotIJson(f"{number!r} is a number that no double holds")
    return format_number(double)


# --- the key of a call ------------------------------------------------------------------------


def call_fingerprint(
    tool: str, arguments: str, key: LoopKey | None, warn: Callable[[str], object]
) -> str | None:
    """The fingerprint of a call; None if it is exempt. It raises nothing.

    Args:
        tool: The tool's name.
        arguments: JSON text, as the model wrote it. What is no JSON object counts as its text.
        key: What stands for the arguments; they do themselves if this is None.
        warn: Told when `key` gives nothing that can be used; the arguments count then.
    """
    if key is False:
        return None
    members = _members(arguments)
    if members is None:
        return _or_text(tool, arguments)
    if key is None:
        return _or_text(tool, arguments, members)
    try:
        made = key(members) if callable(key) else _chosen(members, key)
        return None if made is None else fingerprint(made, tool)
    except Exception as error:  # noqa: BLE001 - a key function may raise anything
        warn(f"the loop key of {tool!r} cannot be used: {error!r}; its arguments are")
        return _or_text(tool, arguments, members)


def _chosen(members: Mapping[str, object], names: tuple[str, ...]) -> object:
    return {name: members[name] for name in names if name in members}


def _or_text(tool: str, arguments: str, members: Mapping[str, object] | None = None) -> str:
    if members is not None:
        try:
            return fingerprint(members, tool)
        except NotIJson:
            pass
    return fingerprint(arguments, tool)


def _members(arguments: str) -> Mapping[str, object] | None:
    """The arguments as an object; numbers are the doubles that JavaScript makes of them."""
    try:
        value: object = json.loads(arguments or "{}", parse_int=_double)
    except (ValueError, RecursionError):
        return None
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else None


def _double(text: str) -> float:
    return int(text) if len(text) <= 15 else float(text)
