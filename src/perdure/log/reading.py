"""Reading: lines to a session, and what is wrong with them.

A torn last line is a crash in the middle of an append and is left out. Whatever else is wrong is a
fault; what can still be placed in the tree is read all the same, so that one bad line does not
hide the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from perdure.errors import CorruptLog, NotIJson
from perdure.log.entries import AnyEntry, decode_entry
from perdure.log.header import Header, decode_header
from perdure.log.migrate import Migration
from perdure.log.session import Session
from perdure.log.verify import (
    Fault,
    FaultKind,
    base_fault,
    computed_id,
    integrity_fault,
    verify_meaning,
)


class Reading(NamedTuple):
    """What was read."""

    session: Session
    faults: tuple[Fault, ...]
    """In the order of the file; empty for a session that is whole."""
    torn: bytes = b""
    """The last line, if it was cut."""


def read_session(data: bytes, *, verify: bool = True, origins: Iterable[Session] = ()) -> Reading:
    """The session of a file's bytes.

    Args:
        data: The file.
        verify: Whether hashes and meaning are checked. What cannot be read at all is always told.
        origins: The sessions it was forked from, nearest first.

    Raises:
        CorruptLog: The first line is no header.
        UnsupportedFormat: It names a format this version does not read.
    """
    lines = data.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise CorruptLog("there is no header", line=1)
    return read_lines(lines[0], lines[1:], verify=verify, origins=origins)


def read_lines(
    header: bytes | Header,
    lines: Sequence[bytes],
    *,
    verify: bool = True,
    origins: Iterable[Session] = (),
) -> Reading:
    """The session of a header and the lines after it. Raises as `read_session`."""
    reader = _Reader(
        header if isinstance(header, Header) else decode_header(header), verify, tuple(origins)
    )
    for number, line in enumerate(lines, 2):
        reader.read(line, number, last=number == len(lines) + 1)
    return reader.finish()


class _Reader:
    def __init__(self, header: Header, verify: bool, origins: Sequence[Session]) -> None:  # noqa: FBT001
        self._session = Session(header, origins=origins)
        self._verify = verify
        self._migration = Migration() if header.legacy else None
        self._faults: list[Fault] = []
        self._lines: dict[str, int] = {}
        self._lost: set[str] = set()  # entries that could not be placed
        self._gap = False  # a line was lost, so a parent that is missing is no fault of its own
        self._torn = b""

    def read(self, line: bytes, number: int, *, last: bool) -> None:
        try:
            entry = decode_entry(line)
        except CorruptLog as error:
            self._gap = True
            if last:
                self._torn = line
            self._faults.append(Fault("torn" if last else "unreadable", number, "", error.reason))
            return
        if self._migration is not None:
            entry = self._migrate(entry, number)
        if self._check(entry, number):
            self._place(entry, number)
        else:
            self._gap = True

    def finish(self) -> Reading:
        if self._verify:
            self._faults += verify_meaning(self._session, self._lines)
            self._faults.sort(key=lambda fault: fault.line)
        return Reading(self._session, tuple(self._faults), self._torn)

    def _migrate(self, entry: AnyEntry, number: int) -> AnyEntry:
        if self._migration is None:
            return entry
        if not entry.id:
            self._fault("missing_id", number, entry, "the entry has no id")
        elif entry.id in self._migration:
            self._fault("duplicate", number, entry, f"the id {entry.id!r} stands twice")
        for ref in entry.parents:
            if not ref.session and ref.entry not in self._migration:
                reason = f"it converges {ref.entry!r}, which does not stand before it"
                self._fault("parents", number, entry, reason)
        try:
            return self._migration.migrate(entry)
        except (NotIJson, ValueError) as error:
            self._fault("malformed", number, entry, str(error))
            return entry

    def _check(self, entry: AnyEntry, number: int) -> bool:
        """Report what is wrong with an entry by itself; False if it cannot have an id."""
        if self._verify and self._migration is None:
            fault = integrity_fault(entry)
            if fault is not None:
                self._fault(fault[0], number, entry, fault[1])
            self._check_parents(entry, number)
        if not entry.id:
            try:
                msgspec.structs.force_setattr(entry, "id", computed_id(entry))
            except NotIJson:
                return False
        return True

    def _check_parents(self, entry: AnyEntry, number: int) -> None:
        for ref in entry.parents:
            if not ref.session and ref.entry not in self._session:
                reason = f"it converges {ref.entry!r}, which does not stand before it"
                self._fault("parents", number, entry, reason)

    def _place(self, entry: AnyEntry, number: int) -> None:
        session = self._session
        if entry.id in session:
            self._fault("duplicate", number, entry, f"line {self._lines[entry.id]} has this entry")
            return
        if entry.parent is not None and entry.parent not in session:
            if entry.parent not in self._lost and not self._gap:
                self._fault("parent", number, entry, f"its parent {entry.parent!r} is not here")
            self._lost.add(entry.id)
            return
        if self._verify and (reason := base_fault(entry, session.header, session)):
            self._fault("base", number, entry, reason)
        self._lines[entry.id] = number
        session.take(entry)

    def _fault(self, kind: FaultKind, number: int, entry: AnyEntry, reason: str) -> None:
        self._faults.append(Fault(kind, number, entry.id, reason))
