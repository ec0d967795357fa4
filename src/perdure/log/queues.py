"""Queued inputs: what was accepted and no item has taken up yet.

A queued entry is *owed* until an item names it, or a drive ends. The end of a perdure drive names
what it still owes (`perdure:owed`), so that a crash right after it loses nothing (LOG 4.4); for
other readers each is then queued once more, `perdure:again` naming the one it stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from perdure.log.entries import AnyEntry, ItemEntry, OwedEntry, QueuedEntry, RunEntry


class QueuesFold:
    """The queued inputs of a path, entry by entry."""

    def __init__(self) -> None:
        self._owed: dict[str, QueuedEntry] = {}
        self._kept: frozenset[str] = frozenset()
        self.owed: Mapping[str, QueuedEntry] = MappingProxyType(self._owed)
        """By their entries, in the order they were queued."""

    def apply(self, entry: AnyEntry) -> None:
        """Take an entry."""
        match entry:
            case QueuedEntry():
                self._owed.pop(entry.again, None)
                self._owed[entry.id] = entry
            case ItemEntry() if entry.queued_from:
                self._owed.pop(entry.queued_from, None)
            case OwedEntry():
                self._kept = frozenset(entry.queued)
            case RunEntry() if entry.phase == "end":
                for closed in [one for one in self._owed if one not in self._kept]:
                    del self._owed[closed]
                self._kept = frozenset()
            case _:
                pass
