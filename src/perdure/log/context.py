"""The context of a leaf: the settings and the items that the next request would hold.

Contributors are item entries and branch summaries of the path, and of the last compaction its
summary and pins; what stood before its first kept entry is folded into them. A setting may *omit*
items: thoughts of models other than the one in force, and entries by their ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from perdure.errors import DecodeError
from perdure.log.entries import (
    AnyEntry,
    BranchSummaryEntry,
    CompactionEntry,
    ConfigEntry,
    ItemEntry,
)
from perdure.log.settings import Settings, SettingsFold
from perdure.loop import Items
from perdure.wire import Item, Reasoning, UnknownItem, decode_item, encode
from perdure.wire.values import Source

OTHER_MODELS = "other_models"
"""The setting that omits the thoughts of models other than the one in force."""

_ITEM: msgspec.json.Decoder[Item] = msgspec.json.Decoder(Item)


def item_of(raw: msgspec.Raw) -> Item:
    """The item of an entry. What is no item at all becomes one of no type."""
    source = bytes(raw)
    try:
        return _ITEM.decode(source)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return decode_item(source)
    except DecodeError:
        return UnknownItem(type="", source=Source(source))


class Omission(NamedTuple):
    """An item that a setting leaves out, and which."""

    entry: str
    reason: str
    """`other_models` or `items`."""


class Context(NamedTuple):
    """What a request from a leaf holds."""

    settings: Settings
    items: Items
    item_entries: Sequence[str]
    """The entry of each item."""
    entries: Sequence[str]
    """What it was made from: the path, or the last compaction and what it kept of the path."""
    omitted: tuple[Omission, ...]


class Contribution(NamedTuple):
    """What an entry gives to the context, omitted or not."""

    entry: str
    item: Item | None
    """None for an entry that gives nothing."""
    thinker: str | None = None
    """For a thought of a response: the model in force when it was written."""


class _Contribution(Struct, frozen=True, gc=False):
    entry: str
    item: Item
    thinker: str | None = None


class _Place(Struct, frozen=True, gc=False):
    """Where an entry stands on the path, and how many contributions before it."""

    entry: int
    contribution: int


class ContextFold:
    """The context of a path, entry by entry. An append costs itself (DESIGN 7)."""

    def __init__(self) -> None:
        self.settings = SettingsFold()
        self.faults: list[str] = []
        """What is wrong with the last entry, as far as the context goes."""
        self._all: list[_Contribution] = []  # of the whole path
        self._path: list[str] = []
        self._places: dict[str, _Place] = {}
        self._from: list[str] = []  # what the context is made from
        self._window: list[_Contribution] = []  # since the last compaction, with its own
        self._items: list[Item] = []  # of the window, what is not omitted
        self._entries: list[str] = []
        self._omitted: list[Omission] = []
        self._snapshot: Items = Items(self._items, 0)

    def apply(self, entry: AnyEntry) -> Item | None:
        """Take an entry; returns its item, if it has one."""
        self.faults.clear()
        self._places[entry.id] = _Place(len(self._path), len(self._all))
        self._path.append(entry.id)
        self._from.append(entry.id)
        match entry:
            case ItemEntry():
                item = item_of(entry.item)
                self._add(_Contribution(entry.id, item, self._thinker(entry, item)))
                return item
            case BranchSummaryEntry():
                self._add(_Contribution(entry.id, item_of(entry.summary)))
            case ConfigEntry():
                self._configure(entry)
            case CompactionEntry():
                self._compact(entry)
            case _:
                pass
        return None

    @property
    def items(self) -> Items:
        """The items, as a snapshot that costs nothing."""
        return self.first_items(len(self._items))

    def first_items(self, count: int) -> Items:
        """The first items of the context."""
        if len(self._snapshot) != count:
            self._snapshot = Items(self._items, count, self._snapshot.memo)
        return self._snapshot

    @property
    def item_entries(self) -> Sequence[str]:
        """The entry of each item; it grows with the path."""
        return self._entries

    def context(self) -> Context:
        """The context now; later entries do not show in it."""
        return Context(
            self.settings.current,
            self.items,
            tuple(self._entries),
            tuple(self._from),
            tuple(self._omitted),
        )

    def contributions(self) -> Iterator[Contribution]:
        """What the context is made from, entry by entry, in the order of its items.

        Entries that give nothing are among them, with no item.
        """
        window = iter(self._window)
        giving = next(window, None)
        for entry in self._from:
            found = False
            while giving is not None and giving.entry == entry:
                yield Contribution(giving.entry, giving.item, giving.thinker)
                giving, found = next(window, None), True
            if not found:
                yield Contribution(entry, None)

    def _thinker(self, entry: ItemEntry, item: Item) -> str | None:
        if entry.response and isinstance(item, Reasoning):
            return self.settings.current.model
        return None

    def _add(self, contribution: _Contribution) -> None:
        self._all.append(contribution)
        self._window.append(contribution)
        self._show(contribution)

    def _show(self, contribution: _Contribution) -> None:
        reason = self._omits(contribution)
        if reason:
            self._omitted.append(Omission(contribution.entry, reason))
        else:
            self._items.append(contribution.item)
            self._entries.append(contribution.entry)

    def _omits(self, contribution: _Contribution) -> str:
        settings = self.settings.current
        if contribution.entry in settings.omit_items:
            return "items"
        foreign = contribution.thinker not in (None, settings.model)
        return OTHER_MODELS if foreign and settings.omit_reasoning == OTHER_MODELS else ""

    def _configure(self, entry: ConfigEntry) -> None:
        before = self.settings.current
        self.settings.apply(entry)
        self.faults += self.settings.unresolved
        self._refresh(before)

    def _refresh(self, before: Settings) -> None:
        now = self.settings.current
        rules = (now.omit_reasoning, now.omit_items, now.omit_reasoning and now.model)
        if rules != (
            before.omit_reasoning,
            before.omit_items,
            before.omit_reasoning and before.model,
        ):
            self._rebuild()

    def _rebuild(self) -> None:
        self._items, self._entries, self._omitted = [], [], []
        self._snapshot = Items(self._items, 0)
        for contribution in self._window:
            self._show(contribution)

    def _compact(self, entry: CompactionEntry) -> None:
        first = self._places.get(entry.first_kept)
        if first is None or entry.first_kept == entry.id:
            self.faults.append(f"first_kept {entry.first_kept!r} is not on the path")
            first = self._places[entry.id]
        try:
            self.settings.restart(entry.config, entry.id)
        except msgspec.ValidationError as error:
            self.faults.append(f"the checkpoint is malformed: {error}")
        own = [item_of(raw) for raw in (entry.summary, *entry.pinned)]
        self._window = [_Contribution(entry.id, item) for item in own] + self._all[
            first.contribution :
        ]
        self._from = [entry.id, *self._path[first.entry : -1]]
        self._rebuild()


def context_json(context: Context) -> dict[str, object]:
    """A context as the format's test data shows it."""
    shown: dict[str, object] = {
        "settings": context.settings.as_json(),
        "items": [msgspec.Raw(encode(item)) for item in context.items],
        "entries": list(context.entries),
        "item_entries": list(context.item_entries),
    }
    if context.omitted:
        shown["omitted"] = [{"entry": o.entry, "reason": o.reason} for o in context.omitted]
    return shown
