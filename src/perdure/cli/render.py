"""A run, as lines in a terminal, while it happens."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from perdure.loop import (
    Event,
    ItemEnd,
    ItemUpdate,
    RunEnd,
    ToolEnd,
    ToolStart,
    ToolUpdate,
    TurnStart,
)
from perdure.wire import FunctionCallOutput, Message, OutputTextDelta, SurrogateJoiner

CLIP = 200
"""How many characters of arguments and outputs a line shows."""


class Renderer:
    """Shows events on a console. Feed it every event of a run, in order."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._joiner = SurrogateJoiner()
        self._streamed: set[str] = set()
        self._in_text = False

    def show(self, event: Event) -> None:
        """Show one event, if a person wants to see it."""
        match event:
            case TurnStart():
                self._line("dim", f"turn {event.turn}")
            case ItemUpdate(stream=OutputTextDelta() as delta):
                self._streamed.add(delta.item_id)
                self._text(self._joiner.feed(delta.delta))
            case ItemEnd(item=Message(role="assistant") as message):
                rest = self._joiner.end()
                self._text(rest if message.id in self._streamed else rest + message.text)
                self._end_text()
            case ToolStart():
                self._line("cyan", f"▶ {event.name} {_clip(event.arguments)}")
            case ToolUpdate():
                self._line("dim", f"  {event.name}: {_clip(_text_of(event.partial.output))}")
            case ToolEnd():
                self._tool_end(event)
            case RunEnd():
                self._run_end(event)
            case _:
                pass

    def _tool_end(self, event: ToolEnd) -> None:
        mark, style = ("✗", "red") if event.error is not None else ("✓", "green")
        said = event.output.text if isinstance(event.output, FunctionCallOutput) else "no output"
        self._line(style, f"{mark} {event.name}", f" {_clip(said)}")

    def _run_end(self, end: RunEnd) -> None:
        self._end_text()
        why = end.cause or (str(end.error) if end.error else "")
        style = "green" if end.reason == "done" else "yellow" if end.reason != "error" else "red"
        used = f"{end.usage.input_tokens} tokens in, {end.usage.output_tokens} out"
        said = f"{end.reason}{': ' + why if why else ''}"
        self._line(style, said, f" ({_count(end.turns, 'turn')}, {used})")

    def _text(self, text: str) -> None:
        if text:
            self._in_text = True
            self._console.print(Text(text), end="", soft_wrap=True, highlight=False)

    def _end_text(self) -> None:
        if self._in_text:
            self._in_text = False
            self._console.print()

    def _line(self, style: str, text: str, rest: str = "") -> None:
        self._end_text()
        line = Text.assemble((text, style), (rest, "default"))
        self._console.print(line, soft_wrap=True, highlight=False)


def _clip(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= CLIP else line[: CLIP - 1] + "…"


def _text_of(output: object) -> str:
    return output if isinstance(output, str) else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
