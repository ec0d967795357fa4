"""The batch of a turn: calls decided in order, run, and their outputs in the model's order.

First every call is *decided*, one after the other, before any runs. Then those that may run do,
through the executor: the dispatch is told, and durable, directly before the tool is entered, inside
every `wrap_tool_call` (DESIGN 8). A call *settles* when its result is known and judged; the next of
its chain waits for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Generator, Sequence
from typing import Literal, NamedTuple

from perdure.errors import Guard, NoTransactions, ToolError, ToolPanic, TransactionUndone, Tripped
from perdure.loop.context import LoopPort
from perdure.loop.deciding import OnHold, decide
from perdure.loop.decisions import ToolDecision
from perdure.loop.events import ToolDispatch, ToolUpdate
from perdure.loop.middleware import ToolCallInfo
from perdure.loop.outcomes import as_known, judge, take_failure, take_outcome
from perdure.loop.pending import PendingCall, PendingReason
from perdure.loop.slots import (
    Slot,
    is_guess,
    knows_nothing,
    not_known,
    pending_of,
    tell_doubt,
    tell_end,
)
from perdure.loop.state import Drive, keep
from perdure.tools import (
    Batch,
    BatchHooks,
    Enter,
    Executor,
    Job,
    Outcome,
    ToolResult,
    Transaction,
    chains,
)
from perdure.tools.tool import is_subsession, timeout_of
from perdure.wire import FunctionCall, FunctionCallOutput

SKIPPED = "Error: skipped: the user spoke"
"""What the model reads of a call that a steered item kept from starting."""

STOPPED = "stopped by a policy"
"""What the model reads of a call around which a guard stopped the drive. Not the guard's words."""


class BatchEnd(NamedTuple):
    """What a batch gave."""

    outputs: tuple[FunctionCallOutput, ...]
    """In the model's order, of the calls that have one."""
    results: tuple[ToolResult, ...]
    notes: tuple[str, ...] = ()
    held: bool = False
    """Some call waits: for an answer, for what its tool waits for, or for somebody to say what
    came of it."""
    terminates: Literal["all", "some", "none"] = "none"
    known: frozenset[str] = frozenset()
    """The calls whose outputs were known before."""


class Approved(NamedTuple):
    """A call that a resume approves, and with what."""

    call: FunctionCall
    arguments: str
    key: str
    decision: ToolDecision | None
    """None puts it to `before_tool_call`, as nothing has decided it."""
    before: PendingCall | None = None
    known: FunctionCallOutput | None = None
    """What its tool gave in a drive that was cut; it does not run."""


async def run_batch(drive: Drive, calls: Sequence[FunctionCall]) -> BatchEnd:
    """Decide and run the calls of a response.

    Raises:
        Exception: A hook, a subscriber or the ledger failed. Every call that was started has its
            `tool_end`; outputs that were known are in the transcript.
    """
    approved = [Approved(call, call.arguments or "{}", "", None) for call in calls]
    return await run_approved(drive, approved)


async def run_approved(drive: Drive, approved: Sequence[Approved]) -> BatchEnd:
    """Run calls some of which are decided already. Raises as `run_batch`."""
    calls = tuple(one.call for one in approved)
    slots = [_slot(drive, one, calls, index) for index, one in enumerate(approved)]
    try:
        for slot, one in zip(slots, approved, strict=True):
            if one.known is not None:
                slot.output, slot.settled, slot.known = one.known, True, True
                continue
            drive.signal.check()
            await decide(drive, slot, given=one.decision)
        await _execute(drive, [slot for slot in slots if not slot.settled])
    except BaseException:
        await _wind_up(drive, slots)
        raise
    _note_pending(drive, slots)
    return _end(slots)


async def run_one(drive: Drive, slot: Slot, *, hold: OnHold) -> None:
    """Decide and run one call that belongs to no batch of the model's. Raises as `run_batch`."""
    try:
        await decide(drive, slot, on_hold=hold)
        if not slot.settled:
            await _execute(drive, [slot])
    except BaseException:
        if slot.started and not slot.settled:
            slot.error = slot.error or ToolError("not run: the call failed")
            with contextlib.suppress(Exception):
                await tell_end(drive, slot)
        raise


def _slot(drive: Drive, one: Approved, calls: tuple[FunctionCall, ...], index: int) -> Slot:
    info = ToolCallInfo(
        run_id=drive.run_id,
        turn=drive.turn,
        call=one.call,
        tool=drive.tools.get(one.call.name),
        arguments=one.arguments,
        batch=calls,
        index=index,
    )
    return Slot(
        call=one.call,
        index=index,
        info=info,
        arguments=one.arguments,
        key=one.key or f"{drive.run_id}/{one.call.call_id}",
        before=one.before,
    )


# --- running --------------------------------------------------------------------------


async def _execute(drive: Drive, slots: Sequence[Slot]) -> None:
    if not slots:
        return
    config = drive.config
    executor = Executor(
        max_parallel=config.max_parallel,
        sequential=config.sequential,
        grace=config.grace,
        clock=config.clock,
    )
    jobs = [
        Job(
            tool=slot.info.tool,
            call_id=slot.call.call_id,
            name=slot.call.name,
            arguments=slot.arguments,
            idempotency_key=slot.key,
            effect=slot.effect,
            port=LoopPort(drive),
        )
        for slot in slots
    ]
    sequential = len(chains(jobs, sequential=config.sequential)) == 1
    by_id = {slot.call.call_id: slot for slot in slots}
    hooks = _Hooks(drive, by_id, sequential=sequential)
    hooks.batch = batch = executor.batch(jobs, hooks)
    try:
        with drive.signal.listening(lambda: batch.stop(str(drive.signal.cause))):
            await batch.run()
    finally:
        hooks.batch = None


class _Hooks(BatchHooks):
    """What the drive does while a batch runs."""

    def __init__(self, drive: Drive, slots: dict[str, Slot], *, sequential: bool) -> None:
        self._drive = drive
        self._slots = slots
        self._sequential = sequential
        self.batch: Batch | None = None
        self._task = asyncio.current_task()
        """The task that waits for the batch."""
        self._failure: Exception | None = None
        """The first failure of a hook, a subscriber or the ledger."""

    async def around(self, job: Job, enter: Enter) -> ToolResult:
        slot = self._slots[job.call_id]
        if self._sequential and any(one.skip for one in self._drive.queues.steering):
            return ToolResult(SKIPPED)
        info = dataclasses.replace(slot.info, arguments=slot.arguments)
        try:
            return await self._drive.hooks.tool_call(info, enter)
        except Exception as error:
            guard = _guard_in(error)
            if guard is None:
                raise
            self._fail(guard)
            raise ToolError(STOPPED) from None

    async def on_start(self, job: Job) -> None:
        if self._failure is not None:
            raise self._failure
        slot = self._slots[job.call_id]
        if slot.effect == "transactional" and not self._drive.delivery.transacts:
            error = NoTransactions(slot.call.name)
            self._fail(error)
            raise error
        dispatch = ToolDispatch(
            run_id=self._drive.run_id,
            turn=self._drive.turn,
            call_id=job.call_id,
            name=job.tool_name,
            effect=slot.effect,
            idempotency_key=slot.key,
            lasts=_lasts(job, self._drive.config.grace),
            subsession=job.tool is not None and is_subsession(job.tool),
            parent=slot.info.parent,
        )
        with self._failing():
            ticket = await self._drive.delivery.deliver_ticketed(dispatch)
            if slot.effect != "none":
                await ticket

    async def on_transaction(self, job: Job, transaction: Transaction) -> ToolResult:
        try:
            return await self._drive.delivery.transact(job.call_id, transaction)
        except TransactionUndone:
            raise  # the call failed, and the drive goes on
        except Exception as error:
            self._fail(error)
            raise

    async def on_progress(self, job: Job, partial: ToolResult) -> None:
        update = ToolUpdate(
            run_id=self._drive.run_id,
            turn=self._drive.turn,
            call_id=job.call_id,
            name=job.tool_name,
            partial=partial,
            parent=self._slots[job.call_id].info.parent,
        )
        with self._failing():
            await self._drive.delivery.deliver(update)

    async def on_settled(self, job: Job, outcome: Outcome) -> None:
        slot = self._slots[job.call_id]
        if isinstance(job.port, LoopPort):
            await job.port.close()
            outcome = as_known(job.port, outcome)
        self._failure = self._failure or self._drive.failure
        take_outcome(self._drive, slot, outcome, stopped=self._is_stopped())
        if self._drive.config.on_failure == "trip":
            take_failure(slot, outcome)
        if slot.result is not None and not slot.entered:
            self._answered(slot)
        with self._failing():
            try:
                if self._failure is None or slot.result is not None:
                    await judge(self._drive, slot)
            finally:
                slot.trips = self._trips(slot)
                await tell_end(self._drive, slot)
        if slot.trips:
            self._drive.signal.abort(Tripped(job.call_id, slot.call.name, slot.error))
        if self._failure is not None:  # of a dispatch, for one, which the tool's wrapper may hide
            raise self._failure

    def on_late(self, job: Job, outcome: Outcome) -> None:
        sink = self._drive.config.on_late
        if sink is not None and outcome.result is not None:
            sink(job.call_id, outcome.result)

    def _answered(self, slot: Slot) -> None:
        """Judge an answer without the tool: a guess, if the call may have run (DESIGN 8)."""
        if is_guess(self._drive, slot):
            tell_doubt(slot)
        elif knows_nothing(self._drive, slot):
            slot.result, slot.decision = None, None
            self._drive.why[slot.call.call_id] = pending_of(slot, "aborted")
            guard = self._failure if isinstance(self._failure, Guard) else None
            slot.error = not_known(slot, guard or slot.error)
            if guard is not None:  # a run that it stopped would be over, or be driven for ever
                self._failure = None
            self._fail(slot.error)

    def _trips(self, slot: Slot) -> bool:
        """Whether a call ends the drive because it failed. One that a stop cut does not."""
        own = self._drive.config.on_failure == "trip" and not slot.info.parent
        return own and slot.failed and self._drive.signal.cause is None

    def _is_stopped(self) -> bool:
        """Whether the batch winds down: aborted, failed, or cancelled with the task around it."""
        if self._drive.signal.cause is not None or self._failure is not None:
            return True
        return self._task is not None and self._task.cancelling() > 0

    @contextlib.contextmanager
    def _failing(self) -> Generator[None]:
        try:
            yield
        except Exception as error:
            self._fail(error)
            raise

    def _fail(self, error: Exception) -> None:
        """Note what ends the drive. Tools hear that a guard stopped it, and not what it said."""
        self._failure = self._failure or error
        if self.batch is not None and isinstance(error, Guard):
            self.batch.stop(STOPPED)


def _lasts(job: Job, grace: float) -> float | None:
    timeout = timeout_of(job.tool) if job.tool is not None else None
    return None if timeout is None else timeout + grace


def _guard_in(error: Exception) -> Guard | None:
    """The guard that a wrapper raised, or that a tool did, whose error is then a panic."""
    raised = error.__cause__ if isinstance(error, ToolPanic) else error
    return raised if isinstance(raised, Guard) else None


# --- the end --------------------------------------------------------------------------


async def _wind_up(drive: Drive, slots: Sequence[Slot]) -> None:
    """After a failure: end what was started, keep the outputs that are known.

    Whoever failed may fail again; the first failure stands, and the transcript is kept whole.
    """
    for slot in slots:
        if slot.started and not slot.settled:
            slot.error = slot.error or drive.signal.cause or ToolError("not run: the batch failed")
            with contextlib.suppress(Exception):
                await tell_end(drive, slot)
    _note_pending(drive, slots)
    for slot in slots:
        if slot.output is not None:
            await keep(drive, slot.output)


def _note_pending(drive: Drive, slots: Sequence[Slot]) -> None:
    """Remember why the calls without an output have none."""
    for slot in slots:
        if slot.output is not None or slot.call.call_id in drive.why:
            continue
        reason: PendingReason = "held" if slot.held else "undispatched"
        if slot.was_dispatched and not slot.held:
            reason = "aborted"
        drive.why[slot.call.call_id] = pending_of(slot, reason)


def _end(slots: Sequence[Slot]) -> BatchEnd:
    outputs = tuple(slot.output for slot in slots if slot.output is not None)
    results = tuple(slot.result for slot in slots if slot.result is not None)
    wants = [
        (slot.result is not None and slot.result.terminate)
        or (slot.decision is not None and slot.decision.terminate)
        for slot in slots
    ]
    return BatchEnd(
        outputs=outputs,
        results=results,
        notes=tuple(
            slot.decision.note
            for slot in slots
            if slot.decision and slot.decision.note and slot.decision.action == "proceed"
        ),
        held=any(slot.held or slot.unknown for slot in slots),
        known=frozenset(slot.call.call_id for slot in slots if slot.known),
        terminates="all" if slots and all(wants) else "some" if any(wants) else "none",
    )
