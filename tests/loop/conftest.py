"""What every test of the loop leaves behind: nothing."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator

import pytest

from perdure.testing.clock import settle


@pytest.fixture(autouse=True)
async def _nothing_is_left() -> AsyncIterator[None]:
    """No task outlives a test."""
    before = asyncio.all_tasks()
    yield
    await settle()
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    for task in left:
        task.cancel()
    assert left == set()


@pytest.fixture(autouse=True, scope="module")
def _nothing_unclosed_is_left() -> Iterator[None]:
    """Nothing unclosed is found in the garbage: it would warn, and warnings are errors."""
    yield
    gc.collect()
