"""Verification: what is wrong with a session, named by its entry.

*Integrity*: hashes, ids, parents, timestamps, repeats, the base. *Meaning*: whether decisions and
dispatches were allowed, drives say what their segments do, promises were kept, and the log
rebuilds every request whose hash it holds. Nothing is ever repaired here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from perdure.errors import NotIJson
from perdure.log.drives import STANDING_REASONS
from perdure.log.entries import (
    AnyEntry,
    ConfigEntry,
    ItemEntry,
    ResponseEntry,
    RunEntry,
    UnknownEntry,
)
from perdure.log.header import Header
from perdure.log.ids import ENVELOPE, digest, entry_id
from perdure.log.path import View
from perdure.log.requests import HashFold, hash_fault
from perdure.log.rules import call_fault, promise_fault
from perdure.log.session import Session
from perdure.log.timestamps import is_timestamp
from perdure.wire import canonicalize

FaultKind = Literal[
    "torn",
    "unreadable",
    "malformed",
    "hash",
    "missing_id",
    "duplicate",
    "parent",
    "parents",
    "base",
    "timestamp",
    "call",
    "records",
    "run",
    "reason",
    "pending",
    "source",
    "context",
    "request_hash",
]


class Fault(NamedTuple):
    """One thing that is wrong."""

    kind: FaultKind
    line: int
    """In the file, from 1; the header is line 1."""
    entry: str
    """The entry's id; empty if it has none."""
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.kind}: {self.reason}"


# --- integrity -----------------------------------------------------------------------


def integrity_fault(entry: AnyEntry) -> tuple[FaultKind, str] | None:
    """What is wrong with an entry by itself."""
    if isinstance(entry, UnknownEntry) and entry.malformed:
        return "malformed", entry.malformed
    try:
        computed = computed_id(entry)
    except NotIJson as error:
        return "malformed", str(error)
    if not entry.id:
        return "missing_id", f"the entry has no id; it hashes to {computed!r}"
    if computed != entry.id:
        return "hash", f"the entry hashes to {computed!r}"
    if not is_timestamp(entry.ts):
        return "timestamp", f"{entry.ts!r} is not the one spelling of an instant"
    return _parents_fault(entry)


def computed_id(entry: AnyEntry) -> str:
    """The id that an entry's line gives.

    Raises:
        NotIJson: The line is not I-JSON, or its body has a member that it must not have.
    """
    content = entry.erased or digest(_body(entry.line))
    return entry_id(entry.type, entry.parent, entry.parents, entry.ts, content)


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _body(line: bytes) -> bytes:
    """The body of a line as canonical JSON."""
    members = _MEMBERS.decode(canonicalize(line))
    for name in ENVELOPE:
        members.pop(name, None)
    if "content" in members:
        raise NotIJson("a body must not have a member 'content'")
    return msgspec.json.encode(members)  # canonical pieces in canonical order


def _parents_fault(entry: AnyEntry) -> tuple[FaultKind, str] | None:
    refs = [(ref.session, ref.entry) for ref in entry.parents]
    if refs != sorted(set(refs)):
        return "parents", "the converged entries are not in order, or one stands twice"
    if ("", entry.parent) in refs:
        return "parents", "the parent is among the converged entries"
    return None


def base_fault(entry: AnyEntry, header: Header, session: Session) -> str:
    """What is wrong with where an entry of a fork stands; empty if nothing is."""
    if not header.base:
        return ""
    if header.base not in session:  # the prefix: a chain from the root to the base
        last = session.entries[-1].id if session.entries else None
        return "" if entry.parent == last else "the prefix is not the path to the base"
    if entry.parent is None:
        return "a fork has no root of its own"
    if session.depth(entry.parent) < session.base_depth:
        return f"the entry hangs above the base {header.base!r}"
    return ""


# --- meaning ---------------------------------------------------------------------------


def verify_meaning(session: Session, lines: dict[str, int]) -> Iterator[Fault]:
    """What entries that are whole say and should not, path by path.

    Args:
        session: The session.
        lines: The line of each entry.
    """
    checked: set[str] = set()
    for head in session.heads:
        view, hashes = session.fresh_view(), HashFold()
        for entry in session.path(head):
            fresh = entry.id not in checked
            before = call_fault(view, entry) if fresh else ""
            view.follow(entry)
            if not fresh:
                continue
            checked.add(entry.id)
            line = lines.get(entry.id, 0)
            if before:
                yield Fault("call", line, entry.id, before)
            for kind, reason in _faults_of(session, view, entry, hashes):
                yield Fault(kind, line, entry.id, reason)


def _faults_of(
    session: Session, view: View, entry: AnyEntry, hashes: HashFold
) -> Iterator[tuple[FaultKind, str]]:
    for reason in view.folding.faults:
        yield "context", reason
    match entry:
        case ResponseEntry():
            if fault := hash_fault(entry, view.request(entry), hashes):
                yield "request_hash", fault
        case ItemEntry():
            if fault := promise_fault(session, view, entry):
                yield "records", fault
        case RunEntry():
            yield from _run_faults(view, entry)
        case ConfigEntry():
            yield from _config_faults(view, entry)
        case _:
            pass


def _config_faults(view: View, entry: ConfigEntry) -> Iterator[tuple[FaultKind, str]]:
    given, now = entry.instructions, view.folding.settings.current
    parts = isinstance(entry.instructions_parts, list)
    if parts and isinstance(given, str) and not view.folding.faults and given != now.instructions:
        yield "context", "the instructions are not what their parts make"


def _run_faults(view: View, entry: RunEntry) -> Iterator[tuple[FaultKind, str]]:
    if view.drives.fault:
        yield "run", view.drives.fault
        return
    drive = view.drives.last
    if entry.phase != "end" or drive is None:
        return
    if drive.source and drive.start.source != drive.source:
        yield "source", f"the run says {drive.start.source!r}, its segment {drive.source!r}"
    if set(drive.pending) != set(entry.pending):
        yield "pending", f"the run says {list(entry.pending)}, its segment {list(drive.pending)}"
    if entry.reason not in STANDING_REASONS and entry.reason != drive.reason:
        yield "reason", f"the run says {entry.reason!r}, its segment {drive.reason!r}"
