"""A run, on a page, while it happens."""

from __future__ import annotations

import traceback

from perdure.cli.page import Page, Voice
from perdure.cli.problems import problem_of
from perdure.errors import ToolPanic
from perdure.loop import (
    Event,
    ItemEnd,
    ItemUpdate,
    ModelRetry,
    PendingCall,
    RunEnd,
    ToolEnd,
    ToolStart,
    ToolUpdate,
    TurnStart,
)
from perdure.wire import (
    Item,
    Message,
    OutputTextDelta,
    Part,
    Reasoning,
    Refusal,
    RefusalDelta,
    SurrogateJoiner,
    text_of,
)

ARGUMENTS = 40
"""How many characters of a call's arguments its end repeats, where two calls look alike."""

_STOPS = {
    "max_turns": "stopped after {turns}, the limit; --max-turns allows more",
    "length": "stopped: the answer reached the model's token limit and is cut off",
    "content_filter": "stopped: the provider's content filter cut the answer off",
    "terminate": "stopped: the tools asked for the end",
    "partial_terminate": "stopped: a tool asked for the end",
    "hook": "stopped by a hook",
    "guard": "stopped by a guard",
    "refused": "stopped: a call was refused",
}


class Renderer:
    """Shows events. Feed it every event of a run, in order; it serves one run after another.

    Args:
        page: Where lines go.
        voice: Where the assistant's text goes.
        footer: Whether a run that is done says what it used.
    """

    def __init__(self, page: Page, voice: Voice, *, footer: bool = True) -> None:
        self._page = page
        self._voice = voice
        self._footer = footer
        self._joiner = SurrogateJoiner()
        self._streamed: set[str] = set()
        self._batch: dict[str, ToolStart] = {}
        self._heard: list[str] = []
        self._speaking = False

    def show(self, event: Event) -> None:
        """Show one event, if a person wants to see it."""
        match event:
            case TurnStart():
                self._voice.go_on()
                self._batch.clear()
                self._streamed.clear()
            case ItemUpdate(stream=OutputTextDelta() | RefusalDelta() as delta):
                self._streamed.add(delta.item_id)
                self._say(self._joiner.feed(delta.delta))
            case ItemEnd(item=item):
                self._item_end(item)
            case ModelRetry():
                self._retry(event)
            case ToolStart():
                self._voice.go_on()
                self._batch[event.call_id] = event
                self._page.line("start", event.name, event.arguments)
            case ToolUpdate():
                self._page.line("progress", event.name, _said(event.partial.output), style="dim")
            case ToolEnd():
                self._tool_end(event)
            case RunEnd():
                self._run_end(event)
            case _:
                pass

    def heard(self, line: str) -> None:
        """Show what was typed meanwhile: at once, or when the message that comes is whole."""
        self._heard.append(line)
        if not self._speaking:
            self._show_heard()

    def _show_heard(self) -> None:
        for line in self._heard:
            self._page.line("heard", line, style="magenta", whole=True)
        self._heard.clear()

    def _say(self, piece: str) -> None:
        if piece:
            self._speaking = True
            self._voice.say(piece)

    def _end_message(self) -> None:
        self._say(self._joiner.end())
        self._voice.end_message()
        self._speaking = False
        self._show_heard()

    def _item_end(self, item: Item) -> None:
        if isinstance(item, Reasoning):
            self._page.aside(text_of(item.summary) or text_of(item.content or ()))
        elif isinstance(item, Message) and item.role == "assistant":
            if item.id not in self._streamed:
                self._say(_text_of(item))
            self._end_message()

    def _retry(self, event: ModelRetry) -> None:
        said = f"trying again in {event.delay:.1f} s: {problem_of(event.error).what}"
        self._page.line("again", said, style="yellow")

    # --- calls ------------------------------------------------------------------------

    def _tool_end(self, event: ToolEnd) -> None:
        name, about = event.name, self._told_apart(event)
        if event.output is None and not event.parent:
            said = _without_output(event)
            self._page.line("cut", name, said, about=about, style="yellow")
        elif event.error is not None:
            said = event.output.text if event.output else _reason(event.error)
            self._page.line("bad", name, said, about=about, style="red", whole=True)
            if where := _where(event.error):
                self._page.line("progress", where, style="dim", whole=True)
        else:
            result = event.output or event.result
            said = _said(result.output) if result else ""
            self._page.line("good", name, said, about=about)

    def _told_apart(self, event: ToolEnd) -> str:
        """The arguments of a call, where another of its batch has the same name."""
        start = self._batch.get(event.call_id)
        alike = [one for one in self._batch.values() if one.name == event.name]
        if start is None or len(alike) < 2:
            return ""
        shown = " ".join(start.arguments.split())
        return shown if len(shown) <= ARGUMENTS else shown[:ARGUMENTS] + "…"

    # --- the end ----------------------------------------------------------------------

    def _run_end(self, end: RunEnd) -> None:
        self._end_message()
        self._voice.end(end.answer)
        turns = _count(end.turns, "turn")
        if end.reason == "aborted":
            self._page.line("cut", "interrupted", style="yellow")
        elif end.reason == "stopped":
            said = _STOPS[end.cause].format(turns=turns) if end.cause else "stopped"
            self._page.line("cut", said, style="yellow")
        elif end.reason == "input_required":
            self._page.line("cut", "calls wait for an answer:", _names(end.pending), style="yellow")
        elif end.reason == "done" and self._footer:
            tokens = _count(end.usage.input_tokens, "token")
            self._page.note(f"{turns}, {tokens} in, {end.usage.output_tokens} out")


# --- words ------------------------------------------------------------------------------


def _text_of(item: Item) -> str:
    if not isinstance(item, Message):
        return ""
    if isinstance(item.content, str):
        return item.content
    refusals = (part.refusal for part in item.content if isinstance(part, Refusal))
    return item.text + "".join(refusals)


def _said(output: str | tuple[Part, ...]) -> str:
    """What a tool gave: its text, or the kinds of parts it consists of."""
    if isinstance(output, str):
        return output
    return text_of(output) or ", ".join(f"[{part.type}]" for part in output)


def _without_output(event: ToolEnd) -> str:
    if event.held:
        return f"waits for an answer: {event.reason}".rstrip(": ")
    return "was cut off; it may have run" if event.entered else "was not run"


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _where(error: BaseException) -> str:
    """The place in the tool where it raised what it should not have."""
    cause = error.__cause__ if isinstance(error, ToolPanic) else None
    if cause is None or cause.__traceback__ is None:
        return ""
    frames = traceback.extract_tb(cause.__traceback__)
    return f"{type(cause).__name__} at {frames[-1].filename}:{frames[-1].lineno}"


def _names(pending: tuple[PendingCall, ...]) -> str:
    return ", ".join(one.call.name for one in pending)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
