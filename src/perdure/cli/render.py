"""A run, on a page, while it happens."""

from __future__ import annotations

import traceback

from perdure.cli.page import Page, Voice
from perdure.errors import ToolPanic
from perdure.loop import (
    Event,
    ItemEnd,
    ItemUpdate,
    ModelRetry,
    PendingCall,
    Queued,
    RunEnd,
    ToolEnd,
    ToolStart,
    ToolUpdate,
    TurnStart,
)
from perdure.result import answer
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

    def show(self, event: Event) -> None:
        """Show one event, if a person wants to see it."""
        match event:
            case TurnStart():
                self._voice.go_on()
                self._batch.clear()
                self._streamed.clear()
            case ItemUpdate(stream=OutputTextDelta() | RefusalDelta() as delta):
                self._streamed.add(delta.item_id)
                self._voice.say(self._joiner.feed(delta.delta))
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
            case Queued(hidden=False):
                self._page.line("heard", _text_of(event.item), style="magenta")
            case RunEnd():
                self._run_end(event)
            case _:
                pass

    def _item_end(self, item: Item) -> None:
        if isinstance(item, Reasoning):
            self._page.aside(text_of(item.summary) or text_of(item.content or ()))
        elif isinstance(item, Message) and item.role == "assistant":
            rest = self._joiner.end()
            self._voice.say(rest if item.id in self._streamed else rest + _text_of(item))
            self._voice.end_message()

    def _retry(self, event: ModelRetry) -> None:
        again = f"; trying again in {event.delay:.1f} s"
        self._page.line("again", _reason(event.error) + again, style="yellow")

    # --- calls ------------------------------------------------------------------------

    def _tool_end(self, event: ToolEnd) -> None:
        name = self._told_apart(event)
        if event.output is None and not event.parent:
            self._page.line("cut", name, _without_output(event), style="yellow")
        elif event.error is not None:
            said = event.output.text if event.output else _reason(event.error)
            self._page.line("bad", name, said, style="red", whole=True)
            if where := _where(event.error):
                self._page.line("progress", where, style="dim", whole=True)
        else:
            result = event.output or event.result
            said = _said(result.output) if result else ""
            self._page.line("good", name, said)

    def _told_apart(self, event: ToolEnd) -> str:
        """The name of a call, with its arguments where another of its batch has the same."""
        start = self._batch.get(event.call_id)
        alike = [one for one in self._batch.values() if one.name == event.name]
        if start is None or len(alike) < 2:
            return event.name
        shown = " ".join(start.arguments.split())
        return f"{event.name} {shown if len(shown) <= ARGUMENTS else shown[:ARGUMENTS] + '…'}"

    # --- the end ----------------------------------------------------------------------

    def _run_end(self, end: RunEnd) -> None:
        rest = self._joiner.end()
        if rest:
            self._voice.say(rest)
        self._voice.end_message()
        self._voice.end("" if end.withheld else answer(end))
        turns = _count(end.turns, "turn")
        if end.reason == "aborted":
            self._page.line("cut", "interrupted", style="yellow")
        elif end.reason == "stopped":
            said = _STOPS[end.cause].format(turns=turns) if end.cause else "stopped"
            self._page.line("cut", said, style="yellow")
        elif end.reason == "input_required":
            self._page.line("cut", "calls wait for an answer:", _names(end.pending), style="yellow")
        elif end.reason == "done" and self._footer:
            used = f"{end.usage.input_tokens} tokens in, {end.usage.output_tokens} out"
            self._page.note(f"{turns}, {used}")


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
    frames = traceback.extract_tb(cause.__traceback__) if cause is not None else []
    if not frames:
        return ""
    return f"{type(cause).__name__} at {frames[-1].filename}:{frames[-1].lineno}"


def _names(pending: tuple[PendingCall, ...]) -> str:
    return ", ".join(one.call.name for one in pending)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
