"""Bytes to wire values and back, with nothing lost.

Two ways lead from bytes to a value. The fast one is msgspec's decoder over the typed union; it
refuses whatever the types do not show. What it refuses is read once more, member by member, by the
`_Reader` of its type, and what has no typed place is kept beside the value (see `values`).
Encoding mirrors it: msgspec writes a value unless something is kept in it.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Literal, NamedTuple, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from perdure.errors import ConfigError, DecodeError
from perdure.wire import events as ev, items, parts, requests, responses, tools
from perdure.wire.jsontext import check, dumps, loads, member_path, split_array, split_object
from perdure.wire.values import ABSENT, KEPT_NAME, Absent, Kept, Source, Wire

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_ELEMENTS = msgspec.json.Decoder(list[Raw])
_DELTAS = frozenset(typing.get_args(ev.DeltaEvent))
_UNKNOWN_PREFIX = "\x7f"

Kind = Literal["item", "part", "annotation", "tool", "event"]

_UNKNOWN_OF: dict[Kind, type[Wire]] = {
    "item": items.UnknownItem,
    "part": parts.UnknownPart,
    "annotation": parts.UnknownAnnotation,
    "tool": tools.UnknownTool,
    "event": ev.UnknownEvent,
}
_registered: dict[type[Wire], dict[str, type[Wire]]] = {}


def register(kind: Kind, cls: type[Wire]) -> None:
    """Make values of an extension type decode as `cls` from now on, in this process.

    Args:
        kind: What the type is: an item, a part, an annotation, a tool or an event.
        cls: A subclass of `Wire` with a `tag`, its type on the wire, as `acme:search_result`.

    Raises:
        ConfigError: `cls` has no tag.
    """
    tag = cls.__struct_config__.tag
    if not isinstance(tag, str):
        raise ConfigError(f"{cls.__name__} needs a tag, its type on the wire")
    _registered.setdefault(_UNKNOWN_OF[kind], {})[tag] = cls


# --- decoding ----------------------------------------------------------------


def decode_item(source: bytes | str) -> items.Item:
    """One item.

    Raises:
        DecodeError: It is not JSON, has duplicate members, or a member of the wrong type.
    """
    return _decode(source, _ITEM)


def decode_items(source: bytes | str) -> tuple[items.Item, ...]:
    """A list of items. Raises as `decode_item`."""
    return _decode(source, _ITEMS)


def decode_request(source: bytes | str) -> requests.Request:
    """A request, not yet validated. Raises as `decode_item`."""
    return _decode(source, _REQUEST)


def decode_response(source: bytes | str) -> responses.Response:
    """A response. Raises as `decode_item`."""
    return _decode(source, _RESPONSE)


def decode_compact_request(source: bytes | str) -> requests.CompactRequest:
    """A request to fold a history. Raises as `decode_item`."""
    return _decode(source, _COMPACT_REQUEST)


def decode_compact_response(source: bytes | str) -> responses.CompactResponse:
    """A folded history. Raises as `decode_item`."""
    return _decode(source, _COMPACT_RESPONSE)


def decode_error(source: bytes | str) -> responses.ErrorPayload:
    """An error payload, without the envelope around it. Raises as `decode_item`."""
    return _decode(source, _ERROR)


def decode_usage(source: bytes | str) -> responses.Usage:
    """The tokens of one response. Raises as `decode_item`."""
    return _decode(source, _USAGE)


def decode_event(source: bytes | str) -> ev.StreamEvent:
    """One stream event: the data of one frame. Raises as `decode_item`."""
    try:
        event = _fast_event(source)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _slow(_utf8(source), _EVENT)
    kind = type(event)
    # A delta without floats has one shortest spelling. If this is it, no member occurs twice.
    if (
        kind in _DELTAS
        and len(_encode(event)) == len(source)
        and type(source) is bytes
        and not (kind is ev.OutputTextDelta and event.logprobs)  # type: ignore[union-attr]
    ):
        return event
    check(_utf8(source))
    return event


class _Codec(typing.Generic[T]):
    """The fast decoder and the reader of one type."""

    def __init__(self, annotation: object) -> None:
        self.annotation = annotation
        self.fast: msgspec.json.Decoder[T] = msgspec.json.Decoder(annotation)


def _decode(source: bytes | str, codec: _Codec[T]) -> T:
    raw = _utf8(source)
    try:
        value = codec.fast.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _slow(raw, codec)
    check(raw)
    return value


def _slow(raw: bytes, codec: _Codec[T]) -> T:
    check(raw)
    try:
        return cast("T", _reader(codec.annotation)(raw.strip(), ""))
    except DecodeError as error:
        raise DecodeError(error.reason, path=error.path, source=raw) from None


def _utf8(source: bytes | str) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        return source.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DecodeError(f"malformed JSON: character {error.start} is a lone surrogate") from None


# --- the second way: readers -------------------------------------------------

_Read = Callable[[bytes, str], object]


class _Member(NamedTuple):
    """How one member of a type is read."""

    attribute: str
    read: _Read
    required: bool
    nullable: bool
    zero: object


_ZEROS: tuple[tuple[type, object], ...] = ((str, ""), (int, 0), (float, 0), (dict, None))


def _alternatives(annotation: object) -> list[object]:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        found: list[object] = []
        for alternative in typing.get_args(annotation):
            found.extend(_alternatives(alternative))
        return found
    return [annotation]


def _is_struct(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Struct)


@cache
def _reader(annotation: object) -> _Read:
    """The reader of a type: of a union by the first byte, of the rest by msgspec."""
    choices = [a for a in _alternatives(annotation) if a is not Absent]
    structs = [cast("type[Wire]", a) for a in choices if _is_struct(a)]
    lists = [a for a in choices if typing.get_origin(a) is tuple]
    plain = [a for a in choices if not _is_struct(a) and a not in lists]
    read_object = _object_reader(tuple(structs)) if structs else None
    read_element = _reader(typing.get_args(lists[0])[0]) if lists else None

    def read(raw: bytes, path: str) -> object:
        first = raw[:1]
        if first == b"{" and read_object:
            return read_object(raw, path)
        if first == b"[" and read_element:
            return tuple(read_element(e, f"{path}[{i}]") for i, e in enumerate(_elements(raw)))
        if first == b'"' and str in plain:
            return _string(raw)
        return _plain(raw, path, plain, structs=bool(structs), lists=bool(lists))

    return read


def _string(raw: bytes) -> str:
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return cast("str", loads(raw))


def _plain(raw: bytes, path: str, plain: list[object], *, structs: bool, lists: bool) -> object:
    kind = _json_kind(raw)
    names = ["object"] * structs + ["array"] * lists + [_json_name(p) for p in plain]
    if kind not in names and not (kind == "number" and "integer" in names):
        raise DecodeError(f"expected {' or '.join(names)}, got {kind}", path=path)
    try:
        return msgspec.json.decode(raw, type=typing.Union[tuple(plain)])  # noqa: UP007
    except msgspec.ValidationError as error:
        reason = str(error).replace("Expected `int`, got `float`", "expected integer, got number")
        raise DecodeError(reason, path=path) from None
    except msgspec.DecodeError:
        return loads(raw)  # a lone surrogate somewhere in an open object


def _json_name(annotation: object) -> str:
    names = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    return names.get(cast("type", annotation), "object")


def _json_kind(raw: bytes) -> str:
    kinds = {b"{": "object", b"[": "array", b'"': "string", b"t": "boolean", b"f": "boolean"}
    return "null" if raw[:1] == b"n" else kinds.get(raw[:1], "number")


def _object_reader(structs: tuple[type[Wire], ...]) -> _Read:
    tagged = {cast("str", s.__struct_config__.tag): s for s in structs if s.__struct_config__.tag}
    if not tagged:
        return lambda raw, path: _read_struct(structs[0], _members(raw), path)
    unknown = next((s for t, s in tagged.items() if t.startswith(_UNKNOWN_PREFIX)), None)
    known = {t: s for t, s in tagged.items() if not t.startswith(_UNKNOWN_PREFIX)}

    def read(raw: bytes, path: str) -> object:
        members = _members(raw)
        tag = _tag(members, path)
        cls = known.get(tag) if tag is not None else _untagged(unknown, members)
        if cls is None and unknown is not None and tag is not None:
            cls = _registered.get(unknown, {}).get(tag)
        if cls is not None:
            return _read_struct(cls, members, path)
        if unknown is None:
            raise DecodeError(f"unknown type {tag!r}", path=path)
        return _read_unknown(unknown, tag or "", members, raw, path)

    return read


def _members(raw: bytes) -> dict[str, bytes]:
    try:
        return {name: bytes(value) for name, value in _MEMBERS.decode(raw).items()}
    except msgspec.DecodeError:  # a lone surrogate somewhere in it
        return split_object(raw)


def _elements(raw: bytes) -> list[bytes]:
    try:
        return [bytes(value) for value in _ELEMENTS.decode(raw)]
    except msgspec.DecodeError:
        return split_array(raw)


def _tag(members: Mapping[str, bytes], path: str) -> str | None:
    raw = members.get("type")
    if raw is None:
        return None
    if raw[:1] != b'"':
        kind = _json_kind(raw)
        raise DecodeError(f"expected string, got {kind}", path=member_path(path, "type"))
    return _string(raw)


def _untagged(unknown: type[Wire] | None, members: Mapping[str, bytes]) -> type[Wire] | None:
    """An item without a type but with a role is a message; an event with an error is one."""
    if unknown is items.UnknownItem and "role" in members:
        return items.Message
    if unknown is ev.UnknownEvent and "error" in members:
        return ev.ErrorEvent
    return None


def _read_unknown(
    cls: type[Wire], tag: str, members: Mapping[str, bytes], raw: bytes, path: str
) -> Wire:
    values: dict[str, object] = {"type": tag, "source": Source(raw)}
    for name, annotation in _lifted(cls).items():
        if name in members:
            values[name] = _reader(annotation)(members[name], member_path(path, name))
    return cast("Callable[..., Wire]", cls)(**values)


@cache
def _lifted(cls: type[Wire]) -> dict[str, object]:
    hints = typing.get_type_hints(cls)
    return {n: hints[n] for n in cls.__struct_fields__ if n not in ("type", "source", "kept")}


@cache
def _plan(cls: type[Wire]) -> dict[str, _Member]:
    hints = typing.get_type_hints(cls)
    plan: dict[str, _Member] = {}
    for field in msgspec.structs.fields(cls):
        if field.encode_name == KEPT_NAME:
            continue
        annotation = hints[field.name]
        choices = _alternatives(annotation)
        plan[field.encode_name] = _Member(
            attribute=field.name,
            read=_reader(annotation),
            required=field.required,
            nullable=type(None) in choices,
            zero=_zero(choices) if field.required else ABSENT,
        )
    return plan


def _zero(choices: list[object]) -> object:
    """The stand-in of a required member that is not there; `...` where there is none."""
    if type(None) in choices:
        return None
    if any(typing.get_origin(c) is tuple for c in choices):
        return ()
    return next((zero for cls, zero in _ZEROS if cls in choices), ...)


def _read_struct(cls: type[Wire], members: dict[str, bytes], path: str) -> Wire:
    plan = _plan(cls)
    values: dict[str, object] = {}
    kept: dict[str, bytes] = {}
    absent: set[str] = set()
    for name, member in plan.items():
        raw = members.get(name)
        at = member_path(path, name)
        if raw is not None and (raw != b"null" or member.nullable):
            values[member.attribute] = member.read(raw, at)
            continue
        if raw is not None:
            kept[name] = raw
        elif member.required:
            absent.add(name)
        if member.zero is ...:
            raise DecodeError("missing" if raw is None else "must not be null", path=at)
        values[member.attribute] = member.zero
    tagged = cls.__struct_config__.tag is not None
    if tagged and "type" not in members:
        absent.add("type")
    known = {*plan, "type"} if tagged else set(plan)
    kept |= {name: raw for name, raw in members.items() if name not in known}
    if kept or absent:
        values["kept"] = Kept(kept, frozenset(absent))
    return cast("Callable[..., Wire]", cls)(**values)


# --- encoding ----------------------------------------------------------------


def encode(value: Wire | tuple[Wire, ...]) -> bytes:
    """The JSON text of a wire value, or of a list of them.

    A decoded value gives what it was decoded from, member for member.
    """
    try:
        return _encode(value)
    except (TypeError, UnicodeEncodeError):
        return _write(value)


def _write(value: object) -> bytes:
    match value:
        case Struct():
            source = getattr(value, "source", None)
            if isinstance(source, Source):
                return source.raw
            return _write_struct(cast("Wire", value))
        case str():
            return dumps(value)
        case tuple() | list():
            elements = cast("tuple[object, ...]", value)
            return b"[" + b",".join(map(_write, elements)) + b"]"
        case dict():
            members = cast("dict[str, object]", value).items()
            return b"{" + b",".join(dumps(n) + b":" + _write(v) for n, v in members) + b"}"
        case _:
            return _encode(value)


def _write_struct(value: Wire) -> bytes:
    cls = type(value)
    kept = value.kept or Kept({}, frozenset())
    written: dict[str, bytes] = {}
    tag = cls.__struct_config__.tag
    if tag is not None and "type" not in kept.absent:
        written["type"] = dumps(cast("str", tag))
    for name, member in _plan(cls).items():
        current: object = getattr(value, member.attribute)
        untouched = current is ABSENT or current == member.zero
        if not untouched or not (current is ABSENT or name in kept.absent or name in kept.members):
            written[name] = _write(current)
    for name, raw in kept.members.items():
        written.setdefault(name, raw)
    return b"{" + b",".join(dumps(n) + b":" + raw for n, raw in written.items()) + b"}"


_ITEM: _Codec[items.Item] = _Codec(items.Item)
_ITEMS: _Codec[tuple[items.Item, ...]] = _Codec(tuple[items.Item, ...])
_REQUEST: _Codec[requests.Request] = _Codec(requests.Request)
_RESPONSE: _Codec[responses.Response] = _Codec(responses.Response)
_COMPACT_REQUEST: _Codec[requests.CompactRequest] = _Codec(requests.CompactRequest)
_COMPACT_RESPONSE: _Codec[responses.CompactResponse] = _Codec(responses.CompactResponse)
_ERROR: _Codec[responses.ErrorPayload] = _Codec(responses.ErrorPayload)
_USAGE: _Codec[responses.Usage] = _Codec(responses.Usage)
_EVENT: _Codec[ev.StreamEvent] = _Codec(ev.StreamEvent)
_fast_event = _EVENT.fast.decode
