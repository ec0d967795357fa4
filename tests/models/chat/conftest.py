"""Most tests here are of pure functions: they open nothing, so nobody looks for what is left."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _nothing_is_left() -> None:
    """In the place of the search after every test; the client's tests have it back."""
