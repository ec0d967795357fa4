"""Requests: what a client sends to `/responses` and `/responses/compact`."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec

from perdure.wire.items import Item
from perdure.wire.tools import ToolChoice, ToolDefinition
from perdure.wire.values import ABSENT, Absent, Source, Wire


class TextFormat(Wire, frozen=True, kw_only=True, tag="text"):
    type: ClassVar[Literal["text"]] = "text"


class JsonObjectFormat(Wire, frozen=True, kw_only=True, tag="json_object"):
    type: ClassVar[Literal["json_object"]] = "json_object"


class JsonSchemaFormat(Wire, frozen=True, kw_only=True, tag="json_schema"):
    """The answer is JSON that a schema describes."""

    type: ClassVar[Literal["json_schema"]] = "json_schema"
    name: str
    description: str | None | Absent = ABSENT
    schema: dict[str, object] | None | Absent = ABSENT
    strict: bool | None | Absent = ABSENT


class UnknownFormat(Wire, frozen=True, kw_only=True, tag="\x7fformat"):
    """A format of a type nobody registered."""

    type: str = msgspec.field(name="\x7ftype")
    source: Source


Format: TypeAlias = TextFormat | JsonObjectFormat | JsonSchemaFormat | UnknownFormat


class TextConfig(Wire, frozen=True, kw_only=True):
    """How the answer's text should be."""

    format: Format | None | Absent = ABSENT
    verbosity: str | None | Absent = ABSENT


class ReasoningConfig(Wire, frozen=True, kw_only=True):
    """How much the model should think, and what it shows of it."""

    effort: str | None | Absent = ABSENT
    summary: str | None | Absent = ABSENT


class StreamOptions(Wire, frozen=True, kw_only=True):
    include_obfuscation: bool | Absent = ABSENT


class Request(Wire, frozen=True, kw_only=True):
    """One request for a response. Members that are absent leave the server's default."""

    model: str | None | Absent = ABSENT
    input: str | tuple[Item, ...] | None | Absent = ABSENT
    previous_response_id: str | None | Absent = ABSENT
    include: tuple[str, ...] | None | Absent = ABSENT
    tools: tuple[ToolDefinition, ...] | None | Absent = ABSENT
    tool_choice: ToolChoice | None | Absent = ABSENT
    metadata: dict[str, str] | None | Absent = ABSENT
    text: TextConfig | None | Absent = ABSENT
    temperature: int | float | None | Absent = ABSENT
    top_p: int | float | None | Absent = ABSENT
    presence_penalty: int | float | None | Absent = ABSENT
    frequency_penalty: int | float | None | Absent = ABSENT
    parallel_tool_calls: bool | None | Absent = ABSENT
    stream: bool | None | Absent = ABSENT
    stream_options: StreamOptions | None | Absent = ABSENT
    background: bool | None | Absent = ABSENT
    max_output_tokens: int | None | Absent = ABSENT
    max_tool_calls: int | None | Absent = ABSENT
    reasoning: ReasoningConfig | None | Absent = ABSENT
    safety_identifier: str | None | Absent = ABSENT
    prompt_cache_key: str | None | Absent = ABSENT
    truncation: str | None | Absent = ABSENT
    instructions: str | None | Absent = ABSENT
    store: bool | None | Absent = ABSENT
    service_tier: str | None | Absent = ABSENT
    top_logprobs: int | None | Absent = ABSENT


class CompactRequest(Wire, frozen=True, kw_only=True):
    """One request to fold a history."""

    model: str | None | Absent = ABSENT
    input: str | tuple[Item, ...] | None | Absent = ABSENT
    previous_response_id: str | None | Absent = ABSENT
    instructions: str | None | Absent = ABSENT
    prompt_cache_key: str | None | Absent = ABSENT
