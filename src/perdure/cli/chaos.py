"""`perdure chaos`: an agent's run, the process of which dies at every write.

It exits with 0, with 1 if a rule was broken, and with 2 if it cannot begin.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import click

from perdure.cli.given import Unusable, json_value
from perdure.cli.text import one_line
from perdure.errors import ConfigError


@click.command()
@click.argument("agent", metavar="MODULE:AGENT")
@click.option("--input", "-i", "said", default="Go.", show_default=True, help="What a run is told.")
@click.option(
    "--store",
    "-s",
    "url",
    default="",
    metavar="URL",
    help="Where runs are recorded; a SQLite file that is gone afterwards, unless given.",
)
@click.option("--saga", is_flag=True, help="Its runs are all or nothing.")
@click.option(
    "--signal",
    "signals",
    multiple=True,
    metavar="NAME=JSON",
    help="A signal that runs get which wait for it. May be repeated.",
)
@click.option(
    "--answer",
    "answers",
    multiple=True,
    metavar="KEY=JSON",
    help="What a question is answered with. May be repeated.",
)
@click.option(
    "--message",
    "messages",
    multiple=True,
    metavar="CHANNEL=JSON",
    help="A message that runs get which receive from the channel. May be repeated.",
)
@click.option("--kill", is_flag=True, help="Kill real processes, with SIGKILL.")
@click.option(
    "--times",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many processes of a run die, one after the other.",
)
@click.option(
    "--every",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Take every Nth write alone.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=min(os.cpu_count() or 1, 4),
    help="How many runs at once, with --kill.",
)
def chaos(
    *,
    agent: str,
    said: str,
    saga: bool,
    url: str,
    signals: tuple[str, ...],
    answers: tuple[str, ...],
    messages: tuple[str, ...],
    kill: bool,
    times: int,
    every: int,
    workers: int,
) -> int:
    """Run an agent against a crash at every write, and report what it survived.

    MODULE:AGENT names the agent, or a function that makes it. Its tools really run, and its model
    is really asked: give it fakes. For each write of a run, before it and after it, a fresh run's
    process dies; the next process takes the run up, says of calls that may have run what really
    happened, and goes on until the run ends.

    Time that a run waits for passes at once. A run that waits for a signal, a message or an answer
    gets what the options give; without one it stays suspended, and the report says what for.
    """
    from perdure.testing.chaos import run_chaos

    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109 - a path as sys.path has them
        sys.path.insert(0, here)
    try:
        report = run_chaos(
            agent,
            said,
            saga=saga,
            signals=dict(_pairs(signals, "--signal")),
            answers=dict(_pairs(answers, "--answer")),
            messages=_channels(messages),
            store=url,
            kill=kill,
            times=times,
            every=every,
            workers=workers,
        )
    except ConfigError as error:
        raise Unusable(one_line(str(error))) from error
    click.echo(str(report))
    return 0 if report.ok else 1


def _pairs(given: tuple[str, ...], option: str) -> Iterator[tuple[str, object]]:
    """The names and the values of an option that may be repeated.

    Raises:
        Unusable: One is no NAME=JSON.
    """
    for one in given:
        name, equals, text = one.partition("=")
        if not name or not equals:
            raise Unusable(f"{option} {one!r} is no NAME=JSON")
        yield name, json_value(text, f"what {option} {name} gives")


def _channels(given: tuple[str, ...]) -> dict[str, list[object]]:
    """The messages of each channel, in order. Raises as `_pairs`."""
    found: dict[str, list[object]] = {}
    for channel, value in _pairs(given, "--message"):
        found.setdefault(channel, []).append(value)
    return found
