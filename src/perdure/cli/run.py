"""`perdure run`: one prompt, one run, one answer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TextIO, cast

from rich.console import Console

from perdure.agent import Agent
from perdure.cli.interrupts import die_of_next_interrupt, stopped_by_ctrl_c
from perdure.cli.jsonlines import event_line, result_line
from perdure.cli.options import Options, agent_of
from perdure.cli.page import Page, voice_for
from perdure.cli.problems import FAILED, Unusable, problem_of, show_problem
from perdure.cli.render import Renderer
from perdure.cli.terminal import answer_stream, write_line
from perdure.errors import PerdureError, RunFailed
from perdure.loop import Event
from perdure.result import RunResult, Status
from perdure.stream import RunStream

_CODES: dict[Status, int] = {"done": 0, "stopped": 3, "input_required": 4, "aborted": 130}


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
            return asyncio.run(_run(agent, said, console=console, out=out, as_json=as_json))
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


async def _run(agent: Agent, prompt: str, *, console: Console, out: TextIO, as_json: bool) -> int:
    page = Page(console)
    show = _json_to(out) if as_json else Renderer(page, voice_for(page, out)).show
    async with agent.stream(prompt) as stream:
        result, error = await _watch(stream, show, page)
    problem = problem_of(error, str(agent.model)) if error else None
    if problem:
        page.begin_problem()
        show_problem(console, problem)
    code = problem.code if problem else exit_code(result.status)
    if as_json:
        write_line(out, result_line(result, code, problem))
    return code


def exit_code(status: Status) -> int:
    """The exit code of a run that ended in this status; what failed may know better."""
    return _CODES.get(status, FAILED)


def _json_to(out: TextIO) -> Callable[[Event], None]:
    return lambda event: write_line(out, event_line(event))


async def _watch(
    stream: RunStream, show: Callable[[Event], None], page: Page
) -> tuple[RunResult[str], BaseException | None]:
    """Show a run until it ends. Ctrl-C stops it; a second one ends the process."""
    says = "waiting for what still runs; Ctrl-C again leaves at once"
    with stopped_by_ctrl_c(stream, page, says, then=die_of_next_interrupt):
        async for event in stream.events():
            show(event)
    try:
        return await stream.result(), None
    except RunFailed as error:  # pyright: ignore[reportUnknownVariableType] - of what, says nobody
        failed = cast("RunFailed[RunResult[str]]", error)
        return failed.result, failed.cause
