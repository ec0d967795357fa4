"""One entry into a tool: a task of its own, watched until it ends or is given up."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import logging
from collections.abc import Callable, Coroutine
from typing import Literal

from perdure.clock import Clock
from perdure.errors import Aborted, OutcomeUnknown, SuspendSwallowed, ToolPanic, ToolTimeout
from perdure.tools.call import Call, CallState, Work, running_call
from perdure.tools.job import Outcome, failed
from perdure.tools.result import ToolResult, failure, to_result
from perdure.tools.tool import Tool

logger = logging.getLogger("perdure.tools")

_abandoned: set[Work] = set()
"""The event loop holds its tasks weakly; these must not vanish while they run."""


def abandoned() -> frozenset[Work]:
    """The tools that were given up and have not ended, of all event loops that are open."""
    _abandoned.difference_update([work for work in _abandoned if work.get_loop().is_closed()])
    return frozenset(_abandoned)


class Stop:
    """The stop of a batch: told once, with a reason; cut when the grace is over for all."""

    __slots__ = ("cut", "reason", "told")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.told: asyncio.Future[None] = loop.create_future()
        self.cut: asyncio.Future[None] = loop.create_future()
        self.reason = ""

    def tell(self, reason: str, *, cut: bool) -> None:
        if not self.told.done():
            self.reason = reason
            self.told.set_result(None)
        if cut and not self.cut.done():
            self.cut.set_result(None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a tool is waited for."""

    timeout: float | None
    """Seconds it may take."""
    grace: float
    """Seconds from being told to being cancelled."""
    linger: float
    """Seconds from being cancelled to being given up."""


class Entry:
    """A tool that runs.

    It is told to stop by the batch, by its time, by a cancellation of who watches, and when it is
    `left`: nobody around it waits for it any more.
    """

    def __init__(
        self,
        tool: Tool,
        call: Call,
        state: CallState,
        *,
        clock: Clock,
        stop: Stop,
        left: asyncio.Future[None],
    ) -> None:
        self._tool_name = tool.name
        self._call = call
        self._left = left
        self._state = state
        self._clock = clock
        self._stop = stop
        self._stopped: Aborted | ToolTimeout | None = None
        self._cancelled = False
        self.interrupted = False
        """The task that watches was cancelled. What watches has to raise that again."""
        context = contextvars.copy_context()
        context.run(running_call.set, call)
        self._task = asyncio.create_task(
            _execute(tool, call), name=f"perdure-tool-{call.id}", context=context
        )

    async def outcome(self, patience: Patience, on_late: Callable[[Outcome], None]) -> Outcome:
        """Watch the tool to its end, or give it up.

        A cancellation of the watching task tells the tool; a second one ends its grace. The
        outcome is still returned.
        """
        await self._watch(patience)
        outcome = self._judge()
        self._keep_watch(on_late)
        return outcome

    async def _watch(self, patience: Patience) -> None:
        await self._wait(patience.timeout, self._stop.told, self._left)
        if self._task.done():
            return
        self._stopped = self._why(patience.timeout)
        self._state.tell(str(self._stopped))
        if self._call.effect != "none":
            await self._wait(patience.grace, self._stop.cut)
            if self._task.done():
                return
        self._cancelled = True
        self._task.cancel()
        await self._wait(patience.linger)

    def _why(self, timeout: float | None) -> Aborted | ToolTimeout:
        if self._stop.told.done():
            return Aborted(self._stop.reason)
        if self.interrupted or self._left.done() or timeout is None:
            return Aborted("cancelled")
        return ToolTimeout(self._tool_name, timeout)

    async def _wait(self, seconds: float | None, *signals: asyncio.Future[None]) -> None:
        """Wait until the tool has ended, a signal is given, or the time is up."""
        timer = None
        waited: set[asyncio.Future[None] | asyncio.Task[ToolResult] | asyncio.Task[None]]
        waited = {self._task, *signals}
        if seconds is not None:
            timer = asyncio.create_task(self._clock.sleep(seconds))
            waited.add(timer)
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.interrupted = True
        finally:
            if timer is not None:
                timer.cancel()

    # --- what became of it ---------------------------------------------------------------------

    def _judge(self) -> Outcome:
        task = self._task
        if not task.done():
            return self._unfinished("abandoned")
        error = None if task.cancelled() else task.exception()
        if self._state.unknown is not None:
            return Outcome(status="failed", error=self._state.unknown, may_have_run=True)
        if task.cancelled():
            return self._judge_cancelled()
        if error is None and self._state.suspended:
            return failed(SuspendSwallowed(self._tool_name))
        if error is None:
            return Outcome(status="returned", result=task.result())
        decisive = failure(self._tool_name, error)
        if isinstance(decisive, KeyboardInterrupt | SystemExit):
            return Outcome(status="cancelled", error=decisive, may_have_run=self._may_have_run)
        if not isinstance(decisive, Exception):
            return Outcome(status="signalled", error=decisive)
        if self._cancelled:
            # What a tool raises because it was cancelled says nothing about how far it came.
            return self._unfinished("cancelled")
        if isinstance(decisive, OutcomeUnknown) and self._may_have_run:
            return Outcome(status="failed", error=decisive, may_have_run=True)
        return failed(decisive)

    def _judge_cancelled(self) -> Outcome:
        if self._state.left_running is not None:
            return self._unfinished("abandoned")
        if self._cancelled or self._task.cancelling():
            return self._unfinished("cancelled")
        return failed(ToolPanic(self._tool_name, asyncio.CancelledError()))

    def _unfinished(self, status: Literal["cancelled", "abandoned"]) -> Outcome:
        error = self._stopped or Aborted("cancelled")
        if isinstance(error, ToolTimeout) and not self._may_have_run:
            return failed(error)
        return Outcome(status=status, error=error, may_have_run=self._may_have_run)

    @property
    def _may_have_run(self) -> bool:
        # The body of a transactional tool does nothing yet; what it returns does (LOG 6).
        return self._call.effect not in ("none", "transactional")

    # --- what comes late -------------------------------------------------------------------------

    def _keep_watch(self, on_late: Callable[[Outcome], None]) -> None:
        work = self._state.left_running if self._task.done() else self._task
        if work is None or work.done():
            return
        logger.warning(
            "tool %r of call %r does not end and was abandoned", self._tool_name, self._call.id
        )
        abandoned()  # forgets those whose event loop has closed: they never tell of their end
        _abandoned.add(work)
        work.add_done_callback(lambda work: self._late(work, on_late))

    def _late(self, work: Work, on_late: Callable[[Outcome], None]) -> None:
        _abandoned.discard(work)
        outcome = self._judge_late(work)
        if outcome is None or not self._may_have_run:
            return
        try:
            on_late(outcome)
        except Exception:
            logger.exception("the late result of call %r was not taken", self._call.id)

    def _judge_late(self, work: Work) -> Outcome | None:
        if work.cancelled():
            return None
        error = work.exception()
        if error is not None:
            decisive = failure(self._tool_name, error)
            return failed(decisive) if isinstance(decisive, Exception) else None
        value = work.result()
        if isinstance(value, ToolResult):
            return Outcome(status="returned", result=value)
        if isinstance(value, Coroutine):  # nobody will run it any more
            value.close()
        return None


async def _execute(tool: Tool, call: Call) -> ToolResult:
    return to_result(await tool.execute(call))
