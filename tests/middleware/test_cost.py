"""What runs cost."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

import pytest

from perdure import Agent, ConfigError, RunFailed
from perdure.errors import BadBody, Overloaded
from perdure.log.entries import ResponseEntry
from perdure.loop import ResponseEnd
from perdure.middleware import (
    COST_MEMBER,
    Cost,
    KnownPrices,
    Meter,
    Price,
    Rates,
    Tokens,
    price_in,
)
from perdure.models import anthropic, chat, gemini, openresponses
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, attempts, turn
from perdure.wire import InputTokensDetails, Response, Usage, with_unknown
from tests.face.recorded import session_in

RATES = Rates(input="2", output="8", cached="0.5", cache_write="2.5", date="2026-11-01")


def usage(read: int, said: int, *, cached: int = 0, written: int = 0) -> Usage:
    details = InputTokensDetails(cached_tokens=cached, cache_creation_tokens=written)
    return Usage(
        input_tokens=read,
        output_tokens=said,
        total_tokens=read + said,
        input_tokens_details=details,
    )


def test_each_kind_of_token_is_paid_once_at_its_own_rate() -> None:
    price = RATES.price(usage(1_000_000, 100_000, cached=200_000, written=300_000))
    # 500k plain, 200k cached, 300k written, 100k out
    assert price.usd == Decimal("1.0") + Decimal("0.1") + Decimal("0.75") + Decimal("0.8")
    assert (price.date, price.source) == ("2026-11-01", "given")


OPENAI = {
    "id": "r",
    "object": "response",
    "status": "completed",
    "output": [],
    "usage": {
        "input_tokens": 1000,
        "output_tokens": 50,
        "total_tokens": 1050,
        "input_tokens_details": {"cached_tokens": 400},
    },
}
CHAT = {
    "id": "c",
    "object": "chat.completion",
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi"}}
    ],
    "usage": {
        "prompt_tokens": 1000,
        "completion_tokens": 50,
        "total_tokens": 1050,
        "prompt_tokens_details": {"cached_tokens": 400},
    },
}
CLAUDE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Hi"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 600, "cache_read_input_tokens": 400, "output_tokens": 50},
}
GEMINI = {
    "candidates": [
        {"content": {"role": "model", "parts": [{"text": "Hi"}]}, "finishReason": "STOP"}
    ],
    "usageMetadata": {
        "promptTokenCount": 1000,
        "cachedContentTokenCount": 400,
        "candidatesTokenCount": 50,
        "totalTokenCount": 1050,
    },
}


@pytest.mark.parametrize(
    ("response", "body"),
    [
        (openresponses.response, OPENAI),
        (chat.response, CHAT),
        (anthropic.response, CLAUDE),
        (gemini.response, GEMINI),
    ],
)
def test_cached_tokens_count_once_whoever_counted_them(
    response: Callable[[bytes], Response], body: dict[str, object]
) -> None:
    counted = response(json.dumps(body).encode()).usage
    assert counted
    assert Tokens.of(counted) == Tokens(plain=600, cached=400, written=0, output=50)


async def test_the_price_and_its_date_stand_in_the_response_and_in_the_record() -> None:
    store = MemoryStore()
    model = ScriptedModel([turn("Hello.", usage=usage(1_000_000, 0))])
    cost = Cost(prices={"big": RATES})
    agent = Agent(model, model_name="big", middleware=[cost], store=store)
    async with agent.session("chat") as chat_:
        ends: list[ResponseEnd] = []

        async def hear(event: object) -> None:
            if isinstance(event, ResponseEnd):
                ends.append(event)

        chat_.subscribe(hear)
        await chat_.send("x")
    told = ends[0].response.usage
    assert told
    price = Price(usd=Decimal("2.00"), date="2026-11-01", source="given")
    assert price_in(told) == price
    recorded = [e for e in (await session_in(store)).entries if isinstance(e, ResponseEntry)]
    kept = cast("dict[str, Any]", recorded[0].members["usage"])[COST_MEMBER]
    assert kept["date"] == "2026-11-01"
    assert Decimal(kept["usd"]) == 2


async def test_every_request_is_spend_and_what_was_taken_is_an_answer() -> None:
    model = ScriptedModel(
        [
            attempts(
                Overloaded("no", status=503, retry_after=0),
                turn("Hello.", usage=usage(1_000_000, 0)),
            )
        ]
    )
    meter = Meter()
    result = await Agent(model, middleware=[Cost(meter, prices=RATES)]).run("x")
    assert result.text == "Hello."
    assert (meter.spend.requests, meter.spend.uncounted) == (2, 1)
    assert (meter.answers.requests, meter.answers.usd) == (1, Decimal(2))
    assert meter.discarded.requests == 1


async def test_a_model_whose_price_nobody_knows_is_unpriced_and_nothing_is_guessed() -> None:
    cost = Cost(prices={"other": RATES})
    await Agent(ScriptedModel(["Hello."]), model_name="mine", middleware=[cost]).run("x")
    assert (cost.meter.answers.unpriced, cost.meter.answers.usd) == (1, Decimal(0))
    assert cost.meter.answers.tokens.output > 0


async def test_fewer_than_no_tokens_are_refused() -> None:
    model = ScriptedModel([turn("Hello.", usage=usage(-5, 1))])
    with pytest.raises(RunFailed) as failed:
        await Agent(model, middleware=[Cost(prices=RATES)]).run("x")
    assert isinstance(failed.value.cause, BadBody)


async def test_one_meter_sums_what_several_agents_spend() -> None:
    meter = Meter()
    for _ in range(3):
        model = ScriptedModel([turn("Hello.", usage=usage(500_000, 0))])
        await Agent(model, middleware=[Cost(meter, prices=RATES)]).run("x")
    assert (meter.spend.requests, meter.spend.usd) == (3, Decimal(3))


def test_the_tables_of_genai_prices_know_the_day() -> None:
    pytest.importorskip("genai_prices", reason="the extra `prices` is not installed")
    clock = FakeClock()
    cost = Cost(clock=clock)
    told = Response(id="r", output=(), model="gpt-5-mini")
    from perdure.loop import Items, ModelRequest
    from perdure.wire import Request

    request = ModelRequest(settings=Request(model="nobody-knows"), input=Items.of([]))
    price = cost._price(told, request, usage(1_000_000, 100_000, cached=400_000))
    assert price is not None
    assert price.usd > 0
    assert price.date == "2023-11-14"
    assert price.source.startswith("genai-prices ")


WHEN = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("", "gpt-5-mini-2025-08-07"),
        ("", "claude-sonnet-4-5"),
        ("", "openai/gpt-5-mini"),
        ("", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("groq", "llama-3.3-70b-versatile"),
    ],
)
def test_models_are_found_by_the_names_that_providers_have_for_them(
    provider: str, model: str
) -> None:
    pytest.importorskip("genai_prices", reason="the extra `prices` is not installed")
    price = KnownPrices(provider)(model, usage(1000, 10), WHEN)
    assert price is not None
    assert price.usd > 0


def test_a_model_that_genai_prices_does_not_know_has_no_price() -> None:
    pytest.importorskip("genai_prices", reason="the extra `prices` is not installed")
    assert KnownPrices()("nobody-knows-this", usage(1, 1), WHEN) is None


def test_what_the_provider_says_it_costs_stands_over_the_tables() -> None:
    told = with_unknown(usage(1000, 10), {"cost": 0.00123})
    price = KnownPrices()("anything", told, WHEN)
    assert price == Price(usd=Decimal("0.00123"), date="2026-11-30", source="told by the provider")


def test_prices_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="prices"):
        Cost(prices=3)  # type: ignore[arg-type]
