"""Prices: what is none is refused, what is unknown below too, and a run keeps its own."""

from __future__ import annotations

import asyncio
import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from typing import cast

import pytest

from perdure import Agent, Budget, ConfigError, Rates, RunFailed, Runs, recover, tool
from perdure.log.entries import RunEntry
from perdure.middleware import Price
from perdure.middleware.prices import Prices
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call, turn
from perdure.wire import Usage
from tests.durable.world import RUN, entries_of

TOOK = Usage(input_tokens=100_000, output_tokens=0, total_tokens=100_000)
WRONG = ["-1", "NaN", "Infinity", "x", "", "1_0", " 1", "1e9", 1.5, True, None, math.inf]
DOLLAR = Rates(input="1", output="1")


@pytest.mark.parametrize("wrong", WRONG)
def test_a_rate_that_is_no_amount_is_refused_at_its_definition(wrong: object) -> None:
    rate = cast("str", wrong)
    with pytest.raises(ConfigError):
        Rates(input=rate, output="1")
    with pytest.raises(ConfigError):
        Rates(input="1", output=rate)
    if wrong is not None:
        with pytest.raises(ConfigError):
            Rates(input="1", output="1", cached=rate)
        with pytest.raises(ConfigError):
            Budget(cost=rate)


@pytest.mark.parametrize("wrong", [Decimal("NaN"), Decimal(-1), Decimal("1E+50"), Decimal("1E-99")])
def test_a_decimal_that_is_no_amount_is_refused_at_its_definition(wrong: Decimal) -> None:
    with pytest.raises(ConfigError):
        Rates(input=wrong, output="1")
    with pytest.raises(ConfigError):
        Budget(cost=wrong)


def test_prices_by_model_that_are_no_rates_are_refused_at_their_definition() -> None:
    with pytest.raises(ConfigError, match="Rates"):
        Budget(cost="1", prices={"m": cast("Rates", "1")})


def _raises(model: str, usage: Usage, when: dt.datetime) -> Price | None:
    raise KeyError(model)


def _of(price: object) -> Prices:
    return lambda _model, _usage, _when: cast("Price", price)


@pytest.mark.parametrize(
    "prices",
    [_raises, _of("5"), _of(5), _of(Price(usd=Decimal(-5))), _of(Price(usd=Decimal("NaN")))],
)
async def test_a_prices_function_that_fails_says_so_before_anything_is_sent(prices: Prices) -> None:
    model = ScriptedModel(["Done."])
    agent = Agent(model, store=MemoryStore(), budget=Budget(cost="5", prices=prices))
    with pytest.raises(ConfigError, match="prices function"):
        await agent.run("Go.", run_id=RUN)
    assert not model.requests


async def test_a_prices_function_that_fails_on_an_answer_leaves_what_was_reserved() -> None:
    def prices(model: str, usage: Usage, when: dt.datetime) -> Price | None:
        if usage.input_tokens == TOOK.input_tokens:
            raise ZeroDivisionError
        return Price(usd=Decimal(1))

    store = MemoryStore()
    budget = Budget(cost="5", prices=prices)
    agent = Agent(ScriptedModel([turn("Done.", usage=TOOK)]), store=store, budget=budget)
    with pytest.raises((RunFailed, ConfigError), match="prices function"):
        await agent.run("Go.", run_id=RUN)
    assert (await Runs(store).get(RUN)).spend.usd == 1


async def test_a_sub_agent_whose_price_nobody_knows_is_refused_before_anything_is_sent() -> None:
    reader = ScriptedModel(["Read."])
    sub = Agent(reader, name="sub", description="Reads.", model_name="other")
    model = ScriptedModel([call("sub", {"task": "t"}), "Done."])
    agent = Agent(
        model,
        model_name="a",
        tools=[sub.as_tool()],
        store=MemoryStore(),
        budget=Budget(cost="1", prices={"a": DOLLAR}),
    )
    with pytest.raises(ConfigError, match="'other'"):
        await agent.run("Go.", run_id=RUN)
    assert not model.requests
    assert not reader.requests


def _cut_once() -> tuple[asyncio.Event, Callable[[], object]]:
    began = asyncio.Event()

    async def hang() -> str:
        """Wait, the first time."""
        if not began.is_set():
            began.set()
            await asyncio.sleep(1_000)
        return "waited"

    return began, tool(effect="idempotent")(hang)


@pytest.mark.parametrize("prices", [DOLLAR, {"a": DOLLAR, "b": Rates(input="2", output="3")}])
async def test_a_run_with_prices_of_its_own_is_recovered_with_them(
    prices: Rates | dict[str, Rates],
) -> None:
    store, (began, hang) = MemoryStore(), _cut_once()
    model = ScriptedModel([turn(call("hang"), usage=TOOK), turn("Done.", usage=TOOK)])
    agent = Agent(model, model_name="a", name="n", tools=[hang], store=store, grace=0)
    budget = Budget(cost="5", prices=prices, output=7)
    running = asyncio.ensure_future(agent.run("Go.", run_id=RUN, budget=budget))
    await began.wait()
    running.cancel()
    await asyncio.wait([running])
    await recover(agent)
    state = await Runs(store).get(RUN)
    assert (state.status, state.spend.usd) == ("done", Decimal("0.2"))
    starts = [e for e in await entries_of(store) if isinstance(e, RunEntry) and e.budget]
    assert len(starts) == 2
    assert starts[0].budget == starts[1].budget


async def test_a_run_with_a_prices_function_of_its_own_is_recovered_with_its_agents() -> None:
    store, (began, hang) = MemoryStore(), _cut_once()
    model = ScriptedModel([turn(call("hang"), usage=TOOK), turn("Done.", usage=TOOK)])
    agent = Agent(
        model,
        model_name="a",
        name="n",
        tools=[hang],
        store=store,
        grace=0,
        budget=Budget(prices=DOLLAR),
    )
    twice = _of(Price(usd=Decimal(2)))
    budget = Budget(cost="5", prices=twice)
    running = asyncio.ensure_future(agent.run("Go.", run_id=RUN, budget=budget))
    await began.wait()
    running.cancel()
    await asyncio.wait([running])
    await recover(agent)
    assert (await Runs(store).get(RUN)).spend.usd == Decimal("2.1")
