"""The inbox of a session on files: one line a message, beside the session."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from perdure.errors import StoreFailed
from perdure.log.store import Message, Put
from perdure.stores.session_file import replace_file, sync_directory


class _Line(Struct, frozen=True, kw_only=True):
    id: str
    body: Raw
    stop: bool = False


_LINE = msgspec.json.Decoder(_Line)


def _text_of(line: _Line) -> bytes:
    return msgspec.json.encode(line).replace(b"\n", b" ") + b"\n"


class InboxFile:
    """Reads and adds messages, under the momentary lock of the root."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state: tuple[int, int] = (0, 0)
        self._messages: dict[str, Message] = {}
        self._good = 0
        self._lock = threading.RLock()

    def messages(self) -> dict[str, Message]:
        """All messages ever put, by their ids, in the order of their numbers."""
        with self._lock:
            return self._current()

    def _current(self) -> dict[str, Message]:
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            self._state, self._messages, self._good = (0, 0), {}, 0
            return self._messages
        state = (stat.st_ino, stat.st_size)
        if state != self._state:
            self._read()
            self._state = state
        return self._messages

    def _read(self) -> None:
        self._messages, self._good = {}, 0
        for line in self._path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                return  # torn: it was never acknowledged
            try:
                read = _LINE.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return
            number = len(self._messages) + 1
            self._messages[read.id] = Message(
                id=read.id, body=bytes(read.body), stop=read.stop, number=number
            )
            self._good += len(line)

    def put(self, message: Message, *, stop: bool) -> Put:
        """Add a message, durably.

        Raises:
            StoreFailed: The file could not be written.
        """
        with self._lock:
            return self._put(message, stop=stop)

    def _put(self, message: Message, *, stop: bool) -> Put:
        found = self._current().get(message.id)
        if found is not None:
            return Put(found.number, duplicate=True)
        line = _Line(id=message.id, body=Raw(message.body), stop=stop)
        text = _text_of(line)
        try:
            self._append(text)
        except OSError as error:
            raise StoreFailed(f"{str(self._path)!r} could not be written: {error}") from error
        return Put(len(self._messages) + 1)

    def empty(self, messages: Collection[str]) -> None:
        """Remove the bodies of messages; their ids stay known.

        Raises:
            StoreFailed: The file could not be written.
        """
        with self._lock:
            known = self._current()
            if not any(message in known for message in messages):
                return
            lines = [
                _Line(
                    id=one.id,
                    body=Raw(b"{}" if one.id in messages else one.body),
                    stop=one.stop,
                )
                for one in known.values()
            ]
            try:
                replace_file(self._path, b"".join(map(_text_of, lines)))
            except OSError as error:
                raise StoreFailed(f"{str(self._path)!r} could not be written: {error}") from error

    def _append(self, text: bytes) -> None:
        fresh = not self._path.exists()
        with self._path.open("ab", buffering=0) as file:
            file.truncate(self._good)
            try:
                file.write(text)
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(self._good)
                raise
        if fresh:
            sync_directory(self._path.parent)
