"""What a record tells, as the events of the loop.

A *projection* takes the entries of a path one by one and gives the events that each lets it tell,
all marked as replayed. It is pure: the same entries give the same events, and those of a record
that ends earlier are the first of them. They keep the grammar of `perdure.loop.events`: each drive
has its start and its end, and results stand in the order of their calls, in whatever order the
record took them in.

A record does not hold all that was told. There are no updates: an item comes whole. A turn is told
when its response is on the record. Whether a tool failed, and with what, only its output says; what
a drive failed with is known by its words alone (`RecordedFailure`). What stands outside of drives,
the input of a run by id for one, is told by the next turn's `inputs`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure.durable.events_drive import MadeItem, ToldDrive
from perdure.durable.events_read import (
    answer_of,
    broke_off,
    cause_of_stop,
    cut_reason,
    data_of,
    decision_of,
    hidden_in,
    is_failure,
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
from perdure.log import AnyEntry, Header, Session, Settings
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
from perdure.log.requests import Rebuilt, rebuild
from perdure.log.resuming import pending_of
from perdure.loop import Event, InputMode, ModelRequest, PendingCall, Queued
from perdure.loop.drive import tail
from perdure.tools import ToolSet
from perdure.wire import FunctionCall, FunctionCallOutput, Item, Request

_NO_TOOLS = ToolSet()

GUARDED = "a guard stopped the drive"
"""What stands for the words of a guard, which no record holds."""


def events_of(session: Session, leaf: str | None = None) -> tuple[Event, ...]:
    """The events that a recorded session tells, all marked as replayed.

    A drive that has not ended on the record has no `run_end`; of a turn that has not, nothing is
    told, and nothing of what stands outside of drives.

    Args:
        session: The record, as `Runs.record` gives it.
        leaf: The end of the path; the session's own unless given.

    Raises:
        NoEntry: There is no such entry.
    """
    projection = Projection(session.header, session.origins)
    return tuple(event for entry in session.path(leaf) for event in projection.take(entry))


class Projection:
    """The events of a record, entry by entry.

    Args:
        header: Of the session.
        origins: The sessions it was forked from, nearest first.
    """

    def __init__(self, header: Header, origins: Iterable[Session] = ()) -> None:
        self._session = Session(header, origins=origins)
        self._view = self._session.fresh_view()
        self._drive: ToldDrive | None = None
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
        out = self._out[:]
        self._out.clear()
        return out

    def _apply(self, entry: AnyEntry) -> None:
        drive = self._drive
        if isinstance(entry, RunEntry):
            self._run(entry)
        elif isinstance(entry, QueuedEntry):
            self._queue(entry)
        elif drive is not None:
            self._in_drive(drive, entry)

    def _in_drive(self, drive: ToldDrive, entry: AnyEntry) -> None:
        drive.spend.apply(entry, self._view.folding.settings.current.model)
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
                    drive.settle()
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
            if drive is not None:  # a foreign record: a drive that another follows has ended
                self._end(drive, None)
            self._start(entry)
        elif drive is not None and drive.run_id == entry.run_id:
            self._end(drive, entry)

    def _start(self, entry: RunEntry) -> None:
        resumes = entry.source == "resume"
        drive = ToldDrive(entry.run_id, dict(self._view.calls.open), self._out.append)
        standing = () if resumes else tail(self._view.folding.items)
        drive.start("resume" if resumes else "input", trigger_of(entry.trigger), standing)
        self._drive = drive

    def _end(self, drive: ToldDrive, entry: RunEntry | None) -> None:
        last = self._view.drives.last
        told = last.told if entry is not None and last is not None else None
        ref = entry.ref if entry is not None else ""
        reason = reason_of(told.reason if told else entry.reason if entry else "error")
        cause = cause_of_stop(told.cause if told else ref) if reason == "stopped" else None
        if drive.made:
            own = tuple(one.entry for one in drive.made)
            drive.begin_turn(self._request(rebuild(self._view.folding, own)))
        pending = self._pending(halts=reason == "input_required")
        drive.end(reason, cause, _failure(reason, cause or "", ref), pending)
        self._drive = None

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

    def _respond(self, drive: ToldDrive, entry: ResponseEntry) -> None:
        """Tell the turn that a response ends, or the end of which it begins."""
        drive.close_batch(failed=False)
        request = self._request(self._view.request(entry))
        if was_blocked(entry):
            drive.block(request, RecordedFailure(message_of(entry.error)))
            return
        output = drive.begin_turn(request, entry.response_id)
        drive.use(usage_of(entry))
        if broke_off(entry):
            drive.break_off(output)
            return
        whole = not (entry.withheld or entry.error or cut_reason(entry))
        drive.respond(
            response_of(entry, output),
            attempts=max(entry.attempts, 1),
            withheld=entry.withheld,
            whole=whole,
        )
        if whole:
            self._fill_batch(drive, output)
        drive.settle()

    def _fill_batch(self, drive: ToldDrive, output: Iterable[Item]) -> None:
        batch = drive.new_batch()
        for item in output:
            call = self._view.calls.named(item.call_id) if isinstance(item, FunctionCall) else None
            if call is not None:
                batch.add(call)

    def _request(self, rebuilt: Rebuilt) -> ModelRequest:
        known = self._settings
        if known is None or known[0] is not rebuilt.settings:
            self._settings = known = (rebuilt.settings, settings_of(rebuilt.settings))
        return ModelRequest(settings=known[1], input=rebuilt.items)

    # --- items -----------------------------------------------------------------------------

    def _item(self, drive: ToldDrive, entry: ItemEntry) -> None:
        item = item_of(entry.item)
        if entry.response:
            made = MadeItem(entry=entry.id, item=item, model_call_id=entry.model_call_id)
            drive.made.append(made)
        elif isinstance(item, FunctionCallOutput):
            self._output(drive, entry, item)
        else:
            self._input(drive, entry, item)

    def _input(self, drive: ToldDrive, entry: ItemEntry, item: Item) -> None:
        queued = self._queued.get(entry.queued_from)
        trigger = trigger_of(entry.source)
        drive.take_in(item, queued.mode if queued is not None else _mode_of(drive), trigger)
        drive.show(
            item,
            hidden=not entry.visible,
            trigger=None if queued is not None else trigger,
            queue_id=queued.queue_id if queued is not None else "",
        )

    def _output(self, drive: ToldDrive, entry: ItemEntry, output: FunctionCallOutput) -> None:
        batch = drive.batch
        if batch is not None and output.call_id in batch:
            drive.begin_batch(batch)
            batch.land(output, terminate=entry.terminate)
            batch.put(output)
        else:
            decided = drive.decided.get(output.call_id) if drive.turn == 0 else None
            answer = answer_of(decided, output) if decided is not None else None
            drive.answer(output, hidden=not entry.visible, answer=answer)
        drive.settle()

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

    def _custom(self, drive: ToldDrive, entry: CustomEntry) -> None:
        hidden = hidden_in(entry)
        if hidden is not None:
            if hidden.response:
                drive.made.append(MadeItem(entry=entry.id, item=hidden.item))
            else:
                drive.take_in(hidden.item, _mode_of(drive))
                drive.show(hidden.item, hidden=True)
        elif entry.ns == "perdure:model_retry":
            drive.retries.append(data_of(entry))
        elif entry.ns == "perdure:model_blocked":
            drive.block(self._request(rebuild(self._view.folding, ())), Guard(GUARDED))
        elif entry.ns == "perdure:nested_call":
            self._nested(drive, data_of(entry))

    # --- calls -----------------------------------------------------------------------------

    def _decide(self, drive: ToldDrive, entry: DecisionEntry) -> None:
        call = self._view.calls.bound(entry)
        if call is None:
            return
        batch, decision = drive.batch, decision_of(entry)
        if batch is not None and call.call_id in batch and is_failure(entry):
            return
        if batch is not None and call.call_id in batch:
            if entry.suspended:
                batch.suspend(call.call_id, decision, entry.wait)
                drive.settle()
            else:
                batch.decide(call.call_id, decision)
        elif drive.turn == 0 and call.call_id in drive.waiting:
            if decision.action == "reject":
                drive.decided[call.call_id] = entry
            else:
                (batch or drive.new_batch()).add(call, decision)

    def _dispatch(self, drive: ToldDrive, entry: DispatchEntry) -> None:
        call = self._view.calls.bound(entry)
        if call is None:
            return
        batch = drive.batch or drive.new_batch()
        if call.call_id not in batch:
            batch.add(call)
        drive.begin_batch(batch)
        batch.dispatch(call.call_id, entry)

    def _result(self, drive: ToldDrive, entry: AnyEntry) -> None:
        """A result that landed before the place of its output came."""
        batch = drive.batch
        output = item_of(msgspec.Raw(msgspec.json.encode(entry.members.get("output"))))
        if batch is None or not isinstance(output, FunctionCallOutput):
            return
        if output.call_id in batch:
            drive.begin_batch(batch)
            batch.land(output)

    def _nested(self, drive: ToldDrive, data: Json) -> None:
        call_id = str(data.get("call_id", ""))
        if drive.batch is None:
            return
        if data.get("phase") == "end":
            drive.batch.end_nested(call_id, str(data.get("error") or ""))
            return
        name, arguments = str(data.get("name", "")), str(data.get("arguments", ""))
        drive.batch.nest(call_id, name, str(data.get("parent", "")), arguments)


def _failure(reason: str, cause: str, words: str) -> BaseException | None:
    """What a drive failed with, as far as the record says."""
    match reason:
        case "error":
            return RecordedFailure(words or "the drive failed")
        case "aborted":
            return Aborted(words or "aborted")
        case _:
            return Guard(GUARDED) if cause == "guard" else None


def _mode_of(drive: ToldDrive) -> InputMode:
    """How an item came that no queue gave: with the drive, or from a hook between two turns."""
    if drive.turn:
        return "hook"
    return "resume" if drive.source == "resume" else "prompt"
