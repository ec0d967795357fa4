"""What the tests of the log share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def sessions(shared: Path) -> Path:
    return shared / "fixtures" / "agentsession" / "sessions"


@pytest.fixture(scope="session")
def contexts(shared: Path) -> Path:
    return shared / "fixtures" / "agentsession" / "context"
