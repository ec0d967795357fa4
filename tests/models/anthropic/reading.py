"""Recorded requests of the Messages API, read back as what they were made of."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models.anthropic import response
from perdure.wire import (
    FunctionCallOutput,
    FunctionChoice,
    FunctionTool,
    InputFile,
    InputImage,
    InputText,
    Item,
    JsonSchemaFormat,
    Message,
    Part,
    Request,
    Source,
    TextConfig,
    ToolDefinition,
    UnknownPart,
    UnknownTool,
    with_unknown,
)
from tests.models.recorded import CLOCK, Count, Interaction


def request_of(interaction: Interaction) -> ModelRequest:
    """What the recorded request was made of."""
    body = interaction.request
    items = [item for message in body["messages"] for item in items_of(message)]
    return ModelRequest(settings=settings_of(body), input=Items.of([*system_of(body), *items]))


# --- messages ------------------------------------------------------------------------


def items_of(message: dict[str, Any]) -> list[Item]:
    """The items of a message."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if message["role"] == "assistant":
        return assistant_items(blocks)
    items: list[Item] = []
    for block in blocks:
        if block["type"] == "tool_result":
            items.append(_output(block))
        else:
            items.append(Message(role=message["role"], content=(_part(block),)))
    return items


def assistant_items(blocks: list[dict[str, Any]]) -> list[Item]:
    """The items of an assistant's blocks, as if they were an answer."""
    answer = {"type": "message", "content": blocks, "stop_reason": "end_turn"}
    return list(response(json.dumps(answer).encode(), ids=Count(), clock=CLOCK).output)


def _part(block: dict[str, Any]) -> Part:
    source = block.get("source", {})
    part: Part
    match block["type"], source.get("type"):
        case "text", _:
            part = InputText(text=block["text"])
        case "image", "base64":
            part = InputImage(image_url=f"data:{source['media_type']};base64,{source['data']}")
        case "image", "url":
            part = InputImage(image_url=source["url"])
        case "image", "file":
            part = InputImage(file_id=source["file_id"])
        case "document", "base64":
            part = InputFile(file_data=f"data:{source['media_type']};base64,{source['data']}")
        case "document", "text":
            part = InputFile(file_data=f"data:text/plain,{source['data']}")
        case "document", "url":
            part = InputFile(file_url=source["url"])
        case "document", "file":
            part = InputFile(file_id=source["file_id"])
        case kind, _:
            type_ = f"anthropic:{kind}"
            raw = msgspec.json.encode({"type": type_, "block": block})
            return UnknownPart(type=type_, source=Source(raw))
    cached = block.get("cache_control")
    return with_unknown(part, {"cache_control": cached}) if cached else part


def _output(block: dict[str, Any]) -> Item:
    content = block.get("content") or ()
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    parts = [_part(one) for one in blocks]
    first = parts[0] if parts else InputText(text="")
    output = first.text if len(parts) <= 1 and isinstance(first, InputText) else tuple(parts)
    return FunctionCallOutput(call_id=block["tool_use_id"], output=output)


# --- settings ------------------------------------------------------------------------

_NATIVE = ("thinking", "mcp_servers", "container", "cache_control")


def system_of(body: dict[str, Any]) -> list[Item]:
    """What the system says before all messages."""
    system = body.get("system") or []
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
    return [Message(role="system", content=(_part(block),)) for block in blocks]


def settings_of(body: dict[str, Any]) -> Request:
    """The settings of a recorded request."""
    config = dict(body.get("output_config") or {})
    form = config.pop("format", None)
    choice = dict(body.get("tool_choice") or {})
    parallel = choice.pop("disable_parallel_tool_use", None)
    settings = Request(
        model=body["model"],
        max_output_tokens=body.get("max_tokens"),
        tools=tuple(_tool(tool) for tool in body.get("tools") or ()) or None,
        tool_choice=_choice(choice),
        parallel_tool_calls=False if parallel else None,
        metadata=body.get("metadata"),
        text=TextConfig(format=JsonSchemaFormat(name="out", schema=form["schema"]))
        if form
        else None,
    )
    native = {name: body[name] for name in _NATIVE if body.get(name) is not None}
    if config:
        native["output_config"] = config
    return with_unknown(settings, native) if native else settings


def _choice(choice: dict[str, Any]) -> str | FunctionChoice | None:
    if choice.get("type") == "tool":
        return FunctionChoice(name=choice["name"])
    return {"auto": "auto", "any": "required", "none": "none"}.get(choice.get("type", ""))


def _tool(tool: dict[str, Any]) -> ToolDefinition:
    if "input_schema" not in tool:
        type_ = f"anthropic:{tool['type']}"
        return UnknownTool(type=type_, source=Source(msgspec.json.encode({**tool, "type": type_})))
    made = FunctionTool(
        name=tool["name"],
        description=tool.get("description"),
        parameters=tool["input_schema"],
        strict=tool.get("strict"),
    )
    rest = {
        name: member
        for name, member in tool.items()
        if name not in {"name", "description", "input_schema", "strict"} and member is not None
    }
    return with_unknown(made, {"perdure:anthropic": rest}) if rest else made
