"""Branching: a fork goes on from an entry of another session, a successor where one ends.

What is made here is a header and the first entries, for `Store.create`. Nothing is written.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Raw

from perdure.clock import Clock, Ids
from perdure.errors import EntryRefused
from perdure.log.entries import AnyEntry
from perdure.log.header import Header, Origin, new_header
from perdure.log.ids import ParentRef, new_session_id
from perdure.log.leaf import is_leaf_label
from perdure.log.path import View
from perdure.log.session import Session
from perdure.log.timestamps import timestamp
from perdure.log.writing import Draft, salted, seal
from perdure.wire import Item, encode


class Beginning(NamedTuple):
    """A session that is to be created."""

    header: Header
    entries: tuple[AnyEntry, ...]


def fork(
    session: Session,
    base: str,
    *,
    clock: Clock,
    ids: Ids,
    name: str = "",
) -> Beginning:
    """A session that goes on from an entry of another: the path to it, shared.

    A drive that is open at the base is closed in the fork, as interrupted.

    Args:
        session: The origin.
        base: The entry to go on from.
        clock: Where the fork's time comes from.
        ids: Where its id comes from.
        name: The fork's name.

    Raises:
        NoEntry: The origin has no such entry.
        EntryRefused: A fork cannot begin there.
    """
    path = session.path(base)
    fault = _base_fault(session, path)
    if fault:
        raise EntryRefused(f"no fork can begin at {base!r}: {fault}")
    wall = clock.wall()
    header = new_header(
        new_session_id(clock, ids),
        timestamp(wall),
        name=name,
        cwd=session.header.cwd,
        origin=Origin(session.id, base),
        media=session.header.media,
        extra={"payload": session.header.payload},
    )
    view = session.at(base)
    return Beginning(header, (*path, *_closed(view, f"fork at {base}", wall, ids)))


def _base_fault(session: Session, path: list[AnyEntry]) -> str:
    if is_leaf_label(path[-1]):
        return "it is a leaf label"
    if session.header.legacy:
        return "its session has no hashes"
    if session.header.redacted:
        return "its session is redacted"
    known = {entry.id for entry in path}
    refs = [ref for entry in path for ref in entry.parents if not ref.session]
    if any(ref.entry not in known for ref in refs):
        return "an entry above it converges one that is not on its path"
    return ""


def interrupted(view: View, why: str) -> list[Draft]:
    """What closes a drive that whoever rewinds or forks into it leaves behind."""
    drive = view.drives.open
    if drive is None:
        return []
    pending, _ = view.drives.verdict(drive, view.calls)
    body = {
        "run_id": drive.run_id,
        "phase": "end",
        "reason": "interrupted",
        "pending": list(pending),
        "ref": why,
    }
    return [Draft("run", body)]


def _closed(view: View, why: str, wall: int, ids: Ids) -> list[AnyEntry]:
    return [
        seal(salted(draft, ids), view.leaf, timestamp(wall)) for draft in interrupted(view, why)
    ]


def successor(
    session: Session, *, clock: Clock, ids: Ids, summary: Item | None = None, name: str = ""
) -> tuple[Beginning, Draft]:
    """A session that goes on where another ends, with its settings and not its items.

    Args:
        session: What it follows.
        clock: Where its time comes from.
        ids: Where its id comes from.
        summary: What to take along of what was said.
        name: What to call it.

    Returns:
        The successor, and the link that the old session gets.
    """
    wall = clock.wall()
    made = new_session_id(clock, ids)
    header = new_header(
        made, timestamp(wall), name=name, cwd=session.header.cwd, origin=Origin(session.id)
    )
    settings = session.view().context.settings.as_json()
    tools = settings.pop("tools", ())
    drafts = [Draft("config", {**settings, "replace": True, "tools_added": tools})]
    if name:
        drafts.append(Draft("info", {"name": name}))
    if summary is not None:
        drafts.append(Draft("item", {"item": Raw(encode(summary))}))
    entries: list[AnyEntry] = []
    for number, draft in enumerate(drafts):
        parent = entries[-1].id if entries else None
        entries.append(seal(salted(draft, ids), parent, timestamp(wall + number)))
    return Beginning(header, tuple(entries)), Draft(
        "link", {"rel": "continued_in", "session": made}
    )


def converging(*entries: str, session: str = "") -> tuple[ParentRef, ...]:
    """The `parents` of an entry in which others come together."""
    return tuple(ParentRef(entry=entry, session=session) for entry in entries)
