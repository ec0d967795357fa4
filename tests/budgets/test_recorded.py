"""Reservations on record: what they cost, and what a crash leaves of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from perdure import Agent, Budget, ModelRequest, Rates, Retry, RunFailed, Runs, tool
from perdure.log import AnyEntry, Fence, Store, Summary
from perdure.log.entries import ResponseEntry, SpendEntry
from perdure.log.store import Appended
from perdure.stores.memory import MemoryStore
from perdure.testing import call
from perdure.testing.scripted import TurnLike
from perdure.wire import StreamEvent
from tests.budgets.counting import INPUT, OUTPUT, Counting, in_turn
from tests.durable.world import RUN, cut_after, entries_of

A_TURN = INPUT + OUTPUT
ANSWER = "All done."


@tool(effect="idempotent")
async def look(n: int) -> str:
    """Look something up."""
    return f"seen {n}"


def looks(times: int) -> list[TurnLike]:
    return [*(call("look", {"n": n}) for n in range(times)), ANSWER]


def looking(model: Counting, store: Store, budget: Budget | None = None) -> Agent:
    return Agent(model, tools=[look], store=store, budget=budget)


class CountsAppends(MemoryStore):
    """A store that knows how often it was appended to."""

    def __init__(self) -> None:
        super().__init__()
        self.appends = 0

    async def append(
        self,
        session: str,
        version: int,
        fence: Fence,
        batch: Sequence[AnyEntry],
        *,
        consumed: Sequence[str] = (),
        summary: Summary | None = None,
    ) -> Appended:
        self.appends += 1
        return await super().append(
            session, version, fence, batch, consumed=consumed, summary=summary
        )


@pytest.mark.parametrize("turns", [5, 25])
async def test_a_turn_has_two_appends_its_reservation_included(turns: int) -> None:
    store = CountsAppends()
    await looking(Counting(lambda n: call("look", {"n": n}) if n < turns else ANSWER), store).run(
        "Go.", run_id=RUN
    )
    assert store.appends <= 2 * turns + 4


async def test_a_reservation_is_durable_before_its_request_is_sent() -> None:
    store = MemoryStore()
    seen: list[int] = []

    class Looks(Counting):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
            kept = await entries_of(store)
            reserved = [e for e in kept if isinstance(e, SpendEntry) and e.phase == "reserve"]
            answered = [e for e in kept if isinstance(e, ResponseEntry)]
            seen.append(len(reserved) - len(answered))
            async for event in super().stream(request):
                yield event

    await looking(Looks(looks(4)), store).run("Go.", run_id=RUN)
    assert seen == [1] * 5


async def test_a_reservation_is_small_and_says_nothing_of_a_user() -> None:
    store = MemoryStore()
    await looking(Counting(looks(3)), store).run("Go.", run_id=RUN)
    reserved = [e for e in await entries_of(store) if isinstance(e, SpendEntry)]
    assert len(reserved) == 4
    assert all(len(entry.line) < 400 and b"salt" not in entry.line for entry in reserved)


async def test_a_chat_without_a_limit_writes_no_reservation() -> None:
    for budget, reserves in ((None, 0), (Budget(turns=9), 0), (Budget(tokens=100_000), 2)):
        store = MemoryStore()
        async with looking(Counting(looks(1)), store, budget).session("chat") as chat:
            await chat.send("Go.")
        found = [e for e in await entries_of(store, "chat") if isinstance(e, SpendEntry)]
        assert len(found) == reserves


async def test_a_model_reservation_unsettled_counts_as_spent_and_estimated() -> None:
    """Whatever entry a process dies behind, nothing is lost and nothing counts twice."""
    store, first = MemoryStore(), Counting(looks(2), in_turn("ok", "silent", "lost"))
    with pytest.raises(RunFailed):
        await looking(first, store).with_(retry=Retry(max_attempts=1)).run("Go.", run_id=RUN)
    entries = await entries_of(store)
    unsettled = 0
    for keep in range(1, len(entries) + 1):
        found = await cut_after(store, keep)
        kept = entries[:keep]
        sent = [e for e in kept if isinstance(e, SpendEntry) and e.phase == "reserve"]
        told = [e for e in kept if isinstance(e, ResponseEntry) and not e.settled]
        settled = [e for e in kept if isinstance(e, SpendEntry) and e.phase == "settle"]
        estimated = len(sent) - len(told)
        before = (await Runs(found).get(RUN)).spend
        assert (before.requests, before.uncounted) == (len(sent), estimated)
        unsettled += len(sent) > len(told) + len(settled)
        second = Counting(looks(2))
        after = (await looking(second, found).run("Go.", run_id=RUN)).spend
        assert after.requests == len(sent) + second.requests
        assert after.uncounted == estimated
        assert after.estimated == before.estimated
        assert after.tokens.total - after.estimated.total == A_TURN * (len(told) + second.requests)
    assert unsettled > 2


async def test_an_unsettled_reservation_counts_against_the_limit() -> None:
    store, model = MemoryStore(), Counting(looks(3))
    agent = looking(model, store, Budget(tokens=10_000, output=6_000))
    await agent.run("Go.", run_id=RUN)
    entries = await entries_of(store)
    reserve = next(e for e in entries if isinstance(e, SpendEntry))
    found = await cut_after(store, entries.index(reserve) + 1)
    again = looking(Counting(looks(3)), found, Budget(tokens=10_000, output=6_000))
    result = await again.run("Go.", run_id=RUN)
    assert (result.status, result.cause) == ("stopped", "budget")
    assert result.spend.tokens == result.spend.estimated == reserve.tokens
    assert (await again.run("Go.", run_id=RUN, budget=Budget(tokens=20_000))).status == "done"


async def test_spend_of_two_drivers_stands_side_by_side() -> None:
    """The second takes over while the request of the first is on its way."""
    store, began = MemoryStore(), asyncio.Event()

    class Hangs(Counting):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
            async for event in super().stream(request):
                began.set()
                yield event
                await asyncio.sleep(3600)

    hanging = looking(Hangs(looks(1)), store).with_(lease=0.05, wind_down=0.1)
    first = asyncio.get_running_loop().create_task(hanging.run("Go.", run_id=RUN))
    await began.wait()
    found = await cut_after(store, len(await entries_of(store)))
    second = Counting(looks(1))
    result = await looking(second, found).run("Go.", run_id=RUN)
    assert (result.spend.requests, result.spend.uncounted) == (3, 1)
    assert result.spend.tokens.total - result.spend.estimated.total == second.told
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    state = await Runs(store).get(RUN)
    assert (state.spend.requests, state.spend.uncounted) == (1, 1)


async def test_money_with_the_price_of_the_day_stands_on_record() -> None:
    store = MemoryStore()
    prices = Rates(input="1", output="10", date="2026-11-30", source="ours")
    await looking(Counting(looks(1)), store, Budget(prices=prices)).run("Go.", run_id=RUN)
    responses = [e for e in await entries_of(store) if isinstance(e, ResponseEntry)]
    costs = [(e.usage or {}).get("perdure:cost") for e in responses]
    assert costs == [{"usd": "0.0002", "date": "2026-11-30", "source": "ours"}] * 2
