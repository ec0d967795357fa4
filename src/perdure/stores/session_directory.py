"""A directory of sessions: finding the file of one, and what stands beside it.

A session that was read is kept, so that the next look reads what is new alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from perdure.errors import CorruptLog, NoSession, UnsupportedFormat
from perdure.log.header import Header
from perdure.log.store import Message, Summary
from perdure.stores.inbox_file import InboxFile
from perdure.stores.layout import is_file_id
from perdure.stores.session_file import SessionFile


class Held:
    """One session: its file and its inbox."""

    def __init__(self, path: Path) -> None:
        self.file = SessionFile(path)
        self.inbox = InboxFile(path.with_name(path.name + ".inbox"))

    @property
    def header(self) -> Header:
        return self.file.header

    @property
    def version(self) -> int:
        return self.file.version

    def lines_from(self, version: int) -> Sequence[bytes]:
        return self.file.lines_from(version)

    def has(self, entry: str) -> bool:
        return self.file.has(entry)

    def waits(self, message: str) -> bool:
        return message in self.inbox.messages() and message not in self.file.consumed

    def unconsumed(self) -> Iterator[Message]:
        consumed = self.file.consumed
        return (one for one in self.inbox.messages().values() if one.id not in consumed)

    def beside(self, suffix: str) -> Path:
        path = self.file.path
        return path.with_name(path.name + suffix)

    @property
    def blobs(self) -> Path:
        """Where its blobs are, each under its hash."""
        return self.file.path.parent / self.header.id

    def summary(self) -> Summary:
        """What was said of it last; nothing if that is lost."""
        try:
            summary = msgspec.json.decode(self.beside(".summary").read_bytes(), type=Summary)
        except (FileNotFoundError, msgspec.DecodeError):
            summary = Summary()
        return msgspec.structs.replace(summary, bytes=self.file.size)

    def keep_summary(self, summary: Summary) -> None:
        """Keep what is said of it."""
        path = self.beside(".summary")
        fresh = path.with_name(f".{path.name}")
        try:
            fresh.write_bytes(msgspec.json.encode(summary))
            fresh.replace(path)
        except OSError:
            path.unlink(missing_ok=True)  # no cache is better than an old one


class SessionDirectory:
    """The sessions of a directory, by their ids; any thread may ask.

    Args:
        path: Where they are; it need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sessions: dict[str, Held] = {}
        self._index = threading.Lock()  # of `_sessions`

    def held(self, session: str) -> Held:
        """A session.

        Raises:
            NoSession: There is none of this id.
        """
        held = self.find(session)
        if held is None:
            raise NoSession(session)
        return held

    def has(self, session: str) -> bool:
        """Whether there is a session of this id."""
        return self.find(session) is not None

    def root(self, held: Held) -> Held:
        """The session whose lease covers another; itself for a root."""
        return held if not held.header.root else self.held(held.header.root)

    def find(self, session: str) -> Held | None:
        """A session as it stands now; None if there is none of this id."""
        if not is_file_id(session):
            return None
        with self._index:
            held = self._sessions.get(session)
        if held is None:
            found = sorted(self.path.glob(f"*/[!.]*_{session}.jsonl"))
            if not found:
                return None
            held = Held(found[0])
        try:
            held.file.refresh()
        except NoSession:
            self.forget(session)
            return None
        with self._index:
            return self._sessions.setdefault(session, held)

    def all(self) -> Iterator[Held]:
        """Every session, the oldest first in each folder; those that are not ours to read apart."""
        for path in sorted(self.path.glob("*/[!.]*.jsonl")):
            try:
                held = self.find(path.stem.rpartition("_")[2])
            except (CorruptLog, UnsupportedFormat):
                continue
            if held is not None:
                yield held

    def forget(self, session: str) -> None:
        """Keep a session no more, which was deleted."""
        with self._index:
            self._sessions.pop(session, None)
