"""`perdure chat`: a conversation in a terminal, or over the lines of a pipe.

The event loop runs while an answer does, and rests while the prompt waits for a line: so the
terminal's own line editing works, and Ctrl-C at the prompt is an ordinary KeyboardInterrupt.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO, cast

from rich.console import Console
from rich.text import Text

from perdure.agent import Agent
from perdure.cli.interrupts import stopped_by_ctrl_c
from perdure.cli.options import Options, agent_of, check_model
from perdure.cli.page import Page, voice_for
from perdure.cli.problems import problem_of, show_problem
from perdure.cli.render import Renderer
from perdure.cli.terminal import answer_stream, lines_typed
from perdure.cli.text import one_line, visible
from perdure.errors import PerdureError
from perdure.loop import PendingCall
from perdure.loop.answers import OUTCOME_UNKNOWN
from perdure.session import Session
from perdure.tools import effect_of, traits
from perdure.wire import FunctionCallOutput, Item, function_call_output, user

PROMPT = "> "

NOT_RUN = "Error: this call was not run."

WAITING = "waiting for what still runs"

HELP = """\
/model NAME  go on with another model; alone it says which one answers
/tools       list the tools
/reset       forget the conversation
/exit        leave; so does Ctrl-D, and Ctrl-C at an empty prompt
/help        show this

Ctrl-C while an answer runs stops the answer. What you type meanwhile, the
model reads before its next turn; a command waits for the end of the answer.
A line with a space before its / is no command."""


def chat_command(options: Options) -> int:
    """Talk until the person leaves.

    Returns:
        The exit code.
    """
    console = Console(stderr=True)
    with answer_stream() as out, asyncio.Runner() as runner:
        try:
            agent = agent_of(options)
            runner.run(check_model(str(agent.model)))
        except PerdureError as error:
            problem = problem_of(error, options.model or "")
            show_problem(console, problem)
            return problem.code
        _Chat(agent, console, out, runner).talk()
    return 0


class _Chat:
    """One conversation."""

    def __init__(self, agent: Agent, console: Console, out: TextIO, runner: asyncio.Runner) -> None:
        self._session = Session(agent)
        self._console = console
        self._out = out
        self._runner = runner
        self._commands: deque[str] = deque()  # typed while an answer ran
        self._at_terminal = sys.stdin.isatty()
        cast("io.TextIOWrapper", sys.stdin).reconfigure(errors="replace")

    def talk(self) -> None:
        """Take lines until there are no more."""
        if self._at_terminal:
            self._greet()
        while (line := self._commands.popleft() if self._commands else self._read()) is not None:
            if not line.startswith("/"):
                self._answer(line.strip())
            elif line.split()[0] in ("/exit", "/quit"):
                return
            else:
                self._obey(*line.split(maxsplit=1))

    def _greet(self) -> None:
        with suppress(ImportError):
            import readline  # noqa: F401  # pyright: ignore[reportUnusedImport] - for input()
        tools = len(self._session.agent.tools)
        with_tools = f" with {tools} tool{'' if tools == 1 else 's'}" if tools else ""
        self._note(f"{self._model}{with_tools}. /help lists the commands, Ctrl-D leaves.")
        self._console.print()

    @property
    def _model(self) -> str:
        return str(self._session.agent.model)

    # --- lines -------------------------------------------------------------------------

    def _read(self) -> str | None:
        """The next line that says something; None when the person leaves."""
        while True:
            try:
                line = input(PROMPT if self._at_terminal else "").rstrip()
            except EOFError:
                self._end_line()
                return None
            except KeyboardInterrupt:
                self._end_line()
                if self._at_terminal and _unfinished_line():
                    continue
                return None
            if line:
                return line

    def _end_line(self) -> None:
        if self._at_terminal:
            self._console.print()

    def _note(self, text: str) -> None:
        self._console.print(Text(visible(text), "dim"), highlight=False)

    # --- answers -----------------------------------------------------------------------

    def _answer(self, line: str) -> None:
        """Say a line, and show what comes of it and of what is typed meanwhile."""
        settled = [_settled(one) for one in self._session.state.pending]
        try:
            done = self._runner.run(self._stream([*settled, user(line)]))
            while done and self._session.state.steering:
                done = self._runner.run(self._stream([]))
        except KeyboardInterrupt:  # it came before the answer could hear it
            self._note("interrupted")
        self._end_line()

    async def _stream(self, items: Sequence[Item]) -> bool:
        """Show one answer. Says whether it came to its end."""
        page = Page(self._console)
        renderer = Renderer(page, voice_for(page, self._out), footer=False)

        def heard(line: str) -> None:
            renderer.heard(line)
            if line.startswith("/"):
                self._commands.append(line)
            else:
                self._session.steer(line.strip())

        try:
            async with self._session.stream(items) as stream:
                with stopped_by_ctrl_c(stream, page, WAITING), lines_typed(heard):
                    async for event in stream.events():
                        renderer.show(event)
                result = await stream.result()
        except PerdureError as error:
            page.begin_problem()
            show_problem(self._console, problem_of(error, self._model))
            return False
        return result.status == "done"

    # --- commands ----------------------------------------------------------------------

    def _obey(self, command: str, rest: str = "") -> None:
        match command:
            case "/help":
                self._note(HELP)
            case "/tools":
                self._list_tools()
            case "/reset":
                self._session.set_transcript(())
                self._note("The conversation is forgotten.")
            case "/model" if rest:
                self._change_model(rest.strip())
            case "/model":
                self._note(self._model)
            case _:
                self._note(f"There is no {command}; /help lists the commands.")
        self._end_line()

    def _change_model(self, model: str) -> None:
        try:
            agent = self._session.agent.with_(model=model)
            self._runner.run(check_model(model))
        except PerdureError as error:
            show_problem(self._console, problem_of(error, model))
            return
        self._session.use(agent)
        self._note(f"{model} answers from now on.")

    def _list_tools(self) -> None:
        tools = self._runner.run(self._session.agent.tools_now())
        for tool in tools:
            effect = traits(tool).effect
            shown = effect if isinstance(effect, str) else "effect by arguments"
            about = f"{tool.name} ({shown}) {one_line(tool.description)}"
            self._console.print(Text(about), highlight=False)
        if not tools:
            self._note("There are none; start the chat with --tool FILE.")


def _unfinished_line() -> bool:
    """Whether the line that Ctrl-C ended had something on it."""
    readline = sys.modules.get("readline")
    return readline is not None and bool(readline.get_line_buffer().strip())


def _settled(pending: PendingCall) -> FunctionCallOutput:
    """The output of a call that an interrupted answer left without one.

    One that may have changed the world is told as such: it is not to be asked for again unchecked.
    """
    call = pending.call
    if pending.ran is not None:
        return pending.ran
    if pending.refused:
        return function_call_output(call.call_id, pending.refused)
    arguments = pending.arguments or call.arguments
    harmless = pending.tool is not None and effect_of(pending.tool, arguments) == "none"
    unknown = pending.may_have_run and not harmless
    return function_call_output(call.call_id, OUTCOME_UNKNOWN if unknown else NOT_RUN)
