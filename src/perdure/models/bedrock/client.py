"""The client of Bedrock, and its model strings."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from typing import Unpack

from perdure.clock import Ids
from perdure.models.bedrock.messages import PROVIDER
from perdure.models.bedrock.refusals import refusal
from perdure.models.bedrock.request import losses, path_of, request_body
from perdure.models.bedrock.signing import (
    Credentials,
    default_credentials,
    default_region,
    signer_of,
)
from perdure.models.bedrock.stream import StreamDecoder, response
from perdure.models.client import Api, ModelClient
from perdure.models.http.client import ClientOptions
from perdure.models.registry import Resolved, register

API = Api(
    path=path_of,
    body=request_body,
    decoder=StreamDecoder,
    response=response,
    losses=losses,
    accept="application/vnd.amazon.eventstream",
    refusal=refusal,
)


class Bedrock(ModelClient):
    """The models of Bedrock behind Converse.

    ```python
    model = Bedrock(region="eu-central-1")
    async with model.stream(request) as events:
        async for event in events: ...
    ```

    Args:
        region: The region; `AWS_REGION`, `AWS_DEFAULT_REGION` or AWS's own configuration if there
            is none.
        credentials: Gives what to sign with, on a thread, for each request; the credentials that
            botocore finds in its usual places if there is none.
        base_url: The address that `/model/MODEL/METHOD` is appended to; the region's if there is
            none.
        ids: Where ids come from that the API does not give.
        options: What every client takes (`ClientOptions`). The key is one of Bedrock's own; it is
            in the variable `AWS_BEARER_TOKEN_BEDROCK` if it is not given, and requests are signed
            if it is not there either. Signatures bear the machine's time.

    Raises:
        ConfigError: `base_url` is not the URL of an HTTP server, or a header cannot be sent.
    """

    scheme = PROVIDER

    def __init__(
        self,
        *,
        region: str | None = None,
        credentials: Callable[[], Credentials] | None = None,
        base_url: str | Callable[[], str] | None = None,
        ids: Ids | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        def region_of() -> str:
            return region or default_region()

        def address() -> str:
            return f"https://bedrock-runtime.{region_of()}.amazonaws.com"

        def key() -> str | None:
            return os.environ.get("AWS_BEARER_TOKEN_BEDROCK")

        options["api_key"] = options.get("api_key") or key
        signer = signer_of(credentials or default_credentials, region_of)
        super().__init__(API, base_url or address, ids=ids, signer=signer, **options)


@lru_cache(maxsize=1)
def _from_environment() -> Bedrock:
    return Bedrock()


def register_models() -> None:
    """Let `bedrock:MODEL` name a model."""
    register(PROVIDER, lambda name: Resolved(_from_environment(), name))
