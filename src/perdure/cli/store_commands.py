"""Looking after stores: `perdure doctor`, and what `perdure log` does beside looking.

A command exits with 0, with 1 if something is wrong that it could not put right, and with 2 if it
cannot begin.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import click

from perdure.cli.given import Unusable, existing_store, session_named, status_option
from perdure.cli.page import say_hanging
from perdure.cli.text import one_line
from perdure.clock import RandomIds, SystemClock
from perdure.errors import Leased, PerdureError, StoreFailed
from perdure.log import Filters, Reading, Session, read_lines, read_session
from perdure.log.branching import fork as fork_of
from perdure.log.entries import AnyEntry
from perdure.log.store import Store
from perdure.log.timeline import entry_line, short_id
from perdure.stores import open_store, path_of, upkeep

T = TypeVar("T")


class Place(NamedTuple):
    """A session, and an entry of it."""

    session: Session
    entry: str | None


def _store_option(command: Callable[..., T]) -> Callable[..., T]:
    return click.option(
        "--store",
        "-s",
        "url",
        envvar="PERDURE_STORE",
        show_envvar=True,
        required=True,
        metavar="URL",
        help="Where sessions are, as sqlite:///runs.db.",
    )(command)


# --- repair --------------------------------------------------------------------------------


@click.command()
@click.argument("session")
@click.option("--store", "-s", "url", envvar="PERDURE_STORE", show_envvar=True, metavar="URL")
def repair(*, session: str, url: str | None) -> int:
    """Trim what a crash left of a line, and check the rest.

    SESSION is a JSONL file that no store has, or the id or the name of a session in the store. What
    is trimmed from a file is kept beside it, in FILE.torn. A line that is broken anywhere else is
    named, and nothing is changed.
    """
    path = Path(session)
    if path.is_file():
        return _repair_file(path)
    if url is None:
        raise Unusable(f"there is no file {session!r}; for a session in a store, give --store URL")
    return _run(url, lambda store: _repair_stored(store, session))


def _repair_file(path: Path) -> int:
    data = path.read_bytes()
    try:
        reading = read_session(data)
    except PerdureError as error:
        raise Unusable(one_line(str(error))) from error
    if reading.torn:
        torn = path.with_name(path.name + ".torn")
        torn.write_bytes(reading.torn)
        with path.open("r+b") as file:
            file.truncate(data.rindex(reading.torn))
        line = data[: data.rindex(reading.torn)].count(b"\n") + 1
        _say(f"trimmed {len(reading.torn)} bytes of line {line}: see {torn}")
    return _tell_faults(reading)


async def _repair_stored(store: Store, session: str) -> int:
    found = await session_named(store, session)
    await upkeep.settle(store, found)
    stored = await store.read(found)
    return _tell_faults(read_lines(stored.header, stored.lines))


def _tell_faults(reading: Reading) -> int:
    faults = [fault for fault in reading.faults if fault.kind != "torn"]
    for fault in faults:
        _say(str(fault))
    if not faults:
        _say(f"{reading.session.id}: {len(reading.session)} entries, all whole")
    return int(bool(faults))


# --- fork, diff ------------------------------------------------------------------------------


@click.command()
@click.argument("place", metavar="SESSION[@ENTRY]")
@_store_option
@click.option("--name", default="", help="What to call the fork.")
def fork(*, place: str, url: str, name: str) -> int:
    """Begin a session that goes on from an entry of another, and print its id.

    Without ENTRY it goes on from the end. What was decided before is history there: a call that
    waits has to be decided anew.
    """

    async def forked(store: Store) -> int:
        origin = await _place(store, place)
        base = origin.entry or origin.session.leaf
        if base is None:
            raise Unusable(f"session {origin.session.id!r} has no entries to go on from")
        begun = fork_of(origin.session, base, clock=SystemClock(), ids=RandomIds(), name=name)
        await store.create(begun.header, name=name, batch=begun.entries)
        click.echo(begun.header.id)
        return 0

    return _run(url, forked)


@click.command()
@click.argument("left", metavar="SESSION[@ENTRY]")
@click.argument("right", metavar="SESSION[@ENTRY]")
@_store_option
def diff(*, left: str, right: str, url: str) -> int:
    """Show where two paths part, and what each has of its own.

    Without ENTRY a path ends at its session's leaf. Both may be in one session.
    """

    async def compared(store: Store) -> int:
        ours, theirs = await _path(store, left), await _path(store, right)
        shared = 0
        for one, other in zip(ours, theirs, strict=False):
            if one.id != other.id:
                break
            shared += 1
        end = f", up to {short_id(ours[shared - 1].id)}" if shared else ""
        _say(f"{shared} entries are the same{end}")
        for mark, path in (("-", ours), ("+", theirs)):
            for entry in path[shared:]:
                _say(f"{mark} {short_id(entry.id)}  {entry_line(entry)}")
        return 0

    return _run(url, compared)


# --- gc, reindex, erase ------------------------------------------------------------------------

_AGE = re.compile(r"(\d+)([dhm])")
_UNITS = {"d": 86_400, "h": 3600, "m": 60}


def _age(_: click.Context, __: click.Parameter, value: str) -> int:
    found = _AGE.fullmatch(value)
    if found is None:
        raise click.BadParameter("write a number and d, h or m, as 30d")
    return int(found[1]) * _UNITS[found[2]] * 10**9


@click.command()
@_store_option
@click.option("--older-than", "age", required=True, callback=_age, metavar="AGE", help="As 30d.")
@status_option("roots of this status")
@click.option("--dry-run", is_flag=True, help="Tell what would go, and remove nothing.")
def gc(*, url: str, age: int, status: tuple[str, ...], dry_run: bool) -> int:
    """Remove sessions that ended, with all below them, once nothing happened for AGE.

    Children go first: after an interruption, run it again. What is driven, has messages waiting, or
    was forked from, stays.
    """

    async def collected(store: Store) -> int:
        count = size = 0
        before = SystemClock().wall() - age
        statuses = frozenset(status) or upkeep.ENDED
        async for one in upkeep.collect(store, before, statuses=statuses, remove=not dry_run):
            if one.kept:
                _say(f"{one.session} stays: {one.kept}")
            else:
                count, size = count + 1, size + one.bytes
                _say(f"{one.session}  {one.bytes} bytes")
        _say(f"{count} sessions, {size} bytes {'would be ' if dry_run else ''}removed")
        return 0

    return _run(url, collected)


@click.command()
@_store_option
def reindex(*, url: str) -> int:
    """Recompute what lists show of each session from its entries."""

    async def reindexed(store: Store) -> int:
        wrong = skipped = 0
        async for root in upkeep.every(store, Filters(roots_only=True)):
            try:
                wrong += await upkeep.reindex(store, root.id)
            except Leased as error:
                skipped += 1
                _say(f"{root.id} is driven by {error.holder!r}, who keeps it current")
        _say(f"{wrong} summaries were wrong")
        return int(bool(skipped))

    return _run(url, reindexed)


@click.command()
@click.argument("session")
@click.argument("entries", nargs=-1, required=True, metavar="ENTRY...")
@_store_option
@click.option("--blob", "blobs", multiple=True, metavar="HASH", help="Bytes that go with them.")
@click.confirmation_option(prompt="Erased bodies cannot be brought back. Erase them?")
def erase(*, session: str, entries: tuple[str, ...], url: str, blobs: tuple[str, ...]) -> int:
    """Remove the bodies of entries and of their copies, here and in forks; hashes stand.

    The session still verifies. What a tool or a sub-agent made of the content is another text:
    erase that in its own entry or session.
    """

    async def erased(store: Store) -> int:
        found = await session_named(store, session)
        stored = await store.read(found)
        read = read_lines(stored.header, stored.lines, verify=False).session
        doomed = {_entry(read, prefix) for prefix in entries}
        for one in await upkeep.erase(store, found, doomed):
            _say(f"{one.session}: {one.bodies} bodies erased")
        for blob in blobs:
            await store.erase_blob(found, blob)
        return 0

    return _run(url, erased)


# --- doctor ----------------------------------------------------------------------------------


@click.command()
@_store_option
def doctor(*, url: str) -> int:
    """See whether a store can be used, and whether what it acknowledges survives.

    Exits with 1 if something is wrong, not for warnings.
    """

    async def examined(store: Store) -> int:
        findings = await _findings(store)
        for finding in findings:
            _say(f"{finding.level:<8} {finding.what}")
            if finding.todo:
                click.echo(" " * 9 + one_line(finding.todo))
        return int(any(finding.level == "error" for finding in findings))

    path = path_of(url)
    new = path is not None and not path.exists()
    if new:
        _say(f"warning  there was no store at {str(path)!r}; an empty one is made")
    return _run(url, examined, make=new or url.startswith("memory:"))


async def _findings(store: Store) -> tuple[upkeep.Finding, ...]:
    findings: tuple[upkeep.Finding, ...] = ()
    try:
        if isinstance(store, upkeep.Examined):
            findings = await store.examine()
        await store.list(limit=1)
    except StoreFailed as error:
        return (*findings, upkeep.Finding("error", str(error)))
    return findings or (upkeep.Finding("ok", "it can be read"),)


LOG_COMMANDS = (repair, fork, diff, gc, reindex, erase)
"""What stands under `perdure log`."""


# --- what they share ---------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _opened(url: str, *, make: bool) -> AsyncGenerator[Store]:
    store = open_store(url) if make else existing_store(url)
    try:
        yield store
    finally:
        await store.close()


def _run(url: str, work: Callable[[Store], Awaitable[T]], *, make: bool = False) -> T:
    async def run() -> T:
        async with _opened(url, make=make) as store:
            return await work(store)

    try:
        return asyncio.run(run())
    except BrokenPipeError:
        raise
    except (PerdureError, OSError) as error:
        raise Unusable(one_line(str(error))) from error


async def _place(store: Store, text: str) -> Place:
    session, _, entry = text.partition("@")
    stored = await store.read(await session_named(store, session))
    read = read_lines(stored.header, stored.lines, verify=False).session
    return Place(read, _entry(read, entry) if entry else None)


async def _path(store: Store, text: str) -> list[AnyEntry]:
    place = await _place(store, text)
    return place.session.path(place.entry)


def _entry(session: Session, prefix: str) -> str:
    """The entry that a user means."""
    wanted = prefix.removeprefix("sha256:")
    found = [e.id for e in session.entries if e.id.removeprefix("sha256:").startswith(wanted)]
    if len(found) != 1:
        raise Unusable(f"{len(found) or 'no'} entries begin with {prefix!r}")
    return found[0]


def _say(text: str) -> None:
    say_hanging(one_line(text))
