"""What the executor's tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from perdure.testing.clock import FakeClock, settle
from perdure.tools import (
    Batch,
    BatchHooks,
    Call,
    Effect,
    Enter,
    Executor,
    Job,
    Outcome,
    ToolResult,
    Transaction,
    current_call,
)

Body = Callable[[Call], Awaitable[object]]


class Scripted:
    """A tool that runs what a test gives it."""

    description = ""
    parameters = None

    def __init__(
        self,
        body: Body,
        *,
        name: str = "t",
        effect: Effect = "once",
        sequential: bool = False,
        resource: str | None = None,
        timeout: float | None = None,
    ) -> None:
        self.name = name
        self.body = body
        self.effect = effect
        self.sequential = sequential
        self.resource = resource
        self.timeout = timeout

    async def execute(self, call: Call) -> ToolResult:
        value = await self.body(call)
        if self.effect == "transactional":
            return ToolResult(transaction=lambda tx: value)
        return value if isinstance(value, ToolResult) else ToolResult(str(value))


class Log(BatchHooks):
    """Hooks that write down what they hear; what transactional tools return, they do."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.outcomes: dict[str, list[Outcome]] = {}
        self.late: dict[str, Outcome] = {}

    async def around(self, job: Job, enter: Enter) -> ToolResult:
        return await enter()

    async def on_start(self, job: Job) -> None:
        self.lines.append(f"start {job.call_id}")

    async def on_transaction(self, job: Job, transaction: Transaction) -> ToolResult:
        function = cast("Callable[[None], object]", transaction)
        return ToolResult(str(function(None)))

    async def on_progress(self, job: Job, partial: ToolResult) -> None:
        self.lines.append(f"progress {job.call_id} {partial.output}")

    async def on_settled(self, job: Job, outcome: Outcome) -> None:
        self.lines.append(f"settled {job.call_id} {outcome.status}")
        self.outcomes.setdefault(job.call_id, []).append(outcome)

    def on_late(self, job: Job, outcome: Outcome) -> None:
        self.lines.append(f"late {job.call_id} {outcome.status}")
        self.late[job.call_id] = outcome


class Bench:
    """A batch on a fake clock."""

    def __init__(
        self, *tools: Scripted, hooks: BatchHooks | None = None, **options: object
    ) -> None:
        self.clock = FakeClock()
        self.hooks = hooks or Log()
        self.jobs = [Job(tool=tool, call_id=f"c{index}") for index, tool in enumerate(tools)]
        self.executor = Executor(clock=self.clock, **options)  # type: ignore[arg-type]
        self.batch: Batch = self.executor.batch(self.jobs, self.hooks)

    def start(self) -> asyncio.Task[tuple[Outcome, ...]]:
        return asyncio.create_task(self.batch.run())

    async def run(self) -> tuple[Outcome, ...]:
        outcomes = await self.batch.run()
        assert_one_outcome_each(self)
        return outcomes

    @property
    def log(self) -> Log:
        assert isinstance(self.hooks, Log)
        return self.hooks


def assert_one_outcome_each(bench: Bench) -> None:
    if isinstance(bench.hooks, Log):
        assert {name: len(each) for name, each in bench.hooks.outcomes.items()} == {
            job.call_id: 1 for job in bench.jobs
        }


async def assert_nothing_is_left() -> None:
    """No task but the test's own is alive."""
    await settle()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, left


def says(text: object) -> Body:
    async def body(call: Call) -> object:
        return text

    return body


def raises(error: BaseException) -> Body:
    async def body(call: Call) -> object:
        raise error

    return body


async def forever(call: Call) -> object:
    """Waits until it is cancelled."""
    await asyncio.Event().wait()
    return "never"


async def until_told(call: Call) -> object:
    """Returns when it is told to stop."""
    await call.cancelled
    return f"stopped: {current_call().cancelled.reason}"
