"""Names of sessions on files: one small file for each, called by the name's hash."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from perdure.errors import NameTaken
from perdure.stores.session_file import sync_directory, write_new


class _Name(Struct, frozen=True):
    name: str
    session: str


class Names:
    """Which session has which name. `take` is called under the directory's momentary lock."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def take(self, name: str, session: str, exists: Callable[[str], bool]) -> None:
        """Give a session a name, before the session is made.

        A name whose session does not exist is one that a crash in between left behind.

        Raises:
            NameTaken: A session that exists has it.
        """
        self._directory.mkdir(exist_ok=True)
        path = self._path(name)
        found = _read(path)
        if found is not None and found.session != session and exists(found.session):
            raise NameTaken(name, found.session)
        write_new(path, msgspec.json.encode(_Name(name, session)))
        sync_directory(self._directory)

    def drop(self, session: str) -> None:
        """Free the names of a session."""
        for one in self._all():
            if one.session == session:
                self._path(one.name).unlink(missing_ok=True)

    def by_session(self) -> dict[str, str]:
        """The name of each session that has one."""
        return {one.session: one.name for one in self._all()}

    def _all(self) -> Iterator[_Name]:
        for path in self._directory.glob("*"):
            one = _read(path)
            if one is not None:
                yield one

    def _path(self, name: str) -> Path:
        return self._directory / hashlib.sha256(name.encode()).hexdigest()


def _read(path: Path) -> _Name | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Name)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
