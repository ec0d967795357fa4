"""What stores are asked to write, in one value that can be handed to whoever writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from perdure.log.entries import AnyEntry
from perdure.log.header import Header
from perdure.log.store import Composed, Fence, Summary
from perdure.tools import Transaction


class Creation(NamedTuple):
    """What a create asks for."""

    header: Header
    name: str
    batch: tuple[AnyEntry, ...]
    fence: Fence | None
    summary: Summary


class Change(NamedTuple):
    """What an append asks for."""

    session: str
    version: int
    fence: Fence
    batch: tuple[AnyEntry, ...]
    consumed: tuple[str, ...]
    summary: Summary | None


class Transacting(NamedTuple):
    """What a transaction asks for."""

    session: str
    version: int
    fence: Fence
    transaction: Transaction
    compose: Callable[[object], Composed]
    tried: AnyEntry | None


def size_of(batch: Iterable[AnyEntry]) -> int:
    """The bytes of entries as lines."""
    return sum(len(entry.line) + 1 for entry in batch)
