"""How services that speak Chat Completions differ, as a table.

*dialect*: what one service takes and gives. What stands here is all the adapter knows about a
service; a server that is not in the table is `GENERIC`, which assumes as little as it can.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit

import msgspec

Thoughts = Literal["", "reasoning", "reasoning_content", "think", "parts", "details"]
"""How an assistant message carries thoughts: not at all, in a member of that name, between
`<think>` tags in its text, as `thinking` parts of its content, or as `reasoning_details`."""

_SAMPLING = frozenset({"temperature", "top_p"})
_PENALTIES = frozenset({"presence_penalty", "frequency_penalty"})
_COMMON = _SAMPLING | _PENALTIES | {"parallel_tool_calls", "logprobs"}


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What one service takes and gives.

    Attributes:
        name: Marks what is private to the service, and tells its requests from others'.
        base_url: Where the service is.
        url_variable: The environment variable that may name another place.
        keys: The environment variables that may hold the key, in order.
        key_header: The header of the key; empty for `Authorization`, as a bearer.
        needs_key: Whether nothing can be sent without a key.
        hosts: The hosts, or domains, that speak it.
        max_tokens: The member that limits the output.
        takes: The settings it takes, of those that not everybody does.
        refused: Members of its own name that it refuses, as `seed`.
        renamed: Members that it spells in another way: (ours, its).
        stream_usage: Whether usage is streamed only to who asks with `stream_options`.
        developer: Whether there is a role `developer`.
        system_first: Whether system text has to be one message, the first.
        merge_users: Whether two user messages must not follow each other.
        bridge: What an assistant is made to say between a tool message and a user message, which
            must not follow each other then; empty if they may.
        thoughts: How thoughts go back to it.
        think_models: Beginnings of model names that want them between `<think>` tags.
        thoughts_always: Whether a message with calls must carry thoughts, if empty ones.
        think_tags: Whether an answer may begin with thoughts between `<think>` tags.
        effort: Where the reasoning effort goes; `reasoning` is an object with an `effort`.
        strict_tools: Whether functions may be `strict`.
        tool_choice: What it takes: nothing, the words, also a named function, also a list.
        required: How it spells `required`.
        json_object: Whether it can be held to JSON.
        json_schema: Whether it can be held to a schema.
        any_arguments: Whether the arguments of a call in the history may be any text.
        call_ids: What its call ids look like: a regular expression.
        images: Whether it sees images.
        tool_parts: Whether the content of a tool message may be a list of texts.
        files: How it takes files: not at all, with data or an id, from a URL too, or as documents.
        audio: How it takes audio: not at all, as an object, or its data alone.
        video: Whether it takes videos.
        refusals: Whether a message has a place for a refusal.
        annotations: Whether annotations may go back to it.
        signatures: Whether a call carries Google's signature of the thought behind it.
        part_members: Members of its own that parts may have.
        tool_members: Members of its own that tools may have.
        hosted_tools: How the types of its own tools begin; empty if it has none.
        returned: Members of its messages that have to come back.
    """

    name: str
    base_url: str = ""
    url_variable: str = ""
    keys: tuple[str, ...] = ()
    key_header: str = ""
    needs_key: bool = True
    hosts: tuple[str, ...] = ()
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    takes: frozenset[str] = _COMMON
    refused: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    stream_usage: bool = True
    developer: bool = False
    system_first: bool = False
    merge_users: bool = False
    bridge: str = ""
    thoughts: Thoughts = ""
    think_models: tuple[str, ...] = ()
    thoughts_always: bool = False
    think_tags: bool = False
    effort: Literal["", "reasoning_effort", "reasoning"] = "reasoning_effort"
    strict_tools: bool = True
    tool_choice: Literal["none", "words", "named", "list"] = "named"
    required: Literal["required", "any"] = "required"
    json_object: bool = True
    json_schema: bool = True
    any_arguments: bool = False
    call_ids: str = r"[\w.:-]{1,128}"
    images: bool = True
    tool_parts: bool = False
    files: Literal["", "data", "url", "document"] = ""
    audio: Literal["", "object", "data"] = ""
    video: bool = False
    refusals: bool = False
    annotations: bool = False
    signatures: bool = False
    part_members: tuple[str, ...] = ()
    tool_members: tuple[str, ...] = ()
    hosted_tools: str = ""
    returned: tuple[str, ...] = ()

    def thoughts_of(self, model: str) -> Thoughts:
        """How thoughts go back to one of its models."""
        return (
            "think" if self.think_models and model.startswith(self.think_models) else self.thoughts
        )

    def limit_of(self, model: str) -> str:
        """The member that limits the output of one of its models."""
        return "max_completion_tokens" if _REASONING_MODEL.search(model) else self.max_tokens


# OpenAI's reasoning models refuse `max_tokens`, behind a proxy too.
_REASONING_MODEL = re.compile(r"(^|/)(o\d|gpt-5)")

OPENAI = Dialect(
    name="openai",
    base_url="https://api.openai.com/v1",
    url_variable="OPENAI_BASE_URL",
    keys=("OPENAI_API_KEY",),
    hosts=("api.openai.com",),
    max_tokens="max_completion_tokens",
    # It takes metadata only of what it stores, and nothing is stored (DESIGN 5).
    takes=_COMMON
    | {
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "verbosity",
        "obfuscation",
    },
    developer=True,
    tool_choice="list",
    any_arguments=True,
    call_ids=r"[\w-]{1,40}",
    tool_parts=True,
    files="data",
    audio="object",
    refusals=True,
    part_members=("prompt_cache_breakpoint",),
    refused=("top_k",),
)

AZURE = msgspec.structs.replace(
    OPENAI,
    name="azure",
    base_url="",
    url_variable="AZURE_OPENAI_ENDPOINT",
    keys=("AZURE_OPENAI_API_KEY",),
    key_header="api-key",
    hosts=("openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"),
)

GROQ = Dialect(
    name="groq",
    base_url="https://api.groq.com/openai/v1",
    url_variable="GROQ_BASE_URL",
    keys=("GROQ_API_KEY",),
    hosts=("api.groq.com",),
    max_tokens="max_completion_tokens",
    takes=_SAMPLING | _PENALTIES | {"parallel_tool_calls", "service_tier"},
    thoughts="reasoning",
    refused=("top_k",),
)

DEEPSEEK = Dialect(
    name="deepseek",
    base_url="https://api.deepseek.com",
    url_variable="DEEPSEEK_BASE_URL",
    keys=("DEEPSEEK_API_KEY",),
    hosts=("api.deepseek.com",),
    takes=_SAMPLING | _PENALTIES | {"logprobs"},
    thoughts="reasoning_content",
    thoughts_always=True,
    json_schema=False,
    images=False,
    refused=("seed", "top_k"),
)

MISTRAL = Dialect(
    name="mistral",
    base_url="https://api.mistral.ai/v1",
    url_variable="MISTRAL_BASE_URL",
    keys=("MISTRAL_API_KEY",),
    hosts=("api.mistral.ai", "codestral.mistral.ai"),
    takes=_SAMPLING | _PENALTIES | {"parallel_tool_calls", "metadata"},
    renamed=(("seed", "random_seed"),),
    stream_usage=False,
    system_first=True,
    bridge="OK",
    thoughts="parts",
    required="any",
    call_ids=r"[A-Za-z0-9]{9}",
    tool_parts=True,
    files="document",
    audio="data",
    refused=("top_k",),
)

CEREBRAS = Dialect(
    name="cerebras",
    base_url="https://api.cerebras.ai/v1",
    url_variable="CEREBRAS_BASE_URL",
    keys=("CEREBRAS_API_KEY",),
    hosts=("api.cerebras.ai",),
    max_tokens="max_completion_tokens",
    takes=_SAMPLING | {"logprobs"},
    refused=("logit_bias", "top_k"),
    thoughts="reasoning",
    think_models=("zai-", "qwen-"),
    images=False,
)

XAI = Dialect(
    name="xai",
    base_url="https://api.x.ai/v1",
    url_variable="XAI_BASE_URL",
    keys=("XAI_API_KEY",),
    hosts=("api.x.ai",),
    max_tokens="max_completion_tokens",
    refused=("top_k",),
)

ZAI = Dialect(
    name="zai",
    base_url="https://api.z.ai/api/paas/v4",
    url_variable="ZAI_BASE_URL",
    keys=("ZAI_API_KEY",),
    hosts=("api.z.ai", "open.bigmodel.cn"),
    takes=_SAMPLING,
    thoughts="reasoning_content",
    tool_choice="none",
    strict_tools=False,
    json_schema=False,
    video=True,
)

GEMINI = Dialect(
    name="gemini",
    base_url="https://generativelanguage.googleapis.com/v1beta/openai",
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    hosts=("generativelanguage.googleapis.com",),
    takes=_SAMPLING | _PENALTIES,
    audio="object",
    signatures=True,
    returned=("extra_content",),
    refused=("top_k",),
)

OPENROUTER = Dialect(
    name="openrouter",
    base_url="https://openrouter.ai/api/v1",
    url_variable="OPENROUTER_BASE_URL",
    keys=("OPENROUTER_API_KEY",),
    hosts=("openrouter.ai",),
    max_tokens="max_completion_tokens",
    takes=_COMMON | {"service_tier", "verbosity"},
    developer=True,
    thoughts="details",
    effort="reasoning",
    tool_parts=True,
    files="url",
    audio="object",
    video=True,
    refusals=True,
    annotations=True,
    part_members=("cache_control",),
    tool_members=("cache_control", "eager_input_streaming"),
    hosted_tools="openrouter:",
    returned=("images",),
)

OLLAMA = Dialect(
    name="ollama",
    base_url="http://localhost:11434/v1",
    url_variable="OLLAMA_BASE_URL",
    keys=("OLLAMA_API_KEY",),
    needs_key=False,
    takes=_SAMPLING | _PENALTIES | {"logprobs"},
    thoughts="reasoning",
    think_tags=True,
    tool_choice="none",
    strict_tools=False,
)

VLLM = Dialect(
    name="vllm",
    base_url="http://localhost:8000/v1",
    url_variable="VLLM_BASE_URL",
    keys=("VLLM_API_KEY",),
    needs_key=False,
    # Chat templates raise what they do not expect.
    system_first=True,
    merge_users=True,
    thoughts="reasoning",
    think_tags=True,
    strict_tools=False,
    audio="object",
    video=True,
)

LMSTUDIO = Dialect(
    name="lmstudio",
    base_url="http://localhost:1234/v1",
    url_variable="LMSTUDIO_BASE_URL",
    keys=("LMSTUDIO_API_KEY",),
    needs_key=False,
    takes=_SAMPLING | _PENALTIES,
    system_first=True,
    merge_users=True,
    thoughts="reasoning",
    think_tags=True,
    tool_choice="words",
    strict_tools=False,
    json_object=False,
)

GENERIC = Dialect(
    name="chat",
    keys=("CHAT_API_KEY",),
    needs_key=False,
    merge_users=True,
    thoughts="reasoning_content",
)
"""A server nobody described."""

DIALECTS: tuple[Dialect, ...] = (
    OPENAI,
    AZURE,
    GROQ,
    DEEPSEEK,
    MISTRAL,
    CEREBRAS,
    XAI,
    ZAI,
    GEMINI,
    OPENROUTER,
    OLLAMA,
    VLLM,
    LMSTUDIO,
    GENERIC,
)


def dialect_at(base_url: str) -> Dialect:
    """The dialect of the service at an address, told by its host; `GENERIC` for the rest."""
    host = urlsplit(base_url).hostname or ""
    for dialect in DIALECTS:
        if any(host == name or host.endswith(f".{name}") for name in dialect.hosts):
            return dialect
    return GENERIC
