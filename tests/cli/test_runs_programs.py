"""`perdure runs` of programs without a model: what they wait for, and what answers it."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from perdure import (
    Agent,
    OutcomeUnknown,
    Program,
    RunResult,
    interrupt,
    race,
    run_agent,
    step,
    wait_for,
)
from perdure.cli.approvals import approvals
from perdure.cli.runs import runs
from perdure.testing import ScriptedModel


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path}/runs.db"
    monkeypatch.setenv("PERDURE_STORE", url)
    return url


def _unsure() -> str:
    raise OutcomeUnknown("the bank did not answer")


async def order(what: str) -> object:
    await step("place", lambda: f"placed {what}")
    if what == "two":
        return await asyncio.gather(wait_for("one"), wait_for("two"))
    if what == "age":
        return await interrupt("age", "How old?", int)
    if what == "agent":
        agent: Agent = Agent(ScriptedModel(["It is ordered."]), name="clerk")
        said = await run_agent("ask the clerk", agent, "Order it.")
        return [said, await wait_for("paid")]
    if what == "race":
        return await race("either", {"paid": wait_for("paid"), "asked": wait_for("asked")})
    return await step("pay", _unsure)


def drive(store: str, what: str) -> RunResult[object]:
    async def driven() -> RunResult[object]:
        program = Program(order, store=store)
        try:
            return await program.run(what, run_id="r")
        finally:
            await program.aclose()

    return asyncio.run(driven())


def told(command: str) -> str:
    result = CliRunner().invoke(runs, shlex.split(command), standalone_mode=False)
    assert result.return_value == 0, result.output
    return result.output


def test_show_says_what_a_program_asks_and_answer_answers_it(store: str) -> None:
    drive(store, "age")
    text = told("show r")
    assert "status\tinput_required\n" in text
    assert '\n  order "age"\n    asks (age): How old?\n' in text
    assert "perdure runs answer r '' age JSON\n" in text
    assert "step place gave" in text
    assert told("answer r '' age 41 --by ann").startswith("r has its answer")
    text = told("show r")
    assert "perdure runs answer" not in text
    assert "\n    answered by ann: 41; the run takes it up" in text
    drive(store, "age")
    text = told("show r")
    assert "it is answered (age) by ann: 41" in text
    assert "answer\t41\n" in text


def test_show_names_the_step_of_a_program_that_may_have_been_taken(store: str) -> None:
    drive(store, "unsure")
    text = told("show r")
    assert "status\thalted\n" in text
    assert "may have taken its step pay, and nobody knows what came of it\n" in text
    assert "perdure runs resolve r '' --step pay --value JSON\n" in text
    assert told("resolve r '' --step pay --value 3").startswith("r is resolved")
    assert drive(store, "unsure").output == 3


def test_show_speaks_of_a_program_and_of_its_steps_and_waits(store: str) -> None:
    drive(store, "two")
    text = told("show r")
    assert "program\torder\n" in text
    assert "took\t1 step, 2 waits\n" in text
    assert '  input: "two"\n' in text
    assert text.endswith(" ends: suspended\n")
    assert not any(word in text for word in ("agent", "user", "turn", "token"))


def test_a_program_without_input_is_shown_by_its_name_alone(store: str) -> None:
    async def nightly() -> object:
        return await wait_for("morning")

    async def driven() -> None:
        program = Program(nightly, store=store)
        await program.run(run_id="r")
        await program.aclose()

    asyncio.run(driven())
    text = told("show r")
    assert "\n  nightly\n    waits for the signal morning\n" in text
    assert "null\n    " not in text


def test_a_program_that_halts_ends_its_drive_so(store: str) -> None:
    drive(store, "unsure")
    assert told("show r").endswith(" ends: halted\n")
    told("resolve r '' --step pay --value 3")
    assert "\n    step 'pay' resolved by " in told("show r")


def test_what_a_program_waits_for_is_no_call_that_people_vote_about(store: str) -> None:
    drive(store, "age")
    result = CliRunner().invoke(approvals, ["ls"], standalone_mode=False)
    assert (result.return_value, result.output) == (0, "")


def test_show_leads_to_the_agents_of_a_program(store: str) -> None:
    drive(store, "agent")
    text = told("show r")
    assert "it has the answer of its agent ask the clerk" in text
    assert "ask the clerk > " in text
    assert "took\t1 step, 1 wait, 1 agent, " in text
    assert "its agent ask the clerk has session " in text
    assert "perdure runs signal r paid JSON\n" in text
    told("signal r paid 1")
    assert drive(store, "agent").output == ["It is ordered.", 1]


def test_show_says_what_races_and_what_came_first(store: str) -> None:
    drive(store, "race")
    text = told("show r")
    assert "waits for what comes first (either); waits for the signal paid" in text
    assert "perdure runs signal r paid JSON\n" in text
    told("signal r paid 1")
    assert drive(store, "race").output == ["paid", 1]
    assert 'it has what came first (either): "paid"' in told("show r")


def test_a_program_is_listed_and_cancelled_like_any_run(store: str) -> None:
    drive(store, "age")
    assert told("ls").split("\t")[:3] == ["r", "input_required", "order"]
    assert told("cancel r") == "r is cancelled\n"
    assert "closed: cancelled" in told("tail r")
