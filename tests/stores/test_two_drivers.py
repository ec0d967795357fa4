"""Two drivers of one session: one is refused, and what the loser would do does not happen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from perdure import Agent, tool
from perdure.clock import SystemClock
from perdure.errors import FenceLost, Leased, RunFailed
from perdure.log.reading import read_lines
from perdure.log.store import Store
from perdure.loop import Middleware, ToolCallInfo, ToolDecision, approve
from perdure.stores.sqlite import SqliteStore
from perdure.testing import ScriptedModel, call
from perdure.tools import Call

ROOT = Path(__file__).parents[2]


class Later(SystemClock):
    """After every lease has lapsed."""

    def wall(self) -> int:
        return super().wall() + 3600 * 10**9


class Pair(NamedTuple):
    """One store, as two processes have it open."""

    first: Store
    second: Store
    lapse: Callable[[], Awaitable[None]]
    """Makes the lease of the first lapse for the second."""
    url: str


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Pair]:
    if request.param == "sqlite":

        async def lapse() -> None:
            """For the second it is later."""

        path = tmp_path / "s.db"
        first: Store = SqliteStore(path)
        made = Pair(first, SqliteStore(path, clock=Later()), lapse, f"sqlite:///{path}")
    else:
        server: str = request.getfixturevalue("postgres_server")
        schema: str = request.getfixturevalue("postgres_schema")
        made = postgres_pair(server, schema)
    yield made
    await made.first.close()
    await made.second.close()


def postgres_pair(server: str, schema: str) -> Pair:
    from perdure.stores.postgres import PostgresStore

    async def lapse() -> None:
        import psycopg

        async with await psycopg.AsyncConnection.connect(server) as connection:
            statement = f"UPDATE {schema}.perdure_roots SET until = 'epoch'"  # noqa: S608
            await connection.execute(statement.encode())

    url = f"{server}&schema={schema}"
    return Pair(
        PostgresStore(server, schema=schema), PostgresStore(server, schema=schema), lapse, url
    )


class Holds(Middleware):
    """Every call waits for somebody."""

    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision:
        return ToolDecision(action="hold", reason="who says so?")


class Worker:
    """An agent of one process, and what its tool did."""

    def __init__(self, store: Store, *middleware: Middleware) -> None:
        self.charged: list[int] = []

        @tool
        async def charge(cents: int) -> str:
            self.charged.append(cents)
            return "charged"

        model = ScriptedModel([call("charge", {"cents": 5}), "It is done.", "Hello."])
        self.agent = Agent(model, tools=[charge], middleware=middleware, store=store)


async def lines_of(store: Store) -> tuple[bytes, ...]:
    """The only session, which verifies and has one path."""
    ((listed,), _) = await store.list()
    stored = await store.read(listed.id)
    reading = read_lines(stored.header, stored.lines)
    assert reading.faults == ()
    assert len(reading.session.heads) == 1
    return stored.lines


async def test_a_stale_list_of_pending_calls_executes_nothing(pair: Pair) -> None:
    """Who saw a call pending, and lost the session to one that answered it, runs nothing."""
    stale, owner = Worker(pair.first, Holds()), Worker(pair.second)
    async with stale.agent.session("chat") as seen:
        assert (await seen.send("Charge my card.")).status == "input_required"
        (pending,) = seen.state.pending
        await pair.lapse()
        async with owner.agent.session("chat") as chat:
            assert (await chat.resume(approve(pending.call.call_id))).text == "It is done."
        with pytest.raises(RunFailed) as failed:
            await seen.resume(approve(pending.call.call_id))
        assert isinstance(failed.value.cause, FenceLost)
    assert (stale.charged, owner.charged) == ([], [5])
    assert sum(b'"dispatch"' in line for line in await lines_of(pair.second)) == 1


async def test_the_writer_that_was_displaced_writes_nothing_more(pair: Pair) -> None:
    """Of two writers of one run, one is refused by name, and the transcript stays one."""
    first, second = Worker(pair.first), Worker(pair.second)
    async with first.agent.session("chat") as chat:
        await chat.send("Charge my card.")
        await pair.lapse()
        async with second.agent.session("chat") as other:
            assert (await other.send("Hello?")).text == "Hello."
            before = await lines_of(pair.second)
            with pytest.raises(RunFailed) as failed:
                await chat.send("Once more.")
            assert isinstance(failed.value.cause, FenceLost)
    after = await lines_of(pair.second)
    assert after[: len(before)] == before
    assert not any(b"Once more." in line for line in after)
    assert (first.charged, second.charged) == ([5], [])


async def test_who_lost_the_lease_is_cancelled_while_its_tool_runs(pair: Pair) -> None:
    entered, told = asyncio.Event(), asyncio.Event()

    @tool
    async def charge(handle: Call) -> str:
        entered.set()
        await handle.cancelled
        told.set()
        return "charged"

    agent = Agent(
        ScriptedModel([call("charge"), "Done."]), tools=[charge], store=pair.first, lease=0.2
    )
    async with agent.session("chat") as chat:
        sending = asyncio.create_task(chat.send("Charge my card."))
        await entered.wait()
        ((listed,), _) = await pair.first.list()
        while not told.is_set():  # a renewal may come between
            await pair.lapse()
            with contextlib.suppress(Leased):
                lease = await pair.second.lease(listed.id, holder="second")
                await told.wait()
        result = await sending
        assert result.status == "aborted"
        assert "was lost" in str(result.cause)
    stored = await pair.second.read(listed.id)
    assert not any(b'"function_call_output"' in line for line in stored.lines)
    await pair.second.release(lease)


DRIVING = """
import asyncio, os, sys
from perdure import Agent, tool
from perdure.testing import ScriptedModel, call

@tool
def charge(cents: int) -> str:
    sys.stdout.write("charged\\n")
    sys.stdout.flush()
    sys.stdin.read(1)
    return "charged"

async def main(url):
    agent = Agent(ScriptedModel([call("charge", {"cents": 5}), "Done."]), tools=[charge], store=url)
    async with agent.session("chat") as chat:
        await chat.send("Charge my card.")
    await agent.aclose()

asyncio.run(main(sys.argv[1]))
"""


def driving(url: str) -> subprocess.Popen[bytes]:
    """A process that drives the session, and waits in its tool."""
    return subprocess.Popen(
        [sys.executable, "-c", DRIVING, url],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


async def test_a_second_process_is_refused_by_the_name_of_the_first(pair: Pair) -> None:
    with driving(pair.url) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"charged\n"
        second = Worker(pair.first)
        before = await lines_of(pair.first)
        with pytest.raises(Leased, match=f"driven by 'process {process.pid} on "):
            async with second.agent.session("chat"):
                raise AssertionError("two drive")
        assert await lines_of(pair.first) == before
        process.stdin.write(b"x")
        process.stdin.close()
        assert await asyncio.to_thread(process.wait) == 0
    assert second.charged == []
    assert any(b"Done." in line for line in await lines_of(pair.first))
