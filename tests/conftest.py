"""What every test may use."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import shared_data
from tests.stores.postgres_server import postgres_server

__all__ = ["postgres_server"]  # one for all tests: a server takes its time to start

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


@pytest.fixture
def postgres_schema(postgres_server: str) -> Generator[str]:
    """The name of a schema that is gone after the test."""
    import psycopg

    name = f"test_{secrets.token_hex(6)}"
    yield name
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())
