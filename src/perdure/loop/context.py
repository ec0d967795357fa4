"""What tools and hooks know of the drive they run in.

The loop sets it before it creates a task, so whatever a tool starts inherits it. A *scope* belongs
to a drive; a *port* is its end that one call holds.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from perdure.clock import Clock
from perdure.errors import CallEnded, ConfigError
from perdure.loop.config import Config
from perdure.loop.ledger import Ledger
from perdure.loop.transcript import Items
from perdure.loop.trigger import Trigger
from perdure.tools import Call, ToolResult, current_call
from perdure.tools.result import json_text

if TYPE_CHECKING:
    from perdure.errors import BudgetExceeded, OutcomeUnknown
    from perdure.loop.account import Account
    from perdure.loop.state import Drive

T = TypeVar("T")

_background: set[asyncio.Task[object]] = set()

current: ContextVar[DriveScope | None] = ContextVar("perdure_drive", default=None)


class DriveScope:
    """The drive that a tool, a hook or a model call serves."""

    __slots__ = ("_drive", "background")

    def __init__(self, drive: Drive, *, background: bool = False) -> None:
        self._drive = drive
        self.background = background
        """This is work that the drive does not wait for."""

    @property
    def run_id(self) -> str:
        """The drive's id."""
        return self._drive.run_id

    @property
    def trigger(self) -> Trigger | None:
        """What caused it."""
        return self._drive.trigger

    @property
    def deployment(self) -> str:
        """Who runs it: the identity of the agent; empty if nobody said."""
        return self._drive.config.deployment

    @property
    def principal(self) -> str:
        """For whom it runs; empty if nobody said."""
        return self._drive.config.principal

    @property
    def transcript(self) -> Items:
        """The transcript as it stands."""
        return self._drive.transcript.snapshot()

    def steered(self) -> asyncio.Future[None]:
        """Done as soon as something is steered into the drive that it has not taken.

        A tool that only waits can wait for this as well, and return early with what it has. Do not
        cancel it; wait with `asyncio.wait`.
        """
        return self._drive.queues.steered()

    def spawn(self, work: Coroutine[object, object, T], *, name: str = "") -> asyncio.Task[T]:
        """Start work that outlives its call.

        It is cancelled when the drive is aborted, and neither when the batch ends nor when the
        drive ends by itself.
        """
        context = contextvars.copy_context()
        context.run(current.set, DriveScope(self._drive, background=True))
        loop = asyncio.get_running_loop()
        task = loop.create_task(work, name=name or "perdure background", context=context)
        _background.add(task)
        signal = self._drive.signal
        signal.listeners.append(task.cancel)
        task.add_done_callback(_background.discard)
        task.add_done_callback(lambda _: signal.listeners.remove(task.cancel))
        if signal.cause is not None:
            task.cancel()
        return task


def identified(config: Config, principal: str) -> Config:
    """A config that says who runs a drive and for whom; inside another drive, as that does."""
    around = current.get()
    return dataclasses.replace(
        config,
        deployment=config.deployment or (around.deployment if around is not None else ""),
        principal=principal or (around.principal if around is not None else ""),
    )


def current_run_id() -> str:
    """The id of the drive that this code serves; empty if it serves none."""
    scope = current.get()
    return scope.run_id if scope is not None else ""


def holds_up(run_id: str) -> bool:
    """Whether the drive waits for this code: for its tools and hooks, not for background work."""
    scope = current.get()
    return scope is not None and not scope.background and scope.run_id == run_id


def drive_scope() -> DriveScope:
    """The drive that this code serves.

    Raises:
        ConfigError: It serves none.
    """
    scope = current.get()
    if scope is None:
        raise ConfigError("drive_scope() was called outside a drive")
    return scope


class LoopPort:
    """What the loop puts behind the handle of a call."""

    __slots__ = ("_attended", "_closed", "_drive", "_nested", "unknown")

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._nested: set[asyncio.Task[ToolResult]] = set()
        self._attended: set[asyncio.Future[object]] = set()
        self._closed = False
        self.unknown: OutcomeUnknown | None = None
        """Nobody knows what came of a part of the call; it may tell so after its tool has ended."""

    @property
    def clock(self) -> Clock:
        """Where the drive reads the time."""
        return self._drive.config.clock

    @property
    def fence(self) -> str:
        """The fence of the driver."""
        return self._drive.config.fence

    @property
    def deployment(self) -> str:
        """Who runs the drive."""
        return self._drive.config.deployment

    @property
    def principal(self) -> str:
        """For whom it runs."""
        return self._drive.config.principal

    @property
    def ledger(self) -> Ledger:
        """What the drive is written to."""
        return self._drive.delivery.ledger

    @property
    def account(self) -> Account:
        """What the drive is charged to."""
        return self._drive.spending.account

    def exceeded(self, error: BudgetExceeded) -> None:
        """A budget refused what a call started: the drive stops when its batch has ended."""
        self._drive.spending.exceeded = error

    async def write_record(self, call: Call, namespace: str, data: object) -> None:
        """Hand a record to the drive's recorder, if it has one."""
        if self._drive.config.recorder is not None:
            await self._drive.config.recorder(call, namespace, data)

    async def invoke(self, call: Call, name: str, arguments: str) -> ToolResult:
        """Run another of the turn's tools, as the work of `call`."""
        work = self._drive.nested(self._drive, call, name, arguments)
        task = asyncio.get_running_loop().create_task(work, name=f"perdure-nested-{call.id}")
        self._nested.add(task)
        task.add_done_callback(self._nested.discard)
        try:
            return await task
        except asyncio.CancelledError:
            if self._closed and task.cancelled() and not _is_cancelled():
                raise CallEnded(call.id) from None
            raise

    def attend(self, work: asyncio.Future[object]) -> None:
        """Wait for work of the call before the call is judged, whatever becomes of its tool."""
        self._attended.add(work)
        work.add_done_callback(self._attended.discard)

    async def close(self) -> None:
        """The call has ended: end the nested calls that its tool left running."""
        self._closed = True
        while self._attended:
            await asyncio.wait(set(self._attended))
        for task in self._nested:
            task.cancel()
        if self._nested:
            await asyncio.wait(set(self._nested))


async def invoke(name: str, arguments: str | dict[str, object] | None = None) -> ToolResult:
    """Run another of the turn's tools from inside a tool, as if the model had asked for it.

    The hooks decide and judge, events name the running call as parent, the record has it; the
    transcript does not: it is the work of the call that makes it. A hook that holds the call asks
    the user instead, through the elicitor; without one, or if the user cancels, it is refused.

    Args:
        name: The tool.
        arguments: JSON text, or JSON values.

    Returns:
        What the model would have seen.

    Raises:
        ToolError: The call failed, was refused, or named no tool.
        ConfigError: No tool of a loop is running here.
        CallEnded: The call has ended.
    """
    call = current_call()
    text = arguments if isinstance(arguments, str) else json_text(arguments or {})
    return await _port(call).invoke(call, name, text)


def _is_cancelled() -> bool:
    here = asyncio.current_task()
    return here is not None and here.cancelling() > 0


def _port(call: Call) -> LoopPort:
    port = call.port
    if not isinstance(port, LoopPort):
        raise ConfigError("no loop runs this tool, so there is nothing to invoke")
    return port
