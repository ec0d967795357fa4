"""Where something happens in a run: by what the ledger of chaos and the log both know it.

The *path* to a session is the calls that made it and those above it; the *place* of a
call, or of a step, is the path and its own name behind it. A tool is watched where it runs, and the
log is read session by session: both have to come to the same words.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Generator, Mapping, Sequence

from perdure.log import Header, Store
from perdure.log.entries import DispatchEntry
from perdure.log.session import Session

_NOTHING = 1 << 62
"""A version behind every entry: only the header is read."""

_around: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar(
    "perdure_chaos_path", default=()
)


def path_here() -> tuple[str, ...]:
    """The path to the session that the running tool belongs to."""
    return _around.get()


@contextlib.contextmanager
def below(call_id: str) -> Generator[None]:
    """What runs inside belongs to the session of this call."""
    token = _around.set((*_around.get(), call_id))
    try:
        yield
    finally:
        _around.reset(token)


async def path_to(store: Store, session: str) -> tuple[str, ...]:
    """The path to a session, from its header and those above it."""
    header = (await store.read(session, since=_NOTHING)).header
    if header.id == header.lease_root:
        return ()
    return (*await path_to(store, header.parent_session), header.spawned_by)


def paths_in(headers: Mapping[str, Header]) -> dict[str, tuple[str, ...]]:
    """The paths to all sessions of a run, whatever order they are in."""

    def path(header: Header) -> tuple[str, ...]:
        above = headers.get(header.parent_session)
        if header.id == header.lease_root or above is None:
            return ()
        return (*path(above), header.spawned_by)

    return {name: path(header) for name, header in headers.items()}


def place_of(path: Sequence[str], call_id: str, step: str = "") -> str:
    """The place of a call, or of a step of it; a program's own step has no call."""
    own = (call_id,) if call_id else ()
    return "/".join((*path, *own, *((f"step:{step}",) if step else ())))


def step_keys(session: Session, call_id: str, step: str) -> frozenset[str]:
    """The idempotency keys under which a step of a call was taken."""
    return frozenset(
        f"{entry.idempotency_key}/{step}"
        for entry in session.entries
        if isinstance(entry, DispatchEntry) and entry.call_id == call_id
    )
