"""One session as a JSONL file: what it holds, and how lines get to its end.

A crash may leave the last line cut. It is *torn* and trimmed before the next append; a whole last
line that lacks its line end counts, and gets it. Readers trim nothing.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field

from perdure.errors import CorruptLog, NoSession, StoreFailed
from perdure.log.entries import MESSAGE
from perdure.log.header import Header, decode_header, raised


class _Place(Struct, frozen=True, kw_only=True):
    """What an index needs of an entry."""

    id: str = ""
    parent: str | None = None
    message: str = field(default="", name=MESSAGE)


_PLACE = msgspec.json.Decoder(_Place)


class SessionFile:
    """The index of one file. `refresh` makes it current; what it shows is as of then."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: Header = Header()
        self.lines: list[bytes] = []
        self.places: dict[str, int] = {}
        self.parents: dict[str, str | None] = {}
        self.consumed: set[str] = set()
        self.torn: bytes | None = None
        """The last line, if it was cut."""
        self._corrupt = 0  # the line that is no entry, and not the last
        self._state: tuple[int, int, int] = (0, 0, 0)  # inode, size, time of change
        self._good = 0  # up to here it is whole
        self._unended = False  # the last whole line lacks its line end
        self._lock = threading.RLock()

    @property
    def version(self) -> int:
        return len(self.lines)

    def lines_from(self, version: int) -> Sequence[bytes]:
        return self.lines[version:]

    def has(self, entry: str) -> bool:
        return entry in self.parents

    @property
    def size(self) -> int:
        """The bytes of its whole lines."""
        return self._good

    # --- reading -------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read what changed since the last time.

        Raises:
            NoSession: The file is gone.
            CorruptLog: It has no header.
            UnsupportedFormat: Its header names another format.
        """
        with self._lock:
            try:
                self._refresh()
            except FileNotFoundError:
                raise NoSession(self.path.stem.rpartition("_")[2]) from None

    def _refresh(self) -> None:
        stat = self.path.stat()
        if (stat.st_ino, stat.st_size, stat.st_mtime_ns) == self._state:
            return
        data = b""
        if stat.st_ino == self._state[0] and self.torn is None and not self._unended:
            data = self._news()
        if not data:
            self._clear()
            data = self._bytes(0)
        if not data:
            raise CorruptLog("there is no header", line=1)
        start = self._good
        self._index(data, start)
        self._state = (stat.st_ino, start + len(data), stat.st_mtime_ns)

    def _news(self) -> bytes:
        """What stands behind the last line known; empty if that line is not there any more.

        A line that could not be made durable is taken back, and another may stand in its place.
        """
        if not self.lines:
            return b""
        known = self.lines[-1] + b"\n"
        data = self._bytes(self._good - len(known))
        return data.removeprefix(known) if data.startswith(known) else b""

    def _bytes(self, start: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read()

    def _clear(self) -> None:
        self.header, self.lines, self.places, self.parents = Header(), [], {}, {}
        self.consumed, self.torn = set(), None
        self._corrupt, self._good, self._unended = 0, 0, False

    def _index(self, data: bytes, start: int) -> None:
        at = 0
        while at < len(data):
            end = data.find(b"\n", at)
            line = data[at:] if end < 0 else data[at:end]
            last = end < 0 or end == len(data) - 1
            if not start and not at:
                self.header = decode_header(line)
            elif not self._take(line):
                if last:
                    self.torn = line
                    return
                self._corrupt = self._corrupt or len(self.lines) + 2
                self.lines.append(line)
            self._unended = end < 0
            at = len(data) if end < 0 else end + 1
            self._good = start + at

    def _take(self, line: bytes) -> bool:
        try:
            place = _PLACE.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        self.places[place.id] = len(self.lines)
        self.lines.append(line)
        self.parents[place.id] = place.parent
        if place.message:
            self.consumed.add(place.message)
        return True

    # --- writing -------------------------------------------------------------------------

    def write(self, lines: Sequence[bytes]) -> None:
        """Put lines at the end, durably; with none, make what is there durable.

        Raises:
            CorruptLog: A line before the last is no entry.
            StoreFailed: The file could not be written. What was written is taken back as far as
                that succeeds.
        """
        with self._lock:
            self._write(lines)

    def _write(self, lines: Sequence[bytes]) -> None:
        if self._corrupt:
            raise CorruptLog("not an entry; repair the session first", line=self._corrupt)
        try:
            if lines and raised(self.header) is not self.header:
                self._raise_header()
            self._append(lines)
        except OSError as error:
            raise StoreFailed(f"{str(self.path)!r} could not be written: {error}") from error
        self.refresh()

    def _append(self, lines: Sequence[bytes]) -> None:
        with self.path.open("r+b", buffering=0) as file:
            if self.torn is not None:
                file.truncate(self._good)
                self.torn = None
            start = file.seek(0, os.SEEK_END)
            text = b"".join(line + b"\n" for line in lines)
            if self._unended:
                text = b"\n" + text
            try:
                _write_all(file.fileno(), text)
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(start)
                raise

    def replace(self, header: Header, lines: Sequence[bytes]) -> None:
        """Put other lines in place of all, or none of them.

        Raises:
            StoreFailed: The file could not be written.
        """
        with self._lock:
            try:
                self._replace(header, lines)
            except OSError as error:
                raise StoreFailed(f"{str(self.path)!r} could not be written: {error}") from error

    def _raise_header(self) -> None:
        """Replace the file by one with the format's present name, never in place."""
        self._replace(raised(self.header), self.lines)

    def _replace(self, header: Header, lines: Sequence[bytes]) -> None:
        replace_file(self.path, b"".join(line + b"\n" for line in (header.line, *lines)))
        self._state = (0, 0, 0)
        self.refresh()


def _write_all(handle: int, text: bytes) -> None:
    view = memoryview(text)
    while view:
        view = view[os.write(handle, view) :]


def replace_file(path: Path, text: bytes) -> None:
    """Give a file new content, or none of it."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    write_new(fresh, text)
    fresh.replace(path)
    sync_directory(path.parent)


def write_new(path: Path, text: bytes) -> None:
    """Write a file durably, whatever was there."""
    with path.open("wb", buffering=0) as file:
        _write_all(file.fileno(), text)
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Make the names of a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
