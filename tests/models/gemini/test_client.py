"""The client of Gemini's API, and what the API refuses."""

from __future__ import annotations

import json
from typing import Any

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
from perdure.loop.model import Model, ModelRequest, collect
from perdure.loop.transcript import Items
from perdure.models import registry, resolve
from perdure.models.gemini import Gemini, register_models
from perdure.wire import Request
from tests.models.gemini.streams import frame, text
from tests.models.servers import RawServer, http, request, sse

STREAM = frame(text("a")) + frame(text("b"), reason="STOP")


async def test_a_request_carries_the_key_in_its_own_header() -> None:
    async with RawServer(sse(STREAM)) as server:
        model = Gemini(server.base_url, api_key="secret")
        assert isinstance(model, Model)
        assert (await collect(model.stream(request(model="gemini-x")))).output_text == "ab"
        await model.check()
        await model.aclose()
    head = server.heads[0].lower()
    assert head.startswith(b"post /v1/models/gemini-x:streamgeneratecontent?alt=sse http")
    assert b"x-goog-api-key: secret" in head
    assert b"authorization" not in head
    assert json.loads(server.bodies[0])["contents"][0]["role"] == "user"


async def test_the_whole_response_without_a_stream() -> None:
    answer = {"candidates": [{"content": {"parts": [text("a")]}, "finishReason": "STOP"}]}
    async with RawServer(http(json.dumps(answer).encode())) as server:
        model = Gemini(server.base_url, api_key="k")
        assert (await model.create(request(model="gemini-x"))).output_text == "a"
        await model.aclose()
    assert server.heads[0].startswith(b"POST /v1/models/gemini-x:generateContent HTTP")


@pytest.mark.parametrize("variable", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
async def test_the_key_comes_from_its_variable_when_it_is_needed(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    register_models()
    resolved = resolve("gemini:gemini-3-pro")
    assert resolve("google:gemini-3-pro") == resolved
    assert isinstance(resolved.model, Gemini)
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    with pytest.raises(MissingKey, match="GEMINI_API_KEY or GOOGLE_API_KEY"):
        await collect(resolved.model.stream(request()))
    monkeypatch.setenv(variable, "from-env")
    async with RawServer(sse(STREAM)) as server:
        monkeypatch.setenv("GEMINI_BASE_URL", server.base_url)
        await collect(resolved.model.stream(request()))
        await resolved.model.aclose()
    assert b"x-goog-api-key: from-env" in server.heads[0]


async def test_a_request_without_a_model_is_not_sent() -> None:
    model = Gemini("http://127.0.0.1:1", api_key="k")
    nameless = ModelRequest(settings=Request(), input=Items.of([]))
    with pytest.raises(ConfigError, match="no model"):
        await collect(model.stream(nameless))
    with pytest.raises(ConfigError, match="no model"):
        await model.create(nameless)


def told(status: int, name: str, message: str, *details: dict[str, Any]) -> bytes:
    error = {"code": status, "status": name, "message": message, "details": list(details)}
    return json.dumps({"error": error}).encode()


def quota(name: str) -> dict[str, Any]:
    return {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": name}],
    }


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}
BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}


@pytest.mark.parametrize(
    ("body", "status", "cls", "wait"),
    [
        (told(400, "INVALID_ARGUMENT", "Invalid value"), 400, InvalidInput, None),
        (told(400, "INVALID_ARGUMENT", "API key not valid", BAD_KEY), 400, AuthFailed, None),
        (
            told(
                400,
                "INVALID_ARGUMENT",
                "The input token count (9) exceeds the maximum number of tokens allowed (8).",
            ),
            400,
            ContextTooLong,
            None,
        ),
        (told(403, "PERMISSION_DENIED", "no"), 403, AuthFailed, None),
        (told(404, "NOT_FOUND", "models/x is not found"), 404, NotFound, None),
        (
            told(429, "RESOURCE_EXHAUSTED", "slow", quota("PerMinute"), RETRY),
            429,
            RateLimited,
            34.5,
        ),
        (
            told(429, "RESOURCE_EXHAUSTED", "spent", quota("RequestsPerDay")),
            429,
            QuotaExhausted,
            None,
        ),
        (b"[" + told(429, "RESOURCE_EXHAUSTED", "slow", RETRY) + b"]", 429, RateLimited, 34.5),
        (told(500, "INTERNAL", "oops"), 500, ServerFailed, None),
        (told(503, "UNAVAILABLE", "The model is overloaded."), 503, Overloaded, None),
        (told(504, "DEADLINE_EXCEEDED", "late"), 504, ServerFailed, None),
        (b"<html><title>502</title>Bad gateway</html>", 502, ServerFailed, None),
    ],
)
async def test_what_the_api_refuses_has_its_class(
    body: bytes, status: int, cls: type[Rejected], wait: float | None
) -> None:
    async with RawServer(http(body, status=status)) as server:
        model = Gemini(server.base_url, api_key="secret-key")
        with pytest.raises(Rejected) as raised:
            await collect(model.stream(request()))
        await model.aclose()
    error = raised.value
    assert type(error) is cls
    assert (error.status, error.retry_after) == (status, wait)
    if body.startswith(b"{"):
        assert error.message == json.loads(body)["error"]["message"]
