"""The chaos harness where runs wait: time passes at once, and what nobody tells is a result."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

from perdure import Agent, Program, interrupt, receive, sleep, step, tool, wait_for
from perdure.cli.chaos import chaos as command
from perdure.clock import SystemClock
from perdure.errors import ConfigError
from perdure.testing import ScriptedModel, call, run_chaos
from perdure.testing.chaos_judge import Evidence, judge
from perdure.testing.chaos_ledger import EffectLedger, Line
from perdure.testing.chaos_waits import Answers, ChaosClock, clock_of, jump


@tool(effect="idempotent")
async def fulfil() -> object:
    """Fulfil an order."""
    await step("invoice", lambda: "invoiced")
    paid = await wait_for("paid")
    await sleep("cool off", 30 * 24 * 3600)
    await step("ship", lambda: "shipped")
    return paid


def clerk() -> Agent:
    return Agent(ScriptedModel([call("fulfil"), "It is done."]), tools=[fulfil])


def test_a_signal_that_nobody_gives_leaves_the_run_suspended_and_breaks_nothing() -> None:
    report = run_chaos(clerk(), every=3)
    report.check()
    assert report.expected == "suspended"
    assert f"ended: {len(report.trials)} suspended (waits for the signal paid)" in str(report)
    assert report.most("fulfil: invoice") == 1


def test_a_signal_is_given_and_time_passes_at_once() -> None:
    report = run_chaos(clerk(), signals={"paid": {"cents": 5}}, every=3)
    report.check()
    assert report.expected == "done"
    assert report.most("fulfil: ship") == 1


def test_a_program_gets_its_messages_and_its_answers() -> None:
    async def pack(order: str) -> object:
        first = await receive("parcels")
        await step("pack", lambda: f"{order} {first.value}")
        await first.ack()
        return await interrupt("sure", "Sure?", bool)

    program = Program(pack)
    report = run_chaos(
        program, "Order 7:", messages={"parcels": ["a lamp"]}, answers={"sure": True}, every=3
    )
    report.check()
    assert report.expected == "done"
    asked = run_chaos(program, messages={"parcels": ["a lamp"]}, every=50)
    assert "input_required (asks (sure): Sure?)" in str(asked)


def _evidence(*lines: Line, final: dict[str, str]) -> Evidence:
    told = Line(run="r", phase="told", status="done", recorded="done")
    return Evidence(run="r", lines=(*lines, told), durable=[], final=final, commits=Counter())


def _entered(effect: str, key: str = "k") -> Line:
    return Line(run="r", phase="entered", tool="t: s", effect=effect, call_id="c/step:s", key=key)


@pytest.mark.parametrize(
    ("lines", "final", "says"),
    [
        ((_entered("once"), _entered("once")), {"c/step:s": '"x"'}, "was entered 2 times"),
        ((_entered("keyed"), _entered("keyed", "l")), {"c/step:s": '"x"'}, "under the keys"),
        ((_entered("once"),), {}, "has no output"),
        (
            (_entered("once"), Line(run="r", phase="left", call_id="c/step:s", output='"y"')),
            {"c/step:s": '"x"'},
            "did not give",
        ),
    ],
)
def test_a_step_that_breaks_a_rule_is_found(
    lines: tuple[Line, ...], final: dict[str, str], says: str
) -> None:
    trial = judge(_evidence(*lines, final=final), died=[], expected="done", session="")
    assert not trial.ok
    assert says in "; ".join((*trial.broken, *trial.lost))


def test_a_clock_that_has_jumped_stays_ahead_for_the_processes_that_follow(
    tmp_path: Path,
) -> None:
    clock = ChaosClock(SystemClock())
    ledger = EffectLedger(tmp_path)
    due = clock.wall() + 3600 * 10**9
    assert jump(clock, due, ledger, "r", 0)
    assert jump(clock, due, ledger, "r", 0)
    assert not jump(clock, None, ledger, "r", 0)
    assert len(ledger.lines("r")) == 1
    after = clock_of(SystemClock(), ledger.lines("r"))
    assert clock.wall() > due
    assert after.ahead == clock.ahead
    assert clock_of(SystemClock(), []).wall() < due


def test_the_command_tells_runs_what_they_wait_for() -> None:
    target = "tests.chaos.working:tool_signal"
    told = CliRunner().invoke(command, [target, "--every", "9", "--signal", "paid=5"])
    assert "ended: " in told.output
    assert "done" in told.output
    silent = CliRunner().invoke(command, [target, "--every", "9"])
    assert "suspended (waits for the signal paid)" in silent.output
    wrong = CliRunner().invoke(command, [target, "--answer", "sure"])
    assert wrong.exit_code == 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (Answers(signals={"payd": 5, "paid": 5}), "nothing asked for signal 'payd'"),
        (Answers(signals={"paid": 5}, answers={"sure": 1}), "nothing asked for answer 'sure'"),
        (Answers(signals={"paid": 5}, messages={"ch": [1]}), "for messages of 'ch'"),
        (Answers(messages={"ch": cast("list[object]", 1)}), "are a list"),
        (Answers(messages={"ch": "abc"}), "are a list"),
    ],
)
def test_what_a_test_gives_and_its_run_never_takes_is_no_pass(given: Answers, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        run_chaos(
            clerk(),
            signals=given.signals,
            answers=given.answers,
            messages=given.messages,
            every=50,
        )


def test_an_answer_that_was_refused_is_no_pass() -> None:
    async def asks() -> bool:
        return await interrupt("sure", "Sure?", bool)

    with pytest.raises(ConfigError, match="answer 'sure' was refused"):
        run_chaos(Program(asks), answers={"sure": "perhaps"}, every=50)
