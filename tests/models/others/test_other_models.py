"""Asking other models: instead, after a failure, beside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from decimal import Decimal

import pytest

from perdure import Agent, Retry, RunFailed, tool
from perdure.clock import RandomIds, SystemClock
from perdure.errors import (
    AuthFailed,
    ConfigError,
    InvalidInput,
    MissingKey,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    Truncated,
    UnknownModel,
)
from perdure.log.entries import ResponseEntry
from perdure.loop import Middleware, ModelRequest, ModelRetry, NextModel, TurnStart
from perdure.middleware import Cost, RateLimit, Rates
from perdure.models.others.fallback import Fallback
from perdure.models.others.hedge import Hedge
from perdure.models.others.route import Route
from perdure.models.registry import Resolved
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call, error, fail, reasoning, turn
from perdure.wire import Emitter, Reasoning, StreamEvent, Usage
from tests.face.recorded import crashed, session_in

OVERLOADED = Overloaded("no room", status=503)
QUOTA = QuotaExhausted("no credit", status=429)


@tool(effect="none")
async def look(what: str) -> str:
    """Look something up."""
    return what


class Silent:
    """Opens an answer, or nothing at all, and then says nothing more until it is closed."""

    def __init__(self, *said: str, usage: Usage | None = None) -> None:
        self._said = said
        self._usage = usage
        self.asked = 0
        self.closed = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        self.asked += 1
        emitter = Emitter(request.settings, ids=RandomIds(), clock=SystemClock())
        try:
            for word in self._said:
                for event in emitter.text(word):
                    yield event
            await asyncio.Event().wait()
        finally:
            self.closed += 1


class Sends(Middleware):
    """Counts requests."""

    per_request = True

    def __init__(self) -> None:
        self.count = 0

    def wrap_model_call(
        self,
        request: ModelRequest,
        next: NextModel,  # noqa: A002
    ) -> AsyncIterator[StreamEvent]:
        self.count += 1
        return next(request)


def named(model: ScriptedModel, name: str) -> Resolved:
    return Resolved(model, name)


# --- fallback ------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [OVERLOADED, QUOTA, AuthFailed("no", status=401), Truncated()])
async def test_the_next_model_is_asked_where_one_fails(failure: Exception) -> None:
    first, second = ScriptedModel([failure]), ScriptedModel(["From the second."])
    agent = Agent(first, model_name="a", retry=Fallback(named(second, "b")))
    async with agent.stream("x") as stream:
        retries = [event async for event in stream.events() if isinstance(event, ModelRetry)]
        result = await stream.result()
    assert result.text == "From the second."
    assert [one.request.settings.model for one in retries] == ["b"]
    assert second.requests[0].settings.model == "b"


async def test_the_next_model_is_asked_at_once_however_long_the_first_wants_to_rest() -> None:
    tired = RateLimited("come back tomorrow", status=429, retry_after=86_400)
    agent = Agent(ScriptedModel([tired]), retry=Fallback(ScriptedModel(["Hello."])))
    assert (await agent.run("x")).text == "Hello."


async def test_every_model_is_asked_once_and_the_last_error_is_the_runs() -> None:
    models = [ScriptedModel([OVERLOADED]) for _ in range(3)]
    agent = Agent(models[0], retry=Fallback(named(models[1], "b"), models[2]))
    with pytest.raises(RunFailed, match="no room"):
        await agent.run("x")
    assert [len(model.requests) for model in models] == [1, 1, 1]


async def test_a_request_that_is_wrong_is_wrong_for_the_next_model_too() -> None:
    second = ScriptedModel(["never"])
    agent = Agent(
        ScriptedModel([InvalidInput("no such member", status=400)]), retry=Fallback(second)
    )
    with pytest.raises(RunFailed, match="no such member"):
        await agent.run("x")
    assert second.requests == []


async def test_an_answer_that_has_begun_is_not_replaced() -> None:
    second = ScriptedModel(["never"])
    first = ScriptedModel([turn("It is ", error(Truncated()))])
    with pytest.raises(RunFailed):
        await Agent(first, retry=Fallback(second)).run("x")
    assert second.requests == []


async def test_thoughts_of_the_first_model_are_not_sent_to_the_second() -> None:
    first = ScriptedModel([turn(reasoning("hm"), call("look", {"what": "x"})), OVERLOADED])
    second = ScriptedModel(["unused", "Done."])
    agent = Agent(first, model_name="a", tools=[look], retry=Fallback(named(second, "b")))
    assert (await agent.run("x")).text == "Done."
    assert not any(isinstance(item, Reasoning) for item in second.requests[0].input)


def test_what_names_nobody_is_refused_when_it_is_made() -> None:
    with pytest.raises(UnknownModel):
        Fallback("nobody:knows")
    with pytest.raises(UnknownModel):
        Hedge(1, "nobody:knows")
    with pytest.raises(ConfigError):
        Fallback()
    with pytest.raises(ConfigError):
        Fallback(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        Hedge(-1)


# --- route -----------------------------------------------------------------------------------


async def test_a_call_goes_to_the_model_that_is_chosen_for_it_and_the_record_says_so() -> None:
    large = ScriptedModel([call("look", {"what": "x"}), "unused"])
    small = ScriptedModel(["unused", "Small."])
    route = Route(lambda request: named(small, "small") if len(request.input) > 1 else None)
    agent = Agent(large, model_name="large", tools=[look], middleware=[route])
    async with agent.stream("x") as stream:
        starts = [event async for event in stream.events() if isinstance(event, TurnStart)]
        result = await stream.result()
    assert result.text == "Small."
    assert [one.request.settings.model for one in starts] == ["large", "small"]
    assert len(large.requests) == 1


async def test_a_routed_call_that_fails_is_sent_again_to_the_same_model() -> None:
    other = ScriptedModel([[], "unused"])
    agent = Agent(
        ScriptedModel([]),
        middleware=[Route(lambda request: named(other, "other"))],
        retry=Retry(max_attempts=3, backoff=lambda attempt, error: 0.0),
    )
    with pytest.raises(RunFailed):
        await agent.run("x")
    assert [one.settings.model for one in other.requests] == ["other"] * 3


# --- hedge -----------------------------------------------------------------------------------


async def test_nobody_else_is_asked_when_the_first_answers_in_time() -> None:
    backup = ScriptedModel(["From the backup."])
    agent = Agent(ScriptedModel(["In time."]), middleware=[Hedge(60, backup)])
    assert (await agent.run("x")).text == "In time."
    assert backup.requests == []


async def test_who_begins_to_answer_first_is_taken_and_the_other_is_closed() -> None:
    clock, slow, backup = FakeClock(), Silent(), ScriptedModel(["From the backup."])
    sends = Sends()
    agent = Agent(slow, middleware=[Hedge(2, backup, clock=clock), sends])
    running = asyncio.create_task(agent.run("x"))
    await clock.advance(1.9)
    assert backup.requests == []
    await clock.advance(0.2)
    assert (await running).text == "From the backup."
    assert (slow.asked, slow.closed, sends.count) == (1, 1, 2)


async def test_a_slow_answer_that_has_begun_wins_over_a_backup_that_has_not() -> None:
    clock, backup = FakeClock(), Silent()
    first = ScriptedModel(["one two three"], delay=1.0, clock=clock)
    running = asyncio.create_task(
        Agent(first, middleware=[Hedge(0.5, backup, clock=clock)]).run("x")
    )
    await clock.advance(60)
    assert (await running).text == "one two three"
    assert backup.closed == backup.asked == 1


async def test_a_backup_is_asked_at_once_where_the_first_fails() -> None:
    for failure in (OVERLOADED, fail("it broke"), QUOTA):
        backup = ScriptedModel(["From the backup."])
        agent = Agent(ScriptedModel([failure]), middleware=[Hedge(60, backup, clock=FakeClock())])
        assert (await agent.run("x")).text == "From the backup."


async def test_if_all_fail_the_error_is_one_that_a_retry_may_help() -> None:
    first = ScriptedModel([QUOTA])
    second = ScriptedModel([OVERLOADED])
    with pytest.raises(RunFailed) as failed:
        await Agent(first, middleware=[Hedge(60, second)], retry=Fallback(first)).run("x")
    cause = failed.value.cause
    assert isinstance(cause, Overloaded)
    assert "no credit" in "".join(cause.__notes__)


async def test_a_backup_without_a_key_is_told_before_anything_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    model = ScriptedModel(["never"])
    with pytest.raises(RunFailed) as failed:
        await Agent(model, middleware=[Hedge(1, "anthropic:claude-sonnet-4-5")]).run("x")
    assert isinstance(failed.value.cause, MissingKey)
    assert model.requests == []


async def test_without_a_delay_all_are_asked_at_once() -> None:
    models = [Silent() for _ in range(2)]
    winner = ScriptedModel(["First."])
    agent = Agent(models[0], middleware=[Hedge(0, models[1], winner)])
    assert (await agent.run("x")).text == "First."
    assert [model.asked for model in models] == [model.closed for model in models] == [1, 1]


async def test_a_backup_may_be_the_same_model_again() -> None:
    clock = FakeClock()
    model = ScriptedModel(lambda number: "Hello.")
    calls = 0

    class Once:
        def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
            nonlocal calls
            calls += 1
            return Silent().stream(request) if calls == 1 else model.stream(request)

    running = asyncio.create_task(Agent(Once(), middleware=[Hedge(1, clock=clock)]).run("x"))
    await clock.advance(2)
    assert (await running).text == "Hello."
    assert calls == 2


async def test_thoughts_stay_with_the_model_that_had_them() -> None:
    first = ScriptedModel(
        [turn(reasoning("mine"), call("look", {"what": "x"})), OVERLOADED, "Done."]
    )
    backup = ScriptedModel(["unused", turn(reasoning("theirs"), call("look", {"what": "y"}))])
    agent = Agent(first, model_name="a", tools=[look], middleware=[Hedge(60, named(backup, "b"))])
    result = await agent.run("x")
    assert result.text == "Done."
    assert not any(isinstance(item, Reasoning) for item in backup.requests[0].input)
    thoughts = [item for item in result.items if isinstance(item, Reasoning)]
    assert [part.text for thought in thoughts for part in thought.summary] == ["mine"]  # type: ignore[union-attr]


async def test_an_aborted_race_leaves_nobody_running() -> None:
    clock, models = FakeClock(), [Silent(), Silent()]
    agent = Agent(models[0], middleware=[Hedge(1, models[1], clock=clock)])
    async with agent.stream("x") as stream:
        await clock.advance(2)
        stream.abort()
        result = await stream.result()
    assert result.status == "aborted"
    assert [model.closed for model in models] == [1, 1]


async def test_a_loser_that_fails_after_it_lost_harms_nobody() -> None:
    class Bursts:
        async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
            emitter = Emitter(request.settings, ids=RandomIds(), clock=SystemClock())
            yield emitter.start()[0]
            try:
                await asyncio.Event().wait()
            finally:
                raise RuntimeError("burst")

    agent = Agent(Bursts(), middleware=[Hedge(0, ScriptedModel(["Fine."]))])
    result = await agent.run("x")
    assert (result.status, result.text) == ("done", "Fine.")


async def test_a_rate_limit_counts_the_requests_of_a_hedge_wherever_it_stands() -> None:
    for order in (0, 1):
        clock, slow, backup = FakeClock(), Silent(), ScriptedModel(["Late."])
        limit = RateLimit(1, per=10, clock=clock)
        hedge = Hedge(1, backup, clock=clock)
        agent = Agent(slow, middleware=[limit, hedge] if order else [hedge, limit])
        running = asyncio.create_task(agent.run("x"))
        await clock.advance(9)
        assert backup.requests == []
        await clock.advance(2)
        assert (await running).text == "Late."


async def test_cost_around_a_hedge_counts_one_answer() -> None:
    usage = Usage(input_tokens=1_000_000, output_tokens=0, total_tokens=1_000_000)
    rates = Rates(input="2", output="8")
    for order in (0, 1):
        cost, clock = Cost(prices=rates), FakeClock()
        hedge = Hedge(1, ScriptedModel([turn("Won.", usage=usage)]), clock=clock)
        agent = Agent(Silent(), middleware=[cost, hedge] if order else [hedge, cost])
        running = asyncio.create_task(agent.run("x"))
        await clock.advance(2)
        assert (await running).text == "Won."
        meter = cost.meter
        assert (meter.answers.requests, meter.answers.usd) == (1, Decimal(2))
        assert (meter.spend.requests, meter.spend.usd) == (2, Decimal(2))
        assert (meter.discarded.requests, meter.discarded.uncounted) == (1, 1)


# --- recorded --------------------------------------------------------------------------------


async def test_what_other_models_were_asked_is_in_the_record_and_rebuilds() -> None:
    first = ScriptedModel([turn(reasoning("mine"), call("look", {"what": "x"})), OVERLOADED])
    second = ScriptedModel(["unused", turn(reasoning("theirs"), call("look", {"what": "y"}))])
    third = ScriptedModel(["unused", "unused", "Done."])

    def choose(request: ModelRequest) -> Resolved | None:
        return named(third, "c") if len(request.input) > 4 else None

    store = MemoryStore()
    agent = Agent(
        first,
        model_name="a",
        tools=[look],
        store=store,
        middleware=[Route(choose)],
        retry=Fallback(named(second, "b")),
    )
    async with agent.session("chat") as chat:
        assert (await chat.send("x")).text == "Done."
    session = await session_in(store)
    responses = [entry for entry in session.entries if isinstance(entry, ResponseEntry)]
    assert [entry.request_hash != "" for entry in responses] == [True, True, True]
    for entry in responses:
        session.check_request(entry.id)
    later = ScriptedModel(lambda number: "Again.")
    again = agent.with_(model=later, middleware=(), store=await crashed(store))
    async with again.session("chat") as chat:
        assert (await chat.send("y")).text == "Again."
        thoughts = [item for item in later.requests[0].input if isinstance(item, Reasoning)]
    assert [part.text for one in thoughts for part in one.summary] == ["mine"]  # type: ignore[union-attr]
