"""What every test of a model leaves behind: nothing."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest


@pytest.fixture(autouse=True)
async def _nothing_is_left() -> AsyncIterator[None]:
    """No task outlives a test, and nothing unclosed is found in the garbage."""
    before = asyncio.all_tasks()
    yield
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert left == set()
    gc.collect()  # what was not closed warns now, and warnings are errors
