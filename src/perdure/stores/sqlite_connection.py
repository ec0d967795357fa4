"""Connections to a SQLite file, and what their errors mean."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from sqlite3 import Connection
from typing import TypeVar

from perdure.errors import ConfigError, PerdureError, StoreFailed

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds to wait for a lock that another process has, before the store gives up."""

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_LOG_SIZE = 32 << 20  # bytes that the write-ahead log keeps once it begins anew
_FIRST_PAUSE, _LAST_PAUSE = 0.0002, 0.003


def connect(path: Path, *, timeout: float = 0.0) -> Connection:
    """A connection without implicit transactions, for any thread that has it to itself.

    Args:
        path: The file.
        timeout: Seconds for SQLite's own waiting. Writers wait by `patiently` instead: SQLite
            sleeps up to a tenth of a second, and a writer that rarely looks rarely gets a turn.
    """
    connection = sqlite3.connect(
        path, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        _set_up(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: Connection) -> None:
    # FULL: a commit that returned survives the loss of power, also on macOS.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")
    connection.execute("PRAGMA checkpoint_fullfsync = ON")
    # Checkpoints run on a connection of their own (LOG 1.6).
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA journal_size_limit = {_LOG_SIZE}")


def synchronise(connection: Connection) -> None:
    """Make what is there durable, before anybody is told of it.

    A process that was killed between writing and synchronising leaves what the next one reads and
    a loss of power still takes. A checkpoint synchronises what it copies.
    """
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 for an error of the Python module."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def patiently(work: Callable[[], T], patience: float) -> T:
    """Do what may find the database locked, again until it is not.

    Raises:
        sqlite3.Error: It failed otherwise, or was locked for `patience` seconds.
    """
    end = time.monotonic() + patience
    pause = _FIRST_PAUSE
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if primary_code(error) not in _BUSY or time.monotonic() >= end:
                raise
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(pause * 2, _LAST_PAUSE)


def failure(error: Exception, path: Path) -> Exception:
    """What a caller gets for an error of a connection."""
    if isinstance(error, PerdureError):
        return error
    if isinstance(error, UnicodeEncodeError):
        return ConfigError(f"a store keeps no text like {error.object!r}")
    if not isinstance(error, sqlite3.Error | OSError):
        return error
    if isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_NOTADB:
        return ConfigError(f"{str(path)!r} is no SQLite database")
    failed = StoreFailed(f"{str(path)!r}: {error}")
    failed.__cause__ = error
    return failed
