"""Stores: where sessions live.

A *store URL* names one: `memory:` for the life of the process, `file:///directory` for JSONL
files, `sqlite:///file` and `postgresql://server/database`. Each implements the protocols of
`perdure.log.store`, and `perdure.testing.store_kit` checks that it does.
"""

from __future__ import annotations

import importlib
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import cast

from perdure.errors import ConfigError
from perdure.log.store import Store

SCHEMES = {
    "memory": "perdure.stores.memory:open_url",
    "file": "perdure.stores.jsonl:open_url",
    "sqlite": "perdure.stores.sqlite:open_url",
    "postgresql": "perdure.stores.postgres:open_url",
}
"""What opens a store of each scheme, loaded on first use (DESIGN 3)."""


def open_store(url: str) -> Store:
    """The store of a URL.

    Raises:
        ConfigError: No store has its scheme, or it is not a URL of that store.
    """
    scheme, colon, _ = url.partition(":")
    opener = SCHEMES.get(scheme)
    if not colon or opener is None:
        known = ", ".join(f"{name}:" for name in SCHEMES)
        raise ConfigError(f"no store for {url!r}; a store URL begins with one of: {known}")
    module, _, function = opener.partition(":")
    open_url = cast("Callable[[str], Store]", getattr(importlib.import_module(module), function))
    return open_url(url)


def path_of(url: str) -> Path | None:
    """The file or the directory of a store; None if it is in none."""
    scheme, _, _ = url.partition(":")
    path = urllib.parse.unquote(urllib.parse.urlsplit(url).path)
    match scheme:
        case "sqlite":
            return Path(path.removeprefix("/"))
        case "file":
            return Path(path)
        case _:
            return None
