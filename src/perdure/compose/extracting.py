"""What can be read off events and responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from perdure.compose.turns import ToolCall, tool_call_of
from perdure.wire import (
    FunctionCall,
    FunctionCallArgumentsDelta,
    OutputTextDelta,
    ReasoningDelta,
    ReasoningSummaryTextDelta,
    ReasoningTextDelta,
    Response,
)


def extract_text_deltas(events: Iterable[object]) -> tuple[str, ...]:
    """The pieces of text among events."""
    return tuple(event.delta for event in events if isinstance(event, OutputTextDelta))


def extract_reasoning_deltas(events: Iterable[object]) -> tuple[str, ...]:
    """The pieces of thoughts among events."""
    return tuple(
        event.delta
        for event in events
        if isinstance(event, ReasoningDelta | ReasoningTextDelta | ReasoningSummaryTextDelta)
    )


def extract_tool_deltas(events: Iterable[object]) -> tuple[str, ...]:
    """The pieces of calls' arguments among events."""
    return tuple(event.delta for event in events if isinstance(event, FunctionCallArgumentsDelta))


def extract_text(response: Response) -> str:
    """The text of all messages of a response."""
    return response.output_text


def extract_tool_calls(response: Response, turn: int = 0) -> tuple[ToolCall, ...]:
    """The calls of a response, read as far as they can be."""
    items = response.output
    return tuple(tool_call_of(item, turn) for item in items if isinstance(item, FunctionCall))


def sanitize_schema(schema: Mapping[str, object]) -> dict[str, object]:
    """A JSON Schema without the members whose name begins with `~`, at every depth."""
    return cast("dict[str, object]", _sanitized(schema))


def _sanitized(value: object) -> object:
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        return {n: _sanitized(v) for n, v in members.items() if not n.startswith("~")}
    if isinstance(value, list):
        return [_sanitized(one) for one in cast("list[object]", value)]
    return value
