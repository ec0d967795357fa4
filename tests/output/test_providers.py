"""Requests for typed answers, as providers get them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from perdure import Agent, tool, user
from perdure.loop import Items, ModelRequest, request_settings, resolve_tools
from perdure.models import anthropic, bedrock, chat, gemini, openresponses, openrouter
from perdure.models.http.body import Body
from perdure.output import FINAL_TOOL
from tests.output.forms import Invoice


@tool(effect="none")
def look(what: str) -> str:
    """Look something up."""
    return what


def chat_body(scheme: str) -> Callable[[ModelRequest], Body]:
    return partial(chat.request_body, dialect=chat.SCHEMES[scheme])


NATIVE: list[tuple[str, Callable[[ModelRequest], Body], str]] = [
    ("openai:gpt-5-mini", openresponses.request_body, "text"),
    ("openai-chat:gpt-4o", chat_body("openai-chat"), "response_format"),
    ("anthropic:claude-sonnet-4-5", anthropic.request_body, "output_config"),
    ("bedrock:us.anthropic.claude-sonnet-4-5-v1:0", bedrock.request_body, "outputConfig"),
    ("gemini:gemini-3-pro", gemini.request_body, "generationConfig"),
    ("openrouter:openai/gpt-5-mini", openrouter.request_body, "response_format"),
    ("xai:grok-4", chat_body("xai"), "response_format"),
]

BY_TOOL: list[tuple[str, Callable[[ModelRequest], Body]]] = [
    ("openai:gpt-4-turbo", openresponses.request_body),
    ("openresponses:http://127.0.0.1:1/v1#any", openresponses.request_body),
    ("anthropic:claude-3-5-haiku-latest", anthropic.request_body),
    ("bedrock:us.amazon.nova-pro-v1:0", bedrock.request_body),
    ("gemini:gemini-2.5-flash", gemini.request_body),
    ("openrouter:meta-llama/llama-4", openrouter.request_body),
    *((f"{name}:m", chat_body(name)) for name in ("groq", "deepseek", "mistral", "ollama")),
]


async def body_of(model: str, request_body: Callable[[ModelRequest], Body]) -> dict[str, Any]:
    config = Agent(model, output=Invoice, tools=[look])._config("")
    settings = request_settings(config, await resolve_tools(config))
    request = ModelRequest(settings=settings, input=Items.of([user("Read it.")]))
    decoded: dict[str, Any] = msgspec.json.decode(b"".join(request_body(request).fragments))
    return decoded


@pytest.mark.parametrize(("model", "request_body", "member"), NATIVE)
async def test_a_provider_that_can_gets_the_schema_and_the_tools(
    model: str, request_body: Callable[[ModelRequest], Body], member: str
) -> None:
    body = await body_of(model, request_body)
    assert "What is to be paid" in str(body[member])
    assert FINAL_TOOL not in str(body)
    assert "look" in str(body)


@pytest.mark.parametrize(("model", "request_body"), BY_TOOL)
async def test_a_provider_that_cannot_gets_the_final_tool(
    model: str, request_body: Callable[[ModelRequest], Body]
) -> None:
    body = await body_of(model, request_body)
    assert "response_format" not in body
    assert "format" not in str(body.get("text", {}))
    tools = str(body.get("tools", body.get("toolConfig")))
    assert FINAL_TOOL in tools
    assert "In cents." in tools
