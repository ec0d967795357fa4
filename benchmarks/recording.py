"""Recording an agent on one SQLite file: turns a second, CPU and bytes, one session and 200.

The same script everywhere: in each turn the model asks for a tool, whose output is 600 bytes; in
the last it answers. What must hold after a crash is what each of them promises: perdure writes a
dispatch before the tool and the output behind it; LangGraph's SQLite checkpointer writes a
checkpoint after each node before it goes on (`durability="sync"`); DBOS writes each step's result.
All commit with full synchronisation but where they say otherwise. `bare loop` is the least that
runs the script: it reads the model's events, calls the tool and commits one row an item, on one
thread. `unrecorded` is perdure without a store. Each runs a short session in another file before
the one that is measured, so that nobody's imports are counted.

LangGraph and DBOS are measured if they are installed (the dependency group `bench`).

How many commits are shared, and what sharing is worth, depends on how long the disk takes to
flush. So perdure is measured once more with every commit made `FLUSH` seconds longer, as on a disk
without a cache that outlives a power failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import importlib.util
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import NamedTuple

from benchmarks.bare import run_bare
from benchmarks.table import Table
from perdure import Agent, tool
from perdure.stores.points import At, Point, passing
from perdure.stores.sqlite import SqliteStore
from perdure.testing import ScriptedModel, call, text
from perdure.testing.scripted import Turn
from perdure.wire import Item, encode

OUTPUT = "x" * 600
SIZES = {1: 100, 200: 10}
"""Turns of each session, by how many sessions there are at once."""

WARM = 3
"""Turns of the session before the one that is measured."""

LENGTHS = (10, 50, 200)
FLUSH = 0.004
"""Seconds that the flush of a common disk takes."""

LIMIT_ONE, LIMIT_MANY, LIMIT_SHARED = 5.0, 1.2, 5.0


class Cost(NamedTuple):
    """What a run took."""

    turns: int
    wall: float
    cpu: float

    @property
    def per_second(self) -> float:
        return self.turns / self.wall

    @property
    def micros(self) -> float:
        """CPU a turn, in microseconds."""
        return self.cpu / self.turns * 1e6


async def measured(turns: int, work: Callable[[], Awaitable[object]]) -> Cost:
    """Run work that does `turns` turns."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    await work()
    return Cost(turns, time.perf_counter() - wall, time.process_time() - cpu)


# --- perdure ---------------------------------------------------------------------------------


@tool
async def work(number: int) -> str:
    """Do a piece of work."""
    del number
    return OUTPUT


def script_of(turns: int) -> list[Turn]:
    return [*(call("work", {"number": n}) for n in range(turns - 1)), text("done")]


def agent_of(turns: int, store: SqliteStore | None) -> Agent:
    return Agent(ScriptedModel(script_of(turns)), tools=[work], store=store or "", max_turns=None)


def slow_disk(point: Point) -> None:
    """Take the time of a flush before each commit."""
    if point == "commit":
        time.sleep(FLUSH)


async def perdure(path: Path | None, sessions: int, turns: int, at: At = passing) -> Cost:
    """Sessions at once, in one file or nowhere."""
    store = SqliteStore(path, at=at) if path is not None else None
    agents = [agent_of(turns, store) for _ in range(sessions)]

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for agent in agents:
                group.create_task(agent.run("go"))

    if store is not None:
        await store.list()  # the file is made before the clock runs
    cost = await measured(sessions * turns, run)
    if store is not None:
        await store.close()
    return cost


async def tuned(path: Path, sessions: int, turns: int) -> Cost:
    """The same with the garbage collector as docs/stores.md sets it for many sessions."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    return await perdure(path, sessions, turns)


# --- a bare loop ------------------------------------------------------------------------------


async def bare(path: Path, sessions: int, turns: int) -> Cost:
    """One row an item, one commit a row, on the thread of the event loop."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE rows (session INTEGER, item TEXT)")

    def keep(session: int, item: Item) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO rows VALUES (?,?)", (session, encode(item).decode()))
        connection.execute("COMMIT")

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for session in range(sessions):
                model = ScriptedModel(script_of(turns))
                keeps = functools.partial(keep, session)
                group.create_task(run_bare(model, "go", {"work": work}, keeps))

    cost = await measured(sessions * turns, run)
    connection.close()
    return cost


def _items(number: int) -> list[dict[str, object]]:
    name = f"call_{number}"
    arguments = json.dumps({"number": number})
    return [
        {"type": "function_call", "call_id": name, "name": "work", "arguments": arguments},
        {"type": "function_call_output", "call_id": name, "output": OUTPUT},
    ]


# --- LangGraph --------------------------------------------------------------------------------


Items = dict[str, list[dict[str, object]]]


async def langgraph(path: Path, sessions: int, turns: int) -> Cost:
    """A graph of two nodes, checkpointed by its SQLite saver."""
    import operator
    from typing import Annotated, TypedDict

    import aiosqlite
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from langgraph.graph import END, START, StateGraph

    schema = TypedDict(  # noqa: UP013 - the annotations of a class would be text
        "schema", {"items": Annotated[list[dict[str, object]], operator.add]}
    )

    async def model(state: Items) -> Items:
        number = sum(item["type"] == "function_call" for item in state["items"])
        if number == turns - 1:
            return {"items": [{"type": "message", "text": "done"}]}
        return {"items": [_items(number)[0]]}

    async def tools(state: Items) -> Items:
        asked = state["items"][-1]
        return {
            "items": [
                {
                    "type": "function_call_output",
                    "call_id": asked["call_id"],
                    "output": await work(0),
                }
            ]
        }

    def then(state: Items) -> str:
        return "tools" if state["items"][-1]["type"] == "function_call" else END

    builder = StateGraph(schema)
    builder.add_node("model", model)
    builder.add_node("tools", tools)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", then, ["tools", END])
    builder.add_edge("tools", "model")
    async with aiosqlite.connect(path) as connection:
        await connection.execute("PRAGMA synchronous = FULL")
        saver = AsyncSqliteSaver(connection)
        await saver.setup()
        graph = builder.compile(checkpointer=saver)

        async def one(session: int) -> None:
            config = {
                "configurable": {"thread_id": f"s{session}"},
                "recursion_limit": 10 * turns,
            }
            first = {"items": [{"type": "message", "text": "go"}]}
            await graph.ainvoke(first, config, durability="sync")

        async def run() -> None:
            async with asyncio.TaskGroup() as group:
                for session in range(sessions):
                    group.create_task(one(session))

        return await measured(sessions * turns, run)


# --- DBOS -------------------------------------------------------------------------------------


async def dbos(path: Path, sessions: int, turns: int) -> Cost:
    """A workflow a session, a step for each model call and each tool."""
    from dbos import DBOS

    DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{path}",
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )

    @DBOS.step()
    async def model(number: int) -> dict[str, object]:
        if number == turns - 1:
            return {"type": "message", "text": "done"}
        return _items(number)[0]

    @DBOS.step()
    async def step(asked: dict[str, object]) -> dict[str, object]:
        return {
            "type": "function_call_output",
            "call_id": asked["call_id"],
            "output": await work(0),
        }

    @DBOS.workflow()
    async def session() -> int:
        items: list[dict[str, object]] = []
        for number in range(turns):
            items.append(await model(number))
            if items[-1]["type"] == "function_call":
                items.append(await step(items[-1]))
        return len(items)

    DBOS.launch()

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(sessions):
                group.create_task(session())

    try:
        return await measured(sessions * turns, run)
    finally:
        DBOS.destroy()


# --- the table --------------------------------------------------------------------------------

Contender = Callable[[Path, int, int], Coroutine[None, None, Cost]]
"""A file, how many sessions at once, and how many turns each has."""

CONTENDERS: dict[str, tuple[str, Contender]] = {
    "bare loop": ("", bare),
    "perdure": ("", perdure),
    "LangGraph, SQLite checkpointer": ("langgraph.checkpoint.sqlite", langgraph),
    "DBOS, SQLite": ("dbos", dbos),
}


def installed(module: str) -> bool:
    """Whether a contender can run here."""
    try:
        return not module or importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def apart(name: str, sessions: int, turns: int) -> tuple[Cost, int]:
    """A contender in a process of its own, and the bytes it left after a checkpoint."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "bench.db"
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.recording", name, path, str(sessions), str(turns)],
            check=True,
            stdout=subprocess.PIPE,
            env={**os.environ, "LANGSMITH_TRACING": "false"},
            text=True,
        )
        if path.exists():
            with contextlib.closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = path.stat().st_size if path.exists() else 0
        shutil.rmtree(directory, ignore_errors=True)
        Path(directory).mkdir()
    turns_, wall, cpu = json.loads(done.stdout.splitlines()[-1])
    return Cost(turns_, wall, cpu), size


def child(name: str, path: str, sessions: str, turns: str) -> None:
    """What `apart` starts."""
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(contender(name)(Path(directory) / "bench.db", 1, WARM))
    cost = asyncio.run(contender(name)(Path(path), int(sessions), int(turns)))
    print(json.dumps(cost))


SHOWN = {
    "tuned": "perdure, collector tuned",
    "slow disk": f"perdure, commits {FLUSH * 1e3:g} ms longer",
}
"""Ways of running perdure, as the tables call them."""


def contender(name: str) -> Contender:
    """Who is called so in the tables, or a way of running perdure."""
    ways: dict[str, Contender] = {
        "unrecorded": lambda _, sessions, turns: perdure(None, sessions, turns),
        "tuned": tuned,
        "slow disk": lambda path, sessions, turns: perdure(path, sessions, turns, slow_disk),
    }
    return ways.get(name) or CONTENDERS[name][1]


def main() -> None:
    """Print the tables, and whether perdure keeps to its limits."""
    if len(sys.argv) > 1:
        child(*sys.argv[1:])
        return
    speed: dict[tuple[str, int], Cost] = {}
    here = [name for name, (module, _) in CONTENDERS.items() if installed(module)]
    for sessions, turns in SIZES.items():
        table = Table(
            f"{sessions} sessions at once, {turns} turns each", "", "turns/s", "CPU µs a turn"
        )
        for name in ("unrecorded", *here, *SHOWN):
            cost, _ = apart(name, sessions, turns)
            speed[name, sessions] = cost
            table.row(SHOWN.get(name, name), cost.per_second, cost.micros)
        table.show()
    sizes = Table("bytes on disk a turn", "", *(f"{length} turns" for length in LENGTHS))
    for name in here:
        sizes.row(name, *(apart(name, 1, length)[1] / length for length in LENGTHS))
    sizes.show()
    limits = Table("limits", "", "measured", "allowed")
    for name, where in (
        ("perdure", "here"),
        ("slow disk", f"with commits {FLUSH * 1e3:g} ms longer"),
    ):
        shared = speed[name, 200].per_second / speed[name, 1].per_second
        limits.row(f"turns/s of 200 sessions, times one's, {where}: at least", shared, LIMIT_SHARED)
    for sessions, limit in ((200, LIMIT_MANY), (1, LIMIT_ONE)):
        added = speed["perdure", sessions].micros - speed["unrecorded", sessions].micros
        ratio = added / speed["bare loop", sessions].micros
        limits.row(f"CPU that recording adds, of a bare loop's, {sessions} at once", ratio, limit)
    limits.show()


if __name__ == "__main__":
    main()
