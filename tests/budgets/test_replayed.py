"""A run that is driven again from its record stops at the same point of the same budget."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from perdure import Agent, Budget, Hedge, Retry, RunFailed, RunResult, Runs, replay_model, tool
from perdure.log import Session
from perdure.log.entries import SpendEntry
from perdure.stores.memory import MemoryStore
from perdure.testing import call
from perdure.testing.scripted import TurnLike
from tests.budgets.counting import Counting, Fate, in_turn
from tests.durable.world import RUN, cut_after

FATES = st.sampled_from(["ok", "ok", "refused", "lost", "cut", "silent", "absurd"])


@tool(effect="idempotent")
async def look(n: int) -> str:
    """Look something up."""
    return f"seen {n}"


SCRIPT: list[TurnLike] = [*(call("look", {"n": n}) for n in range(8)), "All done."]


def looking(store: MemoryStore, budget: Budget, fates: Sequence[Fate] = ()) -> Agent:
    return Agent(
        Counting(SCRIPT, in_turn(*fates)),
        model_name="m",
        tools=[look],
        store=store,
        budget=budget,
        retry=Retry(max_attempts=3, backoff=lambda _attempt, _error: 0.0),
    )


async def driven(agent: Agent, times: int = 20) -> RunResult[str] | None:
    """Drive a run until it rests; None if every drive of it failed."""
    for _ in range(times):
        with contextlib.suppress(RunFailed):
            return await agent.run("Go.", run_id=RUN)
    return None


async def again(record: Session, budget: Budget) -> RunResult[str]:
    store = MemoryStore()
    agent = looking(store, budget).with_(model=replay_model(record))
    result = await driven(agent)
    assert result is not None
    return result


@given(
    fates=st.lists(FATES, max_size=10),
    tokens=st.integers(2_000, 30_000),
)
def test_a_replay_stops_where_the_run_stopped(fates: list[Fate], tokens: int) -> None:
    asyncio.run(_check(fates, Budget(tokens=tokens)))


async def _check(fates: list[Fate], budget: Budget) -> None:
    store = MemoryStore()
    first = await driven(looking(store, budget, fates))
    assert first is not None
    second = await again(await Runs(store).record(RUN), budget)
    assert (second.status, second.cause, second.turns) == (first.status, first.cause, first.turns)
    assert second.items == first.items
    assert second.spend.tokens == first.spend.tokens


@pytest.mark.parametrize("tokens", [4_500, 6_500, 9_000])
async def test_what_a_process_took_that_died_is_spent_again(tokens: int) -> None:
    whole = MemoryStore()
    await driven(looking(whole, Budget(tokens=1_000_000)))
    entries = (await Runs(whole).record(RUN)).entries
    reserved = [n for n, e in enumerate(entries) if isinstance(e, SpendEntry)]
    found = await cut_after(whole, reserved[2] + 1)  # it died while the third was on its way
    budget = Budget(tokens=tokens)
    first = await driven(looking(found, budget))
    assert first is not None
    second = await again(await Runs(found).record(RUN), budget)
    assert (second.status, second.turns) == (first.status, first.turns)
    assert second.spend.tokens == first.spend.tokens


async def test_what_a_hedge_gave_up_is_spent_again() -> None:
    store, budget = MemoryStore(), Budget(tokens=1_000_000)
    agent = looking(store, budget).with_(middleware=[Hedge(0.0)])
    first = await driven(agent)
    assert first is not None
    assert first.spend.requests == 18
    second = await again(await Runs(store).record(RUN), budget)
    assert second.spend.tokens == first.spend.tokens
    assert second.spend.discarded == first.spend.discarded
    assert second.spend.requests == first.spend.requests
    assert second.spend.responses == first.spend.responses
