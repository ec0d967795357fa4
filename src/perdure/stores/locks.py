"""The two locks of a session on files.

The *lease* is the format's lock file: made if absent, held by a live process, not lapsing by time.
It names its process and machine; that of a dead process of this machine is taken over. The
*momentary* lock is held while something is written, by whoever writes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Callable, Generator
from pathlib import Path

import msgspec
from msgspec import Struct

from perdure.errors import FenceLost, Leased
from perdure.log.store import Fence
from perdure.stores.session_file import write_new


class Lock(Struct, frozen=True, kw_only=True):
    """What a lock file says."""

    pid: int
    host: str
    since: str
    nonce: str = ""
    holder: str = ""


OnTakeover = Callable[[str, Lock], None]
"""Called with the root session and the dead holder's lock: the durable sign of a crash."""

_mine: set[str] = set()
"""The nonces that this process holds, to tell its own locks from those of a dead process that had
its number, as after the restart of a container."""


@contextlib.contextmanager
def steady(path: Path) -> Generator[None]:
    """`momentary` for a reader, who sees nothing then that is not durable yet.

    Where no lock can be made, nobody writes.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(PermissionError, FileNotFoundError):
            stack.enter_context(momentary(path))
        yield


@contextlib.contextmanager
def momentary(path: Path) -> Generator[None]:
    """Hold the momentary lock at `path`."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def take_lease(path: Path, root: str, lock: Lock, on_takeover: OnTakeover | None) -> None:
    """Make the lock file, under the momentary lock.

    Raises:
        Leased: A live process has it, or one of another machine, or it cannot be read.
    """
    found = read_lock(path)
    if found is not None:
        if not _is_dead(found):
            raise Leased(root, found.holder or f"process {found.pid} on {found.host}")
        path.unlink(missing_ok=True)
        if on_takeover is not None:
            on_takeover(root, found)
    fresh = path.with_name(f".{path.name}.{lock.nonce}")
    write_new(fresh, msgspec.json.encode(lock))
    try:
        os.link(fresh, path)  # other implementations make it without our momentary lock
    except FileExistsError:
        raise Leased(root, "another process") from None
    finally:
        fresh.unlink()
    _mine.add(lock.nonce)


def drop_lease(path: Path, fence: Fence) -> None:
    """Remove the lock file, under the momentary lock, if it is the fence's."""
    found = read_lock(path)
    if found is not None and found.nonce == fence.nonce:
        path.unlink(missing_ok=True)
    _mine.discard(fence.nonce)


def check_lease(path: Path, root: str, fence: Fence | None) -> None:
    """Whether a fence is in force, under the momentary lock.

    Raises:
        FenceLost: It is not.
    """
    found = read_lock(path)
    if fence is None or found is None or not found.nonce or found.nonce != fence.nonce:
        raise FenceLost(root)


def read_lock(path: Path) -> Lock | None:
    """What a lock file says; one that cannot be read belongs to nobody known."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Lock)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Lock(pid=0, host="", since="", holder="somebody who left an unreadable lock")


def _is_dead(lock: Lock) -> bool:
    if lock.host != socket.gethostname() or lock.pid <= 0:
        return False
    if lock.pid == os.getpid():
        return lock.nonce not in _mine
    try:
        os.kill(lock.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
