"""Recovery: runs that want a driver and have none get one, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from perdure import Agent, Runs, recover, recovering, tool, wait_for
from perdure.durable import Driving, Recovered, begin_run, run_by_id
from perdure.errors import ConfigError, RunBusy, StoreFailed
from perdure.log import Lease, Stored
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.wire import user
from tests.durable.world import (
    RUN,
    Act,
    Holds,
    World,
    agent_of,
    asked,
    cut_behind,
    one_call,
    session_of,
)


async def until(holds: Callable[[], bool]) -> None:
    """Let others run until something holds."""
    while not holds():  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.005)


async def crashed(*, effect: str = "idempotent", world: World | None = None) -> MemoryStore:
    store = MemoryStore()
    act = Act(world=world or World(), effect=effect)  # type: ignore[arg-type]
    await agent_of(store, [act], one_call()).run("go", run_id=RUN)
    return await cut_behind(store, "dispatch")


async def test_a_run_whose_process_died_goes_on() -> None:
    store, world = await crashed(), World()
    agent = agent_of(store, [Act(world=world, effect="idempotent")], one_call())
    assert await recover(agent) == [Recovered(RUN, "done")]
    assert len(world.fired) == 1
    assert await recover(agent) == []


async def test_a_run_that_was_begun_and_never_driven_is_driven() -> None:
    store, world = MemoryStore(), World()
    agent = agent_of(store, [Act(world=world)], one_call())
    await begin_run(agent, store, RUN, [user("go")])
    assert await recover(agent) == [Recovered(RUN, "done")]


async def test_a_run_that_is_driven_is_left_alone() -> None:
    store, world, gate = MemoryStore(), World(), asyncio.Event()

    @tool
    async def charge() -> str:
        """Charge."""
        world.fired.append(("charge", ""))
        await gate.wait()
        return "charged"

    agent: Agent = Agent(ScriptedModel([call("charge"), "Done."]), tools=[charge], store=store)
    running = asyncio.create_task(agent.run("go", run_id=RUN))
    await until(lambda: bool(world.fired))
    assert await recover(agent) == []
    gate.set()
    assert (await running).status == "done"
    assert len(world.fired) == 1


async def test_a_run_that_is_driven_is_not_read_at_every_look() -> None:
    class Counting(MemoryStore):
        whole = 0

        async def read(self, session: str, *, since: int = 0, leaf: str | None = None) -> Stored:
            self.whole += since == 0
            return await super().read(session, since=since, leaf=leaf)

    store, gate, entered = Counting(), asyncio.Event(), asyncio.Event()

    @tool
    async def charge() -> str:
        """Charge."""
        entered.set()
        await gate.wait()
        return "charged"

    agent: Agent = Agent(ScriptedModel([call("charge"), "Done."]), tools=[charge], store=store)
    running = asyncio.create_task(agent.run("go", run_id=RUN))
    await entered.wait()
    before = store.whole
    assert await recover(agent) == []
    assert store.whole == before
    gate.set()
    assert (await running).status == "done"
    assert await recover(agent) == []


async def test_a_run_that_was_told_before_a_crash_is_driven() -> None:
    store, clock = MemoryStore(), FakeClock()

    @tool(effect="idempotent")
    async def ship() -> object:
        """Ship."""
        return await wait_for("paid")

    agent: Agent = Agent(
        ScriptedModel([call("ship"), "Done."]), tools=[ship], store=store, clock=clock
    )
    await agent.run("go", run_id=RUN)
    await Runs(store).signal(RUN, "paid")
    await agent.run("go", run_id=RUN)
    cut = await cut_behind(store, "perdure:signal")
    assert (await Runs(cut).get(RUN)).status == "suspended"
    assert await recover(agent.with_(store=cut)) == [Recovered(RUN, "done")]


async def test_runs_that_wait_for_somebody_are_left_alone_and_starve_nobody() -> None:
    store, world = MemoryStore(), World()
    agent = agent_of(store, [Act(world=world)], one_call(), middleware=[Holds()])
    for number in range(30):
        await agent.run("go", run_id=f"waits-{number}")
    await begin_run(agent, store, RUN, [user("go")])
    before = asked(agent)
    assert await recover(agent, concurrency=1) == [Recovered(RUN, "input_required")]
    assert asked(agent) == before + 1


async def test_a_run_that_was_told_something_is_driven() -> None:
    store, world = MemoryStore(), World()
    agent = agent_of(store, [Act(world=world)], one_call(), middleware=[Holds()])
    (held,) = (await agent.run("go", run_id=RUN)).pending
    assert await recover(agent) == []
    await Runs(store).approve(RUN, held.call.call_id)
    assert await recover(agent) == [Recovered(RUN, "done")]


async def test_runs_of_other_agents_and_chats_are_left_alone() -> None:
    store = await crashed()
    other: Agent = Agent(ScriptedModel(["x"]), name="other", store=store)
    async with other.session("chat") as chat:
        await chat.send("hi")
    assert await recover(other) == []


async def test_a_run_that_fails_keeps_no_other_back() -> None:
    store, world = MemoryStore(), World()
    broken = agent_of(store, [], []).with_(name="broken")
    fine = agent_of(store, [Act(world=world)], one_call()).with_(name="fine")
    await begin_run(broken, store, "a", [user("go")])
    await begin_run(fine, store, "b", [user("go")])
    recovered = await recover(broken, fine)
    assert sorted((one.run_id, one.status) for one in recovered) == [("a", "failed"), ("b", "done")]
    assert next(one.error for one in recovered if one.run_id == "a") is not None


async def test_a_loop_recovers_what_comes_later_and_gives_it_back_when_it_is_left() -> None:
    store, world = MemoryStore(), World()
    agent = agent_of(store, [Act(world=world)], one_call())
    heard: list[Recovered] = []
    async with recovering(agent, every=0.01, on_recovered=heard.append):
        await asyncio.sleep(0.05)
        await begin_run(agent, store, RUN, [user("go")])
        await until(lambda: bool(heard))
    assert heard == [Recovered(RUN, "done")]


async def test_leaving_a_loop_ends_its_drives_in_order_and_releases_their_leases() -> None:
    store, entered = MemoryStore(), asyncio.Event()

    @tool(effect="idempotent")
    async def slow() -> str:
        """Wait until told to stop."""
        entered.set()
        await asyncio.sleep(3600)
        return "slow"

    model = ScriptedModel([call("slow"), "Done."])
    agent: Agent = Agent(model, tools=[slow], store=store, grace=0.0)
    await begin_run(agent, store, RUN, [user("go")])
    async with recovering(agent, every=0.01):
        await entered.wait()
    session = await session_of(store)
    lease = await store.lease(session.id, holder="the next")  # nobody has it any more
    await store.release(lease)
    assert (await Runs(store).get(RUN)).status == "aborted"


async def test_a_store_that_cannot_renew_ends_the_drive_before_the_lease_lapses() -> None:
    class Stormy(MemoryStore):
        async def renew(self, lease: Lease) -> Lease:
            raise StoreFailed("the network is down")

    store = Stormy()
    agent: Agent = Agent(ScriptedModel(["A long story."], delay=60.0), store=store, lease=0.1)
    running = asyncio.create_task(
        run_by_id(agent, store, RUN, [user("go")], wait=False, driving=Driving(poll=0.01))
    )
    with pytest.raises(RunBusy):
        await running


@pytest.mark.parametrize(
    "wrong",
    [
        lambda agent: recover(),
        lambda agent: recover(agent.with_(store="")),
        lambda agent: recover(agent, agent),
        lambda agent: recover(agent, concurrency=0),
    ],
)
async def test_what_cannot_be_recovered_is_refused(wrong: Callable[[Agent], object]) -> None:
    agent = agent_of(MemoryStore(), [])
    with pytest.raises(ConfigError):
        await wrong(agent)  # type: ignore[misc]


def test_a_lease_and_a_pause_are_positive() -> None:
    with pytest.raises(ConfigError):
        Agent(ScriptedModel(["x"]), lease=0)
    with pytest.raises(ConfigError):
        Agent(ScriptedModel(["x"]), max_stall=0)
    with pytest.raises(ConfigError):
        recovering(agent_of(MemoryStore(), []), every=0)
