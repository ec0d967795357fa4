"""Stores that were opened by their URL and are kept, so that a URL is opened once."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from perdure.log.store import Store
from perdure.stores import open_store


class KeptStores:
    """One store for each URL and event loop; one in memory outlives its loop."""

    def __init__(self) -> None:
        self._in_memory: dict[str, Store] = {}
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Store]] = (
            WeakKeyDictionary()
        )

    def get(self, url: str) -> Store:
        """The store of a URL, for the running event loop.

        Raises:
            ConfigError: No store has the scheme of the URL.
        """
        kept = self._in_memory
        if not url.startswith("memory:"):
            kept = self._by_loop.setdefault(asyncio.get_running_loop(), {})
        if url not in kept:
            kept[url] = open_store(url)
        return kept[url]

    async def aclose(self) -> None:
        """Close those of the running event loop. Asking again opens others."""
        for store in self._by_loop.pop(asyncio.get_running_loop(), {}).values():
            await store.close()
