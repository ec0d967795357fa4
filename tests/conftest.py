"""What every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests import shared_data

# One profile everywhere: no deadlines, because machines differ; on CI the same examples each time.
settings.register_profile("perdure", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("perdure")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared data; skips the test where it is absent."""
    path = shared_data.find()
    if path is None:
        pytest.skip(shared_data.reason())
    return path
