"""`perdure run`, as a person sees it in a terminal and as a program gets it from a pipe."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.cli.run import exit_code
from perdure.errors import Overloaded, Truncated
from perdure.result import Status
from perdure.testing import ScriptedModel, attempts, call, error, reasoning, refusal, turn
from perdure.testing.scripted import TurnLike
from tests.cli.terminal import COLUMNS, Halting, Piped, Server, Terminal, environment

SHOPPING: list[TurnLike] = [
    turn(reasoning("Two parts."), "Let me look.", call("stock", {"part": "bolt-m8"})),
    "We have 120 of them.",
]


def test_text_is_on_the_screen_before_the_answer_is_complete() -> None:
    model = Halting(["The first words and the last."], at="words")
    with Server(model) as server, Terminal("run", "hi", "--model", server.model) as screen:
        screen.expect("The first")
        assert "last" not in screen.text
        model.go.set()
        screen.expect("words and the last.")
        screen.ends(0)


def test_tool_calls_are_shown_as_they_run(shop: Path) -> None:
    with Server(ScriptedModel(SHOPPING)) as server:
        arguments = ("run", "hi", "--model", server.model, "--tool", "shop.py")
        with Terminal(*arguments, cwd=str(shop)) as screen:
            screen.ends(0)
            assert screen.text == (
                "Two parts.\n"
                "\n"
                "Let me look.\n"
                "\n"
                '▶ stock {"part":"bolt-m8"}\n'
                "✓ stock 120\n"
                "\n"
                "We have 120 of them.\n"
                "\n"
                "2 turns, 5 tokens in, 17 out\n"
            )
            assert "\x1b[32m✓" in screen.raw


def test_calls_of_one_tool_are_told_apart(shop: Path) -> None:
    both = turn(call("stock", {"part": "bolt-m8"}), call("stock", {"part": "nut-m8"}))
    script: list[TurnLike] = [both, "Done."]
    with Server(ScriptedModel(script)) as server:
        arguments = ("run", "hi", "--model", server.model, "--tool", "shop.py")
        with Terminal(*arguments, cwd=str(shop)) as screen:
            screen.ends(0)
            assert '✓ stock {"part":"bolt-m8"} → 120' in screen.lines
            assert '✓ stock {"part":"nut-m8"} → 75' in screen.lines


def test_a_tool_that_fails_says_why_and_where(shop: Path) -> None:
    script: list[TurnLike] = [
        turn(call("order", {"part": "x", "count": 101}), call("stock", {"part": "x"})),
        "I am sorry.",
    ]
    with Server(ScriptedModel(script)) as server:
        arguments = ("run", "hi", "--model", server.model, "--tool", "shop.py")
        with Terminal(*arguments, cwd=str(shop)) as screen:
            screen.ends(0)
            screen.expect("✗ order Error: at most 100 pieces an order\n")
            screen.expect("✗ stock Error: tool 'stock' panicked: 'x'\n")
            assert "KeyError at" in screen.text
            assert "Traceback" not in screen.text


def test_lines_of_calls_fit_the_screen(shop: Path) -> None:
    script: list[TurnLike] = [call("order", {"part": "long " * 40, "count": 3}), "Done."]
    with Server(ScriptedModel(script)) as server:
        arguments = ("run", "hi", "--model", server.model, "--tool", "shop.py")
        with Terminal(*arguments, cwd=str(shop)) as screen:
            screen.ends(0)
            start = next(line for line in screen.lines if line.startswith("▶ order"))
            assert len(start) == COLUMNS
            assert start.endswith("…")


def test_lines_of_text_break_at_words() -> None:
    words = "some words of different length, " * 10
    model = ScriptedModel([words])
    with Server(model) as server, Terminal("run", "hi", "--model", server.model) as screen:
        screen.ends(0)
        lines = screen.text.split("\n\n")[0].splitlines()
        assert max(map(len, lines)) <= COLUMNS
        assert " ".join(lines).split() == words.split()


def test_what_models_and_tools_say_cannot_steer_the_terminal(shop: Path) -> None:
    evil = "\x1b]0;owned\x07 \x1b[2J\x1b[31m \x9b31m \x08\x08 \u202edetrever"
    script: list[TurnLike] = [turn(evil, reasoning(evil), call("rude"), call(f"no{evil}")), "Done."]
    with Server(ScriptedModel(script)) as server:
        arguments = ("run", "hi", "--model", server.model, "--tool", "shop.py")
        with Terminal(*arguments, cwd=str(shop), env={"NO_COLOR": "1", "TERM": "dumb"}) as screen:
            screen.ends(0)
            assert not {"\x1b", "\x07", "\x9b", "\x08", "\u202e"} & set(screen.raw)
            assert "␛]0;owned␇ ␛[2J␛[31m �31m ␈␈ �detrever" in screen.text
            assert "✓ rude ␛]0;owned␇␛[2Jgone �31mred" in screen.lines


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_there_are_no_colours_where_none_are_wanted(shop: Path, env: dict[str, str]) -> None:
    with Server(ScriptedModel(SHOPPING)) as server:
        arguments = ("run", "hi", "--model", server.model, "--tool", "shop.py")
        with Terminal(*arguments, cwd=str(shop), env=env) as screen:
            screen.ends(0)
            assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", screen.raw)


def test_a_terminal_without_unicode_gets_plain_marks(shop: Path) -> None:
    with Server(ScriptedModel(SHOPPING)) as server:
        arguments = ("run", "hi", "--model", server.model, "--tool", "shop.py")
        with Terminal(*arguments, cwd=str(shop), env={"PYTHONIOENCODING": "ascii"}) as screen:
            screen.ends(0)
            assert '> stock {"part":"bolt-m8"}' in screen.lines
            assert "+ stock 120" in screen.lines


# --- pipes -------------------------------------------------------------------------------


def test_a_pipe_gets_the_answer_and_nothing_else(shop: Path) -> None:
    order = turn("I order.", call("order", {"part": "x", "count": 3}))
    script: list[TurnLike] = [order, "Ordered:\n\n\ttwo  \x1b lines\r\n…"]
    with Server(ScriptedModel(script)) as server:
        done = Piped("run", "hi", "--model", server.model, "--tool", "shop.py", cwd=str(shop))
    assert (done.code, done.out) == (0, "Ordered:\n\n\ttwo  \x1b lines\r\n…\n")
    assert "I order." in done.err
    assert "✓ order ordered 3" in done.err
    assert "a line on standard output\n" in done.err
    assert "a line of another program\n" in done.err
    assert "\x1b" not in done.err


def test_a_prompt_comes_from_standard_input() -> None:
    with Server(ScriptedModel([lambda request: request.input[0].text])) as server:  # type: ignore[union-attr]
        done = Piped("run", "-", "--model", server.model, given="zwei\nZeilen …\n".encode())
    assert (done.code, done.out) == (0, "zwei\nZeilen …\n")


def test_instructions_and_the_model_from_the_environment_are_sent() -> None:
    def answer(request: object) -> str:
        return str(getattr(request, "settings").instructions)  # noqa: B009

    with Server(ScriptedModel([answer])) as server:
        env = {"PERDURE_MODEL": server.model}
        done = Piped("run", "hi", "--instructions", "Be brief.", env=env)
    assert (done.code, done.out) == (0, "Be brief.\n")


def test_a_refusal_is_shown_and_is_no_answer() -> None:
    with Server(ScriptedModel([refusal("I will not.")])) as server:
        done = Piped("run", "hi", "--model", server.model)
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("I will not.\n")


def test_a_reader_that_leaves_ends_the_run_quietly() -> None:
    text = "word " * 3000
    with Server(ScriptedModel([text])) as server:
        command = [sys.executable, "-m", "perdure", "run", "hi", "--json", "-m", server.model]
        reading, writing = os.pipe()
        process = subprocess.Popen(
            command, stdout=writing, stderr=subprocess.PIPE, env=environment()
        )
        os.close(writing)
        os.read(reading, 10)
        os.close(reading)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (1, b"")


# --- how it ends -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code"),
    [("done", 0), ("failed", 1), ("stopped", 3), ("input_required", 4), ("aborted", 130)],
)
def test_each_status_has_its_exit_code(status: Status, code: int) -> None:
    assert exit_code(status) == code


def test_the_turn_limit_stops_with_3_and_says_how_to_go_on(shop: Path) -> None:
    script: list[TurnLike] = [call("stock", {"part": "nut-m8"})] * 5
    with Server(ScriptedModel(script)) as server:
        options = ("--model", server.model, "--tool", "shop.py", "--max-turns", "2")
        done = Piped("run", "hi", *options, cwd=str(shop))
    assert (done.code, done.out) == (3, "")
    assert done.err.endswith("■ stopped after 2 turns, the limit; --max-turns allows more\n")


def test_a_cut_answer_stops_with_3_and_is_no_answer() -> None:
    with Server(ScriptedModel([turn("The begin", incomplete="max_output_tokens")])) as server:
        done = Piped("run", "hi", "--model", server.model)
    assert (done.code, done.out) == (3, "")
    assert done.err == (
        "The begin\n\n■ stopped: the answer reached the model's token limit and is cut off\n"
    )


def test_a_stream_that_breaks_fails_with_1_and_keeps_what_came_on_the_screen() -> None:
    model = ScriptedModel([turn("The begin", error(Truncated()))])
    with Server(model) as server, Terminal("run", "hi", "--model", server.model) as screen:
        screen.ends(1)
        assert screen.text.startswith("The begin\n\nperdure: ")


def test_a_retry_is_told_with_its_reason() -> None:
    busy = Overloaded("no room now", status=503, retry_after=0.1)
    with Server(ScriptedModel([attempts(busy, "Fine.")])) as server:
        done = Piped("run", "hi", "--model", server.model)
    assert (done.code, done.out) == (0, "Fine.\n")
    again = "↻ trying again in 0.1 s: the server is overloaded (HTTP 503): no room now\n"
    assert done.err.startswith(again)


def test_ctrl_c_stops_the_answer_and_leaves_the_server() -> None:
    model = Halting(["The first words and the last."], at="words")
    with Server(model) as server, Terminal("run", "hi", "--model", server.model) as screen:
        screen.expect("The first")
        screen.interrupt()
        screen.ends(130)
        assert screen.lines[-2] == "■ interrupted"
        assert "Traceback" not in screen.text
        assert server.abandoned() == 1


def test_ctrl_c_says_which_calls_may_have_run(shop: Path) -> None:
    with Server(ScriptedModel([call("wait")])) as server:
        arguments = ("run", "hi", "--model", server.model, "--tool", "shop.py")
        with Terminal(*arguments, cwd=str(shop)) as screen:
            screen.expect("waiting now")
            screen.interrupt()
            screen.ends(130)
            assert "■ wait was cut off; it may have run" in screen.lines
            assert screen.lines[-2] == "■ interrupted"


def test_a_second_ctrl_c_leaves_a_deaf_tool_behind(shop: Path) -> None:
    with Server(ScriptedModel([call("deaf")])) as server:
        arguments = ("run", "hi", "--model", server.model, "--tool", "shop.py")
        with Terminal(*arguments, cwd=str(shop)) as screen:
            screen.expect("waiting now")
            screen.interrupt()
            screen.expect("Ctrl-C again leaves at once")
            screen.interrupt()
            screen.ends(130)
            assert "interrupted" not in screen.text
