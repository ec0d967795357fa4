"""A driver that is stopped past its lease, between a dispatch and the first line of its tool.

A real process stops itself with SIGSTOP once the dispatch is durable, and is woken when its lease
has lapsed. It must not enter the tool, and must say that it did not (LOG 2.2, 3.4, 5.1).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure import Runs
from perdure.durable import find_run, read_run
from perdure.log import Session
from perdure.log.entries import NotStartedEntry, RefusedEntry
from perdure.stores import open_store
from perdure.testing.chaos_ledger import EffectLedger
from perdure.testing.chaos_simulated import simulate
from perdure.testing.chaos_store import Fault, Faults
from tests.chaos.paused import LEASE, RUN, drive, never

ROOT = Path(__file__).parents[2]
PATIENCE = 60


class Paused:
    """A process that has stopped where its tool is next."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def wake(self) -> str:
        """Let it go on to its end; how the run stands, as its caller is told."""
        os.kill(self._process.pid, signal.SIGCONT)
        told, _ = self._process.communicate(timeout=PATIENCE)
        assert self._process.returncode == 0
        return told


@contextmanager
def paused(url: str, directory: Path) -> Generator[Paused]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.paused", url, str(directory)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Paused(process)
    finally:
        process.kill()
        process.communicate()


def entered(directory: Path) -> int:
    lines = EffectLedger(directory).lines(RUN)
    return sum(line.phase == "entered" for line in lines)


async def ask(url: str, directory: Path) -> str:
    """Another process asks for the run, once the lease has lapsed."""
    store = open_store(url)
    try:
        return await drive(store, EffectLedger(directory), Faults(None, never))
    finally:
        await store.close()


async def record(url: str) -> Session:
    store = open_store(url)
    try:
        return await read_run(store, await find_run(store, RUN))
    finally:
        await store.close()


def not_started(session: Session) -> list[NotStartedEntry]:
    return [entry for entry in session.entries if isinstance(entry, NotStartedEntry)]


def dispatches(session: Session) -> list[str]:
    return [entry.id for entry in session.entries if entry.type == "dispatch"]


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/log.db"


def test_it_enters_nothing_and_goes_on_under_a_new_lease(sqlite: str, tmp_path: Path) -> None:
    with paused(sqlite, tmp_path) as process:
        asyncio.run(asyncio.sleep(2 * LEASE))
        assert entered(tmp_path) == 0
        assert process.wake() == "done"
    assert entered(tmp_path) == 1
    session = asyncio.run(record(sqlite))
    first, second = dispatches(session)
    assert [entry.target for entry in not_started(session)] == [first]
    assert first != second


def check_told_through_the_inbox(url: str, directory: Path) -> None:
    with paused(url, directory) as process:
        assert asyncio.run(ask(url, directory)) == "halted"
        assert entered(directory) == 0
        assert process.wake() == "done"
    assert entered(directory) == 1
    session = asyncio.run(record(url))
    (told,) = not_started(session)
    assert told.target == dispatches(session)[0]
    assert told.message == f"not_started/{told.target}"
    assert len(dispatches(session)) == 2


def test_that_it_never_started_is_told_through_the_inbox(sqlite: str, tmp_path: Path) -> None:
    check_told_through_the_inbox(sqlite, tmp_path)


def test_the_same_on_postgres(postgres_server: str, postgres_schema: str, tmp_path: Path) -> None:
    check_told_through_the_inbox(f"{postgres_server}&schema={postgres_schema}", tmp_path)


async def say_that_it_never_ran(url: str) -> None:
    store = open_store(url)
    runs = Runs(store)
    (waiting,) = (await runs.get(RUN)).pending
    await runs.resolve(RUN, waiting.call.call_id, never_ran=True, min_age=0.0, by="ann")
    await store.close()


def test_what_it_knows_too_late_is_refused(sqlite: str, tmp_path: Path) -> None:
    with paused(sqlite, tmp_path) as process:
        assert asyncio.run(ask(sqlite, tmp_path)) == "halted"
        asyncio.run(say_that_it_never_ran(sqlite))
        assert asyncio.run(ask(sqlite, tmp_path)) == "done"
        assert process.wake() == "done"
    assert entered(tmp_path) == 1
    session = asyncio.run(record(sqlite))
    assert not_started(session) == []
    assert [entry.reason for entry in session.entries if isinstance(entry, RefusedEntry)] == [
        "the run is over"
    ]


def test_what_it_knows_voids_no_later_dispatch(sqlite: str, tmp_path: Path) -> None:
    """Its dispatch was resolved; the next one has fired, and the process of that has died."""
    with paused(sqlite, tmp_path) as process:
        assert asyncio.run(ask(sqlite, tmp_path)) == "halted"
        asyncio.run(say_that_it_never_ran(sqlite))
        assert simulate(dying(sqlite, tmp_path), Fault(4, "after"), patience=PATIENCE) == "killed"
        assert entered(tmp_path) == 1
        assert process.wake() == "halted"
    assert entered(tmp_path) == 1
    session = asyncio.run(record(sqlite))
    assert not_started(session) == []
    assert len(dispatches(session)) == 2


def dying(url: str, directory: Path) -> Callable[[Faults], Awaitable[str]]:
    async def work(faults: Faults) -> str:
        return await drive(open_store(url), EffectLedger(directory), faults)

    return work
