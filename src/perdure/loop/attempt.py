"""One attempt at a model call: stream events in, item events out.

An attempt *commits* when the model begins its answer, that is when a message or a function call
opens. An item that was finished before, a thought, is *held*: it is shown as it comes and enters
the transcript when the attempt commits or the response arrives, so that an attempt that fails
leaves no orphan behind.
"""

from __future__ import annotations

import msgspec

from perdure.loop.events import Event, ItemEnd, ItemStart, ItemUpdate
from perdure.loop.item_view import ItemView
from perdure.loop.transcript import Transcript
from perdure.wire import (
    Fold,
    FunctionCall,
    Item,
    Message,
    OutputItemAdded,
    OutputItemDone,
    Response,
    StreamEvent,
)


class Attempt:
    """The state of one attempt. `feed` gives the events to deliver, in order."""

    def __init__(self, run_id: str, turn: int, transcript: Transcript) -> None:
        self.fold = Fold()
        self.committed = False
        self.completed: list[Item] = []
        """What the model finished, in the order it finished."""
        self.response_id = ""
        self._run_id = run_id
        self._turn = turn
        self._transcript = transcript
        self._open: dict[int, bool] = {}
        self._held: list[Item] = []

    def feed(self, event: StreamEvent) -> list[Event]:
        """Take a stream event."""
        self.fold.feed(event)
        if not self.response_id:
            self.response_id = getattr(getattr(event, "response", None), "id", "")
        index = getattr(event, "output_index", None)
        if index is None:
            return []
        position = self.fold.position(index)
        match event:
            case OutputItemAdded(item=item) if item is not None:
                return self._opened(position, item)
            case OutputItemDone(item=item) if item is not None:
                return self._finished(position, item)
            case _:
                return [self._update(event, position)]

    def close(self, response: Response) -> list[Event]:
        """Take the response as the terminal event lists it: what was not streamed, what is held."""
        events: list[Event] = []
        for item in unstreamed(response.output, self.completed):
            events += self._opened(None, item)
            events += self._completed(item)
        return [*events, *self._release()]

    def partial(self) -> tuple[Item, ...]:
        """What had begun and was not finished, marked incomplete."""
        started = [self.fold.item(p) for p in sorted(self._open) if self._open[p]]
        return tuple(_incomplete(item) for item in started if item is not None)

    def _opened(self, position: int | None, item: Item) -> list[Event]:
        if position is not None:
            self._open[position] = True
        events: list[Event] = []
        if isinstance(item, Message | FunctionCall) and not self.committed:
            self.committed = True
            events += self._release()
        return [*events, self._start(item)]

    def _finished(self, position: int | None, item: Item) -> list[Event]:
        events: list[Event] = []
        if position is None or position not in self._open:
            events += self._opened(position, item)
        if position is not None:
            self._open[position] = False
        return [*events, *self._completed(item)]

    def _completed(self, item: Item) -> list[Event]:
        self.completed.append(item)
        self._held.append(item)
        return self._release() if self.committed else []

    def _release(self) -> list[Event]:
        """Let what is held into the transcript."""
        held, self._held = self._held, []
        for item in held:
            self._transcript.append(item)
        return [
            ItemEnd(run_id=self._run_id, turn=self._turn, item=item, response_id=self.response_id)
            for item in held
        ]

    def _start(self, item: Item) -> ItemStart:
        return ItemStart(
            run_id=self._run_id, turn=self._turn, item=item, response_id=self.response_id
        )

    def _update(self, event: StreamEvent, position: int | None) -> ItemUpdate:
        return ItemUpdate(
            run_id=self._run_id,
            turn=self._turn,
            stream=event,
            view=ItemView(self.fold, position),
            response_id=self.response_id,
        )


def unstreamed(listed: tuple[Item, ...], completed: list[Item]) -> list[Item]:
    """The items a response lists that its stream never finished.

    Two items are one if they share an id; two calls if they share a call id; failing that, anything
    but a call pairs with the next of its kind, since some servers change ids on the way.
    """
    missing, rest = list(listed), list(completed)
    for same in (_same_id, _same_call, _same_kind):
        for item in list(missing):
            twin = next((i for i, done in enumerate(rest) if same(done, item)), None)
            if twin is not None:
                del rest[twin]
                missing = [other for other in missing if other is not item]
    return missing


def _same_id(done: Item, item: Item) -> bool:
    return type(done) is type(item) and bool(item_id(done)) and item_id(done) == item_id(item)


def _same_call(done: Item, item: Item) -> bool:
    if isinstance(done, FunctionCall) and isinstance(item, FunctionCall):
        return done.call_id == item.call_id
    return False


def _same_kind(done: Item, item: Item) -> bool:
    return type(done) is type(item) and not isinstance(done, FunctionCall)


def item_id(item: Item) -> str:
    """The id of an item, empty if it has none."""
    return item.id or ""


def _incomplete(item: Item) -> Item:
    if hasattr(item, "status"):
        return msgspec.structs.replace(item, status="incomplete")  # type: ignore[type-var]
    return item
