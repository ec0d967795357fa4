"""The commands and their options. What they do is in modules of their own, loaded when called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import click

from perdure.cli.approvals import COMMANDS
from perdure.cli.chaos import chaos
from perdure.cli.log import log
from perdure.cli.models import models
from perdure.cli.runs import runs
from perdure.cli.store_commands import LOG_COMMANDS, doctor

EXIT_CODES = """\b
Exit codes:
  0    done
  1    the run failed
  2    cannot begin: used wrongly, no key, an unknown model, a bad tool file
  3    stopped: by a limit, a guard, a filter or a tool
  4    input required: calls wait for an answer
  130  interrupted
"""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="perdure")
def cli() -> None:
    """An agent runtime for work that must not go wrong twice."""


def _agent_options(command: Callable[..., int]) -> Callable[..., int]:
    """The options that `run` and `chat` share."""
    for option in (
        click.option(
            "--max-turns",
            type=click.IntRange(min=1),
            metavar="N",
            help="Stop after N model calls; 50 unless given.",
        ),
        click.option("--instructions", "-i", default="", metavar="TEXT", help="Say this first."),
        click.option(
            "--tool",
            "-t",
            "tools",
            multiple=True,
            metavar="FILE[:NAME]",
            help="A Python file whose tools the model may call, or one of them. May be repeated.",
        ),
        click.option(
            "--model",
            "-m",
            envvar="PERDURE_MODEL",
            show_envvar=True,
            metavar="PROVIDER:MODEL",
            help="Who answers, as openai:gpt-5-mini.",
        ),
    ):
        command = option(command)
    return command


@cli.command(epilog=EXIT_CODES)
@click.argument("prompt")
@_agent_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, for programs.")
def run(
    *,
    prompt: str,
    model: str | None,
    tools: tuple[str, ...],
    instructions: str,
    max_turns: int | None,
    as_json: bool,
) -> int:
    """Run PROMPT and print the answer; `-` reads it from standard input.

    Standard output gets the answer alone. What the tools do, and what goes wrong, is on standard
    error.
    """
    from perdure.cli.options import Options
    from perdure.cli.run import run_command

    options = Options(model, tools, instructions, max_turns)
    return run_command(prompt, options, as_json=as_json)


@cli.command()
@_agent_options
def chat(
    *, model: str | None, tools: tuple[str, ...], instructions: str, max_turns: int | None
) -> int:
    """Talk with a model in the terminal. /help there lists the commands."""
    from perdure.cli.chat import chat_command
    from perdure.cli.options import Options

    return chat_command(Options(model, tools, instructions, max_turns))


@cli.command()
def demo() -> None:
    """Kill a process in the middle of a payment, and see it paid once. Needs no key, no network."""
    from perdure.cli.demo import run_demo

    asyncio.run(run_demo())


for _command in LOG_COMMANDS:
    log.add_command(_command)
cli.add_command(log)
cli.add_command(models)
cli.add_command(runs)
cli.add_command(doctor)
cli.add_command(chaos)
for _command in COMMANDS:
    cli.add_command(_command)
