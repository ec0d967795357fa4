"""What a store grows by, and how it is made smaller again."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest_asyncio

from perdure import Agent, tool
from perdure.log.header import Origin, new_header
from perdure.log.store import Summary
from perdure.stores import upkeep
from perdure.stores.sqlite import SqliteStore
from perdure.testing import ScriptedModel, call
from perdure.testing.store_kit import chain
from tests.log.building import Built

TURNS = 1000
CHILDREN = 4
LATER = 10**19


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncGenerator[SqliteStore]:
    made = SqliteStore(tmp_path / "s.db")
    yield made
    await made.close()


def rows(store: SqliteStore) -> dict[str, int]:
    """How many rows each table has."""
    connection = sqlite3.connect(store.path)
    tables = [
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    counted = {
        name: int(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0])  # noqa: S608
        for name in tables
    }
    connection.close()
    return counted


async def test_a_turn_adds_the_same_rows_however_many_there_were(store: SqliteStore) -> None:
    """A call, its response, its dispatch and its output; nothing is written twice."""

    @tool
    def act() -> str:
        return "done"

    counts: list[int] = []
    for turns in (5, 10, 40):
        model = ScriptedModel([*[call("act")] * turns, "end"])
        before = rows(store).get("perdure_entries", 0) if store.path.exists() else 0
        await Agent(model, tools=[act], store=store).run("go")
        counts.append(rows(store)["perdure_entries"] - before)
    five, ten, forty = counts
    assert (ten - five, forty - ten) == (4 * 5, 4 * 30)
    assert {name for name, count in rows(store).items() if count > 10} == {"perdure_entries"}


async def test_a_thousand_turns_are_collected_children_first_and_after_an_interruption(
    store: SqliteStore,
) -> None:
    """What is told to be removed is gone, and no row of it is left."""
    built = Built()
    for turn in range(TURNS // (CHILDREN + 1)):
        built.call(f"c{turn}", f"r{turn}")
        built.response(f"r{turn}")
        built.dispatch(f"c{turn}", f"k{turn}")
        built.output(f"c{turn}")
    entries = built.session.entries
    ended = Summary(status="done")
    await store.create(new_header("root", "1990-01-01T00:00:00Z"), batch=entries, summary=ended)
    lease = await store.lease("root", holder="x")
    for number in range(CHILDREN):
        made = new_header(
            f"c{number}", f"1990-01-01T00:00:0{number}Z", root="root", origin=Origin("root")
        )
        await store.create(made, fence=lease.fence, batch=entries)
    await store.release(lease)
    await store.create(new_header("young", "2200-01-01T00:00:00Z"), batch=chain(1), summary=ended)
    assert rows(store)["perdure_entries"] == 4 * TURNS + 1
    expected = sum(one.summary.bytes for one in (await store.list()).sessions if one.id != "young")

    removed: list[upkeep.Collected] = []
    collecting = upkeep.collect(store, LATER // 2)
    async for one in collecting:
        removed.append(one)
        if len(removed) == 2:
            break  # the process was interrupted
    await collecting.aclose()
    assert {one.session for one in removed} < {f"c{n}" for n in range(CHILDREN)}
    removed += [one async for one in upkeep.collect(store, LATER // 2)]
    assert removed[-1].session == "root"
    assert sum(one.bytes for one in removed) == expected
    assert [one.id for one in (await store.list()).sessions] == ["young"]
    assert {name: count for name, count in rows(store).items() if name != "perdure_schema"} == {
        "perdure_sessions": 1,
        "perdure_roots": 1,
        "perdure_entries": 1,
        "perdure_messages": 0,
        "perdure_blobs": 0,
    }
