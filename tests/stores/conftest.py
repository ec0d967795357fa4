"""Fixtures of the tests of stores."""

from __future__ import annotations

import secrets
from collections.abc import Generator

import pytest

from tests.stores.postgres_server import postgres_server

__all__ = ["postgres_server"]


@pytest.fixture
def postgres_schema(postgres_server: str) -> Generator[str]:
    """The name of a schema that is gone after the test."""
    import psycopg

    name = f"test_{secrets.token_hex(6)}"
    yield name
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())
