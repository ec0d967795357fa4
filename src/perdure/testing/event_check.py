"""The order in which the loop promises its events, checked event by event.

*made*: the calls of a turn, in the order in which they entered the transcript. *adding*: an item
that the loop itself appends, between its `item_start` and its `item_end`. An *excuse* is what only
a drive may leave behind that failed, was aborted or was stopped by a guard: its end decides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NoReturn

from perdure.loop.events import (
    Event,
    ItemEnd,
    ItemStart,
    ItemUpdate,
    ModelBlocked,
    ModelRetry,
    Queued,
    ResponseEnd,
    RunEnd,
    RunStart,
    ToolDispatch,
    ToolEnd,
    ToolStart,
    ToolUpdate,
    TurnEnd,
    TurnStart,
)
from perdure.wire import FunctionCall, FunctionCallOutput, Item, Response


def check_events(events: Iterable[Event]) -> None:
    """Check that the events of one drive, or of several one after another, are in order and whole.

    * a drive begins with `run_start` and ends with one `run_end`, and nothing but `queued` follows;
      one that was refused is its `run_end` alone;
    * turns count from 1; each has one `turn_start`, one `response_end` before any of its calls, and
      one `turn_end`, unless the drive ends in it; `model_blocked` stands in place of `turn_start`
      and is followed by the end;
    * every item that is finished was started; what the loop appends is finished before anything
      else;
    * calls start in the model's order, all before the first is dispatched; each ends once, and is
      dispatched and updated only in between; a nested call lies within its parent;
    * what was held or rejected was not dispatched; what was entered was;
    * outputs follow when every call has ended, in the model's order;
    * in each request every call has exactly one output, after it;
    * the items of the end are the items that were finished; its pending calls are those among them
      without an output;
    * an item from a queue was reported as `queued` before.

    Raises:
        AssertionError: A rule is broken; the message names the event and the rule.
    """
    check = EventCheck()
    for event in events:
        check.feed(event)
    check.end()


class _Phase(Enum):
    idle = auto()
    between = auto()
    asking = auto()
    answered = auto()
    blocked = auto()


@dataclasses.dataclass(slots=True)
class _Call:
    start: ToolStart
    dispatched: bool = False
    end: ToolEnd | None = None


class EventCheck:
    """The rules of `check_events`, for events that are still coming in."""

    def __init__(self) -> None:
        self.drives = 0
        """How many drives have ended."""
        self._count = 0
        self._reported: set[str] = set()
        self._last: Event | None = None
        self._reset()

    def _reset(self) -> None:
        self._phase = _Phase.idle
        self._run_id = ""
        self._source = ""
        self._turn = 0
        self._response: Response | None = None
        self._withheld = False
        self._open: list[Item] = []
        self._made: list[str] = []
        self._calls: dict[str, _Call] = {}
        self._seen: set[str] = set()
        self._outputs: list[str] = []
        self._adding: Item | None = None
        self._items: list[Item] = []
        self._excuse = ""

    def feed(self, event: Event) -> None:
        """Take the next event."""
        self._count += 1
        self._last = event
        if isinstance(event, Queued):
            self._reported.add(event.queue_id)
            return
        if isinstance(event, RunStart):
            self._start(event)
            return
        if isinstance(event, RunEnd):
            self._end_run(event)
            return
        self._rule(self._phase is not _Phase.idle, "nothing comes outside a drive")
        self._rule(self._phase is not _Phase.blocked, "after model_blocked comes the end")
        self._rule(event.run_id == self._run_id, "every event names its drive")
        if self._adding is not None and not isinstance(event, ItemEnd):
            self._excuse = self._excuse or "what the loop appends is finished before anything else"
            self._adding = None
        self._in_drive(event)

    def end(self) -> None:
        """Say that no event follows."""
        self._rule(self._phase is _Phase.idle, "a drive that began has its run_end")

    @property
    def running(self) -> bool:
        """Whether a drive has begun and not ended."""
        return self._phase is not _Phase.idle

    def _in_drive(self, event: Event) -> None:
        match event:
            case TurnStart():
                self._turn_start(event)
            case ModelBlocked():
                self._rule(self._phase is _Phase.between, "model_blocked stands for a turn_start")
                self._rule(event.turn == self._turn + 1, "turns count from 1")
                self._phase = _Phase.blocked
            case ModelRetry():
                self._rule(self._phase is _Phase.asking, "model_retry belongs to a model call")
                self._rule(not self._made, "an attempt that has committed is not made again")
                self._open.clear()
            case ItemStart():
                self._item_start(event)
            case ItemUpdate():
                self._rule(self._phase is _Phase.asking, "item_update belongs to a model call")
            case ItemEnd():
                self._item_end(event)
            case ResponseEnd():
                self._response_end(event)
            case ToolStart() | ToolDispatch() | ToolUpdate() | ToolEnd():
                self._tool(event)
            case TurnEnd():
                self._turn_end(event)
            case _:
                self._fail("it is an event of a drive")

    # --- the drive ---------------------------------------------------------------------------

    def _start(self, event: RunStart) -> None:
        self._rule(self._phase is _Phase.idle, "a drive begins when the last one has ended")
        self._reset()
        self._phase = _Phase.between
        self._run_id, self._source = event.run_id, event.source
        self._rule(bool(event.run_id), "a drive has an id")

    def _end_run(self, event: RunEnd) -> None:
        if self._phase is _Phase.idle:
            self._rule(not event.run_id, "a drive that ends has begun")
            refused = event.reason in {"error", "aborted"} or event.cause == "guard"
            self._rule(refused and not event.items, "a refused drive has done nothing")
            self.drives += 1
            return
        self._rule(event.run_id == self._run_id, "every event names its drive")
        for call_id, call in self._calls.items():
            self._rule(call.end is not None, f"tool_start {call_id!r} has its tool_end")
        self._check_reason(event)
        self._check_items(event)
        self.drives += 1
        self._reset()

    def _check_reason(self, event: RunEnd) -> None:
        failed = event.reason in {"error", "aborted"}
        guarded = event.cause == "guard"
        self._rule((event.cause is not None) == (event.reason == "stopped"), "a stop has a cause")
        self._rule((event.error is not None) == (failed or guarded), "a failure has an error")
        if event.reason == "done":
            self._rule(not event.pending, "a drive that is done leaves no call")
        if event.reason == "input_required":
            held = any(one.reason in {"held", "suspended", "unknown"} for one in event.pending)
            self._rule(held, "input is required by a call that waits, or halts")
        if failed or guarded:
            return
        self._rule(not self._excuse, self._excuse)
        self._rule(self._adding is None, "what the loop appends is finished")
        self._rule(self._phase is _Phase.between, "a turn that began has ended")
        self._finish_batch()
        if event.reason == "stopped":
            self._rule(not event.pending, "a drive that stopped leaves no call")

    def _check_items(self, event: RunEnd) -> None:
        unexcused = event.reason in {"done", "stopped", "input_required"} and not self._excuse
        items = list(event.items)
        if unexcused:
            self._rule(items == self._items, "the items of the end are those that were finished")
        else:
            rest = iter(items)
            found = all(any(item is one for one in rest) for item in self._items)
            self._rule(found, "the end has every item that was finished, in order")
        open_calls = _unanswered(items)
        pending = [one.call.call_id for one in event.pending]
        self._rule(len(set(pending)) == len(pending), "a call is pending once")
        missing = [call_id for call_id in open_calls if call_id not in pending]
        self._rule(not missing, f"calls without an output are pending: {missing}")

    # --- the turn ----------------------------------------------------------------------------

    def _turn_start(self, event: TurnStart) -> None:
        self._rule(self._phase is _Phase.between, "a turn begins when the last one has ended")
        self._rule(event.turn == self._turn + 1, "turns count from 1")
        self._finish_batch()
        self._rule(not self._excuse, self._excuse)
        check_input(tuple(event.request.input))
        self._phase = _Phase.asking
        self._turn = event.turn
        self._response, self._withheld = None, False
        self._open, self._made, self._outputs = [], [], []
        self._calls = {}

    def _response_end(self, event: ResponseEnd) -> None:
        self._rule(self._phase is _Phase.asking, "a response ends once, in its turn")
        self._rule(event.turn == self._turn, "events name their turn")
        whole = event.response.status in {"completed", "incomplete"} and not event.withheld
        self._rule(not (whole and self._open), "a response ends when its items have ended")
        self._open.clear()
        self._response, self._withheld = event.response, event.withheld
        self._phase = _Phase.answered

    def _turn_end(self, event: TurnEnd) -> None:
        self._rule(self._phase is _Phase.answered, "a turn ends after its response")
        self._rule(event.turn == self._turn, "events name their turn")
        self._rule(not self._withheld, "a withheld response has no turn_end")
        ends = self._finish_batch()
        results = sum(end.result is not None for end in ends)
        self._rule(len(event.tool_results) == results, "turn_end has the results of the batch")
        held = {end.call_id for end in ends if end.output is None}
        missing = [one for one in self._made if one not in self._outputs and one not in held]
        self._rule(not missing, f"every call of the turn is answered or held: {missing}")
        self._phase = _Phase.between
        self._made = []

    # --- items -------------------------------------------------------------------------------

    def _item_start(self, event: ItemStart) -> None:
        if self._phase is _Phase.asking:
            self._rule(event.turn == self._turn, "events name their turn")
            self._open.append(event.item)
            return
        self._check_turn_of_item(event)
        self._adding = event.item

    def _item_end(self, event: ItemEnd) -> None:
        self._items.append(event.item)
        if event.queue_id:
            self._rule(event.queue_id in self._reported, "a queued item was reported before")
        if self._phase is _Phase.asking:
            self._model_item_end(event)
            return
        self._check_turn_of_item(event)
        self._rule(event.item is self._adding, "an item that ends has started")
        self._adding = None
        if isinstance(event.item, FunctionCallOutput):
            self._output(event.item)

    def _model_item_end(self, event: ItemEnd) -> None:
        self._rule(event.turn == self._turn, "events name their turn")
        started = next((one for one in self._open if _is_same(one, event.item)), None)
        if started is None:
            started = next((one for one in self._open if type(one) is type(event.item)), None)
        if started is None:
            self._fail("an item that ends has started")
        del self._open[next(n for n, one in enumerate(self._open) if one is started)]
        if isinstance(event.item, FunctionCall):
            self._rule(event.item.call_id not in self._seen, "a call id names one call")
            self._seen.add(event.item.call_id)
            self._made.append(event.item.call_id)

    def _check_turn_of_item(self, event: ItemStart | ItemEnd) -> None:
        between = self._phase is _Phase.between
        turns = {self._turn, self._turn + 1} if between else {self._turn}
        self._rule(event.turn in turns, "events name their turn")

    def _output(self, output: FunctionCallOutput) -> None:
        call_id = output.call_id
        self._rule(call_id not in self._outputs, "a call has one output")
        self._outputs.append(call_id)
        call = self._calls.get(call_id)
        if call is None:
            return
        running = [one for one, other in self._calls.items() if other.end is None]
        self._rule(not running, f"outputs come when every call has ended: {running}")
        expected = self._expected_outputs()
        place = [one for one in self._outputs if one in self._calls]
        if place != expected[: len(place)]:
            self._excuse = self._excuse or "outputs stand in the model's order"
        given = call.end.output if call.end is not None else None
        self._rule(given == output, "tool_end has the output that enters the transcript")

    def _expected_outputs(self) -> list[str]:
        return [
            call_id
            for call_id, call in self._calls.items()
            if call.end is not None and call.end.output is not None and not call.start.parent
        ]

    # --- calls -------------------------------------------------------------------------------

    def _tool(self, event: ToolStart | ToolDispatch | ToolUpdate | ToolEnd) -> None:
        approved = self._turn == 0 and self._phase is _Phase.between and self._source == "resume"
        self._rule(self._phase is _Phase.answered or approved, "calls come after their response")
        self._rule(event.turn == self._turn, "events name their turn")
        if isinstance(event, ToolStart):
            self._tool_start(event)
            return
        call = self._calls.get(event.call_id)
        if call is None or call.end is not None:
            self._fail("a call that was started and has not ended")
        self._rule(event.parent == call.start.parent, "the events of a call name one parent")
        if isinstance(event, ToolEnd):
            self._tool_end(event, call)
        elif isinstance(event, ToolDispatch):
            call.dispatched = True
        else:
            self._rule(call.dispatched, "a call shows progress in its tool")

    def _tool_start(self, event: ToolStart) -> None:
        self._rule(event.call_id not in self._calls, "a call starts once")
        if event.parent:
            parent = self._calls.get(event.parent)
            inside = parent is not None and parent.dispatched and parent.end is None
            self._rule(inside, "a nested call lies within its parent")
        else:
            above = [call for call in self._calls.values() if not call.start.parent]
            started = any(call.dispatched for call in above)
            self._rule(not started, "every call is decided before the first is dispatched")
            if self._phase is _Phase.answered:
                place = len(above)
                in_order = place < len(self._made) and self._made[place] == event.call_id
                self._rule(in_order, "calls start in the model's order")
        self._calls[event.call_id] = _Call(event)

    def _tool_end(self, event: ToolEnd, call: _Call) -> None:
        call.end = event
        if event.rejected or (event.held and event.wait is None):
            self._rule(not call.dispatched, "what is held or rejected is not dispatched")
        if event.held:
            self._rule(event.result is None and event.output is None, "a held call has no result")
        self._rule(not event.entered or call.dispatched, "what is entered was dispatched")
        if event.output is not None:
            self._rule(not event.parent, "a nested call has no output")
            self._rule(event.output.call_id == event.call_id, "an output names its call")
        inside = [
            one
            for one, other in self._calls.items()
            if other.start.parent == event.call_id and other.end is None
        ]
        self._rule(not inside, f"a call ends after those within it: {inside}")

    def _finish_batch(self) -> list[ToolEnd]:
        """Hold the calls that were run to what a turn owes them; returns their ends, in order."""
        ends: list[ToolEnd] = []
        for call_id, call in self._calls.items():
            if call.end is None:
                self._fail(f"tool_start {call_id!r} has its tool_end")
            if not call.start.parent:
                ends.append(call.end)
        wanted = self._expected_outputs()
        given = [one for one in self._outputs if one in self._calls]
        self._rule(given == wanted, f"outputs stand in the model's order: {given}, not {wanted}")
        return ends

    # --- rules -------------------------------------------------------------------------------

    def _rule(self, holds: bool, rule: str) -> None:  # noqa: FBT001 - it reads as an assertion
        if not holds:
            self._fail(rule)

    def _fail(self, rule: str) -> NoReturn:
        kind = getattr(self._last, "type", "the end")
        raise AssertionError(f"event {self._count} ({kind}): {rule}: {self._last!r}"[:2000])


def check_input(items: Sequence[Item]) -> None:
    """Check that in what a model gets every call has exactly one output, after it (DESIGN 6.1).

    Raises:
        AssertionError: One has none, or several, or an output has no call.
    """
    open_calls: set[str] = set()
    for item in items:
        if isinstance(item, FunctionCall):
            if item.call_id in open_calls:
                raise AssertionError(f"the request has two calls {item.call_id!r}")
            open_calls.add(item.call_id)
        elif isinstance(item, FunctionCallOutput):
            if item.call_id not in open_calls:
                raise AssertionError(f"the output of {item.call_id!r} answers no open call")
            open_calls.discard(item.call_id)
    if open_calls:
        raise AssertionError(f"the request has calls without an output: {sorted(open_calls)}")


def _unanswered(items: Sequence[Item]) -> list[str]:
    open_calls: dict[str, None] = {}
    for item in items:
        if isinstance(item, FunctionCall):
            open_calls[item.call_id] = None
        elif isinstance(item, FunctionCallOutput):
            open_calls.pop(item.call_id, None)
    return list(open_calls)


def _is_same(one: Item, other: Item) -> bool:
    if isinstance(one, FunctionCall) and isinstance(other, FunctionCall):
        return one.call_id == other.call_id
    return type(one) is type(other) and bool(one.id) and one.id == other.id
