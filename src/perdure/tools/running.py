"""One job of a batch: its turn, what is around its tool, its entries, its outcome."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from perdure.clock import Clock
from perdure.errors import Aborted, CallEnded, ConfigError, ToolError, TransactionUndone
from perdure.tools.call import Call, CallState
from perdure.tools.effect import ENTERED_ONCE, Effect
from perdure.tools.entry import Entry, Patience, Stop
from perdure.tools.job import BatchHooks, Job, Outcome, failed
from perdure.tools.progress import ProgressLine
from perdure.tools.result import ToolResult, failure, to_result
from perdure.tools.slots import Slots
from perdure.tools.tool import Tool, effect_of, timeout_of
from perdure.tools.transaction import NO_TRANSACTION, Transaction


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the jobs of a batch share."""

    hooks: BatchHooks
    stopping: Stop
    slots: Slots
    progress: ProgressLine
    clock: Clock
    grace: float
    linger: float
    fail: Callable[[BaseException], None]
    """Stops the batch, with grace, and has `Batch.run` raise the error."""
    interrupt: Callable[[BaseException], None]
    """The same without grace."""


class Ended(NamedTuple):
    """What a tool did that was entered."""

    outcome: Outcome
    interrupted: bool = False
    """Who waited for it was cancelled."""


class Running:
    """A job on its way to its outcome."""

    def __init__(self, place: int, job: Job, around: Surroundings) -> None:
        self.job = job
        self.previous: Running | None = None
        """The job before it in its chain."""
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.outcome = Outcome(status="not_started")
        self._place = place
        self._around = around
        self._begun = 0
        """Entries that have begun and were not refused."""
        self._entries = 0
        self._inside_now = 0
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when nothing around the tool waits for it any more."""
        self._alone = asyncio.Event()
        self._unseen = False
        """The tool gave a result after who waited for it was cancelled; it must not be lost."""
        self._dispatched = False
        self._refused: BaseException | None = None
        """What kept the tool from being entered, or from being entered again."""
        self._last: Outcome | None = None
        """What the tool did; where it was entered more than once, a result if there is one."""

    async def go(self) -> None:
        outcome = await self._judged()
        last = self._last
        own = last.result if last is not None and last.status == "returned" else None
        self.outcome = dataclasses.replace(
            outcome, entered=self._entries, dispatched=self._dispatched, own=own
        )
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await self._around.progress.finish(self._place)
            await self._around.hooks.on_settled(self.job, self.outcome)
        except Exception as error:  # noqa: BLE001 - `Batch.run` raises it when all have settled
            self._around.fail(error)
        finally:
            self.settled.set_result(None)

    async def _judged(self) -> Outcome:
        tool = self.job.tool
        if tool is None:
            return failed(ToolError(f'unknown tool "{self.job.name}"'))
        try:
            if not await self._turn():
                return self._not_started()
        except asyncio.CancelledError:
            return self._not_started()
        try:
            given = await self._around.hooks.around(self.job, lambda: self._enter(tool))
            result = to_result(given)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the job has an outcome
            await self._leave()
            return self._judge_error(error)
        else:
            await self._leave()
            return self._judge_result(result)
        finally:
            self._around.slots.release()

    async def _turn(self) -> bool:
        """Wait for the job's turn in its chain and for a slot; False if the batch stops before."""
        told = self._around.stopping.told
        if self.previous is not None:
            await asyncio.wait({self.previous.settled, told}, return_when=asyncio.FIRST_COMPLETED)
        return not told.done() and await self._around.slots.acquire()

    async def _leave(self) -> None:
        """End the entries that `around` began and did not wait for."""
        self._left.set_result(None)
        while self._inside_now:
            self._alone.clear()
            with contextlib.suppress(asyncio.CancelledError):
                await self._alone.wait()

    async def _enter(self, tool: Tool) -> ToolResult:
        effect = self.job.effect or effect_of(tool, self.job.arguments)
        if self._begun and effect in ENTERED_ONCE:
            again = f"tool {tool.name!r} has the effect {effect!r} and is not entered a second time"
            raise self._refuse(ConfigError(again))
        self._begun += 1
        self._inside_now += 1
        try:
            await self._dispatch()
            self._entries += 1
            return self._take(await self._inside(tool, effect))
        finally:
            self._inside_now -= 1
            self._alone.set()

    async def _dispatch(self) -> None:
        """`on_start`, directly before the tool."""
        try:
            self._refuse_if_stopped()
            await self._around.hooks.on_start(self.job)
            self._dispatched = True
            self._refuse_if_stopped()
        except BaseException as error:
            self._begun -= 1
            self._refused = error
            raise

    def _take(self, ended: Ended) -> ToolResult:
        """Keep what the tool did, and hand it to what is around the tool."""
        outcome = ended.outcome
        if self._last is None or self._last.status != "returned":
            self._last = outcome
        if ended.interrupted:
            self._unseen = outcome.status == "returned"
            raise asyncio.CancelledError
        if outcome.status == "returned" and outcome.result is not None:
            return outcome.result
        raised = outcome.error or Aborted()
        if isinstance(raised, KeyboardInterrupt | SystemExit):
            # It has left through the event loop once, as it does from any task.
            self._around.interrupt(raised)
            raise Aborted(f"the tool raised {type(raised).__name__}")
        raise raised

    async def _inside(self, tool: Tool, effect: Effect) -> Ended:
        """Run the tool to its end."""
        around, job = self._around, self.job
        timeout = timeout_of(tool)
        state = CallState()
        call = Call(
            id=job.call_id,
            name=job.tool_name,
            arguments=job.arguments,
            idempotency_key=job.idempotency_key,
            effect=effect,
            deadline=None if timeout is None else around.clock.monotonic() + timeout,
            port=job.port,
            on_progress=lambda partial: self._around.progress.post(self._place, job, partial),
            state=state,
        )
        entry = Entry(
            tool, call, state, clock=around.clock, stop=self._around.stopping, left=self._left
        )
        patience = Patience(timeout=timeout, grace=around.grace, linger=around.linger)
        try:
            outcome = await entry.outcome(
                patience, lambda outcome: self._around.hooks.on_late(job, outcome)
            )
        finally:
            state.closed = True
        transaction = outcome.result.transaction if outcome.result is not None else None
        if transaction is None and (effect != "transactional" or outcome.status != "returned"):
            return Ended(outcome, entry.interrupted)
        ended = await self._commit(transaction, effect)
        return Ended(ended.outcome, entry.interrupted or ended.interrupted)

    async def _commit(self, transaction: Transaction | None, effect: Effect) -> Ended:
        """Do what a transactional tool's body returned.

        A cancellation waits for its end, a second one does not; then the log alone knows.
        """
        if transaction is None:
            return Ended(failed(ToolError(NO_TRANSACTION.format(self.job.tool_name))))
        if effect != "transactional":
            wrong = ToolError(f"tool {self.job.tool_name!r} has the effect {effect!r}")
            return Ended(failed(wrong))
        work = asyncio.create_task(self._around.hooks.on_transaction(self.job, transaction))
        interrupted = False
        while not work.done():
            try:
                await asyncio.wait({work})
            except asyncio.CancelledError:
                if interrupted:
                    work.cancel()
                interrupted = True
        return Ended(self._judge_commit(work), interrupted)

    def _judge_commit(self, work: asyncio.Task[ToolResult]) -> Outcome:
        error = Aborted("cancelled") if work.cancelled() else work.exception()
        if error is None:
            return Outcome(status="returned", result=work.result(), committed=True)
        if not isinstance(error, TransactionUndone):
            return Outcome(status="cancelled", error=error, may_have_run=True)
        decisive = failure(self.job.tool_name, error.error)
        return failed(decisive if isinstance(decisive, Exception) else error)

    def _refuse(self, error: BaseException) -> BaseException:
        self._refused = error
        return error

    def _refuse_if_stopped(self) -> None:
        if self._around.stopping.told.done():
            raise Aborted(self._around.stopping.reason)
        if self._left.done():
            raise CallEnded(self.job.call_id)

    def _not_started(self, error: BaseException | None = None) -> Outcome:
        reason = self._around.stopping.reason or "cancelled"
        return Outcome(status="not_started", error=error or Aborted(reason))

    def _judge_result(self, result: ToolResult) -> Outcome:
        if self._last is not None and self._is_final(self._last):
            return self._last
        return Outcome(status="returned", result=result)

    def _judge_error(self, error: BaseException) -> Outcome:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            self._around.interrupt(error)
        last = self._last
        refused = error is self._refused or isinstance(error, asyncio.CancelledError)
        if last is None:
            return self._not_started(error) if refused else self._failed(error)
        if refused or self._is_final(last) or error is last.error:
            return last
        return self._failed(error)

    def _is_final(self, outcome: Outcome) -> bool:
        """Whether nothing around the tool may change what became of it."""
        stopped = outcome.status in {"cancelled", "abandoned"}
        told = self._around.stopping.told.done()
        signalled = outcome.status == "signalled"
        sure = outcome.may_have_run or outcome.committed
        return sure or signalled or self._unseen or (stopped and told)

    def _has_effect(self) -> bool:
        """Whether the tool did something, as far as its effect goes."""
        if self._last is None or self._last.status != "returned" or self.job.tool is None:
            return False
        return (self.job.effect or effect_of(self.job.tool, self.job.arguments)) != "none"

    @staticmethod
    def _unlike_its_tool(error: BaseException) -> Outcome:
        """What stands around a tool failed after the tool returned: it is no failure of the tool.

        Nothing after the entry can turn "may have run" into "failed" (DESIGN 8).
        """
        return Outcome(status="failed", error=error, may_have_run=True)

    def _failed(self, error: BaseException) -> Outcome:
        """What `around` raised on its own account."""
        decisive = failure(self.job.tool_name, error)
        if isinstance(decisive, Exception):
            return self._unlike_its_tool(decisive) if self._has_effect() else failed(decisive)
        return Outcome(status="signalled", error=decisive)
