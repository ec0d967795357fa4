"""`perdure runs` of sagas: what was undone, what was not, and what settles it."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from perdure import Agent, RunFailed, ToolError, tool
from perdure.cli.runs import runs
from perdure.testing import ScriptedModel, call
from perdure.testing.scripted import TurnLike


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path}/runs.db"
    monkeypatch.setenv("PERDURE_STORE", url)
    return url


async def refund(cents: int) -> None:
    if cents > 100:
        raise ToolError("the bank does not answer")


@tool(effect="once", compensate=refund)
async def charge(cents: int) -> str:
    """Charge."""
    return "charged"


@tool(effect="once")
async def ship() -> str:
    """Ship."""
    raise ToolError("nothing is left")


def drive(store: str, cents: int) -> None:
    script: list[TurnLike] = [call("charge", {"cents": cents}), call("ship"), "never"]

    async def driven() -> None:
        agent = Agent(ScriptedModel(script), tools=[charge, ship], store=store)
        with pytest.raises(RunFailed):
            await agent.run("go", run_id="r", saga=True)
        await agent.aclose()

    asyncio.run(driven())


def told(command: str) -> str:
    result = CliRunner().invoke(runs, shlex.split(command), standalone_mode=False)
    assert result.return_value == 0, result.output
    return result.output


def test_show_lists_what_was_undone(store: str) -> None:
    drive(store, 5)
    text = told("show r")
    assert "saga\tall or nothing\n" in text
    assert "status\trolled_back: ship failed: nothing is left\n" in text
    assert "\ncompensated\n  call_t0_1 charge\n" in text
    assert "the saga is tripped: ship failed: nothing is left" in text
    found = json.loads(told("show r --json"))
    assert found["saga"] is True
    assert [one["tool"] for one in found["report"]["compensated"]] == ["charge"]


def test_show_names_the_commands_that_settle_what_cannot_be_undone(store: str) -> None:
    drive(store, 500)
    text = told("show r")
    assert "status\tfailed, being rolled back: ship failed: nothing is left\n" in text
    assert "\nuncompensated\n  call_t0_1 charge: the bank does not answer\n" in text
    assert "    perdure runs resolve r call_t0_1 --compensated\n" in text
    assert "    perdure runs resolve r call_t0_1 --left --reason WHY\n" in text
    assert "the rollback goes on" in told("resolve r call_t0_1 --left --reason 'paid in cash'")
    assert "call_t0_1 left" in told("show r")
    drive(store, 500)
    assert "call_t0_1 charge: left as it is: paid in cash\n" in told("show r")


def test_resolve_takes_one_word(store: str) -> None:
    drive(store, 500)
    for words in ("--left --compensated", "--failed no --output yes", ""):
        result = CliRunner().invoke(runs, shlex.split(f"resolve r call_t0_1 {words}"))
        assert result.exit_code != 0
