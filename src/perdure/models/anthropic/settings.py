"""The settings of a request as members of the Messages API, and what they lose."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Raw

from perdure.errors import ConfigError
from perdure.models.anthropic.messages import NAME, OWN, PROVIDER, own_members
from perdure.models.mapping.claude import (
    max_tokens,
    sampling,
    takes_one_of_both,
    thinking_members,
)
from perdure.models.mapping.kept import extension, kept
from perdure.models.mapping.losses import Lost
from perdure.models.mapping.names import checked_name
from perdure.models.mapping.settings import (
    allowed_names,
    format_of,
    given,
    model_named,
    own_settings,
    refuse_held,
    report_settings,
    stops_of,
)
from perdure.models.mapping.strict_schema import answer_schema, parameters_of
from perdure.models.mapping.turns import Seen
from perdure.wire import (
    AllowedTools,
    FunctionChoice,
    FunctionTool,
    JsonSchemaFormat,
    Request,
    ToolDefinition,
    UnknownTool,
    UnknownToolChoice,
)
from perdure.wire.jsontext import members_of, text_of_raw

_OWN_SETTINGS = frozenset(
    (
        "cache_control",
        "container",
        "context_management",
        "inference_geo",
        "mcp_servers",
        "output_config",
        "speed",
        "thinking",
        "top_k",
    )
)
"""Members of the API that the wire does not know; they are sent as they are given."""


def settings_members(
    settings: Request, seen: Seen, *, stream: bool, lost: Lost
) -> dict[str, object]:
    """Every member of a request but its messages.

    Raises:
        ConfigError: The API cannot do what the settings ask for.
    """
    refuse_held(settings)
    out: dict[str, object] = {"model": model_named(settings), "max_tokens": max_tokens(settings)}
    system = [*_instructions(settings), *map(Raw, seen.system)]
    if system:
        out["system"] = system
    tools = _tools(settings, seen, lost)
    if tools:
        out["tools"] = tools
    choice = _tool_choice(settings, seen, tools, lost)
    if choice:
        out["tool_choice"] = choice
    forced = choice.get("type") in {"any", "tool"}
    thinking, config = thinking_members(
        settings, lost, forced=forced, calls_without_thought=seen.calls_without_thought
    )
    _format(settings, config, lost)
    if thinking:
        out["thinking"] = thinking
    if config:
        out["output_config"] = config
    thinks = thinking.get("type") not in {None, "disabled"}
    either = takes_one_of_both(settings.model or "")
    out.update(sampling(settings, lost, maker="Anthropic", thinks=thinks, either=either))
    _others(settings, out, lost)
    out["stream"] = stream
    return out


def _instructions(settings: Request) -> list[dict[str, object]]:
    text = settings.instructions
    return [{"type": "text", "text": text}] if text and not text.isspace() else []


# --- tools ------------------------------------------------------------------------------


def _tools(settings: Request, seen: Seen, lost: Lost) -> list[dict[str, object]]:
    allowed = _allowed(settings)
    tools: list[dict[str, object]] = []
    for index, tool in enumerate(settings.tools or ()):
        lost.at = f"tools[{index}]"
        if isinstance(tool, FunctionTool) and allowed is not None and tool.name not in allowed:
            continue
        made = _tool(tool, lost)
        if made:
            tools.append(made)
    lost.at = ""
    if not tools:  # calls in the turns need them, though none may be made again
        tools = [_stub(name) for name in seen.names]
    return tools


def _tool(tool: ToolDefinition, lost: Lost) -> dict[str, object]:
    if isinstance(tool, UnknownTool):
        if not tool.type.startswith(f"{PROVIDER}:"):
            lost.add(tool.type, "Anthropic has no such tool; its own are named 'anthropic:TYPE'")
            return {}
        members: dict[str, object] = dict(members_of(tool.source.raw))
        return {**members, "type": tool.type.removeprefix(f"{PROVIDER}:")}
    schema, strict = parameters_of(tool, lost, maker="Anthropic")
    made: dict[str, object] = {"name": checked_name(tool.name, NAME)}
    if given(tool.description):
        made["description"] = tool.description
    made["input_schema"] = schema
    if strict:
        made["strict"] = True
    return {**made, **own_members(tool, lost)}


def _stub(name: str) -> dict[str, object]:
    return {"name": re.sub(r"[^A-Za-z0-9_-]", "_", name), "input_schema": {"type": "object"}}


def _allowed(settings: Request) -> frozenset[str] | None:
    choice = settings.tool_choice
    if not isinstance(choice, AllowedTools):
        return None
    return frozenset(allowed_names(choice))


def _tool_choice(
    settings: Request, seen: Seen, tools: Sequence[Mapping[str, object]], lost: Lost
) -> dict[str, object]:
    choice = settings.tool_choice
    mode: object = choice.mode or "auto" if isinstance(choice, AllowedTools) else choice
    made = _choice(mode, lost)
    if not settings.tools and seen.names:
        return {"type": "none"}
    if not tools:
        if made.get("type") in {"any", "tool"}:
            raise ConfigError(f"tool_choice {choice!r} asks for a call, and there are no tools")
        return {}
    names = {_name(tool) for tool in tools}
    if made.get("type") == "tool" and made["name"] not in names:
        raise ConfigError(f"tool_choice names {made['name']!r}, which is none of the tools")
    if settings.parallel_tool_calls is False and made.get("type") != "none":
        made.setdefault("type", "auto")
        made["disable_parallel_tool_use"] = True
    return made


def _name(tool: Mapping[str, object]) -> object:
    name = tool.get("name")
    return text_of_raw(name) if isinstance(name, Raw) else name


def _choice(choice: object, lost: Lost) -> dict[str, object]:
    match choice:
        case "auto" | "none":
            return {"type": choice}
        case "required":
            return {"type": "any"}
        case FunctionChoice():
            return {"type": "tool", "name": choice.name}
        case UnknownToolChoice():
            raw = extension(choice, PROVIDER, "choice")
            if raw is not None:
                return dict(members_of(raw))
            lost.add(choice.type, "Anthropic has no such choice", "tool_choice")
        case str():
            lost.add(choice, "Anthropic has no such choice", "tool_choice")
        case _:
            pass
    return {}


# --- the rest -------------------------------------------------------------------------------


def _format(settings: Request, config: dict[str, object], lost: Lost) -> None:
    wanted = format_of(settings, lost, maker="Anthropic")
    if wanted is None:
        return
    if not isinstance(wanted, JsonSchemaFormat):
        lost.add(wanted.type, "Anthropic answers in JSON only by a schema", "text.format")
        return
    schema = answer_schema(wanted, lost, maker="Anthropic")
    if wanted.description and "description" not in schema:
        schema["description"] = wanted.description
    config["format"] = {"type": "json_schema", "schema": schema}


_ELSEWHERE = frozenset({"stop", "stop_sequences", "thinking", "output_config", OWN})
_NOT_TAKEN = (
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "max_tool_calls",
    "prompt_cache_key",
    "background",
)


def _others(settings: Request, out: dict[str, object], lost: Lost) -> None:
    report_settings(settings, _NOT_TAKEN, lost, maker="Anthropic")
    _metadata(settings, out, lost)
    _service_tier(settings, out, lost)
    _stop(settings, out, lost)
    out.update(own_settings(settings, _OWN_SETTINGS, _ELSEWHERE, lost, maker="Anthropic"))
    if OWN in kept(settings):
        out.update(members_of(kept(settings)[OWN]))


def _metadata(settings: Request, out: dict[str, object], lost: Lost) -> None:
    metadata = dict(settings.metadata or {})
    user = metadata.pop("user_id", None) or settings.safety_identifier or None
    if user:
        out["metadata"] = {"user_id": user}
    for name in metadata:
        lost.add(name, "Anthropic takes nothing but a user id", f"metadata.{name}")


def _service_tier(settings: Request, out: dict[str, object], lost: Lost) -> None:
    tiers = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
    tier = settings.service_tier or ""
    if tier in tiers:
        out["service_tier"] = tiers[tier]
    elif tier:
        lost.add(tier, "Anthropic has no such tier", "service_tier")


def _stop(settings: Request, out: dict[str, object], lost: Lost) -> None:
    stops = stops_of(settings)
    good = [one for one in stops if one.strip()]
    if len(good) < len(stops):
        lost.add("stop", "Anthropic takes no white space to stop at", "stop")
    if good:
        out["stop_sequences"] = good
