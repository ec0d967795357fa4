"""OpenRouter: Chat Completions for the models of many providers.

What is OpenRouter's own goes through as it is given: `provider` (which providers may serve, and in
what order), `models`, `transforms`, `plugins` and the like as extra members of the settings, its
hosted tools, `cache_control` on parts and tools. Thoughts keep their `reasoning_details` exactly;
`cost` and what else OpenRouter counts stands beside the tokens in the usage.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Unpack

from perdure.clock import Clock, Ids
from perdure.errors import ConfigError
from perdure.loop.model import ModelRequest
from perdure.models import chat
from perdure.models.dialects import OPENROUTER
from perdure.models.http.body import Body
from perdure.models.http.client import ClientOptions
from perdure.models.mapping.losses import Loss
from perdure.models.registry import Resolved, key_from, register
from perdure.wire import Response

BASE_URL = OPENROUTER.base_url


def request_body(request: ModelRequest, *, stream: bool = True) -> Body:
    """The body of `POST /chat/completions`. Raises as `chat.request_body`."""
    return chat.request_body(request, stream=stream, dialect=OPENROUTER)


def losses(request: ModelRequest) -> tuple[Loss, ...]:
    """What of a request OpenRouter does not get, or gets in another form."""
    return chat.losses(request, dialect=OPENROUTER)


def response(
    body: bytes,
    request: ModelRequest | None = None,
    *,
    ids: Ids | None = None,
    clock: Clock | None = None,
) -> Response:
    """The response in a JSON body. Raises as `chat.response`."""
    return chat.response(body, request, dialect=OPENROUTER, ids=ids, clock=clock)


class StreamDecoder(chat.StreamDecoder):
    """Events from the bytes of an answer of OpenRouter's, in pieces of any size."""

    __slots__ = ()

    dialect = OPENROUTER


class OpenRouter(chat.Chat):
    """A model behind OpenRouter.

    ```python
    model = OpenRouter(api_key=key, app_url="https://example.org", app_title="Example")
    ```

    Args:
        base_url: The address that `/chat/completions` is appended to, or a function that gives it.
        app_url: The address of the application, for OpenRouter's rankings.
        app_title: The name of the application, likewise.
        ids: Where ids come from that OpenRouter does not give.
        options: What every client takes (`ClientOptions`).

    Raises:
        ConfigError: `base_url` is not the URL of an HTTP server, or a header cannot be sent.
    """

    def __init__(
        self,
        base_url: str | Callable[[], str] = BASE_URL,
        *,
        app_url: str | None = None,
        app_title: str | None = None,
        ids: Ids | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        app = {"HTTP-Referer": app_url, "X-Title": app_title}
        own = {name: value for name, value in app.items() if value}
        options["headers"] = {**own, **(options.get("headers") or {})}
        super().__init__(base_url, dialect=OPENROUTER, ids=ids, **options)


def register_models() -> None:
    """Let model strings `openrouter:PROVIDER/MODEL` name a client of this module."""
    register("openrouter", _resolve)


def _resolve(rest: str) -> Resolved:
    if "/" not in rest:
        raise ConfigError(f"'openrouter:{rest}' names no model; write openrouter:PROVIDER/MODEL")
    return Resolved(_client(), rest)


@lru_cache(maxsize=1)
def _client() -> OpenRouter:
    return OpenRouter(
        partial(chat.base_url_of, OPENROUTER),
        api_key=key_from("openrouter", *OPENROUTER.keys),
    )
