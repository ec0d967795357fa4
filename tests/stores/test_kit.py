"""Both stores pass the kit that any third-party store runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import ConfigError
from perdure.stores import open_store
from perdure.stores.jsonl import JsonlStore
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing import store_kit


@pytest.mark.parametrize("check", store_kit.CHECKS, ids=store_kit.name_of)
async def test_memory(check: store_kit.Check) -> None:
    await check(store_kit.Subject(MemoryStore, persistent=False))


@pytest.mark.parametrize("check", store_kit.CHECKS, ids=store_kit.name_of)
async def test_memory_shared_by_name(check: store_kit.Check) -> None:
    store = MemoryStore()
    await check(store_kit.Subject(lambda: store))


@pytest.mark.parametrize("check", store_kit.CHECKS, ids=store_kit.name_of)
async def test_jsonl(check: store_kit.Check, tmp_path: Path) -> None:
    await check(store_kit.Subject(lambda: JsonlStore(tmp_path / "sessions")))


@pytest.mark.parametrize("check", store_kit.CHECKS, ids=store_kit.name_of)
async def test_sqlite(check: store_kit.Check, tmp_path: Path) -> None:
    await check(store_kit.Subject(lambda: SqliteStore(tmp_path / "sessions.db")))


@pytest.mark.parametrize("check", store_kit.CHECKS, ids=store_kit.name_of)
async def test_postgres(check: store_kit.Check, postgres_server: str, postgres_schema: str) -> None:
    from perdure.stores.postgres import PostgresStore

    await check(store_kit.Subject(lambda: PostgresStore(postgres_server, schema=postgres_schema)))


def test_urls_name_stores(tmp_path: Path) -> None:
    assert isinstance(open_store("memory:"), MemoryStore)
    assert open_store("memory:") is not open_store("memory:")
    assert open_store("memory:shared") is open_store("memory:shared")
    files = open_store(f"file://{tmp_path}/with%20space")
    assert isinstance(files, JsonlStore)
    assert files.directory == tmp_path / "with space"


@pytest.mark.parametrize("url", ["", "memory", "nosuch:x", "file://host/x", "file:relative"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        open_store(url)
