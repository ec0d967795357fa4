"""Model strings: `SCHEME:REST` names an adapter and what it is to talk to.

```python
resolve("openai:gpt-5-mini")
resolve("openresponses:http://127.0.0.1:8000/v1#some-model")
```

An adapter is loaded when a string first names it. Keys and base URLs are read from the environment
when a request is sent, so setting them later, or changing them, is enough.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from perdure.errors import ConfigError, MissingKey, UnknownModel
from perdure.loop.model import Model
from perdure.models.http.taping import TAPED_KEY, current_tape


class Resolved(NamedTuple):
    """What a model string names: who answers, and the name to send as `model`."""

    model: Model
    name: str


Factory = Callable[[str], Resolved]
"""Takes what stands after the scheme. Raises `ConfigError` where that names nothing."""

_factories: dict[str, Factory] = {}

_MODULES = {
    "anthropic": "perdure.models.anthropic",
    "bedrock": "perdure.models.bedrock",
    "gemini": "perdure.models.gemini",
    "google": "perdure.models.gemini",
    "openai": "perdure.models.openresponses",
    "openresponses": "perdure.models.openresponses",
    "openrouter": "perdure.models.openrouter",
    **dict.fromkeys(
        (
            "azure",
            "cerebras",
            "chat",
            "deepseek",
            "gemini-chat",
            "groq",
            "lmstudio",
            "mistral",
            "ollama",
            "openai-chat",
            "vllm",
            "xai",
            "zai",
        ),
        "perdure.models.chat",
    ),
}
"""Where the adapters are, each loaded when a string first names it."""


def register(scheme: str, factory: Factory) -> None:
    """Let `factory` answer for model strings that begin with `scheme:`, in this process.

    Raises:
        ConfigError: The scheme is empty or holds a colon.
    """
    if not scheme or ":" in scheme:
        raise ConfigError(f"a scheme is a word without a colon, got {scheme!r}")
    _factories[scheme] = factory


def resolve(text: str) -> Resolved:
    """The model that a model string names.

    Raises:
        UnknownModel: Nobody registered its scheme, or it names no model.
    """
    scheme, colon, rest = text.partition(":")
    factory = _factory(scheme)
    if not colon or not rest or factory is None:
        raise UnknownModel(text, schemes())
    return factory(rest)


def schemes() -> tuple[str, ...]:
    """The schemes that `resolve` knows, sorted."""
    return tuple(sorted({*_factories, *_MODULES}))


def _factory(scheme: str) -> Factory | None:
    """Who answers for a scheme, after loading the adapter that does."""
    if scheme not in _factories and scheme in _MODULES:
        import_module(_MODULES[scheme]).register_models()
    return _factories.get(scheme)


def key_from(provider: str, *variables: str) -> Callable[[], str]:
    """A key that is read from the environment whenever a request is sent."""

    def key() -> str:
        for variable in variables:
            value = os.environ.get(variable, "").strip()
            if value:
                return value
        tape = current_tape.get()
        if tape is not None and tape.keyless:
            return TAPED_KEY
        raise MissingKey(provider, variables)

    return key
