"""The arguments of a call: JSON text that a model wrote, read strictly.

A model is told what is wrong and where, so that it can do better: `invalid arguments:
items[2].name: expected string, got integer`. Whatever is wrong in more than one place, the first
error is the same each time. The *digest* of arguments names their value, whatever their spelling.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import NoReturn, cast

from perdure.errors import InvalidArguments
from perdure.tools.values import Json, Number, element, kind_of, member, plain
from perdure.wire.canonical import format_number

NO_ARGUMENTS = "{}"


def parse_arguments(text: str, *, required: bool) -> dict[str, Json]:
    """The members of an arguments object.

    Args:
        text: What the model wrote; empty means `{}` where nothing is required.
        required: Whether some member is required.

    Raises:
        InvalidArguments: It is not one JSON object, a member stands twice, or a string has a lone
            surrogate.
    """
    if not text:
        if required:
            raise InvalidArguments("expected a JSON object, got nothing")
        return {}
    value = _parse(text)
    if not isinstance(value, dict):
        raise InvalidArguments(f"expected a JSON object, got {_a(kind_of(value))}")
    if "\\u" in text or not text.isascii():
        _refuse_surrogates(value)
    return value


def parse_value(text: str) -> Json:
    """Any JSON value, read as strictly as arguments are.

    Raises:
        InvalidArguments: It is no JSON text, a member stands twice, or a string has a lone
            surrogate.
    """
    value = _parse(text)
    if "\\u" in text or not text.isascii():
        _refuse_surrogates(value)
    return value


def plain_arguments(text: str) -> dict[str, object]:
    """The arguments as plain JSON values: whole numbers exact as int, others as float.

    Raises:
        InvalidArguments: They are not a JSON object, or one that is not to be trusted.
    """
    members = parse_arguments(text, required=False)
    return {name: plain(value, member("", name)) for name, value in members.items()}


def arguments_digest(text: str) -> str:
    """The SHA-256 of the arguments' value, as 64 hexadecimal digits.

    Equal for texts that differ in the order of members, white space, escapes and the spelling of
    numbers, and for '' and '{}'; different for different values. It is the hash of the canonical
    JSON (RFC 8785) where that exists. Canonical JSON has no numbers that a double does not hold;
    those count by their exact decimal value. Where a member stands twice, both count. Text that
    is not JSON counts as it is.
    """
    return hashlib.sha256(canonical_arguments(text)).hexdigest()


def canonical_arguments(text: str) -> bytes:
    """What the digest of arguments is taken of; text that UTF-8 has, unless they are not JSON."""
    return _exact_canonical(text or NO_ARGUMENTS)


# --- reading --------------------------------------------------------------------------


class _Repeated(Exception):
    """A member stands twice in an object."""


class _Pairs(list[tuple[str, object]]):
    """An object with all its members, those that stand twice too."""


def _no_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Repeated
    return members


def _no_constant(name: str) -> NoReturn:
    raise InvalidArguments(f"not valid JSON: {name} is not a JSON value")


_STRICT = json.JSONDecoder(
    object_pairs_hook=_no_repeats,
    parse_int=Number,
    parse_float=Number,
    parse_constant=_no_constant,
)
_LOOSE = json.JSONDecoder(
    object_pairs_hook=_Pairs,
    parse_int=Number,
    parse_float=Number,
    parse_constant=_no_constant,
)


def _parse(text: str) -> Json:
    try:
        value: Json = _STRICT.decode(text)
    except _Repeated:
        path = _find_repeated(_LOOSE.decode(text), "")
        raise InvalidArguments("the member stands twice", path=path or "") from None
    except json.JSONDecodeError as error:
        raise InvalidArguments(_malformed(error)) from None
    except RecursionError:
        raise InvalidArguments("nested too deeply") from None
    return value


def _malformed(error: json.JSONDecodeError) -> str:
    what = error.msg[:1].lower() + error.msg[1:]
    if error.msg == "Extra data":
        what = "more text after the object"
    return f"not valid JSON: {what} at line {error.lineno} column {error.colno}"


def _find_repeated(value: object, at: str) -> str | None:
    """The path of the first member that stands twice."""
    seen: set[str] = set()
    for name, path, item in _children(value, at):
        if name is not None and name in seen:
            return path
        if name is not None:
            seen.add(name)
        found = _find_repeated(item, path)
        if found is not None:
            return found
    return None


def _children(value: object, at: str) -> Iterable[tuple[str | None, str, object]]:
    """The members by name or the elements of a value, each with its name and its path."""
    if isinstance(value, _Pairs):
        return [(name, member(at, name), item) for name, item in sorted(value, key=_utf16)]
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return [
            (name, member(at, name), item) for name, item in sorted(members.items(), key=_utf16)
        ]
    if isinstance(value, list):
        elements = cast("list[object]", value)
        return [(None, element(at, index), item) for index, item in enumerate(elements)]
    return ()


def _refuse_surrogates(value: object) -> None:
    for name, path, item in _children(value, ""):
        _refuse_surrogates_at(name, item, path)


def _refuse_surrogates_at(name: str | None, value: object, at: str) -> None:
    if name is not None and _has_surrogate(name):
        raise InvalidArguments("the member's name has a lone surrogate", path=at)
    if isinstance(value, str) and _has_surrogate(value):
        raise InvalidArguments("the string has a lone surrogate", path=at)
    for inner, path, item in _children(value, at):
        _refuse_surrogates_at(inner, item, path)


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _a(kind: str) -> str:
    return kind if kind == "null" else f"{'an' if kind[0] in 'aio' else 'a'} {kind}"


# --- the digest -----------------------------------------------------------------------


def _exact_canonical(text: str) -> bytes:
    try:
        canonical = _write(_LOOSE.decode(text))
    except (ValueError, RecursionError, InvalidArguments):
        return text.encode("utf-8", "surrogatepass")
    # A lone surrogate is written as an escape, which canonical JSON never writes.
    return canonical.encode("utf-8", "backslashreplace")


def _write(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return json.encoder.encode_basestring(value)
        case Number():
            return _write_number(value)
        case _Pairs():
            ordered = sorted(value, key=_utf16)
            return (
                "{" + ",".join([f"{_write(name)}:{_write(item)}" for name, item in ordered]) + "}"
            )
        case list():
            elements = cast("list[object]", value)
            return "[" + ",".join([_write(item) for item in elements]) + "]"
        case _:
            raise TypeError(value)


def _utf16(pair: tuple[str, object]) -> bytes:
    return pair[0].encode("utf-16-be", "surrogatepass")


def _write_number(number: Number) -> str:
    exact = number.exact
    if exact is None:
        return number.text
    nearest = float(number.text)
    if abs(nearest) < float("inf"):
        canonical = format_number(nearest)
        if Number(canonical).exact == exact:
            return canonical
    return f"{exact.sign}{exact.digits}" + (f"e{exact.exponent}" if exact.exponent else "")
