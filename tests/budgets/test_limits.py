"""Limits of tokens, money, turns and time: over sub-agents, over restarts, in memory and chats."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from decimal import Decimal

import pytest

from perdure import (
    Agent,
    Budget,
    ConfigError,
    Hedge,
    Middleware,
    ModelRequest,
    Rates,
    Runs,
    Settings,
    ToolDecision,
    events_of,
    invoke,
    recover,
    tool,
)
from perdure.errors import BudgetExceeded
from perdure.log import Store
from perdure.loop import Limits, Retry, RunEnd, ToolCallInfo
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, call, turn
from perdure.testing.scripted import TurnLike
from perdure.wire import FunctionCallOutput, StreamEvent
from tests.budgets.counting import INPUT, OUTPUT, Counting, Fate, in_turn

A_TURN = INPUT + OUTPUT
SHORT = Settings(max_tokens=OUTPUT)
RATES = Rates(input="1000", output="1000")  # a thousandth of a dollar a token
ANSWER = "All done."


@tool(effect="none")
async def look(n: int) -> str:
    """Look something up."""
    return f"seen {n}"


def looks(times: int) -> list[TurnLike]:
    return [*(call("look", {"n": n}) for n in range(times)), ANSWER]


def looking(model: Counting, store: Store | str = "", budget: Budget | None = None) -> Agent:
    return Agent(model, tools=[look], store=store, settings=SHORT, budget=budget)


async def test_a_run_stops_before_the_request_that_could_cross_its_limit() -> None:
    model = Counting(looks(50))
    agent = looking(model, budget=Budget(tokens=10 * A_TURN))
    result = await agent.run("Look.")
    assert (result.status, result.cause) == ("stopped", "budget")
    assert result.spend.tokens.total == model.told <= 10 * A_TURN
    assert result.pending == ()
    assert result.items[-1].type == "function_call_output"  # the batch of the last turn ran


async def test_an_answer_that_crosses_the_limit_is_kept() -> None:
    model = Counting([ANSWER], usage=(100_000, 7))
    agent = looking(model, budget=Budget(tokens=5_000))
    result = await agent.run("Look.")
    assert (result.status, result.text) == ("done", ANSWER)
    assert result.spend.tokens.total == 100_007


@pytest.mark.parametrize("answered", [1, 2, 3])
async def test_raising_the_limit_lets_a_run_go_on(answered: int) -> None:
    store, model = MemoryStore(), Counting(looks(6), usage=(10_000, 0))
    low = looking(model, store, Budget(tokens=10_000 * answered))
    first = await low.run("Look.", run_id="r")
    assert (first.status, first.cause, model.requests) == ("stopped", "budget", answered)
    entries = len((await Runs(store).record("r")).entries)
    again = await low.run("Look.", run_id="r")
    assert (again.status, again.cause, model.requests) == ("stopped", "budget", answered)
    assert len((await Runs(store).record("r")).entries) == entries  # nothing to do writes nothing
    last = await looking(model, store, Budget(tokens=100_000)).run("Look.", run_id="r")
    assert (last.status, last.text, model.requests) == ("done", ANSWER, 7)
    assert last.spend.tokens.total == model.told


async def test_a_retry_lets_a_run_spend_its_budget_once_more() -> None:
    store, model = MemoryStore(), Counting(looks(6), usage=(10_000, 0))
    agent = looking(model, store, Budget(tokens=40_000))
    assert (await agent.run("Look.", run_id="r")).cause == "budget"
    await Runs(store).retry("r", by="ann")
    result = await agent.run("Look.", run_id="r")
    assert (result.status, result.spend.tokens.total) == ("done", 70_000)


async def test_a_run_has_a_budget_of_its_own() -> None:
    store, model = MemoryStore(), Counting(looks(6), usage=(10_000, 0))
    agent = looking(model, store, Budget(tokens=1_000_000))
    low = await agent.run("Look.", run_id="r", budget=Budget(tokens=20_000))
    assert (low.status, low.cause) == ("stopped", "budget")
    assert (await agent.run("Look.")).status == "done"
    async with agent.stream("Look.", budget=Budget(tokens=20_000)) as stream:
        assert (await stream.result()).cause == "budget"


async def test_the_budget_of_a_run_holds_for_whoever_goes_on_with_it() -> None:
    store, model = MemoryStore(), Counting(looks(6), usage=(10_000, 0))
    agent = looking(model, store, Budget(tokens=1_000_000))
    given = Budget(tokens=20_000, turns=40)
    assert (await agent.run("Look.", run_id="r", budget=given)).cause == "budget"
    assert (await agent.run("Look.", run_id="r")).cause == "budget"  # it is on record
    await Runs(store).retry("r")
    (recovered,) = await recover(agent)
    assert (recovered.status, model.requests) == ("stopped", 4)
    result = await agent.run("Look.", run_id="r", budget=Budget(tokens=60_000))
    assert (result.status, model.requests) == ("done", 7)


async def test_money_is_limited_exactly() -> None:
    model = Counting(looks(50))
    agent = looking(model, budget=Budget(cost="1.5", prices=RATES))
    result = await agent.run("Look.")
    assert (result.status, result.cause) == ("stopped", "budget")
    assert result.spend.usd == Decimal("0.001") * model.told <= Decimal("1.5")
    assert result.spend.unpriced == 0


async def test_a_model_without_a_price_is_refused_before_anything_is_sent() -> None:
    model = Counting(looks(1))
    store = MemoryStore()
    agent = looking(model, store, Budget(cost="1", prices={"other": RATES}))
    with pytest.raises(ConfigError, match="nobody knows what"):
        await agent.run("Look.")
    assert model.requests == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens": 0},
        {"tokens": 1.5},
        {"tokens": True},
        {"cost": 0.5},
        {"cost": "free"},
        {"cost": "-1"},
        {"cost": "NaN"},
        {"turns": 0},
        {"seconds": -1},
        {"output": 0},
        {"prices": 3},
    ],
)
def test_what_is_no_budget_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Budget(**wrong)  # type: ignore[arg-type]


def test_a_limit_is_given_once() -> None:
    with pytest.raises(ConfigError, match="not both"):
        Agent(Counting([]), max_turns=3, budget=Budget(turns=3))
    with pytest.raises(ConfigError, match="not both"):
        Agent(Counting([]), max_seconds=3, budget=Budget(seconds=3))
    agent = Agent(Counting([]), max_turns=3, budget=Budget(tokens=9))
    assert agent.limits == Limits(turns=3, tokens=9)


async def test_turns_of_a_budget_are_those_of_the_agent() -> None:
    agent = looking(Counting(looks(9)), MemoryStore(), Budget(turns=4))
    result = await agent.run("Look.", run_id="r")
    assert (result.status, result.cause, result.turns) == ("stopped", "max_turns", 4)
    result = await agent.run("Look.", run_id="r", budget=Budget(turns=20))
    assert (result.status, result.turns) == ("done", 10)


async def test_every_send_of_a_chat_is_a_run_of_its_own() -> None:
    for store in ("", MemoryStore()):
        model = Counting(lambda n: call("look", {"n": n}) if n % 4 else ANSWER)
        agent = looking(model, store, Budget(tokens=2_000))
        async with agent.session() as chat:
            assert (await chat.send("Look.")).text == ANSWER
            one = await chat.send("Again.")
            two = await chat.send("And again.")
        assert one.spend.tokens.total + two.spend.tokens.total + A_TURN == model.told


# --- sub-agents -------------------------------------------------------------------------------


def team(kids: Counting, store: Store | str, budget: Budget | None, kids_at_once: int = 1) -> Agent:
    """An agent whose model asks for several sub-agents at once."""
    kid = Agent(kids, name="kid", description="Looks.", tools=[look], settings=SHORT)
    asks = turn(*(call("kid", {"task": f"task {n}"}) for n in range(kids_at_once)))
    lead = Counting([asks, ANSWER])
    return Agent(lead, tools=[kid.as_tool()], store=store, settings=SHORT, budget=budget)


async def test_a_budget_covers_the_agents_below_and_stops_the_run_with_them() -> None:
    store, kids = MemoryStore(), Counting(looks(6), usage=(10_000, 0))
    low = team(kids, store, Budget(tokens=30_000))
    first = await low.run("Go.", run_id="r")
    assert (first.status, first.cause) == ("stopped", "budget")
    assert [one.call.name for one in first.pending] == ["kid"]
    state = await Runs(store).get("r")
    assert (state.status, state.cause) == ("stopped", "budget")
    again = await low.run("Go.", run_id="r")
    assert (again.status, kids.requests) == ("stopped", 3)
    last = await low.run("Go.", run_id="r", budget=Budget(tokens=1_000_000))
    assert (last.status, last.text, kids.requests) == ("done", ANSWER, 7)
    assert last.spend.tokens.total == kids.told + 2 * A_TURN
    assert (await Runs(store).get("r")).spend == last.spend


async def test_a_retry_lets_the_agents_below_go_on() -> None:
    store, kids = MemoryStore(), Counting(looks(6), usage=(10_000, 0))
    agent = team(kids, store, Budget(tokens=50_000))
    assert (await agent.run("Go.", run_id="r")).cause == "budget"
    await Runs(store).retry("r")
    result = await agent.run("Go.", run_id="r")
    assert (result.status, kids.requests) == ("done", 7)


async def test_three_levels_share_the_budget_of_the_first() -> None:
    store, kids = MemoryStore(), Counting(looks(6), usage=(10_000, 0))
    kid = Agent(kids, name="kid", description="Looks.", tools=[look], settings=SHORT)
    mid = Agent(
        Counting([call("kid", {"task": "look"}), "mid"]),
        name="mid",
        description="Asks.",
        tools=[kid.as_tool()],
        settings=SHORT,
    )
    top = Agent(
        Counting([call("mid", {"task": "ask"}), ANSWER]),
        tools=[mid.as_tool()],
        store=store,
        settings=SHORT,
    )
    first = await top.run("Go.", run_id="r", budget=Budget(tokens=30_000))
    assert (first.status, first.cause) == ("stopped", "budget")
    assert [one.call.name for one in first.pending] == ["mid", "kid"]
    assert (await top.run("Go.", run_id="r", budget=Budget(tokens=30_000))).status == "stopped"
    last = await top.run("Go.", run_id="r", budget=Budget(tokens=1_000_000))
    assert (last.status, last.text, last.spend.requests) == ("done", ANSWER, 11)
    assert last.spend.tokens.total == kids.told + 4 * A_TURN


async def test_a_sub_agent_with_a_budget_of_its_own_tells_its_caller() -> None:
    store, kids = MemoryStore(), Counting(looks(6), usage=(10_000, 0))
    kid = Agent(
        kids,
        name="kid",
        description="Looks.",
        tools=[look],
        settings=SHORT,
        budget=Budget(tokens=25_000),
    )
    agent = Agent(
        Counting([call("kid", {"task": "look"}), ANSWER]), tools=[kid.as_tool()], store=store
    )
    result = await agent.run("Go.", run_id="r")
    assert (result.status, kids.requests) == ("done", 3)
    outputs = [item for item in result.items if isinstance(item, FunctionCallOutput)]
    assert [item.text for item in outputs] == ["Error: agent 'kid' gave no answer: budget"]


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("each", [60, 700])
@pytest.mark.parametrize(
    "budget", [Budget(tokens=6_000), Budget(cost="6", prices=RATES)], ids=["tokens", "money"]
)
async def test_agents_at_once_do_not_overshoot_together(
    budget: Budget, each: int, *, recorded: bool
) -> None:
    """What each takes beyond its reservation is all that may be too much, and only in flight."""
    store = MemoryStore() if recorded else ""
    kids = Counting(lambda n: call("look", {"n": n}), usage=(each, OUTPUT))
    agent = team(kids, store, budget, kids_at_once=8)
    result = await agent.run("Go.", run_id="r" if recorded else None)
    assert (result.status, result.cause) == ("stopped", "budget")
    assert kids.most > 1
    more = 0 if each == 60 else kids.most * each
    assert result.spend.tokens.total == kids.told + A_TURN <= 6_000 + more
    if budget.cost is not None:
        assert result.spend.usd == Decimal(kids.told + A_TURN) / 1_000


async def test_a_call_in_flight_is_waited_for_not_refused() -> None:
    """Room for one request at a time: two agents take turns, and neither is stopped."""
    kids = Counting(looks(2), usage=(150, 10))
    agent = team(kids, MemoryStore(), None, kids_at_once=2)
    # Each request reserves about 200 tokens; what all six of them take is 960.
    result = await agent.run("Go.", run_id="r", budget=Budget(tokens=1_600))
    assert (result.status, result.text) == ("done", ANSWER)


async def test_the_time_of_a_run_stops_the_agents_below_it() -> None:
    clock, store = FakeClock(), MemoryStore()

    @tool(effect="none")
    async def linger(n: int) -> str:
        """Take a while."""
        del n
        await clock.advance(40.0)
        return "done"

    kids = Counting([*(call("linger", {"n": n}) for n in range(5)), ANSWER])
    kid = Agent(kids, name="kid", description="Lingers.", tools=[linger], clock=clock)
    agent = Agent(
        Counting([call("kid", {"task": "linger"}), ANSWER]),
        tools=[kid.as_tool()],
        store=store,
        clock=clock,
    )
    first = await agent.run("Go.", run_id="r", budget=Budget(seconds=100.0))
    assert (first.status, first.cause, kids.requests) == ("stopped", "budget", 3)
    assert (await agent.run("Go.", run_id="r", budget=Budget(seconds=100.0))).status == "stopped"
    last = await agent.run("Go.", run_id="r", budget=Budget(seconds=1_000.0))
    assert (last.status, last.text, kids.requests) == ("done", ANSWER, 6)


async def test_what_a_run_waits_for_a_person_is_not_on_its_clock() -> None:
    clock, store = FakeClock(), MemoryStore()

    class Holds(Middleware):
        async def before_tool_call(self, call: ToolCallInfo) -> ToolDecision | None:
            del call
            return ToolDecision(action="hold", reason="look")

    agent = Agent(
        Counting(looks(1)),
        tools=[look],
        store=store,
        clock=clock,
        middleware=[Holds()],
        budget=Budget(seconds=1_800.0),
    )
    held = await agent.run("Look.", run_id="r")
    assert held.status == "input_required"
    await clock.advance(2_400.0)
    (pending,) = held.pending
    await Runs(store, clock=clock).approve("r", pending.call.call_id, by="ann")
    assert (await agent.run("Look.", run_id="r")).status == "done"


# --- retries, hedges, what is told ------------------------------------------------------------


async def test_what_retries_took_counts_against_the_limit() -> None:
    lost: list[Fate] = ["lost"] * 20
    model = Counting(looks(3), in_turn("silent", *lost))
    retry = Retry(max_attempts=20, backoff=lambda _attempt, _error: 0.0)
    agent = looking(model, budget=Budget(tokens=1_200)).with_(retry=retry)
    result = await agent.run("Look.")
    assert (result.status, result.cause) == ("stopped", "budget")
    assert model.requests < 12
    assert result.spend.uncounted == model.untold
    assert result.spend.estimated.total == result.spend.tokens.total <= 1_200


async def test_the_end_says_what_is_used_up() -> None:
    ends: list[RunEnd] = []

    class Hears(Middleware):
        async def on_end(self, end: RunEnd) -> None:
            ends.append(end)

    agent = looking(Counting(looks(9), usage=(10_000, 0)), budget=Budget(tokens=20_000))
    await agent.with_(middleware=[Hears()]).run("Look.")
    (end,) = ends
    error = end.error
    assert isinstance(error, BudgetExceeded)
    assert (error.what, error.limit, error.spent, error.above) == ("tokens", 20_000, 20_000, 0)
    assert error.needed > 20_000
    assert "Budget(tokens=...)" in str(error)


async def test_an_abort_while_a_request_waits_for_room_ends_the_drive() -> None:
    """The second agent waits for what the first has reserved, and is told to stop."""
    entered = asyncio.Event()

    class Slow(Counting):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
            entered.set()
            await asyncio.sleep(3600)
            async for event in super().stream(request):
                yield event

    agent = team(Slow(looks(1)), "", Budget(tokens=800), kids_at_once=2)
    run = asyncio.get_running_loop().create_task(agent.run("Go."))
    await entered.wait()
    await asyncio.sleep(0.01)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_a_backup_that_has_no_room_is_not_sent() -> None:
    slow = Counting(["It is done."])
    agent = looking(slow, budget=Budget(tokens=190)).with_(middleware=[Hedge(0.0)])
    result = await agent.run("Look.")
    assert (result.status, result.spend.requests, slow.requests) == ("done", 1, 1)


async def test_a_saga_that_a_budget_stopped_is_not_rolled_back() -> None:
    store, kids = MemoryStore(), Counting(looks(6), usage=(10_000, 0))
    agent = team(kids, store, None)
    low = await agent.run("Go.", run_id="r", saga=True, budget=Budget(tokens=30_000))
    assert (low.status, low.cause) == ("stopped", "budget")
    last = await agent.run("Go.", run_id="r", saga=True, budget=Budget(tokens=100_000))
    assert (last.status, last.text) == ("done", ANSWER)


async def test_an_agent_that_a_tool_calls_spends_from_the_budget_too() -> None:
    store, kids = MemoryStore(), Counting(looks(3), usage=(1_000, 0))

    @tool(effect="idempotent")
    async def ask() -> str:
        """Ask somebody."""
        return str((await invoke("kid", {"task": "look"})).output)

    kid = Agent(kids, name="kid", description="Looks.", tools=[look], settings=SHORT)
    lead = Counting([call("ask"), ANSWER])
    agent = Agent(lead, tools=[ask, kid.as_tool()], store=store, settings=SHORT)
    result = await agent.run("Go.", run_id="r")
    assert result.spend == (await Runs(store).get("r")).spend
    assert result.spend.tokens.total == kids.told + lead.told == 4_220
    low = await agent.run("Go.", run_id="s", budget=Budget(tokens=2_000))
    assert (low.status, low.cause) == ("stopped", "budget")


async def test_runs_are_listed_with_what_they_spent() -> None:
    store = MemoryStore()
    await looking(Counting(looks(1)), store).run("Look.", run_id="a")
    await looking(Counting(looks(2)), store).run("Look.", run_id="b")
    listed = await Runs(store).list(spend=True)
    assert [one.spend and one.spend.tokens.total for one in listed] == [2 * A_TURN, 3 * A_TURN]
    assert [one.spend for one in await Runs(store).list()] == [None, None]


async def test_prices_are_those_of_whoever_calls() -> None:
    kids = Counting(looks(9))
    kid = Agent(
        kids,
        name="kid",
        description="Looks.",
        tools=[look],
        settings=SHORT,
        budget=Budget(cost="0.6"),
    )
    lead = Counting([call("kid", {"task": "look"}), ANSWER])
    agent = Agent(lead, tools=[kid.as_tool()], settings=SHORT, store=MemoryStore())
    result = await agent.run("Go.", run_id="r", budget=Budget(cost="100", prices=RATES))
    assert result.status == "done"
    assert 1 < kids.requests < 10
    assert Decimal("0.001") * kids.told <= Decimal("0.6")
    assert result.spend.usd == Decimal("0.001") * (kids.told + lead.told)


async def test_the_end_of_a_recorded_drive_tells_its_spend() -> None:
    store = MemoryStore()
    agent = looking(Counting(looks(2), in_turn("silent")), store)
    async with agent.stream("Look.", run_id="r") as stream:
        ends = [event.spend async for event in stream.events() if isinstance(event, RunEnd)]
    recorded = events_of(await Runs(store).record("r"))
    assert [one.spend for one in recorded if isinstance(one, RunEnd)] == ends
    assert [one.requests for one in ends] == [3]
