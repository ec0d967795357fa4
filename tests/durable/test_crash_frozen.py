"""A driver that is frozen at any of its writes, past its lease, while others finish the run."""

from __future__ import annotations

from tests.chaos.frozen import freezer


def test_it_fires_nothing_twice_and_loses_nothing() -> None:
    with freezer("once") as tests:
        assert tests.everywhere() > len(tests.writes)
