"""The recorder: the ledger that writes a drive's events into a session.

Each event becomes the entries that the format asks for, in batches of which every first part is a
legal log (LOG 1.4): a response's items and its response entry are one (LOG 1.5), what ends a drive
is another. Nothing waits here; who has to know awaits the ticket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Raw, Struct

from perdure.clock import Clock, Ids
from perdure.errors import EntryRefused, Guard
from perdure.log.appender import Appender, AppendTicket, Writing
from perdure.log.calls import CallsFold
from perdure.log.entries import MESSAGE, Json, LinkEntry, RunEntry
from perdure.log.environment import Env, env_draft
from perdure.log.ids import ParentRef
from perdure.log.path import View
from perdure.log.recorded_bodies import (
    CUT,
    Owed,
    committed_draft,
    compaction_draft,
    failure_draft,
    hidden_item,
    input_draft,
    limits_body,
    message_body,
    original_output,
    owed_draft,
    raw_body,
    run_end_draft,
    told_draft,
    trigger_body,
)
from perdure.log.recorded_calls import CallTracks
from perdure.log.recorded_requests import RequestLog, Unplaced, base_hash, trigger_json
from perdure.log.recorded_spend import SpendLog, carried_draft
from perdure.log.resuming import Came, where_from
from perdure.log.writing import Draft
from perdure.loop import (
    Answer,
    Compaction,
    Event,
    Hidden,
    ItemEnd,
    Limits,
    ModelBlocked,
    ModelRequest,
    ModelRetry,
    Queued,
    ResponseEnd,
    RunEnd,
    RunStart,
    ToolDispatch,
    ToolEnd,
    ToolStart,
    TurnStart,
)
from perdure.loop.account import Reservation
from perdure.loop.config import visible_to_model
from perdure.loop.spend import Charge, Spend
from perdure.tools import ToolResult, Transaction, to_result
from perdure.wire import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Reasoning,
    Request,
    Response,
    encode,
)

if TYPE_CHECKING:
    from perdure.log.recording import Recording

Keep = Callable[[Item], bool]

ROUNDS = 4
"""Rounds of the event loop that a result waits for the reservation of the request that carries it
on: less than a millisecond, in which a turn that follows at once gets there."""


def _always() -> None:
    """A tool may always be entered."""


class _EntryTicket(AppendTicket):
    """The ticket of a dispatch: durable, and then the tool may be entered, or it may not."""

    __slots__ = ("_may_enter",)

    def __init__(self, ticket: AppendTicket, may_enter: Callable[[], None]) -> None:
        super().__init__(ticket.appender, ticket.number)
        self._may_enter = may_enter

    def __await__(self) -> Generator[object, None, None]:
        yield from super().__await__()
        self._may_enter()


class Known(Struct, frozen=True, gc=False):
    """What this driver knows of a dispatch of its own."""

    call_id: str
    dispatch: Draft
    output: FunctionCallOutput | None
    """What the tool gave; None if it was provably not entered."""
    failure: str = ""
    """What it failed with, in a saga."""


class _Model:
    """The model call that is going on."""

    def __init__(self, request: ModelRequest, started: float) -> None:
        self.request = request
        self.started = started
        self.hash = ""
        self.attempts = 1
        self.items: list[ItemEnd] = []


def _stands(known: Known, calls: CallsFold) -> bool:
    """Whether the record says of a dispatch what its driver knows."""
    call = calls.named(known.call_id)
    return call is not None and (bool(call.output) or known.dispatch.id in call.voided)


class Recorder:
    """Writes one session. It implements the loop's `Ledger`.

    Args:
        appender: What writes.
        requests: The settings and items of the path.
        clock: What latencies are measured with.
        ids: What names a response that has no name.
        settings: The settings of the drives to come, so that the first entry of a session is a
            full config; without them it stands before the first response.
        keep: Which items a model is shown; the others are kept as custom entries.
        may_enter: Raises if no tool may be entered any more (LOG 2.2).
    """

    def __init__(
        self,
        appender: Appender,
        requests: RequestLog,
        *,
        clock: Clock,
        ids: Ids,
        settings: Request | None = None,
        keep: Keep = visible_to_model,
        may_enter: Callable[[], None] = _always,
    ) -> None:
        self.appender = appender
        self.spend = SpendLog(reserves=appender.session.header.run is not None)
        """What it writes of requests; a run by id has its reservations on record (LOG 9)."""
        self._requests = requests
        self._clock = clock
        self._ids = ids
        self._settings = settings
        self._keep = keep
        self._may_enter = may_enter
        self._saga = appender.session.header.is_saga
        path = appender.view.path
        self._calls = CallTracks(
            appender.view.calls.open.values(),
            session=appender.session.id,
            linked=[one.call_id for one in path if isinstance(one, LinkEntry)],
        )
        self.recording: Recording | None = None
        """The recording whose ledger it is."""
        self.deployment = ""
        """Who runs the next drives, for the record."""
        self.principal = ""
        """For whom they run."""
        self.limits: Limits | None = None
        """What the run of the next drive was given over its agent's limits."""
        self.environment: Env | None = None
        """Where the work of the next drive happens; None if nobody said."""
        self.leaves: dict[str, ParentRef] = {}
        """The last entry of the sub-agent's session that a call's output came from, by call."""
        self._queued: dict[str, Owed] = {}
        starts = (entry for entry in reversed(appender.view.path) if isinstance(entry, RunEntry))
        self._base = next((start.config_base for start in starts if start.config_base), "")
        self._run_id = ""
        self._model: _Model | None = None
        self._batch: list[str] = []  # calls whose output comes next, in the model's order
        self._landed: dict[str, ToolEnd] = {}  # outputs that are known and wait for their place
        self._written: dict[str, Draft] = {}  # outputs that stand before their items are told
        self._committed: set[str] = set()  # calls whose results were written with what they did
        self._unhashed: set[str] = set()
        self._parents: dict[str, str] = {}  # of nested calls, which are no items
        self._known: list[Known] = []

    def note(self, event: Event) -> AppendTicket:
        """Take an event. Raises as `Ledger.note` says."""
        match event:
            case ItemEnd():
                self._item(event)
            case ToolStart() | ToolDispatch() | ToolEnd():
                self._tool(event)
            case TurnStart() | ModelRetry() | ModelBlocked() | ResponseEnd():
                self._turn(event)
            case RunStart():
                self._start(event)
            case RunEnd():
                self._end(event)
            case Queued():
                self._queue(event)
            case _:
                pass
        if isinstance(event, ToolDispatch):
            return _EntryTicket(self.appender.ticket, self._may_enter)
        return self.appender.ticket

    def dispatch_of(self, call_id: str) -> str:
        """The entry of the last dispatch that it wrote for a call; empty if there was none."""
        return self._calls.dispatch_of(call_id)

    @property
    def transacts(self) -> bool:
        """Whether the store commits what transactional tools do."""
        return self.appender.transacts

    async def transact(self, call_id: str, transaction: Transaction) -> ToolResult:
        """Commit what a tool does with its output. Raises as `TransactionLedger.transact`."""
        track = self._calls.get(call_id)
        if track is None or track.dispatch is None or track.output:
            raise EntryRefused(f"call {call_id!r} is owed no output, so nothing is committed")
        if self._requests.held:
            self._add()
        early = self._batch[:1] != [call_id]  # its place comes when those before it have landed
        results: list[ToolResult] = []
        drafts: list[Draft] = []

        def compose(value: object) -> Draft:
            results[:] = [to_result(value)]
            drafts[:] = [committed_draft(track.name, results[0], early=early)]
            return drafts[0]

        def done() -> None:
            self._committed.add(call_id)
            if not early:
                self._batch.remove(call_id)
                self._written[call_id] = drafts[0]
                track.output = True
                self._land()

        await self.appender.add_transaction(Writing(transaction, compose, done))
        return results[0]

    def reserve(self, reservation: Reservation) -> AppendTicket:
        """Take a reservation, before its request is sent."""
        self._add_aside(*self.spend.reserve(reservation))
        return self.appender.ticket

    def settle(self, reservation: Reservation, charge: Charge | None, *, told: bool) -> None:
        """Take what came of a request."""
        self._add_aside(*self.spend.settle(reservation, charge, told=told))

    def carry(self, call_id: str, session: str, spend: Spend | None = None) -> None:
        """Write in which session a sub-agent works, or, when it has ended, what it has spent."""
        self._add_aside(carried_draft(call_id, session, spend))

    def unrecorded(self) -> tuple[Known, ...]:
        """What the drive knows of its dispatches that is not durable (LOG 3.4)."""
        calls = self.appender.session.at().calls
        return tuple(one for one in self._known if one.dispatch.id and not _stands(one, calls))

    def use(self, settings: Request) -> None:
        """Say which settings the next drives have."""
        self._settings = settings

    def claim(self, queued: Mapping[str, Owed]) -> None:
        """Take up what the path owes its queues, by the loop's names."""
        self._queued |= queued

    async def close(self) -> None:
        """Write what is queued."""
        await self.appender.close()

    async def write_record(self, call_id: str, namespace: str, data: object) -> None:
        """Write a tool's own record, durably, between its dispatch and its output."""
        body = {"ns": namespace, "data": data, "call_id": call_id}
        await self.appender.add([Draft("custom", body)])

    async def write_question(self, call_id: str, data: Json) -> str:
        """Write a part of an elicitation, durably; the entry's id."""
        while call_id in self._parents:
            call_id = self._parents[call_id]
        draft = self._custom("elicitation", data, call_id=call_id)
        await self.appender.add([draft])
        return draft.id

    # --- groups ----------------------------------------------------------------------------

    def _add(self, *drafts: Draft) -> None:
        """Add a group, what was held before it."""
        for draft in drafts:
            if draft.type in ("decision", "dispatch"):
                draft.body |= self._identity
        held = self._requests.take_held()
        config = [Draft("config", held)] if held else []
        consumed = [str(draft.body[MESSAGE]) for draft in drafts if MESSAGE in draft.body]
        _ = self.appender.add([*config, *drafts], consumed=consumed)

    def _add_aside(self, *drafts: Draft) -> None:
        """Add a group, and leave held what is held: the settings of an attempt that may fail."""
        if drafts:
            held, self._requests.held = self._requests.held, {}
            self._add(*drafts)
            self._requests.held = held

    @property
    def _identity(self) -> Json:
        members = {"perdure:deployment": self.deployment, "perdure:principal": self.principal}
        return {name: value for name, value in members.items() if value}

    def _custom(self, kind: str, data: Json, *, call_id: str = "") -> Draft:
        body: Json = {"ns": f"perdure:{kind}", "data": data}
        return Draft("custom", {**body, "call_id": call_id} if call_id else body)

    # --- drives ----------------------------------------------------------------------------

    def _start(self, event: RunStart) -> None:
        self._run_id = event.run_id
        self.spend.forget()
        self._calls.begin()
        self._known.clear()
        self._batch.clear()
        self._landed.clear()
        self._written.clear()
        self._committed.clear()
        self._parents.clear()
        body: Json = {"run_id": event.run_id, "phase": "start", "source": event.source}
        body |= self._settle_base()
        if self.limits is not None:
            body["perdure:budget"] = limits_body(self.limits)
        if event.trigger is not None:
            body |= trigger_json(
                {"ref": str(event.trigger), "trigger": trigger_body(event.trigger)}
            )
        env = self.environment
        changed = env_draft(env, self.appender.view.env) if env is not None else []
        self._add(Draft("run", body), *changed)

    def _settle_base(self) -> Json:
        """Settle the agent's own settings, unless a drive before had the same.

        What hooks made of them in its requests stays in force then; they make it again.
        """
        if self._settings is None:
            return {}
        base = base_hash(self._settings)
        if not base or base != self._base:
            self._requests.settle(self._settings)
        self._base = base
        return {"config_base": base} if base else {}

    def _end(self, event: RunEnd) -> None:
        if event.run_id != self._run_id:  # it was refused before it began
            return
        self._run_id = ""
        self._cut(event)
        self._add_aside(*self.spend.flush())
        self._requests.drop_held()
        owed = [one.entry for one in self._queued.values()]
        self._queued = {name: one.again() for name, one in self._queued.items()}
        again = [one.entry for one in self._queued.values() if isinstance(one.entry, Draft)]

        def group(view: View) -> Sequence[Draft]:
            first = [owed_draft(event.run_id, owed)] if owed else []
            return [*first, told_draft(event), run_end_draft(event, view), *again]

        _ = self.appender.add(group)

    def _queue(self, event: Queued) -> None:
        members: Json = {
            "item": Raw(encode(event.item)),
            "mode": "followup" if event.mode == "follow_up" else "steer",
            "perdure:queue_id": event.queue_id,
        }
        if event.hidden:
            members["visible"] = False
        if event.trigger is not None:
            members |= trigger_json({"trigger": trigger_body(event.trigger)})
        draft = Draft("queued", members)
        self._queued[event.queue_id] = Owed(members, draft)
        self._add(draft)
        self.appender.hurry()

    # --- model calls -------------------------------------------------------------------------

    def _turn(self, event: TurnStart | ModelRetry | ModelBlocked | ResponseEnd) -> None:
        match event:
            case TurnStart():
                self._model = _Model(event.request, self._clock.monotonic())
                self._hash(event.request)
            case ModelRetry():
                self._retry(event)
            case ModelBlocked():
                self._blocked(event)
            case ResponseEnd():
                self._response(event)

    def _hash(self, request: ModelRequest) -> None:
        self._requests.settle(request.settings)
        self._compact(request.compaction)
        found, why = self._requests.hash_of(request)
        if self._model is not None:
            self._model.request, self._model.hash = request, found
        if why and why not in self._unhashed:
            self._unhashed.add(why)
            self._add(self._custom("unhashed", {"reason": why}))

    def _compact(self, compaction: Compaction | None) -> None:
        """Write what a request has in place of the beginning of the transcript, once."""
        if compaction is None or self._requests.compacted(compaction):
            return
        if self._requests.held:
            self._add()  # the settings that its checkpoint holds
        try:
            first = self._requests.compact(compaction)
        except Unplaced as why:
            self._add(self._custom("compaction_unplaced", {"reason": str(why)}))
            return

        def group(view: View) -> Sequence[Draft]:
            return [compaction_draft(compaction, first, view.folding.settings.current)]

        _ = self.appender.add(group)

    def _retry(self, event: ModelRetry) -> None:
        model = self._model
        if model is None:
            return
        revised = event.request is not model.request
        data: Json = {
            "attempt": event.attempt,
            "error": str(event.error),
            "delay_ms": round(event.delay * 1000),
            "model": event.request.settings.model or "",
            "revised": revised,
        }
        self._add_aside(*self.spend.flush(), self._custom("model_retry", data))
        model.attempts = event.attempt + 1
        model.items.clear()
        if revised:
            self._hash(event.request)

    def _blocked(self, event: ModelBlocked) -> None:
        if isinstance(event.error, Guard):
            self._add(self._custom("model_blocked", {"turn": event.turn}))
            return
        self._hash(event.request)
        body: Json = {"status": "failed", "error": {"message": str(event.error)}}
        self._add(Draft("response", {**body, "perdure:settled": True}))

    def _response(self, event: ResponseEnd) -> None:
        response = event.response
        facts: Json = {
            "status": response.status or "",
            "usage": Raw(encode(response.usage)) if response.usage else None,
            "incomplete": raw_body(response.incomplete_details),
            "error": raw_body(response.error),
            "perdure:withheld": event.withheld or None,
        }
        self._close(facts, response, event.attempts)

    def _cut(self, event: RunEnd | None = None) -> None:
        """Account for a model call that ended without a response."""
        if self._model is None:
            return
        failed = event is not None and event.reason == "error" and event.error is not None
        facts: Json = (
            {"status": "failed", "error": {"message": str(event.error)}}
            if failed and event is not None
            else {"status": "incomplete", "incomplete": CUT}
        )
        self._close(facts, None, self._model.attempts)

    def _close(self, facts: Json, response: Response | None, attempts: int) -> None:
        """Write a response: its items, and then itself."""
        model, self._model = self._model, None
        items = model.items if model is not None else []
        name = response.id if response is not None else ""
        name = name or next((one.response_id for one in items if one.response_id), "")
        name = name or (self._ids.new("perdure_resp_") if items else "")
        asked = (model.request.settings.model if model is not None else "") or ""
        body: Json = {
            "response_id": name,
            "model": ((response.model if response is not None else "") or asked),
            **facts,
            "request_hash": model.hash if model is not None else "",
            "attempts": attempts if attempts > 1 else 0,
        }
        if model is not None:
            body["latency_ms"] = round((self._clock.monotonic() - model.started) * 1000)
        settled = self.spend.response(response)
        body |= settled.members
        drafts = [*settled.drafts, *(self._model_item(one, name) for one in items)]
        shown = {member: value for member, value in body.items() if value not in ("", None, 0)}
        self._add(*drafts, Draft("response", shown))

    # --- items -------------------------------------------------------------------------------

    def _item(self, event: ItemEnd) -> None:
        if isinstance(event.item, FunctionCallOutput):
            self._output(event)
        elif self._model is not None:  # nobody else adds items while a model answers
            self._model.items.append(event)
        else:
            self._add(self._input_item(event))

    def _model_item(self, event: ItemEnd, response: str) -> Draft:
        item = event.item
        if not self._keep(item):
            return hidden_item(item, response)
        draft = Draft("item", {"item": Raw(encode(item)), "response": response})
        if event.model_call_id:
            draft.body["perdure:model_call_id"] = event.model_call_id
        if isinstance(item, FunctionCall):
            self._calls.add(item.call_id, item.arguments, draft)
            self._batch.append(item.call_id)
        thinker = self._requests.model if isinstance(item, Reasoning) else ""
        self._requests.add(item, draft, thinker)
        return draft

    def _input_item(self, event: ItemEnd) -> Draft:
        given = Hidden(event.item) if event.hidden else event.item
        draft = input_draft(given, self._keep, event.trigger)
        if draft.type == "item":
            self._requests.add(event.item, draft)
            if isinstance(event.item, FunctionCall):
                self._calls.add(event.item.call_id, event.item.arguments, draft)
        queued = self._queued.pop(event.queue_id, None)
        if queued is not None:
            draft.body["queued_from"] = queued.entry
        return draft

    # --- tools -------------------------------------------------------------------------------

    def _tool(self, event: ToolStart | ToolDispatch | ToolEnd) -> None:
        if event.parent:
            self._nested(event)
        elif isinstance(event, ToolStart):
            if event.call_id not in self._batch:
                self._batch.append(event.call_id)
            self._add_some(self._calls.start(event))
        elif isinstance(event, ToolDispatch):
            self._add_some(self._calls.dispatch(event))
        else:
            self._tool_end(event)

    def _add_some(self, drafts: Sequence[Draft]) -> None:
        if drafts:
            self._add(*drafts)

    def _nested(self, event: ToolStart | ToolDispatch | ToolEnd) -> None:
        if isinstance(event, ToolDispatch):
            return
        data: Json = {"call_id": event.call_id, "name": event.name, "parent": event.parent}
        if isinstance(event, ToolStart):
            self._parents[event.call_id] = event.parent
            data |= {"phase": "start", "arguments": event.arguments}
        else:
            data |= {"phase": "end", "error": str(event.error) if event.error else None}
        self._add(self._custom("nested_call", data, call_id=event.parent))

    def _tool_end(self, event: ToolEnd) -> None:
        track = self._calls.get(event.call_id)
        if track is None:
            return
        gave = event.output is not None and not track.is_transactional  # whose has one way (LOG 6)
        if track.dispatch is not None and (gave or not event.entered):
            failed = self._saga and event.failed
            failure = f"{event.name} failed: {event.error}" if failed else ""
            self._known.append(Known(event.call_id, track.dispatch, event.output, failure))
        if event.output is None:
            if event.call_id in self._batch:
                self._batch.remove(event.call_id)  # it holds up no other's output
            if track.dispatch is not None and not event.entered:
                fence = self.appender.fence.nonce
                body: Json = {"call_id": event.call_id, "target": track.dispatch, "fence": fence}
                self._add(Draft("perdure:not_started", body))
            if event.wait is not None:
                self._add_some(self._calls.suspend(event.call_id, event.reason, event.wait))
            self._land()
            return
        if track.output and event.call_id in self._committed:
            return
        if self._saga and event.failed:  # stands before what would let the saga go on
            self._add(failure_draft(track.name, event))
        self._landed[event.call_id] = event
        early = self._batch[:1] != [event.call_id] and track.has_effect
        if early and event.call_id not in self._committed:
            output = Raw(encode(original_output(event)))
            self._add(Draft("perdure:result", {**track.name, "output": output}))
        self._land()
        if event.entered and track.has_effect:
            # A result is recorded when it lands (DESIGN 6.3).
            self._hurry(ROUNDS if self.spend.reserves else 0)

    def _hurry(self, rounds: int) -> None:
        """Let what is queued be written, unless the next turn asks for it meanwhile.

        With its reservation it is one append then, and a turn has two (DESIGN 7).
        """
        if rounds and not self.appender.settled:
            asyncio.get_running_loop().call_soon(self._hurry, rounds - 1)
        elif not self.appender.settled:
            self.appender.hurry()

    def _land(self) -> None:
        """Write the outputs that are next in the model's order."""
        while self._batch and self._batch[0] in self._landed:
            event = self._landed.pop(self._batch.pop(0))
            if event.output is not None:
                told = ItemEnd(run_id="", turn=0, item=event.output)
                self._written[event.call_id] = self._write_output(event.output, told, event)

    def _output(self, event: ItemEnd) -> None:
        item = event.item
        if not isinstance(item, FunctionCallOutput):
            return
        if item.call_id in self._written and event.answer is None:
            self._requests.add(item, self._written.pop(item.call_id))  # it landed before
            return
        if self._model is not None:
            self._cut()
        if item.call_id in self._batch:
            self._batch.remove(item.call_id)
        landed = self._landed.pop(item.call_id, None)
        self._requests.add(item, self._write_output(item, event, landed))

    def _came(self, answer: Answer | None) -> Came:
        """Where an output comes from that another branch, or a fork's origin, has already."""
        if answer is None or not answer.origin:
            return Came()
        return where_from(self.appender.session, answer.call_id, answer.origin)

    def _write_output(
        self, item: FunctionCallOutput, event: ItemEnd, landed: ToolEnd | None
    ) -> Draft:
        came = self._came(event.answer)
        links = self._calls.link_again(item.call_id, came.child) if came.child else []
        doubted = landed is not None and landed.doubted
        before = [*links, *self._calls.before_output(item, event.answer, doubted=doubted)]
        source = original_output(landed) if landed is not None else item
        leaf = self.leaves.get(item.call_id)
        parents = (leaf,) if leaf is not None else came.parents
        draft = Draft("item", {"item": Raw(encode(source))}, parents=parents)
        if event.hidden:
            draft.body["visible"] = False
        if event.answer is not None and event.answer.provenance is not None:
            draft.body |= message_body(event.answer.provenance)
        if landed is not None and landed.result is not None and landed.result.terminate:
            draft.body["perdure:terminate"] = True
        self._add(*before, draft)
        return draft
