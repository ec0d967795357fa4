"""The client of Bedrock, its signatures, and what the API refuses."""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

import pytest

from perdure.errors import (
    AuthFailed,
    ConfigError,
    ContextTooLong,
    InvalidInput,
    MissingKey,
    NotFound,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    Rejected,
    ServerFailed,
)
from perdure.loop.model import Model, collect
from perdure.models import Body, registry, resolve
from perdure.models.bedrock import Bedrock, register_models
from perdure.models.bedrock.signing import signature
from tests.models.bedrock.streams import start, stop, text
from tests.models.servers import RawServer, http, request

AUTH = pytest.importorskip("botocore.auth")
AWS_REQUEST = pytest.importorskip("botocore.awsrequest")

MODEL = "us.anthropic.claude-x-v1:0"
STREAM = http(start() + text(0, "a", "b") + stop(), type_="application/vnd.amazon.eventstream")


class Given(NamedTuple):
    access_key: str = "AKIDEXAMPLE"
    secret_key: str = "not-a-secret"
    token: str | None = "session-token"


def headers_of(head: bytes) -> dict[str, str]:
    lines = head.decode().split("\r\n")[1:-2]
    return {n.lower(): v for n, _, v in (line.partition(": ") for line in lines)}


async def test_a_request_is_signed_as_botocore_signs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
    async with RawServer(STREAM) as server:
        base_url = server.base_url[:-3]
        model = Bedrock(region="eu-central-1", credentials=Given, base_url=base_url)
        assert isinstance(model, Model)
        assert (await collect(model.stream(request(model=MODEL)))).output_text == "ab"
        await model.check()
        await model.aclose()
    head = headers_of(server.heads[0])
    path = server.heads[0].split(b" ")[1].decode()
    assert path == "/model/us.anthropic.claude-x-v1:0/converse-stream"
    assert head["accept"] == "application/vnd.amazon.eventstream"
    assert head["x-amz-security-token"] == "session-token"
    assert head["x-amz-content-sha256"] == hashlib.sha256(server.bodies[0]).hexdigest()
    assert "/eu-central-1/bedrock/aws4_request" in head["authorization"]
    assert head["authorization"] == signed_again(base_url + path, head, server.bodies[0])


def signed_again(url: str, head: dict[str, str], body: bytes) -> str:
    """What botocore makes of the request that came, at the time it says."""
    names = head["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    assert {"host", "content-type", "x-amz-content-sha256", "x-amz-date"} <= set(names)
    shown = {name: head[name] for name in names if name != "host"}
    again = AWS_REQUEST.AWSRequest(method="POST", url=url, headers=shown, data=body)
    again.context["timestamp"] = head["x-amz-date"]
    signer = AUTH.SigV4Auth(Given(), "bedrock", "eu-central-1")
    canonical = signer.canonical_request(again)
    made = signer.signature(signer.string_to_sign(again, canonical), again)
    return head["authorization"].partition("Signature=")[0] + f"Signature={made}"


def test_the_hash_is_of_all_fragments() -> None:
    body = Body([b"a", b"b"], 2)
    headers = signature("https://h/model/x/converse", body, Given(token=None), "us-east-1")
    assert headers["X-Amz-Content-SHA256"] == hashlib.sha256(b"ab").hexdigest()
    assert "X-Amz-Security-Token" not in headers
    assert headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")


async def test_a_key_of_bedrocks_own_needs_no_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer(STREAM) as server:
        given = Bedrock(region="r", api_key="own", base_url=server.base_url[:-3])
        await collect(given.stream(request(model=MODEL)))
        await given.aclose()
        monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "from-env")
        found = Bedrock(region="r", base_url=server.base_url[:-3])
        await collect(found.stream(request(model=MODEL)))
        await found.aclose()
    heads = [headers_of(head) for head in server.heads]
    assert [head["authorization"] for head in heads] == ["Bearer own", "Bearer from-env"]
    assert not any("x-amz-date" in head for head in heads)


async def test_the_region_and_the_credentials_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    register_models()
    model = resolve(f"bedrock:{MODEL}").model
    assert isinstance(model, Bedrock)
    assert resolve(f"bedrock:{MODEL}").name == MODEL
    with pytest.raises(ConfigError, match="AWS_REGION"):
        await collect(model.stream(request(model=MODEL)))

    def nobody() -> Given:
        raise MissingKey("bedrock", ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID"))

    monkeypatch.setenv("AWS_REGION", "us-west-2")
    with pytest.raises(MissingKey, match="AWS_ACCESS_KEY_ID"):
        await Bedrock(credentials=nobody).check()


async def test_the_whole_response_without_a_stream() -> None:
    told = {
        "output": {"message": {"content": [{"text": "a"}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 1, "outputTokens": 2},
    }
    async with RawServer(http(json.dumps(told).encode())) as server:
        model = Bedrock(region="r", api_key="k", base_url=server.base_url[:-3])
        assert (await model.create(request(model=MODEL))).output_text == "a"
        await model.aclose()
    assert server.heads[0].startswith(b"POST /model/us.anthropic.claude-x-v1:0/converse HTTP")


@pytest.mark.parametrize(
    ("status", "name", "message", "cls"),
    [
        (400, "ValidationException", "Malformed input request", InvalidInput),
        (400, "ValidationException", "Input is too long for requested model.", ContextTooLong),
        (400, "ServiceQuotaExceededException", "no more", QuotaExhausted),
        (403, "AccessDeniedException", "You don't have access", AuthFailed),
        (403, "ExpiredTokenException", "The security token is expired", AuthFailed),
        (404, "ResourceNotFoundException", "no such model", NotFound),
        (408, "ModelTimeoutException", "late", ServerFailed),
        (424, "ModelErrorException", "the model failed", ServerFailed),
        (429, "ModelNotReadyException", "warming up", Overloaded),
        (429, "ThrottlingException", "Too many requests", RateLimited),
        (429, "ThrottlingException", "Too many tokens per day, please wait", QuotaExhausted),
        (500, "InternalServerException", "oops", ServerFailed),
        (503, "ServiceUnavailableException", "busy", Overloaded),
    ],
)
async def test_what_the_api_refuses_has_its_class(
    status: int, name: str, message: str, cls: type[Rejected]
) -> None:
    answer = http(
        json.dumps({"message": message}).encode(),
        status=status,
        x_amzn_ErrorType=f"{name}:http://internal.amazon.com/x/",
    )
    async with RawServer(answer) as server:
        model = Bedrock(region="r", api_key="secret-key", base_url=server.base_url[:-3])
        with pytest.raises(Rejected) as raised:
            await collect(model.stream(request(model=MODEL)))
        await model.aclose()
    error = raised.value
    assert type(error) is cls
    assert (error.status, error.code, error.message) == (status, name, message)
