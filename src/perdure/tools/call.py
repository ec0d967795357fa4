"""The handle of a call, as its tool holds it.

A *call* is one function call on its way through its tool. Its *handle* gives the tool what
belongs to the call and closes when the call ends: what uses it later gets `CallEnded`. A *port*
is what the harness that runs the tool puts behind the handle; other layers know their own port
and reach it by `Call.port`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Protocol, TypeAlias, TypeVar

from perdure.errors import CallEnded, ConfigError, OutcomeUnknown
from perdure.tools.effect import Effect
from perdure.tools.result import ToolResult, given_json

T = TypeVar("T")

Work: TypeAlias = asyncio.Future[ToolResult] | asyncio.Future[ToolResult | Awaitable[object]]
"""What a tool's work comes to: its result, or what a sync function gave for awaiting."""

_NAMESPACE = re.compile(r"[^:\s]+:[^:\s]+")


class CallPort(Protocol):
    """What a harness puts behind the handles of the calls it runs."""

    async def write_record(self, call: Call, namespace: str, data: object) -> None:
        """Put a record into the log.

        Called while the tool runs, on the loop of the drive. It returns when the record is durable;
        what it raises, the tool gets.
        """
        ...


class NoPort:
    """The port where nobody records."""

    async def write_record(self, call: Call, namespace: str, data: object) -> None:
        """Drops the record."""


NO_PORT = NoPort()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProgressInfo:
    """How far a tool has come; `total` in the unit of `done`, None if nobody knows."""

    done: float
    total: float | None = None


class CallState:
    """What an executor decides about a handle, and learns from it."""

    __slots__ = ("closed", "left_running", "reason", "suspended", "told", "unknown", "waiters")

    def __init__(self) -> None:
        self.closed = False
        self.told = threading.Event()
        self.reason = ""
        self.waiters: list[asyncio.Future[None]] = []
        self.unknown: OutcomeUnknown | None = None
        """Nobody knows what came of a part of the call, whatever its tool makes of that."""
        self.suspended = False
        """The call was told to wait; a result that its tool gives all the same is not taken."""
        self.left_running: Work | None = None
        """The work that goes on although the tool's coroutine was cancelled."""

    def tell(self, reason: str) -> None:
        """Tell the call to stop. The first reason stands. On the loop of the call only."""
        if self.told.is_set():
            return
        self.reason = reason
        self.told.set()
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)


class CancelSignal:
    """Whether a call was told to stop.

    In an async tool `await call.cancelled` waits for it; a sync tool asks `is_set()` between two
    pieces of its work, or waits with `wait_in_thread`.
    """

    __slots__ = ("_state",)

    def __init__(self, state: CallState) -> None:
        self._state = state

    def is_set(self) -> bool:
        return self._state.told.is_set()

    def __bool__(self) -> bool:
        return self._state.told.is_set()

    def __repr__(self) -> str:
        return f"<CancelSignal {self.reason!r}>" if self else "<CancelSignal not set>"

    @property
    def reason(self) -> str:
        """Why, in the words of whoever stopped it; empty while it is not set."""
        return self._state.reason

    async def wait(self) -> None:
        """Wait until the call is told to stop."""
        if self.is_set():
            return
        waiter = asyncio.get_running_loop().create_future()
        self._state.waiters.append(waiter)
        try:
            await waiter
        finally:
            self._state.waiters.remove(waiter)

    def __await__(self) -> Generator[object, None, None]:
        return self.wait().__await__()

    def wait_in_thread(self, seconds: float | None = None) -> bool:
        """Wait in a sync tool's thread, at most `seconds`; whether the call was told to stop."""
        return self._state.told.wait(seconds)


class Call:
    """One call in its tool.

    Attributes:
        id: The call id, unique in the transcript.
        name: The tool, as the model named it.
        arguments: The arguments as JSON text, exactly as they were decided on.
        idempotency_key: The same for every attempt at this call; empty where nobody mints keys.
        effect: What the tool does to the world, for these arguments.
        deadline: When the tool's time is up, on the clock's monotonic reading; None without a
            timeout.
        cancelled: Whether the call was told to stop.
    """

    __slots__ = (
        "__weakref__",
        "_keys",
        "_loop",
        "_on_progress",
        "_port",
        "_state",
        "arguments",
        "cancelled",
        "deadline",
        "effect",
        "id",
        "idempotency_key",
        "kept",
        "name",
    )

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - the vocabulary's own name
        name: str,
        arguments: str = "",
        idempotency_key: str = "",
        effect: Effect = "once",
        deadline: float | None = None,
        port: CallPort = NO_PORT,
        on_progress: Callable[[ToolResult], None] | None = None,
        state: CallState | None = None,
    ) -> None:
        self.id = id
        self.name = name
        self.arguments = arguments
        self.idempotency_key = idempotency_key
        self.effect: Effect = effect
        self.deadline = deadline
        self._state = state or CallState()
        self.cancelled = CancelSignal(self._state)
        self._port = port
        self._on_progress = on_progress
        self._loop = _running_loop()
        self._keys: dict[str, int] = {}
        self.kept: object = None
        """What a layer above keeps with the handle, for as long as the handle lives."""

    def __repr__(self) -> str:
        return f"<Call {self.id!r} of {self.name!r}{', ended' if self._state.closed else ''}>"

    @property
    def port(self) -> CallPort:
        """What the harness put behind this handle.

        Raises:
            CallEnded: The call has ended.
        """
        self._check_open()
        return self._port

    def progress(
        self,
        message: str = "",
        *,
        done: float | None = None,
        total: float | None = None,
        details: object = None,
    ) -> None:
        """Show how far the tool has come. It never waits, and may be called from a tool's thread.

        Raises:
            CallEnded: The call has ended.
        """
        self._check_open()
        if self._on_progress is None:
            return
        if details is None and done is not None:
            details = ProgressInfo(done=done, total=total)
        partial = ToolResult(message, details=details)
        if self._loop is None or self._loop is _running_loop():
            self._on_progress(partial)
        else:
            self._loop.call_soon_threadsafe(self._on_progress, partial)

    @property
    def fence(self) -> str:
        """What tells the driver in force from all others, for systems that can compare it.

        A driver that lost its lease while it slept may still be inside its tool (LOG 2.2); whoever
        is handed the fence can refuse all but the newest. Empty where nothing is recorded.
        """
        return str(getattr(self._port, "fence", ""))

    @property
    def deployment(self) -> str:
        """Who runs it, as the agent's `identity` says; empty if nobody did.

        It is a claim of whoever started the process, and nothing that a model can set.
        """
        return str(getattr(self._port, "deployment", ""))

    @property
    def principal(self) -> str:
        """For whom it runs, as whoever began the run said; empty if nobody did."""
        return str(getattr(self._port, "principal", ""))

    def next_key(self, name: str) -> str:
        """A key for one operation of the call: the same when the call runs again.

        It is made of the call's own key, the name, and how often the name was asked for before, so
        a tool that asks in the same order gets the same keys. Operations that run at once need
        names of their own.

        Args:
            name: What the operation is called.

        Raises:
            CallEnded: The call has ended.
            ConfigError: The name is empty, or the call has no key of its own.
        """
        self._check_open()
        if not name:
            raise ConfigError("next_key() needs a name")
        if not self.idempotency_key:
            raise ConfigError(f"call {self.id!r} has no key, so none can be made of it")
        place = self._keys[name] = self._keys.get(name, 0) + 1
        return f"{self.idempotency_key}/{name}/{place}"

    async def write_record(self, namespace: str, data: object) -> None:
        """Put a record of the tool's own into the log; it returns when the record is durable.

        Where nothing is recorded, it does nothing, so a tool calls it without asking.

        Args:
            namespace: Whose it is and what, as `acme:job`.
            data: Any JSON value.

        Raises:
            CallEnded: The call has ended.
            ConfigError: The namespace is not of that form, or the data is not JSON.
        """
        port = self.port
        if not _NAMESPACE.fullmatch(namespace):
            raise ConfigError(f"a record's namespace is OWNER:KIND, not {namespace!r}")
        given_json(data, f"record {namespace!r}")
        await port.write_record(self, namespace, data)

    def block_on(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine on the drive's loop and wait for it, in a sync tool's thread.

        Example:
            `call.block_on(call.write_record("acme:job", {"id": 7}))`

        Raises:
            CallEnded: The call has ended.
            ConfigError: It was called on the loop itself, where waiting would stop it.
        """
        if self._state.closed:
            work.close()
            raise CallEnded(self.id)
        if self._loop is None or self._loop is _running_loop():
            work.close()
            raise ConfigError("block_on() is for the threads of sync tools; here, await instead")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def part(self, id: str, name: str, arguments: str) -> Call:  # noqa: A002 - as above
        """A handle for a part of the call's work: told to stop, and closed, with the call."""
        return Call(
            id=id,
            name=name,
            arguments=arguments,
            idempotency_key=f"{self.idempotency_key}/{id}",
            effect=self.effect,
            port=self.port,
            state=self._state,
        )

    def leave_running(self, work: Work) -> None:
        """Note that work goes on although the tool's coroutine was cancelled, as a thread's does.

        The call then counts as abandoned and not as cancelled, and what the work gives is late.
        """
        self._state.left_running = work

    def doubt(self, error: OutcomeUnknown) -> None:
        """Note that nobody knows what came of a part of the call; the call is judged by that."""
        self._state.unknown = error

    def suspend(self) -> None:
        """Note that the signal of a wait is on its way through the tool."""
        self._state.suspended = True

    def _check_open(self) -> None:
        if self._state.closed:
            raise CallEnded(self.id)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# --- which call is running ------------------------------------------------------------

running_call: ContextVar[Call | None] = ContextVar("perdure_running_call", default=None)
"""Set by the executor before it creates the task of a tool."""


def current_call() -> Call:
    """The call whose tool is running.

    Raises:
        ConfigError: No tool is running here.
    """
    call = running_call.get()
    if call is None:
        raise ConfigError("current_call() was called outside a tool")
    return call
