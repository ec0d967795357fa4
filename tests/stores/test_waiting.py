"""Waiting for a session that another drives."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure import Agent
from perdure.errors import Leased
from perdure.log import open_named
from perdure.stores.sqlite import SqliteStore
from perdure.testing import ScriptedModel
from perdure.testing.store_kit import header


async def test_a_session_is_waited_for_until_its_driver_lets_go(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    first = await open_named(store, "chat", holder="first")
    second = asyncio.create_task(open_named(store, "chat", holder="second", wait=60))
    await asyncio.sleep(0.05)
    assert not second.done()
    await first.close()
    recording = await second
    assert recording.lease.holder == "second"
    await recording.close()
    await store.close()


async def test_a_lease_that_a_killed_process_left_lapses_in_time(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    await store.create(header(), name="chat")
    await store.lease("s1", holder="killed", seconds=0.2)
    agent = Agent(ScriptedModel(["Hello."]), store=store)
    async with agent.session("chat", wait=60) as chat:
        assert (await chat.send("Hello?")).text == "Hello."
    await store.close()


async def test_without_waiting_the_error_names_the_driver(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    first = await open_named(store, "chat", holder="worker 7")
    for wait in (0.0, 0.01):
        with pytest.raises(Leased, match="worker 7"):
            await open_named(store, "chat", wait=wait)
    await first.close()
    await store.close()
