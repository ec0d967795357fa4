"""The words of a batch of calls.

A *job* is a call that is to run. Jobs of one *chain* run one after another, in the model's order;
chains run beside each other, at most `max_parallel` tools at a time. A job *enters* its tool when
`on_start` has returned. What became of it is its *outcome*: every job gets exactly one. A tool
that is *told* to stop has a grace period, then it is *cancelled*; one that ignores even that is
*deaf* and is *abandoned*: it may still do something, and what it gives then is *late*.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeAlias

from perdure.errors import NoTransactions
from perdure.tools.call import NO_PORT, CallPort
from perdure.tools.effect import Effect
from perdure.tools.result import ToolResult, error_result
from perdure.tools.tool import Tool, is_sequential, resource_of
from perdure.tools.transaction import Transaction

Status: TypeAlias = Literal[
    "returned", "failed", "signalled", "not_started", "cancelled", "abandoned"
]
"""`returned`: the tool gave a result. `failed`: it raised. `signalled`: it raised an exception
that is no `Exception`, as a wait does. `not_started`: it was never entered. `cancelled`: it was
stopped and ended. `abandoned`: it was stopped and did not end."""

Enter: TypeAlias = Callable[[], Awaitable[ToolResult]]
"""Enters the tool: `on_start`, then the tool itself."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A call that is to run."""

    tool: Tool | None
    """None if there is no tool of that name; the job then fails without running."""
    call_id: str
    name: str = ""
    """The tool's name, unless the model was shown another."""
    arguments: str = ""
    idempotency_key: str = ""
    effect: Effect | None = None
    """None: what the tool says for these arguments."""
    port: CallPort = NO_PORT

    @property
    def tool_name(self) -> str:
        return self.name or (self.tool.name if self.tool else "")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a job."""

    status: Status
    result: ToolResult | None = None
    """What the model reads; None where nobody knows yet what that should be."""
    error: BaseException | None = None
    """Why there is no result of the tool's: what it raised, `ToolTimeout`, `Aborted`, or what
    `on_start` raised."""
    may_have_run: bool = False
    """The tool was entered, its effect is not `none`, and nobody knows how far it came."""
    dispatched: bool = False
    """`on_start` returned."""
    entered: int = 0
    """How often the tool was entered."""
    own: ToolResult | None = None
    """What the tool itself gave, whatever is around it made of that."""
    committed: bool = False
    """The result was committed with what the tool did; nothing changes it any more (LOG 6)."""


def failed(error: BaseException) -> Outcome:
    """The outcome of a job that failed; the model reads the error."""
    return Outcome(status="failed", result=error_result(error), error=error)


class BatchHooks:
    """What a harness hears of a batch, and may do. Each method may be left as it is.

    `around`, `on_start` and `on_settled` run on the job's own task, `on_progress` on one of the
    batch, all with the context variables of whoever made the batch, and never with those of the
    tool. When the event loop closes they are cancelled with it.
    """

    async def around(self, job: Job, enter: Enter) -> ToolResult:
        """Runs the job; `enter` is its tool. Called once it has its slot and its turn.

        It may answer without entering, change the result, or enter again where the effect allows
        it. What it raises is the job's failure. Nothing it does can turn `may_have_run` into a
        result. Where it cancels an entry, as `asyncio.timeout` does, the tool is told and has its
        grace first; an entry it does not wait for is ended so before the job settles.
        """
        del job
        return await enter()

    async def on_start(self, job: Job) -> None:
        """The tool is about to be entered; awaited before it is. Called once for each entry.

        What it raises keeps the tool from being entered and becomes the outcome's error. A stop of
        the batch does not cut it short, but keeps the tool from being entered after it.
        """

    async def on_transaction(self, job: Job, transaction: Transaction) -> ToolResult:
        """A transactional tool's body has returned what does it; commit it with its output.

        It is not cut short by a stop of the batch.

        Returns:
            The result, once it and what the function did are durable.

        Raises:
            TransactionUndone: The function failed, and nothing happened.
            Exception: Whether it happened is unknown here; the log will say.
        """
        del transaction
        raise NoTransactions(job.tool_name)

    async def on_progress(self, job: Job, partial: ToolResult) -> None:
        """The tool shows how far it is.

        One at a time in a batch, in order, none after the job's `on_settled`.

        If it raises, the batch is stopped and `Batch.run` raises that at its end.
        """

    async def on_settled(self, job: Job, outcome: Outcome) -> None:
        """The job has its outcome. Called exactly once for each job, in the order of completion.

        The next job of its chain starts after it. If it raises, the batch is stopped and
        `Batch.run` raises that at its end; it is not called again for this job.
        """

    def on_late(self, job: Job, outcome: Outcome) -> None:
        """An abandoned tool gave a result, or failed, after its outcome was settled.

        Called on the event loop, possibly long after the batch. What it raises is logged.
        """


def chains(jobs: Sequence[Job], *, sequential: bool = False) -> tuple[tuple[int, ...], ...]:
    """How the jobs of a batch group: the indices of each chain, in the model's order.

    One chain of all if `sequential` is set or any tool asks for it; else one for each resource, and
    one for each job that names none.
    """
    if sequential or any(job.tool is not None and is_sequential(job.tool) for job in jobs):
        return (tuple(range(len(jobs))),) if jobs else ()
    groups: list[list[int]] = []
    by_resource: dict[str, list[int]] = {}
    for index, job in enumerate(jobs):
        resource = resource_of(job.tool) if job.tool is not None else None
        if resource and resource in by_resource:
            by_resource[resource].append(index)
            continue
        group = [index]
        groups.append(group)
        if resource:
            by_resource[resource] = group
    return tuple(tuple(group) for group in groups)
