"""`perdure demo`, and the commands as a whole."""

from __future__ import annotations

import os
import re

import pytest

from tests.cli.terminal import COLUMNS, Piped, Terminal


def test_the_demo_kills_a_process_in_the_middle_of_a_payment_that_is_made_once() -> None:
    with Terminal("demo") as screen:
        screen.expect("kill -9: the bank took the money")
        screen.expect("■ halted")
        screen.expect("may have run: it was dispatched, and nobody knows what came of it")
        screen.expect("» the ledger ch_1 tok_visa 4200 cents")
        screen.expect("✓ done Order 42 is paid")
        screen.expect("The card was charged once.")
        screen.expect("dispatch of call_1, effect once")
        screen.expect("ends: error (cut off: closed on resume)")
        screen.expect("decision on call_1: answer by human you (the ledger has it)")
        screen.expect("closed: done")
        screen.ends(0)
        assert screen.text.count("dispatch of call_1") == 1
        assert max(map(len, screen.lines)) <= COLUMNS


def test_the_demo_writes_no_colours_into_a_pipe() -> None:
    done = Piped("demo")
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out
    assert max(map(len, done.out.splitlines())) <= COLUMNS
    assert "--output 'charged 4200 cents: ch_1' \\\n" in done.out  # a command that can be copied
    assert "The card was charged once." in done.out


def test_a_demo_that_is_interrupted_leaves_no_process_behind() -> None:
    with Terminal("demo") as screen:
        screen.expect("until the dead one's lease lapses")
        number = int(re.findall(r"process (\d+) agent", screen.text)[-1])
        screen.interrupt()
        screen.ends(130)
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
    assert "Traceback" not in screen.text


@pytest.mark.parametrize(
    "arguments", [("--help",), ("run", "--help"), ("chat", "-h"), ("demo", "-h"), ("runs", "-h")]
)
def test_help_fits_the_screen(arguments: tuple[str, ...]) -> None:
    with Terminal(*arguments) as screen:
        screen.ends(0)
        assert screen.text.startswith("Usage: perdure")
        assert max(map(len, screen.lines)) <= COLUMNS


def test_run_documents_its_exit_codes() -> None:
    done = Piped("run", "--help")
    for code in ("0    done", "1    the run failed", "3    stopped", "130  interrupted"):
        assert code in done.out


def test_the_version_is_told() -> None:
    done = Piped("--version")
    assert done.code == 0
    assert done.out.startswith("perdure, version ")


def test_without_a_command_the_help_is_shown() -> None:
    for group in ((), ("runs",), ("log",), ("approvals",), ("keys",)):
        done = Piped(*group)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(" ".join(("Usage: perdure", *group)))
        assert "Commands:" in done.err
