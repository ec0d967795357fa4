"""Fixtures of the tests of stores."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.stores.postgres_server import postgres_server

__all__ = ["postgres_server"]


_MEMORY = Path("/dev/shm")
_ROOM = 1 << 30


@pytest.fixture
def tmp_path(tmp_path: Path) -> Generator[Path]:
    """A directory in memory, where there is one: synchronising is then free, as nothing is lost."""
    if not _MEMORY.is_dir() or shutil.disk_usage(_MEMORY).free < _ROOM:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="perdure-") as directory:
        yield Path(directory)


@pytest.fixture
def postgres_schema(postgres_server: str) -> Generator[str]:
    """The name of a schema that is gone after the test."""
    import psycopg

    name = f"test_{secrets.token_hex(6)}"
    yield name
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())
