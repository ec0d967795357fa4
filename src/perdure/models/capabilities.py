"""What models can do that decides how they are asked, as a table by provider and model.

The table errs to the careful side: what nobody is known to promise is not relied on. It says
nothing of a model's quality, and no request is refused because of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

import msgspec

from perdure.models.client import ModelClient
from perdure.models.dialects import DIALECTS, GENERIC, Dialect


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What one model can do.

    Attributes:
        schema: Its answer can be held to a JSON schema.
        schema_with_tools: Also while it has tools.
        required: It can be told that it has to call a tool.
        images: It sees images.
        files: It reads files.
        audio: It hears audio.
        thoughts: What it thought goes back to it.
    """

    schema: bool = False
    schema_with_tools: bool = False
    required: bool = False
    images: bool = False
    files: bool = False
    audio: bool = False
    thoughts: bool = False


NOTHING = Capabilities()
"""A model of which nothing is known."""

_NATIVE = Capabilities(schema=True, schema_with_tools=True, required=True)
_FORCED = Capabilities(required=True)

_OPENAI = msgspec.structs.replace(_NATIVE, images=True, files=True, thoughts=True)
_CLAUDE = Capabilities(images=True, files=True, thoughts=True)
_GEMINI = Capabilities(
    schema=True, required=True, images=True, files=True, audio=True, thoughts=True
)
_ROUTED = Capabilities(required=True, images=True, files=True, audio=True, thoughts=True)


# --- OpenAI -------------------------------------------------------------------------------

# Structured outputs came with gpt-4o-2024-08-06; what is older has none.
_OPENAI_WITHOUT_SCHEMA = re.compile(
    r"gpt-3|gpt-4($|-)|gpt-4o-2024-05-13|chatgpt-4o|o1-(preview|mini)|text-|davinci"
)


def _openai(model: str) -> Capabilities:
    if _OPENAI_WITHOUT_SCHEMA.match(model):
        return msgspec.structs.replace(_OPENAI, schema=False, schema_with_tools=False)
    return _OPENAI


# --- Claude -------------------------------------------------------------------------------

# Structured outputs came with Opus 4.1, Sonnet 4.5 and Haiku 4.5.
_FIRST_CLAUDE = {"opus": (4, 1), "sonnet": (4, 5), "haiku": (4, 5)}
_CLAUDE_NAME = re.compile(r"claude-(opus|sonnet|haiku)-(\d+)(?:-(\d{1,2}))?(?!\d)")


def _claude(model: str) -> Capabilities:
    # Being forced to call a tool turns thinking off, so Claude is asked to, not forced.
    found = _CLAUDE_NAME.search(model)
    if found is None or (int(found[2]), int(found[3] or 0)) < _FIRST_CLAUDE[found[1]]:
        return _CLAUDE
    return msgspec.structs.replace(_CLAUDE, schema=True, schema_with_tools=True)


def _bedrock(model: str) -> Capabilities:
    return _claude(model) if "anthropic." in model else Capabilities(images=True, files=True)


# --- Gemini -------------------------------------------------------------------------------

_GEMINI_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")


def _gemini(model: str) -> Capabilities:
    """From Gemini 3 on a schema and tools go together; before, a request with both is refused."""
    found = _GEMINI_VERSION.search(model)
    if found is None or int(found[1]) < 2:
        return msgspec.structs.replace(_GEMINI, schema=False)
    return msgspec.structs.replace(_GEMINI, schema_with_tools=int(found[1]) >= 3)


# --- services that speak Chat Completions ---------------------------------------------------


def _openrouter(model: str) -> Capabilities:
    """What OpenRouter drops in silence where the provider behind it has no schemas."""
    maker, _, name = model.partition("/")
    if maker == "openai" and _openai(name).schema:
        return msgspec.structs.replace(_ROUTED, schema=True, schema_with_tools=True)
    return _ROUTED


_SCHEMA_WITHOUT_TOOLS = frozenset({"mistral", "cerebras", "gemini", "ollama", "vllm", "lmstudio"})
"""Services that hold an answer to a schema, and not beside tools: they refuse both in one request,
or leave the tools uncalled."""


def _chat(dialect: Dialect, model: str) -> Capabilities:
    if dialect.name in {"openai", "azure"}:
        can = _openai(model)
    elif dialect.name == "openrouter":
        return _openrouter(model)
    elif dialect.name == "xai":
        can = _NATIVE if model.startswith("grok-4") else _FORCED
    else:
        can = Capabilities(
            schema=dialect.json_schema and dialect.name in _SCHEMA_WITHOUT_TOOLS,
            required=dialect.tool_choice != "none" and dialect is not GENERIC,
        )
    return msgspec.structs.replace(
        can,
        images=dialect.images,
        files=bool(dialect.files),
        audio=bool(dialect.audio),
        thoughts=bool(dialect.thoughts),
    )


# --- the table ------------------------------------------------------------------------------

_OF_SCHEME: dict[str, Callable[[str], Capabilities]] = {
    "openai": _openai,
    "anthropic": _claude,
    "gemini": _gemini,
    "google": _gemini,
    "bedrock": _bedrock,
    "openrouter": _openrouter,
}

_DIALECT_OF_SCHEME = {
    {"openai": "openai-chat", "gemini": "gemini-chat"}.get(dialect.name, dialect.name): dialect
    for dialect in DIALECTS
    if dialect.name != "openrouter"
}


def of_scheme(scheme: str, model: str) -> Capabilities:
    """What a model can do that a model string names; `NOTHING` if nobody knows its provider."""
    if scheme in _OF_SCHEME:
        return _OF_SCHEME[scheme](model)
    dialect = _DIALECT_OF_SCHEME.get(scheme)
    return _chat(dialect, model.rpartition("#")[2]) if dialect is not None else NOTHING


def of_client(client: object, model: str) -> Capabilities:
    """What a model can do that a client reaches.

    A client may say so itself: a method `capabilities(model)` wins over the table.
    """
    own = getattr(client, "capabilities", None)
    if callable(own):
        return cast("Callable[[str], Capabilities]", own)(model)
    dialect: object = getattr(client, "dialect", None)
    if isinstance(dialect, Dialect):
        return _chat(dialect, model)
    return of_scheme(client.scheme, model) if isinstance(client, ModelClient) else NOTHING
