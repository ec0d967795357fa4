"""Who can be asked: the providers, the variables that they are set up by, what their models can."""

from __future__ import annotations

import os

import msgspec

from perdure.models.capabilities import Capabilities, of_scheme
from perdure.models.dialects import DIALECTS, Dialect
from perdure.models.registry import schemes


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """One scheme of model strings.

    Attributes:
        scheme: What model strings begin with.
        title: Who that is.
        example: A model string.
        keys: The variables that may hold the key, in order.
        needs_key: Whether nothing can be sent without one.
        address: The variable that may name another place; empty if there is none.
        can: What the model of the example can do.
    """

    scheme: str
    title: str
    example: str
    keys: tuple[str, ...] = ()
    needs_key: bool = True
    address: str = ""
    can: Capabilities = Capabilities()

    @property
    def key_is_set(self) -> bool:
        """Whether one of the variables holds something. Its value is nobody's business."""
        return any(os.environ.get(key, "").strip() for key in self.keys)


_OWN = (
    ("anthropic", "Anthropic Messages", "claude-sonnet-4-5", "ANTHROPIC_API_KEY", "ANTHROPIC"),
    ("openai", "OpenAI Responses", "gpt-5-mini", "OPENAI_API_KEY", "OPENAI"),
    ("gemini", "Gemini", "gemini-2.5-flash", "GEMINI_API_KEY GOOGLE_API_KEY", "GEMINI"),
    ("google", "Gemini", "gemini-2.5-flash", "GEMINI_API_KEY GOOGLE_API_KEY", "GEMINI"),
    (
        "bedrock",
        "Bedrock Converse",
        "us.anthropic.claude-sonnet-4-5",
        "AWS_BEARER_TOKEN_BEDROCK AWS_ACCESS_KEY_ID",
        "",
    ),
    ("openresponses", "Open Responses server", "URL#MODEL", "", ""),
)

_NAMES = {"openai": "openai-chat", "gemini": "gemini-chat"}
"""The schemes of dialects that share their name with another adapter's."""

_EXAMPLES = {
    "openai-chat": ("OpenAI Chat Completions", "gpt-5-mini"),
    "azure": ("Azure OpenAI", "DEPLOYMENT"),
    "groq": ("Groq", "llama-3.3-70b-versatile"),
    "deepseek": ("DeepSeek", "deepseek-chat"),
    "mistral": ("Mistral", "mistral-large-latest"),
    "cerebras": ("Cerebras", "llama-3.3-70b"),
    "xai": ("xAI", "grok-4"),
    "zai": ("Z.ai", "glm-4.6"),
    "gemini-chat": ("Gemini, OpenAI-compatible", "gemini-2.5-flash"),
    "openrouter": ("OpenRouter", "openai/gpt-5-mini"),
    "ollama": ("Ollama", "llama3.2"),
    "vllm": ("vLLM", "MODEL"),
    "lmstudio": ("LM Studio", "MODEL"),
    "chat": ("Chat Completions server", "URL#MODEL"),
}


def providers() -> tuple[Provider, ...]:
    """Every scheme that a model string may have, by name; those that were registered, too."""
    known = {one.scheme: one for one in (*_own(), *map(_of_dialect, DIALECTS))}
    for scheme in schemes():
        if scheme not in known:
            example = f"{scheme}:MODEL"
            known[scheme] = Provider(
                scheme=scheme, title="registered here", example=example, needs_key=False
            )
    return tuple(known[scheme] for scheme in sorted(known))


def key_variables(scheme: str) -> tuple[str, ...]:
    """The variables that may hold the key of a scheme's models, in order; none if it is unknown."""
    return next((one.keys for one in providers() if one.scheme == scheme), ())


def _own() -> tuple[Provider, ...]:
    return tuple(
        Provider(
            scheme=scheme,
            title=title,
            example=f"{scheme}:{model}",
            keys=tuple(keys.split()) or ("OPENRESPONSES_API_KEY",),
            needs_key=bool(keys),
            address=f"{prefix}_BASE_URL" if prefix else "",
            can=of_scheme(scheme, model),
        )
        for scheme, title, model, keys, prefix in _OWN
    )


def _of_dialect(dialect: Dialect) -> Provider:
    scheme = _NAMES.get(dialect.name, dialect.name)
    title, model = _EXAMPLES[scheme]
    return Provider(
        scheme=scheme,
        title=title,
        example=f"{scheme}:{model}",
        keys=dialect.keys,
        needs_key=dialect.needs_key,
        address=dialect.url_variable,
        can=of_scheme(scheme, model),
    )
