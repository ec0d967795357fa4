"""Three processes drive the runs of one Postgres for two minutes, killed and paused: `make soak`.

`PERDURE_SOAK_SECONDS` says for how long, `PERDURE_SOAK_SEED` with which luck.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.chaos.soaking import soak

SECONDS = float(os.environ.get("PERDURE_SOAK_SECONDS", "120"))
SEED = int(os.environ.get("PERDURE_SOAK_SEED", "0")) or secrets.randbelow(1 << 30)


@pytest.mark.timeout(SECONDS + 300)
async def test_no_effect_twice_nothing_lost_and_every_run_ends(
    postgres_server: str, postgres_schema: str, tmp_path: Path
) -> None:
    soaked = await soak(
        postgres_server, postgres_schema, tmp_path, seconds=SECONDS, runs=int(SECONDS), seed=SEED
    )
    print(f"seed {SEED}: {dict(soaked.ended)}, {dict(soaked.counts)}")  # noqa: T201 - with -s
    assert soaked.faults == {}, f"seed {SEED}"
    assert soaked.counts["killed"] > 0
    assert soaked.counts["paused beyond the lease"] > 0
