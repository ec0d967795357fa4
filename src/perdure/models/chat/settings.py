"""The settings of a request as the members of a Chat Completions body, all but its messages.

Members that the wire's type does not know go as they are, under their own names: `seed`, `stop`, a
service's own ones. What a service does not take is told to a `Lost`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from perdure.errors import ConfigError
from perdure.models.chat.parts import own_members
from perdure.models.dialects import Dialect
from perdure.models.mapping.kept import kept
from perdure.models.mapping.losses import Lost
from perdure.models.mapping.settings import given, refuse_held
from perdure.wire import (
    AllowedTools,
    FunctionChoice,
    FunctionTool,
    JsonObjectFormat,
    JsonSchemaFormat,
    ReasoningConfig,
    Request,
    TextConfig,
    TextFormat,
    ToolDefinition,
)
from perdure.wire.jsontext import members_of

_NOT_TAKEN = "the service does not take it"

_PLAIN = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "metadata",
)
"""Settings that Chat Completions has under the same names."""

_OURS = frozenset({"messages", "stream", "model", "tools", "input", "functions"})
"""What no extra member may put in the place of."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LOGPROBS = "message.output_text.logprobs"
_VACUOUS = frozenset({_LOGPROBS, "reasoning.encrypted_content"})
"""What may be asked for and is given anyway, or is another member here."""


def members(settings: Request, dialect: Dialect, lost: Lost, *, stream: bool) -> dict[str, object]:
    """The members of a body but `messages`.

    Raises:
        ConfigError: They name a conversation that a server holds, or cannot be sent.
    """
    refuse_held(settings)
    body: dict[str, object] = {"model": settings.model or ""}
    for name in _PLAIN:
        _put(body, name, getattr(settings, name), dialect, lost)
    if given(settings.max_output_tokens):
        body[dialect.limit_of(settings.model or "")] = settings.max_output_tokens
    if "store" in dialect.takes:
        body["store"] = False
    _tools(body, settings, dialect, lost)
    _text(body, settings.text or TextConfig(), dialect, lost)
    _reasoning(body, settings.reasoning or ReasoningConfig(), dialect, lost)
    _logprobs(body, settings, dialect, lost)
    _stream(body, settings, dialect, lost, stream=stream)
    _nowhere(settings, lost)
    _extra(body, settings, dialect, lost)
    return body


def _put(body: dict[str, object], name: str, value: object, dialect: Dialect, lost: Lost) -> None:
    if not given(value):
        return
    if name in dialect.takes:
        body[name] = value
    else:
        lost.add(name, _NOT_TAKEN, name)


# --- tools -------------------------------------------------------------------------


def _tools(body: dict[str, object], settings: Request, dialect: Dialect, lost: Lost) -> None:
    choice = settings.tool_choice
    offered = list(settings.tools or ())
    if isinstance(choice, AllowedTools) and dialect.tool_choice != "list":
        # Offering those alone is the same.
        names = {tool.name for tool in choice.tools if isinstance(tool, FunctionChoice)}
        offered = [tool for tool in offered if _name(tool) in names]
    elif isinstance(choice, FunctionChoice) and dialect.tool_choice not in {"named", "list"}:
        offered = [tool for tool in offered if _name(tool) == choice.name]
    elif choice == "none" and dialect.tool_choice == "none":
        offered = []
    tools = [
        made
        for index, tool in enumerate(offered)
        if (made := _tool(tool, index, dialect, lost)) is not None
    ]
    if not tools:
        return
    body["tools"] = tools
    _choice(body, settings, dialect, lost)
    if settings.parallel_tool_calls is False or "parallel_tool_calls" in dialect.takes:
        parallel = settings.parallel_tool_calls
        _put(body, "parallel_tool_calls", parallel, dialect, lost)


def _name(tool: ToolDefinition) -> str:
    return tool.name if isinstance(tool, FunctionTool) else ""


def _tool(tool: ToolDefinition, index: int, dialect: Dialect, lost: Lost) -> object:
    if not isinstance(tool, FunctionTool):
        if dialect.hosted_tools and tool.type.startswith(dialect.hosted_tools):
            return msgspec.Raw(tool.source.raw)
        lost.add(tool.type, "the service has no such tool", f"tools[{index}]")
        return None
    if not _TOOL_NAME.fullmatch(tool.name):
        raise ConfigError(
            f"tool name {tool.name!r} cannot be sent: it has to be 1 to 64 of A-Z a-z 0-9 _ -"
        )
    function: dict[str, object] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    if given(tool.strict) and dialect.strict_tools:
        function["strict"] = tool.strict
    elif tool.strict:
        lost.add("strict", "the service holds nobody to a schema", f"tools[{index}].strict")
    own = own_members(tool, dialect.tool_members)
    for name in kept(tool):
        if name not in own and name not in tool.__struct_encode_fields__:
            lost.add(name, "the service has no place for it", f"tools[{index}].{name}")
    return {"type": "function", "function": function, **own}


def _choice(body: dict[str, object], settings: Request, dialect: Dialect, lost: Lost) -> None:
    choice = settings.tool_choice
    match choice:
        case AllowedTools():
            mode = choice.mode or "auto"
            if dialect.tool_choice == "list":
                allowed = {"mode": mode, "tools": _functions(choice)}
                body["tool_choice"] = {"type": "allowed_tools", "allowed_tools": allowed}
            else:
                _word(body, mode, dialect, lost)
        case FunctionChoice():
            if dialect.tool_choice in {"named", "list"}:
                body["tool_choice"] = _function(choice.name)
            else:
                _word(body, "required", dialect, lost)
        case str():
            _word(body, choice, dialect, lost)
        case _ if given(choice):
            lost.add("tool_choice", _NOT_TAKEN, "tool_choice")
        case _:
            pass


def _word(body: dict[str, object], word: str, dialect: Dialect, lost: Lost) -> None:
    if dialect.tool_choice != "none":
        body["tool_choice"] = dialect.required if word == "required" else word
    elif word != "auto":
        lost.add("tool_choice", "the service lets the model choose", "tool_choice")


def _function(name: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": name}}


def _functions(choice: AllowedTools) -> list[dict[str, object]]:
    return [_function(tool.name) for tool in choice.tools if isinstance(tool, FunctionChoice)]


# --- text, reasoning, logprobs ----------------------------------------------------------


def _text(body: dict[str, object], text: TextConfig, dialect: Dialect, lost: Lost) -> None:
    _put(body, "verbosity", text.verbosity, dialect, lost)
    match text.format:
        case JsonSchemaFormat() as format_ if dialect.json_schema:
            body["response_format"] = {"type": "json_schema", "json_schema": _schema(format_)}
        case JsonObjectFormat() | JsonSchemaFormat() as format_:
            if isinstance(format_, JsonSchemaFormat) or not dialect.json_object:
                lost.add(format_.type, "the service cannot be held to it", "text.format")
            if dialect.json_object:
                body["response_format"] = {"type": "json_object"}
        case TextFormat():
            pass
        case other if given(other):
            lost.add("format", _NOT_TAKEN, "text.format")
        case _:
            pass


def _schema(format_: JsonSchemaFormat) -> dict[str, object]:
    schema: dict[str, object] = {"name": format_.name, "schema": format_.schema or {}}
    if format_.description:
        schema["description"] = format_.description
    if given(format_.strict):
        schema["strict"] = format_.strict
    return schema


def _reasoning(
    body: dict[str, object], reasoning: ReasoningConfig, dialect: Dialect, lost: Lost
) -> None:
    if dialect.effort == "reasoning":
        asked: dict[str, object] = {"effort": reasoning.effort, "summary": reasoning.summary}
        own = {name: value for name, value in asked.items() if given(value)}
        own |= {name: msgspec.Raw(raw) for name, raw in kept(reasoning).items() if raw != b"null"}
        if own:
            body["reasoning"] = own
        return
    if reasoning.effort and dialect.effort:
        body["reasoning_effort"] = reasoning.effort
    elif reasoning.effort:
        lost.add("effort", _NOT_TAKEN, "reasoning.effort")
    for name, value in {"summary": reasoning.summary, **reasoning.unknown}.items():
        if value:
            lost.add(name, _NOT_TAKEN, f"reasoning.{name}")


def _logprobs(body: dict[str, object], settings: Request, dialect: Dialect, lost: Lost) -> None:
    wanted = given(settings.top_logprobs) or _LOGPROBS in (settings.include or ())
    if not wanted:
        return
    if "logprobs" not in dialect.takes:
        lost.add("logprobs", _NOT_TAKEN, "top_logprobs" if settings.top_logprobs else "include")
        return
    body["logprobs"] = True
    if given(settings.top_logprobs):
        body["top_logprobs"] = settings.top_logprobs


# --- the rest ----------------------------------------------------------------------


def _stream(
    body: dict[str, object], settings: Request, dialect: Dialect, lost: Lost, *, stream: bool
) -> None:
    body["stream"] = stream
    options: dict[str, object] = {"include_usage": True} if dialect.stream_usage else {}
    asked = settings.stream_options
    if asked and given(asked.include_obfuscation):
        if "obfuscation" in dialect.takes:
            options["include_obfuscation"] = asked.include_obfuscation
        else:
            lost.add("include_obfuscation", _NOT_TAKEN, "stream_options.include_obfuscation")
    if stream and options:
        body["stream_options"] = options


def _nowhere(settings: Request, lost: Lost) -> None:
    """Tell of settings that Chat Completions has no member for."""
    nowhere: Mapping[str, object] = {
        "max_tool_calls": settings.max_tool_calls,
        "truncation": settings.truncation not in {None, "disabled", ""} and settings.truncation,
        "background": settings.background,
    }
    for name, value in nowhere.items():
        if value:
            lost.add(name, "Chat Completions has no such setting", name)
    asked = [name for name in settings.include or () if name not in _VACUOUS]
    for name in asked:
        lost.add(name, "Chat Completions has no such setting", "include")


def _extra(body: dict[str, object], settings: Request, dialect: Dialect, lost: Lost) -> None:
    renamed = dict(dialect.renamed)
    for name, raw in kept(settings).items():
        if name in settings.__struct_encode_fields__ or name.startswith("perdure:"):
            continue
        if name in _OURS:
            raise ConfigError(f"settings must not hold {name!r}: perdure makes it itself")
        if name == "n" and raw != b"1":
            raise ConfigError("settings must not ask for several answers: a turn has one")
        if name in dialect.refused:
            lost.add(name, _NOT_TAKEN, name)
            continue
        _merge(body, renamed.get(name, name), raw)


def _merge(body: dict[str, object], name: str, raw: bytes) -> None:
    """Put an extra member; one that is an object adds to what stands there."""
    there = body.get(name)
    extra = members_of(raw)
    if isinstance(there, dict) and extra:
        body[name] = {**cast("dict[str, object]", there), **extra}
    else:
        body[name] = msgspec.Raw(raw)


def instructions(settings: Request, system: Sequence[str]) -> list[object]:
    """The messages that go before all others.

    Args:
        settings: The settings, perhaps with instructions.
        system: System text of the input that has to go to the front.
    """
    texts = [text for text in (settings.instructions or "", *system) if text]
    return [{"role": "system", "content": "\n\n".join(texts)}] if texts else []
