"""OpenRouter's own: headers, preferences, costs, thoughts, and its Responses API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import ConfigError, InvalidInput, MissingKey
from perdure.loop.model import ModelRequest, collect
from perdure.loop.transcript import Items
from perdure.models import openresponses, registry, resolve
from perdure.models.chat import losses as chat_losses
from perdure.models.dialects import DEEPSEEK, OPENROUTER
from perdure.models.http.failures import refusal
from perdure.models.openrouter import (
    OpenRouter,
    StreamDecoder,
    losses,
    register_models,
    request_body,
    response,
)
from perdure.wire import Reasoning, Request, user, with_unknown
from tests.models.chat.made import DONE, chunk, usage
from tests.models.chat.reading import dialect_of, request_of
from tests.models.recorded import (
    CLOCK,
    Count,
    Interaction,
    digest,
    end_of,
    folded,
    interactions,
    kinds,
    said,
    usage_of,
    whole,
)
from tests.models.servers import RawServer, sse

HI = ModelRequest(settings=Request(model="openai/gpt-5-mini"), input=Items.of([user("hi")]))
STREAM = chunk({"content": "a"}) + chunk(reason="stop") + usage(cost=0.5) + DONE


async def test_the_application_says_who_it_is() -> None:
    async with RawServer(sse(b": OPENROUTER PROCESSING\n\n" + STREAM)) as server:
        model = OpenRouter(
            server.base_url, api_key="k", app_url="https://example.org", app_title="Example"
        )
        got = await collect(model.stream(HI))
        await model.aclose()
    head = server.heads[0].decode()
    assert "HTTP-Referer: https://example.org\r\n" in head
    assert "X-Title: Example\r\n" in head
    assert "Authorization: Bearer k\r\n" in head
    assert got.usage
    assert got.usage.unknown == {"cost": 0.5}
    assert "HTTP-Referer" not in (await _heads(OpenRouter))


async def _heads(client: type[OpenRouter]) -> str:
    async with RawServer(sse(STREAM)) as server:
        model = client(server.base_url, headers={"X-Title": "Own"})
        await collect(model.stream(HI))
        await model.aclose()
    head = server.heads[0].decode()
    assert "X-Title: Own\r\n" in head
    return head


def test_preferences_go_as_they_are() -> None:
    own: dict[str, Any] = {
        "provider": {"order": ["anthropic"], "allow_fallbacks": False},
        "models": ["x-ai/grok-4"],
        "transforms": ["middle-out"],
        "plugins": [{"id": "web"}],
    }
    settings = with_unknown(HI.settings, own)
    told = ModelRequest(settings=settings, input=HI.input)
    made: Any = request_body(told).value()
    assert {name: made[name] for name in own} == own
    assert losses(told) == ()


def test_every_recorded_line_of_openrouter_goes_through_its_own_functions(shared: Path) -> None:
    lines = [one for one in interactions(shared, "chat") if dialect_of(one) is OPENROUTER]
    assert len(lines) == 41
    for one in lines:
        told = request_of(one)
        made: Any = request_body(told, stream=one.stream).value()
        assert made["model"] == one.request["model"]
        decoder = StreamDecoder(told, ids=Count(), clock=CLOCK)
        got = folded(whole(decoder, one.answer))
        if not one.stream:
            assert got == response(one.answer, told, ids=Count(), clock=CLOCK)


def test_details_of_thoughts_come_back_as_they_came(shared: Path) -> None:
    found = 0
    for one in interactions(shared, "chat"):
        if dialect_of(one) is not OPENROUTER or one.stream:
            continue
        details = one.value["choices"][0]["message"].get("reasoning_details")
        if not details:
            continue
        found += 1
        output = response(one.answer).output
        told = ModelRequest(settings=HI.settings, input=Items.of([user("hi"), *output]))
        made: Any = request_body(told).value()
        assert made["messages"][1]["reasoning_details"] == details
        assert losses(told) == ()
        assert {loss.what for loss in chat_losses(told, dialect=DEEPSEEK)} == {"reasoning"}
    assert found == 5


@pytest.fixture
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    register_models()


@pytest.mark.usefixtures("_registered")
def test_a_model_string_names_a_model_of_a_provider() -> None:
    model, name = resolve("openrouter:openai/gpt-5-mini")
    assert isinstance(model, OpenRouter)
    assert name == "openai/gpt-5-mini"
    with pytest.raises(ConfigError, match="PROVIDER/MODEL"):
        resolve("openrouter:gpt-5-mini")


@pytest.mark.usefixtures("_registered")
async def test_a_key_that_is_nowhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    model, _ = resolve("openrouter:openai/gpt-5-mini")
    with pytest.raises(MissingKey, match="OPENROUTER_API_KEY"):
        await collect(model.stream(HI))


# --- the same services by their Responses API ------------------------------------------------

_PLACES = ("openrouter", "deepseek", "gpt_oss_responses", "reused_tool_call_ids")


def elsewhere(shared: Path) -> list[Interaction]:
    """The recorded Responses lines of OpenRouter, DeepSeek and Bedrock. Azure has none by name."""
    every = interactions(shared, "responses")
    return [one for one in every if any(place in one.name for place in _PLACES)]


def test_their_responses_are_read_by_the_open_responses_adapter(shared: Path) -> None:
    told: list[object] = []
    for one in elsewhere(shared):
        if one.status != 200:
            continue
        decoder = openresponses.StreamDecoder()
        events = decoder.feed(one.answer) + decoder.end().events
        got = events[-1].response  # type: ignore[union-attr]
        told.append([one.name, kinds(got), end_of(got), usage_of(got), [*map(str, said(got))]])
    assert len(told) == 14
    assert digest(told) == "2ef1d3c31af351f8"


def test_what_they_cost_stays_in_the_usage(shared: Path) -> None:
    lines = [one for one in elsewhere(shared) if "openrouter" in one.name]
    costs = [openresponses.response(one.answer).usage for one in lines]
    assert [usage.unknown["cost"] for usage in costs if usage] == [0.025265, 0.002196]


def test_their_refusal_has_its_class(shared: Path) -> None:
    (one,) = [one for one in elsewhere(shared) if one.status != 200]
    error = refusal(one.status, {}, one.answer, now=0)
    assert type(error) is InvalidInput
    assert error.message in one.answer.decode()


def test_their_answers_go_on_over_chat_with_a_true_report(shared: Path) -> None:
    for one in elsewhere(shared):
        if one.status != 200 or one.stream:
            continue
        output = openresponses.response(one.answer).output
        told = ModelRequest(settings=HI.settings, input=Items.of([user("hi"), *output]))
        lost = [loss for loss in losses(told) if loss.what == "reasoning"]
        private = [i for i in output if isinstance(i, Reasoning) and i.encrypted_content]
        assert len(lost) == len(private)
        body: Any = request_body(told).value()
        assert json.dumps(body["messages"][1:])
