"""Text on its way to a terminal: nothing in it may steer the terminal, and lines break at words.

What a model or a tool says is data. An escape sequence in it could retitle a window, hide what was
said, or answer for the user; so every control character is shown as a visible stand-in.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rich.cells import cell_len

from perdure.wire import scalar_text

_TAB = 8


def _stand_ins() -> dict[int, str | None]:
    pictures: dict[int, str | None] = {code: chr(0x2400 + code) for code in range(0x20)}
    pictures |= dict.fromkeys(range(0x80, 0xA0), "\ufffd")  # C1: 0x9b begins a sequence alone
    # Overrides and isolates of direction can make a line read as another one.
    pictures |= dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd")
    pictures[0x7F] = "\u2421"
    pictures[ord("\r")] = None  # half of a line's end; alone it would overwrite the line
    del pictures[ord("\n")], pictures[ord("\t")]
    return pictures


_STAND_INS = _stand_ins()


def visible(text: str) -> str:
    """The text with everything that could steer a terminal made visible."""
    return scalar_text(text).translate(_STAND_INS)


def one_line(text: str) -> str:
    """The text on one line, visible."""
    return visible(" ".join(text.split()))


class Wrapper:
    """Breaks text that comes in pieces at words, so that a terminal need not break it inside one.

    A word is held back until it is whole. Code between fences and tables are left as they are:
    somebody may copy them. Feed it visible text.

    Args:
        width: Gives the columns of the terminal at the moment.
    """

    def __init__(self, width: Callable[[], int]) -> None:
        self._width = width
        self._column = 0
        self._gap = ""  # white space that waits for the word after it
        self._word = ""
        self._open = False  # the word before goes on
        self._start = ""  # how the line begins, after its indentation
        self._fenced = False

    def feed(self, piece: str) -> str:
        """What can be written now."""
        out: list[str] = []
        for found in _PIECE.findall(piece):
            if found == "\n":
                out.append(self._end_word() + "\n")
                self._end_line()
            elif found.isspace():
                out.append(self._end_word() if self._word else "")
                self._open = False
                self._gap += found
                if 0 < len(self._start) < len(_FENCE):
                    self._start += " "
            else:
                out.append(self._grow(found))
        return "".join(out)

    def end(self) -> str:
        """What is left; the next piece begins a text of its own."""
        rest = self._end_word()
        self._end_line()
        self._fenced = False
        return rest

    def _grow(self, letters: str) -> str:
        if len(self._start) < len(_FENCE):
            self._start += letters
        if _is_wide(letters):  # a line may break before and after it
            before = self._end_word() if self._word else ""
            self._open = False
            self._word = letters
            return before + self._end_word()
        self._word += letters
        if not self._as_it_is() and cell_len(self._word) < self._width():
            return ""
        out = self._end_word()
        self._open = True
        return out

    def _end_word(self) -> str:
        """The word after its gap, or at the beginning of a new line."""
        gap, word, self._gap, self._word = self._gap, self._word, "", ""
        if self._as_it_is() or self._open or not self._column:
            return self._written(gap + word)
        if not word or self._fits(gap + word):
            return self._written(gap + word) if word else ""
        self._column = 0
        return "\n" + self._written(word)

    def _fits(self, text: str) -> bool:
        return self._column + _columns(text, self._column) <= self._width()

    def _written(self, text: str) -> str:
        end = self._column + _columns(text, self._column)
        width = self._width()
        self._column = (end - 1) % width + 1 if end > width else end
        return text

    def _as_it_is(self) -> bool:
        return self._fenced or self._start.startswith((_FENCE, "|"))

    def _end_line(self) -> None:
        if self._start.startswith(_FENCE):
            self._fenced = not self._fenced
        self._column, self._gap, self._start, self._open = 0, "", "", False


_FENCE = "```"
_WIDE = "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60"
_PIECE = re.compile(rf"\n|[^\S\n]+|[{_WIDE}]|[^\s{_WIDE}]+")


def _is_wide(letters: str) -> bool:
    return len(letters) == 1 and cell_len(letters) > 1


def _columns(text: str, column: int) -> int:
    if "\t" not in text:
        return cell_len(text)
    end = column
    for part in re.split(r"(\t)", text):
        end += _TAB - end % _TAB if part == "\t" else cell_len(part)
    return end - column
