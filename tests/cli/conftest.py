"""A directory with a tool file in it."""

from __future__ import annotations

from pathlib import Path

import pytest

TOOLS = '''\
import asyncio
import os
import time

from perdure import ToolError, tool

STOCK = {"bolt-m8": 120, "nut-m8": 75}


@tool(effect="none")
async def stock(part: str) -> int:
    """How many pieces of a part are in stock.

    Args:
        part: The part's number.
    """
    return STOCK[part]


@tool
async def order(part: str, count: int) -> str:
    """Order pieces of a part."""
    if count > 100:
        raise ToolError("at most 100 pieces an order")
    print("a line on standard output")
    os.system("echo a line of another program")
    return f"ordered {count}"


@tool
async def wait() -> None:
    """Wait for very long."""
    print("waiting now")
    await asyncio.sleep(1000)


@tool(effect="none")
async def nap() -> None:
    """Wait for very long, without any effect."""
    print("waiting now")
    await asyncio.sleep(1000)


@tool
def deaf() -> None:
    """Wait for very long, and hear nothing."""
    print("waiting now")
    time.sleep(1000)


@tool(effect="none")
def rude() -> str:
    """Try to steer the terminal."""
    return "\\x1b]0;owned\\x07\\x1b[2Jgone \\x9b31mred"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


tools = [add]
'''


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A directory with `shop.py`, a tool file."""
    (tmp_path / "shop.py").write_text(TOOLS)
    return tmp_path
