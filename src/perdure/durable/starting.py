"""Beginning a run by id, or finding the one that is there (LOG 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from perdure.durable.driven import Driven
from perdure.durable.state import read_run
from perdure.errors import ConfigError, NameTaken, RunMismatch
from perdure.log import Draft, RunIdentity, Session, Store, Summary, new_header, new_session_id
from perdure.log.context import item_of
from perdure.log.entries import AnyEntry, CustomEntry, ItemEntry, RunEntry
from perdure.log.environment import cwd_of
from perdure.log.header import PROGRAM
from perdure.log.inputs import is_same_input
from perdure.log.recorded_bodies import input_draft
from perdure.log.timestamps import timestamp
from perdure.log.writing import salted, seal
from perdure.loop import Hidden, Transcript, Trigger, unhide
from perdure.loop.drive import check_opening
from perdure.loop.identity import check_identity
from perdure.wire import Item

MAX_RUN_ID = 512
"""How many bytes the id of a run may have, as UTF-8."""


def check_run_id(run_id: str) -> None:
    """Refuse what cannot name a run.

    Raises:
        ConfigError: It is no text, empty, too long, or no text that UTF-8 has.
    """
    if not isinstance(cast("object", run_id), str):
        raise ConfigError(f"a run id is text, not {run_id!r}")
    try:
        size = len(run_id.encode())
    except UnicodeEncodeError:
        raise ConfigError(f"a run id must be text that UTF-8 has, not {run_id!r}") from None
    if not run_id or size > MAX_RUN_ID:
        raise ConfigError(f"a run id has 1 to {MAX_RUN_ID} bytes, and this has {size}")
    if not run_id.isprintable():
        raise ConfigError(f"a run id must be printable, not {run_id!r}")


async def begin_run(
    driven: Driven,
    store: Store,
    run_id: str,
    prompts: Sequence[Item | Hidden],
    *,
    kind: str = "run",
    saga: bool = False,
    trigger: Trigger | None = None,
    principal: str = "",
) -> Session:
    """The session of a run: a new one that holds the input, or the one that is there.

    Raises:
        ConfigError: The id or the input cannot begin a run.
        RunMismatch: The id is bound to another input or principal, or to another kind of session.
        StoreFailed: Whether the run was begun is unknown; ask again.
    """
    check_run_id(run_id)
    check_identity(principal, "principal")
    check_opening(Transcript().snapshot(), prompts)
    clock, ids = driven.clock, driven.ids
    header = new_header(
        new_session_id(clock, ids),
        timestamp(clock.wall()),
        name=run_id,
        run=RunIdentity(id=run_id, kind=kind, saga=saga),
        agent=driven.name,
        principal=principal,
        cwd=cwd_of(driven.env),
    )
    drafts = [input_draft(given, driven.keep, trigger) for given in prompts]
    entries = _sealed(drafts, driven)
    summary = Summary(status="idle", leaf=entries[-1].id)
    try:
        await store.create(header, name=run_id, batch=entries, summary=summary)
    except NameTaken as taken:
        session = await read_run(store, taken.session)
        asked = RunIdentity(id=run_id, kind=kind, saga=saga)
        _check_same(session, asked, driven.name, prompts)
        _check_principal(session, run_id, principal)
        return session
    session = Session(header)
    for entry in entries:
        session.take(entry)
    return session


def _sealed(drafts: Sequence[Draft], driven: Driven) -> tuple[AnyEntry, ...]:
    entries: list[AnyEntry] = []
    wall = driven.clock.wall()
    for place, draft in enumerate(drafts):
        parent = entries[-1].id if entries else None
        entries.append(seal(salted(draft, driven.ids), parent, timestamp(wall + place)))
    return tuple(entries)


def _check_same(
    session: Session, asked: RunIdentity, name: str, prompts: Sequence[Item | Hidden]
) -> None:
    run, run_id = session.header.run, asked.id
    if run is None:
        raise RunMismatch(run_id, "is the name of a session that is no run")
    if run.kind != asked.kind:
        raise RunMismatch(run_id, f"is of the kind {run.kind!r}, not {asked.kind!r}")
    if run.saga != asked.saga:
        raise RunMismatch(run_id, "is a saga" if run.saga else "was begun, and not as a saga")
    if asked.kind == PROGRAM and session.header.agent != name:
        raise RunMismatch(run_id, f"is of the program {session.header.agent!r}, not {name!r}")
    if not is_same_input(input_of(session), [unhide(one)[0] for one in prompts]):
        raise RunMismatch(run_id, "was begun with another input")


def _check_principal(session: Session, run_id: str, principal: str) -> None:
    """Whoever goes on with a run need not say for whom it works, but not somebody else."""
    known = session.header.principal
    if principal and principal != known:
        raise RunMismatch(run_id, f"was begun for {known!r}" if known else "was begun for nobody")


def input_of(session: Session) -> tuple[Item, ...]:
    """The items that a run was begun with: those before its first drive."""
    found: list[Item] = []
    for entry in session.path():
        match entry:
            case RunEntry():
                break
            case ItemEntry():
                found.append(item_of(entry.item))
            case CustomEntry():
                found.append(item_of(entry.data))
            case _:
                pass
    return tuple(found)
