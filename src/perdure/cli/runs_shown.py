"""How `perdure runs` shows runs: a table, a run with what it waits for, and what happens in it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perdure.cli.page import CLIP
from perdure.cli.terminal import write_line
from perdure.cli.text import one_line
from perdure.clock import Clock, SystemClock
from perdure.durable import RunState, find_run, read_run, state_of, waiting_calls
from perdure.durable.consuming import LIMITS
from perdure.durable.messages import (
    Approve,
    Cancel,
    Deny,
    Late,
    NotStarted,
    Resolve,
    Retry,
    Told,
    decode_told,
)
from perdure.log import Call, Session, Store
from perdure.log.entries import AnyEntry
from perdure.log.status import is_halted
from perdure.log.timeline import Teller
from perdure.log.timestamps import timestamp, wall_of
from perdure.loop import PendingCall
from perdure.runs import RunSummary
from perdure.tools import ToolSet
from perdure.wire import encode

STYLES: Mapping[str, str] = {
    "done": "green",
    "halted": "bold red",
    "failed": "red",
    "input_required": "yellow",
    "suspended": "cyan",
    "running": "cyan",
}

NARROW = 12
"""The columns of a time of day with its milliseconds."""


class Waiting(NamedTuple):
    """A call that has no output, for whoever can do something about it."""

    call: PendingCall
    why: str
    since: str
    """A timestamp; empty if nothing on the record says."""
    todo: tuple[str, ...] = ()
    """The commands that answer it."""
    told: str = ""
    """What it was told and the run has not taken up."""


class Waits(NamedTuple):
    """A message in an inbox."""

    id: str
    session: str
    told: Told | None


class Seen(NamedTuple):
    """All that there is to show of a run."""

    state: RunState
    session: Session
    waiting: tuple[Waiting, ...]
    inbox: tuple[Waits, ...]
    """What it was told and has not taken up."""


# --- looking -----------------------------------------------------------------------------------


async def look_at(store: Store, run_id: str) -> Seen:
    """A run, the calls that wait in its tree, and what it was told and has not taken up.

    Raises:
        NoRun: There is none of this id.
    """
    session = await read_run(store, await find_run(store, run_id))
    state = state_of(session, await waiting_calls(store, session, ToolSet()))
    tree = {session.id: session}
    for pending in state.pending:
        if pending.session not in tree:
            tree[pending.session] = await read_run(store, pending.session)
    inbox = tuple(
        [
            Waits(message.id, one, decode_told(message))
            for one in tree
            for message in await store.unconsumed(one)
        ]
    )
    waiting = [_waiting(run_id, session.id, one, tree[one.session]) for one in state.pending]
    return Seen(state, session, tuple(_with_told(one, inbox) for one in waiting), inbox)


def _with_told(one: Waiting, inbox: Sequence[Waits]) -> Waiting:
    """A call with what it was told, which nobody has to tell it again."""
    for message in inbox:
        if (message.session, call_of(message.told)) == (one.call.session, one.call.call.call_id):
            return one._replace(told=_told(message.told), todo=())
    return one


def call_of(told: Told | None) -> str:
    """The call that a message is about; empty if it is about none."""
    return "" if told is None or isinstance(told, Cancel | Retry) else told.call_id


def _waiting(run_id: str, root: str, pending: PendingCall, session: Session) -> Waiting:
    call = session.view().calls.open[pending.call.call_id]
    place = "" if pending.session == root else f" --session {shlex.quote(pending.session)}"
    named = f"{shlex.quote(run_id)} {shlex.quote(call.call_id)}{place}"
    last = call.last_dispatch
    since = last.ts if last is not None else ""
    if call.state == "held":
        since = call.decisions[-1].ts
    todo = tuple(f"perdure runs {do}" for do in _todo(call, named))
    return Waiting(pending, _why(call), since, todo)


def _why(call: Call) -> str:
    reason = f": {call.reason}" if call.reason else ""
    if call.suspended:
        return "its tool waits"
    if call.state == "held":
        return f"is held{reason}"
    if is_halted(call):
        return "may have run: it was dispatched, and nobody knows what came of it"
    if call.state == "in_flight":
        return "was cut off; it runs again, as its effect allows, when the run is driven"
    if call.state == "never_started":
        return "has not started; it does when the run is driven"
    return "is decided; it gets its output when the run is driven"


def _todo(call: Call, named: str) -> tuple[str, ...]:
    """The commands that answer a call."""
    if call.state == "held" and not call.suspended:
        return f"approve {named}", f"deny {named} --reason TEXT"
    if not is_halted(call):
        return ()
    last = call.last_dispatch
    age = "" if last is None or last.lasts is not None else " --min-age SECONDS"
    return f"resolve {named} --output TEXT", f"resolve {named} --never-ran{age}"


def _told(told: Told | None) -> str:
    """A message in a few words."""
    who = f" by {told.who}" if told is not None and told.who else ""
    match told:
        case Approve():
            return f"{told.call_id} approved{who}"
        case Deny():
            return f"{told.call_id} denied{who}"
        case Resolve():
            said = told.output if told.output is not None else "it never ran"
            return f"{told.call_id} resolved{who}: {said}"
        case Cancel():
            return f"cancelled{who}"
        case Retry():
            return f"told to go on{who}"
        case Late():
            return f"what {told.call_id} gave, late"
        case NotStarted():
            return f"{told.call_id} did not start"
        case None:
            return "something nobody knows"


# --- a list ------------------------------------------------------------------------------------


async def print_list(found: AsyncIterator[RunSummary], limit: int | None, *, as_json: bool) -> int:
    """Print runs: a table in a terminal, else one line each, its fields apart by tabs."""
    console = Console()
    listed: list[RunSummary] = []
    async for one in found:
        if limit is not None and len(listed) == limit:
            break
        listed.append(one)
    if as_json:
        for one in listed:
            _print_json({name: getattr(one, name) for name in _LISTED})
    elif console.is_terminal:
        _print_table(console, listed)
    else:
        for one in listed:
            fields = (one.run_id, one.status, one.agent, one.created_at)
            _write(console, "\t".join(map(one_line, fields)))
    return 0


_LISTED = ("run_id", "status", "agent", "kind", "session", "created_at", "due")


def _print_table(console: Console, listed: Sequence[RunSummary]) -> None:
    if not listed:
        console.print("no runs", style="dim")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("run", overflow="fold")
    table.add_column("status", no_wrap=True)
    table.add_column("agent", overflow="fold")
    table.add_column("begun (UTC)", no_wrap=True)
    for one in listed:
        table.add_row(
            Text(one_line(one.run_id)),
            _status(one.status),
            Text(one_line(one.agent)),
            Text(_second(one.created_at)),
        )
    console.print(table)


# --- one run -----------------------------------------------------------------------------------


def print_run(seen: Seen, *, console: Console | None = None, clock: Clock | None = None) -> None:
    """Print how a run stands, what it waits for, and what happened."""
    console = console or Console()
    _print_facts(console, seen.state)
    if seen.waiting:
        _print_title(console, "waiting")
        print_waiting(console, seen, clock=clock)
    told = _others(seen)
    if told:
        _print_title(console, "told, and not taken up yet")
        _print_lines(console, [Text(f"  {_told(one.told)}") for one in told])
    _print_title(console, "what happened (UTC)")
    printer = Printer(console)
    for entry in seen.session.path():
        printer.show(entry)


def print_waiting(console: Console, seen: Seen, *, clock: Clock | None = None) -> None:
    """Print the calls that wait: why, since when, and the commands that answer them."""
    now = (clock or SystemClock()).wall()
    for one in seen.waiting:
        _print_lines(console, _waiting_lines(one, now))


def _print_lines(console: Console, lines: Sequence[Text]) -> None:
    for line in lines:
        console.print(line, soft_wrap=not console.is_terminal, highlight=False)


def _print_facts(console: Console, state: RunState) -> None:
    tokens = state.spend.tokens.total
    facts = {
        "run": Text(one_line(state.run_id), "bold"),
        "status": _status(state.status).append(_note(state), "default not bold"),
        "agent": Text(one_line(state.agent)),
        "session": Text(state.session),
        "begun": Text(f"{_second(state.created_at)} UTC"),
        "took": Text(f"{_count(state.turns, 'turn')}, {_count(tokens, 'token')}"),
        "answer": Text(_clipped(console, state.text)),
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        if value and not console.is_terminal:
            _write(console, f"{name}\t{value}")
        elif value:
            table.add_row(name, value)
    if console.is_terminal:
        console.print(table)


def _note(state: RunState) -> str:
    """What there is to say of a status."""
    cause = f", {one_line(state.cause)}" if state.cause else ""
    match state.status:
        case "running":
            return ": a drive is open; whoever began it drives it, or has died"
        case "idle":
            return ": nobody has driven it yet"
        case "stopped" if state.cause in LIMITS:
            return f"{cause}; `perdure runs retry {shlex.quote(state.run_id)}` lets it go on"
        case "input_required" | "halted" | "suspended" | "done":
            return ""
        case _:
            return cause


def _others(seen: Seen) -> list[Waits]:
    """The messages that are not shown with a call that waits."""
    shown = {(one.call.session, one.call.call.call_id) for one in seen.waiting if one.told}
    return [one for one in seen.inbox if (one.session, call_of(one.told)) not in shown]


def _waiting_lines(one: Waiting, now: int) -> list[Text]:
    call = one.call.call
    path = "".join(f"{step} > " for step in one.call.path)
    effect = f", effect {one.call.effect}" if one.call.effect else ""
    since = f"since {_second(one.since)}, {_ago(now, one.since)} ago" if one.since else ""
    lines = [
        Text.assemble("  ", (one_line(path), "dim"), (one_line(call.call_id), "bold"), "  "),
        Text(f"    {one_line(one.why)}"),
    ]
    lines[0].append(one_line(f"{call.name} {one.call.arguments or call.arguments}")[:CLIP])
    if since:
        lines.append(Text(f"    {since}{effect}", "dim"))
    if one.told:
        lines.append(Text(f"    {one_line(one.told)}; the run takes it up when it is driven"))
    lines += [Text(f"    {one_line(command)}", "cyan") for command in one.todo]
    return lines


def run_json(seen: Seen) -> bytes:
    """A run as one JSON object; its form is in docs/cli.md."""
    state = seen.state
    return msgspec.json.encode(
        {
            "run_id": state.run_id,
            "session": state.session,
            "kind": state.kind,
            "agent": state.agent,
            "status": state.status,
            "cause": state.cause,
            "text": state.text,
            "turns": state.turns,
            "tokens": state.spend.tokens.total,
            "created_at": state.created_at,
            "waiting": [_waiting_json(one) for one in seen.waiting],
            "inbox": [
                {"id": one.id, "session": one.session, "says": _told(one.told)}
                for one in seen.inbox
            ],
            "entries": [Raw(entry.line) for entry in seen.session.path()],
        }
    )


def _waiting_json(one: Waiting) -> dict[str, object]:
    pending = one.call
    at = pending.attempted_at
    return {
        "call": Raw(encode(pending.call)),
        "session": pending.session,
        "path": list(pending.path),
        "reason": pending.reason,
        "may_have_run": pending.may_have_run,
        "why": one.why,
        "since": one.since or None,
        "effect": pending.effect,
        "attempted_at": timestamp(at) if at is not None else None,
        "idempotency_key": pending.idempotency_key,
        "told": one.told or None,
        "todo": list(one.todo),
    }


# --- what happened -----------------------------------------------------------------------------


class Printer:
    """Prints entries as they come: in a terminal with the time of day beside them, else whole."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._teller = Teller()
        self._day = ""

    def show(self, entry: AnyEntry) -> None:
        """Print what happened by an entry."""
        console = self._console
        text = one_line(self._teller.tell(entry))
        if not text:
            return
        if not console.is_terminal:
            _write(console, f"{entry.ts}  {text}")
            return
        day, _, time = entry.ts.rstrip("Z").partition("T")
        if day != self._day:
            self._day = day
            console.print(day, style="dim", highlight=False)
        line = Table.grid(padding=(0, 2))
        line.add_column(style="dim", width=NARROW, no_wrap=True)
        line.add_column(overflow="fold")
        line.add_row(time[:NARROW].ljust(NARROW), Text(_clipped(console, text)))
        console.print(line)


# --- words -------------------------------------------------------------------------------------


def _write(console: Console, line: str) -> None:
    """A line as it is: nothing is a terminal here, and tabs are for programs."""
    console.file.write(line + "\n")


def _print_title(console: Console, title: str) -> None:
    console.print()
    console.print(title, style="bold", highlight=False)


def _clipped(console: Console, text: str) -> str:
    """A text on one line, cut where a screen would be full of it."""
    text = one_line(text)
    return text[:CLIP] + "…" if console.is_terminal and len(text) > CLIP else text


def _status(status: str) -> Text:
    return Text(one_line(status) or "-", STYLES.get(status, ""))


def _second(ts: str) -> str:
    """A timestamp as people read it, to the second."""
    return ts[:19].replace("T", " ")


def _ago(now: int, ts: str) -> str:
    seconds = max(now - wall_of(ts), 0) // 10**9
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _print_json(value: object) -> None:
    write_line(sys.stdout, msgspec.json.encode(value) + b"\n")
