"""Rate limits of requests and of calls."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Agent, ConfigError, tool
from perdure.errors import Overloaded
from perdure.middleware import RateLimit, ToolRateLimit
from perdure.middleware.bucket import Bucket
from perdure.testing import FakeClock, ScriptedModel, attempts, call, turn
from perdure.testing.clock import settle


async def test_a_bucket_starts_full_and_fills_with_time() -> None:
    clock = FakeClock()
    bucket = Bucket(2, per=10, burst=None, clock=clock)
    taken: list[float] = []

    async def take() -> None:
        await bucket.take()
        taken.append(clock.monotonic())

    tasks = [asyncio.create_task(take()) for _ in range(4)]
    await clock.advance(30)
    assert all(task.done() for task in tasks)
    assert taken == pytest.approx([0, 0, 5, 10])


async def test_it_never_holds_more_than_its_burst() -> None:
    clock = FakeClock()
    bucket = Bucket(10, per=10, burst=2, clock=clock)
    await clock.advance(1000)
    for _ in range(2):
        await bucket.take()
    waiting = asyncio.create_task(bucket.take())
    await clock.advance(0.5)
    assert not waiting.done()
    await clock.advance(0.6)
    assert waiting.done()


@pytest.mark.parametrize("per", [0, -1])
async def test_no_interval_is_no_limit(per: float) -> None:
    bucket = Bucket(1, per=per, burst=None, clock=FakeClock())
    taken = [asyncio.create_task(bucket.take()) for _ in range(100)]
    await settle()
    assert all(one.done() for one in taken)


async def test_whoever_is_cancelled_while_waiting_has_taken_nothing() -> None:
    clock = FakeClock()
    bucket = Bucket(1, per=10, burst=None, clock=clock)
    await bucket.take()
    gone = asyncio.create_task(bucket.take())
    await clock.advance(5)
    gone.cancel()
    await clock.advance(5)
    another = asyncio.create_task(bucket.take())
    await settle()
    assert another.done()


@pytest.mark.parametrize("make", [RateLimit, ToolRateLimit])
def test_a_rate_that_is_none_is_refused(make: type[RateLimit | ToolRateLimit]) -> None:
    with pytest.raises(ConfigError, match="rate"):
        make(0)


async def test_every_request_counts_also_one_that_is_sent_again() -> None:
    clock = FakeClock()
    model = ScriptedModel([attempts(Overloaded("no", status=503, retry_after=0), "Hello.")])
    agent = Agent(model, middleware=[RateLimit(1, per=60, clock=clock)])
    running = asyncio.create_task(agent.run("x"))
    await clock.advance(59)
    assert len(model.requests) == 1
    await clock.advance(2)
    assert (await running).text == "Hello."
    assert len(model.requests) == 2


async def test_agents_that_share_a_limit_share_its_tokens() -> None:
    clock, limit = FakeClock(), None
    limit = RateLimit(1, per=60, clock=clock)
    models = [ScriptedModel(["Hello."]), ScriptedModel(["Hello."])]
    running = [asyncio.create_task(Agent(m, middleware=[limit]).run("x")) for m in models]
    await clock.advance(1)
    assert sum(len(model.requests) for model in models) == 1
    await clock.advance(60)
    assert all(task.done() for task in running)


async def test_calls_of_the_limited_tools_wait_and_others_do_not() -> None:
    clock = FakeClock()
    ran: list[tuple[str, float]] = []

    @tool(effect="none")
    async def slow_api(n: int) -> str:
        """Call the API."""
        ran.append(("slow", clock.monotonic()))
        return ""

    @tool(effect="none")
    async def other() -> str:
        """Do something else."""
        ran.append(("other", clock.monotonic()))
        return ""

    calls = turn(call("slow_api", {"n": 1}), call("slow_api", {"n": 2}), call("other"))
    limit = ToolRateLimit(1, per=10, tools=["slow_*"], clock=clock)
    agent = Agent(ScriptedModel([calls, "Done."]), tools=[slow_api, other], middleware=[limit])
    running = asyncio.create_task(agent.run("x"))
    await clock.advance(11)
    assert (await running).status == "done"
    assert sorted(ran) == [("other", 0.0), ("slow", 0.0), ("slow", pytest.approx(10.0))]
