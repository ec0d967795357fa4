"""A model that answers from a script, without a network.

```python
model = ScriptedModel([
    turn(reasoning("I should add."), call("add", {"a": 19, "b": 23})),
    "It is 42.",
])
```
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Literal, cast

import msgspec

from perdure.clock import Clock, SystemClock
from perdure.errors import ModelError
from perdure.loop.model import ModelRequest, is_terminal
from perdure.loop.transcript import Items
from perdure.wire import (
    ErrorPayload,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
    StreamEvent,
    Usage,
)
from perdure.wire.emitter import Emitter

ARGUMENT_CHUNK = 12
"""How many characters of a call's arguments go into one delta."""

CutReason = Literal["max_output_tokens", "content_filter"]


class ScriptEnded(ModelError):
    """The transcript asks for a turn that the script does not have."""

    def __init__(self, turn: int, known: str) -> None:
        super().__init__(f"the transcript asks for turn {turn}, and the script has {known}")


# --- what a turn is made of ------------------------------------------------------


class Text(msgspec.Struct, frozen=True):
    """A text, streamed word by word."""

    text: str


class RefusalText(msgspec.Struct, frozen=True):
    """A refusal, streamed word by word."""

    text: str


class Call(msgspec.Struct, frozen=True):
    """A function call."""

    name: str
    arguments: str
    call_id: str | None


class Thought(msgspec.Struct, frozen=True):
    """What the model thought."""

    summary: str
    text: str
    encrypted_content: str


class Whole(msgspec.Struct, frozen=True):
    """An item without deltas."""

    item: Item


class Raised(msgspec.Struct, frozen=True):
    """Something raised in the middle of the stream."""

    error: BaseException


class Failed(msgspec.Struct, frozen=True):
    """The end in `response.failed`."""

    error: ErrorPayload


Part = Text | RefusalText | Call | Thought | Whole | Raised | Failed


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What a scripted model answers once. Made by `text`, `call`, `turn` and the like.

    Attributes:
        parts: What it says, in order.
        incomplete: Why the answer is cut at its end, if it is.
        usage: The tokens to report; None counts items in and pieces out.
    """

    parts: tuple[Part, ...] = ()
    incomplete: CutReason | None = None
    usage: Usage | None = None


class Attempts(msgspec.Struct, frozen=True):
    """A turn that answers differently each time the same input is sent again."""

    turns: tuple[TurnLike, ...]


TurnLike = (
    str
    | Turn
    | Attempts
    | BaseException
    | Sequence[StreamEvent]
    | Callable[[ModelRequest], "TurnLike | Awaitable[TurnLike]"]
)
"""A turn as a script may hold it.

A string is a text. An exception is raised before anything is sent. A list of events is sent as it
is. A function gets the request and gives one of the others, and may be async.
"""

Script = Sequence[TurnLike] | Callable[[int], TurnLike]
"""A list of turns, or a function from a turn's number, which counts from 0."""


def text(words: str) -> Turn:
    """A message, its words streamed one by one."""
    return Turn(parts=(Text(words),))


def refusal(words: str) -> Turn:
    """A refusal."""
    return Turn(parts=(RefusalText(words),))


def call(
    name: str, arguments: Mapping[str, object] | str | None = None, call_id: str | None = None
) -> Turn:
    """A function call. Arguments given as a string are sent as they are, JSON or not."""
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments or {}).decode()
    return Turn(parts=(Call(name, arguments, call_id),))


def reasoning(summary: str = "", *, text: str = "", encrypted_content: str = "") -> Turn:
    """A thought: its summary, its text, what its provider keeps sealed."""
    return Turn(parts=(Thought(summary, text, encrypted_content),))


def item(value: Item) -> Turn:
    """Any item, whole, without deltas."""
    return Turn(parts=(Whole(value),))


def error(cause: BaseException) -> Turn:
    """Raise; in a `turn`, after what stands before it. `Truncated()` cuts the stream there."""
    return Turn(parts=(Raised(cause),))


def fail(message: str, *, type: str = "server_error", code: str | None = None) -> Turn:  # noqa: A002
    """End in `response.failed`, as a server that says what went wrong."""
    return Turn(parts=(Failed(ErrorPayload(type=type, code=code, message=message, param=None)),))


def turn(
    *parts: Turn | str, incomplete: CutReason | None = None, usage: Usage | None = None
) -> Turn:
    """Several in one answer.

    Args:
        parts: What it says, in order.
        incomplete: Cut the answer after that, for this reason.
        usage: The tokens to report.
    """
    turns = [text(part) if isinstance(part, str) else part for part in parts]
    return Turn(
        parts=tuple(part for one in turns for part in one.parts), incomplete=incomplete, usage=usage
    )


def attempts(*turns: TurnLike) -> Attempts:
    """The first of `turns` when an input is first sent, the next when it is sent again.

    The last stands for all further attempts.
    """
    return Attempts(turns)


# --- the model --------------------------------------------------------------------


class ScriptedModel:
    """A model that answers from a script.

    Which turn it answers follows from the input alone: a run that is resumed, replayed or
    branched gets the answer that belongs there. Its items carry the number of their turn in their
    ids (`msg_t3_0`, `call_t3_1`), so the turn after the last of them is next, also when earlier
    ones were folded away. Without such ids each unbroken run of assistant messages, calls and
    thoughts counts as one turn. Finding it costs only the items that are new in a transcript.

    Args:
        script: The turns.
        after: How many turns the input already has before the script's first.
        delay: Seconds to wait before each event but the first; 0 does not wait at all.
        clock: What it waits on, and where the times in responses come from.

    Attributes:
        requests: The requests it saw, in order.
        abandoned: How many streams were closed before their end.
    """

    def __init__(
        self, script: Script, *, after: int = 0, delay: float = 0.0, clock: Clock | None = None
    ) -> None:
        self._script = script
        self._after = after
        self._delay = delay
        self._clock: Clock = clock or SystemClock()
        self._tried: dict[int, int] = {}
        self.requests: list[ModelRequest] = []
        self.abandoned = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """The events of the answer to `request`.

        Raises:
            ScriptEnded: The script has no turn for it.
        """
        self.requests.append(request)
        number = turns_in(request.input)
        answer = await self._settled(self._turn(number), request, number)
        events = self._events(answer, request, number)
        ended = False
        try:
            for index, event in enumerate(events):
                if self._delay and index:
                    await self._clock.sleep(self._delay)
                ended = is_terminal(event)
                yield event
        except (GeneratorExit, asyncio.CancelledError):
            self.abandoned += not ended
            raise

    def _turn(self, number: int) -> TurnLike:
        index = number - self._after
        if callable(self._script):
            return self._script(index)
        if not 0 <= index < len(self._script):
            known = f"{len(self._script)} from turn {self._after} on"
            raise ScriptEnded(number, known)
        return self._script[index]

    async def _settled(
        self, answer: TurnLike, request: ModelRequest, number: int
    ) -> Turn | Sequence[StreamEvent]:
        """A turn with its functions called and its attempts counted."""
        while True:
            if isinstance(answer, str):
                return text(answer)
            if isinstance(answer, Turn):
                return answer
            if isinstance(answer, BaseException):
                raise answer
            if isinstance(answer, Attempts):
                tried = self._tried.get(number, 0)
                self._tried[number] = tried + 1
                answer = answer.turns[min(tried, len(answer.turns) - 1)]
            elif callable(answer):
                given = answer(request)
                answer = await given if inspect.isawaitable(given) else given
            else:
                return answer

    def _events(
        self, answer: Turn | Sequence[StreamEvent], request: ModelRequest, number: int
    ) -> Iterator[StreamEvent]:
        if not isinstance(answer, Turn):
            return iter(answer)
        ids = _Ids(number)
        emitter = Emitter(request.settings, ids=ids, clock=self._clock)
        return _play(answer, emitter, len(request.input))


def _play(answer: Turn, emitter: Emitter, items_in: int) -> Iterator[StreamEvent]:
    """The events of a turn, each made when it is asked for."""
    pieces = 0
    for part in answer.parts:
        if isinstance(part, Failed):
            yield from emitter.fail(part.error)
            return
        for events in _said(part, emitter):
            pieces += 1
            yield from events
    usage = answer.usage or _count(items_in, pieces)
    if answer.incomplete is None:
        yield from emitter.complete(usage=usage)
    else:
        yield from emitter.incomplete(answer.incomplete, usage=usage)


def _said(part: Part, emitter: Emitter) -> Iterator[list[StreamEvent]]:
    match part:
        case Text(words):
            yield emitter.message()
            for word in _words(words):
                yield emitter.text(word)
        case RefusalText(words):
            yield emitter.message()
            for word in _words(words):
                yield emitter.refusal(word)
        case Call(name, arguments, call_id):
            yield emitter.call(name, call_id)
            for start in range(0, len(arguments), ARGUMENT_CHUNK):
                yield emitter.arguments(arguments[start : start + ARGUMENT_CHUNK])
        case Thought():
            yield from _thought(part, emitter)
        case Whole(value):
            yield emitter.item(value)
        case Raised(cause):
            raise cause
        case Failed():
            pass


def _thought(part: Thought, emitter: Emitter) -> Iterator[list[StreamEvent]]:
    yield emitter.reasoning()
    for word in _words(part.summary):
        yield emitter.reasoning_summary(word)
    if part.summary:
        yield emitter.end_summary()
    for word in _words(part.text):
        yield emitter.reasoning_text(word)
    if part.encrypted_content:
        yield emitter.encrypted(part.encrypted_content)


def _words(words: str) -> list[str]:
    """The words of a text, each with the white space before it."""
    return re.findall(r"\s*\S+|\s+$", words)


def _count(items_in: int, pieces: int) -> Usage:
    return Usage(input_tokens=items_in, output_tokens=pieces, total_tokens=items_in + pieces)


class _Ids:
    """Ids that say which turn they belong to."""

    __slots__ = ("_count", "_turn")

    def __init__(self, turn: int) -> None:
        self._turn = turn
        self._count = 0

    def new(self, prefix: str) -> str:
        if prefix == "resp_":
            return f"resp_t{self._turn}"
        self._count += 1
        return f"{prefix}t{self._turn}_{self._count - 1}"


# --- which turn -------------------------------------------------------------------

_MEMO_KEY = "perdure.testing.scripted:turns"
_MARK = re.compile(r"[a-z]+_t(\d+)_\d+")


class _Seen(msgspec.Struct, frozen=True):
    """How many turns the items so far have, and whether the last of them is still going on."""

    turns: int
    open: bool


def turns_in(items: Items) -> int:
    """How many turns of a model the items hold. Looks only at items not looked at before."""
    seen = cast("list[_Seen]", items.memo.setdefault(_MEMO_KEY, [_Seen(0, open=False)]))
    for one in items[len(seen) - 1 :]:
        seen.append(_after(seen[-1], one))
    return seen[len(items)].turns


def _after(seen: _Seen, one: Item) -> _Seen:
    mark = _MARK.fullmatch(_name(one))
    said = _is_models(one)
    if mark is not None:
        return _Seen(int(mark[1]) + 1, said)
    if said:
        return seen if seen.open else _Seen(seen.turns + 1, open=True)
    return _Seen(seen.turns, open=False) if seen.open else seen


def _name(one: Item) -> str:
    """The id that would hold a mark."""
    named = one.call_id if isinstance(one, FunctionCallOutput) else one.id
    return named or ""


def _is_models(one: Item) -> bool:
    return isinstance(one, FunctionCall | Reasoning) or (
        isinstance(one, Message) and one.role == "assistant"
    )
