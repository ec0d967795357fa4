"""The response that a server begins: what was asked, and nothing made yet."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from perdure.wire.requests import ReasoningConfig, Request, TextConfig, TextFormat
from perdure.wire.responses import Response
from perdure.wire.tools import FunctionTool, ToolDefinition
from perdure.wire.values import ABSENT, Absent

T = TypeVar("T")
D = TypeVar("D")


def response_to(request: Request, *, id: str, created_at: int) -> Response:  # noqa: A002 - the wire's own name
    """A response in progress that repeats the request's settings, with the defaults filled in.

    Args:
        request: What was asked; its input and its unknown members are not repeated.
        id: The response's id.
        created_at: Unix seconds.
    """
    return Response(
        id=id,
        object="response",
        created_at=created_at,
        completed_at=None,
        status="in_progress",
        incomplete_details=None,
        model=request.model or "",
        previous_response_id=request.previous_response_id or None,
        instructions=request.instructions or None,
        output=(),
        error=None,
        tools=tuple([_tool(tool) for tool in request.tools or ()]),
        tool_choice=request.tool_choice or "auto",
        truncation=request.truncation or "disabled",
        parallel_tool_calls=_given(request.parallel_tool_calls, True),
        text=_text(request.text),
        top_p=_given(request.top_p, 1),
        presence_penalty=_given(request.presence_penalty, 0),
        frequency_penalty=_given(request.frequency_penalty, 0),
        top_logprobs=_given(request.top_logprobs, 0),
        temperature=_given(request.temperature, 1),
        reasoning=_reasoning(request.reasoning),
        usage=None,
        max_output_tokens=_given(request.max_output_tokens, None),
        max_tool_calls=_given(request.max_tool_calls, None),
        store=_given(request.store, True),
        background=_given(request.background, False),
        service_tier=request.service_tier or "default",
        metadata=dict(request.metadata or {}),
        safety_identifier=request.safety_identifier or None,
        prompt_cache_key=request.prompt_cache_key or None,
    )


def _given(value: T | None | Absent, default: D) -> T | D:
    return default if value is None or value is ABSENT else value


def _tool(tool: ToolDefinition) -> ToolDefinition:
    # A response states what a request may leave open.
    if not isinstance(tool, FunctionTool):
        return tool
    return replace(
        tool,
        description=_given(tool.description, None),
        parameters=_given(tool.parameters, None),
        strict=_given(tool.strict, False),
    )


def _text(text: TextConfig | None | Absent) -> TextConfig:
    text = text or TextConfig()
    return replace(text, format=text.format or TextFormat())


def _reasoning(reasoning: ReasoningConfig | None | Absent) -> ReasoningConfig:
    reasoning = reasoning or ReasoningConfig()
    return replace(reasoning, effort=reasoning.effort or None, summary=reasoning.summary or None)
