"""A compaction: what a `transform` hook sends in place of the beginning of a transcript.

The transcript stays as it is. A hook that says what it folded, by returning `Compacted` items, lets
the ledger write that down, so that the requests behind it can be rebuilt from the record, and who
goes on with the session begins with the summary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from perdure.wire import Item, Usage


class Compaction(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The beginning of a transcript, folded into a summary."""

    summary: Item
    kept: tuple[Item, ...]
    """What followed what was folded, as the items of the transcript themselves; one at least. Where
    the first of them stands is where a later request goes on."""
    pinned: tuple[Item, ...] = ()
    """Items of the folded part that are sent behind the summary nevertheless."""
    tokens_before: int = 0
    """How large the transcript was, in tokens; 0 if nobody counted."""
    usage: Usage | None = None
    """What the request for the summary took."""
    model: str = ""
    """Who made the summary; empty if no model did."""
    response_id: str = ""
    request_hash: str = ""

    def applied(self, items: Sequence[Item]) -> Compacted | None:
        """What to send of a transcript; None if it does not hold what was kept.

        Args:
            items: The transcript, as it is now.
        """
        first = self.kept[0] if self.kept else None
        at = next((place for place, item in enumerate(items) if item is first), None)
        return None if at is None else Compacted(self, items[at:])

    def same(self, other: Compaction) -> bool:
        """Whether two say the same, so that it is written once."""
        if self is other:
            return True
        if not (self.kept and other.kept and self.kept[0] is other.kept[0]):
            return False
        return (self.summary, self.pinned) == (other.summary, other.pinned)


class Compacted(list[Item]):
    """The items of a request after a compaction, for a `transform` hook to return.

    Args:
        compaction: What was folded.
        rest: What follows the summary and the pinned items.
    """

    def __init__(self, compaction: Compaction, rest: Iterable[Item]) -> None:
        super().__init__((compaction.summary, *compaction.pinned, *rest))
        self.compaction = compaction
