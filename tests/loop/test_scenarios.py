"""The corpus of loop scenarios runs as it says."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.loop.scenario import play
from tests.loop.scenario_format import Scenario

FOLDER = Path(__file__).resolve().parent.parent / "scenarios"
FILES = {path.stem: path.read_bytes() for path in sorted(FOLDER.glob("*.json"))}


@pytest.mark.parametrize("name", FILES)
async def test_scenario(name: str) -> None:
    await play(msgspec.json.decode(FILES[name], type=Scenario))
