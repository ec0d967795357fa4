"""Values that stores are known to lose, through an agent, its log and back."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio

from perdure import Agent, tool
from perdure.log.entries import AnyEntry
from perdure.log.reading import read_lines
from perdure.testing import ScriptedModel, call, turn
from perdure.tools import ToolResult, Transaction, Tx
from perdure.wire import FunctionCallOutput
from tests.stores.banks import Bank, PostgresBank, SqliteBank

GIVEN = "W\x00s \ud800 \U0001f600 \\u0000 \u2028"
CLEAN = GIVEN.replace("\ud800", "\ufffd")
NUMBERS = '{"long":123456789012345678901234567890,"small":1e-400,"same":1.0}'


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def bank(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Bank]:
    if request.param == "sqlite":
        made: Bank = SqliteBank(tmp_path / "s.db")
    else:
        server: str = request.getfixturevalue("postgres_server")
        opened = PostgresBank(server, request.getfixturevalue("postgres_schema"))
        await opened.open()
        made = opened
    yield made
    await made.store.close()


def outputs(entries: list[AnyEntry]) -> list[AnyEntry]:
    return [e for e in entries if e.type == "item" and b'"function_call_output"' in e.line]


async def test_text_and_numbers_come_back_as_they_were(bank: Bank) -> None:
    @tool
    def text() -> ToolResult:
        return ToolResult(GIVEN)

    @tool
    def numbers(arguments: str) -> str:
        return arguments

    @tool(effect="transactional")
    def committed() -> Transaction:
        if isinstance(bank, SqliteBank):
            return commits

        async def later(tx: object) -> str:
            del tx
            return GIVEN

        return later

    def commits(tx: Tx) -> str:
        del tx
        return GIVEN

    asked = turn(call("text"), call("numbers", {"arguments": NUMBERS}), call("committed"))
    agent = Agent(
        ScriptedModel([asked, "done", "again"]), tools=[text, numbers, committed], store=bank.store
    )
    async with agent.session("chat") as chat:
        await chat.send(CLEAN)
        said = chat.state.transcript
    async with agent.session("chat") as chat:
        assert list(chat.state.transcript) == list(said)
    found = [one.output for one in said if isinstance(one, FunctionCallOutput)]
    assert found == [CLEAN, NUMBERS, CLEAN]

    ((listed,), _) = await bank.store.list()
    stored = await bank.store.read(listed.id)
    reading = read_lines(stored.header, stored.lines)
    assert reading.faults == ()
    for place in (0, 2):
        members = outputs(reading.session.entries)[place].members
        (change,) = cast("list[dict[str, str]]", members["normalised"])
        assert json.loads(change["was"]) == GIVEN
