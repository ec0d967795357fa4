"""Pairing what a stream finished with what its response lists."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.wire import FunctionCall, Item


def unstreamed(listed: Sequence[Item], streamed: Sequence[Item]) -> list[Item]:
    """The items a response lists that its stream never finished.

    Two items are one if they share an id; two calls also if they share a call id; failing that,
    anything but a call pairs with the next of its kind, since some servers change ids on the way.
    """
    missing, rest = list(listed), list(streamed)
    for same in _SAME:
        for item in list(missing):
            twin = next((i for i, done in enumerate(rest) if same(done, item)), None)
            if twin is not None:
                del rest[twin]
                missing = [other for other in missing if other is not item]
    return missing


def twin_of(item: Item, among: Sequence[Item]) -> Item | None:
    """The one of several items that is the same as another, by the rules of `unstreamed`."""
    return next((one for same in _SAME for one in among if same(one, item)), None)


def _same_id(done: Item, item: Item) -> bool:
    return type(done) is type(item) and bool(done.id) and done.id == item.id


def _same_call_whole(done: Item, item: Item) -> bool:
    return _same_call(done, item) and done == item


def _same_call(done: Item, item: Item) -> bool:
    if isinstance(done, FunctionCall) and isinstance(item, FunctionCall):
        return done.call_id == item.call_id
    return False


def _same_kind(done: Item, item: Item) -> bool:
    return type(done) is type(item) and not isinstance(done, FunctionCall)


_SAME = (_same_id, _same_call_whole, _same_call, _same_kind)
