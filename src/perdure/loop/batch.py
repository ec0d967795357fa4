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
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from perdure.errors import (
    Guard,
    InvalidArguments,
    NotEntered,
    NoTransactions,
    OutcomeUnknown,
    Suspend,
    ToolError,
    ToolPanic,
    ToolTimeout,
    TransactionUndone,
    Tripped,
)
from perdure.loop.answers import CHECK_FIRST
from perdure.loop.context import LoopPort
from perdure.loop.decisions import ToolDecision
from perdure.loop.events import ToolDispatch, ToolEnd, ToolStart, ToolUpdate
from perdure.loop.gates import Asked, gated
from perdure.loop.middleware import ToolCallInfo, ToolResultInfo
from perdure.loop.pending import PendingCall, PendingReason
from perdure.loop.state import Drive, keep
from perdure.tools import (
    Batch,
    BatchHooks,
    Effect,
    Enter,
    Executor,
    Job,
    Outcome,
    ToolResult,
    Transaction,
    approval_of,
    chains,
    check_arguments,
    effect_of,
    error_result,
    parse_arguments,
)
from perdure.tools.tool import is_subsession, timeout_of
from perdure.wire import FunctionCall, FunctionCallOutput, function_call_output, text_of
from perdure.wire.outputs import ERROR

SKIPPED = "Error: skipped: the user spoke"
"""What the model reads of a call that a steered item kept from starting."""

STOPPED = "stopped by a policy"
"""What the model reads of a call around which a guard stopped the drive. Not the guard's words."""

CALL_REJECTED = "call rejected"
"""What the model reads of a rejected call, if nobody said why."""


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


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Slot:
    """One call of a batch."""

    call: FunctionCall
    index: int
    info: ToolCallInfo
    arguments: str
    """What the tool gets."""
    effect: Effect = "once"
    key: str = ""
    decision: ToolDecision | None = None
    result: ToolResult | None = None
    output: FunctionCallOutput | None = None
    error: BaseException | None = None
    started: bool = False
    """Its `tool_start` was delivered, or its delivery failed."""
    settled: bool = False
    """Its `tool_end` was delivered, or its delivery failed."""
    entered: bool = False
    """It entered its tool in this drive."""
    before: PendingCall | None = None
    """What was known of it when this drive took it up."""
    wait: Mapping[str, object] | None = None
    """What its tool waits for."""
    committed: bool = False
    """Its output is on the record already, with what its tool did."""
    unknown: bool = False
    """Nobody knows what came of it, and the model is not told so."""
    known: bool = False
    """Its output is that of a drive that was cut; it does not run."""
    doubted: bool = False
    """Nobody knows what came of it, and the model is told so."""
    gave: ToolResult | None = None
    """What its tool gave, if a hook made a failure of it."""
    trips: bool = False
    """It failed where that ends the drive."""

    def decide(self, decision: ToolDecision | None) -> None:
        """Take a decision, and the arguments that it gives."""
        self.decision = decision
        if decision is not None and decision.arguments is not None:
            self.arguments = decision.arguments

    @property
    def was_dispatched(self) -> bool:
        """Whether it may have entered its tool in an earlier drive."""
        return self.before is not None and self.before.may_have_run

    @property
    def failed(self) -> bool:
        """Whether it entered its tool in this drive, and failed."""
        known = self.result is not None and not (self.doubted or self.held or self.rejected)
        return self.entered and known and self.error is not None

    @property
    def held(self) -> bool:
        return self.decision is not None and self.decision.action == "hold"

    @property
    def rejected(self) -> bool:
        return self.decision is not None and self.decision.action == "reject"


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
                await _tell_end(drive, slot)
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


# --- deciding ------------------------------------------------------------------------


OnHold = Callable[[Slot, ToolDecision], Awaitable[ToolDecision]]
"""What becomes of a decision to hold, where nobody can answer later."""


async def decide(
    drive: Drive,
    slot: Slot,
    *,
    given: ToolDecision | None = None,
    on_hold: OnHold | None = None,
) -> None:
    """Decide about a call, tell it, and settle it at once if it does not run."""
    refusal = _malformed(slot)
    if refusal is not None and knows_nothing(drive, slot):
        raise not_known(slot, refusal)
    if refusal is None and given is None:
        async with drive.deciding:
            given = await drive.hooks.before_tool_call(
                lambda arguments: dataclasses.replace(slot.info, arguments=arguments),
                slot.arguments,
            )
    slot.decide(given)
    if refusal is None and not slot.held and not slot.rejected:
        refusal = _unfit(slot)
    if refusal is not None and knows_nothing(drive, slot):
        raise not_known(slot, refusal)
    if refusal is None:
        _gate(drive, slot)
    if slot.held and on_hold is not None:
        refusal = await _decide_now(slot, on_hold)
    slot.started = True
    await drive.delivery.deliver(
        ToolStart(
            run_id=drive.run_id,
            turn=drive.turn,
            call_id=slot.call.call_id,
            name=slot.call.name,
            arguments=slot.arguments,
            decision=slot.decision,
            parent=slot.info.parent,
        )
    )
    if slot.rejected:
        refusal = ToolError((slot.decision.reason if slot.decision else "") or CALL_REJECTED)
    if refusal is not None:
        slot.result, slot.error = error_result(refusal), refusal
        await _tell_end(drive, slot)
    elif slot.held:
        await _tell_end(drive, slot)


def _malformed(slot: Slot) -> ToolError | None:
    """Why a call cannot be put to anybody: its arguments are no JSON object."""
    try:
        parse_arguments(slot.arguments, required=False)
    except InvalidArguments as error:
        return error
    return None


async def _decide_now(slot: Slot, on_hold: OnHold) -> ToolError | None:
    """Put a held call to somebody who answers at once; why it cannot run then, if it cannot."""
    slot.decide(await on_hold(slot, slot.decision or ToolDecision(action="hold")))
    return None if slot.held or slot.rejected else _unfit(slot)


def _gate(drive: Drive, slot: Slot) -> None:
    """Hold a call whose tool needs an approval, unless the record says that it has it.

    A call whose tool waits is inside it: it enters again without a new approval (LOG 5.4).
    """
    tool = slot.info.tool
    approval = approval_of(tool) if tool is not None else None
    inside = slot.before is not None and slot.before.reason == "suspended"
    if approval is None or slot.rejected or inside:
        return
    asked = Asked(slot.call.call_id, slot.arguments, drive.config.clock.wall())
    gates = drive.config.gates if not slot.info.parent else None
    slot.decide(gated(asked, approval, gates, slot.decision))


def _unfit(slot: Slot) -> ToolError | None:
    """Why a call that may run cannot: no tool has its name, or its arguments do not fit it."""
    tool = slot.info.tool
    if tool is None:
        return ToolError(f'unknown tool "{slot.call.name}"')
    try:
        check_arguments(tool, slot.arguments)
    except InvalidArguments as error:
        return error
    slot.effect = effect_of(tool, slot.arguments)
    if slot.effect == "transactional" and slot.info.parent:
        return ToolError(f"tool {slot.call.name!r} is transactional: no tool can call it")
    return None


# --- running -------------------------------------------------------------------------


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
            outcome = _as_known(job.port, outcome)
        self._failure = self._failure or self._drive.failure
        take_outcome(self._drive, slot, outcome, stopped=self._is_stopped())
        if self._drive.config.on_failure == "trip":
            take_failure(slot, outcome)
        if slot.result is not None and not slot.entered and knows_nothing(self._drive, slot):
            slot.result, slot.decision = None, None
            self._drive.why[job.call_id] = _pending(slot, "aborted")
            slot.error = not_known(slot, slot.error)
            self._fail(slot.error)
        with self._failing():
            try:
                if self._failure is None or slot.result is not None:
                    await judge(self._drive, slot)
            finally:
                slot.trips = self._trips(slot)
                await _tell_end(self._drive, slot)
        if slot.trips:
            self._drive.signal.abort(Tripped(job.call_id, slot.call.name, slot.error))
        if self._failure is not None:  # of a dispatch, for one, which the tool's wrapper may hide
            raise self._failure

    def on_late(self, job: Job, outcome: Outcome) -> None:
        sink = self._drive.config.on_late
        if sink is not None and outcome.result is not None:
            sink(job.call_id, outcome.result)

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


def take_outcome(drive: Drive, slot: Slot, outcome: Outcome, *, stopped: bool) -> None:
    """Put what became of a job into its slot.

    Unless the batch was `stopped`, every job gets a result: the next request needs its output
    (DESIGN 6.1).
    """
    slot.result, slot.error, slot.entered = outcome.result, outcome.error, bool(outcome.entered)
    slot.committed = outcome.committed
    if slot.result is not None:
        if not slot.entered and outcome.status == "returned":
            # A wrap_tool_call answered without entering the tool: that is a rejection (DESIGN 8).
            reason = text_of(slot.result.output)
            slot.decision = ToolDecision(action="reject", reason=reason, by="policy")
    elif isinstance(outcome.error, Suspend):
        slot.wait = outcome.error.wait
        slot.decision = ToolDecision(action="hold", by="policy", reason=str(outcome.error))
        drive.why[slot.call.call_id] = _pending(slot, "suspended")
    elif _is_unknown(outcome, stopped=stopped) and drive.config.on_unknown == "halt":
        slot.unknown = True
        drive.why[slot.call.call_id] = _pending(slot, "unknown")
    elif _is_known_unknown(outcome):
        # Nobody knows the outcome, and the model has to be told so (LOG 5.10).
        still = "may still run" if outcome.status == "abandoned" else "may have taken effect"
        slot.result = ToolResult(f"Error: {outcome.error}; it {still}. {CHECK_FIRST}")
        slot.doubted = True
    elif outcome.status == "signalled":
        slot.result = error_result(ToolError(f"the tool ended by {outcome.error!r}"))
    elif not stopped:
        check = f" {CHECK_FIRST}" if outcome.may_have_run else ""
        slot.result = ToolResult(f"Error: the tool ended without a result.{check}")
        slot.doubted = outcome.may_have_run
    else:
        ran = slot.entered or slot.was_dispatched
        drive.why[slot.call.call_id] = _pending(slot, "aborted" if ran else "undispatched")


def _as_known(port: LoopPort, outcome: Outcome) -> Outcome:
    """The outcome of a call, in view of what its tool left running has come to (DESIGN 8)."""
    if port.unknown is None or outcome.status not in ("returned", "failed", "signalled"):
        return outcome
    return dataclasses.replace(
        outcome, status="failed", result=None, error=port.unknown, may_have_run=True
    )


def take_failure(slot: Slot, outcome: Outcome) -> None:
    """Tell what failed from what was made to fail: a saga undoes what a tool gave (LOG 5.9)."""
    if slot.result is None or not slot.entered or slot.committed:
        return
    if slot.error is None and slot.result.is_error:
        slot.error = ToolError(text_of(slot.result.output).removeprefix(ERROR))
    if slot.error is not None and outcome.own is not None and not outcome.own.is_error:
        slot.gave = outcome.own


def knows_nothing(drive: Drive, slot: Slot) -> bool:
    """Whether an answer to a call that is given without its tool would be a guess.

    It may have run in an earlier drive, and nothing but its tool turns that into a result
    (DESIGN 8). Where nobody is told so, the drive fails, and the next tries again.
    """
    before = slot.before
    runs_again = before is not None and before.effect in ("idempotent", "keyed")
    return runs_again and slot.was_dispatched and drive.config.on_unknown == "halt"


def not_known(slot: Slot, answer: BaseException | None) -> NotEntered:
    """Why a drive fails that would have guessed what came of a call."""
    error = NotEntered(slot.call.call_id, slot.call.name)
    error.__cause__ = answer
    return error


def _is_known_unknown(outcome: Outcome) -> bool:
    """Whether the tool said, or its time showed, that nobody knows what came of the call."""
    told = isinstance(outcome.error, ToolTimeout | OutcomeUnknown) or outcome.status == "failed"
    return told and outcome.may_have_run


def _is_unknown(outcome: Outcome, *, stopped: bool) -> bool:
    """Whether nobody knows what came of a call. What a stop cut says so of itself, as `aborted`."""
    return _is_known_unknown(outcome) or (outcome.may_have_run and not stopped)


async def judge(drive: Drive, slot: Slot) -> None:
    """Let `after_tool_call` see what a call gave; also a call that an abort cut, with its error."""
    if slot.rejected or slot.held:
        return
    result = slot.result or error_result(slot.error or ToolError("cut"))
    async with drive.deciding:
        override = await drive.hooks.after_tool_call(
            lambda result, error: ToolResultInfo(
                run_id=drive.run_id,
                turn=drive.turn,
                call=slot.call,
                tool=slot.info.tool,
                arguments=slot.arguments,
                result=result,
                error=error,
            ),
            result,
            slot.error,
        )
    if override is not None and slot.result is not None and not slot.committed:
        if slot.error is None and override.error is not None and slot.entered:
            slot.gave = slot.result
        slot.result, slot.error = override.result, override.error


async def _tell_end(drive: Drive, slot: Slot) -> None:
    """Deliver the `tool_end` of a call, once."""
    if slot.settled:
        return
    slot.settled = True
    if slot.result is not None and not slot.held:
        slot.output = _shown(slot, slot.result)
    await drive.delivery.deliver(
        ToolEnd(
            run_id=drive.run_id,
            turn=drive.turn,
            call_id=slot.call.call_id,
            name=slot.call.name,
            result=slot.result,
            output=slot.output if not slot.info.parent else None,
            error=slot.error,
            rejected=slot.rejected,
            held=slot.held,
            entered=slot.entered,
            doubted=slot.doubted,
            failed=slot.failed,
            gave=_shown(slot, slot.gave),
            trips=slot.trips,
            wait=slot.wait,
            reason=slot.decision.reason if slot.decision and (slot.rejected or slot.held) else "",
            parent=slot.info.parent,
        )
    )


def _shown(slot: Slot, result: ToolResult | None) -> FunctionCallOutput | None:
    return None if result is None else function_call_output(slot.call.call_id, result.output)


# --- the end -------------------------------------------------------------------------


async def _wind_up(drive: Drive, slots: Sequence[Slot]) -> None:
    """After a failure: end what was started, keep the outputs that are known.

    Whoever failed may fail again; the first failure stands, and the transcript is kept whole.
    """
    for slot in slots:
        if slot.started and not slot.settled:
            slot.error = slot.error or drive.signal.cause or ToolError("not run: the batch failed")
            with contextlib.suppress(Exception):
                await _tell_end(drive, slot)
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
        drive.why[slot.call.call_id] = _pending(slot, reason)


def _pending(slot: Slot, reason: PendingReason) -> PendingCall:
    gate = slot.decision.gate if slot.decision is not None and reason == "held" else None
    if slot.before is not None and slot.was_dispatched and not slot.entered:
        # Its last dispatch stands.
        return msgspec.structs.replace(slot.before, reason=reason, gate=gate)
    return PendingCall(
        call=slot.call,
        reason=reason,
        tool=slot.info.tool,
        idempotency_key=slot.key if slot.entered else "",
        effect=slot.effect if slot.entered else None,
        arguments=slot.arguments if slot.arguments != (slot.call.arguments or "{}") else None,
        gate=gate,
    )


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
