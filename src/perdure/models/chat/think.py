"""Thoughts that a server leaves in the text, between `<think>` tags at its beginning."""

from __future__ import annotations

from typing import Literal, NamedTuple

_OPEN, _CLOSE = "<think>", "</think>"


class Piece(NamedTuple):
    """A piece of a text.

    Attributes:
        text: The piece.
        thought: Whether it stands between the tags.
    """

    text: str
    thought: bool


class ThinkSplitter:
    """Tells thoughts from text, in pieces of any size.

    Attributes:
        opening: What stood before the thought: the tag, with white space before it.
        passed: Whether all that follows is text.
    """

    __slots__ = ("_held", "_state", "opening")

    def __init__(self) -> None:
        self._state: Literal["begin", "inside", "after"] = "begin"
        self._held = ""  # what may be the beginning of a tag
        self.opening = ""

    @property
    def passed(self) -> bool:
        """Whether all that follows is text."""
        return self._state == "after"

    def feed(self, text: str) -> list[Piece]:
        """What is certain now."""
        if self._state == "after":
            return [Piece(text, thought=False)]
        text = self._held + text
        self._held = ""
        return self._begin(text) if self._state == "begin" else self._inside(text)

    def end(self) -> list[Piece]:
        """What is left when no text follows."""
        held, self._held = self._held, ""
        return [Piece(held, thought=self._state == "inside")] if held else []

    def copy(self) -> ThinkSplitter:
        """A splitter in the same state."""
        twin = ThinkSplitter()
        twin._state, twin._held, twin.opening = self._state, self._held, self.opening
        return twin

    def _begin(self, text: str) -> list[Piece]:
        bare = text.lstrip()
        if bare.startswith(_OPEN):
            self._state = "inside"
            self.opening = text[: len(text) - len(bare)] + _OPEN
            return self._inside(bare.removeprefix(_OPEN))
        if _OPEN.startswith(bare):
            self._held = text
            return []
        self._state = "after"
        return [Piece(text, thought=False)]

    def _inside(self, text: str) -> list[Piece]:
        thought, tag, rest = text.partition(_CLOSE)
        if tag:
            self._state = "after"
            pieces = [Piece(thought, thought=True), Piece(rest, thought=False)]
            return [piece for piece in pieces if piece.text]
        keep = next((n for n in range(len(_CLOSE) - 1, 0, -1) if text.endswith(_CLOSE[:n])), 0)
        self._held = text[len(text) - keep :]
        certain = text[: len(text) - keep]
        return [Piece(certain, thought=True)] if certain else []
