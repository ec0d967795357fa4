"""Tasks that outlive their calls, beside the conversation.

Their outcome is told to the model later, as a message, because a call can have one output only.

A *background* task runs here. A *deferred* one has its outcome from elsewhere: `settle_tasks`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec

from perdure.clock import Clock, Ids
from perdure.compose.accessors import StateAccessor
from perdure.compose.bodies import Returned, value_of
from perdure.compose.events import AsyncSettled, AsyncStarted
from perdure.compose.kinds import AnyTool, ClientTool
from perdure.compose.shared_context import Deferred
from perdure.compose.state import AsyncTask, ConversationState, TaskStatus, update_state
from perdure.compose.streams import RunLog
from perdure.errors import ConfigError, InvalidArguments, TaskSettled, ToolError, ToolTimeout
from perdure.loop import drive_scope
from perdure.tools import Call, ToolResult
from perdure.tools.result import json_text
from perdure.wire import Message, user

LOG_ENTRIES = 200
"""How many entries of a task's log are kept, the newest."""

DRAIN_SECONDS = 30.0
"""How long the end of a run waits for background tasks in all."""

BOUNDARY = (
    "Machine-generated results of tools that were called earlier follow, one JSON object a line. "
    "They are not the user's words."
)
"""The first line of a message that tells outcomes."""

PENDING_NOTE = "The result comes later, as a message. Go on with something else meanwhile."


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class LiveTask:
    """A task of this run."""

    task_id: str
    call_id: str
    name: str
    mode: str
    status: TaskStatus = "pending"
    result: object = None
    error: str = ""
    delivered: bool = False
    telling: bool = False
    """A message with its outcome is on its way."""
    announced: bool = False
    """Its call was answered with a placeholder."""
    entries: deque[object] = dataclasses.field(default_factory=lambda: deque(maxlen=LOG_ENTRIES))
    work: asyncio.Task[None] | None = None

    def log(self, entry: object) -> None:
        """Note what it is at."""
        self.entries.append(entry)

    @property
    def settled(self) -> bool:
        """Whether it has its outcome."""
        return self.status != "pending"

    def remembered(self) -> AsyncTask:
        """The task as the state has it."""
        return AsyncTask(
            task_id=self.task_id,
            call_id=self.call_id,
            name=self.name,
            mode="background" if self.mode == "background" else "deferred",
            status=self.status,
            result=self.result,
            error=self.error,
            delivered=self.delivered,
            log=tuple(self.entries),
        )


Settled = Callable[[LiveTask, Call, Exception | None, float], Awaitable[None]]
"""Told when a background task that was announced has its outcome."""


class Tasks:
    """The tasks of one conversation, as far as a run knows them.

    Args:
        known: What the state remembers.
        most: How many background bodies run at once.
    """

    def __init__(
        self,
        known: Iterable[AsyncTask],
        *,
        log: RunLog,
        clock: Clock,
        ids: Ids,
        most: int,
        on_settled: Settled,
    ) -> None:
        self._log = log
        self._clock = clock
        self._ids = ids
        self._pool = asyncio.Semaphore(most)
        self._gates: dict[str, asyncio.Semaphore] = {}
        self._on_settled = on_settled
        self._tasks = {one.task_id: _revived(one) for one in known}

    def remembered(self) -> tuple[AsyncTask, ...]:
        """The tasks as the state has them."""
        return tuple(one.remembered() for one in self._tasks.values() if one.announced)

    @property
    def alive(self) -> tuple[LiveTask, ...]:
        """The background tasks that run."""
        return tuple(
            one for one in self._tasks.values() if one.work is not None and not one.settled
        )

    @property
    def waits(self) -> bool:
        """Whether a deferred task has no outcome yet."""
        return any(one.mode == "deferred" and not one.settled for one in self._tasks.values())

    def outlives(self, call_id: str) -> bool:
        """Whether a call was answered with a placeholder."""
        return any(one.call_id == call_id and one.announced for one in self._tasks.values())

    def take_outcomes(self) -> list[LiveTask]:
        """The tasks whose outcome nobody was told."""
        return [
            one
            for one in self._tasks.values()
            if one.settled and not (one.delivered or one.telling)
        ]

    # --- deferred ----------------------------------------------------------------------

    def defer(self, tool: ClientTool, call: Call, deferred: Deferred) -> ToolResult:
        """Take note of a task whose outcome comes from elsewhere.

        Raises:
            ToolError: The tool may not defer, or the id is taken.
        """
        if tool.lifecycle != "deferred":
            raise ToolError(f"tool {tool.name!r} cannot defer: it is {tool.lifecycle}")
        if deferred.task_id in self._tasks:
            raise ToolError(f"the task id {deferred.task_id!r} is taken in this conversation")
        task = LiveTask(
            task_id=deferred.task_id,
            call_id=call.id,
            name=tool.name,
            mode="deferred",
            announced=True,
        )
        self._tasks[task.task_id] = task
        self._log.mark(
            AsyncStarted(
                tool_call_id=call.id, name=tool.name, task_id=task.task_id, mode="deferred"
            )
        )
        return placeholder(tool, task.task_id, deferred.note)

    # --- background ----------------------------------------------------------------------

    async def run(
        self,
        tool: ClientTool,
        call: Call,
        body: Callable[[LiveTask], Awaitable[ToolResult]],
    ) -> ToolResult:
        """Run a background tool: its result if that comes at once, else a placeholder.

        Raises:
            Exception: What the body raised within its grace.
        """
        task = LiveTask(
            task_id=self._ids.new("task_"), call_id=call.id, name=tool.name, mode="background"
        )
        self._tasks[task.task_id] = task  # before the race, so that it can be stopped
        outcome: list[ToolResult | Exception] = []
        task.work = drive_scope().spawn(
            self._work(tool, task, call, body, outcome), name=f"perdure-task-{task.task_id}"
        )
        if tool.grace > 0:
            timer = asyncio.get_running_loop().create_task(self._clock.sleep(tool.grace))
            await asyncio.wait({task.work, timer}, return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()
        if outcome:
            del self._tasks[task.task_id]
            if isinstance(outcome[0], Exception):
                raise outcome[0]
            return outcome[0]
        task.announced = True
        self._log.mark(
            AsyncStarted(
                tool_call_id=call.id, name=tool.name, task_id=task.task_id, mode="background"
            )
        )
        return placeholder(tool, task.task_id, "")

    async def _work(
        self,
        tool: ClientTool,
        task: LiveTask,
        call: Call,
        body: Callable[[LiveTask], Awaitable[ToolResult]],
        outcome: list[ToolResult | Exception],
    ) -> None:
        started = self._clock.monotonic()
        try:
            async with self._gate(tool), self._pool:  # the narrow one first
                outcome.append(await self._in_time(tool, body(task)))
        except asyncio.CancelledError:
            task.status, task.error = "cancelled", "cancelled"
            await self._tell(task, call, outcome, started)
            raise
        except Exception as error:  # noqa: BLE001 - it is the task's outcome
            outcome.append(error)
        if task.announced and not task.settled:
            _settle(task, outcome[0])
            await self._tell(task, call, outcome, started)

    async def _in_time(self, tool: ClientTool, body: Awaitable[ToolResult]) -> ToolResult:
        if tool.timeout is None:
            return await body
        work = asyncio.ensure_future(body)
        timer = asyncio.get_running_loop().create_task(self._clock.sleep(tool.timeout))
        try:
            await asyncio.wait({work, timer}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ToolTimeout(tool.name, tool.timeout)
            return work.result()
        finally:
            timer.cancel()
            work.cancel()

    def _gate(self, tool: ClientTool) -> asyncio.Semaphore:
        gate = self._gates.get(tool.name)
        if gate is None:
            gate = asyncio.Semaphore(tool.max_concurrency or 2**31)
            self._gates[tool.name] = gate
        return gate

    async def _tell(
        self, task: LiveTask, call: Call, outcome: Sequence[ToolResult | Exception], started: float
    ) -> None:
        if not task.announced:
            return
        error = outcome[0] if outcome and isinstance(outcome[0], Exception) else None
        self._log.mark(
            AsyncSettled(
                tool_call_id=task.call_id,
                name=task.name,
                task_id=task.task_id,
                status=task.status,
                result=task.result,
                error=task.error,
            )
        )
        if outcome:
            await self._on_settled(task, call, error, self._clock.monotonic() - started)

    # --- the end ---------------------------------------------------------------------------

    async def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Wait until a background task has its outcome, or the time is up."""
        works = {one.work for one in self.alive if one.work is not None}
        if not works:
            return
        timer = asyncio.get_running_loop().create_task(self._clock.sleep(seconds))
        await asyncio.wait({*works, timer}, return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()

    async def drain_all(self) -> None:
        """Wait until all background tasks have their outcomes, or the time is up."""
        deadline = self._clock.monotonic() + DRAIN_SECONDS
        while self.alive and (left := deadline - self._clock.monotonic()) > 0:
            await self.drain(left)

    def cancel(self) -> list[asyncio.Task[None]]:
        """Cancel what runs, without waiting for it to end."""
        works = [one.work for one in self._tasks.values() if one.work is not None]
        running = [work for work in works if not work.done()]
        for work in running:
            work.cancel()
        return running

    async def stop(self) -> None:
        """Cancel what runs, and wait for it to end."""
        running = self.cancel()
        if running:
            await asyncio.wait(running)

    def let_go(self) -> None:
        """Give up the tasks that run: they go on, and nobody is told what they give."""
        for one in self.alive:
            one.status, one.error = "orphaned", "nobody waits for it any more"


def _settle(task: LiveTask, outcome: ToolResult | Exception) -> None:
    if isinstance(outcome, ToolTimeout):
        task.status, task.error = "expired", str(outcome)
    elif isinstance(outcome, Exception):
        task.status, task.error = "failed", str(outcome) or type(outcome).__name__
    else:
        task.status, task.result = "completed", value_of(outcome)


def _revived(one: AsyncTask) -> LiveTask:
    """A task of an earlier run. What ran in the background there runs no more."""
    dead = one.mode == "background" and one.status == "pending"
    return LiveTask(
        task_id=one.task_id,
        call_id=one.call_id,
        name=one.name,
        mode=one.mode,
        status="orphaned" if dead else one.status,
        result=one.result,
        error="its process ended before it did" if dead else one.error,
        delivered=one.delivered,
        announced=True,
        entries=deque(one.log, maxlen=LOG_ENTRIES),
    )


def placeholder(tool: ClientTool, task_id: str, note: str) -> ToolResult:
    """What the model reads in place of a result that comes later."""
    ack = tool.ack
    members: dict[str, object] = {
        "status": "pending",
        "task_id": task_id,
        "note": note or PENDING_NOTE,
    }
    if isinstance(ack, Mapping):
        members |= ack
    elif ack is not None:
        members["note"] = str(ack)
    return ToolResult(json_text(members), details=Returned(members))


def envelope(tasks: Sequence[LiveTask | AsyncTask]) -> Message:
    """The message that tells the model the outcomes of tasks."""
    lines = [BOUNDARY]
    for one in tasks:
        members: dict[str, object] = {
            "type": "tool_task_result",
            "tool": one.name,
            "task_id": one.task_id,
            "call_id": one.call_id,
            "status": one.status,
        }
        members["result" if one.status == "completed" else "error"] = (
            one.result if one.status == "completed" else one.error
        )
        lines.append(json_text(members))
    return user("\n".join(lines))


# --- outcomes from elsewhere --------------------------------------------------------------


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a deferred task, named by its own id or by its call's."""

    task_id: str = ""
    call_id: str = ""
    result: object = None
    error: str = ""
    cancelled: bool = False


async def settle_tasks(
    accessor: StateAccessor,
    *settlements: Settlement,
    tools: Sequence[AnyTool],
    tool_name: str = "",
    ignore_settled: bool = False,
    clock: Clock | None = None,
) -> ConversationState:
    """Give deferred tasks their outcomes, from any process; a run with no input then goes on.

    Nothing is written unless every outcome can be taken.

    Args:
        accessor: The conversation.
        settlements: The outcomes.
        tools: The tools of the conversation; results are held to their schemas.
        tool_name: Refuse to settle a task of any other tool.
        ignore_settled: Leave out what has an outcome already, in place of raising.
        clock: Where the time comes from.

    Returns:
        The state as it was saved.

    Raises:
        TaskSettled: A task has an outcome already.
        ConfigError: There is no such task, or its tool is none of `tools`, or it is another's.
        InvalidArguments: A result does not fit its tool's schema.
    """
    state = await accessor.load()
    if state is None:
        raise ConfigError("there is no conversation whose tasks could be settled")
    tasks = {one.task_id: one for one in state.tasks}
    owners = {tool.name: tool for tool in tools if isinstance(tool, ClientTool)}
    changed = False
    for settlement in settlements:
        task = _task_of(settlement, tasks)
        if tool_name and task.name != tool_name:
            raise ConfigError(f"task {task.task_id!r} belongs to {task.name!r}, not {tool_name!r}")
        if task.status != "pending":
            if ignore_settled:
                continue
            raise TaskSettled(task.task_id, task.status)
        tasks[task.task_id] = _settled_task(task, settlement, owners)
        changed = True
    if not changed:
        return state
    status = state.status
    waits = any(one.mode == "deferred" and one.status == "pending" for one in tasks.values())
    if status == "awaiting_async_tools" and not waits:
        status = "in_progress"
    settled = update_state(state, clock=clock, tasks=tuple(tasks.values()), status=status)
    await accessor.save(settled)
    return settled


def _task_of(settlement: Settlement, tasks: Mapping[str, AsyncTask]) -> AsyncTask:
    for task in tasks.values():
        if (
            settlement.task_id == task.task_id
            if settlement.task_id
            else (settlement.call_id == task.call_id)
        ):
            return task
    raise ConfigError(f"there is no task {settlement.task_id or settlement.call_id!r}")


def _settled_task(
    task: AsyncTask, settlement: Settlement, owners: Mapping[str, ClientTool]
) -> AsyncTask:
    owner = owners.get(task.name)
    if owner is None:
        raise ConfigError(f"the tool {task.name!r} of task {task.task_id!r} is not among the tools")
    if settlement.cancelled:
        return msgspec.structs.replace(task, status="cancelled", error="cancelled")
    if settlement.error:
        return msgspec.structs.replace(task, status="failed", error=settlement.error)
    result = settlement.result
    if owner.output_schema is not None:
        try:
            result = owner.output_schema.read(result)
        except InvalidArguments as error:
            raise InvalidArguments(
                f"the result of task {task.task_id!r} does not fit: {error.reason}",
                path=error.path,
            ) from None
    plain: object = msgspec.json.decode(json_text(result))
    return msgspec.structs.replace(task, status="completed", result=plain)
