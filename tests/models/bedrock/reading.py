"""Recorded requests of Converse, read back as what they were made of."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

import msgspec

from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models.bedrock import response
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


def model_of(interaction: Interaction) -> str:
    """The model that the address names."""
    return unquote(interaction.path.split("/")[2])


def request_of(interaction: Interaction) -> ModelRequest:
    """What the recorded request was made of; its settings alone if its body was not recorded."""
    body = interaction.request
    if not body:
        settings = Request(model=model_of(interaction))
        return ModelRequest(settings=settings, input=Items.of([]))
    items = [item for message in body["messages"] for item in items_of(message)]
    settings = settings_of(body, model_of(interaction))
    return ModelRequest(settings=settings, input=Items.of([*system_of(body), *items]))


# --- messages ------------------------------------------------------------------------


def items_of(message: dict[str, Any]) -> list[Item]:
    """The items of a message."""
    if message["role"] == "assistant":
        return assistant_items(message["content"])
    items: list[Item] = []
    for block in message["content"]:
        if "toolResult" in block:
            items.append(_output(block["toolResult"]))
        else:
            items.append(Message(role="user", content=(_part(block),)))
    return items


def assistant_items(blocks: list[dict[str, Any]]) -> list[Item]:
    """The items of an assistant's blocks, as if they were an answer."""
    answer = {"output": {"message": {"content": blocks}}, "stopReason": "end_turn"}
    return list(response(json.dumps(answer).encode(), ids=Count(), clock=CLOCK).output)


def _part(block: dict[str, Any]) -> Part:
    match block:
        case {"text": text}:
            return InputText(text=text)
        case {"image": {"format": form, "source": {"bytes": data}}}:
            return InputImage(image_url=f"data:image/{form};base64,{data}")
        case {"image": {"source": {"s3Location": {"uri": uri}}}}:
            return InputImage(image_url=uri)
        case {"document": {"format": form, "source": {"bytes": data}}}:
            return InputFile(filename=f"Document.{form}", file_data=data)
        case {"document": {"format": form, "source": {"s3Location": {"uri": uri}}}}:
            return InputFile(filename=f"Document.{form}", file_url=uri)
        case _:
            type_ = f"bedrock:{next(iter(block))}"
            raw = msgspec.json.encode({"type": type_, "block": block})
            return UnknownPart(type=type_, source=Source(raw))


def _output(result: dict[str, Any]) -> Item:
    parts = [_part(one) for one in result["content"]]
    first = parts[0] if parts else InputText(text="")
    output = first.text if len(parts) <= 1 and isinstance(first, InputText) else tuple(parts)
    return FunctionCallOutput(call_id=result["toolUseId"], output=output)


# --- settings ------------------------------------------------------------------------

_NATIVE = ("additionalModelRequestFields", "performanceConfig")


def system_of(body: dict[str, Any]) -> list[Item]:
    """What the system says before all messages."""
    return [Message(role="system", content=(_part(block),)) for block in body.get("system") or ()]


def settings_of(body: dict[str, Any], model: str) -> Request:
    """The settings of a recorded request."""
    inference = body.get("inferenceConfig") or {}
    config = body.get("toolConfig") or {}
    settings = Request(
        model=model,
        max_output_tokens=inference.get("maxTokens"),
        temperature=inference.get("temperature"),
        top_p=inference.get("topP"),
        tools=tuple(_tools(config.get("tools") or [])) or None,
        tool_choice=_choice(config.get("toolChoice") or {}),
        text=_text(body.get("outputConfig")),
    )
    native = {name: body[name] for name in _NATIVE if body.get(name) is not None}
    return with_unknown(settings, native) if native else settings


def _text(config: Any) -> TextConfig | None:
    if not config:
        return None
    told = config["textFormat"]["structure"]["jsonSchema"]
    return TextConfig(
        format=JsonSchemaFormat(
            name=told["name"],
            description=told.get("description"),
            schema=json.loads(told["schema"]),
        )
    )


def _choice(choice: dict[str, Any]) -> str | FunctionChoice | None:
    if "tool" in choice:
        return FunctionChoice(name=choice["tool"]["name"])
    return next(({"auto": "auto", "any": "required"}[name] for name in choice), None)


def _tools(tools: list[dict[str, Any]]) -> list[ToolDefinition]:
    made: list[ToolDefinition] = []
    for tool in tools:
        if "toolSpec" in tool:
            spec = tool["toolSpec"]
            made.append(
                FunctionTool(
                    name=spec["name"],
                    description=spec.get("description"),
                    parameters=spec["inputSchema"]["json"],
                    strict=spec.get("strict"),
                )
            )
        else:
            ((name, value),) = tool.items()
            type_ = f"bedrock:{name}"
            raw = msgspec.json.encode({"type": type_, "config": value})
            made.append(UnknownTool(type=type_, source=Source(raw)))
    return made
