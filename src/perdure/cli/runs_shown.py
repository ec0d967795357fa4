"""How `perdure runs` shows runs: a table, a run with what it waits for, and what happens in it."""

from __future__ import annotations

import heapq
import shlex
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

import msgspec
from msgspec import Raw
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perdure.cli.page import CLIP, print_hanging
from perdure.cli.runs_sagas import report_lines
from perdure.cli.runs_seen import Branch, Seen, Waiting, Waits
from perdure.cli.terminal import write_line
from perdure.cli.text import one_line
from perdure.clock import Clock, SystemClock
from perdure.durable import RunState
from perdure.durable.consuming import LIMITS
from perdure.log.entries import AnyEntry
from perdure.log.header import PROGRAM
from perdure.log.programs import program_work
from perdure.log.recorded_spend import spend_json
from perdure.log.teller import Teller
from perdure.log.timeline import day_and_time
from perdure.log.timestamps import timestamp, wall_of
from perdure.log.work import CHILD, RACE
from perdure.runs import RunSummary
from perdure.wire import encode

STYLES: Mapping[str, str] = {
    "done": "green",
    "halted": "bold red",
    "failed": "red",
    "rolled_back": "red",
    "input_required": "yellow",
    "suspended": "cyan",
    "running": "cyan",
}

NARROW = 12
"""The columns of a time of day with its milliseconds."""


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
            members = {name: getattr(one, name) for name in _LISTED}
            if one.spend is not None:
                members["spend"] = spend_json(one.spend)
            _print_json(members)
    elif console.is_terminal:
        _print_table(console, listed)
    else:
        for one in listed:
            fields = [one.run_id, one.status, one.agent, one.created_at]
            if one.spend is not None:
                fields += [str(one.spend.tokens.total), f"{one.spend.usd:f}"]
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
    table.add_column("driven by", overflow="fold")
    table.add_column("begun (UTC)", no_wrap=True)
    with_spend = any(one.spend is not None for one in listed)
    for name in ("tokens", "dollars") if with_spend else ():
        table.add_column(name, justify="right", no_wrap=True)
    for one in listed:
        cells = [
            Text(one_line(one.run_id)),
            _status(one.status),
            Text(one_line(one.agent)),
            Text(_second(one.created_at)),
        ]
        if one.spend is not None:
            cells += [Text(str(one.spend.tokens.total)), Text(f"{one.spend.usd:f}")]
        table.add_row(*cells)
    console.print(table)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, none: str) -> None:
    """Print rows: a table in a terminal, else one line each, its fields apart by tabs.

    Args:
        columns: What stands above them; a row may be shorter.
        rows: The fields.
        none: What a terminal shows where there is no row.
    """
    console = Console()
    if not console.is_terminal:
        for row in rows:
            _write(console, "\t".join(map(one_line, row)))
    elif not rows:
        console.print(none, style="dim")
    else:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text(one_line(field)) for field in row))
        console.print(table)


# --- one run -----------------------------------------------------------------------------------


def print_run(seen: Seen, *, console: Console | None = None, clock: Clock | None = None) -> None:
    """Print how a run stands, what it waits for, and what happened."""
    console = console or Console()
    _print_facts(console, seen)
    if seen.waiting:
        _print_title(console, "waiting")
        print_waiting(console, seen, clock=clock)
    for title, lines in report_lines(seen.state):
        _print_title(console, title)
        for line in lines:
            _print_lines(console, [Text(f"  {one_line(line.text)}")])
            for command in line.todo:
                print_command(console, command)
    told = _others(seen)
    if told:
        _print_title(console, "told, and not taken up yet")
        _print_lines(console, [Text(f"  {one_line(one.says)}") for one in told])
    _print_title(console, "what happened (UTC)")
    printer = Printer(console, program=seen.state.kind == PROGRAM)
    for path, entry in _happened(seen.tree):
        printer.show(entry, path)


def print_waiting(console: Console, seen: Seen, *, clock: Clock | None = None) -> None:
    """Print the calls that wait: why, since when, and the commands that answer them."""
    now = (clock or SystemClock()).wall()
    for one in seen.waiting:
        _print_lines(console, _waiting_lines(one, now))
        for command in one.todo:
            print_command(console, command)


def print_command(console: Console, command: Sequence[str]) -> None:
    """Print a command that can be copied: a line that is too long ends with a backslash."""
    lines = ["   "]
    for word in map(shlex.quote, map(one_line, command)):
        if console.is_terminal and len(lines[-1]) + len(word) + 3 > console.width:
            lines[-1] += " \\"
            lines.append("     ")
        lines[-1] += f" {word}"
    for line in lines:
        console.print(Text(line, "cyan"), soft_wrap=True, highlight=False)


def _print_lines(console: Console, lines: Sequence[Text]) -> None:
    for line in lines:
        print_hanging(console, line)


def _print_facts(console: Console, seen: Seen) -> None:
    state = seen.state
    facts = {
        "run": Text(one_line(state.run_id), "bold"),
        "status": _status(state.status).append(_note(state), "default not bold"),
        "program" if state.kind == PROGRAM else "agent": Text(one_line(state.agent)),
        "saga": Text("all or nothing" if state.saga else ""),
        "session": Text(state.session),
        "begun": Text(f"{_second(state.created_at)} UTC"),
        "took": Text(", ".join((*_work(seen), *_spent(state)))),
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


def _work(seen: Seen) -> Iterator[str]:
    """What a run has done: an agent's turns; a program's steps and waits, and its agents."""
    if seen.state.kind != PROGRAM:
        yield _count(seen.state.turns, "turn")
        return
    work = program_work(seen.tree[0].session.view().work)
    kinds = [kind for kind, _ in work.waits]
    agents = kinds.count(CHILD)
    waits = len(kinds) - agents - kinds.count(RACE)
    yield _count(len(work.steps), "step")
    yield from (_count(some, what) for some, what in ((waits, "wait"), (agents, "agent")) if some)


def _spent(state: RunState) -> Iterator[str]:
    """Tokens and money of the whole tree, and what there is to say of them."""
    spend = state.spend
    total = spend.tokens.total
    if total or state.kind != PROGRAM:
        said = ((spend.estimated, "estimated"), (spend.discarded, "for nothing"))
        parts = [f"{part.total} {name}" for part, name in said if part.total]
        yield _count(total, "token") + (f" ({', '.join(parts)})" if parts else "")
    if spend.usd:
        yield f"${spend.usd:f}"


def _note(state: RunState) -> str:
    """What there is to say of a status."""
    cause = f": {one_line(state.cause)}" if state.cause else ""
    match state.status:
        case "running":
            return ": a drive is open; whoever began it drives it, or has died"
        case "idle":
            return ": nobody has driven it yet"
        case "stopped" if state.cause in LIMITS:
            return f"{cause}; `perdure runs retry {shlex.quote(state.run_id)}` lets it go on"
        case "suspended" if state.due:  # at once, if that is 0
            return f", until {day_and_time(state.due)}"
        case "halted" | "failed" if state.report is not None:
            return f", being rolled back{cause}"
        case "input_required" | "halted" | "suspended" | "done":
            return ""
        case _:
            return cause


def _others(seen: Seen) -> list[Waits]:
    """The messages that are not shown with a call that waits."""
    shown = {(one.call.session, one.call.call.call_id) for one in seen.waiting if one.told}
    return [one for one in seen.inbox if (one.session, one.call_id) not in shown]


def _waiting_lines(one: Waiting, now: int) -> list[Text]:
    call = one.call.call
    effect = f", effect {one.call.effect}" if one.call.effect else ""
    since = f"since {_second(one.since)}, {_ago(now, one.since)} ago" if one.since else ""
    lines = [
        Text.assemble("  ", (_led(one.call.path), "dim"), (one_line(call.call_id), "bold"), "  "),
        Text(f"    {one_line(one.why)}"),
    ]
    if not call.call_id:  # the program itself, which has a name alone
        lines[0] = Text("  ")
    given = one.call.arguments or call.arguments
    given = "" if given == "null" and not call.call_id else given  # a program that takes nothing
    lines[0].append(one_line(f"{call.name} {given}")[:CLIP])
    if since:
        lines.append(Text(f"    {since}{effect}", "dim"))
    if one.told:
        lines.append(Text(f"    {one_line(one.told)}; the run takes it up when it is driven"))
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
            "saga": state.saga,
            "report": msgspec.to_builtins(state.report),
            "text": state.text,
            "turns": state.turns,
            "tokens": state.spend.tokens.total,
            "spend": spend_json(state.spend),
            "created_at": state.created_at,
            "waiting": [_waiting_json(one) for one in seen.waiting],
            "inbox": [
                {"id": one.id, "session": one.session, "says": one.says} for one in seen.inbox
            ],
            "entries": [Raw(entry.line) for entry in seen.tree[0].session.path()],
            "children": [
                {
                    "session": session.id,
                    "path": list(path),
                    "entries": [Raw(entry.line) for entry in session.path()],
                }
                for path, session in seen.tree[1:]
            ],
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
        "wait": pending.wait,
        "told": one.told or None,
        "todo": [shlex.join(command) for command in one.todo],
    }


# --- what happened -----------------------------------------------------------------------------


class Printer:
    """Prints entries as they come: in a terminal with the time of day beside them, else whole.

    Args:
        console: Where to.
        program: Whether it is the run of a program.
    """

    def __init__(self, console: Console | None = None, *, program: bool = False) -> None:
        self._console = console or Console()
        self._program = program
        self._tellers: dict[tuple[str, ...], Teller] = {}
        self._day = ""

    def show(self, entry: AnyEntry, path: tuple[str, ...] = ()) -> None:
        """Print what happened by an entry.

        Args:
            entry: The entry.
            path: The calls that lead to its session, from the run's own.
        """
        teller = self._tellers.get(path)
        if teller is None:
            teller = self._tellers[path] = Teller(program=self._program and not path)
        text = one_line(teller.tell(entry))
        if text and self._console.is_terminal:
            self._print(entry.ts, _led(path), text)
        elif text:
            _write(self._console, f"{entry.ts}  {_led(path)}{text}")

    def _print(self, ts: str, led: str, text: str) -> None:
        console = self._console
        day, _, time = ts.rstrip("Z").partition("T")
        if day != self._day:
            self._day = day
            console.print(day, style="dim", highlight=False)
        line = Table.grid(padding=(0, 2))
        line.add_column(style="dim", width=NARROW, no_wrap=True)
        line.add_column(overflow="fold")
        told = Text.assemble((led, "dim"), _clipped(console, text))
        line.add_row(time[:NARROW].ljust(NARROW), told)
        console.print(line)


def _happened(tree: Sequence[Branch]) -> Iterator[tuple[tuple[str, ...], AnyEntry]]:
    """The entries of a run and its sub-agents, as they were written."""
    told = ([(path, entry) for entry in session.path()] for path, session in tree)
    return heapq.merge(*told, key=lambda one: _when(one[1]))


def _when(entry: AnyEntry) -> int:
    try:
        return wall_of(entry.ts)
    except ValueError:
        return 0


def _led(path: Sequence[str]) -> str:
    """The calls that lead to something, before it."""
    return "".join(f"{one_line(step)} > " for step in path)


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
