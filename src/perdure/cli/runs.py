"""`perdure runs`: looking at runs by id, and telling them something, from any process."""

from __future__ import annotations

import asyncio
import getpass
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from perdure.cli.given import Unusable, existing_store, json_value, status_option
from perdure.cli.text import one_line

if TYPE_CHECKING:
    from perdure.log.store import Store
    from perdure.runs import Runs

T = TypeVar("T")

EXIT_CODES = """\b
Exit codes:
  0    done: shown, or told
  1    the run refuses: it is over, the call does not wait for that,
       somebody said otherwise, it may still be running
  2    cannot begin: used wrongly, no such run, a store that fails
  130  interrupted
"""


class Refused(click.ClickException):
    """The run refuses; nothing was written."""

    exit_code = 1


class Desk(NamedTuple):
    """Where an operator looks, and speaks from."""

    runs: Runs
    store: Store


@click.group()
def runs() -> None:
    """Look at runs by id, and tell them something.

    What a run is told waits in its inbox until it is driven next: by whoever drives it, or by the
    next process that runs it under its id.
    """


def store_option(command: Callable[..., T]) -> Callable[..., T]:
    """The option that names the store."""
    return click.option(
        "--store",
        "-s",
        "url",
        envvar="PERDURE_STORE",
        show_envvar=True,
        required=True,
        metavar="URL",
        help="Where the runs are, as sqlite:///runs.db.",
    )(command)


def saying(command: Callable[..., T]) -> Callable[..., T]:
    """The options of whoever tells a run something."""
    for option in (
        click.option("--by", metavar="NAME", help="Who says so; your login name unless given."),
        click.option("--reason", default="", metavar="TEXT", help="Why, for the record."),
    ):
        command = option(command)
    return store_option(command)


def session_option(command: Callable[..., T]) -> Callable[..., T]:
    """The option that names a sub-agent's session."""
    return click.option(
        "--session", default="", metavar="ID", help="For a call of a sub-agent: its session."
    )(command)


# --- looking -----------------------------------------------------------------------------------


@runs.command("ls", epilog=EXIT_CODES)
@store_option
@status_option("those that stand so")
@click.option("--agent", default="", metavar="NAME", help="Only those of this agent or program.")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="At most so many; all unless given."
)
@click.option("--spend", is_flag=True, help="Say what each has spent, in tokens and dollars.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def ls(
    *,
    url: str,
    status: tuple[str, ...],
    agent: str,
    limit: int | None,
    spend: bool,
    as_json: bool,
) -> int:
    """List runs and how they stand, oldest first."""

    async def listed(desk: Desk) -> int:
        from perdure.cli.runs_shown import print_list

        alone = status[0] if len(status) == 1 else ""
        found = desk.runs.each(status=alone, agent=agent, spend=spend)
        wanted = (one async for one in found if not status or one.status in status)
        return await print_list(wanted, limit, as_json=as_json)

    return with_runs(url, listed)


@runs.command(epilog=EXIT_CODES)
@click.argument("run")
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(*, run: str, url: str, as_json: bool) -> int:
    """Show how a run stands, what it waits for since when, and what happened."""

    async def shown(desk: Desk) -> int:
        from perdure.cli.runs_seen import look_at
        from perdure.cli.runs_shown import print_run, run_json

        seen = await look_at(desk.store, run)
        if as_json:
            _print_line(run_json(seen))
        else:
            print_run(seen)
        return 0

    return with_runs(url, shown)


@runs.command(epilog=EXIT_CODES)
@click.argument("run")
@store_option
@click.option(
    "--since", type=click.IntRange(min=0), default=0, metavar="N", help="Leave out N entries."
)
@click.option("--json", "as_json", is_flag=True, help="Print the entries as they are recorded.")
def tail(*, run: str, url: str, since: int, as_json: bool) -> int:
    """Show what happens in a run as it happens, until it is over."""

    async def followed(desk: Desk) -> int:
        from perdure.cli.runs_shown import Printer
        from perdure.log.header import PROGRAM

        printer = Printer(program=(await desk.runs.get(run)).kind == PROGRAM)
        async for entry in desk.runs.tail(run, since=since):
            if as_json:
                _print_line(entry.line)
            else:
                printer.show(entry)
        return 0

    return with_runs(url, followed)


# --- telling -----------------------------------------------------------------------------------


@runs.command(epilog=EXIT_CODES)
@click.argument("run")
@click.argument("call")
@saying
@session_option
@click.option("--arguments", metavar="JSON", help="Run it with these instead of its own.")
@click.option("--note", default="", metavar="TEXT", help="What the model is told with it.")
def approve(
    *,
    run: str,
    call: str,
    url: str,
    by: str | None,
    reason: str,
    session: str,
    arguments: str | None,
    note: str,
) -> int:
    """Let the held CALL of RUN run."""

    async def told(desk: Desk) -> int:
        from perdure.cli.votes import ballot_before, vote_words

        name = who(by)
        ballot = await ballot_before(desk, run, call, session)
        await desk.runs.approve(
            run,
            call,
            by=name,
            session=session,
            arguments=arguments,
            note=note,
            reason=reason,
        )
        said = await vote_words(desk, ballot, run, call, name, approves=True, signed=False)
        return say(said)

    return with_runs(url, told)


@runs.command(epilog=EXIT_CODES)
@click.argument("run")
@click.argument("call")
@saying
@session_option
@click.option("--note", default="", metavar="TEXT", help="What the model is told with it.")
def deny(
    *, run: str, call: str, url: str, by: str | None, reason: str, session: str, note: str
) -> int:
    """Refuse the held CALL of RUN; the model reads the reason, and the run goes on."""

    async def told(desk: Desk) -> int:
        from perdure.cli.votes import ballot_before, vote_words

        name = who(by)
        ballot = await ballot_before(desk, run, call, session)
        await desk.runs.deny(run, call, by=name, session=session, note=note, reason=reason)
        said = await vote_words(desk, ballot, run, call, name, approves=False, signed=False)
        return say(said)

    return with_runs(url, told)


@runs.command(epilog=EXIT_CODES)
@click.argument("run")
@click.argument("call")
@saying
@session_option
@click.option("--output", metavar="TEXT", help="What its tool gave; `-` reads standard input.")
@click.option("--never-ran", is_flag=True, help="Its tool was never entered, so it is run again.")
@click.option("--failed", metavar="WHY", help="Its tool failed, and did nothing.")
@click.option("--compensated", is_flag=True, help="Of a saga: it was undone by hand.")
@click.option("--left", is_flag=True, help="Of a saga: it is not undone, and stays as it is.")
@click.option("--step", default="", metavar="NAME", help="The step of the call that halted.")
@click.option("--value", metavar="JSON", help="With --step: what the step gave.")
@click.option("--evidence", metavar="JSON", help="What the word rests on.")
@click.option(
    "--min-age",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="With --never-ran: after how long its tool has ended for certain. A tool with a timeout "
    "needs no word.",
)
def resolve(
    *,
    run: str,
    call: str,
    url: str,
    by: str | None,
    reason: str,
    session: str,
    output: str | None,
    failed: str | None,
    compensated: bool,
    left: bool,
    step: str,
    value: str | None,
    never_ran: bool,
    evidence: str | None,
    min_age: float | None,
) -> int:
    """Say what came of the halted CALL of RUN: its output, why it failed, or that it never ran.

    Where the rollback of a saga stops at it: that it is --compensated, or --left. With --step, the
    same of one step of the call: its --value, or that it never ran. A step of a program is one of
    the empty CALL: ''.
    """
    gave = (value if step else output) is not None
    said = gave + (failed is not None) + never_ran + compensated + left
    if said != 1 or (value is not None and not step):
        option = "--value JSON" if step else "--output TEXT, --failed WHY"
        raise Unusable(f"say what it gave with {option}, or --never-ran")
    basis, result = json_value(evidence, "--evidence"), json_value(value, "--value")
    given = sys.stdin.read() if output == "-" else output

    async def told(desk: Desk) -> int:
        from perdure.durable.resolving import UNSAID

        await desk.runs.resolve(
            run,
            call,
            output=given,
            failed=failed,
            compensated=compensated,
            left=left,
            step=step,
            value=result if value is not None else UNSAID,
            never_ran=never_ran,
            evidence=basis,
            min_age=min_age,
            by=who(by),
            session=session,
            reason=reason,
        )
        settled = compensated or left
        becomes = _becomes(call, step, settled=settled, failed=failed is not None, again=never_ran)
        return say(f"{call or run} is resolved; {becomes} when {run} is driven")

    return with_runs(url, told)


def _becomes(call: str, step: str, *, settled: bool, failed: bool, again: bool) -> str:
    """What follows from what was said of a call, or of a step of it."""
    if settled:
        return "the rollback goes on"
    if failed:
        return "the model reads that, and a saga is rolled back"
    if step:
        return "the call goes on" if call else "it goes on"
    return "it runs again" if again else "the model reads its output"


@runs.command(epilog=EXIT_CODES)
@click.argument("run")
@click.argument("name")
@click.argument("value", default="null")
@saying
@session_option
def signal(
    *, run: str, name: str, value: str, url: str, by: str | None, reason: str, session: str
) -> int:
    """Tell RUN that NAME happened, with a VALUE in JSON, for the calls that wait for it."""
    del reason
    given = json_value(value, "VALUE")

    async def told(desk: Desk) -> int:
        await desk.runs.signal(run, name, given, by=who(by), session=session)
        return say(f"{run} is told of {name}; calls that wait for it go on when it is driven")

    return with_runs(url, told)


@runs.command(epilog=EXIT_CODES)
@click.argument("run")
@click.argument("channel")
@click.argument("value", default="null")
@click.option("--key", required=True, metavar="KEY", help="Of the message; once more is the same.")
@saying
@session_option
def send(
    *,
    run: str,
    channel: str,
    value: str,
    key: str,
    url: str,
    by: str | None,
    reason: str,
    session: str,
) -> int:
    """Send a VALUE in JSON to a CHANNEL of RUN, for the call that receives from it."""
    del reason
    given = json_value(value, "VALUE")

    async def told(desk: Desk) -> int:
        await desk.runs.send(run, channel, given, key=key, by=who(by), session=session)
        return say(f"{run} has message {key} in {channel}; it is received when {run} is driven")

    return with_runs(url, told)


@runs.command(epilog=EXIT_CODES)
@click.argument("run")
@click.argument("call")
@click.argument("key")
@click.argument("value")
@saying
@session_option
def answer(
    *,
    run: str,
    call: str,
    key: str,
    value: str,
    url: str,
    by: str | None,
    reason: str,
    session: str,
) -> int:
    """Answer the question KEY of CALL of RUN with a VALUE in JSON.

    A program asks with an empty CALL: ''.
    """
    del reason
    given = json_value(value, "VALUE")

    async def told(desk: Desk) -> int:
        await desk.runs.answer(run, call, key, given, by=who(by), session=session)
        return say(f"{call or run} has its answer; it goes on when {run} is driven")

    return with_runs(url, told)


@runs.command(epilog=EXIT_CODES)
@click.argument("run")
@saying
def cancel(*, run: str, url: str, by: str | None, reason: str) -> int:
    """Stop RUN for good. No call with an effect begins any more when the command returns."""

    async def told(desk: Desk) -> int:
        await desk.runs.cancel(run, by=who(by), reason=reason)
        if (await desk.runs.get(run)).status == "cancelled":
            return say(f"{run} is cancelled")
        return say(f"{run} is told to stop; whoever drives it closes it")

    return with_runs(url, told)


@runs.command(epilog=EXIT_CODES)
@click.argument("run")
@saying
def retry(*, run: str, url: str, by: str | None, reason: str) -> int:
    """Let RUN go on that a limit stopped, or a program in which too many processes died.

    Its turns, or its tries, count anew.
    """

    async def told(desk: Desk) -> int:
        await desk.runs.retry(run, by=who(by), reason=reason)
        return say(f"{run} goes on when it is driven")

    return with_runs(url, told)


# --- what they share ---------------------------------------------------------------------------


def with_runs(url: str, work: Callable[[Desk], Awaitable[int]]) -> int:
    """Do something with the runs of a store.

    Raises:
        Refused: The run refuses.
        Unusable: There is no such run, or the store cannot be used.
    """
    from perdure.errors import NoRun, PerdureError, RunError
    from perdure.runs import Runs

    async def run() -> int:
        store = existing_store(url)
        try:
            return await work(Desk(Runs(store), store))
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except BrokenPipeError:
        raise
    except (PerdureError, OSError) as error:
        refused = isinstance(error, RunError) and not isinstance(error, NoRun)
        raise (Refused if refused else Unusable)(one_line(str(error))) from error


def who(by: str | None) -> str:
    """Who says something: as told, else the login name, else nobody."""
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # before 3.13, each system has an error of its own
        return ""


def say(text: str) -> int:
    """Say what was done; the exit code."""
    click.echo(one_line(text))
    return 0


def _print_line(line: bytes) -> None:
    from perdure.cli.terminal import write_line

    write_line(sys.stdout, line + b"\n")
