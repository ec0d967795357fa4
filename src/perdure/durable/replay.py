"""A model that answers from the record of a run.

A *recorded call* is one request and what came of it: an answer, or a failure. They are given in
their order, and each only to the request that it answered then, by the request's hash; so a run is
driven again into another store, to test an agent or to audit one, and says when it would have gone
another way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec

from perdure.durable.events_read import (
    broke_off,
    cut_reason,
    data_of,
    error_of,
    hidden_in,
    message_of,
    usage_of,
    was_blocked,
)
from perdure.durable.replay_spend import SpendTrail
from perdure.errors import NoRecordedTurn, NotIJson, RecordedFailure, ReplayMismatch
from perdure.log import Session
from perdure.log.context import item_of
from perdure.log.entries import CustomEntry, ItemEntry, Json, ResponseEntry
from perdure.log.recorded_spend import spend_json
from perdure.log.timestamps import wall_of
from perdure.loop import ModelRequest
from perdure.loop.spend import DISCARDED, NO_SPEND, Charge, Spend, discarded_in, from_record
from perdure.wire import (
    FunctionCall,
    IncompleteDetails,
    Item,
    OutputItemAdded,
    OutputItemDone,
    Request,
    Response,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    StreamEvent,
    with_unknown,
)
from perdure.wire.echo import response_to
from perdure.wire.normal import RequestHash


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a record, and what came of it.

    Attributes:
        entry: The response entry that tells of it.
        model: Who answered.
        request_hash: Of the request; empty if the record does not say.
        items: What the model made, as it made it.
        response: The response entry; None for an attempt that failed and was made again.
        failure: What it failed with; empty if it was answered.
        again: It was made again.
        took: For one that failed: what its request took, if the record says.
        discarded: What other requests took on the way to it.
    """

    entry: str
    model: str
    request_hash: str
    items: tuple[Item, ...] = ()
    response: ResponseEntry | None = None
    failure: str = ""
    again: bool = False
    took: Charge | None = None
    discarded: Spend = NO_SPEND


def replay_model(run: Session, *, check_requests: bool = True) -> RecordedRun:
    """A model that answers from the record of a run, as `Runs.record` gives it.

    Drive the same agent with it into a fresh store: `agent.with_(model=replay_model(run),
    store=...)`. What failed there fails again: an attempt that was made again with an error that
    is, and what ended a drive with one that ends it; call `agent.run` again to go on, as somebody
    did then. A response of which nothing is on the record was cut by a crash, and is left out.

    Args:
        run: The record. One replay is for one run.
        check_requests: Give an answer only to the request that it answered. Where the record has no
            hash of a request, and with False everywhere, answers are given in their order.
    """
    return RecordedRun(recorded_calls(run), check_requests=check_requests)


class RecordedRun:
    """A model that answers from recorded calls.

    A request that names no model is taken to name the recorded one.

    Attributes:
        calls: What it has to give, in order.
        model_name: Who answered first, for the agent's `model_name`.
        requests: How many requests it has answered.
    """

    def __init__(self, calls: Sequence[RecordedCall], *, check_requests: bool = True) -> None:
        self.calls = tuple(calls)
        self.model_name = next((call.model for call in self.calls if call.model), "")
        self.requests = 0
        self._check = check_requests
        self._next = 0
        self._hashes = _Hashes(self.model_name)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """The events of the recorded answer to `request`.

        Raises:
            NoRecordedTurn: The record has no further call.
            ReplayMismatch: Its calls answer other requests.
            RecordedFailure: The call failed then.
        """
        call = self._take(request)
        self.requests += 1
        for event in _events(call, request.settings):
            yield event
        if call.failure:
            raise RecordedFailure(call.failure, again=call.again, took=call.took)

    def _take(self, request: ModelRequest) -> RecordedCall:
        place = self._find(request) if self._check else self._next
        if place >= len(self.calls):
            raise NoRecordedTurn(len(self.calls))
        self._next = place + 1
        return self.calls[place]

    def _find(self, request: ModelRequest) -> int:
        """The place of the next call that answered this request.

        Earlier ones are passed over: a process that goes on with a run asks for its later turns.
        """
        first = self._next
        if first >= len(self.calls) or not self.calls[first].request_hash:
            return first
        given = self._hashes.of(request)
        if self.calls[first].request_hash == given:
            return first
        for place in range(first, len(self.calls)):
            if self.calls[place].request_hash == given:
                return place
        raise ReplayMismatch(self.calls[first].entry, self.calls[first].request_hash, given)


class _Hashes:
    """The hashes of requests of one run; each costs the items since the last (DESIGN 7)."""

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name
        self._settings: Request | None = None
        self._memo: object = None
        self._hash: RequestHash | None = None
        self._hashed = 0

    def of(self, request: ModelRequest) -> str:
        """The hash of a request; empty if it has none."""
        items = request.input
        same = request.settings is self._settings and items.memo is self._memo
        try:
            if self._hash is None or not same or self._hashed > len(items):
                self._hash = RequestHash(self._named(request.settings))
                self._settings, self._memo, self._hashed = request.settings, items.memo, 0
            self._hash.extend(items[self._hashed :])
            self._hashed = len(items)
            return self._hash.digest()
        except NotIJson:
            self._hash = None
            return ""

    def _named(self, settings: Request) -> Request:
        if settings.model or not self._model_name:
            return settings
        return msgspec.structs.replace(settings, model=self._model_name)


# --- reading the record ----------------------------------------------------------------------


def recorded_calls(session: Session) -> tuple[RecordedCall, ...]:
    """The model calls of a record, in order, those that failed among them."""
    calls: list[RecordedCall] = []
    made: list[Item] = []
    retries: list[tuple[Json, Charge | None]] = []
    trail, lost = SpendTrail(), NO_SPEND
    for entry in session.path():
        lost = _carried(calls, lost + trail.apply(entry))
        match entry:
            case ItemEntry() if entry.response:
                made.append(_as_made(entry))
            case CustomEntry(ns="perdure:model_retry"):
                retries.append((data_of(entry), trail.attempt()))
            case CustomEntry():
                hidden = hidden_in(entry)
                if hidden is not None and hidden.response:
                    made.append(hidden.item)
            case ResponseEntry() if not was_blocked(entry):
                calls += _attempts(entry, retries)
                calls += _call(entry, tuple(made), trail)
                made, retries = [], []
            case _:
                pass
    _ = _carried(calls, lost)
    return tuple(calls)


def _as_made(entry: ItemEntry) -> Item:
    """An item as the model made it: a call under the id that the model gave it."""
    item = item_of(entry.item)
    if isinstance(item, FunctionCall) and entry.model_call_id:
        return msgspec.structs.replace(item, call_id=entry.model_call_id)
    return item


def _carried(calls: list[RecordedCall], lost: Spend) -> Spend:
    """Give the last answer what a process took that died behind it; what stays over.

    What was taken before there was an answer is the first one's.
    """
    if lost == NO_SPEND:
        return lost
    answered = [place for place, one in enumerate(calls) if one.response and not one.failure]
    if not answered:
        return lost
    at = answered[-1]
    calls[at] = msgspec.structs.replace(calls[at], discarded=calls[at].discarded + lost)
    return NO_SPEND


def _attempts(
    entry: ResponseEntry, retries: Sequence[tuple[Json, Charge | None]]
) -> Iterator[RecordedCall]:
    """The attempts before the last. The hash of one whose request was revised is not recorded."""
    for place, (retry, took) in enumerate(retries):
        revised = any(later.get("revised") for later, _ in retries[place:])
        yield RecordedCall(
            entry=entry.id,
            model=entry.model,
            request_hash="" if revised else entry.request_hash,
            failure=str(retry.get("error", "")) or "it failed",
            again=True,
            took=took,
        )


def _call(
    entry: ResponseEntry, items: tuple[Item, ...], trail: SpendTrail
) -> Iterator[RecordedCall]:
    failure = message_of(entry.error) if entry.error else ""
    cut = broke_off(entry)
    if cut and not entry.error:
        if not items:
            return
        failure = "the response was cut"
    took = trail.response(entry, failed=cut)
    yield RecordedCall(
        entry=entry.id,
        model=entry.model,
        request_hash=entry.request_hash,
        items=items,
        response=entry,
        failure=failure,
        took=took.charge,
        discarded=took.discarded,
    )


# --- giving it again ---------------------------------------------------------------------------


def _events(call: RecordedCall, settings: Request) -> Iterator[StreamEvent]:
    """The events of a recorded call, up to where it failed.

    Items are given as they were recorded, whole: to stream them again would make others of them.
    """
    entry = call.response
    if entry is None:
        return
    named = msgspec.structs.replace(settings, model=call.model) if call.model else settings
    begun = response_to(named, id=entry.response_id, created_at=wall_of(entry.ts) // 10**9)
    yield ResponseCreated(sequence_number=0, response=begun)
    yield ResponseInProgress(sequence_number=1, response=begun)
    number = 2
    for index, item in enumerate(call.items):
        yield OutputItemAdded(sequence_number=number, output_index=index, item=item)
        yield OutputItemDone(sequence_number=number + 1, output_index=index, item=item)
        number += 2
    if call.failure and broke_off(entry):
        return
    yield _terminal(entry, begun, call.items, number, call.discarded)


def _terminal(
    entry: ResponseEntry,
    begun: Response,
    items: tuple[Item, ...],
    number: int,
    discarded: Spend,
) -> StreamEvent:
    usage = usage_of(entry)
    if usage is not None and discarded != NO_SPEND:
        before = discarded_in(usage) or NO_SPEND
        usage = with_unknown(usage, {DISCARDED: spend_json(before + discarded)})
    told = from_record(usage) if usage is not None else None
    ended = msgspec.structs.replace(begun, output=items, usage=told)
    error, reason = error_of(entry), cut_reason(entry)
    if error is not None:
        failed = msgspec.structs.replace(ended, status="failed", error=error)
        return ResponseFailed(sequence_number=number, response=failed)
    if reason:
        details = IncompleteDetails(reason=reason)
        cut = msgspec.structs.replace(ended, status="incomplete", incomplete_details=details)
        return ResponseIncomplete(sequence_number=number, response=cut)
    done = msgspec.structs.replace(ended, status="completed", completed_at=begun.created_at)
    return ResponseCompleted(sequence_number=number, response=done)
