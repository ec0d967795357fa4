"""Spend against a server that counts what it serves, while the processes that ask it are killed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from perdure.testing import LoopbackServer
from tests.budgets.served import TURNS, Counted, Fate, ask, spend_in


@pytest.mark.parametrize(
    "fates",
    [
        {1: "kill before", 3: "kill within", 5: "refuse", 6: "kill before", 8: "lose"},
        {1: "refuse", 2: "kill within", 4: "cut", 5: "kill within", 9: "kill before"},
    ],
)
async def test_spend_is_what_the_server_served(tmp_path: Path, fates: Mapping[int, Fate]) -> None:
    counted, path = Counted(fates), tmp_path / "runs.db"
    async with LoopbackServer(counted) as server:
        assert await ask(server, counted, path) == "done"
    spend = await spend_in(path)
    assert counted.untold > 2
    assert spend.requests == counted.requests > TURNS
    assert spend.tokens.total - spend.estimated.total == counted.told
    assert spend.uncounted == counted.untold


async def test_a_limit_holds_over_restarts(tmp_path: Path) -> None:
    """A request that a dead process reserved counts against it, and nothing counts twice."""
    counted, path = Counted({3: "kill within", 5: "kill before"}), tmp_path / "runs.db"
    async with LoopbackServer(counted) as server:
        assert await ask(server, counted, path, "500") == "stopped budget"
        before = await spend_in(path)
        assert before.uncounted == 2
        assert before.tokens.total <= 500
        assert counted.requests < TURNS
        assert await ask(server, counted, path, "500") == "stopped budget"
        assert await spend_in(path) == before
        assert await ask(server, counted, path, "100000") == "done"
    spend = await spend_in(path)
    assert spend.tokens.total - spend.estimated.total == counted.told
    assert (spend.requests, spend.uncounted) == (counted.requests, 2)
