"""The client of Gemini, and its model strings."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from typing import Unpack

from perdure.clock import Ids
from perdure.models.client import Api, ModelClient
from perdure.models.gemini.contents import PROVIDER
from perdure.models.gemini.refusals import refusal
from perdure.models.gemini.request import losses, path_of, request_body
from perdure.models.gemini.stream import StreamDecoder, response
from perdure.models.http.client import ClientOptions
from perdure.models.registry import Resolved, key_from, register

URL = "https://generativelanguage.googleapis.com/v1beta"

API = Api(
    path=path_of,
    body=request_body,
    decoder=StreamDecoder,
    response=response,
    losses=losses,
    key_header="x-goog-api-key",
    refusal=refusal,
)


class Gemini(ModelClient):
    """Gemini behind its API.

    ```python
    model = Gemini(timeouts=Timeouts(idle=60))
    async with model.stream(request) as events:
        async for event in events: ...
    ```

    Args:
        base_url: The address that `/models/MODEL:METHOD` is appended to, or a function that gives
            it.
        ids: Where ids come from that the API does not give.
        options: What every client takes (`ClientOptions`). The key is in the variable
            `GEMINI_API_KEY` or `GOOGLE_API_KEY` if it is not given.

    Raises:
        ConfigError: `base_url` is not the URL of an HTTP server, or a header cannot be sent.
    """

    scheme = PROVIDER

    def __init__(
        self,
        base_url: str | Callable[[], str] = URL,
        *,
        ids: Ids | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        key = options.get("api_key") or key_from(PROVIDER, "GEMINI_API_KEY", "GOOGLE_API_KEY")
        options["api_key"] = key
        super().__init__(API, base_url, ids=ids, **options)


@lru_cache(maxsize=1)
def _from_environment() -> Gemini:
    return Gemini(lambda: os.environ.get("GEMINI_BASE_URL") or URL)


def register_models() -> None:
    """Let `gemini:MODEL` and `google:MODEL` name a model."""
    for scheme in (PROVIDER, "google"):
        register(scheme, lambda name: Resolved(_from_environment(), name))
