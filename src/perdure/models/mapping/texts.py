"""JSON texts for foreign requests: of values, and of the arguments of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from perdure.models.mapping.losses import Lost
from perdure.wire import scalar_text

_encode = msgspec.json.Encoder().encode


def json_text(value: object) -> bytes:
    """The JSON text of a value. Lone surrogates, which no request can carry, become U+FFFD."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_clean(value))


def _clean(value: object) -> object:
    if isinstance(value, str):
        return scalar_text(value)
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {scalar_text(name): _clean(member) for name, member in members.items()}
    if isinstance(value, list | tuple):
        return [_clean(element) for element in cast("list[object]", value)]
    return value


def object_text(arguments: str) -> bytes | None:
    """Arguments as the text of a JSON object, exactly as they are; None if they are none.

    Empty arguments are an empty object.
    """
    if not arguments or arguments.isspace():
        return b"{}"
    try:
        raw = arguments.encode()
        _decode_object(raw)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return raw.strip()


_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def input_text_of(pieces: Sequence[str]) -> msgspec.Raw:
    """The input of a call that came in pieces; as a string if it was cut, and is no JSON."""
    text = scalar_text("".join(pieces))
    try:
        return msgspec.json.decode(text.encode(), type=msgspec.Raw).copy()
    except msgspec.DecodeError:
        return msgspec.Raw(_encode(text))


def arguments_text(arguments: str, lost: Lost) -> bytes:
    """Arguments for a provider that takes nothing but an object."""
    raw = object_text(arguments)
    if raw is not None:
        return raw
    lost.add("arguments", "no JSON object; sent as the text of a member 'arguments'", ".arguments")
    return json_text({"arguments": arguments})
