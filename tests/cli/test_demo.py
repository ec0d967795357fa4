"""`perdure demo`, and the commands as a whole."""

from __future__ import annotations

import pytest

from tests.cli.terminal import COLUMNS, Piped, Terminal


def test_the_demo_shows_an_agent_at_work() -> None:
    with Terminal("demo") as screen:
        screen.ends(0)
        screen.expect("An Open Responses server listens at http://127.0.0.1:")
        screen.expect("▶ stock")
        screen.expect('✓ stock {"part":"nut-m8"} → 75')
        screen.expect("✗ quote Error: only 75 pieces of nut-m8 are in stock")
        screen.expect("We can deliver 100 bolts and 75 nuts")
        screen.expect("The server answered 4 requests; the transcript has 12 items.")
        assert max(map(len, screen.lines)) <= COLUMNS


def test_the_demo_writes_no_colours_into_a_pipe() -> None:
    done = Piped("demo")
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out
    assert "We can deliver 100 bolts and 75 nuts" in done.out


@pytest.mark.parametrize(
    "arguments", [("--help",), ("run", "--help"), ("chat", "-h"), ("demo", "-h")]
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
    done = Piped()
    assert done.code == 2
    assert "Commands:" in done.out + done.err
