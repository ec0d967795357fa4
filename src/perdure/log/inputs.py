"""Inputs that were recorded, beside inputs that are given again."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from perdure.log.context import item_of
from perdure.log.entries import ItemEntry
from perdure.log.timestamps import timestamp
from perdure.log.writing import Draft, seal
from perdure.wire import Item, encode


def is_same_input(recorded: Sequence[Item], given: Sequence[Item]) -> bool:
    """Whether items are those that were recorded, as a log gives them back."""
    return [encode(item) for item in recorded] == [_as_recorded(item) for item in given]


def _as_recorded(item: Item) -> bytes:
    entry = seal(Draft("item", {"item": Raw(encode(item))}), None, timestamp(0))
    return encode(item_of(entry.item)) if isinstance(entry, ItemEntry) else b""
