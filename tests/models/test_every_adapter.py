"""What holds for every adapter: the form of its module, and rules that no provider excuses."""

from __future__ import annotations

import inspect
import json
from types import ModuleType
from typing import Any

import pytest

from perdure import Agent, Retry, RunFailed
from perdure.errors import (
    ConfigError,
    DecodeError,
    EmptyBody,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    Truncated,
)
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models import (
    Body,
    ClientOptions,
    anthropic,
    bedrock,
    chat,
    gemini,
    openresponses,
    openrouter,
)
from perdure.models.http.client import BODY_LIMIT
from perdure.testing import LoopbackServer, ScriptedModel, attempts, error
from perdure.wire import (
    Request,
    decode_request,
    function_call,
    function_call_output,
    user,
)

ADAPTERS: dict[str, tuple[ModuleType, str]] = {
    "openresponses": (openresponses, "gpt-5-mini"),
    "chat": (chat, "gpt-5-mini"),
    "openrouter": (openrouter, "openai/gpt-5-mini"),
    "anthropic": (anthropic, "claude-opus-4-8"),
    "gemini": (gemini, "gemini-3-pro-preview"),
    "bedrock": (bedrock, "us.amazon.nova-2-lite-v1:0"),
}

EACH = pytest.mark.parametrize("name", ADAPTERS)


def adapter(name: str) -> Any:
    if name == "bedrock":
        pytest.importorskip("botocore")
    return ADAPTERS[name][0]


def asked(name: str, *items: Any, **members: Any) -> ModelRequest:
    settings = Request(model=ADAPTERS[name][1], **members)
    return ModelRequest(settings=settings, input=Items.of(items or [user("hi")]))


CLIENTS: tuple[tuple[Any, dict[str, Any]], ...] = (
    (openresponses.OpenResponses, {"base_url": "http://127.0.0.1"}),
    (chat.Chat, {"base_url": "http://127.0.0.1"}),
    (openrouter.OpenRouter, {}),
    (anthropic.Anthropic, {}),
    (gemini.Gemini, {}),
    (bedrock.Bedrock, {}),
)


# --- the form of a client ---------------------------------------------------------------------


@pytest.mark.parametrize(("client", "needed"), CLIENTS)
def test_a_client_shows_every_option_and_takes_no_other(
    client: Any, needed: dict[str, Any]
) -> None:
    shown = inspect.signature(client).parameters
    assert ClientOptions.__annotations__.keys() < shown.keys()
    assert "options" not in shown
    assert all(shown[name].default is None for name in ClientOptions.__annotations__)
    client(**needed, **dict.fromkeys(ClientOptions.__annotations__))
    with pytest.raises(TypeError, match=f"{client.__name__}.* no option 'api_kye'"):
        client(**needed, api_kye="k")


def test_a_client_of_ones_own_shows_what_it_takes() -> None:
    class Closed(openresponses.OpenResponses):
        def __init__(self, port: int) -> None:
            super().__init__(f"http://127.0.0.1:{port}")

    assert list(inspect.signature(Closed).parameters) == ["port"]


# --- the form of a module ---------------------------------------------------------------------


@EACH
def test_a_module_has_a_body_a_response_a_decoder_and_losses(name: str) -> None:
    module = adapter(name)
    body = module.request_body(asked(name))
    assert isinstance(body, Body)
    assert body.length == len(b"".join(body.fragments))
    assert body.value() == json.loads(b"".join(body.fragments))
    assert module.losses(asked(name)) == ()
    assert list(inspect.signature(module.response).parameters)[:2] == ["body", "request"]
    assert next(iter(inspect.signature(module.StreamDecoder).parameters)) == "request"
    with pytest.raises(EmptyBody):
        module.response(b"", asked(name))


@EACH
def test_a_decoder_is_asked_for_its_end_and_stays_as_it_was(name: str) -> None:
    decoder = adapter(name).StreamDecoder(asked(name))
    assert (decoder.feed(b""), decoder.finished, decoder.failure) == ([], False, None)
    for _ in range(2):
        assert [type(decoder.end().error), decoder.end().events] == [EmptyBody, []]
    twin = decoder.copy()
    twin.feed(b'{"half": ')
    assert type(twin.end().error) is Truncated
    assert type(decoder.end().error) is EmptyBody


@EACH
def test_a_body_is_the_same_whenever_it_is_asked_for(name: str) -> None:
    """What is tried again is what was tried."""
    module = adapter(name)
    items = [user("a"), function_call("c1", "f"), function_call_output("c1", "x"), user("b")]
    request = asked(name, *items)
    first = b"".join(module.request_body(request).fragments)
    again = b"".join(module.request_body(request).fragments)
    fresh = b"".join(module.request_body(asked(name, *items)).fragments)
    assert first == again == fresh


@EACH
@pytest.mark.parametrize("member", ["previous_response_id", "conversation"])
def test_a_conversation_that_a_server_holds_is_refused_and_said_why(name: str, member: str) -> None:
    """The history is always sent whole, so nothing of it can be there twice."""
    source = json.dumps({"model": ADAPTERS[name][1], member: "held_1"})
    request = ModelRequest(settings=decode_request(source), input=Items.of([user("hi")]))
    with pytest.raises(ConfigError, match=r"held_1.*whole history"):
        adapter(name).request_body(request)


@EACH
def test_empty_arguments_are_sent_as_an_empty_object(name: str) -> None:
    items = [user("a"), function_call("c1", "f", " "), function_call_output("c1", "x")]
    text = b"".join(adapter(name).request_body(asked(name, *items)).fragments)
    assert b'" "' not in text
    assert b"{}" in text


@EACH
def test_an_answer_without_end_is_refused_before_it_fills_the_memory(name: str) -> None:
    decoder = adapter(name).StreamDecoder(asked(name))
    piece = b" " * (4 * 1024 * 1024)
    decoder.feed(b'{"id":')
    with pytest.raises(DecodeError, match=str(BODY_LIMIT)):  # noqa: PT012 - which piece is too much
        for _ in range(9):
            decoder.feed(piece)
    assert BODY_LIMIT < 33 * 1024 * 1024


@pytest.mark.parametrize(("tokens", "status"), [(99, "completed"), (100, "incomplete")])
def test_calls_that_end_on_the_very_limit_of_tokens_are_cut(tokens: int, status: str) -> None:
    """Where a server says that the answer is whole. The other adapters have it each."""
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    usage = {"input_tokens": 1, "output_tokens": tokens, "total_tokens": 1 + tokens}
    answer = {"id": "r", "status": "completed", "output": [call], "usage": usage}
    request = asked("openresponses", max_output_tokens=100)
    body = json.dumps(answer).encode()
    assert openresponses.response(body, request).status == status
    frame = json.dumps({"type": "response.completed", "response": answer}).encode()
    (event,) = openresponses.StreamDecoder(request).feed(b"data: %b\n\n" % frame)
    assert event.type == f"response.{status}"
    assert openresponses.response(body).status == "completed"


# --- over the loop ------------------------------------------------------------------------------


async def tried(*causes: Exception) -> tuple[list[bytes], BaseException | None]:
    """The bodies that a server gets which refuses for some causes first, and how the run failed."""
    script = ScriptedModel([attempts(*map(error, causes), "ok")])
    failure: BaseException | None = None
    async with LoopbackServer(script) as server:
        model = openresponses.OpenResponses(server.base_url)
        agent = Agent(model, model_name="m", retry=Retry(max_attempts=4, random=lambda: 0.0))
        try:
            await agent.run("go")
        except RunFailed as failed:
            failure = failed.cause
        await model.aclose()
    return [one.body for one in server.received], failure


async def test_a_failed_attempt_is_sent_again_to_the_byte() -> None:
    busy = Overloaded("no room", status=503)
    bodies, failure = await tried(busy, busy)
    assert failure is None
    assert len(bodies) == 3
    assert len(set(bodies)) == 1


async def test_an_account_that_has_nothing_left_is_not_asked_again() -> None:
    spent = QuotaExhausted("pay", status=429, code="insufficient_quota", retry_after=0)
    bodies, failure = await tried(spent)
    assert (len(bodies), type(failure)) == (1, QuotaExhausted)


async def test_a_wait_that_is_too_long_is_none() -> None:
    slow = RateLimited("later", status=429, retry_after=1e9)
    bodies, failure = await tried(slow)
    assert (len(bodies), type(failure)) == (1, RateLimited)
