"""One drive as a record tells it: its items, its turns, its batches.

It knows nothing of entries: what they say is told to it, and it gives the events in the order of
the loop's grammar.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from perdure.durable.events_batch import Place, ReplayedBatch
from perdure.durable.events_read import retry_of
from perdure.log import Call
from perdure.log.entries import DecisionEntry, Json
from perdure.log.spend import SpendFold
from perdure.loop import (
    Answer,
    Event,
    InputMode,
    ItemEnd,
    ItemStart,
    ModelBlocked,
    ModelRequest,
    PendingCall,
    ResponseEnd,
    RunEnd,
    RunStart,
    Trigger,
    TurnEnd,
    TurnInput,
    TurnStart,
)
from perdure.loop.events import Reason, Source, StopCause
from perdure.loop.usage import NO_USAGE, add
from perdure.wire import FunctionCall, FunctionCallOutput, Item, Response, Usage


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class MadeItem:
    """An item that a model made, before its response is on the record."""

    entry: str
    item: Item
    model_call_id: str = ""


class ToldDrive:
    """A drive that is being told.

    Args:
        run_id: Its id.
        waiting: The calls that had no output when it began, in order.
        emit: Takes the events.
    """

    def __init__(
        self, run_id: str, waiting: dict[str, Call], emit: Callable[[Event], None]
    ) -> None:
        self.run_id = run_id
        self.waiting = waiting
        self.source: Source = "input"
        self.turn = 0
        self.made: list[MadeItem] = []
        """What its model made since the last response."""
        self.retries: list[Json] = []
        """The attempts that failed since then."""
        self.decided: dict[str, DecisionEntry] = {}
        """What was decided about calls that waited and do not run."""
        self.batch: ReplayedBatch | None = None
        self.spend = SpendFold()
        """What its requests took, and its sub-agents as far as that is carried."""
        self._emit = emit
        self._asked = 0
        self._usage: Usage = NO_USAGE
        self._items: list[Item] = []
        self._inputs: list[TurnInput] = []
        self._response: Response | None = None  # of the turn that has not ended
        self._owed: set[str] = set()  # the calls of a response that was cut; they never run
        self._withheld = False

    # --- its start and its end -----------------------------------------------------------------

    def start(self, source: Source, trigger: Trigger | None, standing: Sequence[Item]) -> None:
        """It begins; `standing` is what stood at the end of the transcript for the model."""
        self.source = source
        self._inputs = [TurnInput(item=item, mode="continued") for item in standing]
        self._emit(RunStart(run_id=self.run_id, source=source, trigger=trigger, replayed=True))

    def end(
        self,
        reason: Reason,
        cause: StopCause | None,
        error: BaseException | None,
        pending: tuple[PendingCall, ...],
    ) -> None:
        """It ends. What is left of its batch is ended first."""
        self.close_batch(failed=reason in ("error", "aborted"))
        self._emit(
            RunEnd(
                run_id=self.run_id,
                items=tuple(self._items),
                reason=reason,
                cause=cause,
                error=error,
                pending=pending,
                withheld=self._withheld,
                turns=self._asked,
                usage=self._usage,
                spend=self.spend.spend(),
                replayed=True,
            )
        )

    # --- turns -----------------------------------------------------------------------------------

    def begin_turn(self, request: ModelRequest, response_id: str = "") -> tuple[Item, ...]:
        """A turn begins; gives what its model made, which is told with it."""
        self.turn += 1
        self._asked += 1
        inputs, self._inputs = tuple(self._inputs), []
        self._emit(
            TurnStart(
                run_id=self.run_id, turn=self.turn, request=request, inputs=inputs, replayed=True
            )
        )
        for retry in self.retries:
            self._emit(retry_of(retry, request, run_id=self.run_id, turn=self.turn))
        made = self.made
        self.made, self.retries = [], []
        for one in made:
            self.show(one.item, response_id=response_id, model_call_id=one.model_call_id)
        return tuple(one.item for one in made)

    def block(self, request: ModelRequest, error: Exception) -> None:
        """A hook refused the request of a turn."""
        self.turn += 1
        self._emit(
            ModelBlocked(
                run_id=self.run_id, turn=self.turn, request=request, error=error, replayed=True
            )
        )

    def use(self, usage: Usage | None) -> None:
        """A response took tokens."""
        self._usage = add(self._usage, usage)

    def break_off(self, made: Sequence[Item]) -> None:
        """The model call ended without a response; the calls that it made never run."""
        self._owed = _calls_in(made)

    def respond(self, response: Response, *, attempts: int, withheld: bool, whole: bool) -> None:
        """The response is there. Unless it is whole, its calls never run."""
        self._withheld = withheld
        self._emit(
            ResponseEnd(
                run_id=self.run_id,
                turn=self.turn,
                response=response,
                withheld=withheld,
                attempts=attempts,
                replayed=True,
            )
        )
        self._response = None if withheld or response.error else response
        if not whole:
            self._owed = _calls_in(response.output)

    def settle(self) -> None:
        """Tell the outputs of a batch, and the end of its turn, when nothing of it is missing."""
        batch = self.batch
        if batch is not None:
            if len(batch) and not (batch.begun and batch.settled):
                return
            self._finish_batch(batch)
        if self._response is not None and not self._owed:
            self._end_turn(batch)

    def close_batch(self, *, failed: bool) -> None:
        """Tell what is left of a batch that nothing follows."""
        batch = self.batch
        if batch is not None:
            if not batch.begun and len(batch):
                batch.begin(all_of_them=not failed)
            batch.end_rest()
            self._finish_batch(batch)
        if not failed and self._response is not None:
            self._end_turn(batch)
        self._response, self._owed = None, set()

    def _end_turn(self, batch: ReplayedBatch | None) -> None:
        response, self._response = self._response, None
        if response is None:
            return
        self._emit(
            TurnEnd(
                run_id=self.run_id,
                turn=self.turn,
                response=response,
                tool_results=batch.results if batch is not None else (),
                replayed=True,
            )
        )

    # --- calls -----------------------------------------------------------------------------------

    def new_batch(self) -> ReplayedBatch:
        """The batch of this turn, or of the resume before the first."""
        self.batch = ReplayedBatch(Place(self.run_id, self.turn), self._emit)
        return self.batch

    def begin_batch(self, batch: ReplayedBatch) -> None:
        """Start the calls of a batch, those of a resume that nobody had to approve among them."""
        if batch.begun:
            return
        if self.turn == 0:
            for call_id, call in self.waiting.items():
                free = call.state == "never_started" and call_id not in self.decided
                if free and call_id not in batch:
                    batch.add(call)
            batch.arrange(self.waiting)
        batch.begin()

    def _finish_batch(self, batch: ReplayedBatch) -> None:
        self.batch = None
        for output in batch.outputs:
            self.take_in(output, "tool")
            self.show(output)

    # --- items -----------------------------------------------------------------------------------

    def answer(
        self, output: FunctionCallOutput, *, hidden: bool, answer: Answer | None = None
    ) -> None:
        """An output that no batch gave."""
        self.take_in(output, "resume" if self.turn == 0 else "tool")
        self.show(output, hidden=hidden, answer=answer)
        self._owed.discard(output.call_id)

    def take_in(self, item: Item, mode: InputMode, trigger: Trigger | None = None) -> None:
        """An item that the next turn answers."""
        self._inputs.append(TurnInput(item=item, mode=mode, trigger=trigger))

    def show(
        self,
        item: Item,
        *,
        response_id: str = "",
        model_call_id: str = "",
        hidden: bool = False,
        trigger: Trigger | None = None,
        answer: Answer | None = None,
        queue_id: str = "",
    ) -> None:
        """An item enters the transcript, whole."""
        self._items.append(item)
        start = ItemStart(
            run_id=self.run_id,
            turn=self.turn,
            item=item,
            response_id=response_id,
            hidden=hidden,
            replayed=True,
        )
        end = ItemEnd(
            run_id=self.run_id,
            turn=self.turn,
            item=item,
            response_id=response_id,
            hidden=hidden,
            trigger=trigger,
            model_call_id=model_call_id,
            answer=answer,
            queue_id=queue_id,
            replayed=True,
        )
        self._emit(start)
        self._emit(end)


def _calls_in(items: Sequence[Item]) -> set[str]:
    return {item.call_id for item in items if isinstance(item, FunctionCall)}
