"""`perdure chat`, as a person sees it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.cli.chat import NOT_RUN
from perdure.errors import AuthFailed
from perdure.loop import Model
from perdure.loop.answers import OUTCOME_UNKNOWN
from perdure.testing import ScriptedModel, attempts, call, turn
from perdure.testing.scripted import TurnLike
from perdure.wire import FunctionCallOutput, Message
from tests.cli.terminal import Halting, Piped, Server, Terminal


@contextmanager
def chat(model: Model, *options: str, cwd: Path | None = None) -> Iterator[tuple[Server, Terminal]]:
    """A chat that waits for its first line."""
    where = str(cwd) if cwd else None
    with (
        Server(model) as server,
        Terminal("chat", "--model", server.model, *options, cwd=where) as screen,
    ):
        screen.prompt()
        yield server, screen


def texts(server: Server, request: int = -1) -> list[str]:
    """What is said in a request, in order."""
    return [item.text for item in server.inputs()[request] if isinstance(item, Message)]


def test_a_conversation_keeps_what_was_said() -> None:
    with chat(ScriptedModel(["Hello you.", "Fine, thanks."])) as (server, screen):
        screen.type("hi\r")
        assert screen.prompt() == "hi\nHello you.\n"
        screen.type("how are you?\r")
        assert screen.prompt() == "how are you?\nFine, thanks.\n"
        assert texts(server) == ["hi", "Hello you.", "how are you?"]
        screen.end()
        screen.ends(0)


def test_the_first_line_says_who_answers_and_how_to_leave() -> None:
    with chat(ScriptedModel([])) as (server, screen):
        first = " ".join(screen.text.split())
        assert first.startswith(f"{server.model}. /help lists the commands, Ctrl-D leaves.")


def test_an_answer_streams_and_tool_calls_are_shown_as_they_run(shop: Path) -> None:
    script: list[TurnLike] = [
        turn("Let me look.", call("stock", {"part": "bolt-m8"})),
        "We have 120 of them.",
    ]
    model = Halting(script, at="have")
    with chat(model, "--tool", "shop.py", cwd=shop) as (_, screen):
        screen.type("stock?\r")
        screen.expect('Let me look.\n\n▶ stock {"part":"bolt-m8"}\n✓ stock 120\n\nWe')
        assert "them" not in screen.text
        model.go.set()
        screen.expect(" have 120 of them.\n")
        screen.prompt()


def test_ctrl_c_stops_the_answer_and_keeps_the_conversation() -> None:
    script: list[TurnLike] = [attempts("The first words and the last.", "Something else.")]
    with chat(Halting(script, at="words")) as (server, screen):
        screen.type("hi\r")
        screen.expect("The first")
        screen.interrupt()
        screen.expect("■ interrupted\n")
        screen.prompt()
        assert server.abandoned() == 1
        screen.type("again\r")
        screen.expect("Something else.\n")
        screen.prompt()
        assert texts(server) == ["hi", "again"]
        screen.interrupt()
        screen.ends(0)


def test_ctrl_c_at_the_prompt_leaves() -> None:
    with chat(ScriptedModel([])) as (_, screen):
        screen.interrupt()
        screen.ends(0)
        assert "Traceback" not in screen.text


def test_ctrl_c_drops_a_line_that_is_not_finished() -> None:
    with chat(ScriptedModel(["Yes?"])) as (server, screen):
        screen.type("never said")
        screen.expect("never said")
        screen.interrupt()
        screen.prompt()
        screen.type("hi\r")
        screen.expect("Yes?")
        screen.prompt()
        assert texts(server) == ["hi"]


def test_a_call_that_ctrl_c_cut_off_is_told_to_the_model_as_unknown(shop: Path) -> None:
    script: list[TurnLike] = [call("wait"), "I see."]
    with chat(ScriptedModel(script), "--tool", "shop.py", cwd=shop) as (server, screen):
        screen.type("wait\r")
        screen.expect("waiting now")
        screen.interrupt()
        screen.expect("■ wait was cut off; it may have run\n■ interrupted\n")
        screen.prompt()
        screen.type("and now?\r")
        screen.expect("I see.")
        output = server.inputs()[-1][2]
        assert isinstance(output, FunctionCallOutput)
        assert output.text == OUTCOME_UNKNOWN


def test_what_is_typed_while_an_answer_runs_is_read_next() -> None:
    model = Halting(["The first words and the last.", "That too."], at="words")
    with chat(model) as (server, screen):
        screen.type("hi\r")
        screen.expect("The first")
        screen.type("and this\r")
        screen.hidden()
        model.go.set()
        screen.expect("words and the last.\n\n» and this\n\nThat too.\n")
        screen.prompt()
        assert texts(server) == ["hi", "The first words and the last.", "and this"]


def test_what_is_typed_while_a_tool_runs_is_read_with_its_output(shop: Path) -> None:
    script: list[TurnLike] = [call("wait_for_go"), "I see."]
    (shop / "go.py").write_text(
        "import asyncio, pathlib\n"
        "from perdure import tool\n"
        "@tool(effect='none')\n"
        "async def wait_for_go() -> str:\n"
        "    print('waiting now')\n"
        "    while not pathlib.Path('go').exists():\n"
        "        await asyncio.sleep(0.01)\n"
        "    return 'gone'\n"
    )
    with chat(ScriptedModel(script), "--tool", "go.py", cwd=shop) as (server, screen):
        screen.type("wait\r")
        screen.expect("waiting now")
        screen.type("hurry up\r")
        screen.expect("» hurry up\n")
        (shop / "go").touch()
        screen.expect("I see.")
        screen.prompt()
        assert texts(server) == ["wait", "hurry up"]


def test_a_command_typed_while_an_answer_runs_waits_for_its_end() -> None:
    model = Halting(["The first words and the last."], at="words")
    with chat(model) as (server, screen):
        screen.type("hi\r")
        screen.expect("The first")
        screen.hidden()
        screen.type("/model\r/exit\r")
        model.go.set()
        screen.expect(" words and the last.\n")
        screen.expect(server.model)
        screen.ends(0)
        assert len(server.server.received) == 1


def test_a_call_without_effect_that_ctrl_c_cut_off_was_not_run(shop: Path) -> None:
    script: list[TurnLike] = [call("nap"), "I see."]
    with chat(ScriptedModel(script), "--tool", "shop.py", cwd=shop) as (server, screen):
        screen.type("nap\r")
        screen.expect("waiting now")
        screen.interrupt()
        screen.expect("interrupted\n")
        screen.prompt()
        screen.type("and now?\r")
        screen.expect("I see.")
        output = server.inputs()[-1][2]
        assert isinstance(output, FunctionCallOutput)
        assert output.text == NOT_RUN


def test_an_unfinished_line_typed_while_an_answer_runs_stands_at_the_prompt() -> None:
    model = Halting(["The first words.", "Hello."], at="first")
    with chat(model) as (server, screen):
        screen.type("hi\r")
        screen.expect("The")
        screen.hidden()
        screen.type("hel")
        model.go.set()
        screen.expect("first words.\n")
        screen.prompt()
        screen.type("lo\r")
        screen.expect("Hello.")
        assert texts(server)[-1] == "hello"


def test_a_failed_turn_shows_the_error_and_the_conversation_goes_on() -> None:
    refused = AuthFailed("Incorrect API key.", status=401, code="invalid_api_key")
    with chat(ScriptedModel([attempts(refused, "Now it works.")])) as (server, screen):
        screen.type("hi\r")
        screen.expect("perdure: the server refused the key (HTTP 401): Incorrect API key.\n")
        screen.expect("  set OPENRESPONSES_API_KEY\n")
        screen.prompt()
        screen.type("again\r")
        screen.expect("Now it works.\n")
        screen.prompt()
        assert texts(server) == ["hi", "again"]
        assert "Traceback" not in screen.text


def test_reset_forgets_the_conversation() -> None:
    with chat(ScriptedModel(["Hello you."])) as (server, screen):
        for _ in range(2):
            screen.type("hi\r")
            screen.expect("Hello you.\n")
            screen.prompt()
            screen.type("/reset\r")
            screen.prompt()
        assert texts(server) == ["hi"]


def test_another_model_goes_on_with_the_conversation() -> None:
    with (
        Server(ScriptedModel([], after=1)) as unused,
        Server(ScriptedModel(["From the other."], after=1)) as other,
        chat(ScriptedModel(["From the first."])) as (_, screen),
    ):
        screen.type("hi\r")
        screen.expect("From the first.\n")
        screen.prompt()
        screen.type("/model nobody:x\r")
        screen.expect("perdure: no model adapter for 'nobody:x'")
        screen.prompt()
        screen.type("/model openai:gpt-5-mini\r")
        screen.expect("set OPENAI_API_KEY")
        screen.prompt()
        screen.type(f"/model {other.model}\r")
        screen.expect("answers from now on.\n")
        screen.prompt()
        screen.type("and you?\r")
        screen.expect("From the other.\n")
        assert texts(other) == ["hi", "From the first.", "and you?"]
        assert not unused.server.received


def test_tools_lists_the_tools_with_their_effects(shop: Path) -> None:
    with chat(ScriptedModel([]), "--tool", "shop.py", cwd=shop) as (_, screen):
        screen.type("/tools\r")
        said = screen.prompt()
        assert "\norder (once) Order pieces of a part.\n" in said
        assert "\nstock (none) How many pieces of a part are in stock.\n" in said


@pytest.mark.parametrize("line", ["/help", "/model", "/tools", "/nonsense", "/"])
def test_commands_are_not_said(line: str) -> None:
    with chat(ScriptedModel([])) as (server, screen):
        screen.type(f"{line}\r")
        assert len(screen.prompt().splitlines()) >= 2
        assert not server.server.received


def test_a_space_before_a_slash_sends_the_line() -> None:
    with chat(ScriptedModel(["A path."])) as (server, screen):
        screen.type(" /etc/hosts is what?\r")
        screen.expect("A path.\n")
        assert texts(server) == ["/etc/hosts is what?"]


def test_exit_leaves() -> None:
    with chat(ScriptedModel([])) as (_, screen):
        screen.type("/exit\r")
        screen.ends(0)


def test_the_terminal_is_left_as_it_was() -> None:
    with chat(Halting(["The first words."], at="words")) as (_, screen):
        screen.type("hi\r")
        screen.expect("The first")
        screen.hidden()
        screen.interrupt()
        screen.expect("interrupted")
        screen.prompt()
        screen.type("/exit\r")
        screen.ends(0)
        assert screen.echoes()


def test_lines_of_a_pipe_are_a_conversation() -> None:
    with Server(ScriptedModel(["One.", "Two."])) as server:
        done = Piped("chat", "--model", server.model, given=b"first\n\nsecond\n")
        assert (done.code, done.out, done.err) == (0, "One.\nTwo.\n", "")
        assert texts(server) == ["first", "One.", "second"]


def test_a_chat_that_cannot_begin_says_so_at_once() -> None:
    with Terminal("chat", "--model", "openai:gpt-5-mini") as screen:
        screen.ends(2)
        assert screen.text == "perdure: no API key for 'openai': set OPENAI_API_KEY\n"
