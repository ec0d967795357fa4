"""What a SQLite store says of itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from sqlite3 import Connection, sqlite_version

from perdure.stores.upkeep import Finding

_ROOM = 256 << 20  # bytes that should be free
_LOG = 256 << 20  # bytes that a write-ahead log should not reach


def examine(connection: Connection, path: Path) -> tuple[Finding, ...]:
    """What is right with the file, and what is not."""
    return tuple(_findings(connection, path))


def _findings(connection: Connection, path: Path) -> Iterator[Finding]:
    size = path.stat().st_size
    yield Finding("ok", f"SQLite {sqlite_version}, {size >> 10} KiB in {str(path)!r}")
    found = [str(text) for (text,) in connection.execute("PRAGMA quick_check")]
    if found == ["ok"]:
        yield Finding("ok", "its pages are whole")
    else:
        yield Finding("error", f"it is damaged: {found[0]}", "restore it from a backup")
    log = path.with_name(path.name + "-wal")
    behind = log.stat().st_size if log.exists() else 0
    if behind > _LOG:
        yield Finding(
            "warning",
            f"{behind >> 20} MiB wait in its write-ahead log",
            "look for a program that keeps a reading transaction open",
        )
    free = shutil.disk_usage(path.parent).free
    if free < _ROOM:
        yield Finding("warning", f"the disk has {free >> 20} MiB left", "make room")
