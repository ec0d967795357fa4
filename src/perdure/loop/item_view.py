"""A look at an item that is still being folded."""

from __future__ import annotations

import msgspec

from perdure.wire import Fold, FunctionCall, Item


class ItemView:
    """The item at one position of a fold, as far as it has come."""

    __slots__ = ("_call_id", "_fold", "_position")

    def __init__(self, fold: Fold, position: int | None, call_id: str = "") -> None:
        self._fold = fold
        self._position = position
        self._call_id = call_id

    def item(self) -> Item | None:
        """The item now; None if the stream never opened it."""
        item = None if self._position is None else self._fold.item(self._position)
        return item if item is None else under(item, self._call_id)


def under(item: Item, call_id: str) -> Item:
    """A function call under the id that the loop gave it; any other item as it is."""
    if call_id and isinstance(item, FunctionCall) and item.call_id != call_id:
        return msgspec.structs.replace(item, call_id=call_id)
    return item
