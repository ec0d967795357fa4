"""What goes wrong is told in a line or two that say what to do, and ends with its exit code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from perdure.cli.problems import problem_of
from perdure.errors import (
    BadBody,
    ConfigError,
    ContextTooLong,
    ModelTimeout,
    NotFound,
    PerdureError,
    QuotaExhausted,
    RateLimited,
    RunFailed,
    ServerFailed,
    Transport,
    Truncated,
    rejection,
)
from perdure.testing import ScriptedModel, error, turn
from tests.cli.terminal import Piped, Server, Terminal

WRONG_KEY = rejection(
    "Incorrect API key provided.", status=401, type="invalid_request_error", code="invalid_api_key"
)


@pytest.mark.parametrize(
    ("env", "advice"),
    [({"OPENRESPONSES_API_KEY": "sk-wrong"}, "check"), ({}, "set")],
)
def test_a_wrong_key_shows_the_servers_message_and_the_variable(
    env: Mapping[str, str], advice: str
) -> None:
    with (
        Server(ScriptedModel([WRONG_KEY])) as server,
        Terminal("run", "hi", "--model", server.model, env=env) as screen,
    ):
        screen.ends(1)
        assert screen.text == (
            "perdure: the server refused the key (HTTP 401): Incorrect API key provided.\n"
            f"  {advice} OPENRESPONSES_API_KEY\n"
        )


def test_a_missing_key_names_the_variable() -> None:
    with Terminal("run", "hi", "--model", "openai:gpt-5-mini") as screen:
        screen.ends(2)
        assert screen.text == "perdure: no API key for 'openai': set OPENAI_API_KEY\n"


def test_an_unknown_model_names_the_known_ones() -> None:
    with Terminal("run", "hi", "--model", "nobody:x") as screen:
        screen.ends(2)
        said = " ".join(screen.text.split())
        assert said.startswith("perdure: no model adapter for 'nobody:x'; write PROVIDER:MODEL;")
        assert "openai," in said
        assert said.endswith("for example: --model openai:gpt-5-mini")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "hi"], "perdure: no model is named\n  give --model PROVIDER:MODEL"),
        (["chat"], "perdure: no model is named\n"),
        (["run", "hi", "-m", "openai:"], "perdure: no model adapter for 'openai:'"),
        (["run", "", "-m", "openai:x"], "perdure: there is no prompt: it is empty\n"),
        (["run"], "perdure run: Missing argument 'PROMPT'.\n  see: perdure run --help\n"),
        (["run", "hi", "--max-turns", "0"], "perdure run: Invalid value for '--max-turns'"),
        (["run", "hi", "--nonsense"], "perdure run: No such option"),
        (["nonsense"], "perdure: No such command 'nonsense'.\n  see: perdure --help\n"),
        (["run", "hi", "-m", "openai:x", "--tool", "no.py"], "perdure: there is no file 'no.py'\n"),
        (["chat", "-m", "openai:x", "--tool", "no.py"], "perdure: there is no file 'no.py'\n"),
    ],
)
def test_a_command_that_cannot_begin_says_why_and_ends_with_2(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    done = Piped(*arguments, cwd=str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(says)
    assert len(done.err.splitlines()) <= 2


@pytest.mark.parametrize("given", [b"", b" \n"])
def test_an_empty_standard_input_is_no_prompt(given: bytes) -> None:
    done = Piped("run", "-", "-m", "openai:x", given=given)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("perdure: there is no prompt: standard input holds none\n")


def test_a_prompt_that_is_not_utf_8_is_refused() -> None:
    done = Piped("run", "-", "-m", "openai:x", given=b"caf\xe9")
    assert (done.code, done.out) == (2, "")
    assert done.err == "perdure: the prompt is not UTF-8: byte 3\n"


def test_a_server_that_is_not_there_is_told_with_its_address() -> None:
    model = "openresponses:http://127.0.0.1:1/v1#m"
    done = Piped("run", "hi", "-m", model)
    assert (done.code, done.out) == (1, "")
    *_, what, todo = done.err.splitlines()
    assert what.startswith("perdure: cannot connect to http://127.0.0.1:1/v1/responses: ")
    assert todo == f"  check the network and the address: {model}"


def test_what_a_server_says_cannot_steer_the_terminal() -> None:
    evil = rejection("\x1b]0;owned\x07 no \x9b31m", status=400, type="invalid_request")
    env = {"TERM": "dumb"}
    with (
        Server(ScriptedModel([evil])) as server,
        Terminal("run", "hi", "--model", server.model, env=env) as screen,
    ):
        screen.ends(1)
        assert not {"\x1b", "\x07", "\x9b"} & set(screen.raw)
        assert "␛]0;owned␇ no �31m" in screen.text


def test_a_server_that_breaks_in_the_middle_is_told_below_the_text() -> None:
    broken = turn("The begin", error(ServerFailed("out of luck", status=500)))
    with Server(ScriptedModel([broken])) as server:
        done = Piped("run", "hi", "--model", server.model)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("The begin\n\nperdure: the server failed: out of luck\n")


@pytest.mark.parametrize(
    ("failure", "what", "todo"),
    [
        (
            NotFound("no such model", status=404),
            "the server refused the request (HTTP 404): no such model",
            "check the model's name and address: openai:x",
        ),
        (
            QuotaExhausted("you have no credit", status=429),
            "the account has nothing left (HTTP 429): you have no credit",
            "add credit to the account, or use another key or model",
        ),
        (
            RateLimited("slow down", status=429, retry_after=7.2),
            "too many requests (HTTP 429): slow down",
            "try again in 7 s",
        ),
        (RateLimited("slow down"), "too many requests: slow down", "try again later"),
        (
            ContextTooLong("too long", status=400),
            "the input is too long for the model (HTTP 400): too long",
            "shorten the input, or use a model with a longer context",
        ),
        (Truncated(), str(Truncated()), "try again"),
        (
            ModelTimeout("idle", 3),
            str(ModelTimeout("idle", 3)),
            "try again; the server may be busy",
        ),
        (
            Transport("no route"),
            "no route",
            "check the network and the address: openai:x",
        ),
        (
            BadBody("not JSON"),
            "not JSON",
            "is this the address of an Open Responses server? openai:x",
        ),
        (PerdureError("something"), "something", ""),
        (KeyError("x"), "KeyError: 'x'", ""),
    ],
)
def test_each_failure_says_what_to_do(failure: Exception, what: str, todo: str) -> None:
    problem = problem_of(RunFailed(None, failure), "openai:x")
    assert problem == (what, todo, 1)


def test_a_definition_that_is_wrong_ends_with_2() -> None:
    assert problem_of(RunFailed(None, ConfigError("no"))) == ("no", "", 2)


def test_another_address_for_openai_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert problem_of(Transport("no route"), "openai:x").todo.endswith(
        "OPENAI_BASE_URL is http://127.0.0.1:9/v1"
    )
