"""The settings of a request as members of Gemini's API, and what they lose."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

from msgspec import Raw

from perdure.errors import ConfigError
from perdure.models.gemini.contents import NAME, OWN, PROVIDER, own_members
from perdure.models.gemini.schema import gemini_schema
from perdure.models.mapping.kept import kept
from perdure.models.mapping.losses import Lost
from perdure.models.mapping.names import checked_name
from perdure.models.mapping.settings import (
    allowed_names,
    format_of,
    given,
    model_named,
    own_settings,
    put_own,
    refuse_held,
    report_settings,
    stops_of,
)
from perdure.wire import (
    AllowedTools,
    FunctionChoice,
    FunctionTool,
    JsonSchemaFormat,
    Request,
    UnknownFormat,
    UnknownTool,
)
from perdure.wire.jsontext import members_of

_VERSION = re.compile(r"gemini-(\d{1,2})(?:\.(\d{1,2}))?(?!\d)")

_BUDGETS = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576}
_LEVELS = {"none": "minimal", "minimal": "minimal", "low": "low", "medium": "medium"}

_OWN_SETTINGS = frozenset({"safetySettings", "cachedContent", "labels"})
"""Members of the API that the wire does not know; they are sent as they are given."""

Members = dict[str, object]


def version(model: str) -> tuple[int, int]:
    """The version of a Gemini model; of one whose name says none, a new one's."""
    found = _VERSION.search(model)
    return (99, 0) if found is None else (int(found[1]), int(found[2] or 0))


def settings_members(settings: Request, system: Sequence[bytes], lost: Lost) -> Members:
    """Every member of a request but its contents.

    Raises:
        ConfigError: The API cannot do what the settings ask for.
    """
    refuse_held(settings)
    model = model_named(settings)
    out: Members = {}
    parts: list[object] = [{"text": settings.instructions}] if settings.instructions else []
    parts += map(Raw, system)
    if parts:
        out["systemInstruction"] = {"parts": parts}
    tools, choice = _tools(settings, lost)
    if tools:
        out["tools"] = tools
    if choice:
        out["toolConfig"] = {"functionCallingConfig": choice}
    config: Members = {}
    _sampling(settings, config, lost)
    _thinking(settings, model, config, lost)
    _format(settings, model, config, lost, tools=bool(tools))
    if config:
        out["generationConfig"] = config
    _others(settings, out, lost)
    return out


# --- tools ------------------------------------------------------------------------------


def _tools(settings: Request, lost: Lost) -> tuple[list[Members], Members]:
    functions: list[Members] = []
    tools: list[Members] = []
    strict = False
    for index, tool in enumerate(settings.tools or ()):
        lost.at = f"tools[{index}]"
        if isinstance(tool, FunctionTool):
            functions.append(_declaration(tool, lost))
            strict = strict or bool(tool.strict)
        elif tool.type.startswith(f"{PROVIDER}:"):
            tools.append(_own_tool(tool))
        else:
            lost.add(tool.type, "Gemini has no such tool; its own are named 'gemini:NAME'")
    lost.at = ""
    names = [cast("str", function["name"]) for function in functions]
    choice, allowed = _choice(settings.tool_choice, names, lost, strict=strict)
    if allowed is not None:
        functions = [function for function in functions if function["name"] in allowed]
    if functions:
        tools.append({"functionDeclarations": functions})
    return tools, choice if functions else {}


def _declaration(tool: FunctionTool, lost: Lost) -> Members:
    made: Members = {"name": checked_name(tool.name, NAME)}
    if given(tool.description):
        made["description"] = tool.description
    if tool.parameters:
        at, lost.at = lost.at, f"{lost.at}.parameters"
        made["parametersJsonSchema"] = gemini_schema(tool.parameters, lost)
        lost.at = at
    return {**made, **own_members(tool, lost)}


def _own_tool(tool: UnknownTool) -> Members:
    members = members_of(tool.source.raw)
    members.pop("type", None)
    return {tool.type.removeprefix(f"{PROVIDER}:"): members}


def _choice(
    choice: object, names: Sequence[str], lost: Lost, *, strict: bool
) -> tuple[Members, frozenset[str] | None]:
    """How to call, and which functions alone to declare; None for all."""
    free: Members = {"mode": "VALIDATED"} if strict else {}
    match choice:
        case FunctionChoice():
            if choice.name not in names:
                raise ConfigError(f"tool_choice names {choice.name!r}, which is none of the tools")
            return {"mode": "ANY", "allowedFunctionNames": [choice.name]}, None
        case AllowedTools():
            allowed = allowed_names(choice)
            if choice.mode == "required":
                return {"mode": "ANY", "allowedFunctionNames": allowed}, None
            mode, _ = _choice(choice.mode or "auto", names, lost, strict=strict)
            return mode, frozenset(allowed)
        case "auto":
            return free or {"mode": "AUTO"}, None
        case "required":
            if not names:
                raise ConfigError("tool_choice 'required' asks for a call, and there are no tools")
            return {"mode": "ANY"}, None
        case "none":
            return {"mode": "NONE"}, None
        case _:
            if choice:
                what = getattr(choice, "type", choice)
                lost.add(str(what), "Gemini has no such choice", "tool_choice")
            return free, None


# --- generation ---------------------------------------------------------------------------

_RENAMED = {
    "temperature": "temperature",
    "top_p": "topP",
    "max_output_tokens": "maxOutputTokens",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}


def _sampling(settings: Request, config: Members, lost: Lost) -> None:
    for name, own in _RENAMED.items():
        value: object = getattr(settings, name)
        if given(value):
            config[own] = value
    if settings.top_logprobs:
        config["responseLogprobs"] = True
        config["logprobs"] = settings.top_logprobs
    for name, own in (("seed", "seed"), ("top_k", "topK")):
        raw = kept(settings).get(name, b"null")
        if raw != b"null":
            config[own] = Raw(raw)
    stops = stops_of(settings)
    if stops:
        config["stopSequences"] = stops
    if settings.parallel_tool_calls is False:
        lost.add("parallel_tool_calls", "Gemini decides that itself", "parallel_tool_calls")


def _thinking(settings: Request, model: str, config: Members, lost: Lost) -> None:
    reasoning = settings.reasoning or None
    if reasoning is None:
        return
    made, effort = version(model), reasoning.effort or None
    if made < (2, 5):
        lost.add("reasoning", "the model does not think", "reasoning")
        return
    thinking: Members = {}
    if effort and made >= (3, 0):
        thinking["thinkingLevel"] = _level(model, effort, lost)
    elif effort in _BUDGETS:
        thinking["thinkingBudget"] = _budget(model, effort, lost)
    elif effort:
        lost.add(effort, "the model knows no such effort", "reasoning.effort")
    if reasoning.summary:
        thinking["includeThoughts"] = True
    if thinking:
        config["thinkingConfig"] = thinking


def _level(model: str, effort: str, lost: Lost) -> str:
    level = _LEVELS.get(effort, "high")
    if level == "minimal" and "pro" in model:
        level = "low"
    if effort not in {level, "high"}:
        lost.add(effort, f"the model takes {level!r} for the nearest", "reasoning.effort")
    return level


def _budget(model: str, effort: str, lost: Lost) -> int:
    budget = _BUDGETS[effort]
    if not budget and "pro" in model:
        lost.add(
            effort, "the model always thinks; told to do it with 128 tokens", "reasoning.effort"
        )
        return 128
    return budget


def _format(settings: Request, model: str, config: Members, lost: Lost, *, tools: bool) -> None:
    wanted = format_of(settings, lost, maker="Gemini")
    if wanted is None:
        return
    if isinstance(wanted, UnknownFormat):
        lost.add(wanted.type, "Gemini has no such format", "text.format")
        return
    if tools and version(model) < (3, 0):
        raise ConfigError(f"{model!r} cannot answer in JSON while it has tools; use a final tool")
    config["responseMimeType"] = "application/json"
    if isinstance(wanted, JsonSchemaFormat) and wanted.schema:
        lost.at = "text.format.schema"
        schema = gemini_schema(wanted.schema, lost)
        lost.at = ""
        if wanted.description and "description" not in schema:
            schema["description"] = wanted.description
        config["responseJsonSchema"] = schema


# --- the rest -------------------------------------------------------------------------------

_NOT_TAKEN = (
    "max_tool_calls",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "background",
)
_ELSEWHERE = frozenset({"seed", "top_k", "stop", "stop_sequences", OWN})


def _others(settings: Request, out: Members, lost: Lost) -> None:
    report_settings(settings, _NOT_TAKEN, lost, maker="Gemini")
    for name in settings.metadata or {}:
        lost.add(name, "Gemini takes no metadata", f"metadata.{name}")
    out.update(own_settings(settings, _OWN_SETTINGS, _ELSEWHERE, lost, maker="Gemini"))
    put_own(out, settings, OWN)
