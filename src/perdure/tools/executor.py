"""Running one batch of calls; the words are those of `perdure.tools.job`."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Sequence

from perdure.clock import Clock, SystemClock
from perdure.errors import ConfigError
from perdure.tools.entry import Stop
from perdure.tools.job import BatchHooks, Job, Outcome, chains
from perdure.tools.progress import ProgressLine
from perdure.tools.running import Running, Surroundings
from perdure.tools.slots import Slots

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


class _Fate:
    """How a batch ends. Its jobs know it rather than the batch: no cycle keeps one for the GC."""

    __slots__ = ("failure", "slots", "stopping")

    def __init__(self, slots: Slots) -> None:
        self.failure: BaseException | None = None
        """The first that a hook raised where it must not."""
        self.stopping = Stop()
        self.slots = slots

    def stop(self, reason: str, *, grace: bool) -> None:
        self.stopping.tell(reason, cut=not grace)
        self.slots.close()

    def fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.stop(f"stopped: {error}", grace=True)

    def interrupt(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.stop(f"stopped: {type(error).__name__}", grace=False)


class Batch:
    """A batch of jobs on its way."""

    def __init__(self, executor: Executor, jobs: Sequence[Job], hooks: BatchHooks) -> None:
        self._fate = fate = _Fate(Slots(executor.max_parallel))
        self._progress = ProgressLine(hooks.on_progress, fate.fail)
        around = Surroundings(
            hooks=hooks,
            stopping=fate.stopping,
            slots=fate.slots,
            progress=self._progress,
            clock=executor.clock,
            grace=executor.grace,
            linger=executor.linger,
            fail=fate.fail,
            interrupt=fate.interrupt,
        )
        self._runs = [Running(index, job, around) for index, job in enumerate(jobs)]
        for chain in chains(jobs, sequential=executor.sequential):
            for before, after in itertools.pairwise(chain):
                self._runs[after].previous = self._runs[before]

    def stop(self, reason: str = "aborted", *, grace: bool = True) -> None:
        """Wind the batch down. It may be called again, to end the grace.

        Jobs that have not entered their tool do not. Tools are told; they have their grace, unless
        `grace` is False or their effect is `none`, and are cancelled after it.
        """
        self._fate.stop(reason, grace=grace)

    async def run(self) -> tuple[Outcome, ...]:
        """Run the jobs.

        Returns:
            The outcomes, in the order of the jobs. `hooks.on_settled` has had each.

        Raises:
            CancelledError: This was cancelled. The batch was stopped without grace, and every
                job has its outcome. Cancelled again, hooks that still run are cancelled too.
            Exception: The first that `on_progress` or `on_settled` raised.
            KeyboardInterrupt, SystemExit: A tool or a hook raised it.
        """
        tasks = {
            asyncio.create_task(run.go(), name=f"perdure-job-{run.job.call_id}")
            for run in self._runs
        }
        cancelled = await self._wait(tasks)
        await self._progress.close()
        if cancelled is not None:
            raise cancelled
        if self._fate.failure is not None:
            raise self._fate.failure
        return tuple(run.outcome for run in self._runs)

    async def _wait(self, tasks: set[asyncio.Task[None]]) -> asyncio.CancelledError | None:
        """Wait for all jobs, however often this is cancelled; the last cancellation, if any."""
        pending = tasks
        cancelled: asyncio.CancelledError | None = None
        while pending:
            try:
                done, pending = await asyncio.wait(pending)
                for task in done:
                    error = None if task.cancelled() else task.exception()
                    if error is not None:
                        self._fate.interrupt(error)
            except asyncio.CancelledError as error:
                self.stop("cancelled", grace=False)
                if cancelled is not None:
                    for task in pending:
                        task.cancel()
                cancelled = error
        return cancelled
