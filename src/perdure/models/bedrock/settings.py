"""The settings of a request as members of Converse, and what they lose."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

from msgspec import Raw

from perdure.errors import ConfigError
from perdure.models.bedrock.messages import NAME, OWN, PROVIDER, cache_point
from perdure.models.mapping.claude import (
    max_tokens,
    sampling,
    takes_one_of_both,
    thinking_members,
)
from perdure.models.mapping.kept import kept, kept_object, report_unknown
from perdure.models.mapping.losses import Lost
from perdure.models.mapping.names import checked_name
from perdure.models.mapping.settings import (
    allowed_names,
    format_of,
    given,
    merged,
    model_named,
    own_settings,
    put_own,
    refuse_held,
    report_settings,
    stops_of,
)
from perdure.models.mapping.strict_schema import answer_schema, parameters_of
from perdure.models.mapping.texts import json_text
from perdure.models.mapping.turns import Seen
from perdure.wire import (
    AllowedTools,
    FunctionChoice,
    FunctionTool,
    JsonSchemaFormat,
    Request,
    UnknownTool,
)
from perdure.wire.jsontext import members_of

_OWN_SETTINGS = frozenset(
    (
        "additionalModelRequestFields",
        "additionalModelResponseFieldPaths",
        "guardrailConfig",
        "performanceConfig",
        "promptVariables",
    )
)
"""Members of the API that the wire does not know; they are sent as they are given."""

Members = dict[str, object]


def is_claude(model: str) -> bool:
    """Whether a model is Claude."""
    return "anthropic." in model or "claude" in model


def settings_members(settings: Request, seen: Seen, lost: Lost) -> Members:
    """Every member of a request but its messages.

    Raises:
        ConfigError: The API cannot do what the settings ask for.
    """
    refuse_held(settings)
    model = model_named(settings)
    out: Members = {}
    system: list[object] = [{"text": settings.instructions}] if settings.instructions else []
    system += map(Raw, seen.system)
    if system:
        out["system"] = system
    config = _tool_config(settings, seen, lost)
    if config:
        out["toolConfig"] = config
    more: Members = {}
    forced = bool({"any", "tool"} & cast("Members", config.get("toolChoice", {})).keys())
    if is_claude(model):
        thinks = _claude_thinking(settings, seen, more, lost, forced=forced)
    else:
        thinks = False
        _effort(settings, model, more, lost)
    inference = _inference(settings, more, lost, thinks=thinks)
    if thinks and "maxTokens" not in inference:
        inference["maxTokens"] = max_tokens(settings)
    if inference:
        out["inferenceConfig"] = inference
    if more:
        out["additionalModelRequestFields"] = more
    _format(settings, out, lost)
    _others(settings, out, lost)
    return out


# --- tools ------------------------------------------------------------------------------


def _tool_config(settings: Request, seen: Seen, lost: Lost) -> Members:
    choice = settings.tool_choice
    allowed: frozenset[str] | None = None
    mode: object = choice
    if isinstance(choice, AllowedTools):
        allowed = frozenset(allowed_names(choice))
        mode = choice.mode or "auto"
    tools: list[Members] = []
    names: list[str] = []
    for index, tool in enumerate(settings.tools or ()):
        lost.at = f"tools[{index}]"
        if isinstance(tool, FunctionTool):
            if allowed is None or tool.name in allowed:
                names.append(checked_name(tool.name, NAME))
                tools += _function(tool, lost)
        elif tool.type.startswith(f"{PROVIDER}:"):
            tools.append(_own_tool(tool))
        else:
            lost.add(tool.type, "Bedrock has no such tool; its own are named 'bedrock:NAME'")
    lost.at = ""
    chosen = _choice(mode, names, lost)
    if mode == "none":
        if not seen.names:
            return {}
        lost.add("none", "Bedrock cannot forbid calls where some were made", "tool_choice")
    if not tools:  # calls in the turns need them, though none may be made again
        tools = [_stub(name) for name in seen.names]
    return {"tools": tools, **({"toolChoice": chosen} if chosen else {})} if tools else {}


def _function(tool: FunctionTool, lost: Lost) -> list[Members]:
    made: Members = {"name": tool.name}
    if tool.description:
        made["description"] = tool.description
    schema, strict = parameters_of(tool, lost, maker="Bedrock")
    made["inputSchema"] = {"json": schema}
    if strict:
        made["strict"] = True
    report_unknown(tool, lost, maker="Bedrock", own={OWN}, cached=True)
    spec: Members = {"toolSpec": {**made, **kept_object(tool, OWN)}}
    point = kept(tool).get("cache_control")
    return [spec] if point is None else [spec, cache_point(point)]


def _own_tool(tool: UnknownTool) -> Members:
    members = members_of(tool.source.raw)
    members.pop("type", None)
    # A tool whose own members have a type has them in one named `config`.
    value: object = members.get("config", members)
    return {tool.type.removeprefix(f"{PROVIDER}:"): value}


def _stub(name: str) -> Members:
    legal = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]
    return {"toolSpec": {"name": legal, "inputSchema": {"json": {"type": "object"}}}}


def _choice(choice: object, names: Sequence[str], lost: Lost) -> Members:
    match choice:
        case FunctionChoice():
            if choice.name not in names:
                raise ConfigError(f"tool_choice names {choice.name!r}, which is none of the tools")
            return {"tool": {"name": choice.name}}
        case "required":
            if not names:
                raise ConfigError("tool_choice 'required' asks for a call, and there are no tools")
            return {"any": {}}
        case "auto":
            return {"auto": {}}
        case "none":
            return {}
        case _:
            if choice:
                what = getattr(choice, "type", choice)
                lost.add(str(what), "Bedrock has no such choice", "tool_choice")
            return {}


# --- thinking -----------------------------------------------------------------------------


def _claude_thinking(
    settings: Request, seen: Seen, more: Members, lost: Lost, *, forced: bool
) -> bool:
    """Whether Claude will think."""
    thinking, output = thinking_members(
        settings, lost, forced=forced, calls_without_thought=seen.calls_without_thought
    )
    if thinking:
        more["thinking"] = thinking
    if output:
        more["output_config"] = output
    return thinking.get("type") in {"enabled", "adaptive"}


def _effort(settings: Request, model: str, more: Members, lost: Lost) -> None:
    """How much to think, in the words of each family."""
    effort = settings.reasoning.effort if settings.reasoning else None
    if not effort:
        return
    known = effort in {"low", "medium", "high"}
    if known and "openai." in model:
        more["reasoning_effort"] = effort
    elif known and "qwen" in model:
        more["reasoning_config"] = effort
    elif known and "nova-2" in model:
        more["reasoningConfig"] = {"type": "enabled", "maxReasoningEffort": effort}
    else:
        lost.add(effort, "the model knows no such effort", "reasoning.effort")


# --- the rest -------------------------------------------------------------------------------


_SAMPLING = {"temperature": "temperature", "top_p": "topP"}


def _inference(settings: Request, more: Members, lost: Lost, *, thinks: bool) -> Members:
    made: Members = {}
    claude = is_claude(settings.model or "")
    if given(settings.max_output_tokens):
        made["maxTokens"] = settings.max_output_tokens
    either = claude and takes_one_of_both(settings.model or "")
    sampled = sampling(settings, lost, maker="Bedrock", thinks=thinks, either=either)
    made.update({_SAMPLING[name]: value for name, value in sampled.items()})
    stops = stops_of(settings)
    if stops:
        made["stopSequences"] = stops
    top_k = kept(settings).get("top_k", b"null")
    if top_k != b"null":
        if claude:
            more["top_k"] = Raw(top_k)
        else:
            lost.add(
                "top_k",
                "only Claude has it by this name; see additionalModelRequestFields",
                "top_k",
            )
    return made


def _format(settings: Request, out: Members, lost: Lost) -> None:
    wanted = format_of(settings, lost, maker="Bedrock")
    if wanted is None:
        return
    if not isinstance(wanted, JsonSchemaFormat):
        lost.add(wanted.type, "Bedrock answers in JSON only by a schema", "text.format")
        return
    schema = answer_schema(wanted, lost, maker="Bedrock")
    made: Members = {"name": wanted.name, "schema": json_text(schema).decode()}
    if wanted.description:
        made["description"] = wanted.description
    structure = {"jsonSchema": made}
    out["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": structure}}


_NOT_TAKEN = (
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "max_tool_calls",
    "prompt_cache_key",
    "safety_identifier",
    "background",
)
_ELSEWHERE = frozenset({"stop", "stop_sequences", "top_k", "cache_control", OWN})
_OF_CLAUDE = frozenset({"thinking", "output_config"})


def _others(settings: Request, out: Members, lost: Lost) -> None:
    report_settings(settings, _NOT_TAKEN, lost, maker="Bedrock")
    if settings.parallel_tool_calls is False:
        lost.add("parallel_tool_calls", "Bedrock leaves that to the model", "parallel_tool_calls")
    if settings.metadata:
        out["requestMetadata"] = settings.metadata
    if settings.service_tier and settings.service_tier != "auto":
        out["serviceTier"] = {"type": settings.service_tier}
    elsewhere = _ELSEWHERE | _OF_CLAUDE if is_claude(settings.model or "") else _ELSEWHERE
    for name, own in own_settings(settings, _OWN_SETTINGS, elsewhere, lost, maker="Bedrock"):
        out[name] = merged(out.get(name), own)
    if "cache_control" in kept(settings):
        lost.add("cache_control", "put it on what is to be cached", "cache_control")
    put_own(out, settings, OWN)
