"""The client of the Messages API, and what the API refuses."""

from __future__ import annotations

import json

import pytest

from perdure.errors import (
    AuthFailed,
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
from perdure.models import registry, resolve
from perdure.models.anthropic import Anthropic, register_models
from tests.models.anthropic.streams import start, stop, text
from tests.models.servers import RawServer, http, request, sse

STREAM = start() + text(0, "a", "b") + stop()


async def test_a_request_carries_the_key_the_version_and_the_betas() -> None:
    async with RawServer(sse(STREAM)) as server:
        model = Anthropic(server.base_url[:-3], api_key="secret", betas=["x-1", "y-2"])
        assert isinstance(model, Model)
        assert (await collect(model.stream(request()))).output_text == "ab"
        await model.aclose()
    head = server.heads[0].lower()
    assert head.startswith(b"post /v1/messages http")
    assert b"x-api-key: secret" in head
    assert b"anthropic-version: 2023-06-01" in head
    assert b"anthropic-beta: x-1,y-2" in head
    assert b"authorization" not in head
    assert json.loads(server.bodies[0])["stream"] is True


async def test_headers_of_the_callers_own_win_over_the_key() -> None:
    async with RawServer(sse(STREAM)) as server:
        model = Anthropic(server.base_url[:-3], headers={"Authorization": "Bearer mine"})
        await collect(model.stream(request()))
        await model.aclose()
    head = server.heads[0].lower()
    assert b"authorization: bearer mine" in head
    assert b"x-api-key" not in head


async def test_the_whole_response_without_a_stream() -> None:
    message = {
        "id": "msg_1",
        "type": "message",
        "model": "m",
        "content": [{"type": "text", "text": "a"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    async with RawServer(http(json.dumps(message).encode())) as server:
        model = Anthropic(server.base_url[:-3], api_key="k")
        assert (await model.create(request())).output_text == "a"
        await model.aclose()
    assert json.loads(server.bodies[0])["stream"] is False


async def test_the_key_comes_from_its_variable_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    register_models()
    resolved = resolve("anthropic:claude-sonnet-4-5")
    assert isinstance(resolved.model, Anthropic)
    assert resolved.name == "claude-sonnet-4-5"
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(MissingKey, match="ANTHROPIC_API_KEY"):
        await collect(resolved.model.stream(request()))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-env")
    async with RawServer(sse(STREAM)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url[:-3])
        await collect(resolved.model.stream(request()))
        await resolved.model.aclose()
    assert b"x-api-key: from-env" in server.heads[0]


@pytest.mark.parametrize(
    ("status", "kind", "message", "cls"),
    [
        (400, "invalid_request_error", "max_tokens: required", InvalidInput),
        (400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", ContextTooLong),
        (
            400,
            "invalid_request_error",
            "Your credit balance is too low to access the API",
            QuotaExhausted,
        ),
        (401, "authentication_error", "invalid x-api-key", AuthFailed),
        (402, "billing_error", "pay", QuotaExhausted),
        (403, "permission_error", "no", AuthFailed),
        (404, "not_found_error", "model: x", NotFound),
        (413, "request_too_large", "too large", InvalidInput),
        (429, "rate_limit_error", "slow down", RateLimited),
        (500, "api_error", "oops", ServerFailed),
        (504, "timeout_error", "late", ServerFailed),
        (529, "overloaded_error", "busy", Overloaded),
    ],
)
async def test_what_the_api_refuses_has_its_class(
    status: int, kind: str, message: str, cls: type[Rejected]
) -> None:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    answer = http(json.dumps(body).encode(), status=status, retry_after="7")
    async with RawServer(answer) as server:
        model = Anthropic(server.base_url[:-3], api_key="sk-ant-secret")
        with pytest.raises(Rejected) as raised:
            await collect(model.stream(request()))
        await model.aclose()
    error = raised.value
    assert type(error) is cls
    assert (error.status, error.type, error.message, error.retry_after) == (
        status,
        kind,
        message,
        7.0,
    )


async def test_a_limit_of_spending_is_no_limit_of_rate() -> None:
    details = {"error_code": "enforced_spend_limit_reached"}
    told = {"type": "rate_limit_error", "message": "spent", "details": details}
    answer = http(json.dumps({"type": "error", "error": told}).encode(), status=429)
    async with RawServer(answer) as server:
        model = Anthropic(server.base_url[:-3], api_key="k")
        with pytest.raises(QuotaExhausted) as raised:
            await model.create(request())
        await model.aclose()
    assert raised.value.code == "enforced_spend_limit_reached"


async def test_a_key_never_shows_in_an_error() -> None:
    body = {"error": {"type": "authentication_error", "message": "bad key sk-ant-secret"}}
    async with RawServer(http(json.dumps(body).encode(), status=401)) as server:
        model = Anthropic(server.base_url[:-3], api_key="sk-ant-secret")
        with pytest.raises(AuthFailed) as raised:
            await model.create(request())
        await model.aclose()
    assert "sk-ant-secret" not in str(raised.value)
    assert "***" in str(raised.value)
