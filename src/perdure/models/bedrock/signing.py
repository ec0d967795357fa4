"""Requests to AWS: signed by botocore, or with an API key of Bedrock's own."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Protocol, cast

from perdure.errors import ConfigError, MissingKey
from perdure.models.bedrock.frames import load
from perdure.models.http.body import Body
from perdure.models.http.client import Signature, Signer

SERVICE = "bedrock"
"""What signatures are made for; the address says bedrock-runtime."""


class Credentials(Protocol):
    """What signs a request: botocore's frozen credentials, say."""

    @property
    def access_key(self) -> str:
        """The id of the key."""
        ...

    @property
    def secret_key(self) -> str:
        """The key, which is never sent."""
        ...

    @property
    def token(self) -> str | None:
        """The token of a session, if there is one."""
        ...


class _Session(Protocol):
    def get_credentials(self) -> _Refreshed | None: ...
    def get_config_variable(self, name: str) -> str | None: ...


class _Refreshed(Protocol):
    def get_frozen_credentials(self) -> Credentials: ...


@cache
def _session() -> _Session:
    """The usual places, as botocore looks for them: variables, files, roles."""
    return cast("_Session", load("session").Session())


def default_region() -> str:
    """The region that the environment names.

    Raises:
        ConfigError: It names none.
    """
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if region := os.environ.get(variable, "").strip():
            return region
    region = _session().get_config_variable("region") or ""
    if not region:
        raise ConfigError("no AWS region: set AWS_REGION, or give Bedrock(region=...)")
    return region


def default_credentials() -> Credentials:
    """The credentials of the environment. May wait for the network.

    Raises:
        MissingKey: There are none.
    """
    found = _session().get_credentials()
    if found is None:
        raise MissingKey(SERVICE, ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID"))
    return found.get_frozen_credentials()


def signer_of(credentials: Callable[[], Credentials], region: Callable[[], str]) -> Signer:
    """What signs the requests of a client.

    Args:
        credentials: Gives what to sign with, on a thread, for each request.
        region: Gives the region to sign for.
    """

    async def signer() -> Signature:
        found = await asyncio.to_thread(credentials)

        def sign(url: str, body: Body) -> Mapping[str, str]:
            return signature(url, body, found, region())

        return sign

    return signer


class _SigV4(Protocol):
    def add_auth(self, request: _Signed) -> None: ...


class _Signed(Protocol):
    headers: Mapping[str, str]


def signature(url: str, body: Body, credentials: Credentials, region: str) -> dict[str, str]:
    """The headers that sign a request."""
    from yarl import URL

    digest = hashlib.sha256()
    for fragment in body.fragments:
        digest.update(fragment)
    headers = {"Content-Type": "application/json", "X-Amz-Content-SHA256": digest.hexdigest()}
    # The address as it is sent: yarl spells some characters in its own way.
    request = cast(
        "_Signed",
        load("awsrequest").AWSRequest(method="POST", url=str(URL(url)), headers=headers),
    )
    cast("_SigV4", load("auth").SigV4Auth(credentials, SERVICE, region)).add_auth(request)
    return {name: value for name, value in request.headers.items() if name != "Content-Type"}
