"""JSON text that the fast decoder does not judge: duplicate members, depth, lone surrogates.

The fast decoder takes the last of duplicate members and refuses lone surrogates; here the first are
found and the second kept.
"""

from __future__ import annotations

import json
from json.encoder import encode_basestring_ascii
from typing import NoReturn, cast

import msgspec

from perdure.errors import DecodeError


class _Object(list[tuple[str, object]]):
    """An object as pairs, so that duplicates are still there."""


def check(raw: bytes) -> None:
    """Raise DecodeError unless `raw` is one JSON value without duplicate members."""
    _loads(raw, _refuse_duplicates)


def loads(raw: bytes) -> object:
    """The value of JSON text, lone surrogates kept.

    Raises:
        DecodeError: It is not JSON.
    """
    return _parse(raw, json.JSONDecoder(parse_constant=_no_constant))


def dumps(text: str) -> bytes:
    """A string as JSON text; a lone surrogate is written as its escape."""
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        return encode_basestring_ascii(text).encode("ascii")


def members_of(raw: bytes) -> dict[str, msgspec.Raw]:
    """The members of an object; none if the text is no object."""
    try:
        return _decode_members(raw)
    except msgspec.DecodeError:
        return {}


def text_of_raw(raw: bytes | msgspec.Raw | None) -> str | None:
    """The string of a JSON text, if it is one."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return None


_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def split_object(raw: bytes) -> dict[str, bytes]:
    """The members of an object that `check` has passed, each with its exact JSON text."""
    text = raw.decode("utf-8")
    members: dict[str, bytes] = {}
    at = _skip(text, 1)
    while text[at] != "}":
        name, at = _SCAN.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        at = _SCAN.raw_decode(text, start)[1]
        members[name] = text[start:at].encode("utf-8")
        at = _next(text, at)
    return members


def split_array(raw: bytes) -> list[bytes]:
    """The elements of an array that `check` has passed, each with its exact JSON text."""
    text = raw.decode("utf-8")
    elements: list[bytes] = []
    at = _skip(text, 1)
    while text[at] != "]":
        start = at
        at = _SCAN.raw_decode(text, start)[1]
        elements.append(text[start:at].encode("utf-8"))
        at = _next(text, at)
    return elements


_SCAN = json.JSONDecoder(parse_int=str, parse_float=str)


def _skip(text: str, at: int) -> int:
    """The first place from `at` on that is not white space."""
    while text[at] in " \t\n\r":
        at += 1
    return at


def _next(text: str, at: int) -> int:
    """The place of the next member or element, or of the closing bracket."""
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at


class _Duplicate(Exception):
    """Two members of one object share a name."""


def _refuse_duplicates(pairs: list[tuple[str, object]]) -> object:
    if len(dict(pairs)) != len(pairs):
        raise _Duplicate
    return None


def _loads(raw: bytes, hook: object) -> None:
    decoder = json.JSONDecoder(
        object_pairs_hook=hook,  # type: ignore[arg-type]
        parse_int=str,
        parse_float=str,
        parse_constant=_no_constant,
    )
    try:
        _parse(raw, decoder)
    except _Duplicate:
        _name_duplicate(raw)


def _no_constant(name: str) -> NoReturn:
    raise DecodeError(f"malformed JSON: {name} is not a JSON value")


def _parse(raw: bytes, decoder: json.JSONDecoder) -> object:
    try:
        return decoder.decode(raw.decode("utf-8"))
    except DecodeError as error:
        raise DecodeError(error.reason, source=raw) from None
    except UnicodeDecodeError as error:
        raise DecodeError(f"malformed JSON: byte {error.start} is not UTF-8", source=raw) from None
    except json.JSONDecodeError as error:
        reason = f"malformed JSON: {error.msg} at character {error.pos}"
        raise DecodeError(reason, source=raw) from None
    except RecursionError:
        raise DecodeError("malformed JSON: nested too deeply", source=raw) from None
    except ValueError as error:  # a number of more digits than Python converts
        raise DecodeError(f"malformed JSON: {error}", source=raw) from None


def _name_duplicate(raw: bytes) -> NoReturn:
    tree = json.loads(raw, object_pairs_hook=_Object, parse_int=str, parse_float=str)
    path, name = _find_duplicate(tree, "") or ("", "")
    raise DecodeError(f"duplicate member {name!r}", path=path, source=raw)


def _find_duplicate(tree: object, path: str) -> tuple[str, str] | None:
    if isinstance(tree, _Object):
        seen: set[str] = set()
        for name, value in tree:
            if name in seen:
                return path, name
            seen.add(name)
            found = _find_duplicate(value, member_path(path, name))
            if found:
                return found
    elif isinstance(tree, list):
        elements = cast("list[object]", tree)
        for index, value in enumerate(elements):
            found = _find_duplicate(value, f"{path}[{index}]")
            if found:
                return found
    return None


def member_path(path: str, name: str) -> str:
    """The path of a member of the object at `path`."""
    return f"{path}.{name}" if path else name
