"""Taking turns: processes that all write to one SQLite file, each for as long as it has work.

SQLite's lock has no queue. Whoever commits and begins again at once finds it free, and who waits
looks now and then and finds it taken. So whoever wants to begin first takes the *turn*, a lock on a
small file beside the database, and keeps it until it has begun: a second transaction of the same
process then comes after that of whoever waited. Safety does not rest on it, and where it cannot be
had, beginning goes on without.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import time
from collections.abc import Generator
from pathlib import Path

_PAUSE = 0.0005


class Turn:
    """The turn of one file, for one thread."""

    def __init__(self, path: Path, patience: float) -> None:
        self._path = path.with_name(path.name + "-turn")
        self._patience = patience
        self._handle: int | None = None

    @contextlib.contextmanager
    def taken(self) -> Generator[None]:
        """Hold it while the block runs, if it can be had in time."""
        held = self._take()
        try:
            yield
        finally:
            if held and self._handle is not None:
                fcntl.flock(self._handle, fcntl.LOCK_UN)

    def _take(self) -> bool:
        end = time.monotonic() + self._patience
        with contextlib.suppress(OSError):
            if self._handle is None:
                self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            while time.monotonic() < end:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                time.sleep(_PAUSE * random.uniform(0.5, 1.5))
        return False

    def close(self) -> None:
        """Let go of the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
