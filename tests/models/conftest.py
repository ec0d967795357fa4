"""What every test of a model leaves behind: nothing."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator

import pytest


@pytest.fixture(autouse=True)
async def _nothing_is_left() -> AsyncIterator[None]:
    """No task outlives a test."""
    before = asyncio.all_tasks()
    yield
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert left == set()


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_unclosed() -> Iterator[None]:
    """Nothing that a module's tests forgot to close is found in the garbage."""
    yield
    gc.collect()  # what was not closed warns now, and warnings are errors
