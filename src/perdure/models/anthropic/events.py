# ruff: noqa: D101 - the API names and describes these
"""Events of the Messages API, decoded.

The API adds events and deltas as it grows, and asks to pass over those that nobody knows.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Raw

from perdure.errors import DecodeError
from perdure.wire import ABSENT, InputTokensDetails, OutputTokensDetails, Usage
from perdure.wire.jsontext import loads, text_of_raw


class TextDelta(msgspec.Struct, tag_field="type", tag="text_delta", gc=False):
    text: str


class InputDelta(msgspec.Struct, tag_field="type", tag="input_json_delta", gc=False):
    partial_json: str


class ThinkingDelta(msgspec.Struct, tag_field="type", tag="thinking_delta", gc=False):
    thinking: str


class SignatureDelta(msgspec.Struct, tag_field="type", tag="signature_delta", gc=False):
    signature: str


class CitationsDelta(msgspec.Struct, tag_field="type", tag="citations_delta"):
    citation: Raw


Delta = TextDelta | InputDelta | ThinkingDelta | SignatureDelta | CitationsDelta


class BlockDelta(msgspec.Struct, tag_field="type", tag="content_block_delta"):
    index: int
    delta: Delta


class BlockStart(msgspec.Struct, tag_field="type", tag="content_block_start"):
    index: int
    content_block: Raw


class BlockStop(msgspec.Struct, tag_field="type", tag="content_block_stop"):
    index: int


class MessageStart(msgspec.Struct, tag_field="type", tag="message_start"):
    message: Raw


class MessageDelta(msgspec.Struct, tag_field="type", tag="message_delta"):
    delta: Raw
    usage: Raw = Raw(b"{}")


class MessageStop(msgspec.Struct, tag_field="type", tag="message_stop"):
    pass


class Ping(msgspec.Struct, tag_field="type", tag="ping"):
    pass


class Failed(msgspec.Struct):
    type: str = "api_error"
    message: str = "the server gave no reason"
    details: dict[str, object] | None = None


class Error(msgspec.Struct, tag_field="type", tag="error"):
    error: Failed


class Foreign(NamedTuple):
    """A delta of a type that nobody here knows."""

    block: int
    members: dict[str, Raw]


Event = (
    BlockDelta | BlockStart | BlockStop | MessageStart | MessageDelta | MessageStop | Ping | Error
)

_decode = msgspec.json.Decoder(Event).decode


class _AnyEvent(msgspec.Struct):
    type: str
    index: int = -1
    delta: dict[str, Raw] = {}


def event_of(data: bytes) -> Event | Foreign | None:
    """The event of a frame; None for one of a type that nobody here knows.

    Raises:
        DecodeError: It is no event.
    """
    try:
        return _decode(data)
    except msgspec.DecodeError as error:
        reason = str(error)
    try:
        known = msgspec.json.decode(data, type=_AnyEvent)
    except msgspec.DecodeError:
        return _with_surrogates(data)
    if known.type == "content_block_delta" and known.index >= 0 and known.delta:
        if text_of_raw(known.delta.get("type")) not in _DELTAS:
            return Foreign(known.index, known.delta)
    elif known.type not in _EVENTS:
        return None
    raise DecodeError(f"malformed event: {reason}", source=data)


def _with_surrogates(data: bytes) -> BlockDelta:
    """A delta with half a character in it, whose other half comes in the next."""
    value = loads(data)
    try:
        return msgspec.convert(value, BlockDelta)
    except (msgspec.ValidationError, TypeError) as error:
        raise DecodeError(f"malformed event: {error}", source=data) from error


_EVENTS = frozenset(
    (
        "content_block_delta",
        "content_block_start",
        "content_block_stop",
        "message_start",
        "message_delta",
        "message_stop",
        "error",
    )
)
_DELTAS = frozenset(
    ("text_delta", "input_json_delta", "thinking_delta", "signature_delta", "citations_delta")
)

Count = Annotated[int, Meta(ge=0)]


class _CacheCreation(msgspec.Struct):
    ephemeral_1h_input_tokens: Count | None = None


class _OutputDetails(msgspec.Struct):
    thinking_tokens: Count | None = None


class _Usage(msgspec.Struct):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_creation: _CacheCreation | None = None
    output_tokens_details: _OutputDetails | None = None
    service_tier: str | None = None


def usage_of(members: dict[str, Raw]) -> Usage | None:
    """The tokens as a message counts them; None if it does not say.

    Cached tokens stand beside the input's, not in them.

    Raises:
        DecodeError: A count is negative, or none.
    """
    try:
        told = msgspec.json.decode(msgspec.json.encode(members), type=_Usage)
    except msgspec.DecodeError as error:
        raise DecodeError(f"malformed usage: {error}") from error
    if told.input_tokens is None or told.output_tokens is None:
        return None
    cached, created = told.cache_read_input_tokens or 0, told.cache_creation_input_tokens or 0
    hour = told.cache_creation.ephemeral_1h_input_tokens if told.cache_creation else None
    thought = told.output_tokens_details.thinking_tokens if told.output_tokens_details else None
    read = told.input_tokens + cached + created
    return Usage(
        input_tokens=read,
        output_tokens=told.output_tokens,
        total_tokens=read + told.output_tokens,
        input_tokens_details=InputTokensDetails(
            cached_tokens=cached,
            cache_creation_tokens=created or ABSENT,
            cache_creation_1h_tokens=hour or ABSENT,
        ),
        output_tokens_details=OutputTokensDetails(
            reasoning_tokens=ABSENT if thought is None else thought
        ),
    )
