"""The client of Claude, and its model strings."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Unpack

from perdure.clock import Ids
from perdure.models.anthropic.messages import PROVIDER
from perdure.models.anthropic.refusals import refusal
from perdure.models.anthropic.request import losses, request_body
from perdure.models.anthropic.stream import StreamDecoder, response
from perdure.models.client import Api, ModelClient
from perdure.models.http.client import ClientOptions
from perdure.models.registry import Resolved, key_from, register

URL = "https://api.anthropic.com"
VERSION = "2023-06-01"

API = Api(
    path="/v1/messages",
    body=request_body,
    decoder=StreamDecoder,
    response=response,
    losses=losses,
    key_header="x-api-key",
    refusal=refusal,
)


class Anthropic(ModelClient):
    """Claude behind the Messages API.

    ```python
    model = Anthropic(betas=["files-api-2025-04-14"])
    async with model.stream(request) as events:
        async for event in events: ...
    ```

    Args:
        base_url: The address that `/v1/messages` is appended to, or a function that gives it.
        betas: The beta features to take part in.
        ids: Where ids come from that the API does not give.
        options: What every client takes (`ClientOptions`). The key is in the variable
            `ANTHROPIC_API_KEY` if it is not given.

    Raises:
        ConfigError: `base_url` is not the URL of an HTTP server, or a header cannot be sent.
    """

    scheme = PROVIDER

    def __init__(
        self,
        base_url: str | Callable[[], str] = URL,
        *,
        betas: Sequence[str] = (),
        ids: Ids | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        own = {"anthropic-version": VERSION}
        if betas:
            own["anthropic-beta"] = ",".join(betas)
        options["headers"] = {**own, **(options.get("headers") or {})}
        options["api_key"] = options.get("api_key") or key_from(PROVIDER, "ANTHROPIC_API_KEY")
        super().__init__(API, base_url, ids=ids, **options)


@lru_cache(maxsize=1)
def _from_environment() -> Anthropic:
    return Anthropic(lambda: os.environ.get("ANTHROPIC_BASE_URL") or URL)


def register_models() -> None:
    """Let `anthropic:MODEL` name a model."""
    register(PROVIDER, lambda name: Resolved(_from_environment(), name))
