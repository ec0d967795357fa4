"""Text that arrives in pieces, cut anywhere, also inside a surrogate pair."""

from __future__ import annotations

REPLACEMENT = "\ufffd"


class SurrogateJoiner:
    """Joins pieces of text so that every piece it gives can be shown.

    The first half of a pair waits for the second; a half that stays alone becomes U+FFFD.
    """

    __slots__ = ("_half",)

    def __init__(self) -> None:
        self._half = ""

    def feed(self, piece: str) -> str:
        """What can be shown now."""
        if not self._half and piece.isascii():
            return piece
        text = self._half + piece
        self._half = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        return scalar_text(text[:-1] if self._half else text)

    def end(self) -> str:
        """What is left when no piece follows."""
        half, self._half = self._half, ""
        return REPLACEMENT if half else ""


def scalar_text(text: str) -> str:
    """The text with halves that stand side by side joined, and each lone one made U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def joined_text(text: str) -> str:
    """The text with halves that stand side by side joined; a lone one stays as it is."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text
