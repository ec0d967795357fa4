"""Rewinding and forking a live session (LOG 5.8)."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from perdure import Agent, tool
from perdure.errors import AlreadyRunning, ConfigError, EntryRefused, NoEntry, RewindRefused
from perdure.log.entries import AnyEntry, LabelEntry
from perdure.log.header import Origin, RunIdentity, new_header
from perdure.log.reading import Reading, read_lines
from perdure.log.recording import go_on
from perdure.log.rewinding import rewind
from perdure.log.session import Session as LogSession
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call
from perdure.wire import Message
from tests.log.building import Built


@tool(effect="none")
def look() -> str:
    """Look."""
    return "seen"


@tool
def charge() -> str:
    """Charge."""
    return "charged"


@pytest_asyncio.fixture
async def store() -> AsyncGenerator[MemoryStore]:
    made = MemoryStore()
    yield made
    await made.close()


def agent_of(store: MemoryStore, script: list[object]) -> Agent:
    return Agent(ScriptedModel(script), tools=[look, charge], store=store)  # type: ignore[arg-type]


async def reading(store: MemoryStore, name: str = "chat") -> Reading:
    (listed,) = [one for one in (await store.list()).sessions if one.name == name]
    stored = await store.read(listed.id)
    read = read_lines(stored.header, stored.lines)
    assert read.faults == ()
    return read


def first(session: LogSession, type_: str, place: int = 0) -> AnyEntry:
    return [entry for entry in session.entries if entry.type == type_][place]


async def test_a_session_goes_on_from_an_entry_that_it_left(store: MemoryStore) -> None:
    agent = agent_of(store, ["one", "two", "three"])
    async with agent.session("chat") as chat:
        await chat.send("first")
        end = (await reading(store)).session.leaf
        assert end is not None
        await chat.send("second")
        before = (await reading(store)).session.version
        await chat.rewind(end)
        assert [m.text for m in chat.state.transcript if isinstance(m, Message)] == ["first", "one"]
        assert (await chat.send("another second")).text == "two"
    session = (await reading(store)).session
    label = session.entries[before]
    assert isinstance(label, LabelEntry)
    assert (label.label, label.target) == ("leaf", end)
    said = [one for one in session.view().context.items if isinstance(one, Message)]
    assert [one.text for one in said] == ["first", "one", "another second", "two"]
    async with agent.session("chat") as chat:
        assert len(chat.state.transcript) == 4


@pytest.mark.parametrize("name", ["look", "charge"])
async def test_what_tools_did_is_left_behind_only_on_purpose(name: str, store: MemoryStore) -> None:
    agent = agent_of(store, [call(name), "done", "again"])
    async with agent.session("chat") as chat:
        await chat.send("go")
        user = first((await reading(store)).session, "item").id
        if name == "charge":
            lines = len((await reading(store)).session)
            with pytest.raises(RewindRefused, match="tools with effects were entered") as refused:
                await chat.rewind(user)
            assert refused.value.entry == user
            assert len((await reading(store)).session) == lines
        await chat.rewind(user, keep_effects=name == "charge")
        read = await reading(store)
        assert read.session.view().drives.open is None  # the drive that was begun there is closed
        (asked,) = chat.state.transcript
        assert isinstance(asked, Message)


async def test_where_nothing_can_go_on(store: MemoryStore) -> None:
    agent = agent_of(store, ["one", "two"])
    async with agent.session("chat") as chat:
        await chat.send("first")
        end = (await reading(store)).session.leaf or ""
        await chat.rewind(end)
        label = (await reading(store)).session.entries[-1]
        with pytest.raises(RewindRefused, match="leaf label"):
            await chat.rewind(label.id)
        with pytest.raises(NoEntry):
            await chat.rewind("sha256:no")
    async with Agent(ScriptedModel(["one"])).session() as chat:
        with pytest.raises(ConfigError, match="only a recorded session"):
            await chat.rewind("sha256:no")


async def test_a_run_by_id_goes_forward_only(store: MemoryStore) -> None:
    made = new_header("s1", "2026-10-02T00:00:00Z", run=RunIdentity(id="order-42", kind="run"))
    built = Built(made)
    entry = built.user("go")
    await store.create(made, batch=built.session.entries)
    recording = await go_on(store, "s1")
    with pytest.raises(RewindRefused, match="a run by id goes forward only"):
        await rewind(recording, entry)
    await recording.close()


async def test_not_above_the_base_of_a_fork(store: MemoryStore) -> None:
    built = Built()
    above = built.user("one")
    base = built.user("two")
    made = new_header("f", "2026-10-02T00:00:00Z", origin=Origin(built.session.id, base))
    await store.create(built.header, batch=built.session.entries)
    await store.create(made, batch=built.session.entries)
    recording = await go_on(store, "f")
    with pytest.raises(RewindRefused, match="above the base"):
        await rewind(recording, above)
    await recording.close()


async def test_not_while_a_drive_runs(store: MemoryStore) -> None:
    async def rewinds() -> str:
        with pytest.raises(AlreadyRunning):
            await chat.rewind("sha256:any")
        with pytest.raises(AlreadyRunning):
            await chat.fork("other")
        return "refused"

    agent = Agent(ScriptedModel([call("rewinds"), "done"]), tools=[rewinds], store=store)
    async with agent.session("chat") as chat:
        result = await chat.send("go")
        assert "refused" in str(result.items[2])


async def test_a_fork_goes_on_and_its_origin_stays(store: MemoryStore) -> None:
    agent = agent_of(store, ["one", "two", "three"])
    async with agent.session("chat") as chat:
        await chat.send("first")
        middle = (await reading(store)).session.leaf or ""
        await chat.send("second")
        before = (await reading(store)).session.entries
        async with await chat.fork("other", entry=middle) as other:
            assert len(other.state.transcript) == 2
            assert (await other.send("a different second")).text == "two"
        async with await chat.fork("whole") as whole:
            assert len(whole.state.transcript) == 4
        assert [e.line for e in (await reading(store)).session.entries] == [e.line for e in before]
        label = await reading(store, "other")
        assert label.session.header.base == middle


async def test_no_fork_of_nothing(store: MemoryStore) -> None:
    async with agent_of(store, []).session("chat") as chat:
        with pytest.raises(ConfigError, match="empty"):
            await chat.fork("other")
        with pytest.raises((NoEntry, EntryRefused)):
            await chat.fork("other", entry="sha256:no")
