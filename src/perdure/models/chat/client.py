"""The client of Chat Completions servers, and the model strings of their services."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Unpack

from perdure.clock import Ids
from perdure.errors import ConfigError
from perdure.models.chat.refusals import refusal
from perdure.models.chat.request import losses, request_body
from perdure.models.chat.stream import StreamDecoder, response
from perdure.models.client import Api, ModelClient
from perdure.models.dialects import (
    AZURE,
    CEREBRAS,
    DEEPSEEK,
    GEMINI,
    GENERIC,
    GROQ,
    LMSTUDIO,
    MISTRAL,
    OLLAMA,
    OPENAI,
    VLLM,
    XAI,
    ZAI,
    Dialect,
    dialect_at,
)
from perdure.models.http.client import ClientOptions
from perdure.models.registry import Resolved, key_from, register


class Chat(ModelClient):
    """A model behind a Chat Completions server.

    ```python
    model = Chat("http://127.0.0.1:8000/v1", dialect=VLLM)
    async with model.stream(request) as events:
        async for event in events: ...
    ```

    Args:
        base_url: The address that `/chat/completions` is appended to, or a function that gives it.
        dialect: Who stands there; told by the host if it is not given.
        ids: Where ids come from that the service does not give.
        options: What every client takes (`ClientOptions`).

    Raises:
        ConfigError: `base_url` is not the URL of an HTTP server, or a header cannot be sent.
    """

    def __init__(
        self,
        base_url: str | Callable[[], str],
        *,
        dialect: Dialect | None = None,
        ids: Ids | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        if dialect is None:
            dialect = dialect_at(base_url) if isinstance(base_url, str) else GENERIC
        self.dialect = dialect
        super().__init__(_api(dialect), base_url, ids=ids, **options)


def _api(dialect: Dialect) -> Api:
    return Api(
        path="/chat/completions",
        body=partial(request_body, dialect=dialect),
        decoder=partial(StreamDecoder, dialect=dialect),
        response=partial(response, dialect=dialect),
        losses=partial(losses, dialect=dialect),
        key_header=dialect.key_header,
        refusal=refusal,
    )


# --- model strings ---------------------------------------------------------------

SCHEMES: Mapping[str, Dialect] = {
    "openai-chat": OPENAI,
    "azure": AZURE,
    "groq": GROQ,
    "deepseek": DEEPSEEK,
    "mistral": MISTRAL,
    "cerebras": CEREBRAS,
    "xai": XAI,
    "zai": ZAI,
    "gemini-chat": GEMINI,
    "ollama": OLLAMA,
    "vllm": VLLM,
    "lmstudio": LMSTUDIO,
    "chat": GENERIC,
}
"""Who a scheme names. After it stands a model, or `URL#MODEL` for a server elsewhere."""


def register_models() -> None:
    """Let model strings of the schemes above name clients of this module."""
    for scheme, dialect in SCHEMES.items():
        register(scheme, partial(_resolve, scheme, dialect))


def _resolve(scheme: str, dialect: Dialect, rest: str) -> Resolved:
    if not rest.startswith(("http://", "https://")):
        if not dialect.base_url and not dialect.url_variable:
            raise ConfigError(
                f"'{scheme}:{rest}' names no server; write {scheme}:http://HOST/v1#MODEL"
            )
        return Resolved(_client(scheme, dialect, None), rest)
    base_url, _, name = rest.partition("#")
    if not name:
        raise ConfigError(f"'{scheme}:{rest}' names no model; write {scheme}:http://HOST/v1#MODEL")
    found = dialect_at(base_url) if dialect is GENERIC else dialect
    return Resolved(_client(scheme, found, base_url), name)


@lru_cache(maxsize=64)
def _client(scheme: str, dialect: Dialect, base_url: str | None) -> Chat:
    """The client of an address, so that its connections are used again from run to run."""
    return Chat(
        base_url or partial(base_url_of, dialect),
        dialect=dialect,
        api_key=key_of(scheme, dialect),
    )


def key_of(provider: str, dialect: Dialect) -> Callable[[], str | None]:
    """A key that is read from the environment whenever a request is sent."""
    if dialect.needs_key:
        return key_from(provider, *dialect.keys)
    return lambda: next(filter(None, map(os.environ.get, dialect.keys)), None)


def base_url_of(dialect: Dialect) -> str:
    """The address of a service, which the environment may change.

    Raises:
        ConfigError: Nobody says where it is.
    """
    found = os.environ.get(dialect.url_variable, "").strip() if dialect.url_variable else ""
    url = found or dialect.base_url
    if not url:
        raise ConfigError(f"no address for {dialect.name!r}: set {dialect.url_variable}")
    if dialect is AZURE and "/openai" not in url:  # the address of a resource
        return url.rstrip("/") + "/openai/v1"
    return url
