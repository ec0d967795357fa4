"""A response as the message that Claude would have answered."""

from __future__ import annotations

from perdure.formats.claude import ClaudeMessage, written
from perdure.formats.values import Json, plain
from perdure.wire import FunctionCall, Response, Usage


def to_claude_message(response: Response) -> ClaudeMessage:
    """A response as an answer of the Messages API, with its id, model, usage and reason to stop.

    All its items are in the one message; `from_claude_messages` gives them again, as it does for
    the message in a history.
    """
    items = plain(response.output)
    empty: ClaudeMessage = {"role": "assistant", "content": list[object]()}
    message = written(items, role="assistant") if items else empty
    return {
        "id": response.id,
        "type": "message",
        **message,
        "model": response.model or "unknown",
        "stop_reason": _stop_reason(response),
        "stop_sequence": None,
        "usage": _usage(response.usage or None),
    }


def _stop_reason(response: Response) -> str:
    """A cut answer is said to be cut, whatever it called: its calls never run (DESIGN 6.6)."""
    if response.status == "incomplete":
        details = response.incomplete_details
        return {"max_output_tokens": "max_tokens", "content_filter": "refusal"}.get(
            (details.reason or "") if details else "", "end_turn"
        )
    calls = any(isinstance(item, FunctionCall) for item in response.output)
    return "tool_use" if calls else "end_turn"


def _usage(usage: Usage | None) -> Json:
    """Claude counts what came from its cache, and what went there, apart from the input."""
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0}
    details = usage.input_tokens_details
    read = (details.cached_tokens or 0) if details else 0
    created = (details.cache_creation_tokens or 0) if details else 0
    return {
        "input_tokens": usage.input_tokens - read - created,
        "output_tokens": usage.output_tokens,
        "cache_creation_input_tokens": created,
        "cache_read_input_tokens": read,
    }
