"""Three processes that drive the runs of one Postgres, killed and paused: the short form."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.chaos.soaking import soak


@pytest.mark.timeout(240)
async def test_no_effect_twice_nothing_lost_and_every_run_ends(
    postgres_server: str, postgres_schema: str, tmp_path: Path
) -> None:
    seed = secrets.randbelow(1 << 30)
    soaked = await soak(postgres_server, postgres_schema, tmp_path, seconds=4.0, runs=5, seed=seed)
    assert soaked.faults == {}, f"seed {seed}"
    assert sum(soaked.ended.values()) > 0
