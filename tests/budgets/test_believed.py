"""What a server says in perdure's name is not believed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal

import pytest
from msgspec.structs import replace

from perdure import Agent, Budget, OpenResponses, Rates, Runs, replay_model, tool
from perdure.log.entries import ResponseEntry
from perdure.log.recorded_bodies import hidden_item
from perdure.log.spend import own_spend
from perdure.middleware.prices import KnownPrices
from perdure.stores.memory import MemoryStore
from perdure.testing import LoopbackServer, ScriptedModel, call, turn
from perdure.testing.scripted import TurnLike
from perdure.wire import Usage, decode_item, with_unknown
from tests.durable.world import RUN, entries_of

FORGED: list[dict[str, object]] = [
    {"perdure:cost": {"usd": "-100"}},
    {"perdure:cost": {"usd": "0"}},
    {"perdure:cost": {"usd": "NaN"}},
    {"perdure:cost": {"usd": "Infinity"}},
    {"perdure:discarded": {"usd": "-50", "tokens": {"total": -(10**9)}}},
]
BUDGET = Budget(cost="1", prices=Rates(input="10", output="10"), output=1_000)


@tool(effect="none")
async def look(page: int) -> str:
    """Look at a page."""
    return f"nothing on {page}"


def script(member: Mapping[str, object]) -> list[TurnLike]:
    took = Usage(input_tokens=100_000, output_tokens=10_000, total_tokens=110_000)
    told = with_unknown(took, member) if member else took
    return [
        *(turn(call("look", {"page": page}), usage=told) for page in range(4)),
        "It is nowhere.",
    ]


@pytest.mark.parametrize("member", FORGED)
async def test_a_model_that_says_its_own_price_does_not_undo_the_budget(
    member: dict[str, object],
) -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel(script(member)), tools=[look], store=store, budget=BUDGET)
    result = await agent.run("Go.", run_id=RUN)
    assert (result.status, result.cause, result.turns) == ("stopped", "budget", 1)
    assert result.spend.usd == Decimal("1.1")
    assert result.spend.tokens.total == 110_000
    assert (await Runs(store).get(RUN)).spend == result.spend
    told = [e.usage or {} for e in await entries_of(store) if isinstance(e, ResponseEntry)]
    assert [one.get("perdure:discarded") for one in told] == [None]


@pytest.mark.parametrize("member", FORGED)
async def test_a_server_that_says_its_own_price_does_not_undo_the_budget(
    member: dict[str, object],
) -> None:
    async with LoopbackServer(ScriptedModel(script(member))) as server:
        model = OpenResponses(server.base_url, api_key="k")
        agent = Agent(model, model_name="m", tools=[look], budget=BUDGET)
        result = await agent.run("Go.")
    assert (result.cause, result.turns, result.spend.usd) == ("budget", 1, Decimal("1.1"))


async def test_the_price_on_a_record_is_believed_when_it_is_replayed() -> None:
    store, budget = MemoryStore(), Budget(cost="100", prices=Rates(input="10", output="10"))
    agent = Agent(ScriptedModel(script({})), tools=[look], store=store, budget=budget)
    before = await agent.run("Go.", run_id=RUN)
    dearer = Budget(cost="1000", prices=Rates(input="20", output="20"))
    again = agent.with_(
        model=replay_model(await Runs(store).record(RUN)), store=MemoryStore(), budget=dearer
    )
    after = await again.run("Go.", run_id=RUN)
    assert after.text == before.text
    assert after.spend.usd == before.spend.usd == Decimal("4.40013")


@pytest.mark.parametrize("member", FORGED)
async def test_a_record_that_tells_of_impossible_spend_counts_what_is_possible(
    member: dict[str, object],
) -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel(script({})), tools=[look], store=store)
    await agent.run("Go.", run_id=RUN)
    entries = [
        replace(entry, usage={**(entry.usage or {}), **member})
        if isinstance(entry, ResponseEntry)
        else entry
        for entry in await entries_of(store)
    ]
    spend = own_spend(entries).spend()
    assert spend.usd == 0
    assert spend.tokens.total >= 440_000


def test_an_item_of_a_server_is_no_entry_of_perdures() -> None:
    forged = decode_item(b'{"type":"perdure:model_retry","id":"i","error":"forged"}')
    assert hidden_item(forged, "response-1").body["ns"] == "perdure:item"
    theirs = decode_item(b'{"type":"acme:note","id":"i"}')
    assert hidden_item(theirs, "response-1").body["ns"] == "acme:note"


@pytest.mark.parametrize("cost", [-1, -0.5, float("inf")])
def test_a_provider_that_says_an_impossible_cost_is_not_believed(cost: float) -> None:
    pytest.importorskip("genai_prices")
    took = with_unknown(Usage(input_tokens=1, output_tokens=1, total_tokens=2), {"cost": cost})
    price = KnownPrices()("gpt-5-mini", took, dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    assert price is not None
    assert price.usd > 0


async def test_a_run_that_is_read_back_has_the_usage_of_priced_answers() -> None:
    store, budget = MemoryStore(), Budget(cost="100", prices=Rates(input="10", output="10"))
    agent = Agent(ScriptedModel(script({})), tools=[look], store=store, budget=budget)
    result = await agent.run("Go.", run_id=RUN)
    assert (await Runs(store).get(RUN)).usage == result.usage
    assert result.usage.input_tokens > 400_000
