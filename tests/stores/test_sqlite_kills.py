"""Processes killed at every stop point of a drive on SQLite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perdure.stores.sqlite import SqliteStore
from tests.stores.steps import Drive, check_after_crash, resume, spots

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, str, int, list[str]]]:
    """Files, the spots where their processes were killed, and what these had been told."""
    directory = tmp_path_factory.mktemp("killed")
    lines = [f"{point}-{n} {point} {n}" for point, n in spots()]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.stores.killed",
            "perdure.stores.sqlite:SqliteStore",
            str(directory / "{}.db"),
        ],
        cwd=ROOT,
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[tuple[Path, str, int, list[str]]] = []
    for line in done.stdout.splitlines():
        spot, status, names = line.split("\t")
        path = directory / f"{spot.split()[0]}.db"
        found.append((path, spot, int(status), names.split(",") if names else []))
    return found


async def test_what_was_acknowledged_is_there_and_nothing_is_half_there(
    killed: list[tuple[Path, str, int, list[str]]],
) -> None:
    ends = {status for _, _, status, _ in killed}
    assert ends <= {0, -9}
    assert sum(status == -9 for _, _, status, _ in killed) >= 25
    for path, spot, _, told in killed:
        store = SqliteStore(path)
        drive = Drive(store, spot.split()[0])
        await check_after_crash(drive, told)
        await resume(drive)
        await store.close()
