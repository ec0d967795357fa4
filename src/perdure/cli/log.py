"""`perdure log`: looking at sessions, in a store or as JSONL files.

A command exits with 0, with 1 if a session does not verify, and with 2 if there is none.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from perdure.cli.given import Unusable, existing_store, session_named, status_option
from perdure.cli.page import say_hanging
from perdure.cli.text import one_line
from perdure.errors import PerdureError
from perdure.log import (
    Filters,
    Reading,
    Session,
    context_json,
    read_lines,
    read_session,
)
from perdure.log.origins import origins_of
from perdure.log.store import Store
from perdure.log.timeline import entry_line, item_line, short_id
from perdure.stores import open_store

T = TypeVar("T")


@click.group()
def log() -> None:
    """Look at recorded sessions.

    SESSION is a JSONL file, or the id or the name of a session in the store.
    """


def _store_option(command: Callable[..., T]) -> Callable[..., T]:
    return click.option(
        "--store",
        "-s",
        "url",
        envvar="PERDURE_STORE",
        show_envvar=True,
        metavar="URL",
        help="Where sessions are, as file:///directory.",
    )(command)


def _leaf_option(command: Callable[..., T]) -> Callable[..., T]:
    return click.option(
        "--leaf", metavar="ENTRY", help="Look at the path to this entry; a prefix will do."
    )(command)


# --- commands ------------------------------------------------------------------------------


@log.command("ls")
@_store_option
@status_option("sessions of this status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def ls(*, url: str | None, status: tuple[str, ...], as_json: bool) -> int:
    """List the sessions of the store, oldest first."""

    async def listed(store: Store) -> int:
        after = ""
        while True:
            page = await store.list(Filters(statuses=frozenset(status)), after=after)
            for one in page.sessions:
                if as_json:
                    _print_json(
                        {
                            "id": one.id,
                            "name": one.name,
                            "created_at": one.header.created_at,
                            "entries": one.version,
                            "status": one.summary.status,
                            "bytes": one.summary.bytes,
                        }
                    )
                else:
                    name = f"  {one.name}" if one.name else ""
                    status_ = one.summary.status or "-"
                    line = f"{one.id}  {one.header.created_at}  {one.version:>6}  {status_}{name}"
                    click.echo(one_line(line))
            after = page.after
            if not after:
                return 0

    return _with_store(url, listed)


@log.command()
@click.argument("session")
@_store_option
@_leaf_option
def show(*, session: str, url: str | None, leaf: str | None) -> int:
    """Show what happened, as a timeline."""
    read = _read(session, url, verify=False).session
    entries = read.path(_leaf(read, leaf))
    say_hanging(one_line(f"session {read.id}, {len(read)} entries, {read.status}"))
    for entry in entries:
        say_hanging(one_line(f"{entry.ts}  {short_id(entry.id)}  {entry_line(entry)}"))
    return 0


@log.command()
@click.argument("session")
@_store_option
@_leaf_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def context(*, session: str, url: str | None, leaf: str | None, as_json: bool) -> int:
    """Print the settings and items that the next request would hold."""
    read = _read(session, url, verify=False).session
    found = read.context(_leaf(read, leaf))
    if as_json:
        _print_json(context_json(found))
        return 0
    settings = msgspec.json.encode(found.settings.as_json()).decode()
    say_hanging(one_line(f"settings: {settings}"))
    for item, entry in zip(found.items, found.item_entries, strict=True):
        say_hanging(one_line(f"{short_id(entry)}  {item_line(item)}"))
    for omission in found.omitted:
        say_hanging(one_line(f"{short_id(omission.entry)}  omitted: {omission.reason}"))
    return 0


@log.command()
@click.argument("session")
@_store_option
def tree(*, session: str, url: str | None) -> int:
    """Print all branches; the leaf is marked."""
    read = _read(session, url, verify=False).session
    for line in _tree_lines(read):
        say_hanging(_indented(line))
    return 0


@log.command()
@click.argument("session")
@_store_option
def verify(*, session: str, url: str | None) -> int:
    """Check hashes, order, reasons and request hashes; exits with 1 if one is wrong."""
    reading = _read(session, url, verify=True)
    for fault in reading.faults:
        click.echo(one_line(f"{fault}" + (f" ({short_id(fault.entry)})" if fault.entry else "")))
    if reading.faults:
        return 1
    click.echo(one_line(f"{reading.session.id}: {len(reading.session)} entries, all whole"))
    return 0


@log.command()
@click.argument("session")
@_store_option
@click.option("--output", "-o", type=click.Path(dir_okay=False), help="Write it to this file.")
def export(*, session: str, url: str | None, output: str | None) -> int:
    """Write a session as JSONL, byte for byte as it was recorded.

    One of whose bodies some were erased is written as its redacted projection, which can be read
    and not imported.
    """
    read = _read(session, url, verify=False).session
    lines = [read.header.line, *(entry.line for entry in read.entries)]
    if any(entry.erased for entry in read.entries):
        from perdure.log.redaction import redacted

        projected = redacted(read.header, lines[1:])
        lines = [projected.header.line, *projected.lines]
        click.echo("bodies were erased: this can be read and not imported", err=True)
    data = b"".join(line + b"\n" for line in lines)
    if output is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        try:
            Path(output).write_bytes(data)
        except OSError as error:
            raise Unusable(f"{output} cannot be written: {error.strerror}") from None
    return 0


@log.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@_store_option
@click.option("--name", default="", help="The name to find it by.")
def import_(*, file: str, url: str | None, name: str) -> int:
    """Put a session from a JSONL FILE into the store, if it verifies."""
    reading = _read(file, url, verify=True)
    if reading.faults:
        click.echo(one_line(f"nothing was imported: {reading.faults[0]}"), err=True)
        return 1

    async def put(store: Store) -> int:
        read = reading.session
        await store.create(read.header, name=name, batch=read.entries)
        click.echo(read.id)
        return 0

    return _with_store(url, put, make=True)


# --- what they share -----------------------------------------------------------------------


def _with_store(url: str | None, work: Callable[[Store], Awaitable[T]], *, make: bool = False) -> T:
    if url is None:
        raise Unusable("say where sessions are: --store URL, or PERDURE_STORE")

    async def run() -> T:
        store = open_store(url) if make else existing_store(url)
        try:
            return await work(store)
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except BrokenPipeError:
        raise
    except (PerdureError, OSError) as error:
        raise Unusable(one_line(str(error))) from error


def _read(session: str, url: str | None, *, verify: bool) -> Reading:
    """A session from a file, else from the store."""
    path = Path(session)
    if path.is_file():
        try:
            return read_session(path.read_bytes(), verify=verify)
        except PerdureError as error:
            raise Unusable(one_line(str(error))) from error
    if url is None and ("/" in session or session.endswith(".jsonl")):
        raise Unusable(f"there is no file {session!r}")
    return _with_store(url, lambda store: _stored(store, session, verify=verify))


async def _stored(store: Store, session: str, *, verify: bool) -> Reading:
    stored = await store.read(await session_named(store, session))
    origins = await origins_of(store, stored.header)
    return read_lines(stored.header, stored.lines, verify=verify, origins=origins)


def _leaf(session: Session, prefix: str | None) -> str | None:
    """The entry that a user means."""
    if prefix is None:
        return None
    wanted = prefix.removeprefix("sha256:")
    found = [e.id for e in session.entries if e.id.removeprefix("sha256:").startswith(wanted)]
    if len(found) != 1:
        raise Unusable(f"{len(found) or 'no'} entries begin with {prefix!r}")
    return found[0]


def _tree_lines(session: Session) -> Iterator[str]:
    """Each entry, indented by the branches it is in."""
    children: dict[str | None, list[int]] = {}
    for place, entry in enumerate(session.entries):
        children.setdefault(entry.parent, []).append(place)
    waiting = [(place, 0) for place in reversed(children.get(None, []))]
    while waiting:
        place, depth = waiting.pop()
        entry = session.entries[place]
        mark = " <- leaf" if entry.id == session.leaf else ""
        yield f"{'  ' * depth}{short_id(entry.id)}  {entry_line(entry)}{mark}"
        below = children.get(entry.id, [])
        deeper = depth + (len(below) > 1)
        waiting += [(child, deeper) for child in reversed(below)]


def _indented(line: str) -> str:
    text = line.lstrip(" ")
    return line[: len(line) - len(text)] + one_line(text)


def _print_json(value: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()
