"""What every store checks before it appends, so that all refuse the same (LOG 1, 3).

A store shows what it holds as a `Holding`, under whatever lock it has, asks `check_append`, and
writes what is left of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from perdure.errors import (
    ConfigError,
    EntryRefused,
    MessageTaken,
    StaleVersion,
    StopRequested,
)
from perdure.log.entries import AnyEntry, ends_by_itself, starts_effect
from perdure.log.header import Header


class Holding(Protocol):
    """What a store holds of a session, at the moment of an append."""

    @property
    def header(self) -> Header: ...

    @property
    def version(self) -> int: ...

    def lines_from(self, version: int) -> Sequence[bytes]:
        """The lines behind the first `version` entries."""
        ...

    def has(self, entry: str) -> bool:
        """Whether an entry of this id is there."""
        ...

    def waits(self, message: str) -> bool:
        """Whether a message of this id is in the inbox and no entry names it."""
        ...


def check_append(
    holding: Holding,
    version: int,
    batch: Sequence[AnyEntry],
    consumed: Sequence[str],
    *,
    stopped: bool,
) -> int:
    """How many entries of a batch are held already; the rest may be written.

    Args:
        holding: The session.
        version: The version the batch was built on.
        batch: The entries.
        consumed: The messages that the caller says they consume.
        stopped: Whether an unconsumed stop is set in the tree.

    Raises:
        StaleVersion: The session has grown since, by others.
        EntryRefused: An entry cannot stand there.
        MessageTaken: A message is not there to be consumed.
        StopRequested: An effect would begin in a tree that was told to stop, or its run would end
            as if it was not.
    """
    held = _held(holding, version, batch)
    if sorted(consumed) != sorted(entry.message for entry in batch if entry.message):
        raise EntryRefused("the entries must name the messages that the append consumes")
    rest = batch[held:]
    _check_places(holding, rest)
    _check_messages(holding, rest)
    if stopped and any(stop_forbids(holding.header, entry) for entry in rest):
        raise StopRequested(holding.header.lease_root)
    return held


def stop_forbids(header: Header, entry: AnyEntry) -> bool:
    """Whether an entry must not be written while a stop waits in the tree of its session.

    It is what begins an effect (LOG 3.5), and the end of the run, of which the stop is to decide.
    """
    return starts_effect(entry) or (not header.root and ends_by_itself(entry))


def check_transaction(
    holding: Holding, version: int, tried: AnyEntry | None, *, stopped: bool
) -> bool:
    """Whether the entry of a transaction is held already; if not, its function may be called.

    Args:
        holding: The session.
        version: The version it was built on.
        tried: The entry of an attempt whose outcome is unknown.
        stopped: Whether an unconsumed stop is set in the tree.

    Raises:
        StaleVersion: The session has grown since, by others.
        StopRequested: The tree was told to stop.
    """
    if _held(holding, version, (tried,) if tried is not None else ()):
        return True
    if stopped:
        raise StopRequested(holding.header.lease_root)
    return False


def _held(holding: Holding, version: int, batch: Sequence[AnyEntry]) -> int:
    count = holding.version - version
    if not 0 <= count <= len(batch):
        raise StaleVersion(holding.header.id, version, holding.version)
    if count:
        tail = holding.lines_from(version)
        if any(line != entry.line for line, entry in zip(tail, batch, strict=False)):
            raise StaleVersion(holding.header.id, version, holding.version)
    return count


def _check_places(holding: Holding, rest: Sequence[AnyEntry]) -> None:
    if rest and holding.header.legacy:
        raise EntryRefused(
            f"session {holding.header.id!r} has the format {holding.header.format!r}, which is "
            "read and never written; continue it in a new session"
        )
    if rest and holding.header.redacted:
        raise EntryRefused(
            f"session {holding.header.id!r} is redacted; it is read and never continued"
        )
    fresh: set[str] = set()
    for entry in rest:
        if not entry.id or entry.id in fresh or holding.has(entry.id):
            raise EntryRefused(f"entry {entry.id!r} is there already")
        if entry.parent is not None and entry.parent not in fresh and not holding.has(entry.parent):
            raise EntryRefused(f"entry {entry.id!r} names a parent that is not there")
        fresh.add(entry.id)


def _check_messages(holding: Holding, rest: Sequence[AnyEntry]) -> None:
    taken: set[str] = set()
    for entry in rest:
        if not entry.message:
            continue
        if entry.message in taken or not holding.waits(entry.message):
            raise MessageTaken(entry.message, "is not in the inbox, or was consumed already")
        taken.add(entry.message)


def check_batch(header: Header, batch: Sequence[AnyEntry]) -> None:
    """Whether a session may begin with these entries.

    Raises:
        ConfigError: Its header is redacted, so its entries are not what they were.
        EntryRefused: An entry cannot stand there.
    """
    if header.redacted:
        raise ConfigError(f"session {header.id!r} is redacted; it can be read and not stored")
    seen: set[str] = set()
    for entry in batch:
        if not entry.id or entry.id in seen:
            raise EntryRefused(f"entry {entry.id!r} is there already")
        if entry.parent is not None and entry.parent not in seen:
            raise EntryRefused(f"entry {entry.id!r} names a parent that is not there")
        seen.add(entry.id)


def path_lines(
    lines: Sequence[bytes],
    places: Mapping[str, int],
    parents: Mapping[str, str | None],
    leaf: str,
) -> list[bytes]:
    """The lines of the path to `leaf`.

    Args:
        lines: All lines of the session.
        places: Where among them each entry stands.
        parents: The parent of each entry.
        leaf: An entry.
    """
    found: list[bytes] = []
    at: str | None = leaf
    while at is not None:
        found.append(lines[places[at]])
        at = parents[at]
    found.reverse()
    return found
