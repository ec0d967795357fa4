"""What tests of recorded agents share: stores that crash and fail, and what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.log import Filters, Session, Store, read_lines
from perdure.stores.memory import MemoryStore
from perdure.wire import FunctionCall, FunctionCallOutput, Item

NAME = "chat"


async def session_in(store: Store, name: str = NAME) -> Session:
    """What the store holds of a session, verified."""
    (listed,) = (await store.list(Filters(name=name))).sessions
    stored = await store.read(listed.id)
    reading = read_lines(stored.header, stored.lines)
    assert reading.faults == ()
    return reading.session


async def crashed(store: Store, keep: int | None = None) -> MemoryStore:
    """What the next process finds, were this one to die now, or after `keep` entries."""
    found = MemoryStore()
    for listed in (await store.list(Filters())).sessions:
        stored = await store.read(listed.id)
        session = read_lines(stored.header, stored.lines[:keep], verify=False).session
        await found.create(session.header, name=listed.name, batch=session.entries)
    return found


def outputs(items: Iterable[Item]) -> list[tuple[str, str]]:
    return [(one.call_id, one.text) for one in items if isinstance(one, FunctionCallOutput)]


def paired(items: Sequence[Item]) -> bool:
    """Whether every call has exactly one output, behind it."""
    waiting: set[str] = set()
    seen: set[str] = set()
    for one in items:
        if isinstance(one, FunctionCall):
            waiting.add(one.call_id)
        elif isinstance(one, FunctionCallOutput):
            if one.call_id not in waiting or one.call_id in seen:
                return False
            waiting.discard(one.call_id)
            seen.add(one.call_id)
    return not waiting


def types(session: Session) -> list[str]:
    """The entries of a session, shortly."""
    shown: list[str] = []
    for entry in session.entries:
        members = entry.members
        more = members.get("verdict") or members.get("phase") or members.get("ns") or ""
        reason = members.get("reason", "") if entry.type == "run" else ""
        shown.append(" ".join(str(one) for one in (entry.type, more, reason) if one))
    return shown
