"""A look at an item that is still being folded."""

from __future__ import annotations

from perdure.wire import Fold, Item


class ItemView:
    """The item at one position of a fold, as far as it has come."""

    __slots__ = ("_fold", "_position")

    def __init__(self, fold: Fold, position: int | None) -> None:
        self._fold = fold
        self._position = position

    def item(self) -> Item | None:
        """The item now; None if the stream never opened it."""
        return None if self._position is None else self._fold.item(self._position)
