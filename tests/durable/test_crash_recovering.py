"""A recovery loop goes on looking while it drives, and ends when it is left."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from perdure import Agent, tool
from perdure.durable import Recovered, Recovering, Recovery, begin_run, recover
from perdure.errors import StoreFailed
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call
from perdure.wire import user


class Deaf(MemoryStore):
    """Loses the first cancellation, as drivers of databases do now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.looking = asyncio.Event()

    async def due(self, before: int, *, limit: int = 100) -> tuple[str, ...]:
        self.looking.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return await super().due(before, limit=limit)


async def test_it_ends_although_a_store_loses_its_cancellation() -> None:
    store = Deaf()
    loop = Recovering([Agent(ScriptedModel(["Done."]))], store, every=0.01)
    await loop.__aenter__()
    await store.looking.wait()
    leaving = asyncio.create_task(loop.__aexit__(None, None, None))
    done, _ = await asyncio.wait([leaving], timeout=20)
    assert done


async def test_a_long_drive_holds_up_no_other_run() -> None:
    store = MemoryStore()
    entered, enough = asyncio.Event(), asyncio.Event()

    @tool(effect="none")
    async def wait_long() -> str:
        """Wait until the test is done."""
        entered.set()
        await enough.wait()
        return "waited"

    slow = Agent(ScriptedModel([call("wait_long"), "Done."]), name="slow", tools=[wait_long])
    quick = Agent(ScriptedModel(["Done."]), name="quick")
    told: asyncio.Queue[Recovered] = asyncio.Queue()
    recovery = Recovery(on_recovered=told.put_nowait)
    await begin_run(slow, store, "first", [user("Go.")])
    async with Recovering([slow, quick], store, every=0.01, recovery=recovery):
        await entered.wait()
        await begin_run(quick, store, "second", [user("Go.")])
        async with asyncio.timeout(20):
            assert (await told.get())[:2] == ("second", "done")
        enough.set()
        async with asyncio.timeout(20):
            assert (await told.get())[:2] == ("first", "done")


class Failing(MemoryStore):
    """Fails at its first look."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    async def due(self, before: int, *, limit: int = 100) -> tuple[str, ...]:
        self.looks += 1
        if self.looks == 1:
            raise StoreFailed("it is not there")
        return await super().due(before, limit=limit)


async def test_a_store_that_fails_once_ends_no_loop() -> None:
    store = Failing()
    agent = Agent(ScriptedModel(["Done."]))
    told: asyncio.Queue[Recovered] = asyncio.Queue()
    await begin_run(agent, store, "r", [user("Go.")])
    recovery = Recovery(on_recovered=told.put_nowait)
    async with Recovering([agent], store, every=0.01, recovery=recovery), asyncio.timeout(20):
        assert (await told.get())[:2] == ("r", "done")


async def test_a_store_that_fails_is_named() -> None:
    with pytest.raises(StoreFailed):
        await recover([Agent(ScriptedModel(["Done."]))], Failing())
