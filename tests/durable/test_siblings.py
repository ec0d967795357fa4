"""What runs beside a wait in one call, and beside a call that waits (DESIGN 6.3, 8; LOG 5.4)."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from perdure import (
    Agent,
    Program,
    interrupt,
    invoke,
    race,
    receive,
    recover,
    sleep,
    step,
    tool,
    wait_for,
)
from perdure.errors import ConfigError
from perdure.log.entries import StepEntry
from perdure.stores import open_store
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call, turn
from perdure.testing.scripted import TurnLike
from perdure.tools import Effect, Transaction, Tx
from tests.durable.test_work import CALL, Bench, Body, bench_of
from tests.durable.world import RUN, entries_of, outputs, shapes

SLOW = 0.02
"""Seconds that a slow sibling takes: many rounds of the event loop."""

WAITS: dict[str, Callable[[], Awaitable[object]]] = {
    "sleep": lambda: sleep("w", 60),
    "signal": lambda: wait_for("w", timeout=60),
    "question": lambda: interrupt("w", "Who?", str),
    "channel": lambda: receive("w"),
    "race": lambda: race("w", {"a": wait_for("w"), "b": sleep("w", 60)}),
}


async def end_of(bench: Bench, kind: str, call_id: str = CALL) -> None:
    """Have what a wait is for come."""
    match kind:
        case "question":
            await bench.runs.answer(RUN, call_id, "w", "Ann")
        case "channel":
            await bench.runs.send(RUN, "w", 1, key="k")
        case "signal":
            await bench.runs.signal(RUN, "w", 1)
        case _:
            await bench.clock.advance(61)


async def together(how: str, *work: Awaitable[object]) -> None:
    """Do work at once, as tools do."""
    match how:
        case "gather":
            await asyncio.gather(*work)
        case "group":
            async with asyncio.TaskGroup() as group:
                for one in work:
                    group.create_task(one)  # type: ignore[arg-type]
        case _:
            first, *others = [asyncio.ensure_future(one) for one in work]
            try:
                await asyncio.gather(*others)
            finally:
                await first


@pytest.mark.parametrize("kind", WAITS)
@pytest.mark.parametrize("how", ["gather", "group", "tasks"])
@pytest.mark.parametrize("effect", ["none", "idempotent", "keyed", "once"])
async def test_a_slow_step_beside_a_wait_ends_and_is_recorded_before_the_process_is_freed(
    effect: Effect, how: str, kind: str
) -> None:
    def make(bench: Bench) -> Body:
        async def slow() -> str:
            await asyncio.sleep(SLOW)
            return await bench.does("slow")

        async def body() -> object:
            await together(how, step("slow", slow, effect=effect), WAITS[kind]())
            return "both"

        return body

    bench = bench_of(make)
    assert await bench.run() in {"suspended", "input_required"}
    assert bench.did == ["slow"]
    entries = await entries_of(bench.store)
    ends = [n for n, e in enumerate(entries) if isinstance(e, StepEntry) and e.phase == "end"]
    assert len(ends) == 1
    assert ends[0] < shapes(entries).index("decision hold")
    await end_of(bench, kind)
    assert await bench.run() == "done"
    assert (bench.did, outputs(bench.result)[CALL]) == (["slow"], "both")


@pytest.mark.parametrize("how", ["gather", "group"])
async def test_a_slow_call_that_a_tool_makes_beside_a_wait_is_made_once(how: str) -> None:
    clock, store, did = FakeClock(), MemoryStore(), list[str]()

    @tool(effect="once")
    async def charge() -> str:
        """Charge."""
        await asyncio.sleep(SLOW)
        did.append("charge")
        return "charged"

    @tool(effect="idempotent")
    async def both() -> str:
        """Charge and sleep."""
        await together(how, invoke("charge", {}), sleep("w", 60))
        return "both"

    model = ScriptedModel([call("both"), "Done."])
    agent = Agent(model, tools=[charge, both], store=store, clock=clock)
    assert (await agent.run("Go.", run_id=RUN)).status == "suspended"
    assert did == ["charge"]
    await clock.advance(61)
    result = await agent.run("Go.", run_id=RUN)
    assert (result.status, did, outputs(result)[CALL]) == ("done", ["charge"], "both")


LATE: dict[str, Callable[[], Awaitable[object]]] = {
    **{f"{n} rounds": (lambda n=n: rounds(n)) for n in (*range(7), 10, 30)},  # type: ignore[misc]
    "a thread": lambda: asyncio.to_thread(lambda: None),
    "a while": lambda: asyncio.sleep(0.005),
}
"""What a sibling does before its step begins."""


async def rounds(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.mark.parametrize("before", LATE)
@pytest.mark.parametrize("how", ["gather", "group", "tasks"])
@pytest.mark.parametrize("asker", ["tool", "program"])
async def test_a_step_that_begins_late_beside_a_wait_is_taken_once_now_or_when_it_has_come(
    asker: str, how: str, before: str
) -> None:
    def make(bench: Bench) -> Body:
        async def late() -> object:
            await LATE[before]()
            first = await bench.step("first")
            await LATE[before]()
            return [first, await bench.step("second")]

        async def body() -> object:
            await together(how, late(), sleep("w", 60), sleep("longer", 120))
            return "both"

        return body

    bench = bench_of(make)
    program = Program(bench.body, name="work", store=bench.store, clock=bench.clock)

    async def run() -> str:
        if asker == "tool":
            return await bench.run()
        return (await program.run(run_id=RUN)).status

    assert await run() == "suspended"
    for _ in range(2):
        assert bench.did == ["first", "second"][: len(bench.did)]
        recorded = [e for e in await entries_of(bench.store) if isinstance(e, StepEntry)]
        assert len([e for e in recorded if e.phase == "start"]) == len(bench.did)
        assert len([e for e in recorded if e.phase == "end"]) == len(bench.did)
        await rounds(40)
        await bench.clock.advance(61)
        status = await run()
    assert status == "done"
    assert bench.did == ["first", "second"]


@pytest.mark.parametrize("before", LATE)
async def test_a_wait_that_begins_late_beside_another_is_only_later(before: str) -> None:
    def make(bench: Bench) -> Body:
        async def late() -> None:
            await LATE[before]()
            await wait_for("paid")
            await bench.step("paid")

        async def body() -> object:
            await asyncio.gather(late(), sleep("w", 60))
            return "both"

        return body

    bench = bench_of(make)
    assert await bench.run() == "suspended"
    await bench.runs.signal(RUN, "paid")
    await recover(bench.agent)
    await bench.clock.advance(61)
    assert await bench.run() == "done"
    assert bench.did == ["paid"]


@pytest.mark.parametrize("how", ["gather", "group"])
async def test_a_sibling_that_fails_beside_a_wait_fails_the_call_and_no_step_is_lost(
    how: str,
) -> None:
    def make(bench: Bench) -> Body:
        async def fails() -> None:
            await bench.step("charge")
            raise LookupError("no such shelf")

        async def body() -> object:
            await together(how, fails(), sleep("w", 60))
            return "both"

        return body

    bench = bench_of(make)
    assert await bench.run() == "done"
    assert "no such shelf" in outputs(bench.result)[CALL]
    assert bench.did == ["charge"]


async def test_a_tool_that_keeps_its_sibling_from_unwinding_loses_no_step() -> None:
    """A shield leaves a sibling running when its tool has unwound: it takes no more steps."""

    def make(bench: Bench) -> Body:
        async def sibling() -> None:
            await bench.step("first")
            with contextlib.suppress(BaseException):
                await asyncio.sleep(SLOW)
            await bench.step("second")

        async def body() -> object:
            await asyncio.gather(asyncio.shield(sibling()), sleep("w", 60))
            return "both"

        return body

    bench = bench_of(make)
    assert await bench.run() == "suspended"
    await asyncio.sleep(2 * SLOW)
    assert bench.did == ["first"], "the call has ended, and its handle is closed"
    await bench.clock.advance(61)
    assert await bench.run() == "done"
    assert bench.did == ["first", "second"]


# --- beside a call that waits --------------------------------------------------------------------


def counts(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM paid").fetchone()[0])


@pytest.mark.parametrize("effect", ["none", "idempotent", "keyed", "once", "transactional"])
@pytest.mark.parametrize("kind", WAITS)
async def test_a_slow_call_beside_one_that_waits_ends_and_runs_no_more(
    tmp_path: Path, kind: str, effect: Effect
) -> None:
    path, entered = tmp_path / "runs.db", list[str]()
    store = open_store(f"sqlite:///{path}")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE paid (cents INTEGER)")
        connection.commit()
    clock = FakeClock()

    def pays(tx: Tx) -> str:
        tx.execute("INSERT INTO paid VALUES (5)")
        return "paid"

    @tool(effect=effect)
    async def pay() -> Transaction | str:
        """Pay."""
        await asyncio.sleep(SLOW)
        entered.append("pay")
        return pays if effect == "transactional" else "paid"

    @tool(effect="idempotent")
    async def waits() -> str:
        """Wait."""
        await WAITS[kind]()
        return "waited"

    script: list[TurnLike] = [turn(call("pay"), call("waits")), "Done."]
    agent: Agent = Agent(ScriptedModel(script), tools=[pay, waits], store=store, clock=clock)
    try:
        result = await agent.run("Go.", run_id=RUN)
        (waiting,) = result.pending
        assert entered == ["pay"]
        bench = Bench(lambda: asyncio.sleep(0))
        bench.store, bench.clock = store, clock  # type: ignore[assignment]
        await end_of(bench, kind, waiting.call.call_id)
        result = await agent.run("Go.", run_id=RUN)
        assert (result.status, entered) == ("done", ["pay"])
        assert list(outputs(result).values()) == ["paid", "waited"]
        assert counts(path) == (1 if effect == "transactional" else 0)
    finally:
        await store.close()


@pytest.mark.parametrize("kind", WAITS)
async def test_a_transactional_tool_that_waits_is_refused_and_commits_nothing(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "runs.db"
    store = open_store(f"sqlite:///{path}")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE paid (cents INTEGER)")
        connection.commit()
    seen: list[str] = []

    def pays(tx: Tx) -> str:
        tx.execute("INSERT INTO paid VALUES (5)")
        return "paid"

    @tool(effect="transactional")
    async def pay() -> Transaction:
        """Pay."""
        try:
            await WAITS[kind]()
        except ConfigError as error:
            seen.append(str(error))
            raise
        return pays

    model = ScriptedModel([call("pay"), "Done."])
    agent: Agent = Agent(model, tools=[pay], store=store)
    try:
        result = await agent.run("Go.", run_id=RUN)
        assert result.status == "done"
        assert "the effect 'transactional' and cannot wait" in outputs(result)[CALL]
        assert (len(seen), counts(path)) == (1, 0)
    finally:
        await store.close()


@pytest.mark.parametrize("effect", ["once"])
@pytest.mark.parametrize("kind", WAITS)
async def test_a_once_tool_that_waits_is_refused_and_says_what_to_declare(
    kind: str, effect: Effect
) -> None:
    bench = bench_of(lambda _: WAITS[kind], effect=effect)
    assert await bench.run() == "done"
    said = outputs(bench.result)[CALL]
    assert "the effect 'once' and cannot wait: declare none, idempotent or keyed" in said
