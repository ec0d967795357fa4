"""What Converse sends: the events of a stream, counts of tokens, and what it says of failures."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from perdure.wire import ABSENT, ErrorPayload, InputTokensDetails, Usage
from perdure.wire.jsontext import members_of, text_of_raw

NULL = Raw(b"null")  # a union with Raw takes nothing but the other


class ToolDelta(msgspec.Struct, gc=False):
    """More of the input of a tool call."""

    input: str


class ThoughtDelta(msgspec.Struct, rename="camel", gc=False):
    """More of a thought, or what seals it."""

    text: str | UnsetType = UNSET
    signature: str | UnsetType = UNSET
    redacted_content: str | UnsetType = UNSET


class Delta(msgspec.Struct, rename="camel"):
    """What an event adds to a block."""

    text: str | UnsetType = UNSET
    tool_use: ToolDelta | UnsetType = UNSET
    reasoning_content: ThoughtDelta | UnsetType = UNSET
    citation: Raw = NULL
    tool_result: Raw = NULL


class BlockDelta(msgspec.Struct, rename="camel"):
    """A block goes on."""

    content_block_index: int
    delta: Delta


class BlockStart(msgspec.Struct, rename="camel"):
    """A block begins."""

    content_block_index: int
    start: dict[str, Raw] = {}


class BlockStop(msgspec.Struct, rename="camel"):
    """A block ends."""

    content_block_index: int


decode_delta = msgspec.json.Decoder(BlockDelta).decode

_Count = Annotated[int, Meta(ge=0)]


class _Usage(msgspec.Struct, rename="camel"):
    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    cache_read_input_tokens: _Count | None = None
    cache_write_input_tokens: _Count | None = None


_TYPES = {
    "throttlingException": "too_many_requests",
    "serviceUnavailableException": "overloaded",
    "validationException": "invalid_request",
}


def exception(name: str, data: bytes) -> ErrorPayload:
    """What an exception inside a stream says."""
    members = members_of(data)
    said = text_of_raw(members.get("message")) or text_of_raw(members.get("originalMessage"))
    return ErrorPayload(
        type=_TYPES.get(name, "server_error"),
        code=name,
        message=said or "the server gave no reason",
    )


def usage_of(raw: Raw | None) -> Usage | None:
    """The tokens as the answer counts them: cached ones stand beside the input's, not in them."""
    if raw is None:
        return None
    told = msgspec.json.decode(raw, type=_Usage)
    if told.input_tokens is None or told.output_tokens is None:
        return None
    cached, created = told.cache_read_input_tokens or 0, told.cache_write_input_tokens or 0
    read = told.input_tokens + cached + created
    return Usage(
        input_tokens=read,
        output_tokens=told.output_tokens,
        total_tokens=read + told.output_tokens,
        input_tokens_details=InputTokensDetails(
            cached_tokens=cached, cache_creation_tokens=created or ABSENT
        ),
    )
