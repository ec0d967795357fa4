"""Responses: what a server answers."""

from __future__ import annotations

from typing import Literal

from perdure.wire.items import Item, Message
from perdure.wire.parts import OutputText
from perdure.wire.requests import ReasoningConfig, TextConfig
from perdure.wire.tools import ToolChoice, ToolDefinition
from perdure.wire.values import ABSENT, Absent, Wire

ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed"]

TERMINAL_STATUSES = frozenset({"completed", "incomplete", "failed"})


class ErrorPayload(Wire, frozen=True, kw_only=True):
    """An error as the wire carries it: in an HTTP answer, an `error` event or a failed response."""

    type: str | None | Absent = ABSENT
    code: str | int | None | Absent = ABSENT
    message: str
    param: str | None | Absent = ABSENT
    headers: dict[str, str] | None | Absent = ABSENT


class IncompleteDetails(Wire, frozen=True, kw_only=True):
    """Why a response was cut: `max_output_tokens` or `content_filter`."""

    reason: str | Absent = ABSENT


class InputTokensDetails(Wire, frozen=True, kw_only=True):
    """Parts of `input_tokens`; the two creation counts are an extension."""

    cached_tokens: int | Absent = ABSENT
    cache_creation_tokens: int | Absent = ABSENT
    cache_creation_1h_tokens: int | Absent = ABSENT


class OutputTokensDetails(Wire, frozen=True, kw_only=True):
    """Parts of `output_tokens`."""

    reasoning_tokens: int | Absent = ABSENT


class Usage(Wire, frozen=True, kw_only=True):
    """Tokens of one response."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails | None | Absent = ABSENT
    output_tokens_details: OutputTokensDetails | None | Absent = ABSENT


class Response(Wire, frozen=True, kw_only=True):
    """One response, whole or as far as it has come. Times are Unix seconds."""

    id: str
    object: str | Absent = ABSENT
    created_at: int | float | None | Absent = ABSENT
    completed_at: int | float | None | Absent = ABSENT
    status: str | Absent = ABSENT
    incomplete_details: IncompleteDetails | None | Absent = ABSENT
    model: str | Absent = ABSENT
    previous_response_id: str | None | Absent = ABSENT
    instructions: str | tuple[Item, ...] | None | Absent = ABSENT
    output: tuple[Item, ...]
    error: ErrorPayload | None | Absent = ABSENT
    tools: tuple[ToolDefinition, ...] | Absent = ABSENT
    tool_choice: ToolChoice | Absent = ABSENT
    truncation: str | Absent = ABSENT
    parallel_tool_calls: bool | Absent = ABSENT
    text: TextConfig | Absent = ABSENT
    top_p: int | float | Absent = ABSENT
    presence_penalty: int | float | Absent = ABSENT
    frequency_penalty: int | float | Absent = ABSENT
    top_logprobs: int | Absent = ABSENT
    temperature: int | float | Absent = ABSENT
    reasoning: ReasoningConfig | None | Absent = ABSENT
    usage: Usage | None | Absent = ABSENT
    max_output_tokens: int | None | Absent = ABSENT
    max_tool_calls: int | None | Absent = ABSENT
    store: bool | Absent = ABSENT
    background: bool | Absent = ABSENT
    service_tier: str | Absent = ABSENT
    metadata: dict[str, str] | Absent = ABSENT
    safety_identifier: str | None | Absent = ABSENT
    prompt_cache_key: str | None | Absent = ABSENT

    @property
    def output_text(self) -> str:
        """The `output_text` parts of the assistant's messages, concatenated."""
        return "".join(
            part.text
            for item in self.output
            if isinstance(item, Message) and item.role == "assistant"
            for part in (() if isinstance(item.content, str) else item.content)
            if isinstance(part, OutputText)
        )


class CompactResponse(Wire, frozen=True, kw_only=True):
    """A folded history."""

    id: str
    object: str | Absent = ABSENT
    output: tuple[Item, ...]
    created_at: int | float | Absent = ABSENT
    usage: Usage | None | Absent = ABSENT
