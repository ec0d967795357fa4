"""The client of Open Responses servers, and its model strings."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from typing import Unpack

from perdure.errors import ConfigError
from perdure.loop.model import ModelRequest
from perdure.models.client import Api, ModelClient
from perdure.models.http.client import ClientOptions
from perdure.models.openresponses.request import compact_body, losses, request_body
from perdure.models.openresponses.stream import StreamDecoder, compact_response, response
from perdure.models.registry import Resolved, key_from, register
from perdure.wire import CompactRequest, CompactResponse, Response

# The server gives ids and times itself.


def _decoder(request: ModelRequest, /, **_: object) -> StreamDecoder:
    return StreamDecoder(request)


def _response(body: bytes, request: ModelRequest, /, **_: object) -> Response:
    return response(body, request)


API = Api(path="/responses", body=request_body, decoder=_decoder, response=_response, losses=losses)


class OpenResponses(ModelClient):
    """A model behind an Open Responses server.

    ```python
    model = OpenResponses("http://127.0.0.1:8000/v1", timeouts=Timeouts(idle=60))
    async with model.stream(request) as events:
        async for event in events: ...
    ```

    Args:
        base_url: The address that `/responses` is appended to, or a function that gives it.
        options: What every client takes (`ClientOptions`).

    Raises:
        ConfigError: `base_url` is not the URL of an HTTP server, or a header cannot be sent.
    """

    def __init__(self, base_url: str | Callable[[], str], **options: Unpack[ClientOptions]) -> None:
        super().__init__(API, base_url, **options)

    async def compact(self, request: CompactRequest) -> CompactResponse:
        """Have the server fold a history. Raises as `create`."""
        return await self._client.fetch(
            "/responses/compact", compact_body(request), compact_response
        )


# --- model strings ----------------------------------------------------------------

OPENAI_URL = "https://api.openai.com/v1"

# One client for each address, so that its connections are used again from run to run.


@lru_cache(maxsize=1)
def _openai_client() -> OpenResponses:
    return OpenResponses(
        lambda: os.environ.get("OPENAI_BASE_URL") or OPENAI_URL,
        api_key=key_from("openai", "OPENAI_API_KEY"),
    )


@lru_cache(maxsize=64)
def _client_at(base_url: str) -> OpenResponses:
    return OpenResponses(base_url, api_key=lambda: os.environ.get("OPENRESPONSES_API_KEY"))


def _openresponses(rest: str) -> Resolved:
    base_url, _, name = rest.partition("#")
    if not name:
        raise ConfigError(
            f"'openresponses:{rest}' names no model; write openresponses:http://HOST/v1#MODEL"
        )
    return Resolved(_client_at(base_url), name)


def register_models() -> None:
    """Let `openai:MODEL` and `openresponses:URL#MODEL` name a model."""
    register("openai", lambda name: Resolved(_openai_client(), name))
    register("openresponses", _openresponses)
