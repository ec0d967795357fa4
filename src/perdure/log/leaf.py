"""The leaf: where a session goes on.

It is the newest entry that descends from the last leaf label's target and was written after that
label; the target itself if nothing follows; the last line if no label is in force. It never rests
on a leaf label, and labels of entries above the base are not in force.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from perdure.log.entries import AnyEntry, LabelEntry

LEAF = "leaf"
"""The label that marks where to go on."""


class Tree(Protocol):
    """What the leaf rule asks of a session."""

    @property
    def entries(self) -> list[AnyEntry]: ...
    def get(self, entry: str) -> AnyEntry | None: ...
    def depth(self, entry: str) -> int: ...
    @property
    def base_depth(self) -> int: ...


class _Mark(NamedTuple):
    target: str
    place: int
    """Where in the file the label stands."""


def is_leaf_label(entry: AnyEntry) -> bool:
    """Whether an entry is a label that marks a leaf."""
    return isinstance(entry, LabelEntry) and entry.label == LEAF


class LeafRule:
    """The leaf of a session, entry by entry."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._marks: list[_Mark] = []
        self.leaf: str | None = None

    def apply(self, entry: AnyEntry, place: int) -> None:
        """Take the entry at `place`, which the tree has already."""
        if not self._marks and not isinstance(entry, LabelEntry):
            self.leaf = entry.id
            return
        if isinstance(entry, LabelEntry):
            if entry.label is None and any(m.target == entry.target for m in self._marks):
                self._marks = [m for m in self._marks if m.target != entry.target]
                self._search()
                return
            if entry.label == LEAF and self._restable(entry.target):
                self._marks.append(_Mark(entry.target, place))
                self.leaf = entry.target
                return
        self._advance(entry)

    def _advance(self, entry: AnyEntry) -> None:
        free = not self._marks or entry.parent == self.leaf
        if free or self._descends(entry, self._marks[-1].target):
            self.leaf = self._rest(entry)

    def _search(self) -> None:
        """Find the leaf again after a label was taken back."""
        place = self._marks[-1].place + 1 if self._marks else len(self._tree.entries) - 1
        if self._marks:
            self.leaf = self._marks[-1].target
        for entry in self._tree.entries[place:]:
            self._advance(entry)

    def _rest(self, entry: AnyEntry) -> str | None:
        """The nearest entry that a leaf may rest on, from `entry` upwards."""
        at: AnyEntry | None = entry
        while at is not None and is_leaf_label(at) and self._tree.depth(at.id) > self._bound:
            at = self._tree.get(at.parent or "")
        return at.id if at is not None else None

    def _restable(self, target: str) -> bool:
        entry = self._tree.get(target)
        if entry is None or is_leaf_label(entry):
            return False
        return self._tree.depth(target) >= self._bound

    def _descends(self, entry: AnyEntry, ancestor: str) -> bool:
        floor = self._tree.depth(ancestor)
        at: AnyEntry | None = entry
        while at is not None and self._tree.depth(at.id) > floor:
            at = self._tree.get(at.parent or "")
        return at is not None and at.id == ancestor and entry.id != ancestor

    @property
    def _bound(self) -> int:
        return self._tree.base_depth
