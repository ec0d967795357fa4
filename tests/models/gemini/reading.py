"""Recorded requests of Gemini, read back as what they were made of."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models.gemini import response
from perdure.wire import (
    FunctionCallOutput,
    FunctionTool,
    InputFile,
    InputText,
    Item,
    JsonObjectFormat,
    JsonSchemaFormat,
    Message,
    Part,
    Request,
    Source,
    TextConfig,
    ToolDefinition,
    UnknownTool,
    with_unknown,
)
from tests.models.recorded import CLOCK, Count, Interaction

_OPAQUE = {"args", "response", "responseJsonSchema", "parametersJsonSchema", "responseSchema"}
"""Members whose value is the user's own."""


def camel(value: Any) -> Any:
    """A recorded request with every member as the API spells it; it takes both."""
    if isinstance(value, dict):
        members = {_camel(name): member for name, member in value.items()}
        return {n: m if n in _OPAQUE else camel(m) for n, m in members.items()}
    if isinstance(value, list):
        return [camel(element) for element in value]
    return value


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def model_of(interaction: Interaction) -> str:
    """The model that the address names."""
    return re.split(r"[/:]", interaction.path)[3]


def request_of(interaction: Interaction) -> ModelRequest:
    """What the recorded request was made of."""
    body = interaction.request
    items = [item for content in body["contents"] for item in items_of(content)]
    settings = settings_of(body, model_of(interaction))
    return ModelRequest(settings=settings, input=Items.of([*system_of(body), *items]))


# --- contents ------------------------------------------------------------------------


def items_of(content: dict[str, Any]) -> list[Item]:
    """The items of a content."""
    if content["role"] == "model":
        return model_items(content["parts"])
    items: list[Item] = []
    for part in content["parts"]:
        if "functionResponse" in part:
            items.append(_output(part["functionResponse"]))
        else:
            items.append(Message(role="user", content=(_part(part),)))
    return items


def model_items(parts: list[dict[str, Any]]) -> list[Item]:
    """The items of a model's parts, as if they were an answer."""
    named = [_with_id(part) for part in parts]
    answer = {"candidates": [{"content": {"parts": named}, "finishReason": "STOP"}]}
    return list(response(json.dumps(answer).encode(), ids=Count(), clock=CLOCK).output)


def _with_id(part: dict[str, Any]) -> dict[str, Any]:
    """The part; a call without an id has its name for one, as its response has."""
    call = part.get("functionCall")
    return {**part, "functionCall": {"id": call["name"], **call}} if call else part


_ENDINGS = {"application/pdf": "pdf", "image/jpeg": "jpg", "video/mp4": "mp4", "audio/mpeg": "mp3"}


def _part(part: dict[str, Any]) -> Part:
    if "text" in part:
        return InputText(text=part["text"])
    inline = part.get("inlineData") or part.get("inline_data")
    if inline:
        type_ = inline.get("mimeType") or inline.get("mime_type")
        return InputFile(file_data=f"data:{type_};base64,{inline['data']}")
    file = part.get("fileData") or part["file_data"]
    type_ = file.get("mimeType") or file["mime_type"]
    return InputFile(
        filename=f"file.{_ENDINGS.get(type_, type_.rpartition('/')[2])}",
        file_url=file.get("fileUri") or file["file_uri"],
    )


def _output(answer: dict[str, Any]) -> Item:
    given = answer["response"]
    texts = {"error": f"Error: {given.get('error')}"}
    text = texts[next(iter(given))] if list(given) == ["error"] else json.dumps(given)
    parts: list[Part] = [_part(part) for part in answer.get("parts") or ()]
    if not parts:
        return FunctionCallOutput(call_id=answer.get("id") or answer["name"], output=text)
    output = (*([InputText(text=text)] if given else []), *parts)
    return FunctionCallOutput(call_id=answer["id"], output=output)


# --- settings ------------------------------------------------------------------------


def system_of(body: dict[str, Any]) -> list[Item]:
    """What the system says before all contents."""
    system = body.get("systemInstruction") or {"parts": []}
    return [Message(role="system", content=(_part(part),)) for part in system["parts"]]


def settings_of(body: dict[str, Any], model: str) -> Request:
    """The settings of a recorded request. What the wire has no member for goes as it is."""
    config = camel(body.get("generationConfig") or {})
    schema = (body.get("generationConfig") or {}).get("responseJsonSchema")
    form: Any = None
    if schema is not None:
        form = JsonSchemaFormat(name="out", schema=schema)
        config = {
            n: m for n, m in config.items() if n not in {"responseJsonSchema", "responseMimeType"}
        }
    elif config.get("responseMimeType") and "responseSchema" not in config:
        form = JsonObjectFormat()
        del config["responseMimeType"]
    own: dict[str, Any] = {}
    settings = Request(
        model=model,
        temperature=config.pop("temperature", None),
        max_output_tokens=config.pop("maxOutputTokens", None),
        text=TextConfig(format=form) if form else None,
        tools=tuple(_tools(body.get("tools") or [])) or None,
    )
    if config:
        own["generationConfig"] = config
    if body.get("toolConfig"):
        own["toolConfig"] = camel(body["toolConfig"])
    members: dict[str, object] = {"perdure:gemini": own} if own else {}
    if body.get("safetySettings"):
        members["safetySettings"] = body["safetySettings"]
    return with_unknown(settings, members) if members else settings


def _tools(tools: Any) -> list[ToolDefinition]:
    made: list[ToolDefinition] = []
    for tool in [tools] if isinstance(tools, dict) else tools:
        for name, value in tool.items():
            if name in {"functionDeclarations", "function_declarations"}:
                made += [_declaration(one) for one in value]
            else:
                type_ = f"gemini:{name}"
                raw = msgspec.json.encode({"type": type_, **camel(value)})
                made.append(UnknownTool(type=type_, source=Source(raw)))
    return made


def _declaration(one: dict[str, Any]) -> ToolDefinition:
    schema = one.get("parameters_json_schema") or json_schema(one.get("parameters"))
    return FunctionTool(name=one["name"], description=one.get("description"), parameters=schema)


def json_schema(schema: Any) -> Any:
    """A schema of the API's older kind, whose types are in capitals, as JSON Schema."""
    if isinstance(schema, dict):
        made = {}
        for name, member in schema.items():
            lower = name == "type" and isinstance(member, str)
            made[_camel(name)] = str(member).lower() if lower else json_schema(member)
        return made
    return [json_schema(one) for one in schema] if isinstance(schema, list) else schema
