"""The client over loopback: what it sends, and what it makes of what comes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from perdure.errors import (
    AuthFailed,
    ConfigError,
    ContextTooLong,
    InvalidInput,
    MissingKey,
    ModelError,
    ModelTimeout,
    NotFound,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    Rejected,
    ServerFailed,
    Truncated,
    UnknownModel,
)
from perdure.loop.model import ModelRequest, collect
from perdure.loop.transcript import Items
from perdure.models import HttpRequest, Timeouts, registry, resolve
from perdure.models.chat import Chat, register_models
from perdure.models.dialects import AZURE, GENERIC, GROQ, OPENAI, VLLM
from perdure.models.http.client import Hooks
from perdure.wire import Request, function_tool, user
from tests.models.chat.made import DONE, call, chunk, usage
from tests.models.conftest import _nothing_is_left  # noqa: F401 - a client leaves nothing behind
from tests.models.recorded import end_of, kinds
from tests.models.servers import SSE_HEAD, RawServer, chunks, http, sse, until

STOP = chunk(reason="stop")
ANSWER = sse(chunk({"content": "a"}) + STOP + usage() + DONE)
HI = ModelRequest(settings=Request(model="m"), input=Items.of([user("hi")]))


async def answered(answer: Any, **options: Any) -> tuple[Any, RawServer]:
    """The response to a request, and the server that gave it."""
    async with RawServer(answer) as server:
        model = Chat(server.base_url, **options)
        try:
            return await collect(model.stream(HI)), server
        finally:
            await model.aclose()


async def test_a_request_is_posted_as_it_has_to_be() -> None:
    got, server = await answered(ANSWER, api_key="k-1", headers={"X-Own": "1"})
    assert (kinds(got), end_of(got)) == ("message", "completed")
    head = server.heads[0].decode()
    assert head.startswith("POST /v1/chat/completions HTTP/1.1\r\n")
    assert "Authorization: Bearer k-1\r\n" in head
    assert "X-Own: 1\r\n" in head
    assert "Accept: text/event-stream\r\n" in head
    assert json.loads(server.bodies[0]) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "hi"}],
    }


async def test_azure_has_its_key_in_a_header_of_its_own() -> None:
    _, server = await answered(ANSWER, api_key="k-1", dialect=AZURE)
    head = server.heads[0].decode()
    assert "api-key: k-1\r\n" in head
    assert "Authorization" not in head


async def test_a_local_server_needs_no_key() -> None:
    _, server = await answered(ANSWER, dialect=VLLM)
    assert b"Authorization" not in server.heads[0]


async def test_an_answer_may_come_whole_and_gives_the_same() -> None:
    body = {
        "id": "chatcmpl-1",
        "model": "m-1",
        "created": 5,
        "choices": [{"message": {"content": "a"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    async with RawServer(http(json.dumps(body).encode())) as server:
        model = Chat(server.base_url)
        created = await model.create(HI)
        streamed = await collect(model.stream(HI))
        await model.aclose()
    assert json.loads(server.bodies[0])["stream"] is False
    for got in (created, streamed):
        assert (got.id, kinds(got), end_of(got)) == ("chatcmpl-1", "message", "completed")
        assert got.usage
        assert got.usage.total_tokens == 5


async def test_the_connection_is_kept_for_the_next_request() -> None:
    async with RawServer(ANSWER) as server:
        model = Chat(server.base_url)
        for _ in range(3):
            await collect(model.stream(HI))
        await model.aclose()
        assert (len(server.heads), server.connections) == (3, 1)


# --- what servers refuse ------------------------------------------------------------------

_OPENAI = '{"error":{"message":"M","type":"%s","param":null,"code":%s}}'


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        # OpenAI, Azure and Groq
        (429, _OPENAI % ("requests", '"rate_limit_exceeded"'), RateLimited),
        (429, _OPENAI % ("insufficient_quota", '"insufficient_quota"'), QuotaExhausted),
        (429, '{"error":{"code":"429","message":"M"}}', RateLimited),
        (400, _OPENAI % ("invalid_request_error", '"context_length_exceeded"'), ContextTooLong),
        (
            400,
            '{"error":{"message":"This model\'s maximum context length is 8192"}}',
            ContextTooLong,
        ),
        (400, _OPENAI % ("invalid_request_error", "null"), InvalidInput),
        (401, _OPENAI % ("invalid_request_error", '"invalid_api_key"'), AuthFailed),
        (404, _OPENAI % ("invalid_request_error", '"model_not_found"'), NotFound),
        (404, '{"error":{"code":"DeploymentNotFound","message":"M"}}', NotFound),
        (500, _OPENAI % ("server_error", "null"), ServerFailed),
        (503, _OPENAI % ("server_error", "null"), Overloaded),
        # DeepSeek, Mistral, Cerebras, xAI, Ollama, vLLM
        (
            402,
            '{"error":{"message":"Insufficient Balance","code":"invalid_request_error"}}',
            QuotaExhausted,
        ),
        (
            422,
            '{"object":"error","message":{"detail":[{"msg":"M"}]},"type":"invalid"}',
            InvalidInput,
        ),
        (422, '{"detail":[{"msg":"M"}]}', InvalidInput),
        (401, '{"message":"M","request_id":"1"}', AuthFailed),
        (429, '{"message":"M","type":"too_many_requests_error","param":"quota"}', RateLimited),
        (400, '{"code":"Client specified an invalid argument","error":"M"}', InvalidInput),
        (404, '{"error":"model \\"M\\" not found"}', NotFound),
        (400, '{"object":"error","message":"M","type":"BadRequestError","code":400}', InvalidInput),
        # OpenRouter
        (402, '{"error":{"code":402,"message":"M"}}', QuotaExhausted),
        (502, '{"error":{"code":502,"message":"Provider returned error"}}', ServerFailed),
        (529, "M", Overloaded),
        (502, "<html><title>Bad Gateway</title>M</html>", ServerFailed),
    ],
)
async def test_a_refusal_has_its_class_and_the_servers_words(
    status: int, body: str, kind: type[Rejected]
) -> None:
    with pytest.raises(Rejected) as raised:
        await answered(http(body.encode(), status=status), api_key="k-secret")
    assert isinstance(raised.value, kind)
    assert raised.value.status == status
    assert re.search("M|Balance|maximum|Provider", raised.value.message)
    assert "k-secret" not in str(raised.value)


async def test_what_the_provider_behind_openrouter_said_is_said() -> None:
    body = {
        "error": {
            "code": 429,
            "message": "Provider returned error",
            "metadata": {"raw": "m is rate-limited upstream", "provider_name": "X"},
        }
    }
    with pytest.raises(RateLimited) as raised:
        await answered(http(json.dumps(body).encode(), status=429, Retry_After="7"))
    assert raised.value.message == "Provider returned error: m is rate-limited upstream"
    assert raised.value.retry_after == 7


async def test_an_error_in_a_body_of_a_success_is_a_refusal() -> None:
    body = b'{"error":{"code":402,"message":"no credits left"}}'
    with pytest.raises(QuotaExhausted, match="no credits left"):
        await answered(http(body))
    async with RawServer(http(body)) as server:
        model = Chat(server.base_url)
        with pytest.raises(QuotaExhausted):
            await model.create(HI)
        await model.aclose()


# --- servers that stop --------------------------------------------------------------------------


def stalling(begun: bytes) -> Callable[[Any, asyncio.StreamWriter], Any]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        writer.writelines([*chunks([begun])][:-1])
        await writer.drain()
        await reader.read()  # until the client goes

    return answer


async def test_a_server_that_says_200_and_nothing_more_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE_HEAD + b"\r\n")
        await writer.drain()
        await reader.read()

    with pytest.raises(ModelTimeout) as raised:
        await answered(silent, timeouts=Timeouts(first_byte=0.05))
    assert raised.value.phase == "first_byte"


async def test_a_server_that_falls_silent_is_given_up_unless_it_had_finished() -> None:
    with pytest.raises(ModelTimeout) as raised:
        await answered(stalling(chunk({"content": "a"})), timeouts=Timeouts(idle=0.05))
    assert raised.value.phase == "idle"
    begun = chunk({"content": "a"}) + STOP
    got, _ = await answered(stalling(begun), timeouts=Timeouts(idle=0.05))
    assert end_of(got) == "completed"
    assert got.usage is None


@pytest.mark.parametrize(
    "body", [chunk({"content": "a"}), chunk(call(0, id="c", name="f", arguments='{"x"'))]
)
async def test_a_stream_that_is_cut_is_an_error(body: bytes) -> None:
    with pytest.raises(Truncated):
        await answered(sse(body))


async def test_a_stream_that_is_left_gives_its_connection_back() -> None:
    async with RawServer(stalling(chunk({"content": "a"}))) as server:
        model = Chat(server.base_url)
        async with model.stream(HI) as events:
            async for event in events:
                if event.type == "response.output_text.delta":
                    break
        await asyncio.wait_for(server.gone(), 2)
        assert (server.connections, server.open) == (1, 0)
        await model.aclose()


async def test_hooks_see_every_request_and_its_error_without_the_key() -> None:
    seen: list[HttpRequest] = []
    errors: list[ModelError] = []
    hooks = Hooks(before_request=seen.append, on_error=lambda _, error: errors.append(error))
    with pytest.raises(AuthFailed):
        await answered(http(b'{"error":"bad key k-1"}', status=401), api_key="k-1", hooks=hooks)
    assert len(seen) == 1
    assert "k-1" not in str(seen) + str(errors)


async def test_a_request_that_cannot_be_sent_is_not() -> None:
    told = ModelRequest(
        settings=Request(model="m", tools=(function_tool("a b"),)), input=Items.of([user("hi")])
    )
    async with RawServer(ANSWER) as server:
        model = Chat(server.base_url)
        with pytest.raises(ConfigError, match="a b"):
            await collect(model.stream(told))
        assert server.connections == 0
        assert model.losses(HI) == ()
        await model.aclose()
    await until(lambda: not server.open)


# --- model strings ------------------------------------------------------------------------


@pytest.fixture
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    register_models()
    for name in ("GROQ_API_KEY", "AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY", "CHAT_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_registered")
@pytest.mark.parametrize(
    ("text", "name", "dialect"),
    [
        ("groq:openai/gpt-oss-120b", "openai/gpt-oss-120b", "groq"),
        ("openai-chat:gpt-4o", "gpt-4o", "openai"),
        ("ollama:qwen3:8b", "qwen3:8b", "ollama"),
        ("vllm:http://127.0.0.1:9/v1#org/model", "org/model", "vllm"),
        ("chat:http://127.0.0.1:9/v1#m", "m", "chat"),
        ("chat:https://api.groq.com/openai/v1#m", "m", "groq"),
    ],
)
def test_a_model_string_names_a_service_and_a_model(text: str, name: str, dialect: str) -> None:
    model, found = resolve(text)
    assert isinstance(model, Chat)
    assert (found, model.dialect.name) == (name, dialect)
    assert resolve(text).model is model


@pytest.mark.usefixtures("_registered")
@pytest.mark.parametrize("text", ["chat:m", "vllm:http://127.0.0.1:9/v1", "groq:"])
def test_a_model_string_that_names_nothing_is_refused(text: str) -> None:
    with pytest.raises((ConfigError, UnknownModel)):
        resolve(text)


@pytest.mark.usefixtures("_registered")
async def test_keys_and_addresses_are_read_when_a_request_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, _ = resolve("groq:m")
    with pytest.raises(MissingKey, match="GROQ_API_KEY"):
        await collect(model.stream(HI))
    assert isinstance(model, Chat)
    with pytest.raises(MissingKey):
        await model.check()
    azure, _ = resolve("azure:m")
    with pytest.raises(ConfigError, match="AZURE_OPENAI_ENDPOINT"):
        await collect(azure.stream(HI))
    async with RawServer(ANSWER) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.base_url.removesuffix("/v1"))
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k")
        await collect(azure.stream(HI))
        assert server.heads[0].startswith(b"POST /openai/v1/chat/completions ")
        await azure.aclose()  # type: ignore[attr-defined]


def test_the_dialect_of_a_client_is_told_by_its_address() -> None:
    assert Chat("https://api.groq.com/openai/v1").dialect is GROQ
    assert Chat("https://api.openai.com/v1").dialect is OPENAI
    assert Chat(lambda: "https://api.openai.com/v1").dialect is GENERIC
