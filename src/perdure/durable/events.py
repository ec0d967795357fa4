"""What a record tells, as the events of the loop.

A *projection* takes the entries of a path one by one and gives the events that each lets it tell,
all marked as replayed. It is pure: the same entries give the same events, and those of a record
that ends earlier are the first of them. They keep the grammar of `perdure.loop.events`: each drive
has its start and its end, and results stand in the order of their calls, in whatever order the
record took them in.

A record does not hold all that was told. There are no updates: an item comes whole. A turn is told
when its response is on the record. Whether a tool failed, and with what, only its output says; who
is to blame for a drive that failed is known by its words alone (`RecordedFailure`). What stands
outside of drives, the input of a run by id for one, is told by the next turn's `inputs`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import cast

import msgspec

from perdure.durable.events_batch import Place, ReplayedBatch
from perdure.durable.events_read import (
    answer_of,
    broke_off,
    cause_of_stop,
    cut_reason,
    decision_of,
    message_of,
    queue_mode,
    reason_of,
    response_of,
    settings_of,
    trigger_of,
    usage_of,
    was_blocked,
)
from perdure.errors import Aborted, Guard, RecordedFailure
from perdure.log import AnyEntry, Call, Header, Session, Settings
from perdure.log.context import item_of
from perdure.log.entries import (
    CustomEntry,
    DecisionEntry,
    DispatchEntry,
    ItemEntry,
    Json,
    NotStartedEntry,
    QueuedEntry,
    ResponseEntry,
    RunEntry,
)
from perdure.log.recorded_bodies import HIDDEN_ITEM
from perdure.log.requests import Rebuilt, rebuild
from perdure.log.resuming import pending_of
from perdure.loop import (
    Answer,
    Event,
    InputMode,
    ItemEnd,
    ItemStart,
    ModelBlocked,
    ModelRequest,
    ModelRetry,
    PendingCall,
    Queued,
    ResponseEnd,
    RunEnd,
    RunStart,
    Trigger,
    TurnEnd,
    TurnInput,
    TurnStart,
)
from perdure.loop.drive import tail
from perdure.loop.usage import NO_USAGE, add
from perdure.tools import ToolSet
from perdure.wire import FunctionCall, FunctionCallOutput, Item, Request, Response, Usage

_RESPONSE_MARKS = (HIDDEN_ITEM, "agentturn:response_id")
"""What marks, in a custom entry, an item that no model is shown."""

_NO_TOOLS = ToolSet()


def events_of(session: Session, leaf: str | None = None) -> tuple[Event, ...]:
    """The events that a recorded session tells, all marked as replayed.

    A drive that has not ended on the record has no `run_end`; of a turn that has not, nothing is
    told.

    Args:
        session: The record, as `Runs.record` gives it.
        leaf: The end of the path; the session's own unless given.

    Raises:
        NoEntry: There is no such entry.
    """
    projection = Projection(session.header, session.origins)
    return tuple(event for entry in session.path(leaf) for event in projection.take(entry))


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class _Made:
    """An item that a model made, before its response is on the record."""

    entry: str
    item: Item
    model_call_id: str = ""


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class _Drive:
    """The drive that is being told."""

    run_id: str
    turn: int = 0
    asked: int = 0
    usage: Usage = NO_USAGE
    items: list[Item] = dataclasses.field(default_factory=list[Item])
    inputs: list[TurnInput] = dataclasses.field(default_factory=list[TurnInput])
    made: list[_Made] = dataclasses.field(default_factory=list[_Made])
    retries: list[Json] = dataclasses.field(default_factory=list[Json])
    batch: ReplayedBatch | None = None
    response: Response | None = None
    """Of the turn that has not ended."""
    owed: set[str] = dataclasses.field(default_factory=set[str])
    """The calls of a response that was cut; they never run."""
    waiting: dict[str, Call] = dataclasses.field(default_factory=dict[str, Call])
    """The calls that had no output when it began."""
    decided: dict[str, DecisionEntry] = dataclasses.field(default_factory=dict[str, DecisionEntry])
    """What was decided about those of them that do not run."""
    withheld: bool = False


class Projection:
    """The events of a record, entry by entry.

    Args:
        header: Of the session.
        origins: The sessions it was forked from, nearest first.
    """

    def __init__(self, header: Header, origins: Iterable[Session] = ()) -> None:
        self._session = Session(header, origins=origins)
        self._view = self._session.fresh_view()
        self._drive: _Drive | None = None
        self._queued: dict[str, Queued] = {}  # by entry
        self._settings: tuple[Settings, Request] | None = None
        self._out: list[Event] = []

    @property
    def version(self) -> int:
        """How many entries it has taken."""
        return self._session.version

    def take(self, entry: AnyEntry) -> list[Event]:
        """The events that the next entry of the path lets it tell.

        Raises:
            EntryRefused: The entry's parent was not taken before.
        """
        if not self._session.take(entry):
            return []
        self._view.follow(entry)
        self._apply(entry)
        out, self._out = self._out, []
        return out

    def _apply(self, entry: AnyEntry) -> None:
        drive = self._drive
        if isinstance(entry, RunEntry):
            self._run(entry)
        elif isinstance(entry, QueuedEntry):
            self._queue(entry)
        elif drive is not None:
            self._in_drive(drive, entry)

    def _in_drive(self, drive: _Drive, entry: AnyEntry) -> None:
        match entry:
            case ItemEntry():
                self._item(drive, entry)
            case ResponseEntry():
                self._respond(drive, entry)
            case DecisionEntry():
                self._decide(drive, entry)
            case DispatchEntry():
                self._dispatch(drive, entry)
            case NotStartedEntry():
                if drive.batch is not None and entry.call_id in drive.batch:
                    drive.batch.not_entered(entry.call_id)
                    self._settle(drive)
            case CustomEntry():
                self._custom(drive, entry)
            case _ if entry.type == "perdure:result":
                self._result(drive, entry)
            case _:
                pass

    # --- drives ----------------------------------------------------------------------------

    def _run(self, entry: RunEntry) -> None:
        drive = self._drive
        if entry.phase == "start":
            if drive is not None:  # a foreign record; a drive that another follows has ended
                self._end(drive, None)
            self._start(entry)
        elif drive is not None and drive.run_id == entry.run_id:
            self._end(drive, entry)

    def _start(self, entry: RunEntry) -> None:
        resumes = entry.source == "resume"
        self._drive = drive = _Drive(run_id=entry.run_id)
        drive.waiting = dict(self._view.calls.open)
        if not resumes:
            items = tail(self._view.folding.items)
            drive.inputs = [TurnInput(item=item, mode="continued") for item in items]
        self._out.append(
            RunStart(
                run_id=entry.run_id,
                source="resume" if resumes else "input",
                trigger=trigger_of(entry.trigger),
                replayed=True,
            )
        )

    def _end(self, drive: _Drive, entry: RunEntry | None) -> None:
        told = self._view.drives.last.told if entry and self._view.drives.last else None
        reason = reason_of(told.reason if told else entry.reason if entry else "error")
        failed = reason in ("error", "aborted")
        if drive.made:
            own = tuple(one.entry for one in drive.made)
            self._turn(drive, rebuild(self._view.folding, own))
        self._close_batch(drive, failed=failed)
        cause = (
            cause_of_stop(told.cause if told else entry.ref if entry else "")
            if reason == "stopped"
            else None
        )
        self._drive = None
        self._out.append(
            RunEnd(
                run_id=drive.run_id,
                items=tuple(drive.items),
                reason=reason,
                cause=cause,
                error=_failure(reason, cause or "", entry.ref if entry else ""),
                pending=self._pending(halts=reason == "input_required"),
                withheld=drive.withheld,
                turns=drive.asked,
                usage=drive.usage,
                replayed=True,
            )
        )

    def _pending(self, *, halts: bool) -> tuple[PendingCall, ...]:
        """The calls without an output. One that no abort cut has an outcome that nobody knows."""
        found = pending_of(self._view, self._session, _NO_TOOLS)
        if not halts:
            return found
        return tuple(
            msgspec.structs.replace(one, reason="unknown") if one.reason == "aborted" else one
            for one in found
        )

    # --- model calls -----------------------------------------------------------------------

    def _respond(self, drive: _Drive, entry: ResponseEntry) -> None:
        """Tell the turn that a response ends, or the end of which it begins."""
        self._close_batch(drive, failed=False)
        rebuilt = self._view.request(entry)
        if was_blocked(entry):
            self._blocked(drive, rebuilt, RecordedFailure(message_of(entry.error)))
            return
        output = self._turn(drive, rebuilt, entry.response_id)
        drive.usage = add(drive.usage, usage_of(entry))
        drive.withheld = entry.withheld
        made = [one.call_id for one in output if isinstance(one, FunctionCall)]
        if broke_off(entry):
            drive.owed = set(made)
            return
        response = response_of(entry, output)
        self._out.append(
            ResponseEnd(
                run_id=drive.run_id,
                turn=drive.turn,
                response=response,
                withheld=entry.withheld,
                attempts=max(entry.attempts, 1),
                replayed=True,
            )
        )
        drive.response = None if entry.withheld or entry.error else response
        if entry.withheld or entry.error or cut_reason(entry):
            drive.owed = set(made)
        else:
            drive.batch = batch = self._batch(drive)
            for call_id in made:
                call = self._view.calls.named(call_id)
                if call is not None:
                    batch.add(call)
        self._settle(drive)

    def _turn(self, drive: _Drive, rebuilt: Rebuilt, response_id: str = "") -> tuple[Item, ...]:
        """Tell that a turn begins, and what its model made."""
        drive.turn += 1
        drive.asked += 1
        request = self._request(rebuilt)
        inputs, drive.inputs = tuple(drive.inputs), []
        self._out.append(
            TurnStart(
                run_id=drive.run_id,
                turn=drive.turn,
                request=request,
                inputs=inputs,
                replayed=True,
            )
        )
        retries, drive.retries = drive.retries, []
        self._out += [_retry(one, request, run_id=drive.run_id, turn=drive.turn) for one in retries]
        made, drive.made = drive.made, []
        for one in made:
            self._show(drive, one.item, response_id=response_id, model_call_id=one.model_call_id)
        return tuple(one.item for one in made)

    def _request(self, rebuilt: Rebuilt) -> ModelRequest:
        known = self._settings
        if known is None or known[0] is not rebuilt.settings:
            self._settings = known = (rebuilt.settings, settings_of(rebuilt.settings))
        return ModelRequest(settings=known[1], input=rebuilt.items)

    def _blocked(self, drive: _Drive, rebuilt: Rebuilt, error: Exception) -> None:
        drive.turn += 1
        self._out.append(
            ModelBlocked(
                run_id=drive.run_id,
                turn=drive.turn,
                request=self._request(rebuilt),
                error=error,
                replayed=True,
            )
        )

    # --- items -----------------------------------------------------------------------------

    def _item(self, drive: _Drive, entry: ItemEntry) -> None:
        item = item_of(entry.item)
        if entry.response:
            drive.made.append(_Made(entry=entry.id, item=item, model_call_id=entry.model_call_id))
        elif isinstance(item, FunctionCallOutput):
            self._output(drive, entry, item)
        else:
            self._input(drive, item, hidden=not entry.visible, entry=entry)

    def _input(self, drive: _Drive, item: Item, *, hidden: bool, entry: ItemEntry | None) -> None:
        queued = self._queued.get(entry.queued_from) if entry is not None else None
        mode: InputMode = queued.mode if queued is not None else _mode_of(drive)
        trigger = trigger_of(entry.source) if entry is not None else None
        drive.inputs.append(TurnInput(item=item, mode=mode, trigger=trigger))
        self._show(
            drive,
            item,
            hidden=hidden,
            trigger=None if queued is not None else trigger,
            queue_id=queued.queue_id if queued is not None else "",
        )

    def _output(self, drive: _Drive, entry: ItemEntry, output: FunctionCallOutput) -> None:
        batch = drive.batch
        if batch is not None and output.call_id in batch:
            if not batch.begun:
                self._begin_batch(drive, batch)
            batch.land(output, terminate=entry.terminate)
            batch.put(output)
            self._settle(drive)
            return
        decided = drive.decided.get(output.call_id) if drive.turn == 0 else None
        mode: InputMode = "resume" if drive.turn == 0 else "tool"
        drive.inputs.append(TurnInput(item=output, mode=mode))
        answer = answer_of(decided, output) if decided is not None else None
        self._show(drive, output, hidden=not entry.visible, answer=answer)
        drive.owed.discard(output.call_id)
        self._settle(drive)

    def _show(
        self,
        drive: _Drive,
        item: Item,
        *,
        response_id: str = "",
        model_call_id: str = "",
        hidden: bool = False,
        trigger: Trigger | None = None,
        answer: Answer | None = None,
        queue_id: str = "",
    ) -> None:
        drive.items.append(item)
        start = ItemStart(
            run_id=drive.run_id,
            turn=drive.turn,
            item=item,
            response_id=response_id,
            hidden=hidden,
            replayed=True,
        )
        end = ItemEnd(
            run_id=drive.run_id,
            turn=drive.turn,
            item=item,
            response_id=response_id,
            hidden=hidden,
            trigger=trigger,
            model_call_id=model_call_id,
            answer=answer,
            queue_id=queue_id,
            replayed=True,
        )
        self._out += (start, end)

    def _queue(self, entry: QueuedEntry) -> None:
        before = self._queued.get(entry.again)
        if before is not None:  # owed by a drive that ended, and told before
            self._queued[entry.id] = before
            return
        self._queued[entry.id] = queued = Queued(
            run_id=self._drive.run_id if self._drive is not None else "",
            queue_id=entry.queue_id or entry.id,
            item=item_of(entry.item),
            mode=queue_mode(entry),
            hidden=not entry.visible,
            trigger=trigger_of(entry.trigger),
            replayed=True,
        )
        self._out.append(queued)

    def _custom(self, drive: _Drive, entry: CustomEntry) -> None:
        if any(mark.encode() in entry.line for mark in _RESPONSE_MARKS):
            item = item_of(entry.data)
            if any(entry.members.get(mark) for mark in _RESPONSE_MARKS):
                drive.made.append(_Made(entry=entry.id, item=item))
            else:
                self._input(drive, item, hidden=True, entry=None)
        elif entry.ns == "perdure:model_retry":
            drive.retries.append(_data(entry))
        elif entry.ns == "perdure:model_blocked":
            rebuilt = rebuild(self._view.folding, ())
            self._blocked(drive, rebuilt, Guard("a guard stopped the drive"))
        elif entry.ns == "perdure:nested_call" and drive.batch is not None:
            self._nested(drive.batch, _data(entry))

    # --- calls -----------------------------------------------------------------------------

    def _batch(self, drive: _Drive) -> ReplayedBatch:
        return ReplayedBatch(Place(drive.run_id, drive.turn), self._out_append)

    def _out_append(self, event: Event) -> None:
        self._out.append(event)

    def _decide(self, drive: _Drive, entry: DecisionEntry) -> None:
        call = self._view.calls.bound(entry)
        if call is None:
            return
        batch, decision = drive.batch, decision_of(entry)
        if batch is not None and call.call_id in batch:
            if entry.suspended:
                batch.suspend(call.call_id, decision, entry.wait)
                self._settle(drive)
            else:
                batch.decide(call.call_id, decision)
        elif drive.turn == 0 and call.call_id in drive.waiting:
            if decision.action == "reject":
                drive.decided[call.call_id] = entry
            else:
                drive.batch = batch or self._batch(drive)
                drive.batch.add(call, decision)

    def _dispatch(self, drive: _Drive, entry: DispatchEntry) -> None:
        call = self._view.calls.bound(entry)
        if call is None:
            return
        batch = drive.batch = drive.batch or self._batch(drive)
        if call.call_id not in batch:
            batch.add(call)
        if not batch.begun:
            self._begin_batch(drive, batch)
        batch.begin()
        batch.dispatch(call.call_id, entry)

    def _begin_batch(self, drive: _Drive, batch: ReplayedBatch) -> None:
        """Start the calls of a batch, those of a resume that nobody had to approve among them."""
        if drive.turn == 0:
            for call_id, call in drive.waiting.items():
                free = call.state == "never_started" and call_id not in drive.decided
                if free and call_id not in batch:
                    batch.add(call)
            batch.arrange(drive.waiting)
        batch.begin()

    def _result(self, drive: _Drive, entry: AnyEntry) -> None:
        output = item_of(msgspec.Raw(msgspec.json.encode(entry.members.get("output"))))
        batch = drive.batch
        if batch is None or not isinstance(output, FunctionCallOutput):
            return
        if output.call_id in batch:
            if not batch.begun:
                self._begin_batch(drive, batch)
            batch.land(output)

    def _nested(self, batch: ReplayedBatch, data: Json) -> None:
        call_id = str(data.get("call_id", ""))
        if data.get("phase") == "end":
            batch.end_nested(call_id, str(data.get("error") or ""))
            return
        name, arguments = str(data.get("name", "")), str(data.get("arguments", ""))
        batch.nest(call_id, name, str(data.get("parent", "")), arguments)

    def _settle(self, drive: _Drive) -> None:
        """Tell the outputs of a batch, and the end of its turn, when nothing of it is missing."""
        batch = drive.batch
        if batch is not None:
            if len(batch) and not (batch.begun and batch.settled):
                return
            self._finish_batch(drive, batch)
        if drive.response is not None and not drive.owed:
            self._end_turn(drive, batch)

    def _close_batch(self, drive: _Drive, *, failed: bool) -> None:
        """Tell what is left of a batch that nothing follows."""
        batch = drive.batch
        if batch is not None:
            if not batch.begun and len(batch):
                batch.begin(all_of_them=not failed)
            batch.end_rest()
            self._finish_batch(drive, batch)
        if not failed and drive.response is not None:
            self._end_turn(drive, batch)
        drive.response, drive.owed = None, set()

    def _finish_batch(self, drive: _Drive, batch: ReplayedBatch) -> None:
        drive.batch = None
        for output in batch.outputs:
            drive.inputs.append(TurnInput(item=output, mode="tool"))
            self._show(drive, output)

    def _end_turn(self, drive: _Drive, batch: ReplayedBatch | None) -> None:
        response, drive.response = drive.response, None
        if response is None:
            return
        results = batch.results if batch is not None else ()
        self._out.append(
            TurnEnd(
                run_id=drive.run_id,
                turn=drive.turn,
                response=response,
                tool_results=results,
                replayed=True,
            )
        )


def _failure(reason: str, cause: str, words: str) -> BaseException | None:
    """What a drive failed with, as far as the record says."""
    match reason:
        case "error":
            return RecordedFailure(words or "the drive failed")
        case "aborted":
            return Aborted(words or "aborted")
        case _:
            return Guard("a guard stopped the drive") if cause == "guard" else None


def _mode_of(drive: _Drive) -> InputMode:
    """How an item came that no queue gave: with the drive, or from a hook between two turns."""
    return "prompt" if drive.turn == 0 else "hook"


def _retry(data: Json, request: ModelRequest, *, run_id: str, turn: int) -> ModelRetry:
    number, delay = data.get("attempt"), data.get("delay_ms")
    return ModelRetry(
        run_id=run_id,
        turn=turn,
        attempt=number if isinstance(number, int) else 1,
        error=RecordedFailure(str(data.get("error", "")), again=True),
        delay=delay / 1000 if isinstance(delay, int | float) else 0.0,
        request=request,
        replayed=True,
    )


def _data(entry: CustomEntry) -> Json:
    found = msgspec.json.decode(entry.data)
    return cast("Json", found) if isinstance(found, dict) else {}
