"""`perdure run`: one prompt, one run, one answer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TextIO

from rich.console import Console

from perdure.agent import Agent
from perdure.cli.jsonlines import event_line, result_line
from perdure.cli.page import Page, voice_for
from perdure.cli.problems import Problem, Unusable, problem_of, show_problem
from perdure.cli.render import Renderer
from perdure.cli.setup import Options, agent_of
from perdure.cli.terminal import answer_stream, die_of_next_interrupt, on_interrupt, write_line
from perdure.errors import PerdureError, RunFailed
from perdure.loop import Event
from perdure.result import RunResult, Status
from perdure.stream import RunStream

_CODES: dict[Status, int] = {"done": 0, "stopped": 3, "input_required": 4, "aborted": 130}
"""The exit code of each status; a failure's depends on what failed."""


def run_command(prompt: str, options: Options, *, as_json: bool = False) -> int:
    """Run a prompt and show it.

    Args:
        prompt: What to say; `-` reads it from standard input.
        options: What to run.
        as_json: Print JSON lines instead.

    Returns:
        The exit code.
    """
    console = Console(stderr=True)
    with answer_stream() as out:
        try:
            said = _prompt(prompt)
            agent = agent_of(options)
            return asyncio.run(_run(agent, said, options.model or "", console, out, as_json))
        except PerdureError as error:
            problem = problem_of(error, options.model or "")
            show_problem(console, problem)
            return problem.code


def _prompt(given: str) -> str:
    raw = sys.stdin.buffer.read() if given == "-" else given.encode("utf-8", "surrogateescape")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unusable(f"the prompt is not UTF-8: byte {error.start}") from error
    if not text.strip():
        where = "standard input holds none" if given == "-" else "it is empty"
        raise Unusable(f"there is no prompt: {where}", "say what you want: perdure run 'PROMPT'")
    return text.rstrip("\n") if given == "-" else text


async def _run(
    agent: Agent, prompt: str, model: str, console: Console, out: TextIO, as_json: bool
) -> int:
    page = Page(console)
    show: Callable[[Event], None] = Renderer(page, voice_for(page, out)).show
    if as_json:
        show = lambda event: write_line(out, event_line(event))  # noqa: E731
    async with agent.stream(prompt) as stream:
        result, problem = await _watch(stream, show, model)
    code = problem.code if problem else _CODES.get(result.status, 1)
    if problem:
        show_problem(console, problem)
    if as_json:
        write_line(out, result_line(result, code, problem))
    return code


async def _watch(
    stream: RunStream, show: Callable[[Event], None], model: str
) -> tuple[RunResult[str], Problem | None]:
    """Show a run until it ends. Ctrl-C stops it, a second one the process."""

    def stop() -> None:
        die_of_next_interrupt()
        stream.abort("interrupted")

    with on_interrupt(stop):
        async for event in stream.events():
            show(event)
    try:
        return await stream.result(), None
    except RunFailed as error:
        return error.result, problem_of(error, model)
