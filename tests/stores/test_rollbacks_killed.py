"""A saga that is cancelled while it is rolled back, by processes that are killed at their writes.

Whoever dies where, the next driver undoes what was done, the last first, and closes the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import SagaReport, SagaRolledBack
from perdure.clock import SystemClock
from perdure.errors import RunFinished
from perdure.log.reading import read_lines
from perdure.stores.sqlite import SqliteStore
from tests.stores.rollback_killed import book_of, cancel, roll_back

ROOT = Path(__file__).parents[2]
WRITES = range(1, 10)
"""More than a rollback has, so that one process comes through."""

SPOTS = [
    *(("after", "commit", number) for number in WRITES),
    *(("inside", "committed", number) for number in WRITES),
    *(("dying", point, number) for point in ("commit", "committed") for number in (3, 6)),
]


class Later(SystemClock):
    """After every lease has lapsed."""

    def wall(self) -> int:
        return super().wall() + 3600 * 10**9


async def killed(directory: Path) -> dict[str, str]:
    """How the processes of each spot ended, by its name."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tests.stores.rollback_killed", str(directory)],
        cwd=ROOT,
        input="\n".join(f"{who}-{point}-{n} {who} {point} {n}" for who, point, n in SPOTS),
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    return dict(line.split("\t") for line in done.stdout.splitlines())


async def finished(directory: Path, name: str) -> tuple[str, SagaReport | None]:
    """Drive the run to its end; how it ended, and what was undone."""
    try:
        result = await roll_back(directory, name, clock=Later())
    except SagaRolledBack as error:
        return "rolled_back", error.report
    return result.status, result.report


async def test_a_cancel_during_a_rollback_survives_every_kill(tmp_path: Path) -> None:
    ended = await killed(tmp_path)
    assert sum("-9" in one for one in ended.values()) > len(SPOTS) / 2
    for name in ended:
        book = book_of(tmp_path, name)
        if name.startswith("after"):
            with contextlib.suppress(RunFinished):  # it came through
                await cancel(tmp_path, name)
        told = book.lines.index("cancelled") if "cancelled" in book.lines else None
        status, report = await finished(tmp_path, name)
        check_book(name, book.lines, told)
        assert status in ("rolled_back", "cancelled"), name
        assert report is not None
        assert [one.tool for one in report.compensated] == ["pay", "pay"], name
        assert (report.uncompensated, report.unknown) == ((), ()), name
        store = SqliteStore(tmp_path / f"{name}.db", clock=Later())
        for listed in (await store.list()).sessions:
            stored = await store.read(listed.id)
            reading = read_lines(stored.header, stored.lines)
            assert reading.faults == (), name
            closed = [one for one in reading.session.entries if one.type == "perdure:closed"]
            assert len(closed) == 1, name
        await store.close()


def check_book(name: str, lines: list[str], told: int | None) -> None:
    """What was done is undone, the last first, and nothing is done once the cancel returned."""
    undone = list(dict.fromkeys(line for line in lines if line.startswith("undid ")))
    assert undone == ["undid 2", "undid 1"], name
    assert [line for line in lines if line.startswith("did ")] == ["did 1", "did 2"], name
    assert all(lines.count(line) <= 2 for line in undone), name  # cut inside, it runs once more
    if told is not None:
        assert not any(line.startswith("did ") for line in lines[told:]), name


async def test_a_run_that_is_over_takes_no_cancel(tmp_path: Path) -> None:
    status, _ = await finished(tmp_path, "whole")
    assert status == "rolled_back"
    with pytest.raises(RunFinished):
        await cancel(tmp_path, "whole")
