"""Running one batch of calls; the words are those of `perdure.tools.job`."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import dataclasses
import itertools
from collections.abc import Sequence

from perdure.clock import Clock, SystemClock
from perdure.errors import Aborted, ConfigError, ToolError
from perdure.tools.call import Call, CallState
from perdure.tools.effect import ENTERED_ONCE, Effect
from perdure.tools.entry import Entry, Patience, Stop
from perdure.tools.job import BatchHooks, Job, Outcome, chains, failed
from perdure.tools.result import ToolResult, failure, to_result
from perdure.tools.tool import Tool, effect_of, timeout_of

DEFAULT_MAX_PARALLEL = 8
DEFAULT_GRACE = 5.0
DEFAULT_LINGER = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """How batches are run. It retries nothing and closes no tool.

    Raises:
        ConfigError: `max_parallel` is not positive.
    """

    max_parallel: int = DEFAULT_MAX_PARALLEL
    """How many tools of a batch run at once."""
    sequential: bool = False
    """Every batch is one chain."""
    grace: float = DEFAULT_GRACE
    """Seconds a told tool has before it is cancelled; one whose effect is `none` has none."""
    linger: float = DEFAULT_LINGER
    """Seconds a cancelled tool has before it is abandoned."""
    clock: Clock = dataclasses.field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        if self.max_parallel < 1:
            raise ConfigError(f"max_parallel must be at least 1, got {self.max_parallel}")

    def batch(self, jobs: Sequence[Job], hooks: BatchHooks | None = None) -> Batch:
        """A batch, to be run once, on the running event loop."""
        return Batch(self, jobs, hooks or BatchHooks())

    async def run(
        self, jobs: Sequence[Job], hooks: BatchHooks | None = None
    ) -> tuple[Outcome, ...]:
        """Run a batch that nobody will stop; see `Batch.run`."""
        return await self.batch(jobs, hooks).run()


class Batch:
    """A batch of jobs on its way."""

    def __init__(self, executor: Executor, jobs: Sequence[Job], hooks: BatchHooks) -> None:
        self.executor = executor
        self.hooks = hooks
        self.stopping = Stop()
        self.slots = _Slots(executor.max_parallel)
        self.progress = _Progress(self)
        self.failure: BaseException | None = None
        """The first that a hook raised where it must not."""
        self._runs = [_Run(self, job) for job in jobs]
        for chain in chains(jobs, sequential=executor.sequential):
            for before, after in itertools.pairwise(chain):
                self._runs[after].previous = self._runs[before]

    def stop(self, reason: str = "aborted", *, grace: bool = True) -> None:
        """Wind the batch down. It may be called again, to end the grace.

        Jobs that have not entered their tool do not. Tools are told; they have their grace, unless
        `grace` is False or their effect is `none`, and are cancelled after it.
        """
        self.stopping.tell(reason, cut=not grace)
        self.slots.close()

    async def run(self) -> tuple[Outcome, ...]:
        """Run the jobs.

        Returns:
            The outcomes, in the order of the jobs. `hooks.on_settled` has had each.

        Raises:
            CancelledError: This was cancelled. The batch was stopped without grace, and every job
            has
                its outcome. Cancelled again, hooks that still run are cancelled too.
            Exception: The first that `on_progress` or `on_settled` raised.
            KeyboardInterrupt, SystemExit: A tool raised it.
        """
        cancelled = await self._wait(
            {
                asyncio.create_task(run.go(), name=f"perdure-job-{run.job.call_id}")
                for run in self._runs
            }
        )
        await self.progress.close()
        if cancelled is not None:
            raise cancelled
        if self.failure is not None:
            raise self.failure
        return tuple(run.outcome for run in self._runs)

    async def _wait(self, tasks: set[asyncio.Task[None]]) -> asyncio.CancelledError | None:
        pending: set[asyncio.Future[None]] = set(tasks)
        cancelled: asyncio.CancelledError | None = None
        while pending:
            try:
                _, pending = await asyncio.wait(pending)
            except asyncio.CancelledError as error:
                self.stop("cancelled", grace=False)
                if cancelled is not None:
                    for task in pending:
                        task.cancel()
                cancelled = error
        return cancelled

    def fail(self, error: BaseException, *, grace: bool = True) -> None:
        """Stop the batch because of an error that `run` will raise."""
        self.failure = self.failure or error
        self.stop(f"stopped: {error}", grace=grace)


class _Run:
    """A job on its way."""

    def __init__(self, batch: Batch, job: Job) -> None:
        self.job = job
        self.previous: _Run | None = None
        """The job before it in its chain."""
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.outcome = Outcome(status="not_started")
        self._batch = batch
        self._entries = 0
        self._dispatched = False
        self._refused: BaseException | None = None
        """What kept the tool from being entered, or from being entered again."""
        self._last: Outcome | None = None
        """What the tool did when it was last entered."""

    async def go(self) -> None:
        outcome = await self._judged()
        self.outcome = dataclasses.replace(
            outcome, entered=self._entries, dispatched=self._dispatched
        )
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await self._batch.progress.finish(self)
            await self._batch.hooks.on_settled(self.job, self.outcome)
        except Exception as error:  # noqa: BLE001 - `Batch.run` raises it when all have settled
            self._batch.fail(error)
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
            result = await self._batch.hooks.around(self.job, lambda: self._enter(tool))
            return self._judge_result(to_result(result))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the job has an outcome
            return self._judge_error(error)
        finally:
            self._batch.slots.release()

    async def _turn(self) -> bool:
        """Wait for the job's turn in its chain and for a slot; False if the batch stops before."""
        told = self._batch.stopping.told
        if self.previous is not None:
            await asyncio.wait({self.previous.settled, told}, return_when=asyncio.FIRST_COMPLETED)
        return not told.done() and await self._batch.slots.acquire()

    async def _enter(self, tool: Tool) -> ToolResult:
        effect = self.job.effect or effect_of(tool, self.job.arguments)
        if self._entries and effect in ENTERED_ONCE:
            again = f"tool {tool.name!r} has the effect {effect!r} and is not entered a second time"
            raise self._refuse(ConfigError(again))
        self._refuse_if_stopped()
        try:
            await self._batch.hooks.on_start(self.job)
        except BaseException as error:
            self._refused = error
            raise
        self._dispatched = True
        self._refuse_if_stopped()
        self._entries += 1
        self._last = await self._inside(tool, effect)
        if self._last.status == "returned" and self._last.result is not None:
            return self._last.result
        raised = self._last.error or Aborted()
        if isinstance(raised, KeyboardInterrupt | SystemExit):
            # It has left through the event loop once, as it does from any task.
            self._batch.fail(raised, grace=False)
            raise Aborted(f"the tool raised {type(raised).__name__}")
        raise raised

    async def _inside(self, tool: Tool, effect: Effect) -> Outcome:
        executor, job = self._batch.executor, self.job
        timeout = timeout_of(tool)
        state = CallState()
        call = Call(
            id=job.call_id,
            name=job.tool_name,
            arguments=job.arguments,
            idempotency_key=job.idempotency_key,
            effect=effect,
            deadline=None if timeout is None else executor.clock.monotonic() + timeout,
            port=job.port,
            on_progress=lambda partial: self._batch.progress.post(self, partial),
            state=state,
        )
        entry = Entry(tool, call, state, clock=executor.clock, stop=self._batch.stopping)
        patience = Patience(timeout=timeout, grace=executor.grace, linger=executor.linger)
        try:
            return await entry.outcome(
                patience, lambda outcome: self._batch.hooks.on_late(job, outcome)
            )
        finally:
            state.closed = True

    def _refuse(self, error: BaseException) -> BaseException:
        self._refused = error
        return error

    def _refuse_if_stopped(self) -> None:
        if self._batch.stopping.told.done():
            raise self._refuse(Aborted(self._batch.stopping.reason))

    def _not_started(self, error: BaseException | None = None) -> Outcome:
        reason = self._batch.stopping.reason or "cancelled"
        return Outcome(status="not_started", error=error or Aborted(reason))

    def _judge_result(self, result: ToolResult) -> Outcome:
        if self._last is not None and _is_final(self._last):
            return self._last
        return Outcome(status="returned", result=result)

    def _judge_error(self, error: BaseException) -> Outcome:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            self._batch.fail(error, grace=False)
        last = self._last
        refused = error is self._refused or isinstance(error, asyncio.CancelledError)
        if last is None:
            return self._not_started(error) if refused else self._failed(error)
        if refused or _is_final(last) or error is last.error:
            return last
        return self._failed(error)

    def _failed(self, error: BaseException) -> Outcome:
        """What `around` raised on its own account."""
        decisive = failure(self.job.tool_name, error)
        if isinstance(decisive, Exception):
            return failed(decisive)
        return Outcome(status="signalled", error=decisive)


def _is_final(outcome: Outcome) -> bool:
    """Whether nothing around the tool may change what became of it."""
    return outcome.may_have_run or outcome.status in {"cancelled", "abandoned", "signalled"}


class _Slots:
    """How many tools may run; given in the order they were asked for."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._closed = False
        self._waiting: collections.deque[asyncio.Future[bool]] = collections.deque()

    async def acquire(self) -> bool:
        """Wait for a slot; False when there will be none."""
        if self._closed:
            return False
        if self._free:
            self._free -= 1
            return True
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                self.release()
            raise

    def release(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(True)
                return
        self._free += 1

    def close(self) -> None:
        self._closed = True
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(False)


class _Progress:
    """Hands the progress of all jobs of a batch on, one at a time, in order."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._context = contextvars.copy_context()
        self._queue: collections.deque[tuple[_Run, ToolResult]] = collections.deque()
        self._task: asyncio.Task[None] | None = None
        self._finished: set[_Run] = set()
        self._current: _Run | None = None
        self._changed: asyncio.Event = asyncio.Event()

    def post(self, run: _Run, partial: ToolResult) -> None:
        if run in self._finished:
            return
        self._queue.append((run, partial))
        if self._task is None:
            self._task = asyncio.create_task(self._deliver(), context=self._context)

    async def finish(self, run: _Run) -> None:
        """Wait until all of a job's progress is delivered, and take no more of it."""
        self._finished.add(run)
        while run is self._current or any(run is waiting for waiting, _ in self._queue):
            self._changed.clear()
            await self._changed.wait()

    async def close(self) -> None:
        """End a delivery that nobody waits for any more: all jobs have settled."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({self._task})

    async def _deliver(self) -> None:
        try:
            while self._queue:
                self._current, partial = self._queue.popleft()
                await self._deliver_one(self._current.job, partial)
                self._current = None
                self._changed.set()
        finally:
            self._queue.clear()
            self._current = self._task = None
            self._changed.set()

    async def _deliver_one(self, job: Job, partial: ToolResult) -> None:
        try:
            await self._batch.hooks.on_progress(job, partial)
        except Exception as error:  # noqa: BLE001 - `Batch.run` raises it at its end
            self._queue.clear()
            self._batch.fail(error)
