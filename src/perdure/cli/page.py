"""What stands on the screen: paragraphs of text and lines about calls, a blank line between both.

Lines go to a console (standard error, as a rule); the answer goes where it belongs: *streamed* as
it comes into a terminal, or *held* until it is known to be the answer, for a file or a program.
"""

from __future__ import annotations

from typing import IO, Literal, Protocol

from rich.console import Console
from rich.text import Text

from perdure.cli.text import Wrapper, one_line, visible

CLIP = 400
"""The most columns of a text that the screen does not cut."""

_Kind = Literal["text", "lines", "problem"]

Mark = Literal["start", "progress", "good", "bad", "cut", "again", "heard"]

_MARKS: dict[Mark, tuple[str, str, str]] = {
    "start": ("▶", ">", "cyan"),
    "progress": ("·", "-", "dim"),
    "good": ("✓", "+", "green"),
    "bad": ("✗", "x", "red"),
    "cut": ("■", "!", "yellow"),
    "again": ("↻", "~", "yellow"),
    "heard": ("»", ">>", "magenta"),
}
"""Each mark, what stands in for it where there is only ASCII, and its style."""


HANG = 2
"""Columns that the further lines of a text stand in from its first."""


def print_hanging(console: Console, text: Text) -> None:
    """Print a text: in a terminal, what does not fit stands under it, in from where it begins."""
    if not console.is_terminal:
        console.print(text, soft_wrap=True, highlight=False)
        return
    first = _spaces(text)
    indent, rest = first, text[first:]
    while rest.plain:
        part = rest.wrap(console, max(console.width - indent, 1), overflow="fold")[0]
        rest = rest[len(part.plain) :]
        rest = rest[_spaces(rest) :]
        part.rstrip()
        console.print(Text(" " * indent) + part, soft_wrap=True, highlight=False)
        indent = first + HANG


def _spaces(text: Text) -> int:
    """How many spaces a text begins with."""
    return len(text.plain) - len(text.plain.lstrip(" "))


def say_hanging(line: str) -> None:
    """Write a line to standard output; in a terminal, what does not fit stands in under it."""
    print_hanging(Console(), Text(line))


class Page:
    """Lines and paragraphs on one console."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._last: _Kind | None = None
        self._over = False

    def begin_text(self) -> bool:
        """Make room for a paragraph. Says whether one stands directly before it."""
        return self._begin("text")

    def begin_problem(self) -> None:
        """Make room for what went wrong."""
        self._begin("problem")

    def interrupted(self) -> None:
        """Ctrl-C was pressed: the next line is written over the `^C` of the terminal."""
        self._over = self.console.is_terminal

    def line(
        self,
        mark: Mark,
        head: str,
        rest: str = "",
        *,
        about: str = "",
        style: str = "",
        whole: bool = False,
    ) -> None:
        """One line about what happens.

        Args:
            mark: What kind of thing it is.
            head: Its name.
            rest: What there is to say.
            about: What tells it from others of its name.
            style: The style of both.
            whole: Let a long text take more lines, instead of cutting it.
        """
        self._begin("lines")
        sign, ascii_sign, colour = _MARKS[mark]
        ascii_only = self.console.options.ascii_only
        text = Text.assemble((ascii_sign if ascii_only else sign, colour), " ")
        text.append(one_line(head), style or "bold")
        if about:
            text.append(f" {one_line(about)} {'->' if ascii_only else '→'}", "dim")
        if rest := one_line(rest):
            text.append(f" {rest}", style)
        on_screen = self.console.is_terminal and not whole
        text.truncate(self.console.width if on_screen else CLIP, overflow="ellipsis")
        if whole:
            print_hanging(self.console, text)
        else:
            self._print(text, wrap=False)

    def aside(self, text: str) -> None:
        """A paragraph that is not the answer."""
        if text.strip():
            if self.begin_text():
                self.console.print()
            self._print(Text(visible(text).strip("\n"), "dim"))

    def note(self, text: str, style: str = "dim") -> None:
        """A line of the command's own."""
        self._begin("lines")
        self._print(Text(one_line(text), style))

    def _print(self, text: Text, *, wrap: bool = True) -> None:
        """Where there is no terminal, lines stay as long as they are."""
        on_screen = self.console.is_terminal
        self.console.print(text, soft_wrap=not (wrap and on_screen), highlight=False)

    def _begin(self, kind: _Kind) -> bool:
        before, self._last = self._last, kind
        if self._over:
            self._over = False
            self.console.file.write("\r")
        if before and before != kind:
            self.console.print()
        return before == kind


class Voice(Protocol):
    """Where the assistant's text goes."""

    def say(self, piece: str) -> None:
        """A piece of a message, as it comes."""
        ...

    def end_message(self) -> None:
        """The message is whole, or was cut."""
        ...

    def go_on(self) -> None:
        """What was said so far was not the answer."""
        ...

    def end(self, answer: str) -> None:
        """Nothing follows; this was the answer, empty if there is none."""
        ...


def voice_for(page: Page, out: IO[str]) -> Voice:
    """Stream into a terminal; hold for anything else."""
    return Streamed(page, out) if out.isatty() else Held(page, out)


class Streamed:
    """Everything that is said, as it comes, broken at words."""

    def __init__(self, page: Page, out: IO[str]) -> None:
        self._page = page
        self._out = out
        self._wrapper = Wrapper(lambda: page.console.width)
        self._speaking = False

    def say(self, piece: str) -> None:
        if not self._speaking:
            piece = piece.lstrip("\n")
            if not piece:
                return
            self._speaking = True
            if self._page.begin_text():
                self._out.write("\n")
        self._out.write(self._wrapper.feed(visible(piece)))
        self._out.flush()

    def end_message(self) -> None:
        if self._speaking:
            self._speaking = False
            self._out.write(self._wrapper.end() + "\n")
            self._out.flush()

    def go_on(self) -> None:
        """It is on the screen already."""

    def end(self, answer: str) -> None:
        """It is on the screen already."""


class Held:
    """The answer alone, exactly as the model wrote it. What else is said goes to the page."""

    def __init__(self, page: Page, out: IO[str]) -> None:
        self._page = page
        self._out = out
        self._pieces: list[str] = []
        self._whole: list[str] = []

    def say(self, piece: str) -> None:
        self._pieces.append(piece)

    def end_message(self) -> None:
        if self._pieces:
            self._whole.append("".join(self._pieces))
            self._pieces.clear()

    def go_on(self) -> None:
        for text in self._whole:
            self._page.aside(text)
        self._whole.clear()

    def end(self, answer: str) -> None:
        if answer and self._whole:
            self._whole.pop()
        self.go_on()
        if answer:
            self._out.write(answer if answer.endswith("\n") else answer + "\n")
            self._out.flush()
