"""The calls of one batch, shown from a record in the order in which the loop tells of them.

The record has outputs where they landed, also before the calls in front of them had ended, and
leaves out what goes without saying: that a call proceeds. Here every call starts before the first
is dispatched, each ends once, and the outputs follow in the model's order when all have ended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

from perdure.errors import ToolError
from perdure.log import Call
from perdure.log.entries import DispatchEntry
from perdure.loop import Event, ToolDecision, ToolDispatch, ToolEnd, ToolStart
from perdure.tools import ToolResult
from perdure.tools.effect import is_effect
from perdure.wire import FunctionCallOutput


class Place(NamedTuple):
    """Where in a run the events of a batch stand."""

    run_id: str
    turn: int


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class _Shown:
    """One call, as far as it was shown."""

    call: Call
    decision: ToolDecision | None = None
    refusal: ToolDecision | None = None
    """What kept it from its tool after it had started."""
    started: bool = False
    dispatched: bool = False
    end: ToolEnd | None = None
    output: FunctionCallOutput | None = None
    """The output in its entry, once it has one."""

    @property
    def call_id(self) -> str:
        return self.call.call_id

    @property
    def rejected(self) -> bool:
        decided = self.refusal or self.decision
        return not self.dispatched and decided is not None and decided.action == "reject"

    @property
    def settled(self) -> bool:
        """Whether it has ended, and its output stands in the record if it has one."""
        return self.end is not None and (self.end.output is None or self.output is not None)


class ReplayedBatch:
    """The calls of a turn, or those that a resume approved.

    Args:
        place: Where their events stand.
        emit: Takes the events.
    """

    def __init__(self, place: Place, emit: Callable[[Event], None]) -> None:
        self.place = place
        self._emit = emit
        self._calls: dict[str, _Shown] = {}
        self._nested: dict[str, tuple[str, str]] = {}  # the open ones: their names and parents
        self.begun = False
        """Whether its calls were started."""

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._calls

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def settled(self) -> bool:
        """Whether every call has ended and has its output, if it has one."""
        return all(one.settled for one in self._calls.values())

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """What its calls gave, in the model's order."""
        ends = [one.end for one in self._calls.values() if one.end is not None]
        return tuple(end.result for end in ends if end.result is not None)

    @property
    def outputs(self) -> tuple[FunctionCallOutput, ...]:
        """The outputs that stand in the record, in the model's order."""
        return tuple(one.output for one in self._calls.values() if one.output is not None)

    # --- what the record says --------------------------------------------------------------

    def add(self, call: Call, decision: ToolDecision | None = None) -> None:
        """A call that belongs to it, in the model's order."""
        self._calls[call.call_id] = _Shown(call=call, decision=decision)

    def arrange(self, order: Mapping[str, object]) -> None:
        """Put its calls into the order of a mapping that has them."""
        self._calls = {name: self._calls[name] for name in order if name in self._calls}

    def decide(self, call_id: str, decision: ToolDecision) -> None:
        """A decision about one of its calls."""
        one = self._calls[call_id]
        if not self.begun:
            one.decision = decision
        else:
            one.refusal = decision

    def begin(self, *, all_of_them: bool = True) -> None:
        """Start its calls, in order; only up to the last one decided on, if not all were."""
        calls = list(self._calls.values())
        if not all_of_them:
            last = max((n for n, one in enumerate(calls) if one.decision is not None), default=-1)
            calls = calls[: last + 1]
        self.begun = True
        for one in calls:
            self._start(one)

    def dispatch(self, call_id: str, entry: DispatchEntry) -> None:
        """A call is about to enter its tool."""
        one = self._calls[call_id]
        one.dispatched = True
        self._emit(
            ToolDispatch(
                run_id=self.place.run_id,
                turn=self.place.turn,
                call_id=call_id,
                name=one.call.call.name,
                effect=entry.effect if is_effect(entry.effect) else "once",
                idempotency_key=entry.idempotency_key,
                lasts=entry.lasts,
                replayed=True,
            )
        )

    def nest(self, call_id: str, name: str, parent: str, arguments: str) -> None:
        """A tool makes a call of its own. Deeper ones are not shown."""
        outer = self._calls.get(parent)
        if outer is None or not outer.dispatched or outer.end is not None or call_id in self._calls:
            return
        self._nested[call_id] = (name, parent)
        self._emit(
            ToolStart(
                run_id=self.place.run_id,
                turn=self.place.turn,
                call_id=call_id,
                name=name,
                arguments=arguments,
                parent=parent,
                replayed=True,
            )
        )

    def end_nested(self, call_id: str, error: str = "") -> None:
        """A call that a tool made has ended."""
        if call_id not in self._nested:
            return
        name, parent = self._nested.pop(call_id)
        self._emit(
            ToolEnd(
                run_id=self.place.run_id,
                turn=self.place.turn,
                call_id=call_id,
                name=name,
                result=None,
                output=None,
                error=ToolError(error) if error else None,
                parent=parent,
                replayed=True,
            )
        )

    def land(self, output: FunctionCallOutput, *, terminate: bool = False) -> None:
        """The result of a call is known; its output may stand in the record later."""
        one = self._calls[output.call_id]
        if one.end is None:
            self._start(one)
            result = ToolResult(output.output, terminate=terminate)
            self._end(one, result=result, output=output)

    def put(self, output: FunctionCallOutput) -> None:
        """The output of a call stands in the record."""
        one = self._calls[output.call_id]
        one.output = one.output or output

    def suspend(
        self, call_id: str, decision: ToolDecision, wait: Mapping[str, object] | None
    ) -> None:
        """A call's tool waits."""
        one = self._calls[call_id]
        one.refusal = decision
        if one.end is None:
            self._end(one, held=True, wait=wait)

    def not_entered(self, call_id: str) -> None:
        """A call was dispatched and provably did not enter its tool."""
        one = self._calls[call_id]
        if one.end is None:
            self._end(one, entered=False)

    def end_rest(self) -> None:
        """End the calls that were started and of which the record knows no end."""
        for one in self._calls.values():
            if one.started and one.end is None:
                self._end(one, entered=one.dispatched)

    # --- what is shown -----------------------------------------------------------------------

    def _start(self, one: _Shown) -> None:
        if one.started:
            return
        one.started = True
        self._emit(
            ToolStart(
                run_id=self.place.run_id,
                turn=self.place.turn,
                call_id=one.call_id,
                name=one.call.call.name,
                arguments=one.call.arguments or "{}",
                decision=one.decision,
                replayed=True,
            )
        )
        if one.decision is not None and one.decision.action == "hold":
            self._end(one, held=True)

    def _end(
        self,
        one: _Shown,
        *,
        result: ToolResult | None = None,
        output: FunctionCallOutput | None = None,
        held: bool = False,
        entered: bool | None = None,
        wait: Mapping[str, object] | None = None,
    ) -> None:
        for call_id, (_, parent) in list(self._nested.items()):
            if parent == one.call_id:
                self.end_nested(call_id)
        decided = one.refusal or one.decision
        one.end = ToolEnd(
            run_id=self.place.run_id,
            turn=self.place.turn,
            call_id=one.call_id,
            name=one.call.call.name,
            result=result,
            output=output,
            error=ToolError(output.text) if output is not None and not one.dispatched else None,
            rejected=one.rejected,
            held=held,
            entered=one.dispatched if entered is None else entered,
            wait=wait,
            reason=decided.reason if decided is not None and (held or one.rejected) else "",
            replayed=True,
        )
        self._emit(one.end)
