"""Recorded requests of Chat Completions, read back as what they were made of."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models.chat import response
from perdure.models.dialects import (
    CEREBRAS,
    DEEPSEEK,
    GEMINI,
    GROQ,
    MISTRAL,
    OPENAI,
    OPENROUTER,
    ZAI,
    Dialect,
)
from perdure.wire import (
    FunctionCallOutput,
    FunctionChoice,
    FunctionTool,
    InputFile,
    InputImage,
    InputText,
    Item,
    JsonObjectFormat,
    JsonSchemaFormat,
    Message,
    Part,
    ReasoningConfig,
    Request,
    Source,
    TextConfig,
    ToolDefinition,
    UnknownTool,
    with_unknown,
)
from tests.models.recorded import CLOCK, Count, Interaction

_BY_PATH = {
    "/api/v1/chat/completions": OPENROUTER,
    "/openai/v1/chat/completions": GROQ,
    "/v1beta/openai/chat/completions": GEMINI,
    "/api/paas/v4/chat/completions": ZAI,
    "/chat/completions": DEEPSEEK,
}

_CEREBRAS = {"gpt-oss-120b", "llama-3.3-70b", "llama3.3-70b", "zai-glm-4.7"}


def dialect_of(one: Interaction) -> Dialect:
    """Who was asked: the path says it, or the model."""
    model = one.request["model"]
    if one.path in _BY_PATH:
        return _BY_PATH[one.path]
    if model in _CEREBRAS:
        return CEREBRAS
    return OPENAI if model.startswith(("gpt-", "o1-", "o3-")) else MISTRAL


def request_of(one: Interaction) -> ModelRequest:
    """What the recorded request was made of."""
    items = items_of(one.request["messages"], dialect_of(one))
    return ModelRequest(settings=settings_of(one.request), input=Items.of(items))


# --- messages ------------------------------------------------------------------------


def items_of(messages: list[dict[str, Any]], dialect: Dialect) -> list[Item]:
    """The items of messages. What stands between a result and a user alone is no item."""
    items: list[Item] = []
    for index, message in enumerate(messages):
        bridge = dialect.bridge and _text(message) == dialect.bridge
        if bridge and index and messages[index - 1]["role"] == "tool":
            continue
        items += _items(message, dialect)
    return items


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(p.get("text", "") for p in content)


def _items(message: dict[str, Any], dialect: Dialect) -> list[Item]:
    match message["role"]:
        case "assistant":
            return assistant_items(message, dialect)
        case "tool":
            content = message["content"]
            output = content if isinstance(content, str) else tuple(map(_part, content))
            return [FunctionCallOutput(call_id=message["tool_call_id"], output=output)]
        case role:
            content = message["content"]
            if isinstance(content, str):
                content = [{"type": "text", "text": content}]
            return [Message(role=role, content=tuple(map(_part, content)))]


def assistant_items(message: dict[str, Any], dialect: Dialect) -> list[Item]:
    """The items of an assistant's message, as if it were an answer."""
    said = {name: member for name, member in message.items() if name != "prefix"}
    answer = {"choices": [{"message": said, "finish_reason": "stop"}]}
    raw = json.dumps(answer).encode()
    return list(response(raw, dialect=dialect, ids=Count(), clock=CLOCK).output)


def _part(given: dict[str, Any]) -> Part:
    part: Part
    match given["type"]:
        case "text":
            part = InputText(text=given["text"])
        case "image_url":
            part = InputImage(image_url=given["image_url"]["url"])
        case "file" if given["file"].get("file_data", "").startswith("http"):
            file = given["file"]
            part = InputFile(file_url=file["file_data"], filename=file["filename"])
        case "file":
            part = InputFile(**given["file"])
        case "document_url" if given["document_url"].startswith("data:"):
            part = InputFile(file_data=given["document_url"])
        case "document_url":
            part = InputFile(file_url=given["document_url"])
        case kind:
            raise AssertionError(kind)
    names = ("cache_control", "prompt_cache_breakpoint")
    own: dict[str, Any] = {name: given[name] for name in names if name in given}
    return with_unknown(part, own) if own else part


# --- settings ------------------------------------------------------------------------

_TYPED = {
    "model",
    "messages",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "response_format",
    "reasoning",
    "reasoning_effort",
    "max_completion_tokens",
    "n",
    *("top_p", "presence_penalty", "frequency_penalty", "prompt_cache_key"),
}


def settings_of(body: dict[str, Any]) -> Request:
    """The settings of a recorded request."""
    settings = Request(
        model=body["model"],
        max_output_tokens=body.get("max_completion_tokens"),
        tools=tuple(_tool(tool) for tool in body.get("tools") or ()) or None,
        tool_choice=_choice(body.get("tool_choice")),
        text=_format(body.get("response_format")),
        reasoning=_reasoning(body),
        top_p=body.get("top_p"),
        presence_penalty=body.get("presence_penalty"),
        frequency_penalty=body.get("frequency_penalty"),
        prompt_cache_key=body.get("prompt_cache_key"),
    )
    own = {name: member for name, member in body.items() if name not in _TYPED}
    return with_unknown(settings, own) if own else settings


def _choice(choice: Any) -> str | FunctionChoice | None:
    if isinstance(choice, dict):
        return FunctionChoice(name=choice["function"]["name"])
    return "required" if choice == "any" else choice


def _format(given: dict[str, Any] | None) -> TextConfig | None:
    if given is None:
        return None
    if given["type"] == "json_object":
        return TextConfig(format=JsonObjectFormat())
    return TextConfig(format=JsonSchemaFormat(**given["json_schema"]))


def _reasoning(body: dict[str, Any]) -> ReasoningConfig | None:
    if "reasoning_effort" in body:
        return ReasoningConfig(effort=body["reasoning_effort"])
    given = dict(body.get("reasoning") or {})
    if not given:
        return None
    config = ReasoningConfig(effort=given.pop("effort", None))
    return with_unknown(config, given) if given else config


def _tool(tool: dict[str, Any]) -> ToolDefinition:
    if "function" not in tool:
        return UnknownTool(type=tool["type"], source=Source(msgspec.json.encode(tool)))
    made = FunctionTool(**tool["function"])
    own = {name: member for name, member in tool.items() if name not in {"type", "function"}}
    return with_unknown(made, own) if own else made


# --- what a service takes for the same -------------------------------------------------


def compared(body: Any) -> list[dict[str, Any]]:
    """The messages of a body as a service reads them.

    It takes one text for a list of it, the want of a content for an empty one, and nothing from
    nulls, empty lists and thoughts, a `prefix` that is false and the `index` of a call. A call
    without a type is one of a function, and one without arguments has none.
    """
    return [_message(message) for message in body["messages"]]


def _message(message: dict[str, Any]) -> dict[str, Any]:
    told = {name: member for name, member in message.items() if member not in (None, [], "", False)}
    content = told.get("content")
    if isinstance(content, str):
        told["content"] = [{"type": "text", "text": content}]
    if "tool_calls" in told:
        told["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"arguments": "{}", **call["function"]},
                "extra_content": call.get("extra_content"),
            }
            for call in told["tool_calls"]
        ]
    return told


def settings_compared(body: dict[str, Any]) -> dict[str, Any]:
    """Everything but the messages.

    A service takes one answer for the default, a tool without a type for a function and an empty
    description for none. Usage is asked for in every stream that has it only then, and what is not
    to be stored is said to be.
    """
    told = {n: m for n, m in body.items() if n not in {"messages", "n", "stream_options", "store"}}
    if "tools" in told:
        told["tools"] = [_same_tool(tool) for tool in told["tools"]]
    return told


def _same_tool(tool: dict[str, Any]) -> dict[str, Any]:
    same = {"type": "function", **tool}
    if "function" in same:
        same["function"] = {n: m for n, m in same["function"].items() if m != ""}
    return same
